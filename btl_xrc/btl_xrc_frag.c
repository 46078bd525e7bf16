/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_frag.h"

#include "btl_xrc_bounce.h"
#include "btl_xrc_node.h"

typedef struct xrc_frag xrc_frag_send_t;
typedef struct xrc_frag xrc_frag_rdma_t;
typedef struct xrc_frag xrc_frag_mark_t;

static void frag_construct(struct xrc_frag *frag, enum xrc_frag_kind kind)
{
    memset(&frag->segment, 0, sizeof(*frag) - offsetof(struct xrc_frag, segment));
    frag->kind = (uint8_t) kind;
    frag->base.des_segments = &frag->segment;
    frag->base.des_segment_count = 1;
    frag->wr.wr_id = (uint64_t) (uintptr_t) frag;
    frag->wr.sg_list = &frag->sge;
    frag->wr.num_sge = 1;
}

static void send_construct(xrc_frag_send_t *frag)
{
    frag_construct(frag, XRC_FRAG_SEND);
    frag->wr.opcode = IBV_WR_SEND;
}

static void rdma_construct(xrc_frag_rdma_t *frag)
{
    frag_construct(frag, XRC_FRAG_RDMA);
    frag->lane = XRC_LANE_RDMA;
}

static void mark_construct(xrc_frag_mark_t *frag)
{
    frag_construct(frag, XRC_FRAG_MARK);
}

OBJ_CLASS_INSTANCE(xrc_frag_send_t, mca_btl_base_descriptor_t, send_construct, NULL);
OBJ_CLASS_INSTANCE(xrc_frag_rdma_t, mca_btl_base_descriptor_t, rdma_construct, NULL);
OBJ_CLASS_INSTANCE(xrc_frag_mark_t, mca_btl_base_descriptor_t, mark_construct, NULL);

/* Called once for each fragment when a free list grows: all that never changes. */
static int send_frag_init(opal_free_list_item_t *item, void *ctx)
{
    struct xrc_frag *frag = (struct xrc_frag *) item;
    mca_btl_xrc_module_t *module = (mca_btl_xrc_module_t *) ctx;
    struct xrc_registration *reg = (struct xrc_registration *) item->registration;
    *xrc_frag_hdr(frag) = module->hdr;
    frag->segment.seg_addr.pval = xrc_frag_hdr(frag) + 1;
    frag->sge.addr = (uint64_t) (uintptr_t) item->ptr;
    frag->sge.lkey = reg->handle.lkey;
    return OPAL_SUCCESS;
}

static int plain_list(opal_free_list_t *list, opal_class_t *klass)
{
    const struct xrc_params *p = &mca_btl_xrc_component.params;
    return opal_free_list_init(list, sizeof(struct xrc_frag), opal_cache_line_size, klass, 0, 0, p->free_list_num,
                               p->free_list_max, p->free_list_inc, NULL, 0, NULL, NULL, NULL);
}

int xrc_frags_init(mca_btl_xrc_module_t *module)
{
    const struct xrc_params *p = &mca_btl_xrc_component.params;
    const struct xrc_recvq *q = &mca_btl_xrc_component.recvq;
    OBJ_CONSTRUCT(&module->rdma_frags, opal_free_list_t);
    OBJ_CONSTRUCT(&module->mark_frags, opal_free_list_t);
    for (unsigned i = 0; i < q->nclasses; ++i) {
        OBJ_CONSTRUCT(&module->send_frags[i], opal_free_list_t);
    }
    module->frags_ready = true;
    int rc = plain_list(&module->rdma_frags, OBJ_CLASS(xrc_frag_rdma_t));
    if (OPAL_SUCCESS == rc) {
        rc = plain_list(&module->mark_frags, OBJ_CLASS(xrc_frag_mark_t));
    }
    for (unsigned i = 0; i < q->nclasses && OPAL_SUCCESS == rc; ++i) {
        uint32_t size = q->c[i].size;
        rc = opal_free_list_init(&module->send_frags[i], sizeof(struct xrc_frag), opal_cache_line_size,
                                 OBJ_CLASS(xrc_frag_send_t), sizeof(struct xrc_hdr) + size, opal_cache_line_size,
                                 (int) xrc_recvq_sends_at_a_time((unsigned) p->free_list_num, size), p->free_list_max,
                                 (int) xrc_recvq_sends_at_a_time((unsigned) p->free_list_inc, size), NULL, 0,
                                 module->device->rcache, send_frag_init, module);
    }
    if (OPAL_SUCCESS == rc && 1 != p->free_list_max) {
        module->sink = (struct xrc_frag *) opal_free_list_get(&module->send_frags[0]);
    }
    return rc;
}

