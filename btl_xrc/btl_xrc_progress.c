/* SPDX-License-Identifier: BSD-3-Clause */
/* Completions. An idle pass costs two polls a module and a few loads: no lock, no system call. */
#include "btl_xrc_bounce.h"
#include "btl_xrc_conn.h"
#include "btl_xrc_error.h"
#include "btl_xrc_node.h"

#define BATCH_MOST 64

/* ---- receive ---- */

/* Not for an upper layer: for us, or for nobody. */
static void deliver_other(mca_btl_xrc_module_t *module, const struct xrc_hdr *hdr, uint32_t length)
{
    bool good = length >= sizeof(*hdr) && XRC_HDR_VERSION == hdr->version && XRC_TAG_BOUNCE == hdr->tag;
    if (!good || !xrc_bounce_received(module, hdr, length)) {
        OPAL_THREAD_ADD_FETCH32(&mca_btl_xrc_component.counters.bad_frags, 1);
    }
}

static void deliver(mca_btl_xrc_module_t *module, const struct xrc_recv *recv, uint32_t length)
{
    struct xrc_hdr *hdr = (struct xrc_hdr *) (uintptr_t) recv->sge.addr;
    struct mca_btl_base_endpoint_t *from = NULL;
    if (OPAL_UNLIKELY(length < sizeof(*hdr) || XRC_HDR_VERSION != hdr->version || !xrc_compat_listens(hdr->tag))) {
        deliver_other(module, hdr, length);
        return;
    }
    if (XRC_NEEDS_SENDER) {
        from = xrc_endpoint_sender(module, hdr);
        if (OPAL_UNLIKELY(NULL == from)) {
            OPAL_THREAD_ADD_FETCH32(&mca_btl_xrc_component.counters.bad_frags, 1);
            return;
        }
    }
    mca_btl_base_segment_t segment = {.seg_addr = {.pval = hdr + 1}, .seg_len = length - sizeof(*hdr)};
    xrc_compat_deliver(&module->super, from, hdr->tag, &segment);
}

static int progress_recv(mca_btl_xrc_module_t *module, struct ibv_wc *wc, int most)
{
    int n = ibv_poll_cq(module->recv_cq, most, wc);
    for (int i = 0; i < n; ++i) {
        struct xrc_recv *recv = (struct xrc_recv *) (uintptr_t) wc[i].wr_id;
        if (OPAL_LIKELY(IBV_WC_SUCCESS == wc[i].status)) {
            deliver(module, recv, wc[i].byte_len);
        } else {
            xrc_error_recv(module, wc[i].status);
        }
        xrc_srq_return(recv->srq, recv);
    }
    return n > 0 ? n : 0;
}

/* ---- send ---- */

/*
 * Not by the number of its QP: another thread may have seen the last work request of that come back, and taken it down, before
 * we get here with one that was lost.
 */
static struct xrc_node *node_of(mca_btl_xrc_module_t *module, uint64_t wr_id)
{
    struct xrc_node *node;
    OPAL_THREAD_LOCK(&module->lock);
    for (node = module->nodes; NULL != node && node->serial != xrc_wr_serial(wr_id); node = node->next) {
    }
    OPAL_THREAD_UNLOCK(&module->lock);
    return node;
}

/* Whom a work request went to; NULL: Open MPI has removed it. All of a node are of one job. Only for its name. */
static struct mca_btl_base_endpoint_t *peer_of(struct xrc_node *node, const struct ibv_wc *wc)
{
    struct mca_btl_base_endpoint_t *endpoint;
    OPAL_THREAD_LOCK(&node->module->lock);
    for (endpoint = node->endpoints; NULL != endpoint && endpoint->name.vpid != xrc_wr_vpid(wc->wr_id);
         endpoint = endpoint->next) {
    }
    OPAL_THREAD_UNLOCK(&node->module->lock);
    return endpoint;
}

/* The QP is in error: this work request failed, or was flushed after one that did. */
static void send_failed(mca_btl_xrc_module_t *module, struct xrc_frag *frag, const struct ibv_wc *wc)
{
    struct xrc_node *node = NULL != frag ? frag->node : node_of(module, wc->wr_id);
    struct mca_btl_base_endpoint_t *endpoint = NULL != frag ? frag->endpoint : NULL;
    if (NULL == node) {
        return;
    }
    bool first = IBV_WC_WR_FLUSH_ERR != wc->status || XRC_INI_DRAINING == xrc_node_state(node);
    if (!node->fault_said && first && !module->closing && !node->parting) {
        node->fault_said = true;
        xrc_error_send(node, NULL != endpoint ? endpoint : peer_of(node, wc), wc->status);
    }
    xrc_node_fail(node, "a send failed");
    if (NULL != frag) {
        bool gone = xrc_node_retire(frag);
        xrc_frag_finish(frag, OPAL_ERR_UNREACH);
        if (gone) {
            xrc_endpoint_free(endpoint);
        }
    }
}

/* Not meant to arrive: see XRC_INI_DRAINING. */
static bool is_last(const struct xrc_frag *frag)
{
    return NULL != frag && XRC_FRAG_LAST == frag->kind;
}

static void send_done(struct xrc_frag *frag)
{
    struct mca_btl_base_endpoint_t *endpoint = frag->endpoint;
    bool gone = xrc_node_retire(frag);
    xrc_frag_finish(frag, OPAL_SUCCESS);
    if (OPAL_UNLIKELY(gone)) {
        xrc_endpoint_free(endpoint);
    }
}

