/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_endpoint.h"

#include "btl_xrc_bounce.h"
#include "btl_xrc_error.h"
#include "btl_xrc_node.h"
#include "btl_xrc_rails.h"

static uint64_t key_of(const struct xrc_name *name)
{
    return (uint64_t) name->job << 32 | name->vpid;
}

static bool own_job(const struct xrc_name *name)
{
    return name->job == OPAL_PROC_MY_NAME.jobid && name->vpid / XRC_TABLE_CHUNK < 4096;
}

static struct mca_btl_base_endpoint_t *lookup_own(const mca_btl_xrc_module_t *module, uint32_t vpid)
{
    struct mca_btl_base_endpoint_t **chunk =
        __atomic_load_n(&module->ranks->chunk[vpid / XRC_TABLE_CHUNK], __ATOMIC_ACQUIRE);
    return NULL != chunk ? __atomic_load_n(&chunk[vpid % XRC_TABLE_CHUNK], __ATOMIC_ACQUIRE) : NULL;
}

/* Module lock held. */
static struct mca_btl_base_endpoint_t *lookup(mca_btl_xrc_module_t *module, const struct xrc_name *name)
{
    void *found = NULL;
    if (own_job(name)) {
        return lookup_own(module, name->vpid);
    }
    opal_hash_table_get_value_uint64(&module->strangers, key_of(name), &found);
    return (struct mca_btl_base_endpoint_t *) found;
}

