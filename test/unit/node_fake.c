/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit/node_fake.h"

#include <errno.h>

#include "btl_xrc_bounce.h"
#include "btl_xrc_conn.h"
#include "btl_xrc_node.h"

enum { MARKS = 1024, LOG = 4096 };

struct work {
    uint64_t id;
    bool signalled;
};

/* An INI, and whom it has sent to. Work requests are counted from its start. */
struct fake_qp {
    struct ibv_qp ibv;
    uint32_t depth;
    uint32_t inlines;
    unsigned posted;
    unsigned done; /* by the HCA */
    unsigned freed;
    bool failed;
    struct work work[LOG];
};

struct completion {
    struct ibv_wc wc;
    struct fake_qp *qp;
    unsigned frees; /* all work requests up to here */
};

static struct {
    struct fake_options options;
    struct ibv_context context;
    struct ibv_cq cq;
    struct ibv_pd pd;
    struct xrc_device device;
    mca_btl_xrc_module_t module;
    struct xrc_node *node[FAKE_NODES];
    struct mca_btl_base_endpoint_t peer[FAKE_NODES][FAKE_PEERS];
    struct fake_qp *qp[FAKE_NODES];
    unsigned making; /* whose INI is made now */
    int sent_to[FAKE_NODES][LOG];
    unsigned sent[FAKE_NODES];
    struct xrc_frag mark[MARKS];
    struct completion entry[LOG];
    unsigned first;
    unsigned entries;
    unsigned signalled;
    unsigned refused;
    unsigned ended[2];
    bool overrun;
} fake;

/* ---- the HCA ---- */

static unsigned node_of(const struct fake_qp *qp)
{
    return qp->ibv.qp_num - 1;
}

static void complete(struct fake_qp *qp, enum ibv_wc_status status)
{
    struct completion *c = &fake.entry[(fake.first + fake.entries) % LOG];
    struct ibv_wc wc = {.wr_id = qp->work[qp->done % LOG].id, .status = status, .qp_num = qp->ibv.qp_num};
    fake.overrun |= fake.entries >= (unsigned) fake.cq.cqe;
    *c = (struct completion){wc, qp, qp->done + 1};
    ++fake.entries;
}

static void flush(struct fake_qp *qp, enum ibv_wc_status status)
{
    for (; qp->done < qp->posted; ++qp->done, status = IBV_WC_WR_FLUSH_ERR) {
        complete(qp, status);
    }
    qp->failed = true;
}

static int post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct fake_qp *qp = XRC_CONTAINER(ibqp, struct fake_qp, ibv);
    unsigned n = node_of(qp);
    bool inlined = 0 != (wr->send_flags & IBV_SEND_INLINE);
    uint32_t length = wr->num_sge > 0 ? wr->sg_list[0].length : 0;
    *bad = wr;
    if (inlined && length > qp->inlines) {
        ++fake.refused;
        return EINVAL;
    }
    if (qp->posted - qp->freed >= qp->depth) {
        return ENOMEM;
    }
    qp->work[qp->posted % LOG] = (struct work){wr->wr_id, 0 != (wr->send_flags & IBV_SEND_SIGNALED)};
    fake.signalled += qp->work[qp->posted % LOG].signalled;
    ++qp->posted;
    fake.sent_to[n][fake.sent[n]++ % LOG] = (int) wr->qp_type.xrc.remote_srqn;
    if (qp->failed) {
        flush(qp, IBV_WC_WR_FLUSH_ERR);
    }
    return 0;
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
    int n = 0;
    (void) cq;
    for (; n < most && fake.entries > 0; ++n, --fake.entries) {
        struct completion *c = &fake.entry[fake.first++ % LOG];
        wc[n] = c->wc;
        if (NULL != c->qp) {
            c->qp->freed = c->frees;
        }
    }
    return n;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct fake_qp *qp = (struct fake_qp *) calloc(1, sizeof(*qp));
    (void) pd;
    if (NULL == qp || (fake.options.refuses && init->cap.max_send_wr > fake.options.depth)) {
        free(qp);
        errno = EINVAL;
        return NULL;
    }
    if (init->cap.max_send_wr > fake.options.depth) {
        init->cap.max_send_wr = fake.options.depth;
    }
    if (init->cap.max_inline_data > fake.options.inlines) {
        init->cap.max_inline_data = fake.options.inlines;
    }
    qp->depth = init->cap.max_send_wr;
    qp->inlines = init->cap.max_inline_data;
    qp->ibv.context = &fake.context;
    qp->ibv.qp_num = fake.making + 1;
    fake.qp[fake.making] = qp;
    return &qp->ibv;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    (void) qp;
    (void) attr;
    (void) mask;
    return 0;
}

