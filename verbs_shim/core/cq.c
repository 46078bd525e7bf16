#include "core/cq.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "core/engine.h"
#include "core/event.h"
#include "core/recvq.h"
#include "core/users.h"
#include "memory/pages.h"

#define MAX_CQE 131072

static int make_cq(struct vs_cq *cq, const struct vs_context *context, uint32_t entries)
{
	uint64_t bytes;
	uint32_t index;
	int err;

	vs_control_lock();
	err = vs_slot_alloc(VS_CQ, vs_me_id, &index);
	if (err)
		goto unlock;
	cq->shm = vs_slot_at(VS_CQ, index);
	err = vs_extent_alloc(&cq->shm->s, (uint64_t)entries * sizeof(struct vs_cqe));
	if (err) {
		vs_slot_free(VS_CQ, index);
		goto unlock;
	}
	cq->shm->hca = context->hca_index;
	cq->shm->s.context = context->number;
	cq->ring = vs_extent(&cq->shm->s, &bytes);
	cq->entries = entries;
	vs_ring_init(&cq->shm->ring, cq->ring, entries);
	cq->id = vs_slot_id(VS_CQ, index);
	vs_slot_publish(VS_CQ, index);
unlock:
	vs_control_unlock();
	return err;
}

static void link_cq(struct vs_cq *cq)
{
	pthread_mutex_lock(&vs_objects_lock);
	vs_local_cq[vs_slot_index(VS_CQ, cq->id)] = cq;
	if (cq->ibv.channel) {
		cq->next = vs_channel_cqs;
		vs_channel_cqs = cq;
	}
	pthread_mutex_unlock(&vs_objects_lock);
}

static void unlink_cq(struct vs_cq *cq)
{
	struct vs_cq **at;

	pthread_mutex_lock(&vs_objects_lock);
	vs_local_cq[vs_slot_index(VS_CQ, cq->id)] = NULL;
	for (at = &vs_channel_cqs; *at && *at != cq; at = &(*at)->next) {
	}
	if (*at)
		*at = cq->next;
	pthread_mutex_unlock(&vs_objects_lock);
}

static void count_channel(struct ibv_comp_channel *channel, int by)
{
	if (!channel)
		return;
	pthread_mutex_lock(&channel->context->mutex);
	channel->refcnt += by;
	pthread_mutex_unlock(&channel->context->mutex);
}

/* One more than asked at least, so that a full ring is told from an empty one only by its words. */
static uint32_t entries_for(int cqe)
{
	uint32_t entries = 2;

	while (entries <= (uint32_t)cqe)
		entries <<= 1;
	return entries;
}

struct ibv_cq *vs_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int comp_vector)
{
	VS_ASKS_KERNEL_POINTER(create_cq, context);
	struct vs_cq *cq;
	uint32_t entries;
	int err;

	if (cqe < 1 || cqe >= MAX_CQE || comp_vector < 0 || comp_vector >= context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	entries = entries_for(cqe);
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	err = make_cq(cq, vs_context(context), entries);
	if (err) {
		free(cq);
		errno = err;
		return NULL;
	}
	cq->ibv.context = context;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	cq->ibv.handle = cq->id;
	cq->ibv.cqe = (int)entries - 1;
	vs_lock_init(&cq->lock);
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	count_channel(channel, 1);
	link_cq(cq);
	return &cq->ibv;
}

void (*vs_cq_init_ex)(struct vs_cq *cq, uint64_t wc_flags);

struct ibv_cq_ex *vs_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq *cq;

