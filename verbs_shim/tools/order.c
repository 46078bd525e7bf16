/* Orders: what vshim can do to the fabric. The same words on the command line, in `vshim with` and in plan files. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/context.h"
#include "core/ports.h"
#include "core/reap.h"
#include "tools/answer.h"
#include "tools/tool.h"

static int complain(const char *what, const char *word)
{
	return vshim_refuse(EINVAL, "%s '%s'", what, word ? word : "");
}

static bool number(const char *text, uint32_t max, uint32_t *value)
{
	char *end;
	unsigned long v;

	if (!text || text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	v = strtoul(text, &end, 0);
	if (*end || errno || v > max)
		return false;
	*value = (uint32_t)v;
	return true;
}

/* "[at WHERE] [nth N] [times M|ever]" after position i, or "on HOST" and "every K" as place says. */
struct when {
	const char *at, *on;
	uint32_t nth, times, every;
};

static int parse_when(int argc, char **argv, int i, const char *place, struct when *w)
{
	*w = (struct when){ .nth = 1, .times = 1, .every = 1 };
	for (; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "at") && !strcmp(place, "at"))
			w->at = argv[i + 1];
		else if (!strcmp(argv[i], "on") && !strcmp(place, "on"))
			w->on = argv[i + 1];
		else if (!strcmp(argv[i], "times") && !strcmp(argv[i + 1], "ever"))
			w->times = UINT32_MAX;
		else if (!strcmp(argv[i], "times") && number(argv[i + 1], UINT32_MAX - 1, &w->times) && w->times > 0)
			continue;
		else if (!strcmp(argv[i], "every") && !strcmp(place, "on") && number(argv[i + 1], UINT32_MAX, &w->every) && w->every > 0)
			continue;
		else if (!strcmp(argv[i], "nth") && number(argv[i + 1], UINT32_MAX, &w->nth) && w->nth > 0)
			continue;
		else
			return complain("what is", argv[i]);
	}
	return i < argc ? complain("something is missing after", argv[i]) : 0;
}

/* ---- links and ports ---- */

struct port_change {
	uint32_t value, index;
	int err;
};

static void set_link(uint32_t port_index, void *arg)
{
	struct port_change *c = arg;

	vs_port_set_state(vs_slot_at(VS_PORT, port_index), (enum ibv_port_state)c->value);
}

static void set_lmc(uint32_t port_index, void *arg)
{
	struct port_change *c = arg;

	c->err = vs_port_set_lmc(port_index, c->value);
}

static void set_route(uint32_t port_index, void *arg)
{
	struct port_change *c = arg;
	int err = vs_fabric_set_route(vs_slot_at(VS_PORT, port_index), c->index, c->value);

	c->err = err ? err : c->err;
}

static void set_pkey(uint32_t port_index, void *arg)
{
	struct port_change *c = arg;

	vs_port_set_pkey(vs_slot_at(VS_PORT, port_index), c->index, (uint16_t)c->value);
}

static int change_ports(const char *where, void (*f)(uint32_t, void *), struct port_change *c)
{
	unsigned n;

	vs_control_lock();
	n = vshim_each_port(where, f, c);
	vs_control_unlock();
	if (c->err)
		return vshim_refuse(c->err, "cannot change the port: '%s'", strerror(c->err));
	return n == 0;
}

static int order_link(int argc, char **argv)
{
	struct port_change c = { .value = IBV_PORT_DOWN };

	if (argc != 3)
		return complain("usage: vshim link down|up WHERE, not", argv[0]);
	if (!strcmp(argv[1], "up"))
		c.value = IBV_PORT_ACTIVE;
	else if (strcmp(argv[1], "down"))
		return complain("a link goes down or up, not", argv[1]);
	return change_ports(argv[2], set_link, &c);
}

