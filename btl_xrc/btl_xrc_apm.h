/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Automatic path migration of our INI QPs and, through messages, of their TGTs. A path joins one of our ends with one of
 * the TGT's: the k-th with the k-th. One is in use, another is the alternate; the HCAs change over by themselves, and
 * then the two processes agree on a new alternate (see apm_fsm).
 *
 * A question is asked over the very path it asks for, as far as there is a wire-up queue at both of its ends: an answer
 * then tells that the path is there again.
 */
#ifndef BTL_XRC_APM_H
#define BTL_XRC_APM_H

#include "btl_xrc_conn.h"

struct xrc_apm;

/** MPI side, once at the start: say so if migration was asked for and cannot be had. */
void xrc_apm_check(void);

/** MPI side: the INI of @a apm (may be NULL) is about to be destroyed. */
void xrc_apm_release(struct xrc_apm *apm);

/** MPI side: for people, both paths of @a apm, which may be NULL. To be freed; NULL when there is only one path. */
char *xrc_apm_describe(const struct xrc_apm *apm);

/* ---- service thread ---- */

/** The INI of @a conn is in RTS: look after its paths from now on. NULL when it has only one. */
struct xrc_apm *xrc_apm_begin(const struct xrc_conn *conn);

/** ARMED has come. */
void xrc_apm_message(const mca_btl_xrc_module_t *module, const struct xrc_msg *msg);

/** MIGRATE has come: the target's port of the path in use has failed. */
void xrc_apm_told(const mca_btl_xrc_module_t *module, const struct xrc_msg *msg);

/** PATH_MIG for one of our QPs; false when it is not an INI that is looked after. */
bool xrc_apm_migrated(const struct ibv_qp *qp);

/** Some message has come in by @a module's port from the LID @a from: a path that was being asked for is there again. */
void xrc_apm_heard(const mca_btl_xrc_module_t *module, uint16_t from);

/** A port of @a device has failed, or is back. */
void xrc_apm_port(const struct xrc_device *device, uint8_t port, bool up);

/** Ask and look where it is due; milliseconds until the next, -1 for none. */
int xrc_apm_tick(uint64_t now_ms);

void xrc_apm_stop(void);

#endif
