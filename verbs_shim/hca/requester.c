#include "hca/hca.h"

#include <sched.h>

#include "core/cq.h"
#include "core/event.h"
#include "core/limits.h"
#include "core/qp.h"
#include "hca/path.h"
#include "hca/wr.h"

#define PSN_MASK 0xffffffu
#define RNR_FOR_EVER 7

/* ---- local side of a WR ---- */

/* 0, or the completion status that the local check gives. */
static uint8_t local_ranges(const struct vs_qp *qp, const struct vs_send *wr, struct vs_local *out)
{
	unsigned access = vs_op_is(wr->opcode, VS_OP_RETURN_DATA) ? IBV_ACCESS_LOCAL_WRITE : 0;

	if (wr->flags & IBV_SEND_INLINE) {
		out->iov[0] = (struct iovec){ wr->inline_data, wr->length };
		out->n = 1;
		return IBV_WC_SUCCESS;
	}
	out->n = 0;
	for (uint32_t i = 0; i < wr->num_sge; i++) {
		const struct vs_sge *sge = &wr->sge[i];
		uint64_t at;

		if (sge->length == 0)
			continue;
		if (!vs_own_key(sge->lkey, qp->pd->id, sge->addr, sge->length, access, &at))
			return IBV_WC_LOC_PROT_ERR;
		out->iov[out->n++] = (struct iovec){ (void *)(uintptr_t)at, sge->length };
	}
	return IBV_WC_SUCCESS;
}

/* ---- completing ---- */

static uint8_t wc_opcode(uint8_t wr_opcode)
{
	switch (wr_opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	default:
		return IBV_WC_SEND;
	}
}

/* A completion was lost: the program cannot know how far its queue is, so the QP cannot go on. */
static void fail_overrun(struct vs_qp *qp)
{
	if (!vs_qp_fail(qp->shm))
		return;
	VS_POINT(overrun_failed);
	vs_event_qp_failed(qp->shm, qp->id, IBV_EVENT_QP_FATAL, vs_load(&qp->shm->life));
}

void vs_complete_send(struct vs_qp *qp, uint64_t pos, uint8_t status)
{
	const struct vs_send *wr = &qp->sq.ring[pos & qp->sq.mask];
	struct vs_cqe cqe = {
		.opcode = wc_opcode(wr->opcode),
		.status = status,
		.kind = VS_CQE_SEND,
		.qpn = qp->id,
		.wqe = (uint32_t)pos,
		.byte_len = wr->length,
	};

	if (status == IBV_WC_SUCCESS && !(wr->flags & IBV_SEND_SIGNALED) && !qp->shm->sq_sig_all)
		return; /* retired with a later one */
	if (!vs_cq_push_own(qp->send_cq, &cqe))
		fail_overrun(qp);
}

void vs_requester_flush(struct vs_qp *qp)
{
	struct vs_hazard *h;

	if (!qp->sq.ring || vs_qp_lost(qp))
		return;
	h = vs_enter_cq(qp->send_cq->id);
	while (qp->sq.exec != qp->sq.head)
		vs_complete_send(qp, qp->sq.exec++, IBV_WC_WR_FLUSH_ERR);
	vs_exit(h);
	qp->sq.deadline = 0;
	vs_store_relaxed(&qp->sq.draining, false);
}

/* An unreliable QP whose own send fails goes on receiving: only its send queue is in error. */
static bool stop_sending(struct vs_qp *qp)
{
	uint32_t state = (uint32_t)vs_qp_state(qp);

	if (qp->ibv.qp_type != IBV_QPT_UC && qp->ibv.qp_type != IBV_QPT_UD)
		return false;
	return (state == IBV_QPS_RTS || state == IBV_QPS_SQD) && vs_cas(&qp->shm->state, state, IBV_QPS_SQE);
}

/* The head WR fails: it completes with status, the QP is in ERR, or SQE, and everything else is flushed. */
static void fail(struct vs_qp *qp, uint8_t status)
{
	struct vs_hazard *h = vs_enter_cq(qp->send_cq->id);
	bool moved;

	vs_complete_send(qp, qp->sq.exec++, status);
	vs_exit(h);
	VS_POINT(send_failed);
	if (stop_sending(qp)) {
		vs_requester_flush(qp);
		return;
	}
	moved = vs_qp_fail(qp->shm);
	vs_requester_flush(qp);
	vs_receive_flush(qp);
	if (qp->srq && moved)
		vs_event_qp(qp->shm, qp->id, IBV_EVENT_QP_LAST_WQE_REACHED, vs_load(&qp->shm->life));
}

/* ---- carrying out ---- */

/* Numbers that a request uses up: those of its own packets, or of the response's. */
static uint32_t packets(const struct vs_qp *qp, const struct vs_send *wr)
{
	uint32_t mtu = 128u << (qp->shm->path_mtu & 7);

	return wr->length <= mtu ? 1 : (wr->length + mtu - 1) / mtu;
}

