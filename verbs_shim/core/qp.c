#include "core/qp.h"

#include <errno.h>
#include <stdlib.h>

#include "core/cq.h"
#include "core/event.h"
#include "core/limits.h"
#include "core/mcast.h"
#include "core/recvq.h"
#include "core/tgt.h"

struct vs_qp_ops vs_qp_ops;

/* ---- checking what is asked for ---- */

static bool has_recv_queue(const struct ibv_qp_init_attr_ex *init)
{
	return init->qp_type != IBV_QPT_XRC_SEND && !init->srq;
}

static int check_caps(const struct ibv_qp_init_attr_ex *init)
{
	const struct ibv_qp_cap *cap = &init->cap;

	if (cap->max_send_wr > VS_MAX_QP_WR || cap->max_send_sge > VS_MAX_SGE || cap->max_inline_data > VS_MAX_INLINE)
		return EINVAL;
	if (has_recv_queue(init) && (cap->max_recv_wr > VS_MAX_QP_WR || cap->max_recv_sge > VS_MAX_SGE))
		return EINVAL;
	return 0;
}

static uint32_t create_flags(const struct ibv_qp_init_attr_ex *init)
{
	return init->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? init->create_flags : 0;
}

static int check_init(const struct ibv_qp_init_attr_ex *init)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	const uint32_t flags = init->qp_type == IBV_QPT_UD ? IBV_QP_CREATE_BLOCK_SELF_MCAST_LB : 0;

	if (init->comp_mask & ~known)
		return EOPNOTSUPP;
	if ((init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (init->send_ops_flags & ~vs_qp_ops.operations(init->qp_type)))
		return EOPNOTSUPP;
	if (init->qp_type != IBV_QPT_RC && init->qp_type != IBV_QPT_UC && init->qp_type != IBV_QPT_UD && init->qp_type != IBV_QPT_XRC_SEND)
		return EOPNOTSUPP;
	if (create_flags(init) & ~flags)
		return EINVAL; /* as mlx4 and mlx5 */
	if (!(init->comp_mask & IBV_QP_INIT_ATTR_PD) || !init->pd || !init->send_cq)
		return EINVAL;
	if (init->comp_mask & IBV_QP_INIT_ATTR_XRCD)
		return EINVAL; /* a domain is for TGT QPs */
	if (init->qp_type == IBV_QPT_XRC_SEND && init->srq)
		return EINVAL;
	if (init->qp_type != IBV_QPT_XRC_SEND && !init->recv_cq)
		return EINVAL;
	if (init->srq && vs_srq(init->srq)->type != IBV_SRQT_BASIC)
		return EINVAL;
	return check_caps(init);
}

/* ---- making ---- */

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

static int make_sendq(struct vs_sendq *sq, const struct ibv_qp_cap *cap)
{
	uint32_t n = power_of_two(cap->max_send_wr ? cap->max_send_wr : 1);

	sq->max_wr = cap->max_send_wr;
	sq->max_sge = cap->max_send_sge ? cap->max_send_sge : 1;
	sq->max_inline = cap->max_inline_data;
	sq->mask = n - 1;
	sq->ring = calloc(n, sizeof(*sq->ring));
	sq->sges = calloc((size_t)n * sq->max_sge, sizeof(*sq->sges));
	sq->inline_area = calloc(n, sq->max_inline ? sq->max_inline : 1);
	if (!sq->ring || !sq->sges || !sq->inline_area)
		return ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		sq->ring[i].sge = &sq->sges[(size_t)i * sq->max_sge];
		sq->ring[i].inline_data = &sq->inline_area[(size_t)i * sq->max_inline];
	}
	return 0;
}

static void free_sendq(struct vs_sendq *sq)
{
	free(sq->ring);
	free(sq->sges);
	free(sq->inline_area);
}

static void fill_slot(struct vs_qp *qp, const struct ibv_qp_init_attr_ex *init)
{
	struct vs_qp_shm *shm = qp->shm;

	shm->s.context = vs_context(qp->pd->ibv.context)->number;
	shm->type = init->qp_type;
	shm->hca = qp->hca_index;
	shm->incarnation = qp->incarnation;
	shm->state = IBV_QPS_RESET;
	shm->path_word = VS_PATH_FRESH;
	shm->pd = qp->pd->id;
	shm->send_cq = qp->send_cq->id;
	shm->recv_cq = qp->recv_cq ? qp->recv_cq->id : 0;
	shm->srq = qp->srq ? qp->srq->id : 0;
	shm->max_send_wr = qp->sq.max_wr;
	shm->max_send_sge = qp->sq.max_sge;
	shm->max_inline = qp->sq.max_inline;
	if (has_recv_queue(init)) {
		shm->max_recv_wr = init->cap.max_recv_wr;
		shm->max_recv_sge = qp->rq.max_sge;
	}
	shm->sq_sig_all = init->sq_sig_all != 0;
}

static int make_slot(struct vs_qp *qp, const struct ibv_qp_init_attr_ex *init)
{
	uint32_t index, sge = init->cap.max_recv_sge ? init->cap.max_recv_sge : 1;
	int err;

	vs_control_lock();
	err = vs_slot_alloc(VS_QP, vs_me_id, &index);
	if (err)
		goto unlock;
	qp->shm = vs_slot_at(VS_QP, index);
	if (has_recv_queue(init))
		err = vs_recvq_make(&qp->rq, &qp->shm->s, &qp->shm->rq, init->cap.max_recv_wr ? init->cap.max_recv_wr : 1, sge);
	if (err) {
		vs_slot_free(VS_QP, index);
		goto unlock;
	}
	fill_slot(qp, init);
	qp->id = vs_slot_id(VS_QP, index);
	vs_event_begin(qp);
	vs_slot_publish(VS_QP, index);
unlock:
	vs_control_unlock();
	return err;
}

