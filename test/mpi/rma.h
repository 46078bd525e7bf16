/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows for the parts of rma_check. */
#ifndef MPI_CHECK_RMA_H
#define MPI_CHECK_RMA_H

#include "check.h"

/* How a window's memory comes about. */
enum flavor { CREATED, ALLOCATED, DYNAMIC, FLAVORS };

bool one_node(const struct check *c);

/* How many of these are worth trying: in Open MPI 4.1.4, osc/rdma waits for itself in a dynamic window whose ranks are on
 * several nodes (it takes the lock of the list of regions, then asks for it once more). */
int window_flavors(const struct check *c);

struct window {
    MPI_Win win;
    unsigned char *data;
    size_t len;
    enum flavor flavor;
    MPI_Aint *base; /* of each rank: its displacement 0 */
};

/* Every rank exposes len bytes, all GAP_BYTE; displacements count bytes. Collective. */
enum { GAP_BYTE = 0x5a };
struct window window_new(struct check *c, enum flavor flavor, size_t len);
void window_free(struct window *w);
const char *flavor_name(enum flavor flavor);

/* The displacement of byte `at` of `rank`. */
MPI_Aint window_at(const struct window *w, int rank, size_t at);

/* Judges len bytes at data, and that the GAP bytes before and behind them are untouched. Counts them as a message. */
void window_check(struct check *c, const unsigned char *data, size_t len, uint64_t key, const char *what);

void part_first(struct check *c);
void part_fence(struct check *c);
void part_lock(struct check *c);
void part_lock_all(struct check *c);
void part_pscw(struct check *c);
void part_vector(struct check *c);
void part_counters(struct check *c);
void part_swap(struct check *c);
void part_mutex(struct check *c);
void part_accumulate(struct check *c);
void part_fetch(struct check *c);

#endif
