/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_conn_fsm.h"

#include <stddef.h>

/* clang-format off */
#define I(s, a) {XRC_INI_##s, XRC_INI_DO_##a}

/*
 * READY answers nothing to late messages: each REQUEST that was sent more than once may be answered more than once.
 * FAILED still ends in CLOSED, so that an INI which never got through is taken down like any other.
 *
 * The way back to IDLE leads through DRAINING: a send that nobody waits for shows only there whether it has arrived.
 */
static const struct xrc_ini_step ini_table[XRC_INI_STATES][XRC_INI_EVENTS] = {
    [XRC_INI_IDLE] = {
        [XRC_INI_EV_OPEN] = I(REQUESTED, REQUEST),
        [XRC_INI_EV_RESPONSE] = I(IDLE, NOTHING),
        [XRC_INI_EV_STALE] = I(IDLE, NOTHING),
        [XRC_INI_EV_REJECT] = I(IDLE, NOTHING),
        [XRC_INI_EV_TIMER] = I(IDLE, NOTHING),
        [XRC_INI_EV_SILENT] = I(IDLE, NOTHING),
        [XRC_INI_EV_EXPIRED] = I(IDLE, NOTHING),
        [XRC_INI_EV_BROKEN] = I(FAILED, REPORT),
        [XRC_INI_EV_CLOSE] = I(CLOSED, NOTHING),
        [XRC_INI_EV_GONE] = I(IDLE, NOTHING),
        [XRC_INI_EV_DRAINED] = I(IDLE, NOTHING),
    },
    [XRC_INI_REQUESTED] = {
        [XRC_INI_EV_OPEN] = I(REQUESTED, NOTHING),
        [XRC_INI_EV_RESPONSE] = I(READY, CONNECT),
        [XRC_INI_EV_STALE] = I(REQUESTED, NOTHING),
        [XRC_INI_EV_REJECT] = I(REQUESTED, NEXT_CONTACT),
        [XRC_INI_EV_TIMER] = I(REQUESTED, RESEND),
        [XRC_INI_EV_SILENT] = I(REQUESTED, NEXT_CONTACT),
        [XRC_INI_EV_EXPIRED] = I(FAILED, REPORT),
        [XRC_INI_EV_BROKEN] = I(FAILED, REPORT),
        [XRC_INI_EV_CLOSE] = I(CLOSED, ABANDON),
        [XRC_INI_EV_GONE] = I(REQUESTED, NEXT_CONTACT),
        [XRC_INI_EV_DRAINED] = I(REQUESTED, NOTHING),
    },
    [XRC_INI_READY] = {
        [XRC_INI_EV_OPEN] = I(READY, NOTHING),
        [XRC_INI_EV_RESPONSE] = I(READY, NOTHING),
        [XRC_INI_EV_STALE] = I(READY, NOTHING),
        [XRC_INI_EV_REJECT] = I(READY, NOTHING),
        [XRC_INI_EV_TIMER] = I(READY, NOTHING),
        [XRC_INI_EV_SILENT] = I(READY, NOTHING),
        [XRC_INI_EV_EXPIRED] = I(READY, NOTHING),
        [XRC_INI_EV_BROKEN] = I(FAILED, REPORT),
        [XRC_INI_EV_CLOSE] = I(CLOSED, DISCONNECT),
        [XRC_INI_EV_GONE] = I(DRAINING, DRAIN),
        [XRC_INI_EV_DRAINED] = I(READY, NOTHING),
    },
    [XRC_INI_DRAINING] = {
        [XRC_INI_EV_OPEN] = I(DRAINING, NOTHING),
        [XRC_INI_EV_RESPONSE] = I(DRAINING, NOTHING),
        [XRC_INI_EV_STALE] = I(DRAINING, NOTHING),
        [XRC_INI_EV_REJECT] = I(DRAINING, NOTHING),
        [XRC_INI_EV_TIMER] = I(DRAINING, NOTHING),
        [XRC_INI_EV_SILENT] = I(DRAINING, NOTHING),
        [XRC_INI_EV_EXPIRED] = I(DRAINING, NOTHING),
        [XRC_INI_EV_BROKEN] = I(FAILED, REPORT),
        [XRC_INI_EV_CLOSE] = I(CLOSED, NOTHING),
        [XRC_INI_EV_GONE] = I(DRAINING, NOTHING),
        [XRC_INI_EV_DRAINED] = I(IDLE, LET_GO),
    },
    [XRC_INI_FAILED] = {
        [XRC_INI_EV_OPEN] = I(FAILED, NOTHING),
        [XRC_INI_EV_RESPONSE] = I(FAILED, NOTHING),
        [XRC_INI_EV_STALE] = I(FAILED, NOTHING),
        [XRC_INI_EV_REJECT] = I(FAILED, NOTHING),
        [XRC_INI_EV_TIMER] = I(FAILED, NOTHING),
        [XRC_INI_EV_SILENT] = I(FAILED, NOTHING),
        [XRC_INI_EV_EXPIRED] = I(FAILED, NOTHING),
        [XRC_INI_EV_BROKEN] = I(FAILED, NOTHING),
        [XRC_INI_EV_CLOSE] = I(CLOSED, ABANDON),
        [XRC_INI_EV_GONE] = I(FAILED, NOTHING),
        [XRC_INI_EV_DRAINED] = I(FAILED, NOTHING),
    },
    [XRC_INI_CLOSED] = {
        [XRC_INI_EV_OPEN] = I(CLOSED, NOTHING),
        [XRC_INI_EV_RESPONSE] = I(CLOSED, NOTHING),
        [XRC_INI_EV_STALE] = I(CLOSED, NOTHING),
        [XRC_INI_EV_REJECT] = I(CLOSED, NOTHING),
        [XRC_INI_EV_TIMER] = I(CLOSED, NOTHING),
        [XRC_INI_EV_SILENT] = I(CLOSED, NOTHING),
        [XRC_INI_EV_EXPIRED] = I(CLOSED, NOTHING),
        [XRC_INI_EV_BROKEN] = I(CLOSED, NOTHING),
        [XRC_INI_EV_CLOSE] = I(CLOSED, NOTHING),
        [XRC_INI_EV_GONE] = I(CLOSED, NOTHING),
        [XRC_INI_EV_DRAINED] = I(CLOSED, NOTHING),
    },
};

