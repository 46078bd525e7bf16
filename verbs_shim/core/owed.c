#include "core/owed.h"

#include "core/event.h"

#define TELLER UINT64_C(0xffff)
#define ANYBODY UINT32_MAX

static_assert(VS_PATH_TELLER == TELLER << 16, "tellers have 16 bits");

static uint64_t owes(const struct vs_qp_shm *qp, uint32_t event)
{
	return (uint64_t)vs_load(&qp->life) << 32 | event << 16 | (vs_slot_index(VS_PROC, vs_me_id) + 1);
}

uint64_t vs_owed_begin(struct vs_qp_shm *qp, enum vs_owed what, uint32_t event)
{
	uint64_t word = owes(qp, event);

	vs_store_full(&qp->owed[what], word);
	return word;
}

void vs_owed_tell(struct vs_qp_shm *qp, uint32_t qpn, enum vs_owed what, uint64_t owed)
{
	uint32_t life = (uint32_t)(owed >> 32), event = (uint32_t)owed >> 16;

	if (what == VS_OWED_FAILED)
		vs_event_qp_failed(qp, qpn, event, life);
	else
		vs_event_qp(qp, qpn, event, life);
	VS_POINT(owed_told);
	vs_owed_cancel(qp, what, owed);
}

void vs_owed_cancel(struct vs_qp_shm *qp, enum vs_owed what, uint64_t owed)
{
	vs_cas(&qp->owed[what], owed, owed & ~TELLER);
}

/* Of this life: one that was on its way here when the QP was reset is stale. */
void vs_owed_establish(struct vs_qp_shm *qp, uint32_t qpn)
{
	uint64_t was = vs_load(&qp->owed[VS_OWED_ESTABLISHED]), now = owes(qp, IBV_EVENT_COMM_EST);

	if (was >> 32 == now >> 32 || vs_load(&qp->state) != IBV_QPS_RTR || !vs_cas(&qp->owed[VS_OWED_ESTABLISHED], was, now))
		return;
	VS_POINT(established);
	vs_owed_tell(qp, qpn, VS_OWED_ESTABLISHED, now);
}

void vs_owed_migrated(struct vs_qp_shm *qp, uint32_t qpn, uint64_t path_word)
{
	vs_event_qp(qp, qpn, IBV_EVENT_PATH_MIG, (uint32_t)(path_word >> 32));
	VS_POINT(migration_told);
	vs_cas(&qp->path_word, path_word, path_word & ~(uint64_t)VS_PATH_TELLER);
}

static bool by(uint64_t teller, uint32_t proc_index)
{
	return teller != 0 && (proc_index == ANYBODY || teller == proc_index + 1);
}

/* What was to be told before the move is not owed if it was not made. One that another process made at the same moment may be taken for it: all
 * that comes of that is the error's event beside the other's LAST_WQE_REACHED, as if the error had been first. */
static bool moved(const struct vs_qp_shm *qp, enum vs_owed what, uint64_t word, uint32_t state)
{
	return what == VS_OWED_ESTABLISHED || (state == IBV_QPS_ERR && word >> 32 == vs_load(&qp->life));
}

static void tell_for(struct vs_qp_shm *qp, uint32_t qpn, uint32_t state, uint32_t proc_index)
{
	for (enum vs_owed what = (enum vs_owed)0; what < VS_OWED; what++) {
		uint64_t word = vs_load(&qp->owed[what]);

		if (by(word & TELLER, proc_index) && moved(qp, what, word, state))
			vs_owed_tell(qp, qpn, what, word);
	}
}

void vs_owed_settle(struct vs_qp_shm *qp, uint32_t qpn, uint32_t state)
{
	tell_for(qp, qpn, state, ANYBODY);
}

void vs_owed_reap(struct vs_qp_shm *qp, uint32_t qpn, uint32_t proc_index)
{
	uint64_t word = vs_load(&qp->path_word);

	tell_for(qp, qpn, vs_load(&qp->state), proc_index);
	for (enum vs_owed what = (enum vs_owed)0; what < VS_OWED; what++) {
		uint64_t left = vs_load(&qp->owed[what]);

		if (by(left & TELLER, proc_index))
			vs_owed_cancel(qp, what, left); /* it was going to, and has not */
	}
	if (by((word & VS_PATH_TELLER) >> 16, proc_index))
		vs_owed_migrated(qp, qpn, word);
}
