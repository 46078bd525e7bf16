/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_tgt.h"

#include <errno.h>
#include <sys/random.h>

#include "btl_xrc_apm_fsm.h"
#include "btl_xrc_board.h"
#include "btl_xrc_conn.h"
#include "btl_xrc_gone.h"
#include "btl_xrc_path.h"
#include "btl_xrc_service.h"
#include "btl_xrc_ud.h"

#define REPAIRS_A_TURN 64 /* keepers are looked after in portions */
#define ASK_AGAIN_MS   100

/* A handle of this process on a TGT QP. */
struct xrc_tgt {
    struct xrc_tgt *next;
    struct ibv_qp *qp;
    uint32_t qpn;
    uint32_t slot;  /* on the board */
    uint32_t start; /* rank slot from which on the next keeper is looked for */
    uint64_t asked_ms;
    uint8_t failed_port; /* of which its initiator has still to be told; 0: none */
};

/* Another rank of the domain, copied off the board. */
struct neighbour {
    bool there;
    uint32_t slot;
    struct xrc_contact contact;
    struct xrc_port_addr addr;
};

static bool our_domain(const mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    struct xrc_uuid uuid = xrc_board_uuid(module->device->board);
    if (0 == memcmp(&uuid, &msg->domain, sizeof(uuid))) {
        return true;
    }
    xrc_count(&mca_btl_xrc_component.counters.bad_messages, 1);
    return false;
}

/* Board lock held. */
static bool listed(struct xrc_board *board, uint32_t slot, uint32_t qpn)
{
    const struct xrc_board_tgt *entry = xrc_board_tgt_at(board, slot);
    return NULL != entry && XRC_TGT_READY == entry->state && entry->tgt_qpn == qpn;
}

/* ---- handles ---- */

static struct xrc_tgt *find_handle(const struct xrc_device *device, uint32_t slot, uint32_t qpn)
{
    struct xrc_tgt *tgt = device->tgts;
    while (NULL != tgt && (tgt->slot != slot || tgt->qpn != qpn)) {
        tgt = tgt->next;
    }
    return tgt;
}

static struct xrc_tgt *add_handle(struct xrc_device *device, struct ibv_qp *qp, uint32_t slot)
{
    struct xrc_tgt *tgt = (struct xrc_tgt *) calloc(1, sizeof(*tgt));
    if (NULL != tgt) {
        tgt->qp = qp;
        tgt->qpn = qp->qp_num;
        tgt->slot = slot;
        tgt->start = xrc_board_slot(device->board) + 1 + slot; /* not everybody the same one */
        tgt->next = device->tgts;
        device->tgts = tgt;
    }
    return tgt;
}

static void drop_handle(struct xrc_device *device, struct xrc_tgt *tgt)
{
    struct xrc_tgt **link = &device->tgts;
    while (*link != tgt) {
        link = &(*link)->next;
    }
    *link = tgt->next;
    int rc = ibv_destroy_qp(tgt->qp);
    if (0 != rc) {
        XRC_VERBOSE(1, "ibv_destroy_qp of TGT 0x%06x: %s", tgt->qpn, strerror(rc));
    }
    xrc_count(&mca_btl_xrc_component.counters.tgt_closed, 1);
    free(tgt);
}

static struct ibv_qp *open_tgt(struct xrc_device *device, uint32_t qpn)
{
    struct ibv_qp_open_attr attr = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
                                    .qp_num = qpn,
                                    .xrcd = device->xrcd,
                                    .qp_type = IBV_QPT_XRC_RECV};
    return ibv_open_qp(device->context, &attr);
}

/* ---- messages between ranks of the domain ---- */

static struct neighbour neighbour_at(struct xrc_board *board, uint32_t slot)
{
    struct xrc_board_member member;
    struct neighbour n = {.there = xrc_board_member_at(board, slot, &member) && 0 != member.ud.qpn};
    if (n.there) {
        n.slot = slot;
        n.contact = (struct xrc_contact){member.name, member.ud};
        n.addr = member.addr;
    }
    return n;
}

