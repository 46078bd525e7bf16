/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_conn.h"

#include <errno.h>
#include <sys/random.h>

#include "btl_xrc_apm.h"
#include "btl_xrc_error.h"
#include "btl_xrc_gone.h"
#include "btl_xrc_path.h"
#include "btl_xrc_room.h"
#include "btl_xrc_service.h"
#include "btl_xrc_ud.h"

/* So many REQUESTs to one rank without an answer, then another of its domain is asked. */
#define PATIENCE 4

/* Service: those being connected, and when they are looked at again at the latest; 0: nothing is due. */
static struct xrc_conn *active;
static uint64_t next_look_ms;

/* Service: farewells that no room was found for yet. */
static struct xrc_link *farewells;

/* ---- MPI side ---- */

static struct ibv_qp *create_ini(mca_btl_xrc_module_t *module, uint32_t depth, uint32_t max_inline,
                                 struct ibv_qp_init_attr_ex *init)
{
    *init =
        (struct ibv_qp_init_attr_ex){.send_cq = module->send_cq,
                                     .cap = {.max_send_wr = depth, .max_send_sge = 1, .max_inline_data = max_inline},
                                     .qp_type = IBV_QPT_XRC_SEND,
                                     .comp_mask = IBV_QP_INIT_ATTR_PD,
                                     .pd = module->device->pd};
    return ibv_create_qp_ex(module->device->context, init);
}

/*
 * An HCA can rarely give its maximum depth together with inline data, and says so only by refusing: ask for less depth
 * first, then, where nobody counts on it yet, for less inline.
 */
struct ibv_qp *xrc_conn_make_ini(mca_btl_xrc_module_t *module, uint32_t *depth, uint32_t *max_inline, bool less_inline)
{
    struct ibv_qp_init_attr_ex init;
    uint32_t least = mca_btl_xrc_component.recvq.nclasses + 1, most = (uint32_t) module->device->attr.max_qp_wr;
    uint32_t want_depth = *depth < most ? *depth : most, want_inline = *max_inline;
    for (;;) {
        for (uint32_t d = want_depth; d >= least || d == want_depth; d /= 2) {
            struct ibv_qp *ini = create_ini(module, d, want_inline, &init);
            if (NULL != ini) {
                *depth = init.cap.max_send_wr < d ? init.cap.max_send_wr : d;
                *max_inline = init.cap.max_inline_data < *max_inline ? init.cap.max_inline_data : *max_inline;
                return ini;
            }
            if (EINVAL != errno && ENOMEM != errno) {
                return NULL;
            }
        }
        if (0 == want_inline || !less_inline) {
            return NULL;
        }
        want_inline = want_inline > 64 ? want_inline / 2 : 0;
    }
}