/* The states that a subnet manager leads a port through; only an active one carries packets. */
static int order_port(int argc, char **argv)
{
	static const struct {
		const char *name;
		enum ibv_port_state state;
	} states[] = { { "down", IBV_PORT_DOWN }, { "init", IBV_PORT_INIT }, { "armed", IBV_PORT_ARMED }, { "active", IBV_PORT_ACTIVE } };
	struct port_change c = { .err = 0 };

	for (size_t i = 0; argc == 3 && i < sizeof(states) / sizeof(states[0]); i++)
		if (!strcmp(argv[2], states[i].name))
			c.value = states[i].state;
	if (!c.value)
		return complain("usage: vshim port WHERE down|init|armed|active, not", argc > 2 ? argv[2] : argv[0]);
	return change_ports(argv[1], set_link, &c);
}

static void nap_ms(uint32_t ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

/* How often, and how long down and up each time. Every so many milliseconds means down for half of them. */
static bool parse_flap(int argc, char **argv, uint32_t *times, uint32_t *ms)
{
	uint32_t every, whole;

	if (argc == 4)
		return number(argv[2], 1000000, times) && number(argv[3], 3600000, ms);
	if (argc != 6 || strcmp(argv[2], "--every") || strcmp(argv[4], "--for"))
		return false;
	if (!number(argv[3], 3600000, &every) || !number(argv[5], 3600000, &whole) || every < 2 || whole < every)
		return false;
	*times = whole / every;
	*ms = every / 2;
	return true;
}

static int order_flap(int argc, char **argv)
{
	struct port_change down = { .value = IBV_PORT_DOWN }, up = { .value = IBV_PORT_ACTIVE };
	uint32_t times, ms;
	int bad = 0;

	if (!parse_flap(argc, argv, &times, &ms))
		return complain("usage: vshim flap WHERE TIMES MS or WHERE --every MS --for MS, not", argv[0]);
	for (uint32_t i = 0; i < times && !bad; i++) {
		bad = change_ports(argv[1], set_link, &down);
		nap_ms(ms);
		bad = bad || change_ports(argv[1], set_link, &up);
		nap_ms(ms);
	}
	return bad;
}

static int order_lmc(int argc, char **argv)
{
	struct port_change c = { .err = 0 };

	if (argc != 3 || !number(argv[2], 7, &c.value))
		return complain("usage: vshim lmc WHERE 0..7, not", argv[0]);
	return change_ports(argv[1], set_lmc, &c);
}

static int order_route(int argc, char **argv)
{
	struct port_change c = { .value = 0 };

	if (argc != 4 || (strcmp(argv[1], "up") && strcmp(argv[1], "down")) || !number(argv[3], 127, &c.index))
		return complain("usage: vshim route down|up WHERE BITS, not", argc > 1 ? argv[1] : argv[0]);
	c.value = !strcmp(argv[1], "up");
	return change_ports(argv[2], set_route, &c);
}

static int order_pkey(int argc, char **argv)
{
	struct port_change c = { .err = 0 };

	if (argc != 4 || !number(argv[2], VS_PKEY_TABLE - 1, &c.index) || !number(argv[3], 0xffff, &c.value))
		return complain("usage: vshim pkey WHERE INDEX VALUE, not", argv[0]);
	return change_ports(argv[1], set_pkey, &c);
}

/* ---- HCAs ---- */

static int order_plug(int argc, char **argv)
{
	bool in = !strcmp(argv[0], "plug");
	unsigned n;

	if (argc != 2)
		return complain(in ? "usage: vshim plug WHERE, not" : "usage: vshim unplug WHERE, not", argv[0]);
	vs_control_lock();
	n = vshim_each_hca(argv[1], in ? vs_fabric_plug : vs_fabric_unplug);
	vs_control_unlock();
	if (n && !in)
		vs_fabric_unplugged();
	return n == 0;
}

/* ---- packets ---- */

static bool parse_what(const char *text, uint32_t *what)
{
	static const char *const names[] = { [VS_WHAT_PACKET] = "packet", [VS_WHAT_ACK] = "ack", [VS_WHAT_DATAGRAM] = "datagram" };

	for (*what = 0; text && *what < sizeof(names) / sizeof(names[0]); (*what)++)
		if (!strcmp(text, names[*what]))
			return true;
	return false;
}

struct port_list {
	uint32_t port[VS_MAX_RULES];
	unsigned n;
};

static void list_port(uint32_t port_index, void *arg)
{
	struct port_list *list = arg;

	if (list->n < VS_MAX_RULES)
		list->port[list->n++] = port_index + 1;
}

/* One rule for each port that text names; NULL or all: one for any port. */
static int add_rules(struct vs_rule *rule, const char *text)
{
	struct port_list list = { { 0 }, 0 };
	int err = 0;

	if (!text || !strcmp(text, "all")) {
		list.n = 1;
		vshim_answer_about("ports", "all");
	} else {
		vs_control_lock();
		vshim_each_port(text, list_port, &list);
		vs_control_unlock();
	}
	for (unsigned i = 0; i < list.n && !err; i++) {
		rule->port = list.port[i];
		err = vs_fault_add_rule(rule);
	}
	if (err)
		return vshim_refuse(err, "too many rules are active; first 'vshim clear'");
	return list.n == 0;
}

static int order_rule(int argc, char **argv)
{
	struct vs_rule rule = { .kind = !strcmp(argv[0], "drop") ? VS_RULE_DROP : !strcmp(argv[0], "dup") ? VS_RULE_DUP : VS_RULE_DELAY };
	struct when when;
	int next = 2;

	if (argc < 2 || !parse_what(argv[1], &rule.what))
		return complain("a packet, an ack or a datagram, not", argv[1]);
	if (rule.kind == VS_RULE_DELAY && (rule.what == VS_WHAT_ACK || argc < 3 || !number(argv[next++], 60000000, &rule.delay_us)))
		return complain("usage: vshim delay packet|datagram MICROSECONDS [at WHERE] [nth N] [times M|ever], not", argv[1]);
	if (parse_when(argc, argv, next, "at", &when))
		return 1;
	rule.count = (uint64_t)(when.nth - 1) << 32 | when.times;
	return add_rules(&rule, when.at);
}

/* ---- verbs ---- */

static int errno_of(const char *name)
{
	for (int e = 1; e < 134; e++) {
		const char *n = strerrorname_np(e);

		if (n && !strcmp(n, name))
			return e;
	}
	return 0;
}

static int find_verb(const char *name)
{
	for (int v = 0; v < VS_NUM_VERBS; v++)
		if (name && !strcmp(name, vs_verb_name[v]))
			return v;
	return -1;
}

static int order_refuse(int argc, char **argv)
{
	int verb = argc > 1 ? find_verb(argv[1]) : -1, error = ENOMEM, next = 2, host = -1;
	struct when when;

	if (verb < 0)
		return complain("no verb that can be refused:", argc > 1 ? argv[1] : "");
	if (argc == 3 && !strcmp(argv[2], "off")) {
		vs_fault_refuse((enum vs_verb)verb, 0, 0, 0, 1, 0);
		return 0;
	}
	if (argc > 2 && argv[2][0] == 'E') {
		error = errno_of(argv[2]);
		if (!error)
			return complain("no errno name:", argv[2]);
		next++;
	}
	if (parse_when(argc, argv, next, "on", &when))
		return 1;
	if (when.on && (host = vshim_host(when.on)) < 0)
		return 1;
	vs_fault_refuse((enum vs_verb)verb, error, when.nth - 1, when.times, when.every, (uint32_t)(host + 1));
	return 0;
}

static const struct {
	const char *name;
	enum vs_cap cap;
} caps[] = {
	{ "xrc", VS_CAP_XRC },		 { "apm", VS_CAP_APM },		      { "atomics", VS_CAP_ATOMICS },
	{ "srq_limit", VS_CAP_SRQ_LIMIT }, { "modify_srq", VS_CAP_MODIFY_SRQ }, { "open_qp", VS_CAP_OPEN_QP },
};

static uint32_t find_cap(const char *text)
{
	for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++)
		if (!strcmp(text, caps[i].name))
			return caps[i].cap;
	return 0;
}