/* From the port where the other one is: two ports of a device need not be on one fabric, and all its ranks have the same ports. */
static void send_to(mca_btl_xrc_module_t *module, const struct neighbour *to, enum xrc_msg_type type, uint32_t slot,
                    uint32_t qpn, enum xrc_msg_reason reason)
{
    struct xrc_msg msg = {.type = (uint8_t) type,
                          .reason = (uint8_t) reason,
                          .domain = xrc_board_uuid(module->device->board),
                          .slot = slot,
                          .tgt_qpn = qpn};
    mca_btl_xrc_module_t *by = xrc_path_module_at(module->device, to->addr.port);
    xrc_ud_send(NULL != by ? by : module, &to->contact, &to->addr, &msg);
}

/* A rank that does not hold @a tgt and could. Board lock held. */
static struct neighbour choose_keeper(struct xrc_board *board, const struct xrc_tgt *tgt)
{
    struct xrc_board_member member;
    uint32_t slot = xrc_board_candidate(board, xrc_board_tgt_at(board, tgt->slot), tgt->start, &member);
    return XRC_BOARD_NOBODY == slot ? (struct neighbour){0} : neighbour_at(board, slot);
}

/* One that cannot open it would never do: the next time it is another one's turn. */
static void ask_to_keep(mca_btl_xrc_module_t *module, struct xrc_tgt *tgt, const struct neighbour *other)
{
    tgt->start = other->slot + 1;
    send_to(module, other, XRC_MSG_KEEP, tgt->slot, tgt->qpn, XRC_REASON_NONE);
}

/* Take @a entry off the board, tell its other keepers, and let our own handle go. Board lock held on entry only. */
static void release_listed(mca_btl_xrc_module_t *module, struct xrc_board_tgt *entry)
{
    struct xrc_device *device = module->device;
    struct xrc_board *board = device->board;
    struct neighbour keeper[XRC_BOARD_KEEPERS];
    uint32_t slot = xrc_board_tgt_index(board, entry), qpn = entry->tgt_qpn;
    for (int k = 0; k < XRC_BOARD_KEEPERS; ++k) {
        uint32_t who = entry->keeper[k];
        keeper[k] = 0 != who && who != xrc_board_slot(board) + 1 ? neighbour_at(board, who - 1) : (struct neighbour){0};
    }
    xrc_board_tgt_remove(board, entry);
    xrc_board_unlock(board);
    for (int k = 0; k < XRC_BOARD_KEEPERS; ++k) {
        if (keeper[k].there) {
            send_to(module, &keeper[k], XRC_MSG_DROP, slot, qpn, XRC_REASON_NONE);
        }
    }
    struct xrc_tgt *tgt = find_handle(device, slot, qpn);
    if (NULL != tgt) {
        drop_handle(device, tgt);
    }
}

/* ---- requests of initiators ---- */

static struct xrc_tgt_key key_of(const mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    return (struct xrc_tgt_key){msg->src, msg->module, module->addr.port};
}

static uint8_t grant_rd_atomic(const mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    int most = module->device->attr.max_qp_rd_atom;
    return msg->rd_atomic < most ? msg->rd_atomic : (uint8_t) most;
}

static void answer(mca_btl_xrc_module_t *module, const struct xrc_msg *request, struct xrc_msg msg)
{
    struct xrc_contact to = {request->src, request->ud};
    msg.module = request->module;
    msg.domain = request->domain;
    msg.generation = request->generation;
    msg.ini_qpn = request->ini_qpn;
    xrc_ud_send(module, &to, &request->addr, &msg);
}

static void reject(mca_btl_xrc_module_t *module, const struct xrc_msg *request, enum xrc_msg_reason reason)
{
    answer(module, request, (struct xrc_msg){.type = XRC_MSG_REJECT, .reason = (uint8_t) reason});
}

static void respond(mca_btl_xrc_module_t *module, const struct xrc_msg *request, uint32_t slot, uint32_t qpn,
                    uint32_t psn)
{
    struct xrc_msg msg = {.type = XRC_MSG_RESPONSE,
                          .slot = slot,
                          .tgt_qpn = qpn,
                          .tgt_psn = psn,
                          .rd_atomic = grant_rd_atomic(module, request)};
    msg.nsides = (uint8_t) xrc_path_sides(module, msg.side);
    answer(module, request, msg);
}

