/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stream that must not notice what happens to the links under it: pairs of ranks send each other numbered messages,
 * put, get and add, and look at every byte, in order. Somebody else breaks links meanwhile, and writes into the control
 * file which phase this is: 1 before, 2 while, 3 after, p for a pause in which nothing is on the way, q for the end.
 *
 * usage: mpi_stream --control FILE [--progress FILE] [--rma] [--gaps N] [--seed N] [--errors-return]
 * --progress: FILE gets the number of rounds, in one line of constant length; it begins with a p while there is a pause.
 * --gaps: how many failures there will be; the N longest rounds of phase 2 are the gaps that are reported.
 * --errors-return: with MPI_ERRORS_RETURN; an error that is returned is said, and ends the program with status 4.
 * Exit status: 0 all right, 1 wrong data, 2 wrong use, 3 stuck, 4 MPI returned an error.
 */
#include "buffer.h"
#include "stuck.h"

#include <fcntl.h>
#include <getopt.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STUCK_AFTER = 60, PHASES = 4, RMA_BYTES = 20000 };

/* Eager, buffered, and two that go by put or get. */
static const size_t size[] = {8, 700, 5000, 40000, 300000, 1500000};
#define MESSAGES (sizeof(size) / sizeof(size[0]))

struct durations {
    double *v;
    size_t n, room;
};

struct stream {
    int rank, ranks, peer, control, progress;
    uint64_t seed, round, errors;
    unsigned char *out[MESSAGES], *in[MESSAGES];
    struct durations phase[PHASES];
    /* RMA: what the peer puts, then its counter */
    MPI_Win win;
    unsigned char *window, *put, *got;
};

static void must(int rc, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int len, class;
    if (rc == MPI_SUCCESS)
        return;
    MPI_Error_class(rc, &class);
    MPI_Error_string(class, text, &len);
    fprintf(stderr, "mpi_stream: %s has returned %s\n", what, text);
    _exit(4);
}

#define MUST(call, ...) must(MPI_##call(__VA_ARGS__), "MPI_" #call)

static void must_all(int n, MPI_Request *request)
{
    MPI_Status status[2 * MESSAGES];
    int rc = MPI_Waitall(n, request, status);
    for (int i = 0; rc == MPI_ERR_IN_STATUS && i < n; i++)
        if (status[i].MPI_ERROR != MPI_ERR_PENDING)
            must(status[i].MPI_ERROR, "MPI_Waitall");
    must(rc, "MPI_Waitall");
}

static void say_error(struct stream *s, const char *what, uint64_t wanted, uint64_t got)
{
    if (s->errors++ < 5)
        fprintf(stderr, "mpi_stream: rank %d, round %llu, %s: %llu instead of %llu\n", s->rank,
                (unsigned long long) s->round, what, (unsigned long long) got, (unsigned long long) wanted);
}

static uint64_t key_of(const struct stream *s, int from, uint64_t what)
{
    return mix64(s->seed ^ mix64(((uint64_t) from << 48) ^ (what << 40) ^ s->round));
}

static void look_at(struct stream *s, const char *what, const unsigned char *data, size_t len, uint64_t key)
{
    size_t at = pattern_mismatch(data, len, key);
    if (at < len)
        say_error(s, what, pattern_byte(key, at), data[at]);
}

/* Each message is one byte range of a pattern that only its sender, round and place give. */
static void exchange(struct stream *s)
{
    MPI_Request request[2 * MESSAGES];
    for (size_t i = 0; i < MESSAGES; i++)
        MUST(Irecv, s->in[i], (int) size[i], MPI_BYTE, s->peer, 1, MPI_COMM_WORLD, &request[i]);
    for (size_t i = 0; i < MESSAGES; i++) {
        pattern_fill(s->out[i], size[i], key_of(s, s->rank, i));
        MUST(Isend, s->out[i], (int) size[i], MPI_BYTE, s->peer, 1, MPI_COMM_WORLD, &request[MESSAGES + i]);
    }
    must_all(2 * MESSAGES, request);
    /* One tag: a message lost, doubled or overtaken shows as a wrong one, as their lengths and contents differ. */
    for (size_t i = 0; i < MESSAGES; i++)
        look_at(s, "message", s->in[i], size[i], key_of(s, s->peer, i));
}

/* Put, read back, and add one: the old sum tells whether an addition was lost or done twice. */
static void one_sided(struct stream *s)
{
    int64_t one = 1, before = -1;
    pattern_fill(s->put, RMA_BYTES, key_of(s, s->rank, 100));
    MUST(Put, s->put, RMA_BYTES, MPI_BYTE, s->peer, 0, RMA_BYTES, MPI_BYTE, s->win);
    MUST(Win_flush, s->peer, s->win);
    MUST(Get, s->got, RMA_BYTES, MPI_BYTE, s->peer, 0, RMA_BYTES, MPI_BYTE, s->win);
    MUST(Fetch_and_op, &one, &before, MPI_INT64_T, s->peer, RMA_BYTES, MPI_SUM, s->win);
    MUST(Win_flush, s->peer, s->win);
    look_at(s, "get", s->got, RMA_BYTES, key_of(s, s->rank, 100));
    if (before != (int64_t) s->round)
        say_error(s, "sum", s->round, (uint64_t) before);
}

static void note_duration(struct durations *d, double seconds)
{
    if (d->n == d->room) {
        d->room = d->room ? 2 * d->room : 1024;
        d->v = realloc(d->v, d->room * sizeof(*d->v));
        if (!d->v)
            exit(2);
    }
    d->v[d->n++] = seconds;
}

static void show_progress(const struct stream *s, bool pause)
{
    char line[32];
    int n = snprintf(line, sizeof(line), "%c%09llu\n", pause ? 'p' : '0', (unsigned long long) s->round);
    if (s->progress >= 0 && pwrite(s->progress, line, (size_t) n, 0) != n)
        exit(2);
}

