/* SPDX-License-Identifier: BSD-3-Clause */
/* Preloaded under the data checkers: changes the last byte of the XRC_CORRUPT_MESSAGE-th message that is received, by whatever
 * function the checkers use, of the XRC_CORRUPT_PUT-th that MPI_Put sends, or the XRC_CORRUPT_FETCH-th value that is fetched, so
 * that a test can see a checker notice it. */
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool is_the_one(const char *which, int *count)
{
    const char *number = getenv(which);

    return number && ++*count == atoi(number);
}

/* Messages received so far that are not empty. */
static int received;

/* An element of another type than bytes is changed in its first byte: a strided type's last one may lie in a gap. */
static void spoil(void *data, int count, MPI_Datatype type)
{
    unsigned char *bytes = data;

    bytes[type == MPI_BYTE ? count - 1 : 0] ^= 1;
}

static void spoil_if_the_one(void *data, int count, MPI_Datatype type)
{
    if (count > 0 && is_the_one("XRC_CORRUPT_MESSAGE", &received))
        spoil(data, count, type);
}

int MPI_Sendrecv(const void *out, int out_count, MPI_Datatype out_type, int to, int out_tag, void *in, int in_count,
                 MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status *status)
{
    int rc = PMPI_Sendrecv(out, out_count, out_type, to, out_tag, in, in_count, in_type, from, in_tag, comm, status);

    spoil_if_the_one(in, in_count, in_type);
    return rc;
}

int MPI_Recv(void *in, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status)
{
    int rc = PMPI_Recv(in, count, type, from, tag, comm, status);

    spoil_if_the_one(in, count, type);
    return rc;
}

/* The one of the receives that are still going on, if it is among them. */
static struct {
    void *data;
    int count;
    MPI_Datatype type;
} pending;

int MPI_Irecv(void *in, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
    if (count > 0 && is_the_one("XRC_CORRUPT_MESSAGE", &received)) {
        pending.data = in;
        pending.count = count;
        pending.type = type;
    }
    return PMPI_Irecv(in, count, type, from, tag, comm, request);
}

int MPI_Waitall(int n, MPI_Request requests[], MPI_Status statuses[])
{
    int rc = PMPI_Waitall(n, requests, statuses);

    if (pending.data)
        spoil(pending.data, pending.count, pending.type);
    pending.data = NULL;
    return rc;
}

static int ranks_of(MPI_Comm comm)
{
    int ranks;

    MPI_Comm_size(comm, &ranks);
    return ranks;
}

int MPI_Alltoall(const void *out, int out_count, MPI_Datatype out_type, void *in, int in_count, MPI_Datatype in_type,
                 MPI_Comm comm)
{
    int rc = PMPI_Alltoall(out, out_count, out_type, in, in_count, in_type, comm);

    spoil_if_the_one(in, in_count * ranks_of(comm), in_type);
    return rc;
}

int MPI_Alltoallv(const void *out, const int out_counts[], const int out_starts[], MPI_Datatype out_type, void *in,
                  const int in_counts[], const int in_starts[], MPI_Datatype in_type, MPI_Comm comm)
{
    int rc = PMPI_Alltoallv(out, out_counts, out_starts, out_type, in, in_counts, in_starts, in_type, comm);
    int last = ranks_of(comm) - 1;

    spoil_if_the_one(in, in_starts[last] + in_counts[last], in_type);
    return rc;
}

int MPI_Allreduce(const void *mine, void *sum, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    int rc = PMPI_Allreduce(mine, sum, count, type, op, comm);

    spoil_if_the_one(sum, count, type);
    return rc;
}

/* The changed copy must live until the put is complete: it is kept. */
int MPI_Put(const void *from, int count, MPI_Datatype type, int to, MPI_Aint at, int to_count, MPI_Datatype to_type,
            MPI_Win win)
{
    static int message;
    static unsigned char *changed;

    if (is_the_one("XRC_CORRUPT_PUT", &message) && type == MPI_BYTE && count > 0 && !changed) {
        changed = malloc((size_t) count);
        memcpy(changed, from, (size_t) count);
        changed[count - 1] ^= 1;
        from = changed;
    }
    return PMPI_Put(from, count, type, to, at, to_count, to_type, win);
}

int MPI_Fetch_and_op(const void *operand, void *result, MPI_Datatype type, int to, MPI_Aint at, MPI_Op op, MPI_Win win)
{
    static int fetched;
    int rc = PMPI_Fetch_and_op(operand, result, type, to, at, op, win);

    if (is_the_one("XRC_CORRUPT_FETCH", &fetched) && type == MPI_INT64_T) {
        PMPI_Win_flush(to, win);
        ++*(int64_t *) result;
    }
    return rc;
}