static bool answered(struct vs_qp *qp, const struct vs_request *req)
{
	vs_store_relaxed(&qp->sq.psn, (qp->sq.psn + req->packets) & PSN_MASK);
	qp->sq.retries = qp->shm->retry_cnt;
	qp->sq.rnr_retries = qp->shm->rnr_retry;
	qp->sq.deadline = 0;
	return true;
}

/* false: wait until the deadline. */
static bool not_ready(struct vs_qp *qp, uint64_t now, uint8_t timer)
{
	vs_process_look_around(); /* a dead sender may hold the WQEs */
	if (qp->shm->rnr_retry != RNR_FOR_EVER) {
		if (qp->sq.rnr_retries == 0) {
			fail(qp, IBV_WC_RNR_RETRY_EXC_ERR);
			return false;
		}
		qp->sq.rnr_retries--;
	}
	qp->sq.deadline = now + vs_rnr_time(timer);
	return false;
}

/* Nothing came back: wait for the ack timer. */
static bool no_response(struct vs_qp *qp, struct vs_send *wr, uint64_t now)
{
	uint64_t time = vs_ack_time(vs_qp_primary(qp->shm)->timeout);

	vs_process_look_around();
	wr->late = 0;
	wr->started = 1;
	qp->sq.tried = vs_qp_primary(qp->shm);
	qp->sq.deadline = time ? now + time : UINT64_MAX;
	return false;
}

/* The ack timer ran out, as it does after each of retry_cnt + 1 tries. Then an armed QP migrates, any other gives up. One that software or
 * its peer has moved since the last try has all its tries on the new path. true: send again. */
static bool timed_out(struct vs_qp *qp, struct vs_send *wr)
{
	wr->started = 0;
	if (qp->sq.tried != vs_qp_primary(qp->shm)) {
		qp->sq.retries = qp->shm->retry_cnt;
	} else if (qp->sq.retries > 0) {
		qp->sq.retries--;
	} else if (vs_path_migrate(qp->shm, qp->id)) {
		qp->sq.retries = qp->shm->retry_cnt;
	} else {
		fail(qp, IBV_WC_RETRY_EXC_ERR);
		return false;
	}
	vs_add_relaxed(&qp->shm->counters.retries, 1);
	if (qp->peer.from)
		vs_add_relaxed(&qp->peer.from->counters.retries, 1);
	return true;
}

static uint8_t nak_status(enum vs_verdict v)
{
	switch (v) {
	case VS_NAK_INVALID:
		return IBV_WC_REM_INV_REQ_ERR;
	case VS_NAK_ACCESS:
		return IBV_WC_REM_ACCESS_ERR;
	case VS_NAK_XRC:
		return IBV_WC_REM_INV_RD_REQ_ERR;
	default:
		return IBV_WC_REM_OP_ERR;
	}
}

/* What a try needs before it is made: the WR's own ranges. 0 or a completion status. */
static uint8_t check_local(const struct vs_qp *qp, const struct vs_send *wr, struct vs_local *local)
{
	if (wr->length > vs_fabric_max_msg() || (vs_op_is(wr->opcode, VS_OP_ATOMICS) && wr->length != 8))
		return IBV_WC_LOC_LEN_ERR;
	if (vs_op_is(wr->opcode, VS_OP_RETURN_DATA) && qp->shm->max_rd_atomic == 0)
		return IBV_WC_LOC_QP_OP_ERR; /* none may be outstanding, so it could only wait for ever */
	return local_ranges(qp, wr, local);
}

/* One try, inside the data path. An unreliable QP's message is complete once sent, whatever became of it. */
static enum vs_verdict try_once(struct vs_request *req)
{
	struct vs_qp *qp = req->from;
	enum vs_verdict v;

	req->status = check_local(qp, req->wr, req->local);
	if (req->status != IBV_WC_SUCCESS)
		return VS_LOCAL_ERROR;
	v = qp->ibv.qp_type == IBV_QPT_UD ? vs_ud_send(req) : vs_respond(req);
	if (v != VS_CHECK_PEER && v != VS_AGAIN && v != VS_LATE && qp->ibv.qp_type == IBV_QPT_UC)
		v = VS_ACK;
	VS_POINT(send_answered);
	if (v == VS_ACK)
		vs_complete_send(qp, qp->sq.exec, IBV_WC_SUCCESS);
	VS_POINT(send_completed);
	return v;
}

/* Tries until there is a verdict: a peer that was not heard of lately is looked after, a CQ that is being resized waited for. */
static enum vs_verdict ask(struct vs_request *req)
{
	struct vs_patience patience = { .rounds = VS_RESIZE_ROUNDS };

