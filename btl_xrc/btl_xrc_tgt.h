/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TGT QPs: made by whoever is asked first, listed on the notice board, held by two ranks. A TGT lives as long as
 * somebody holds a handle to it (Linux >= 4.12), so it must never be down to one that is about to leave.
 * Everything here runs on the service thread.
 */
#ifndef BTL_XRC_TGT_H
#define BTL_XRC_TGT_H

#include "btl_xrc.h"

void xrc_tgt_request(mca_btl_xrc_module_t *module, const struct xrc_msg *msg);
void xrc_tgt_disconnect(mca_btl_xrc_module_t *module, const struct xrc_msg *msg);
void xrc_tgt_keep(mca_btl_xrc_module_t *module, const struct xrc_msg *msg);
void xrc_tgt_kept(mca_btl_xrc_module_t *module, const struct xrc_msg *msg);
void xrc_tgt_drop(mca_btl_xrc_module_t *module, const struct xrc_msg *msg);

/** An initiator wants its TGT to have an alternate path. Any rank of the domain can do that. */
void xrc_tgt_arm(mca_btl_xrc_module_t *module, const struct xrc_msg *msg);

/** A port of ours has failed, or is back: whose TGTs use it is told, so that it migrates at once. */
void xrc_tgt_port(mca_btl_xrc_module_t *home, uint8_t port, bool up);

/** Tell those that there was no room for before. */
void xrc_tgt_tell(mca_btl_xrc_module_t *home);

/** See to it that what this process holds has a second keeper, and let go of what is not listed any more. */
void xrc_tgt_repair(mca_btl_xrc_module_t *home);

/** Ask others to take over what only this process holds; true while somebody has still to answer. */
bool xrc_tgt_hand_over(mca_btl_xrc_module_t *home);

/** Let go of what there is room for to tell initiators of, or of everything @a at_once. True: there is something left. */
bool xrc_tgt_release_all(mca_btl_xrc_module_t *home, bool at_once);

#endif
