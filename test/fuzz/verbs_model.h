/* What the fuzzer of verbs knows of queues: what is posted, what becomes of it, and which completions are to come. */
#ifndef VERBS_MODEL_H
#define VERBS_MODEL_H

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_shim_names.h"

#define CHECK(x)                                                                                                                           \
	do {                                                                                                                               \
		if (!(x)) {                                                                                                                \
			fprintf(stderr, "line %d: %s\n", __LINE__, #x);                                                                    \
			abort();                                                                                                           \
		}                                                                                                                          \
	} while (0)

#define NUM 4 /* objects of a kind */
#define DEPTH 4u /* of every queue */
#define STEPS 250u /* of an input, each of at most one post */
#define CQES 255
#define FEW_CQES 3 /* of a CQ that overruns soon; a ring has room for one more than it says */

/* A completion that is to come. */
struct due {
	int gone; /* its object is: it takes up room until it is polled over */
	int recv;
	uint32_t qpn;
	uint64_t wr_id;
	enum ibv_wc_status status;
	struct qp *qp; /* a send's; pos in its queue */
	uint64_t pos;
	struct recvq *rq; /* a receive's, and what it received */
	uint64_t from;
	uint32_t length;
};

struct cq {
	struct ibv_cq *object;
	unsigned users, room, n, unread;
	int failed, untold; /* it has overrun; and CQ_ERR is to come */
	struct due due[CQES + 1]; /* in the order in which they come */
};

struct pd {
	struct ibv_pd *object;
	struct ibv_mr *mr; /* all buffers */
	unsigned users;
};

struct recvq {
	uint64_t id[DEPTH]; /* posted, the oldest first */
	unsigned n;
	unsigned held; /* these, and those whose completion is unread */
	unsigned depth;
};

struct srq {
	struct ibv_srq *object;
	unsigned users;
	struct pd *pd;
	struct cq *cq; /* of an XRC SRQ */
	uint32_t number;
	struct recvq rq;
};

struct wr {
	uint64_t id;
	uint32_t length;
	int signalled;
	uint32_t srqn; /* an INI's */
};

struct qp {
	struct ibv_qp *object;
	enum ibv_qp_state state;
	struct pd *pd;
	struct cq *send_cq, *recv_cq; /* an INI has no recv_cq */
	struct srq *srq;
	int all_signalled;
	struct recvq rq;
	struct wr wr[DEPTH];
	uint64_t posted, run, retired; /* sends, since it was reset */
	struct tgt *tgt; /* an INI's, and its number when they were connected */
	uint32_t tgt_qpn;
	struct srq *to[DEPTH]; /* whom an INI's sends are for */
	int untold; /* QP_FATAL is to come */
};

/* A TGT lives while one of its handles does. */
struct tgt {
	struct ibv_qp *handle[2];
	enum ibv_qp_state state;
	uint32_t qpn;
	int untold[2]; /* as with others, to each handle */
};

/* ---- completions ---- */

static int overran; /* in this step */

/* 0: there is no room, and the first time CQ_ERR is told. */
static int expect(struct cq *cq, struct due due)
{
	if (cq->n < cq->room) {
		cq->due[cq->n++] = due;
		cq->unread++;
		return 1;
	}
	cq->untold |= !cq->failed;
	cq->failed = overran = 1;
	return 0;
}

/* The program does not get to see it. */
static void forget(struct cq *cq, unsigned i)
{
	cq->unread -= !cq->due[i].gone;
	cq->due[i].gone = 1;
}

/* The first n are polled. */
static void take_out(struct cq *cq, unsigned n)
{
	cq->n -= n;
	memmove(&cq->due[0], &cq->due[n], cq->n * sizeof(cq->due[0]));
}

/* What is unread of a QP goes with it; a WQE of an SRQ is free again. */
static void forget_qp(struct cq *cq, const struct qp *qp)
{
	for (unsigned i = 0; cq && i < cq->n; i++) {
		if (cq->due[i].gone || cq->due[i].qpn != qp->object->qp_num)
			continue;
		if (cq->due[i].rq)
			cq->due[i].rq->held--;
		forget(cq, i);
	}
}

/* A QP one of whose completions is lost cannot go on. */
static void fail_fatally(struct qp *qp)
{
	qp->untold |= qp->state != IBV_QPS_ERR;
	qp->state = IBV_QPS_ERR;
}

static void expect_send(struct qp *qp, enum ibv_wc_status status)
{
	const struct wr *wr = &qp->wr[qp->run % DEPTH];
	struct due due = { .qpn = qp->object->qp_num, .wr_id = wr->id, .status = status, .qp = qp, .pos = qp->run++ };

	if ((wr->signalled || status != IBV_WC_SUCCESS) && !expect(qp->send_cq, due))
		fail_fatally(qp);
}

/* 0: its completion is lost, and the WQE with it. wr: what it receives. */
static int expect_receive(struct cq *cq, struct recvq *rq, uint32_t qpn, enum ibv_wc_status status, const struct wr *wr)
{
	struct due due = { .recv = 1, .qpn = qpn, .wr_id = rq->id[0], .status = status, .rq = rq };

	if (wr) {
		due.from = wr->id;
		due.length = wr->length;
	}
	rq->n--;
	memmove(&rq->id[0], &rq->id[1], rq->n * sizeof(rq->id[0]));
	return expect(cq, due);
}

static void flush(struct qp *qp)
{
	while (qp->run < qp->posted)
		expect_send(qp, IBV_WC_WR_FLUSH_ERR);
	while (qp->rq.n)
		expect_receive(qp->recv_cq, &qp->rq, qp->object->qp_num, IBV_WC_WR_FLUSH_ERR, NULL);
}

static int tgt_hears(const struct qp *ini)
{
	const struct tgt *t = ini->tgt;

	return (t->handle[0] || t->handle[1]) && t->qpn == ini->tgt_qpn && t->state == IBV_QPS_RTS;
}

/* Nothing answers: the HCA finds out by its timer. */
static void wait_for_error(struct qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init;

	do {
		sched_yield();
		CHECK(ibv_query_qp(qp->object, &attr, IBV_QP_STATE, &init) == 0);
	} while (attr.qp_state != IBV_QPS_ERR);
	CHECK(ibv_modify_qp(qp->object, &attr, IBV_QP_STATE) == 0); /* after whoever flushes it */
}

/* Who receives it is told as well. */
static void fail_receiver(struct qp *qp)
{
	struct tgt *t = qp->tgt;

	if (!t) {
		fail_fatally(qp);
		return;
	}
	t->state = IBV_QPS_ERR;
	t->untold[0] = t->handle[0] != NULL;
	t->untold[1] = t->handle[1] != NULL;
}

/* What becomes of the oldest send. */
static enum ibv_wc_status carry_out(struct qp *qp)
{
	struct srq *srq = qp->tgt ? qp->to[qp->run % DEPTH] : qp->srq;
	struct recvq *rq = srq ? &srq->rq : &qp->rq;

	if (qp->tgt && !tgt_hears(qp))
		return IBV_WC_RETRY_EXC_ERR;
	if (qp->tgt && (!srq->object || srq->number != qp->wr[qp->run % DEPTH].srqn))
		return IBV_WC_REM_INV_RD_REQ_ERR; /* also where another one is in its place by now */
	if (rq->n == 0)
		return IBV_WC_RNR_RETRY_EXC_ERR;
	if (expect_receive(qp->tgt ? srq->cq : qp->recv_cq, rq, qp->tgt ? qp->tgt_qpn : qp->object->qp_num, IBV_WC_SUCCESS,
			   &qp->wr[qp->run % DEPTH]))
		return IBV_WC_SUCCESS;
	fail_receiver(qp);
	return IBV_WC_REM_OP_ERR;
}

/* What the HCA does with all that is posted, in this state. */
static void run(struct qp *qp)
{
	while (qp->state == IBV_QPS_RTS && qp->run < qp->posted) {
		enum ibv_wc_status status = carry_out(qp);

		expect_send(qp, status);
		if (status == IBV_WC_SUCCESS)
			continue;
		qp->state = IBV_QPS_ERR;
		if (status == IBV_WC_RETRY_EXC_ERR)
			wait_for_error(qp);
		if (status == IBV_WC_REM_INV_RD_REQ_ERR)
			qp->tgt->state = IBV_QPS_ERR;
	}
	if (qp->state == IBV_QPS_ERR)
		flush(qp);
}

#endif
