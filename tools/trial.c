/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queues of a port, made as by btl_xrc_module.c, btl_xrc_srq.c, btl_xrc_conn.c and btl_xrc_tgt.c, and a message:
 * from an INI QP through a TGT QP into an XRC SRQ of the same port.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "doctor.h"

#define CQ_SENDS    8192 /* btl_xrc_cq_size */
#define INLINE_MOST 256u
#define MESSAGE     64u
#define TIMEOUT     14 /* btl_xrc_ib_timeout and its fellows */
#define RETRIES     7
#define RNR_TIMER   6
#define HOPS        64
#define PSN         0x123456u
#define PATIENCE_S  30 /* the HCA gives up long before */

struct trial {
    const struct options *options;
    struct device *device;
    const struct port *port;
    struct ibv_cq *recv_cq;
    struct ibv_cq *send_cq;
    void *memory;
    size_t size;
    struct ibv_mr *mr;
    struct ibv_srq *srq[XRC_MAX_CLASSES];
    uint32_t srqn; /* of the first */
    struct ibv_qp *ini;
    struct ibv_qp *tgt;
    struct ibv_qp *ud;
    uint32_t max_inline;
    bool no_limit; /* no SRQ limit events */
};

/* ---- what a refused verb means ---- */

static const char *advice_for(int err)
{
    switch (err) {
    case EACCES:
    case EPERM: return "this user may not: see the device nodes, and in a container its rights";
    case ENOENT:
    case ENODEV: return "there is no device node for it: load ib_uverbs; in a container, pass /dev/infiniband in";
    case ENOMEM:
        return "too little locked memory (ulimit -l), or the HCA's resources are used up: see who uses it (rdma "
               "resource)";
    case ENOSPC:
    case EAGAIN: return "the HCA's resources are used up, or the software HCA's memory is full";
    case ENOSYS:
    case EOPNOTSUPP: return "kernel, rdma-core or firmware are too old for it";
    default: return "look at the kernel's log; compare the versions of kernel, rdma-core and firmware";
    }
}

void trial_failed(const char *about, const char *check, const char *verb, int err)
{
    report(BAD, about, check, advice_for(err), "%s failed: %s", verb, 0 != err ? strerror(err) : "no reason given");
}

static int reason(void)
{
    return 0 != errno ? errno : EINVAL;
}

/* ---- TGT QPs of a domain ---- */

static struct ibv_qp *make_tgt(const struct device *device)
{
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = device->xrcd[0]};
    errno = 0;
    return ibv_create_qp_ex(device->context[0], &init);
}

static struct ibv_qp *open_tgt(const struct device *device, uint32_t qpn)
{
    struct ibv_qp_open_attr attr = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
                                    .qp_num = qpn,
                                    .xrcd = device->xrcd[1],
                                    .qp_type = IBV_QPT_XRC_RECV};
    errno = 0;
    return ibv_open_qp(device->context[1], &attr);
}

static void destroy_qp(const char *about, struct ibv_qp *qp)
{
    int rc = NULL != qp ? ibv_destroy_qp(qp) : 0;
    if (0 != rc) {
        trial_failed(about, "clean-up", "ibv_destroy_qp", rc);
    }
}

bool trial_tgt(struct device *device)
{
    struct ibv_qp *tgt = make_tgt(device), *opened;
    if (NULL == tgt) {
        trial_failed(device->name, "ibv_open_qp", "ibv_create_qp_ex(XRC_RECV)", reason());
        return false;
    }
    opened = open_tgt(device, tgt->qp_num);
    if (NULL != opened) {
        report(GOOD, device->name, "ibv_open_qp", NULL, "a TGT QP was opened by another domain handle");
    } else {
        report(POOR, device->name, "ibv_open_qp",
               "install a newer rdma-core: each TGT QP goes with the process that made it", "it does not work: %s",
               strerror(reason()));
    }
    cJSON_AddBoolToObject(device->facts, "open_qp", NULL != opened);
    destroy_qp(device->name, opened);
    destroy_qp(device->name, tgt);
    return true;
}

/* ---- making the queues; each returns NULL or the verb that failed, with errno ---- */

static const char *make_cqs(struct trial *t)
{
    const struct xrc_recvq *q = &t->options->recvq;
    int recvs = 0, most = t->device->attr.max_cqe;
    for (unsigned i = 0; i < q->nclasses; ++i) {
        recvs += (int) q->c[i].num;
    }
    t->recv_cq = ibv_create_cq(t->device->context[0], recvs, NULL, NULL, 0);
    t->send_cq = NULL != t->recv_cq
                     ? ibv_create_cq(t->device->context[0], most < CQ_SENDS ? most : CQ_SENDS, NULL, NULL, 0)
                     : NULL;
    return NULL == t->send_cq ? "ibv_create_cq" : NULL;
}

