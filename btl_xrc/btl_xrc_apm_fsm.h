/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keeping an alternate path armed for one INI QP and its TGT, as a pure state machine. No I/O, no verbs, no Open MPI:
 * next(state, event) says what to do, somebody else does it.
 *
 * The initiator drives it, since it alone is sure to hear of a migration: kernels from 5.8 on tell of a TGT's migration
 * only the process that made the TGT, and that one may have left.
 */
#ifndef BTL_XRC_APM_FSM_H
#define BTL_XRC_APM_FSM_H

#ifdef __cplusplus
extern "C" {
#endif

enum xrc_apm_state {
    XRC_APM_OFF,    /**< connected, no alternate asked for */
    XRC_APM_ASKING, /**< the TGT shall get its alternate first; ARM sent, waiting */
    XRC_APM_LOADED, /**< both ends have one, and arm each other with the next packets */
    XRC_APM_ARMED,  /**< the HCA will migrate by itself */
    XRC_APM_CLOSED, /**< the INI is gone */
    XRC_APM_STATES
};

enum xrc_apm_event {
    XRC_APM_EV_START,     /**< the INI is connected, and there are two paths at least */
    XRC_APM_EV_GRANTED,   /**< ARMED for what was asked last: the TGT has its alternate */
    XRC_APM_EV_REFUSED,   /**< ARMED with a reason against it, for what was asked last */
    XRC_APM_EV_TIMER,     /**< time to ask or to look again */
    XRC_APM_EV_SEEN,      /**< the HCA says that the INI is armed */
    XRC_APM_EV_BROKEN,    /**< the INI does not take its alternate */
    XRC_APM_EV_MIGRATED,  /**< the INI is on its alternate path now */
    XRC_APM_EV_PORT_DOWN, /**< a port of the path in use has failed: ours, or the target says so of its own */
    XRC_APM_EV_PORT_UP,   /**< a port of this HCA is back */
    XRC_APM_EV_CLOSE,     /**< the INI goes */
    XRC_APM_EVENTS
};

enum xrc_apm_action {
    XRC_APM_DO_NOTHING,
    XRC_APM_DO_ASK,     /**< choose a path to be the alternate, have the TGT load it */
    XRC_APM_DO_REPEAT,  /**< the same question again; after some, another rank and another path */
    XRC_APM_DO_OTHER,   /**< from the next time on ask another rank, for another path */
    XRC_APM_DO_LOAD,    /**< give the INI its alternate and rearm it */
    XRC_APM_DO_LOOK,    /**< ask the HCA whether the INI is armed */
    XRC_APM_DO_NOTE,    /**< protected again */
    XRC_APM_DO_MIGRATE, /**< have the INI migrated, if it is armed */
    XRC_APM_ACTIONS
};

struct xrc_apm_step {
    enum xrc_apm_state state;
    enum xrc_apm_action action;
};

/** What follows from @a event in @a state. Total: each pair has an answer. */
struct xrc_apm_step xrc_apm_next(enum xrc_apm_state state, enum xrc_apm_event event);

const char *xrc_apm_state_name(enum xrc_apm_state state);
const char *xrc_apm_event_name(enum xrc_apm_event event);
const char *xrc_apm_action_name(enum xrc_apm_action action);

/* ---- the target's end ---- */

/** What the target finds when it is asked to load an alternate. */
enum xrc_apm_tgt_found {
    XRC_APM_TGT_SPENT,    /**< MIGRATED, and what is asked for is not the path in use: free to be loaded */
    XRC_APM_TGT_WAITING,  /**< REARM */
    XRC_APM_TGT_HAS_IT,   /**< REARM or ARMED with just this alternate */
    XRC_APM_TGT_BEHIND,   /**< ARMED, and the path asked for is the one in use: the INI has left it, we have not yet */
    XRC_APM_TGT_IN_USE,   /**< not ARMED, and the path asked for is the one in use */
    XRC_APM_TGT_ELSEWISE, /**< ARMED with another alternate */
    XRC_APM_TGT_FINDINGS
};

enum xrc_apm_tgt_action {
    XRC_APM_TGT_DO_LOAD,   /**< load and rearm */
    XRC_APM_TGT_DO_AGREE,  /**< nothing to do; say so */
    XRC_APM_TGT_DO_FOLLOW, /**< migrate, then load and rearm */
    XRC_APM_TGT_DO_REFUSE,
};

/** What the target does about it. */
enum xrc_apm_tgt_action xrc_apm_tgt_next(enum xrc_apm_tgt_found found);

#ifdef __cplusplus
}
#endif
#endif
