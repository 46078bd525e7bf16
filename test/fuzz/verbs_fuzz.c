/* Sequences of verbs against a small model: who may be destroyed, which state a QP is in, what a post says, which completions come. One
 * process, one device; each byte of the input is a step. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_shim_names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define CHECK(x)                                                                                                                   \
	do {                                                                                                                           \
		if (!(x)) {                                                                                                                \
			fprintf(stderr, "line %d: %s\n", __LINE__, #x);                                                                        \
			abort();                                                                                                               \
		}                                                                                                                          \
	} while (0)

#define NUM 4     /* objects of a kind */
#define DEPTH 8u  /* of every queue */
#define MESSAGE 64u

struct slot {
	void *object;
	unsigned users;
	int pd, cq, srq; /* what it was made with */
	enum ibv_qp_state state;
	unsigned posted; /* receives waiting */
	unsigned sent;   /* sends not retired */
};

static struct ibv_context *context;
static struct slot pds[NUM], cqs[NUM], srqs[NUM], qps[NUM];
static char memory[MESSAGE];
static uint16_t lid;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char dir[64];

	(void)argc, (void)argv;
	snprintf(dir, sizeof(dir), "/dev/shm/vfuzz.%d", (int)getpid());
	setenv("VERBS_SHIM_FABRIC", dir, 1);
	return 0;
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;

	CHECK(list && list[0]);
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	CHECK(context && ibv_query_port(context, 1, &port) == 0);
	lid = port.lid;
}

/* ---- making and destroying: EBUSY exactly while there are users ---- */

static void toggle_pd(struct slot *s)
{
	if (!s->object) {
		s->object = ibv_alloc_pd(context);
		CHECK(s->object);
		return;
	}
	int err = ibv_dealloc_pd(s->object);

	CHECK(err == (s->users ? EBUSY : 0));
	if (!err)
		s->object = NULL;
}

static void toggle_cq(struct slot *s)
{
	if (!s->object) {
		s->object = ibv_create_cq(context, 64, NULL, NULL, 0);
		CHECK(s->object);
		return;
	}
	int err = ibv_destroy_cq(s->object);

	CHECK(err == (s->users ? EBUSY : 0));
	if (!err)
		s->object = NULL;
}

static void toggle_srq(struct slot *s, int pd)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };

	if (!s->object) {
		if (!pds[pd].object)
			return;
		s->object = ibv_create_srq(pds[pd].object, &attr);
		CHECK(s->object && attr.attr.max_wr >= DEPTH);
		s->pd = pd;
		s->posted = 0;
		pds[pd].users++;
		return;
	}
	int err = ibv_destroy_srq(s->object);

	CHECK(err == (s->users ? EBUSY : 0));
	if (err)
		return;
	s->object = NULL;
	pds[s->pd].users--;
}

static void make_qp(struct slot *s, int pd, int cq, int srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cqs[cq].object,
		.recv_cq = cqs[cq].object,
		.srq = srq < 0 ? NULL : srqs[srq].object,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = MESSAGE },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	if (!pds[pd].object || !cqs[cq].object || (srq >= 0 && !srqs[srq].object))
		return;
	s->object = ibv_create_qp(pds[pd].object, &init);
	CHECK(s->object);
	s->pd = pd;
	s->cq = cq;
	s->srq = srq;
	s->state = IBV_QPS_RESET;
	s->posted = s->sent = 0;
	pds[pd].users++;
	cqs[cq].users++;
	if (srq >= 0)
		srqs[srq].users++;
}

static void destroy_qp(struct slot *s)
{
	CHECK(ibv_destroy_qp(s->object) == 0);
	s->object = NULL;
	pds[s->pd].users--;
	cqs[s->cq].users--;
	if (s->srq >= 0)
		srqs[s->srq].users--;
}

/* ---- states: to itself, so that nothing depends on others ---- */

static int modify(struct slot *s, enum ibv_qp_state to)
{
	struct ibv_qp *qp = s->object;
	struct ibv_qp_attr a = {
		.qp_state = to,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.ah_attr = { .dlid = lid, .port_num = 1 },
		.min_rnr_timer = 1,
		.rnr_retry = 0,
		.timeout = 1,
	};
	static const int masks[] = {
		[IBV_QPS_RESET] = 0,
		[IBV_QPS_INIT] = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		[IBV_QPS_RTR] = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		[IBV_QPS_RTS] = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		[IBV_QPS_SQD] = 0,
		[IBV_QPS_SQE] = 0,
		[IBV_QPS_ERR] = 0,
	};

	return ibv_modify_qp(qp, &a, IBV_QP_STATE | masks[to]);
}

