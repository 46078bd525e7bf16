/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts, gets and atomics of memory that could not be registered. Each goes in pieces through a few of the send buffers,
 * which are registered from the start, so that it always gets done, whatever the HCA refuses.
 *
 *   the memory here is not registered    pieces are copied into a buffer that is put, or got into one and copied out
 *   the memory there is not registered   pieces are sent; its owner copies them into place and answers each (LANDED)
 *
 * Nobody reads or adds to memory that its owner could not register: for that, register_mem fails.
 */
#ifndef BTL_XRC_BOUNCE_H
#define BTL_XRC_BOUNCE_H

#include "btl_xrc_frag.h"

void xrc_bounces_init(mca_btl_xrc_module_t *module);
void xrc_bounces_fini(mca_btl_xrc_module_t *module);

/** A handle for unregistered memory, or NULL. Only puts may use it as the remote one. */
mca_btl_base_registration_handle_t *xrc_area_new(mca_btl_xrc_module_t *module, void *base, size_t size);
void xrc_area_free(mca_btl_xrc_module_t *module, mca_btl_base_registration_handle_t *handle);

/** True when the memory here, or there, is not registered. */
static inline bool xrc_bounce_needed(const struct xrc_rdma *rdma, const struct xrc_rdma_op *op)
{
    return OPAL_UNLIKELY((NULL != rdma->local_handle && 0 != rdma->local_handle->area) || 0 != op->area);
}

/** As xrc_frag_rdma(), for what needs it. */
int xrc_bounce_start(mca_btl_xrc_module_t *module, struct mca_btl_base_endpoint_t *endpoint,
                     const struct xrc_rdma *rdma, const struct xrc_rdma_op *op);

/** Go on with what is not finished; called while module->bounces.work is not 0. */
void xrc_bounce_progress(mca_btl_xrc_module_t *module);

/** Nobody at @a node (NULL: at @a peer) can be reached any more: what waits for an answer ends, answers are not sent. */
void xrc_bounces_end(mca_btl_xrc_module_t *module, const struct xrc_node *node,
                     const struct mca_btl_base_endpoint_t *peer);

/** A message with XRC_TAG_BOUNCE came. False when it makes no sense. */
bool xrc_bounce_received(mca_btl_xrc_module_t *module, const struct xrc_hdr *hdr, uint32_t length);

#endif