static int order_caps(int argc, char **argv)
{
	uint32_t hide = 0, show = 0;

	if (argc < 2)
		return complain("usage: vshim caps -NAME|+NAME ..., not", argv[0]);
	for (int i = 1; i < argc; i++) {
		bool takes = argv[i][0] == '-';
		uint32_t cap;

		if (!takes && argv[i][0] != '+')
			return complain("-NAME takes away, +NAME gives back, not", argv[i]);
		cap = find_cap(argv[i] + 1);
		if (!cap)
			return complain("no capability that can be taken away:", argv[i] + 1);
		hide = takes ? hide | cap : hide & ~cap;
		show = takes ? show & ~cap : show | cap;
	}
	vs_caps_change(hide, show);
	return 0;
}

static int order_open_qp(int argc, char **argv)
{
	bool off = argc == 2 && !strcmp(argv[1], "off");

	if (!off && (argc != 2 || strcmp(argv[1], "on")))
		return complain("usage: vshim open-qp on|off, not", argc > 1 ? argv[1] : "");
	vs_caps_change(off ? VS_CAP_OPEN_QP : 0, off ? 0 : VS_CAP_OPEN_QP);
	return 0;
}

static int order_set(int argc, char **argv)
{
	if (argc != 2 || vs_knobs_set(argv[1]))
		return complain("no knob, or no value of it:", argc > 1 ? argv[1] : "");
	if (vs_load(&vs_seg->knobs.tgt_exit) == VS_TGT_DESTROY)
		vs_reap_orphans(); /* what the other mode has kept */
	return 0;
}