static struct ibv_qp *make_tgt(mca_btl_xrc_module_t *module, const struct xrc_msg *request, uint32_t psn)
{
    struct xrc_device *device = module->device;
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = device->xrcd};
    struct ibv_qp *qp = ibv_create_qp_ex(device->context, &init);
    if (NULL == qp) {
        XRC_VERBOSE(1, "ibv_create_qp_ex(XRC_RECV) on %s: %s", device->name, strerror(errno));
        return NULL;
    }
    unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    if (IBV_ATOMIC_NONE != device->attr.atomic_cap) {
        access |= IBV_ACCESS_REMOTE_ATOMIC;
    }
    struct xrc_path path = {.remote = request->addr,
                            .remote_qpn = request->ini_qpn,
                            .remote_psn = request->ini_psn,
                            .local_psn = psn,
                            .rd_atomic = grant_rd_atomic(module, request)};
    int rc = xrc_path_init(module, qp, access);
    if (0 == rc) {
        rc = xrc_path_tgt_ready(module, qp, &path);
    }
    if (0 != rc) {
        XRC_VERBOSE(1, "TGT 0x%06x on %s does not get ready: %s", qp->qp_num, device->name, strerror(rc));
        ibv_destroy_qp(qp);
        return NULL;
    }
    return qp;
}

/* The QP is there: list it, answer, and have a second rank hold it. False: it is gone, and the entry still ours. */
static bool made(mca_btl_xrc_module_t *module, const struct xrc_msg *request, uint32_t slot, struct ibv_qp *qp,
                 uint32_t psn)
{
    struct xrc_board *board = module->device->board;
    xrc_board_lock(board);
    struct xrc_board_tgt *entry = xrc_board_tgt_at(board, slot);
    enum xrc_tgt_state now = entry->maker == xrc_board_slot(board) + 1 ? xrc_board_state(entry) : XRC_TGT_NONE;
    struct xrc_tgt_step step = xrc_tgt_next(now, XRC_TGT_EV_MADE);
    struct xrc_tgt *tgt = XRC_TGT_DO_ANSWER == step.action ? add_handle(module->device, qp, slot) : NULL;
    if (NULL == tgt) {
        xrc_board_unlock(board);
        ibv_destroy_qp(qp);
        return XRC_TGT_DO_ANSWER != step.action;
    }
    entry->tgt_qpn = qp->qp_num;
    entry->tgt_psn = psn;
    xrc_board_keep(board, entry);
    entry->state = step.state;
    struct neighbour second = module->device->no_open_qp ? (struct neighbour){0} : choose_keeper(board, tgt);
    xrc_board_unlock(board);
    xrc_count(&mca_btl_xrc_component.counters.tgt_created, 1);
    XRC_VERBOSE(10, "TGT 0x%06x made for INI 0x%06x of [%u,%u]", qp->qp_num, request->ini_qpn, request->src.job,
                request->src.vpid);
    respond(module, request, slot, qp->qp_num, psn);
    if (second.there) {
        ask_to_keep(module, tgt, &second);
    }
    return true;
}

/* Board lock held on entry, given back. */
static void create(mca_btl_xrc_module_t *module, const struct xrc_msg *request, const struct xrc_tgt_key *key)
{
    struct xrc_board *board = module->device->board;
    struct xrc_board_tgt *entry = xrc_board_tgt_add(board, key);
    if (NULL == entry) {
        xrc_board_unlock(board);
        reject(module, request, XRC_REASON_NO_RESOURCES);
        return;
    }
    entry->generation = request->generation;
    entry->ini_qpn = request->ini_qpn;
    entry->ini_addr = request->addr;
    entry->ini_ud = request->ud;
    uint32_t slot = xrc_board_tgt_index(board, entry), psn = 0;
    xrc_board_unlock(board);
    if (getrandom(&psn, sizeof(psn), GRND_NONBLOCK) != (ssize_t) sizeof(psn)) {
        psn = request->ini_psn ^ slot;
    }
    psn &= 0xffffffu;
    struct ibv_qp *qp = make_tgt(module, request, psn);
    if (NULL != qp && made(module, request, slot, qp, psn)) {
        return;
    }
    xrc_board_lock(board);
    xrc_board_tgt_remove(board, entry);
    xrc_board_unlock(board);
    reject(module, request, XRC_REASON_NO_RESOURCES);
}

