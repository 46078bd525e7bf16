/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that hold the TGT QPs of their host leave, one after the other, in the middle of a stream to all of them: those that
 * are left must go on to receive, byte by byte. Senders are the first ranks, receivers those of the second host, or children that
 * are spawned there. First goes one that has made a TGT, then others that hold some.
 *
 * usage: mpi_keepers HOW [--haste] [--senders N] [--spawn N --host NAME] [--seed N]
 * HOW: finalize, disconnect (from the senders, then finalize; with --spawn), kill (-9).
 * --haste: the next one leaves while the last one may still be about to.
 * To be run with async_mpi_finalize, since nobody waits for others in the end. Ranks of the first host that are no senders end at once.
 * Exit status: 0 all right, 1 wrong data, 2 wrong use, 3 stuck.
 */
#include "buffer.h"
#include "pvar.h"
#include "stuck.h"

#include <errno.h>
#include <getopt.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STUCK_AFTER = 60, MOST = 16, AFTER_ALL = 20, HASTE = 3, PAUSE = 40, SPIN_US = 3000 };
enum order { GO_ON, LEAVE, END };

/* Eager, buffered, and one that the receiver gets. */
static const size_t size[] = {8, 700, 5000, 40000, 300000};
#define MESSAGES (sizeof(size) / sizeof(size[0]))

static const char *const variables[] = {"tgt_handles", "tgt_made"};

struct head {
    uint64_t round;
    uint64_t order;
};

/* What a receiver says after each round. */
struct answer {
    uint64_t round, errors, handles, made, pid;
};

/* A receiver, as senders see it. */
struct receiver {
    MPI_Comm comm;
    int rank;
    bool there;
    struct answer answer;
};

static const char *how = "", *host;
static int rank, ranks, senders = 2, spawn;
static bool haste;
static uint64_t seed = 1, round_now;
static MPI_Comm above = MPI_COMM_WORLD; /* a receiver's: where the senders are */
static struct receiver receivers[MOST];
static int nreceivers;

static void fail(const char *what, int status)
{
    fprintf(stderr, "mpi_keepers: rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, status);
}

static uint64_t key_of(int from, int to, size_t what)
{
    return mix64(seed ^ mix64(((uint64_t) from << 56) ^ ((uint64_t) to << 48) ^ ((uint64_t) what << 40) ^ round_now));
}

/* Repeatable. */
static uint64_t chance(uint64_t below)
{
    static uint64_t n;
    return mix64(seed ^ mix64(~++n)) % below;
}

/* ---- receivers ---- */

static unsigned char *in[MOST][MESSAGES];

static uint64_t look_at(int from, int index)
{
    uint64_t errors = 0;
    for (size_t i = 0; i < MESSAGES; i++) {
        size_t at = pattern_mismatch(in[from][i], size[i], key_of(from, index, i));
        if ((at < size[i] || !buffer_guards_intact(in[from][i], size[i])) && errors++ < 5)
            fprintf(stderr,
                    "mpi_keepers: receiver %d, round %llu: message of %zu bytes from rank %d: byte %zu is wrong\n",
                    index, (unsigned long long) round_now, size[i], from, at);
    }
    return errors;
}

/* All have the same order. */
static enum order receive_round(int index, uint64_t *errors)
{
    MPI_Request request[MOST * (MESSAGES + 1)];
    struct head head[MOST];
    int n = 0;
    for (int s = 0; s < senders; s++) {
        MPI_Irecv(&head[s], sizeof head[s], MPI_BYTE, s, 1, above, &request[n++]);
        for (size_t i = 0; i < MESSAGES; i++) {
            memset(in[s][i], 0, size[i]);
            buffer_guard(in[s][i], size[i]);
            MPI_Irecv(in[s][i], (int) size[i], MPI_BYTE, s, 1, above, &request[n++]);
        }
    }
    MPI_Waitall(n, request, MPI_STATUSES_IGNORE);
    for (int s = 0; s < senders; s++) {
        *errors += head[s].round != round_now || head[s].order != head[0].order;
        *errors += look_at(s, index);
    }
    return (enum order) head[0].order;
}

static void answer_all(uint64_t errors)
{
    struct answer a = {round_now, errors, pvar_value(0), pvar_value(1), (uint64_t) getpid()};
    for (int s = 0; s < senders; s++)
        MPI_Send(&a, sizeof a, MPI_BYTE, s, 2, above);
}

/* At some moment, while the others go on. */
static void leave(int index)
{
    double until = MPI_Wtime() + 1e-6 * (double) (mix64(seed ^ (uint64_t) index) % SPIN_US);
    while (MPI_Wtime() < until) {
    }
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(how, "disconnect") == 0)
        MPI_Comm_disconnect(&above);
}