/* Of what it left in the CQ nobody asks for the slots. */
int ibv_destroy_qp(struct ibv_qp *ibqp)
{
    struct fake_qp *qp = XRC_CONTAINER(ibqp, struct fake_qp, ibv);
    for (unsigned i = 0; i < fake.entries; ++i) {
        struct completion *c = &fake.entry[(fake.first + i) % LOG];
        c->qp = c->qp == qp ? NULL : c->qp;
    }
    fake.qp[node_of(qp)] = NULL;
    free(qp);
    return 0;
}

/* ---- the module ---- */

static void make_node(unsigned n)
{
    struct xrc_node *node = (struct xrc_node *) calloc(1, sizeof(*node));
    OBJ_CONSTRUCT(&node->lock, opal_mutex_t);
    pthread_mutex_init(&node->setup, NULL);
    node->module = &fake.module;
    node->serial = XRC_WR_SERIAL(n + 1);
    node->ini_qpn = XRC_NO_QPN;
    node->state = XRC_INI_IDLE;
    node->fault_said = true;
    node->next = fake.module.nodes;
    fake.module.nodes = fake.node[n] = node;
    for (unsigned p = 0; p < FAKE_PEERS; ++p) {
        struct mca_btl_base_endpoint_t *peer = &fake.peer[n][p];
        peer->node = node;
        peer->name = (struct xrc_name){1, n * FAKE_PEERS + p};
        peer->reported = true;
        for (unsigned i = 0; i < FAKE_CLASSES; ++i) {
            peer->srqn[i] = p;
        }
        peer->next = node->endpoints;
        node->endpoints = peer;
    }
}

static void make_marks(void)
{
    OBJ_CONSTRUCT(&fake.module.mark_frags, opal_free_list_t);
    for (unsigned i = 0; i < MARKS; ++i) {
        opal_free_list_return(&fake.module.mark_frags, (opal_free_list_item_t *) &fake.mark[i]);
    }
}

void fake_begin(const struct fake_options *options)
{
    struct xrc_recvq *q = &mca_btl_xrc_component.recvq;
    memset(&fake, 0, sizeof(fake));
    fake.options = *options;
    fake.context.ops.post_send = post_send;
    fake.context.ops.poll_cq = poll_cq;
    fake.cq = (struct ibv_cq){.context = &fake.context, .cqe = options->cqe};
    fake.device.context = &fake.context;
    fake.device.pd = &fake.pd;
    fake.device.attr.max_qp_wr = 1 << 15;
    q->nclasses = FAKE_CLASSES;
    for (unsigned i = 0; i < FAKE_CLASSES; ++i) {
        q->c[i].window = options->window;
    }
    mca_btl_xrc_component.params.rdma_window = (int) options->window;
    fake.module.device = &fake.device;
    fake.module.send_cq = &fake.cq;
    fake.module.send_room = options->cqe;
    fake.module.max_inline = 256;
    OBJ_CONSTRUCT(&fake.module.lock, opal_mutex_t);
    xrc_bounces_init(&fake.module);
    make_marks();
    for (unsigned n = 0; n < options->nodes; ++n) {
        make_node(n);
    }
}

