/* In builds with the address sanitizer, what a program posts is looked at when it posts it: a buffer that is freed or too short is
 * reported at the post, with the program's stack, and not as a strange copy later. */
#ifndef VS_SHADOW_H
#define VS_SHADOW_H

#include <infiniband/verbs.h>

#if defined(__SANITIZE_ADDRESS__)
#define VS_SHADOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VS_SHADOW 1
#endif
#endif

#ifdef VS_SHADOW
#include <sanitizer/asan_interface.h>

#include "core/pd.h"
#include "memory/slots.h"

/* Where it lies in memory: a region that was registered under other addresses says. */
static inline uint64_t vs_shadow_address(const struct ibv_sge *sge)
{
	uint32_t index = vs_slot_index(VS_MR, sge->lkey);
	const struct vs_own_region *own = index < vs_tables[VS_MR].count ? &vs_own_regions[index] : NULL;

	return own && sge->lkey && vs_load(&own->id) == sge->lkey ? vs_load(&own->addr) + (sge->addr - vs_load(&own->iova)) : sge->addr;
}

static inline void vs_shadow_check(const struct ibv_sge *list, int n)
{
	for (int i = 0; i < n; i++) {
		void *at = (void *)(uintptr_t)vs_shadow_address(&list[i]);
		const volatile char *bad = list[i].length ? __asan_region_is_poisoned(at, list[i].length) : NULL;

		if (bad)
			(void)*bad; /* the sanitizer's own report */
	}
}
#else
static inline void vs_shadow_check(const struct ibv_sge *list, int n)
{
	(void)list;
	(void)n;
}
#endif

#endif