static char read_phase(const struct stream *s)
{
    char phase = '1';
    return pread(s->control, &phase, 1, 0) == 1 ? phase : '1';
}

/*
 * All have got what they wait for, and wait for rank 0's word. Open MPI is called meanwhile, as connections may have to be
 * looked after.
 */
static void pause_stream(const struct stream *s)
{
    int flag;
    alarm(STUCK_AFTER);
    MUST(Barrier, MPI_COMM_WORLD);
    if (s->rank == 0) {
        show_progress(s, true);
        while (read_phase(s) == 'p') {
            MUST(Iprobe, s->peer, 2, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            sched_yield();
        }
    }
}

static char phase_now(const struct stream *s)
{
    char phase = s->rank == 0 ? read_phase(s) : '1';
    MUST(Bcast, &phase, 1, MPI_CHAR, 0, MPI_COMM_WORLD);
    return phase;
}

static void run(struct stream *s, bool rma)
{
    for (char phase = phase_now(s); phase != 'q'; phase = phase_now(s)) {
        if (phase == 'p') {
            pause_stream(s);
            continue;
        }
        double began = MPI_Wtime();
        alarm(STUCK_AFTER);
        exchange(s);
        if (rma)
            one_sided(s);
        note_duration(&s->phase[phase >= '1' && phase <= '3' ? phase - '0' : 0], MPI_Wtime() - began);
        s->round++;
        if (s->rank == 0)
            show_progress(s, false);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* The quantile q of the `last` largest, or of all; they must be sorted. */
static double quantile(const struct durations *d, size_t last, double q)
{
    size_t n = last && last < d->n ? last : d->n;
    return n ? d->v[d->n - n + (size_t) (q * (double) (n - 1) + 0.5)] : 0;
}

static void report(struct stream *s, uint64_t errors, size_t gaps)
{
    for (int i = 0; i < PHASES; i++)
        qsort(s->phase[i].v, s->phase[i].n, sizeof(double), by_value);
    /* Of the quickest rounds, which nothing else on the machine has delayed. */
    double before = quantile(&s->phase[1], 0, 0.02), after = quantile(&s->phase[3], 0, 0.02);
    printf("mpi_stream: %llu rounds (%zu before, %zu while, %zu after), %llu errors\n", (unsigned long long) s->round,
           s->phase[1].n, s->phase[2].n, s->phase[3].n, (unsigned long long) errors);
    if (gaps)
        printf("mpi_stream: gaps of %zu failures: p50 %.1f ms, p99 %.1f ms\n", gaps,
               1e3 * quantile(&s->phase[2], gaps, 0.5), 1e3 * quantile(&s->phase[2], gaps, 0.99));
    if (before > 0 && after > 0)
        printf("mpi_stream: the quickest rounds take %.3f ms before, %.3f ms after: throughput after / before %.2f\n",
               1e3 * before, 1e3 * after, before / after);
}

static void set_up(struct stream *s, bool rma)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &s->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s->ranks);
    if (s->ranks % 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    s->peer = (s->rank + s->ranks / 2) % s->ranks;
    for (size_t i = 0; i < MESSAGES; i++) {
        s->out[i] = buffer_new(size[i]);
        s->in[i] = buffer_new(size[i]);
    }
    if (rma) {
        s->put = buffer_new(RMA_BYTES);
        s->got = buffer_new(RMA_BYTES);
        MPI_Win_allocate(RMA_BYTES + 8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &s->window, &s->win);
        memset(s->window, 0, RMA_BYTES + 8);
        MPI_Win_lock_all(0, s->win);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void take_down(struct stream *s, bool rma)
{
    if (rma) {
        MPI_Win_unlock_all(s->win);
        MPI_Win_free(&s->win);
        buffer_free(s->put);
        buffer_free(s->got);
    }
    for (size_t i = 0; i < MESSAGES; i++) {
        buffer_free(s->out[i]);
        buffer_free(s->in[i]);
    }
    for (int i = 0; i < PHASES; i++)
        free(s->phase[i].v);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"control", required_argument, NULL, 'c'},
                                            {"progress", required_argument, NULL, 'p'},
                                            {"rma", no_argument, NULL, 'r'},
                                            {"gaps", required_argument, NULL, 'g'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"errors-return", no_argument, NULL, 'e'},
                                            {NULL, 0, NULL, 0}};
    struct stream s = {.control = -1, .progress = -1, .seed = 1};
    size_t gaps = 0;
    bool rma = false, errors_return = false;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'c': s.control = open(optarg, O_RDONLY | O_CLOEXEC); break;
        case 'p': s.progress = open(optarg, O_WRONLY | O_CREAT | O_CLOEXEC, 0600); break;
        case 'r': rma = true; break;
        case 'g': gaps = strtoul(optarg, NULL, 10); break;
        case 'e': errors_return = true; break;
        case 's': s.seed = strtoull(optarg, NULL, 10); break;
        default: return 2;
        }
    }
    if (s.control < 0) {
        fprintf(stderr, "mpi_stream: no control file\n");
        return 2;
    }
    stuck_after(STUCK_AFTER, "mpi_stream: a round does not end");
    MPI_Init(&argc, &argv);
    set_up(&s, rma);
    if (errors_return) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        if (rma)
            MPI_Win_set_errhandler(s.win, MPI_ERRORS_RETURN);
    }
    run(&s, rma);
    uint64_t errors = 0;
    MPI_Allreduce(&s.errors, &errors, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (s.rank == 0)
        report(&s, errors, gaps);
    take_down(&s, rma);
    MPI_Finalize();
    return errors ? 1 : 0;
}
