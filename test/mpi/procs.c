/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers that are taken out of the transport and come back: Open MPI's PML is told so by its own functions, which 4.1 calls for
 * nobody after MPI_Comm_disconnect. Traffic before and after, every byte looked at.
 *
 * usage: mpi_procs --at DIR [--rounds N] [--seed N]
 * --at: in round N each rank makes a file DIR/WORD.N.RANK and goes on when there is DIR/THEN.N, with WORD and THEN
 *   met   part   when it has heard from all; what it has sent itself may still wait for its turn, and goes out meanwhile
 *   out   go     when its peers are out
 *   in    on     when all have met again
 * Exit status: 0 all right, 1 wrong data, 2 wrong use, 3 stuck, 77 without Open MPI's inner headers.
 */
#include <mpi.h>
#include <stdio.h>

#if defined(__has_include)
#    if __has_include("ompi/mca/pml/pml.h")
#        define HAVE_PML 1
#    endif
#endif

#ifdef HAVE_PML
#    include "ompi_config.h"
#    include "ompi/mca/pml/pml.h"
#    include "ompi/proc/proc.h"
#    include "opal/runtime/opal_progress.h"

#    include "buffer.h"
#    include "stuck.h"

#    include <fcntl.h>
#    include <getopt.h>
#    include <stdlib.h>
#    include <unistd.h>

enum { STUCK_AFTER = 120 };
/* Nothing, eager in two classes, by buffers, by put or get. */
static const size_t sizes[] = {0, 8, 1000, 12000, 65000, 1000000};
enum { SIZES = sizeof sizes / sizeof *sizes };

static int rank, ranks, rounds = 5;
static uint64_t seed = 1;
static const char *dir;
static unsigned long errors;

static void made(const char *word, int round)
{
    char name[4096];
    snprintf(name, sizeof name, "%s/%s.%d.%d", dir, word, round, rank);
    int fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) {
        perror(name);
        exit(2);
    }
    close(fd);
}

static void tell_and_wait(const char *word, const char *then, int round)
{
    char name[4096];
    made(word, round);
    snprintf(name, sizeof name, "%s/%s.%d", dir, then, round);
    while (0 != access(name, F_OK)) {
        opal_progress();
        usleep(500);
    }
}

static uint64_t key_of(int from, int to, int round, int size)
{
    return mix64(mix64(seed + (uint64_t) round)
                 ^ mix64(((uint64_t) from << 32 | (uint64_t) to << 8) + (uint64_t) size));
}

/* With every other rank, all at once. */
static void exchange(int round)
{
    MPI_Request *request = (MPI_Request *) malloc((size_t) ranks * 2 * SIZES * sizeof(MPI_Request));
    unsigned char **data = (unsigned char **) calloc((size_t) ranks * 2 * SIZES, sizeof *data);
    int n = 0;
    for (int peer = 0; peer < ranks; ++peer) {
        for (int s = 0; s < SIZES && peer != rank; ++s, n += 2) {
            data[n] = buffer_new(sizes[s]);
            MPI_Irecv(data[n], (int) sizes[s], MPI_BYTE, peer, s, MPI_COMM_WORLD, &request[n]);
            data[n + 1] = buffer_new(sizes[s]);
            pattern_fill(data[n + 1], sizes[s], key_of(rank, peer, round, s));
            MPI_Isend(data[n + 1], (int) sizes[s], MPI_BYTE, peer, s, MPI_COMM_WORLD, &request[n + 1]);
        }
    }
    MPI_Waitall(n, request, MPI_STATUSES_IGNORE);
    n = 0;
    for (int peer = 0; peer < ranks; ++peer) {
        for (int s = 0; s < SIZES && peer != rank; ++s, n += 2) {
            if (sizes[s] != pattern_mismatch(data[n], sizes[s], key_of(peer, rank, round, s))
                || !buffer_guards_intact(data[n], sizes[s])) {
                fprintf(stderr, "mpi_procs: rank %d: round %d: wrong bytes from %d\n", rank, round, peer);
                ++errors;
            }
            buffer_free(data[n]);
            buffer_free(data[n + 1]);
        }
    }
    free(data);
    free(request);
}

static ompi_proc_t **others(size_t *count)
{
    size_t all, n = 0;
    ompi_proc_t **procs = ompi_proc_all(&all);
    for (size_t i = 0; i < all; ++i) {
        if (procs[i] != ompi_proc_local()) {
            procs[n++] = procs[i];
        } else {
            OBJ_RELEASE(procs[i]);
        }
    }
    *count = n;
    return procs;
}

static void out_and_in(int round)
{
    size_t n;
    ompi_proc_t **procs = others(&n);
    if (OMPI_SUCCESS != MCA_PML_CALL(del_procs(procs, n))) {
        fprintf(stderr, "mpi_procs: rank %d: del_procs\n", rank);
        ++errors;
    }
    tell_and_wait("out", "go", round);
    if (OMPI_SUCCESS != MCA_PML_CALL(add_procs(procs, n))) {
        fprintf(stderr, "mpi_procs: rank %d: add_procs\n", rank);
        ++errors;
    }
    for (size_t i = 0; i < n; ++i) {
        OBJ_RELEASE(procs[i]);
    }
    free(procs);
}

static int parse(int argc, char **argv)
{
    static const struct option options[] = {{"at", required_argument, NULL, 'a'},
                                            {"rounds", required_argument, NULL, 'r'},
                                            {"seed", required_argument, NULL, 's'},
                                            {0}};
    int opt;
    while (-1 != (opt = getopt_long(argc, argv, "", options, NULL))) {
        switch (opt) {
        case 'a': dir = optarg; break;
        case 'r': rounds = atoi(optarg); break;
        case 's': seed = strtoull(optarg, NULL, 0); break;
        default: return -1;
        }
    }
    return optind == argc && NULL != dir && rounds > 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
    if (0 != parse(argc, argv)) {
        fprintf(stderr, "usage: mpi_procs --at DIR [--rounds N] [--seed N]\n");
        return 2;
    }
    stuck_after(STUCK_AFTER, "mpi_procs: stuck");
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int round = 1; round <= rounds; ++round) {
        exchange(round);
        tell_and_wait("met", "part", round);
        out_and_in(round);
        exchange(-round);
        tell_and_wait("in", "on", round);
    }
    unsigned long all = 0;
    MPI_Reduce(&errors, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (0 == rank) {
        printf("mpi_procs: seed %llu, %d rounds, %lu errors\n", (unsigned long long) seed, rounds, all);
    }
    MPI_Finalize();
    return errors > 0;
}
#else
int main(void)
{
    fprintf(stderr, "mpi_procs: this Open MPI has no inner headers\n");
    return 77;
}
#endif