	if ((attr->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS) || (attr->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS) ||
	    ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	cq = vs_create_cq(context, attr->cqe > INT32_MAX ? INT32_MAX : (int)attr->cqe, attr->cq_context, attr->channel, (int)attr->comp_vector);
	if (!cq)
		return NULL;
	vs_cq_init_ex(vs_cq(cq), attr->wc_flags);
	return &vs_cq(cq)->ibv_ex;
}

/* ---- resizing: producers stay out while the ring moves ---- */

bool vs_cq_resizing_slow(uint32_t cq_id)
{
	const struct vs_cq_shm *shm = cq_id ? vs_slot_get(VS_CQ, cq_id) : NULL;

	return shm && vs_load(&shm->resizing) == VS_CQ_RESIZING;
}

void vs_cq_right_resizing(void)
{
	if (!vs_load(&vs_seg->resizes) || pthread_mutex_trylock(&vs_objects_lock))
		return;
	for (uint32_t i = 0; i < vs_tables[VS_CQ].count; i++)
		if (vs_local_cq[i] && vs_load(&vs_local_cq[i]->shm->resizing) && !vs_load(&vs_local_cq[i]->resizing))
			vs_store(&vs_local_cq[i]->shm->resizing, 0);
	pthread_mutex_unlock(&vs_objects_lock);
}

struct vs_hazard *vs_enter_cq(uint32_t cq_id)
{
	struct vs_patience patience = { .rounds = VS_RESIZE_ROUNDS };

	for (;;) {
		struct vs_hazard *h = vs_enter();

		if (!vs_cq_resizing(cq_id) || vs_patience_ends(&patience))
			return h;
		vs_exit(h);
		if (vs_engine_is_me())
			vs_engine_ops.serve_copies(); /* whoever resizes it may be waiting for one who waits for that */
		sched_yield();
		if (patience.looks % 256 == 0)
			vs_cq_right_resizing();
	}
}

/* The unread completions, in order, at the start of a new ring. Returns how many, or UINT32_MAX if they do not fit. */
static uint32_t move_unread(const struct vs_cq *cq, struct vs_cqe *to, uint32_t entries)
{
	uint32_t n = 0;

	for (uint64_t pos = cq->head; vs_ring_ready(cq->ring, cq->entries, pos); pos++, n++) {
		if (n == entries)
			return UINT32_MAX;
		to[n] = cq->ring[pos & (cq->entries - 1)];
		to[n].word = vs_word(VS_RING_FULL, n, 0);
	}
	return n;
}

/* Control lock held, nobody inside. */
static int swap_ring(struct vs_cq *cq, uint32_t entries)
{
	struct vs_slot old = cq->shm->s;
	struct vs_cqe *ring;
	uint64_t bytes;
	uint32_t unread;
	int err = vs_extent_alloc(&cq->shm->s, (uint64_t)entries * sizeof(*ring));

	if (err)
		return err;
	ring = vs_extent(&cq->shm->s, &bytes);
	vs_ring_init(&cq->shm->ring, ring, entries);
	unread = move_unread(cq, ring, entries);
	if (unread == UINT32_MAX) {
		vs_extent_free(&cq->shm->s);
		cq->shm->s.ext_page = old.ext_page;
		vs_store(&cq->shm->s.ext_pages, old.ext_pages);
		cq->shm->ring.entries = cq->entries;
		return EINVAL;
	}
	VS_POINT(cq_swapped);
	vs_store(&cq->shm->ring.tail, unread);
	vs_extent_free(&old);
	vs_store_relaxed(&cq->ring, ring);
	vs_store_relaxed(&cq->entries, entries);
	vs_store_relaxed(&cq->head, 0);
	return 0;
}

int vs_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	VS_ASKS_KERNEL(resize_cq, ibcq->context);
	struct vs_cq *cq = vs_cq(ibcq);
	uint64_t tail;
	int err;

	if (cqe < 1 || cqe >= MAX_CQE)
		return EINVAL;
	vs_lock(&cq->lock);
	vs_store(&cq->resizing, true);
	vs_control_lock();
	vs_store_full(&cq->shm->resizing, VS_CQ_RESIZING);
	VS_POINT(cq_resizing);
	vs_add(&vs_seg->resizes, 1);
	vs_control_unlock();
	vs_quiesce();
	vs_control_lock();
	vs_process_reap_dead(); /* an entry that one of them had claimed hides what lies behind it */
	tail = cq->shm->ring.tail;
	err = swap_ring(cq, entries_for(cqe));
	if (err == EINVAL)
		cq->shm->ring.tail = tail;
	vs_store_full(&cq->shm->resizing, 0);
	VS_POINT(cq_resized);
	vs_add(&vs_seg->resizes, -1u);
	vs_control_unlock();
	vs_store(&cq->resizing, false);
	ibcq->cqe = (int)cq->entries - 1;
	vs_unlock(&cq->lock);
	return err;
}

