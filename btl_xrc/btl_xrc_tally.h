/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What happened, in numbers: their names, a row of them for each rank, and the report that the rows of a host add up to.
 *
 * The rows lie in a file. Each rank holds a shared lock on it from its start to its end, when it adds its row; who then
 * gets the lock alone was the last, prints, and empties and removes the file. The kernel lets go of a dead rank's lock, so nobody
 * waits for it, nor for anybody else. A process must open the file once only, see fcntl(2). Plain C and POSIX, so that
 * it can be tested alone.
 */
#ifndef BTL_XRC_TALLY_H
#define BTL_XRC_TALLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "btl_xrc_wire.h"

#ifdef __cplusplus
extern "C" {
#endif

enum xrc_stat {
    XRC_STAT_INI_MADE,
    XRC_STAT_INI,
    XRC_STAT_TGT_MADE,
    XRC_STAT_TGT_OPENED,
    XRC_STAT_TGT,
    XRC_STAT_RECV_BYTES,
    XRC_STAT_WIREUP_BYTES,
    XRC_STAT_CACHE_BYTES,
    XRC_STAT_CACHE_MOST,
    XRC_STAT_REGISTERED,
    XRC_STAT_WAITING,
    XRC_STAT_WAITING_MOST,
    XRC_STAT_SRQ_BUFFERS,
    XRC_STAT_SRQ_LOW,
    XRC_STAT_SRQ_LIMITS,
    XRC_STAT_RNR,
    XRC_STAT_RETRIES,
    XRC_STAT_REQUESTS,
    XRC_STAT_RESENDS,
    XRC_STAT_CONNECT_LAST,
    XRC_STAT_CONNECT_MOST,
    XRC_STAT_MIGRATIONS,
    XRC_STAT_ARMINGS,
    XRC_STAT_NOTICES,
    XRC_STAT_PORT_ERRORS,
    XRC_STAT_PUTS,
    XRC_STAT_GETS,
    XRC_STAT_ATOMICS,
    XRC_STAT_BLIND,
    XRC_STAT_BOUNCED,
    XRC_STAT_DROPPED,
    XRC_STATS
};

/** How a number changes; ranks' numbers are added up, but for the last three. */
enum xrc_stat_kind {
    XRC_STAT_COUNTER, /**< only rises */
    XRC_STAT_LEVEL,   /**< what there is now */
    XRC_STAT_HIGH,    /**< the most there has been: the highest of all ranks */
    XRC_STAT_LOW,     /**< the least: the lowest of all ranks */
    XRC_STAT_SHARED,  /**< a counter of the HCA, which all ranks see: the highest */
};

struct xrc_stat_info {
    const char *name;
    const char *help;
    enum xrc_stat_kind kind;
};

extern const struct xrc_stat_info xrc_stat_info[XRC_STATS];

/** Whom a rank has met by one of its ports, and the INI QPs it made for that. */
struct xrc_tally_rail {
    char device[64];
    uint32_t port;
    uint32_t lid;
    uint32_t domains;   /**< remote ones */
    uint32_t peers;     /**< ranks in those */
    uint32_t own_peers; /**< ranks in our own, but for ourselves */
    uint32_t inis;
    struct xrc_moved moved[XRC_MAX_SIDES]; /**< of these INIs, those that have migrated, by where they are now */
};

/** One rank's numbers, as they lie in the file. */
struct xrc_tally_row {
    uint64_t magic;
    uint32_t rank;
    uint32_t ended; /**< 0: written at the start, without numbers */
    uint32_t nrails;
    uint32_t pad;
    uint64_t recv_formula; /**< bytes of receive buffers that receive_queues allows */
    uint64_t recv_start;   /**< of these, what queues start with */
    uint64_t stat[XRC_STATS];
    struct xrc_tally_rail rail[XRC_MAX_MODULES];
};

/** A rail as all ranks of the host see it. */
struct xrc_tally_sum_rail {
    struct xrc_tally_rail at; /**< device, port, LID and inis; of peers the most that any rank has */
    uint32_t ranks;
    uint32_t own_ranks; /**< those that reach others of their own domain */
    uint32_t pairs;     /**< ranks here and their peers: what RC would need QPs for */
    uint32_t wanted;    /**< INI QPs by the formula */
};

/** All rows of a host together. */
struct xrc_tally {
    unsigned joined;
    unsigned ended;
    unsigned nrails;
    uint64_t recv_formula;
    uint64_t recv_start;
    uint64_t stat[XRC_STATS];
    struct xrc_tally_sum_rail rail[2 * XRC_MAX_MODULES];
};

/** Open or make the file at @a path and say that @a rank is there. A descriptor, or -1 and errno. */
int xrc_tally_join(const char *path, uint32_t rank);

/**
 * Add @a row and let go. True: this was the last rank, @a sum has what all have written, and the file is gone. Closes
 * @a fd.
 */
bool xrc_tally_leave(int fd, const char *path, struct xrc_tally_row *row, struct xrc_tally *sum);

/** Add @a row up; what makes no sense in it, or does not fit, is left out. */
void xrc_tally_add(struct xrc_tally *sum, const struct xrc_tally_row *row);

/** The report, to be freed; NULL without memory. */
char *xrc_tally_text(const struct xrc_tally *sum, const char *host);

#ifdef __cplusplus
}
#endif
#endif