void xrc_tgt_request(mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    if (!our_domain(module, msg)) {
        return;
    }
    struct xrc_board *board = module->device->board;
    struct xrc_tgt_key key = key_of(module, msg);
    xrc_board_lock(board);
    struct xrc_board_tgt *entry = xrc_board_tgt_find(board, &key);
    if (NULL != entry && xrc_board_orphaned(board, entry)
        && XRC_TGT_DO_UNLIST == xrc_tgt_next(xrc_board_state(entry), XRC_TGT_EV_ORPHANED).action) {
        xrc_board_tgt_remove(board, entry);
        entry = NULL;
    }
    enum xrc_tgt_state state = NULL != entry ? xrc_board_state(entry) : XRC_TGT_NONE;
    enum xrc_tgt_event event =
        xrc_tgt_request_event(NULL != entry ? &(struct xrc_ini_id){entry->generation, entry->ini_qpn} : NULL,
                              (struct xrc_ini_id){msg->generation, msg->ini_qpn}, module->device->leaving);
    struct xrc_tgt_step step = xrc_tgt_next(state, event);
    uint32_t slot = NULL != entry ? xrc_board_tgt_index(board, entry) : 0;
    uint32_t qpn = NULL != entry ? entry->tgt_qpn : 0, psn = NULL != entry ? entry->tgt_psn : 0;
    switch (step.action) {
    case XRC_TGT_DO_CREATE: create(module, msg, &key); break;
    case XRC_TGT_DO_REPLACE:
        release_listed(module, entry);
        xrc_tgt_request(module, msg); /* another rank may have got it, too, and be faster */
        break;
    case XRC_TGT_DO_ANSWER:
        xrc_board_unlock(board);
        respond(module, msg, slot, qpn, psn);
        break;
    case XRC_TGT_DO_REJECT:
        xrc_board_unlock(board);
        reject(module, msg, XRC_REASON_LEAVING);
        break;
    default: xrc_board_unlock(board);
    }
}

void xrc_tgt_disconnect(mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    if (!our_domain(module, msg)) {
        return;
    }
    struct xrc_board *board = module->device->board;
    struct xrc_tgt_key key = key_of(module, msg);
    xrc_board_lock(board);
    struct xrc_board_tgt *entry = xrc_board_tgt_find(board, &key);
    bool same = NULL != entry && entry->generation == msg->generation && entry->ini_qpn == msg->ini_qpn;
    if (same && XRC_TGT_DO_RELEASE == xrc_tgt_next(xrc_board_state(entry), XRC_TGT_EV_DISCONNECT).action) {
        release_listed(module, entry);
    } else {
        xrc_board_unlock(board);
    }
}

/* ---- alternate paths ---- */

static enum xrc_apm_tgt_found judge(const struct xrc_path_status *now, const struct xrc_side *local,
                                    const struct xrc_side *remote)
{
    bool in_use = xrc_path_is(&now->primary, local, remote), has_it = xrc_path_is(&now->alternate, local, remote);
    if (in_use) {
        return IBV_MIG_ARMED == now->mig ? XRC_APM_TGT_BEHIND : XRC_APM_TGT_IN_USE;
    }
    if (IBV_MIG_MIGRATED == now->mig) {
        return XRC_APM_TGT_SPENT;
    }
    if (has_it) {
        return XRC_APM_TGT_HAS_IT;
    }
    return IBV_MIG_REARM == now->mig ? XRC_APM_TGT_WAITING : XRC_APM_TGT_ELSEWISE;
}

static enum xrc_msg_reason arm(const mca_btl_xrc_module_t *module, struct ibv_qp *qp, const struct xrc_side *local,
                               const struct xrc_side *remote)
{
    struct xrc_path_status now;
    int rc = xrc_path_look(qp, &now);
    enum xrc_apm_tgt_action action =
        0 == rc && now.ready ? xrc_apm_tgt_next(judge(&now, local, remote)) : XRC_APM_TGT_DO_REFUSE;
    if (XRC_APM_TGT_DO_FOLLOW == action) {
        rc = xrc_path_migrate(qp);
        /* A packet of the initiator's may have been faster: then it has moved all the same. */
        action = XRC_APM_TGT_DO_LOAD;
    }
    if (XRC_APM_TGT_DO_LOAD == action) {
        rc = xrc_path_load(module, qp, local, remote);
        XRC_VERBOSE(10, "TGT 0x%06x: alternate path port %u LID %u to LID %u: %s", qp->qp_num, local->port, local->lid,
                    remote->lid, 0 == rc ? "loaded" : strerror(rc));
        action = 0 == rc ? XRC_APM_TGT_DO_AGREE : XRC_APM_TGT_DO_REFUSE;
    }
    return XRC_APM_TGT_DO_AGREE == action ? XRC_REASON_NONE : XRC_REASON_PATH;
}

