/* The QP state machine as a table: which transitions exist for which QP type, which attributes each needs and allows. Pure. */
#ifndef VS_QP_STATE_H
#define VS_QP_STATE_H

#include <infiniband/verbs.h>
#include <stdbool.h>

/* What ib_uverbs takes out of a mask before the check: the responder's attributes from an INI's, the requester's from a TGT's. */
int vs_qp_strip_mask(enum ibv_qp_type type, int mask);

/* May a QP of this type go from cur to next with these attributes (stripped)? The rule of ib_modify_qp_is_ok: every required one
 * there, none but required and optional ones; CUR_STATE only where the claimed state is RTR, RTS, SQD or SQE. */
bool vs_qp_modify_ok(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next, int mask);

/* One row of the table, for tests and for programs that print it; NULL past the last. */
struct vs_qp_transition {
	enum ibv_qp_type type;
	enum ibv_qp_state cur, next;
	int required, optional; /* IBV_QP_STATE is implied */
};
const struct vs_qp_transition *vs_qp_transition(unsigned n);

#endif
