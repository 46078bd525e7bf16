/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_node.h"

#include <errno.h>

#include "btl_xrc_apm.h"
#include "btl_xrc_board.h"
#include "btl_xrc_bounce.h"
#include "btl_xrc_conn.h"
#include "btl_xrc_error.h"
#include "btl_xrc_gone.h"
#include "btl_xrc_room.h"

/* ---- the ring of peers that wait ---- */

static void ring_append(struct xrc_node *node, struct mca_btl_base_endpoint_t *endpoint)
{
    endpoint->next_waiting = NULL;
    if (NULL == node->ring_tail) {
        node->ring_head = endpoint;
    } else {
        node->ring_tail->next_waiting = endpoint;
    }
    node->ring_tail = endpoint;
    endpoint->waiting = true;
    ++node->waiting;
}

static struct mca_btl_base_endpoint_t *ring_take(struct xrc_node *node)
{
    struct mca_btl_base_endpoint_t *endpoint = node->ring_head;
    node->ring_head = endpoint->next_waiting;
    if (NULL == node->ring_head) {
        node->ring_tail = NULL;
    }
    endpoint->waiting = false;
    --node->waiting;
    return endpoint;
}

static void wait_turn(struct xrc_node *node, struct xrc_frag *frag)
{
    struct mca_btl_base_endpoint_t *endpoint = frag->endpoint;
    frag->next = NULL;
    if (NULL == endpoint->wait_tail) {
        endpoint->wait_head = frag;
    } else {
        endpoint->wait_tail->next = frag;
    }
    endpoint->wait_tail = frag;
    if (!endpoint->waiting) {
        ring_append(node, endpoint);
    }
    struct xrc_counters *c = &mca_btl_xrc_component.counters;
    xrc_count_most(&c->waiting_most, xrc_count(&c->waiting, 1));
}

void xrc_node_count_taken(const struct xrc_frag *chain)
{
    for (; NULL != chain; chain = chain->next) {
        xrc_count(&mca_btl_xrc_component.counters.waiting, -1);
    }
}

static void set_state(struct xrc_node *node, enum xrc_ini_state state)
{
    __atomic_store_n(&node->state, state, __ATOMIC_RELEASE);
}

/* ---- posting ---- */

/* Progress will come back to it when the CQ has room again. */
static void starve(struct xrc_node *node)
{
    mca_btl_xrc_module_t *module = node->module;
    OPAL_THREAD_LOCK(&module->lock);
    if (!node->starved) {
        node->starved = true;
        node->next_starved = module->starved;
        module->starved = node;
    }
    OPAL_THREAD_UNLOCK(&module->lock);
}

/* Before READY it is the service thread that posts. */
static bool by_service(const struct xrc_node *node)
{
    return XRC_INI_REQUESTED == xrc_node_state(node);
}

/* The service thread has what was set aside for it. */
static bool take_room(struct xrc_node *node)
{
    mca_btl_xrc_module_t *module = node->module;
    if (OPAL_UNLIKELY(by_service(node))) {
        return node->borrowed > 0 && node->borrowed-- > 0;
    }
    if (OPAL_LIKELY(xrc_room_take(module, 1))) {
        return true;
    }
    starve(node);
    return false;
}

static void untake_room(struct xrc_node *node)
{
    if (OPAL_UNLIKELY(by_service(node))) {
        ++node->borrowed;
    } else {
        xrc_room_give(node->module, 1);
    }
}

static bool goes_inline(const struct xrc_node *node, const struct xrc_frag *frag)
{
    bool gives = IBV_WR_SEND == frag->wr.opcode || IBV_WR_RDMA_WRITE == frag->wr.opcode;
    return frag->sge.length <= node->max_inline && gives;
}

static int post_result(struct xrc_node *node, int rc)
{
    if (ENOMEM == rc) {
        /* Nothing may be on the way whose completion would bring us back. */
        if (!by_service(node)) {
            starve(node);
        }
        return OPAL_ERR_RESOURCE_BUSY;
    }
    XRC_VERBOSE(1, "ibv_post_send on INI 0x%06x: %s", node->ini->qp_num, strerror(rc));
    return OPAL_ERR_UNREACH;
}