int vs_destroy_cq(struct ibv_cq *ibcq)
{
	VS_DESTROYS(destroy_cq, ibcq->context);
	struct vs_cq *cq = vs_cq(ibcq);
	uint32_t index = vs_slot_index(VS_CQ, cq->id);
	bool busy;

	vs_control_lock();
	busy = vs_cq_in_use(cq->id);
	if (!busy)
		vs_slot_retire(VS_CQ, index);
	vs_control_unlock();
	if (busy)
		return EBUSY;
	unlink_cq(cq);
	vs_quiesce();
	vs_event_settle_cq(cq);
	count_channel(ibcq->channel, -1);
	vs_control_lock();
	vs_slot_free(VS_CQ, index);
	vs_control_unlock();
	vs_lock_destroy(&cq->lock);
	pthread_mutex_destroy(&ibcq->mutex);
	pthread_cond_destroy(&ibcq->cond);
	free(cq);
	return 0;
}

/* ---- delivering ---- */

/* An arming for any completion stays one when the next is for solicited ones alone. */
static void arm(uint32_t *word, bool solicited_only)
{
	uint32_t was, now;

	do {
		was = vs_load_relaxed(word);
		now = !solicited_only ? (was & VS_CQ_FIRED) | VS_CQ_ARM_ANY : was & VS_CQ_ARM_ANY ? was : was | VS_CQ_ARM_SOLICITED;
	} while (!vs_cas(word, was, now));
}

int vs_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	VS_MAY_REFUSE(req_notify_cq);
	struct vs_cq *cq = vs_cq(ibcq);

	arm(&cq->shm->armed, solicited_only);
	vs_fence_behind(); /* the program looks into the ring next */
	vs_cq_look_stalled(cq); /* it may be the last word before the program sleeps */
	return 0;
}

static void post_notification(struct vs_cq *cq)
{
	vs_notifier_post(&vs_container(cq->ibv.channel, struct vs_channel, ibv)->notifier, &cq->ibv, &cq->comp_reported, 0, 0);
}

void vs_cq_notify_fired(void)
{
	pthread_mutex_lock(&vs_objects_lock);
	for (struct vs_cq *cq = vs_channel_cqs; cq; cq = cq->next)
		if (vs_load_relaxed(&cq->shm->armed) & VS_CQ_FIRED && vs_and(&cq->shm->armed, ~(uint32_t)VS_CQ_FIRED) & VS_CQ_FIRED)
			post_notification(cq);
	pthread_mutex_unlock(&vs_objects_lock);
}

/* Is this a completion for which a CQ is armed? */
static bool raises(uint32_t armed, const struct vs_cqe *cqe)
{
	return armed & VS_CQ_ARM_ANY || (armed & VS_CQ_ARM_SOLICITED && (cqe->solicited || cqe->status != IBV_WC_SUCCESS));
}

static void wake_owner(const struct vs_cq_shm *shm)
{
	struct vs_proc_shm *proc = vs_process(shm->s.owner);

	VS_POINT(cq_fired);
	if (proc)
		vs_process_wake(proc);
}

/* One completion event per arming: whoever disarms the CQ raises it. A producer that dies before it does is dead before it could: the
 * reaper does it then. */
static void notify(struct vs_cq_shm *shm, uint32_t cq_id, const struct vs_cqe *cqe)
{
	const uint32_t armed_bits = VS_CQ_ARM_ANY | VS_CQ_ARM_SOLICITED;
	uint32_t armed = vs_load(&shm->armed);
	struct vs_cq *cq;

	if (!raises(armed, cqe))
		return;
	cq = vs_local_cq[vs_slot_index(VS_CQ, cq_id)];
	if (shm->s.owner == vs_me_id && cq && cq->id == cq_id) {
		if (vs_and(&shm->armed, ~armed_bits) & armed_bits && cq->ibv.channel)
			post_notification(cq);
		return;
	}
	while (!vs_cas(&shm->armed, armed, VS_CQ_FIRED)) {
		armed = vs_load(&shm->armed); /* its owner has taken the last one, or armed it anew */
		if (!raises(armed, cqe))
			return;
	}
	wake_owner(shm);
}

