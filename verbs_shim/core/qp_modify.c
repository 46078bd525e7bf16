/* ibv_modify_qp and ibv_query_qp. The checks come in the order of the kernel: what ib_uverbs refuses before it looks at the state
 * (modify_qp in uverbs_cmd.c), the state table (ib_modify_qp_is_ok), what drivers refuse. All of them before any change. */
#include <errno.h>
#include <linux/capability.h>
#include <string.h>

#include "core/capable.h"
#include "core/event.h"
#include "core/limits.h"
#include "core/owed.h"
#include "core/pd.h"
#include "core/qp.h"
#include "core/qp_state.h"

#define KNOWN_MASK                                                                                                                 \
	(IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT |            \
	 IBV_QP_QKEY | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN |                \
	 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_ALT_PATH | IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |                  \
	 IBV_QP_PATH_MIG_STATE | IBV_QP_CAP | IBV_QP_DEST_QPN | IBV_QP_RATE_LIMIT)

#define PSN_MASK 0xffffffu
#define PRIVILEGED_QKEY 0x80000000u

/* ---- before the state ---- */

static int check_av(const struct vs_qp_shm *shm, const struct vs_hca_shm *hca, const struct ibv_qp_attr *attr, int mask)
{
	struct vs_av av;

	if (vs_av_from_attr(hca, &attr->ah_attr, &av) || av.dlid >= VS_LID_LIMIT)
		return EINVAL; /* no multicast for connected QPs */
	/* From INIT the path must leave by the QP's port; in SQD a new one implies the port. */
	if (shm->state == IBV_QPS_INIT && attr->ah_attr.port_num != (mask & IBV_QP_PORT ? attr->port_num : shm->port))
		return EINVAL;
	if (shm->state == IBV_QPS_SQD && (mask & IBV_QP_PORT) && attr->ah_attr.port_num != attr->port_num)
		return EINVAL;
	return 0;
}

static int check_alternate(const struct vs_hca_shm *hca, const struct ibv_qp_attr *attr)
{
	struct vs_av av;

	if (!vs_fabric_port(hca, attr->alt_port_num) || attr->alt_ah_attr.port_num != attr->alt_port_num)
		return EINVAL;
	return vs_av_from_attr(hca, &attr->alt_ah_attr, &av) || av.dlid >= VS_LID_LIMIT ? EINVAL : 0;
}

static int check_ports(const struct vs_qp_shm *shm, const struct vs_hca_shm *hca, const struct ibv_qp_attr *attr, int mask)
{
	if ((mask & IBV_QP_PORT) && !vs_fabric_port(hca, attr->port_num))
		return EINVAL;
	if ((mask & IBV_QP_AV) && check_av(shm, hca, attr, mask))
		return EINVAL;
	return mask & IBV_QP_ALT_PATH ? check_alternate(hca, attr) : 0;
}

static int check_qkey(const struct ibv_qp_attr *attr, int mask)
{
	return (mask & IBV_QP_QKEY) && (attr->qkey & PRIVILEGED_QKEY) && !vs_capable(CAP_NET_RAW) ? EPERM : 0;
}

static int check_attributes(const struct vs_qp_shm *shm, const struct ibv_qp_attr *attr, int mask)
{
	int err = check_ports(shm, vs_fabric_hca(shm->hca), attr, mask);

	if (!err && (mask & IBV_QP_STATE) && (unsigned)attr->qp_state > IBV_QPS_ERR)
		err = EINVAL;
	return err ? err : check_qkey(attr, mask);
}

/* ---- after the state table ---- */

/* The moves that software may ask for. Only hardware arms; what is armed can only be migrated; MIGRATED again is no move, and programs
 * pass it on the way to RTS. */
static int check_migration(const struct vs_qp_shm *shm, const struct ibv_qp_attr *attr, int mask, enum ibv_qp_state next)
{
	bool wanted = mask & IBV_QP_ALT_PATH || (mask & IBV_QP_PATH_MIG_STATE && attr->path_mig_state == IBV_MIG_REARM);

	if (wanted && vs_fabric_ethernet(vs_fabric_hca(shm->hca)))
		return EINVAL; /* the kernel's word, before drivers are asked */
	if (wanted && vs_hidden(VS_CAP_APM))
		return EOPNOTSUPP;
	if (!(mask & IBV_QP_PATH_MIG_STATE))
		return 0;
	switch (attr->path_mig_state) {
	case IBV_MIG_REARM:
		return vs_qp_mig_state(shm) == IBV_MIG_ARMED || next != IBV_QPS_RTS ? EINVAL : 0;
	case IBV_MIG_MIGRATED:
		return vs_qp_mig_state(shm) == IBV_MIG_REARM || (next != IBV_QPS_RTS && next != IBV_QPS_SQD) ? EINVAL : 0;
	default:
		return EINVAL;
	}
}