#define T(s, a) {XRC_TGT_##s, XRC_TGT_DO_##a}

/*
 * A request is answered as often as it comes. While somebody else makes the TGT we stay silent: the initiator will
 * ask again, and two ranks must never make two TGTs for one INI.
 */
static const struct xrc_tgt_step tgt_table[XRC_TGT_STATES][XRC_TGT_EVENTS] = {
    [XRC_TGT_NONE] = {
        [XRC_TGT_EV_REQUEST] = T(MAKING, CREATE),
        [XRC_TGT_EV_NEWER] = T(MAKING, CREATE),
        [XRC_TGT_EV_OLDER] = T(NONE, NOTHING),
        [XRC_TGT_EV_LEAVING] = T(NONE, REJECT),
        [XRC_TGT_EV_DISCONNECT] = T(NONE, NOTHING),
        [XRC_TGT_EV_MADE] = T(NONE, RELEASE),
        [XRC_TGT_EV_BROKEN] = T(NONE, REJECT),
        [XRC_TGT_EV_ORPHANED] = T(NONE, NOTHING),
    },
    [XRC_TGT_MAKING] = {
        [XRC_TGT_EV_REQUEST] = T(MAKING, NOTHING),
        [XRC_TGT_EV_NEWER] = T(MAKING, NOTHING),
        [XRC_TGT_EV_OLDER] = T(MAKING, NOTHING),
        [XRC_TGT_EV_LEAVING] = T(MAKING, NOTHING),
        [XRC_TGT_EV_DISCONNECT] = T(MAKING, NOTHING),
        [XRC_TGT_EV_MADE] = T(READY, ANSWER),
        [XRC_TGT_EV_BROKEN] = T(NONE, REJECT),
        [XRC_TGT_EV_ORPHANED] = T(NONE, UNLIST),
    },
    [XRC_TGT_READY] = {
        [XRC_TGT_EV_REQUEST] = T(READY, ANSWER),
        [XRC_TGT_EV_NEWER] = T(MAKING, REPLACE),
        [XRC_TGT_EV_OLDER] = T(READY, NOTHING),
        [XRC_TGT_EV_LEAVING] = T(READY, REJECT),
        [XRC_TGT_EV_DISCONNECT] = T(NONE, RELEASE),
        [XRC_TGT_EV_MADE] = T(READY, NOTHING),
        [XRC_TGT_EV_BROKEN] = T(READY, NOTHING),
        [XRC_TGT_EV_ORPHANED] = T(NONE, UNLIST),
    },
};

