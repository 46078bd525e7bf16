/* SPDX-License-Identifier: BSD-3-Clause */
/* One active port of an HCA: made before the modex, taken down in the order that verbs demand. */
#include <errno.h>
#include <sched.h>

#include "btl_xrc_board.h"
#include "btl_xrc_bounce.h"
#include "btl_xrc_conn.h"
#include "btl_xrc_error.h"
#include "btl_xrc_module.h"
#include "btl_xrc_node.h"
#include "btl_xrc_rails.h"
#include "btl_xrc_service.h"
#include "btl_xrc_ud.h"

#define INLINE_DEFAULT 256u       /* asked for when the user says nothing */
#define RDMA_LIMIT     (1u << 30) /* largest single put or get */
#define DRAIN_MS       1000u      /* how long finalize waits for sends on the way */
#define LINGER_MS      10000u     /* the same where Open MPI does not wait until all have got what they want */

static int register_error(mca_btl_base_module_t *btl, mca_btl_base_module_error_cb_fn_t cbfunc)
{
    ((mca_btl_xrc_module_t *) btl)->error_cb = cbfunc;
    return OPAL_SUCCESS;
}

/* Limits and flags here are defaults, changed by the base parameters. Pipeline numbers are openib's. */
/* clang-format off */
mca_btl_xrc_module_t mca_btl_xrc_module = {
    .super = {
        .btl_component = &mca_btl_xrc_component.super,
        .btl_eager_limit = 12288,
        .btl_rndv_eager_limit = 12288,
        .btl_max_send_size = 65536,
        .btl_rdma_pipeline_send_length = 1048576,
        .btl_rdma_pipeline_frag_size = 1048576,
        .btl_min_rdma_pipeline_size = 262144,
        .btl_exclusivity = MCA_BTL_EXCLUSIVITY_DEFAULT,
        .btl_latency = 4,
        .btl_flags = MCA_BTL_FLAGS_SEND | MCA_BTL_FLAGS_RDMA | MCA_BTL_FLAGS_ATOMIC_OPS | MCA_BTL_FLAGS_ATOMIC_FOPS
                     | MCA_BTL_FLAGS_RDMA_FLUSH | XRC_FLAG_REMOTE_COMPLETION,
        .btl_atomic_flags = MCA_BTL_ATOMIC_SUPPORTS_ADD | MCA_BTL_ATOMIC_SUPPORTS_CSWAP,
        .btl_registration_handle_size = sizeof(mca_btl_base_registration_handle_t),
        .btl_get_limit = RDMA_LIMIT,
        .btl_put_limit = RDMA_LIMIT,
        .btl_add_procs = mca_btl_xrc_add_procs,
        .btl_del_procs = mca_btl_xrc_del_procs,
        .btl_finalize = mca_btl_xrc_finalize,
        .btl_alloc = mca_btl_xrc_alloc,
        .btl_free = mca_btl_xrc_free,
        .btl_prepare_src = mca_btl_xrc_prepare_src,
        .btl_send = mca_btl_xrc_send,
        .btl_sendi = mca_btl_xrc_sendi,
        .btl_put = mca_btl_xrc_put,
        .btl_get = mca_btl_xrc_get,
        .btl_atomic_op = mca_btl_xrc_atomic_op,
        .btl_atomic_fop = mca_btl_xrc_atomic_fop,
        .btl_atomic_cswap = mca_btl_xrc_atomic_cswap,
        .btl_flush = mca_btl_xrc_flush,
        .btl_dump = mca_btl_base_dump,
        .btl_register_mem = mca_btl_xrc_register_mem,
        .btl_deregister_mem = mca_btl_xrc_deregister_mem,
        .btl_register_error = register_error,
    },
};

/* clang-format on */

/* ---- making one ---- */

