/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receive queue of a size class. Its buffers are made piece by piece: some at the start, as many again each time that the
 * HCA says that few are left.
 */
#include <errno.h>
#include <unistd.h>

#include "btl_xrc.h"
#include "btl_xrc_error.h"

/*
 * Posts until the first look, and at most until the next, by buffers of the queue. There are several looks then, one each time
 * that buffers are posted: what comes at regular times may never be there at that of a single one.
 */
#define GAP_ARMED  16u
#define GAP_MOST   64u
#define LOOKS_MOST 4u

/* ---- posting ---- */

static void note_least(struct xrc_srq *srq)
{
    if (srq->posted >= srq->least) {
        return;
    }
    srq->least = srq->posted;
    uint32_t percent = (uint32_t) (100ull * srq->posted / srq->made);
    if (percent < srq->low_percent) {
        __atomic_store_n(&srq->low_percent, percent, __ATOMIC_RELAXED);
    }
}

/* Buffers that were filled so far and have come back. */
static uint64_t received(const struct xrc_srq *srq)
{
    return srq->posts - srq->posted;
}

/* Post what is on the chain. What does not go stays on it, and progress will try again. Lock held. */
static void post_chain(struct xrc_srq *srq)
{
    struct ibv_recv_wr *bad = NULL;
    uint32_t n = srq->returned;
    if (0 == n) {
        return;
    }
    note_least(srq);
    int rc = ibv_post_srq_recv(srq->srq, srq->chain, &bad);
    if (OPAL_UNLIKELY(0 != rc)) {
        n = 0;
        for (struct ibv_recv_wr *wr = srq->chain; wr != bad; wr = wr->next) {
            ++n;
        }
        XRC_VERBOSE(1, "ibv_post_srq_recv: %s", strerror(rc));
        xrc_srq_due(srq, XRC_SRQ_POST);
    }
    srq->chain = 0 != rc ? bad : NULL;
    srq->returned -= n;
    srq->posted += n;
    srq->posts += n;
    if (OPAL_UNLIKELY(srq->posts >= srq->look_at)) {
        srq->look_at = UINT64_MAX;
        srq->seen = received(srq);
        xrc_srq_due(srq, XRC_SRQ_LOOK);
    }
}

