#include "hca/hca.h"

#include "core/cq.h"
#include "core/engine.h"
#include "core/event.h"
#include "core/qp.h"
#include "core/recvq.h"

/* ---- what the engine does for this process's objects ----
 * A program's thread may hold an object's lock for long (ibv_wr_start, ibv_start_poll, a copy that another engine must do), so the engine
 * only tries it, and comes again. */

#define RETRY_NS 1000000u
#define STALL_NS 10000000u

struct chore {
	bool (*run)(uint32_t table, uint32_t id); /* false: could not, try again */
	uint32_t table;
	uint32_t id;
};

static struct chore chores[64]; /* the engine's alone */
static unsigned num_chores;

static void do_or_keep(bool (*run)(uint32_t, uint32_t), uint32_t table, uint32_t id)
{
	if (run(table, id))
		return;
	if (num_chores < sizeof(chores) / sizeof(chores[0]))
		chores[num_chores++] = (struct chore){ run, table, id };
	else
		vs_store(&vs_me->sweep, 1);
}

static void run_chores(void)
{
	struct chore now[sizeof(chores) / sizeof(chores[0])];
	unsigned n = num_chores;

	for (unsigned i = 0; i < n; i++)
		now[i] = chores[i];
	num_chores = 0;
	for (unsigned i = 0; i < n; i++)
		do_or_keep(now[i].run, now[i].table, now[i].id);
}

/* Which of a queue's WQEs have completions that the program has not read? */
static bool find_unread(uint32_t rq, struct vs_recvq *q, uint64_t unread[1024])
{
	bool all = true;

	vs_lock(&q->lock); /* it is taken inside a CQ's; here the CQ's is only tried */
	for (size_t i = 0; all && i < vs_tables[VS_CQ].count; i++)
		if (vs_local_cq[i])
			all = vs_cq_mark_unread(vs_local_cq[i], rq, q->posted, q->view.pool_entries, unread);
	vs_unlock(&q->lock);
	return all;
}

static bool repost(struct vs_recvq *q, uint32_t rq)
{
	uint64_t unread[1024] = { 0 };

	if (!vs_recvq_any_returned(q))
		return true;
	if (!find_unread(rq, q, unread))
		return false;
	vs_recvq_repost_returned(q, unread);
	return true;
}

static bool repost_qp(struct vs_qp *qp)
{
	if (!repost(&qp->rq, qp->id))
		return false;
	if (vs_qp_state(qp) == IBV_QPS_ERR)
		vs_receive_flush(qp);
	return true;
}

static bool try_return(uint32_t table, uint32_t id)
{
	uint32_t index;
	bool done = true;

	if (table != VS_SRQ && table != VS_QP)
		return true; /* nobody says so */
	index = vs_slot_index((enum vs_table)table, id);
	pthread_mutex_lock(&vs_objects_lock);
	if (table == VS_SRQ && index < vs_tables[VS_SRQ].count && vs_local_srq[index] && vs_local_srq[index]->id == id)
		done = repost(&vs_local_srq[index]->rq, VS_RQ_SRQ | id);
	if (table == VS_QP && vs_local_qp[index] && vs_local_qp[index]->id == id && vs_local_qp[index]->rq.posted)
		done = repost_qp(vs_local_qp[index]);
	pthread_mutex_unlock(&vs_objects_lock);
	return done;
}

/* A sender died holding WQEs of this queue. */
static void return_wqes(uint32_t table, uint32_t id)
{
	do_or_keep(try_return, table, id);
}

static bool try_flush(uint32_t table, uint32_t qpn)
{
	(void)table;
	return vs_requester_flush_by_number(qpn);
}

static void flush_qp(uint32_t qpn)
{
	do_or_keep(try_flush, VS_QP, qpn);
}

static bool sweep(enum vs_table table)
{
	const struct vs_slot *slot;
	bool done = true;
	uint32_t index;

	vs_for_each_live (table, index, slot) {
		uint32_t id = vs_slot_id(table, index);

		if (vs_load_relaxed(&slot->owner) != vs_me_id)
			continue;
		if (!try_return(table, id))
			done = false;
		if (table == VS_QP && !vs_requester_flush_by_number(id))
			done = false;
	}
	return done;
}

/* Records or chores found no room: do them for whatever of this process may need it. */
static void run_sweep(void)
{
	bool srqs, qps;

	if (!vs_load_relaxed(&vs_me->sweep) || !vs_exchange(&vs_me->sweep, 0))
		return;
	srqs = sweep(VS_SRQ);
	qps = sweep(VS_QP);
	if (!srqs || !qps)
		vs_store(&vs_me->sweep, 1);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a == 0 || (b && b < a) ? b : a;
}

/* Where something stands still behind an entry of a producer that may have died, look for the dead. Who sees a CQ stand still after the
 * word was taken back here says so again, with a kick. */
static uint64_t watch_stalls(uint64_t now)
{
	bool cq = vs_load_relaxed(&vs_cq_stall_seen) && vs_exchange(&vs_cq_stall_seen, 0) && vs_cq_any_stalled();

	if (!cq && !vs_event_stalled())
		return 0;
	if (cq)
		vs_store_relaxed(&vs_cq_stall_seen, 1);
	vs_process_look_around();
	return now + STALL_NS;
}

static uint64_t run_timers(uint64_t now)
{
	uint64_t due = earlier(watch_stalls(now), vs_process_watch(now));

	run_chores();
	run_sweep();
	if (num_chores || vs_load_relaxed(&vs_me->sweep))
		due = earlier(due, now + RETRY_NS);
	return earlier(due, vs_timer_run(now));
}

static void forget(void)
{
	num_chores = 0;
	vs_timer_forget_all();
}

void vs_hca_init(void)
{
	static const struct vs_engine_ops ops = {
		.run_timers = run_timers,
		.serve_copies = vs_place_serve,
		.flush_qp = flush_qp,
		.return_wqes = return_wqes,
		.forget = forget,
	};

	vs_engine_ops = ops;
	vs_qp_ops = vs_requester_ops;
	vs_cq_init_ex = vs_poll_ex_init;
}
