/* ibv_start_poll and its family: the CQ's lock is held from a successful start to ibv_end_poll. */
#include <errno.h>

#include "core/context.h"
#include "hca/hca.h"

static struct vs_cq *cq_of(struct ibv_cq_ex *ex)
{
	return vs_container(ex, struct vs_cq, ibv_ex);
}

static int next_poll(struct ibv_cq_ex *ex)
{
	struct vs_cq *cq = cq_of(ex);

	if (!vs_poll_next(cq, &cq->current))
		return ENOENT;
	ex->wr_id = cq->current.wr_id;
	ex->status = cq->current.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct vs_cq *cq = cq_of(ex);
	int err;

	if (attr->comp_mask)
		return EINVAL;
	if (ex->context->ops.poll_cq != vs_poll_cq)
		return vs_load(&vs_exiting) ? ENOENT : EIO; /* a forked child's, of its parent's */
	if (!vs_poll_ready(cq))
		return vs_poll_nothing(cq);
	vs_lock(&cq->lock);
	err = next_poll(ex);
	if (err) {
		vs_unlock(&cq->lock);
		vs_timer_assist();
	}
	return err;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	vs_unlock(&cq_of(ex)->lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->current.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->current.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->current.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->current.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->current.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->current.src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->current.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->current.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->current.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->current.dlid_path_bits;
}

void vs_poll_ex_init(struct vs_cq *cq, uint64_t wc_flags)
{
	struct ibv_cq_ex *ex = &cq->ibv_ex;

	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_wc_flags = read_wc_flags;
	ex->read_byte_len = wc_flags & IBV_WC_EX_WITH_BYTE_LEN ? read_byte_len : NULL;
	ex->read_imm_data = wc_flags & IBV_WC_EX_WITH_IMM ? read_imm_data : NULL;
	ex->read_qp_num = wc_flags & IBV_WC_EX_WITH_QP_NUM ? read_qp_num : NULL;
	ex->read_src_qp = wc_flags & IBV_WC_EX_WITH_SRC_QP ? read_src_qp : NULL;
	ex->read_slid = wc_flags & IBV_WC_EX_WITH_SLID ? read_slid : NULL;
	ex->read_sl = wc_flags & IBV_WC_EX_WITH_SL ? read_sl : NULL;
	ex->read_dlid_path_bits = wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS ? read_dlid_path_bits : NULL;
}
