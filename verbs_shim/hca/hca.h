/* What the chip does. The sender runs the responder: a posted WR is carried out at once, in the poster's thread, on the target's
 * queues and memory; only what must wait (RNR, no response) waits for a timer.
 *
 *   post.c       checks a WR and puts it into the send queue
 *   requester.c  carries out what is at the queue's head, completes it, retries it, gives up
 *   responder.c  what the other end's HCA does with the request: who takes it, in which order it is checked
 *   execute.c    the operations: what is taken, moved, changed, and the verdict
 *   path.c       paths of packets, migration
 *   ud.c         datagrams: both ends
 *   place.c      bytes into and out of other processes
 *   receive.c    posting receives, flushing them
 *   poll.c       consuming completions
 *   timer.c      queues that wait */
#ifndef VS_HCA_H
#define VS_HCA_H

#include <sys/uio.h>

#include "core/objects.h"
#include "core/pd.h"
#include "core/qp.h"

/* Let core/ and the engine call up into this layer; once. */
void vs_hca_init(void);

/* ---- the data verbs, as ibv_context_ops calls them ---- */
int vs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int vs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int vs_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int vs_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);

/* 0, or why nothing may be posted to this QP now: EOPNOTSUPP (a TGT), EIO (forked child), EINVAL (before RTS). */
static inline int vs_post_allowed(const struct vs_qp *qp)
{
	enum ibv_qp_state state = vs_qp_state(qp);

	VS_MAY_REFUSE(post_send);
	if (!qp->sq.ring)
		return EOPNOTSUPP; /* a TGT QP only receives */
	if (!vs_me)
		return EIO; /* in a forked child the HCA is the parent's */
	return state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_RTR ? EINVAL : 0;
}

/* Carry out what was put into the send queue; true if something must wait: call vs_timer_add after unlocking. The QP's lock is held. */
bool vs_post_run(struct vs_qp *qp);

/* Kinds of operation, as sets of opcodes. */
#define VS_OP(x) (1u << IBV_WR_##x)
#define VS_OP_SENDS (VS_OP(SEND) | VS_OP(SEND_WITH_IMM))
#define VS_OP_WRITES (VS_OP(RDMA_WRITE) | VS_OP(RDMA_WRITE_WITH_IMM))
#define VS_OP_ATOMICS (VS_OP(ATOMIC_CMP_AND_SWP) | VS_OP(ATOMIC_FETCH_AND_ADD))
#define VS_OP_RETURN_DATA (VS_OP(RDMA_READ) | VS_OP_ATOMICS)
#define VS_OP_IMMEDIATE (VS_OP(SEND_WITH_IMM) | VS_OP(RDMA_WRITE_WITH_IMM))

static inline bool vs_op_is(uint32_t opcode, uint32_t set)
{
	return set >> opcode & 1;
}

/* ibv_create_cq_ex's poll session and read hooks. */
void vs_poll_ex_init(struct vs_cq *cq, uint64_t wc_flags);

/* The next completion for the program; false if there is none. The CQ's lock is held. */
bool vs_poll_next(struct vs_cq *cq, struct ibv_wc *wc);

/* Is there something at the head of the CQ, as seen without its lock? */
static inline bool vs_poll_ready(const struct vs_cq *cq)
{
	return vs_ring_ready(vs_load_relaxed(&cq->ring), vs_load_relaxed(&cq->entries), vs_load_relaxed(&cq->head));
}

/* There is not: look after what may stand still. ENOENT, or EIO: somebody wrote over the ring. */
int vs_poll_nothing(struct vs_cq *cq);

/* ---- requester ---- */

/* Carry out posted WRs until the queue is empty, must wait, or the QP is not in RTS; in SQD only what has begun. The QP's lock is held. */
void vs_requester_run(struct vs_qp *qp, uint64_t now);

