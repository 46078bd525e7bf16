/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of rma_check in which all ranks change the same words. */
#include "buffer.h"
#include "rma.h"

#include <stdlib.h>
#include <string.h>

enum { TIMES = 200 };

/*
 * How often each rank does what only one can do at a time, and to whose words. Where there are more ranks than cores, most wait for one
 * that does not run, so many ranks do as much in all as four do, and not to every rank's words.
 */
static int turns(const struct check *c)
{
    return c->ranks > 4 ? 4 * TIMES / c->ranks : TIMES;
}

static int next_host(const struct check *c, int host)
{
    return host + (c->ranks > 8 ? 3 : 1);
}

/* Every rank's `values`, one a turn, together are 0 to turns * ranks - 1, each once. */
static void check_each_once(struct check *c, const int64_t *values, const char *what)
{
    int mine = turns(c), all = mine * c->ranks;
    int64_t *everybody = malloc((size_t) all * sizeof(*everybody));
    char *seen = calloc((size_t) all, 1);

    MPI_Allgather(values, mine, MPI_INT64_T, everybody, mine, MPI_INT64_T, MPI_COMM_WORLD);
    for (int i = 0; i < all; i++) {
        int64_t value = everybody[i];
        if (value < 0 || value >= all || seen[value]++) {
            check_error(c, "%s: %lld was handed out twice, or is no value of the counter", what, (long long) value);
            break;
        }
    }
    c->messages += (uint64_t) mine;
    free(everybody);
    free(seen);
}

static void clear(struct window *w)
{
    MPI_Win_lock_all(0, w->win);
    memset(w->data, 0, w->len);
    MPI_Win_sync(w->win);
    MPI_Win_unlock_all(w->win);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* All count up the word of `host`, in turn with 64 and with 32 bits. */
static void count_up(struct check *c, struct window *w, int host, bool wide)
{
    int64_t values[TIMES], one = 1;
    int32_t narrow, narrow_one = 1;

    clear(w);
    MPI_Win_lock_all(0, w->win);
    for (int i = 0; i < turns(c); i++) {
        if (wide)
            MPI_Fetch_and_op(&one, &values[i], MPI_INT64_T, host, window_at(w, host, 8), MPI_SUM, w->win);
        else
            MPI_Fetch_and_op(&narrow_one, &narrow, MPI_INT32_T, host, window_at(w, host, 20), MPI_SUM, w->win);
        MPI_Win_flush(host, w->win);
        if (!wide)
            values[i] = narrow;
    }
    MPI_Win_unlock_all(w->win);
    check_each_once(c, values, wide ? "a counter of 64 bits" : "a counter of 32 bits");
    for (size_t at = 0; c->rank == host && at < w->len; at++)
        if (w->data[at] && at / 8 != (wide ? 1 : 2))
            check_error(c, "byte %zu beside the counter was changed", at);
}

void part_counters(struct check *c)
{
    for (int flavor = 0; flavor < window_flavors(c); flavor++) {
        struct window w = window_new(c, (enum flavor) flavor, 64);
        for (int host = 0; host < c->ranks; host = next_host(c, host))
            count_up(c, &w, host, (flavor + host) % 2 == 0);
        window_free(&w);
    }
}

/* Counting by compare-and-swap: whoever swaps n for n + 1 owns n. Before 4.1.5, osc/rdma of Open MPI swaps a rank's own
 * words by CPU when all ranks are on one node, but those of others by the HCA. By CPU means to look and then to copy, which
 * nothing makes one step, not even an HCA whose atomics exclude the CPU's: the host looks on there. */
static void count_by_swap(struct check *c, struct window *w, int host, size_t at, bool host_too)
{
    int64_t values[TIMES], known = 0, all;
    int counted = 0, mine = turns(c), left = host_too || c->rank != host ? mine : 0;

    clear(w);
    MPI_Win_lock_all(0, w->win);
    while (counted < left) {
        int64_t next = known + 1, found = -1;
        MPI_Compare_and_swap(&next, &known, &found, MPI_INT64_T, host, window_at(w, host, at), w->win);
        MPI_Win_flush(host, w->win);
        if (found == known)
            values[counted++] = known++;
        else
            known = found;
    }
    MPI_Win_unlock_all(w->win);
    for (all = mine * (c->ranks - 1); counted < mine;)
        values[counted++] = all++;
    check_each_once(c, values, "compare-and-swap");
}

/* Whoever holds a rank's exclusive lock is alone, with itself as with others. */
static void swap_alone(struct check *c, struct window *w, int host)
{
    for (int i = 0; i < turns(c); i++) {
        int64_t known = -1, next, found = -1;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, host, 0, w->win);
        MPI_Get(&known, 1, MPI_INT64_T, host, window_at(w, host, 0), 1, MPI_INT64_T, w->win);
        MPI_Win_flush(host, w->win);
        next = known + 1;
        MPI_Compare_and_swap(&next, &known, &found, MPI_INT64_T, host, window_at(w, host, 0), w->win);
        MPI_Win_unlock(host, w->win);
        if (found != known)
            check_error(c, "the word of %d changed from %lld to %lld under an exclusive lock", host, (long long) known,
                        (long long) found);
    }
    c->messages += (uint64_t) turns(c);
}

