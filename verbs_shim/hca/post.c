#include "hca/hca.h"

#include <errno.h>
#include <string.h>

#include "core/qp.h"
#include "core/shadow.h"

/* Which operations each QP type can send: the rest is refused when posted. */
static const uint32_t operations[] = {
	[IBV_QPT_RC] = VS_OP_SENDS | VS_OP_WRITES | VS_OP_RETURN_DATA,
	[IBV_QPT_UC] = VS_OP_SENDS | VS_OP_WRITES,
	[IBV_QPT_UD] = VS_OP_SENDS,
	[IBV_QPT_XRC_SEND] = VS_OP_SENDS | VS_OP_WRITES | VS_OP_RETURN_DATA,
};

static int check_wr(const struct vs_qp *qp, const struct ibv_send_wr *wr)
{
	const unsigned known = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

	if ((unsigned)wr->opcode >= 32 || !(operations[qp->ibv.qp_type] & 1u << wr->opcode))
		return EINVAL;
	if (wr->send_flags & ~known)
		return EINVAL;
	if (vs_op_is(wr->opcode, VS_OP_ATOMICS) && vs_hidden(VS_CAP_ATOMICS))
		return EINVAL;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->sq.max_sge)
		return ENOMEM; /* as mlx4 and mlx5 */
	if ((wr->send_flags & IBV_SEND_INLINE) && vs_op_is(wr->opcode, VS_OP_RETURN_DATA))
		return EINVAL;
	if (qp->sq.head - vs_load(&qp->sq.tail) >= qp->sq.max_wr)
		return ENOMEM;
	return 0;
}

static uint64_t total_length(const struct ibv_send_wr *wr)
{
	uint64_t total = 0;

	for (int i = 0; i < wr->num_sge; i++)
		total += wr->sg_list[i].length;
	return total;
}

static int copy_inline(const struct vs_qp *qp, struct vs_send *s, const struct ibv_send_wr *wr)
{
	char *to = s->inline_data;

	if (s->length > qp->sq.max_inline)
		return ENOMEM;
	for (int i = 0; i < wr->num_sge; i++) {
		memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		to += wr->sg_list[i].length;
	}
	s->num_sge = 0;
	return 0;
}

static int copy_list(struct vs_send *s, const struct ibv_send_wr *wr)
{
	for (int i = 0; i < wr->num_sge; i++)
		s->sge[i] = (struct vs_sge){ wr->sg_list[i].addr, wr->sg_list[i].length, wr->sg_list[i].lkey };
	s->num_sge = (uint16_t)wr->num_sge;
	return 0;
}

static void copy_target(const struct vs_qp *qp, struct vs_send *s, const struct ibv_send_wr *wr)
{
	if (qp->ibv.qp_type == IBV_QPT_UD) {
		s->ah = vs_container(wr->wr.ud.ah, struct vs_ah, ibv);
		s->remote_qpn = wr->wr.ud.remote_qpn;
		s->remote_qkey = wr->wr.ud.remote_qkey;
		return;
	}
	if (vs_op_is(wr->opcode, VS_OP_ATOMICS)) {
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
	if (!(wr->send_flags & IBV_SEND_INLINE)) /* which is copied at once, and looked at by that */
		vs_shadow_check(wr->sg_list, wr->num_sge);
	total = total_length(wr);
	s->length = total > UINT32_MAX ? UINT32_MAX : (uint32_t)total; /* beyond any message limit: LOC_LEN_ERR when carried out */
	s->wr_id = wr->wr_id;
	s->imm = wr->imm_data;
	s->opcode = (uint8_t)wr->opcode;
	s->flags = (uint8_t)wr->send_flags;
	s->started = s->late = 0;
	copy_target(qp, s, wr);
	err = wr->send_flags & IBV_SEND_INLINE ? copy_inline(qp, s, wr) : copy_list(s, wr);
	if (err)
		return err;
	vs_store(&qp->sq.head, qp->sq.head + 1);
	return 0;
}

bool vs_post_run(struct vs_qp *qp)
{
	if (qp->sq.deadline == 0) {
		vs_requester_run(qp, 0);
		/* One that was reset while it waited is still in the list, where its old deadline counts. */
		return qp->sq.exec != qp->sq.head && (!vs_load_relaxed(&qp->waiting) || qp->sq.deadline) && !vs_qp_lost(qp);
	}
	if (vs_requester_flushes(qp))
		vs_requester_flush(qp);
	return qp->sq.exec != qp->sq.head && !vs_load_relaxed(&qp->waiting) && !vs_qp_lost(qp);
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
	vs_lock(&qp->lock);
	for (; wr; wr = wr->next) {
		err = enqueue(qp, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	waits = vs_post_run(qp);
	vs_unlock(&qp->lock);
	if (waits)
		vs_timer_add(qp);
	return err;
}
