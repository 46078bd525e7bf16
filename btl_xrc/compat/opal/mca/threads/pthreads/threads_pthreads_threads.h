/* SPDX-License-Identifier: BSD-3-Clause */
/* Stand-in, see threads_pthreads_mutex.h beside it. */
#ifndef OPAL_MCA_THREADS_PTHREADS_THREADS_PTHREADS_THREADS_H
#define OPAL_MCA_THREADS_PTHREADS_THREADS_PTHREADS_THREADS_H

#include <sched.h>

#define OPAL_THREAD_YIELD_WHEN_IDLE_DEFAULT false

static inline void opal_thread_yield(void)
{
    sched_yield();
}

#endif
