/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_node.h"

/*
 * The receive buffer is chosen by what is sent, not by what was allocated. Whatever goes inline is the caller's again
 * at once; unless the caller wants to hear of it, we then say "done" (1).
 */
int mca_btl_xrc_send(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                     mca_btl_base_descriptor_t *des, mca_btl_base_tag_t tag)
{
    struct xrc_frag *frag = (struct xrc_frag *) des;
    size_t length = frag->segment.seg_len;
    uint32_t flags = des->des_flags;
    unsigned klass = xrc_recvq_class_of(&mca_btl_xrc_component.recvq, length);
    (void) btl;
    xrc_frag_hdr(frag)->tag = tag;
    frag->lane = (uint8_t) klass;
    frag->may_be_done = !(flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK);
    frag->sge.length = (uint32_t) (sizeof(struct xrc_hdr) + length);
    frag->wr.qp_type.xrc.remote_srqn = endpoint->srqn[klass];
    int rc = xrc_node_send(endpoint, frag);
    if (1 == rc && (flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP)) {
        xrc_frag_return(frag);
    }
    return rc;
}
