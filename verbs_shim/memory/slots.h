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

/* Constants, in the order of enum vs_table: a lookup in a table that is named when compiling is a dozen instructions. QPs and SRQs have
 * 24-bit numbers on the wire; rkeys have 32 bits. Slot 0 of QPs is never used: numbers 0 and 1 are reserved. */
#define VS_GEOMETRY(name, count, type, index_bits, gen_bits) { name, count, (sizeof(type) + 63u) & ~63u, index_bits, gen_bits }
static const struct vs_table_geometry vs_tables[VS_TABLES] = {
	VS_GEOMETRY("process", 1024, struct vs_proc_shm, 16, 16),
	VS_GEOMETRY("host", 256, struct vs_host_shm, 16, 16),
	VS_GEOMETRY("hca", 1024, struct vs_hca_shm, 16, 16),
	VS_GEOMETRY("port", 2048, struct vs_port_shm, 16, 16),
	VS_GEOMETRY("pd", 16384, struct vs_pd_shm, 16, 16),
	VS_GEOMETRY("mr", 262144, struct vs_mr_shm, 18, 14),
	VS_GEOMETRY("cq", 32768, struct vs_cq_shm, 16, 16),
	VS_GEOMETRY("srq", 16384, struct vs_srq_shm, 16, 8),
	VS_GEOMETRY("xrcd", 4096, struct vs_xrcd_shm, 16, 16),
	VS_GEOMETRY("xrcd_ref", 16384, struct vs_xrcd_ref_shm, 16, 16),
	VS_GEOMETRY("qp", 65536, struct vs_qp_shm, 16, 8),
	VS_GEOMETRY("mcast", 4096, struct vs_mcast_shm, 16, 16),
	VS_GEOMETRY("qp_ref", 65536, struct vs_qp_ref_shm, 16, 16),
};

static inline uint32_t vs_slot_index(enum vs_table table, uint32_t id)
{
	return id & ((1u << vs_tables[table].index_bits) - 1);
}

/* The slot numbered index; NULL past the reserved ones. */
static inline void *vs_slot_at(enum vs_table table, uint32_t index)
{
	if (index >= vs_load(&vs_seg->reserved[table]) || index >= vs_tables[table].count)
		return NULL;
	return vs_places.table[table] + (size_t)index * vs_tables[table].size;
}

/* The live object with this id, or NULL. */
static inline void *vs_slot_get(enum vs_table table, uint32_t id)
{
	const struct vs_table_geometry *g = &vs_tables[table];
	struct vs_slot *slot = (struct vs_slot *)vs_slot_at(table, vs_slot_index(table, id));
	uint32_t named = ((1u << g->gen_bits) - 1) << 8 | 0xff; /* of the slot's word: what an id names, and the state */

	return slot && (vs_load(&slot->word) & named) == ((id >> g->index_bits) << 8 | VS_LIVE) ? slot : NULL;
}

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
