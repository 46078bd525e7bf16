#include "hca/hca.h"

#include <errno.h>

#include "core/cq.h"
#include "core/pd.h"
#include "core/qp.h"
#include "core/recvq.h"
#include "core/srq.h"
#include "memory/pages.h"

/* ---- posting ---- */

int vs_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct vs_qp *qp = vs_qp(ibqp);
	uint32_t state = vs_load(&qp->shm->state);
	int err = vs_refused(VS_VERB_post_recv);

	if (err) {
		*bad_wr = wr;
		return err;
	}
	if (!qp->rq.posted || state == IBV_QPS_RESET) {
		*bad_wr = wr;
		return ibqp->qp_type == IBV_QPT_XRC_RECV ? EOPNOTSUPP : EINVAL;
	}
	vs_lock(&qp->rq.lock);
	err = vs_recvq_post(&qp->rq, wr, bad_wr);
	vs_light_fence();
	state = vs_load(&qp->shm->state); /* whoever has put it into ERR since, and flushes, waits for the lock */
	vs_unlock(&qp->rq.lock);
	if (state == IBV_QPS_ERR)
		vs_receive_flush(qp);
	return err;
}

int vs_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct vs_recvq *rq = &vs_srq(srq)->rq;
	int err = vs_refused(VS_VERB_post_srq_recv);

	if (err) {
		*bad_wr = wr;
		return err;
	}
	vs_lock(&rq->lock);
	err = vs_recvq_post(rq, wr, bad_wr);
	vs_unlock(&rq->lock);
	return err;
}

/* ---- as targets ---- */

/* A target is remembered by its slot's word, which would be the same in every look at a slot whose object is being destroyed. */
static bool lives(const struct vs_target *t)
{
	return (t->word & 0xff) == VS_LIVE;
}

bool vs_target_of_srq(struct vs_srq_shm *srq, uint32_t srq_id, struct vs_target *t)
{
	uint64_t bytes = 0;
	void *pages = vs_extent(&srq->s, &bytes);

	t->slot = &srq->s;
	t->word = vs_load(&srq->s.word);
	t->owner = srq->s.owner;
	t->pd = t->rdma_pd = srq->pd;
	t->cq = (struct vs_cq_view){ .id = srq->cq };
	t->rq = VS_RQ_SRQ | srq_id;
	t->srq = srq;
	t->srq_id = srq_id;
	return lives(t) && pages && vs_rq_open(&t->view, &srq->rq, pages, bytes);
}

bool vs_target_of_qp(const struct vs_qp_shm *qp, uint32_t qpn, struct vs_target *t)
{
	struct vs_srq_shm *srq;
	uint64_t bytes = 0;
	void *pages;

	if (qp->srq) {
		srq = vs_slot_get(VS_SRQ, qp->srq);
		if (!srq || !vs_target_of_srq(srq, qp->srq, t))
			return false;
		t->cq.id = qp->recv_cq; /* a basic SRQ completes into its QP's CQ */
		t->rdma_pd = qp->pd;
		return true;
	}
	pages = vs_extent(&qp->s, &bytes);
	t->slot = &qp->s;
	t->word = vs_load(&qp->s.word);
	t->owner = qp->s.owner;
	t->pd = t->rdma_pd = qp->pd;
	t->cq = (struct vs_cq_view){ .id = qp->recv_cq };
	t->rq = qpn;
	t->srq = NULL;
	t->srq_id = 0;
	return lives(t) && pages && vs_rq_open(&t->view, (struct vs_rq *)(uintptr_t)&qp->rq, pages, bytes);
}

bool vs_take(const struct vs_target *t, struct vs_taken *taken)
{
	const struct vs_wqe *wqe;

	if (!vs_rq_take(&t->view, &taken->wqe))
		return false;
	wqe = vs_rq_wqe(&t->view, taken->wqe);
	taken->num_sge = vs_load_relaxed(&wqe->num_sge);
	if (taken->num_sge > t->view.max_sge)
		taken->num_sge = t->view.max_sge;
	taken->generation = vs_load_relaxed(&wqe->generation);
	taken->room = 0;
	for (uint32_t i = 0; i < taken->num_sge; i++) {
		taken->sge[i] = wqe->sge[i];
		taken->room += taken->sge[i].length;
	}
	if (t->srq && vs_load(&t->srq->rq.limit))
		vs_srq_check_limit(t->srq, t->srq_id, vs_rq_available(&t->view));
	return true;
}

bool vs_check_key(uint32_t key, uint32_t owner, uint32_t pd, uint64_t addr, uint64_t length, unsigned access, uint64_t *at)
{
	const struct vs_mr_shm *mr;

	if (owner == vs_me_id)
		return vs_own_key(key, pd, addr, length, access, at);
	mr = vs_slot_get(VS_MR, key);
	if (!mr || mr->s.owner != owner || vs_load_relaxed(&mr->pd) != pd || (vs_load_relaxed(&mr->access) & access) != access)
		return false;
	return vs_region_covers(vs_load_relaxed(&mr->iova), vs_load_relaxed(&mr->length), vs_load_relaxed(&mr->addr), addr, length, at);
}

bool vs_taken_valid(const struct vs_target *t, struct vs_taken *taken)
{
	for (uint32_t i = 0; i < taken->num_sge; i++) {
		struct vs_sge *sge = &taken->sge[i];

		if (sge->length && !vs_check_key(sge->lkey, t->owner, t->pd, sge->addr, sge->length, IBV_ACCESS_LOCAL_WRITE, &sge->addr))
			return false;
	}
	return true;
}

bool vs_complete_recv(const struct vs_target *t, const struct vs_taken *taken, struct vs_cqe *cqe)
{
	cqe->kind = VS_CQE_RECV;
	cqe->rq = t->rq;
	cqe->wqe = taken->wqe;
	cqe->generation = taken->generation;
	return vs_cq_push(&t->cq, cqe);
}

/* ---- flushing the QP's own queue ---- */

void vs_receive_flush(struct vs_qp *qp)
{
	struct vs_target t;
	struct vs_taken taken;
	struct vs_hazard *h;

	if (!qp->rq.posted)
		return;
	vs_recvq_let_finish(&qp->rq);
	h = vs_enter_cq(qp->recv_cq->id);
	if (!vs_qp_lost(qp) && vs_target_of_qp(qp->shm, qp->id, &t) && vs_cq_ready(&t.cq))
		while (vs_take(&t, &taken)) {
			struct vs_cqe cqe = { .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV, .qpn = qp->id };

			vs_complete_recv(&t, &taken, &cqe);
		}
	vs_exit(h);
}

/* RESET forgets: WQEs come back to the owner, or to the SRQ, without completions; unread completions vanish. */
void vs_receive_reset(struct vs_qp *qp)
{
	if (qp->srq)
		vs_cq_purge_srq(qp->recv_cq, qp->id, qp->srq);
	if (!qp->rq.posted)
		return;
	vs_cq_purge(qp->recv_cq, 0, qp->id);
	for (uint32_t w = 0; w < qp->rq.view.pool_entries; w++) {
		unsigned kind = vs_word_kind(vs_load(&vs_rq_wqe(&qp->rq.view, w)->word));
		uint32_t got;

		if (kind == VS_WQE_POSTED)
			while (vs_rq_take(&qp->rq.view, &got))
				vs_recvq_release(&qp->rq, got);
		else if (kind != VS_WQE_IDLE)
			vs_recvq_release(&qp->rq, w);
	}
}
