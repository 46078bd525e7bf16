/* What one process holds of each object: the ibv_* structure that programs see, first, and beside it the way to the object's slot
 * in the segment. Memory of this process alone; nothing here is believed by other processes. */
#ifndef VS_OBJECTS_H
#define VS_OBJECTS_H

#include <infiniband/verbs.h>
#include <pthread.h>

#include "core/lock.h"
#include "core/notifier.h"
#include "fabric/faults.h"
#include "memory/ring.h"

#define vs_container(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

struct vs_device {
	struct ibv_device ibv;
	char behind[512]; /* zeros: some programs look past the public structure */
	uint32_t hca;     /* slot number */
};

struct vs_context {
	struct verbs_context v; /* v.context is what programs hold */
	struct vs_device *device;
	struct vs_hca_shm *hca;
	uint32_t hca_index;
	uint32_t incarnation; /* of the HCA, when it was opened */
	uint32_t number; /* in the slots of what is made through it */
	bool told;       /* that the HCA is lost; under vs_objects_lock */
	bool lost_is_destroyed; /* destroy verbs succeed on what a lost HCA had */
	struct vs_notifier async;
	struct vs_context *next; /* all contexts, under vs_objects_lock */
};

struct vs_pd {
	struct ibv_pd ibv;
	uint32_t id;
	uint32_t ahs; /* address handles made of it; atomic */
};

struct vs_ah {
	struct ibv_ah ibv;
	struct vs_av av;
};

struct vs_mr {
	struct ibv_mr ibv;
	uint32_t id; /* also lkey and rkey */
};

struct vs_channel {
	struct ibv_comp_channel ibv;
	struct vs_notifier notifier;
	struct vs_channel *next; /* all channels, under vs_objects_lock */
};

struct vs_cq {
	union {
		struct ibv_cq ibv;
		struct ibv_cq_ex ibv_ex;
	};
	uint32_t id;
	uint32_t entries;
	struct vs_cq_shm *shm;
	struct vs_cqe *ring;
	uint64_t head; /* next to consume; written under lock */
	struct vs_lock lock;
	uint64_t stalled_at; /* position where polls found an entry that its producer has not finished, */
	uint32_t stalled_polls; /* and how many; hints, without lock */
	struct vs_reported comp_reported;
	struct vs_reported async_reported;
	bool told; /* of its overrun, under vs_objects_lock */
	struct ibv_wc current; /* of an ibv_start_poll session, which holds the lock */
	bool resizing; /* by this process; what the segment says, others can write */
	struct vs_cq *next; /* those with a channel, under vs_objects_lock */
};

/* The owner's own record of a posted receive: what it believes when the completion names the WQE. */
struct vs_posted_recv {
	bool outstanding;
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t generation;
	struct vs_sge *sge;
};

/* Owner's side of a receive queue. */
struct vs_recvq {
	struct vs_rq_view view;
	struct vs_lock lock;
	struct vs_posted_recv *posted; /* by pool index */
	struct vs_sge *sges;
	uint16_t *free_stack;
	uint32_t num_free;
	uint32_t max_sge;
};

struct vs_srq {
	struct ibv_srq ibv;
	uint32_t id; /* for XRC also the number on the wire */
	enum ibv_srq_type type;
	struct vs_srq_shm *shm;
	struct vs_recvq rq;
	struct vs_cq *cq;
	struct vs_reported reported;
	uint32_t armings; /* of its limit */
	uint32_t told;    /* the last one that an event told of, under vs_objects_lock */
};

struct vs_xrcd {
	struct ibv_xrcd ibv;
	uint32_t id;     /* of the domain */
	uint32_t ref_id; /* of this handle */
	int fd;          /* keeps the inode from being used again; -1: private domain */
	struct vs_xrcd *next; /* of this process, under vs_objects_lock */
};

