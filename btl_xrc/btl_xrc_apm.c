/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_apm.h"

#include <pthread.h>

#include "opal/util/printf.h"

#include "btl_xrc_apm_fsm.h"
#include "btl_xrc_error.h"
#include "btl_xrc_path.h"
#include "btl_xrc_service.h"
#include "btl_xrc_ud.h"

#define PATIENCE 4  /* so many questions to one rank for one path */
#define LOOKS    12 /* so often the HCA is asked whether it is armed; a process that never calls MPI sends nothing */
#define NEVER    UINT64_MAX

struct apm_path {
    struct xrc_side local;
    struct xrc_side remote; /* its wire-up queue is that of the rank which answered last */
};

struct xrc_apm {
    struct xrc_apm *next;
    struct xrc_node *node;
    mca_btl_xrc_module_t *module;
    struct ibv_qp *ini; /* NULL: the MPI side has taken it down */
    enum xrc_apm_state state;
    uint32_t ini_qpn;
    uint32_t generation;
    uint32_t tgt_qpn;
    uint32_t slot; /* of the TGT on its board */
    struct xrc_uuid domain;
    struct xrc_port_addr remote;
    struct xrc_contact contact[XRC_CONN_CONTACTS];
    unsigned ncontacts;
    unsigned asked;  /* contact that is being asked */
    unsigned spoken; /* contact that answered last */
    struct apm_path path[XRC_MAX_SIDES];
    unsigned npaths;
    unsigned primary;
    unsigned spare;
    uint32_t seq;
    unsigned attempt;
    unsigned looks;
    uint64_t due_ms;
};

/* Guards all of them. Held by the service thread while it works on one; MPI threads come seldom. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct xrc_apm *all;

static void step(struct xrc_apm *apm, enum xrc_apm_event event);

/* ---- MPI side ---- */

void xrc_apm_check(void)
{
    int use = mca_btl_xrc_component.params.apm;
    struct xrc_side side[XRC_MAX_SIDES];
    for (unsigned i = 0; XRC_APM_USE_OFF != use && i < mca_btl_xrc_component.nmodules; ++i) {
        const mca_btl_xrc_module_t *module = mca_btl_xrc_component.modules[i];
        if (xrc_path_sides(module, side) > 1) {
            continue;
        }
        const char *host = opal_process_info.nodename, *device = module->device->name;
        unsigned port = module->addr.port;
        if (!(module->device->attr.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG)
            || IBV_LINK_LAYER_ETHERNET == module->addr.link_layer) {
            xrc_show_help("apm not supported", host, device, port);
        } else if (XRC_APM_USE_PORTS == use) {
            xrc_show_help("apm not enough ports", host, device, port);
        } else if (XRC_APM_USE_LMC == use) {
            xrc_show_help("apm without lmc", host, device, port);
        } else {
            xrc_show_help("apm without paths", host, device, port);
        }
    }
}

void xrc_apm_release(struct xrc_apm *apm)
{
    if (NULL != apm) {
        pthread_mutex_lock(&lock);
        apm->ini = NULL;
        apm->node = NULL;
        pthread_mutex_unlock(&lock);
    }
}

char *xrc_apm_describe(const struct xrc_apm *apm)
{
    char *text = NULL;
    if (NULL != apm) {
        pthread_mutex_lock(&lock);
        const struct apm_path *p = &apm->path[apm->primary], *s = &apm->path[apm->spare];
        int rc = opal_asprintf(&text, "port %u LID %u to LID %u (in use), port %u LID %u to LID %u (%s)",
                               (unsigned) p->local.port, (unsigned) p->local.lid, (unsigned) p->remote.lid,
                               (unsigned) s->local.port, (unsigned) s->local.lid, (unsigned) s->remote.lid,
                               XRC_APM_ARMED == apm->state ? "armed" : "not armed");
        pthread_mutex_unlock(&lock);
        text = rc < 0 ? NULL : text;
    }
    return text;
}

