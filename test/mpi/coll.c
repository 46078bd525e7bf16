/* SPDX-License-Identifier: BSD-3-Clause */
/* Collective parts. */
#include "buffer.h"
#include "check.h"

#include <stdlib.h>

/* Blocks of a collective lie side by side in one guarded buffer, so each is judged without guards of its own. */
static void check_block(struct check *c, const unsigned char *block, size_t len, int from, uint64_t serial)
{
    uint64_t key = check_key(c, from, c->rank, serial);
    size_t at = pattern_mismatch(block, len, key);

    if (at < len)
        check_error(c, "block of %zu bytes from %d: byte %zu is %02x and should be %02x", len, from, at, block[at],
                    pattern_byte(key, at));
    c->messages++;
    c->bytes += len;
}

static void alltoall(struct check *c, size_t block)
{
    size_t all = block * (size_t) c->ranks;
    unsigned char *out = buffer_new(all), *in = buffer_new(all);
    uint64_t serial = c->serial++;

    for (int peer = 0; peer < c->ranks; peer++)
        pattern_fill(out + block * (size_t) peer, block, check_key(c, c->rank, peer, serial));
    MPI_Alltoall(out, (int) block, MPI_BYTE, in, (int) block, MPI_BYTE, MPI_COMM_WORLD);
    for (int peer = 0; peer < c->ranks; peer++)
        check_block(c, in + block * (size_t) peer, block, peer, serial);
    if (!buffer_guards_intact(in, all))
        check_error(c, "alltoall wrote outside the receive buffer");
    buffer_free(out);
    buffer_free(in);
}

static int alltoallv_length(const struct check *c, int from, int to, uint64_t serial)
{
    uint64_t salt = (uint64_t) from * 65536 + (uint64_t) to;

    return check_random(c, serial, salt, 4) ? (int) check_random(c, serial, salt + 1, 50000) : 0;
}

/* Fills counts and displacements and returns the total. */
static size_t alltoallv_plan(const struct check *c, bool sending, uint64_t serial, int *counts, int *starts)
{
    int total = 0;

    for (int peer = 0; peer < c->ranks; peer++) {
        counts[peer] =
            sending ? alltoallv_length(c, c->rank, peer, serial) : alltoallv_length(c, peer, c->rank, serial);
        starts[peer] = total;
        total += counts[peer];
    }
    return (size_t) total;
}

static void alltoallv(struct check *c)
{
    int *plan = calloc(4 * (size_t) c->ranks, sizeof(int));
    int *out_counts = plan, *out_starts = plan + c->ranks, *in_counts = plan + 2 * c->ranks,
        *in_starts = plan + 3 * c->ranks;
    uint64_t serial = c->serial++;
    size_t out_len = alltoallv_plan(c, true, serial, out_counts, out_starts);
    size_t in_len = alltoallv_plan(c, false, serial, in_counts, in_starts);
    unsigned char *out = buffer_new(out_len), *in = buffer_new(in_len);

    for (int peer = 0; peer < c->ranks; peer++)
        pattern_fill(out + out_starts[peer], (size_t) out_counts[peer], check_key(c, c->rank, peer, serial));
    MPI_Alltoallv(out, out_counts, out_starts, MPI_BYTE, in, in_counts, in_starts, MPI_BYTE, MPI_COMM_WORLD);
    for (int peer = 0; peer < c->ranks; peer++)
        check_block(c, in + in_starts[peer], (size_t) in_counts[peer], peer, serial);
    if (!buffer_guards_intact(in, in_len))
        check_error(c, "alltoallv wrote outside the receive buffer");
    buffer_free(out);
    buffer_free(in);
    free(plan);
}

void part_alltoall(struct check *c)
{
    static const size_t blocks[] = {1, 8, 250, 4096, 13000, 66000, 300000};

    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]) && blocks[i] <= c->max; i++)
        alltoall(c, blocks[i]);
    for (int i = 0; i < 4; i++)
        alltoallv(c);
}

static uint64_t summand(const struct check *c, int rank, uint64_t serial, size_t i)
{
    return mix64(check_key(c, rank, 0, serial) + i) >> 16;
}

static void allreduce(struct check *c, size_t count)
{
    uint64_t *mine = malloc(count * sizeof(*mine)), *sum = malloc(count * sizeof(*sum));
    uint64_t serial = c->serial++;

    for (size_t i = 0; i < count; i++)
        mine[i] = summand(c, c->rank, serial, i);
    MPI_Allreduce(mine, sum, (int) count, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (size_t i = 0; i < count; i++) {
        uint64_t want = 0;
        for (int rank = 0; rank < c->ranks; rank++)
            want += summand(c, rank, serial, i);
        if (sum[i] != want) {
            check_error(c, "sum %zu of %zu is %llx and should be %llx", i, count, (unsigned long long) sum[i],
                        (unsigned long long) want);
            break;
        }
    }
    c->messages++;
    c->bytes += count * sizeof(*sum);
    free(mine);
    free(sum);
}

void part_allreduce(struct check *c)
{
    static const size_t counts[] = {1, 2, 7, 100, 1000, 1536, 8192, 100000};

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && counts[i] * 8 <= c->max; i++)
        allreduce(c, counts[i]);
}
