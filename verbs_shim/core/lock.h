/* Locks of a process's own objects: a QP's, a CQ's, a receive queue's.
 *
 * Nearly always one thread alone posts to a queue or polls it, so such a lock leans towards the thread that took it last, again and
 * again: that one is in without an atomic instruction, as long as nobody else wants it (a biased lock).
 *
 *     the thread it is biased to          another one
 *       held = 1                            takes the mutex
 *       is the bias mine?  yes: inside      bias = 0
 *       ...                                 membarrier(2): every thread of this process passes a full barrier
 *       held = 0                            waits until held is 0, is inside, and leaves the mutex afterwards
 *       no bias any more?  wake it
 *
 * Each side writes, then reads what the other writes. Full barriers in between would make sure that one sees the other; here the other
 * one pays for both, and the first needs its own two steps in order only as the compiler sees it. Who takes the lock by its mutex often
 * enough in a row has the bias then; each time it is withdrawn this takes twice as long, so that threads which take turns are left with
 * the mutex. Where the kernel has no membarrier there is never a bias.
 *
 * Between its look at the bias and its store to held a thread may sleep for any time. So there is one thread alone that writes held, and
 * another can have the bias only once that one came by the mutex: it is not in between then. test/model/lock.pml shows what happens else.
 *
 * Not recursive: taken twice by one thread it hangs, as a mutex does. Taken and left by the same thread. */
#ifndef VS_LOCK_H
#define VS_LOCK_H

#include <pthread.h>

#include "memory/atomic.h"

struct vs_lock {
	uint32_t bias; /* number of the thread that needs no mutex; 0: all do */
	uint32_t held; /* that thread is inside without it */
	bool fast;     /* whoever is inside is there without it; theirs alone */
	pthread_mutex_t mutex;
	uint32_t writer; /* of held, perhaps still: who has, or had, the bias; 0: nobody. This and what follows are under the mutex */
	uint32_t last;   /* who took it by the mutex last */
	uint32_t streak; /* how often in a row */
	uint32_t wanted; /* of that, for a bias */
};

#define VS_NO_THREAD UINT32_MAX

/* This thread's number; VS_NO_THREAD before it first took a lock by its mutex. */
extern VS_HIDDEN __thread uint32_t vs_thread __attribute__((tls_model("initial-exec")));

/* Ask the kernel for its barriers; once in a process, best before it has threads. */
void vs_lock_setup(void);

void vs_lock_init(struct vs_lock *l);

/* Nobody may be inside or waiting. */
void vs_lock_destroy(struct vs_lock *l);

void vs_lock_slow(struct vs_lock *l);
bool vs_trylock(struct vs_lock *l); /* false: somebody is inside, perhaps this thread itself */
void vs_unlock_slow(struct vs_lock *l);

/* A compiler's barrier; the other side's membarrier makes one of the processor of it. */
static inline void vs_light_fence(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Inside if the lock is biased to this thread. */
static inline bool vs_lock_fast(struct vs_lock *l)
{
	if (vs_load_relaxed(&l->bias) != vs_thread || vs_load_relaxed(&l->held))
		return false;
	vs_store_relaxed(&l->held, 1);
	vs_light_fence();
	if (vs_load(&l->bias) == vs_thread) {
		l->fast = true;
		return true;
	}
	vs_store(&l->held, 0);
	vs_unlock_slow(l); /* whoever has withdrawn the bias may have seen us */
	return false;
}

static inline void vs_lock(struct vs_lock *l)
{
	if (!vs_lock_fast(l))
		vs_lock_slow(l);
}

static inline void vs_unlock(struct vs_lock *l)
{
	if (!l->fast) {
		pthread_mutex_unlock(&l->mutex);
		return;
	}
	vs_store(&l->held, 0);
	vs_light_fence();
	if (vs_load_relaxed(&l->bias) == 0)
		vs_unlock_slow(l);
}

#endif
