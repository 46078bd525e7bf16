#include "core/qp_state.h"

#include <stddef.h>

#define CUR IBV_QP_CUR_STATE
#define SQDN IBV_QP_EN_SQD_ASYNC_NOTIFY
#define ACC IBV_QP_ACCESS_FLAGS
#define PKEY IBV_QP_PKEY_INDEX
#define PORT IBV_QP_PORT
#define QKEY IBV_QP_QKEY
#define AV IBV_QP_AV
#define MTU IBV_QP_PATH_MTU
#define TMO IBV_QP_TIMEOUT
#define RETRY IBV_QP_RETRY_CNT
#define RNR IBV_QP_RNR_RETRY
#define RQPSN IBV_QP_RQ_PSN
#define SQPSN IBV_QP_SQ_PSN
#define MAXRD IBV_QP_MAX_QP_RD_ATOMIC
#define MAXDEST IBV_QP_MAX_DEST_RD_ATOMIC
#define MINRNR IBV_QP_MIN_RNR_TIMER
#define ALT IBV_QP_ALT_PATH
#define MIG IBV_QP_PATH_MIG_STATE
#define DEST IBV_QP_DEST_QPN

#define RESET IBV_QPS_RESET
#define INIT IBV_QPS_INIT
#define RTR IBV_QPS_RTR
#define RTS IBV_QPS_RTS
#define SQD IBV_QPS_SQD
#define SQE IBV_QPS_SQE
#define ERR IBV_QPS_ERR

#define RC IBV_QPT_RC
#define UC IBV_QPT_UC
#define UD IBV_QPT_UD
#define INI IBV_QPT_XRC_SEND
#define TGT IBV_QPT_XRC_RECV

/* The kernel's qp_state_table (drivers/infiniband/core/verbs.c), unchanged since XRC QP types came in. Moves to RESET and to ERR, the
 * same for every type and without attributes, are in vs_qp_modify_ok. */
static const struct vs_qp_transition table[] = {
	{ RC, RESET, INIT, PKEY | PORT | ACC, 0 },
	{ RC, INIT, INIT, 0, PKEY | PORT | ACC },
	{ RC, INIT, RTR, AV | MTU | DEST | RQPSN | MAXDEST | MINRNR, ALT | ACC | PKEY },
	{ RC, RTR, RTS, TMO | RETRY | RNR | SQPSN | MAXRD, CUR | ALT | ACC | MINRNR | MIG },
	{ RC, RTS, RTS, 0, CUR | ACC | ALT | MIG | MINRNR },
	{ RC, RTS, SQD, 0, SQDN },
	{ RC, SQD, RTS, 0, CUR | ALT | ACC | MINRNR | MIG },
	{ RC, SQD, SQD, 0, PORT | AV | TMO | RETRY | RNR | MAXRD | MAXDEST | ALT | ACC | PKEY | MINRNR | MIG },

	{ INI, RESET, INIT, PKEY | PORT | ACC, 0 },
	{ INI, INIT, INIT, 0, PKEY | PORT | ACC },
	{ INI, INIT, RTR, AV | MTU | DEST | RQPSN, ALT | ACC | PKEY },
	{ INI, RTR, RTS, TMO | RETRY | RNR | SQPSN | MAXRD, CUR | ALT | ACC | MIG },
	{ INI, RTS, RTS, 0, CUR | ACC | ALT | MIG },
	{ INI, RTS, SQD, 0, SQDN },
	{ INI, SQD, RTS, 0, CUR | ALT | ACC | MIG },
	{ INI, SQD, SQD, 0, PORT | AV | TMO | RETRY | RNR | MAXRD | ALT | ACC | PKEY | MIG },
	{ INI, SQE, RTS, 0, 0 },

	{ TGT, RESET, INIT, PKEY | PORT | ACC, 0 },
	{ TGT, INIT, INIT, 0, PKEY | PORT | ACC },
	{ TGT, INIT, RTR, AV | MTU | DEST | RQPSN | MAXDEST | MINRNR, ALT | ACC | PKEY },
	{ TGT, RTR, RTS, TMO | SQPSN, CUR | ALT | ACC | MINRNR | MIG },
	{ TGT, RTS, RTS, 0, CUR | ACC | ALT | MIG | MINRNR },
	{ TGT, RTS, SQD, 0, SQDN },
	{ TGT, SQD, RTS, 0, CUR | ALT | ACC | MINRNR | MIG },
	{ TGT, SQD, SQD, 0, PORT | AV | TMO | MAXDEST | ALT | ACC | PKEY | MINRNR | MIG },
	{ TGT, SQE, RTS, 0, 0 },
	{ RC, SQE, RTS, 0, 0 },

	{ UC, RESET, INIT, PKEY | PORT | ACC, 0 },
	{ UC, INIT, INIT, 0, PKEY | PORT | ACC },
	{ UC, INIT, RTR, AV | MTU | DEST | RQPSN, ALT | ACC | PKEY },
	{ UC, RTR, RTS, SQPSN, CUR | ALT | ACC | MIG },
	{ UC, RTS, RTS, 0, CUR | ACC | ALT | MIG },
	{ UC, RTS, SQD, 0, SQDN },
	{ UC, SQD, RTS, 0, CUR | ALT | ACC | MIG },
	{ UC, SQD, SQD, 0, AV | ALT | ACC | PKEY | MIG },
	{ UC, SQE, RTS, 0, CUR | ACC },

	{ UD, RESET, INIT, PKEY | PORT | QKEY, 0 },
	{ UD, INIT, INIT, 0, PKEY | PORT | QKEY },
	{ UD, INIT, RTR, 0, PKEY | QKEY },
	{ UD, RTR, RTS, SQPSN, CUR | QKEY },
	{ UD, RTS, RTS, 0, CUR | QKEY },
	{ UD, RTS, SQD, 0, SQDN },
	{ UD, SQD, RTS, 0, CUR | QKEY },
	{ UD, SQD, SQD, 0, PKEY | QKEY },
	{ UD, SQE, RTS, 0, CUR | QKEY },
};

const struct vs_qp_transition *vs_qp_transition(unsigned n)
{
	return n < sizeof(table) / sizeof(table[0]) ? &table[n] : NULL;
}

int vs_qp_strip_mask(enum ibv_qp_type type, int mask)
{
	if (type == INI)
		return mask & ~(MAXDEST | MINRNR);
	if (type == TGT)
		return mask & ~(MAXRD | RETRY | RNR);
	return mask;
}

static bool known_type(enum ibv_qp_type type)
{
	return type == RC || type == UC || type == UD || type == INI || type == TGT;
}

bool vs_qp_modify_ok(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next, int mask)
{
	if (!known_type(type) || cur < RESET || cur > ERR)
		return false;
	if ((mask & CUR) && cur != RTR && cur != RTS && cur != SQD && cur != SQE)
		return false;
	mask &= ~IBV_QP_STATE;
	if (next == RESET)
		return mask == 0;
	if (next == ERR)
		return cur != RESET && mask == 0;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const struct vs_qp_transition *t = &table[i];

		if (t->type == type && t->cur == cur && t->next == next)
			return (mask & t->required) == t->required && !(mask & ~(t->required | t->optional));
	}
	return false;
}
