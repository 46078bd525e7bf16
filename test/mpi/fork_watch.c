/* SPDX-License-Identifier: BSD-3-Clause */
/* Preloaded into a rank: when memory is registered for the first time, tells whether the library had been prepared for forks. */
#include <dlfcn.h>
#include <stdio.h>

static int prepared;
static int registered;

int vshim_fork_init(void)
{
    int (*real)(void) = (int (*)(void)) dlsym(RTLD_NEXT, "vshim_fork_init");
    prepared++;
    return real();
}

void *vshim_reg_mr(void *pd, void *addr, size_t length, int access)
{
    void *(*real)(void *, void *, size_t, int) =
        (void *(*) (void *, void *, size_t, int) ) dlsym(RTLD_NEXT, "vshim_reg_mr");
    if (!registered++)
        fprintf(stderr, "fork_watch: ibv_fork_init called %d times before\n", prepared);
    return real(pd, addr, length, access);
}
