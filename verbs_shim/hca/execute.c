#include "hca/execute.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "core/event.h"
#include "core/owed.h"

#define NUMBER_MASK 0xffffffu

/* ---- failing ---- */

/* A class-C error: the responder's QP goes to ERR and its holders are told. */
static void fail_qp(struct vs_qp_shm *peer, uint32_t qpn, uint32_t event)
{
	uint64_t owed = vs_owed_begin(peer, VS_OWED_FAILED, event);

	if (!vs_qp_fail(peer)) {
		vs_owed_cancel(peer, VS_OWED_FAILED, owed);
		return;
	}
	VS_POINT(qp_failed);
	vs_owed_tell(peer, qpn, VS_OWED_FAILED, owed);
}

enum vs_verdict vs_refuse(struct vs_request *req, struct vs_qp_shm *peer, enum vs_verdict verdict)
{
	if (peer->type == IBV_QPT_UC)
		return VS_NO_RESPONSE; /* unreliable: the message is dropped, nobody is told */
	if (vs_load(&peer->s.word) != req->from->peer.word)
		return VS_NO_RESPONSE; /* it goes just now, and what it was asked for may have gone with it (core/reap.c) */
	VS_COUNT(naks_sent, req->arrived, peer);
	fail_qp(peer, req->from->shm->dest_qpn, verdict == VS_NAK_ACCESS || verdict == VS_NAK_XRC ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
	return verdict;
}

/* Defined for datagrams alone, and HCAs differ. */
static uint32_t src_qp(const struct vs_request *req)
{
	bool xrc = req->from->ibv.qp_type == IBV_QPT_XRC_SEND;

	return xrc && vs_load_relaxed(&vs_seg->knobs.src_qp) == VS_SRC_QP_MLX4 ? req->wr->srqn & NUMBER_MASK : req->from->id;
}

static struct vs_cqe receive_cqe(const struct vs_request *req, uint8_t opcode)
{
	const struct vs_qp_shm *me = req->from->shm;
	return (struct vs_cqe){
		.opcode = opcode,
		.status = IBV_WC_SUCCESS,
		.wc_flags = vs_op_is(req->wr->opcode, VS_OP_IMMEDIATE) ? IBV_WC_WITH_IMM : 0,
		.qpn = me->dest_qpn,
		.byte_len = req->wr->length,
		.imm = req->wr->imm,
		.src_qp = src_qp(req),
		.sl = vs_qp_primary(req->from->shm)->av.sl,
		.solicited = (req->wr->flags & IBV_SEND_SOLICITED) != 0,
	};
}

/* No WQE. An unreliable QP has nobody to answer to: the message is lost. */
static enum vs_verdict rnr(struct vs_request *req, struct vs_qp_shm *peer)
{
	if (peer->type == IBV_QPT_UC) {
		VS_COUNT(dropped, req->arrived, peer);
		return VS_NO_RESPONSE;
	}
	VS_COUNT(rnr_sent, req->arrived, peer);
	VS_COUNT(rnr_received, req->departed, req->from->shm);
	req->rnr_timer = peer->min_rnr_timer;
	return VS_RNR;
}

/* The WQE was taken and cannot be used: it completes with the receiver's own status. */
static enum vs_verdict spoil(struct vs_request *req, struct vs_qp_shm *peer, const struct vs_target *t, const struct vs_taken *taken,
			     uint8_t status, enum vs_verdict verdict)
{
	struct vs_cqe cqe = receive_cqe(req, IBV_WC_RECV);

	cqe.status = status;
	cqe.byte_len = 0;
	vs_complete_recv(t, taken, &cqe);
	return vs_refuse(req, peer, verdict);
}

static enum vs_verdict finish_recv(struct vs_request *req, struct vs_qp_shm *peer, const struct vs_target *t,
				   const struct vs_taken *taken, struct vs_cqe *cqe)
{
	if (vs_complete_recv(t, taken, cqe))
		return VS_ACK;
	fail_qp(peer, req->from->shm->dest_qpn, IBV_EVENT_QP_FATAL);
	return VS_NAK_OP;
}

/* ---- SEND ---- */

static void gather(char *to, const struct vs_local *from, uint32_t length)
{
	for (unsigned i = 0; i < from->n && length > 0; i++) {
		uint32_t n = from->iov[i].iov_len < length ? (uint32_t)from->iov[i].iov_len : length;

		memcpy(to, from->iov[i].iov_base, n);
		to += n;
		length -= n;
	}
}

/* The payload, or where the receiver's poll finds it. 0, EFAULT, ESRCH. */
static int place_payload(struct vs_request *req, const struct vs_target *t, const struct vs_taken *taken, struct vs_cqe *cqe)
{
	const struct vs_local *from = req->local;
	uint32_t length = req->wr->length;

	if (length > t->view.bounce)
		return vs_place(req->from, t->owner, true, taken->sge, taken->num_sge, from->iov, from->n, length);
	cqe->payload = length <= VS_CQE_DATA ? VS_PAYLOAD_HERE : VS_PAYLOAD_BOUNCED;
	gather(cqe->payload == VS_PAYLOAD_HERE ? (char *)cqe->data : vs_rq_bounce(&t->view, taken->wqe), from, length);
	VS_POINT(send_bounced);
	return 0;
}

static enum vs_verdict place_message(struct vs_request *req, struct vs_qp_shm *peer, const struct vs_target *t, struct vs_taken *taken)
{
	struct vs_cqe cqe = receive_cqe(req, IBV_WC_RECV);
	int err = place_payload(req, t, taken, &cqe);

