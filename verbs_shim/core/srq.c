#include "core/srq.h"

#include <errno.h>
#include <stdlib.h>

#include "core/cq.h"
#include "core/event.h"
#include "core/limits.h"
#include "core/recvq.h"
#include "core/users.h"
#include "core/xrcd.h"

static int check_attr(const struct ibv_srq_init_attr_ex *attr, enum ibv_srq_type type)
{
	if (attr->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED)
		return EOPNOTSUPP;
	if (type == IBV_SRQT_XRC && vs_hidden(VS_CAP_XRC))
		return EOPNOTSUPP;
	if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC)
		return EOPNOTSUPP; /* tag matching */
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd)
		return EINVAL;
	if (type == IBV_SRQT_XRC && (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !attr->xrcd))
		return EINVAL;
	if (type == IBV_SRQT_XRC && (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || !attr->cq))
		return EINVAL;
	if (attr->attr.max_wr == 0 || attr->attr.max_wr > VS_MAX_SRQ_WR || attr->attr.max_sge > VS_MAX_SGE)
		return EINVAL;
	return 0;
}

static int make_srq(struct vs_srq *srq, const struct ibv_srq_init_attr_ex *attr, const struct vs_context *context)
{
	uint32_t max_sge = attr->attr.max_sge ? attr->attr.max_sge : 1, index;
	struct vs_srq_shm *shm;
	int err;

	vs_control_lock();
	err = vs_slot_alloc(VS_SRQ, vs_me_id, &index);
	if (err)
		goto unlock;
	shm = vs_slot_at(VS_SRQ, index);
	err = vs_recvq_make(&srq->rq, &shm->s, &shm->rq, attr->attr.max_wr, max_sge);
	if (err) {
		vs_slot_free(VS_SRQ, index);
		goto unlock;
	}
	shm->hca = context->hca_index;
	shm->s.context = context->number;
	shm->type = srq->type;
	shm->pd = vs_pd(attr->pd)->id;
	if (srq->type == IBV_SRQT_XRC) {
		shm->xrcd = vs_xrcd(attr->xrcd)->id;
		shm->xrcd_ref = vs_xrcd(attr->xrcd)->ref_id;
		shm->cq = vs_cq(attr->cq)->id;
		srq->cq = vs_cq(attr->cq);
	}
	shm->max_wr = attr->attr.max_wr;
	shm->max_sge = max_sge;
	srq->shm = shm;
	srq->id = vs_slot_id(VS_SRQ, index);
	vs_slot_publish(VS_SRQ, index);
unlock:
	vs_control_unlock();
	return err;
}

struct ibv_srq *vs_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	VS_ASKS_KERNEL_POINTER(create_srq, context);
	enum ibv_srq_type type = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type : IBV_SRQT_BASIC;
	struct vs_srq *srq;
	int err = check_attr(attr, type);

	if (err) {
		errno = err;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	srq->type = type;
	err = make_srq(srq, attr, vs_context(context));
	if (err) {
		free(srq);
		errno = err;
		return NULL;
	}
	attr->attr.max_wr = srq->shm->max_wr;
	attr->attr.max_sge = srq->shm->max_sge;
	srq->ibv.context = context;
	srq->ibv.srq_context = attr->srq_context;
	srq->ibv.pd = attr->pd;
	srq->ibv.handle = srq->id;
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	pthread_mutex_lock(&vs_objects_lock);
	vs_local_srq[vs_slot_index(VS_SRQ, srq->id)] = srq;
	pthread_mutex_unlock(&vs_objects_lock);
	return &srq->ibv;
}

struct ibv_srq *vs_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex ex = { .srq_context = attr->srq_context, .attr = attr->attr, .comp_mask = IBV_SRQ_INIT_ATTR_PD, .pd = pd };
	struct ibv_srq *srq = vs_create_srq_ex(pd->context, &ex);

	if (srq)
		attr->attr = ex.attr;
	return srq;
}

