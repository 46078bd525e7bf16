/* Preloaded: how many mutexes and read-write locks this process has taken, for `hca path`. */
#include <dlfcn.h>
#include <pthread.h>

static unsigned long taken;

unsigned long locks_taken(void);
unsigned long locks_taken(void)
{
	return __atomic_load_n(&taken, __ATOMIC_RELAXED);
}

/* The real function is looked up each time: this is not about speed. */
#define COUNTED(name, type)                                                                                                                \
	int name(type *lock)                                                                                                               \
	{                                                                                                                                  \
		int (*real)(type *);                                                                                                       \
                                                                                                                                           \
		*(void **)&real = dlsym(RTLD_NEXT, #name);                                                                                 \
		__atomic_add_fetch(&taken, 1, __ATOMIC_RELAXED);                                                                           \
		return real(lock);                                                                                                         \
	}

COUNTED(pthread_mutex_lock, pthread_mutex_t)
COUNTED(pthread_mutex_trylock, pthread_mutex_t)
COUNTED(pthread_rwlock_rdlock, pthread_rwlock_t)
COUNTED(pthread_rwlock_wrlock, pthread_rwlock_t)
COUNTED(pthread_spin_lock, pthread_spinlock_t)
