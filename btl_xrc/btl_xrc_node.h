/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A remote domain: a job on a host on a device, reached by one of its ports. All its processes share our one INI QP,
 * so all that belongs to the send queue is here: windows, the ring of waiting peers, unsignalled work requests.
 */
#ifndef BTL_XRC_NODE_H
#define BTL_XRC_NODE_H

#include <pthread.h>

#include "btl_xrc_endpoint.h"
#include "btl_xrc_frag.h"

struct xrc_node {
    opal_mutex_t lock;     /* all up to "set-up": see xrc_node_lock() */
    pthread_mutex_t setup; /* the same, against the service thread, until READY */
    mca_btl_xrc_module_t *module;
    struct ibv_qp *ini;
    uint64_t serial;          /* no other node, nor this one in another life, has it; for wr_id */
    enum xrc_ini_state state; /* READY is set by the service thread, all else by MPI threads */
    uint32_t max_inline;      /* of its INI, as long as it has one or will have another; 0: not known yet */
    uint32_t in_flight;       /* signalled work requests */
    uint32_t unsignalled;     /* since the last signalled one, all of lane 0 */
    uint32_t signal_every;    /* less than so many */
    uint32_t quiet;           /* those that may follow: they have room in send_cq */
    uint32_t waiting;         /* peers on the ring */
    int32_t borrowed;         /* room in send_cq for what the service thread posts */
    int32_t credit[XRC_LANES];
    struct mca_btl_base_endpoint_t *ring_head; /* peers with something to send, in turn */
    struct mca_btl_base_endpoint_t *ring_tail;

    /* set-up; module lock */
    struct xrc_node *next;
    struct xrc_node *next_starved;
    struct mca_btl_base_endpoint_t *endpoints;
    struct xrc_uuid domain;
    struct xrc_port_addr addr;
    struct xrc_conn *conn;       /* while the service thread works on it */
    struct xrc_apm *apm;         /* its paths, when there are several; the service thread's */
    struct xrc_contact answerer; /* who has made or found our TGT */
    uint32_t generation;
    uint32_t ini_qpn; /* of ini, for those who look without the node's lock, or XRC_NO_QPN; atomic */
    uint32_t tgt_qpn;
    uint32_t tgt_psn;
    bool starved;
    bool last_posted; /* DRAINING: the last work request of this INI is on its way, ... */
    bool drained;     /* ... and has come back, with none of those before it lost */
    bool fault_said;
    bool parting;      /* all that was handed to us has been posted; should it fail now, its peers have had enough */
    bool farewell_due; /* the remote domain may have a TGT for this INI */
};

#define XRC_NO_QPN UINT32_MAX /* numbers have 24 bits */

static inline uint32_t xrc_node_ini_qpn(const struct xrc_node *node)
{
    return __atomic_load_n(&node->ini_qpn, __ATOMIC_RELAXED);
}

static inline void xrc_node_set_ini_qpn(struct xrc_node *node, uint32_t qpn)
{
    __atomic_store_n(&node->ini_qpn, qpn, __ATOMIC_RELAXED);
}

static inline enum xrc_ini_state xrc_node_state(const struct xrc_node *node)
{
    return __atomic_load_n(&node->state, __ATOMIC_ACQUIRE);
}

/**
 * Lock a node; true: the lock against the service thread was taken, too, hand that to xrc_node_unlock(). Once READY,
 * the service thread leaves the node alone, and the lock is as good as none unless there are several MPI threads.
 */
static inline bool xrc_node_lock(struct xrc_node *node)
{
    OPAL_THREAD_LOCK(&node->lock);
    if (OPAL_LIKELY(XRC_INI_READY == xrc_node_state(node))) {
        return false;
    }
    pthread_mutex_lock(&node->setup);
    return true;
}

static inline void xrc_node_unlock(struct xrc_node *node, bool both)
{
    if (OPAL_UNLIKELY(both)) {
        pthread_mutex_unlock(&node->setup);
    }
    OPAL_THREAD_UNLOCK(&node->lock);
}

/** The node for a remote module's domain and port, made if there is none. Module lock held. */
struct xrc_node *xrc_node_get(mca_btl_xrc_module_t *module, const struct xrc_modex_module *remote);

/** Is it the domain of this process itself? */
bool xrc_node_is_own(const struct xrc_node *node);

/** For the counters: the fragments of @a chain wait no more. */
void xrc_node_count_taken(const struct xrc_frag *chain);

/** Hand @a frag to the send queue, or let it wait its turn. Starts connecting if need be. Error: not taken. */
int xrc_node_send(struct mca_btl_base_endpoint_t *endpoint, struct xrc_frag *frag);

/** Post @a wr (inline, unsignalled, lane 0) now or not at all: OPAL_ERR_RESOURCE_BUSY. */
int xrc_node_send_now(struct mca_btl_base_endpoint_t *endpoint, struct ibv_send_wr *wr);

/** Give back what @a frag held and send what waits. True: its endpoint has left and this was its last one. */
bool xrc_node_retire(struct xrc_frag *frag);

/**
 * Is there anything that has been taken over from upper layers and may not have arrived? What was posted without a completion
 * gets one.
 */
bool xrc_node_is_sending(struct xrc_node *node);

/** Post for peers that wait, in turn. */
void xrc_node_drain(struct xrc_node *node);

/**
 * Service thread: the INI of @a conn is in RTS. Posts what waits, since the application may not call us for long: a send that
 * has been buffered counts as done for it. False when the HCA refuses.
 */
bool xrc_node_service_ready(const struct xrc_conn *conn);

/** MPI side: have something go to the other side and an answer come back, if nothing is on the way that will do. */
void xrc_node_nudge(struct xrc_node *node);

/** MPI side: the service thread is done with a connection of this node. */
void xrc_node_connected(struct xrc_conn *conn);

/** MPI side: nobody holds the TGT of one of @a module's INIs any more. */
void xrc_node_gone(mca_btl_xrc_module_t *module, const struct xrc_gone *gone);

/** The INI is of no use any more: all its peers are reported, what waits is completed with an error. */
void xrc_node_fail(struct xrc_node *node, const char *why);

/** No peer needs it any more, or we finalize. */
void xrc_node_close(struct xrc_node *node);

/** Take it down for good, INI included. */
void xrc_node_destroy(struct xrc_node *node);

#endif
