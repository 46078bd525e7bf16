/* SPDX-License-Identifier: BSD-3-Clause */
/* The watchdog of the MPI programs. */
#ifndef MPI_STUCK_H
#define MPI_STUCK_H

/* Ends the process with status 3, and with this line on stderr, in so many seconds: unless there is another call by then, or one of
 * alarm(), which keeps the line and begins anew. */
void stuck_after(unsigned seconds, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
