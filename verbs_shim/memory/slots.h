/* Typed object slots with generation ids. An id names one object's whole life: a later object in the same slot has another id.
 * Changing calls need the control lock; lookups need none, but whoever uses the result outside the control lock must be inside the
 * data path (process.h), which keeps slots and pages from being used again. */
#ifndef VS_SLOTS_H
#define VS_SLOTS_H

#include "memory/segment.h"

struct vs_table_geometry {
	const char *name;
	uint32_t count;
	uint32_t size;
	uint8_t index_bits; /* of an id; the generation takes the next gen_bits */
	uint8_t gen_bits;
};

extern const struct vs_table_geometry vs_tables[VS_TABLES];

/* The slot numbered index; NULL past the reserved ones. */
void *vs_slot_at(enum vs_table table, uint32_t index);

/* The live object with this id, or NULL. */
void *vs_slot_get(enum vs_table table, uint32_t id);

/* Take a free slot, all zero but its head, in state MAKING. 0 or ENOMEM. */
int vs_slot_alloc(enum vs_table table, uint32_t owner, uint32_t *index);

/* MAKING -> LIVE: from here on the object exists. */
void vs_slot_publish(enum vs_table table, uint32_t index);

/* LIVE -> DYING: no lookup finds it any more. */
void vs_slot_retire(enum vs_table table, uint32_t index);

/* -> FREE, pages given back. Call after the grace period (vs_quiesce) unless nobody else could have seen the slot. */
void vs_slot_free(enum vs_table table, uint32_t index);

/* The id of what lives in a slot. */
uint32_t vs_slot_id(enum vs_table table, uint32_t index);

static inline uint32_t vs_slot_index(enum vs_table table, uint32_t id)
{
	return id & ((1u << vs_tables[table].index_bits) - 1);
}

static inline enum vs_slot_state vs_slot_state(const struct vs_slot *slot)
{
	return (enum vs_slot_state)(vs_load(&slot->word) & 0xff);
}

/* for (each slot of a table in one of the states that hold something) */
#define vs_for_each_slot(table, index, ptr)                                                                                        \
	for ((index) = 0; ((ptr) = (__typeof__(ptr))vs_slot_at((table), (index))) != NULL; (index)++)                                    \
		if (vs_slot_state((const struct vs_slot *)(ptr)) == VS_FREE) {                                                              \
		} else

#define vs_for_each_live(table, index, ptr)                                                                                        \
	for ((index) = 0; ((ptr) = (__typeof__(ptr))vs_slot_at((table), (index))) != NULL; (index)++)                                    \
		if (vs_slot_state((const struct vs_slot *)(ptr)) != VS_LIVE) {                                                              \
		} else

#endif