int vs_get_srq_num(struct ibv_srq *srq, uint32_t *num)
{
	if (vs_srq(srq)->type != IBV_SRQT_XRC)
		return EOPNOTSUPP;
	*num = vs_srq(srq)->id;
	return 0;
}

int vs_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	VS_ASKS_KERNEL(modify_srq, ibsrq->context);
	struct vs_srq *srq = vs_srq(ibsrq);

	if (vs_hidden(VS_CAP_MODIFY_SRQ))
		return EOPNOTSUPP;
	if (mask & ~IBV_SRQ_LIMIT)
		return EINVAL;
	if (!(mask & IBV_SRQ_LIMIT))
		return 0;
	if (attr->srq_limit >= srq->shm->max_wr)
		return EINVAL;
	vs_store_full(&srq->shm->rq.limit, (uint64_t)++srq->armings << 32 | attr->srq_limit);
	VS_POINT(limit_set);
	return 0;
}

int vs_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	VS_ASKS_KERNEL(query_srq, ibsrq->context);
	struct vs_srq *srq = vs_srq(ibsrq);

	attr->max_wr = srq->shm->max_wr;
	attr->max_sge = srq->shm->max_sge;
	attr->srq_limit = (uint32_t)vs_load(&srq->shm->rq.limit);
	if (attr->srq_limit & VS_LIMIT_REACHED)
		attr->srq_limit = 0;
	return 0;
}

int vs_destroy_srq(struct ibv_srq *ibsrq)
{
	VS_DESTROYS(destroy_srq, ibsrq->context);
	struct vs_srq *srq = vs_srq(ibsrq);
	uint32_t index = vs_slot_index(VS_SRQ, srq->id);
	bool busy;

	vs_control_lock();
	busy = vs_srq_in_use(srq->id);
	if (!busy)
		vs_slot_retire(VS_SRQ, index);
	vs_control_unlock();
	if (busy)
		return EBUSY;
	pthread_mutex_lock(&vs_objects_lock);
	vs_local_srq[index] = NULL;
	pthread_mutex_unlock(&vs_objects_lock);
	vs_quiesce();
	if (srq->cq)
		vs_cq_purge(srq->cq, 0, VS_RQ_SRQ | srq->id);
	vs_event_settle_srq(srq);
	vs_control_lock();
	vs_slot_free(VS_SRQ, index);
	vs_control_unlock();
	vs_recvq_free(&srq->rq);
	pthread_mutex_destroy(&ibsrq->mutex);
	pthread_cond_destroy(&ibsrq->cond);
	free(srq);
	return 0;
}

static void tell_limit(struct vs_srq_shm *srq, uint32_t srq_id, uint64_t claim)
{
	vs_event_send_once(srq->s.owner, IBV_EVENT_SRQ_LIMIT_REACHED, VS_SRQ, srq_id, (uint32_t)(claim >> 32));
	VS_POINT(limit_told);
	vs_cas(&srq->rq.limit, claim, 0); /* unless it has been armed anew since */
}

void vs_srq_check_limit(struct vs_srq_shm *srq, uint32_t srq_id, uint32_t available)
{
	uint64_t word = vs_load(&srq->rq.limit), claim = (word & ~(uint64_t)UINT32_MAX) | VS_LIMIT_REACHED | vs_slot_index(VS_PROC, vs_me_id);
	uint32_t limit = (uint32_t)word;

	if (limit == 0 || limit & VS_LIMIT_REACHED || available >= limit || vs_hidden(VS_CAP_SRQ_LIMIT) ||
	    !vs_cas(&srq->rq.limit, word, claim))
		return;
	VS_POINT(limit_reached);
	tell_limit(srq, srq_id, claim);
}

void vs_srq_reaped(struct vs_srq_shm *srq, uint32_t srq_id, uint32_t proc_index)
{
	uint64_t word = vs_load(&srq->rq.limit);

	if ((uint32_t)word == (VS_LIMIT_REACHED | proc_index))
		tell_limit(srq, srq_id, word);
}
