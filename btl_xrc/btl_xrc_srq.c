/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <unistd.h>

#include "btl_xrc.h"
#include "btl_xrc_error.h"

/* Post what is on the chain. What does not go stays on it, and progress will try again. Lock held. */
static void post_chain(struct xrc_srq *srq)
{
    struct ibv_recv_wr *bad = NULL;
    uint32_t n = srq->returned;
    if (0 == n) {
        return;
    }
    if (srq->posted < srq->least) {
        __atomic_store_n(&srq->least, srq->posted, __ATOMIC_RELAXED);
    }
    int rc = ibv_post_srq_recv(srq->srq, srq->chain, &bad);
    if (OPAL_UNLIKELY(0 != rc)) {
        n = 0;
        for (struct ibv_recv_wr *wr = srq->chain; wr != bad; wr = wr->next) {
            ++n;
        }
        XRC_VERBOSE(1, "ibv_post_srq_recv: %s", strerror(rc));
        __atomic_store_n(&srq->grow, true, __ATOMIC_RELEASE);
    }
    srq->chain = 0 != rc ? bad : NULL;
    srq->returned -= n;
    srq->posted += n;
}

static void chain(struct xrc_srq *srq, struct xrc_recv *recv)
{
    recv->wr.next = srq->chain;
    srq->chain = &recv->wr;
    ++srq->returned;
}

/* Buffers that have never been posted so far. Lock held; their number is also read without (performance variables). */
static void chain_fresh(struct xrc_srq *srq, uint32_t most)
{
    uint32_t n = most < srq->fresh ? most : srq->fresh;
    for (uint32_t first = srq->num - srq->fresh, i = 0; i < n; ++i) {
        chain(srq, &srq->recvs[first + i]);
    }
    __atomic_store_n(&srq->fresh, srq->fresh - n, __ATOMIC_RELAXED);
    /* A queue that has not grown yet would otherwise run dry before it gets anything back. */
    srq->batch = (uint32_t) ((uint64_t) (srq->num - srq->fresh) * srq->slack / srq->num);
}

void xrc_srq_return(struct xrc_srq *srq, struct xrc_recv *recv)
{
    OPAL_THREAD_LOCK(&srq->lock);
    --srq->posted;
    chain(srq, recv);
    if (srq->returned >= srq->batch || 0 == srq->posted) {
        post_chain(srq);
    }
    OPAL_THREAD_UNLOCK(&srq->lock);
}

static void arm_limit(struct xrc_srq *srq, uint32_t limit)
{
    struct ibv_srq_attr attr = {.srq_limit = limit};
    int rc = ibv_modify_srq(srq->srq, &attr, IBV_SRQ_LIMIT);
    if (0 != rc) {
        /* No limit events here: then all buffers at once. */
        XRC_VERBOSE(5, "ibv_modify_srq(LIMIT): %s", strerror(rc));
        chain_fresh(srq, srq->fresh);
        post_chain(srq);
    }
}

/* Twice as many as have been posted so far, until there are no more. */
void xrc_srq_grow(struct xrc_srq *srq)
{
    OPAL_THREAD_LOCK(&srq->lock);
    __atomic_store_n(&srq->grow, false, __ATOMIC_RELEASE);
    chain_fresh(srq, srq->num - srq->fresh);
    post_chain(srq);
    if (srq->fresh > 0) {
        struct ibv_srq_attr attr;
        if (0 == ibv_query_srq(srq->srq, &attr)) {
            arm_limit(srq, (srq->num - srq->fresh) / 4 + 1);
        }
    }
    OPAL_THREAD_UNLOCK(&srq->lock);
}

