#include "memory/ring.h"

#include <string.h>

#define NO_WQE 0xffffu

static uint32_t my_index(void)
{
	return vs_slot_index(VS_PROC, vs_me_id);
}

/* ---- completion and event rings ---- */

void vs_ring_init(struct vs_ring *ring, struct vs_cqe *slots, uint32_t entries)
{
	ring->tail = 0;
	ring->entries = entries;
	for (uint32_t i = 0; i < entries; i++)
		slots[i].word = vs_word(VS_RING_EMPTY, i, 0);
}

static void write_body(struct vs_cqe *slot, const struct vs_cqe *cqe)
{
	memcpy((char *)slot + sizeof(slot->word), (const char *)cqe + sizeof(cqe->word), sizeof(*slot) - sizeof(slot->word));
}

bool vs_ring_push(struct vs_ring *ring, struct vs_cqe *slots, uint32_t entries, const struct vs_cqe *cqe)
{
	/* A tail can lag by what others push meanwhile; only a forged one lags more than a few laps. */
	for (uint64_t tries = 0; tries < 4 * (uint64_t)entries + 64; tries++) {
		uint64_t tail = vs_load(&ring->tail) & VS_POS_MASK;
		struct vs_cqe *slot = &slots[tail & (entries - 1)];
		uint64_t word = vs_load(&slot->word);

		if (word == vs_word(VS_RING_EMPTY, tail, 0)) {
			if (!vs_cas(&slot->word, word, vs_word(VS_RING_CLAIMED, tail, my_index())))
				continue;
			VS_POINT(ring_claimed);
			write_body(slot, cqe);
			VS_POINT(ring_written);
			vs_store(&slot->word, vs_word(VS_RING_FULL, tail, 0));
			VS_POINT(ring_full);
			vs_cas(&ring->tail, tail, tail + 1);
			vs_fence_behind(); /* between FULL and a look at the arm word */
			return true;
		}
		if (vs_word_pos(word) < tail)
			break; /* full: the entry of a lap ago is still there */
		vs_cas(&ring->tail, tail, tail + 1); /* taken, perhaps consumed already; its claimer has not come to this, or died */
	}
	vs_add_relaxed(&ring->overruns, 1);
	return false;
}

unsigned vs_ring_reap(struct vs_ring *ring, struct vs_cqe *slots, uint32_t entries, uint32_t proc_index)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < entries; i++) {
		uint64_t word = vs_load(&slots[i].word);

		if (vs_word_kind(word) != VS_RING_CLAIMED || vs_word_low(word) != proc_index)
			continue;
		slots[i].kind = VS_CQE_VOID;
		vs_store(&slots[i].word, vs_word(VS_RING_FULL, vs_word_pos(word), 0));
		vs_cas(&ring->tail, vs_word_pos(word), vs_word_pos(word) + 1);
		vs_fence_behind();
		n++;
	}
	return n;
}

/* ---- receive queues ---- */

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

static uint32_t stride(uint32_t max_sge, uint32_t bounce)
{
	uint32_t head = (uint32_t)(sizeof(struct vs_wqe) + max_sge * sizeof(struct vs_sge));

	return ((head + 63u) & ~63u) + bounce;
}

uint64_t vs_rq_bytes(uint32_t pool_entries, uint32_t max_sge, uint32_t bounce)
{
	return (uint64_t)power_of_two(pool_entries) * sizeof(uint64_t) + 64 + (uint64_t)pool_entries * stride(max_sge, bounce);
}

static size_t pool_offset(uint32_t ring_entries)
{
	return (ring_entries * sizeof(uint64_t) + 63u) & ~(size_t)63u;
}

void vs_rq_init(struct vs_rq *rq, void *pages, uint32_t pool_entries, uint32_t max_sge, uint32_t bounce)
{
	uint64_t *ring = pages;

	rq->ring_entries = power_of_two(pool_entries);
	rq->pool_entries = pool_entries;
	rq->max_sge = max_sge;
	rq->bounce = bounce;
	rq->wqe_stride = stride(max_sge, bounce);
	for (uint32_t i = 0; i < rq->ring_entries; i++)
		ring[i] = vs_word(0, i, NO_WQE);
}

