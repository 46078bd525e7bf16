/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer process, as one module sees it. There may be very many: its size is a budget. */
#ifndef BTL_XRC_ENDPOINT_H
#define BTL_XRC_ENDPOINT_H

#include "btl_xrc.h"

#define XRC_ENDPOINT_BUDGET 128

struct mca_btl_base_endpoint_t {
    struct xrc_node *node;
    opal_proc_t *proc;
    struct mca_btl_base_endpoint_t *next;         /* of this node; module lock */
    struct mca_btl_base_endpoint_t *next_waiting; /* on the node's waiting ring; node lock */
    struct xrc_frag *wait_head;                   /* what could not be posted yet; node lock */
    struct xrc_frag *wait_tail;
    struct xrc_name name;
    struct xrc_ud_addr ud;
    uint32_t srqn[XRC_MAX_CLASSES];
    uint32_t in_flight; /* work requests that will come back to us; node lock */
    bool waiting;       /* on the node's waiting ring */
    bool reported;      /* Open MPI knows that it is out of reach; module lock */
    bool leaving;       /* del_procs was called; freed with the last completion */
};

_Static_assert(sizeof(struct mca_btl_base_endpoint_t) <= XRC_ENDPOINT_BUDGET, "an endpoint has outgrown its budget");

/** The endpoint of @a proc on @a module, made if there is none; NULL when it cannot be reached from there. */
struct mca_btl_base_endpoint_t *xrc_endpoint_get(mca_btl_xrc_module_t *module, opal_proc_t *proc);

/** Forget a peer: what waits for it is completed with an error, what is on the way is let through. */
void xrc_endpoint_remove(struct mca_btl_base_endpoint_t *endpoint);

/** Free an endpoint that nothing refers to any more. */
void xrc_endpoint_free(struct mca_btl_base_endpoint_t *endpoint);

/** Who sent this: by name from the fragment's header. Makes the endpoint if that peer has never been added. */
struct mca_btl_base_endpoint_t *xrc_endpoint_sender(mca_btl_xrc_module_t *module, const struct xrc_hdr *hdr);

#endif
