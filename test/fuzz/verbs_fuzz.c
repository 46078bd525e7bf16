/* Sequences of verbs against a small model: who may be destroyed, which state a QP is in, what a post says, and which completions come, each
 * one of them, what is received, and what becomes of CQs without room. One process, one device. The first byte of the input says where to
 * begin, every two bytes behind it are a step. RC QPs send to themselves, INIs to a TGT. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "verbs_payload.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct ibv_context *context;
static uint16_t lid;
static uint64_t next_id;
static struct pd pds[NUM];
static struct cq cqs[NUM];
static struct srq srqs[NUM], xrc_srqs[NUM];
static struct qp qps[NUM], inis[NUM];
static struct tgt tgts[NUM];
static struct ibv_xrcd *xrcd;
static unsigned xrcd_users;
static struct ibv_qp *beacon; /* RC, by which it is seen how far the events are */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char dir[64];

	(void)argc, (void)argv;
	snprintf(dir, sizeof(dir), "/dev/shm/vfuzz.%d", (int)getpid());
	setenv("VERBS_SHIM_FABRIC", dir, 0);
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

static void toggle_pd(struct pd *s)
{
	if (!s->object) {
		s->object = ibv_alloc_pd(context);
		CHECK(s->object);
		s->mr = ibv_reg_mr(s->object, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
		CHECK(s->mr);
		return;
	}
	CHECK(ibv_dealloc_pd(s->object) == EBUSY);
	if (s->users)
		return;
	CHECK(ibv_dereg_mr(s->mr) == 0);
	CHECK(ibv_dealloc_pd(s->object) == 0);
	s->object = NULL;
}

static void toggle_cq(struct cq *s, int cqes)
{
	if (!s->object) {
		*s = (struct cq){ .object = ibv_create_cq(context, cqes, NULL, NULL, 0), .room = (unsigned)cqes + 1 };
		CHECK(s->object && s->object->cqe == cqes);
		return;
	}
	int err = ibv_destroy_cq(s->object);

	CHECK(err == (s->users ? EBUSY : 0));
	if (!err)
		s->object = NULL;
}

static void toggle_xrcd(void)
{
	struct ibv_xrcd_init_attr init = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT };

	if (!xrcd) {
		xrcd = ibv_open_xrcd(context, &init);
		CHECK(xrcd);
		return;
	}
	int err = ibv_close_xrcd(xrcd);

	CHECK(err == (xrcd_users ? EBUSY : 0));
	if (!err)
		xrcd = NULL;
}

static void make_srq(struct srq *s, struct pd *pd, struct cq *cq)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = DEPTH, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = cq ? IBV_SRQT_XRC : IBV_SRQT_BASIC,
		.pd = pd->object,
	};

	if (!pd->object || (cq && (!cq->object || !xrcd)))
		return;
	if (cq) {
		init.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
		init.xrcd = xrcd;
		init.cq = cq->object;
		cq->users++;
		xrcd_users++;
	}
	*s = (struct srq){ .object = ibv_create_srq_ex(context, &init), .pd = pd, .cq = cq, .rq = { .depth = DEPTH } };
	CHECK(s->object && init.attr.max_wr == DEPTH);
	CHECK(!cq || ibv_get_srq_num(s->object, &s->number) == 0);
	pd->users++;
}

static void destroy_srq(struct srq *s)
{
	int err = ibv_destroy_srq(s->object);

	CHECK(err == (s->users ? EBUSY : 0));
	if (err)
		return;
	s->object = NULL;
	s->pd->users--;
	if (!s->cq)
		return;
	for (unsigned i = 0; i < s->cq->n; i++)
		if (s->cq->due[i].rq == &s->rq)
			forget(s->cq, i);
	s->cq->users--;
	xrcd_users--;
}

