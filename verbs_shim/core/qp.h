/* Queue pairs: creating, modifying, querying, destroying; handles on shared TGT QPs. */
#ifndef VS_QP_H
#define VS_QP_H

#include "core/objects.h"

/* ibv_create_qp and ibv_create_qp_ex. init's caps are updated to what was granted. NULL and errno: EINVAL (PD, CQ or domain missing
 * or out of place, caps over the device's), EOPNOTSUPP (QP types, comp_mask bits, flags and send operations the HCA has not), ENOMEM. */
struct ibv_qp *vs_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init);
struct ibv_qp *vs_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init);

/* ibv_open_qp: one more handle on a TGT QP of this domain. NULL and errno: EOPNOTSUPP (unknown comp_mask), EINVAL (NUM, XRCD or TYPE
 * missing, other type, no such QP in the domain), ENOMEM. */
struct ibv_qp *vs_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);

/* 0 or an errno value; acts on the real QP through any handle. See qp_modify.c for the order of checks. */
int vs_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);

int vs_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);

/* EBUSY while a UD QP is in a multicast group. Waits for acknowledgements of events already read. Unread
 * completions go with the QP; receive WQEs that it took from an SRQ return there. A TGT QP goes with its last handle. */
int vs_destroy_qp(struct ibv_qp *qp);

/* What the HCA layer does when a QP is made, changes state, or goes; set once. Called with the QP's lock held unless said. */
struct vs_qp_ops {
	void (*flush)(struct vs_qp *qp);   /* now in ERR: complete everything outstanding with WR_FLUSH_ERR */
	void (*reset)(struct vs_qp *qp);   /* now in RESET: forget everything outstanding */
	void (*resume)(struct vs_qp *qp);  /* now in RTS: carry out what was posted while in SQD */
	void (*drain)(struct vs_qp *qp);   /* now in SQD: raise SQ_DRAINED, if asked, as soon as no send is under way */
	void (*init_wr)(struct vs_qp *qp); /* made for ibv_wr_*: set its hooks */
	uint64_t (*operations)(enum ibv_qp_type type); /* that ibv_wr_* offers */
	void (*forget)(struct vs_qp *qp);  /* about to be destroyed: no timer may name it any more; without the lock */
};
extern struct vs_qp_ops vs_qp_ops;

static inline uint32_t vs_path_primary(uint64_t path_word)
{
	return path_word >> 8 & (VS_PATHS - 1);
}

static inline uint32_t vs_path_alternate(uint64_t path_word)
{
	return path_word >> 10 & (VS_PATHS - 1);
}

static inline uint64_t vs_path_choose(uint64_t path_word, uint32_t primary, uint32_t alternate)
{
	return (path_word & ~(uint64_t)0xf00) | primary << 8 | alternate << 10;
}

static inline struct vs_path *vs_qp_primary(struct vs_qp_shm *shm)
{
	return &shm->path[vs_path_primary(vs_load(&shm->path_word))];
}

static inline enum ibv_mig_state vs_qp_mig_state(const struct vs_qp_shm *shm)
{
	return (enum ibv_mig_state)(vs_load(&shm->path_word) & 0xff);
}

/* ARMED -> MIGRATED: what a path word becomes. The alternate path becomes the primary, and this process is to raise IBV_EVENT_PATH_MIG, by
 * vs_owed_migrated. The same, if it was not armed. */
static inline uint64_t vs_path_migrated(uint64_t path_word)
{
	uint32_t teller = vs_slot_index(VS_PROC, vs_me_id) + 1;

	if ((path_word & 0xff) != IBV_MIG_ARMED)
		return path_word;
	path_word = vs_path_choose(path_word, vs_path_alternate(path_word), vs_path_primary(path_word));
	return (path_word & ~(uint64_t)(VS_PATH_TELLER | VS_PATH_LOADED | 0xff)) | teller << 16 | IBV_MIG_MIGRATED;
}

/* Is the HCA there that it was made on? Of any process's QP. */
static inline bool vs_qp_there(const struct vs_qp_shm *shm)
{
	const struct vs_hca_shm *hca = vs_fabric_hca(shm->hca);

	return hca && vs_load_relaxed(&hca->incarnation) == shm->incarnation;
}

/* To ERR, from whatever state it is in meanwhile but RESET. Exactly one caller gets true; it raises the events. */
static inline bool vs_qp_fail(struct vs_qp_shm *shm)
{
	for (;;) {
		uint32_t state = vs_load(&shm->state);

		if (state == IBV_QPS_ERR || state == IBV_QPS_RESET)
			return false;
		if (vs_cas(&shm->state, state, IBV_QPS_ERR))
			return true;
	}
}

static inline enum ibv_qp_state vs_qp_state(const struct vs_qp *qp)
{
	return (enum ibv_qp_state)vs_load(&qp->shm->state);
}

#endif
