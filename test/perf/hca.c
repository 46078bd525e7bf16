/* What the software HCA costs, in one run: a bare ring hop between two processes, then latency and bandwidth of SEND, WRITE and READ over it,
 * each as a ratio to the hop or to memcpy. Rounds of all of them follow each other, medians are printed: the machine's speed drifts, the
 * ratios do not. Run it on an idle machine with two cores.
 *
 * "shared" is memory that both processes map and register; all other is private to its process.
 *
 *     hca                      as much as gives steady medians
 *     hca rounds N ITERATIONS  less: so many rounds, and small messages in each
 *     hca path N               N SENDs of 8 bytes from one process to the other and N WRITEs into memory that both map, for tools that count
 *                              system calls: each process writes "path begins" and "path ends" around them. With libcount_locks.so
 *                              preloaded, it also tells how many mutexes it has locked in between
 *     hca N [send]             N SENDs and N WRITEs of 8 bytes of one process to itself, or SENDs alone, for tools that count instructions */
#include "verbs_shim_names.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 21
#define ITERATIONS 3200
#define BIG (1u << 20)
#define BIG_ITERATIONS 64
#define RECEIVES 32

#define NEED(x)                                                                                                                    \
	do {                                                                                                                           \
		if (!(x)) {                                                                                                                \
			fprintf(stderr, "hca: %s failed (line %d)\n", #x, __LINE__);                                                           \
			exit(1);                                                                                                               \
		}                                                                                                                          \
	} while (0)

/* One cache line each way; the same memory is what messages are written to. */
struct lines {
	volatile uint64_t ping, pad1[7], pong, pad2[7];
};

struct address {
	uint16_t lid;
	uint32_t rc, ini, tgt, srqn, rkey, shared_rkey;
	uint64_t addr, shared_addr;
};

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	struct ibv_qp *rc, *ini, *tgt;
	struct ibv_mr *mr, *shared_mr;
	char *memory; /* two BIG halves: to send from, to be written to */
	char *shared; /* the BIG half to be written to */
	struct address peer;
	int link;
	int first; /* who begins */
};

static struct lines *lines;
static char *shared; /* two BIG halves, one a side */
static int rounds = ROUNDS;
static int iterations = ITERATIONS; /* a multiple of 32: the last SEND of a round is signalled */

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

/* ---- set-up ---- */

