/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small messages, sent and left to themselves. Plain MPI.
 *
 * usage: mpi_small flood | mpi_small leave FILE
 * flood: each rank sends 8 bytes to each other one, again and again, until it is ended. Rank 0 says so when it begins.
 * leave: rank 0 begins 40 messages to the last rank, which is not connected yet, and calls nothing of MPI before FILE is there. The
 * last one makes it when all have come.
 * Exit status: 0 all right, 1 wrong data, 2 wrong use, 3 stuck.
 */
#include "stuck.h"

#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STUCK_AFTER = 60, MESSAGES = 40 };

static int rank, ranks;

static void fail(const char *what, int status)
{
    fprintf(stderr, "mpi_small: rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, status);
}

/* Takes what has come, so that nothing piles up. */
static void take(void)
{
    int any = 1;
    long long in;
    while (any) {
        MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &any, MPI_STATUS_IGNORE);
        if (any)
            MPI_Recv(&in, 1, MPI_LONG_LONG, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void flood(void)
{
    for (long long round = 0;; round++) {
        for (int step = 1; step < ranks; step++)
            MPI_Send(&round, 1, MPI_LONG_LONG, (rank + step) % ranks, 0, MPI_COMM_WORLD);
        take();
        if (round == 1000 && rank == 0) {
            printf("mpi_small: flooding\n");
            fflush(stdout);
        }
    }
}

static void leave(const char *file)
{
    const struct timespec a_moment = {0, 10000000};
    MPI_Request request[MESSAGES];
    int number[MESSAGES];
    for (int i = 0; i < MESSAGES; i++) {
        number[i] = i;
        MPI_Isend(&number[i], 1, MPI_INT, ranks - 1, i, MPI_COMM_WORLD, &request[i]);
    }
    while (access(file, F_OK) != 0)
        nanosleep(&a_moment, NULL);
    MPI_Waitall(MESSAGES, request, MPI_STATUSES_IGNORE);
}

static void receive(const char *file)
{
    for (int i = 0; i < MESSAGES; i++) {
        int number = -1;
        MPI_Recv(&number, 1, MPI_INT, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (number != i)
            fail("a wrong message", 1);
    }
    int fd = open(file, O_CREAT | O_WRONLY, 0600);
    if (fd < 0)
        fail(file, 2);
    close(fd);
}

int main(int argc, char **argv)
{
    stuck_after(STUCK_AFTER, "mpi_small: stuck");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc == 2 && strcmp(argv[1], "flood") == 0) {
        flood();
    } else if (argc == 3 && strcmp(argv[1], "leave") == 0) {
        if (rank == 0)
            leave(argv[2]);
        else if (rank == ranks - 1)
            receive(argv[2]);
    } else {
        fail("usage: mpi_small flood | leave FILE", 2);
    }
    MPI_Finalize();
    return 0;
}
