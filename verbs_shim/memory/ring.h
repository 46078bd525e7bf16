/* Lock-free queues between processes, any of which may be killed at any instruction.
 *
 * A slot's word tells its whole state, so that a slot claimed by a process that died can be recognised and rolled on by whoever
 * reaps that process. Indices are hints that anybody may advance.
 *
 * Completion and event rings (many producers, one consumer). word = kind << 62 | position << 16 | claimer's process slot:
 *     EMPTY(p) --producer's CAS--> CLAIMED(p, proc) --body written--> FULL(p) --consumer--> EMPTY(p + entries)
 *   The reaper turns CLAIMED(p, dead) into FULL(p) with kind VS_CQE_VOID, which consumers pass over.
 *
 * Receive queues (one producer: the owner; many takers). Ring word = position << 16 | pool index, 0xffff where none was posted yet; it stays
 *   until the owner posts to the same place a lap later, and counts only at and beyond the position that is next to take.
 *   Pool word, the truth about a WQE: kind << 62 | position << 16 | taker's process slot:
 *     IDLE --owner--> POSTED(p) --taker's CAS--> TAKEN(p, proc) --completion consumed by the owner--> IDLE
 *   The reaper turns TAKEN(p, dead) into RETURNED. The taker may have delivered a completion before it died: the owner posts the WQE
 *   again unless one for it lies unread in a completion ring. */
#ifndef VS_RING_H
#define VS_RING_H

#include <string.h>

#include "memory/process.h"

#define VS_KIND_SHIFT 62
#define VS_POS_MASK ((UINT64_C(1) << 46) - 1)

enum vs_ring_kind { VS_RING_EMPTY = 0, VS_RING_CLAIMED = 1, VS_RING_FULL = 2 };
enum vs_wqe_kind { VS_WQE_IDLE = 0, VS_WQE_POSTED = 1, VS_WQE_TAKEN = 2, VS_WQE_RETURNED = 3 };

static inline uint64_t vs_word(unsigned kind, uint64_t pos, uint32_t low)
{
	return (uint64_t)kind << VS_KIND_SHIFT | (pos & VS_POS_MASK) << 16 | (low & 0xffff);
}

static inline unsigned vs_word_kind(uint64_t word)
{
	return (unsigned)(word >> VS_KIND_SHIFT);
}

static inline uint64_t vs_word_pos(uint64_t word)
{
	return word >> 16 & VS_POS_MASK;
}

static inline uint32_t vs_word_low(uint64_t word)
{
	return (uint32_t)(word & 0xffff);
}

/* ---- completion and event rings ---- */

/* Make all entries EMPTY. entries is a power of two. */
void vs_ring_init(struct vs_ring *ring, struct vs_cqe *slots, uint32_t entries);

/* Append a copy of *cqe (its word is ignored). false: the ring is full, or torn by a hostile writer; nothing was appended.
 * entries is the caller's checked copy of ring->entries. */
bool vs_ring_push(struct vs_ring *ring, struct vs_cqe *slots, uint32_t entries, const struct vs_cqe *cqe);

/* Is there something for a consumer at this position? */
static inline bool vs_ring_ready(const struct vs_cqe *slots, uint32_t entries, uint64_t pos)
{
	return vs_load(&slots[pos & (entries - 1)].word) == vs_word(VS_RING_FULL, pos, 0);
}

/* Is the entry at this position claimed by a producer that has not finished it, and may have died? */
static inline bool vs_ring_stalled(const struct vs_cqe *slots, uint32_t entries, uint64_t pos)
{
	uint64_t word = vs_load(&slots[pos & (entries - 1)].word);

	return vs_word_kind(word) == VS_RING_CLAIMED && vs_word_pos(word) == pos;
}

/* Copy out the entry at this position and free its slot; only after vs_ring_ready said yes, one consumer at a time. */
static inline void vs_ring_pop(struct vs_cqe *slots, uint32_t entries, uint64_t pos, struct vs_cqe *out)
{
	struct vs_cqe *slot = &slots[pos & (entries - 1)];

	/* The body alone: producers try their luck with the word at any time. */
	memcpy((char *)out + sizeof(out->word), (const char *)slot + sizeof(slot->word), sizeof(*out) - sizeof(out->word));
	vs_store(&slot->word, vs_word(VS_RING_EMPTY, pos + entries, 0));
}

/* Roll on what a dead process had claimed; returns how many entries. */
unsigned vs_ring_reap(struct vs_ring *ring, struct vs_cqe *slots, uint32_t entries, uint32_t proc_index);

/* ---- receive queues ---- */

/* Where the parts of a receive queue lie; made from checked copies of its header, so that no later change of the header can move
 * an access outside the owner's pages. */
struct vs_rq_view {
	struct vs_rq *rq;
	uint64_t *ring;
	char *pool;
	uint32_t ring_entries;
	uint32_t pool_entries;
	uint32_t wqe_stride;
	uint32_t max_sge;
	uint32_t bounce;
};

/* Pages a queue of this shape needs. */
uint64_t vs_rq_bytes(uint32_t pool_entries, uint32_t max_sge, uint32_t bounce);

/* Lay out a new queue in zeroed pages. */
void vs_rq_init(struct vs_rq *rq, void *pages, uint32_t pool_entries, uint32_t max_sge, uint32_t bounce);

/* false: the header does not fit the pages. */
bool vs_rq_open(struct vs_rq_view *view, struct vs_rq *rq, void *pages, uint64_t bytes);

static inline struct vs_wqe *vs_rq_wqe(const struct vs_rq_view *view, uint32_t index)
{
	return (struct vs_wqe *)(view->pool + (size_t)index * view->wqe_stride);
}

static inline void *vs_rq_bounce(const struct vs_rq_view *view, uint32_t index)
{
	return view->pool + (size_t)index * view->wqe_stride + (view->wqe_stride - view->bounce);
}

/* Owner: make WQE index, filled in, available to takers. The caller serialises posts to one queue. */
void vs_rq_post(const struct vs_rq_view *view, uint32_t index);

/* Taker: the oldest posted WQE becomes this process's. false: none. */
bool vs_rq_take(const struct vs_rq_view *view, uint32_t *index);

/* Taker: give back what vs_rq_take gave, as if never taken; its owner's engine posts it again. */
void vs_rq_give_back(const struct vs_rq_view *view, uint32_t index);

/* WQEs posted and not taken; a hint while others are at work. */
static inline uint32_t vs_rq_available(const struct vs_rq_view *view)
{
	uint64_t head = vs_load(&view->rq->head), tail = vs_load(&view->rq->tail);

	return tail > head ? (uint32_t)(tail - head) : 0;
}

/* Ask for the line of the WQE that is next to take, if it is known by now. */
static inline void vs_rq_fetch_ahead(const struct vs_rq_view *view)
{
	uint32_t index = vs_word_low(vs_load_relaxed(&view->ring[vs_load_relaxed(&view->rq->head) & (view->ring_entries - 1)]));

	if (index < view->pool_entries)
		vs_prefetch_write(vs_rq_wqe(view, index));
}

/* Mark what a dead process had taken as RETURNED; returns how many. Not all need posting again: see above. */
unsigned vs_rq_reap(const struct vs_rq_view *view, uint32_t proc_index);

#endif
