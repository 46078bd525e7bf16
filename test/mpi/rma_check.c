/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided communication of every kind between MPI ranks; every byte and every sum is looked at. */
#include "rma.h"

#include "buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char check_name[] = "rma_check";
const int check_threads = MPI_THREAD_SINGLE;

const struct part check_parts[] = {
    {"first", "a put to every rank before anything else", part_first},
    {"fence", "each size put to and got from a neighbour", part_fence},
    {"lock", "put, flush and get under exclusive and shared locks", part_lock},
    {"lock_all", "64 requests to every rank at once", part_lock_all},
    {"pscw", "post, start, complete, wait", part_pscw},
    {"vector", "strided types on both sides, and what lies between the strides", part_vector},
    {"counters", "counters that all ranks add to, each value handed out once", part_counters},
    {"swap", "MPI_Compare_and_swap, contended and as a lock's only user", part_swap},
    {"mutex", "get, add, put under an exclusive lock", part_mutex},
    {"accumulate", "MPI_Accumulate of several types and operations", part_accumulate},
    {"fetch", "MPI_Get_accumulate: what it fetches and what it leaves", part_fetch},
};
const size_t check_part_count = sizeof(check_parts) / sizeof(check_parts[0]);

bool one_node(const struct check *c)
{
    MPI_Comm node;
    int size;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &size);
    MPI_Comm_free(&node);
    return size == c->ranks;
}

int window_flavors(const struct check *c)
{
    return one_node(c) ? FLAVORS : DYNAMIC;
}

const char *flavor_name(enum flavor flavor)
{
    static const char *const names[FLAVORS] = {"created", "allocated", "dynamic"};

    return names[flavor];
}

struct window window_new(struct check *c, enum flavor flavor, size_t len)
{
    struct window w = {.len = len, .flavor = flavor, .base = calloc((size_t) c->ranks, sizeof(MPI_Aint))};
    MPI_Aint mine = 0;

    if (flavor == ALLOCATED) {
        MPI_Win_allocate((MPI_Aint) len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w.data, &w.win);
    } else {
        w.data = buffer_new(len);
        if (flavor == CREATED)
            MPI_Win_create(w.data, (MPI_Aint) len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w.win);
        else
            MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &w.win);
    }
    if (flavor == DYNAMIC) {
        MPI_Win_attach(w.win, w.data, (MPI_Aint) len);
        MPI_Get_address(w.data, &mine);
    }
    memset(w.data, GAP_BYTE, len);
    MPI_Allgather(&mine, 1, MPI_AINT, w.base, 1, MPI_AINT, MPI_COMM_WORLD);
    return w;
}

void window_free(struct window *w)
{
    if (w->flavor == DYNAMIC) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_detach(w->win, w->data);
    }
    MPI_Win_free(&w->win);
    if (w->flavor != ALLOCATED)
        buffer_free(w->data);
    free(w->base);
}

MPI_Aint window_at(const struct window *w, int rank, size_t at)
{
    return MPI_Aint_add(w->base[rank], (MPI_Aint) at);
}

void window_check(struct check *c, const unsigned char *data, size_t len, uint64_t key, const char *what)
{
    enum { LOOK = 16 };
    size_t at = pattern_mismatch(data, len, key);

    if (at < len)
        check_error(c, "%s: byte %zu of %zu is %02x and should be %02x", what, at, len, data[at],
                    pattern_byte(key, at));
    for (size_t i = 1; i <= LOOK; i++)
        if (*(data - i) != GAP_BYTE || data[len + i - 1] != GAP_BYTE) {
            check_error(c, "%s: something was written before or behind %zu bytes", what, len);
            break;
        }
    c->messages++;
    c->bytes += len;
}