static int post_signalled(struct xrc_node *node, struct xrc_frag *frag, unsigned flags)
{
    struct ibv_send_wr *bad;
    if (!take_room(node)) {
        return OPAL_ERR_RESOURCE_BUSY;
    }
    frag->retires = node->unsignalled;
    frag->wr.send_flags = IBV_SEND_SIGNALED | flags;
    if (XRC_FRAG_SEND == frag->kind) {
        frag->base.des_flags |= MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
    }
    int rc = ibv_post_send(node->ini, &frag->wr, &bad);
    if (OPAL_UNLIKELY(0 != rc)) {
        untake_room(node);
        return post_result(node, rc);
    }
    node->unsignalled = 0;
    if (OPAL_UNLIKELY(node->quiet + 1 < node->signal_every && !by_service(node))) {
        xrc_room_refill(node);
    }
    --node->credit[frag->lane];
    ++node->in_flight;
    ++frag->endpoint->in_flight;
    return OPAL_SUCCESS;
}

/* Should it come back after all, with an error, then not by its fragment, which may serve something else by then. */
static int post_and_forget(struct xrc_node *node, const struct mca_btl_base_endpoint_t *to, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;
    uint64_t id = wr->wr_id;
    wr->send_flags = IBV_SEND_INLINE;
    wr->wr_id = xrc_wr_nameless(node->serial, to->name.vpid);
    int rc = ibv_post_send(node->ini, wr, &bad);
    wr->wr_id = id;
    if (OPAL_UNLIKELY(0 != rc)) {
        return post_result(node, rc);
    }
    ++node->unsignalled;
    --node->quiet;
    --node->credit[0];
    return 1;
}

/* Node lock held, state READY. 1: done, nothing will come back. */
static int post(struct xrc_node *node, struct xrc_frag *frag)
{
    if (node->credit[frag->lane] <= 0) {
        return OPAL_ERR_RESOURCE_BUSY;
    }
    unsigned flags = goes_inline(node, frag) ? IBV_SEND_INLINE : 0;
    if (flags && frag->may_be_done && 0 == frag->lane && node->quiet > 0) {
        return post_and_forget(node, frag->endpoint, &frag->wr);
    }
    return post_signalled(node, frag, flags);
}

/*
 * Once around the ring without success: then all are stuck, and a completion will bring us back. Node lock held, the
 * INI in RTS. False when the HCA refuses to take work at all.
 */
static bool drain_locked(struct xrc_node *node)
{
    uint32_t stuck = 0;
    int rc = OPAL_SUCCESS;
    while (NULL != node->ring_head && stuck < node->waiting && OPAL_ERR_UNREACH != rc) {
        struct mca_btl_base_endpoint_t *endpoint = ring_take(node);
        struct xrc_frag *frag = endpoint->wait_head;
        struct xrc_frag *rest = frag->next;
        rc = post(node, frag);
        if (OPAL_SUCCESS == rc) {
            stuck = 0;
            xrc_count(&mca_btl_xrc_component.counters.waiting, -1);
            endpoint->wait_head = rest;
            if (NULL == rest) {
                endpoint->wait_tail = NULL;
            }
        } else {
            ++stuck;
        }
        if (NULL != endpoint->wait_head) {
            ring_append(node, endpoint);
        }
    }
    return OPAL_ERR_UNREACH != rc;
}

/* A verb refused to post: nothing that waits will ever go. */
static void refused(struct xrc_node *node)
{
    xrc_node_fail(node, "the HCA refuses work requests");
}

/* A work request that says nothing but "all before me are done". Node lock held. */
static int post_mark(struct xrc_node *node, struct mca_btl_base_endpoint_t *endpoint, struct ibv_send_wr *wr,
                     enum xrc_frag_kind kind)
{
    struct xrc_frag *mark = (struct xrc_frag *) opal_free_list_get(&node->module->mark_frags);
    if (NULL == mark) {
        return OPAL_ERR_RESOURCE_BUSY;
    }
    mark->home = &node->module->mark_frags;
    mark->endpoint = endpoint;
    mark->node = node;
    mark->kind = (uint8_t) kind;
    mark->wr = *wr;
    mark->wr.wr_id = (uint64_t) (uintptr_t) mark;
    int rc = post_signalled(node, mark, IBV_SEND_INLINE);
    if (OPAL_SUCCESS != rc) {
        xrc_frag_return(mark);
    }
    return rc;
}