	for (;;) {
		struct vs_hazard *h = vs_enter_cq(req->from->send_cq->id);
		enum vs_verdict v = try_once(req);

		vs_exit(h);
		if (v == VS_CHECK_PEER) {
			vs_peer_look(req->peer_proc);
		} else if (v == VS_AGAIN && vs_patience_ends(&patience)) {
			return VS_NO_RESPONSE;
		} else if (v == VS_AGAIN) {
			vs_place_serve_meanwhile(); /* as in vs_enter_cq */
			sched_yield();
			if (patience.looks % 256 == 0 && vs_process(req->peer_proc))
				vs_process_wake(vs_process(req->peer_proc)); /* to see whether that is so */
		} else {
			return v;
		}
	}
}

/* The WR at the head of the queue. true: go on with the next. */
static bool run_head(struct vs_qp *qp, uint64_t now)
{
	struct vs_send *wr = &qp->sq.ring[qp->sq.exec & qp->sq.mask];
	struct vs_local local;
	struct vs_request req = { .from = qp, .wr = wr, .local = &local, .psn = qp->sq.psn, .packets = packets(qp, wr) };
	enum vs_verdict v;

	if (wr->started && qp->sq.deadline && !timed_out(qp, wr))
		return false;
	v = ask(&req);
	switch (v) {
	case VS_ACK:
		qp->sq.exec++;
		return answered(qp, &req);
	case VS_RNR:
		wr->started = 0; /* an answer, if not the one hoped for */
		return not_ready(qp, now ? now : vs_now(), req.rnr_timer);
	case VS_NAK_SEQ:
	case VS_NO_RESPONSE:
		return no_response(qp, wr, now ? now : vs_now());
	case VS_LATE:
		wr->late = 1;
		wr->started = 0;
		qp->sq.deadline = (now ? now : vs_now()) + req.delay_us * UINT64_C(1000);
		return false;
	case VS_LOCAL_ERROR:
		fail(qp, req.status);
		return false;
	default:
		fail(qp, nak_status(v));
		return false;
	}
}

/* In SQD a message that has begun is brought to its end, and no other begins. */
static bool may_run(const struct vs_qp *qp)
{
	enum ibv_qp_state state;

	if (qp->sq.exec == qp->sq.head || vs_qp_lost(qp))
		return false;
	state = vs_qp_state(qp);
	return state == IBV_QPS_RTS || (state == IBV_QPS_SQD && qp->sq.deadline);
}

static void tell_drained(struct vs_qp *qp)
{
	vs_store_relaxed(&qp->sq.draining, false);
	if (qp->shm->sqd_notify)
		vs_event_qp(qp->shm, qp->id, IBV_EVENT_SQ_DRAINED, 0);
}

void vs_requester_run(struct vs_qp *qp, uint64_t now)
{
	while (may_run(qp) && run_head(qp, now)) {
	}
	if (vs_requester_flushes(qp))
		vs_requester_flush(qp);
	else if (vs_load_relaxed(&qp->sq.draining) && qp->sq.deadline == 0)
		tell_drained(qp);
}

/* ---- what core asks for ---- */

static void flush(struct vs_qp *qp)
{
	vs_requester_flush(qp);
	vs_receive_flush(qp);
}

static void reset(struct vs_qp *qp)
{
	if (qp->sq.ring) {
		vs_cq_purge(qp->send_cq, qp->id, 0);
		qp->sq.head = qp->sq.exec = qp->sq.tail = 0;
		qp->sq.deadline = 0;
		vs_store_relaxed(&qp->sq.draining, false);
	}
	vs_receive_reset(qp);
}

static void resume(struct vs_qp *qp)
{
	vs_store_relaxed(&qp->sq.draining, false);
	if (!qp->sq.ring)
		return;
	if (qp->sq.deadline == UINT64_MAX)
		qp->sq.deadline = 0; /* without an ack timer; there may be one now */
	if (qp->sq.deadline == 0)
		vs_requester_run(qp, vs_now());
	if (qp->sq.exec != qp->sq.head)
		vs_timer_add(qp);
}

/* WRs are carried out when posted, so at most the head, waiting for a timer, is under way. */
static void drain(struct vs_qp *qp)
{
	if (qp->sq.exec != qp->sq.head && qp->sq.deadline)
		vs_store_relaxed(&qp->sq.draining, true);
	else
		tell_drained(qp);
}

bool vs_requester_flush_by_number(uint32_t qpn)
{
	struct vs_qp *qp;
	bool done = true;

	pthread_mutex_lock(&vs_objects_lock);
	qp = vs_local_qp[vs_slot_index(VS_QP, qpn)];
	if (qp && qp->id == qpn) {
		done = vs_trylock(&qp->lock);
		if (done && vs_qp_state(qp) == IBV_QPS_ERR)
			flush(qp);
		if (done)
			vs_unlock(&qp->lock);
	}
	pthread_mutex_unlock(&vs_objects_lock);
	return done;
}

const struct vs_qp_ops vs_requester_ops = {
	.flush = flush,
	.reset = reset,
	.resume = resume,
	.drain = drain,
	.init_wr = vs_wr_init,
	.operations = vs_wr_operations,
	.forget = vs_timer_forget,
};