/* Our own handle, or one for the moment. */
static enum xrc_msg_reason arm_by_number(mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    struct xrc_device *device = module->device;
    struct xrc_tgt *tgt = find_handle(device, msg->slot, msg->tgt_qpn);
    if (NULL != tgt) {
        return arm(module, tgt->qp, &msg->side[1], &msg->side[0]);
    }
    struct ibv_qp *qp = open_tgt(device, msg->tgt_qpn);
    if (NULL == qp) {
        return EOPNOTSUPP == errno || ENOSYS == errno ? XRC_REASON_UNSUPPORTED : XRC_REASON_GONE;
    }
    XRC_VERBOSE(10, "TGT 0x%06x opened for its alternate path alone", msg->tgt_qpn);
    enum xrc_msg_reason reason = arm(module, qp, &msg->side[1], &msg->side[0]);
    ibv_destroy_qp(qp);
    return reason;
}

static bool one_of_ours(const mca_btl_xrc_module_t *module, const struct xrc_side *side)
{
    return side->port <= module->device->attr.phys_port_cnt;
}

/* Where the initiator can be told that it should migrate: at its end of the alternate, where it listens there. */
static struct xrc_side initiator_at(const struct xrc_msg *msg)
{
    return 0 != msg->side[0].ud.qpn ? msg->side[0]
                                    : (struct xrc_side){.lid = msg->addr.lid, .port = msg->addr.port, .ud = msg->ud};
}

/* Under the board's lock to the end: of two ranks that are asked one after the other, the later one must win. */
void xrc_tgt_arm(mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    struct xrc_board *board = module->device->board;
    enum xrc_msg_reason reason = XRC_REASON_GONE;
    if (!our_domain(module, msg)) {
        return;
    }
    xrc_board_lock(board);
    struct xrc_board_tgt *entry = xrc_board_tgt_at(board, msg->slot);
    if (NULL != entry && XRC_TGT_READY == entry->state && entry->tgt_qpn == msg->tgt_qpn
        && entry->ini_qpn == msg->ini_qpn && entry->generation == msg->generation) {
        if ((int32_t) (msg->path_seq - entry->path_seq) < 0) {
            xrc_board_unlock(board);
            return;
        }
        entry->path_seq = msg->path_seq;
        entry->ini_side = initiator_at(msg);
        reason = one_of_ours(module, &msg->side[1]) ? arm_by_number(module, msg) : XRC_REASON_PATH;
    }
    xrc_board_unlock(board);
    struct xrc_msg reply = {.type = XRC_MSG_ARMED,
                            .reason = (uint8_t) reason,
                            .tgt_qpn = msg->tgt_qpn,
                            .slot = msg->slot,
                            .path_seq = msg->path_seq};
    reply.nsides = (uint8_t) xrc_path_sides(module, reply.side);
    answer(module, msg, reply);
}

/*
 * A TGT has no requester that would find its path dead, and its initiator's HCA has only its retries. Each keeper tells:
 * two messages where one may get lost, and where both do, the retries are still there. A TGT that migrates is nothing
 * to tell of, as it only ever follows its initiator.
 *
 * How the TGT stands and which question it was armed by is looked at under one hold of the board's lock, as arm() does:
 * so the number tells the initiator whether it has moved since.
 */

/* Armed, in use on that port, and with another port to go to. */
static bool could_move(const struct xrc_path_status *now, uint8_t port)
{
    return IBV_MIG_ARMED == now->mig && now->primary.port_num == port && now->alternate.port_num != port;
}

static void tell_to_migrate(mca_btl_xrc_module_t *by, const struct xrc_board_tgt *entry)
{
    struct xrc_contact to = {entry->key.name, entry->ini_side.ud};
    struct xrc_port_addr where = by->addr;
    struct xrc_msg msg = {.type = XRC_MSG_MIGRATE,
                          .module = (uint8_t) entry->key.module,
                          .domain = xrc_board_uuid(by->device->board),
                          .generation = entry->generation,
                          .ini_qpn = entry->ini_qpn,
                          .tgt_qpn = entry->tgt_qpn,
                          .slot = xrc_board_tgt_index(by->device->board, entry),
                          .path_seq = entry->path_seq};
    where.lid = entry->ini_side.lid;
    xrc_ud_send(by, &to, &where, &msg);
}

