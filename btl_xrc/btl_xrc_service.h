/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The service thread: sleeps on the UD queues, the HCAs' events, a timer and a wake-up, so that wire-up goes on while
 * the application computes. It calls nothing of Open MPI that counts references or uses free lists.
 */
#ifndef BTL_XRC_SERVICE_H
#define BTL_XRC_SERVICE_H

#include "btl_xrc_conn.h"

/** Start it, for all modules of the component; 0 or an errno value. */
int xrc_service_start(void);

/** Say farewell for what is gone, hand TGTs over, and end. Idempotent. */
void xrc_service_stop(void);

/** MPI side: have this connection made. */
void xrc_service_connect(struct xrc_conn *conn);

/** MPI side: have this farewell sent. */
void xrc_service_farewell(struct xrc_farewell *farewell);

/* ---- service thread ---- */

/** A good message to this process has come in. */
void xrc_service_message(mca_btl_xrc_module_t *module, const struct xrc_msg *msg);

/** Monotonic milliseconds. */
uint64_t xrc_service_now_ms(void);
uint64_t xrc_service_now_us(void);

#endif
