/* Datagrams. No answer, no retry: what nobody waits for is dropped without a word. The receive buffer starts with 40 bytes for a
 * GRH, valid only if the sender's address handle has one. */
#include "hca/hca.h"

#include <endian.h>
#include <string.h>

#include "core/cq.h"
#include "core/limits.h"
#include "core/qp.h"

#define QKEY_OF_QP 0x80000000u

static struct vs_port_shm *source_port(const struct vs_qp *qp)
{
	return vs_fabric_port(vs_fabric_hca(qp->hca_index), qp->shm->port);
}

static bool takes(struct vs_qp *qp, const struct vs_send *wr, const struct vs_port_shm *from, struct vs_qp_shm *peer,
		  const struct vs_port_shm *to)
{
	uint32_t qkey = wr->remote_qkey & QKEY_OF_QP ? qp->shm->qkey : wr->remote_qkey, state = vs_load(&peer->state);

	if (peer->hca != to->hca || !vs_qp_there(peer) || peer->type != IBV_QPT_UD || peer->port != to->num || peer->qkey != qkey)
		return false;
	if (state != IBV_QPS_RTR && state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_SQE)
		return false;
	return vs_fabric_pkey_match(from->pkey[vs_qp_primary(qp->shm)->pkey_index % VS_PKEY_TABLE],
				    to->pkey[vs_qp_primary(peer)->pkey_index % VS_PKEY_TABLE]);
}

static void write_grh(const struct vs_port_shm *from, const struct vs_av *av, uint32_t length, struct ibv_grh *grh)
{
	union ibv_gid gid;

	memset(grh, 0, sizeof(*grh));
	if (!av->is_global)
		return;
	grh->version_tclass_flow = htobe32(6u << 28 | (uint32_t)av->traffic_class << 20 | (av->flow_label & 0xfffff));
	grh->paylen = htobe16((uint16_t)length);
	grh->next_hdr = 0x1b;
	grh->hop_limit = av->hop_limit;
	vs_fabric_gid(from, 0, &gid);
	grh->sgid = gid;
	memcpy(grh->dgid.raw, av->gid, sizeof(grh->dgid.raw));
}

/* Which of its LIDs the receiving port was reached by. A group's LID is none of them. */
static uint8_t path_bits(const struct vs_av *av, const struct vs_port_shm *to)
{
	return av->dlid < VS_LID_LIMIT ? (uint8_t)(av->dlid & ((1u << (to->lmc & 7)) - 1)) : 0;
}

/* What peer, the QP with the number qpn, is told of the message. */
static struct vs_cqe datagram_cqe(const struct vs_request *req, const struct vs_port_shm *from, const struct vs_port_shm *to,
				  struct vs_qp_shm *peer, uint32_t qpn)
{
	const struct vs_send *wr = req->wr;
	const struct vs_av *av = &wr->ah->av;

	return (struct vs_cqe){
		.opcode = IBV_WC_RECV,
		.status = IBV_WC_SUCCESS,
		.wc_flags = (uint8_t)((wr->opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_WITH_IMM : 0) | (av->is_global ? IBV_WC_GRH : 0)),
		.qpn = qpn,
		.byte_len = wr->length + VS_GRH_BYTES,
		.imm = wr->imm,
		.src_qp = req->from->id,
		.slid = (uint16_t)(from->ethernet ? 0 : from->lid | av->path_bits),
		.pkey_index = vs_qp_primary(peer)->pkey_index,
		.sl = av->sl,
		.path_bits = path_bits(av, to),
		.solicited = (wr->flags & IBV_SEND_SOLICITED) != 0,
	};
}

/* The message as the receiver sees it: GRH, then payload. */
static unsigned with_grh(struct iovec *out, struct ibv_grh *grh, const struct vs_local *local)
{
	out[0] = (struct iovec){ grh, VS_GRH_BYTES };
	memcpy(out + 1, local->iov, local->n * sizeof(*out));
	return local->n + 1;
}

static void deliver(struct vs_qp *from, const struct vs_target *t, struct vs_taken *taken, const struct iovec *iov, unsigned n,
		    struct vs_cqe *cqe)
{
	if (!vs_taken_valid(t, taken)) {
		cqe->status = IBV_WC_LOC_PROT_ERR;
	} else if (cqe->byte_len > taken->room) {
		cqe->status = IBV_WC_LOC_LEN_ERR; /* as HCAs do; qib would drop the message and keep the WQE */
	} else if (cqe->byte_len <= t->view.bounce) {
		struct iovec bounce = { vs_rq_bounce(&t->view, taken->wqe), cqe->byte_len };

		vs_copy_ranges(&bounce, 1, iov, n, cqe->byte_len);
		cqe->payload = VS_PAYLOAD_BOUNCED;
	} else if (vs_place(from, t->owner, true, taken->sge, taken->num_sge, iov, n, cqe->byte_len)) {
		cqe->status = IBV_WC_LOC_PROT_ERR;
	}
	VS_POINT(ud_delivered);
	vs_complete_recv(t, taken, cqe);
}