static int read_port(mca_btl_xrc_module_t *module, uint8_t number, uint8_t path_bits)
{
    struct xrc_device *device = module->device;
    struct ibv_port_attr port;
    union ibv_gid gid;
    int want_mtu = mca_btl_xrc_component.params.mtu;
    module->gid_index = (uint8_t) mca_btl_xrc_component.params.gid_index;
    int rc = ibv_query_port(device->context, number, &port);
    if (0 == rc) {
        rc = ibv_query_gid(device->context, number, module->gid_index, &gid);
    }
    if (0 != rc) {
        xrc_error_verb(device, "ibv_query_port or ibv_query_gid", rc > 0 ? rc : errno);
        return OPAL_ERROR;
    }
    memcpy(module->addr.gid, gid.raw, sizeof(module->addr.gid));
    module->path_bits = path_bits;
    module->addr.lid = (uint16_t) (port.lid + path_bits);
    module->sm_lid = port.sm_lid;
    module->lmc = port.lmc;
    module->addr.port = number;
    module->addr.mtu = (uint8_t) (0 != want_mtu && want_mtu < (int) port.active_mtu ? want_mtu : (int) port.active_mtu);
    module->addr.link_layer = port.link_layer;
    module->max_msg = port.max_msg_sz;
    if (0 == module->super.btl_bandwidth) {
        module->super.btl_bandwidth = xrc_rails_bandwidth(port.active_speed, port.active_width);
    }
    return OPAL_SUCCESS;
}

static void clip(size_t *value, size_t most)
{
    if (*value > most) {
        *value = most;
    }
}

static void set_limits(mca_btl_xrc_module_t *module)
{
    const struct xrc_recvq *q = &mca_btl_xrc_component.recvq;
    size_t largest = q->c[q->nclasses - 1].size, port = module->max_msg;
    mca_btl_base_module_t *btl = &module->super;
    clip(&largest, port > sizeof(struct xrc_hdr) ? port - sizeof(struct xrc_hdr) : 0);
    clip(&btl->btl_max_send_size, largest);
    clip(&btl->btl_eager_limit, largest);
    clip(&btl->btl_rndv_eager_limit, btl->btl_eager_limit);
    clip(&btl->btl_put_limit, port < RDMA_LIMIT ? port : RDMA_LIMIT);
    clip(&btl->btl_get_limit, port < RDMA_LIMIT ? port : RDMA_LIMIT);
    clip(&btl->btl_rdma_pipeline_frag_size, btl->btl_put_limit);
    btl->btl_get_local_registration_threshold = 0;
    btl->btl_put_local_registration_threshold = module->max_inline;
}

/*
 * Only a device that is atomic with the CPU lets its users mix both on one word (GLOB). Upper layers that find no
 * atomics without a result have a place for it.
 */
static void set_atomics(mca_btl_xrc_module_t *module, enum ibv_atomic_cap cap)
{
    mca_btl_base_module_t *btl = &module->super;
    if (IBV_ATOMIC_NONE == cap || NULL == module->sink) {
        btl->btl_flags &= ~(uint32_t) MCA_BTL_FLAGS_ATOMIC_OPS;
    }
    if (IBV_ATOMIC_NONE == cap) {
        btl->btl_flags &= ~(uint32_t) MCA_BTL_FLAGS_ATOMIC_FOPS;
        btl->btl_atomic_flags = 0;
    } else if (IBV_ATOMIC_GLOB == cap) {
        btl->btl_atomic_flags |= MCA_BTL_ATOMIC_SUPPORTS_GLOB;
    }
}

