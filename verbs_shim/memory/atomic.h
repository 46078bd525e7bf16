/* Atomic access to words that several threads or processes share.
 *
 * Plain integers and compiler builtins instead of _Atomic, so that the same layout headers compile as C and (in the tests) as C++.
 * Rule: a word that another process can write is only ever touched through these. */
#ifndef VS_ATOMIC_H
#define VS_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/point.h"

/* Of a variable of this library alone, on the way of every message: reached without the detour through a table. */
#define VS_HIDDEN __attribute__((visibility("hidden")))

#define vs_load(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define vs_load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define vs_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define vs_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define vs_store_full(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define vs_exchange(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define vs_add(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define vs_add_relaxed(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define vs_and(p, v) __atomic_fetch_and((p), (v), __ATOMIC_SEQ_CST)
#define vs_or(p, v) __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
#define vs_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/* Behind any of the above that are SEQ_CST, or vs_cas, where a later plain or acquiring load must not come before: they are ordered among
 * themselves, which on x86 makes each of them a full barrier, and elsewhere does not. */
static inline void vs_fence_behind(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
#else
	vs_fence();
#endif
}

/* Compare and swap: SEQ_CST either way. */
#define vs_cas(p, expected, desired)                                                                                               \
	__extension__({                                                                                                                \
		__typeof__(*(p)) vs_cas_expected = (expected);                                                                             \
		__atomic_compare_exchange_n((p), &vs_cas_expected, (desired), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                  \
	})

/* Ask for a cache line that is going to be written. Only a hint: never faults, whatever lies there. */
static inline void vs_prefetch_write(const void *line)
{
#if defined(__x86_64__)
	__asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)line)); /* processors that do not know it pass over it */
#else
	__builtin_prefetch(line, 1);
#endif
}

static inline void vs_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

#endif