void xrc_frags_fini(mca_btl_xrc_module_t *module)
{
    if (!module->frags_ready) {
        return;
    }
    module->frags_ready = false;
    if (NULL != module->sink) {
        opal_free_list_return(&module->send_frags[0], (opal_free_list_item_t *) module->sink);
    }
    for (unsigned i = 0; i < mca_btl_xrc_component.recvq.nclasses; ++i) {
        OBJ_DESTRUCT(&module->send_frags[i]);
    }
    OBJ_DESTRUCT(&module->rdma_frags);
    OBJ_DESTRUCT(&module->mark_frags);
}

static void finish_send(struct xrc_frag *frag, int status)
{
    mca_btl_base_descriptor_t *des = &frag->base;
    uint32_t flags = des->des_flags;
    if ((flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK) && NULL != des->des_cbfunc) {
        des->des_cbfunc(&frag->node->module->super, frag->endpoint, des, status);
    }
    if (flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) {
        xrc_frag_return(frag);
    }
}

/* Whoever relies on btl_flush may want no callback. What it waits for has happened before the callback is made. */
static void finish_rdma(struct xrc_frag *frag, int status)
{
    struct xrc_rdma rdma = frag->rdma;
    mca_btl_xrc_module_t *module = frag->node->module;
    struct mca_btl_base_endpoint_t *endpoint = frag->endpoint;
    xrc_frag_return(frag);
    OPAL_THREAD_ADD_FETCH32(&module->rdma_left, -1);
    if (NULL != rdma.cbfunc) {
        rdma.cbfunc(&module->super, endpoint, rdma.local_address, rdma.local_handle, rdma.context, rdma.cbdata, status);
    }
}

void xrc_frag_finish(struct xrc_frag *frag, int status)
{
    switch (frag->kind) {
    case XRC_FRAG_SEND: finish_send(frag, status); break;
    case XRC_FRAG_RDMA: finish_rdma(frag, status); break;
    default: xrc_frag_return(frag);
    }
}

/* Aim @a wr; returns where such operations are counted. */
static opal_atomic_int64_t *aim(struct ibv_send_wr *wr, const struct xrc_rdma_op *op)
{
    struct xrc_counters *c = &mca_btl_xrc_component.counters;
    wr->opcode = op->opcode;
    if (IBV_WR_RDMA_WRITE == op->opcode || IBV_WR_RDMA_READ == op->opcode) {
        wr->wr.rdma.remote_addr = op->remote_address;
        wr->wr.rdma.rkey = op->rkey;
        return IBV_WR_RDMA_WRITE == op->opcode ? &c->puts : &c->gets;
    }
    wr->wr.atomic.remote_addr = op->remote_address;
    wr->wr.atomic.compare_add = op->compare_add;
    wr->wr.atomic.swap = op->swap;
    wr->wr.atomic.rkey = op->rkey;
    return &c->atomics;
}

/* A put of memory for which there is no handle, to a node whose INI has got less inline than others, or is not there yet. */
static bool too_long_for_inline(const struct xrc_node *node, const struct xrc_rdma *rdma, const struct xrc_rdma_op *op)
{
    return NULL == rdma->local_handle && IBV_WR_RDMA_WRITE == op->opcode && op->size > node->max_inline;
}