/* An RC QP, or an INI towards a TGT. */
static void make_qp(struct qp *s, struct pd *pd, struct cq *send_cq, struct cq *recv_cq, struct srq *srq, struct tgt *tgt)
{
	struct ibv_qp_init_attr init = {
		.send_cq = send_cq->object,
		.recv_cq = recv_cq ? recv_cq->object : NULL,
		.srq = srq ? srq->object : NULL,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = tgt ? 0 : DEPTH, .max_send_sge = 1, .max_recv_sge = tgt ? 0 : 1 },
		.qp_type = tgt ? IBV_QPT_XRC_SEND : IBV_QPT_RC,
		.sq_sig_all = srq != NULL,
	};

	if (!pd->object || !send_cq->object || (recv_cq && !recv_cq->object) || (srq && !srq->object))
		return;
	*s = (struct qp){
		.object = ibv_create_qp(pd->object, &init), .pd = pd, .send_cq = send_cq, .recv_cq = recv_cq, .srq = srq, .tgt = tgt
	};
	CHECK(s->object && init.cap.max_send_wr == DEPTH);
	s->rq.depth = tgt || srq ? 0 : DEPTH;
	s->all_signalled = init.sq_sig_all;
	s->state = IBV_QPS_RESET;
	pd->users++;
	send_cq->users++;
	if (recv_cq)
		recv_cq->users++;
	if (srq)
		srq->users++;
}

static void destroy_qp(struct qp *s)
{
	forget_qp(s->send_cq, s);
	forget_qp(s->recv_cq, s);
	CHECK(ibv_destroy_qp(s->object) == 0);
	s->object = NULL;
	s->pd->users--;
	s->send_cq->users--;
	if (s->recv_cq)
		s->recv_cq->users--;
	if (s->srq)
		s->srq->users--;
}

/* Its first handle makes it, the other one opens it. */
static void make_tgt(struct tgt *t, int h)
{
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd };
	struct ibv_qp_open_attr open = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = t->qpn,
		.xrcd = xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	int lives = t->handle[!h] != NULL;

	if (!xrcd)
		return;
	t->handle[h] = lives ? ibv_open_qp(context, &open) : ibv_create_qp_ex(context, &init);
	CHECK(t->handle[h]);
	xrcd_users++;
	if (lives) {
		CHECK(t->handle[h]->qp_num == t->qpn);
		return;
	}
	t->qpn = t->handle[h]->qp_num;
	t->state = IBV_QPS_RESET;
}

static void destroy_handle(struct tgt *t, int h)
{
	CHECK(ibv_destroy_qp(t->handle[h]) == 0);
	t->handle[h] = NULL;
	xrcd_users--;
	if (t->handle[!h])
		return;
	struct ibv_qp_open_attr open = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = t->qpn,
		.xrcd = xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	CHECK(!ibv_open_qp(context, &open) && errno == EINVAL); /* it went with its last handle */
}

/* ---- states ---- */

enum kind { RC, INI, TGT };

