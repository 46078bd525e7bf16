#include "core/event.h"

#include <errno.h>
#include <string.h>

#include "core/engine.h"

/* The event ring is a completion ring whose bodies are struct vs_event. A record that its writer died over is VS_CQE_VOID: its
 * kind byte, the top one of type, is zero. */
#define VALID 0x01000000u
static_assert(offsetof(struct vs_cqe, kind) == offsetof(struct vs_event, type) + 3, "little endian: kind is the top byte of type");

static uint64_t head; /* next record to consume; the engine's */
static uint32_t unplugs_seen; /* the engine's */

static struct vs_cqe *event_slots(struct vs_proc_shm *proc)
{
	return (struct vs_cqe *)(void *)proc->event;
}

static void send_record(uint32_t proc_id, struct vs_event event)
{
	struct vs_proc_shm *proc = vs_process(proc_id);
	bool duty = event.type >= VS_EVENT_QP_FLUSH;
	struct vs_cqe body;

	if (!proc)
		return;
	event.type |= VALID;
	memcpy(&body, &event, sizeof(body));
	if (!vs_ring_push(&proc->events, event_slots(proc), VS_EVENTS, &body) && duty)
		vs_store(&proc->sweep, 1);
	VS_POINT(event_pushed);
	vs_process_wake(proc);
}

void vs_event_send(uint32_t proc_id, uint32_t type, enum vs_table table, uint32_t id, uint32_t port)
{
	send_record(proc_id, (struct vs_event){ .type = type, .table = table, .id = id, .port = port });
}

void vs_event_send_once(uint32_t proc_id, uint32_t type, enum vs_table table, uint32_t id, uint32_t number)
{
	send_record(proc_id, (struct vs_event){ .type = type, .table = table, .id = id, .number = number });
}

void vs_event_qp(const struct vs_qp_shm *qp, uint32_t qpn, uint32_t type, uint32_t number)
{
	struct vs_qp_ref_shm *ref;
	uint32_t index, id, owner;

	if (qp->type != IBV_QPT_XRC_RECV) {
		vs_event_send_once(qp->s.owner, type, VS_QP, qpn, number);
		return;
	}
	vs_for_each_live (VS_QP_REF, index, ref) {
		id = vs_slot_id(VS_QP_REF, index);
		owner = vs_load_relaxed(&ref->s.owner);
		if (vs_load_relaxed(&ref->qp) != qpn)
			continue;
		if (!vs_load_relaxed(&ref->creator) && vs_load_relaxed(&vs_seg->knobs.tgt_events) != VS_EVENTS_ALL)
			continue;
		/* Handles have no grace period: all this was of the one that has this id, if it is still there. */
		vs_fence();
		if (vs_slot_get(VS_QP_REF, id) == ref)
			vs_event_send_once(owner, type, VS_QP_REF, id, number);
	}
}

void vs_event_qp_failed(const struct vs_qp_shm *qp, uint32_t qpn, uint32_t event, uint32_t life)
{
	vs_event_qp(qp, qpn, event, life);
	if (qp->type == IBV_QPT_XRC_RECV || qp->srq)
		vs_event_qp(qp, qpn, IBV_EVENT_QP_LAST_WQE_REACHED, life);
	if (qp->type != IBV_QPT_XRC_RECV)
		vs_event_send(qp->s.owner, VS_EVENT_QP_FLUSH, VS_QP, qpn, 0);
}

/* ---- in the process concerned ---- */

static uint32_t *told_of(struct vs_qp *qp, uint32_t type)
{
	switch (type) {
	case IBV_EVENT_PATH_MIG:
		return &qp->told.migrated;
	case IBV_EVENT_COMM_EST:
		return &qp->told.established;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		return &qp->told.failed;
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return &qp->told.last_wqe;
	default:
		return NULL;
	}
}

/* What one has to tell that died, or may have, another tells in its place, and neither knows how far the other came. Numbers grow, and nobody
 * takes the next one before all of the last is told by somebody: so what is not beyond the last one has been here. */
static bool is_news(uint32_t *told, uint32_t number)
{
	if (told && (int32_t)(number - *told) <= 0)
		return false;
	if (told)
		*told = number;
	return true;
}

void vs_event_begin(struct vs_qp *qp)
{
	uint32_t life = vs_load(&qp->shm->life) - 1, version = (uint32_t)(vs_load(&qp->shm->path_word) >> 32) - 1;

	qp->told = (struct vs_told){ .migrated = version, .established = life, .failed = life, .last_wqe = life };
}