static void fill_public(struct vs_qp *qp, struct ibv_context *context, struct ibv_qp_init_attr_ex *init)
{
	qp->ibv.context = context;
	qp->ibv.qp_context = init->qp_context;
	qp->ibv.pd = init->pd;
	qp->ibv.send_cq = init->send_cq;
	qp->ibv.recv_cq = init->recv_cq;
	qp->ibv.srq = init->srq;
	qp->ibv.handle = qp->ibv.qp_num = qp->id;
	qp->ibv.state = IBV_QPS_RESET;
	qp->ibv.qp_type = init->qp_type;
	pthread_mutex_init(&qp->ibv.mutex, NULL);
	pthread_cond_init(&qp->ibv.cond, NULL);
	init->cap.max_send_wr = qp->shm->max_send_wr;
	init->cap.max_send_sge = qp->shm->max_send_sge;
	init->cap.max_inline_data = qp->shm->max_inline;
	init->cap.max_recv_wr = qp->shm->max_recv_wr;
	init->cap.max_recv_sge = qp->shm->max_recv_sge;
}

struct ibv_qp *vs_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init)
{
	VS_ASKS_KERNEL_POINTER(create_qp, context);
	struct vs_qp *qp;
	int err;

	if ((init->qp_type == IBV_QPT_XRC_RECV || init->qp_type == IBV_QPT_XRC_SEND) && vs_hidden(VS_CAP_XRC)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (init->qp_type == IBV_QPT_XRC_RECV)
		return vs_create_tgt(context, init);
	err = check_init(init);
	if (err) {
		errno = err;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->hca = vs_context(context)->hca;
	qp->hca_index = vs_context(context)->hca_index;
	qp->incarnation = vs_context(context)->incarnation;
	qp->pd = vs_pd(init->pd);
	qp->send_cq = vs_cq(init->send_cq);
	qp->recv_cq = init->recv_cq && init->qp_type != IBV_QPT_XRC_SEND ? vs_cq(init->recv_cq) : NULL;
	qp->srq = init->srq ? vs_srq(init->srq) : NULL;
	vs_lock_init(&qp->lock);
	err = make_sendq(&qp->sq, &init->cap);
	if (!err)
		err = make_slot(qp, init);
	if (err) {
		free_sendq(&qp->sq);
		free(qp);
		errno = err;
		return NULL;
	}
	fill_public(qp, context, init);
	qp->no_own_mcast = (create_flags(init) & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) != 0;
	qp->has_wr_hooks = (init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
	if (qp->has_wr_hooks)
		vs_qp_ops.init_wr(qp);
	pthread_mutex_lock(&vs_objects_lock);
	vs_local_qp[vs_slot_index(VS_QP, qp->id)] = qp;
	pthread_mutex_unlock(&vs_objects_lock);
	return &qp->ibv;
}

struct ibv_qp *vs_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = init->qp_context,
		.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.srq = init->srq,
		.cap = init->cap,
		.qp_type = init->qp_type,
		.sq_sig_all = init->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = vs_create_qp_ex(pd->context, &ex);

	if (qp)
		init->cap = ex.cap;
	return qp;
}

/* ---- destroying ---- */

int vs_destroy_qp(struct ibv_qp *ibqp)
{
	VS_DESTROYS(destroy_qp, ibqp->context);
	struct vs_qp *qp = vs_qp(ibqp);
	uint32_t index = vs_slot_index(VS_QP, qp->id);
	bool busy;

	if (ibqp->qp_type == IBV_QPT_XRC_RECV)
		return vs_destroy_tgt_handle(qp);
	vs_control_lock();
	busy = vs_mcast_member(qp->id) && !vs_qp_lost(qp); /* which may not be detached any more */
	if (!busy) {
		vs_mcast_leave(qp->id);
		vs_slot_retire(VS_QP, index);
	}
	vs_control_unlock();
	if (busy)
		return EBUSY;
	/* First the engine finds it no more, which would flush it; then whoever reads a completion of it is waited for by its CQ's lock. */
	pthread_mutex_lock(&vs_objects_lock);
	vs_local_qp[index] = NULL;
	pthread_mutex_unlock(&vs_objects_lock);
	vs_qp_ops.forget(qp);
	vs_quiesce();
	vs_cq_purge(qp->send_cq, qp->id, qp->id);
	if (qp->recv_cq && qp->recv_cq != qp->send_cq)
		vs_cq_purge(qp->recv_cq, qp->id, qp->id);
	if (qp->srq)
		vs_cq_purge_srq(qp->recv_cq, qp->id, qp->srq);
	VS_POINT(qp_purged);
	vs_event_settle_qp(qp);
	vs_control_lock();
	vs_slot_free(VS_QP, index);
	vs_control_unlock();
	free_sendq(&qp->sq);
	vs_recvq_free(&qp->rq);
	vs_lock_destroy(&qp->lock);
	pthread_mutex_destroy(&ibqp->mutex);
	pthread_cond_destroy(&ibqp->cond);
	free(qp);
	return 0;
}
