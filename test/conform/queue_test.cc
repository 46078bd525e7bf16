// Posting and completing: what post refuses and when, flushing, completion events, overruns, the SRQ's limit, acknowledgements.
#include "conform/pair.h"
#include "conform/peer.h"

#include <atomic>
#include <thread>

namespace
{

using namespace vt;

class QueueTest : public vt::Test
{
};

// ---- what post refuses ----

TEST_F(QueueTest, SendsBeforeRtsAreRefused)
{
    Node n;
    Qp rc = make_qp(IBV_QPT_RC, n.pd, n.cq), ini = make_qp(IBV_QPT_XRC_SEND, n.pd, n.cq);
    for (ibv_qp *qp : {(ibv_qp *) rc, (ibv_qp *) ini}) {
        Path p;
        p.qpn = 5;
        p.lid = n.lid;
        p.timeout = 1;
        EXPECT_EQ(Send().post(qp), EINVAL) << "RESET";
        ASSERT_EQ(to_init(qp, p), 0);
        EXPECT_EQ(Send().post(qp), EINVAL) << "INIT";
        ASSERT_EQ(to_rtr(qp, p), 0);
        EXPECT_EQ(Send().post(qp), EINVAL) << "RTR";
        ASSERT_EQ(to_rts(qp, p), 0);
        EXPECT_EQ(Send().post(qp), 0);
        EXPECT_EQ(next_wc(n.cq).status, IBV_WC_RETRY_EXC_ERR);
    }
}

TEST_F(QueueTest, ReceivesAreTakenFromInitOn)
{
    Node n;
    Qp qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
    EXPECT_EQ(post_recv(qp, 1), EINVAL) << "RESET";
    ASSERT_EQ(to_init(qp), 0);
    EXPECT_EQ(post_recv(qp, 2), 0);
}

TEST_F(QueueTest, BadSendsAreRefusedWithTheCodesOfMlx)
{
    Node n;
    RcPair p(n, n, {}, caps(4, 4, 2, 16));
    std::vector<ibv_sge> three(3, n.sge(0, 1));
    EXPECT_EQ(Send(IBV_WR_SEND, three).post(p.a), ENOMEM) << "too many SGEs";
    EXPECT_EQ(Send(IBV_WR_SEND, {n.sge(0, 17)}, IBV_SEND_INLINE).post(p.a), ENOMEM) << "too much inline";
    EXPECT_EQ(Send(IBV_WR_RDMA_READ, {n.sge(0, 8)}, IBV_SEND_INLINE).post(p.a), EINVAL) << "READ has no inline";
    for (ibv_wr_opcode op : {IBV_WR_LOCAL_INV, IBV_WR_BIND_MW, IBV_WR_SEND_WITH_INV, IBV_WR_TSO, IBV_WR_DRIVER1})
        EXPECT_EQ(Send(op).post(p.a), EINVAL) << op;
    Send none;
    const int no_opcode = 99;
    memcpy(&none.wr.opcode, &no_opcode, sizeof(no_opcode)); // C++ has no such enumerator
    EXPECT_EQ(none.post(p.a), EINVAL);
    EXPECT_EQ(Send(IBV_WR_SEND, {}, IBV_SEND_IP_CSUM).post(p.a), EINVAL);
    EXPECT_TRUE(cq_empty(n.cq));
    EXPECT_EQ(state_of(p.a), IBV_QPS_RTS) << "a refused post changes nothing";
}

TEST_F(QueueTest, UdTakesOnlySends)
{
    Node n;
    Qp ud = make_qp(IBV_QPT_UD, n.pd, n.cq);
    bring_up(ud, {});
    for (ibv_wr_opcode op :
         {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD})
        EXPECT_EQ(Send(op).post(ud), EINVAL) << op;
}

TEST_F(QueueTest, FullQueuesAreEnomemAndBadWrNamesTheFirstNotPosted)
{
    Node n;
    Path path;
    path.psn = 1;
    RcPair p(n, n, path, caps(4, 3, 1, 0));
    Srq srq = make_srq(n.pd, 2, 1);
    ibv_recv_wr chain[5], *bad = nullptr;
    for (int i = 0; i < 5; i++) {
        chain[i] = recv_wr((uint64_t) i, nullptr, 0);
        chain[i].next = i < 4 ? &chain[i + 1] : nullptr;
    }
    EXPECT_EQ(ibv_post_recv(p.b, chain, &bad), ENOMEM);
    EXPECT_EQ(bad, &chain[3]);
    EXPECT_EQ(ibv_post_srq_recv(srq, chain, &bad), ENOMEM);
    EXPECT_EQ(bad, &chain[2]);

    ibv_send_wr sends[6], *bad_send = nullptr;
    for (int i = 0; i < 6; i++) {
        sends[i] = {};
        sends[i].wr_id = (uint64_t) i;
        sends[i].opcode = IBV_WR_SEND;
        sends[i].send_flags = IBV_SEND_SIGNALED;
        sends[i].next = i < 5 ? &sends[i + 1] : nullptr;
    }
    EXPECT_EQ(ibv_post_send(p.a, sends, &bad_send), ENOMEM);
    EXPECT_EQ(bad_send, &sends[4]);
    std::vector<uint64_t> sent, received;
    while (sent.size() + received.size() < 6) { // three go through, the fourth waits for a WQE
        ibv_wc wc = next_wc(n.cq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        (wc.opcode == IBV_WC_RECV ? received : sent).push_back(wc.wr_id);
    }
    EXPECT_EQ(sent, (std::vector<uint64_t>{0, 1, 2}));
    EXPECT_EQ(received, (std::vector<uint64_t>{0, 1, 2}));
    EXPECT_EQ(post_recv(p.b, 9), 0);
    EXPECT_EQ(next_wc(n.cq).wr_id, 9u);
    EXPECT_EQ(next_wc(n.cq).wr_id, 3u);
}

TEST_F(QueueTest, AChainStopsAtItsFirstBadWr)
{
    Node n;
    RcPair p(n, n);
    for (int i = 0; i < 3; i++)
        ASSERT_EQ(post_recv(p.b, 50 + (uint64_t) i), 0);
    ibv_send_wr sends[3] = {}, *bad = nullptr;
    for (int i = 0; i < 3; i++) {
        sends[i].opcode = i == 1 ? IBV_WR_LOCAL_INV : IBV_WR_SEND;
        sends[i].send_flags = IBV_SEND_SIGNALED;
        sends[i].next = i < 2 ? &sends[i + 1] : nullptr;
    }
    EXPECT_EQ(ibv_post_send(p.a, sends, &bad), EINVAL);
    EXPECT_EQ(bad, &sends[1]);
    for (int i = 0; i < 2; i++)
        EXPECT_EQ(next_wc(n.cq).status, IBV_WC_SUCCESS);
    EXPECT_TRUE(cq_empty(n.cq));
}

TEST_F(QueueTest, ReceivesWithTooManySgesAreEinval)
{
    Node n;
    RcPair p(n, n, {}, caps(4, 4, 2, 0));
    Srq srq = make_srq(n.pd, 4, 2);
    std::vector<ibv_sge> three(3, n.sge(0, 1)), two(2, n.sge(0, 1));
    EXPECT_EQ(post_recv(p.b, 1, three), EINVAL);
    EXPECT_EQ(post_recv(srq, 1, three), EINVAL);
    EXPECT_EQ(post_recv(p.b, 1, two), 0);
    EXPECT_EQ(post_recv(srq, 1, two), 0);
}

// ---- flushing ----

TEST_F(QueueTest, ErrFlushesBothQueuesInOrderAndLaterPostsAtOnce)
{
    Node n;
    auto attr = qp_attr(IBV_QPT_RC, n.pd, n.cq);
    Cq rcq = make_cq(n.ctx);
    attr.recv_cq = rcq;
    Qp qp(ibv_create_qp_ex(n.ctx, &attr));
    Path nowhere; // nobody answers, and nobody gives up
    nowhere.qpn = 0xfffff0;
    nowhere.lid = n.lid;
    nowhere.timeout = 0;
    bring_up(qp, nowhere);
    for (uint64_t i = 0; i < 3; i++) {
        ASSERT_EQ(Send(IBV_WR_SEND, {}, i == 1 ? 0 : IBV_SEND_SIGNALED).id(i).post(qp), 0);
        ASSERT_EQ(post_recv(qp, 10 + i), 0);
    }
    ASSERT_EQ(to_state(qp, IBV_QPS_ERR), 0);
    for (uint64_t i = 0; i < 3; i++) {
        ibv_wc wc = next_wc(n.cq);
        EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
        EXPECT_EQ(wc.wr_id, i) << "unsignalled ones too";
        wc = next_wc(rcq);
        EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
        EXPECT_EQ(wc.wr_id, 10 + i);
        EXPECT_EQ(wc.qp_num, qp->qp_num);
    }
    EXPECT_EQ(Send().id(7).post(qp), 0);
    EXPECT_EQ(next_wc(n.cq).status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(post_recv(qp, 8), 0);
    EXPECT_EQ(next_wc(rcq).status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(QueueTest, ResetForgetsEverythingAndTheQpWorksAgain)
{
    Node n;
    RcPair p(n, n);
    for (int round = 0; round < 20; round++) {
        ASSERT_EQ(post_recv(p.b, 1), 0);
        ASSERT_EQ(post_recv(p.b, 2), 0);
        ASSERT_EQ(Send().post(p.a), 0); // completes on both sides, unread
        ASSERT_EQ(to_state(p.a, IBV_QPS_RESET), 0);
        ASSERT_EQ(to_state(p.b, IBV_QPS_RESET), 0);
        ASSERT_TRUE(cq_empty(n.cq));
        connect(p.a, n.lid, p.b, n.lid, {});
        for (uint64_t i = 0; i < 64; i++)
            ASSERT_EQ(post_recv(p.b, i), 0) << "all WQEs are back";
        for (int i = 0; i < 64; i++)
            ASSERT_EQ(Send().id(5).post(p.a), 0);
        for (int i = 0; i < 128; i++)
            ASSERT_EQ(next_wc(n.cq).status, IBV_WC_SUCCESS);
    }
}

TEST_F(QueueTest, SrqWqesAreNotFlushedAndTheQpSaysLastWqeReached)
{
    Node n;
    Srq srq = make_srq(n.pd, 4);
    RcPair p(n, n, {}, caps(), srq);
    ASSERT_EQ(post_recv(srq, 1), 0);
    ASSERT_EQ(to_state(p.b, IBV_QPS_ERR), 0);
    EXPECT_EQ(ack_next(n.ctx), IBV_EVENT_QP_LAST_WQE_REACHED);
    EXPECT_TRUE(cq_empty(n.cq));
    EXPECT_EQ(p.a.destroy(), 0);
    EXPECT_EQ(p.b.destroy(), 0);
    RcPair again(n, n, {}, caps(), srq);
    ASSERT_EQ(Send().id(2).post(again.a), 0);
    EXPECT_EQ(next_wc(n.cq).wr_id, 1u) << "the WQE serves another QP";
    EXPECT_EQ(next_wc(n.cq).wr_id, 2u);
}

// What a QP received through an SRQ goes with it when it is destroyed or reset, unread or not; the WQEs are the SRQ's again, and the
// program's other completions stay.
TEST_F(QueueTest, UnreadCompletionsOfAnSrqGoWithTheirQp)
{
    Node n;
    Srq srq = make_srq(n.pd, 4);
    RcPair stays(n, n, {}, caps(), srq);
    for (bool destroy : {true, false, true}) {
        RcPair goes(n, n, {}, caps(), srq);
        for (uint64_t i = 0; i < 4; i++)
            ASSERT_EQ(post_recv(srq, i, {n.sge(1024 * i, 64)}), 0);
        memset(n.mem.data(), 0, 4096);
        n.mem[8192] = 'x';
        for (Qp *from : {&goes.a, &stays.a, &goes.a})
            ASSERT_EQ(Send(IBV_WR_SEND, {n.sge(8192, 1)}, 0).post(*from), 0);
        ASSERT_EQ(destroy ? goes.b.destroy() : to_state(goes.b, IBV_QPS_RESET), 0);
        for (uint64_t i = 10; i < 12; i++)
            ASSERT_EQ(post_recv(srq, i, {n.sge(4096, 64)}), 0) << "two WQEs are back";
        EXPECT_EQ(post_recv(srq, 12), ENOMEM) << "and no more than two";
        ibv_wc wc = next_wc(n.cq);
        EXPECT_EQ(wc.wr_id, 1u);
        EXPECT_EQ(wc.qp_num, stays.b->qp_num);
        EXPECT_EQ(n.mem[1024], 'x');
        EXPECT_TRUE(cq_empty(n.cq));
        EXPECT_EQ(n.mem[0], 0) << "no payload for nobody";
        EXPECT_EQ(n.mem[2048], 0);
        for (uint64_t id : {3u, 10u, 11u}) { // the queue's order goes on
            ASSERT_EQ(Send(IBV_WR_SEND, {n.sge(8192, 1)}, 0).post(stays.a), 0);
            EXPECT_EQ(next_wc(n.cq).wr_id, id);
        }
    }
}

// In particular before the SRQ itself goes: nothing in the CQ names it any more.
TEST_F(QueueTest, AnSrqLeavesNoCompletions)
{
    Node n;
    Srq srq = make_srq(n.pd, 4);
    {
        RcPair p(n, n, {}, caps(), srq);
        ASSERT_EQ(post_recv(srq, 1, {n.sge(0, 64)}), 0);
        ASSERT_EQ(Send(IBV_WR_SEND, {n.sge(8192, 1)}, 0).post(p.a), 0);
    }
    ASSERT_EQ(srq.destroy(), 0);
    Srq next = make_srq(n.pd, 4);
    RcPair p(n, n, {}, caps(), next);
    ASSERT_EQ(post_recv(next, 2), 0);
    ASSERT_EQ(Send(IBV_WR_SEND, {}, 0).post(p.a), 0);
    EXPECT_EQ(next_wc(n.cq).wr_id, 2u);
    EXPECT_TRUE(cq_empty(n.cq));
}

// ---- what a requester remembers of its peers ----

TEST_F(QueueTest, OneSenderAndMoreSrqsThanItRemembers)
{
    Node n;
    Xrcd x = make_xrcd(n.ctx);
    Cq cq = make_cq(n.ctx);
    Qp tgt = make_tgt(x), ini = make_qp(IBV_QPT_XRC_SEND, n.pd, n.cq);
    connect(ini, n.lid, tgt, n.lid);
    std::vector<Srq> srqs;
    for (uint32_t i = 0; i < 40; i++)
        srqs.push_back(make_xrc_srq(n.pd, x, cq, 1 + i % 3));
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t i = 0; i < srqs.size(); i++) {
            ASSERT_EQ(post_recv(srqs[i], i, {n.sge(8 * i, 8)}), 0);
            ASSERT_EQ(outcome(ini, Send(IBV_WR_SEND, {n.sge(1000, 8)}).to_srq(srq_num(srqs[i]))), IBV_WC_SUCCESS);
            ASSERT_EQ(next_wc(cq).wr_id, i);
        }
    uint32_t gone = srq_num(srqs[7]);
    srqs.erase(srqs.begin() + 7);
    EXPECT_EQ(outcome(ini, Send(IBV_WR_SEND, {n.sge(1000, 8)}).to_srq(gone)), IBV_WC_REM_INV_RD_REQ_ERR);
}

// QP numbers come again: the peer of the same number is another one, with other queues.
TEST_F(QueueTest, APeerMadeAnewUnderItsOldNumberIsAnotherOne)
{
    Node n;
    Cq first = make_cq(n.ctx), second = make_cq(n.ctx);
    auto attr = qp_attr(IBV_QPT_RC, n.pd, n.cq);
    attr.recv_cq = first;
    Qp a = make_qp(IBV_QPT_RC, n.pd, n.cq), b(ibv_create_qp_ex(n.ctx, &attr));
    Path p;
    p.rnr = 0;
    connect(a, n.lid, b, n.lid, p);
    ASSERT_EQ(post_recv(b, 1, {n.sge(0, 64)}), 0);
    ASSERT_EQ(outcome(a, Send(IBV_WR_SEND, {n.sge(64, 64)})), IBV_WC_SUCCESS);
    EXPECT_EQ(next_wc(first).wr_id, 1u);
    const uint32_t number = b->qp_num;
    b = Qp();
    attr.recv_cq = second;
    attr.cap.max_recv_wr = 1;
    for (int i = 0; i < 200000 && (!b || b->qp_num != number); i++) {
        b = Qp();
        b = Qp(ibv_create_qp_ex(n.ctx, &attr));
        ASSERT_TRUE(b);
    }
    ASSERT_EQ(b->qp_num, number);
    p.qpn = a->qp_num;
    p.lid = n.lid;
    p.psn++;
    bring_up(b, p);
    ASSERT_EQ(post_recv(b, 2, {n.sge(128, 64)}), 0);
    memset(&n.mem[64], 'x', 64);
    EXPECT_EQ(outcome(a, Send(IBV_WR_SEND, {n.sge(64, 64)})), IBV_WC_SUCCESS);
    EXPECT_EQ(next_wc(second).wr_id, 2u);
    EXPECT_EQ(n.mem[128], 'x');
    EXPECT_TRUE(cq_empty(first));
}

TEST_F(QueueTest, TheSendersErrorReachesNobodyElsesQueue)
{
    Node a, b;
    RcPair p(a, b);
    ASSERT_EQ(post_recv(p.b, 1), 0);
    ibv_sge bad = a.sge(0, 1);
    bad.lkey ^= 0x40000000;
    EXPECT_EQ(outcome(p.a, Send(IBV_WR_SEND, {bad})), IBV_WC_LOC_PROT_ERR);
    EXPECT_TRUE(cq_empty(b.cq));
    EXPECT_EQ(state_of(p.b), IBV_QPS_RTS);
}

// A class-C error flushes the responder's receive queue as well (its owner's engine does it).
TEST_F(QueueTest, TheRespondersReceivesAreFlushedAfterAClassCError)
{
    Node a, b;
    RcPair p(a, b);
    for (uint64_t i = 0; i < 3; i++)
        ASSERT_EQ(post_recv(p.b, i), 0);
    EXPECT_EQ(outcome(p.a, Send(IBV_WR_RDMA_WRITE, {a.sge(0, 8)}).at(0, 0)), IBV_WC_REM_ACCESS_ERR);
    for (uint64_t i = 0; i < 3; i++) {
        ibv_wc wc = next_wc(b.cq);
        EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
        EXPECT_EQ(wc.wr_id, i);
    }
    EXPECT_EQ(ack_next(b.ctx), IBV_EVENT_QP_ACCESS_ERR);
}

// ---- completion events ----

struct Events {
    Channel ch;
    Cq cq;
    explicit Events(ibv_context *c, int entries = 64) : ch(ibv_create_comp_channel(c)), cq(make_cq(c, entries, ch))
    {
        nonblocking(ch->fd);
    }
    // How many completion events are there? The process's own pushes notify at once.
    int count()
    {
        ibv_cq *got;
        void *context;
        int n = 0;
        while (ibv_get_cq_event(ch, &got, &context) == 0) {
            EXPECT_EQ(got, (ibv_cq *) cq);
            ibv_ack_cq_events(got, 1);
            n++;
        }
        EXPECT_EQ(errno, EAGAIN);
        return n;
    }
};

struct EventPair {
    Node n;
    Events recv{n.ctx};
    Qp a, b;
    EventPair()
    {
        auto attr = qp_attr(IBV_QPT_RC, n.pd, n.cq);
        a = Qp(ibv_create_qp_ex(n.ctx, &attr));
        attr.recv_cq = recv.cq;
        b = Qp(ibv_create_qp_ex(n.ctx, &attr));
        connect(a, n.lid, b, n.lid);
        for (uint64_t i = 0; i < 32; i++)
            need(post_recv(b, i) == 0, "post_recv");
    }
    void send(unsigned flags = 0)
    {
        need(Send(IBV_WR_SEND, {}, flags | IBV_SEND_SIGNALED).post(a) == 0, "post_send");
        next_wc(n.cq);
    }
};

TEST_F(QueueTest, OneEventPerArming)
{
    EventPair p;
    p.send();
    EXPECT_EQ(p.recv.count(), 0) << "not armed";
    ASSERT_EQ(ibv_req_notify_cq(p.recv.cq, 0), 0);
    EXPECT_EQ(p.recv.count(), 0) << "what is already there raises none";
    p.send();
    p.send();
    EXPECT_EQ(p.recv.count(), 1);
    p.send();
    EXPECT_EQ(p.recv.count(), 0);
    ASSERT_EQ(ibv_req_notify_cq(p.recv.cq, 0), 0);
    ASSERT_EQ(ibv_req_notify_cq(p.recv.cq, 0), 0);
    p.send();
    EXPECT_EQ(p.recv.count(), 1) << "armed twice is armed";
}

TEST_F(QueueTest, SolicitedArmingWaitsForASolicitedMessageOrAnError)
{
    EventPair p;
    ASSERT_EQ(ibv_req_notify_cq(p.recv.cq, 1), 0);
    p.send();
    EXPECT_EQ(p.recv.count(), 0);
    p.send(IBV_SEND_SOLICITED);
    EXPECT_EQ(p.recv.count(), 1);
    ASSERT_EQ(ibv_req_notify_cq(p.recv.cq, 0), 0);
    ASSERT_EQ(ibv_req_notify_cq(p.recv.cq, 1), 0);
    p.send();
    EXPECT_EQ(p.recv.count(), 1) << "a solicited request does not weaken an earlier one";
    ASSERT_EQ(ibv_req_notify_cq(p.recv.cq, 1), 0);
    ASSERT_EQ(to_state(p.b, IBV_QPS_ERR), 0);
    EXPECT_EQ(p.recv.count(), 1) << "an error is always solicited";
}

TEST_F(QueueTest, EventsCrossProcesses)
{
    Child receiver([](const Link &link) {
        Node n;
        Channel ch(ibv_create_comp_channel(n.ctx));
        Cq cq = make_cq(n.ctx, 64, ch);
        Qp qp = make_qp(IBV_QPT_RC, n.pd, cq);
        connect_over(link, qp, n);
        for (int i = 0; i < 50; i++) {
            ASSERT_EQ(post_recv(qp, 1), 0);
            ASSERT_EQ(ibv_req_notify_cq(cq, i & 1), 0);
            link.meet();
            ibv_cq *got;
            void *context;
            ASSERT_EQ(ibv_get_cq_event(ch, &got, &context), 0);
            ibv_ack_cq_events(got, 1);
            EXPECT_EQ(next_wc(cq).status, IBV_WC_SUCCESS);
        }
        link.meet();
    });
    {
        Node n;
        Qp qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
        connect_over(receiver.link(), qp, n);
        for (int i = 0; i < 50; i++) {
            receiver.link().meet();
            EXPECT_EQ(outcome(qp, Send(IBV_WR_SEND, {}, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)), IBV_WC_SUCCESS);
        }
        receiver.link().meet();
    }
    EXPECT_EQ(receiver.wait(), 0);
}

// ---- overrun ----

TEST_F(QueueTest, ReceiveCqOverrunIsCqErrAndEndsTheQp)
{
    Node n;
    Cq small = make_cq(n.ctx, 4);
    auto attr = qp_attr(IBV_QPT_RC, n.pd, n.cq);
    Qp a(ibv_create_qp_ex(n.ctx, &attr));
    attr.recv_cq = small;
    Qp b(ibv_create_qp_ex(n.ctx, &attr));
    connect(a, n.lid, b, n.lid);
    int room = small->cqe + 1, sent = 0;
    for (int i = 0; i <= room; i++)
        ASSERT_EQ(post_recv(b, (uint64_t) i), 0);
    while (outcome(a, Send()) == IBV_WC_SUCCESS)
        sent++;
    EXPECT_GE(sent, 4);
    EXPECT_LE(sent, room);
    ibv_async_event e = next_event(n.ctx);
    EXPECT_EQ(e.event_type, IBV_EVENT_CQ_ERR);
    EXPECT_EQ(e.element.cq, (ibv_cq *) small);
    ibv_ack_async_event(&e);
    EXPECT_EQ(state_of(b), IBV_QPS_ERR);
    EXPECT_EQ(ack_next(n.ctx), IBV_EVENT_QP_FATAL);
}

TEST_F(QueueTest, SendCqOverrunIsCqErrAndEndsTheQp)
{
    Node n;
    Cq small = make_cq(n.ctx, 4);
    auto attr = qp_attr(IBV_QPT_RC, n.pd, small);
    attr.recv_cq = n.cq;
    Qp a(ibv_create_qp_ex(n.ctx, &attr)), b = make_qp(IBV_QPT_RC, n.pd, n.cq);
    connect(a, n.lid, b, n.lid);
    int room = small->cqe + 1;
    for (int i = 0; i <= room; i++)
        ASSERT_EQ(Send(IBV_WR_RDMA_WRITE).post(a), 0) << i;
    EXPECT_EQ(state_of(a), IBV_QPS_ERR);
    EXPECT_EQ(ack_next(n.ctx), IBV_EVENT_CQ_ERR);
    EXPECT_EQ(ack_next(n.ctx), IBV_EVENT_QP_FATAL);
}

// ---- SRQ limit ----

TEST_F(QueueTest, TheSrqLimitFiresOnceAndReadsZeroUntilArmedAgain)
{
    Node n;
    Srq srq = make_srq(n.pd, 8);
    RcPair p(n, n, {}, caps(), srq);
    nonblocking(n.ctx->async_fd);
    auto refill = [&](uint64_t wqes) {
        for (uint64_t i = 0; i < wqes; i++)
            ASSERT_EQ(post_recv(srq, i), 0);
    };
    auto take = [&] {
        ASSERT_EQ(outcome(p.a, Send()), IBV_WC_SUCCESS);
        next_wc(n.cq);
    };
    refill(6);
    ibv_srq_attr a = {};
    a.srq_limit = 4;
    ASSERT_EQ(ibv_modify_srq(srq, &a, IBV_SRQ_LIMIT), 0);
    take(); // 5 left
    take(); // 4 left: not below
    ASSERT_EQ(ibv_query_srq(srq, &a), 0);
    EXPECT_EQ(a.srq_limit, 4u);
    take(); // 3 left: below
    ASSERT_EQ(ibv_query_srq(srq, &a), 0);
    EXPECT_EQ(a.srq_limit, 0u);
    pollfd fd = {n.ctx->async_fd, POLLIN, 0};
    ASSERT_EQ(poll(&fd, 1, -1), 1);
    ibv_async_event e = next_event(n.ctx);
    EXPECT_EQ(e.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(e.element.srq, (ibv_srq *) srq);
    ibv_ack_async_event(&e);
    take();
    take();
    refill(3);
    a.srq_limit = 3;
    ASSERT_EQ(ibv_modify_srq(srq, &a, IBV_SRQ_LIMIT), 0);
    take();
    take(); // 2 left: below 3
    ASSERT_EQ(poll(&fd, 1, -1), 1);
    EXPECT_EQ(ack_next(n.ctx), IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(ibv_get_async_event(n.ctx, &e), -1) << "one event an arming: none came from the takes between";
    EXPECT_EQ(errno, EAGAIN);
}

// ---- acknowledgements ----

TEST_F(QueueTest, DestroyingACqWaitsForItsCompletionEvents)
{
    EventPair p;
    ASSERT_EQ(ibv_req_notify_cq(p.recv.cq, 0), 0);
    p.send();
    ibv_cq *got;
    void *context;
    ASSERT_EQ(ibv_get_cq_event(p.recv.ch, &got, &context), 0);
    EXPECT_EQ(p.b.destroy(), 0);
    std::atomic<bool> destroyed{false};
    std::thread destroyer([&] {
        EXPECT_EQ(p.recv.cq.destroy(), 0);
        destroyed = true;
    });
    for (int i = 0; i < 10000; i++) {
        ASSERT_FALSE(destroyed);
        sched_yield();
    }
    ibv_ack_cq_events(got, 1);
    destroyer.join();
}

// ---- threads ----

TEST_F(QueueTest, TwoThreadsPostToOneQpAndTwoPollOneCq)
{
    constexpr int each = 5000;
    Node n;
    RcPair p(n, n, {}, caps(64, 64, 1, 16));
    std::atomic<int> sent{0}, received{0}, bad{0}, posted{0};
    for (uint64_t i = 0; i < 64; i++)
        ASSERT_EQ(post_recv(p.b, i), 0);
    auto poster = [&] {
        for (int i = 0; i < each;) {
            int err = Send().post(p.a);
            if (err == 0)
                i++, posted++;
            else if (err == ENOMEM)
                sched_yield();
            else
                bad++, i++;
        }
    };
    auto poller = [&] {
        while (sent + received < 4 * each) {
            ibv_wc wc[4];
            int got = ibv_poll_cq(n.cq, 4, wc);
            for (int i = 0; i < got; i++) {
                bad += wc[i].status != IBV_WC_SUCCESS;
                if (wc[i].opcode == IBV_WC_RECV) {
                    received++;
                    bad += post_recv(p.b, wc[i].wr_id) != 0;
                } else {
                    sent++;
                }
            }
            if (got == 0)
                sched_yield();
        }
    };
    std::thread t1(poster), t2(poster), t3(poller), t4(poller);
    for (std::thread *t : {&t1, &t2, &t3, &t4})
        t->join();
    EXPECT_EQ(bad, 0);
    EXPECT_EQ(sent, 2 * each);
    EXPECT_EQ(received, 2 * each);
}

} // namespace