bool vs_rq_open(struct vs_rq_view *view, struct vs_rq *rq, void *pages, uint64_t bytes)
{
	struct vs_rq_view v = {
		.rq = rq,
		.ring = pages,
		.ring_entries = vs_load_relaxed(&rq->ring_entries),
		.pool_entries = vs_load_relaxed(&rq->pool_entries),
		.wqe_stride = vs_load_relaxed(&rq->wqe_stride),
		.max_sge = vs_load_relaxed(&rq->max_sge),
		.bounce = vs_load_relaxed(&rq->bounce),
	};

	if (!pages || v.pool_entries == 0 || v.pool_entries >= NO_WQE || v.max_sge > VS_MAX_SGE || v.bounce > (1u << 20))
		return false;
	if (v.ring_entries != power_of_two(v.pool_entries) || v.wqe_stride != stride(v.max_sge, v.bounce))
		return false;
	if (vs_rq_bytes(v.pool_entries, v.max_sge, v.bounce) > bytes)
		return false;
	v.pool = (char *)pages + pool_offset(v.ring_entries);
	*view = v;
	return true;
}

void vs_rq_post(const struct vs_rq_view *view, uint32_t index)
{
	uint64_t tail = vs_load_relaxed(&view->rq->tail);

	/* The ring is as large as the pool, so this position's last holder has been taken, though its ring word still says otherwise. */
	vs_store(&vs_rq_wqe(view, index)->word, vs_word(VS_WQE_POSTED, tail, 0));
	VS_POINT(rq_posted);
	vs_store(&view->ring[tail & (view->ring_entries - 1)], vs_word(0, tail, index));
	VS_POINT(rq_ringed);
	vs_store(&view->rq->tail, (tail + 1) & VS_POS_MASK);
}

bool vs_rq_take(const struct vs_rq_view *view, uint32_t *index)
{
	for (uint64_t tries = 0; tries < 4 * (uint64_t)view->ring_entries + 64; tries++) {
		uint64_t head = vs_load(&view->rq->head) & VS_POS_MASK, posted = vs_word(VS_WQE_POSTED, head, 0);
		uint64_t word = vs_load(&view->ring[head & (view->ring_entries - 1)]), *state;

		if (vs_word_pos(word) <= head) {
			if (vs_word_pos(word) < head || vs_word_low(word) >= view->pool_entries)
				return false;
			state = &vs_rq_wqe(view, vs_word_low(word))->word;
			if (vs_load(state) == posted && vs_cas(state, posted, vs_word(VS_WQE_TAKEN, head, my_index()))) {
				VS_POINT(rq_taken);
				vs_cas(&view->rq->head, head, head + 1);
				*index = vs_word_low(word);
				return true;
			}
		}
		vs_cas(&view->rq->head, head, head + 1); /* taken by another that has not moved the hint on: help */
	}
	return false;
}

void vs_rq_give_back(const struct vs_rq_view *view, uint32_t index)
{
	struct vs_wqe *wqe = vs_rq_wqe(view, index);

	vs_store(&wqe->word, vs_word(VS_WQE_RETURNED, vs_word_pos(vs_load(&wqe->word)), 0));
}

unsigned vs_rq_reap(const struct vs_rq_view *view, uint32_t proc_index)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < view->pool_entries; i++) {
		struct vs_wqe *wqe = vs_rq_wqe(view, i);
		uint64_t word = vs_load(&wqe->word);

		/* The owner may be consuming its completion right now, and then the WQE is not to be returned. */
		if (vs_word_kind(word) == VS_WQE_TAKEN && vs_word_low(word) == proc_index)
			n += vs_cas(&wqe->word, word, vs_word(VS_WQE_RETURNED, vs_word_pos(word), 0));
	}
	return n;
}