static int make_ini_of(struct xrc_node *node)
{
    mca_btl_xrc_module_t *module = node->module;
    bool first = 0 == node->max_inline; /* else puts that wait may count on what the last one had */
    uint32_t depth = xrc_room_all_windows(), max_inline = first ? module->max_inline : node->max_inline;
    struct ibv_qp *ini = xrc_conn_make_ini(module, &depth, &max_inline, first);
    if (NULL == ini) {
        xrc_error_verb(module->device, "ibv_create_qp(XRC_SEND)", errno);
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    int rc = xrc_path_init(module, ini, 0);
    if (0 != rc) {
        xrc_error_verb(module->device, "ibv_modify_qp(INIT)", rc);
        ibv_destroy_qp(ini);
        return OPAL_ERROR;
    }
    node->ini = ini;
    xrc_node_set_ini_qpn(node, ini->qp_num);
    node->max_inline = max_inline;
    xrc_room_begin(node, depth);
    node->last_posted = node->drained = false;
    xrc_count(&module->reach.inis, 1);
    node->generation = __atomic_add_fetch(&mca_btl_xrc_component.generations, 1, __ATOMIC_RELAXED);
    xrc_count(&mca_btl_xrc_component.counters.ini_qps, 1);
    return OPAL_SUCCESS;
}

static void add_contact(struct xrc_conn *conn, const struct mca_btl_base_endpoint_t *endpoint)
{
    conn->contact[conn->ncontacts++] = (struct xrc_contact){endpoint->name, endpoint->ud};
}

static void add_contacts(struct xrc_conn *conn, const struct mca_btl_base_endpoint_t *first)
{
    const struct xrc_node *node = conn->node;
    if (NULL != first) {
        add_contact(conn, first);
    }
    OPAL_THREAD_LOCK(&node->module->lock);
    for (const struct mca_btl_base_endpoint_t *e = node->endpoints; NULL != e && conn->ncontacts < XRC_CONN_CONTACTS;
         e = e->next) {
        if (e != first) {
            add_contact(conn, e);
        }
    }
    OPAL_THREAD_UNLOCK(&node->module->lock);
}

int xrc_conn_open(struct xrc_node *node, const struct mca_btl_base_endpoint_t *first)
{
    mca_btl_xrc_module_t *module = node->module;
    struct xrc_conn *conn = (struct xrc_conn *) calloc(1, sizeof(*conn));
    if (NULL == conn) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    conn->node = node;
    add_contacts(conn, first);
    int rc = conn->ncontacts > 0 ? make_ini_of(node) : OPAL_ERR_UNREACH;
    if (OPAL_SUCCESS != rc) {
        free(conn);
        return rc;
    }
    uint32_t psn = 0;
    if (getrandom(&psn, sizeof(psn), GRND_NONBLOCK) != (ssize_t) sizeof(psn)) {
        psn = (uint32_t) xrc_service_now_ms() ^ node->ini->qp_num;
    }
    conn->module = module;
    conn->ini = node->ini;
    conn->psn = psn & 0xffffffu;
    conn->generation = node->generation;
    conn->domain = node->domain;
    conn->remote = node->addr;
    node->conn = conn;
    xrc_service_connect(conn);
    return OPAL_SUCCESS;
}

static void take_nudge(struct xrc_nudge *nudge, bool serve)
{
    if (serve) {
        xrc_node_nudge(nudge->node);
    }
    free(nudge);
}

static void take_gone(mca_btl_xrc_module_t *module, struct xrc_gone *gone, bool serve)
{
    if (serve) {
        xrc_node_gone(module, gone);
    }
    free(gone);
}

/* Also at the end: it may have been found out only then. */
static void take_alone(const mca_btl_xrc_module_t *module, struct xrc_result *result)
{
    xrc_show_help("no ibv_open_qp", opal_process_info.nodename, module->device->name);
    free(result);
}

static void take_conn(struct xrc_conn *conn, bool serve)
{
    if (serve) {
        xrc_node_connected(conn);
    } else {
        conn->node->conn = NULL;
        free(conn);
    }
}

void xrc_conn_take_results(mca_btl_xrc_module_t *module, bool serve)
{
    struct xrc_link *link = xrc_stack_take(&module->results), *next;
    for (; NULL != link; link = next) {
        struct xrc_result *result = XRC_CONTAINER(link, struct xrc_result, link);
        next = link->next;
        switch (result->kind) {
        case XRC_RESULT_CONN: take_conn(XRC_CONTAINER(result, struct xrc_conn, result), serve); break;
        case XRC_RESULT_NUDGE: take_nudge(XRC_CONTAINER(result, struct xrc_nudge, result), serve); break;
        case XRC_RESULT_ALONE: take_alone(module, result); break;
        case XRC_RESULT_GONE: take_gone(module, XRC_CONTAINER(result, struct xrc_gone, result), serve); break;
        }
    }
}

void xrc_conn_farewell(const struct xrc_node *node, uint32_t ini_qpn)
{
    struct xrc_farewell *farewell = (struct xrc_farewell *) calloc(1, sizeof(*farewell));
    if (NULL == farewell || 0 == node->answerer.ud.qpn) {
        free(farewell);
        return;
    }
    farewell->module = node->module;
    farewell->contact = node->answerer;
    farewell->domain = node->domain;
    farewell->remote = node->addr;
    farewell->generation = node->generation;
    farewell->ini_qpn = ini_qpn;
    xrc_service_farewell(farewell);
}

/* ---- service thread ---- */

static uint8_t ask_rd_atomic(const mca_btl_xrc_module_t *module)
{
    int asked = mca_btl_xrc_component.params.rd_atomic, most = module->device->attr.max_qp_init_rd_atom;
    return (uint8_t) (asked < most ? asked : most);
}

static void send_request(struct xrc_conn *conn)
{
    struct xrc_msg msg = {.type = XRC_MSG_REQUEST,
                          .module = conn->module->index,
                          .domain = conn->domain,
                          .generation = conn->generation,
                          .ini_qpn = conn->ini->qp_num,
                          .ini_psn = conn->psn,
                          .rd_atomic = ask_rd_atomic(conn->module)};
    xrc_count(&mca_btl_xrc_component.counters.requests, 1);
    xrc_ud_send(conn->module, &conn->contact[conn->current], &conn->remote, &msg);
    conn->due_ms = xrc_service_now_ms() + xrc_ini_backoff_ms(conn->attempt, conn->psn ^ conn->attempt * 37u);
    ++conn->attempt;
}

static int connect_ini(struct xrc_conn *conn)
{
    struct xrc_path path = {.remote = conn->answer.addr,
                            .remote_qpn = conn->answer.tgt_qpn,
                            .remote_psn = conn->answer.tgt_psn,
                            .local_psn = conn->psn,
                            .rd_atomic = conn->answer.rd_atomic};
    return xrc_path_ini_ready(conn->module, conn->ini, &path);
}

static void note_time(const struct xrc_conn *conn)
{
    struct xrc_counters *c = &mca_btl_xrc_component.counters;
    int64_t us = (int64_t) (xrc_service_now_us() - conn->began_us);
    __atomic_store_n(&c->connect_us, us, __ATOMIC_RELAXED);
    xrc_count_most(&c->connect_us_most, us);
}

/* Back to the MPI side, whatever became of it. */
static void hand_back(struct xrc_conn *conn)
{
    struct xrc_conn **link = &active;
    while (NULL != *link && *link != conn) {
        link = &(*link)->next;
    }
    if (NULL != *link) {
        *link = conn->next;
    }
    xrc_stack_push(&conn->module->results, &conn->result.link);
}

static void send_farewell(const struct xrc_farewell *farewell)
{
    struct xrc_msg msg = {.type = XRC_MSG_DISCONNECT,
                          .module = farewell->module->index,
                          .domain = farewell->domain,
                          .generation = farewell->generation,
                          .ini_qpn = farewell->ini_qpn};
    xrc_ud_send(farewell->module, &farewell->contact, &farewell->remote, &msg);
}

bool xrc_conn_service_say_farewells(bool at_once)
{
    for (struct xrc_link **link = &farewells; NULL != *link;) {
        struct xrc_farewell *farewell = XRC_CONTAINER(*link, struct xrc_farewell, link);
        if (at_once || xrc_ud_has_room(farewell->module->ud)) {
            *link = farewell->link.next;
            send_farewell(farewell);
            free(farewell);
        } else {
            link = &farewell->link.next;
        }
    }
    return NULL != farewells;
}

/* To whom we have asked last, of an INI that nobody else knows of yet. */
static void part(const struct xrc_conn *conn)
{
    struct xrc_farewell *farewell = (struct xrc_farewell *) calloc(1, sizeof(*farewell));
    if (NULL != farewell) {
        *farewell = (struct xrc_farewell){.module = conn->module,
                                          .contact = conn->contact[conn->current],
                                          .domain = conn->domain,
                                          .remote = conn->remote,
                                          .generation = conn->generation,
                                          .ini_qpn = conn->ini->qp_num};
        xrc_conn_service_farewell(farewell);
    }
}

/* Do what follows from @a event. Once handed back, @a conn may be gone already. */
static void step(struct xrc_conn *conn, enum xrc_ini_event event)
{
    struct xrc_ini_step next = xrc_ini_next(conn->state, event);
    XRC_VERBOSE(20, "INI 0x%06x: %s in %s: %s", conn->ini->qp_num, xrc_ini_event_name(event),
                xrc_ini_state_name(conn->state), xrc_ini_action_name(next.action));
    conn->state = next.state;
    switch (next.action) {
    case XRC_INI_DO_NEXT_CONTACT:
        conn->current = (conn->current + 1) % conn->ncontacts;
        /* After a REJECT the timer still runs: ranks that all refuse must not make us ask without end. */
        if (xrc_service_now_ms() >= conn->due_ms) {
            send_request(conn);
        }
        break;
    case XRC_INI_DO_RESEND:
        xrc_count(&mca_btl_xrc_component.counters.repeats, 1);
        send_request(conn);
        break;
    case XRC_INI_DO_REQUEST: send_request(conn); break;
    case XRC_INI_DO_CONNECT:
        conn->err = connect_ini(conn);
        if (0 == conn->err) {
            conn->node->apm = xrc_apm_begin(conn);
        }
        if (0 == conn->err && !xrc_node_service_ready(conn)) {
            conn->err = EIO;
        }
        if (0 != conn->err) {
            conn->state = xrc_ini_next(conn->state, XRC_INI_EV_BROKEN).state;
        } else {
            note_time(conn);
        }
        hand_back(conn);
        break;
    case XRC_INI_DO_ABANDON:
    case XRC_INI_DO_DISCONNECT:
        part(conn);
        hand_back(conn);
        break;
    case XRC_INI_DO_REPORT: hand_back(conn); break;
    case XRC_INI_DO_DRAIN: /* these two are the MPI side's */
    case XRC_INI_DO_LET_GO:
    case XRC_INI_DO_NOTHING:
    case XRC_INI_ACTIONS: break;
    }
}

void xrc_conn_service_begin(struct xrc_conn *conn)
{
    conn->began_us = xrc_service_now_us();
    conn->began_ms = conn->began_us / 1000u;
    conn->deadline_ms = conn->began_ms + 1000u * (uint64_t) mca_btl_xrc_component.params.connect_timeout;
    conn->next = active;
    active = conn;
    step(conn, XRC_INI_EV_OPEN);
}

void xrc_conn_service_farewell(struct xrc_farewell *farewell)
{
    farewell->link.next = farewells;
    farewells = &farewell->link;
    xrc_conn_service_say_farewells(false);
}

static struct xrc_conn *find(const mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    struct xrc_conn *conn = active;
    while (NULL != conn
           && (conn->module != module || conn->ini->qp_num != msg->ini_qpn || conn->generation != msg->generation)) {
        conn = conn->next;
    }
    return conn;
}

/* The rank that answered is whom we say farewell to, whoever we had asked last. */
static void note_answerer(struct xrc_conn *conn, const struct xrc_msg *msg)
{
    for (unsigned i = 0; i < conn->ncontacts; ++i) {
        if (conn->contact[i].name.job == msg->src.job && conn->contact[i].name.vpid == msg->src.vpid) {
            conn->current = i;
        }
    }
}

static bool same_domain(const struct xrc_conn *conn, const struct xrc_msg *msg)
{
    return 0 == memcmp(&conn->domain, &msg->domain, sizeof(msg->domain));
}

/* A RESPONSE that has been overtaken by the word that its TGT is gone. */
static bool went_before(const struct xrc_conn *conn, const struct xrc_msg *msg)
{
    return msg->tgt_qpn == conn->gone_qpn && msg->tgt_psn == conn->gone_psn;
}

bool xrc_conn_service_gone(const mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    struct xrc_conn *conn = find(module, msg);
    if (NULL != conn && same_domain(conn, msg)) {
        conn->gone_qpn = msg->tgt_qpn;
        conn->gone_psn = msg->tgt_psn;
        step(conn, XRC_INI_EV_GONE);
    }
    return NULL != conn;
}

void xrc_conn_service_message(mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    struct xrc_conn *conn = find(module, msg);
    if (NULL == conn) {
        return;
    }
    if (!same_domain(conn, msg) || (XRC_MSG_RESPONSE == msg->type && went_before(conn, msg))) {
        step(conn, XRC_INI_EV_STALE);
    } else if (XRC_MSG_RESPONSE == msg->type) {
        conn->answer = *msg;
        note_answerer(conn, msg);
        step(conn, XRC_INI_EV_RESPONSE);
    } else {
        conn->reason = msg->reason;
        step(conn, XRC_INI_EV_REJECT);
    }
}

void xrc_conn_service_alone(mca_btl_xrc_module_t *module)
{
    struct xrc_result *result = (struct xrc_result *) calloc(1, sizeof(*result));
    if (NULL != result) {
        result->kind = XRC_RESULT_ALONE;
        xrc_stack_push(&module->results, &result->link);
    }
}

static enum xrc_ini_event what_is_due(const struct xrc_conn *conn, uint64_t now_ms)
{
    if (__atomic_load_n(&conn->close_wanted, __ATOMIC_ACQUIRE)) {
        return XRC_INI_EV_CLOSE;
    }
    if (now_ms >= conn->deadline_ms) {
        return XRC_INI_EV_EXPIRED;
    }
    if (now_ms >= conn->due_ms) {
        return 0 == conn->attempt % PATIENCE ? XRC_INI_EV_SILENT : XRC_INI_EV_TIMER;
    }
    return XRC_INI_EVENTS;
}

/* Time in which this process was stopped is none in which an answer could have come. */
static uint64_t time_lost(uint64_t now_ms)
{
    return 0 != next_look_ms && now_ms > next_look_ms ? now_ms - next_look_ms : 0;
}

int xrc_conn_service_tick(uint64_t now_ms)
{
    int wait = -1;
    uint64_t lost = time_lost(now_ms);
    for (struct xrc_conn *conn = active, *next; NULL != conn; conn = next) {
        next = conn->next;
        conn->deadline_ms += lost;
        enum xrc_ini_event event = what_is_due(conn, now_ms);
        if (XRC_INI_EVENTS != event) {
            step(conn, event);
        }
    }
    for (const struct xrc_conn *conn = active; NULL != conn; conn = conn->next) {
        int left = conn->due_ms > now_ms ? (int) (conn->due_ms - now_ms) : 0;
        wait = wait < 0 || left < wait ? left : wait;
    }
    next_look_ms = wait < 0 ? 0 : now_ms + (uint64_t) wait;
    return wait;
}

void xrc_conn_service_stop(void)
{
    while (NULL != active) {
        step(active, XRC_INI_EV_CLOSE);
    }
}
