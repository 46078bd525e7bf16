#include "memory/slots.h"

#include <errno.h>
#include <string.h>

#define GEOMETRY(n, c, type, ib, gb) { n, c, (sizeof(type) + 63u) & ~63u, ib, gb }

/* QPs and SRQs have 24-bit numbers on the wire; rkeys have 32 bits. Slot 0 of QPs is never used: numbers 0 and 1 are reserved. */
const struct vs_table_geometry vs_tables[VS_TABLES] = {
	[VS_PROC] = GEOMETRY("process", 1024, struct vs_proc_shm, 16, 16),
	[VS_HOST] = GEOMETRY("host", 256, struct vs_host_shm, 16, 16),
	[VS_HCA] = GEOMETRY("hca", 1024, struct vs_hca_shm, 16, 16),
	[VS_PORT] = GEOMETRY("port", 2048, struct vs_port_shm, 16, 16),
	[VS_PD] = GEOMETRY("pd", 16384, struct vs_pd_shm, 16, 16),
	[VS_MR] = GEOMETRY("mr", 262144, struct vs_mr_shm, 18, 14),
	[VS_CQ] = GEOMETRY("cq", 32768, struct vs_cq_shm, 16, 16),
	[VS_SRQ] = GEOMETRY("srq", 16384, struct vs_srq_shm, 16, 8),
	[VS_XRCD] = GEOMETRY("xrcd", 4096, struct vs_xrcd_shm, 16, 16),
	[VS_XRCD_REF] = GEOMETRY("xrcd_ref", 16384, struct vs_xrcd_ref_shm, 16, 16),
	[VS_QP] = GEOMETRY("qp", 65536, struct vs_qp_shm, 16, 8),
	[VS_MCAST] = GEOMETRY("mcast", 4096, struct vs_mcast_shm, 16, 16),
	[VS_QP_REF] = GEOMETRY("qp_ref", 65536, struct vs_qp_ref_shm, 16, 16),
};

#define RESERVE_AT_ONCE 65536u /* bytes */

void *vs_slot_at(enum vs_table table, uint32_t index)
{
	if (index >= vs_load(&vs_seg->reserved[table]) || index >= vs_tables[table].count)
		return NULL;
	return vs_at(vs_seg->table_offset[table] + (uint64_t)index * vs_tables[table].size);
}

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

void *vs_slot_get(enum vs_table table, uint32_t id)
{
	struct vs_slot *slot = vs_slot_at(table, vs_slot_index(table, id));
	uint32_t word;

	if (!slot)
		return NULL;
	word = vs_load(&slot->word);
	if ((word & 0xff) != VS_LIVE || word_gen(table, word) != id >> vs_tables[table].index_bits)
		return NULL;
	return slot;
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
	err = vs_segment_reserve(vs_seg->table_offset[table] + (uint64_t)now * size, (uint64_t)add * size);
	if (err)
		return err;
	vs_store(&vs_seg->reserved[table], now + add);
	return 0;
}

static uint32_t find_free(enum vs_table table)
{
	static uint32_t hint[VS_TABLES]; /* per process: only where to start, guarded by the control lock */
	uint32_t n = vs_seg->reserved[table], i, at;

	for (i = 0; i < n; i++) {
		at = (hint[table] + i) % n;
		if (vs_slot_state(vs_slot_at(table, at)) == VS_FREE && !(at == 0 && table == VS_QP)) {
			hint[table] = at + 1;
			return at;
		}
	}
	return UINT32_MAX;
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
	gen = (word_gen(table, slot->word) + 1) & gen_mask(table);
	if (gen == 0)
		gen = 1;
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
	slot->owner = 0;
	set_state(slot, VS_FREE);
	VS_POINT(slot_freed);
}