/* ---- asking the target ---- */

static void send_question(const struct xrc_apm *apm)
{
    const struct apm_path *path = &apm->path[apm->spare];
    mca_btl_xrc_module_t *by = xrc_path_module_at(apm->module->device, path->local.port);
    struct xrc_contact to = apm->contact[apm->asked];
    struct xrc_port_addr where = apm->remote;
    struct xrc_msg msg = {.type = XRC_MSG_ARM,
                          .module = apm->module->index,
                          .domain = apm->domain,
                          .generation = apm->generation,
                          .ini_qpn = apm->ini_qpn,
                          .tgt_qpn = apm->tgt_qpn,
                          .slot = apm->slot,
                          .path_seq = apm->seq,
                          .nsides = 2,
                          .side = {path->local, path->remote}};
    bool known = path->remote.port == apm->remote.port || (apm->asked == apm->spoken && 0 != path->remote.ud.qpn);
    if (NULL == by || !known) {
        xrc_ud_send(apm->module, &to, &where, &msg);
        return;
    }
    if (path->remote.port != apm->remote.port) {
        to.ud = path->remote.ud;
    }
    where.lid = path->remote.lid;
    xrc_ud_send_from(by, &path->local, &to, &where, &msg);
}

static void ask(struct xrc_apm *apm)
{
    send_question(apm);
    apm->due_ms = xrc_service_now_ms() + xrc_ini_backoff_ms(apm->attempt, apm->ini_qpn ^ apm->attempt * 37u);
    ++apm->attempt;
}

static void new_question(struct xrc_apm *apm)
{
    apm->attempt = 0;
    ++apm->seq;
    ask(apm);
}

/* Which path the HCA uses, is asked and not remembered: an event may tell of a migration that another has followed. */
static void find_primary(struct xrc_apm *apm)
{
    struct xrc_path_status status;
    if (NULL == apm->ini || 0 != xrc_path_look(apm->ini, &status)) {
        return;
    }
    for (unsigned i = 0; i < apm->npaths; ++i) {
        if (xrc_path_is(&status.primary, &apm->path[i].local, &apm->path[i].remote)) {
            apm->primary = i;
        }
    }
}

static void other(struct xrc_apm *apm)
{
    apm->asked = (apm->asked + 1) % apm->ncontacts;
    do {
        apm->spare = (apm->spare + 1) % apm->npaths;
    } while (apm->spare == apm->primary);
    ++apm->seq;
}

static void repeat(struct xrc_apm *apm)
{
    if (0 == apm->attempt % PATIENCE) {
        other(apm);
    }
    ask(apm);
}

/* ---- our own end ---- */

/* The two ends arm each other by packets that say they may; we post none ourselves. */
static void nudge(const struct xrc_apm *apm)
{
    struct xrc_nudge *n = NULL != apm->node ? (struct xrc_nudge *) calloc(1, sizeof(*n)) : NULL;
    if (NULL != n) {
        n->result.kind = XRC_RESULT_NUDGE;
        n->node = apm->node;
        xrc_stack_push(&apm->module->results, &n->result.link);
    }
}

static void load(struct xrc_apm *apm)
{
    const struct apm_path *path = &apm->path[apm->spare];
    int rc = NULL != apm->ini ? xrc_path_load(apm->module, apm->ini, &path->local, &path->remote) : 0;
    apm->looks = 0;
    apm->due_ms = xrc_service_now_ms() + xrc_ini_backoff_ms(0, 0);
    if (0 == rc) {
        nudge(apm);
    } else {
        XRC_VERBOSE(1, "INI 0x%06x does not take an alternate path: %s", apm->ini_qpn, strerror(rc));
        step(apm, XRC_APM_EV_BROKEN);
    }
}