void fake_end(void)
{
    for (unsigned n = 0; n < fake.options.nodes; ++n) {
        free(fake.node[n]->conn);
        xrc_node_destroy(fake.node[n]);
    }
    while (NULL != opal_lifo_pop_st(&fake.module.mark_frags.super)) {
    }
    OBJ_DESTRUCT(&fake.module.mark_frags);
    OBJ_DESTRUCT(&fake.module.bounces.lock);
    OBJ_DESTRUCT(&fake.module.lock);
}

/* ---- what tests do ---- */

static void ended(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, mca_btl_base_descriptor_t *des,
                  int status)
{
    (void) btl;
    (void) endpoint;
    ++fake.ended[OPAL_SUCCESS == status];
    free(des);
}

int fake_send(unsigned node, unsigned peer, unsigned klass, uint32_t size)
{
    struct xrc_frag *frag = (struct xrc_frag *) calloc(1, sizeof(*frag));
    frag->kind = XRC_FRAG_SEND;
    frag->lane = (uint8_t) klass;
    frag->base.des_cbfunc = ended;
    frag->base.des_flags = MCA_BTL_DES_SEND_ALWAYS_CALLBACK;
    frag->sge.length = size;
    frag->wr =
        (struct ibv_send_wr){.wr_id = (uintptr_t) frag, .sg_list = &frag->sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    frag->wr.qp_type.xrc.remote_srqn = peer;
    fake.making = node;
    int rc = xrc_node_send(&fake.peer[node][peer], frag);
    if (rc < 0) {
        free(frag);
    }
    return rc;
}

bool fake_send_now(unsigned node, unsigned peer, uint32_t size)
{
    struct ibv_sge sge = {.length = size};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    wr.qp_type.xrc.remote_srqn = peer;
    return xrc_node_send_now(&fake.peer[node][peer], &wr) >= 0;
}

void fake_connect(unsigned node)
{
    struct xrc_conn *conn = fake.node[node]->conn;
    conn->state = XRC_INI_READY;
    if (xrc_node_service_ready(conn)) {
        xrc_stack_push(&fake.module.results, &conn->result.link);
    }
    fake_progress();
}

bool fake_do(unsigned node)
{
    struct fake_qp *qp = fake.qp[node];
    if (NULL == qp || qp->failed || qp->done == qp->posted) {
        return false;
    }
    if (qp->work[qp->done % LOG].signalled) {
        complete(qp, IBV_WC_SUCCESS);
    }
    ++qp->done;
    return true;
}

void fake_fail(unsigned node)
{
    flush(fake.qp[node], IBV_WC_RETRY_EXC_ERR);
}

void fake_close(unsigned node)
{
    xrc_node_close(fake.node[node]);
}

void fake_progress(void)
{
    while (xrc_progress_sends(&fake.module) > 0) {
    }
}

int fake_posted(unsigned node, unsigned n)
{
    return n < fake.sent[node] ? fake.sent_to[node][n % LOG] : -1;
}

unsigned fake_on_the_way(void)
{
    unsigned sum = 0;
    for (unsigned n = 0; n < fake.options.nodes; ++n) {
        sum += NULL != fake.qp[n] ? fake.qp[n]->posted - fake.qp[n]->freed : 0;
    }
    return sum;
}

unsigned fake_signalled(void)
{
    return fake.signalled;
}

unsigned fake_waiting(void)
{
    unsigned sum = 0;
    for (unsigned n = 0; n < fake.options.nodes; ++n) {
        for (unsigned p = 0; p < FAKE_PEERS; ++p) {
            for (const struct xrc_frag *frag = fake.peer[n][p].wait_head; NULL != frag; frag = frag->next) {
                ++sum;
            }
        }
    }
    return sum;
}

unsigned fake_ended(bool well)
{
    return fake.ended[well];
}

unsigned fake_refused(void)
{
    return fake.refused;
}

bool fake_overrun(void)
{
    return fake.overrun;
}

int fake_room(void)
{
    return fake.module.send_room;
}
