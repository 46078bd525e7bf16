/* SPDX-License-Identifier: BSD-3-Clause */
/* What we tell people, once, where the cause is known. */
#ifndef BTL_XRC_ERROR_H
#define BTL_XRC_ERROR_H

#include "btl_xrc.h"

/**
 * Print help topic @a topic of help-mpi-btl-xrc.txt with its arguments, once for each host and job. While we look
 * whether we can be used at all, only those who asked for us by name are told why not.
 */
void xrc_show_help(const char *topic, ...);

/** A send work request came back with an error: cause and advice, once for each node. */
void xrc_error_send(struct xrc_node *node, const struct mca_btl_base_endpoint_t *endpoint, enum ibv_wc_status status);

/** A receive completion came back with an error. Says so once for each module. */
void xrc_error_recv(mca_btl_xrc_module_t *module, enum ibv_wc_status status);

/** Nobody in a remote domain has answered in time, or all refused. */
void xrc_error_connect(const struct xrc_conn *conn);

/** A verb failed at start-up: @a what names it and its object. */
void xrc_error_verb(const struct xrc_device *device, const char *what, int err);

#endif