/* Module lock held. */
static int enter(mca_btl_xrc_module_t *module, struct mca_btl_base_endpoint_t *endpoint)
{
    const struct xrc_name *name = &endpoint->name;
    if (!own_job(name)) {
        return opal_hash_table_set_value_uint64(&module->strangers, key_of(name), endpoint);
    }
    struct mca_btl_base_endpoint_t **chunk = module->ranks->chunk[name->vpid / XRC_TABLE_CHUNK];
    if (NULL == chunk) {
        chunk = (struct mca_btl_base_endpoint_t **) calloc(XRC_TABLE_CHUNK, sizeof(*chunk));
        if (NULL == chunk) {
            return OPAL_ERR_OUT_OF_RESOURCE;
        }
        __atomic_store_n(&module->ranks->chunk[name->vpid / XRC_TABLE_CHUNK], chunk, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&chunk[name->vpid % XRC_TABLE_CHUNK], endpoint, __ATOMIC_RELEASE);
    return OPAL_SUCCESS;
}

/* Module lock held. */
static void strike(mca_btl_xrc_module_t *module, const struct mca_btl_base_endpoint_t *endpoint)
{
    const struct xrc_name *name = &endpoint->name;
    if (lookup(module, name) != endpoint) {
        return;
    }
    if (own_job(name)) {
        __atomic_store_n(&module->ranks->chunk[name->vpid / XRC_TABLE_CHUNK][name->vpid % XRC_TABLE_CHUNK], NULL,
                         __ATOMIC_RELEASE);
    } else {
        opal_hash_table_remove_value_uint64(&module->strangers, key_of(name));
    }
}

/* The peer's port that this module talks to. */
static const struct xrc_modex_module *match(const mca_btl_xrc_module_t *module, const struct xrc_modex *modex)
{
    struct xrc_port_addr mine[XRC_MAX_MODULES];
    for (unsigned i = 0; i <= module->index; ++i) {
        mine[i] = mca_btl_xrc_component.modules[i]->addr;
    }
    int pick = xrc_rails_match(mine, module->index, modex->module, modex->nmodules);
    return pick >= 0 ? &modex->module[pick] : NULL;
}

static bool same_classes(const struct xrc_modex *modex)
{
    const struct xrc_recvq *q = &mca_btl_xrc_component.recvq;
    bool same = modex->nclasses == q->nclasses;
    for (unsigned i = 0; same && i < q->nclasses; ++i) {
        same = modex->class_size[i] == q->c[i].size;
    }
    return same;
}

/* What @a proc published, if we can work with it. */
static const struct xrc_modex_module *reachable_by(const mca_btl_xrc_module_t *module, const opal_proc_t *proc,
                                                   struct xrc_modex *modex)
{
    if (OPAL_SUCCESS != xrc_modex_fetch(proc, modex) || 0 == modex->nmodules) {
        return NULL;
    }
    if (!same_classes(modex)) {
        char *host = xrc_compat_hostname(proc);
        xrc_show_help("receive_queues differ", host, (unsigned) proc->proc_name.vpid);
        free(host);
        return NULL;
    }
    return match(module, modex);
}

/* Module lock held. */
static struct mca_btl_base_endpoint_t *make(mca_btl_xrc_module_t *module, opal_proc_t *proc,
                                            const struct xrc_modex_module *remote)
{
    struct mca_btl_base_endpoint_t *endpoint = (struct mca_btl_base_endpoint_t *) calloc(1, sizeof(*endpoint));
    if (NULL == endpoint) {
        return NULL;
    }
    endpoint->name = (struct xrc_name){proc->proc_name.jobid, proc->proc_name.vpid};
    endpoint->ud = remote->ud;
    memcpy(endpoint->srqn, remote->srqn, sizeof(endpoint->srqn));
    endpoint->node = xrc_node_get(module, remote);
    if (NULL == endpoint->node || OPAL_SUCCESS != enter(module, endpoint)) {
        free(endpoint);
        return NULL;
    }
    endpoint->next = endpoint->node->endpoints;
    endpoint->node->endpoints = endpoint;
    OBJ_RETAIN(proc);
    endpoint->proc = proc;
    bool other = !own_job(&endpoint->name) || endpoint->name.vpid != OPAL_PROC_MY_NAME.vpid;
    xrc_count(xrc_node_is_own(endpoint->node) ? &module->reach.own_peers : &module->reach.peers, other);
    return endpoint;
}

struct mca_btl_base_endpoint_t *xrc_endpoint_get(mca_btl_xrc_module_t *module, opal_proc_t *proc)
{
    struct xrc_name name = {proc->proc_name.jobid, proc->proc_name.vpid};
    OPAL_THREAD_LOCK(&module->lock);
    struct mca_btl_base_endpoint_t *endpoint = lookup(module, &name);
    OPAL_THREAD_UNLOCK(&module->lock);
    if (NULL != endpoint) {
        return endpoint;
    }
    /* Not under the lock: this may have to ask another host. */
    struct xrc_modex modex;
    const struct xrc_modex_module *remote = reachable_by(module, proc, &modex);
    if (NULL == remote) {
        return NULL;
    }
    OPAL_THREAD_LOCK(&module->lock);
    endpoint = lookup(module, &name);
    if (NULL == endpoint) {
        endpoint = make(module, proc, remote);
    }
    OPAL_THREAD_UNLOCK(&module->lock);
    return endpoint;
}

void xrc_endpoint_free(struct mca_btl_base_endpoint_t *endpoint)
{
    OBJ_RELEASE(endpoint->proc);
    free(endpoint);
}

/* Take what waits, and the endpoint off its node's ring. Node lock held. */
static struct xrc_frag *take_waiting(struct mca_btl_base_endpoint_t *endpoint)
{
    struct xrc_node *node = endpoint->node;
    struct xrc_frag *frags = endpoint->wait_head;
    xrc_node_count_taken(frags);
    endpoint->wait_head = endpoint->wait_tail = NULL;
    if (endpoint->waiting) {
        struct mca_btl_base_endpoint_t **link = &node->ring_head, *before = NULL;
        while (*link != endpoint) {
            before = *link;
            link = &before->next_waiting;
        }
        *link = endpoint->next_waiting;
        if (node->ring_tail == endpoint) {
            node->ring_tail = before;
        }
        endpoint->waiting = false;
        --node->waiting;
    }
    return frags;
}

void xrc_endpoint_remove(struct mca_btl_base_endpoint_t *endpoint)
{
    struct xrc_node *node = endpoint->node;
    mca_btl_xrc_module_t *module = node->module;
    OPAL_THREAD_LOCK(&module->lock);
    strike(module, endpoint);
    struct mca_btl_base_endpoint_t **link = &node->endpoints;
    while (NULL != *link && *link != endpoint) {
        link = &(*link)->next;
    }
    if (NULL != *link) {
        *link = endpoint->next;
    }
    bool last = NULL == node->endpoints;
    OPAL_THREAD_UNLOCK(&module->lock);

    bool both = xrc_node_lock(node);
    struct xrc_frag *frag = take_waiting(endpoint);
    xrc_node_unlock(node, both);
    while (NULL != frag) {
        struct xrc_frag *next = frag->next;
        xrc_frag_finish(frag, OPAL_ERR_UNREACH);
        frag = next;
    }

    xrc_bounces_end(module, NULL, endpoint);
    both = xrc_node_lock(node);
    endpoint->leaving = true;
    bool idle = 0 == endpoint->in_flight;
    xrc_node_unlock(node, both);
    if (idle) {
        xrc_endpoint_free(endpoint);
    }
    if (last) {
        xrc_node_close(node);
    }
}

/* A peer that has found us before we were told of it: look it up, once. */
static struct mca_btl_base_endpoint_t *introduce(mca_btl_xrc_module_t *module, const struct xrc_name *name)
{
    opal_process_name_t who = {.jobid = name->job, .vpid = name->vpid};
    opal_proc_t *proc = opal_proc_for_name(who);
    return NULL != proc ? xrc_endpoint_get(module, proc) : NULL;
}

struct mca_btl_base_endpoint_t *xrc_endpoint_sender(mca_btl_xrc_module_t *module, const struct xrc_hdr *hdr)
{
    struct xrc_name name = {ntohl(hdr->job_be), ntohl(hdr->vpid_be)};
    struct mca_btl_base_endpoint_t *endpoint;
    if (OPAL_LIKELY(own_job(&name))) {
        endpoint = lookup_own(module, name.vpid);
    } else {
        OPAL_THREAD_LOCK(&module->lock);
        endpoint = lookup(module, &name);
        OPAL_THREAD_UNLOCK(&module->lock);
    }
    return OPAL_LIKELY(NULL != endpoint) ? endpoint : introduce(module, &name);
}

int mca_btl_xrc_add_procs(mca_btl_base_module_t *btl, size_t nprocs, opal_proc_t **procs,
                          struct mca_btl_base_endpoint_t **endpoints, opal_bitmap_t *reachable)
{
    mca_btl_xrc_module_t *module = (mca_btl_xrc_module_t *) btl;
    for (size_t i = 0; i < nprocs; ++i) {
        endpoints[i] = xrc_endpoint_get(module, procs[i]);
        if (NULL != endpoints[i] && NULL != reachable) {
            int rc = opal_bitmap_set_bit(reachable, (int) i);
            if (OPAL_SUCCESS != rc) {
                return rc;
            }
        }
    }
    return OPAL_SUCCESS;
}

int mca_btl_xrc_del_procs(mca_btl_base_module_t *btl, size_t nprocs, opal_proc_t **procs,
                          struct mca_btl_base_endpoint_t **endpoints)
{
    (void) procs;
    if (xrc_params_ends_alone()) {
        xrc_module_linger((mca_btl_xrc_module_t *) btl);
    }
    for (size_t i = 0; i < nprocs; ++i) {
        if (NULL != endpoints[i]) {
            xrc_endpoint_remove(endpoints[i]);
        }
    }
    return OPAL_SUCCESS;
}
