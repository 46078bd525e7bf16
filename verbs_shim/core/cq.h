/* Completion queues: the object, arming, and delivering completions into them. Consuming is the HCA layer's (hca/poll.c). */
#ifndef VS_CQ_H
#define VS_CQ_H

#include "core/objects.h"

/* cqe: completions it must hold at least; the true number is in the result. NULL and errno: EINVAL (cqe out of range, comp_vector),
 * ENOMEM. */
struct ibv_cq *vs_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int comp_vector);

/* ibv_create_cq_ex. EOPNOTSUPP also for timestamps and other wc_flags beyond IBV_WC_STANDARD_FLAGS, and for unknown flags. */
struct ibv_cq_ex *vs_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);

/* Give the CQ room for cqe completions at least; unread ones stay. EINVAL: out of range, or less than are unread. ENOMEM. */
int vs_resize_cq(struct ibv_cq *cq, int cqe);

/* Whoever waits for a CQ that is being resized waits for one who may be waiting for others, with patience of its own. */
#define VS_RESIZE_ROUNDS 3u

/* CQs of this process that are said to be in the middle of a resize and are not, since others can write that: put it right. By the engine,
 * and by whoever waits; does nothing while the list of objects is in use. */
void vs_cq_right_resizing(void);

/* Is this CQ (id; 0: none) being resized? Then leave the data path and come again. Seeing that no resize is under way any more, one also
 * sees what the last one did. */
bool vs_cq_resizing_slow(uint32_t cq_id);

static inline bool vs_cq_resizing(uint32_t cq_id)
{
	return vs_load(&vs_seg->resizes) && vs_cq_resizing_slow(cq_id);
}

/* Enter the data path while this CQ (id; 0: none) is not being resized. */
struct vs_hazard *vs_enter_cq(uint32_t cq_id);

/* What the HCA layer adds to a CQ made by ibv_create_cq_ex; set once. */
extern void (*vs_cq_init_ex)(struct vs_cq *cq, uint64_t wc_flags);

/* EBUSY while a QP or XRC SRQ uses it; waits for acknowledgements of events already read. */
int vs_destroy_cq(struct ibv_cq *cq);

/* ibv_req_notify_cq. */
int vs_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* Find the ring of the CQ that view->id names, unless view says it already; whoever owns it. false: it is being resized, leave the data
 * path and come again. Inside the data path, where the answer holds until that is left. */
bool vs_cq_ready(struct vs_cq_view *view);

/* Deliver a completion into a CQ that is ready; one that nobody has any more swallows it. false: overrun, and the owner is told
 * (IBV_EVENT_CQ_ERR); the caller moves the QP to ERR. Inside the data path. */
bool vs_cq_push(const struct vs_cq_view *view, const struct vs_cqe *cqe);

/* The same for a CQ of this process that something alive uses, entered with vs_enter_cq: its ring is known. */
bool vs_cq_push_own(struct vs_cq *cq, const struct vs_cqe *cqe);

/* Set the bits of the WQEs of queue rq (as in vs_cqe) whose completions lie unread in this CQ. false: the program is just reading it,
 * nothing was set. */
bool vs_cq_mark_unread(struct vs_cq *cq, uint32_t rq, const struct vs_posted_recv *posted, uint32_t pool_entries, uint64_t *unread);

/* Reaper: a producer died. If entries that it had claimed were rolled on, what lies behind them can be read now; if it had delivered one,
 * it may not have come to raising the event, nor to telling of an overrun. Once too often does no harm. */
void vs_cq_reaped(struct vs_cq_shm *cq, uint32_t cq_id, const struct vs_cqe *ring, uint32_t entries, bool rolled, uint32_t proc_id);

/* Reaper: a process may have died resizing a CQ of its own. */
void vs_cq_count_resizes(void);

/* If the CQ stands still at an entry that a producer has claimed and not finished, the engine watches it from now on. Without lock. */
void vs_cq_look_stalled(struct vs_cq *cq);
extern uint32_t vs_cq_stall_seen;

/* Engine: does any CQ of this process stand still at an entry that a producer claimed and has not finished, or may do so, since the program
 * is just reading it? */
bool vs_cq_any_stalled(void);

/* Engine: completion events that producers in other processes left for this one. */
void vs_cq_notify_fired(void);

/* Turn unread send completions of QP qpn and receive completions of queue rq (0: none such) into void ones.
 * For queues being destroyed: the WQEs behind them have no place to go back to. */
void vs_cq_purge(struct vs_cq *cq, uint32_t qpn, uint32_t rq);

/* Likewise what QP qpn received through a basic SRQ, which goes on: the WQEs go back to it. */
void vs_cq_purge_srq(struct vs_cq *cq, uint32_t qpn, struct vs_srq *srq);

#endif