static const char *register_memory(struct trial *t)
{
    size_t page = (size_t) sysconf(_SC_PAGESIZE);
    t->size = xrc_recvq_locked(&t->options->recvq, page).start;
    errno = posix_memalign(&t->memory, page, t->size);
    if (0 != errno) {
        t->memory = NULL;
        return "posix_memalign of the receive buffers";
    }
    memset(t->memory, 0, t->size);
    t->mr = ibv_reg_mr(t->device->pd, t->memory, t->size, IBV_ACCESS_LOCAL_WRITE);
    return NULL == t->mr ? "ibv_reg_mr of the receive buffers" : NULL;
}

static const char *make_srqs(struct trial *t)
{
    const struct xrc_recvq *q = &t->options->recvq;
    struct ibv_srq_attr limit = {.srq_limit = 1};
    for (unsigned i = 0; i < q->nclasses; ++i) {
        struct ibv_srq_init_attr_ex init = {.attr = {.max_wr = q->c[i].num, .max_sge = 1},
                                            .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD
                                                         | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
                                            .srq_type = IBV_SRQT_XRC,
                                            .pd = t->device->pd,
                                            .xrcd = t->device->xrcd[0],
                                            .cq = t->recv_cq};
        t->srq[i] = ibv_create_srq_ex(t->device->context[0], &init);
        if (NULL == t->srq[i]) {
            return "ibv_create_srq_ex(XRC)";
        }
    }
    errno = ibv_get_srq_num(t->srq[0], &t->srqn);
    if (0 != errno) {
        return "ibv_get_srq_num";
    }
    t->no_limit = 0 != ibv_modify_srq(t->srq[0], &limit, IBV_SRQ_LIMIT);
    return NULL;
}

/* An HCA says how much it takes inline only by refusing. */
static const char *make_ini(struct trial *t)
{
    struct ibv_qp_init_attr_ex init;
    for (uint32_t most = INLINE_MOST;; most = most > 64 ? most / 2 : 0) {
        init = (struct ibv_qp_init_attr_ex){
            .send_cq = t->send_cq,
            .cap = {.max_send_wr = t->options->recvq.nclasses + 1, .max_send_sge = 1, .max_inline_data = most},
            .qp_type = IBV_QPT_XRC_SEND,
            .comp_mask = IBV_QP_INIT_ATTR_PD,
            .pd = t->device->pd};
        t->ini = ibv_create_qp_ex(t->device->context[0], &init);
        if (NULL != t->ini) {
            t->max_inline = init.cap.max_inline_data;
            return NULL;
        }
        if (0 == most || (EINVAL != errno && ENOMEM != errno)) {
            return "ibv_create_qp_ex(XRC_SEND)";
        }
    }
}

static const char *make_ud(struct trial *t)
{
    struct ibv_qp_init_attr init = {
        .send_cq = t->send_cq,
        .recv_cq = t->send_cq,
        .cap = {.max_send_wr = XRC_UD_SENDS, .max_recv_wr = XRC_UD_RECVS, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_UD,
        .sq_sig_all = 1};
    t->ud = ibv_create_qp(t->device->pd, &init);
    return NULL == t->ud ? "ibv_create_qp(UD)" : NULL;
}

static const char *make_a_tgt(struct trial *t)
{
    t->tgt = make_tgt(t->device);
    return NULL == t->tgt ? "ibv_create_qp_ex(XRC_RECV)" : NULL;
}

/* ---- connecting INI and TGT ---- */

static int to_init(const struct trial *t, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = t->port->number};
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static struct ibv_qp_attr rtr_attr(const struct trial *t, uint32_t qpn)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = t->port->attr.active_mtu,
                               .dest_qp_num = qpn,
                               .rq_psn = PSN,
                               .max_dest_rd_atomic = 1,
                               .min_rnr_timer = RNR_TIMER,
                               .ah_attr = {.dlid = t->port->attr.lid, .port_num = t->port->number}};
    if (IBV_LINK_LAYER_ETHERNET == t->port->attr.link_layer) {
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.dgid = t->port->gid;
        attr.ah_attr.grh.hop_limit = HOPS;
    }
    return attr;
}

static struct ibv_qp_attr rts_attr(void)
{
    return (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .timeout = TIMEOUT,
                                .retry_cnt = RETRIES,
                                .rnr_retry = RETRIES,
                                .sq_psn = PSN,
                                .max_rd_atomic = 1};
}