/* One posted send. */
struct vs_send {
	uint64_t wr_id;
	uint64_t remote_addr;
	uint64_t compare_add; /* atomics */
	uint64_t swap;
	uint32_t rkey;
	uint32_t srqn;
	uint32_t length;
	uint32_t imm;
	uint16_t num_sge;
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t flags;  /* enum ibv_send_flags */
	uint8_t started;
	uint8_t late; /* has been held back as ordered */
	struct vs_ah *ah;
	uint32_t remote_qpn;
	uint32_t remote_qkey;
	struct vs_sge *sge;
	char *inline_data;
};

/* Requester side; under lock. Positions only grow: tail <= exec <= head. */
struct vs_sendq {
	struct vs_send *ring;
	struct vs_sge *sges;
	char *inline_area;
	uint32_t mask;
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t max_inline;
	uint64_t head; /* next to post */
	uint64_t exec; /* next to carry out */
	uint64_t tail; /* oldest not retired; moved by poll */
	uint32_t psn;
	uint32_t retries; /* left */
	const struct vs_path *tried; /* the primary path of the last try */
	uint32_t rnr_retries;
	uint64_t deadline; /* when to try exec again; 0: it has not been tried */
	bool draining;     /* SQ_DRAINED is to come: in SQD while exec is under way; atomic */
	uint64_t build;    /* end of what an ibv_wr_start session has built, which holds the lock */
	int build_error;
};

/* Where a connected QP's requests go: found once, looked for again when one of the words that decide it has moved. */
struct vs_peer {
	uint32_t epoch; /* of the fabric; 0: not known */
	uint32_t looked; /* its epoch before the look that this comes from */
	uint32_t word;  /* of the peer QP's slot */
	uint64_t my_path, its_path; /* path words of both ends */
	struct vs_qp_shm *qp;
	struct vs_port_shm *from; /* where requests leave */
	struct vs_port_shm *port; /* where they arrive */
};

/* Where a CQ's completions go: its ring, as vs_cq_ready found it. */
struct vs_cq_view {
	uint32_t id;       /* 0: no CQ */
	uint32_t word;     /* of its slot */
	uint32_t ext_page; /* where the ring lies, */
	uint32_t entries;  /* and its size, checked */
	struct vs_cq_shm *shm;
	struct vs_cqe *ring; /* NULL: there is none */
};

/* Where messages for a QP or SRQ go. Nothing of it changes while the queue's object lives, nor while the QP does that they come through: a
 * requester keeps what it has found and checked, and looks again when one of these has another life. */
struct vs_target {
	const struct vs_slot *slot; /* of the queue's object */
	uint32_t word;              /* of that slot, */
	const struct vs_qp_shm *peer; /* the QP it was found through; NULL: nothing is known */
	uint32_t peer_word;         /* of its slot */
	uint32_t srqn;              /* that the request named; 0 where it names none */
	struct vs_rq_view view;
	uint32_t owner; /* process id */
	uint32_t pd;      /* of the WQEs' keys */
	uint32_t rdma_pd; /* of remote keys: the SRQ's under XRC, else the QP's */
	struct vs_cq_view cq;
	uint32_t rq; /* as in vs_cqe */
	struct vs_srq_shm *srq;
	uint32_t srq_id;
};

/* Where a part of a peer's region lies in this process, or that it lies nowhere: core/window.c. */
struct vs_window {
	uint32_t key;   /* of the region; 0: nothing is known */
	uint32_t epoch; /* of what this process has registered itself */
	uint64_t region_addr, region_length; /* as the region's slot said, */
	struct vs_backing backing;           /* and its file */
	uint64_t addr, length; /* the part, in its owner's addresses */
	char *at;              /* the same here; NULL: nowhere */
	bool write;            /* for writing */
};

/* Numbers of the last events of a QP that each change raises once. */
struct vs_told {
	uint32_t migrated; /* version of the path word */
	uint32_t established, failed, last_wqe; /* the QP's life */
};

#define VS_WINDOWS 16u /* of a QP; power of two */
#define VS_TARGETS 16u /* likewise: SRQs that its messages go to in turn */

