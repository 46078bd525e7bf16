/* SPDX-License-Identifier: BSD-3-Clause */
/* Which message sizes are worth trying: around the limits at which the transport changes what it does. */
#ifndef MPI_CHECK_SIZES_H
#define MPI_CHECK_SIZES_H

#include "check.h"

/* The limits come from the MCA parameters of the BTLs in use, read through MPI_T on rank 0; `more` is a
 * comma-separated list of further limits, or NULL. */
struct size_list sizes_to_try(size_t max, const char *more);

#endif