/* With the attributes above, which moves does the table have? */
static int allowed(enum ibv_qp_state from, enum ibv_qp_state to)
{
	switch (to) {
	case IBV_QPS_RESET:
		return 1;
	case IBV_QPS_ERR:
		return from != IBV_QPS_RESET;
	case IBV_QPS_INIT:
		return from == IBV_QPS_RESET || from == IBV_QPS_INIT;
	case IBV_QPS_RTR:
		return from == IBV_QPS_INIT;
	case IBV_QPS_RTS:
		return from == IBV_QPS_RTR;
	case IBV_QPS_SQD:
		return from == IBV_QPS_RTS || from == IBV_QPS_SQD;
	default:
		return 0;
	}
}

static void move(struct slot *s, enum ibv_qp_state to)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	int err = modify(s, to);

	/* The QP may be in ERR by its own doing: a send that found no receive. */
	CHECK(ibv_query_qp(s->object, &a, IBV_QP_STATE, &init) == 0);
	if (s->state == IBV_QPS_RTS && err && a.qp_state == IBV_QPS_ERR)
		s->state = IBV_QPS_ERR;
	CHECK(err == (allowed(s->state, to) ? 0 : EINVAL));
	if (!err)
		s->state = to;
	if (s->state == IBV_QPS_RESET)
		s->posted = s->sent = 0;
}

/* ---- posting ---- */

static void post_receive(struct slot *s)
{
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad = NULL;
	int err = ibv_post_recv(s->object, &wr, &bad);

	if (s->srq >= 0 || s->state == IBV_QPS_RESET)
		CHECK(err == EINVAL && bad == &wr);
	else
		CHECK(err == 0 || (err == ENOMEM && bad == &wr));
}

static void post_shared(struct slot *s)
{
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad = NULL;
	int err = ibv_post_srq_recv(s->object, &wr, &bad);

	CHECK(err == 0 || (err == ENOMEM && bad == &wr));
}

static void post_send(struct slot *s)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 0 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	int err = ibv_post_send(s->object, &wr, &bad);

	if (s->state == IBV_QPS_RESET || s->state == IBV_QPS_INIT || s->state == IBV_QPS_RTR)
		CHECK(err == EINVAL && bad == &wr);
	else
		CHECK(err == 0 || (err == ENOMEM && bad == &wr));
}

static void poll_some(struct slot *s)
{
	struct ibv_wc wc[8];
	int n = ibv_poll_cq(s->object, 8, wc);

	CHECK(n >= 0 && n <= 8);
	for (int i = 0; i < n; i++) {
		int known = 0;

		for (int q = 0; q < NUM; q++)
			known |= qps[q].object && ((struct ibv_qp *)qps[q].object)->qp_num == wc[i].qp_num;
		CHECK(known);
		CHECK(wc[i].status == IBV_WC_SUCCESS || wc[i].status == IBV_WC_WR_FLUSH_ERR || wc[i].status == IBV_WC_RNR_RETRY_EXC_ERR);
	}
}

/* ---- steps ---- */

static void step(uint8_t op, uint8_t arg)
{
	int i = arg % NUM, j = arg / NUM % NUM, k = arg / 16 % NUM;

	switch (op % 9) {
	case 0:
		toggle_pd(&pds[i]);
		break;
	case 1:
		toggle_cq(&cqs[i]);
		break;
	case 2:
		toggle_srq(&srqs[i], j);
		break;
	case 3:
		if (!qps[i].object)
			make_qp(&qps[i], j, k, arg & 0x80 ? j : -1);
		else if (arg & 0x80)
			destroy_qp(&qps[i]);
		break;
	case 4:
		if (qps[i].object)
			move(&qps[i], (enum ibv_qp_state)(arg / NUM % 7));
		break;
	case 5:
		if (qps[i].object)
			post_receive(&qps[i]);
		break;
	case 6:
		if (srqs[i].object)
			post_shared(&srqs[i]);
		break;
	case 7:
		if (qps[i].object)
			post_send(&qps[i]);
		break;
	case 8:
		if (cqs[i].object)
			poll_some(&cqs[i]);
		break;
	}
}

static void clear(void)
{
	for (int i = 0; i < NUM; i++)
		if (qps[i].object)
			destroy_qp(&qps[i]);
	for (int i = 0; i < NUM; i++)
		if (srqs[i].object)
			toggle_srq(&srqs[i], 0);
	for (int i = 0; i < NUM; i++) {
		if (cqs[i].object)
			toggle_cq(&cqs[i]);
		if (pds[i].object)
			toggle_pd(&pds[i]);
		CHECK(!pds[i].object && !cqs[i].object && !srqs[i].object);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!context)
		open_device();
	for (size_t i = 0; i + 1 < size; i += 2)
		step(data[i], data[i + 1]);
	clear();
	return 0;
}