/* A write of nothing: its key is not looked at. */
static int post_nothing(struct xrc_node *node, enum xrc_frag_kind kind)
{
    struct mca_btl_base_endpoint_t *peer = node->endpoints;
    if (NULL == peer || peer->leaving || node->credit[0] <= 0) {
        return OPAL_ERR_RESOURCE_BUSY;
    }
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
    wr.qp_type.xrc.remote_srqn = peer->srqn[0];
    return post_mark(node, peer, &wr, kind);
}

/*
 * The INI of a node that is DRAINING is in the error state: it gives back what has not arrived, in the order it was posted,
 * also what was not signalled. So when the last one comes, and none before it, all have arrived. Node lock held.
 */
static bool post_last(struct xrc_node *node)
{
    int rc = node->last_posted ? OPAL_SUCCESS : post_nothing(node, XRC_FRAG_LAST);
    node->last_posted = OPAL_SUCCESS == rc;
    if (OPAL_ERR_RESOURCE_BUSY == rc) {
        starve(node);
    }
    return OPAL_ERR_UNREACH != rc;
}

/* Post what there is to post, @a done having come back (NULL: none). Node lock held. False as above. */
static bool go_on(struct xrc_node *node, const struct xrc_frag *done)
{
    if (OPAL_LIKELY(XRC_INI_READY == node->state)) {
        return NULL == node->ring_head || drain_locked(node);
    }
    if (XRC_INI_DRAINING != node->state) {
        return true;
    }
    node->drained |= NULL != done && XRC_FRAG_LAST == done->kind;
    return post_last(node);
}

void xrc_node_drain(struct xrc_node *node)
{
    bool both = xrc_node_lock(node);
    bool good = go_on(node, NULL);
    xrc_node_unlock(node, both);
    if (OPAL_UNLIKELY(!good)) {
        refused(node);
    }
}

/* The node has become REQUESTED. */
static void open_ini(struct xrc_node *node, const struct mca_btl_base_endpoint_t *first)
{
    if (OPAL_SUCCESS != xrc_conn_open(node, first)) {
        xrc_node_fail(node, "no INI QP");
    }
}

int xrc_node_send(struct mca_btl_base_endpoint_t *endpoint, struct xrc_frag *frag)
{
    struct xrc_node *node = endpoint->node;
    bool open = false;
    int rc = OPAL_ERR_UNREACH;
    frag->endpoint = endpoint;
    frag->node = node;
    bool both = xrc_node_lock(node);
    if (OPAL_LIKELY(XRC_INI_READY == node->state)) {
        rc = NULL == endpoint->wait_head ? post(node, frag) : OPAL_ERR_RESOURCE_BUSY;
    } else if (XRC_INI_FAILED != node->state && XRC_INI_CLOSED != node->state) {
        struct xrc_ini_step step = xrc_ini_next(node->state, XRC_INI_EV_OPEN);
        set_state(node, step.state);
        open = XRC_INI_DO_REQUEST == step.action;
        rc = OPAL_ERR_RESOURCE_BUSY;
    }
    if (OPAL_ERR_RESOURCE_BUSY == rc) {
        frag->may_be_done = 0;
        if (XRC_FRAG_SEND == frag->kind) {
            frag->base.des_flags |= MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
        }
        wait_turn(node, frag);
        rc = OPAL_SUCCESS;
    }
    xrc_node_unlock(node, both);
    if (OPAL_UNLIKELY(open)) {
        open_ini(node, endpoint);
    }
    return rc;
}