	VS_POINT(send_placed);
	if (err == ESRCH) {
		vs_rq_give_back(&t->view, taken->wqe);
		vs_event_send(t->owner, VS_EVENT_RQ_RETURN, t->rq & VS_RQ_SRQ ? VS_SRQ : VS_QP, t->rq & ~VS_RQ_SRQ, 0); /* if it is alive after all */
		return VS_NO_RESPONSE;
	}
	if (err)
		return spoil(req, peer, t, taken, IBV_WC_LOC_PROT_ERR, VS_NAK_OP);
	return finish_recv(req, peer, t, taken, &cqe);
}

static enum vs_verdict respond_send(struct vs_request *req, struct vs_qp_shm *peer, const struct vs_target *t)
{
	struct vs_taken taken;

	if (!vs_take(t, &taken))
		return rnr(req, peer);
	if (!vs_taken_valid(t, &taken))
		return spoil(req, peer, t, &taken, IBV_WC_LOC_PROT_ERR, VS_NAK_OP);
	if (req->wr->length > taken.room)
		return spoil(req, peer, t, &taken, IBV_WC_LOC_LEN_ERR, VS_NAK_INVALID);
	return place_message(req, peer, t, &taken);
}

/* ---- RDMA ---- */

/* The region a one-sided request names. Zero-length requests name none. */
static enum vs_verdict check_remote(struct vs_request *req, const struct vs_qp_shm *peer, const struct vs_target *t, unsigned access,
				    struct vs_sge *remote)
{
	if (!(peer->access & access))
		return VS_NAK_INVALID;
	remote->addr = req->wr->remote_addr;
	remote->length = req->wr->length;
	remote->lkey = req->wr->rkey;
	if (req->wr->length == 0)
		return VS_ACK;
	return vs_check_key(req->wr->rkey, t->owner, t->rdma_pd, remote->addr, remote->length, access, &remote->addr) ? VS_ACK : VS_NAK_ACCESS;
}

static enum vs_verdict move_rdma(struct vs_request *req, struct vs_qp_shm *peer, const struct vs_target *t, bool write,
				 const struct vs_sge *remote)
{
	int err = vs_place(req->from, t->owner, write, remote, 1, req->local->iov, req->local->n, req->wr->length);

	if (err == ESRCH)
		return VS_NO_RESPONSE;
	return err ? vs_refuse(req, peer, VS_NAK_OP) : VS_ACK;
}

static enum vs_verdict respond_rdma(struct vs_request *req, struct vs_qp_shm *peer, const struct vs_target *t, bool write)
{
	struct vs_sge remote;
	enum vs_verdict v = check_remote(req, peer, t, write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ, &remote);

	if (v != VS_ACK)
		return vs_refuse(req, peer, v);
	return move_rdma(req, peer, t, write, &remote);
}

static enum vs_verdict respond_write_imm(struct vs_request *req, struct vs_qp_shm *peer, const struct vs_target *t)
{
	struct vs_cqe cqe = receive_cqe(req, IBV_WC_RECV_RDMA_WITH_IMM);
	struct vs_sge remote;
	struct vs_taken taken;
	enum vs_verdict v = check_remote(req, peer, t, IBV_ACCESS_REMOTE_WRITE, &remote);

