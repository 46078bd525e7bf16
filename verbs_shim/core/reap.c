#include "core/reap.h"

#include "core/cq.h"
#include "core/event.h"
#include "core/owed.h"
#include "core/ports.h"
#include "core/srq.h"
#include "core/users.h"
#include "memory/pages.h"
#include "memory/ring.h"

/* Users before what they use. A request finds its QP first and then what it names, so a NAK would say that something is not there which has
 * only gone with its QP: who is about to refuse looks at the QP again (vs_refuse). That is enough as long as the QPs go first. */
static const enum vs_table order[] = { VS_QP, VS_QP_REF, VS_MCAST, VS_SRQ, VS_MR, VS_CQ, VS_XRCD_REF, VS_XRCD, VS_PD };

#define NUM_ORDER (sizeof(order) / sizeof(order[0]))

#define EVERY_CONTEXT 0

static bool belongs(const struct vs_slot *slot, uint32_t proc_id, uint32_t context)
{
	return slot->owner == proc_id && (context == EVERY_CONTEXT || slot->context == context);
}

/* Those of a table that are owned. Like all that retire several, returns how many there were. */
static unsigned retire_table(enum vs_table table, uint32_t proc_id, uint32_t context)
{
	struct vs_slot *slot;
	uint32_t index;
	unsigned n = 0;

	vs_for_each_slot (table, index, slot)
		if (belongs(slot, proc_id, context) && vs_slot_state(slot) != VS_DYING) {
			vs_slot_retire(table, index);
			n++;
		}
	return n;
}

/* The slot's owner is who will free it. */
static void retire_orphan(enum vs_table table, uint32_t index, struct vs_slot *slot, uint32_t proc_id, uint32_t context)
{
	slot->owner = proc_id;
	slot->context = context;
	vs_slot_retire(table, index);
}

/* A TGT QP belongs to nobody but its handles: it goes with the last one. */
static unsigned retire_tgts(uint32_t proc_id, uint32_t context)
{
	struct vs_qp_shm *qp;
	uint32_t index;
	unsigned n = 0;

	vs_for_each_live (VS_QP, index, qp)
		if (qp->type == IBV_QPT_XRC_RECV && !vs_tgt_in_use(vs_slot_id(VS_QP, index))) {
			retire_orphan(VS_QP, index, &qp->s, proc_id, context);
			n++;
		}
	return n;
}

/* Likewise a domain. */
static unsigned retire_xrcds(uint32_t proc_id, uint32_t context)
{
	struct vs_xrcd_shm *xrcd;
	uint32_t index;
	unsigned n = 0;

	vs_for_each_live (VS_XRCD, index, xrcd)
		if (!vs_xrcd_in_use(vs_slot_id(VS_XRCD, index))) {
			retire_orphan(VS_XRCD, index, &xrcd->s, proc_id, context);
			n++;
		}
	return n;
}

/* What is owned, and after each table of handles what they were the last of. */
static unsigned retire(uint32_t proc_id, uint32_t context, bool keep_tgts)
{
	unsigned n = 0;

	for (size_t t = 0; t < NUM_ORDER; t++) {
		n += retire_table(order[t], proc_id, context);
		if (order[t] == VS_QP_REF && !keep_tgts) {
			n += retire_tgts(proc_id, context);
			VS_POINT(reap_orphaned);
		}
		if (order[t] == VS_XRCD_REF)
			n += retire_xrcds(proc_id, context);
	}
	return n;
}

/* Nothing was left half-way by a process that leaves by itself. */
static bool died(uint32_t proc_id)
{
	return proc_id != vs_me_id;
}

static void roll_cqs(uint32_t proc_id)
{
	struct vs_cq_shm *cq;
	uint32_t index;
	uint64_t bytes;

	vs_for_each_live (VS_CQ, index, cq) {
		struct vs_cqe *ring = vs_extent(&cq->s, &bytes);
		uint32_t n = vs_load(&cq->ring.entries);
		bool rolled;

		if (!ring || n > bytes / sizeof(*ring))
			continue;
		rolled = vs_ring_reap(&cq->ring, ring, n, vs_slot_index(VS_PROC, proc_id)) != 0;
		if (rolled || died(proc_id))
			vs_cq_reaped(cq, vs_slot_id(VS_CQ, index), ring, n, rolled, proc_id);
	}
}