static int order_devices(int argc, char **argv)
{
	uint32_t n;
	int err;

	if (argc != 2 || !number(argv[1], VS_MAX_HCAS, &n))
		return complain("usage: vshim devices 0..8, not", argc > 1 ? argv[1] : "");
	vs_control_lock();
	err = vs_fabric_set_topology(); /* the rest of it, where no process has come yet */
	if (!err)
		vs_store(&vs_seg->topology_devices, n);
	vs_control_unlock();
	return err ? complain("unreadable:", "VERBS_SHIM_TOPOLOGY or VERBS_SHIM_KNOBS") : 0;
}

/* ---- all of it, and processes ---- */

static int order_clear(int argc, char **argv)
{
	(void)argc, (void)argv;
	vs_fault_clear_rules();
	vs_fault_refuse_none();
	vs_caps_change(0, UINT32_MAX);
	return 0;
}

static int order_reclaim(int argc, char **argv)
{
	(void)argc, (void)argv;
	vs_control_lock();
	vs_process_reap_dead();
	vs_control_unlock();
	vs_process_bury();
	vs_reap_orphans();
	return 0;
}

/* Not by a bare number, which somebody else may have by now, or have had all along in this tool's pid namespace. */
static int kill_process(const struct vs_proc_shm *proc, uint32_t id)
{
	int pid = proc->pid, fd, err = 0;

	if (pid <= 0 || proc->pid_ns != vs_me->pid_ns)
		return vshim_refuse(EPERM, "process %d is of another pid namespace: kill it there", pid);
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return errno == ESRCH ? 0 : vshim_refuse(errno, "process %d: %s", pid, strerror(errno));
	if (vs_process_alive(id) && syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0))
		err = errno == ESRCH ? 0 : vshim_refuse(errno, "process %d: %s", pid, strerror(errno));
	close(fd);
	if (!err)
		vshim_answer_process(pid);
	return err;
}