static void chain(struct xrc_srq *srq, struct xrc_recv *recv)
{
    recv->wr.next = srq->chain;
    srq->chain = &recv->wr;
    ++srq->returned;
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

/* ---- pieces ---- */

static void free_piece(struct xrc_piece *piece)
{
    if (NULL != piece->mr) {
        int rc = ibv_dereg_mr(piece->mr);
        if (0 != rc) {
            XRC_VERBOSE(1, "ibv_dereg_mr: %s", strerror(rc));
        }
    }
    free(piece->memory);
    free(piece);
}

/* Whole cache lines for each buffer, whole pages for all: a forked child may touch what lies beside. */
static int make_piece(struct ibv_pd *pd, const struct xrc_recvq_class *c, uint32_t n, struct xrc_piece **out)
{
    size_t page = (size_t) sysconf(_SC_PAGESIZE);
    struct xrc_piece *piece = (struct xrc_piece *) calloc(1, sizeof(*piece) + n * sizeof(piece->recvs[0]));
    void *memory = NULL;
    if (NULL == piece) {
        return ENOMEM;
    }
    piece->size = xrc_recvq_bytes(c, n, page);
    int rc = posix_memalign(&memory, page, piece->size);
    if (0 == rc) {
        piece->memory = (char *) memory;
        errno = ENOMEM;
        piece->mr = ibv_reg_mr(pd, memory, piece->size, IBV_ACCESS_LOCAL_WRITE);
        rc = NULL != piece->mr ? 0 : errno;
    }
    if (0 != rc) {
        free_piece(piece);
        return rc;
    }
    *out = piece;
    return 0;
}

/* Make @a n more buffers and chain them. Lock held, if others know the queue; what it has is also read without. */
static int add_piece(struct xrc_srq *srq, uint32_t n)
{
    const struct xrc_recvq_class *c = srq->klass;
    size_t stride = xrc_recvq_stride(c->size);
    struct xrc_piece *piece = NULL;
    int rc = make_piece(srq->pd, c, n, &piece);
    if (0 != rc) {
        return rc;
    }
    piece->next = srq->pieces;
    srq->pieces = piece;
    srq->bytes += piece->size;
    xrc_count(&mca_btl_xrc_component.counters.recv_bytes, (int64_t) piece->size);
    for (uint32_t i = 0; i < n; ++i) {
        struct xrc_recv *r = &piece->recvs[i];
        r->srq = srq;
        r->sge = (struct ibv_sge){(uintptr_t) piece->memory + i * stride, (uint32_t) (sizeof(struct xrc_hdr) + c->size),
                                  piece->mr->lkey};
        r->wr = (struct ibv_recv_wr){.wr_id = (uintptr_t) r, .sg_list = &r->sge, .num_sge = 1};
        chain(srq, r);
    }
    __atomic_store_n(&srq->made, srq->made + n, __ATOMIC_RELAXED);
    /* A queue that has not grown yet would otherwise run dry before it gets anything back. */
    srq->batch = (uint32_t) ((uint64_t) srq->made * srq->slack / srq->num);
    return 0;
}

/* ---- growing ---- */

/* Look when so many more have been posted; a queue that has all its buffers is not looked at. */
static void look_in(struct xrc_srq *srq, uint64_t posts)
{
    srq->look_at = srq->made < srq->num ? srq->posts + posts : UINT64_MAX;
}

static void look_after(struct xrc_srq *srq, uint64_t gap)
{
    srq->gap = gap > 0 ? gap : 1;
    srq->looks = 0;
    look_in(srq, srq->gap);
}

/* The next looks come twice as late as these. */
static void look_later(struct xrc_srq *srq)
{
    uint64_t gap = 2 * srq->gap, most = (uint64_t) GAP_MOST * srq->made;
    look_after(srq, gap < most ? gap : most);
}

/* Some HCAs have no limit events and say so, some say nothing: so there are looks, too. */
static void arm_limit(struct xrc_srq *srq, uint32_t limit)
{
    struct ibv_srq_attr attr = {.srq_limit = limit};
    if (srq->made < srq->num && !srq->deaf) {
        int rc = ibv_modify_srq(srq->srq, &attr, IBV_SRQ_LIMIT);
        srq->deaf = 0 != rc;
        srq->armed = 0 == rc;
        if (0 != rc) {
            XRC_VERBOSE(5, "ibv_modify_srq(LIMIT): %s", strerror(rc));
        }
    }
    look_after(srq, srq->armed ? (uint64_t) GAP_ARMED * srq->made : srq->made / 4);
}

/* As many again as there are. Where that is refused, the queue goes on with what it has. */
static void grow(struct xrc_srq *srq)
{
    uint32_t n = xrc_recvq_next(srq->klass, srq->made);
    note_least(srq);
    int rc = n > 0 ? add_piece(srq, n) : 0;
    srq->armed = false;
    srq->look_at = UINT64_MAX;
    if (0 != rc) {
        if (!srq->refused) {
            XRC_VERBOSE(1, "a receive queue stays at %u buffers of %u bytes: %s", srq->made, srq->klass->size,
                        strerror(rc));
        }
        srq->refused = true;
        look_later(srq);
        return;
    }
    post_chain(srq);
    srq->least = srq->posted;
    arm_limit(srq, srq->made / 4 + 1);
}

/* What has been received since a look became due was there at once, but for what one pass of progress takes. */
static bool is_crowded(const struct xrc_srq *srq)
{
    return received(srq) - srq->seen >= (srq->armed ? srq->made * 3ull / 4 : srq->made / 2);
}

/* A queue that is crowded although armed has been below its limit: the event is on its way, or there are none. */
static bool event_is_coming(struct xrc_srq *srq)
{
    struct ibv_srq_attr attr;
    if (!srq->armed) {
        return false;
    }
    srq->deaf = 0 != ibv_query_srq(srq->srq, &attr) || 0 != attr.srq_limit;
    return !srq->deaf;
}

void xrc_srq_serve(struct xrc_srq *srq, uint32_t todo)
{
    OPAL_THREAD_LOCK(&srq->lock);
    bool event = 0 != (todo & XRC_SRQ_GROW), look = 0 != (todo & XRC_SRQ_LOOK);
    srq->deaf = srq->deaf && !event;
    if (event || (look && is_crowded(srq) && !event_is_coming(srq))) {
        grow(srq);
    } else if (look && ++srq->looks < LOOKS_MOST) {
        look_in(srq, 1);
    } else if (look) {
        look_later(srq);
    }
    post_chain(srq);
    OPAL_THREAD_UNLOCK(&srq->lock);
}

/* ---- from the start to the end ---- */

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
    srq->klass = c;
    srq->pd = module->device->pd;
    srq->num = c->num;
    srq->slack = c->num - c->low;
    srq->low_percent = 100;
    srq->look_at = UINT64_MAX;
    int rc = add_piece(srq, xrc_recvq_next(c, 0));
    if (0 != rc) {
        size_t page = (size_t) sysconf(_SC_PAGESIZE);
        xrc_show_help("no memory", module->device->name, opal_process_info.nodename,
                      (unsigned long) (xrc_recvq_bytes(c, c->init, page) >> 10), strerror(rc));
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    rc = make_srq(module, srq);
    if (0 != rc) {
        xrc_error_verb(module->device, "ibv_create_srq_ex(XRC)", rc);
        return OPAL_ERROR;
    }
    post_chain(srq);
    srq->least = srq->posted;
    arm_limit(srq, 0 != c->limit ? c->limit : c->init / 4 + 1);
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
    while (NULL != srq->pieces) {
        struct xrc_piece *piece = srq->pieces;
        srq->pieces = piece->next;
        free_piece(piece);
    }
    xrc_count(&mca_btl_xrc_component.counters.recv_bytes, -(int64_t) srq->bytes);
    OBJ_DESTRUCT(&srq->lock);
    memset(srq, 0, sizeof(*srq));
}