/* One copy, for one receiving QP. */
static enum vs_verdict send_to(struct vs_request *req, struct vs_port_shm *from, struct vs_port_shm *to, struct vs_qp_shm *peer,
			       uint32_t qpn)
{
	const struct vs_send *wr = req->wr;
	struct iovec iov[VS_MAX_SGE + 1];
	struct vs_target target;
	struct vs_taken taken;
	struct vs_cqe cqe;
	struct ibv_grh grh;
	unsigned n;

	if (!vs_target_of_qp(peer, qpn, &target))
		return VS_ACK;
	if (!vs_peer_fresh(target.owner)) {
		if (req->looked && !vs_process(target.owner))
			return VS_ACK;
		req->looked = true;
		req->peer_proc = target.owner;
		return VS_CHECK_PEER;
	}
	if (!vs_cq_ready(&target.cq))
		return VS_AGAIN;
	if (!vs_take(&target, &taken)) {
		VS_COUNT(dropped, to, peer);
		return VS_ACK;
	}
	write_grh(from, &wr->ah->av, wr->length, &grh);
	n = with_grh(iov, &grh, req->local);
	cqe = datagram_cqe(req, from, to, peer, qpn);
	deliver(req->from, &target, &taken, iov, n, &cqe);
	return VS_ACK;
}

/* Loss, doubling and delay as ordered for datagrams. A late one holds up those behind it on this QP, not those of other QPs. */
static enum vs_verdict send_with_faults(struct vs_request *req, struct vs_port_shm *from, struct vs_qp_shm *peer, struct vs_port_shm *to)
{
	uint32_t qpn = req->wr->remote_qpn & 0xffffff;
	enum vs_verdict v;

	req->departed = from;
	req->arrived = to;
	if (vs_request_fault(req, VS_WHAT_DATAGRAM) == VS_RULE_DELAY)
		return VS_LATE;
	if (req->fault == VS_RULE_DROP) {
		VS_COUNT(dropped, from, req->from->shm);
		return VS_ACK;
	}
	v = send_to(req, from, to, peer, qpn);
	if (req->fault == VS_RULE_DUP && v == VS_ACK)
		v = send_to(req, from, to, peer, qpn);
	return v;
}

/* Every QP attached to the group on a port that is up gets a copy, the sender's own included. *nth counts copies, of which
 * req->copies are sent, so that a second try does not send them again. */
static enum vs_verdict send_copies(struct vs_request *req, struct vs_port_shm *from, uint32_t *nth)
{
	const struct vs_av *av = &req->wr->ah->av;
	struct vs_mcast_shm *m;
	uint32_t index;

	vs_for_each_live (VS_MCAST, index, m) {
		struct vs_qp_shm *peer = vs_slot_get(VS_QP, m->qp);
		struct vs_port_shm *to = peer ? vs_fabric_port(vs_fabric_hca(peer->hca), peer->port) : NULL;
		enum vs_verdict v;

		if (m->qp == req->from->id && req->from->no_own_mcast)
			continue; /* it asked for none of its own */
		if (m->lid != av->dlid || memcmp(m->gid, av->gid, sizeof(m->gid)) || !to || !vs_fabric_up(from, to) ||
		    !takes(req->from, req->wr, from, peer, to))
			continue;
		if ((*nth)++ < req->copies)
			continue;
		v = send_to(req, from, to, peer, m->qp);
		if (v != VS_ACK)
			return v;
		req->copies++;
	}
	return VS_ACK;
}

/* One packet until the fabric copies it: faults meet it where it leaves. */
static enum vs_verdict send_to_group(struct vs_request *req, struct vs_port_shm *from)
{
	uint32_t nth = 0;
	enum vs_verdict v;

	req->departed = req->arrived = from;
	if (vs_request_fault(req, VS_WHAT_DATAGRAM) == VS_RULE_DELAY)
		return VS_LATE;
	if (req->fault == VS_RULE_DROP) {
		VS_COUNT(dropped, from, req->from->shm);
		return VS_ACK;
	}
	v = send_copies(req, from, &nth);
	if (v == VS_ACK && req->fault == VS_RULE_DUP)
		v = send_copies(req, from, &nth);
	return v;
}

enum vs_verdict vs_ud_send(struct vs_request *req)
{
	struct vs_port_shm *from = source_port(req->from), *to;
	const struct vs_send *wr = req->wr;
	struct vs_qp_shm *peer;

	if (wr->length > VS_MAX_MTU) {
		req->status = IBV_WC_LOC_LEN_ERR;
		return VS_LOCAL_ERROR;
	}
	if (!from)
		return VS_ACK;
	if (wr->ah->av.dlid >= VS_LID_LIMIT)
		return send_to_group(req, from);
	to = vs_fabric_route(from, &wr->ah->av);
	peer = vs_slot_get(VS_QP, wr->remote_qpn & 0xffffff);
	if (!to || !peer || !takes(req->from, wr, from, peer, to))
		return VS_ACK;
	return send_with_faults(req, from, peer, to);
}
