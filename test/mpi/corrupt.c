/* SPDX-License-Identifier: BSD-3-Clause */
/* Preloaded under the data checkers: changes the last byte of the XRC_CORRUPT_MESSAGE-th message that MPI_Sendrecv
 * receives or MPI_Put sends, or the XRC_CORRUPT_FETCH-th value that is fetched, so that a test can see a checker notice it. */
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

int MPI_Sendrecv(const void *out, int out_count, MPI_Datatype out_type, int to, int out_tag, void *in, int in_count,
                 MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status *status)
{
    static int message;
    int rc = PMPI_Sendrecv(out, out_count, out_type, to, out_tag, in, in_count, in_type, from, in_tag, comm, status);

    if (is_the_one("XRC_CORRUPT_MESSAGE", &message) && in_count > 0)
        ((unsigned char *) in)[in_count - 1] ^= 1;
    return rc;
}

/* The changed copy must live until the put is complete: it is kept. */
int MPI_Put(const void *from, int count, MPI_Datatype type, int to, MPI_Aint at, int to_count, MPI_Datatype to_type,
            MPI_Win win)
{
    static int message;
    static unsigned char *changed;

    if (is_the_one("XRC_CORRUPT_MESSAGE", &message) && type == MPI_BYTE && count > 0 && !changed) {
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
