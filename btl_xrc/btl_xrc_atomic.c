/* SPDX-License-Identifier: BSD-3-Clause */
/* Fetch-and-add and compare-and-swap on 64 bits, all that verbs has; others are made from these by who needs them. */
#include "btl_xrc_frag.h"

#define WIDTH sizeof(uint64_t)

/*
 * Anything that the HCA cannot do is OPAL_ERR_NOT_SUPPORTED, misaligned words as well: osc/rdma has other ways then, but
 * tries for ever on other errors. It has no handle for memory that it expects to reach without us.
 */
static int atomic(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, const struct xrc_rdma *rdma,
                  const mca_btl_base_registration_handle_t *remote_handle, int flags, struct xrc_rdma_op *op)
{
    if (OPAL_UNLIKELY(0 != flags || (NULL == rdma->local_handle && !op->unwanted) || NULL == remote_handle
                      || 0 != remote_handle->area || 0 != op->remote_address % WIDTH)) {
        return OPAL_ERR_NOT_SUPPORTED;
    }
    op->size = WIDTH;
    op->rkey = remote_handle->rkey;
    return xrc_frag_rdma((mca_btl_xrc_module_t *) btl, endpoint, rdma, op);
}

int mca_btl_xrc_atomic_fop(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local_address,
                           uint64_t remote_address, mca_btl_base_registration_handle_t *local_handle,
                           mca_btl_base_registration_handle_t *remote_handle, mca_btl_base_atomic_op_t operation,
                           uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t cbfunc,
                           void *cbcontext, void *cbdata)
{
    struct xrc_rdma rdma = {cbfunc, local_address, local_handle, cbcontext, cbdata};
    struct xrc_rdma_op op = {
        .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .remote_address = remote_address, .compare_add = operand};
    (void) order;
    if (OPAL_UNLIKELY(MCA_BTL_ATOMIC_ADD != operation)) {
        return OPAL_ERR_NOT_SUPPORTED;
    }
    return atomic(btl, endpoint, &rdma, remote_handle, flags, &op);
}

/* As btl_atomic_fop, but nobody wants the old value and so has a place for it. The module has one. */
int mca_btl_xrc_atomic_op(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, uint64_t remote_address,
                          mca_btl_base_registration_handle_t *remote_handle, mca_btl_base_atomic_op_t operation,
                          uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t cbfunc,
                          void *cbcontext, void *cbdata)
{
    struct xrc_rdma rdma = {.cbfunc = cbfunc, .context = cbcontext, .cbdata = cbdata};
    struct xrc_rdma_op op = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                             .remote_address = remote_address,
                             .compare_add = operand,
                             .unwanted = true};
    (void) order;
    if (OPAL_UNLIKELY(MCA_BTL_ATOMIC_ADD != operation)) {
        return OPAL_ERR_NOT_SUPPORTED;
    }
    return atomic(btl, endpoint, &rdma, remote_handle, flags, &op);
}

int mca_btl_xrc_atomic_cswap(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local_address,
                             uint64_t remote_address, mca_btl_base_registration_handle_t *local_handle,
                             mca_btl_base_registration_handle_t *remote_handle, uint64_t compare, uint64_t value,
                             int flags, int order, mca_btl_base_rdma_completion_fn_t cbfunc, void *cbcontext,
                             void *cbdata)
{
    struct xrc_rdma rdma = {cbfunc, local_address, local_handle, cbcontext, cbdata};
    struct xrc_rdma_op op = {
        .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .remote_address = remote_address, .compare_add = compare, .swap = value};
    (void) order;
    return atomic(btl, endpoint, &rdma, remote_handle, flags, &op);
}
