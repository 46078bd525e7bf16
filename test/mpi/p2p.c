/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts that send from one rank to another. */
#include "buffer.h"
#include "check.h"

#include <stdlib.h>
#include <string.h>

static int tag_of(uint64_t serial)
{
    return (int) (serial % 30000);
}

/* One message to `to` and one from `from`, of the same length. */
static void exchange(struct check *c, int to, int from, size_t len)
{
    unsigned char *out = buffer_new(len), *in = buffer_new(len);
    uint64_t serial = c->serial++;
    MPI_Status status;
    int count;

    pattern_fill(out, len, check_key(c, c->rank, to, serial));
    MPI_Sendrecv(out, (int) len, MPI_BYTE, to, tag_of(serial), in, (int) len, MPI_BYTE, from, tag_of(serial),
                 MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (count != (int) len)
        check_error(c, "from %d: %d bytes where %zu were sent", from, count, len);
    check_received(c, in, len, from, serial);
    buffer_free(out);
    buffer_free(in);
}

void part_sizes(struct check *c)
{
    int right = (c->rank + 1) % c->ranks, left = (c->rank + c->ranks - 1) % c->ranks;

    for (size_t i = 0; i < c->sizes.n; i++)
        exchange(c, right, left, c->sizes.v[i]);
}

void part_self(struct check *c)
{
    for (size_t i = 0; i < c->sizes.n; i++)
        exchange(c, c->rank, c->rank, c->sizes.v[i]);
}

/* Sizes for many messages at once: mostly the interesting small ones, now and then a large one. */
static size_t mixed_size(const struct check *c, uint64_t serial)
{
    size_t bound = check_random(c, serial, 1, 16) ? 70000 : 1 << 21;
    size_t size = c->sizes.v[check_random(c, serial, 2, c->sizes.n)];

    return size <= bound ? size : size % bound;
}

enum { WINDOW = 64, ROUNDS = 4 };

/* Receives are posted in another order than the messages are sent, half of them after the sends, so that both
 * expected and unexpected messages occur. */
static void window_round(struct check *c, int to, int from)
{
    unsigned char *out[WINDOW], *in[WINDOW];
    size_t len[WINDOW];
    MPI_Request requests[2 * WINDOW];
    uint64_t first = c->serial;

    for (int i = 0; i < WINDOW; i++) {
        len[i] = mixed_size(c, first + i);
        out[i] = buffer_new(len[i]);
        in[i] = buffer_new(len[i]);
        pattern_fill(out[i], len[i], check_key(c, c->rank, to, first + i));
    }
    for (int i = WINDOW - 1; i >= WINDOW / 2; i--)
        MPI_Irecv(in[i], (int) len[i], MPI_BYTE, from, tag_of(first + i), MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < WINDOW; i++)
        MPI_Isend(out[i], (int) len[i], MPI_BYTE, to, tag_of(first + i), MPI_COMM_WORLD, &requests[WINDOW + i]);
    for (int i = 0; i < WINDOW / 2; i++)
        MPI_Irecv(in[i], (int) len[i], MPI_BYTE, from, tag_of(first + i), MPI_COMM_WORLD, &requests[i]);
    MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < WINDOW; i++) {
        check_received(c, in[i], len[i], from, first + i);
        buffer_free(out[i]);
        buffer_free(in[i]);
    }
    c->serial += WINDOW;
}

void part_window(struct check *c)
{
    for (int round = 0; round < ROUNDS; round++)
        for (int step = c->ranks > 1; step < c->ranks; step++)
            window_round(c, (c->rank + step) % c->ranks, (c->rank + c->ranks - step) % c->ranks);
}

/* `blocks` blocks of `block` bytes, their starts `stride` bytes apart. */
struct layout {
    size_t blocks, block, stride;
};

static size_t layout_span(struct layout l)
{
    return (l.blocks - 1) * l.stride + l.block;
}

enum { GAP_BYTE = 0x5a };

static unsigned char *layout_new(struct layout l)
{
    unsigned char *data = buffer_new(layout_span(l));

    memset(data, GAP_BYTE, layout_span(l));
    return data;
}

static void layout_fill(unsigned char *data, struct layout l, uint64_t key)
{
    for (size_t b = 0; b < l.blocks; b++)
        for (size_t i = 0; i < l.block; i++)
            data[b * l.stride + i] = pattern_byte(key, b * l.block + i);
}

static void layout_check(struct check *c, const unsigned char *data, struct layout l, int from, uint64_t key)
{
    for (size_t at = 0; at < layout_span(l); at++) {
        size_t b = at / l.stride, i = at % l.stride;
        unsigned char want = i < l.block ? pattern_byte(key, b * l.block + i) : GAP_BYTE;
        if (data[at] != want) {
            check_error(c, "from %d: %zu blocks of %zu every %zu: byte %zu (%s) is %02x and should be %02x", from,
                        l.blocks, l.block, l.stride, at, i < l.block ? "data" : "gap", data[at], want);
            return;
        }
    }
    if (!buffer_guards_intact(data, layout_span(l)))
        check_error(c, "from %d: bytes outside the strided buffer were written", from);
}