static void deliver_qp(struct vs_qp *qp, uint32_t type, uint32_t number)
{
	if (!is_news(told_of(qp, type), number))
		return;
	vs_notifier_post(&vs_context(qp->ibv.context)->async, &qp->ibv, &qp->reported, type, 0);
}

static void deliver_srq(struct vs_srq *srq, uint32_t type, uint32_t number)
{
	if (is_news(&srq->told, number))
		vs_notifier_post(&vs_context(srq->ibv.context)->async, &srq->ibv, &srq->reported, type, 0);
}

/* It overruns once. */
static void deliver_cq(struct vs_cq *cq, uint32_t type)
{
	if (!cq->told)
		vs_notifier_post(&vs_context(cq->ibv.context)->async, &cq->ibv, &cq->async_reported, type, 0);
	cq->told = true;
}

void vs_event_port(const struct vs_port_shm *port, uint32_t type)
{
	const struct vs_hca_shm *hca = vs_fabric_hca(port->hca);
	struct vs_proc_shm *proc;
	uint32_t index;

	vs_for_each_live (VS_PROC, index, proc)
		if (hca && proc->host == hca->host)
			vs_event_send(vs_slot_id(VS_PROC, index), type, VS_HCA, port->hca, port->num);
}

static void deliver_port(uint32_t hca_index, uint32_t type, uint32_t port)
{
	for (struct vs_context *c = vs_contexts; c; c = c->next)
		if (c->hca_index == hca_index)
			vs_notifier_post(&c->async, NULL, NULL, type, port);
}

static bool is_qp_event(uint32_t type)
{
	switch (type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return true;
	default:
		return false;
	}
}

static bool is_srq_event(uint32_t type)
{
	return type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED;
}

/* The type says which element a program finds in the event, so an element of another table would be taken for what it is not. */
static bool fits(uint32_t type, uint32_t table)
{
	switch (table) {
	case VS_QP:
	case VS_QP_REF:
		return is_qp_event(type);
	case VS_SRQ:
		return is_srq_event(type);
	case VS_CQ:
		return type == IBV_EVENT_CQ_ERR;
	case VS_HCA:
		return type <= IBV_EVENT_GID_CHANGE && !is_qp_event(type) && !is_srq_event(type) && type != IBV_EVENT_CQ_ERR;
	default:
		return false;
	}
}

/* Objects are looked up under the lock that their destruction takes, once they are retired and before it undoes anything. */
static void deliver(const struct vs_event *e)
{
	uint32_t index;
	struct vs_srq *srq;
	struct vs_cq *cq;
	struct vs_qp *qp;

	if (!fits(e->type, e->table))
		return;
	index = vs_slot_index((enum vs_table)e->table, e->id);
	if (index >= vs_tables[e->table].count)
		return;
	switch (e->table) {
	case VS_QP:
		qp = vs_local_qp[index];
		if (qp && qp->id == e->id)
			deliver_qp(qp, e->type, e->number);
		break;
	case VS_QP_REF:
		qp = vs_local_qp_ref[index];
		if (qp && qp->ref_id == e->id)
			deliver_qp(qp, e->type, e->number);
		break;
	case VS_SRQ:
		srq = vs_local_srq[index];
		if (srq && srq->id == e->id)
			deliver_srq(srq, e->type, e->number);
		break;
	case VS_CQ:
		cq = vs_local_cq[index];
		if (cq && cq->id == e->id)
			deliver_cq(cq, e->type);
		break;
	case VS_HCA:
		deliver_port(index, e->type, e->port);
		break;
	}
}

static void dispatch(const struct vs_event *e)
{
	if (e->type == VS_EVENT_QP_FLUSH) {
		vs_engine_ops.flush_qp(e->id);
	} else if (e->type == VS_EVENT_RQ_RETURN) {
		vs_engine_ops.return_wqes(e->table, e->id);
	} else {
		pthread_mutex_lock(&vs_objects_lock);
		deliver(e);
		pthread_mutex_unlock(&vs_objects_lock);
	}
}

static void tell_lost(struct vs_context *c)
{
	c->told = true;
	vs_notifier_post(&c->async, NULL, NULL, IBV_EVENT_DEVICE_FATAL, 0);
	vs_notifier_end(&c->async);
	for (struct vs_channel *ch = vs_channels; ch; ch = ch->next)
		if (ch->ibv.context == &c->v.context)
			vs_notifier_end(&ch->notifier);
}

