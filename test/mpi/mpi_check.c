/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends messages of every interesting size and shape between MPI ranks and looks at every byte that arrives. */
#include "check.h"

const char check_name[] = "mpi_check";
const int check_threads = MPI_THREAD_SINGLE;

const struct part check_parts[] = {
    {"sizes", "each size around the ring of ranks", part_sizes},
    {"self", "each size from a rank to itself", part_self},
    {"window", "64 messages in flight in both directions", part_window},
    {"strided", "strided types, and what lies between the strides", part_strided},
    {"pairs", "all pairs of ranks at once", part_pairs},
    {"probe", "synchronous sends, any source, unknown length", part_probe},
    {"alltoall", "MPI_Alltoall and MPI_Alltoallv", part_alltoall},
    {"allreduce", "MPI_Allreduce of 64-bit sums", part_allreduce},
};
const size_t check_part_count = sizeof(check_parts) / sizeof(check_parts[0]);
