/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_bounce.h"

#include <endian.h>

#include "btl_xrc_node.h"

#define MOST_PIECES 4u /* of one operation on the way */

/* Memory that could not be registered. */
struct xrc_area {
    struct xrc_area *next;
    mca_btl_base_registration_handle_t handle;
    char *base;
    size_t size;
};

/* One operation. Whoever is in xrc_bounce_progress() issues and ends it; the counters belong to the lock. */
struct xrc_bounce {
    struct xrc_bounce *next;
    uint32_t number;
    struct mca_btl_base_endpoint_t *endpoint; /* NULL: Open MPI has removed it */
    struct xrc_rdma rdma;
    struct xrc_rdma_op op;
    size_t started;
    size_t ended;
    unsigned on_the_way; /* pieces */
    int status;
};

/* An answer that no buffer could be had for yet. */
struct xrc_landed {
    struct xrc_landed *next;
    struct mca_btl_base_endpoint_t *to;
    uint32_t number;
    uint32_t length;
};

void xrc_bounces_init(mca_btl_xrc_module_t *module)
{
    memset(&module->bounces, 0, sizeof(module->bounces));
    OBJ_CONSTRUCT(&module->bounces.lock, opal_mutex_t);
}

void xrc_bounces_fini(mca_btl_xrc_module_t *module)
{
    struct xrc_bounces *all = &module->bounces;
    while (NULL != all->first) {
        struct xrc_bounce *bounce = all->first;
        all->first = bounce->next;
        free(bounce);
    }
    while (NULL != all->landed) {
        struct xrc_landed *landed = all->landed;
        all->landed = landed->next;
        free(landed);
    }
    while (NULL != all->areas) {
        struct xrc_area *area = all->areas;
        all->areas = area->next;
        free(area);
    }
    OBJ_DESTRUCT(&all->lock);
}

/* 0 is for what is registered. */
static uint32_t next_number(struct xrc_bounces *all)
{
    if (0 == ++all->serial) {
        ++all->serial;
    }
    return all->serial;
}

/* ---- areas ---- */

mca_btl_base_registration_handle_t *xrc_area_new(mca_btl_xrc_module_t *module, void *base, size_t size)
{
    struct xrc_bounces *all = &module->bounces;
    struct xrc_area *area = (struct xrc_area *) calloc(1, sizeof(*area));
    if (NULL == area) {
        return NULL;
    }
    area->base = (char *) base;
    area->size = size;
    OPAL_THREAD_LOCK(&all->lock);
    area->handle.area = next_number(all);
    area->next = all->areas;
    all->areas = area;
    OPAL_THREAD_UNLOCK(&all->lock);
    return &area->handle;
}

void xrc_area_free(mca_btl_xrc_module_t *module, mca_btl_base_registration_handle_t *handle)
{
    struct xrc_bounces *all = &module->bounces;
    struct xrc_area *area = XRC_CONTAINER(handle, struct xrc_area, handle);
    OPAL_THREAD_LOCK(&all->lock);
    struct xrc_area **link = &all->areas;
    while (*link != area) {
        link = &(*link)->next;
    }
    *link = area->next;
    OPAL_THREAD_UNLOCK(&all->lock);
    free(area);
}

/* ---- pieces ---- */

static bool returns_data(const struct xrc_bounce *bounce)
{
    return IBV_WR_RDMA_WRITE != bounce->op.opcode;
}

static char *memory_at(const struct xrc_bounce *bounce, size_t at)
{
    return (char *) bounce->rdma.local_address + at;
}

static void *payload(const mca_btl_base_descriptor_t *des)
{
    return des->des_segments[0].seg_addr.pval;
}

