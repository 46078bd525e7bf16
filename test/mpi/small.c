/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small messages, sent and left to themselves. Plain MPI.
 *
 * usage: mpi_small flood | mpi_small leave FILE | mpi_small lose FILE | mpi_small again
 * flood: each rank sends 8 bytes to each other one, again and again, until it is ended. Rank 0 says so when it begins.
 * leave: rank 0 begins 40 messages to the last rank, which is not connected yet, and calls nothing of MPI before FILE is there. The
 * last one makes it when all have come.
 * lose: rank 0 is connected to each other one, says so, and waits for FILE. Then it sends 150 messages to each, which nobody receives any
 * more, says so, and waits for its end.
 * again: all components are opened and closed three times, as tools do it, before MPI is initialized and each rank sends to the next. Rank 0
 * says how many of the BTL's variables there were each time.
 * Exit status: 0 all right, 1 wrong data, 2 wrong use, 3 stuck.
 */
#include "stuck.h"

#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STUCK_AFTER = 60, MESSAGES = 40, LOST = 150 };

static int rank, ranks;

static void fail(const char *what, int status)
{
    fprintf(stderr, "mpi_small: rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, status);
}

static void say(const char *what)
{
    printf("mpi_small: %s\n", what);
    fflush(stdout);
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
        if (round == 1000 && rank == 0)
            say("flooding");
    }
}

static void wait_for(const char *file)
{
    const struct timespec a_moment = {0, 10000000};
    while (access(file, F_OK) != 0)
        nanosleep(&a_moment, NULL);
}

static void lose(const char *file)
{
    static const int nothing;
    MPI_Request request;
    int any;
    for (int to = 1; to < ranks; to++)
        MPI_Send(&nothing, 1, MPI_INT, to, 0, MPI_COMM_WORLD);
    for (int from = 1; from < ranks; from++)
        MPI_Recv(&any, 1, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    say("connected");
    wait_for(file);
    for (int i = 0; i < LOST; i++)
        for (int to = 1; to < ranks; to++) {
            MPI_Isend(&nothing, 1, MPI_INT, to, 0, MPI_COMM_WORLD, &request);
            MPI_Request_free(&request);
        }
    say("sent");
    for (;;)
        MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &any, MPI_STATUS_IGNORE);
}

static void be_lost(void)
{
    int any;
    MPI_Recv(&any, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&any, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    MPI_Recv(&any, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void leave(const char *file)
{
    MPI_Request request[MESSAGES];
    int number[MESSAGES];
    for (int i = 0; i < MESSAGES; i++) {
        number[i] = i;
        MPI_Isend(&number[i], 1, MPI_INT, ranks - 1, i, MPI_COMM_WORLD, &request[i]);
    }
    wait_for(file);
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

static int xrc_variables(void)
{
    int n = 0, all = 0;
    MPI_T_cvar_get_num(&all);
    for (int i = 0; i < all; i++) {
        char name[64];
        int length = sizeof name;
        MPI_T_cvar_get_info(i, name, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
        n += strncmp(name, "btl_xrc_", 8) == 0;
    }
    return n;
}

static int opened_and_closed(void)
{
    int level;
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &level) != MPI_SUCCESS)
        _exit(2);
    int n = xrc_variables();
    MPI_T_finalize();
    return n;
}

static void again(const int *variables)
{
    int from = -1;
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % ranks, 0, &from, 1, MPI_INT, (rank + ranks - 1) % ranks, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (from != (rank + ranks - 1) % ranks)
        fail("a wrong message", 1);
    if (rank == 0)
        printf("mpi_small: %d, %d, %d variables\n", variables[0], variables[1], variables[2]);
}

int main(int argc, char **argv)
{
    stuck_after(STUCK_AFTER, "mpi_small: stuck");
    int variables[3] = {0};
    for (int i = 0; i < 3 && argc == 2 && strcmp(argv[1], "again") == 0; i++)
        variables[i] = opened_and_closed();
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
    } else if (argc == 2 && strcmp(argv[1], "again") == 0) {
        again(variables);
    } else if (argc == 3 && strcmp(argv[1], "lose") == 0) {
        if (rank == 0)
            lose(argv[2]);
        else
            be_lost();
    } else {
        fail("usage: mpi_small flood | leave FILE | lose FILE | again", 2);
    }
    MPI_Finalize();
    return 0;
}