/* Is the QP in a state in which whatever is posted to send is flushed: ERR, SQE? */
static inline bool vs_requester_flushes(const struct vs_qp *qp)
{
	enum ibv_qp_state state = vs_qp_state(qp);

	return state == IBV_QPS_ERR || state == IBV_QPS_SQE;
}

/* Complete everything outstanding with WR_FLUSH_ERR. The QP's lock is held. */
void vs_requester_flush(struct vs_qp *qp);

/* Engine: this process's QP was moved to ERR by its peer. */
bool vs_requester_flush_by_number(uint32_t qpn); /* false: its lock is taken, try again */

/* What core/ asks for when a QP changes state. */
extern const struct vs_qp_ops vs_requester_ops;

/* Bytes a WR moves locally, as memory ranges of this process. */
struct vs_local {
	struct iovec iov[VS_MAX_SGE];
	unsigned n;
};

/* Complete the WR at position pos. */
void vs_complete_send(struct vs_qp *qp, uint64_t pos, uint8_t status);

/* ---- responder ---- */

enum vs_verdict {
	VS_ACK,
	VS_RNR,         /* no WQE: *rnr_timer tells when to come again */
	VS_NAK_SEQ,     /* NAK code 0 */
	VS_NAK_INVALID, /* 1 */
	VS_NAK_ACCESS,  /* 2 */
	VS_NAK_OP,      /* 3 */
	VS_NAK_XRC,     /* 4: invalid SRQ number, or one of another domain */
	VS_NO_RESPONSE,
	VS_LOCAL_ERROR, /* *status tells which */
	VS_LATE,       /* ordered: the packet leaves *delay_us later */
	VS_AGAIN,      /* a CQ is being resized: leave the data path and come again */
	VS_CHECK_PEER, /* nobody looked lately whether the process named in *peer_proc is alive: leave the data path and look */
};

struct vs_request {
	struct vs_qp *from;
	const struct vs_send *wr;
	struct vs_local *local;
	uint32_t psn;
	uint32_t packets;
	bool looked; /* after the peer, within this request */
	bool fault_known; /* a packet meets a fault once, however often it is tried within one request */
	enum vs_rule_kind fault;
	uint32_t copies; /* of a multicast datagram, already sent */
	/* answers */
	struct vs_port_shm *departed, *arrived; /* ports of the two ends */
	uint8_t rnr_timer;
	uint8_t status; /* of VS_LOCAL_ERROR */
	uint32_t delay_us; /* of VS_LATE */
	uint32_t peer_proc;
};

/* Count something rare, at a port and at a QP. */
#define VS_COUNT(field, port, qp)                                                                                                  \
	do {                                                                                                                           \
		vs_add_relaxed(&(port)->counters.field, 1);                                                                                \
		vs_add_relaxed(&(qp)->counters.field, 1);                                                                                  \
	} while (0)

/* What was ordered for the packet of this request. */
enum vs_rule_kind vs_request_fault(struct vs_request *req, enum vs_rule_what what);

/* Inside the data path. */
enum vs_verdict vs_respond(struct vs_request *req);

/* ---- datagrams ---- */

/* Send it; there is no answer: VS_ACK once sent, VS_LOCAL_ERROR, or what to do before sending. Inside the data path. */
enum vs_verdict vs_ud_send(struct vs_request *req);

/* ---- receive queues as targets ---- */

/* Fill in where messages for a QP or SRQ go; false: nowhere. */
bool vs_target_of_qp(const struct vs_qp_shm *qp, uint32_t qpn, struct vs_target *t);
bool vs_target_of_srq(struct vs_srq_shm *srq, uint32_t srq_id, struct vs_target *t);

/* A WQE taken for a message, its list copied and checked. */
struct vs_taken {
	uint32_t wqe;
	uint32_t num_sge;
	uint32_t generation;
	uint64_t room;
	struct vs_sge sge[VS_MAX_SGE];
};