/* The masks of btl_xrc_path.c: an INI has no responder, a TGT no requester. */
static const char *connect_both(struct trial *t)
{
    struct ibv_qp_attr rtr = rtr_attr(t, t->ini->qp_num), rts = rts_attr();
    int rc = to_init(t, t->tgt);
    if (0 == rc) {
        rc = ibv_modify_qp(t->tgt, &rtr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
                               | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    }
    if (0 == rc) {
        rc = ibv_modify_qp(t->tgt, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN);
    }
    if (0 != rc) {
        errno = rc;
        return "ibv_modify_qp of the TGT QP";
    }
    rtr = rtr_attr(t, t->tgt->qp_num);
    rc = to_init(t, t->ini);
    if (0 == rc) {
        rc = ibv_modify_qp(t->ini, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
    }
    if (0 == rc) {
        rc = ibv_modify_qp(t->ini, &rts,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN
                               | IBV_QP_MAX_QP_RD_ATOMIC);
    }
    errno = rc;
    return 0 != rc ? "ibv_modify_qp of the INI QP" : NULL;
}

/* ---- the message ---- */

static const char *post_both(struct trial *t)
{
    struct ibv_sge into = {(uintptr_t) t->memory, MESSAGE, t->mr->lkey};
    struct ibv_sge from = {(uintptr_t) t->memory + MESSAGE, MESSAGE, t->mr->lkey};
    struct ibv_recv_wr recv = {.sg_list = &into, .num_sge = 1}, *bad_recv;
    struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED},
                       *bad_send;
    send.qp_type.xrc.remote_srqn = t->srqn;
    memset((char *) t->memory + MESSAGE, 0xa5, MESSAGE);
    errno = ibv_post_srq_recv(t->srq[0], &recv, &bad_recv);
    if (0 != errno) {
        return "ibv_post_srq_recv";
    }
    errno = ibv_post_send(t->ini, &send, &bad_send);
    return 0 != errno ? "ibv_post_send" : NULL;
}

/* The next completion; false when there is none in time, as it must never be. */
static bool wait_for(struct ibv_cq *cq, struct ibv_wc *wc)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    time_t until = now.tv_sec + PATIENCE_S;
    int n;
    while (0 == (n = ibv_poll_cq(cq, 1, wc)) && now.tv_sec < until) {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    return 1 == n;
}

/* A send ends in any case, by its acknowledgement or by the retries. Once acknowledged, the receive has ended, too. */
static bool message_arrives(struct trial *t)
{
    struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
    const char *advice =
        "the port does not reach itself: see the counters of the link (perfquery), and the kernel's log";
    bool ended = wait_for(t->send_cq, &wc) && (IBV_WC_SUCCESS != wc.status || wait_for(t->recv_cq, &wc));
    if (!ended || IBV_WC_SUCCESS != wc.status) {
        report(BAD, t->port->about, "message", advice, "sent, but %s",
               ended ? ibv_wc_status_str(wc.status) : "nothing came of it");
        return false;
    }
    if (wc.byte_len != MESSAGE || 0 != memcmp(t->memory, (char *) t->memory + MESSAGE, MESSAGE)) {
        report(BAD, t->port->about, "message", advice, "another one arrived than was sent");
        return false;
    }
    return true;
}

/* ---- all of it ---- */

static void destroy_queues(struct trial *t)
{
    destroy_qp(t->port->about, t->ini);
    destroy_qp(t->port->about, t->tgt);
    destroy_qp(t->port->about, t->ud);
    for (unsigned i = 0; i < XRC_MAX_CLASSES; ++i) {
        int rc = NULL != t->srq[i] ? ibv_destroy_srq(t->srq[i]) : 0;
        if (0 != rc) {
            trial_failed(t->port->about, "clean-up", "ibv_destroy_srq", rc);
        }
    }
    struct ibv_cq *const cqs[] = {t->send_cq, t->recv_cq};
    for (unsigned i = 0; i < 2; ++i) {
        int rc = NULL != cqs[i] ? ibv_destroy_cq(cqs[i]) : 0;
        if (0 != rc) {
            trial_failed(t->port->about, "clean-up", "ibv_destroy_cq", rc);
        }
    }
    int rc = NULL != t->mr ? ibv_dereg_mr(t->mr) : 0;
    if (0 != rc) {
        trial_failed(t->port->about, "clean-up", "ibv_dereg_mr", rc);
    }
    free(t->memory);
}

static bool run(struct trial *t)
{
    static const char *(*const steps[])(struct trial *) = {make_cqs, register_memory, make_srqs,    make_ini,
                                                           make_ud,  make_a_tgt,      connect_both, post_both};
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); ++i) {
        errno = 0;
        const char *verb = steps[i](t);
        if (NULL != verb) {
            trial_failed(t->port->about, "queues", verb, reason());
            return false;
        }
    }
    return message_arrives(t);
}

bool trial_port(const struct options *options, struct device *device, const struct port *port)
{
    struct trial trial = {.options = options, .device = device, .port = port};
    bool good = run(&trial);
    destroy_queues(&trial);
    if (good && trial.no_limit) {
        report(POOR, port->about, "SRQ limit", "nothing has to be: the receive queues grow when they are looked at",
               "ibv_modify_srq(IBV_SRQ_LIMIT) does not work");
    }
    if (good) {
        report(
            GOOD, port->about, "queues", NULL,
            "%u XRC SRQs, INI, TGT and UD QP, %zu KiB registered, up to %u bytes inline; a message went through them",
            options->recvq.nclasses, trial.size >> 10, trial.max_inline);
    }
    return good;
}
