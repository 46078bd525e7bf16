/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_apm_fsm.h"

/* clang-format off */
#define A(s, a) {XRC_APM_##s, XRC_APM_DO_##a}

/*
 * A migration is believed in every state: the HCA may have armed and moved the INI before we looked. An answer that
 * comes twice finds LOADED and does no harm.
 */
static const struct xrc_apm_step table[XRC_APM_STATES][XRC_APM_EVENTS] = {
    [XRC_APM_OFF] = {
        [XRC_APM_EV_START] = A(ASKING, ASK),
        [XRC_APM_EV_GRANTED] = A(OFF, NOTHING),
        [XRC_APM_EV_REFUSED] = A(OFF, NOTHING),
        [XRC_APM_EV_TIMER] = A(OFF, NOTHING),
        [XRC_APM_EV_SEEN] = A(OFF, NOTHING),
        [XRC_APM_EV_BROKEN] = A(OFF, NOTHING),
        [XRC_APM_EV_MIGRATED] = A(OFF, NOTHING),
        [XRC_APM_EV_PORT_DOWN] = A(OFF, NOTHING),
        [XRC_APM_EV_PORT_UP] = A(OFF, NOTHING),
        [XRC_APM_EV_CLOSE] = A(CLOSED, NOTHING),
    },
    [XRC_APM_ASKING] = {
        [XRC_APM_EV_START] = A(ASKING, NOTHING),
        [XRC_APM_EV_GRANTED] = A(LOADED, LOAD),
        [XRC_APM_EV_REFUSED] = A(ASKING, OTHER),
        [XRC_APM_EV_TIMER] = A(ASKING, REPEAT),
        [XRC_APM_EV_SEEN] = A(ASKING, NOTHING),
        [XRC_APM_EV_BROKEN] = A(ASKING, NOTHING),
        [XRC_APM_EV_MIGRATED] = A(ASKING, ASK),
        [XRC_APM_EV_PORT_DOWN] = A(ASKING, NOTHING),
        [XRC_APM_EV_PORT_UP] = A(ASKING, REPEAT),
        [XRC_APM_EV_CLOSE] = A(CLOSED, NOTHING),
    },
    [XRC_APM_LOADED] = {
        [XRC_APM_EV_START] = A(LOADED, NOTHING),
        [XRC_APM_EV_GRANTED] = A(LOADED, NOTHING),
        [XRC_APM_EV_REFUSED] = A(LOADED, NOTHING),
        [XRC_APM_EV_TIMER] = A(LOADED, LOOK),
        [XRC_APM_EV_SEEN] = A(ARMED, NOTE),
        [XRC_APM_EV_BROKEN] = A(ASKING, OTHER),
        [XRC_APM_EV_MIGRATED] = A(ASKING, ASK),
        [XRC_APM_EV_PORT_DOWN] = A(LOADED, MIGRATE),
        [XRC_APM_EV_PORT_UP] = A(LOADED, NOTHING),
        [XRC_APM_EV_CLOSE] = A(CLOSED, NOTHING),
    },
    [XRC_APM_ARMED] = {
        [XRC_APM_EV_START] = A(ARMED, NOTHING),
        [XRC_APM_EV_GRANTED] = A(ARMED, NOTHING),
        [XRC_APM_EV_REFUSED] = A(ARMED, NOTHING),
        [XRC_APM_EV_TIMER] = A(ARMED, NOTHING),
        [XRC_APM_EV_SEEN] = A(ARMED, NOTHING),
        [XRC_APM_EV_BROKEN] = A(ASKING, OTHER),
        [XRC_APM_EV_MIGRATED] = A(ASKING, ASK),
        [XRC_APM_EV_PORT_DOWN] = A(ARMED, MIGRATE),
        [XRC_APM_EV_PORT_UP] = A(ARMED, NOTHING),
        [XRC_APM_EV_CLOSE] = A(CLOSED, NOTHING),
    },
    [XRC_APM_CLOSED] = {
        [XRC_APM_EV_START] = A(CLOSED, NOTHING),
        [XRC_APM_EV_GRANTED] = A(CLOSED, NOTHING),
        [XRC_APM_EV_REFUSED] = A(CLOSED, NOTHING),
        [XRC_APM_EV_TIMER] = A(CLOSED, NOTHING),
        [XRC_APM_EV_SEEN] = A(CLOSED, NOTHING),
        [XRC_APM_EV_BROKEN] = A(CLOSED, NOTHING),
        [XRC_APM_EV_MIGRATED] = A(CLOSED, NOTHING),
        [XRC_APM_EV_PORT_DOWN] = A(CLOSED, NOTHING),
        [XRC_APM_EV_PORT_UP] = A(CLOSED, NOTHING),
        [XRC_APM_EV_CLOSE] = A(CLOSED, NOTHING),
    },
};

/* clang-format on */

struct xrc_apm_step xrc_apm_next(enum xrc_apm_state state, enum xrc_apm_event event)
{
    return table[state][event];
}

/* REFUSE for IN_USE: the INI cannot have left a path that we could not have followed it from. */
enum xrc_apm_tgt_action xrc_apm_tgt_next(enum xrc_apm_tgt_found found)
{
    static const enum xrc_apm_tgt_action action[XRC_APM_TGT_FINDINGS] = {
        [XRC_APM_TGT_SPENT] = XRC_APM_TGT_DO_LOAD,    [XRC_APM_TGT_WAITING] = XRC_APM_TGT_DO_LOAD,
        [XRC_APM_TGT_HAS_IT] = XRC_APM_TGT_DO_AGREE,  [XRC_APM_TGT_BEHIND] = XRC_APM_TGT_DO_FOLLOW,
        [XRC_APM_TGT_IN_USE] = XRC_APM_TGT_DO_REFUSE, [XRC_APM_TGT_ELSEWISE] = XRC_APM_TGT_DO_REFUSE,
    };
    return action[found];
}

#define NAME_OF(table, i) ((unsigned) (i) < sizeof(table) / sizeof((table)[0]) ? (table)[i] : "?")

const char *xrc_apm_state_name(enum xrc_apm_state state)
{
    static const char *const name[] = {"OFF", "ASKING", "LOADED", "ARMED", "CLOSED"};
    return NAME_OF(name, state);
}

const char *xrc_apm_event_name(enum xrc_apm_event event)
{
    static const char *const name[] = {"START",  "GRANTED",  "REFUSED",   "TIMER",   "SEEN",
                                       "BROKEN", "MIGRATED", "PORT_DOWN", "PORT_UP", "CLOSE"};
    return NAME_OF(name, event);
}

const char *xrc_apm_action_name(enum xrc_apm_action action)
{
    static const char *const name[] = {"NOTHING", "ASK", "REPEAT", "OTHER", "LOAD", "LOOK", "NOTE", "MIGRATE"};
    return NAME_OF(name, action);
}
