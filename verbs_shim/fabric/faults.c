#include "fabric/faults.h"

#include <errno.h>
#include <string.h>

const char *const vs_verb_name[VS_NUM_VERBS] = {
#define VERB_NAME(name) #name,
	VS_VERBS(VERB_NAME)
#undef VERB_NAME
};

static_assert(VS_NUM_VERBS <= VS_MAX_VERBS, "a refusal for each verb");

#define FOR_EVER UINT32_MAX

/* Count one call or packet. true: it is one to hit; the next one is the every-th from there. */
static bool hit(uint64_t *count, uint32_t every)
{
	for (;;) {
		uint64_t now = vs_load(count);
		uint32_t skip = (uint32_t)(now >> 32), times = (uint32_t)now, left = times == FOR_EVER ? times : times - 1;
		uint64_t next = left ? (uint64_t)(every - 1) << 32 | left : 0;

		if (times == 0)
			return false;
		if (skip > 0)
			next = (uint64_t)(skip - 1) << 32 | times;
		if (vs_cas(count, now, next))
			return skip == 0;
	}
}

/* ---- verbs ---- */

int vs_refused_slow(enum vs_verb verb)
{
	struct vs_refusal *r = &vs_seg->faults.refusal[verb];

	if (!vs_me || (r->host && r->host != vs_me->host + 1) || !hit(&r->count, vs_load(&r->every) + 1))
		return 0;
	return (int)vs_load(&r->error);
}

void vs_fault_refuse(enum vs_verb verb, int error, uint32_t skip, uint32_t times, uint32_t every, uint32_t host)
{
	struct vs_refusal *r = &vs_seg->faults.refusal[verb];
	uint64_t bit = UINT64_C(1) << verb;

	vs_control_lock();
	vs_and(&vs_seg->faults.refusing, ~bit);
	VS_POINT(refusal_off);
	vs_store(&r->count, 0);
	r->error = (uint32_t)error;
	r->host = host;
	r->every = every - 1;
	vs_store(&r->count, error ? (uint64_t)skip << 32 | times : 0);
	VS_POINT(refusal_set);
	if (error)
		vs_or(&vs_seg->faults.refusing, bit);
	vs_control_unlock();
}

void vs_fault_refuse_none(void)
{
	vs_control_lock();
	vs_store(&vs_seg->faults.refusing, 0);
	vs_control_unlock();
}

/* ---- packets ---- */

static uint32_t port_slot(const struct vs_port_shm *port)
{
	return (uint32_t)((size_t)((const char *)port - vs_places.table[VS_PORT]) / vs_tables[VS_PORT].size);
}

/* Another rule hit this packet: it counts as one of those to let pass, if there are any left. */
static void let_pass(uint64_t *count)
{
	for (;;) {
		uint64_t now = vs_load(count);

		if (now >> 32 == 0 || vs_cas(count, now, now - (UINT64_C(1) << 32)))
			return;
	}
}

static bool in_force(uint32_t rule)
{
	return vs_load(&vs_seg->faults.ruling) >> rule & 1;
}

enum vs_rule_kind vs_fault_packet_slow(const struct vs_port_shm *from, const struct vs_port_shm *to, enum vs_rule_what what,
				       uint32_t *delay_us)
{
	uint32_t a = port_slot(from) + 1, b = port_slot(to) + 1;
	enum vs_rule_kind found = VS_RULE_NONE;

	for (uint32_t i = 0; i < VS_MAX_RULES; i++) {
		struct vs_rule *r = &vs_seg->faults.rule[i];

		if (!in_force(i) || r->what != what || (r->port && r->port != a && r->port != b))
			continue;
		if (found) {
			let_pass(&r->count);
		} else if (hit(&r->count, 1)) {
			*delay_us = r->delay_us;
			found = (enum vs_rule_kind)vs_load(&r->kind);
		}
	}
	return found;
}

static bool spent(uint32_t rule)
{
	return !in_force(rule) || (uint32_t)vs_load(&vs_seg->faults.rule[rule].count) == 0;
}

int vs_fault_add_rule(const struct vs_rule *rule)
{
	uint32_t i = 0;

	vs_control_lock();
	while (i < VS_MAX_RULES && !spent(i))
		i++;
	if (i < VS_MAX_RULES) {
		struct vs_rule *r = &vs_seg->faults.rule[i];

		vs_and(&vs_seg->faults.ruling, ~(1u << i));
		vs_store(&r->count, 0); /* for whoever is just about the old one */
		vs_store(&r->kind, rule->kind);
		r->what = rule->what;
		r->port = rule->port;
		r->delay_us = rule->delay_us;
		vs_store(&r->count, rule->count);
		VS_POINT(rule_set);
		vs_or(&vs_seg->faults.ruling, 1u << i);
	}
	vs_control_unlock();
	return i < VS_MAX_RULES ? 0 : ENOSPC;
}

void vs_fault_clear_rules(void)
{
	vs_control_lock();
	vs_store(&vs_seg->faults.ruling, 0);
	vs_control_unlock();
}

/* ---- knobs ---- */

static const struct {
	const char *name;
	size_t offset;
	const char *values[5]; /* in the order of the enum */
} knobs[] = {
	{ "tgt_exit", offsetof(struct vs_knobs, tgt_exit), { "destroy", "orphan" } },
	{ "tgt_events", offsetof(struct vs_knobs, tgt_events), { "all", "creator" } },
	{ "bad_srqn", offsetof(struct vs_knobs, bad_srqn), { "nak4", "nak2", "nak1", "drop" } },
	{ "src_qp", offsetof(struct vs_knobs, src_qp), { "mlx5", "mlx4" } },
};

#define NUM_KNOBS (sizeof(knobs) / sizeof(knobs[0]))

/* One "name=value" of length len. */
static int set_one(struct vs_knobs *set, const char *text, size_t len)
{
	const char *eq = memchr(text, '=', len);

	for (size_t k = 0; eq && k < NUM_KNOBS; k++) {
		if (strlen(knobs[k].name) != (size_t)(eq - text) || strncmp(text, knobs[k].name, (size_t)(eq - text)))
			continue;
		for (uint32_t v = 0; knobs[k].values[v]; v++)
			if (strlen(knobs[k].values[v]) == len - (size_t)(eq + 1 - text) && !strncmp(eq + 1, knobs[k].values[v], strlen(knobs[k].values[v]))) {
				*((uint8_t *)set + knobs[k].offset) = (uint8_t)v;
				return 0;
			}
	}
	return EINVAL;
}

static int set_all(struct vs_knobs *set, const char *text)
{
	int err = 0;

	while (!err && text && *text) {
		size_t len = strcspn(text, ",");

		err = set_one(set, text, len);
		text += len + (text[len] == ',');
	}
	return err;
}

int vs_knobs_set(const char *text)
{
	struct vs_knobs set;
	uint32_t was;
	int err;

	do {
		was = vs_load(&vs_seg->knobs.word);
		set.word = was;
		err = set_all(&set, text);
	} while (!err && !vs_cas(&vs_seg->knobs.word, was, set.word));
	VS_POINT(knobs_set);
	return err;
}

void vs_caps_change(uint32_t hide, uint32_t show)
{
	uint32_t was;

	do {
		was = vs_load(&vs_seg->knobs.hidden_caps);
	} while (!vs_cas(&vs_seg->knobs.hidden_caps, was, (was | hide) & ~show));
}