static void check_word(struct check *c, struct window *w, int host, int64_t want, const char *what)
{
    int64_t word;

    MPI_Barrier(MPI_COMM_WORLD);
    if (c->rank != host)
        return;
    MPI_Win_lock(MPI_LOCK_SHARED, host, 0, w->win);
    memcpy(&word, w->data, sizeof(word));
    MPI_Win_unlock(host, w->win);
    if (word != want)
        check_error(c, "%s: the sum is %lld and should be %lld", what, (long long) word, (long long) want);
}

void part_swap(struct check *c)
{
    bool host_too = !one_node(c);

    for (int flavor = 0; flavor < window_flavors(c); flavor++) {
        struct window w = window_new(c, (enum flavor) flavor, 64);
        for (int host = 0; host < c->ranks; host = next_host(c, host)) {
            count_by_swap(c, &w, host, 12, true); /* no HCA swaps across a boundary of 8 bytes */
            count_by_swap(c, &w, host, 0, host_too);
            swap_alone(c, &w, host);
            check_word(c, &w, host, turns(c) * (2 * c->ranks - !host_too), "compare-and-swap");
        }
        window_free(&w);
    }
}

void part_mutex(struct check *c)
{
    for (int flavor = 0; flavor < window_flavors(c); flavor++) {
        struct window w = window_new(c, (enum flavor) flavor, 64);
        clear(&w);
        for (int i = 0; i < turns(c) * c->ranks; i++) {
            int host = (c->rank + i) % c->ranks;
            int64_t word = 0;
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, host, 0, w.win);
            MPI_Get(&word, 1, MPI_INT64_T, host, window_at(&w, host, 0), 1, MPI_INT64_T, w.win);
            MPI_Win_flush(host, w.win);
            word++;
            MPI_Put(&word, 1, MPI_INT64_T, host, window_at(&w, host, 0), 1, MPI_INT64_T, w.win);
            MPI_Win_unlock(host, w.win);
        }
        for (int host = 0; host < c->ranks; host++)
            check_word(c, &w, host, turns(c) * c->ranks, "get, add, put");
        window_free(&w);
        c->messages += 2 * (uint64_t) (turns(c) * c->ranks);
    }
}

/* ---- MPI_Accumulate and MPI_Get_accumulate ---- */

/* So small that sums of doubles are exact. */
static int64_t operand(const struct check *c, int rank, uint64_t serial, size_t i)
{
    return (int64_t) (mix64(check_key(c, rank, 0, serial) + i) & 0xffff);
}

static void store(void *array, size_t i, MPI_Datatype type, int64_t value)
{
    if (type == MPI_DOUBLE)
        ((double *) array)[i] = (double) value;
    else if (type == MPI_INT32_T)
        ((int32_t *) array)[i] = (int32_t) value;
    else
        ((int64_t *) array)[i] = value;
}

static int64_t load(const void *array, size_t i, MPI_Datatype type)
{
    if (type == MPI_DOUBLE)
        return (int64_t) ((const double *) array)[i];
    return type == MPI_INT32_T ? ((const int32_t *) array)[i] : ((const int64_t *) array)[i];
}

static int64_t combine(MPI_Op op, int64_t a, int64_t b)
{
    if (op == MPI_SUM)
        return a + b;
    if (op == MPI_MAX)
        return a > b ? a : b;
    return a ^ b;
}

