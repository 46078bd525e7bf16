/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Room in a module's send_cq, which all its INI QPs share. Whatever is posted may come back: what is signalled always, the rest
 * when its INI has failed. So each work request has its entry from before it is posted until its completion, or that of a
 * signalled one behind it, has been polled; the CQ cannot overrun.
 *
 * What is signalled takes its entry when it is posted and may have them all. What is not is dealt with by runs: a node has its
 * entries beforehand, and its next ones with each signalled work request. All nodes together have half of the CQ for that at
 * most, so that there is always room for what gives back the entries of runs. A node that gets none signals everything.
 */
#ifndef BTL_XRC_ROOM_H
#define BTL_XRC_ROOM_H

#include "btl_xrc_node.h"

static inline void xrc_room_give(mca_btl_xrc_module_t *module, int32_t n)
{
    OPAL_THREAD_ADD_FETCH32(&module->send_room, n);
}

static inline bool xrc_room_take(mca_btl_xrc_module_t *module, int32_t n)
{
    if (OPAL_LIKELY(OPAL_THREAD_ADD_FETCH32(&module->send_room, -n) >= 0)) {
        return true;
    }
    xrc_room_give(module, n);
    return false;
}

/** @a node has a new INI, of @a depth granted: windows, the first run, and what the service thread may post until READY. */
void xrc_room_begin(struct xrc_node *node, uint32_t depth);

/** MPI side: the entries of the next run, as many as there are to be had. Node lock held. */
void xrc_room_refill(struct xrc_node *node);

/** The INI is gone: nothing of it comes back any more. Node lock held. */
void xrc_room_end(struct xrc_node *node);

/** What an INI QP needs for all windows together. */
uint32_t xrc_room_all_windows(void);

#endif