static void tell_overrun(struct vs_cq_shm *shm, uint32_t cq_id)
{
	vs_event_send(shm->s.owner, IBV_EVENT_CQ_ERR, VS_CQ, cq_id, 0);
	VS_POINT(overrun_told);
	vs_store(&shm->error, VS_CQ_TOLD);
}

static bool push(struct vs_cq_shm *shm, struct vs_cqe *ring, uint32_t entries, uint32_t cq_id, const struct vs_cqe *cqe)
{
	if (vs_ring_push(&shm->ring, ring, entries, cqe)) {
		notify(shm, cq_id, cqe);
		return true;
	}
	if (vs_cas(&shm->error, 0, vs_me_id)) {
		VS_POINT(cq_overrun);
		tell_overrun(shm, cq_id);
	}
	return false;
}

static bool known(const struct vs_cq_view *v)
{
	return v->shm && vs_load(&v->shm->s.word) == v->word && vs_load_relaxed(&v->shm->s.ext_page) == v->ext_page &&
	       vs_load_relaxed(&v->shm->ring.entries) == v->entries;
}

static void find_ring(struct vs_cq_view *v)
{
	struct vs_cq_shm *shm = vs_slot_get(VS_CQ, v->id);
	struct vs_cqe *ring;
	uint64_t bytes;

	*v = (struct vs_cq_view){ .id = v->id };
	if (!shm)
		return;
	v->word = vs_load(&shm->s.word);
	if ((v->word & 0xff) != VS_LIVE)
		return;
	v->ext_page = vs_load_relaxed(&shm->s.ext_page);
	v->entries = vs_load_relaxed(&shm->ring.entries);
	ring = vs_extent(&shm->s, &bytes);
	if (!ring || v->entries == 0 || (v->entries & (v->entries - 1)) || v->entries > bytes / sizeof(*ring))
		return;
	v->shm = shm;
	v->ring = ring;
}

bool vs_cq_ready(struct vs_cq_view *view)
{
	if (vs_cq_resizing(view->id))
		return false;
	if (!known(view))
		find_ring(view);
	return true;
}

bool vs_cq_push(const struct vs_cq_view *view, const struct vs_cqe *cqe)
{
	return !view->ring || push(view->shm, view->ring, view->entries, view->id, cqe);
}

bool vs_cq_push_own(struct vs_cq *cq, const struct vs_cqe *cqe)
{
	return push(cq->shm, vs_load_relaxed(&cq->ring), vs_load_relaxed(&cq->entries), cq->id, cqe);
}

bool vs_cq_mark_unread(struct vs_cq *cq, uint32_t rq, const struct vs_posted_recv *posted, uint32_t pool_entries, uint64_t *unread)
{
	if (!vs_trylock(&cq->lock))
		return false;
	for (uint32_t i = 0; i < cq->entries; i++) {
		const struct vs_cqe *cqe = &cq->ring[i];

		if (vs_word_kind(vs_load(&cqe->word)) == VS_RING_FULL && cqe->kind == VS_CQE_RECV && cqe->rq == rq &&
		    cqe->wqe < pool_entries && cqe->generation == posted[cqe->wqe].generation)
			unread[cqe->wqe / 64] |= UINT64_C(1) << (cqe->wqe % 64);
	}
	vs_unlock(&cq->lock);
	return true;
}

/* May the dead process have delivered one of these? They do not say by whom they are, so any that raises an event may be. The owner goes
 * on meanwhile and what is read here may be torn: then it is awake. */
__attribute__((no_sanitize("thread"))) static bool may_have_fallen_silent(const struct vs_cqe *ring, uint32_t entries, uint32_t armed)
{
	for (uint32_t i = 0; i < entries; i++)
		if (vs_word_kind(vs_load(&ring[i].word)) == VS_RING_FULL && raises(armed, &ring[i]))
			return true;
	return false;
}

