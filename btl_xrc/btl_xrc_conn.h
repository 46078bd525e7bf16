/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connecting an INI QP. The MPI side makes a struct xrc_conn, gives it to the service thread and gets it back, through
 * a stack each way; nobody else may look into it meanwhile.
 */
#ifndef BTL_XRC_CONN_H
#define BTL_XRC_CONN_H

#include "btl_xrc_node.h"

#define XRC_CONN_CONTACTS 4

/* What the service thread hands to the MPI side, on a module's stack of results. */
struct xrc_result {
    struct xrc_link link;
    enum { XRC_RESULT_CONN, XRC_RESULT_NUDGE, XRC_RESULT_GONE, XRC_RESULT_ALONE } kind;
};

/** The INI of this node has been given an alternate path: some packet must go each way before it is armed. */
struct xrc_nudge {
    struct xrc_result result;
    struct xrc_node *node;
};

struct xrc_conn {
    struct xrc_link link;     /* on the way to the service thread */
    struct xrc_result result; /* and back */
    struct xrc_conn *next;    /* service: those being connected */
    struct xrc_node *node;
    mca_btl_xrc_module_t *module;
    enum xrc_ini_state state;
    struct ibv_qp *ini;
    uint32_t psn;
    uint32_t generation;
    struct xrc_uuid domain;
    struct xrc_port_addr remote;
    struct xrc_contact contact[XRC_CONN_CONTACTS];
    unsigned ncontacts;
    unsigned current;
    unsigned attempt;
    uint64_t began_ms;
    uint64_t began_us;
    uint64_t due_ms;
    uint64_t deadline_ms;
    struct xrc_msg answer; /* RESPONSE that made it ready */
    uint32_t gone_qpn;     /* a TGT that it would have got too late; its number may serve again, not so soon its PSN */
    uint32_t gone_psn;
    unsigned reason;   /* last REJECT, enum xrc_msg_reason */
    int err;           /* verb that failed while connecting */
    bool close_wanted; /* MPI side: the service thread shall give up */
};

/** A farewell to the domain that has a TGT for an INI of ours which is gone. */
struct xrc_farewell {
    struct xrc_link link;
    mca_btl_xrc_module_t *module;
    struct xrc_contact contact;
    struct xrc_uuid domain;
    struct xrc_port_addr remote;
    uint32_t generation;
    uint32_t ini_qpn;
};

/** MPI side: make the INI QP of @a node and have it connected, asking @a first's process first, if not NULL. */
int xrc_conn_open(struct xrc_node *node, const struct mca_btl_base_endpoint_t *first);

/** MPI side: take what the service thread has put onto @a module's stack. @a serve: act on it, else only free it. */
void xrc_conn_take_results(mca_btl_xrc_module_t *module, bool serve);

/** MPI side: say that the INI of @a node is gone. Best effort. */
void xrc_conn_farewell(const struct xrc_node *node, uint32_t ini_qpn);

/** Create an INI QP on @a module; what is granted goes to *depth and, if it may be @a less_inline, to *max_inline. */
struct ibv_qp *xrc_conn_make_ini(mca_btl_xrc_module_t *module, uint32_t *depth, uint32_t *max_inline, bool less_inline);

/* ---- service thread ---- */

void xrc_conn_service_begin(struct xrc_conn *conn);

/** Say this farewell, now or when there is room for it: nobody repeats it. */
void xrc_conn_service_farewell(struct xrc_farewell *farewell);

/** Say those that there is room for now, or all @a at_once, whether they go out or not. True: some are left. */
bool xrc_conn_service_say_farewells(bool at_once);

void xrc_conn_service_message(mca_btl_xrc_module_t *module, const struct xrc_msg *msg);

/** GONE has come: is it about an INI that is being connected? */
bool xrc_conn_service_gone(const mca_btl_xrc_module_t *module, const struct xrc_msg *msg);

/** Nobody can hold a TGT of @a module's device but its maker: to be said. */
void xrc_conn_service_alone(mca_btl_xrc_module_t *module);

/** Send again what is due, give up what is overdue; milliseconds until the next is due, -1 for none. */
int xrc_conn_service_tick(uint64_t now_ms);

/** Give everything back, connected or not. */
void xrc_conn_service_stop(void);

#endif
