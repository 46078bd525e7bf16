/* Faults to order: verbs that fail, packets that are lost, doubled or late, links that go down; and the knobs for what kernels and chips
 * do differently. Kept in the segment, set by the vshim tool, consulted by everyone: one load where nothing is ordered. */
#ifndef VS_FAULTS_H
#define VS_FAULTS_H

#include <errno.h>

#include "fabric/fabric.h"

/* Every verb that can be refused. */
#define VS_VERBS(X)                                                                                                                \
	X(open_device) X(query_device) X(query_port) X(query_gid) X(query_pkey) X(create_comp_channel) X(alloc_pd) X(dealloc_pd)           \
	X(create_ah) X(destroy_ah) X(reg_mr) X(rereg_mr) X(dereg_mr) X(create_cq) X(resize_cq) X(destroy_cq) X(req_notify_cq)              \
	X(open_xrcd) X(close_xrcd) X(create_srq) X(modify_srq) X(query_srq) X(destroy_srq) X(create_qp) X(open_qp) X(modify_qp)            \
	X(query_qp) X(destroy_qp) X(attach_mcast) X(detach_mcast) X(post_send) X(post_recv) X(post_srq_recv)

enum vs_verb {
#define VS_VERB_ENUM(name) VS_VERB_##name,
	VS_VERBS(VS_VERB_ENUM)
#undef VS_VERB_ENUM
		VS_NUM_VERBS
};

extern const char *const vs_verb_name[VS_NUM_VERBS];

/* The errno value this call of the verb is to fail with; 0: let it work. */
int vs_refused_slow(enum vs_verb verb);

static inline int vs_refused(enum vs_verb verb)
{
	return vs_seg && vs_load_relaxed(&vs_seg->faults.refusing) >> verb & 1 ? vs_refused_slow(verb) : 0;
}

/* First lines of a verb, where err is why it may not begin. For verbs that return an errno value, and for those that return a pointer and
 * set errno. */
#define VS_RETURN_IF(err)                                                                                                          \
	do {                                                                                                                           \
		int vs_refusal = (err);                                                                                                    \
		if (vs_refusal)                                                                                                            \
			return vs_refusal;                                                                                                     \
	} while (0)
#define VS_RETURN_NULL_IF(err)                                                                                                     \
	do {                                                                                                                           \
		int vs_refusal = (err);                                                                                                    \
		if (vs_refusal) {                                                                                                          \
			errno = vs_refusal;                                                                                                    \
			return NULL;                                                                                                           \
		}                                                                                                                          \
	} while (0)

/* Fail as ordered. */
#define VS_MAY_REFUSE(verb) VS_RETURN_IF(vs_refused(VS_VERB_##verb))
#define VS_MAY_REFUSE_POINTER(verb) VS_RETURN_NULL_IF(vs_refused(VS_VERB_##verb))

/* Has a capability been taken away? */
static inline bool vs_hidden(enum vs_cap cap)
{
	return vs_seg && (vs_load_relaxed(&vs_seg->knobs.hidden_caps) & cap);
}

/* What is to happen to this packet: VS_RULE_NONE, or the first rule that hits. */
enum vs_rule_kind vs_fault_packet_slow(const struct vs_port_shm *from, const struct vs_port_shm *to, enum vs_rule_what what,
				       uint32_t *delay_us);

static inline enum vs_rule_kind vs_fault_packet(const struct vs_port_shm *from, const struct vs_port_shm *to, enum vs_rule_what what,
						uint32_t *delay_us)
{
	return vs_load_relaxed(&vs_seg->faults.ruling) ? vs_fault_packet_slow(from, to, what, delay_us) : VS_RULE_NONE;
}

/* ---- ordering them; control lock taken inside ---- */

/* Let skip calls pass, then refuse times of them, each every-th. error 0: no more. host: slot + 1 or 0. */
void vs_fault_refuse(enum vs_verb verb, int error, uint32_t skip, uint32_t times, uint32_t every, uint32_t host);
void vs_fault_refuse_none(void);

/* 0, or ENOSPC: VS_MAX_RULES are active. */
int vs_fault_add_rule(const struct vs_rule *rule);
void vs_fault_clear_rules(void);

/* "tgt_exit=orphan" and its like, comma-separated. 0 or EINVAL (nothing changed). */
int vs_knobs_set(const char *text);

/* Take capabilities away, a set of enum vs_cap, and give others back. */
void vs_caps_change(uint32_t hide, uint32_t show);

/* A port's LMC: new LIDs. 0, EINVAL (over 7) or ENOMEM (no LIDs left). Control lock held; the caller raises LID_CHANGE. */
int vs_fabric_set_lmc(uint32_t port_index, uint32_t lmc);

#endif
