/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The performance variables of btl xrc, as a tool sees them: those whose names start with btl_xrc_, read by each rank
 * before and after traffic between all pairs of ranks. One line each: rank, name, class, before, after. Counters start
 * from 0 when their handles are made, right after MPI_Init.
 *
 * usage: mpi_pvars [--until NAME=SUM]...
 * --until: after the traffic, talk on until all ranks' NAME add up to SUM or more. Rank 0 says so when it begins.
 * Exit status: 0 all right, 1 no such variables, 2 wrong use, 3 stuck.
 */
#include "stuck.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "btl_xrc_"

enum { STUCK_AFTER = 60, MOST = 64, NAME = 64, BYTES = 1 << 20, TIMES = 20 };

struct pvar {
    char name[NAME];
    int class;
    MPI_T_pvar_handle handle;
    unsigned long long before, after;
};

static MPI_T_pvar_session session;
static struct pvar pvars[MOST];
static int npvars, rank, ranks;

static void fail(const char *what, int status)
{
    fprintf(stderr, "mpi_pvars: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, status);
}

static void look_at(int index)
{
    char name[NAME], help[1024];
    int name_len = sizeof name, help_len = sizeof help, verbosity, class, bind, readonly, continuous, atomic, count;
    MPI_Datatype type;
    MPI_T_enum values;
    struct pvar *p = &pvars[npvars];
    int rc = MPI_T_pvar_get_info(index, name, &name_len, &verbosity, &class, &type, &values, help, &help_len, &bind,
                                 &readonly, &continuous, &atomic);
    if (rc != MPI_SUCCESS || strncmp(name, PREFIX, strlen(PREFIX)) != 0)
        return;
    if (npvars == MOST || type != MPI_UNSIGNED_LONG_LONG || !readonly || !continuous || help_len < 2)
        fail("a variable is not what it should be", 1);
    if (MPI_T_pvar_handle_alloc(session, index, NULL, &p->handle, &count) != MPI_SUCCESS || count != 1)
        fail("no handle", 1);
    snprintf(p->name, sizeof p->name, "%s", name + strlen(PREFIX));
    p->class = class;
    npvars++;
}

static unsigned long long value_of(const struct pvar *p)
{
    unsigned long long value = 0;
    if (MPI_T_pvar_read(session, p->handle, &value) != MPI_SUCCESS)
        fail("a variable cannot be read", 1);
    return value;
}

static const char *class_name(int class)
{
    switch (class) {
    case MPI_T_PVAR_CLASS_COUNTER: return "counter";
    case MPI_T_PVAR_CLASS_LEVEL: return "level";
    case MPI_T_PVAR_CLASS_HIGHWATERMARK: return "high";
    case MPI_T_PVAR_CLASS_LOWWATERMARK: return "low";
    default: return "other";
    }
}

static void talk(char *out, char *in, int bytes)
{
    for (int step = 1; step < ranks; step++)
        MPI_Sendrecv(out, bytes, MPI_CHAR, (rank + step) % ranks, 1, in, bytes, MPI_CHAR, (rank + ranks - step) % ranks,
                     1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void traffic(void)
{
    char *out = calloc(2, BYTES), *in = out + BYTES;
    if (!out)
        fail("no memory", 1);
    for (int i = 0; i < TIMES; i++) {
        talk(out, in, 8);
        talk(out, in, BYTES);
    }
    free(out);
}

static void until(const char *wish)
{
    char name[NAME];
    unsigned long long wanted, sum = 0, mine;
    const struct pvar *p = pvars;
    if (sscanf(wish, "%63[a-z_]=%llu", name, &wanted) != 2)
        fail("--until NAME=SUM", 2);
    while (p < pvars + npvars && strcmp(p->name, name) != 0)
        p++;
    if (p == pvars + npvars)
        fail("no such variable", 1);
    if (rank == 0) {
        printf("mpi_pvars: until %s\n", wish);
        fflush(stdout);
    }
    while (sum < wanted) {
        mine = value_of(p);
        MPI_Allreduce(&mine, &sum, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    }
}

static void print(void)
{
    for (int i = 0; i < npvars; i++) {
        struct pvar *p = &pvars[i];
        printf("%d %s %s %llu %llu\n", rank, p->name, class_name(p->class), p->before, p->after);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int provided, num;
    stuck_after(STUCK_AFTER, "mpi_pvars: stuck");
    MPI_Init(&argc, &argv);
    /* Inside MPI_Init and MPI_Finalize: MPI_T_finalize after the latter crashes Open MPI 4.1.4 over any transport. */
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS)
        fail("no MPI_T", 1);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_get_num(&num);
    for (int i = 0; i < num; i++)
        look_at(i);
    if (npvars == 0)
        fail("no variables of btl xrc", 1);
    for (int i = 0; i < npvars; i++)
        pvars[i].before = value_of(&pvars[i]);
    traffic();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--until") != 0 || i + 1 == argc)
            fail("usage: mpi_pvars [--until NAME=SUM]...", 2);
        until(argv[++i]);
    }
    for (int i = 0; i < npvars; i++)
        pvars[i].after = value_of(&pvars[i]);
    print();
    for (int i = 0; i < npvars; i++)
        MPI_T_pvar_handle_free(session, &pvars[i].handle);
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
    MPI_Finalize();
    return 0;
}
