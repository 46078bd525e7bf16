/* Pages of the segment's data region: a slot names those that are its own, and the map of all is derived from that. */
#ifndef VS_PAGES_H
#define VS_PAGES_H

#include "memory/segment.h"

/* Give a slot pages of the data region, zeroed. ENOMEM if there are none. Control lock held. */
int vs_extent_alloc(struct vs_slot *slot, uint64_t bytes);

/* Give them back, to the segment and to the file system. Control lock held. */
void vs_extent_free(struct vs_slot *slot);

/* Does a slot that says so name pages inside the data region? */
static inline bool vs_extent_sane(uint32_t page, uint32_t pages)
{
	return pages != 0 && page < vs_places.data_pages && pages <= vs_places.data_pages - page;
}

/* Where a slot's pages lie, and how many bytes; NULL when the slot names none or (hostile) names any outside the region. */
static inline void *vs_extent(const struct vs_slot *slot, uint64_t *bytes)
{
	uint32_t pages = vs_load(&slot->ext_pages), page = vs_load_relaxed(&slot->ext_page);

	if (!vs_extent_sane(page, pages))
		return NULL;
	*bytes = pages * VS_PAGE;
	return vs_places.data + page * VS_PAGE;
}

/* Make the map anew from what the slots say: after a death of whoever held the control lock. Control lock held. */
void vs_pages_rebuild(void);

#endif