int xrc_node_send_now(struct mca_btl_base_endpoint_t *endpoint, struct ibv_send_wr *wr)
{
    struct xrc_node *node = endpoint->node;
    int rc = OPAL_ERR_RESOURCE_BUSY;
    bool both = xrc_node_lock(node);
    if (OPAL_LIKELY(XRC_INI_READY == node->state && NULL == endpoint->wait_head && node->credit[0] > 0)) {
        rc = node->quiet > 0 ? post_and_forget(node, endpoint, wr) : post_mark(node, endpoint, wr, XRC_FRAG_MARK);
    }
    xrc_node_unlock(node, both);
    return rc;
}

/* Without credit there is traffic enough. */
void xrc_node_nudge(struct xrc_node *node)
{
    bool both = xrc_node_lock(node);
    if (XRC_INI_READY == node->state) {
        (void) post_nothing(node, XRC_FRAG_MARK);
    }
    xrc_node_unlock(node, both);
}

/* In order: when the mark is done, or refused since its peer is gone, all before it have arrived. */
bool xrc_node_is_sending(struct xrc_node *node)
{
    bool both = xrc_node_lock(node);
    bool waits = NULL != node->ring_head;
    bool ready = XRC_INI_READY == node->state;
    bool unsure = ready && node->unsignalled > 0 && NULL != node->endpoints;
    if (unsure && !waits && 0 == node->in_flight) {
        node->parting = true;
        (void) post_nothing(node, XRC_FRAG_MARK);
    }
    bool posted = ready && node->in_flight > 0;
    xrc_node_unlock(node, both);
    return waits || unsure || posted;
}

static void destroy_ini(struct ibv_qp *ini, struct xrc_apm *apm)
{
    xrc_apm_release(apm);
    ibv_destroy_qp(ini);
    xrc_count(&mca_btl_xrc_component.counters.ini_gone, 1);
}

/* Back to the start. True: peers have come to wait meanwhile, and another INI is to be opened. Node lock held. */
static bool start_over(struct xrc_node *node)
{
    struct xrc_ini_step step = xrc_ini_next(node->state, XRC_INI_EV_DRAINED);
    if (XRC_INI_DO_LET_GO == step.action && NULL != node->ring_head) {
        step = xrc_ini_next(step.state, XRC_INI_EV_OPEN);
    }
    set_state(node, step.state);
    return XRC_INI_DO_REQUEST == step.action;
}

/* Nothing is on the way any more: the INI goes. For good when the node is closed, else until somebody needs one again. */
static void take_down(struct xrc_node *node)
{
    bool both = xrc_node_lock(node);
    struct ibv_qp *ini = node->ini;
    struct xrc_apm *apm = node->apm;
    bool idle = NULL != ini && NULL == node->conn && 0 == node->in_flight;
    bool closed = idle && XRC_INI_CLOSED == node->state;
    bool drained = idle && XRC_INI_DRAINING == node->state && node->drained;
    if (closed || drained) {
        node->ini = NULL;
        node->apm = NULL;
        xrc_room_end(node);
        xrc_node_set_ini_qpn(node, XRC_NO_QPN);
    }
    bool reopen = drained && start_over(node);
    xrc_node_unlock(node, both);
    if (closed || drained) {
        uint32_t qpn = ini->qp_num;
        XRC_VERBOSE(10, "INI 0x%06x given back", qpn);
        destroy_ini(ini, apm);
        if (closed && node->farewell_due) {
            xrc_conn_farewell(node, qpn);
        }
    }
    if (reopen) {
        open_ini(node, NULL);
    }
}

static struct xrc_node *node_of(mca_btl_xrc_module_t *module, const struct xrc_gone *gone)
{
    struct xrc_node *node;
    OPAL_THREAD_LOCK(&module->lock);
    for (node = module->nodes; NULL != node; node = node->next) {
        if (xrc_node_ini_qpn(node) == gone->ini_qpn && node->generation == gone->generation
            && 0 == memcmp(&node->domain, &gone->domain, sizeof(gone->domain))) {
            break;
        }
    }
    OPAL_THREAD_UNLOCK(&module->lock);
    return node;
}

