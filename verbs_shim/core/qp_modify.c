/* ibv_modify_qp and ibv_query_qp. The checks come in the order of the kernel: what ib_uverbs refuses before it looks at the state
 * (modify_qp in uverbs_cmd.c), the state table (ib_modify_qp_is_ok), what drivers refuse. All of them before any change. */
#include <errno.h>
#include <linux/capability.h>
#include <string.h>

#include "core/capable.h"
#include "core/event.h"
#include "core/limits.h"
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

bool vs_qp_migrate(struct vs_qp_shm *shm)
{
	uint32_t word = vs_load(&shm->path_word), primary = word >> 8 & 1;

	if ((word & 0xff) != IBV_MIG_ARMED || !vs_cas(&shm->path_word, word, (word & ~0x1ffu) | (primary ^ 1) << 8 | IBV_MIG_MIGRATED))
		return false;
	VS_POINT(path_migrated);
	vs_store(&shm->path[primary].loaded, 0); /* the old path is no alternate until it is loaded as one */
	return true;
}

static void apply_path(struct vs_qp_shm *shm, const struct ibv_qp_attr *attr, int mask)
{
	struct vs_path *primary = vs_qp_primary(shm);

	if (mask & IBV_QP_PKEY_INDEX)
		primary->pkey_index = attr->pkey_index;
	if (mask & IBV_QP_PORT)
		shm->port = attr->port_num;
	if (mask & IBV_QP_AV) {
		vs_av_from_attr(vs_fabric_hca(shm->hca), &attr->ah_attr, &primary->av);
		shm->port = attr->ah_attr.port_num;
	}
	if (mask & IBV_QP_TIMEOUT)
		primary->timeout = attr->timeout;
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

/* Returns true if software migrated an armed QP. */
static bool apply_migration(struct vs_qp_shm *shm, const struct ibv_qp_attr *attr, int mask)
{
	struct vs_path *alternate = vs_qp_alternate(shm);

	if (mask & IBV_QP_ALT_PATH) {
		vs_av_from_attr(vs_fabric_hca(shm->hca), &attr->alt_ah_attr, &alternate->av);
		alternate->pkey_index = attr->alt_pkey_index;
		alternate->timeout = attr->alt_timeout;
		vs_store(&alternate->loaded, 1);
	}
	if (!(mask & IBV_QP_PATH_MIG_STATE))
		return false;
	if (attr->path_mig_state == IBV_MIG_MIGRATED)
		return vs_qp_migrate(shm);
	vs_store_full(&shm->path_word, (vs_load(&shm->path_word) & ~0xffu) | attr->path_mig_state);
	return false;
}

/* Once when it gets there, and again when it leaves: whoever reset a shared one may have died over it. */
static void reset_slot(struct vs_qp_shm *shm)
{
	vs_store(&shm->failing, 0);
	shm->access = shm->dest_qpn = shm->qkey = shm->rq_psn = shm->sq_psn = shm->port = shm->epsn = shm->msn = 0;
	shm->path_mtu = shm->min_rnr_timer = shm->retry_cnt = shm->rnr_retry = 0;
	shm->max_rd_atomic = shm->max_dest_rd_atomic = shm->established = shm->sqd_notify = 0;
	vs_store(&shm->path_word, (shm->path_word & ~0xffffu) | IBV_MIG_MIGRATED);
	memset(shm->path, 0, sizeof(shm->path));
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

static void tell(const struct vs_qp *qp, uint32_t type)
{
	struct vs_hazard *h = vs_enter();

	vs_event_qp(qp->shm, qp->id, type);
	vs_exit(h);
}

/* What the move means for outstanding work. failed: it is this one that put the QP
 * into ERR. The QP's lock is held, the control lock is not; peers may still be inside an old state. */
static void after_move(struct vs_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to, bool failed)
{
	if (to == from)
		return;
	if (to == IBV_QPS_ERR) {
		vs_quiesce();
		if (failed && (qp->ibv.qp_type == IBV_QPT_XRC_RECV || qp->srq))
			tell(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
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

/* A peer may put the QP into ERR at any moment: then only ERR and RESET can still be reached. Attributes of a QP in RESET are cleared
 * under the same lock, so that another holder's next move does not lose its own. */
static int set_state(struct vs_qp_shm *shm, enum ibv_qp_state from, enum ibv_qp_state to, bool *failed)
{
	if (to == IBV_QPS_ERR)
		*failed = vs_exchange(&shm->state, (uint32_t)to) != IBV_QPS_ERR;
	else if (to == IBV_QPS_RESET)
		vs_store_full(&shm->state, (uint32_t)to);
	else if (!vs_cas(&shm->state, (uint32_t)from, (uint32_t)to))
		return EINVAL;
	VS_POINT(qp_reset);
	if (to == IBV_QPS_RESET)
		reset_slot(shm);
	return 0;
}

/* The control lock, with nobody inside any more who would write into the responder what belongs to the QP as it was before a reset. Whoever
 * resets a QP waits for that, but other holders of a TGT need not wait for the one that does. A new QP was not reset yet. */
static void lock_settled(const struct vs_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	bool begins = qp->ibv.qp_type == IBV_QPT_XRC_RECV && (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RTR;

	for (;;) {
		uint32_t seen = vs_load(&qp->shm->path_word);

		if (begins && seen >> 16 > 1)
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
	bool migrated = false, failed = false;
	int err;

	vs_lock(&qp->lock);
	lock_settled(qp, attr, mask);
	from = vs_qp_state(qp);
	err = check_all(qp->shm, attr, &mask, &to);
	if (!err) {
		if (from == IBV_QPS_RESET)
			reset_slot(qp->shm);
		apply_path(qp->shm, attr, mask);
		VS_POINT(qp_applied);
		apply_rest(qp->shm, attr, mask);
		vs_add(&qp->shm->path_word, 0x10000); /* whoever cached how to reach this QP looks again */
		migrated = apply_migration(qp->shm, attr, mask);
		err = set_state(qp->shm, from, to, &failed);
		start_requester(qp, mask);
	}
	vs_control_unlock();
	if (migrated)
		tell(qp, IBV_EVENT_PATH_MIG);
	VS_POINT(qp_moved);
	if (!err) {
		after_move(qp, from, to, failed);
		ibqp->state = to;
	}
	vs_unlock(&qp->lock);
	return err;
}

/* ---- query ---- */

static void query_attr(struct vs_qp_shm *shm, struct ibv_qp_attr *attr)
{
	const struct vs_path *primary = vs_qp_primary(shm), *alternate = vs_qp_alternate(shm);
	enum ibv_qp_state state = (enum ibv_qp_state)vs_load(&shm->state); /* a peer or a timer may move it now */
	bool connected = primary->av.port != 0;

	*attr = (struct ibv_qp_attr){
		.qp_state = state,
		.cur_qp_state = state,
		.path_mtu = (enum ibv_mtu)shm->path_mtu,
		.path_mig_state = vs_qp_mig_state(shm),
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
	if (!vs_load(&alternate->loaded) && alternate->av.port)
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
