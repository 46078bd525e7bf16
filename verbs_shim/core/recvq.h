/* The owner's side of a receive queue: posting, and taking WQEs back when their completions are consumed. */
#ifndef VS_RECVQ_H
#define VS_RECVQ_H

#include "core/objects.h"

/* Bytes of payload each WQE of a queue can hold in the segment: messages up to there need no system call. */
uint32_t vs_recvq_bounce(uint32_t max_wr);

/* Lay the queue out in the slot's pages (allocated here) and make the owner's side. Control lock held; the slot is not published yet.
 * 0 or ENOMEM. */
int vs_recvq_make(struct vs_recvq *q, struct vs_slot *slot, struct vs_rq *rq, uint32_t max_wr, uint32_t max_sge);

/* Free the owner's side; the pages go with the slot. */
void vs_recvq_free(struct vs_recvq *q);

/* Post a chain. 0, or EINVAL (num_sge over max_sge) or ENOMEM (full) with *bad set to the first not posted. The queue's lock is held. */
int vs_recvq_post(struct vs_recvq *q, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* Whoever is just posting has posted, or sees what was changed before this if it looks after posting, under the lock. */
void vs_recvq_let_finish(struct vs_recvq *q);

/* The WQE is the owner's again. */
void vs_recvq_release(struct vs_recvq *q, uint32_t wqe);

/* Likewise, if this is the posting that a completion speaks of. */
void vs_recvq_reclaim(struct vs_recvq *q, uint32_t wqe, uint32_t generation);

/* Has any taker given a WQE back, or died over one? */
bool vs_recvq_any_returned(struct vs_recvq *q);

/* Post those again, except the ones whose bit is set in unread: their completions are still to be read. */
void vs_recvq_repost_returned(struct vs_recvq *q, const uint64_t *unread);

#endif