/* False: it stays as it is, since its HCA does not want to stop it. */
static bool stop(struct ibv_qp *ini)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    int rc = ibv_modify_qp(ini, &attr, IBV_QP_STATE);
    XRC_VERBOSE(0 == rc ? 10 : 1, "INI 0x%06x: its TGT is gone: %s", ini->qp_num, 0 == rc ? "draining" : strerror(rc));
    return 0 == rc;
}

void xrc_node_gone(mca_btl_xrc_module_t *module, const struct xrc_gone *gone)
{
    struct xrc_node *node = node_of(module, gone);
    if (NULL == node) {
        return;
    }
    bool both = xrc_node_lock(node), good = true;
    struct xrc_ini_step step = xrc_ini_next(node->state, XRC_INI_EV_GONE);
    bool same = node->tgt_qpn == gone->tgt_qpn && node->tgt_psn == gone->tgt_psn;
    if (same && XRC_INI_DO_DRAIN == step.action && stop(node->ini)) {
        set_state(node, step.state);
        good = post_last(node);
    }
    xrc_node_unlock(node, both);
    if (OPAL_UNLIKELY(!good)) {
        refused(node);
    }
}

bool xrc_node_retire(struct xrc_frag *frag)
{
    struct xrc_node *node = frag->node;
    struct mca_btl_base_endpoint_t *endpoint = frag->endpoint;
    xrc_room_give(node->module, 1 + (int32_t) frag->retires);
    bool both = xrc_node_lock(node);
    ++node->credit[frag->lane];
    node->credit[0] += (int32_t) frag->retires;
    --node->in_flight;
    --endpoint->in_flight;
    bool good = go_on(node, frag);
    bool gone = endpoint->leaving && 0 == endpoint->in_flight;
    xrc_node_unlock(node, both);
    if (OPAL_UNLIKELY(!good)) {
        refused(node);
    }
    if (OPAL_UNLIKELY(XRC_INI_READY != xrc_node_state(node))) {
        take_down(node);
    }
    return gone;
}

/* ---- life ---- */

/* A node that was closed is kept: fragments on their last way may still name it. It serves the next domain. */
static bool is_free(const struct xrc_node *node)
{
    return XRC_INI_CLOSED == xrc_node_state(node) && NULL == node->ini && NULL == node->conn && NULL == node->endpoints;
}

bool xrc_node_is_own(const struct xrc_node *node)
{
    struct xrc_uuid own = xrc_board_uuid(node->module->device->board);
    return 0 == memcmp(&own, &node->domain, sizeof(own));
}

static struct xrc_node *new_node(mca_btl_xrc_module_t *module)
{
    struct xrc_node *node = (struct xrc_node *) calloc(1, sizeof(*node));
    if (NULL != node) {
        OBJ_CONSTRUCT(&node->lock, opal_mutex_t);
        pthread_mutex_init(&node->setup, NULL);
        node->module = module;
        node->ini_qpn = XRC_NO_QPN;
        node->next = module->nodes;
        module->nodes = node;
    }
    return node;
}

struct xrc_node *xrc_node_get(mca_btl_xrc_module_t *module, const struct xrc_modex_module *remote)
{
    struct xrc_node *node, *spare = NULL;
    for (node = module->nodes; NULL != node; node = node->next) {
        if (XRC_INI_CLOSED != xrc_node_state(node) && node->addr.port == remote->addr.port
            && 0 == memcmp(&node->domain, &remote->domain, sizeof(node->domain))) {
            return node;
        }
        if (is_free(node)) {
            spare = node;
        }
    }
    node = NULL != spare ? spare : new_node(module);
    if (NULL != node) {
        node->domain = remote->domain;
        node->addr = remote->addr;
        node->max_inline = 0;
        node->serial = XRC_WR_SERIAL(++module->serial);
        node->fault_said = node->farewell_due = node->parting = false;
        memset(&node->answerer, 0, sizeof(node->answerer));
        set_state(node, XRC_INI_IDLE);
        xrc_count(&module->reach.domains, !xrc_node_is_own(node));
    }
    return node;
}