static MPI_Datatype layout_type(struct layout l)
{
    MPI_Datatype type;

    MPI_Type_vector((int) l.blocks, (int) l.block, (int) l.stride, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    return type;
}

static void strided_exchange(struct check *c, struct layout sent, struct layout received)
{
    int to = (c->rank + 1) % c->ranks, from = (c->rank + c->ranks - 1) % c->ranks;
    uint64_t serial = c->serial++;
    unsigned char *out = layout_new(sent), *in = layout_new(received);
    MPI_Datatype out_type = layout_type(sent), in_type = layout_type(received);

    layout_fill(out, sent, check_key(c, c->rank, to, serial));
    MPI_Sendrecv(out, 1, out_type, to, tag_of(serial), in, 1, in_type, from, tag_of(serial), MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    layout_check(c, in, received, from, check_key(c, from, c->rank, serial));
    c->messages++;
    c->bytes += received.blocks * received.block;
    MPI_Type_free(&out_type);
    MPI_Type_free(&in_type);
    buffer_free(out);
    buffer_free(in);
}

void part_strided(struct check *c)
{
    static const size_t totals[] = {24, 240, 4080, 12240, 65520, 120000, 1200000, 2400000};

    for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
        size_t total = totals[i];
        if (total > c->max)
            break;
        struct layout whole = {1, total, total}, bytes = {total, 1, 3}, eights = {total / 8, 8, 16},
                      twelves = {total / 12, 12, 13};
        strided_exchange(c, whole, eights);
        strided_exchange(c, eights, whole);
        strided_exchange(c, twelves, eights);
        strided_exchange(c, bytes, twelves);
    }
}

void part_pairs(struct check *c)
{
    static const size_t lengths[] = {0, 1, 100, 4000, 12345, 70001, 600000};
    MPI_Request *requests = calloc(2 * (size_t) c->ranks, sizeof(MPI_Request));
    unsigned char **buffers = calloc(2 * (size_t) c->ranks, sizeof(*buffers));

    for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]) && lengths[k] <= c->max; k++) {
        size_t len = lengths[k];
        uint64_t serial = c->serial++;
        for (int peer = 0; peer < c->ranks; peer++) {
            buffers[peer] = buffer_new(len);
            buffers[c->ranks + peer] = buffer_new(len);
            pattern_fill(buffers[peer], len, check_key(c, c->rank, peer, serial));
            MPI_Irecv(buffers[c->ranks + peer], (int) len, MPI_BYTE, peer, tag_of(serial), MPI_COMM_WORLD,
                      &requests[c->ranks + peer]);
        }
        for (int peer = 0; peer < c->ranks; peer++)
            MPI_Isend(buffers[peer], (int) len, MPI_BYTE, peer, tag_of(serial), MPI_COMM_WORLD, &requests[peer]);
        MPI_Waitall(2 * c->ranks, requests, MPI_STATUSES_IGNORE);
        for (int peer = 0; peer < c->ranks; peer++) {
            check_received(c, buffers[c->ranks + peer], len, peer, serial);
            buffer_free(buffers[peer]);
            buffer_free(buffers[c->ranks + peer]);
        }
    }
    free(buffers);
    free(requests);
}

/* The receiver knows neither sender nor length before it looks. */
static void probe_and_receive(struct check *c, uint64_t serial, size_t len)
{
    MPI_Status status;
    int count;

    MPI_Probe(MPI_ANY_SOURCE, tag_of(serial), MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (count != (int) len)
        check_error(c, "probe: from %d: %d bytes where %zu were sent", status.MPI_SOURCE, count, len);
    unsigned char *in = buffer_new((size_t) count);
    MPI_Recv(in, count, MPI_BYTE, status.MPI_SOURCE, tag_of(serial), MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check_received(c, in, (size_t) count, status.MPI_SOURCE, serial);
    buffer_free(in);
}

/* Everybody sends to everybody with MPI_Issend, which completes only when the message was matched. */
void part_probe(struct check *c)
{
    enum { PROBES = 12 };
    MPI_Request *requests = calloc((size_t) c->ranks, sizeof(MPI_Request));
    unsigned char **out = calloc((size_t) c->ranks, sizeof(*out));

    for (int k = 0; k < PROBES; k++) {
        uint64_t serial = c->serial++;
        size_t len = mixed_size(c, serial);
        for (int peer = 0; peer < c->ranks; peer++) {
            out[peer] = buffer_new(len);
            pattern_fill(out[peer], len, check_key(c, c->rank, peer, serial));
            MPI_Issend(out[peer], (int) len, MPI_BYTE, peer, tag_of(serial), MPI_COMM_WORLD, &requests[peer]);
        }
        for (int peer = 0; peer < c->ranks; peer++)
            probe_and_receive(c, serial, len);
        MPI_Waitall(c->ranks, requests, MPI_STATUSES_IGNORE);
        for (int peer = 0; peer < c->ranks; peer++)
            buffer_free(out[peer]);
    }
    free(out);
    free(requests);
}
