/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs that come and go beside one that stays: it spawns another one, exchanges messages with it, merges, disconnects, connects again
 * by a port, and lets it end. Every byte is looked at. Plain MPI, so that it can show what is the fault of Open MPI itself.
 *
 * usage: mpi_dynamic [--rounds N] [--children N] [--parts WORD,...] [--told FIFO --go FIFO] [--seed N]
 * --parts: spawn (always), port (disconnect and connect again by MPI_Open_port, twice), join (by a socket).
 * --told, --go: in each round "alive" is written to the first before the two part, and "over" after it; a byte from the second lets
 * them go on.
 * Exit status: 0 all right, 1 wrong data, 2 wrong use, 3 stuck.
 */
#include "buffer.h"
#include "stuck.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { STUCK_AFTER = 30, RECONNECTS = 2 };

/* Eager, buffered, and two that go by put or get. */
static const size_t size[] = {1, 700, 5000, 40000, 300000, 1500000};
#define MESSAGES (sizeof(size) / sizeof(size[0]))

struct options {
    int rounds, children;
    const char *parts, *told, *go;
    uint64_t seed;
};

static int world_rank, round_now;
static int told = -1, go = -1;
static const char *who = "parent";

static void now(const char *what)
{
    stuck_after(STUCK_AFTER, "mpi_dynamic: %s %d: round %d: stuck in %s", who, world_rank, round_now, what);
}

static bool has(const char *parts, const char *part)
{
    return strstr(parts, part) != NULL;
}

/* ---- messages ---- */

static uint64_t key_of(uint64_t seed, int from_parent, int from, int to, size_t i)
{
    return mix64(seed ^ mix64(((uint64_t) from_parent << 60) ^ ((uint64_t) from << 40) ^ ((uint64_t) to << 20) ^ i));
}

static int wrong(const void *data, size_t len, uint64_t key)
{
    size_t at = pattern_mismatch(data, len, key);
    bool bad = at < len || !buffer_guards_intact(data, len);
    if (bad)
        fprintf(stderr, "mpi_dynamic: %s %d: round %d: message of %zu bytes: byte %zu is wrong\n", who, world_rank,
                round_now, len, at);
    return bad;
}

/* The same memory in each round: what is registered of it must not grow either. */
static unsigned char *out[MESSAGES], *in[MESSAGES];

static void make_buffers(void)
{
    for (size_t i = 0; i < MESSAGES; i++) {
        out[i] = buffer_new(size[i]);
        in[i] = buffer_new(size[i]);
    }
}

static void free_buffers(void)
{
    for (size_t i = 0; i < MESSAGES; i++) {
        buffer_free(out[i]);
        buffer_free(in[i]);
    }
}

/* Each with each of the other side, both ways at once. Returns how many were wrong. */
static int exchange(MPI_Comm inter, bool parent, uint64_t seed)
{
    int mine, others, errors = 0;
    now("traffic");
    MPI_Comm_rank(inter, &mine);
    MPI_Comm_remote_size(inter, &others);
    for (size_t i = 0; i < MESSAGES; i++) {
        for (int peer = 0; peer < others; peer++) {
            MPI_Request request[2];
            pattern_fill(out[i], size[i], key_of(seed, parent, mine, peer, i));
            memset(in[i], 0, size[i]);
            MPI_Irecv(in[i], (int) size[i], MPI_BYTE, peer, (int) i, inter, &request[0]);
            MPI_Isend(out[i], (int) size[i], MPI_BYTE, peer, (int) i, inter, &request[1]);
            MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
            errors += wrong(in[i], size[i], key_of(seed, !parent, peer, mine, i));
        }
    }
    return errors;
}

/* From the parents' first rank to the children, or the other way: both sides know which. */
static void hand_over(MPI_Comm inter, bool from_here, void *data, int len)
{
    int rank;
    MPI_Comm_rank(inter, &rank);
    MPI_Bcast(data, len, MPI_BYTE, !from_here ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter);
}

/* Both in one: a sum over all is what tells that they all are. */
static int merge(MPI_Comm inter, bool parent)
{
    MPI_Comm both;
    int size, one = 1, sum = 0;
    now("MPI_Intercomm_merge");
    MPI_Intercomm_merge(inter, !parent, &both);
    MPI_Comm_size(both, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, both);
    MPI_Comm_free(&both);
    return sum != size;
}

static void disconnect(MPI_Comm *comm)
{
    now("MPI_Comm_disconnect");
    MPI_Comm_disconnect(comm);
}

/* ---- connected again, by a port or a socket ---- */

static int by_port(MPI_Comm *inter, MPI_Comm group, bool parent, uint64_t seed)
{
    char port[MPI_MAX_PORT_NAME] = "";
    int errors = 0, rank;
    MPI_Comm_rank(group, &rank);
    now("MPI_Open_port");
    if (parent && rank == 0)
        MPI_Open_port(MPI_INFO_NULL, port);
    hand_over(*inter, parent, port, sizeof(port));
    for (int i = 0; i < RECONNECTS; i++) {
        disconnect(inter);
        now("MPI_Comm_accept or MPI_Comm_connect");
        if (parent)
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, group, inter);
        else
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, group, inter);
        errors += exchange(*inter, parent, mix64(seed + 1 + (uint64_t) i));
    }
    if (parent && rank == 0)
        MPI_Close_port(port);
    return errors;
}

