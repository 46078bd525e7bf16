#include "core/tgt.h"

#include <errno.h>
#include <stdlib.h>

#include "core/event.h"
#include "core/qp.h"
#include "core/users.h"
#include "core/xrcd.h"

static int add_handle(struct vs_qp *h, uint32_t qpn, bool creator)
{
	struct vs_qp_ref_shm *ref;
	uint32_t index;
	int err = vs_slot_alloc(VS_QP_REF, vs_me_id, &index);

	if (err)
		return err;
	ref = vs_slot_at(VS_QP_REF, index);
	ref->s.context = vs_context(h->ibv.context)->number;
	ref->qp = qpn;
	ref->xrcd_ref = h->xrcd->ref_id;
	ref->creator = creator;
	h->ref_id = vs_slot_id(VS_QP_REF, index);
	vs_event_begin(h);
	vs_slot_publish(VS_QP_REF, index);
	return 0;
}

static struct vs_qp *new_handle(struct ibv_context *context, struct vs_xrcd *xrcd)
{
	struct vs_qp *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->hca = vs_context(context)->hca;
	h->hca_index = vs_context(context)->hca_index;
	h->incarnation = vs_context(context)->incarnation;
	h->xrcd = xrcd;
	h->ibv.context = context;
	h->ibv.qp_type = IBV_QPT_XRC_RECV;
	vs_lock_init(&h->lock);
	pthread_mutex_init(&h->ibv.mutex, NULL);
	pthread_cond_init(&h->ibv.cond, NULL);
	return h;
}

static void free_handle(struct vs_qp *h)
{
	vs_lock_destroy(&h->lock);
	pthread_mutex_destroy(&h->ibv.mutex);
	pthread_cond_destroy(&h->ibv.cond);
	free(h);
}

static struct ibv_qp *link_handle(struct vs_qp *h)
{
	h->ibv.handle = h->ref_id;
	h->ibv.qp_num = h->id;
	pthread_mutex_lock(&vs_objects_lock);
	vs_local_qp_ref[vs_slot_index(VS_QP_REF, h->ref_id)] = h;
	pthread_mutex_unlock(&vs_objects_lock);
	return &h->ibv;
}

/* The handle is published before the QP: a TGT QP without handles is an orphan to a reaper. */
static int make_tgt(struct vs_qp *h)
{
	uint32_t index;
	int err;

	vs_control_lock();
	err = vs_slot_alloc(VS_QP, 0, &index);
	if (err)
		goto unlock;
	h->id = vs_slot_id(VS_QP, index);
	h->shm = vs_slot_at(VS_QP, index);
	h->shm->type = IBV_QPT_XRC_RECV;
	h->shm->hca = h->hca_index;
	h->shm->incarnation = h->incarnation;
	h->shm->state = IBV_QPS_RESET;
	h->shm->path_word = VS_PATH_FRESH;
	h->shm->xrcd = h->xrcd->id;
	err = add_handle(h, h->id, true);
	VS_POINT(tgt_handle);
	if (err)
		vs_slot_free(VS_QP, index);
	else
		vs_slot_publish(VS_QP, index);
unlock:
	vs_control_unlock();
	return err;
}

static int check_init(const struct ibv_qp_init_attr_ex *init)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD;

	if (init->comp_mask & ~known)
		return EOPNOTSUPP;
	if (!(init->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !init->xrcd)
		return EINVAL;
	if (init->srq && vs_srq(init->srq)->type != IBV_SRQT_XRC)
		return EINVAL;
	return 0;
}

struct ibv_qp *vs_create_tgt(struct ibv_context *context, struct ibv_qp_init_attr_ex *init)
{
	struct vs_qp *h;
	int err = check_init(init);

	if (err) {
		errno = err;
		return NULL;
	}
	h = new_handle(context, vs_xrcd(init->xrcd));
	if (!h)
		return NULL;
	err = make_tgt(h);
	if (err) {
		free_handle(h);
		errno = err;
		return NULL;
	}
	init->cap = (struct ibv_qp_cap){ 0 };
	h->ibv.qp_context = init->qp_context;
	h->ibv.pd = init->pd; /* a mirror of what the caller gave; a TGT QP has none of these */
	h->ibv.send_cq = init->send_cq;
	h->ibv.recv_cq = init->recv_cq;
	h->ibv.srq = init->srq;
	h->ibv.state = IBV_QPS_RESET;
	return link_handle(h);
}

static int open_handle(struct vs_qp *h, uint32_t qpn)
{
	int err = EINVAL;

	vs_control_lock();
	vs_process_reap_dead();
	h->shm = vs_slot_get(VS_QP, qpn);
	h->id = qpn;
	if (h->shm && h->shm->type == IBV_QPT_XRC_RECV && h->shm->xrcd == h->xrcd->id)
		err = add_handle(h, qpn, false);
	vs_control_unlock();
	return err;
}

struct ibv_qp *vs_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	VS_ASKS_KERNEL_POINTER(open_qp, context);
	const uint32_t need = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	struct vs_qp *h;
	int err = 0;

	if (vs_hidden(VS_CAP_OPEN_QP) || vs_hidden(VS_CAP_XRC) || attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED)
		err = EOPNOTSUPP;
	else if ((attr->comp_mask & need) != need || attr->qp_type != IBV_QPT_XRC_RECV || !attr->xrcd)
		err = EINVAL;
	if (err) {
		errno = err;
		return NULL;
	}
	h = new_handle(context, vs_xrcd(attr->xrcd));
	if (!h)
		return NULL;
	err = open_handle(h, attr->qp_num);
	if (err) {
		free_handle(h);
		errno = err;
		return NULL;
	}
	if (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT)
		h->ibv.qp_context = attr->qp_context;
	h->ibv.state = IBV_QPS_UNKNOWN;
	return link_handle(h);
}

/* The last handle takes the QP along: nobody finds it any more, and once nobody is inside it, it is gone. */
int vs_destroy_tgt_handle(struct vs_qp *h)
{
	uint32_t index = vs_slot_index(VS_QP, h->id), ref = vs_slot_index(VS_QP_REF, h->ref_id);
	bool last;

	pthread_mutex_lock(&vs_objects_lock);
	vs_local_qp_ref[ref] = NULL;
	pthread_mutex_unlock(&vs_objects_lock);
	vs_event_settle_qp(h);
	vs_control_lock();
	vs_process_reap_dead(); /* their handles keep nothing */
	vs_slot_free(VS_QP_REF, ref); /* handles are looked at under the control lock, or by id: no grace period */
	VS_POINT(tgt_last);
	last = !vs_tgt_in_use(h->id);
	if (last) {
		h->shm->s.owner = vs_me_id; /* who will free it */
		vs_slot_retire(VS_QP, index);
	}
	vs_control_unlock();
	if (last) {
		vs_quiesce();
		vs_control_lock();
		vs_slot_free(VS_QP, index);
		vs_control_unlock();
	}
	free_handle(h);
	return 0;
}