struct vs_qp {
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ibv_ex;
	};
	uint32_t id;     /* QPN */
	uint32_t ref_id; /* XRC_RECV: this handle */
	struct vs_qp_shm *shm;
	uint32_t hca_index;
	uint32_t incarnation; /* as its context's */
	const struct vs_hca_shm *hca;
	struct vs_pd *pd;
	struct vs_cq *send_cq;
	struct vs_cq *recv_cq;
	struct vs_srq *srq;
	struct vs_xrcd *xrcd;
	struct vs_lock lock;
	struct vs_sendq sq;
	struct vs_recvq rq;
	struct vs_peer peer;
	struct vs_window windows[VS_WINDOWS]; /* under lock */
	struct vs_target targets[VS_TARGETS]; /* likewise */
	struct vs_reported reported;
	struct vs_told told; /* under vs_objects_lock */
	bool has_wr_hooks; /* created for ibv_wr_* */
	bool no_own_mcast; /* IBV_QP_CREATE_BLOCK_SELF_MCAST_LB: it gets no copy of what it sends itself */
	struct vs_qp *next_waiting; /* QPs whose send queue waits for a timer, under the timer lock */
	bool waiting;
};

static inline struct vs_context *vs_context(struct ibv_context *c)
{
	return vs_container(c, struct vs_context, v.context);
}

/* ---- HCAs that were unplugged ---- */

/* Was the HCA unplugged since this context was opened? It may be back, but not for this context. */
static inline bool vs_lost(const struct vs_context *c)
{
	return vs_load_relaxed(&c->hca->incarnation) != c->incarnation;
}

static inline bool vs_qp_lost(const struct vs_qp *qp)
{
	return vs_load_relaxed(&qp->hca->incarnation) != qp->incarnation;
}

/* Why a verb that asks the kernel fails before it begins; 0: it may. */
static inline int vs_kernel_refuses(enum vs_verb verb, struct ibv_context *context)
{
	int err = vs_refused(verb);

	return err ? err : vs_lost(vs_context(context)) ? EIO : 0;
}

/* A destroy verb gets the same answer from the kernel, which has nothing left to destroy, and may take it for success. */
static inline int vs_kernel_keeps(enum vs_verb verb, struct ibv_context *context)
{
	int err = vs_refused(verb);

	return err ? err : vs_lost(vs_context(context)) && !vs_context(context)->lost_is_destroyed ? EIO : 0;
}

/* First line of a verb that asks the kernel: fail as ordered, or since the HCA is lost. */
#define VS_ASKS_KERNEL(verb, context) VS_RETURN_IF(vs_kernel_refuses(VS_VERB_##verb, context))
#define VS_ASKS_KERNEL_POINTER(verb, context) VS_RETURN_NULL_IF(vs_kernel_refuses(VS_VERB_##verb, context))
#define VS_DESTROYS(verb, context) VS_RETURN_IF(vs_kernel_keeps(VS_VERB_##verb, context))

static inline struct vs_pd *vs_pd(struct ibv_pd *p)
{
	return vs_container(p, struct vs_pd, ibv);
}

static inline struct vs_cq *vs_cq(struct ibv_cq *p)
{
	return vs_container(p, struct vs_cq, ibv);
}

static inline struct vs_srq *vs_srq(struct ibv_srq *p)
{
	return vs_container(p, struct vs_srq, ibv);
}

static inline struct vs_qp *vs_qp(struct ibv_qp *p)
{
	return vs_container(p, struct vs_qp, ibv);
}

/* This process's objects by slot number; written under vs_objects_lock, read by their users without. */
extern VS_HIDDEN struct vs_qp *vs_local_qp[];
extern struct vs_qp *vs_local_qp_ref[];
extern VS_HIDDEN struct vs_srq *vs_local_srq[];
extern VS_HIDDEN struct vs_cq *vs_local_cq[];
extern pthread_mutex_t vs_objects_lock;
extern struct vs_context *vs_contexts;
extern struct vs_cq *vs_channel_cqs;
extern struct vs_channel *vs_channels;

#endif
