/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Incast over btl xrc: all ranks but 0 send to rank 0 at once, and rank 0 looks at every byte.
 *
 *   refused  20 rounds in which rank 0 stays out of MPI until all others have sent their share: queues that hold less than
 *            that run dry each time. They get no more buffers, as the HCA registers no memory; only with --refuse.
 *   growing  such rounds until there are N receive buffers.
 *   settled  20 such rounds more. The queues must hold all shares now, so nobody may have to wait for a buffer.
 *   flood    no rounds: everybody sends as fast as it can.
 *
 * usage: mpi_incast --meet FILE --buffers N [--refuse VSHIM] [--messages N] [--seed N]
 * --meet: a file that is not there yet, by which rank 0 learns that the others have sent without a call of MPI.
 * --buffers: the receive buffers that rank 0 will have in the end.
 * --refuse: the vshim tool, by which the HCAs are told to refuse and to take memory again.
 * --messages: of each sender in the flood.
 * Exit status: 0 all right, 1 wrong data, or waits where there should be none, 2 wrong use, 3 stuck.
 */
#include "buffer.h"
#include "pvar.h"
#include "stuck.h"

#include <fcntl.h>
#include <getopt.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STUCK_AFTER = 60, SETTLED = 20, SMALL = 48, MEDIUM = 12, SHARE = SMALL + MEDIUM, SLOTS = 16 };
enum { SMALL_BYTES = 500, MEDIUM_BYTES = 8000, LARGEST = 100000 };

enum { BUFFERS, BYTES, LIMITS, RNR };
static const char *const variables[] = {"srq_buffers", "recv_bytes", "srq_limits", "rnr_waits"};

static const int flood_sizes[SLOTS] = {0, 8, 8, 500, 8, 500, 8000, 64, 8, 500, 1000, 8, 8000, 200, 8, 2000};

static int rank, ranks, meet = -1;
static uint64_t seed = 1, errors;
static unsigned long long buffers, messages = 16000;
static const char *vshim;
static unsigned char **room; /* a sender's: one for each message under way; rank 0's: so many for each sender */