void vs_cq_reaped(struct vs_cq_shm *cq, uint32_t cq_id, const struct vs_cqe *ring, uint32_t entries, bool rolled, uint32_t proc_id)
{
	uint32_t armed = vs_load(&cq->armed);

	if (vs_load(&cq->error) == proc_id)
		tell_overrun(cq, cq_id);
	if (armed == 0)
		return;
	if (rolled || may_have_fallen_silent(ring, entries, armed))
		vs_cas(&cq->armed, armed, VS_CQ_FIRED); /* else its owner, or a producer, is at it */
	else if (!(armed & VS_CQ_FIRED))
		return;
	wake_owner(cq);
}

uint32_t vs_cq_stall_seen;

void vs_cq_look_stalled(struct vs_cq *cq)
{
	if (vs_ring_stalled(vs_load_relaxed(&cq->ring), vs_load_relaxed(&cq->entries), vs_load_relaxed(&cq->head)) &&
	    vs_exchange(&vs_cq_stall_seen, 1) == 0)
		vs_engine_kick();
}

bool vs_cq_any_stalled(void)
{
	bool stalled = false;

	pthread_mutex_lock(&vs_objects_lock);
	for (size_t i = 0; !stalled && i < vs_tables[VS_CQ].count; i++) {
		struct vs_cq *cq = vs_local_cq[i];

		if (!cq)
			continue;
		stalled = !vs_trylock(&cq->lock); /* the program reads it: look again */
		if (stalled)
			break;
		stalled = vs_ring_stalled(cq->ring, cq->entries, cq->head);
		vs_unlock(&cq->lock);
	}
	pthread_mutex_unlock(&vs_objects_lock);
	return stalled;
}

/* Every unread completion that its producer has finished, also behind one whose producer died over it. The tail says how far they
 * reach, since whoever delivered those concerned has left the data path; or died before it moved the tail on. */
#define for_each_unread(cq, pos, cqe)                                                                                              \
	for (uint64_t pos = (cq)->head, end = unread_end(cq); pos != end; pos++)                                                       \
		if (!vs_ring_ready((cq)->ring, (cq)->entries, pos) || !((cqe) = &(cq)->ring[pos & ((cq)->entries - 1)])) {                  \
		} else

static uint64_t unread_end(const struct vs_cq *cq)
{
	uint64_t end = vs_load(&cq->shm->ring.tail) & VS_POS_MASK, limit = cq->head + cq->entries;

	if (end - cq->head > cq->entries)
		end = limit; /* no further than the ring, whatever was written there */
	while (end != limit && vs_ring_ready(cq->ring, cq->entries, end))
		end++;
	return end;
}

void vs_cq_purge(struct vs_cq *cq, uint32_t qpn, uint32_t rq)
{
	struct vs_cqe *cqe;

	vs_lock(&cq->lock);
	for_each_unread (cq, pos, cqe)
		if (cqe->kind == VS_CQE_RECV ? cqe->rq == rq : cqe->kind == VS_CQE_SEND && cqe->qpn == qpn)
			cqe->kind = VS_CQE_VOID;
	vs_unlock(&cq->lock);
}

void vs_cq_purge_srq(struct vs_cq *cq, uint32_t qpn, struct vs_srq *srq)
{
	struct vs_cqe *cqe;

	vs_lock(&cq->lock);
	for_each_unread (cq, pos, cqe)
		if (cqe->kind == VS_CQE_RECV && cqe->qpn == qpn && cqe->rq == (VS_RQ_SRQ | srq->id)) {
			vs_recvq_reclaim(&srq->rq, cqe->wqe, cqe->generation);
			cqe->kind = VS_CQE_VOID;
		}
	vs_unlock(&cq->lock);
}

void vs_cq_count_resizes(void)
{
	struct vs_cq_shm *cq;
	uint32_t index, n = 0;

	vs_for_each_live (VS_CQ, index, cq)
		n += vs_load(&cq->resizing) == VS_CQ_RESIZING;
	vs_store(&vs_seg->resizes, n);
}
