/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_ud.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include "btl_xrc_path.h"
#include "btl_xrc_service.h"

#define UD_GRH 40u

_Static_assert(UD_GRH + XRC_MSG_BYTES <= XRC_UD_SLOT, "a message and its GRH fit into a slot");

/* wr_id of sends; receives count from 0. */
#define UD_SEND_ID 0x10000u

struct xrc_ud {
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *memory;
    uint32_t qkey;
    uint32_t psn;
    struct ibv_ah *ah[XRC_UD_SENDS]; /* of sends on the way; NULL: free */
};

static uint8_t *slot(const struct xrc_ud *ud, unsigned i)
{
    return ud->memory + (size_t) i * XRC_UD_SLOT;
}

static int post_recv(struct xrc_ud *ud, unsigned i)
{
    struct ibv_sge sge = {(uintptr_t) slot(ud, i), XRC_UD_SLOT, ud->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
    return ibv_post_recv(ud->qp, &wr, &bad);
}

static int make_memory(mca_btl_xrc_module_t *module, struct xrc_ud *ud)
{
    size_t page = (size_t) sysconf(_SC_PAGESIZE);
    size_t size = ((size_t) (XRC_UD_RECVS + XRC_UD_SENDS) * XRC_UD_SLOT + page - 1) / page * page;
    int rc = posix_memalign((void **) &ud->memory, page, size);
    if (0 != rc) {
        return rc;
    }
    memset(ud->memory, 0, size);
    ud->mr = ibv_reg_mr(module->device->pd, ud->memory, size, IBV_ACCESS_LOCAL_WRITE);
    if (NULL == ud->mr) {
        return errno;
    }
    xrc_count(&mca_btl_xrc_component.counters.wireup_bytes, (int64_t) size);
    return 0;
}

static int make_queues(mca_btl_xrc_module_t *module, struct xrc_ud *ud)
{
    struct ibv_context *context = module->device->context;
    ud->channel = ibv_create_comp_channel(context);
    if (NULL == ud->channel) {
        return errno;
    }
    if (fcntl(ud->channel->fd, F_SETFL, fcntl(ud->channel->fd, F_GETFL) | O_NONBLOCK) < 0) {
        return errno;
    }
    ud->cq = ibv_create_cq(context, XRC_UD_RECVS + XRC_UD_SENDS, ud, ud->channel, 0);
    if (NULL == ud->cq) {
        return errno;
    }
    struct ibv_qp_init_attr init = {
        .send_cq = ud->cq,
        .recv_cq = ud->cq,
        .cap = {.max_send_wr = XRC_UD_SENDS, .max_recv_wr = XRC_UD_RECVS, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_UD,
        .sq_sig_all = 1};
    ud->qp = ibv_create_qp(module->device->pd, &init);
    return NULL != ud->qp ? 0 : errno;
}

static int start_qp(const mca_btl_xrc_module_t *module, struct xrc_ud *ud)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = (uint16_t) mca_btl_xrc_component.params.pkey_index,
                               .port_num = module->addr.port,
                               .qkey = ud->qkey};
    int rc = ibv_modify_qp(ud->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    for (unsigned i = 0; i < XRC_UD_RECVS && 0 == rc; ++i) {
        rc = post_recv(ud, i);
    }
    if (0 == rc) {
        attr.qp_state = IBV_QPS_RTR;
        rc = ibv_modify_qp(ud->qp, &attr, IBV_QP_STATE);
    }
    if (0 == rc) {
        attr.qp_state = IBV_QPS_RTS;
        attr.sq_psn = ud->psn;
        rc = ibv_modify_qp(ud->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
    }
    return 0 == rc ? ibv_req_notify_cq(ud->cq, 0) : rc;
}

int xrc_ud_create(mca_btl_xrc_module_t *module)
{
    struct xrc_ud *ud = (struct xrc_ud *) calloc(1, sizeof(*ud));
    if (NULL == ud) {
        return ENOMEM;
    }
    module->ud = ud;
    uint32_t random[2];
    if (getrandom(random, sizeof(random), 0) != (ssize_t) sizeof(random)) {
        return errno;
    }
    ud->qkey = random[0] & 0x7fffffffu; /* the top bit is for privileged users */
    ud->psn = random[1] & 0xffffffu;
    int rc = make_memory(module, ud);
    if (0 == rc) {
        rc = make_queues(module, ud);
    }
    return 0 == rc ? start_qp(module, ud) : rc;
}

void xrc_ud_destroy(mca_btl_xrc_module_t *module)
{
    struct xrc_ud *ud = module->ud;
    if (NULL == ud) {
        return;
    }
    module->ud = NULL;
    if (NULL != ud->qp) {
        ibv_destroy_qp(ud->qp);
    }
    for (unsigned i = 0; i < XRC_UD_SENDS; ++i) {
        if (NULL != ud->ah[i]) {
            ibv_destroy_ah(ud->ah[i]);
        }
    }
    if (NULL != ud->cq) {
        ibv_destroy_cq(ud->cq);
    }
    if (NULL != ud->channel) {
        ibv_destroy_comp_channel(ud->channel);
    }
    if (NULL != ud->mr) {
        xrc_count(&mca_btl_xrc_component.counters.wireup_bytes, -(int64_t) ud->mr->length);
        ibv_dereg_mr(ud->mr);
    }
    free(ud->memory);
    free(ud);
}

struct xrc_ud_addr xrc_ud_address(const struct xrc_ud *ud)
{
    return (struct xrc_ud_addr){ud->qp->qp_num, ud->qkey};
}

int xrc_ud_fd(const struct xrc_ud *ud)
{
    return ud->channel->fd;
}

static int free_send(const struct xrc_ud *ud)
{
    for (unsigned i = 0; i < XRC_UD_SENDS; ++i) {
        if (NULL == ud->ah[i]) {
            return (int) i;
        }
    }
    return -1;
}

bool xrc_ud_has_room(const struct xrc_ud *ud)
{
    return free_send(ud) >= 0;
}

bool xrc_ud_is_sending(const struct xrc_ud *ud)
{
    bool any = false;
    for (unsigned i = 0; i < XRC_UD_SENDS; ++i) {
        any = any || NULL != ud->ah[i];
    }
    return any;
}

static void fill_in(const mca_btl_xrc_module_t *module, const struct xrc_contact *to, struct xrc_msg *msg)
{
    msg->src = (struct xrc_name){OPAL_PROC_MY_NAME.jobid, OPAL_PROC_MY_NAME.vpid};
    msg->dst = to->name;
    msg->addr = module->addr;
    msg->ud = xrc_ud_address(module->ud);
}

void xrc_ud_send_from(mca_btl_xrc_module_t *module, const struct xrc_side *local, const struct xrc_contact *to,
                      const struct xrc_port_addr *where, struct xrc_msg *msg)
{
    struct xrc_ud *ud = module->ud;
    int i = free_send(ud);
    if (i < 0) {
        return;
    }
    struct ibv_ah_attr attr;
    xrc_path_address(module, where, &attr);
    attr.src_path_bits = local->bits;
    struct ibv_ah *ah = ibv_create_ah(module->device->pd, &attr);
    if (NULL == ah) {
        XRC_VERBOSE(1, "ibv_create_ah to LID %u: %s", where->lid, strerror(errno));
        return;
    }
    uint8_t *buf = slot(ud, XRC_UD_RECVS + (unsigned) i);
    fill_in(module, to, msg);
    msg->addr.lid = local->lid;
    xrc_msg_encode(msg, buf);
    XRC_VERBOSE(30, "%s to [%u,%u] at LID %u QPN 0x%06x: INI 0x%06x TGT 0x%06x generation %u",
                xrc_msg_type_name(msg->type), to->name.job, to->name.vpid, where->lid, to->ud.qpn, msg->ini_qpn,
                msg->tgt_qpn, msg->generation);
    struct ibv_sge sge = {(uintptr_t) buf, XRC_MSG_BYTES, ud->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = UD_SEND_ID + (unsigned) i,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED};
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = to->ud.qpn;
    wr.wr.ud.remote_qkey = to->ud.qkey;
    struct ibv_send_wr *bad;
    int rc = ibv_post_send(ud->qp, &wr, &bad);
    if (0 != rc) {
        XRC_VERBOSE(1, "ibv_post_send on the UD QP: %s", strerror(rc));
        ibv_destroy_ah(ah);
        return;
    }
    ud->ah[i] = ah;
}

void xrc_ud_send(mca_btl_xrc_module_t *module, const struct xrc_contact *to, const struct xrc_port_addr *where,
                 struct xrc_msg *msg)
{
    const struct xrc_side own = {.lid = module->addr.lid, .bits = module->path_bits, .port = module->addr.port};
    xrc_ud_send_from(module, &own, to, where, msg);
}

static bool for_us(const struct xrc_msg *msg)
{
    return msg->dst.job == OPAL_PROC_MY_NAME.jobid && msg->dst.vpid == OPAL_PROC_MY_NAME.vpid;
}

static void take_in(mca_btl_xrc_module_t *module, const struct ibv_wc *wc)
{
    struct xrc_ud *ud = module->ud;
    struct xrc_msg msg;
    unsigned i = (unsigned) wc->wr_id;
    bool good = IBV_WC_SUCCESS == wc->status && wc->byte_len > UD_GRH
                && 0 == xrc_msg_decode(slot(ud, i) + UD_GRH, wc->byte_len - UD_GRH, &msg) && for_us(&msg);
    if (IBV_WC_WR_FLUSH_ERR != wc->status && 0 != post_recv(ud, i)) {
        XRC_VERBOSE(1, "a UD receive buffer is lost");
    }
    if (!good) {
        xrc_count(&mca_btl_xrc_component.counters.bad_messages, 1);
        return;
    }
    XRC_VERBOSE(30, "%s from [%u,%u]: INI 0x%06x TGT 0x%06x generation %u", xrc_msg_type_name(msg.type), msg.src.job,
                msg.src.vpid, msg.ini_qpn, msg.tgt_qpn, msg.generation);
    xrc_service_message(module, &msg);
}

void xrc_ud_poll(mca_btl_xrc_module_t *module)
{
    struct xrc_ud *ud = module->ud;
    struct ibv_cq *cq;
    void *context;
    unsigned events = 0;
    while (0 == ibv_get_cq_event(ud->channel, &cq, &context)) {
        ++events;
    }
    if (events > 0) {
        ibv_ack_cq_events(ud->cq, events);
    }
    /* Arm first, then poll until empty: what comes between raises a new event. */
    ibv_req_notify_cq(ud->cq, 0);
    struct ibv_wc wc;
    while (ibv_poll_cq(ud->cq, 1, &wc) > 0) {
        if (wc.wr_id >= UD_SEND_ID) {
            unsigned i = (unsigned) wc.wr_id - UD_SEND_ID;
            ibv_destroy_ah(ud->ah[i]);
            ud->ah[i] = NULL;
        } else {
            take_in(module, &wc);
        }
    }
}