static int order_kill(int argc, char **argv)
{
	struct vs_proc_shm *proc;
	uint32_t index, id;
	int host, err = 0;

	if (argc != 2 || (host = vshim_host(argv[1])) < 0)
		return complain("usage: vshim kill HOST, not", argc > 1 ? argv[1] : "");
	vs_for_each_live (VS_PROC, index, proc)
		if (proc != vs_me && proc->host == (uint32_t)host && vs_process_alive(id = vs_slot_id(VS_PROC, index)))
			err |= kill_process(proc, id);
	return err;
}

/* ---- the table ---- */

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *usage;
} orders[] = {
	{ "link", order_link, "link down|up WHERE            a port's link; WHERE is HOST/DEV/PORT, HOST/DEV, HOST or all" },
	{ "port", order_port, "port WHERE down|init|armed|active   the state of a port; link up is active" },
	{ "flap", order_flap, "flap WHERE TIMES MS, flap WHERE --every MS --for MS   down and up, TIMES times or every so often for so long" },
	{ "unplug", order_plug, "unplug WHERE                  an HCA is gone; WHERE is HOST/DEV, HOST or all" },
	{ "plug", order_plug, "plug WHERE                    it is back, for those who open it anew" },
	{ "lmc", order_lmc, "lmc WHERE 0..7                new LIDs, 2^lmc of them" },
	{ "route", order_route, "route down|up WHERE BITS      packets to that LID of the port, base LID + BITS, get lost; no event" },
	{ "pkey", order_pkey, "pkey WHERE INDEX VALUE        an entry of the P_Key table" },
	{ "drop", order_rule, "drop packet|ack|datagram [at WHERE] [nth N] [times M|ever]" },
	{ "dup", order_rule, "dup packet|ack|datagram [at WHERE] [nth N] [times M|ever]" },
	{ "delay", order_rule, "delay packet|datagram MICROSECONDS [at WHERE] [nth N] [times M|ever]" },
	{ "refuse", order_refuse, "refuse VERB [ERRNO] [nth N] [times M|ever] [every K] [on HOST], refuse VERB off" },
	{ "caps", order_caps, "caps -NAME|+NAME ...          xrc apm atomics srq_limit modify_srq open_qp" },
	{ "open-qp", order_open_qp, "open-qp on|off                as caps +open_qp, -open_qp" },
	{ "set", order_set, "set KNOB=VALUE[,...]          tgt_exit=destroy|orphan tgt_events=all|creator bad_srqn=nak4|nak2|nak1|drop src_qp=mlx5|mlx4" },
	{ "devices", order_devices, "devices N                     HCAs of hosts that appear from now on" },
	{ "clear", order_clear, "clear                         no more drop, dup, delay, refuse, caps" },
	{ "reclaim", order_reclaim, "reclaim                       clear away the dead, and TGT QPs that nobody holds" },
	{ "kill", order_kill, "kill HOST                     all its processes, with SIGKILL" },
};

#define NUM_ORDERS (sizeof(orders) / sizeof(orders[0]))

void vshim_order_usage(const char *indent)
{
	for (size_t i = 0; i < NUM_ORDERS; i++)
		printf("%s%s\n", indent, orders[i].usage);
}

int vshim_run_order(int argc, char **argv)
{
	for (size_t i = 0; argc > 0 && i < NUM_ORDERS; i++)
		if (!strcmp(argv[0], orders[i].name))
			return orders[i].run(argc, argv);
	return complain("no such order:", argc > 0 ? argv[0] : "");
}

static int attach_and_run(int argc, char **argv)
{
	int err = vshim_attach(), status;

	if (err == ENOENT)
		return vshim_refuse(err, "nobody uses a software HCA: there is no fabric for '%s'", argv[0]);
	if (err)
		return 1;
	status = vshim_run_order(argc, argv);
	vs_detach();
	return status;
}

int vshim_order(int argc, char **argv)
{
	vshim_answer_open(&argc, argv);
	vshim_answer_words("order", argc, argv);
	return vshim_answer_close(attach_and_run(argc, argv));
}