static int modify(struct ibv_qp *qp, enum kind kind, enum ibv_qp_state from, enum ibv_qp_state to, uint32_t dest)
{
	struct ibv_qp_attr a = {
		.qp_state = to,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest,
		.ah_attr = { .dlid = lid, .port_num = 1 },
		.min_rnr_timer = 1,
		.rnr_retry = 0,
		.timeout = 1,
	};
	int mask = IBV_QP_STATE;

	if (to == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	if (to == IBV_QPS_RTR) {
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
		mask |= kind == INI ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	if (to == IBV_QPS_RTS && from != IBV_QPS_SQD) {
		mask |= IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;
		mask |= kind == TGT ? 0 : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	return ibv_modify_qp(qp, &a, mask);
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
		return from == IBV_QPS_RTR || from == IBV_QPS_SQD;
	case IBV_QPS_SQD:
		return from == IBV_QPS_RTS || from == IBV_QPS_SQD;
	default:
		return 0;
	}
}

static void move(struct qp *s, enum ibv_qp_state to)
{
	int err = modify(s->object, s->tgt ? INI : RC, s->state, to, s->tgt ? s->tgt_qpn : s->object->qp_num);

	CHECK(err == (allowed(s->state, to) ? 0 : EINVAL));
	if (!err)
		s->state = to;
	if (s->state == IBV_QPS_RESET) {
		forget_qp(s->send_cq, s);
		forget_qp(s->recv_cq, s);
		s->posted = s->run = s->retired = 0;
		s->rq.n = s->rq.held = 0;
	}
	run(s);
}

static struct ibv_qp *any_handle(const struct tgt *t)
{
	return t->handle[0] ? t->handle[0] : t->handle[1];
}

static void move_tgt(struct tgt *t, int h, enum ibv_qp_state to, uint32_t dest)
{
	CHECK(modify(t->handle[h] ? t->handle[h] : any_handle(t), TGT, t->state, to, dest) == (allowed(t->state, to) ? 0 : EINVAL));
	if (allowed(t->state, to))
		t->state = to;
}

/* Both ends from the beginning: their sequence numbers must fit. */
static void connect_pair(struct qp *ini)
{
	static const enum ibv_qp_state way[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };

	if (!any_handle(ini->tgt))
		return;
	ini->tgt_qpn = ini->tgt->qpn;
	for (unsigned i = 0; i < 4; i++) {
		move_tgt(ini->tgt, (int)i % 2, way[i], ini->object->qp_num);
		move(ini, way[i]);
	}
}

/* ---- posting: ENOMEM exactly when the queue is full ---- */

static void receive_posted(struct recvq *rq, int err, uint64_t id)
{
	CHECK(err == (rq->held == rq->depth ? ENOMEM : 0));
	if (err)
		return;
	rq->held++;
	rq->id[rq->n++] = id;
}

static struct ibv_sge empty_buffer(const struct pd *pd)
{
	memcpy(memory[next_id % BUFFERS], fill, BUFFER);
	return buffer(pd, next_id, ROOM);
}

static void post_receive(struct qp *s)
{
	struct ibv_sge sge = empty_buffer(s->pd);
	struct ibv_recv_wr wr = { .wr_id = next_id++, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	int err = ibv_post_recv(s->object, &wr, &bad);

	CHECK(!err == !bad && (!bad || bad == &wr));
	if (s->srq || s->state == IBV_QPS_RESET) {
		CHECK(err == EINVAL);
		return;
	}
	receive_posted(&s->rq, err, wr.wr_id);
	run(s);
}

static void post_shared(struct srq *s)
{
	struct ibv_sge sge = empty_buffer(s->pd);
	struct ibv_recv_wr wr = { .wr_id = next_id++, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	int err = ibv_post_srq_recv(s->object, &wr, &bad);

	CHECK(!err == !bad && (!bad || bad == &wr));
	receive_posted(&s->rq, err, wr.wr_id);
}

static void post_send(struct qp *s, int signalled, uint32_t length, struct srq *to)
{
	struct ibv_sge sge = buffer(s->pd, next_id, length);
	struct ibv_send_wr wr = {
		.wr_id = next_id++,
		.sg_list = &sge,
		.num_sge = length != 0,
		.opcode = IBV_WR_SEND,
		.send_flags = signalled ? IBV_SEND_SIGNALED : 0,
	}, *bad = NULL;

	if (to && !to->object)
		return;
	write_pattern(memory[wr.wr_id % BUFFERS], wr.wr_id, length);
	wr.qp_type.xrc.remote_srqn = to ? to->number : 0;
	int err = ibv_post_send(s->object, &wr, &bad);

	CHECK(!err == !bad && (!bad || bad == &wr));
	if (s->state == IBV_QPS_RESET || s->state == IBV_QPS_INIT || s->state == IBV_QPS_RTR) {
		CHECK(err == EINVAL);
		return;
	}
	CHECK(err == (s->posted - s->retired == DEPTH ? ENOMEM : 0));
	if (err)
		return;
	s->to[s->posted % DEPTH] = to;
	s->wr[s->posted++ % DEPTH] = (struct wr){ wr.wr_id, length, signalled || s->all_signalled, wr.qp_type.xrc.remote_srqn };
	run(s);
}

static void check_wc(const struct due *due, const struct ibv_wc *wc)
{
	CHECK(due->recv == ((wc->opcode & IBV_WC_RECV) != 0) && due->qpn == wc->qp_num);
	CHECK(due->wr_id == wc->wr_id);
	CHECK(due->status == wc->status);
	if (!due->recv) {
		due->qp->retired = due->pos + 1; /* and those before it that were not signalled */
		return;
	}
	due->rq->held--;
	CHECK(wc->status != IBV_WC_SUCCESS || wc->byte_len == due->length);
	check_buffer(wc->wr_id, due->from, due->length);
}

/* All that is done here is done by one thread at a time, so completions come in one order. */
static void poll_some(struct cq *s, unsigned most)
{
	struct ibv_wc wc[8];
	unsigned due = s->unread, at = 0;
	int n = ibv_poll_cq(s->object, (int)most, wc);

	CHECK(n == (int)(due < most ? due : most));
	for (int i = 0; i < n; i++) {
		while (s->due[at].gone)
			at++;
		check_wc(&s->due[at++], &wc[i]);
	}
	s->unread -= (unsigned)n;
	take_out(s, n < (int)most ? s->n : at);
}

/* ---- events: CQ_ERR of each CQ that overran, QP_FATAL of each QP that lost a completion, no others ---- */

static void told_of_cq(const struct ibv_cq *cq)
{
	unsigned i = 0;

	while (i < NUM && (!cqs[i].object || cqs[i].object != cq))
		i++;
	CHECK(i < NUM && cqs[i].untold);
	cqs[i].untold = 0;
}

static int *untold_of_qp(const struct ibv_qp *qp)
{
	for (unsigned i = 0; i < NUM; i++) {
		if (qps[i].object == qp)
			return &qps[i].untold;
		if (inis[i].object == qp)
			return &inis[i].untold;
		for (int h = 0; h < 2; h++)
			if (tgts[i].handle[h] == qp)
				return &tgts[i].untold[h];
	}
	return NULL;
}

static void told_of_qp(const struct ibv_qp *qp)
{
	int *untold = untold_of_qp(qp);

	CHECK(untold && *untold);
	*untold = 0;
}

static int nothing_untold(void)
{
	int n = 0;

	for (unsigned i = 0; i < NUM; i++) {
		n += cqs[i].object && cqs[i].untold;
		n += qps[i].object && qps[i].untold;
		n += inis[i].object && inis[i].untold;
		n += tgts[i].handle[0] && tgts[i].untold[0];
		n += tgts[i].handle[1] && tgts[i].untold[1];
	}
	return n == 0;
}

static void read_to_beacon(void)
{
	struct ibv_qp_attr drain = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct ibv_async_event e;
	int last;

	CHECK(ibv_modify_qp(beacon, &drain, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
	do {
		while (ibv_get_async_event(context, &e))
			CHECK(errno == EINTR); /* libFuzzer's clock is a signal */
		last = e.event_type == IBV_EVENT_SQ_DRAINED && e.element.qp == beacon;
		if (e.event_type == IBV_EVENT_CQ_ERR)
			told_of_cq(e.element.cq);
		if (e.event_type == IBV_EVENT_QP_FATAL)
			told_of_qp(e.element.qp);
		ibv_ack_async_event(&e);
	} while (!last);
	CHECK(modify(beacon, RC, IBV_QPS_SQD, IBV_QPS_RTS, beacon->qp_num) == 0);
}

/* Events come in order, and with them what the HCA's engine is to flush: that is done when the beacon's has come, and what is to be told of
 * it has come with the next one. */
static void read_events(void)
{
	read_to_beacon();
	read_to_beacon();
	CHECK(nothing_untold());
	overran = 0;
}

static void light_beacon(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = { .max_send_wr = 1, .max_send_sge = 1 }, .qp_type = IBV_QPT_RC
	};
	struct ibv_pd *pd = ibv_alloc_pd(context);

	CHECK(cq && pd);
	beacon = ibv_create_qp(pd, &init);
	CHECK(beacon);
	for (int to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++)
		CHECK(modify(beacon, RC, (enum ibv_qp_state)(to - 1), (enum ibv_qp_state)to, beacon->qp_num) == 0);
}

/* ---- steps ---- */

static void step_objects(uint8_t op, uint8_t arg)
{
	int i = arg % NUM, j = arg / 4 % NUM, k = arg / 16 % NUM, l = arg / 64 % NUM;

	switch (op) {
	case 0:
		toggle_pd(&pds[i]);
		break;
	case 1:
		toggle_cq(&cqs[i], arg & 0x80 ? FEW_CQES : CQES);
		break;
	case 2:
		if (srqs[i].object)
			destroy_srq(&srqs[i]);
		else
			make_srq(&srqs[i], &pds[j], NULL);
		break;
	case 3:
		if (!qps[i].object)
			make_qp(&qps[i], &pds[j], &cqs[k], &cqs[l], l % 2 ? &srqs[j] : NULL, NULL);
		else if (arg & 0x80)
			destroy_qp(&qps[i]);
		break;
	case 4:
		toggle_xrcd();
		break;
	case 5:
		if (xrc_srqs[i].object)
			destroy_srq(&xrc_srqs[i]);
		else
			make_srq(&xrc_srqs[i], &pds[j], &cqs[k]);
		break;
	case 6:
		if (!inis[i].object)
			make_qp(&inis[i], &pds[j], &cqs[k], NULL, NULL, &tgts[i]);
		else if (arg & 0x80)
			destroy_qp(&inis[i]);
		break;
	case 7:
		if (tgts[i].handle[j % 2])
			destroy_handle(&tgts[i], j % 2);
		else
			make_tgt(&tgts[i], j % 2);
		break;
	}
}

static void step_queues(uint8_t op, uint8_t arg)
{
	int i = arg % NUM, j = arg / 4 % NUM;
	struct qp *rc = &qps[i], *ini = &inis[i];

	switch (op) {
	case 8:
		if (rc->object)
			move(rc, (enum ibv_qp_state)(arg / NUM % 7));
		break;
	case 9:
		if (rc->object)
			post_receive(rc);
		break;
	case 10:
		if (arg & 0x80 ? srqs[i].object : xrc_srqs[i].object)
			post_shared(arg & 0x80 ? &srqs[i] : &xrc_srqs[i]);
		break;
	case 11:
		if (rc->object)
			post_send(rc, arg & 0x80, length_of(arg / NUM), NULL);
		break;
	case 12:
		if (cqs[i].object)
			poll_some(&cqs[i], 1u + arg / NUM % 8);
		break;
	case 13:
		if (ini->object)
			connect_pair(ini);
		break;
	case 14:
		if (ini->object)
			post_send(ini, arg & 0x80, length_of(arg / 16), &xrc_srqs[j]);
		break;
	case 15:
		if (arg & 0x80 && any_handle(&tgts[i]))
			move_tgt(&tgts[i], j % 2, arg & 0x40 ? IBV_QPS_ERR : IBV_QPS_RESET, 0);
		else if (ini->object && ini->state != IBV_QPS_RESET)
			move(ini, (enum ibv_qp_state)(arg / NUM % 7));
		break;
	}
}

/* One of everything, connected: where most that can go wrong is near. */
static void prepare(int cqes)
{
	toggle_xrcd();
	for (int i = 0; i < NUM; i++) {
		toggle_pd(&pds[i]);
		toggle_cq(&cqs[i], cqes);
	}
	for (int i = 0; i < NUM; i++) {
		make_srq(&srqs[i], &pds[i], NULL);
		make_srq(&xrc_srqs[i], &pds[i], &cqs[(i + 1) % NUM]);
		make_qp(&qps[i], &pds[i], &cqs[i], &cqs[(i + 2) % NUM], i % 2 ? &srqs[i] : NULL, NULL);
		for (int to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++)
			move(&qps[i], (enum ibv_qp_state)to);
		make_tgt(&tgts[i], 0);
		make_tgt(&tgts[i], 1);
		make_qp(&inis[i], &pds[i], &cqs[i], NULL, NULL, &tgts[i]);
		connect_pair(&inis[i]);
	}
}

/* What is due comes, to the last one. */
static void read_all(void)
{
	for (int i = 0; i < NUM; i++)
		while (cqs[i].object && cqs[i].unread)
			poll_some(&cqs[i], 8);
	for (int i = 0; i < NUM; i++)
		if (cqs[i].object)
			poll_some(&cqs[i], 8);
}

static void clear(void)
{
	for (int i = 0; i < NUM; i++) {
		if (qps[i].object)
			destroy_qp(&qps[i]);
		if (inis[i].object)
			destroy_qp(&inis[i]);
		for (int h = 0; h < 2; h++)
			if (tgts[i].handle[h])
				destroy_handle(&tgts[i], h);
	}
	for (int i = 0; i < NUM; i++) {
		if (srqs[i].object)
			destroy_srq(&srqs[i]);
		if (xrc_srqs[i].object)
			destroy_srq(&xrc_srqs[i]);
	}
	for (int i = 0; i < NUM; i++) {
		if (cqs[i].object)
			toggle_cq(&cqs[i], 0);
		if (pds[i].object)
			toggle_pd(&pds[i]);
		CHECK(!pds[i].object && !cqs[i].object && !srqs[i].object && !xrc_srqs[i].object);
	}
	if (xrcd)
		toggle_xrcd();
	CHECK(!xrcd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!context) {
		open_device();
		light_beacon();
		prepare_payloads();
	}
	next_id = 0;
	if (size && data[0] & 1)
		prepare(data[0] & 2 ? FEW_CQES : CQES);
	for (size_t i = 1; i + 1 < size && i / 2 < STEPS; i += 2) {
		uint8_t op = data[i] % 32;

		op = op < 16 ? op : 8 + op % 8; /* more often with queues than with objects */
		step_objects(op, data[i + 1]);
		step_queues(op, data[i + 1]);
		if (overran)
			read_events();
	}
	read_all();
	read_events();
	clear();
	return 0;
}