static void look(struct xrc_apm *apm)
{
    struct xrc_path_status status = {.ready = false};
    apm->due_ms = ++apm->looks < LOOKS ? xrc_service_now_ms() + xrc_ini_backoff_ms(apm->looks, 0) : NEVER;
    if (NULL == apm->ini || 0 != xrc_path_look(apm->ini, &status) || !status.ready) {
        step(apm, XRC_APM_EV_CLOSE);
    } else if (IBV_MIG_ARMED == status.mig) {
        step(apm, XRC_APM_EV_SEEN);
    }
}

static void note(struct xrc_apm *apm)
{
    const struct apm_path *p = &apm->path[apm->primary], *s = &apm->path[apm->spare];
    xrc_count(&mca_btl_xrc_component.counters.armings, 1);
    XRC_VERBOSE(10, "INI 0x%06x armed: port %u LID %u to LID %u, alternate port %u LID %u to LID %u", apm->ini_qpn,
                p->local.port, p->local.lid, p->remote.lid, s->local.port, s->local.lid, s->remote.lid);
}

/* Not into the arms of another failure. */
static void migrate(struct xrc_apm *apm)
{
    struct xrc_path_status status;
    struct ibv_port_attr port;
    uint8_t refuge = apm->path[apm->spare].local.port;
    if (NULL != apm->ini && 0 == xrc_path_look(apm->ini, &status) && IBV_MIG_ARMED == status.mig
        && 0 == ibv_query_port(apm->module->device->context, refuge, &port) && IBV_PORT_ACTIVE == port.state) {
        int rc = xrc_path_migrate(apm->ini);
        XRC_VERBOSE(5, "INI 0x%06x: a port of its path has failed, changing to port %u: %s", apm->ini_qpn, refuge,
                    0 == rc ? "done" : strerror(rc));
    }
}

static void step(struct xrc_apm *apm, enum xrc_apm_event event)
{
    struct xrc_apm_step next = xrc_apm_next(apm->state, event);
    XRC_VERBOSE(20, "paths of INI 0x%06x: %s in %s: %s", apm->ini_qpn, xrc_apm_event_name(event),
                xrc_apm_state_name(apm->state), xrc_apm_action_name(next.action));
    apm->state = next.state;
    switch (next.action) {
    case XRC_APM_DO_ASK: new_question(apm); break;
    case XRC_APM_DO_REPEAT: repeat(apm); break;
    case XRC_APM_DO_OTHER: other(apm); break;
    case XRC_APM_DO_LOAD: load(apm); break;
    case XRC_APM_DO_LOOK: look(apm); break;
    case XRC_APM_DO_NOTE: note(apm); break;
    case XRC_APM_DO_MIGRATE: migrate(apm); break;
    case XRC_APM_DO_NOTHING:
    case XRC_APM_ACTIONS: break;
    }
}

/* ---- what the service thread hears ---- */

static void pair_up(struct xrc_apm *apm, const struct xrc_msg *answer)
{
    struct xrc_side local[XRC_MAX_SIDES];
    unsigned n = xrc_path_sides(apm->module, local);
    apm->npaths = n < answer->nsides ? n : answer->nsides;
    for (unsigned i = 0; i < apm->npaths; ++i) {
        apm->path[i] = (struct apm_path){local[i], answer->side[i]};
    }
}