bool xrc_node_service_ready(const struct xrc_conn *conn)
{
    struct xrc_node *node = conn->node;
    pthread_mutex_lock(&node->setup);
    bool wanted = XRC_INI_REQUESTED == node->state;
    bool good = !wanted || drain_locked(node);
    if (wanted && good) {
        node->tgt_qpn = conn->answer.tgt_qpn;
        node->tgt_psn = conn->answer.tgt_psn;
        set_state(node, XRC_INI_READY);
    }
    pthread_mutex_unlock(&node->setup);
    return good;
}

void xrc_node_connected(struct xrc_conn *conn)
{
    struct xrc_node *node = conn->node;
    bool both = xrc_node_lock(node);
    bool failed = XRC_INI_READY != conn->state && XRC_INI_CLOSED != node->state;
    /* Also when it failed: a TGT may have been made, and its makers will be told that it is of no use. */
    node->answerer = conn->contact[conn->current];
    xrc_room_give(node->module, node->borrowed);
    node->borrowed = 0;
    node->conn = NULL;
    xrc_node_unlock(node, both);
    if (failed && !node->module->closing) {
        xrc_error_connect(conn);
        xrc_node_fail(node, "a peer could not be connected");
    }
    free(conn);
    take_down(node);
    xrc_node_drain(node);
}

/* All frags that wait in @a node, in one chain; the ring is empty afterwards. Node lock held. */
static struct xrc_frag *take_all(struct xrc_node *node)
{
    struct xrc_frag *all = NULL, **tail = &all;
    while (NULL != node->ring_head) {
        struct mca_btl_base_endpoint_t *endpoint = ring_take(node);
        *tail = endpoint->wait_head;
        tail = &endpoint->wait_tail->next;
        endpoint->wait_head = endpoint->wait_tail = NULL;
    }
    xrc_node_count_taken(all);
    return all;
}

/* A peer that Open MPI has not been told of; to be released. */
static opal_proc_t *next_unreported(struct xrc_node *node)
{
    opal_proc_t *proc = NULL;
    OPAL_THREAD_LOCK(&node->module->lock);
    for (struct mca_btl_base_endpoint_t *e = node->endpoints; NULL != e && NULL == proc; e = e->next) {
        if (!e->reported) {
            e->reported = true;
            proc = e->proc;
            OBJ_RETAIN(proc);
        }
    }
    OPAL_THREAD_UNLOCK(&node->module->lock);
    return proc;
}

/*
 * Whoever goes on without those that are lost (5.0 and later with ULFM) has to know each of them: they share the INI. It
 * hears of them before their sends come back, for which 4.1 ends the job as well, but with less to say.
 */
void xrc_node_fail(struct xrc_node *node, const char *why)
{
    opal_proc_t *proc;
    bool both = xrc_node_lock(node);
    if (XRC_INI_CLOSED != node->state) {
        set_state(node, XRC_INI_FAILED);
    }
    struct xrc_frag *frag = take_all(node);
    xrc_node_unlock(node, both);
    while (!node->parting && NULL != (proc = next_unreported(node))) {
        xrc_module_fail(node->module, proc, why);
        OBJ_RELEASE(proc);
    }
    while (NULL != frag) {
        struct xrc_frag *next = frag->next;
        xrc_frag_finish(frag, OPAL_ERR_UNREACH);
        frag = next;
    }
    xrc_bounces_end(node->module, node, NULL);
}

void xrc_node_close(struct xrc_node *node)
{
    bool both = xrc_node_lock(node);
    struct xrc_ini_step step = xrc_ini_next(node->state, XRC_INI_EV_CLOSE);
    set_state(node, step.state);
    node->farewell_due |= XRC_INI_DO_NOTHING != step.action;
    if (NULL != node->conn) {
        __atomic_store_n(&node->conn->close_wanted, true, __ATOMIC_RELEASE);
    }
    xrc_node_unlock(node, both);
    take_down(node);
}

void xrc_node_destroy(struct xrc_node *node)
{
    if (NULL != node->ini) {
        ibv_destroy_qp(node->ini);
        xrc_count(&mca_btl_xrc_component.counters.ini_gone, 1);
    }
    OBJ_DESTRUCT(&node->lock);
    pthread_mutex_destroy(&node->setup);
    free(node);
}