static void fail(const char *what, int status)
{
    fprintf(stderr, "mpi_incast: rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, status);
}

static uint64_t key_of(int from, uint64_t serial)
{
    return mix64(seed ^ mix64((uint64_t) from << 48 ^ serial));
}

static void look_at(const unsigned char *data, size_t len, int from, uint64_t serial)
{
    size_t at = pattern_mismatch(data, len, key_of(from, serial));
    if ((at < len || !buffer_guards_intact(data, len)) && errors++ < 5)
        fprintf(stderr, "mpi_incast: message %llu of rank %d is wrong at byte %zu of %zu\n",
                (unsigned long long) serial, from, at, len);
}

/* ---- rounds ---- */

static int share_size(int i)
{
    return i < SMALL ? SMALL_BYTES : MEDIUM_BYTES;
}

/* Each adds a byte when it has sent. */
static void wait_for_senders(uint64_t rounds)
{
    struct stat st;
    do {
        sched_yield();
        if (fstat(meet, &st) != 0)
            fail("the file has gone", 2);
    } while ((uint64_t) st.st_size < rounds * (uint64_t) (ranks - 1));
}

static void send_share(uint64_t serial)
{
    MPI_Request request[SHARE];
    for (int i = 0; i < SHARE; i++) {
        pattern_fill(room[i], (size_t) share_size(i), key_of(rank, serial + (uint64_t) i));
        MPI_Isend(room[i], share_size(i), MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request[i]);
    }
    if (write(meet, "+", 1) != 1)
        fail("the file cannot be written", 2);
    MPI_Waitall(SHARE, request, MPI_STATUSES_IGNORE);
}

static void receive_shares(uint64_t serial)
{
    for (int from = 1; from < ranks; from++)
        for (int i = 0; i < SHARE; i++) {
            buffer_guard(room[0], (size_t) share_size(i));
            MPI_Recv(room[0], share_size(i), MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            look_at(room[0], (size_t) share_size(i), from, serial + (uint64_t) i);
        }
}

static void one_round(void)
{
    static uint64_t rounds;
    uint64_t serial = rounds++ * SHARE;
    if (rank == 0) {
        wait_for_senders(rounds);
        receive_shares(serial);
    } else {
        send_share(serial);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static bool rank_0_has_all(void)
{
    int all = rank == 0 && pvar_value(BUFFERS) >= buffers;
    MPI_Bcast(&all, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return all;
}

/* The ranks of a host see the same number, those of other hosts their own. */
static unsigned long long all_waits(void)
{
    static MPI_Comm host = MPI_COMM_NULL;
    unsigned long long mine, sum;
    int on_host;
    if (host == MPI_COMM_NULL)
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &on_host);
    mine = on_host == 0 ? pvar_value(RNR) : 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

static void order(const char *words)
{
    char command[512];
    int n = snprintf(command, sizeof command, "%s %s", vshim, words);
    if (n < 0 || (size_t) n >= sizeof command || system(command) != 0)
        fail("an order cannot be given to the HCAs", 2);
}

static void refused_rounds(void)
{
    unsigned long long had = pvar_value(BUFFERS), bytes = pvar_value(BYTES);
    alarm(STUCK_AFTER);
    if (rank == 0)
        order("refuse reg_mr ENOMEM times ever");
    for (int i = 0; i < SETTLED; i++)
        one_round();
    if (rank == 0) {
        printf("mpi_incast: refused: %d rounds, %llu receive buffers\n", SETTLED, pvar_value(BUFFERS));
        errors += pvar_value(BUFFERS) != had || pvar_value(BYTES) != bytes;
        order("refuse reg_mr off");
    }
}

static void rounds(void)
{
    unsigned long long had = pvar_value(BUFFERS), bytes = pvar_value(BYTES);
    int growing = 0;
    alarm(STUCK_AFTER);
    while (!rank_0_has_all()) {
        one_round();
        growing++;
    }
    unsigned long long before = all_waits(), limits = pvar_value(LIMITS);
    alarm(STUCK_AFTER);
    for (int i = 0; i < SETTLED; i++)
        one_round();
    unsigned long long after = all_waits();
    if (rank == 0) {
        printf("mpi_incast: growing: %d rounds, from %llu to %llu receive buffers, from %llu to %llu KiB, "
               "%llu limit events, %llu waits\n",
               growing, had, pvar_value(BUFFERS), bytes >> 10, pvar_value(BYTES) >> 10, limits, before);
        printf("mpi_incast: settled: %d rounds, %llu limit events, %llu waits\n", SETTLED, pvar_value(LIMITS) - limits,
               after - before);
        errors += after != before;
    }
}

/* ---- flood ---- */

/* Mostly such that need nothing of rank 0 but a buffer; now and then one that rank 0 gets. */
static int flood_size(uint64_t n)
{
    return n % (16 * SLOTS) == 0 ? LARGEST : flood_sizes[n % SLOTS];
}

static void send_flood(uint64_t serial)
{
    MPI_Request request[SLOTS];
    for (uint64_t i = 0; i < messages; i += SLOTS) {
        alarm(STUCK_AFTER);
        for (uint64_t slot = 0; slot < SLOTS; slot++) {
            pattern_fill(room[slot], (size_t) flood_size(i + slot), key_of(rank, serial + i + slot));
            MPI_Isend(room[slot], flood_size(i + slot), MPI_BYTE, 0, 2, MPI_COMM_WORLD, &request[slot]);
        }
        MPI_Waitall(SLOTS, request, MPI_STATUSES_IGNORE);
    }
}

/*
 * Of each sender SLOTS receives are posted: what has come makes room for that sender's next message not asked for yet. They
 * need not end in the order in which they began.
 */
struct receives {
    MPI_Request *request;
    uint64_t *expected; /* by each: the number of its message */
    uint64_t *next;     /* of each sender */
};

static void post(struct receives *r, int which)
{
    int from = 1 + which / SLOTS;
    uint64_t n = r->next[from]++;
    if (n >= messages)
        return;
    r->expected[which] = n;
    buffer_guard(room[which], (size_t) flood_size(n));
    MPI_Irecv(room[which], flood_size(n), MPI_BYTE, from, 2, MPI_COMM_WORLD, &r->request[which]);
}

static void receive_flood(uint64_t serial)
{
    int n = (ranks - 1) * SLOTS, which;
    struct receives r = {malloc((size_t) n * sizeof *r.request), calloc((size_t) n, sizeof *r.expected),
                         calloc((size_t) ranks, sizeof *r.next)};
    if (!r.request || !r.expected || !r.next)
        fail("no memory", 2);
    for (int i = 0; i < n; i++) {
        r.request[i] = MPI_REQUEST_NULL;
        post(&r, i);
    }
    for (MPI_Waitany(n, r.request, &which, MPI_STATUS_IGNORE); which != MPI_UNDEFINED;
         MPI_Waitany(n, r.request, &which, MPI_STATUS_IGNORE)) {
        uint64_t number = r.expected[which];
        alarm(STUCK_AFTER);
        look_at(room[which], (size_t) flood_size(number), 1 + which / SLOTS, serial + number);
        post(&r, which);
    }
    free(r.request);
    free(r.expected);
    free(r.next);
}

static void flood(void)
{
    const uint64_t serial = UINT64_C(1) << 40;
    unsigned long long before = all_waits(), after, all = messages * (unsigned) (ranks - 1);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    if (rank == 0)
        receive_flood(serial);
    else
        send_flood(serial);
    double seconds = MPI_Wtime() - began;
    after = all_waits();
    if (rank == 0)
        printf("mpi_incast: flood: %llu messages, %.0f a second, %.2f waits a message\n", all, (double) all / seconds,
               (double) (after - before) / (double) all);
}

/* ---- the program ---- */

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"meet", required_argument, NULL, 'm'},   {"buffers", required_argument, NULL, 'b'},
        {"refuse", required_argument, NULL, 'r'}, {"messages", required_argument, NULL, 'n'},
        {"seed", required_argument, NULL, 's'},   {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'm': meet = open(optarg, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600); break;
        case 'b': buffers = strtoull(optarg, NULL, 10); break;
        case 'r': vshim = optarg; break;
        case 'n': messages = strtoull(optarg, NULL, 10) / SLOTS * SLOTS; break;
        case 's': seed = strtoull(optarg, NULL, 10); break;
        default: exit(2);
        }
    }
    if (meet < 0 || buffers == 0) {
        fprintf(stderr, "usage: mpi_incast --meet FILE --buffers N [--refuse VSHIM] [--messages N] [--seed N]\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    stuck_after(STUCK_AFTER, "mpi_incast: stuck");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (!pvars_open(variables, sizeof variables / sizeof variables[0]))
        fail("no variables of btl xrc", 2);
    int n = rank == 0 ? (ranks - 1) * SLOTS : SHARE;
    room = calloc((size_t) n, sizeof *room);
    for (int i = 0; room && i < n; i++)
        room[i] = buffer_new(LARGEST);
    if (!room)
        fail("no memory", 2);
    if (vshim)
        refused_rounds();
    rounds();
    flood();
    MPI_Bcast(&errors, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++)
        buffer_free(room[i]);
    free(room);
    pvars_close();
    MPI_Finalize();
    return errors ? 1 : 0;
}