static uint64_t receive(int index)
{
    enum order order = GO_ON;
    uint64_t errors = 0;
    for (int s = 0; s < senders; s++)
        MPI_Send(NULL, 0, MPI_BYTE, s, 5, above);
    for (int s = 0; s < senders; s++)
        for (size_t i = 0; i < MESSAGES; i++)
            in[s][i] = buffer_new(size[i]);
    for (round_now = 0; order == GO_ON; round_now++) {
        alarm(STUCK_AFTER);
        order = receive_round(index, &errors);
        answer_all(errors);
    }
    if (order == LEAVE)
        leave(index);
    else if (spawn)
        MPI_Comm_disconnect(&above);
    for (int s = 0; s < senders; s++)
        for (size_t i = 0; i < MESSAGES; i++)
            buffer_free(in[s][i]);
    return errors;
}

/* ---- senders ---- */

static unsigned char *out[MOST][MESSAGES];

/* Each sender begins with another receiver: whoever is asked first makes the TGT. */
static void send_round(int leaver, bool end)
{
    MPI_Request request[MOST * (MESSAGES + 2)];
    struct head head[MOST];
    int n = 0;
    for (int k = 0; k < nreceivers; k++) {
        int i = (int) ((mix64(seed) + (uint64_t) rank + (uint64_t) k) % (uint64_t) nreceivers);
        struct receiver *r = &receivers[i];
        if (!r->there)
            continue;
        head[i] = (struct head){round_now, end ? END : i == leaver ? LEAVE : GO_ON};
        MPI_Isend(&head[i], sizeof head[i], MPI_BYTE, r->rank, 1, r->comm, &request[n++]);
        for (size_t m = 0; m < MESSAGES; m++) {
            pattern_fill(out[i][m], size[m], key_of(rank, i, m));
            MPI_Isend(out[i][m], (int) size[m], MPI_BYTE, r->rank, 1, r->comm, &request[n++]);
        }
        MPI_Irecv(&r->answer, sizeof r->answer, MPI_BYTE, r->rank, 2, r->comm, &request[n++]);
    }
    MPI_Waitall(n, request, MPI_STATUSES_IGNORE);
    for (int i = 0; i < nreceivers; i++)
        if (receivers[i].there && receivers[i].answer.round != round_now)
            fail("an answer to another round", 1);
}

static int there(void)
{
    int n = 0;
    for (int i = 0; i < nreceivers; i++)
        n += receivers[i].there;
    return n;
}

/* Two ranks hold each sender's TGT, or all that there are. Children have spoken with each other, so that they hold more. */
static bool all_kept(void)
{
    uint64_t handles = 0;
    for (int i = 0; i < nreceivers; i++)
        handles += receivers[i].there ? receivers[i].answer.handles : 0;
    uint64_t wanted = (uint64_t) (senders * (there() > 1 ? 2 : 1));
    return spawn ? handles >= wanted : handles == wanted;
}

static bool has_gone(const struct receiver *r)
{
    return r == NULL || (kill((pid_t) r->answer.pid, 0) != 0 && errno == ESRCH);
}

/* One that has made a TGT comes first, then one that holds some. */
static int choose(bool maker)
{
    int n = 0, chosen[MOST];
    for (int i = 0; i < nreceivers; i++)
        if (receivers[i].there && (maker ? receivers[i].answer.made : receivers[i].answer.handles) > 0)
            chosen[n++] = i;
    return n > 0 ? chosen[chance((uint64_t) n)] : -1;
}

/* As it was when the last one left may take a while, but not for ever. */
static void look_at_time(double since)
{
    if (MPI_Wtime() - since > STUCK_AFTER / 2)
        fail("nobody takes the place of one that has left", 3);
}

/* Rank 0: who leaves now, -1 nobody; *end when all have left that shall. Nobody is killed who holds a TGT alone. */
static int decide(bool *end)
{
    static uint64_t due;
    static struct receiver *last;
    static double since;
    bool left = there() < 2;
    if (round_now == 0) {
        due = 1 + chance(haste ? HASTE : PAUSE);
        since = MPI_Wtime();
    } else if ((!haste || left) && !(has_gone(last) && all_kept())) {
        due = round_now + (left ? AFTER_ALL : 1 + chance(HASTE));
        look_at_time(since);
    }
    *end = left && round_now >= due;
    if (left || round_now < due)
        return -1;
    int leaver = choose(last == NULL);
    if (leaver < 0)
        return -1;
    last = &receivers[leaver];
    printf("mpi_keepers: round %llu: %s of one that has made %llu TGTs and holds %llu\n",
           (unsigned long long) round_now, how, (unsigned long long) last->answer.made,
           (unsigned long long) last->answer.handles);
    fflush(stdout);
    due = round_now + 1 + chance(haste ? HASTE : PAUSE);
    since = MPI_Wtime();
    return leaver;
}