static void make_objects(struct side *s)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_xrcd_init_attr xa = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1 };
	struct ibv_srq_init_attr_ex sa = { .attr = { .max_wr = 64, .max_sge = 1 } };
	struct ibv_qp_init_attr_ex qa = { .cap = { 64, 64, 1, 1, 64 }, .sq_sig_all = 0 };

	NEED(list && list[0] && (s->context = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	NEED(s->pd = ibv_alloc_pd(s->context));
	NEED(s->send_cq = ibv_create_cq(s->context, 256, NULL, NULL, 0));
	NEED(s->recv_cq = ibv_create_cq(s->context, 256, NULL, NULL, 0));
	NEED(s->xrcd = ibv_open_xrcd(s->context, &xa));
	sa.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	sa.srq_type = IBV_SRQT_XRC;
	sa.pd = s->pd;
	sa.xrcd = s->xrcd;
	sa.cq = s->recv_cq;
	NEED(s->srq = ibv_create_srq_ex(s->context, &sa));
	qa.comp_mask = IBV_QP_INIT_ATTR_PD;
	qa.pd = s->pd;
	qa.send_cq = s->send_cq;
	qa.recv_cq = s->recv_cq;
	qa.qp_type = IBV_QPT_RC;
	NEED(s->rc = ibv_create_qp_ex(s->context, &qa));
	qa.qp_type = IBV_QPT_XRC_SEND;
	NEED(s->ini = ibv_create_qp_ex(s->context, &qa));
	qa.comp_mask = IBV_QP_INIT_ATTR_XRCD;
	qa.xrcd = s->xrcd;
	qa.qp_type = IBV_QPT_XRC_RECV;
	NEED(s->tgt = ibv_create_qp_ex(s->context, &qa));
	NEED(s->memory = aligned_alloc(4096, 2 * BIG));
	memset(s->memory, 1, 2 * BIG);
	NEED(s->mr = ibv_reg_mr(s->pd, s->memory, 2 * BIG, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
	NEED(s->shared_mr = ibv_reg_mr(s->pd, shared, 2 * BIG, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
	s->shared = shared + (s->first ? 0 : BIG);
}

static void bring_up(struct ibv_qp *qp, uint16_t lid, uint32_t dest)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = dest,
		.max_rd_atomic = 1,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .dlid = lid, .port_num = 1 },
	};

	NEED(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	a.qp_state = IBV_QPS_RTR;
	NEED(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER) == 0);
	a.qp_state = IBV_QPS_RTS;
	NEED(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

/* Receive buffers are private. */
static void post_recv(struct side *s, struct ibv_qp *qp)
{
	struct ibv_sge sge = { (uintptr_t)s->memory + BIG, BIG, s->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	NEED((qp == s->rc ? ibv_post_recv(s->rc, &wr, &bad) : ibv_post_srq_recv(s->srq, &wr, &bad)) == 0);
}

static void set_up(struct side *s)
{
	struct ibv_port_attr port;
	struct address mine;

	make_objects(s);
	NEED(ibv_query_port(s->context, 1, &port) == 0);
	mine = (struct address){ .lid = port.lid, .rc = s->rc->qp_num, .ini = s->ini->qp_num, .tgt = s->tgt->qp_num, .rkey = s->mr->rkey,
				 .addr = (uintptr_t)s->memory + BIG, .shared_rkey = s->shared_mr->rkey, .shared_addr = (uintptr_t)s->shared };
	NEED(ibv_get_srq_num(s->srq, &mine.srqn) == 0);
	s->peer = mine;
	if (s->link >= 0)
		NEED(send(s->link, &mine, sizeof(mine), 0) == sizeof(mine) &&
		     recv(s->link, &s->peer, sizeof(s->peer), MSG_WAITALL) == sizeof(s->peer));
	bring_up(s->rc, s->peer.lid, s->peer.rc);
	bring_up(s->ini, s->peer.lid, s->peer.tgt);
	bring_up(s->tgt, s->peer.lid, s->peer.ini);
	for (int i = 0; i < RECEIVES; i++) {
		post_recv(s, s->rc);
		post_recv(s, s->ini);
	}
}

static void meet(const struct side *s)
{
	char c = 'm';

	NEED(send(s->link, &c, 1, 0) == 1 && recv(s->link, &c, 1, MSG_WAITALL) == 1);
}

/* ---- what is measured: microseconds of one way, or of one READ ---- */

static void wait_cq(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) == 0) {
	}
	NEED(wc.status == IBV_WC_SUCCESS);
}

struct what {
	const char *name;
	double (*run)(struct side *s, const struct what *w);
	enum ibv_wr_opcode op;
	uint32_t length;
	bool xrc;
	bool shared;
};

static struct ibv_qp *qp_of(const struct side *s, const struct what *w)
{
	return w->xrc ? s->ini : s->rc;
}

static void post(struct side *s, const struct what *w, unsigned flags)
{
	struct ibv_sge sge = { (uintptr_t)s->memory, w->length, s->mr->lkey };
	struct ibv_send_wr wr = { .opcode = w->op, .sg_list = &sge, .num_sge = 1, .send_flags = flags }, *bad;

	wr.wr.rdma.remote_addr = w->shared ? s->peer.shared_addr : s->peer.addr;
	wr.wr.rdma.rkey = w->shared ? s->peer.shared_rkey : s->peer.rkey;
	wr.qp_type.xrc.remote_srqn = s->peer.srqn;
	NEED(ibv_post_send(qp_of(s, w), &wr, &bad) == 0);
}

static double ring_hop(struct side *s, const struct what *w)
{
	double start = now();

	(void)w;
	for (uint64_t i = 1; i <= (uint64_t)iterations; i++) {
		if (s->first) {
			lines->ping = i;
			while (lines->pong != i) {
			}
		} else {
			while (lines->ping != i) {
			}
			lines->pong = i;
		}
	}
	return (now() - start) / (2 * iterations);
}

static double send_lat(struct side *s, const struct what *w)
{
	double start = now();

	for (int i = 0; i < iterations; i++) {
		unsigned flags = IBV_SEND_INLINE | (i % 32 == 31 ? IBV_SEND_SIGNALED : 0);

		if (s->first)
			post(s, w, flags);
		wait_cq(s->recv_cq);
		post_recv(s, qp_of(s, w));
		if (!s->first)
			post(s, w, flags);
		if (flags & IBV_SEND_SIGNALED)
			wait_cq(s->send_cq);
	}
	return (now() - start) / (2 * iterations);
}

static double write_lat(struct side *s, const struct what *w)
{
	volatile uint64_t *in = (volatile uint64_t *)(void *)(w->shared ? s->shared : s->memory + BIG);
	uint64_t *out = (uint64_t *)(void *)s->memory;
	double start;

	*in = 0;
	meet(s);
	start = now();
	for (uint64_t i = 1; i <= (uint64_t)iterations; i++) {
		*out = i;
		if (s->first)
			post(s, w, IBV_SEND_SIGNALED);
		while (*in != i) {
		}
		if (!s->first)
			post(s, w, IBV_SEND_SIGNALED);
		wait_cq(s->send_cq);
	}
	return (now() - start) / (2 * iterations);
}

static double one_sided(struct side *s, const struct what *w)
{
	int n = w->length == BIG ? BIG_ITERATIONS : iterations;
	double start = now();

	for (int i = 0; s->first && i < n; i++) {
		post(s, w, IBV_SEND_SIGNALED);
		wait_cq(s->send_cq);
	}
	return (now() - start) / n;
}

/* Into the other's posted buffers, as many at a time as there are. */
static double send_bw(struct side *s, const struct what *w)
{
	double start = now();

	for (int i = 0; i < BIG_ITERATIONS; i += RECEIVES) {
		for (int k = 0; s->first && k < RECEIVES; k++) {
			post(s, w, IBV_SEND_SIGNALED);
			wait_cq(s->send_cq);
		}
		for (int k = 0; !s->first && k < RECEIVES; k++) {
			wait_cq(s->recv_cq);
			post_recv(s, qp_of(s, w));
		}
		meet(s);
	}
	return (now() - start) / BIG_ITERATIONS;
}

static double copy(struct side *s, const struct what *w)
{
	double start = now();

	for (int i = 0; s->first && i < BIG_ITERATIONS; i++)
		memcpy((w->shared ? shared : s->memory) + BIG, s->memory, BIG);
	return (now() - start) / BIG_ITERATIONS;
}

/* ---- rounds ---- */

enum { HOP = 0, MEMCPY = 11 };

static const struct what table[] = {
	[HOP] = { "bare ring hop", ring_hop, 0, 0, 0, 0 },
	{ "SEND 8 B, RC", send_lat, IBV_WR_SEND, 8, false, false },
	{ "SEND 8 B, XRC", send_lat, IBV_WR_SEND, 8, true, false },
	{ "WRITE 8 B shared, RC", write_lat, IBV_WR_RDMA_WRITE, 8, false, true },
	{ "WRITE 8 B shared, XRC", write_lat, IBV_WR_RDMA_WRITE, 8, true, true },
	{ "READ 8 B shared, RC", one_sided, IBV_WR_RDMA_READ, 8, false, true },
	{ "READ 8 B shared, XRC", one_sided, IBV_WR_RDMA_READ, 8, true, true },
	{ "WRITE 8 B, RC", write_lat, IBV_WR_RDMA_WRITE, 8, false, false },
	{ "WRITE 8 B, XRC", write_lat, IBV_WR_RDMA_WRITE, 8, true, false },
	{ "READ 8 B, RC", one_sided, IBV_WR_RDMA_READ, 8, false, false },
	{ "READ 8 B, XRC", one_sided, IBV_WR_RDMA_READ, 8, true, false },
	[MEMCPY] = { "memcpy 1 MiB", copy, 0, BIG, 0, 0 },
	{ "memcpy 1 MiB shared", copy, 0, BIG, 0, true },
	{ "WRITE 1 MiB shared, RC", one_sided, IBV_WR_RDMA_WRITE, BIG, false, true },
	{ "WRITE 1 MiB shared, XRC", one_sided, IBV_WR_RDMA_WRITE, BIG, true, true },
	{ "READ 1 MiB shared, RC", one_sided, IBV_WR_RDMA_READ, BIG, false, true },
	{ "WRITE 1 MiB, RC", one_sided, IBV_WR_RDMA_WRITE, BIG, false, false },
	{ "WRITE 1 MiB, XRC", one_sided, IBV_WR_RDMA_WRITE, BIG, true, false },
	{ "READ 1 MiB, RC", one_sided, IBV_WR_RDMA_READ, BIG, false, false },
	{ "READ 1 MiB, XRC", one_sided, IBV_WR_RDMA_READ, BIG, true, false },
	{ "SEND 1 MiB, RC", send_bw, IBV_WR_SEND, BIG, false, false },
	{ "SEND 1 MiB, XRC", send_bw, IBV_WR_SEND, BIG, true, false },
};

#define NUM_WHAT (sizeof(table) / sizeof(table[0]))

static void run(struct side *s, double result[NUM_WHAT][ROUNDS])
{
	for (int r = 0; r < rounds; r++)
		for (size_t w = 0; w < NUM_WHAT; w++) {
			meet(s);
			if (w == HOP && s->first)
				lines->ping = lines->pong = 0;
			meet(s);
			result[w][r] = table[w].run(s, &table[w]);
		}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, (size_t)rounds, sizeof(*values), compare);
	return values[rounds / 2];
}

static void print(double result[NUM_WHAT][ROUNDS])
{
	double m[NUM_WHAT];

	for (size_t w = 0; w < NUM_WHAT; w++)
		m[w] = median(result[w]);
	printf("%-24s %12s %10s   medians of %d rounds\n", "", "microseconds", "ratio", rounds);
	for (size_t w = 0; w < NUM_WHAT; w++)
		printf("%-24s %12.3f %10.3f   %s\n", table[w].name, m[w], m[w] / (w < MEMCPY ? m[HOP] : m[MEMCPY]),
		       w == HOP ? "to this" : w == MEMCPY ? "to this from here on" : "");
}

static void tear_down(struct side *s)
{
	NEED(ibv_destroy_qp(s->rc) == 0 && ibv_destroy_qp(s->ini) == 0 && ibv_destroy_qp(s->tgt) == 0 && ibv_destroy_srq(s->srq) == 0);
	NEED(ibv_close_xrcd(s->xrcd) == 0 && ibv_destroy_cq(s->send_cq) == 0 && ibv_destroy_cq(s->recv_cq) == 0);
	NEED(ibv_dereg_mr(s->mr) == 0 && ibv_dereg_mr(s->shared_mr) == 0 && ibv_dealloc_pd(s->pd) == 0 && ibv_close_device(s->context) == 0);
	free(s->memory);
}

/* Both ends in one process. */
static void alone(int n, bool writes)
{
	const struct what send = { .op = IBV_WR_SEND, .length = 8 }, write = { .op = IBV_WR_RDMA_WRITE, .length = 8, .shared = true };
	struct side s = { .first = 1, .link = -1 };

	set_up(&s);
	for (int i = 0; i < n; i++) {
		post(&s, &send, IBV_SEND_INLINE | IBV_SEND_SIGNALED);
		wait_cq(s.send_cq);
		wait_cq(s.recv_cq);
		post_recv(&s, s.rc);
		if (writes) {
			post(&s, &write, IBV_SEND_SIGNALED);
			wait_cq(s.send_cq);
		}
	}
	tear_down(&s);
}

/* ---- the path of a message, for tools that count what happens on it ---- */

static void stream_sends(struct side *s, uint64_t n)
{
	const struct what send = { .op = IBV_WR_SEND, .length = 8, .xrc = true };

	for (uint64_t i = 0; i < n; i++) {
		if (s->first) {
			while (i - lines->pong >= RECEIVES) {
			}
			post(s, &send, IBV_SEND_INLINE | IBV_SEND_SIGNALED);
			wait_cq(s->send_cq);
		} else {
			wait_cq(s->recv_cq);
			post_recv(s, s->ini);
			lines->pong = i + 1;
		}
	}
}

static void stream_writes(struct side *s, uint64_t n)
{
	const struct what write = { .op = IBV_WR_RDMA_WRITE, .length = 8, .xrc = true, .shared = true };
	volatile uint64_t *in = (volatile uint64_t *)(void *)s->shared;

	for (uint64_t i = 1; s->first && i <= n; i++) {
		*(uint64_t *)(void *)s->memory = i;
		post(s, &write, 0 == i % 32 || i == n ? IBV_SEND_SIGNALED : 0);
		if (0 == i % 32 || i == n)
			wait_cq(s->send_cq);
	}
	while (!s->first && *in != n) {
	}
}

static void say(const char *text)
{
	NEED(write(STDERR_FILENO, text, strlen(text)) == (ssize_t)strlen(text));
}

static void path(struct side *s, int n)
{
	unsigned long (*locks_taken)(void);
	unsigned long before = 0, after = 0;

	*(void **)&locks_taken = dlsym(RTLD_DEFAULT, "locks_taken");
	*(volatile uint64_t *)(void *)s->shared = 0;
	meet(s);
	say("path begins\n");
	before = locks_taken ? locks_taken() : 0;
	stream_sends(s, (uint64_t)n);
	stream_writes(s, (uint64_t)n);
	after = locks_taken ? locks_taken() : 0;
	say("path ends\n");
	if (locks_taken)
		printf("locks: %lu before the path, %lu on it\n", before, after - before);
	fflush(stdout);
}

/* ---- what is asked for ---- */

static int number(const char *word)
{
	int n = word ? atoi(word) : 0;

	if (n < 1) {
		fprintf(stderr, "usage: hca [rounds N ITERATIONS | path N | N [send]]\n");
		exit(2);
	}
	return n;
}

/* Messages of `path`; 0: it is not asked for. */
static int read_words(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "path"))
		return number(argv[2]);
	if (argc > 1 && !strcmp(argv[1], "rounds")) {
		rounds = number(argv[2]);
		rounds = rounds < ROUNDS ? rounds : ROUNDS;
		iterations = (number(argc > 3 ? argv[3] : NULL) + 31) / 32 * 32;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static double result[NUM_WHAT][ROUNDS];
	struct side s = { .first = 1 };
	int link[2], status, path_messages = read_words(argc, argv);
	pid_t pid;

	lines = mmap(NULL, sizeof(*lines), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	shared = mmap(NULL, 2 * BIG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(lines != MAP_FAILED && shared != MAP_FAILED && socketpair(AF_UNIX, SOCK_STREAM, 0, link) == 0);
	NEED(vshim_select_devices(VSHIM_DEVICES_SOFTWARE) == 0);
	if (argc > 1 && strcmp(argv[1], "path") && strcmp(argv[1], "rounds")) {
		alone(number(argv[1]), argc < 3 || strcmp(argv[2], "send"));
		return 0;
	}
	pid = fork();
	NEED(pid >= 0);
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	s.first = pid != 0;
	s.link = link[pid != 0];
	close(link[pid == 0]);
	set_up(&s);
	if (path_messages)
		path(&s, path_messages);
	else
		run(&s, result);
	meet(&s);
	tear_down(&s);
	if (pid == 0)
		return 0;
	NEED(waitpid(pid, &status, 0) == pid && status == 0);
	munmap(lines, sizeof(*lines));
	munmap(shared, 2 * BIG);
	if (!path_messages)
		print(result);
	return 0;
}
