/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_frag.h"

int mca_btl_xrc_get(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local_address,
                    uint64_t remote_address, mca_btl_base_registration_handle_t *local_handle,
                    mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
                    mca_btl_base_rdma_completion_fn_t cbfunc, void *cbcontext, void *cbdata)
{
    mca_btl_xrc_module_t *module = (mca_btl_xrc_module_t *) btl;
    struct xrc_rdma rdma = {cbfunc, local_address, local_handle, cbcontext, cbdata};
    (void) flags;
    (void) order;
    if (OPAL_UNLIKELY(size > btl->btl_get_limit || NULL == local_handle)) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
    struct xrc_rdma_op op = {.opcode = IBV_WR_RDMA_READ,
                             .remote_address = remote_address,
                             .rkey = remote_handle->rkey,
                             .area = remote_handle->area,
                             .size = size};
    return xrc_frag_rdma(module, endpoint, &rdma, &op);
}