/* false: none posted. */
bool vs_take(const struct vs_target *t, struct vs_taken *taken);

/* Are the keys of a taken WQE good? Turns its addresses into the owner's. */
bool vs_taken_valid(const struct vs_target *t, struct vs_taken *taken);

/* Deliver its completion; cqe holds what the caller knows of the message. false: the CQ overran. */
bool vs_complete_recv(const struct vs_target *t, const struct vs_taken *taken, struct vs_cqe *cqe);

/* Does the MR behind a key lie in pd, belong to owner, cover [addr, addr + length) of its I/O addresses and allow access? *at is then the
 * address in the owner's space. */
bool vs_check_key(uint32_t key, uint32_t owner, uint32_t pd, uint64_t addr, uint64_t length, unsigned access, uint64_t *at);

/* ---- placing ---- */

/* Move length bytes between local ranges and checked ranges of another process's regions (write: towards it), for a QP whose lock is held. 0,
 * EFAULT (not mapped there), ESRCH (gone). */
int vs_place(struct vs_qp *from, uint32_t proc_id, bool write, const struct vs_sge *remote, unsigned num_remote, const struct iovec *local,
	     unsigned num_local, uint64_t length);

/* A checked, aligned word of another process's region, to use real atomics on, if it lies in this process as well; else NULL. */
uint64_t *vs_place_word(struct vs_qp *from, uint32_t proc_id, const struct vs_sge *remote);

/* What an atomic makes of a word: FETCH_AND_ADD, or CMP_AND_SWP. */
struct vs_atomic {
	bool add;
	uint64_t compare_add, swap;
};

static inline uint64_t vs_atomic_result(const struct vs_atomic *op, uint64_t old)
{
	if (op->add)
		return old + op->compare_add;
	return old == op->compare_add ? op->swap : old;
}

/* Carry it out by the CPU's own atomics; returns what was there. */
uint64_t vs_place_change(uint64_t *word, const struct vs_atomic *op);

/* The same for a checked, aligned word that only its owner maps, by the owner's engine. 0, EFAULT (not mapped there, or not to be written),
 * ESRCH (gone). */
int vs_place_change_there(uint32_t proc_id, const struct vs_sge *remote, const struct vs_atomic *op, uint64_t *old);

/* Between ranges of this process, front to back; returns bytes copied. */
uint64_t vs_copy_ranges(const struct iovec *dst, unsigned num_dst, const struct iovec *src, unsigned num_src, uint64_t length);

/* Engine: do the copies and atomics that peers ask for. */
void vs_place_serve(void);

/* For every turn of a loop that waits for another process: where the engine runs it, it does what that one may be waiting for. */
void vs_place_serve_meanwhile(void);

/* Was this process seen alive in the last few milliseconds? Cheap. */
bool vs_peer_fresh(uint32_t proc_id);

/* Look; the dead are reaped. Outside the data path, no control lock held. */
void vs_peer_look(uint32_t proc_id);

/* ---- timers ---- */

/* This QP's send queue waits. The QP's lock may be held; on the way of a post it is not, since timers may be running. */
void vs_timer_add(struct vs_qp *qp);
void vs_timer_forget(struct vs_qp *qp);

/* In a forked child, whose parent's threads may have been anywhere. */
void vs_timer_forget_all(void);

/* Run what is due; returns the next deadline, 0 for none. */
uint64_t vs_timer_run(uint64_t now);

/* Does anything wait that is due? For polls. */
void vs_timer_assist(void);

/* Nanoseconds of an RNR NAK timer code, and of an ack timeout code (0: for ever). */
uint64_t vs_rnr_time(uint8_t code);
uint64_t vs_ack_time(uint8_t code);

/* ---- receive side, own queues ---- */

/* Complete everything posted to the QP's own receive queue with WR_FLUSH_ERR. */
void vs_receive_flush(struct vs_qp *qp);
void vs_receive_reset(struct vs_qp *qp);

#endif
