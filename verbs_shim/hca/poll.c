#include "hca/hca.h"

#include <errno.h>
#include <string.h>

#include "core/cq.h"
#include "core/recvq.h"

/* ---- the payload of a small message, from the segment to where it was posted ---- */

static void copy_payload(const struct vs_recvq *rq, uint32_t pd, const struct vs_cqe *cqe)
{
	const struct vs_posted_recv *p = &rq->posted[cqe->wqe];
	bool here = cqe->payload == VS_PAYLOAD_HERE;
	const void *from = here ? cqe->data : vs_rq_bounce(&rq->view, cqe->wqe);
	uint32_t room = here ? VS_CQE_DATA : rq->view.bounce, left = cqe->byte_len < room ? cqe->byte_len : room;

	for (uint32_t i = 0; i < p->num_sge && left > 0; i++) {
		uint32_t n = p->sge[i].length < left ? p->sge[i].length : left;
		uint64_t at;

		/* The region may be gone since the HCA looked; then so is the buffer. */
		if (vs_own_key(p->sge[i].lkey, pd, p->sge[i].addr, n, IBV_ACCESS_LOCAL_WRITE, &at))
			memcpy((void *)(uintptr_t)at, from, n);
		from = (const char *)from + n;
		left -= n;
	}
}

/* The owner's queue that a completion names, if it is there and the WQE is one that was posted. */
static struct vs_recvq *find_queue(const struct vs_cqe *cqe, uint32_t *pd)
{
	struct vs_recvq *rq;

	if (cqe->rq & VS_RQ_SRQ) {
		uint32_t id = cqe->rq & ~VS_RQ_SRQ, index = vs_slot_index(VS_SRQ, id);
		struct vs_srq *srq = index < vs_tables[VS_SRQ].count ? vs_local_srq[index] : NULL;

		if (!srq || srq->id != id)
			return NULL;
		rq = &srq->rq;
		*pd = vs_pd(srq->ibv.pd)->id;
	} else {
		struct vs_qp *qp = vs_local_qp[vs_slot_index(VS_QP, cqe->rq)];

		if (!qp || qp->id != cqe->rq || !qp->rq.posted)
			return NULL;
		rq = &qp->rq;
		*pd = qp->pd->id;
	}
	if (cqe->wqe >= rq->view.pool_entries || rq->posted[cqe->wqe].generation != cqe->generation)
		return NULL;
	return rq;
}

static bool finish_recv(const struct vs_cqe *cqe, struct ibv_wc *wc)
{
	uint32_t pd;
	struct vs_recvq *rq = find_queue(cqe, &pd);

	if (!rq)
		return false;
	wc->wr_id = rq->posted[cqe->wqe].wr_id;
	if (cqe->payload != VS_PAYLOAD_PLACED && cqe->status == IBV_WC_SUCCESS)
		copy_payload(rq, pd, cqe);
	vs_recvq_reclaim(rq, cqe->wqe, cqe->generation);
	wc->imm_data = cqe->imm;
	wc->src_qp = cqe->src_qp;
	wc->slid = cqe->slid;
	wc->sl = cqe->sl;
	wc->pkey_index = cqe->pkey_index;
	wc->dlid_path_bits = cqe->path_bits;
	return true;
}

static bool finish_send(const struct vs_cqe *cqe, struct ibv_wc *wc)
{
	struct vs_qp *qp = vs_local_qp[vs_slot_index(VS_QP, cqe->qpn)];
	uint64_t tail, pos;

	if (!qp || qp->id != cqe->qpn || !qp->sq.ring)
		return false;
	tail = vs_load_relaxed(&qp->sq.tail);
	pos = tail + (uint32_t)(cqe->wqe - (uint32_t)tail);
	if (pos >= vs_load(&qp->sq.head))
		return false;
	wc->wr_id = qp->sq.ring[pos & qp->sq.mask].wr_id;
	vs_store(&qp->sq.tail, pos + 1); /* with it every unsignalled one before */
	return true;
}

/* false: nothing for the program (void, or of an object that is gone). */
static bool finish(const struct vs_cqe *cqe, struct ibv_wc *wc)
{
	wc->status = (enum ibv_wc_status)cqe->status;
	wc->opcode = (enum ibv_wc_opcode)cqe->opcode;
	wc->vendor_err = 0;
	wc->byte_len = cqe->byte_len;
	wc->qp_num = cqe->qpn;
	wc->wc_flags = cqe->wc_flags;
	switch (cqe->kind) {
	case VS_CQE_RECV:
		return finish_recv(cqe, wc);
	case VS_CQE_SEND:
		return finish_send(cqe, wc);
	default:
		return false;
	}
}

bool vs_poll_next(struct vs_cq *cq, struct ibv_wc *wc)
{
	while (vs_ring_ready(cq->ring, cq->entries, cq->head)) {
		struct vs_cqe cqe;

		vs_ring_pop(cq->ring, cq->entries, cq->head, &cqe);
		vs_store_relaxed(&cq->head, cq->head + 1);
		if (finish(&cqe, wc))
			return true;
	}
	return false;
}

/* The word at the head is one that no step of the protocol leaves there: somebody wrote over the ring. */
static bool torn(const struct vs_cq *cq)
{
	const struct vs_cqe *ring = vs_load_relaxed(&cq->ring);
	uint64_t pos = vs_load_relaxed(&cq->head), word = vs_load(&ring[pos & (vs_load_relaxed(&cq->entries) - 1)].word);

	if (word == vs_word(VS_RING_EMPTY, pos, 0) || vs_word_pos(word) == (pos & VS_POS_MASK))
		return false;
	/* Not just another thread's progress, nor the ring of a process that has left. */
	return pos == vs_load_relaxed(&cq->head) && ring == vs_load_relaxed(&cq->ring) && !vs_load(&vs_leaving);
}

#define STALL_POLLS 64u

/* Nothing to read because a producer has not finished its entry. Nearly always it is just about to; where it still is after many polls it
 * may have died, and what lies behind it waits. */
static void check_stall(struct vs_cq *cq)
{
	uint64_t pos = vs_load_relaxed(&cq->head);
	uint32_t polls;

	if (!vs_ring_stalled(vs_load_relaxed(&cq->ring), vs_load_relaxed(&cq->entries), pos))
		return;
	polls = vs_load_relaxed(&cq->stalled_at) == pos ? vs_load_relaxed(&cq->stalled_polls) + 1 : 1;
	vs_store_relaxed(&cq->stalled_at, pos);
	vs_store_relaxed(&cq->stalled_polls, polls);
	if (polls >= STALL_POLLS)
		vs_cq_look_stalled(cq);
}

int vs_poll_nothing(struct vs_cq *cq)
{
	check_stall(cq);
	vs_timer_assist();
	return torn(cq) ? EIO : ENOENT;
}

int vs_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct vs_cq *cq = vs_cq(ibcq);
	int n = 0;

	if (!vs_poll_ready(cq))
		return vs_poll_nothing(cq) == ENOENT ? 0 : -1;
	vs_lock(&cq->lock);
	while (n < num_entries && vs_poll_next(cq, &wc[n]))
		n++;
	vs_unlock(&cq->lock);
	return n;
}