/* Over the alternate's port. False: later, there is no room. */
static bool tell(struct xrc_device *device, const struct xrc_tgt *tgt)
{
    struct xrc_path_status now;
    struct xrc_board *board = device->board;
    bool done = true;
    xrc_board_lock(board);
    if (listed(board, tgt->slot, tgt->qpn) && 0 == xrc_path_look(tgt->qp, &now) && could_move(&now, tgt->failed_port)) {
        mca_btl_xrc_module_t *by = xrc_path_module_at(device, now.alternate.port_num);
        done = NULL == by || xrc_ud_has_room(by->ud);
        if (NULL != by && done) {
            tell_to_migrate(by, xrc_board_tgt_at(board, tgt->slot));
        }
    }
    xrc_board_unlock(board);
    return done;
}

void xrc_tgt_tell(mca_btl_xrc_module_t *home)
{
    struct xrc_device *device = home->device;
    bool left = false;
    for (struct xrc_tgt *tgt = device->telling ? device->tgts : NULL; NULL != tgt && !left; tgt = tgt->next) {
        left = 0 != tgt->failed_port && !tell(device, tgt);
        tgt->failed_port = left ? tgt->failed_port : 0;
    }
    device->telling = left;
}

void xrc_tgt_port(mca_btl_xrc_module_t *home, uint8_t port, bool up)
{
    for (struct xrc_tgt *tgt = home->device->tgts; NULL != tgt; tgt = tgt->next) {
        if (!up) {
            tgt->failed_port = port;
        } else if (port == tgt->failed_port) {
            tgt->failed_port = 0;
        }
    }
    home->device->telling = home->device->telling || !up;
    xrc_tgt_tell(home);
}

/* ---- keeping for others ---- */

/* Open it and enter ourselves. XRC_REASON_NONE: we hold it now, or enough others do. */
static enum xrc_msg_reason take_over(mca_btl_xrc_module_t *module, uint32_t slot, uint32_t qpn)
{
    struct xrc_device *device = module->device;
    struct xrc_board *board = device->board;
    struct ibv_qp *qp = open_tgt(device, qpn);
    if (NULL == qp) {
        bool missing = EOPNOTSUPP == errno || ENOSYS == errno;
        XRC_VERBOSE(missing ? 1 : 5, "ibv_open_qp of TGT 0x%06x on %s: %s", qpn, device->name, strerror(errno));
        return missing ? XRC_REASON_UNSUPPORTED : XRC_REASON_GONE;
    }
    xrc_board_lock(board);
    bool kept = listed(board, slot, qpn) && NULL != add_handle(device, qp, slot);
    if (kept && !xrc_board_keep(board, xrc_board_tgt_at(board, slot))) {
        kept = false;
        struct xrc_tgt *unneeded = device->tgts;
        device->tgts = unneeded->next;
        free(unneeded);
    }
    xrc_board_unlock(board);
    if (!kept) {
        ibv_destroy_qp(qp);
        return XRC_REASON_NONE;
    }
    xrc_count(&mca_btl_xrc_component.counters.tgt_opened, 1);
    return XRC_REASON_NONE;
}

void xrc_tgt_keep(mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    struct xrc_device *device = module->device;
    enum xrc_msg_reason reason = XRC_REASON_NONE;
    if (!our_domain(module, msg)) {
        return;
    }
    if (device->leaving) {
        reason = XRC_REASON_LEAVING;
    } else if (NULL == find_handle(device, msg->slot, msg->tgt_qpn)) {
        xrc_board_lock(device->board);
        bool there = listed(device->board, msg->slot, msg->tgt_qpn);
        xrc_board_unlock(device->board);
        reason = there ? take_over(module, msg->slot, msg->tgt_qpn) : XRC_REASON_GONE;
    }
    struct neighbour asker = {.there = true, .contact = {msg->src, msg->ud}, .addr = msg->addr};
    send_to(module, &asker, XRC_MSG_KEPT, msg->slot, msg->tgt_qpn, reason);
}

