/* SPDX-License-Identifier: BSD-3-Clause */
/* Everything that is posted as a work request and comes back as a completion. */
#ifndef BTL_XRC_FRAG_H
#define BTL_XRC_FRAG_H

#include "btl_xrc.h"

enum xrc_frag_kind {
    XRC_FRAG_SEND, /* what alloc and prepare_src hand out */
    XRC_FRAG_RDMA, /* put, get or atomic */
    XRC_FRAG_MARK, /* retires unsignalled sends, nothing else */
    XRC_FRAG_LAST, /* the same, on an INI in the error state: what went before has arrived or come back */
};

/* What a put, get or atomic calls back with. */
struct xrc_rdma {
    mca_btl_base_rdma_completion_fn_t cbfunc;
    void *local_address;
    mca_btl_base_registration_handle_t *local_handle;
    void *context;
    void *cbdata;
};

/* What it does, and to which memory. */
struct xrc_rdma_op {
    enum ibv_wr_opcode opcode;
    uint64_t remote_address;
    uint32_t rkey;
    uint32_t area; /* of the remote handle */
    size_t size;
    uint64_t compare_add; /* atomics */
    uint64_t swap;
    bool unwanted; /* atomics: the old value */
};

struct xrc_frag {
    mca_btl_base_descriptor_t base;
    mca_btl_base_segment_t segment;
    struct mca_btl_base_endpoint_t *endpoint;
    struct xrc_node *node;
    struct xrc_frag *next; /* waits for its turn; node lock */
    opal_free_list_t *home;
    uint32_t retires; /* unsignalled work requests that went before it */
    uint8_t kind;     /* enum xrc_frag_kind */
    uint8_t lane;
    uint8_t may_be_done; /* send: if it goes inline, nobody needs to hear of its completion */
    struct ibv_sge sge;
    struct ibv_send_wr wr;
    struct xrc_rdma rdma;
};

OBJ_CLASS_DECLARATION(xrc_frag_send_t);
OBJ_CLASS_DECLARATION(xrc_frag_rdma_t);
OBJ_CLASS_DECLARATION(xrc_frag_mark_t);

/** Make @a module's free lists. An OPAL error code when memory cannot be had or registered. */
int xrc_frags_init(mca_btl_xrc_module_t *module);
void xrc_frags_fini(mca_btl_xrc_module_t *module);

static inline void xrc_frag_return(struct xrc_frag *frag)
{
    opal_free_list_return(frag->home, (opal_free_list_item_t *) frag);
}

/*
 * wr_id of a work request: its fragment, or, where nobody waits for it and it comes back only when it has failed, the rank it
 * went to and, above that, its node's serial number: its INI may be gone by the time somebody looks. Fragments have even
 * addresses.
 */
#define XRC_WR_SERIAL(n) ((uint64_t) (n) << 33)

static inline uint64_t xrc_wr_nameless(uint64_t serial, uint32_t vpid)
{
    return serial | (uint64_t) vpid << 1 | 1;
}

static inline struct xrc_frag *xrc_wr_frag(uint64_t wr_id)
{
    return 0 == (wr_id & 1) ? (struct xrc_frag *) (uintptr_t) wr_id : NULL;
}

/* Of a work request without a fragment. */
static inline uint32_t xrc_wr_vpid(uint64_t wr_id)
{
    return (uint32_t) (wr_id >> 1);
}

static inline uint64_t xrc_wr_serial(uint64_t wr_id)
{
    return wr_id & XRC_WR_SERIAL(UINT32_MAX);
}

/** The header in front of a send fragment's payload. */
static inline struct xrc_hdr *xrc_frag_hdr(struct xrc_frag *frag)
{
    return (struct xrc_hdr *) frag->base.super.ptr;
}

/** Tell whoever issued @a frag how it ended, and give it back. */
void xrc_frag_finish(struct xrc_frag *frag, int status);

/**
 * Issue a put, get or atomic. Always OPAL_SUCCESS and a callback, or an error and none: callers take any other value for
 * a failure.
 */
int xrc_frag_rdma(mca_btl_xrc_module_t *module, struct mca_btl_base_endpoint_t *endpoint, const struct xrc_rdma *rdma,
                  const struct xrc_rdma_op *op);

#endif
