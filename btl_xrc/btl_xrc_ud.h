/* SPDX-License-Identifier: BSD-3-Clause */
/* The UD queue of a module: wire-up messages out and in. All of it belongs to the service thread once that runs. */
#ifndef BTL_XRC_UD_H
#define BTL_XRC_UD_H

#include "btl_xrc.h"

/** Make a module's UD queue; 0 or an errno value. */
int xrc_ud_create(mca_btl_xrc_module_t *module);
void xrc_ud_destroy(mca_btl_xrc_module_t *module);

/** Where peers find it. */
struct xrc_ud_addr xrc_ud_address(const struct xrc_ud *ud);

/** Readable when there is something to poll. */
int xrc_ud_fd(const struct xrc_ud *ud);

/** Can another message be sent now? If not, the queue becomes readable when it can. */
bool xrc_ud_has_room(const struct xrc_ud *ud);

/** Are there messages that are not out yet? The queue becomes readable when they are. */
bool xrc_ud_is_sending(const struct xrc_ud *ud);

/** Send @a msg (its src, dst and addr are filled in here). Lost when there is no room: whoever sent it will repeat. */
void xrc_ud_send(mca_btl_xrc_module_t *module, const struct xrc_contact *to, const struct xrc_port_addr *where,
                 struct xrc_msg *msg);

/** The same from one end of a path to another: from @a local at @a module's port to the LID in @a where, and back there. */
void xrc_ud_send_from(mca_btl_xrc_module_t *module, const struct xrc_side *local, const struct xrc_contact *to,
                      const struct xrc_port_addr *where, struct xrc_msg *msg);

/** Take in all that has come; calls xrc_service_message() for each good message to us. */
void xrc_ud_poll(mca_btl_xrc_module_t *module);

#endif