static int progress_send(mca_btl_xrc_module_t *module, struct ibv_wc *wc, int most)
{
    int n = ibv_poll_cq(module->send_cq, most, wc);
    for (int i = 0; i < n; ++i) {
        struct xrc_frag *frag = xrc_wr_frag(wc[i].wr_id);
        if (OPAL_LIKELY(IBV_WC_SUCCESS == wc[i].status) || is_last(frag)) {
            send_done(frag);
        } else {
            send_failed(module, frag, &wc[i]);
        }
    }
    return n > 0 ? n : 0;
}

/* ---- what the service thread or a full CQ left to do ---- */

/* A node stays marked until its turn, so that no other thread links it elsewhere while it is on our chain. */
static void feed_starved(mca_btl_xrc_module_t *module)
{
    OPAL_THREAD_LOCK(&module->lock);
    struct xrc_node *node = module->starved;
    module->starved = NULL;
    OPAL_THREAD_UNLOCK(&module->lock);
    while (NULL != node) {
        OPAL_THREAD_LOCK(&module->lock);
        struct xrc_node *next = node->next_starved;
        node->starved = false;
        OPAL_THREAD_UNLOCK(&module->lock);
        xrc_node_drain(node);
        node = next;
    }
}

/* All that has been received, as far as there are buffers for it. */
static int take_all(mca_btl_xrc_module_t *module)
{
    uint32_t most = 0;
    for (unsigned i = 0; i < mca_btl_xrc_component.recvq.nclasses; ++i) {
        most += __atomic_load_n(&module->srq[i].made, __ATOMIC_RELAXED);
    }
    struct ibv_wc *wc = (struct ibv_wc *) malloc(most * sizeof(*wc));
    int n = NULL != wc ? progress_recv(module, wc, (int) most) : 0;
    free(wc);
    return n;
}

/* Rare, and kept out of the way of what is not. */
static __opal_attribute_noinline__ int serve_queue(mca_btl_xrc_module_t *module, struct xrc_srq *srq)
{
    uint32_t todo = __atomic_exchange_n(&srq->todo, 0, __ATOMIC_ACQUIRE);
    int n = 0 != (todo & XRC_SRQ_LOOK) ? take_all(module) : 0;
    xrc_srq_serve(srq, todo);
    return n;
}

static int serve_queues(mca_btl_xrc_module_t *module, int n)
{
    for (unsigned i = 0; i < mca_btl_xrc_component.recvq.nclasses; ++i) {
        if (OPAL_UNLIKELY(0 != __atomic_load_n(&module->srq[i].todo, __ATOMIC_RELAXED))) {
            n += serve_queue(module, &module->srq[i]);
        }
    }
    return n;
}

int xrc_progress_sends(mca_btl_xrc_module_t *module)
{
    struct ibv_wc wc[BATCH_MOST];
    int n = progress_send(module, wc, BATCH_MOST);
    if (!xrc_stack_empty(&module->results)) {
        xrc_conn_take_results(module, true);
        ++n;
    }
    if (NULL != module->starved) {
        feed_starved(module);
    }
    return n;
}

static int progress_module(mca_btl_xrc_module_t *module, struct ibv_wc *wc, int most)
{
    int n = progress_recv(module, wc, most);
    n += progress_send(module, wc, most);
    if (OPAL_UNLIKELY(!xrc_stack_empty(&module->results))) {
        xrc_conn_take_results(module, true);
        ++n;
    }
    if (OPAL_UNLIKELY(NULL != module->starved)) {
        feed_starved(module);
    }
    if (OPAL_UNLIKELY(module->bounces.work > 0)) {
        xrc_bounce_progress(module);
    }
    n = serve_queues(module, n);
    if (OPAL_UNLIKELY(__atomic_load_n(&module->device->fatal, __ATOMIC_ACQUIRE))) {
        module->device->fatal = false;
        xrc_module_fail(module, NULL, "the HCA reports a fatal error");
    }
    return n;
}

int mca_btl_xrc_component_progress(void)
{
    struct ibv_wc wc[BATCH_MOST];
    int n = 0;
    for (unsigned i = 0; i < mca_btl_xrc_component.nmodules; ++i) {
        mca_btl_xrc_module_t *module = mca_btl_xrc_component.modules[i];
        if (OPAL_LIKELY(!module->closing)) {
            n += progress_module(module, wc, mca_btl_xrc_component.params.poll_cq_batch);
        }
    }
    return n;
}

/*
 * ob1 of all series ends the job, unless it runs with ULFM (5.0 and later) and is told of a process: then it goes on without
 * that one. It does not look at the flags. A process which cannot reach itself is not one that others could leave behind.
 */
void xrc_module_fail(mca_btl_xrc_module_t *module, opal_proc_t *proc, const char *why)
{
    opal_proc_t *lost = proc == opal_proc_local_get() ? NULL : proc;
    if (NULL != module->error_cb && !module->closing) {
        module->error_cb(&module->super, NULL != lost ? MCA_BTL_ERROR_FLAGS_NONFATAL : MCA_BTL_ERROR_FLAGS_FATAL, lost,
                         (char *) (uintptr_t) why);
    }
}
