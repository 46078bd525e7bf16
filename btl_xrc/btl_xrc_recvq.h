/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receive_queues parameter: "X,size,num[,low[,window[,init[,limit]]]]" for each size class, separated by ":".
 * The fields are those that the openib transport had. Plain C, so that it can be tested alone.
 */
#ifndef BTL_XRC_RECVQ_H
#define BTL_XRC_RECVQ_H

#include "btl_xrc_wire.h"

#ifdef __cplusplus
extern "C" {
#endif

#define XRC_RECVQ_MAX_SIZE (64u << 20) /**< largest buffer of a class */
#define XRC_RECVQ_MAX_NUM  65535u      /**< most buffers of a class */

/**
 * The parameter's default. With send buffers, UD queue and some room for user memory it fits into the 8 MiB that many
 * systems let an ordinary user lock, even when all queues have grown.
 */
#define XRC_RECVQ_DEFAULT "X,1024,512:X,12288,128:X,65536,32"

/** Send buffers of a class that are made at a time, where the user does not say. */
#define XRC_RECVQ_SENDS 32

/* The UD queue of a module: buffers for receives and for sends, and what each takes. */
#define XRC_UD_RECVS 512u
#define XRC_UD_SENDS 64u
#define XRC_UD_SLOT  256u /**< GRH, message, and room to keep slots apart */

/** One size class. */
struct xrc_recvq_class {
    uint32_t size;   /**< largest payload */
    uint32_t num;    /**< receive buffers */
    uint32_t low;    /**< post again when so few are left posted */
    uint32_t window; /**< sends of this class on the way per INI QP */
    uint32_t init;   /**< buffers made at the start */
    uint32_t limit;  /**< SRQ limit at the start: below it more are made */
};

/** All size classes, smallest first. */
struct xrc_recvq {
    unsigned nclasses;
    struct xrc_recvq_class c[XRC_MAX_CLASSES];
};

enum xrc_recvq_fault {
    XRC_RECVQ_OK = 0,
    XRC_RECVQ_EMPTY,
    XRC_RECVQ_NOT_X,  /**< a P or S queue, alone or beside X queues */
    XRC_RECVQ_TYPE,   /**< no known letter */
    XRC_RECVQ_FIELDS, /**< too few or too many */
    XRC_RECVQ_NUMBER, /**< not a number */
    XRC_RECVQ_SIZE,   /**< buffer size out of range */
    XRC_RECVQ_NUM,    /**< number of buffers out of range */
    XRC_RECVQ_LOW,    /**< low must be below num */
    XRC_RECVQ_WINDOW, /**< window out of range */
    XRC_RECVQ_INIT,   /**< init above num */
    XRC_RECVQ_LIMIT,  /**< limit must be below init */
    XRC_RECVQ_ORDER,  /**< sizes must rise */
    XRC_RECVQ_MANY,   /**< more than XRC_MAX_CLASSES */
};

/**
 * Parse @a spec. On a fault, *where (if asked for) is the index of the entry at fault, and @a out is not touched.
 */
enum xrc_recvq_fault xrc_recvq_parse(const char *spec, struct xrc_recvq *out, unsigned *where);

/** For people: what is wrong. */
const char *xrc_recvq_fault_text(enum xrc_recvq_fault fault);

/** What a receive buffer of a class takes: whole cache lines. */
static inline size_t xrc_recvq_stride(uint32_t size)
{
    return (sizeof(struct xrc_hdr) + size + 63) / 64 * 64;
}

/** How many send buffers are made at a time: as many as asked for, of big ones only a few: locked memory may be scarce. */
unsigned xrc_recvq_sends_at_a_time(unsigned asked, uint32_t size);

/** Receive buffers that a queue of @a made gets next: init of them, then as many as it has, until there are num. */
static inline uint32_t xrc_recvq_next(const struct xrc_recvq_class *c, uint32_t made)
{
    uint32_t left = c->num - made;
    return made == 0 ? c->init : made < left ? made : left;
}

/** What @a n receive buffers made together take: whole pages. */
size_t xrc_recvq_bytes(const struct xrc_recvq_class *c, uint32_t n, size_t page);

/** Locked memory of a port, in bytes: receive buffers, first send buffers, UD queue. */
struct xrc_recvq_locked {
    size_t start; /**< at its start */
    size_t most;  /**< when all receive queues have grown */
};
struct xrc_recvq_locked xrc_recvq_locked(const struct xrc_recvq *q, size_t page);

/** The smallest class that holds @a len payload bytes; nclasses when none does. */
static inline unsigned xrc_recvq_class_of(const struct xrc_recvq *q, size_t len)
{
    unsigned i = 0;
    while (i < q->nclasses && len > q->c[i].size) {
        ++i;
    }
    return i;
}

#ifdef __cplusplus
}
#endif
#endif