static int make_cqs(mca_btl_xrc_module_t *module)
{
    struct xrc_device *device = module->device;
    const struct xrc_recvq *q = &mca_btl_xrc_component.recvq;
    int recvs = 0, sends = mca_btl_xrc_component.params.cq_size;
    for (unsigned i = 0; i < q->nclasses; ++i) {
        recvs += (int) q->c[i].num;
    }
    if (sends > device->attr.max_cqe) {
        sends = device->attr.max_cqe;
    }
    module->recv_cq = ibv_create_cq(device->context, recvs, NULL, NULL, 0);
    module->send_cq = NULL != module->recv_cq ? ibv_create_cq(device->context, sends, NULL, NULL, 0) : NULL;
    if (NULL == module->send_cq) {
        xrc_error_verb(device, "ibv_create_cq", errno);
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    module->send_room = module->send_cq->cqe;
    return OPAL_SUCCESS;
}

/* How much an INI QP here takes inline is only known by making one. */
static int probe_ini(mca_btl_xrc_module_t *module)
{
    int asked = mca_btl_xrc_component.params.max_inline_data;
    uint32_t depth = mca_btl_xrc_component.recvq.nclasses + 1, most = asked < 0 ? INLINE_DEFAULT : (uint32_t) asked;
    uint32_t first = (uint32_t) (sizeof(struct xrc_hdr) + mca_btl_xrc_component.recvq.c[0].size);
    module->max_inline = most < first ? most : first;
    struct ibv_qp *ini = xrc_conn_make_ini(module, &depth, &module->max_inline, true);
    if (NULL == ini) {
        xrc_error_verb(module->device, "ibv_create_qp(XRC_SEND)", errno);
        return OPAL_ERROR;
    }
    ibv_destroy_qp(ini);
    return OPAL_SUCCESS;
}

void xrc_module_listen(mca_btl_xrc_module_t *module)
{
    struct xrc_ud_addr ud = xrc_ud_address(module->ud);
    xrc_board_publish(module->device->board, &ud, &module->addr);
}

static int make_queues(mca_btl_xrc_module_t *module)
{
    int rc = make_cqs(module);
    for (unsigned i = 0; i < mca_btl_xrc_component.recvq.nclasses && OPAL_SUCCESS == rc; ++i) {
        rc = xrc_srq_create(module, i);
    }
    if (OPAL_SUCCESS == rc) {
        rc = probe_ini(module);
    }
    if (OPAL_SUCCESS != rc) {
        return rc;
    }
    int err = xrc_ud_create(module);
    if (0 != err) {
        xrc_error_verb(module->device, "setting up the UD QP", err);
        return OPAL_ERROR;
    }
    xrc_module_listen(module);
    return OPAL_SUCCESS;
}

static int make(mca_btl_xrc_module_t *module, uint8_t port, uint8_t path_bits)
{
    int rc = read_port(module, port, path_bits);
    if (OPAL_SUCCESS == rc) {
        rc = make_queues(module);
    }
    if (OPAL_SUCCESS != rc) {
        return rc;
    }
    set_limits(module);
    rc = xrc_frags_init(module);
    set_atomics(module, module->device->attr.atomic_cap);
    if (OPAL_SUCCESS != rc) {
        xrc_error_verb(module->device, "registering send buffers", ENOMEM);
    }
    return rc;
}

mca_btl_xrc_module_t *xrc_module_create(struct xrc_device *device, uint8_t port, uint8_t path_bits)
{
    mca_btl_xrc_module_t *module = (mca_btl_xrc_module_t *) malloc(sizeof(*module));
    if (NULL == module) {
        return NULL;
    }
    *module = mca_btl_xrc_module;
    module->device = device;
    ++device->refs;
    module->index = (uint8_t) mca_btl_xrc_component.nmodules;
    module->hdr = (struct xrc_hdr){
        .version = XRC_HDR_VERSION, .job_be = htonl(OPAL_PROC_MY_NAME.jobid), .vpid_be = htonl(OPAL_PROC_MY_NAME.vpid)};
    OBJ_CONSTRUCT(&module->lock, opal_mutex_t);
    xrc_bounces_init(module);
    OBJ_CONSTRUCT(&module->strangers, opal_hash_table_t);
    opal_hash_table_init(&module->strangers, 64);
    module->ranks = (struct xrc_rank_table *) calloc(1, sizeof(*module->ranks));
    if (NULL == module->ranks || OPAL_SUCCESS != make(module, port, path_bits)) {
        xrc_module_destroy(module);
        return NULL;
    }
    return module;
}

/* ---- taking it down ---- */

static bool something_left(mca_btl_xrc_module_t *module)
{
    bool any = false;
    for (struct xrc_node *node = module->nodes; NULL != node; node = node->next) {
        any = xrc_node_is_sending(node) || any;
    }
    return any;
}

/*
 * A send that was buffered is done for the application, which may have come to its end since. Nothing is received meanwhile:
 * this process has had all that it wants, and upper layers are half gone.
 */
void xrc_module_linger(mca_btl_xrc_module_t *module)
{
    uint64_t until = xrc_service_now_ms() + LINGER_MS;
    while (something_left(module) && xrc_service_now_ms() < until) {
        if (0 == xrc_progress_sends(module)) {
            sched_yield();
        }
    }
}

/* Upper layers are gone by now: completions are counted, nobody is called. True while something is on the way. */
static bool sends_on_the_way(mca_btl_xrc_module_t *module)
{
    struct ibv_wc wc[16];
    bool any = false;
    int n = ibv_poll_cq(module->send_cq, 16, wc);
    for (int i = 0; i < n; ++i) {
        struct xrc_frag *frag = xrc_wr_frag(wc[i].wr_id);
        if (NULL != frag && xrc_node_retire(frag)) {
            xrc_endpoint_free(frag->endpoint);
        }
    }
    for (const struct xrc_node *node = module->nodes; NULL != node; node = node->next) {
        any = any || 0 != node->in_flight;
    }
    return any;
}

void xrc_module_quiesce(mca_btl_xrc_module_t *module)
{
    uint64_t until = xrc_service_now_ms() + DRAIN_MS;
    module->closing = true;
    while (sends_on_the_way(module) && xrc_service_now_ms() < until) {
    }
    for (struct xrc_node *node = module->nodes; NULL != node; node = node->next) {
        xrc_node_close(node);
    }
}

static void free_nodes(mca_btl_xrc_module_t *module)
{
    while (NULL != module->nodes) {
        struct xrc_node *node = module->nodes;
        module->nodes = node->next;
        while (NULL != node->endpoints) {
            struct mca_btl_base_endpoint_t *endpoint = node->endpoints;
            node->endpoints = endpoint->next;
            xrc_endpoint_free(endpoint);
        }
        xrc_node_destroy(node);
    }
}

static void destroy_cq(struct ibv_cq *cq)
{
    int rc = NULL != cq ? ibv_destroy_cq(cq) : 0;
    if (0 != rc) {
        XRC_VERBOSE(1, "ibv_destroy_cq: %s", strerror(rc));
    }
}

/* QPs, then SRQs, then CQs; the device follows with XRCD, PD and context when its last module is gone. */
void xrc_module_destroy(mca_btl_xrc_module_t *module)
{
    xrc_conn_take_results(module, false);
    free_nodes(module);
    xrc_ud_destroy(module);
    for (unsigned i = 0; i < mca_btl_xrc_component.recvq.nclasses; ++i) {
        xrc_srq_destroy(&module->srq[i]);
    }
    destroy_cq(module->send_cq);
    destroy_cq(module->recv_cq);
    xrc_frags_fini(module);
    xrc_bounces_fini(module);
    OBJ_DESTRUCT(&module->strangers);
    OBJ_DESTRUCT(&module->lock);
    for (unsigned i = 0; NULL != module->ranks && i < sizeof(module->ranks->chunk) / sizeof(module->ranks->chunk[0]);
         ++i) {
        free(module->ranks->chunk[i]);
    }
    free(module->ranks);
    xrc_device_release(module->device);
    free(module);
}

/* The service thread serves all modules: it ends when the first is finalized, after all have fallen silent. */
int mca_btl_xrc_finalize(mca_btl_base_module_t *btl)
{
    mca_btl_xrc_module_t *module = (mca_btl_xrc_module_t *) btl;
    if (0 == mca_btl_xrc_component.finalized++) {
        for (unsigned i = 0; i < mca_btl_xrc_component.nmodules; ++i) {
            xrc_module_quiesce(mca_btl_xrc_component.modules[i]);
        }
        xrc_service_stop();
        xrc_report_end();
    }
    xrc_stats_say(module);
    xrc_component_forget(module);
    xrc_module_destroy(module);
    return OPAL_SUCCESS;
}
