/* Registered memory counts against RLIMIT_MEMLOCK, as ib_umem_get charges it: whole pages, once for each region. */
#ifndef VS_MEMLOCK_H
#define VS_MEMLOCK_H

#include <stddef.h>

/* 0, or ENOMEM: the process would hold more than its soft limit and has not CAP_IPC_LOCK. */
int vs_memlock_charge(const void *addr, size_t length);
void vs_memlock_release(const void *addr, size_t length);

/* In a forked child, which the kernel charges for nothing yet. */
void vs_memlock_forget(void);

#endif