struct xrc_apm *xrc_apm_begin(const struct xrc_conn *conn)
{
    struct xrc_apm *apm = XRC_APM_USE_OFF != mca_btl_xrc_component.params.apm && conn->answer.nsides > 1
                              ? (struct xrc_apm *) calloc(1, sizeof(*apm))
                              : NULL;
    if (NULL == apm) {
        return NULL;
    }
    apm->node = conn->node;
    apm->module = conn->module;
    apm->ini = conn->ini;
    apm->ini_qpn = conn->ini->qp_num;
    apm->generation = conn->generation;
    apm->tgt_qpn = conn->answer.tgt_qpn;
    apm->slot = conn->answer.slot;
    apm->domain = conn->domain;
    apm->remote = conn->answer.addr;
    memcpy(apm->contact, conn->contact, sizeof(apm->contact));
    apm->ncontacts = conn->ncontacts;
    apm->asked = apm->spoken = conn->current;
    apm->spare = 1;
    pair_up(apm, &conn->answer);
    if (apm->npaths < 2) {
        free(apm);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    apm->next = all;
    all = apm;
    pthread_mutex_unlock(&lock);
    return apm;
}

static struct xrc_apm *find(const mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    struct xrc_apm *apm = all;
    while (NULL != apm
           && (apm->ini_qpn != msg->ini_qpn || apm->generation != msg->generation
               || apm->module->device != module->device
               || 0 != memcmp(&apm->domain, &msg->domain, sizeof(msg->domain)))) {
        apm = apm->next;
    }
    return apm;
}

/* Where to ask next: whoever has answered, and where it can be reached at its other ports. */
static void note_speaker(struct xrc_apm *apm, const struct xrc_msg *msg)
{
    for (unsigned i = 0; i < apm->ncontacts; ++i) {
        if (apm->contact[i].name.job == msg->src.job && apm->contact[i].name.vpid == msg->src.vpid) {
            apm->asked = apm->spoken = i;
            for (unsigned k = 0; k < apm->npaths; ++k) {
                apm->path[k].remote.ud = (struct xrc_ud_addr){0, 0};
                for (unsigned s = 0; s < msg->nsides; ++s) {
                    if (msg->side[s].port == apm->path[k].remote.port) {
                        apm->path[k].remote.ud = msg->side[s].ud;
                    }
                }
            }
        }
    }
}

void xrc_apm_message(const mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    pthread_mutex_lock(&lock);
    struct xrc_apm *apm = find(module, msg);
    if (NULL != apm && apm->seq == msg->path_seq) {
        if (XRC_REASON_NONE == msg->reason) {
            note_speaker(apm, msg);
            step(apm, XRC_APM_EV_GRANTED);
        } else {
            XRC_VERBOSE(5, "TGT 0x%06x got no alternate path: %s", apm->tgt_qpn, xrc_msg_reason_text(msg->reason));
            step(apm, XRC_APM_EV_REFUSED);
        }
    }
    pthread_mutex_unlock(&lock);
}

/*
 * Each keeper of the TGT says so, and maybe late. It counts while the last question is the one that both ends were armed
 * by: with the first migration after it there is another one.
 */
void xrc_apm_told(const mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    pthread_mutex_lock(&lock);
    struct xrc_apm *apm = find(module, msg);
    if (NULL != apm && apm->seq == msg->path_seq) {
        xrc_count(&mca_btl_xrc_component.counters.notices, 1);
        XRC_VERBOSE(5, "INI 0x%06x: [%u,%u] says that the port of TGT 0x%06x has failed", apm->ini_qpn, msg->src.job,
                    msg->src.vpid, apm->tgt_qpn);
        step(apm, XRC_APM_EV_PORT_DOWN);
    }
    pthread_mutex_unlock(&lock);
}

/* The count of INIs that have moved to @a side; there are no more ends than places. */
static struct xrc_moved *moved_to(struct xrc_moved *moved, const struct xrc_side *side)
{
    unsigned i = 0;
    while (i + 1 < XRC_MAX_SIDES && 0 != moved[i].port && (moved[i].port != side->port || moved[i].lid != side->lid)) {
        ++i;
    }
    moved[i].port = side->port;
    moved[i].lid = side->lid;
    return &moved[i];
}

/* For the report, which is made when the service thread has ended. Path 0 begins at the rail's own end. */
static void note_move(struct xrc_apm *apm, unsigned before)
{
    struct xrc_moved *moved = apm->module->reach.moved;
    if (0 != before) {
        --moved_to(moved, &apm->path[before].local)->inis;
    }
    if (0 != apm->primary) {
        ++moved_to(moved, &apm->path[apm->primary].local)->inis;
    }
}

bool xrc_apm_migrated(const struct ibv_qp *qp)
{
    pthread_mutex_lock(&lock);
    struct xrc_apm *apm = all;
    while (NULL != apm && apm->ini != qp) {
        apm = apm->next;
    }
    if (NULL != apm) {
        unsigned before = apm->primary;
        find_primary(apm);
        note_move(apm, before);
        xrc_count(&mca_btl_xrc_component.counters.migrations, 1);
        XRC_VERBOSE(5, "INI 0x%06x has moved from port %u LID %u to port %u LID %u", apm->ini_qpn,
                    apm->path[before].local.port, apm->path[before].remote.lid, apm->path[apm->primary].local.port,
                    apm->path[apm->primary].remote.lid);
        if (apm->spare == apm->primary) {
            apm->spare = before;
        }
        step(apm, XRC_APM_EV_MIGRATED);
    }
    pthread_mutex_unlock(&lock);
    return NULL != apm;
}

/* Now is the time to ask, however long the pause had become. */
static void ask_at_once(struct xrc_apm *apm)
{
    if (XRC_APM_ASKING == apm->state) {
        apm->attempt = 1;
        step(apm, XRC_APM_EV_PORT_UP);
    }
}

void xrc_apm_heard(const mca_btl_xrc_module_t *module, uint16_t from)
{
    pthread_mutex_lock(&lock);
    for (struct xrc_apm *apm = all; NULL != apm; apm = apm->next) {
        const struct apm_path *path = &apm->path[apm->spare];
        /* The first questions go by themselves, and their answers need no other question. */
        if (apm->attempt > 2 && apm->module->device == module->device && path->local.port == module->addr.port
            && path->remote.lid == from) {
            ask_at_once(apm);
        }
    }
    pthread_mutex_unlock(&lock);
}

void xrc_apm_port(const struct xrc_device *device, uint8_t port, bool up)
{
    pthread_mutex_lock(&lock);
    for (struct xrc_apm *apm = all; NULL != apm; apm = apm->next) {
        if (apm->module->device != device) {
            continue;
        }
        if (up) {
            ask_at_once(apm);
        } else if (apm->path[apm->primary].local.port == port) {
            step(apm, XRC_APM_EV_PORT_DOWN);
        }
    }
    pthread_mutex_unlock(&lock);
}

static bool waits(const struct xrc_apm *apm)
{
    return NEVER != apm->due_ms && XRC_APM_ARMED != apm->state && XRC_APM_CLOSED != apm->state;
}

static void drop_released(void)
{
    for (struct xrc_apm **link = &all; NULL != *link;) {
        struct xrc_apm *apm = *link;
        if (NULL == apm->ini) {
            *link = apm->next;
            free(apm);
        } else {
            link = &apm->next;
        }
    }
}

int xrc_apm_tick(uint64_t now_ms)
{
    int wait = -1;
    pthread_mutex_lock(&lock);
    drop_released();
    for (struct xrc_apm *apm = all; NULL != apm; apm = apm->next) {
        if (waits(apm) && now_ms >= apm->due_ms) {
            step(apm, XRC_APM_OFF == apm->state ? XRC_APM_EV_START : XRC_APM_EV_TIMER);
        }
        if (waits(apm)) {
            int left = apm->due_ms > now_ms ? (int) (apm->due_ms - now_ms) : 0;
            wait = wait < 0 || left < wait ? left : wait;
        }
    }
    pthread_mutex_unlock(&lock);
    return wait;
}

void xrc_apm_stop(void)
{
    pthread_mutex_lock(&lock);
    while (NULL != all) {
        struct xrc_apm *apm = all;
        all = apm->next;
        if (NULL != apm->node) {
            apm->node->apm = NULL;
        }
        free(apm);
    }
    pthread_mutex_unlock(&lock);
}
