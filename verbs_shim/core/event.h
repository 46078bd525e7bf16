/* Asynchronous events on their way: from whoever sees the cause, through the segment, to the contexts of the processes concerned. */
#ifndef VS_EVENT_H
#define VS_EVENT_H

#include "core/objects.h"

/* Leave an event record for a process and wake its engine. Lock-free. */
void vs_event_send(uint32_t proc_id, uint32_t type, enum vs_table table, uint32_t id, uint32_t port);

/* The same of an event that a change raises once, whoever tells of it and how often: number is that of the change, beyond those before it. */
void vs_event_send_once(uint32_t proc_id, uint32_t type, enum vs_table table, uint32_t id, uint32_t number);

/* A QP's affiliated event: to its owner, or for a TGT QP to every process that holds it. Takes no lock; the caller is inside the
 * data path or holds the control lock, or the QP is this process's own and no TGT. number: of PATH_MIG the version of the path word, of
 * PATH_MIG_ERR and SQ_DRAINED, which may come again and again, none; of all others the QP's life. */
void vs_event_qp(const struct vs_qp_shm *qp, uint32_t qpn, uint32_t type, uint32_t number);

/* What whoever put a QP into ERR has to tell: event, and if it has no queue of its own that its last WQE was reached; its owner's engine
 * flushes its queues. As vs_event_qp. */
void vs_event_qp_failed(const struct vs_qp_shm *qp, uint32_t qpn, uint32_t event, uint32_t life);

/* A new QP or handle: what was told before is not for it. */
void vs_event_begin(struct vs_qp *qp);

/* A port's event, to every context of its HCA in every process. */
void vs_event_port(const struct vs_port_shm *port, uint32_t type);

/* Engine: hand every record that waits for this process to its context. */
void vs_event_drain(void);

/* Engine: does the next record wait for its writer, who may have died? */
bool vs_event_stalled(void);

/* Engine: if HCAs were unplugged, tell the contexts that lost theirs: IBV_EVENT_DEVICE_FATAL, and then no events any more. */
void vs_event_tell_lost(void);

/* A new process slot: start at its first record. */
void vs_event_reset(void);

/* Destroying element: forget its unread events, then wait until those read are acknowledged. */
void vs_event_settle_qp(struct vs_qp *qp);
void vs_event_settle_srq(struct vs_srq *srq);
void vs_event_settle_cq(struct vs_cq *cq);

/* ibv_get_async_event, ibv_ack_async_event, ibv_get_cq_event, ibv_ack_cq_events on software contexts. */
int vs_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
void vs_ack_async_event(struct ibv_async_event *event);
int vs_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
void vs_ack_cq_events(struct ibv_cq *cq, unsigned int nevents);

#endif
