#include "memory/slots.h"

#include <errno.h>
#include <string.h>

#include "memory/pages.h"

#define RESERVE_AT_ONCE 65536u /* bytes */

static uint32_t gen_mask(enum vs_table table)
{
	return (1u << vs_tables[table].gen_bits) - 1;
}

static uint32_t word_gen(enum vs_table table, uint32_t word)
{
	return (word >> 8) & gen_mask(table);
}

uint32_t vs_slot_id(enum vs_table table, uint32_t index)
{
	const struct vs_slot *slot = vs_slot_at(table, index);

	return index | word_gen(table, vs_load(&slot->word)) << vs_tables[table].index_bits;
}

static void set_state(struct vs_slot *slot, enum vs_slot_state state)
{
	vs_store(&slot->word, (slot->word & ~0xffu) | state);
}

/* Make more slots touchable. */
static int grow(enum vs_table table)
{
	uint32_t size = vs_tables[table].size, now = vs_seg->reserved[table];
	uint32_t add = RESERVE_AT_ONCE / size ? RESERVE_AT_ONCE / size : 1;
	int err;

	if (now >= vs_tables[table].count)
		return ENOMEM;
	if (add > vs_tables[table].count - now)
		add = vs_tables[table].count - now;
	err = vs_segment_reserve((uint64_t)(vs_places.table[table] - (char *)vs_seg) + (uint64_t)now * size, (uint64_t)add * size);
	if (err)
		return err;
	vs_store(&vs_seg->reserved[table], now + add);
	return 0;
}

static uint32_t find_free(enum vs_table table)
{
	static uint32_t hint[VS_TABLES]; /* per process: only where to start, guarded by the control lock */
	uint32_t n = vs_load(&vs_seg->reserved[table]), i, at;

	if (n > vs_tables[table].count)
		n = vs_tables[table].count; /* somebody wrote over it */
	for (i = 0; i < n; i++) {
		at = (hint[table] + i) % n;
		if (vs_slot_state(vs_slot_at(table, at)) == VS_FREE && !(at == 0 && table == VS_QP)) {
			hint[table] = at + 1;
			return at;
		}
	}
	return UINT32_MAX;
}

/* The word's generation has 24 bits whatever part of it an id holds: who remembers a word sees a new life where the id is an old one again.
 * No id has generation 0. */
static uint32_t next_gen(enum vs_table table, uint32_t word)
{
	uint32_t gen = (word >> 8) + 1;

	return gen & gen_mask(table) ? gen : gen + 1;
}

int vs_slot_alloc(enum vs_table table, uint32_t owner, uint32_t *index)
{
	uint32_t at = find_free(table), gen;
	struct vs_slot *slot;
	int err;

	if (at == UINT32_MAX) {
		err = grow(table);
		if (err)
			return err;
		at = find_free(table);
		if (at == UINT32_MAX)
			return ENOMEM;
	}
	slot = vs_slot_at(table, at);
	gen = next_gen(table, slot->word);
	slot->owner = owner;
	slot->context = 0;
	slot->ext_page = slot->ext_pages = 0;
	vs_store(&slot->word, gen << 8 | VS_MAKING);
	VS_POINT(slot_taken);
	memset(slot + 1, 0, vs_tables[table].size - sizeof(*slot));
	*index = at;
	return 0;
}

void vs_slot_publish(enum vs_table table, uint32_t index)
{
	set_state(vs_slot_at(table, index), VS_LIVE);
	VS_POINT(slot_published);
}

void vs_slot_retire(enum vs_table table, uint32_t index)
{
	set_state(vs_slot_at(table, index), VS_DYING);
	VS_POINT(slot_retired);
	vs_fence();
}

void vs_slot_free(enum vs_table table, uint32_t index)
{
	struct vs_slot *slot = vs_slot_at(table, index);

	vs_extent_free(slot);
	VS_POINT(slot_emptied); /* still its owner's: with him it goes, whoever else dies here */
	set_state(slot, VS_FREE);
	VS_POINT(slot_freed);
}
