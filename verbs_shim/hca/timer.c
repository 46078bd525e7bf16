#include "hca/hca.h"

#include "core/engine.h"

static pthread_mutex_t timer_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vs_qp *waiting; /* under timer_lock */
static uint64_t next_due;     /* atomic; 0: nothing waits */

/* IBTA table of RNR NAK timer codes, in units of 10 us; code 0 is the longest. */
static const uint32_t rnr_table[32] = { 65536, 1,   2,   3,   4,	6,    8,    12,	  16,	24,   32,    48,	64,    96,	  128,	 192,
					256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152 };

uint64_t vs_rnr_time(uint8_t code)
{
	return (uint64_t)rnr_table[code & 31] * 10000u;
}

uint64_t vs_ack_time(uint8_t code)
{
	return code ? UINT64_C(4096) << (code & 31) : 0;
}

void vs_timer_add(struct vs_qp *qp)
{
	pthread_mutex_lock(&timer_lock);
	if (!qp->waiting) {
		vs_store_relaxed(&qp->waiting, true);
		qp->next_waiting = waiting;
		waiting = qp;
	}
	vs_store(&next_due, 1); /* now; the engine works out the true time */
	pthread_mutex_unlock(&timer_lock);
	vs_engine_kick();
}

static void unlink_waiting(struct vs_qp *qp)
{
	struct vs_qp **at;

	for (at = &waiting; *at && *at != qp; at = &(*at)->next_waiting) {
	}
	if (*at)
		*at = qp->next_waiting;
}

void vs_timer_forget(struct vs_qp *qp)
{
	pthread_mutex_lock(&timer_lock);
	unlink_waiting(qp);
	vs_store_relaxed(&qp->waiting, false);
	pthread_mutex_unlock(&timer_lock);
}

void vs_timer_forget_all(void)
{
	pthread_mutex_init(&timer_lock, NULL);
	waiting = NULL;
	vs_store(&next_due, 0);
}

/* What was posted in SQD behind the last message waits for the program; a look now and then is enough to see it resumed. */
#define PARKED_NS 10000000u
#define BUSY_NS 1000000u

/* Returns this QP's next deadline, 0 if no timer will end its wait, or it waits no longer. */
static uint64_t run_one(struct vs_qp *qp, uint64_t now)
{
	uint64_t deadline = 0;
	bool lost;

	if (!vs_trylock(&qp->lock))
		return now + BUSY_NS; /* its own thread is at work on it */
	lost = vs_qp_lost(qp); /* then it waits for nothing any more */
	if (!lost && qp->sq.exec != qp->sq.head && qp->sq.deadline <= now)
		vs_requester_run(qp, now);
	if (lost)
		deadline = 0;
	else if (qp->sq.exec != qp->sq.head && (vs_qp_state(qp) == IBV_QPS_RTS || qp->sq.deadline))
		deadline = qp->sq.deadline == UINT64_MAX ? 0 : qp->sq.deadline ? qp->sq.deadline : now;
	else if (qp->sq.exec != qp->sq.head)
		deadline = now + PARKED_NS;
	if (deadline == 0)
		vs_store_relaxed(&qp->waiting, false); /* under the QP's lock: a later post adds it again */
	vs_unlock(&qp->lock);
	return deadline;
}

static uint64_t run_locked(uint64_t now)
{
	uint64_t due = 0;

	for (struct vs_qp *qp = waiting, *next; qp; qp = next) {
		uint64_t deadline = run_one(qp, now);

		next = qp->next_waiting;
		if (deadline == 0)
			unlink_waiting(qp);
		else if (due == 0 || deadline < due)
			due = deadline;
	}
	vs_store(&next_due, due);
	return due;
}

uint64_t vs_timer_run(uint64_t now)
{
	uint64_t due;

	if (vs_load_relaxed(&next_due) == 0)
		return 0;
	if (pthread_mutex_trylock(&timer_lock))
		return now + BUSY_NS;
	due = run_locked(now);
	pthread_mutex_unlock(&timer_lock);
	return due;
}

void vs_timer_assist(void)
{
	uint64_t due = vs_load_relaxed(&next_due), now;

	if (due == 0)
		return;
	now = vs_now();
	if (now < due || pthread_mutex_trylock(&timer_lock))
		return;
	run_locked(now);
	pthread_mutex_unlock(&timer_lock);
}