	if (v != VS_ACK)
		return vs_refuse(req, peer, v);
	if (vs_rq_available(&t->view) == 0)
		return rnr(req, peer);
	v = move_rdma(req, peer, t, true, &remote);
	if (v != VS_ACK)
		return v;
	/* Only the last packet of the message needs the WQE; when others were faster, the repeat writes the same bytes again. */
	if (!vs_take(t, &taken))
		return rnr(req, peer);
	return finish_recv(req, peer, t, &taken, &cqe);
}

/* ---- atomics: on the target's memory ---- */

/* One at a time for each target process. */
/* false: somebody has had it for longer than anybody needs it. */
static bool lock_atomics(struct vs_proc_shm *proc)
{
	struct vs_patience patience = { 0 };

	for (unsigned spins = 1; !vs_cas(&proc->atomic_lock, 0, vs_me_id); spins++) {
		uint32_t holder = vs_load(&proc->atomic_lock);

		if (spins % 1024 == 0 && holder && !vs_process_alive(holder))
			vs_cas(&proc->atomic_lock, holder, 0);
		vs_place_serve_meanwhile(); /* whoever holds it may have asked this engine for the word */
		sched_yield();
		if (vs_patience_ends(&patience))
			return false;
	}
	return true;
}

/* By the CPU's atomics only? Without IBV_ATOMIC_GLOB, and on words that CPUs have no atomics for, it is enough to be atomic among HCA
 * operations (IBV_ATOMIC_HCA). */
static bool by_cpu_alone(const struct vs_sge *remote)
{
	return vs_fabric_atomics() == VS_ATOMICS_GLOB && remote->addr % sizeof(uint64_t) == 0;
}

static int change_word(struct vs_qp *from, uint32_t owner, const struct vs_sge *remote, const struct vs_send *wr, uint64_t *old)
{
	struct vs_atomic op = { wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD, wr->compare_add, wr->swap };
	struct iovec word = { old, sizeof(*old) };
	uint64_t changed, *here = vs_place_word(from, owner, remote);
	int err;

	if (here) {
		*old = vs_place_change(here, &op);
		return 0;
	}
	if (by_cpu_alone(remote))
		return vs_place_change_there(owner, remote, &op, old);
	err = vs_place(from, owner, false, remote, 1, &word, 1, sizeof(*old));
	if (err)
		return err;
	VS_POINT(atomic_read);
	changed = vs_atomic_result(&op, *old);
	if (changed == *old)
		return 0;
	word.iov_base = &changed;
	return vs_place(from, owner, true, remote, 1, &word, 1, sizeof(*old));
}

static void return_result(const struct vs_request *req, uint64_t result)
{
	struct iovec from = { &result, sizeof(result) };

	vs_copy_ranges(req->local->iov, req->local->n, &from, 1, sizeof(result));
}

static void save_result(struct vs_qp_shm *peer, uint32_t psn, uint64_t result)
{
	struct vs_saved_atomic *s = &peer->saved[peer->next_saved++ % VS_SAVED_ATOMICS];

	*s = (struct vs_saved_atomic){ .result = result, .psn = psn, .valid = 1 };
}

bool vs_replay_atomic(struct vs_request *req, const struct vs_qp_shm *peer)
{
	for (unsigned i = 0; i < VS_SAVED_ATOMICS; i++)
		if (peer->saved[i].valid && peer->saved[i].psn == req->psn) {
			return_result(req, peer->saved[i].result);
			return true;
		}
	return false;
}

static enum vs_verdict respond_atomic(struct vs_request *req, struct vs_qp_shm *peer, const struct vs_target *t)
{
	struct vs_proc_shm *proc = vs_process(t->owner);
	struct vs_sge remote;
	enum vs_verdict v;
	uint64_t old;
	bool in_turn;
	int err;

	if (req->wr->remote_addr % 8)
		return vs_refuse(req, peer, VS_NAK_INVALID);
	v = check_remote(req, peer, t, IBV_ACCESS_REMOTE_ATOMIC, &remote);
	if (v != VS_ACK)
		return vs_refuse(req, peer, v);
	if (!proc)
		return VS_NO_RESPONSE;
	in_turn = !by_cpu_alone(&remote);
	if (in_turn && !lock_atomics(proc))
		return VS_NO_RESPONSE;
	VS_POINT(atomic_locked);
	err = change_word(req->from, t->owner, &remote, req->wr, &old);
	VS_POINT(atomic_written);
	if (!err)
		save_result(peer, req->psn, old);
	VS_POINT(atomic_saved);
	if (in_turn)
		vs_store(&proc->atomic_lock, 0);
	if (err == ESRCH)
		return VS_NO_RESPONSE;
	if (err)
		return vs_refuse(req, peer, VS_NAK_OP);
	return_result(req, old);
	return VS_ACK;
}

/* ---- the table of operations ---- */

enum vs_verdict vs_execute(struct vs_request *req, struct vs_qp_shm *peer, const struct vs_target *target)
{
	switch (req->wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return respond_send(req, peer, target);
	case IBV_WR_RDMA_WRITE:
		return respond_rdma(req, peer, target, true);
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return respond_write_imm(req, peer, target);
	case IBV_WR_RDMA_READ:
		return respond_rdma(req, peer, target, false);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return respond_atomic(req, peer, target);
	default:
		return vs_refuse(req, peer, VS_NAK_INVALID);
	}
}
