/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of rma_check that move bytes: put and get, under every kind of synchronisation. */
#include "buffer.h"
#include "rma.h"

#include <stdlib.h>
#include <string.h>

enum { MARGIN = 64 };

/* Nobody was spoken with yet but by what making a window takes. */
void part_first(struct check *c)
{
    enum { LEN = 3000, SLOT = LEN + 2 * MARGIN };
    struct window w = window_new(c, CREATED, SLOT * (size_t) c->ranks);
    unsigned char *out = buffer_new(LEN * (size_t) c->ranks);
    uint64_t serial = c->serial++;

    MPI_Win_fence(0, w.win);
    for (int i = 1; i <= c->ranks; i++) {
        int peer = (c->rank + c->ranks - i) % c->ranks;
        unsigned char *from = out + LEN * (size_t) peer;
        pattern_fill(from, LEN, check_key(c, c->rank, peer, serial));
        MPI_Put(from, LEN, MPI_BYTE, peer, window_at(&w, peer, SLOT * (size_t) c->rank + MARGIN), LEN, MPI_BYTE, w.win);
    }
    MPI_Win_fence(0, w.win);
    for (int peer = 0; peer < c->ranks; peer++)
        window_check(c, w.data + SLOT * (size_t) peer + MARGIN, LEN, check_key(c, peer, c->rank, serial), "first put");
    window_free(&w);
    buffer_free(out);
}

/* Right's memory is written, left's is read: what left's left neighbour has put there. */
static void fence_round(struct check *c, struct window *w, size_t len, uint64_t serial)
{
    int right = (c->rank + 1) % c->ranks, left = (c->rank + c->ranks - 1) % c->ranks;
    int before = (left + c->ranks - 1) % c->ranks;
    size_t at = MARGIN + check_random(c, serial, 5, MARGIN);
    unsigned char *out = buffer_new(len), *in = buffer_new(len);

    pattern_fill(out, len, check_key(c, c->rank, right, serial));
    memset(w->data + at - MARGIN, GAP_BYTE, len + 2 * MARGIN);
    MPI_Win_fence(MPI_MODE_NOPRECEDE, w->win);
    MPI_Put(out, (int) len, MPI_BYTE, right, window_at(w, right, at), (int) len, MPI_BYTE, w->win);
    MPI_Win_fence(0, w->win);
    window_check(c, w->data + at, len, check_key(c, left, c->rank, serial), "put");
    MPI_Get(in, (int) len, MPI_BYTE, left, window_at(w, left, at), (int) len, MPI_BYTE, w->win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, w->win);
    size_t wrong = pattern_mismatch(in, len, check_key(c, before, left, serial));
    if (wrong < len || !buffer_guards_intact(in, len))
        check_error(c, "get of %zu bytes from a window that was %s: wrong at byte %zu", len, flavor_name(w->flavor),
                    wrong);
    buffer_free(out);
    buffer_free(in);
}

void part_fence(struct check *c)
{
    for (int flavor = 0; flavor < window_flavors(c); flavor++) {
        struct window w = window_new(c, (enum flavor) flavor, c->max + 4 * MARGIN);
        for (size_t i = 0; i < c->sizes.n; i++)
            fence_round(c, &w, c->sizes.v[i], c->serial++);
        window_free(&w);
    }
}

/* What was put is there after a flush, and is got back. One slot a rank, so that shared locks do no harm either. */
static void put_and_get_back(struct check *c, struct window *w, int peer, size_t slot, size_t len, uint64_t serial)
{
    MPI_Aint at = window_at(w, peer, slot * (size_t) c->rank);
    unsigned char *out = buffer_new(len), *in = buffer_new(len);
    uint64_t key = check_key(c, c->rank, peer, serial);

    pattern_fill(out, len, key);
    MPI_Win_lock(serial % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, peer, 0, w->win);
    MPI_Put(out, (int) len, MPI_BYTE, peer, at, (int) len, MPI_BYTE, w->win);
    if (serial % 3) {
        MPI_Win_flush(peer, w->win);
    } else {
        MPI_Win_unlock(peer, w->win);
        MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, w->win);
    }
    MPI_Get(in, (int) len, MPI_BYTE, peer, at, (int) len, MPI_BYTE, w->win);
    MPI_Win_flush_local(peer, w->win);
    size_t wrong = pattern_mismatch(in, len, key);
    if (wrong < len || !buffer_guards_intact(in, len))
        check_error(c, "%zu bytes put to %d and got back: wrong at byte %zu", len, peer, wrong);
    MPI_Win_unlock(peer, w->win);
    c->messages += 2;
    c->bytes += 2 * len;
    buffer_free(out);
    buffer_free(in);
}

void part_lock(struct check *c)
{
    static const size_t lengths[] = {1, 8, 200, 300, 4096, 12345, 70001, 600000};

    for (int flavor = 0; flavor < window_flavors(c); flavor++) {
        size_t slot = 600000;
        struct window w = window_new(c, (enum flavor) flavor, slot * (size_t) c->ranks);
        for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++)
            for (int i = 0; i < c->ranks; i++)
                put_and_get_back(c, &w, (c->rank + i) % c->ranks, slot, lengths[k], c->serial++);
        window_free(&w);
    }
}

enum { REQUESTS = 64, MOST = 5000 };