/* Where both will find it. Ends the program when there is no socket to be had. */
static int listen_at(struct sockaddr_un *where)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const char *dir = getenv("TMPDIR");
    snprintf(where->sun_path, sizeof(where->sun_path), "%s/join.%d.%d", dir ? dir : "/tmp", (int) getpid(), round_now);
    if (fd < 0 || bind(fd, (const struct sockaddr *) where, sizeof(*where)) != 0 || listen(fd, 1) != 0) {
        perror("mpi_dynamic: socket");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return fd;
}

static int accept_one(int listener, const struct sockaddr_un *where)
{
    int fd = accept(listener, NULL, NULL);
    close(listener);
    unlink(where->sun_path);
    return fd;
}

static int call(const struct sockaddr_un *where)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *) where, sizeof(*where)) != 0)
        perror("mpi_dynamic: connect");
    return fd;
}

/* The first ranks of both sides alone. */
static int by_join(MPI_Comm inter, bool parent, uint64_t seed)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    MPI_Comm joined;
    int rank, fd, errors, listener = -1;
    MPI_Comm_rank(inter, &rank);
    now("MPI_Comm_join");
    if (parent && rank == 0)
        listener = listen_at(&where);
    hand_over(inter, parent, where.sun_path, sizeof(where.sun_path));
    if (rank != 0)
        return 0;
    fd = parent ? accept_one(listener, &where) : call(&where);
    MPI_Comm_join(fd, &joined);
    errors = exchange(joined, parent, mix64(seed + 100));
    disconnect(&joined);
    close(fd);
    return errors;
}

/* ---- one job beside another ---- */

/* Somebody is told, and looks; MPI is kept going meanwhile. */
static void show(const char *word)
{
    char text[32], byte;
    int flag, n = snprintf(text, sizeof(text), "%s %d\n", word, round_now);
    if (told < 0)
        return;
    now("waiting for the script");
    if (write(told, text, (size_t) n) != n)
        perror("mpi_dynamic: --told");
    while (read(go, &byte, 1) != 1) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        usleep(1000);
    }
}

static int live_together(MPI_Comm inter, MPI_Comm group, bool parent, const char *parts, uint64_t seed)
{
    int errors = exchange(inter, parent, seed) + merge(inter, parent);
    if (has(parts, "join"))
        errors += by_join(inter, parent, seed);
    if (has(parts, "port"))
        errors += by_port(&inter, group, parent, seed);
    if (parent)
        show("alive");
    disconnect(&inter);
    return errors;
}

static int run(const struct options *o, char *program)
{
    char seed[32], round[16];
    char *args[] = {"--child", (char *) o->parts, seed, round, NULL};
    int errors = 0, all = 0;
    if (o->told && world_rank == 0) {
        told = open(o->told, O_WRONLY | O_CLOEXEC);
        go = open(o->go, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    }
    for (round_now = 1; round_now <= o->rounds; round_now++) {
        MPI_Comm inter;
        uint64_t key = mix64(o->seed + (uint64_t) round_now);
        snprintf(seed, sizeof(seed), "%llu", (unsigned long long) key);
        snprintf(round, sizeof(round), "%d", round_now);
        now("MPI_Comm_spawn");
        MPI_Comm_spawn(program, args, o->children, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
        errors += live_together(inter, MPI_COMM_WORLD, true, o->parts, key);
        show("over");
        now("MPI_Barrier");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (world_rank == 0)
        printf("mpi_dynamic: %d rounds, seed %llu, %d errors\n", o->rounds, (unsigned long long) o->seed, all);
    return all + errors;
}

static int child(char **argv)
{
    MPI_Comm parent;
    who = "child";
    round_now = atoi(argv[4]);
    MPI_Comm_get_parent(&parent);
    return parent == MPI_COMM_NULL ? 1
                                   : live_together(parent, MPI_COMM_WORLD, false, argv[2], strtoull(argv[3], NULL, 0));
}

static int parse(int argc, char **argv, struct options *o)
{
    static const struct option table[] = {{"rounds", required_argument, NULL, 'r'},
                                          {"children", required_argument, NULL, 'c'},
                                          {"parts", required_argument, NULL, 'p'},
                                          {"told", required_argument, NULL, 't'},
                                          {"go", required_argument, NULL, 'g'},
                                          {"seed", required_argument, NULL, 's'},
                                          {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        switch (c) {
        case 'r': o->rounds = atoi(optarg); break;
        case 'c': o->children = atoi(optarg); break;
        case 'p': o->parts = optarg; break;
        case 't': o->told = optarg; break;
        case 'g': o->go = optarg; break;
        case 's': o->seed = strtoull(optarg, NULL, 0); break;
        default: return -1;
        }
    }
    return optind == argc && o->rounds > 0 && o->children > 0 && !o->told == !o->go ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct options o = {.rounds = 5, .children = 2, .parts = "spawn,port", .seed = (uint64_t) getpid()};
    bool spawned = argc == 5 && strcmp(argv[1], "--child") == 0;
    int errors;
    now("MPI_Init");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    if (!spawned && parse(argc, argv, &o) != 0) {
        fprintf(stderr, "mpi_dynamic: see the head of dynamic.c for its options\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    make_buffers();
    MPI_Bcast(&o.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    errors = spawned ? child(argv) : run(&o, argv[0]);
    now("MPI_Finalize");
    MPI_Finalize();
    free_buffers();
    return errors ? 1 : 0;
}