static void tell_senders(int *leaver, bool *end)
{
    int word[2] = {*leaver, *end};
    for (int s = 1; s < senders && rank == 0; s++)
        MPI_Send(word, 2, MPI_INT, s, 3, MPI_COMM_WORLD);
    if (rank != 0)
        MPI_Recv(word, 2, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    *leaver = word[0];
    *end = word[1] != 0;
}

static uint64_t send_all(void)
{
    uint64_t errors = 0;
    bool end = false;
    for (int i = 0; i < nreceivers; i++)
        for (size_t m = 0; m < MESSAGES; m++)
            out[i][m] = buffer_new(size[m]);
    for (int i = 0; i < nreceivers; i++)
        MPI_Recv(NULL, 0, MPI_BYTE, receivers[i].rank, 5, receivers[i].comm, MPI_STATUS_IGNORE);
    for (round_now = 0; !end; round_now++) {
        alarm(STUCK_AFTER);
        int leaver = rank == 0 ? decide(&end) : -1;
        tell_senders(&leaver, &end);
        send_round(leaver, end);
        for (int i = 0; i < nreceivers; i++) {
            struct receiver *r = &receivers[i];
            errors += r->there ? r->answer.errors : 0;
            if (spawn && r->there && (end || i == leaver))
                MPI_Comm_disconnect(&r->comm);
            r->there = r->there && !end && i != leaver;
        }
    }
    if (rank == 0)
        printf("mpi_keepers: %llu rounds, %d have left, seed %llu, %llu errors\n", (unsigned long long) round_now,
               nreceivers - 1, (unsigned long long) seed, (unsigned long long) errors);
    for (int i = 0; i < nreceivers; i++)
        for (size_t m = 0; m < MESSAGES; m++)
            buffer_free(out[i][m]);
    return errors;
}

/* ---- the program ---- */

/* Each child alone is connected with the senders, so that it can leave without the others. */
static void spawn_receivers(char *program)
{
    char port[MPI_MAX_PORT_NAME] = "", seed_text[32], senders_text[16];
    char *args[] = {(char *) "--child", (char *) how, senders_text, seed_text, NULL};
    MPI_Comm all;
    MPI_Info info;
    snprintf(seed_text, sizeof seed_text, "%llu", (unsigned long long) seed);
    snprintf(senders_text, sizeof senders_text, "%d", senders);
    MPI_Info_create(&info);
    MPI_Info_set(info, "host", host);
    MPI_Comm_spawn(program, args, spawn, info, 0, MPI_COMM_WORLD, &all, MPI_ERRCODES_IGNORE);
    MPI_Info_free(&info);
    if (rank == 0)
        MPI_Open_port(MPI_INFO_NULL, port);
    for (int i = 0; i < spawn; i++) {
        alarm(STUCK_AFTER);
        if (rank == 0)
            MPI_Send(port, sizeof port, MPI_CHAR, i, 4, all);
        receivers[i] = (struct receiver){.comm = MPI_COMM_NULL, .rank = 0, .there = true};
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &receivers[i].comm);
    }
    if (rank == 0)
        MPI_Close_port(port);
    nreceivers = spawn;
    MPI_Comm_disconnect(&all);
}

static uint64_t child(char **argv)
{
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm parent;
    how = argv[2];
    senders = atoi(argv[3]);
    seed = strtoull(argv[4], NULL, 10);
    spawn = 1;
    MPI_Comm_get_parent(&parent);
    MPI_Recv(port, sizeof port, MPI_CHAR, 0, 4, parent, MPI_STATUS_IGNORE);
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &above);
    MPI_Comm_disconnect(&parent);
    return receive(rank);
}

static uint64_t run(char *program)
{
    if (spawn) {
        spawn_receivers(program);
        return send_all();
    }
    nreceivers = ranks / 2;
    for (int i = 0; i < nreceivers; i++)
        receivers[i] = (struct receiver){.comm = MPI_COMM_WORLD, .rank = ranks - nreceivers + i, .there = true};
    return rank < senders ? send_all() : rank >= ranks - nreceivers ? receive(rank - (ranks - nreceivers)) : 0;
}

static int parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"haste", no_argument, NULL, 'q'},       {"senders", required_argument, NULL, 'n'},
        {"spawn", required_argument, NULL, 'p'}, {"host", required_argument, NULL, 'h'},
        {"seed", required_argument, NULL, 's'},  {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'q': haste = true; break;
        case 'n': senders = atoi(optarg); break;
        case 'p': spawn = atoi(optarg); break;
        case 'h': host = optarg; break;
        case 's': seed = strtoull(optarg, NULL, 10); break;
        default: return -1;
        }
    }
    how = optind + 1 == argc ? argv[optind] : "";
    bool known = strcmp(how, "finalize") == 0 || strcmp(how, "disconnect") == 0 || strcmp(how, "kill") == 0;
    return known && senders > 0 && senders <= MOST && spawn <= MOST && !spawn == !host ? 0 : -1;
}

int main(int argc, char **argv)
{
    bool spawned = argc == 5 && strcmp(argv[1], "--child") == 0;
    uint64_t errors;
    stuck_after(STUCK_AFTER, "mpi_keepers: stuck");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (!spawned
        && (parse(argc, argv) != 0 || (!spawn && (ranks / 2 < senders || ranks / 2 > MOST))
            || (spawn && ranks != senders))) {
        fprintf(stderr, "mpi_keepers: see the head of keepers.c for its options\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    /* Its counters count from here on. */
    if (!pvars_open(variables, sizeof variables / sizeof variables[0]))
        fail("no variables of btl xrc", 2);
    errors = spawned ? child(argv) : run(argv[0]);
    alarm(STUCK_AFTER);
    pvars_close();
    MPI_Finalize();
    return errors ? 1 : 0;
}
