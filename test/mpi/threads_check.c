/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several threads of each rank in MPI at once; every byte that they receive is looked at. No MPI_Send, MPI_Sendrecv or
 * collective: Open MPI 4.1.4 gives the request of a blocking send back while another thread may still complete it, and then
 * receives the wrong bytes or crashes, over any BTL (over tcp in every third run of such a test).
 */
#include "buffer.h"
#include "check.h"

#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 4, FLIGHT = 16, ROUNDS = 20 };

const char check_name[] = "threads_check";
const int check_threads = MPI_THREAD_MULTIPLE;

/* One thread: its own copy of the run, with messages and tags that no other thread has. */
struct worker {
    pthread_t thread;
    struct check c;
    int number;
    MPI_Comm comm; /* of all threads with this number */
    void (*run)(struct worker *w);
};

static void *work(void *arg)
{
    struct worker *w = arg;

    w->run(w);
    return NULL;
}

static void with_threads(struct check *c, void (*run)(struct worker *w))
{
    struct worker workers[THREADS];

    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.c = *c, .number = i, .run = run};
        workers[i].c.serial = c->serial + ((uint64_t) i << 20);
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].comm);
    }
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            abort();
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        MPI_Comm_free(&workers[i].comm);
        c->messages += workers[i].c.messages;
        c->bytes += workers[i].c.bytes;
        c->errors += workers[i].c.errors;
    }
    c->serial += (uint64_t) THREADS << 20;
}

/* FLIGHT messages to each of two neighbours and as many from them, all threads with tags of their own. */
static void flight(struct worker *w, MPI_Comm comm, size_t bound)
{
    struct check *c = &w->c;
    int to = (c->rank + 1) % c->ranks, from = (c->rank + c->ranks - 1) % c->ranks;
    unsigned char *out[FLIGHT], *in[FLIGHT];
    size_t len[FLIGHT];
    MPI_Request requests[2 * FLIGHT];

    for (int i = 0; i < FLIGHT; i++) {
        int tag = w->number * FLIGHT + i;
        uint64_t serial = c->serial + (uint64_t) i;
        len[i] = c->sizes.v[check_random(c, serial, 2, c->sizes.n)] % bound;
        out[i] = buffer_new(len[i]);
        in[i] = buffer_new(len[i]);
        pattern_fill(out[i], len[i], check_key(c, c->rank, to, serial));
        MPI_Irecv(in[i], (int) len[i], MPI_BYTE, from, tag, comm, &requests[i]);
        MPI_Isend(out[i], (int) len[i], MPI_BYTE, to, tag, comm, &requests[FLIGHT + i]);
    }
    MPI_Waitall(2 * FLIGHT, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < FLIGHT; i++) {
        check_received(c, in[i], len[i], from, c->serial + (uint64_t) i);
        buffer_free(out[i]);
        buffer_free(in[i]);
    }
    c->serial += FLIGHT;
}

/* Mostly small messages, which need the send queue most often. */
static void small(struct worker *w)
{
    for (int round = 0; round < 10 * ROUNDS; round++)
        flight(w, MPI_COMM_WORLD, 5000);
}

static void large(struct worker *w)
{
    for (int round = 0; round < ROUNDS; round++)
        flight(w, w->comm, 2u << 20);
}

/* Each thread waits for one message at a time, from whoever it comes. */
static void bounce(struct worker *w)
{
    struct check *c = &w->c;

    for (int round = 0; round < 20 * ROUNDS; round++, c->serial++) {
        int to = (c->rank + 1 + round % c->ranks) % c->ranks;
        size_t len = check_random(c, c->serial, 3, 9000);
        unsigned char *out = buffer_new(len), *in = buffer_new(len);
        MPI_Request send, receive;
        MPI_Status status;
        pattern_fill(out, len, check_key(c, c->rank, to, c->serial));
        MPI_Irecv(in, (int) len, MPI_BYTE, MPI_ANY_SOURCE, round, w->comm, &receive);
        MPI_Isend(out, (int) len, MPI_BYTE, to, round, w->comm, &send);
        MPI_Wait(&receive, &status);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        check_received(c, in, len, status.MPI_SOURCE, c->serial);
        buffer_free(out);
        buffer_free(in);
    }
}

static void part_small(struct check *c)
{
    with_threads(c, small);
}

static void part_large(struct check *c)
{
    with_threads(c, large);
}

static void part_bounce(struct check *c)
{
    with_threads(c, bounce);
}

const struct part check_parts[] = {
    {"bounce", "4 threads a rank, one message at a time, any source", part_bounce},
    {"small", "4 threads a rank, 16 small messages in flight each way", part_small},
    {"large", "4 threads a rank, 16 messages up to 2 MiB each way", part_large},
};
const size_t check_part_count = sizeof(check_parts) / sizeof(check_parts[0]);
