/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Latency, bandwidth, message rate and one-sided latency between ranks, as plain MPI, for any transport. Prints a line for each
 * figure: MEASURE SIZE VALUE. One run is one sample; whoever compares transports runs them in turns and takes medians.
 *
 *     mpi_bench messages [SCALE]    two ranks: latency (us), bandwidth and bidirectional bandwidth (MB/s)
 *     mpi_bench rate [SCALE]        pairs of ranks, all at once: 8-byte messages a second, in millions
 *     mpi_bench onesided [SCALE]    two ranks: put and fetch-and-add of 8 bytes, completed at the target (us)
 *     mpi_bench itself MESSAGES     one rank: 8-byte messages to itself, for tools that count instructions; prints nothing
 *     mpi_bench memory              all ranks, each connected with each: the largest resident set of a rank (KiB), and what btl xrc
 *                                   has registered in it, if it is there
 *
 * SCALE divides the number of repetitions (1 if not given).
 */
#include "../mpi/pvar.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 4 << 20, WINDOW = 64 };

static int rank, ranks, scale = 1;
static char *out, *in;

static void print(const char *measure, int size, double value)
{
    if (0 == rank) {
        printf("%s %d %.6g\n", measure, size, value);
        fflush(stdout);
    }
}

/* As many repetitions as move about so many bytes, within bounds. */
static int repetitions(int size, int most)
{
    int n = (64 << 20) / (size + 4096);
    n = n < most ? n : most;
    n /= scale;
    return n > 4 ? n : 4;
}

static double ping_pong(int size, int n)
{
    int peer = 1 - rank;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < n; i++) {
        if (0 == rank) {
            MPI_Send(out, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
            MPI_Recv(in, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(in, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
        }
    }
    return (MPI_Wtime() - start) / n / 2 * 1e6;
}

/* Windows of messages from those who send, each answered by an empty one; seconds a message. */
static double windows(int peer, int sends, int receives, int size, int n)
{
    MPI_Request requests[2 * WINDOW];
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < n; i++) {
        int k = 0;
        for (int w = 0; receives && w < WINDOW; w++) {
            MPI_Irecv(in, size, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[k++]);
        }
        for (int w = 0; sends && w < WINDOW; w++) {
            MPI_Isend(out, size, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[k++]);
        }
        MPI_Waitall(k, requests, MPI_STATUSES_IGNORE);
        if (sends && receives) {
            MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 2, NULL, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (sends) {
            MPI_Recv(NULL, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Send(NULL, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return (MPI_Wtime() - start) / n / WINDOW;
}

static int window_count(int size)
{
    int n = repetitions(size, 8000) / 16;
    return n > 2 ? n : 2;
}

static void messages(void)
{
    for (int size = 1; size <= LARGEST; size *= 2) {
        ping_pong(size, 4);
        print("latency", size, ping_pong(size, repetitions(size, 8000)));
    }
    for (int size = 8; size <= LARGEST; size *= 8) {
        windows(1 - rank, 0 == rank, 1 == rank, size, 1);
        print("bandwidth", size, size / windows(1 - rank, 0 == rank, 1 == rank, size, window_count(size)) / 1e6);
        windows(1 - rank, 1, 1, size, 1);
        print("bidirectional", size, 2.0 * size / windows(1 - rank, 1, 1, size, window_count(size)) / 1e6);
    }
}

static void rate(void)
{
    int pairs = ranks / 2, n = window_count(8);
    int peer = (rank + pairs) % ranks;
    windows(peer, rank < pairs, rank >= pairs, 8, 2);
    print("rate", pairs, pairs / windows(peer, rank < pairs, rank >= pairs, 8, n) / 1e6);
}

static void onesided(void)
{
    long *memory, value = 1, old;
    MPI_Win win;
    int n = 4000 / scale > 4 ? 4000 / scale : 4;
    memory = calloc(8, sizeof(*memory));
    MPI_Win_create(memory, 8 * sizeof(*memory), sizeof(*memory), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_lock_all(0, win);
    for (int warm = 1; warm >= 0; warm--) {
        int times = warm ? 4 : n;
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        for (int i = 0; 0 == rank && i < times; i++) {
            MPI_Put(&value, 1, MPI_LONG, 1, 0, 1, MPI_LONG, win);
            MPI_Win_flush(1, win);
        }
        if (!warm) {
            print("put", 8, (MPI_Wtime() - start) / times * 1e6);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        start = MPI_Wtime();
        for (int i = 0; 0 == rank && i < times; i++) {
            MPI_Fetch_and_op(&value, &old, MPI_LONG, 1, 1, MPI_SUM, win);
            MPI_Win_flush(1, win);
        }
        if (!warm) {
            print("fetch_add", 8, (MPI_Wtime() - start) / times * 1e6);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    free(memory);
}

static void itself(void)
{
    MPI_Request request;
    for (int i = 0; i < scale; i++) {
        MPI_Irecv(in, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request);
        MPI_Send(out, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static long resident_kib(void)
{
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (NULL != f && NULL != fgets(line, sizeof(line), f)) {
        if (1 == sscanf(line, "VmRSS: %ld", &kib)) {
            break;
        }
    }
    if (NULL != f) {
        fclose(f);
    }
    return kib;
}

/* Of this rank; -1: this transport tells nothing. */
static double registered_kib(void)
{
    static const char *const name = "registered_bytes";
    if (!pvars_open(&name, 1)) {
        return -1;
    }
    unsigned long long bytes = pvar_value(0);
    pvars_close();
    return (double) bytes / 1024;
}

static void memory(void)
{
    for (int i = 1; i < ranks; i++) {
        MPI_Sendrecv(out, 8, MPI_BYTE, (rank + i) % ranks, 3, in, 8, MPI_BYTE, (rank + ranks - i) % ranks, 3,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    long mine = resident_kib(), most = 0;
    MPI_Reduce(&mine, &most, 1, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    print("resident", ranks, (double) most);
    double registered = registered_kib(), most_registered;
    MPI_Reduce(&registered, &most_registered, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (most_registered >= 0) {
        print("registered", ranks, most_registered);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } what[] = {{"messages", messages}, {"rate", rate}, {"onesided", onesided}, {"memory", memory}, {"itself", itself}};
    const char *name = argc > 1 ? argv[1] : "";
    void (*run)(void) = NULL;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    scale = argc > 2 ? atoi(argv[2]) : 1;
    for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++) {
        run = 0 == strcmp(name, what[i].name) ? what[i].run : run;
    }
    int fits = itself == run ? 1 == ranks : messages == run || onesided == run ? 2 == ranks : 0 == ranks % 2;
    if (NULL == run || scale < 1 || !fits) {
        fprintf(stderr,
                "usage: mpi_bench messages|rate|onesided|itself|memory [NUMBER], with as many ranks as each needs\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    /* Touched, so that no transport finds untouched pages and the resident set is that of any program with such buffers. */
    size_t size = memory == run ? 4096 : LARGEST;
    out = malloc(size);
    in = malloc(size);
    if (NULL == out || NULL == in) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memset(out, 1, size);
    memset(in, 2, size);
    run();
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