/* All requests of this rank to `peer`; rounds of different ranks do not meet. */
static void request_round(struct check *c, struct window *w, int peer, uint64_t first)
{
    MPI_Request requests[REQUESTS];
    unsigned char *buffers[REQUESTS];
    size_t slot = MOST * (size_t) REQUESTS;

    for (int get = 0; get < 2; get++) {
        for (int i = 0; i < REQUESTS; i++) {
            int len = 1 + (int) check_random(c, first + (uint64_t) i, 7, MOST);
            MPI_Aint at = window_at(w, peer, slot * (size_t) c->rank + MOST * (size_t) i);
            buffers[i] = buffer_new((size_t) len);
            pattern_fill(buffers[i], get ? 0 : (size_t) len, check_key(c, c->rank, peer, first + (uint64_t) i));
            if (get)
                MPI_Rget(buffers[i], len, MPI_BYTE, peer, at, len, MPI_BYTE, w->win, &requests[i]);
            else
                MPI_Rput(buffers[i], len, MPI_BYTE, peer, at, len, MPI_BYTE, w->win, &requests[i]);
        }
        MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE);
        MPI_Win_flush(peer, w->win);
        for (int i = 0; i < REQUESTS; i++) {
            size_t len = 1 + check_random(c, first + (uint64_t) i, 7, MOST);
            if (pattern_mismatch(buffers[i], len, check_key(c, c->rank, peer, first + (uint64_t) i)) < len)
                check_error(c, "request %d of %zu bytes, %s %d: wrong data", i, len, get ? "got from" : "put to", peer);
            buffer_free(buffers[i]);
        }
    }
    c->messages += 2 * REQUESTS;
}

void part_lock_all(struct check *c)
{
    struct window w = window_new(c, CREATED, MOST * (size_t) REQUESTS * (size_t) c->ranks);

    MPI_Win_lock_all(0, w.win);
    for (int i = 0; i < c->ranks; i++, c->serial += REQUESTS)
        request_round(c, &w, (c->rank + i) % c->ranks, c->serial);
    MPI_Win_flush_all(w.win);
    MPI_Win_unlock_all(w.win);
    window_free(&w);
}

static MPI_Group group_of(int rank)
{
    MPI_Group all, one;

    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &rank, &one);
    MPI_Group_free(&all);
    return one;
}

void part_pscw(struct check *c)
{
    static const size_t lengths[] = {1, 100, 4000, 70001, 500000};
    int right = (c->rank + 1) % c->ranks, left = (c->rank + c->ranks - 1) % c->ranks;
    MPI_Group to = group_of(right), from = group_of(left);
    struct window w = window_new(c, CREATED, 500000 + 2 * MARGIN);

    for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
        size_t len = lengths[k];
        uint64_t serial = c->serial++;
        unsigned char *out = buffer_new(len);
        pattern_fill(out, len, check_key(c, c->rank, right, serial));
        memset(w.data, GAP_BYTE, w.len);
        MPI_Win_post(from, 0, w.win);
        MPI_Win_start(to, 0, w.win);
        MPI_Put(out, (int) len, MPI_BYTE, right, window_at(&w, right, MARGIN), (int) len, MPI_BYTE, w.win);
        MPI_Win_complete(w.win);
        MPI_Win_wait(w.win);
        window_check(c, w.data + MARGIN, len, check_key(c, left, c->rank, serial), "put between start and complete");
        buffer_free(out);
    }
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    window_free(&w);
}

/* `blocks` blocks of `block` bytes, each `2 * block` behind the last. */
static void vector_round(struct check *c, struct window *w, int blocks, int block)
{
    int right = (c->rank + 1) % c->ranks, left = (c->rank + c->ranks - 1) % c->ranks;
    size_t span = 2 * (size_t) blocks * (size_t) block;
    unsigned char *out = buffer_new(span), *in = buffer_new(span);
    uint64_t serial = c->serial++, key = check_key(c, left, c->rank, serial);
    MPI_Datatype type;

    MPI_Type_vector(blocks, block, 2 * block, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    memset(w->data, GAP_BYTE, span);
    memset(in, GAP_BYTE, span);
    pattern_fill(out, span, check_key(c, c->rank, right, serial));
    MPI_Win_fence(0, w->win);
    MPI_Put(out, 1, type, right, window_at(w, right, 0), 1, type, w->win);
    MPI_Win_fence(0, w->win);
    MPI_Get(in, 1, type, c->rank, window_at(w, c->rank, 0), 1, type, w->win);
    MPI_Win_fence(0, w->win);
    for (size_t i = 0; i < span; i++) {
        unsigned char want = i / (size_t) block % 2 ? GAP_BYTE : pattern_byte(key, i);
        if (w->data[i] != want || in[i] != want) {
            check_error(c, "%d blocks of %d bytes: byte %zu is %02x, got as %02x, and should be %02x", blocks, block, i,
                        w->data[i], in[i], want);
            break;
        }
    }
    c->messages += 2;
    c->bytes += span;
    MPI_Type_free(&type);
    buffer_free(out);
    buffer_free(in);
}

void part_vector(struct check *c)
{
    struct window w = window_new(c, CREATED, 400000);

    vector_round(c, &w, 1, 8);
    vector_round(c, &w, 7, 3);
    vector_round(c, &w, 100, 40);
    vector_round(c, &w, 3, 60000);
    window_free(&w);
}
