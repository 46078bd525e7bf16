#include "core/memlock.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/capable.h"
#include "memory/atomic.h"

static uint64_t charged; /* bytes; atomic */

static uint64_t pages_of(const void *addr, size_t length)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)addr & ~(page - 1);

	return length ? (((uintptr_t)addr + length + page - 1) & ~(page - 1)) - from : 0;
}

/* As ib_umem_get() does. */
int vs_memlock_charge(const void *addr, size_t length)
{
	uint64_t bytes = pages_of(addr, length), total = vs_add(&charged, bytes) + bytes;
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY || total <= limit.rlim_cur || vs_capable(CAP_IPC_LOCK))
		return 0;
	vs_add(&charged, -bytes);
	return ENOMEM;
}

void vs_memlock_release(const void *addr, size_t length)
{
	vs_add(&charged, -pages_of(addr, length));
}

void vs_memlock_forget(void)
{
	vs_store(&charged, 0);
}
