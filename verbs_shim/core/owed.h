/* Events that a process owes the holders of a QP that it moved: they come exactly once, whenever it dies.
 *
 * Whoever moves a QP leaves its number in the segment, before the move or by the store that makes it, and takes it out once everybody is
 * told. If it dies in between, the reaper tells in its place; whoever would lose what stands there, by a reset or by the next change of the
 * paths, tells at once, dead or alive, and does not wait to know. So an event may be told twice, and is delivered once: see is_news in
 * event.c. All of these are called inside the data path or with the control lock held, or for this process's own QP that is no TGT. */
#ifndef VS_OWED_H
#define VS_OWED_H

#include "core/objects.h"

/* Before the move: this process is going to tell of it. Returns what the next two ask for. */
uint64_t vs_owed_begin(struct vs_qp_shm *qp, enum vs_owed what, uint32_t event);

/* It is made: tell. */
void vs_owed_tell(struct vs_qp_shm *qp, uint32_t qpn, enum vs_owed what, uint64_t owed);

/* Another made it first, and tells. */
void vs_owed_cancel(struct vs_qp_shm *qp, enum vs_owed what, uint64_t owed);

/* A packet has arrived at a QP in RTR: COMM_EST, if it is the first one. */
void vs_owed_establish(struct vs_qp_shm *qp, uint32_t qpn);

/* This path word has migrated the QP: PATH_MIG, and it names nobody any more. */
void vs_owed_migrated(struct vs_qp_shm *qp, uint32_t qpn, uint64_t path_word);

/* The QP leaves this state, to be reset: tell whatever anybody owes. Control lock held. */
void vs_owed_settle(struct vs_qp_shm *qp, uint32_t qpn, uint32_t state);

/* Whatever the process with this index owed, who is dead. Control lock held. */
void vs_owed_reap(struct vs_qp_shm *qp, uint32_t qpn, uint32_t proc_index);

#endif