/* All ranks accumulate `count` operands on every rank. */
static void accumulate_round(struct check *c, struct window *w, size_t count, MPI_Datatype type, MPI_Op op)
{
    unsigned char *mine = buffer_new(count * 8);
    uint64_t serial = c->serial++;

    clear(w);
    for (size_t i = 0; i < count; i++)
        store(mine, i, type, operand(c, c->rank, serial, i));
    MPI_Win_fence(0, w->win);
    for (int i = 0; i < c->ranks; i++) {
        int host = (c->rank + i) % c->ranks;
        MPI_Accumulate(mine, (int) count, type, host, window_at(w, host, 0), (int) count, type, op, w->win);
    }
    MPI_Win_fence(0, w->win);
    for (size_t i = 0; i < count; i++) {
        int64_t want = 0, is = load(w->data, i, type);
        for (int rank = 0; rank < c->ranks; rank++)
            want = combine(op, want, operand(c, rank, serial, i));
        if (is != want) {
            check_error(c, "result %zu of %zu is %lld and should be %lld", i, count, (long long) is, (long long) want);
            break;
        }
    }
    c->messages += (uint64_t) c->ranks;
    c->bytes += count * 8 * (size_t) c->ranks;
    buffer_free(mine);
}

void part_accumulate(struct check *c)
{
    static const size_t counts[] = {1, 2, 30, 1000, 20000};
    const MPI_Datatype types[] = {MPI_INT64_T, MPI_INT32_T, MPI_DOUBLE};
    const MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_BXOR};

    for (int flavor = 0; flavor < window_flavors(c); flavor++) {
        struct window w = window_new(c, (enum flavor) flavor, 20000 * 8);
        for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
            for (size_t i = 0; i < 9; i++)
                if (types[i / 3] != MPI_DOUBLE || ops[i % 3] != MPI_BXOR)
                    accumulate_round(c, &w, counts[k], types[i / 3], ops[i % 3]);
        window_free(&w);
    }
}

/* What each rank fetches from `host` while all add 1: between 0 and ranks - 1 for each word, and no value twice. */
static void fetch_round(struct check *c, struct window *w, size_t count, int host)
{
    int64_t *one = malloc(count * 8), *got = malloc(count * 8), *all = malloc(count * 8 * (size_t) c->ranks);

    clear(w);
    for (size_t i = 0; i < count; i++)
        one[i] = 1;
    MPI_Win_lock(MPI_LOCK_SHARED, host, 0, w->win);
    MPI_Get_accumulate(one, (int) count, MPI_INT64_T, got, (int) count, MPI_INT64_T, host, window_at(w, host, 0),
                       (int) count, MPI_INT64_T, MPI_SUM, w->win);
    MPI_Win_unlock(host, w->win);
    MPI_Allgather(got, (int) count, MPI_INT64_T, all, (int) count, MPI_INT64_T, MPI_COMM_WORLD);
    for (size_t i = 0; i < count; i++) {
        uint64_t seen = 0;
        for (int rank = 0; rank < c->ranks; rank++)
            seen |= UINT64_C(1) << (all[(size_t) rank * count + i] & 63);
        if (seen != (UINT64_C(1) << c->ranks) - 1) {
            check_error(c, "word %zu of %zu: somebody fetched what another had", i, count);
            break;
        }
    }
    MPI_Win_lock(MPI_LOCK_SHARED, host, 0, w->win);
    MPI_Get_accumulate(NULL, 0, MPI_BYTE, got, (int) count, MPI_INT64_T, host, window_at(w, host, 0), (int) count,
                       MPI_INT64_T, MPI_NO_OP, w->win);
    MPI_Win_unlock(host, w->win);
    for (size_t i = 0; i < count; i++)
        if (got[i] != c->ranks) {
            check_error(c, "word %zu of %zu is %lld and should be %d", i, count, (long long) got[i], c->ranks);
            break;
        }
    MPI_Barrier(MPI_COMM_WORLD);
    c->messages += 2;
    c->bytes += 2 * count * 8;
    free(one);
    free(got);
    free(all);
}

/* No more than 4096 bytes, which go in one piece. Of larger ones, osc/rdma of Open MPI 4.1.4 fetches a last piece of 32 words
 * or fewer wrongly, and between hosts it gives the lock back in the callback of the last put, where it waits for a buffer
 * that this same callback is to return. */
void part_fetch(struct check *c)
{
    static const size_t counts[] = {1, 10, 500};

    for (int flavor = 0; flavor < window_flavors(c); flavor++) {
        struct window w = window_new(c, (enum flavor) flavor, 20000 * 8);
        for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
            for (int host = 0; host < c->ranks; host++)
                fetch_round(c, &w, counts[k], host);
        window_free(&w);
    }
}
