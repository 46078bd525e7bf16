/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wire-up as two pure state machines: the initiator's (one INI QP) and the target's (one TGT QP). No I/O, no verbs, no
 * Open MPI: next(state, event) says what to do, somebody else does it.
 */
#ifndef BTL_XRC_CONN_FSM_H
#define BTL_XRC_CONN_FSM_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- initiator: one for each INI QP ---- */

enum xrc_ini_state {
    XRC_INI_IDLE,      /**< nobody has asked for it yet */
    XRC_INI_REQUESTED, /**< REQUEST sent, waiting */
    XRC_INI_READY,     /**< INI is in RTS towards its TGT */
    XRC_INI_DRAINING,  /**< its TGT is gone; what has not arrived comes back */
    XRC_INI_FAILED,    /**< given up; said so */
    XRC_INI_CLOSED,    /**< INI is gone */
    XRC_INI_STATES
};

enum xrc_ini_event {
    XRC_INI_EV_OPEN,     /**< first operation towards that domain */
    XRC_INI_EV_RESPONSE, /**< RESPONSE for this INI and generation */
    XRC_INI_EV_STALE,    /**< RESPONSE or REJECT for another one */
    XRC_INI_EV_REJECT,   /**< REJECT that another rank there may not give */
    XRC_INI_EV_TIMER,    /**< time to send again */
    XRC_INI_EV_SILENT,   /**< that rank has not answered several times */
    XRC_INI_EV_EXPIRED,  /**< the time a peer is given has passed */
    XRC_INI_EV_BROKEN,   /**< a verb failed while connecting */
    XRC_INI_EV_CLOSE,    /**< nobody needs it any more */
    XRC_INI_EV_GONE,     /**< its TGT is gone with the last rank that held it */
    XRC_INI_EV_DRAINED,  /**< all that was on its way has arrived */
    XRC_INI_EVENTS
};

enum xrc_ini_action {
    XRC_INI_DO_NOTHING,
    XRC_INI_DO_REQUEST,      /**< send REQUEST to the first contact */
    XRC_INI_DO_RESEND,       /**< the same message again, same contact */
    XRC_INI_DO_NEXT_CONTACT, /**< the same request to the next rank of that domain */
    XRC_INI_DO_CONNECT,      /**< INI to RTR and RTS, tell progress */
    XRC_INI_DO_REPORT,       /**< tell progress that this peer cannot be reached */
    XRC_INI_DO_DISCONNECT,   /**< tell the target that its TGT is not needed any more */
    XRC_INI_DO_ABANDON,      /**< as DISCONNECT: the target may have made a TGT already */
    XRC_INI_DO_DRAIN,        /**< INI to the error state, and see what comes back */
    XRC_INI_DO_LET_GO,       /**< destroy the INI; whoever needs one again opens another */
    XRC_INI_ACTIONS
};

struct xrc_ini_step {
    enum xrc_ini_state state;
    enum xrc_ini_action action;
};

/** What follows from @a event in @a state. Total: each pair has an answer. */
struct xrc_ini_step xrc_ini_next(enum xrc_ini_state state, enum xrc_ini_event event);

const char *xrc_ini_state_name(enum xrc_ini_state state);
const char *xrc_ini_event_name(enum xrc_ini_event event);
const char *xrc_ini_action_name(enum xrc_ini_action action);

/* ---- target: one for each TGT QP on the notice board, seen by the rank that got the message ---- */

enum xrc_tgt_state {
    XRC_TGT_NONE,   /**< the board lists no TGT for that INI */
    XRC_TGT_MAKING, /**< some live rank is making it */
    XRC_TGT_READY,  /**< it exists and can receive */
    XRC_TGT_STATES
};

enum xrc_tgt_event {
    XRC_TGT_EV_REQUEST,    /**< REQUEST of the listed generation, or the first one */
    XRC_TGT_EV_NEWER,      /**< REQUEST of a later generation: the listed TGT serves nobody any more */
    XRC_TGT_EV_OLDER,      /**< a late REQUEST of an earlier generation */
    XRC_TGT_EV_LEAVING,    /**< REQUEST that the listed TGT does not serve, while this rank finalizes */
    XRC_TGT_EV_DISCONNECT, /**< its INI is gone */
    XRC_TGT_EV_MADE,       /**< this rank has made it */
    XRC_TGT_EV_BROKEN,     /**< this rank could not make it */
    XRC_TGT_EV_ORPHANED,   /**< no live rank holds it */
    XRC_TGT_EVENTS
};

enum xrc_tgt_action {
    XRC_TGT_DO_NOTHING,
    XRC_TGT_DO_CREATE,  /**< make a TGT for it */
    XRC_TGT_DO_REPLACE, /**< let the listed one go, then make a new one */
    XRC_TGT_DO_ANSWER,  /**< RESPONSE with the listed one */
    XRC_TGT_DO_REJECT,  /**< REJECT */
    XRC_TGT_DO_RELEASE, /**< let it go, tell the other keeper */
    XRC_TGT_DO_UNLIST,  /**< take it off the board */
    XRC_TGT_ACTIONS
};

struct xrc_tgt_step {
    enum xrc_tgt_state state;
    enum xrc_tgt_action action;
};

/** What follows from @a event in @a state. Total: each pair has an answer. */
struct xrc_tgt_step xrc_tgt_next(enum xrc_tgt_state state, enum xrc_tgt_event event);

/** An INI of some process, among those that it has had for the same purpose. */
struct xrc_ini_id {
    uint32_t generation;
    uint32_t qpn;
};

/**
 * What a REQUEST for the INI @a asks means where the board lists a TGT for @a listed (NULL: for none). Who is @a leaving
 * answers for what is listed, and makes nothing new.
 */
enum xrc_tgt_event xrc_tgt_request_event(const struct xrc_ini_id *listed, struct xrc_ini_id asks, bool leaving);

const char *xrc_tgt_state_name(enum xrc_tgt_state state);
const char *xrc_tgt_event_name(enum xrc_tgt_event event);
const char *xrc_tgt_action_name(enum xrc_tgt_action action);

/* ---- when to send again ---- */

/**
 * Milliseconds to wait after the @a attempt-th REQUEST (0 is the first): doubles from 20 to 1000. @a jitter (0..255)
 * takes up to a quarter off, so that ranks which started together do not stay together.
 */
unsigned xrc_ini_backoff_ms(unsigned attempt, unsigned jitter);

#ifdef __cplusplus
}
#endif
#endif
