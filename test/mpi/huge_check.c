/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages whose bytes do not fit into an int, and then not into 32 bits; every byte is looked at. Rank 0 and rank 1 hold one buffer
 * each at a time, so a part needs twice the memory of its message. */
#include "buffer.h"
#include "check.h"

enum { MIB = 1 << 20, OVER_2_GIB = 2100, OVER_4_GIB = 4100 };

static void part_ints(struct check *c);
static void part_element(struct check *c);
static void part_four(struct check *c);
static void part_put(struct check *c);
static void part_get(struct check *c);

const char check_name[] = "huge_check";
const int check_threads = MPI_THREAD_SINGLE;

const struct part check_parts[] = {
    {"ints", "2100 MiB as many integers", part_ints},
    {"element", "2100 MiB as one element of a derived type", part_element},
    {"four", "4100 MiB as many integers", part_four},
    {"put", "2100 MiB put into a window", part_put},
    {"get", "2100 MiB got from a window", part_get},
};
const size_t check_part_count = sizeof(check_parts) / sizeof(check_parts[0]);

/* `count` elements of `type` are a message of `len` bytes. */
struct message {
    size_t len;
    int count;
    MPI_Datatype type;
};

static struct message many_ints(size_t mib)
{
    size_t len = mib * MIB;

    return (struct message){len, (int) (len / sizeof(int)), MPI_INT};
}

static struct message one_element(size_t mib)
{
    struct message m = many_ints(mib);

    MPI_Type_contiguous(m.count, MPI_INT, &m.type);
    MPI_Type_commit(&m.type);
    m.count = 1;
    return m;
}

static void send(const struct check *c, const struct message *m, int to, uint64_t serial)
{
    unsigned char *out = buffer_new(m->len);

    pattern_fill(out, m->len, check_key(c, c->rank, to, serial));
    MPI_Send(out, m->count, m->type, to, 0, MPI_COMM_WORLD);
    buffer_free(out);
}

static void receive(struct check *c, const struct message *m, int from, uint64_t serial)
{
    MPI_Status status;
    MPI_Count len;

    MPI_Probe(from, 0, MPI_COMM_WORLD, &status);
    MPI_Get_elements_x(&status, MPI_BYTE, &len);
    if (len != (MPI_Count) m->len)
        check_error(c, "%lld bytes were announced where %zu were sent", (long long) len, m->len);
    unsigned char *in = buffer_new(m->len);
    MPI_Recv(in, m->count, m->type, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check_received(c, in, m->len, from, serial);
    buffer_free(in);
}

static void carry(struct check *c, const struct message *m, int from, int to)
{
    uint64_t serial = c->serial++;

    if (c->rank == from)
        send(c, m, to, serial);
    else if (c->rank == to)
        receive(c, m, from, serial);
}

static void part_ints(struct check *c)
{
    struct message m = many_ints(OVER_2_GIB);

    carry(c, &m, 0, 1);
}

static void part_element(struct check *c)
{
    struct message m = one_element(OVER_2_GIB);

    carry(c, &m, 1, 0);
    MPI_Type_free(&m.type);
}

static void part_four(struct check *c)
{
    struct message m = many_ints(OVER_4_GIB);

    carry(c, &m, 0, 1);
}

/* Rank 0 puts into, or gets from, a window that only rank 1 has. Whoever holds the bytes at first is `from`. */
static void one_sided(struct check *c, int from)
{
    struct message m = one_element(OVER_2_GIB);
    uint64_t serial = c->serial++;
    unsigned char *data = c->rank < 2 ? buffer_new(m.len) : NULL;
    MPI_Win win;

    if (c->rank == from)
        pattern_fill(data, m.len, check_key(c, from, !from, serial));
    MPI_Win_create(data, c->rank == 1 ? (MPI_Aint) m.len : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    if (c->rank == 0 && from == 0)
        MPI_Put(data, m.count, m.type, 1, 0, m.count, m.type, win);
    if (c->rank == 0 && from == 1)
        MPI_Get(data, m.count, m.type, 1, 0, m.count, m.type, win);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
    if (c->rank == !from)
        check_received(c, data, m.len, from, serial);
    buffer_free(data);
    MPI_Type_free(&m.type);
}

static void part_put(struct check *c)
{
    one_sided(c, 0);
}

static void part_get(struct check *c)
{
    one_sided(c, 1);
}
