#include "core/recvq.h"

#include <errno.h>
#include <stdlib.h>

#include "core/shadow.h"
#include "memory/pages.h"

/* A queue of 128 receives holds messages of 12 KiB, as far as MPI sends eagerly. Two copies of those take less time than one by the kernel. */
#define BOUNCE_BUDGET (128u * BOUNCE_MAX) /* bytes of a queue */
#define BOUNCE_MIN 256u
#define BOUNCE_MAX 12288u

uint32_t vs_recvq_bounce(uint32_t max_wr)
{
	uint32_t each = BOUNCE_BUDGET / max_wr & ~63u;

	return each < BOUNCE_MIN ? BOUNCE_MIN : each > BOUNCE_MAX ? BOUNCE_MAX : each;
}

static int make_owner_side(struct vs_recvq *q, uint32_t max_wr, uint32_t max_sge)
{
	q->posted = calloc(max_wr, sizeof(*q->posted));
	q->sges = calloc((size_t)max_wr * max_sge, sizeof(*q->sges));
	q->free_stack = calloc(max_wr, sizeof(*q->free_stack));
	if (!q->posted || !q->sges || !q->free_stack) {
		vs_recvq_free(q);
		return ENOMEM;
	}
	for (uint32_t i = 0; i < max_wr; i++) {
		q->posted[i].sge = &q->sges[(size_t)i * max_sge];
		q->free_stack[i] = (uint16_t)(max_wr - 1 - i);
	}
	q->num_free = max_wr;
	q->max_sge = max_sge;
	vs_lock_init(&q->lock);
	return 0;
}

int vs_recvq_make(struct vs_recvq *q, struct vs_slot *slot, struct vs_rq *rq, uint32_t max_wr, uint32_t max_sge)
{
	uint32_t bounce = vs_recvq_bounce(max_wr);
	uint64_t bytes = 0;
	void *pages;
	int err = make_owner_side(q, max_wr, max_sge);

	if (err)
		return err;
	err = vs_extent_alloc(slot, vs_rq_bytes(max_wr, max_sge, bounce));
	if (err) {
		vs_recvq_free(q);
		return err;
	}
	pages = vs_extent(slot, &bytes);
	vs_rq_init(rq, pages, max_wr, max_sge, bounce);
	vs_rq_open(&q->view, rq, pages, bytes);
	return 0;
}

void vs_recvq_free(struct vs_recvq *q)
{
	if (q->posted && q->sges && q->free_stack)
		vs_lock_destroy(&q->lock);
	free(q->posted);
	free(q->sges);
	free(q->free_stack);
	q->posted = NULL;
}

static int post_one(struct vs_recvq *q, const struct ibv_recv_wr *wr)
{
	struct vs_posted_recv *p;
	struct vs_wqe *wqe;
	uint32_t w;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > q->max_sge)
		return EINVAL;
	if (q->num_free == 0)
		return ENOMEM;
	vs_shadow_check(wr->sg_list, wr->num_sge);
	w = q->free_stack[--q->num_free];
	p = &q->posted[w];
	wqe = vs_rq_wqe(&q->view, w);
	p->outstanding = true;
	p->wr_id = wr->wr_id;
	p->num_sge = wqe->num_sge = (uint32_t)wr->num_sge;
	wqe->generation = ++p->generation;
	for (int i = 0; i < wr->num_sge; i++) {
		p->sge[i] = (struct vs_sge){ wr->sg_list[i].addr, wr->sg_list[i].length, wr->sg_list[i].lkey };
		wqe->sge[i] = p->sge[i];
	}
	vs_rq_post(&q->view, w);
	return 0;
}

int vs_recvq_post(struct vs_recvq *q, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = 0;

	for (; wr; wr = wr->next) {
		err = post_one(q, wr);
		if (err) {
			*bad = wr;
			break;
		}
	}
	return err;
}

void vs_recvq_let_finish(struct vs_recvq *q)
{
	vs_lock(&q->lock);
	vs_unlock(&q->lock);
}

void vs_recvq_release(struct vs_recvq *q, uint32_t wqe)
{
	vs_lock(&q->lock);
	vs_store(&vs_rq_wqe(&q->view, wqe)->word, vs_word(VS_WQE_IDLE, 0, 0));
	if (q->posted[wqe].outstanding) { /* else something else than the HCA says it was posted */
		q->posted[wqe].outstanding = false;
		q->free_stack[q->num_free++] = (uint16_t)wqe;
	}
	vs_unlock(&q->lock);
}

void vs_recvq_reclaim(struct vs_recvq *q, uint32_t wqe, uint32_t generation)
{
	if (wqe >= q->view.pool_entries || q->posted[wqe].generation != generation)
		return;
	q->posted[wqe].generation++; /* a second completion of this WQE would be forged */
	vs_recvq_release(q, wqe);
}

static bool returned(const struct vs_recvq *q, uint32_t wqe)
{
	return q->posted[wqe].outstanding && vs_word_kind(vs_load(&vs_rq_wqe(&q->view, wqe)->word)) == VS_WQE_RETURNED;
}

bool vs_recvq_any_returned(struct vs_recvq *q)
{
	bool any = false;

	vs_lock(&q->lock);
	for (uint32_t i = 0; !any && i < q->view.pool_entries; i++)
		any = returned(q, i);
	vs_unlock(&q->lock);
	return any;
}

void vs_recvq_repost_returned(struct vs_recvq *q, const uint64_t *unread)
{
	vs_lock(&q->lock);
	for (uint32_t i = 0; i < q->view.pool_entries; i++)
		if (returned(q, i) && !(unread[i / 64] >> (i % 64) & 1))
			vs_rq_post(&q->view, i);
	vs_unlock(&q->lock);
}
