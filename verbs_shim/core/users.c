#include "core/users.h"

#include "memory/slots.h"

#include <infiniband/verbs.h>

/* Is there an object in the table, being made or live, for which cond holds? DYING ones no longer count. */
#define ANY(table, type, cond)                                                                                                     \
	__extension__({                                                                                                                \
		struct type *o;                                                                                                            \
		uint32_t index;                                                                                                            \
		bool found = false;                                                                                                        \
		for (index = 0; !found && (o = (struct type *)vs_slot_at((table), index)) != NULL; index++)                                  \
			found = (vs_slot_state(&o->s) == VS_LIVE || vs_slot_state(&o->s) == VS_MAKING) && (cond);                              \
		found;                                                                                                                     \
	})

static bool has_queues(const struct vs_qp_shm *qp)
{
	return qp->type != IBV_QPT_XRC_RECV;
}

bool vs_pd_in_use(uint32_t pd)
{
	return ANY(VS_QP, vs_qp_shm, has_queues(o) && o->pd == pd) || ANY(VS_SRQ, vs_srq_shm, o->pd == pd) ||
	       ANY(VS_MR, vs_mr_shm, o->pd == pd);
}

bool vs_cq_in_use(uint32_t cq)
{
	return ANY(VS_QP, vs_qp_shm, has_queues(o) && (o->send_cq == cq || o->recv_cq == cq)) ||
	       ANY(VS_SRQ, vs_srq_shm, o->type == IBV_SRQT_XRC && o->cq == cq);
}

bool vs_srq_in_use(uint32_t srq)
{
	return ANY(VS_QP, vs_qp_shm, has_queues(o) && o->srq == srq);
}

bool vs_xrcd_ref_in_use(uint32_t ref)
{
	return ANY(VS_SRQ, vs_srq_shm, o->type == IBV_SRQT_XRC && o->xrcd_ref == ref) || ANY(VS_QP_REF, vs_qp_ref_shm, o->xrcd_ref == ref);
}

bool vs_xrcd_in_use(uint32_t xrcd)
{
	return ANY(VS_XRCD_REF, vs_xrcd_ref_shm, o->xrcd == xrcd) ||
	       ANY(VS_SRQ, vs_srq_shm, o->type == IBV_SRQT_XRC && o->xrcd == xrcd) ||
	       ANY(VS_QP, vs_qp_shm, o->type == IBV_QPT_XRC_RECV && o->xrcd == xrcd);
}

bool vs_tgt_in_use(uint32_t qpn)
{
	return ANY(VS_QP_REF, vs_qp_ref_shm, o->qp == qpn);
}
