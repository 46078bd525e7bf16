/* The responder, carried out by the requester's thread. The order of checks is the one that HCAs show: is there a QP that listens; its
 * path and P_Key; PSN; the SRQ number; the QP's access flags; the remote key; the WQE; the WQE's own keys. */
#include "core/cq.h"
#include "core/owed.h"
#include "hca/execute.h"
#include "hca/path.h"

#define PSN_MASK 0xffffffu

/* ---- finding the QP, the way there and the way back ---- */

static bool types_match(uint32_t requester, uint32_t responder)
{
	return requester == IBV_QPT_XRC_SEND ? responder == IBV_QPT_XRC_RECV : requester == responder;
}

static bool listens(const struct vs_qp_shm *qp)
{
	uint32_t state = vs_load(&qp->state);

	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

static bool known(const struct vs_qp *qp)
{
	const struct vs_peer *p = &qp->peer;

	return p->epoch == vs_load(&vs_seg->fabric_epoch) && p->my_path == vs_load(&qp->shm->path_word) &&
	       vs_load(&p->qp->s.word) == p->word && vs_load(&p->qp->path_word) == p->its_path;
}

/* The QP that a request sent now is for, or NULL, and the way there: *packet, unless the way is known. Nothing has arrived yet. What says
 * whether the way is still the same is read before the way. */
static struct vs_qp_shm *find_peer(struct vs_qp *qp, struct vs_packet *packet)
{
	struct vs_peer *p = &qp->peer;

	if (known(qp))
		return listens(p->qp) ? p->qp : NULL;
	p->epoch = 0;
	p->looked = vs_load(&vs_seg->fabric_epoch);
	p->my_path = vs_load(&qp->shm->path_word);
	p->qp = vs_slot_get(VS_QP, qp->shm->dest_qpn);
	if (!p->qp)
		return NULL;
	p->its_path = vs_load(&p->qp->path_word);
	if (!vs_path_send(qp->shm, packet))
		return NULL;
	p->word = vs_load(&p->qp->s.word);
	if ((p->word & 0xff) != VS_LIVE || !types_match(qp->shm->type, p->qp->type) || p->qp->dest_qpn != qp->id || !listens(p->qp) ||
	    !vs_qp_there(p->qp))
		return NULL;
	p->from = packet->from;
	p->port = packet->to;
	return p->qp;
}

static bool settled(uint64_t path_word)
{
	return (path_word & 0xff) != IBV_MIG_REARM;
}

/* Does the peer's answer come back? It may arm or migrate the requester; an unreliable QP gets none. What was found is remembered if
 * the next packet would find the same. */
static bool answer_arrives(struct vs_qp *qp, struct vs_qp_shm *peer)
{
	struct vs_peer *p = &qp->peer;
	struct vs_packet packet;

	if (p->epoch)
		return true;
	if (peer->type != IBV_QPT_UC && (!vs_path_send(peer, &packet) || !vs_path_receive(qp->shm, qp->id, &packet)))
		return false;
	if (settled(p->my_path) && settled(p->its_path))
		p->epoch = p->looked;
	return true;
}

/* ---- what the message is for ---- */

static bool look_for_target(struct vs_request *req, struct vs_qp_shm *peer, uint32_t srqn, struct vs_target *t)
{
	struct vs_srq_shm *srq;

	if (peer->type != IBV_QPT_XRC_RECV)
		return vs_target_of_qp(peer, req->from->shm->dest_qpn, t);
	srq = vs_slot_get(VS_SRQ, srqn);
	if (!srq || srq->type != IBV_SRQT_XRC || srq->xrcd != peer->xrcd) {
		VS_COUNT(unknown_srqn, req->arrived, peer);
		return false;
	}
	return vs_target_of_srq(srq, srqn, t);
}

static uint32_t srqn_of(const struct vs_request *req)
{
	return req->from->ibv.qp_type == IBV_QPT_XRC_SEND ? req->wr->srqn & PSN_MASK : 0;
}

/* What a SEND will write to was written by the receiver last, so the first look at each of these lines takes as long as it takes to come
 * here from another core. Ask for them together and at once; where the last message went the same way, that is known. */
static void fetch_ahead(const struct vs_request *req)
{
	const struct vs_target *t = &req->from->targets[srqn_of(req) % VS_TARGETS];

	if (!vs_op_is(req->wr->opcode, VS_OP_SENDS) || !t->peer || vs_load(&t->slot->word) != t->word || !t->cq.ring)
		return;
	vs_prefetch_write(&t->cq.ring[vs_load_relaxed(&t->cq.shm->ring.tail) & (t->cq.entries - 1)]);
	vs_rq_fetch_ahead(&t->view);
}

static struct vs_target *find_target(struct vs_request *req, struct vs_qp_shm *peer)
{
	uint32_t srqn = srqn_of(req);
	struct vs_qp *qp = req->from;
	struct vs_target *t = &qp->targets[srqn % VS_TARGETS];

	if (t->peer == peer && t->peer_word == qp->peer.word && t->srqn == srqn && vs_load(&t->slot->word) == t->word)
		return t;
	t->peer = NULL;
	if (!look_for_target(req, peer, srqn, t))
		return NULL;
	t->peer = peer;
	t->peer_word = qp->peer.word;
	t->srqn = srqn;
	return t;
}

/* ---- the request as a whole ---- */

/* The first packet that an RTR QP receives tells that the other end is up. */
static void established(struct vs_qp_shm *peer, uint32_t qpn)
{
	if (vs_load(&peer->state) == IBV_QPS_RTR)
		vs_owed_establish(peer, qpn);
}

/* Ahead: a packet was lost. Behind: a repeat, answered but not carried out again, except a READ, which has no effect; an atomic's
 * answer is the saved one. An unreliable QP takes what comes. */
static bool in_sequence(struct vs_request *req, struct vs_qp_shm *peer, enum vs_verdict *v)
{
	uint32_t distance = (req->psn - peer->epsn) & PSN_MASK;

	if (distance == 0 || peer->type == IBV_QPT_UC)
		return true;
	if (distance < PSN_MASK / 2) {
		*v = VS_NAK_SEQ;
		return false;
	}
	VS_COUNT(duplicates, req->arrived, peer);
	*v = VS_ACK;
	if (vs_op_is(req->wr->opcode, VS_OP_ATOMICS)) {
		if (!vs_replay_atomic(req, peer))
			*v = vs_refuse(req, peer, VS_NAK_INVALID);
		return false;
	}
	return req->wr->opcode == IBV_WR_RDMA_READ;
}

static bool behind(const struct vs_request *req, const struct vs_qp_shm *peer)
{
	return ((req->psn - peer->epsn) & PSN_MASK) >= PSN_MASK / 2;
}

/* HCAs differ in what they make of an SRQ number that is none, or is in another domain. */
static enum vs_verdict bad_srqn(struct vs_request *req, struct vs_qp_shm *peer)
{
	switch (vs_load_relaxed(&vs_seg->knobs.bad_srqn)) {
	case VS_SRQN_NAK2:
		return vs_refuse(req, peer, VS_NAK_ACCESS);
	case VS_SRQN_NAK1:
		return vs_refuse(req, peer, VS_NAK_INVALID);
	case VS_SRQN_DROP:
		return VS_NO_RESPONSE;
	default:
		return vs_refuse(req, peer, VS_NAK_XRC);
	}
}

static enum vs_verdict carry_out(struct vs_request *req, struct vs_qp_shm *peer)
{
	struct vs_target *target;
	enum vs_verdict v;

	if (!in_sequence(req, peer, &v))
		return v;
	target = find_target(req, peer);
	if (!target)
		return peer->type == IBV_QPT_XRC_RECV ? bad_srqn(req, peer) : vs_refuse(req, peer, VS_NAK_OP);
	if (!vs_peer_fresh(target->owner)) {
		if (req->looked && !vs_process(target->owner))
			return VS_NO_RESPONSE; /* the queue is there, its owner is not: half-way through reaping, or forged */
		req->looked = true;
		req->peer_proc = target->owner;
		return VS_CHECK_PEER;
	}
	if (vs_op_is(req->wr->opcode, VS_OP_RETURN_DATA) && peer->max_dest_rd_atomic == 0)
		return vs_refuse(req, peer, VS_NAK_INVALID); /* it has no room for even one outstanding READ or atomic */
	if (!vs_cq_ready(&target->cq))
		return VS_AGAIN;
	VS_POINT(target_found);
	v = vs_execute(req, peer, target);
	if (v == VS_ACK && !behind(req, peer)) {
		vs_store_relaxed(&peer->epsn, (req->psn + req->packets) & PSN_MASK);
		peer->msn = (peer->msn + 1) & PSN_MASK;
	}
	return v;
}

enum vs_rule_kind vs_request_fault(struct vs_request *req, enum vs_rule_what what)
{
	if (!req->fault_known && !req->wr->late)
		req->fault = vs_fault_packet(req->departed, req->arrived, what, &req->delay_us);
	req->fault_known = true;
	return req->fault;
}

/* And for the answer. A second one changes nothing; a late one is as good as the timer's next try, so only loss matters. */
static bool answer_lost(struct vs_request *req)
{
	uint32_t delay;

	if (req->from->shm->type == IBV_QPT_UC)
		return false;
	if (vs_fault_packet(req->arrived, req->departed, VS_WHAT_ACK, &delay) != VS_RULE_DROP)
		return false;
	VS_COUNT(dropped, req->arrived, req->from->peer.qp);
	return true;
}

enum vs_verdict vs_respond(struct vs_request *req)
{
	struct vs_packet packet;
	struct vs_qp_shm *peer;
	enum vs_verdict v;

	fetch_ahead(req);
	peer = find_peer(req->from, &packet);
	if (!peer)
		return VS_NO_RESPONSE;
	req->departed = req->from->peer.from;
	req->arrived = req->from->peer.port;
	if (vs_request_fault(req, VS_WHAT_PACKET) == VS_RULE_DELAY)
		return VS_LATE;
	if (req->fault == VS_RULE_DROP) {
		VS_COUNT(dropped, req->departed, req->from->shm);
		return VS_NO_RESPONSE;
	}
	/* It arrives, and may arm or migrate the peer. */
	if (!req->from->peer.epoch && !vs_path_receive(peer, req->from->shm->dest_qpn, &packet))
		return VS_NO_RESPONSE;
	established(peer, req->from->shm->dest_qpn);
	v = carry_out(req, peer);
	if (v == VS_CHECK_PEER || v == VS_AGAIN || v == VS_NO_RESPONSE)
		return v;
	if (req->fault == VS_RULE_DUP && v == VS_ACK)
		carry_out(req, peer);
	return !answer_lost(req) && answer_arrives(req->from, peer) ? v : VS_NO_RESPONSE;
}