void vs_event_tell_lost(void)
{
	uint32_t now = vs_load(&vs_seg->unplugs);

	if (now == unplugs_seen)
		return;
	unplugs_seen = now;
	pthread_mutex_lock(&vs_objects_lock);
	for (struct vs_context *c = vs_contexts; c; c = c->next)
		if (!c->told && vs_lost(c))
			tell_lost(c);
	pthread_mutex_unlock(&vs_objects_lock);
}

void vs_event_reset(void)
{
	head = 0;
	unplugs_seen = UINT32_MAX;
}

void vs_event_drain(void)
{
	struct vs_cqe *slots = event_slots(vs_me), body;
	struct vs_event e;

	while (vs_ring_ready(slots, VS_EVENTS, head)) {
		vs_ring_pop(slots, VS_EVENTS, head++, &body);
		memcpy(&e, &body, sizeof(e));
		if (!(e.type & VALID))
			continue;
		e.type &= ~VALID;
		dispatch(&e);
	}
}

bool vs_event_stalled(void)
{
	return vs_ring_stalled(event_slots(vs_me), VS_EVENTS, head);
}

/* ---- ibv_get_*_event and acknowledgements ---- */

int vs_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct vs_note note;
	int err = vs_notifier_take(&vs_context(context)->async, &note);

	if (err) {
		errno = err;
		return -1;
	}
	event->event_type = (enum ibv_event_type)note.type;
	if (is_qp_event(note.type))
		event->element.qp = note.element;
	else if (note.type == IBV_EVENT_CQ_ERR)
		event->element.cq = note.element;
	else if (is_srq_event(note.type))
		event->element.srq = note.element;
	else
		event->element.port_num = (int)note.port;
	return 0;
}

static void ack(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed, uint32_t n)
{
	pthread_mutex_lock(mutex);
	*completed += n;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

void vs_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_qp *qp = event->element.qp;
	struct ibv_cq *cq = event->element.cq;
	struct ibv_srq *srq = event->element.srq;

	if (is_qp_event(event->event_type))
		ack(&qp->mutex, &qp->cond, &qp->events_completed, 1);
	else if (event->event_type == IBV_EVENT_CQ_ERR)
		ack(&cq->mutex, &cq->cond, &cq->async_events_completed, 1);
	else if (is_srq_event(event->event_type))
		ack(&srq->mutex, &srq->cond, &srq->events_completed, 1);
}

int vs_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct vs_note note;
	int err = vs_notifier_take(&vs_container(channel, struct vs_channel, ibv)->notifier, &note);

	if (err) {
		errno = err;
		return -1;
	}
	*cq = note.element;
	*cq_context = (*cq)->cq_context;
	return 0;
}

void vs_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	ack(&cq->mutex, &cq->cond, &cq->comp_events_completed, nevents);
}

static void wait_acked(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *completed, uint32_t reported)
{
	pthread_mutex_lock(mutex);
	while (*completed != reported)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}

void vs_event_settle_qp(struct vs_qp *qp)
{
	uint32_t n = vs_notifier_forget(&vs_context(qp->ibv.context)->async, &qp->ibv, &qp->reported);

	wait_acked(&qp->ibv.mutex, &qp->ibv.cond, &qp->ibv.events_completed, n);
}

void vs_event_settle_srq(struct vs_srq *srq)
{
	uint32_t n = vs_notifier_forget(&vs_context(srq->ibv.context)->async, &srq->ibv, &srq->reported);

	wait_acked(&srq->ibv.mutex, &srq->ibv.cond, &srq->ibv.events_completed, n);
}

void vs_event_settle_cq(struct vs_cq *cq)
{
	uint32_t n = vs_notifier_forget(&vs_context(cq->ibv.context)->async, &cq->ibv, &cq->async_reported);

	wait_acked(&cq->ibv.mutex, &cq->ibv.cond, &cq->ibv.async_events_completed, n);
	if (!cq->ibv.channel)
		return;
	n = vs_notifier_forget(&vs_container(cq->ibv.channel, struct vs_channel, ibv)->notifier, &cq->ibv, &cq->comp_reported);
	wait_acked(&cq->ibv.mutex, &cq->ibv.cond, &cq->ibv.comp_events_completed, n);
}