static bool over(int mask, int bit, unsigned value, unsigned max)
{
	return (mask & bit) && value > max;
}

static int check_values(const struct ibv_qp_attr *attr, int mask)
{
	if ((mask & IBV_QP_PATH_MTU) && (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
		return EINVAL;
	if (over(mask, IBV_QP_PKEY_INDEX, attr->pkey_index, VS_PKEY_TABLE - 1) ||
	    over(mask, IBV_QP_ALT_PATH, attr->alt_pkey_index, VS_PKEY_TABLE - 1) || over(mask, IBV_QP_ALT_PATH, attr->alt_timeout, 31) ||
	    over(mask, IBV_QP_MAX_QP_RD_ATOMIC, attr->max_rd_atomic, VS_MAX_RD_ATOMIC) ||
	    over(mask, IBV_QP_MAX_DEST_RD_ATOMIC, attr->max_dest_rd_atomic, VS_MAX_RD_ATOMIC) ||
	    over(mask, IBV_QP_MIN_RNR_TIMER, attr->min_rnr_timer, 31) || over(mask, IBV_QP_RETRY_CNT, attr->retry_cnt, 7) ||
	    over(mask, IBV_QP_RNR_RETRY, attr->rnr_retry, 7) || over(mask, IBV_QP_TIMEOUT, attr->timeout, 31))
		return EINVAL;
	return 0;
}

static int check_state(const struct vs_qp_shm *shm, const struct ibv_qp_attr *attr, int mask, enum ibv_qp_state *next)
{
	enum ibv_qp_state real = (enum ibv_qp_state)shm->state;
	enum ibv_qp_state cur = mask & IBV_QP_CUR_STATE ? attr->cur_qp_state : real;

	*next = mask & IBV_QP_STATE ? attr->qp_state : cur;
	if (cur != real)
		return EINVAL;
	return vs_qp_modify_ok((enum ibv_qp_type)shm->type, cur, *next, mask) ? 0 : EINVAL;
}

static int check_all(const struct vs_qp_shm *shm, const struct ibv_qp_attr *attr, int *mask, enum ibv_qp_state *next)
{
	int err;

	if (*mask & ~KNOWN_MASK)
		return EOPNOTSUPP;
	err = check_attributes(shm, attr, *mask);
	if (err)
		return err;
	*mask = vs_qp_strip_mask((enum ibv_qp_type)shm->type, *mask);
	err = check_state(shm, attr, *mask, next);
	if (!err)
		err = check_migration(shm, attr, *mask, *next);
	return err ? err : check_values(attr, *mask);
}

/* ---- applying ---- */

#define IN_PRIMARY (IBV_QP_PKEY_INDEX | IBV_QP_AV | IBV_QP_TIMEOUT)

/* A path that is not in use; the word names two of four. Packets that came before the word moved may still look at it: they migrate by the
 * word that they saw, and any other that is dropped for that comes again. */
static uint32_t spare(uint64_t path_word, uint32_t also_taken)
{
	uint32_t i = 0;

	while (i == vs_path_primary(path_word) || i == vs_path_alternate(path_word) || i == also_taken)
		i++;
	return i;
}

static void write_primary(struct vs_qp_shm *shm, const struct vs_path *from, struct vs_path *to, const struct ibv_qp_attr *attr, int mask)
{
	*to = *from;
	if (mask & IBV_QP_PKEY_INDEX)
		to->pkey_index = attr->pkey_index;
	if (mask & IBV_QP_AV)
		vs_av_from_attr(vs_fabric_hca(shm->hca), &attr->ah_attr, &to->av);
	VS_POINT(path_begun);
	if (mask & IBV_QP_TIMEOUT)
		to->timeout = attr->timeout;
}

static void write_alternate(struct vs_qp_shm *shm, struct vs_path *to, const struct ibv_qp_attr *attr)
{
	vs_av_from_attr(vs_fabric_hca(shm->hca), &attr->alt_ah_attr, &to->av);
	VS_POINT(path_begun);
	to->pkey_index = attr->alt_pkey_index;
	to->timeout = attr->alt_timeout;
}

/* What the path word becomes: the paths that are new lie ready then. */
static uint64_t new_paths(struct vs_qp_shm *shm, uint64_t word, const struct ibv_qp_attr *attr, int mask)
{
	uint32_t primary = vs_path_primary(word), alternate = vs_path_alternate(word);

	if (mask & IN_PRIMARY) {
		primary = spare(word, VS_PATHS);
		write_primary(shm, &shm->path[vs_path_primary(word)], &shm->path[primary], attr, mask);
	}
	if (mask & IBV_QP_ALT_PATH) {
		alternate = spare(word, primary);
		write_alternate(shm, &shm->path[alternate], attr);
		word |= VS_PATH_LOADED;
	}
	word = vs_path_choose(word, primary, alternate);
	if (!(mask & IBV_QP_PATH_MIG_STATE))
		return word;
	return attr->path_mig_state == IBV_MIG_MIGRATED ? vs_path_migrated(word) : (word & ~(uint64_t)0xff) | attr->path_mig_state;
}

/* The path word without a teller, whose place another may need: then PATH_MIG is told now. */
static uint64_t told_paths(const struct vs_qp *qp)
{
	for (;;) {
		uint64_t word = vs_load(&qp->shm->path_word);

		if (!(word & VS_PATH_TELLER))
			return word;
		vs_owed_migrated(qp->shm, qp->id, word);
	}
}

/* One store changes both paths and the migration state, whatever packets do to that meanwhile, so nobody finds half of it; and whoever
 * cached how to reach this QP looks again. Returns the path word. */
static uint64_t apply_paths(const struct vs_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	uint64_t word, next;

	do {
		word = told_paths(qp);
		next = new_paths(qp->shm, word, attr, mask) + VS_PATH_VERSION;
		VS_POINT(path_written);
	} while (!vs_cas(&qp->shm->path_word, word, next));
	if (next & VS_PATH_TELLER)
		VS_POINT(path_migrated);
	return next;
}

static void apply_connection(struct vs_qp_shm *shm, const struct ibv_qp_attr *attr, int mask)
{
	if (mask & IBV_QP_PORT)
		shm->port = attr->port_num;
	if (mask & IBV_QP_AV)
		shm->port = attr->ah_attr.port_num;
	if (mask & IBV_QP_PATH_MTU)
		shm->path_mtu = (uint8_t)attr->path_mtu;
	if (mask & IBV_QP_DEST_QPN)
		shm->dest_qpn = attr->dest_qp_num & PSN_MASK;
	if (mask & IBV_QP_QKEY)
		shm->qkey = attr->qkey;
}

static void apply_rest(struct vs_qp_shm *shm, const struct ibv_qp_attr *attr, int mask)
{
	if (mask & IBV_QP_ACCESS_FLAGS)
		shm->access = attr->qp_access_flags;
	if (mask & IBV_QP_RQ_PSN)
		shm->rq_psn = shm->epsn = attr->rq_psn & PSN_MASK;
	if (mask & IBV_QP_SQ_PSN)
		shm->sq_psn = attr->sq_psn & PSN_MASK;
	if (mask & IBV_QP_RETRY_CNT)
		shm->retry_cnt = attr->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		shm->rnr_retry = attr->rnr_retry;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		shm->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		shm->max_rd_atomic = attr->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		shm->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_SQD && shm->state == IBV_QPS_RTS)
		shm->sqd_notify = mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify; /* of this move alone */
}

static void reset_paths(const struct vs_qp *qp)
{
	uint64_t word;

	do {
		word = told_paths(qp);
	} while (!vs_cas(&qp->shm->path_word, word, (word & ~(VS_PATH_VERSION - 1)) | VS_PATH_FRESH));
	memset(qp->shm->path, 0, sizeof(qp->shm->path));
}

/* Once when it gets there, and again when it leaves: whoever reset a shared one may have died over it. */
static void reset_slot(const struct vs_qp *qp)
{
	struct vs_qp_shm *shm = qp->shm;

	vs_add(&shm->life, 1);
	shm->access = shm->dest_qpn = shm->qkey = shm->rq_psn = shm->sq_psn = shm->port = shm->epsn = shm->msn = 0;
	shm->path_mtu = shm->min_rnr_timer = shm->retry_cnt = shm->rnr_retry = 0;
	shm->max_rd_atomic = shm->max_dest_rd_atomic = shm->sqd_notify = 0;
	reset_paths(qp);
	memset(shm->saved, 0, sizeof(shm->saved));
}

/* The requester's running values start from the attributes; only this process's own QP has a requester. */
static void start_requester(struct vs_qp *qp, int mask)
{
	if (mask & IBV_QP_SQ_PSN)
		vs_store_relaxed(&qp->sq.psn, qp->shm->sq_psn);
	if (mask & IBV_QP_RETRY_CNT)
		qp->sq.retries = qp->shm->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		qp->sq.rnr_retries = qp->shm->rnr_retry;
}

static void tell_migrated(const struct vs_qp *qp, uint64_t path_word)
{
	struct vs_hazard *h = vs_enter();

	vs_owed_migrated(qp->shm, qp->id, path_word);
	vs_exit(h);
}

static void tell_stopped(const struct vs_qp *qp, uint64_t owed)
{
	struct vs_hazard *h = vs_enter();

	vs_owed_tell(qp->shm, qp->id, VS_OWED_STOPPED, owed);
	vs_exit(h);
}

/* What the move means for outstanding work. stopped: it is this one that put the QP into ERR, and what it owes. The QP's lock is held, the
 * control lock is not; peers may still be inside an old state. */
static void after_move(struct vs_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to, uint64_t stopped)
{
	if (to == from)
		return;
	if (to == IBV_QPS_ERR) {
		vs_quiesce();
		if (stopped)
			tell_stopped(qp, stopped);
		vs_qp_ops.flush(qp);
	} else if (to == IBV_QPS_RESET) {
		vs_quiesce();
		vs_qp_ops.reset(qp);
	} else if (to == IBV_QPS_SQD) {
		vs_qp_ops.drain(qp);
	} else if (to == IBV_QPS_RTS && from == IBV_QPS_SQD) {
		vs_qp_ops.resume(qp);
	}
}

/* To ERR. Returns what is to be told of that. */
static uint64_t stop(const struct vs_qp *qp)
{
	bool tells = qp->ibv.qp_type == IBV_QPT_XRC_RECV || qp->srq;
	uint64_t owed = tells ? vs_owed_begin(qp->shm, VS_OWED_STOPPED, IBV_EVENT_QP_LAST_WQE_REACHED) : 0;

	if (vs_exchange(&qp->shm->state, IBV_QPS_ERR) == IBV_QPS_ERR) {
		if (tells)
			vs_owed_cancel(qp->shm, VS_OWED_STOPPED, owed);
		return 0;
	}
	VS_POINT(qp_stopped);
	return owed;
}

/* A peer may put the QP into ERR at any moment: then only ERR and RESET can still be reached. Attributes of a QP in RESET are cleared
 * under the same lock, so that another holder's next move does not lose its own. */
static int set_state(const struct vs_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to, uint64_t *stopped)
{
	struct vs_qp_shm *shm = qp->shm;

	if (to == IBV_QPS_ERR)
		*stopped = stop(qp);
	else if (to == IBV_QPS_RESET)
		vs_owed_settle(shm, qp->id, vs_exchange(&shm->state, (uint32_t)to));
	else if (!vs_cas(&shm->state, (uint32_t)from, (uint32_t)to))
		return EINVAL;
	VS_POINT(qp_reset);
	if (to == IBV_QPS_RESET)
		reset_slot(qp);
	return 0;
}

/* The control lock, with nobody inside any more who would write into the responder what belongs to the QP as it was before a reset. Whoever
 * resets a QP waits for that, but other holders of a TGT need not wait for the one that does. A new QP was not reset yet. */
static void lock_settled(const struct vs_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	bool begins = qp->ibv.qp_type == IBV_QPT_XRC_RECV && (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RTR;

	for (;;) {
		uint64_t seen = vs_load(&qp->shm->path_word);

		if (begins && seen >> 32 > 1)
			vs_quiesce();
		vs_control_lock();
		if (!begins || vs_load(&qp->shm->path_word) == seen)
			return;
		vs_control_unlock(); /* another holder did something meanwhile */
	}
}

int vs_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	VS_ASKS_KERNEL(modify_qp, ibqp->context);
	struct vs_qp *qp = vs_qp(ibqp);
	enum ibv_qp_state from, to;
	uint64_t path_word = 0, stopped = 0;
	int err;

	vs_lock(&qp->lock);
	lock_settled(qp, attr, mask);
	from = vs_qp_state(qp);
	err = check_all(qp->shm, attr, &mask, &to);
	if (!err) {
		if (from == IBV_QPS_RESET)
			reset_slot(qp);
		apply_connection(qp->shm, attr, mask);
		VS_POINT(qp_applied);
		apply_rest(qp->shm, attr, mask);
		path_word = apply_paths(qp, attr, mask);
		err = set_state(qp, from, to, &stopped);
		start_requester(qp, mask);
	}
	vs_control_unlock();
	if (path_word & VS_PATH_TELLER)
		tell_migrated(qp, path_word);
	VS_POINT(qp_moved);
	if (!err) {
		after_move(qp, from, to, stopped);
		ibqp->state = to;
	}
	vs_unlock(&qp->lock);
	return err;
}

/* ---- query ---- */

static void query_attr(struct vs_qp_shm *shm, struct ibv_qp_attr *attr)
{
	uint64_t word = vs_load(&shm->path_word);
	const struct vs_path *primary = &shm->path[vs_path_primary(word)], *alternate = &shm->path[vs_path_alternate(word)];
	enum ibv_qp_state state = (enum ibv_qp_state)vs_load(&shm->state); /* a peer or a timer may move it now */
	bool connected = primary->av.port != 0;

	*attr = (struct ibv_qp_attr){
		.qp_state = state,
		.cur_qp_state = state,
		.path_mtu = (enum ibv_mtu)shm->path_mtu,
		.path_mig_state = (enum ibv_mig_state)(word & 0xff),
		.qkey = shm->qkey,
		.rq_psn = vs_load_relaxed(&shm->epsn),
		.sq_psn = shm->sq_psn,
		.dest_qp_num = shm->dest_qpn,
		.qp_access_flags = shm->access,
		.pkey_index = primary->pkey_index,
		.max_rd_atomic = shm->max_rd_atomic,
		.max_dest_rd_atomic = shm->max_dest_rd_atomic,
		.min_rnr_timer = shm->min_rnr_timer,
		.port_num = connected ? primary->av.port : (uint8_t)shm->port,
		.timeout = primary->timeout,
		.retry_cnt = shm->retry_cnt,
		.rnr_retry = shm->rnr_retry,
	};
	attr->cap.max_send_wr = shm->max_send_wr;
	attr->cap.max_recv_wr = shm->max_recv_wr;
	attr->cap.max_send_sge = shm->max_send_sge;
	attr->cap.max_recv_sge = shm->max_recv_sge;
	attr->cap.max_inline_data = shm->max_inline;
	vs_av_to_attr(&primary->av, &attr->ah_attr);
	/* After a migration the alternate reads as the path in use, until another is loaded. */
	if (!(word & VS_PATH_LOADED) && alternate->av.port)
		alternate = primary;
	if (!alternate->av.port)
		return;
	vs_av_to_attr(&alternate->av, &attr->alt_ah_attr);
	attr->alt_port_num = alternate->av.port;
	attr->alt_pkey_index = alternate->pkey_index;
	attr->alt_timeout = alternate->timeout;
}

int vs_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	VS_ASKS_KERNEL(query_qp, ibqp->context);
	struct vs_qp *qp = vs_qp(ibqp);

	(void)mask; /* everything is cheap */
	vs_control_lock();
	query_attr(qp->shm, attr);
	vs_control_unlock();
	if (ibqp->qp_type != IBV_QPT_XRC_RECV && qp->sq.ring) {
		attr->sq_psn = vs_load_relaxed(&qp->sq.psn);
		attr->sq_draining = attr->qp_state == IBV_QPS_SQD && vs_load_relaxed(&qp->sq.draining);
	}
	*init = (struct ibv_qp_init_attr){
		.qp_context = ibqp->qp_context,
		.send_cq = ibqp->send_cq,
		.recv_cq = ibqp->recv_cq,
		.srq = ibqp->srq,
		.cap = attr->cap,
		.qp_type = ibqp->qp_type,
		.sq_sig_all = (int)qp->shm->sq_sig_all,
	};
	ibqp->state = attr->qp_state;
	return 0;
}