static int make_buffers(mca_btl_xrc_module_t *module, struct xrc_srq *srq, uint32_t size)
{
    size_t page = (size_t) sysconf(_SC_PAGESIZE);
    /* Whole cache lines for each, whole pages for all: a forked child may touch what lies beside. */
    size_t stride = xrc_recvq_stride(size);
    srq->memory_size = (stride * srq->num + page - 1) / page * page;
    if (0 != posix_memalign((void **) &srq->memory, page, srq->memory_size)) {
        return ENOMEM;
    }
    srq->recvs = (struct xrc_recv *) calloc(srq->num, sizeof(*srq->recvs));
    if (NULL == srq->recvs) {
        return ENOMEM;
    }
    srq->mr = ibv_reg_mr(module->device->pd, srq->memory, srq->memory_size, IBV_ACCESS_LOCAL_WRITE);
    if (NULL == srq->mr) {
        return errno;
    }
    xrc_count(&mca_btl_xrc_component.counters.recv_bytes, (int64_t) srq->memory_size);
    for (uint32_t i = 0; i < srq->num; ++i) {
        struct xrc_recv *r = &srq->recvs[i];
        r->srq = srq;
        r->sge = (struct ibv_sge){(uintptr_t) srq->memory + i * stride, (uint32_t) (sizeof(struct xrc_hdr) + size),
                                  srq->mr->lkey};
        r->wr = (struct ibv_recv_wr){.wr_id = (uintptr_t) r, .sg_list = &r->sge, .num_sge = 1};
    }
    return 0;
}

static int make_srq(mca_btl_xrc_module_t *module, struct xrc_srq *srq)
{
    struct ibv_srq_init_attr_ex init = {.attr = {.max_wr = srq->num, .max_sge = 1},
                                        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD
                                                     | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
                                        .srq_type = IBV_SRQT_XRC,
                                        .pd = module->device->pd,
                                        .xrcd = module->device->xrcd,
                                        .cq = module->recv_cq};
    errno = 0;
    srq->srq = ibv_create_srq_ex(module->device->context, &init);
    if (NULL == srq->srq) {
        return 0 != errno ? errno : EINVAL;
    }
    return ibv_get_srq_num(srq->srq, &srq->srqn);
}

int xrc_srq_create(mca_btl_xrc_module_t *module, unsigned klass)
{
    const struct xrc_recvq_class *c = &mca_btl_xrc_component.recvq.c[klass];
    struct xrc_srq *srq = &module->srq[klass];
    OBJ_CONSTRUCT(&srq->lock, opal_mutex_t);
    srq->num = srq->fresh = c->num;
    srq->slack = c->num - c->low;
    int rc = make_buffers(module, srq, c->size);
    if (0 != rc) {
        xrc_show_help("no memory", module->device->name, opal_process_info.nodename,
                      (unsigned long) (srq->memory_size >> 10), strerror(rc));
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    rc = make_srq(module, srq);
    if (0 != rc) {
        xrc_error_verb(module->device, "ibv_create_srq_ex(XRC)", rc);
        return OPAL_ERROR;
    }
    chain_fresh(srq, c->init);
    post_chain(srq);
    srq->least = srq->posted;
    if (srq->fresh > 0) {
        arm_limit(srq, 0 != c->limit ? c->limit : c->init / 4 + 1);
    }
    if (0 == srq->posted) {
        xrc_error_verb(module->device, "ibv_post_srq_recv", ENOMEM);
        return OPAL_ERROR;
    }
    return OPAL_SUCCESS;
}

void xrc_srq_destroy(struct xrc_srq *srq)
{
    if (0 == srq->num) {
        return;
    }
    if (NULL != srq->srq) {
        int rc = ibv_destroy_srq(srq->srq);
        if (0 != rc) {
            XRC_VERBOSE(1, "ibv_destroy_srq: %s", strerror(rc));
        }
    }
    if (NULL != srq->mr) {
        xrc_count(&mca_btl_xrc_component.counters.recv_bytes, -(int64_t) srq->memory_size);
        ibv_dereg_mr(srq->mr);
    }
    free(srq->recvs);
    free(srq->memory);
    OBJ_DESTRUCT(&srq->lock);
    memset(srq, 0, sizeof(*srq));
}