void xrc_tgt_kept(mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    struct xrc_device *device = module->device;
    if (our_domain(module, msg) && XRC_REASON_UNSUPPORTED == msg->reason && !device->no_open_qp) {
        device->no_open_qp = true;
        xrc_conn_service_alone(module);
    }
}

void xrc_tgt_drop(mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    struct xrc_tgt *tgt = our_domain(module, msg) ? find_handle(module->device, msg->slot, msg->tgt_qpn) : NULL;
    if (NULL == tgt) {
        return;
    }
    xrc_board_lock(module->device->board);
    bool still = listed(module->device->board, msg->slot, msg->tgt_qpn);
    xrc_board_unlock(module->device->board);
    if (!still) {
        drop_handle(module->device, tgt);
    }
}

/* Write to a rank that could hold @a tgt, too, if it has fewer keepers than it should. */
static bool seek_keeper(mca_btl_xrc_module_t *home, struct xrc_tgt *tgt, uint64_t now_ms)
{
    struct xrc_board *board = home->device->board;
    struct neighbour other = {0};
    xrc_board_lock(board);
    struct xrc_board_tgt *entry = xrc_board_tgt_at(board, tgt->slot);
    if (listed(board, tgt->slot, tgt->qpn) && 0 == xrc_board_staying_keepers(board, entry)) {
        other = choose_keeper(board, tgt);
    }
    xrc_board_unlock(board);
    if (other.there && now_ms >= tgt->asked_ms + ASK_AGAIN_MS) {
        tgt->asked_ms = now_ms;
        ask_to_keep(home, tgt, &other);
    }
    return other.there;
}

void xrc_tgt_repair(mca_btl_xrc_module_t *home)
{
    struct xrc_device *device = home->device;
    uint64_t now = xrc_service_now_ms();
    struct xrc_tgt *tgt = device->tgts, *seen = NULL;
    for (unsigned n = 0; NULL != tgt && n < REPAIRS_A_TURN; ++n) {
        struct xrc_tgt *next = tgt->next;
        xrc_board_lock(device->board);
        bool still = listed(device->board, tgt->slot, tgt->qpn);
        xrc_board_unlock(device->board);
        if (!still) {
            drop_handle(device, tgt);
        } else {
            if (!device->no_open_qp) {
                seek_keeper(home, tgt, now);
            }
            seen = tgt;
        }
        tgt = next;
    }
    /* The next turn begins where this one ended. */
    if (NULL != tgt && NULL != seen) {
        struct xrc_tgt *first = device->tgts, *last = tgt;
        while (NULL != last->next) {
            last = last->next;
        }
        seen->next = NULL;
        device->tgts = tgt;
        last->next = first;
    }
}

bool xrc_tgt_hand_over(mca_btl_xrc_module_t *home)
{
    uint64_t now = xrc_service_now_ms();
    bool waiting = false;
    if (!home->device->no_open_qp) {
        for (struct xrc_tgt *tgt = home->device->tgts; NULL != tgt; tgt = tgt->next) {
            waiting = seek_keeper(home, tgt, now) || waiting;
        }
    }
    return waiting;
}

/* When nobody else keeps it, it goes with us, and its initiator hears of it. False: later, there is no room for that. */
static bool release(mca_btl_xrc_module_t *home, struct xrc_tgt *tgt, bool at_once)
{
    struct xrc_board *board = home->device->board;
    struct xrc_board_tgt entry = {0};
    bool can = true, last = false;
    xrc_board_lock(board);
    if (listed(board, tgt->slot, tgt->qpn)) {
        entry = *xrc_board_tgt_at(board, tgt->slot);
        can = at_once || xrc_gone_can_tell(home, &entry);
        last = can && xrc_board_quit(board, xrc_board_tgt_at(board, tgt->slot));
    }
    xrc_board_unlock(board);
    if (can) {
        drop_handle(home->device, tgt);
    }
    if (last) {
        xrc_gone_tell(home, &entry);
    }
    return can;
}

bool xrc_tgt_release_all(mca_btl_xrc_module_t *home, bool at_once)
{
    bool left = false;
    for (struct xrc_tgt *tgt = home->device->tgts, *next; NULL != tgt; tgt = next) {
        next = tgt->next;
        left = !release(home, tgt, at_once) || left;
    }
    return left;
}