static void roll_rq(struct vs_slot *slot, struct vs_rq *rq, enum vs_table table, uint32_t index, uint32_t proc_index)
{
	struct vs_rq_view view;
	uint64_t bytes = 0;
	void *pages = vs_extent(slot, &bytes);

	if (pages && vs_rq_open(&view, rq, pages, bytes) && vs_rq_reap(&view, proc_index))
		vs_event_send(slot->owner, VS_EVENT_RQ_RETURN, table, vs_slot_id(table, index), 0);
}

static bool unread_events(const struct vs_proc_shm *proc)
{
	for (uint32_t i = 0; i < VS_EVENTS; i++)
		if (vs_word_kind(vs_load(&proc->event[i].word)) == VS_RING_FULL)
			return true;
	return false;
}

/* Entries that the dead process had claimed in the queues of the living, and what it may not have woken them for. */
static void roll_queues(uint32_t proc_id)
{
	uint32_t proc_index = vs_slot_index(VS_PROC, proc_id);
	struct vs_proc_shm *proc;
	struct vs_srq_shm *srq;
	struct vs_qp_shm *qp;
	uint32_t index;

	roll_cqs(proc_id);
	vs_for_each_live (VS_SRQ, index, srq) {
		roll_rq(&srq->s, &srq->rq, VS_SRQ, index, proc_index);
		vs_srq_reaped(srq, vs_slot_id(VS_SRQ, index), proc_index);
	}
	vs_for_each_live (VS_QP, index, qp) {
		if (qp->s.ext_pages)
			roll_rq(&qp->s, &qp->rq, VS_QP, index, proc_index);
		vs_owed_reap(qp, vs_slot_id(VS_QP, index), proc_index);
	}
	vs_for_each_live (VS_PROC, index, proc) {
		vs_ring_reap(&proc->events, (struct vs_cqe *)(void *)proc->event, VS_EVENTS, proc_index);
		if (died(proc_id) && unread_events(proc))
			vs_process_wake(proc);
	}
}

/* A copy request that its asker died over: the engine's answer will find nobody. */
static void drop_copies(uint32_t proc_id)
{
	struct vs_proc_shm *proc;
	uint32_t index;

	vs_for_each_live (VS_PROC, index, proc)
		vs_cas(&proc->copy.client, proc_id, 0); /* unless another was faster and has claimed it since */
}

/* Kernels before 4.12 (tgt_exit=orphan): a TGT QP lives on without handles, and its domain with it. */
static bool keeps_tgts(void)
{
	return vs_load(&vs_seg->knobs.tgt_exit) == VS_TGT_ORPHAN;
}

void vs_reap_retire(uint32_t proc_id)
{
	retire(proc_id, EVERY_CONTEXT, keeps_tgts());
	VS_POINT(reap_retired);
	roll_queues(proc_id);
	vs_cq_count_resizes();
	VS_POINT(reap_rolled);
	drop_copies(proc_id);
	VS_POINT(reap_dropped);
	vs_ports_reaped(proc_id);
	vs_fabric_reap(proc_id);
}

static void free_dying(uint32_t proc_id, uint32_t context)
{
	struct vs_slot *slot;
	uint32_t index;

	for (size_t t = 0; t < NUM_ORDER; t++)
		vs_for_each_slot (order[t], index, slot)
			if (vs_slot_state(slot) == VS_DYING && belongs(slot, proc_id, context))
				vs_slot_free(order[t], index);
}

void vs_reap_free(uint32_t proc_id)
{
	free_dying(proc_id, EVERY_CONTEXT);
}

bool vs_reap_context_retire(uint32_t context)
{
	unsigned n;

	vs_control_lock();
	n = retire(vs_me_id, context, keeps_tgts());
	vs_control_unlock();
	return n != 0;
}

void vs_reap_context_free(uint32_t context)
{
	vs_quiesce();
	vs_control_lock();
	free_dying(vs_me_id, context);
	vs_control_unlock();
}

void vs_reap_orphans(void)
{
	vs_control_lock();
	retire_tgts(vs_me_id, EVERY_CONTEXT);
	retire_xrcds(vs_me_id, EVERY_CONTEXT);
	vs_control_unlock();
	VS_POINT(orphans_retired);
	vs_quiesce();
	vs_control_lock();
	vs_reap_free(vs_me_id);
	vs_control_unlock();
}
