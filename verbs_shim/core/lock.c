#include "core/lock.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIRST_STREAK 32u
#define MOST_STREAK (1u << 20)

__thread uint32_t vs_thread __attribute__((tls_model("initial-exec"))) = VS_NO_THREAD;

static bool can_bias; /* written before there are locks */

static int membarrier(int cmd)
{
	return (int)syscall(SYS_membarrier, cmd, 0, 0);
}

void vs_lock_setup(void)
{
	can_bias = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
}

/* Registered processes are not refused it. */
static void heavy_fence(void)
{
	membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

static uint32_t my_number(void)
{
	static uint32_t threads; /* atomic */

	while (vs_thread == VS_NO_THREAD || vs_thread == 0)
		vs_thread = vs_add(&threads, 1) + 1;
	return vs_thread;
}

void vs_lock_init(struct vs_lock *l)
{
	*l = (struct vs_lock){ .wanted = FIRST_STREAK };
	pthread_mutex_init(&l->mutex, NULL);
}

void vs_lock_destroy(struct vs_lock *l)
{
	pthread_mutex_destroy(&l->mutex);
}

/* No thread is inside without the mutex, which is held, once this returns true; and none will be before the mutex is left. */
static bool withdraw(struct vs_lock *l, bool wait)
{
	if (vs_load_relaxed(&l->bias)) {
		vs_store_relaxed(&l->bias, 0);
		heavy_fence();
		if (l->wanted < MOST_STREAK)
			l->wanted *= 2;
	}
	while (vs_load(&l->held)) {
		if (!wait)
			return false;
		syscall(SYS_futex, &l->held, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
	}
	return true;
}

/* Inside by the mutex. Has it always been this thread of late? Then the lock is biased to it from here on, and the mutex left at once: a
 * second try by the same thread must find it held, too. */
static void lean(struct vs_lock *l)
{
	uint32_t me = my_number();

	if (l->writer == me)
		l->writer = 0; /* it is here, so its last store to held is long done */
	if (l->last != me) {
		l->last = me;
		l->streak = 0;
	} else if (l->streak < l->wanted) {
		l->streak++;
	}
	l->fast = l->streak >= l->wanted && l->writer == 0 && can_bias;
	if (!l->fast)
		return;
	l->writer = me;
	l->streak = 0;
	vs_store_relaxed(&l->held, 1);
	vs_store(&l->bias, me);
	pthread_mutex_unlock(&l->mutex);
}

void vs_lock_slow(struct vs_lock *l)
{
	pthread_mutex_lock(&l->mutex);
	withdraw(l, true);
	lean(l);
}

bool vs_trylock(struct vs_lock *l)
{
	if (vs_lock_fast(l))
		return true;
	/* Held as seen from here: so a lock that is in use keeps its bias. */
	if (vs_load_relaxed(&l->held) || pthread_mutex_trylock(&l->mutex))
		return false;
	if (withdraw(l, false)) {
		lean(l);
		return true;
	}
	pthread_mutex_unlock(&l->mutex);
	return false;
}

void vs_unlock_slow(struct vs_lock *l)
{
	syscall(SYS_futex, &l->held, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
