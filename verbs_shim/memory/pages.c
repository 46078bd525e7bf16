#include "memory/pages.h"

#include <errno.h>
#include <string.h>

#include "memory/slots.h"

static bool page_used(uint32_t page)
{
	return vs_seg->page_map[page / 64] >> (page % 64) & 1;
}

static void mark_pages(uint32_t page, uint32_t n, bool used)
{
	for (uint32_t i = page; i < page + n; i++)
		if (used)
			vs_seg->page_map[i / 64] |= UINT64_C(1) << (i % 64);
		else
			vs_seg->page_map[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

static bool find_pages(uint32_t n, uint32_t *page)
{
	uint32_t run = 0;

	for (uint32_t i = 0; i < vs_places.data_pages; i++) {
		if (run == 0 && i % 64 == 0 && vs_seg->page_map[i / 64] == UINT64_MAX) {
			i += 63;
			continue;
		}
		run = page_used(i) ? 0 : run + 1;
		if (run == n) {
			*page = i - n + 1;
			return true;
		}
	}
	return false;
}

static uint64_t page_offset(uint32_t page)
{
	return (uint64_t)(vs_places.data - (char *)vs_seg) + page * VS_PAGE;
}

int vs_extent_alloc(struct vs_slot *slot, uint64_t bytes)
{
	uint64_t pages = (bytes + VS_PAGE - 1) / VS_PAGE;
	uint32_t page;
	int err;

	if (pages == 0)
		return 0;
	if (pages > vs_places.data_pages || !find_pages((uint32_t)pages, &page))
		return ENOMEM;
	/* A process that died while giving pages back may have left them as they were: start from a hole, which reads zero. */
	vs_segment_punch(page_offset(page), pages * VS_PAGE);
	err = vs_segment_reserve(page_offset(page), pages * VS_PAGE);
	if (err)
		return err;
	VS_POINT(pages_reserved);
	vs_store(&slot->ext_pages, 0); /* a CQ that is resized names its old ones, perhaps more of them */
	vs_store(&slot->ext_page, page);
	VS_POINT(pages_placed);
	vs_store(&slot->ext_pages, (uint32_t)pages);
	VS_POINT(pages_named);
	mark_pages(page, (uint32_t)pages, true);
	return 0;
}

void vs_extent_free(struct vs_slot *slot)
{
	uint32_t page = vs_load_relaxed(&slot->ext_page), pages = vs_load_relaxed(&slot->ext_pages);

	if (!vs_extent_sane(page, pages))
		return;
	/* Hole first: a page is zero and unbacked whenever no slot names it. */
	vs_segment_punch(page_offset(page), pages * VS_PAGE);
	VS_POINT(pages_punched);
	vs_store(&slot->ext_pages, 0);
	VS_POINT(pages_unnamed);
	mark_pages(page, pages, false);
}

void vs_pages_rebuild(void)
{
	struct vs_slot *slot;
	uint32_t index;

	memset(vs_seg->page_map, 0, sizeof(vs_seg->page_map));
	for (int t = 0; t < VS_TABLES; t++)
		vs_for_each_slot ((enum vs_table)t, index, slot) {
			uint32_t page = vs_load_relaxed(&slot->ext_page), pages = vs_load_relaxed(&slot->ext_pages);

			if (vs_extent_sane(page, pages))
				mark_pages(page, pages, true);
		}
}
