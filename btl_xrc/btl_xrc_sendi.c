/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_node.h"

#define INLINE_MOST 1024u

static bool pack(opal_convertor_t *convertor, void *to, size_t size)
{
    struct iovec iov = {.iov_base = to, .iov_len = size};
    uint32_t niov = 1;
    size_t packed = size;
    return 0 == size || (opal_convertor_pack(convertor, &iov, &niov, &packed) >= 0 && packed == size);
}

/* From the stack straight into the work queue. */
static int send_inline(mca_btl_xrc_module_t *module, struct mca_btl_base_endpoint_t *endpoint,
                       opal_convertor_t *convertor, const void *header, size_t header_size, size_t payload_size,
                       mca_btl_base_tag_t tag)
{
    struct {
        struct xrc_hdr hdr;
        uint8_t data[INLINE_MOST];
    } message;
    message.hdr = module->hdr;
    message.hdr.tag = tag;
    memcpy(message.data, header, header_size);
    if (!pack(convertor, message.data + header_size, payload_size)) {
        return OPAL_ERROR;
    }
    struct ibv_sge sge = {.addr = (uintptr_t) &message,
                          .length = (uint32_t) (sizeof(message.hdr) + header_size + payload_size)};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    wr.qp_type.xrc.remote_srqn = endpoint->srqn[0];
    return xrc_node_send_now(endpoint, &wr);
}

/* Copied into a buffer of ours, which nobody needs to hear of again. */
static int send_copied(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                       opal_convertor_t *convertor, const void *header, size_t header_size, size_t payload_size,
                       uint8_t order, mca_btl_base_tag_t tag)
{
    mca_btl_base_descriptor_t *des =
        mca_btl_xrc_alloc(btl, endpoint, order, header_size + payload_size, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
    if (OPAL_UNLIKELY(NULL == des)) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    char *to = (char *) des->des_segments[0].seg_addr.pval;
    memcpy(to, header, header_size);
    int rc = pack(convertor, to + header_size, payload_size) ? mca_btl_xrc_send(btl, endpoint, des, tag) : OPAL_ERROR;
    if (OPAL_UNLIKELY(rc < 0)) {
        mca_btl_xrc_free(btl, des);
    }
    return rc;
}

static void rewind_to(opal_convertor_t *convertor, size_t position)
{
    if (NULL != convertor) {
        opal_convertor_set_position(convertor, &position);
    }
}

int mca_btl_xrc_sendi(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, opal_convertor_t *convertor,
                      void *header, size_t header_size, size_t payload_size, uint8_t order, uint32_t flags,
                      mca_btl_base_tag_t tag, mca_btl_base_descriptor_t **descriptor)
{
    mca_btl_xrc_module_t *module = (mca_btl_xrc_module_t *) btl;
    size_t size = header_size + payload_size, start = 0;
    int rc = OPAL_ERR_RESOURCE_BUSY;
    if (NULL != convertor) {
        start = convertor->bConverted;
    }
    if (OPAL_LIKELY(sizeof(struct xrc_hdr) + size <= endpoint->node->max_inline)) {
        rc = send_inline(module, endpoint, convertor, header, header_size, payload_size, tag);
        if (OPAL_UNLIKELY(rc < 0)) {
            rewind_to(convertor, start);
        }
    }
    if (rc < 0 && size <= btl->btl_eager_limit) {
        rc = send_copied(btl, endpoint, convertor, header, header_size, payload_size, order, tag);
        if (OPAL_UNLIKELY(rc < 0)) {
            rewind_to(convertor, start);
        }
    }
    if (OPAL_LIKELY(rc >= 0)) {
        return OPAL_SUCCESS;
    }
    if (NULL != descriptor) {
        *descriptor = mca_btl_xrc_alloc(btl, endpoint, order, size, flags);
    }
    return OPAL_ERR_RESOURCE_BUSY;
}
