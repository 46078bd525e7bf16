/* SPDX-License-Identifier: BSD-3-Clause */
/* Performance variables of btl xrc, for programs that look at a few of them. */
#ifndef MPI_CHECK_PVAR_H
#define MPI_CHECK_PVAR_H

#include <stdbool.h>

/*
 * Between MPI_Init and MPI_Finalize. Names are without btl_xrc_. Counters start from 0 here. False: there is no such
 * variable, as with another transport.
 */
bool pvars_open(const char *const *names, int n);
unsigned long long pvar_value(int index);
/* Before MPI_Finalize: Open MPI 4.1.4 crashes otherwise, over any transport. */
void pvars_close(void);

#endif