static mca_btl_base_descriptor_t *buffer(mca_btl_xrc_module_t *module, struct mca_btl_base_endpoint_t *to, size_t size)
{
    return mca_btl_xrc_alloc(&module->super, to, MCA_BTL_NO_ORDER, size, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
}

/* Lock held. False when more has ended than was started: not one of ours. */
static bool piece_ended(struct xrc_bounce *bounce, size_t size, int status)
{
    if (0 == bounce->on_the_way || size > bounce->started - bounce->ended) {
        return false;
    }
    --bounce->on_the_way;
    bounce->ended += size;
    if (OPAL_SUCCESS != status) {
        bounce->status = status;
    }
    return true;
}

static void piece_moved(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local_address,
                        mca_btl_base_registration_handle_t *local_handle, void *context, void *cbdata, int status)
{
    struct xrc_bounces *all = &((mca_btl_xrc_module_t *) btl)->bounces;
    mca_btl_base_descriptor_t *des = (mca_btl_base_descriptor_t *) context;
    struct xrc_bounce *bounce = (struct xrc_bounce *) cbdata;
    size_t size = des->des_segments[0].seg_len;
    (void) endpoint;
    (void) local_handle;
    if (OPAL_SUCCESS == status && returns_data(bounce)) {
        memcpy(memory_at(bounce, (size_t) (uintptr_t) des->des_cbdata), local_address, size);
    }
    mca_btl_xrc_free(btl, des);
    OPAL_THREAD_LOCK(&all->lock);
    (void) piece_ended(bounce, size, status);
    OPAL_THREAD_UNLOCK(&all->lock);
}

static int move_piece(mca_btl_xrc_module_t *module, struct xrc_bounce *bounce, size_t at, size_t size)
{
    mca_btl_base_descriptor_t *des = buffer(module, bounce->endpoint, size);
    if (NULL == des) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    struct xrc_registration *reg = (struct xrc_registration *) des->super.registration;
    struct xrc_rdma rdma = {piece_moved, payload(des), &reg->handle, des, bounce};
    struct xrc_rdma_op op = bounce->op;
    op.remote_address += at;
    op.size = size;
    des->des_cbdata = (void *) (uintptr_t) at;
    if (!returns_data(bounce)) {
        memcpy(payload(des), memory_at(bounce, at), size);
    }
    int rc = xrc_frag_rdma(module, bounce->endpoint, &rdma, &op);
    if (OPAL_SUCCESS != rc) {
        mca_btl_xrc_free(&module->super, des);
    }
    return rc;
}

static int send_msg(mca_btl_xrc_module_t *module, struct mca_btl_base_endpoint_t *to, const struct xrc_bounce_msg *msg,
                    const void *data, size_t size)
{
    mca_btl_base_descriptor_t *des = buffer(module, to, sizeof(*msg) + size);
    if (NULL == des) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    memcpy(payload(des), msg, sizeof(*msg));
    if (size > 0) {
        memcpy((char *) payload(des) + sizeof(*msg), data, size);
    }
    int rc = mca_btl_xrc_send(&module->super, to, des, XRC_TAG_BOUNCE);
    if (rc < 0) {
        mca_btl_xrc_free(&module->super, des);
    }
    return rc < 0 ? rc : OPAL_SUCCESS;
}

static int send_piece(mca_btl_xrc_module_t *module, struct xrc_bounce *bounce, size_t at, size_t size)
{
    struct xrc_bounce_msg msg = {.kind_be = htonl(XRC_BOUNCE_LAND),
                                 .number_be = htonl(bounce->number),
                                 .area_be = htonl(bounce->op.area),
                                 .length_be = htonl((uint32_t) size),
                                 .address_be = htobe64(bounce->op.remote_address + at)};
    return send_msg(module, bounce->endpoint, &msg, memory_at(bounce, at), size);
}

/* ---- operations ---- */

int xrc_bounce_start(mca_btl_xrc_module_t *module, struct mca_btl_base_endpoint_t *endpoint,
                     const struct xrc_rdma *rdma, const struct xrc_rdma_op *op)
{
    struct xrc_bounces *all = &module->bounces;
    if (0 != op->area && IBV_WR_RDMA_WRITE != op->opcode) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
    struct xrc_bounce *bounce = (struct xrc_bounce *) calloc(1, sizeof(*bounce));
    if (NULL == bounce) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    bounce->endpoint = endpoint;
    bounce->rdma = *rdma;
    bounce->op = *op;
    OPAL_THREAD_ADD_FETCH32(&module->rdma_left, 1);
    OPAL_THREAD_ADD_FETCH64(&mca_btl_xrc_component.counters.bounced, 1);
    OPAL_THREAD_LOCK(&all->lock);
    bounce->number = next_number(all);
    bounce->next = all->first;
    all->first = bounce;
    OPAL_THREAD_UNLOCK(&all->lock);
    OPAL_THREAD_ADD_FETCH32(&all->work, 1);
    return OPAL_SUCCESS;
}

/* Size of the next piece, which is then on the way; 0: none now. */
static size_t start_piece(mca_btl_xrc_module_t *module, struct xrc_bounce *bounce)
{
    size_t most = module->super.btl_max_send_size - sizeof(struct xrc_bounce_msg);
    OPAL_THREAD_LOCK(&module->bounces.lock);
    size_t size = bounce->op.size - bounce->started;
    if (size > most) {
        size = most;
    }
    if (OPAL_SUCCESS != bounce->status || MOST_PIECES == bounce->on_the_way) {
        size = 0;
    }
    if (size > 0) {
        bounce->started += size;
        ++bounce->on_the_way;
    }
    OPAL_THREAD_UNLOCK(&module->bounces.lock);
    return size;
}

static void take_back(mca_btl_xrc_module_t *module, struct xrc_bounce *bounce, size_t size, int rc)
{
    OPAL_THREAD_LOCK(&module->bounces.lock);
    if (bounce->on_the_way > 0) { /* else it has been given up meanwhile */
        bounce->started -= size;
        --bounce->on_the_way;
    }
    if (OPAL_ERR_OUT_OF_RESOURCE != rc) {
        bounce->status = rc;
    }
    OPAL_THREAD_UNLOCK(&module->bounces.lock);
}

static void issue(mca_btl_xrc_module_t *module, struct xrc_bounce *bounce)
{
    size_t at = bounce->started, size;
    while ((size = start_piece(module, bounce)) > 0) {
        int rc = 0 != bounce->op.area ? send_piece(module, bounce, at, size) : move_piece(module, bounce, at, size);
        if (OPAL_SUCCESS != rc) {
            take_back(module, bounce, size, rc);
            return;
        }
        at += size;
    }
}

/* Takes @a bounce off the list if it is over. */
static bool take_if_over(struct xrc_bounces *all, struct xrc_bounce *bounce)
{
    OPAL_THREAD_LOCK(&all->lock);
    bool over = 0 == bounce->on_the_way && (OPAL_SUCCESS != bounce->status || bounce->ended == bounce->op.size);
    if (over) {
        struct xrc_bounce **link = &all->first;
        while (*link != bounce) {
            link = &(*link)->next;
        }
        *link = bounce->next;
    }
    OPAL_THREAD_UNLOCK(&all->lock);
    return over;
}

/* What btl_flush waits for has happened before the callback is made. */
static void finish(mca_btl_xrc_module_t *module, struct xrc_bounce *bounce)
{
    struct xrc_rdma rdma = bounce->rdma;
    struct mca_btl_base_endpoint_t *endpoint = bounce->endpoint;
    int status = bounce->status;
    free(bounce);
    OPAL_THREAD_ADD_FETCH32(&module->bounces.work, -1);
    OPAL_THREAD_ADD_FETCH32(&module->rdma_left, -1);
    if (NULL != rdma.cbfunc) {
        rdma.cbfunc(&module->super, endpoint, rdma.local_address, rdma.local_handle, rdma.context, rdma.cbdata, status);
    }
}

/* ---- the owner of an area ---- */

static int send_landed(mca_btl_xrc_module_t *module, const struct xrc_landed *landed)
{
    struct xrc_bounce_msg msg = {
        .kind_be = htonl(XRC_BOUNCE_LANDED), .number_be = htonl(landed->number), .length_be = htonl(landed->length)};
    return send_msg(module, landed->to, &msg, NULL, 0);
}

static void append_landed(struct xrc_bounces *all, struct xrc_landed *landed)
{
    OPAL_THREAD_LOCK(&all->lock);
    landed->next = all->landed;
    all->landed = landed;
    OPAL_THREAD_UNLOCK(&all->lock);
}

static void answer(mca_btl_xrc_module_t *module, const struct xrc_landed *landed)
{
    if (OPAL_ERR_OUT_OF_RESOURCE != send_landed(module, landed)) {
        return;
    }
    struct xrc_landed *later = (struct xrc_landed *) malloc(sizeof(*later));
    if (NULL == later) {
        xrc_module_fail(module, landed->to->proc, "no memory for an answer");
        return;
    }
    *later = *landed;
    append_landed(&module->bounces, later);
    OPAL_THREAD_ADD_FETCH32(&module->bounces.work, 1);
}

static void answer_again(mca_btl_xrc_module_t *module)
{
    struct xrc_bounces *all = &module->bounces;
    OPAL_THREAD_LOCK(&all->lock);
    struct xrc_landed *landed = all->landed;
    all->landed = NULL;
    OPAL_THREAD_UNLOCK(&all->lock);
    while (NULL != landed) {
        struct xrc_landed *next = landed->next;
        if (OPAL_ERR_OUT_OF_RESOURCE == send_landed(module, landed)) {
            append_landed(all, landed);
        } else {
            free(landed);
            OPAL_THREAD_ADD_FETCH32(&all->work, -1);
        }
        landed = next;
    }
}

/* Copied with the lock held: an area that is freed is not written to any more. */
static bool land(struct xrc_bounces *all, const struct xrc_bounce_msg *msg, const void *data, uint32_t size)
{
    uint64_t address = be64toh(msg->address_be);
    OPAL_THREAD_LOCK(&all->lock);
    struct xrc_area *area = all->areas;
    while (NULL != area && area->handle.area != ntohl(msg->area_be)) {
        area = area->next;
    }
    uint64_t base = NULL != area ? (uint64_t) (uintptr_t) area->base : 0;
    bool inside = NULL != area && address >= base && size <= area->size && address - base <= area->size - size;
    if (inside) {
        memcpy(area->base + (address - base), data, size);
    }
    OPAL_THREAD_UNLOCK(&all->lock);
    return inside;
}

/* Nothing landed where there is no such area. */
static bool piece_landed(struct xrc_bounces *all, const struct mca_btl_base_endpoint_t *from, uint32_t number,
                         uint32_t length)
{
    bool ours = false;
    OPAL_THREAD_LOCK(&all->lock);
    for (struct xrc_bounce *bounce = all->first; NULL != bounce && !ours; bounce = bounce->next) {
        ours = bounce->number == number && bounce->endpoint == from && 0 != bounce->op.area
               && piece_ended(bounce, length, length > 0 ? OPAL_SUCCESS : OPAL_ERR_NOT_AVAILABLE);
    }
    OPAL_THREAD_UNLOCK(&all->lock);
    return ours;
}

bool xrc_bounce_received(mca_btl_xrc_module_t *module, const struct xrc_hdr *hdr, uint32_t length)
{
    struct xrc_bounce_msg msg;
    struct mca_btl_base_endpoint_t *from = xrc_endpoint_sender(module, hdr);
    if (NULL == from || length < sizeof(*hdr) + sizeof(msg)) {
        return false;
    }
    memcpy(&msg, hdr + 1, sizeof(msg));
    uint32_t size = length - (uint32_t) (sizeof(*hdr) + sizeof(msg));
    if (XRC_BOUNCE_LANDED == ntohl(msg.kind_be)) {
        return 0 == size && piece_landed(&module->bounces, from, ntohl(msg.number_be), ntohl(msg.length_be));
    }
    if (XRC_BOUNCE_LAND != ntohl(msg.kind_be) || 0 == size || ntohl(msg.length_be) != size) {
        return false;
    }
    struct xrc_landed landed = {.to = from, .number = ntohl(msg.number_be)};
    landed.length = land(&module->bounces, &msg, (const char *) (hdr + 1) + sizeof(msg), size) ? size : 0;
    answer(module, &landed);
    return true;
}

/* ---- peers that are lost ---- */

static bool meant(const struct mca_btl_base_endpoint_t *endpoint, const struct xrc_node *node,
                  const struct mca_btl_base_endpoint_t *peer)
{
    return NULL != endpoint && (NULL != node ? endpoint->node == node : endpoint == peer);
}

/* Puts into areas end with answers, which do not come any more; all else ends with completions, which do. */
static void give_up(struct xrc_bounce *bounce, bool removed)
{
    bounce->status = OPAL_ERR_UNREACH;
    if (0 != bounce->op.area) {
        bounce->on_the_way = 0;
    }
    if (removed) {
        bounce->endpoint = NULL;
    }
}

/* Operations are only marked: it is progress that takes them off the list and calls back. */
void xrc_bounces_end(mca_btl_xrc_module_t *module, const struct xrc_node *node,
                     const struct mca_btl_base_endpoint_t *peer)
{
    struct xrc_bounces *all = &module->bounces;
    struct xrc_landed *dropped = NULL;
    OPAL_THREAD_LOCK(&all->lock);
    for (struct xrc_bounce *bounce = all->first; NULL != bounce; bounce = bounce->next) {
        if (meant(bounce->endpoint, node, peer)) {
            give_up(bounce, NULL == node);
        }
    }
    for (struct xrc_landed **link = &all->landed; NULL != *link;) {
        struct xrc_landed *landed = *link;
        if (meant(landed->to, node, peer)) {
            *link = landed->next;
            landed->next = dropped;
            dropped = landed;
        } else {
            link = &landed->next;
        }
    }
    OPAL_THREAD_UNLOCK(&all->lock);
    while (NULL != dropped) {
        struct xrc_landed *next = dropped->next;
        free(dropped);
        OPAL_THREAD_ADD_FETCH32(&all->work, -1);
        dropped = next;
    }
}

/* ---- progress ---- */

/* One thread at a time. New operations come in before the first, so that the chain from there on is ours. */
static bool enter(struct xrc_bounces *all, struct xrc_bounce **first)
{
    OPAL_THREAD_LOCK(&all->lock);
    bool mine = !all->busy;
    all->busy = true;
    *first = all->first;
    OPAL_THREAD_UNLOCK(&all->lock);
    return mine;
}

static void leave(struct xrc_bounces *all)
{
    OPAL_THREAD_LOCK(&all->lock);
    all->busy = false;
    OPAL_THREAD_UNLOCK(&all->lock);
}

void xrc_bounce_progress(mca_btl_xrc_module_t *module)
{
    struct xrc_bounces *all = &module->bounces;
    struct xrc_bounce *bounce, *next, *over = NULL;
    if (!enter(all, &bounce)) {
        return;
    }
    answer_again(module);
    for (; NULL != bounce; bounce = next) {
        next = bounce->next;
        issue(module, bounce);
        if (take_if_over(all, bounce)) {
            bounce->next = over;
            over = bounce;
        }
    }
    leave(all);
    /* Callbacks may make progress, and start others. */
    for (; NULL != over; over = next) {
        next = over->next;
        finish(module, over);
    }
}