/* clang-format on */

struct xrc_ini_step xrc_ini_next(enum xrc_ini_state state, enum xrc_ini_event event)
{
    return ini_table[state][event];
}

struct xrc_tgt_step xrc_tgt_next(enum xrc_tgt_state state, enum xrc_tgt_event event)
{
    return tgt_table[state][event];
}

#define NAME_OF(table, i) ((unsigned) (i) < sizeof(table) / sizeof((table)[0]) ? (table)[i] : "?")

enum xrc_tgt_event xrc_tgt_request_event(const struct xrc_ini_id *listed, struct xrc_ini_id asks, bool leaving)
{
    int32_t ahead = NULL != listed ? (int32_t) (asks.generation - listed->generation) : 1;
    if (0 == ahead && asks.qpn == listed->qpn) {
        return XRC_TGT_EV_REQUEST;
    }
    if (ahead < 0) {
        return XRC_TGT_EV_OLDER;
    }
    if (leaving) {
        return XRC_TGT_EV_LEAVING;
    }
    return NULL != listed ? XRC_TGT_EV_NEWER : XRC_TGT_EV_REQUEST;
}

const char *xrc_ini_state_name(enum xrc_ini_state state)
{
    static const char *const name[] = {"IDLE", "REQUESTED", "READY", "DRAINING", "FAILED", "CLOSED"};
    return NAME_OF(name, state);
}

const char *xrc_ini_event_name(enum xrc_ini_event event)
{
    static const char *const name[] = {"OPEN",    "RESPONSE", "STALE", "REJECT", "TIMER",  "SILENT",
                                       "EXPIRED", "BROKEN",   "CLOSE", "GONE",   "DRAINED"};
    return NAME_OF(name, event);
}

const char *xrc_ini_action_name(enum xrc_ini_action action)
{
    static const char *const name[] = {"NOTHING", "REQUEST",    "RESEND",  "NEXT_CONTACT", "CONNECT",
                                       "REPORT",  "DISCONNECT", "ABANDON", "DRAIN",        "LET_GO"};
    return NAME_OF(name, action);
}

const char *xrc_tgt_state_name(enum xrc_tgt_state state)
{
    static const char *const name[] = {"NONE", "MAKING", "READY"};
    return NAME_OF(name, state);
}

const char *xrc_tgt_event_name(enum xrc_tgt_event event)
{
    static const char *const name[] = {"REQUEST",    "NEWER", "OLDER",  "LEAVING",
                                       "DISCONNECT", "MADE",  "BROKEN", "ORPHANED"};
    return NAME_OF(name, event);
}

const char *xrc_tgt_action_name(enum xrc_tgt_action action)
{
    static const char *const name[] = {"NOTHING", "CREATE", "REPLACE", "ANSWER", "REJECT", "RELEASE", "UNLIST"};
    return NAME_OF(name, action);
}

unsigned xrc_ini_backoff_ms(unsigned attempt, unsigned jitter)
{
    unsigned ms = attempt >= 6 ? 1000u : 20u << attempt;
    if (ms > 1000u) {
        ms = 1000u;
    }
    return ms - ms / 4 * (jitter & 255u) / 255u;
}
