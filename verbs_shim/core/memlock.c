#include "core/memlock.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory/atomic.h"

static uint64_t charged; /* bytes; atomic */

static uint64_t pages_of(const void *addr, size_t length)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)addr & ~(page - 1);

	return length ? (((uintptr_t)addr + length + page - 1) & ~(page - 1)) - from : 0;
}

#define INITIAL_USER_NS 0xeffffffdu /* PROC_USER_INIT_INO of the kernel: fixed, as are its fellows */

/* ib_umem_get() asks capable(CAP_IPC_LOCK): in the initial user namespace, whatever this process may do in one of its own. Where no /proc
 * tells the namespace the capability is believed. */
static bool may_lock_all(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 }, { 0 } };
	struct stat ns;

	if (syscall(SYS_capget, &header, data) || !(data[0].effective & 1u << CAP_IPC_LOCK))
		return false;
	return stat("/proc/self/ns/user", &ns) != 0 || ns.st_ino == INITIAL_USER_NS;
}

int vs_memlock_charge(const void *addr, size_t length)
{
	uint64_t bytes = pages_of(addr, length), total = vs_add(&charged, bytes) + bytes;
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY || total <= limit.rlim_cur || may_lock_all())
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
