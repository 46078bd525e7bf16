#include "hca/hca.h"

#include <errno.h>
#include <string.h>

#include "core/qp.h"
#include "core/shadow.h"

#define OP(x) (1u << IBV_WR_##x)
#define OP_ATOMIC (OP(ATOMIC_CMP_AND_SWP) | OP(ATOMIC_FETCH_AND_ADD))
#define OP_RETURNS_DATA (OP(RDMA_READ) | OP_ATOMIC)

/* Which operations each QP type can send: the rest is refused when posted. */
static uint32_t operations(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return OP(SEND) | OP(SEND_WITH_IMM) | OP(RDMA_WRITE) | OP(RDMA_WRITE_WITH_IMM) | OP(RDMA_READ) | OP(ATOMIC_CMP_AND_SWP) |
		       OP(ATOMIC_FETCH_AND_ADD);
	case IBV_QPT_UC:
		return OP(SEND) | OP(SEND_WITH_IMM) | OP(RDMA_WRITE) | OP(RDMA_WRITE_WITH_IMM);
	case IBV_QPT_UD:
		return OP(SEND) | OP(SEND_WITH_IMM);
	default:
		return 0;
	}
}

static int check_wr(const struct vs_qp *qp, const struct ibv_send_wr *wr)
{
	const unsigned known = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

	if ((unsigned)wr->opcode >= 32 || !(operations(qp->ibv.qp_type) & 1u << wr->opcode))
		return EINVAL;
	if (wr->send_flags & ~known)
		return EINVAL;
	if ((OP_ATOMIC & 1u << wr->opcode) && vs_hidden(VS_CAP_ATOMICS))
		return EINVAL;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->sq.max_sge)
		return ENOMEM; /* as mlx4 and mlx5 */
	if ((wr->send_flags & IBV_SEND_INLINE) && (OP_RETURNS_DATA & 1u << wr->opcode))
		return EINVAL;
	if (qp->sq.head - vs_load(&qp->sq.tail) >= qp->sq.max_wr)
		return ENOMEM;
	return 0;
}

static int copy_inline(const struct vs_qp *qp, struct vs_send *s, const struct ibv_send_wr *wr)
{
	uint32_t at = 0;

	if (s->length > qp->sq.max_inline)
		return ENOMEM;
	for (int i = 0; i < wr->num_sge; i++) {
		memcpy(s->inline_data + at, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		at += wr->sg_list[i].length;
	}
	return 0;
}

static uint64_t copy_list(struct vs_send *s, const struct ibv_send_wr *wr)
{
	uint64_t total = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		s->sge[i] = (struct vs_sge){ wr->sg_list[i].addr, wr->sg_list[i].length, wr->sg_list[i].lkey };
		total += wr->sg_list[i].length;
	}
	s->num_sge = (uint16_t)wr->num_sge;
	return total;
}

static void copy_target(const struct vs_qp *qp, struct vs_send *s, const struct ibv_send_wr *wr)
{
	if (qp->ibv.qp_type == IBV_QPT_UD) {
		s->ah = vs_container(wr->wr.ud.ah, struct vs_ah, ibv);
		s->remote_qpn = wr->wr.ud.remote_qpn;
		s->remote_qkey = wr->wr.ud.remote_qkey;
		return;
	}
	if (OP_ATOMIC & 1u << wr->opcode) {
		s->remote_addr = wr->wr.atomic.remote_addr;
		s->rkey = wr->wr.atomic.rkey;
		s->compare_add = wr->wr.atomic.compare_add;
		s->swap = wr->wr.atomic.swap;
	} else {
		s->remote_addr = wr->wr.rdma.remote_addr;
		s->rkey = wr->wr.rdma.rkey;
	}
	s->srqn = wr->qp_type.xrc.remote_srqn;
}

/* Into the queue; nothing of the program's WR is needed afterwards. */
static int enqueue(struct vs_qp *qp, const struct ibv_send_wr *wr)
{
	struct vs_send *s = &qp->sq.ring[qp->sq.head & qp->sq.mask];
	uint64_t total;
	int err = check_wr(qp, wr);

	if (err)
		return err;
	vs_shadow_check(wr->sg_list, wr->num_sge);
	total = copy_list(s, wr);
	s->length = total > UINT32_MAX ? UINT32_MAX : (uint32_t)total; /* beyond any message limit: LOC_LEN_ERR when carried out */
	s->wr_id = wr->wr_id;
	s->imm = wr->imm_data;
	s->opcode = (uint8_t)wr->opcode;
	s->flags = (uint8_t)wr->send_flags;
	s->started = s->late = 0;
	copy_target(qp, s, wr);
	if (wr->send_flags & IBV_SEND_INLINE) {
		err = copy_inline(qp, s, wr);
		if (err)
			return err;
	}
	vs_store(&qp->sq.head, qp->sq.head + 1);
	return 0;
}

int vs_post_allowed(const struct vs_qp *qp)
{
	enum ibv_qp_state state = vs_qp_state(qp);

	VS_MAY_REFUSE(post_send);
	if (!qp->sq.ring)
		return EOPNOTSUPP; /* a TGT QP only receives */
	if (!vs_me)
		return EIO; /* in a forked child the HCA is the parent's */
	return state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_RTR ? EINVAL : 0;
}

bool vs_post_run(struct vs_qp *qp)
{
	if (qp->sq.deadline == 0)
		vs_requester_run(qp, 0);
	if (vs_requester_flushes(qp))
		vs_requester_flush(qp);
	return qp->sq.exec != qp->sq.head && !vs_load_relaxed(&qp->waiting) && !vs_qp_lost(qp);
}

bool vs_op_returns_data(uint8_t opcode)
{
	return OP_RETURNS_DATA & 1u << opcode;
}

int vs_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct vs_qp *qp = vs_qp(ibqp);
	int err = vs_post_allowed(qp);
	bool waits;

	if (err) {
		*bad_wr = wr;
		return err;
	}
	pthread_mutex_lock(&qp->lock);
	for (; wr; wr = wr->next) {
		err = enqueue(qp, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	waits = vs_post_run(qp);
	pthread_mutex_unlock(&qp->lock);
	if (waits)
		vs_timer_add(qp);
	return err;
}