int xrc_frag_rdma(mca_btl_xrc_module_t *module, struct mca_btl_base_endpoint_t *endpoint, const struct xrc_rdma *rdma,
                  const struct xrc_rdma_op *op)
{
    if (xrc_bounce_needed(rdma, op) || too_long_for_inline(endpoint->node, rdma, op)) {
        return xrc_bounce_start(module, endpoint, rdma, op);
    }
    struct xrc_frag *frag = (struct xrc_frag *) opal_free_list_get(&module->rdma_frags);
    if (OPAL_UNLIKELY(NULL == frag)) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    frag->home = &module->rdma_frags;
    frag->rdma = *rdma;
    if (op->unwanted) {
        frag->sge = module->sink->sge;
    } else {
        frag->sge.addr = (uint64_t) (uintptr_t) rdma->local_address;
        frag->sge.lkey = NULL != rdma->local_handle ? rdma->local_handle->lkey : 0;
    }
    frag->sge.length = (uint32_t) op->size;
    opal_atomic_int64_t *count = aim(&frag->wr, op);
    /* One-sided operations need a live SRQ, too: it says which process, and so which PD, they act on. */
    frag->wr.qp_type.xrc.remote_srqn = endpoint->srqn[0];
    OPAL_THREAD_ADD_FETCH32(&module->rdma_left, 1);
    int rc = xrc_node_send(endpoint, frag);
    if (OPAL_UNLIKELY(rc < 0)) {
        OPAL_THREAD_ADD_FETCH32(&module->rdma_left, -1);
        xrc_frag_return(frag);
        return rc;
    }
    OPAL_THREAD_ADD_FETCH64(count, 1);
    if (op->unwanted) {
        OPAL_THREAD_ADD_FETCH64(&mca_btl_xrc_component.counters.atomics_blind, 1);
    }
    return OPAL_SUCCESS;
}

mca_btl_base_descriptor_t *mca_btl_xrc_alloc(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                             uint8_t order, size_t size, uint32_t flags)
{
    mca_btl_xrc_module_t *module = (mca_btl_xrc_module_t *) btl;
    const struct xrc_recvq *q = &mca_btl_xrc_component.recvq;
    unsigned klass = xrc_recvq_class_of(q, size);
    (void) endpoint;
    (void) order;
    if (OPAL_UNLIKELY(klass == q->nclasses)) {
        return NULL;
    }
    opal_free_list_t *list = &module->send_frags[klass];
    struct xrc_frag *frag = (struct xrc_frag *) opal_free_list_get(list);
    if (OPAL_UNLIKELY(NULL == frag)) {
        return NULL;
    }
    frag->home = list;
    frag->segment.seg_len = size;
    frag->base.des_flags = flags;
    frag->base.order = MCA_BTL_NO_ORDER;
    frag->base.des_cbfunc = NULL;
    return &frag->base;
}

int mca_btl_xrc_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *des)
{
    (void) btl;
    xrc_frag_return((struct xrc_frag *) des);
    return OPAL_SUCCESS;
}

mca_btl_base_descriptor_t *mca_btl_xrc_prepare_src(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                                   opal_convertor_t *convertor, uint8_t order, size_t reserve,
                                                   size_t *size, uint32_t flags)
{
    size_t most = btl->btl_max_send_size;
    if (OPAL_UNLIKELY(reserve > most)) {
        return NULL;
    }
    size_t take = *size < most - reserve ? *size : most - reserve;
    mca_btl_base_descriptor_t *des = mca_btl_xrc_alloc(btl, endpoint, order, reserve + take, flags);
    if (OPAL_UNLIKELY(NULL == des)) {
        return NULL;
    }
    struct iovec iov = {.iov_base = (char *) des->des_segments[0].seg_addr.pval + reserve, .iov_len = take};
    uint32_t niov = 1;
    if (OPAL_UNLIKELY(opal_convertor_pack(convertor, &iov, &niov, &take) < 0)) {
        mca_btl_xrc_free(btl, des);
        return NULL;
    }
    des->des_segments[0].seg_len = reserve + take;
    *size = take;
    return des;
}
