/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that compute, or have come to their end, while others want something of them: rank 0 sends to rank 1, which looks at every
 * byte, and one of the two makes no call of MPI until a file is there. Other ranks do nothing.
 *
 * usage: mpi_busy PART FILE [--messages N] [--seed N]
 * receiver   rank 1 computes from MPI_Init on until somebody else makes FILE; rank 0 sends.
 * initiator  rank 0 computes after MPI_Isend until rank 1, which has got everything by then, makes FILE.
 * leaver     rank 0 makes FILE when it has sent, and ends; rank 1 computes until then. For async_mpi_finalize.
 * Exit status: 0 all right, 1 wrong data, 2 wrong use, 3 stuck.
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

enum { STUCK_AFTER = 120, MOST = 1000 };

static uint64_t seed = 1;
static int messages = 300;
static const char *file;

static void compute(void)
{
    while (access(file, F_OK) != 0)
        sched_yield();
}

static void make_file(void)
{
    int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || close(fd) != 0) {
        perror("mpi_busy");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

/* Eager all of them, of two sizes of receive buffers. */
static size_t size_of(int i)
{
    static const size_t sizes[] = {8, 64, 700, 16, 3000};
    return sizes[(size_t) i % (sizeof sizes / sizeof sizes[0])];
}

static uint64_t key_of(int i)
{
    return mix64(seed ^ mix64((uint64_t) i));
}

static void send_all(bool computes)
{
    static MPI_Request request[MOST];
    static unsigned char *data[MOST];
    for (int i = 0; i < messages; i++) {
        data[i] = buffer_new(size_of(i));
        pattern_fill(data[i], size_of(i), key_of(i));
        MPI_Isend(data[i], (int) size_of(i), MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request[i]);
    }
    if (computes)
        compute();
    MPI_Waitall(messages, request, MPI_STATUSES_IGNORE);
    for (int i = 0; i < messages; i++)
        buffer_free(data[i]);
}

static int receive_all(void)
{
    int errors = 0;
    for (int i = 0; i < messages; i++) {
        unsigned char *data = buffer_new(size_of(i));
        MPI_Recv(data, (int) size_of(i), MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        size_t at = pattern_mismatch(data, size_of(i), key_of(i));
        if ((at < size_of(i) || !buffer_guards_intact(data, size_of(i))) && errors++ < 5)
            fprintf(stderr, "mpi_busy: message %d of %zu bytes: byte %zu is wrong\n", i, size_of(i), at);
        buffer_free(data);
    }
    printf("mpi_busy: %d messages, %d errors\n", messages, errors);
    fflush(stdout);
    return errors;
}

static int run(const char *part, int rank)
{
    bool receiver = strcmp(part, "receiver") == 0, initiator = strcmp(part, "initiator") == 0;
    int errors = 0;
    if (rank == 0) {
        send_all(initiator);
        if (!receiver && !initiator)
            make_file();
    } else if (rank == 1) {
        if (!initiator)
            compute();
        errors = receive_all();
        if (initiator)
            make_file();
    }
    return errors;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"messages", required_argument, NULL, 'n'}, {"seed", required_argument, NULL, 's'}, {NULL, 0, NULL, 0}};
    int rank, errors;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'n': messages = atoi(optarg); break;
        case 's': seed = strtoull(optarg, NULL, 10); break;
        default: return 2;
        }
    }
    if (optind + 2 != argc || messages < 1 || messages > MOST) {
        fprintf(stderr, "mpi_busy: see the head of busy.c for its options\n");
        return 2;
    }
    file = argv[optind + 1];
    stuck_after(STUCK_AFTER, "mpi_busy: stuck");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    errors = run(argv[optind], rank);
    MPI_Finalize();
    return errors ? 1 : 0;
}
