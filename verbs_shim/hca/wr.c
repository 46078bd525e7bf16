/* ibv_wr_*: work requests built in place. A session holds the QP's lock from ibv_wr_start to ibv_wr_complete or ibv_wr_abort; the first
 * error of a session is what ibv_wr_complete returns, and then nothing of it is posted. */
#include "hca/wr.h"

#include <errno.h>
#include <string.h>

#include "core/shadow.h"
#include "hca/hca.h"

static struct vs_qp *qp_of(struct ibv_qp_ex *ex)
{
	return vs_container(ex, struct vs_qp, ibv_ex);
}

static void fail(struct vs_qp *qp, int err)
{
	if (!qp->sq.build_error)
		qp->sq.build_error = err;
}

/* ---- the operations: each begins a WR ---- */

static_assert(IBV_QP_EX_WITH_RDMA_WRITE == 1 << IBV_WR_RDMA_WRITE && IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD == 1 << IBV_WR_ATOMIC_FETCH_AND_ADD,
	      "the bit of an operation is its opcode");

static struct vs_send *begin(struct ibv_qp_ex *ex, uint8_t opcode)
{
	struct vs_qp *qp = qp_of(ex);
	struct vs_send *s = &qp->sq.ring[qp->sq.build & qp->sq.mask];

	if (!(vs_wr_operations(qp->ibv.qp_type) & UINT64_C(1) << opcode))
		fail(qp, EINVAL);
	else if (qp->sq.build - vs_load(&qp->sq.tail) >= qp->sq.max_wr)
		fail(qp, ENOMEM);
	if (qp->sq.build_error)
		return NULL;
	qp->sq.build++;
	s->wr_id = ex->wr_id;
	s->flags = (uint8_t)(ex->wr_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
	s->opcode = opcode;
	s->started = s->late = 0;
	s->num_sge = 0;
	s->length = 0;
	s->srqn = 0;
	s->ah = NULL;
	return s;
}

static void begin_remote(struct ibv_qp_ex *ex, uint8_t opcode, uint32_t rkey, uint64_t remote_addr, uint32_t imm)
{
	struct vs_send *s = begin(ex, opcode);

	if (!s)
		return;
	s->rkey = rkey;
	s->remote_addr = remote_addr;
	s->imm = imm;
}

static void begin_atomic(struct ibv_qp_ex *ex, uint8_t opcode, uint32_t rkey, uint64_t remote_addr, uint64_t compare_add, uint64_t swap)
{
	struct vs_send *s = begin(ex, opcode);

	if (!s)
		return;
	s->rkey = rkey;
	s->remote_addr = remote_addr;
	s->compare_add = compare_add;
	s->swap = swap;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	begin(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	begin_remote(ex, IBV_WR_SEND_WITH_IMM, 0, 0, imm);
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_remote(ex, IBV_WR_RDMA_WRITE, rkey, remote_addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, __be32 imm)
{
	begin_remote(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr, imm);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_remote(ex, IBV_WR_RDMA_READ, rkey, remote_addr, 0);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t compare, uint64_t swap)
{
	begin_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t add)
{
	begin_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, add, 0);
}

/* ---- operations that creation refused; here only so that no hook is NULL ---- */

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	(void)mw, (void)rkey, (void)info;
	fail(qp_of(ex), EOPNOTSUPP);
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	(void)rkey;
	fail(qp_of(ex), EOPNOTSUPP);
}

static void wr_send_tso(struct ibv_qp_ex *ex, void *header, uint16_t size, uint16_t mss)
{
	(void)header, (void)size, (void)mss;
	fail(qp_of(ex), EOPNOTSUPP);
}

/* ---- setters: of the WR begun last ---- */

static struct vs_send *last(struct ibv_qp_ex *ex)
{
	struct vs_qp *qp = qp_of(ex);

	if (qp->sq.build == qp->sq.head)
		fail(qp, EINVAL); /* a setter before any operation */
	return qp->sq.build_error ? NULL : &qp->sq.ring[(qp->sq.build - 1) & qp->sq.mask];
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct vs_send *s = last(ex);

	if (!s)
		return;
	s->ah = vs_container(ah, struct vs_ah, ibv);
	s->remote_qpn = remote_qpn;
	s->remote_qkey = remote_qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t srqn)
{
	struct vs_send *s = last(ex);

	if (s)
		s->srqn = srqn;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *list)
{
	struct vs_qp *qp = qp_of(ex);
	struct vs_send *s = last(ex);
	uint64_t total = 0;

	if (!s)
		return;
	if (num_sge > qp->sq.max_sge) {
		fail(qp, ENOMEM);
		return;
	}
	vs_shadow_check(list, (int)num_sge);
	for (size_t i = 0; i < num_sge; i++) {
		s->sge[i] = (struct vs_sge){ list[i].addr, list[i].length, list[i].lkey };
		total += list[i].length;
	}
	s->num_sge = (uint16_t)num_sge;
	s->length = total > UINT32_MAX ? UINT32_MAX : (uint32_t)total;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf, const struct ibv_data_buf *list)
{
	struct vs_qp *qp = qp_of(ex);
	struct vs_send *s = last(ex);
	size_t at = 0;

	if (!s)
		return;
	for (size_t i = 0; i < num_buf; i++) {
		if (list[i].length > qp->sq.max_inline - at || vs_op_is(s->opcode, VS_OP_RETURN_DATA)) {
			fail(qp, list[i].length > qp->sq.max_inline - at ? ENOMEM : EINVAL);
			return;
		}
		memcpy(s->inline_data + at, list[i].addr, list[i].length);
		at += list[i].length;
	}
	s->flags |= IBV_SEND_INLINE;
	s->length = (uint32_t)at;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(ex, 1, &buf);
}

/* ---- the session ---- */

static void wr_start(struct ibv_qp_ex *ex)
{
	struct vs_qp *qp = qp_of(ex);

	vs_lock(&qp->lock);
	qp->sq.build = qp->sq.head;
	qp->sq.build_error = qp->ibv.context->ops.post_send == vs_post_send ? vs_post_allowed(qp) : EIO; /* in a forked child */
}

/* Has every datagram of the session an address? */
static bool addressed(const struct vs_qp *qp)
{
	for (uint64_t pos = qp->sq.head; qp->ibv.qp_type == IBV_QPT_UD && pos != qp->sq.build; pos++)
		if (!qp->sq.ring[pos & qp->sq.mask].ah)
			return false;
	return true;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct vs_qp *qp = qp_of(ex);
	int err = qp->sq.build_error ? qp->sq.build_error : addressed(qp) ? 0 : EINVAL;
	bool waits = false;

	if (!err) {
		vs_store(&qp->sq.head, qp->sq.build);
		waits = vs_post_run(qp);
	}
	vs_unlock(&qp->lock);
	if (waits)
		vs_timer_add(qp);
	return err;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	vs_unlock(&qp_of(ex)->lock);
}

void vs_wr_init(struct vs_qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ibv_ex;

	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_local_inv;
	ex->wr_send_tso = wr_send_tso;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
}

uint64_t vs_wr_operations(enum ibv_qp_type type)
{
	const uint64_t send = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	const uint64_t write = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	const uint64_t atomic = vs_hidden(VS_CAP_ATOMICS) ? 0 : IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	const uint64_t answered = IBV_QP_EX_WITH_RDMA_READ | atomic;

	switch (type) {
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return send | write | answered;
	case IBV_QPT_UC:
		return send | write;
	case IBV_QPT_UD:
		return send;
	default:
		return 0;
	}
}
