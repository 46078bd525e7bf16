// The send queue's own states. SQD: the message under way is brought to its end, none begins, and SQ_DRAINED tells when. SQE: after an
// error of its own an unreliable QP sends no more, but goes on receiving.
#include "conform/apm.h"
#include "conform/pair.h"
#include "conform/peer.h"

#include <filesystem>
#include <fstream>

namespace
{

using namespace vt;

int to_sqd(ibv_qp *qp, bool notify)
{
    ibv_qp_attr a = {};
    a.qp_state = IBV_QPS_SQD;
    a.en_sqd_async_notify = notify;
    return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
}

bool is_draining(ibv_qp *qp)
{
    return query(qp).sq_draining;
}

// ---- SQD ----

// RC or XRC between two nodes of this process. No receive is posted, so that the first message waits for as long as a test wants.
class Sqd : public vt::Test, public ::testing::WithParamInterface<bool>
{
  protected:
    Sqd()
        : from_(new Node), to_(new Node), events_(new Events(*from_)),
          other_(new Region(from_->pd, from_->mem.data(), 64))
    {
        Path p;
        p.rnr = 7;
        if (GetParam()) {
            xrc_ = std::make_unique<XrcPair>(*from_, *to_, p);
        } else {
            srq_ = make_srq(to_->pd);
            rc_ = std::make_unique<RcPair>(*from_, *to_, p, caps(), srq_);
        }
    }
    void TearDown() override
    {
        check_fabric();
        rc_.reset();
        xrc_.reset();
        srq_ = Srq();
        other_.reset();
        events_.reset();
        to_.reset();
        from_.reset();
        vt::Test::TearDown();
    }
    ibv_qp *qp() const
    {
        return xrc_ ? xrc_->ini : rc_->a;
    }
    int post(uint64_t id, ibv_sge sge)
    {
        Send s(IBV_WR_SEND, {sge});
        s.id(id).to_srq(xrc_ ? xrc_->srqn : 0);
        return s.post(qp());
    }
    void ready(uint64_t id)
    {
        need(post_recv(xrc_ ? (ibv_srq *) xrc_->srq : (ibv_srq *) srq_, id, {to_->sge(0, 64)}) == 0, "post_recv");
    }
    ibv_cq *recv_cq() const
    {
        return xrc_ ? (ibv_cq *) xrc_->srq_cq : (ibv_cq *) to_->cq;
    }
    void expect_drained(int n)
    {
        events_->expect(IBV_EVENT_SQ_DRAINED, qp(), n);
    }
    void expect_next(ibv_cq *cq, uint64_t id, ibv_wc_status status = IBV_WC_SUCCESS)
    {
        ibv_wc wc = next_wc(cq);
        EXPECT_EQ(wc.wr_id, id);
        EXPECT_EQ(wc.status, status);
    }

    // A region of its own, so that it can go while a message from it waits.
    struct Region {
        Mr mr;
        Region(ibv_pd *pd, char *at, size_t length) : mr(ibv_reg_mr(pd, at, length, 0))
        {
            need(mr, "ibv_reg_mr");
        }
        ibv_sge sge() const
        {
            return {(uintptr_t) mr->addr, (uint32_t) mr->length, mr->lkey};
        }
    };

    std::unique_ptr<Node> from_, to_;
    std::unique_ptr<Events> events_;
    std::unique_ptr<Region> other_;
    Srq srq_;
    std::unique_ptr<RcPair> rc_;
    std::unique_ptr<XrcPair> xrc_;
};

TEST_P(Sqd, HoldsNewSendsAndIsDrainedAtOnceWithoutOldOnes)
{
    ready(1);
    ASSERT_EQ(post(1, other_->sge()), 0);
    ASSERT_EQ(to_sqd(qp(), true), 0);
    expect_drained(1);
    EXPECT_FALSE(is_draining(qp()));
    expect_next(from_->cq, 1);
    ready(2);
    ASSERT_EQ(post(2, other_->sge()), 0);
    for (int i = 0; i < 1000; i++)
        ASSERT_TRUE(cq_empty(from_->cq));
    ASSERT_EQ(to_state(qp(), IBV_QPS_RTS), 0);
    expect_next(from_->cq, 2);
    expect_drained(1);
}

TEST_P(Sqd, EndsTheMessageUnderWayAndTellsThen)
{
    ASSERT_EQ(post(1, other_->sge()), 0);
    ASSERT_EQ(post(2, other_->sge()), 0);
    ASSERT_EQ(to_sqd(qp(), true), 0);
    expect_drained(0);
    EXPECT_TRUE(is_draining(qp())) << "it still asks for a receive WQE";
    ready(11);
    ready(12);
    expect_drained(1);
    EXPECT_FALSE(is_draining(qp()));
    EXPECT_EQ(state_of(qp()), IBV_QPS_SQD);
    expect_next(from_->cq, 1);
    expect_next(recv_cq(), 11);
    for (int i = 0; i < 1000; i++)
        ASSERT_TRUE(cq_empty(from_->cq)) << "the second one has not begun";
    EXPECT_TRUE(cq_empty(recv_cq()));
    ASSERT_EQ(to_state(qp(), IBV_QPS_RTS), 0);
    expect_next(from_->cq, 2);
    expect_next(recv_cq(), 12);
    expect_drained(1);
}

TEST_P(Sqd, BackInRtsTheMessageUnderWayGoesOnAndNobodyIsTold)
{
    ASSERT_EQ(post(1, other_->sge()), 0);
    ASSERT_EQ(post(2, other_->sge()), 0);
    ASSERT_EQ(to_sqd(qp(), true), 0);
    ASSERT_EQ(to_state(qp(), IBV_QPS_RTS), 0);
    EXPECT_FALSE(is_draining(qp()));
    ready(11);
    ready(12);
    expect_next(from_->cq, 1);
    expect_next(from_->cq, 2);
    expect_next(recv_cq(), 11);
    expect_next(recv_cq(), 12);
    expect_drained(0);
}

TEST_P(Sqd, AMessageThatFailsDrainsNothing)
{
    ASSERT_EQ(post(1, other_->sge()), 0);
    ASSERT_EQ(post(2, other_->sge()), 0);
    ASSERT_EQ(to_sqd(qp(), true), 0);
    ASSERT_EQ(other_->mr.destroy(), 0); // seen at the next try
    expect_next(from_->cq, 1, IBV_WC_LOC_PROT_ERR);
    expect_next(from_->cq, 2, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(state_of(qp()), IBV_QPS_ERR);
    EXPECT_FALSE(is_draining(qp()));
    expect_drained(0);
}

TEST_P(Sqd, EachMoveAsksAnew)
{
    ASSERT_EQ(to_sqd(qp(), true), 0);
    expect_drained(1);
    ASSERT_EQ(to_state(qp(), IBV_QPS_RTS), 0);
    ASSERT_EQ(to_state(qp(), IBV_QPS_SQD), 0);
    ASSERT_EQ(to_state(qp(), IBV_QPS_RTS), 0);
    ASSERT_EQ(to_sqd(qp(), false), 0);
    ASSERT_EQ(to_state(qp(), IBV_QPS_RTS), 0);
    expect_drained(1);
    ASSERT_EQ(to_sqd(qp(), true), 0);
    expect_drained(2);
}

// A lost message of a QP without an ack timer waits for ever, in SQD too, until it is given a timer.
TEST_P(Sqd, WithoutATimerItWaitsUntilThereIsOne)
{
    ibv_qp_attr a = {};
    ASSERT_EQ(to_state(qp(), IBV_QPS_SQD), 0);
    ASSERT_EQ(ibv_modify_qp(qp(), &a, IBV_QP_TIMEOUT), 0);
    ASSERT_EQ(to_state(qp(), IBV_QPS_RTS), 0);
    ready(11);
    order("drop packet");
    ASSERT_EQ(post(1, other_->sge()), 0);
    ASSERT_EQ(to_sqd(qp(), true), 0);
    EXPECT_TRUE(is_draining(qp()));
    expect_drained(0);
    a.timeout = 8;
    ASSERT_EQ(ibv_modify_qp(qp(), &a, IBV_QP_TIMEOUT), 0);
    ASSERT_EQ(to_state(qp(), IBV_QPS_RTS), 0);
    expect_next(from_->cq, 1);
    expect_next(recv_cq(), 11);
    expect_drained(0);
}

INSTANTIATE_TEST_SUITE_P(Transports, Sqd, ::testing::Bool(),
                         [](const auto &info) { return std::string(info.param ? "Xrc" : "Rc"); });

// How many of the other threads are asleep, of how many there are?
std::pair<int, int> sleeping_threads()
{
    std::pair<int, int> n;
    for (auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
        if (task.path().filename() == std::to_string(getpid()))
            continue;
        std::ifstream stat(task.path() / "stat");
        std::string line;
        std::getline(stat, line);
        n.second++;
        n.first += line.find(") S ") != std::string::npos;
    }
    return n;
}

class SendQueue : public vt::Test
{
};

// Nothing that waits may spin: the engine sleeps while a send waits in SQD.
TEST_F(SendQueue, ASendThatWaitsInSqdKeepsNobodyAwake)
{
    Node n;
    RcPair p(n, n);
    ASSERT_EQ(to_state(p.a, IBV_QPS_SQD), 0);
    ASSERT_EQ(Send().post(p.a), 0);
    int asleep = 0;
    for (int i = 0; i < 100000 && asleep < 20; i++) {
        auto [sleeping, all] = sleeping_threads();
        ASSERT_GE(all, 1);
        asleep = sleeping == all ? asleep + 1 : 0;
        sched_yield();
    }
    EXPECT_EQ(asleep, 20) << "times in a row";
}

// ---- fences ----

// What a fenced send reads is what READs and atomics before it brought, however late they are.
TEST_F(SendQueue, AFencedSendWaitsForReadsAndAtomics)
{
    Node n(1 << 16, all_access | IBV_ACCESS_REMOTE_ATOMIC);
    Path p;
    p.access |= IBV_ACCESS_REMOTE_ATOMIC;
    RcPair pair(n, n, p);
    uint64_t *remote = (uint64_t *) &n.mem[0], *result = (uint64_t *) &n.mem[64], *arrived = (uint64_t *) &n.mem[128];
    for (ibv_wr_opcode op : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
        *remote = 7;
        *result = *arrived = 0;
        ASSERT_EQ(post_recv(pair.b, 3, {n.sge(128, 8)}), 0);
        order("delay packet 3000");
        Send first(op, {n.sge(64, 8)});
        if (op == IBV_WR_RDMA_READ) {
            first.at(n.addr(), n.mr->rkey);
        } else {
            first.wr.wr.atomic.remote_addr = n.addr();
            first.wr.wr.atomic.rkey = n.mr->rkey;
            first.wr.wr.atomic.compare_add = 1;
        }
        ASSERT_EQ(first.id(1).post(pair.a), 0);
        ASSERT_EQ(Send(IBV_WR_SEND, {n.sge(64, 8)}, IBV_SEND_SIGNALED | IBV_SEND_FENCE).id(2).post(pair.a), 0);
        uint64_t order_of_sends = 0, received = 0;
        for (int i = 0; i < 3; i++) {
            ibv_wc wc = next_wc(n.cq);
            ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
            if (wc.wr_id == 3)
                received++;
            else
                order_of_sends = order_of_sends * 10 + wc.wr_id;
        }
        EXPECT_EQ(order_of_sends, 12u);
        EXPECT_EQ(received, 1u);
        EXPECT_EQ(*arrived, 7u) << op;
    }
}

// ---- SQE ----

// Two UC or UD QPs; both receive into one CQ.
class Sqe : public vt::Test, public ::testing::WithParamInterface<ibv_qp_type>
{
  protected:
    Sqe() : n_(new Node), events_(new Events(*n_)), recv_cq_(make_cq(n_->ctx))
    {
        for (Qp *qp : {&one_, &two_}) {
            auto a = qp_attr(GetParam(), n_->pd, n_->cq);
            a.recv_cq = recv_cq_;
            *qp = Qp(ibv_create_qp_ex(n_->ctx, &a));
            need(*qp, "ibv_create_qp_ex");
        }
        connect(one_, n_->lid, two_, n_->lid);
        ah_ = make_ah(n_->pd, n_->lid);
    }
    void TearDown() override
    {
        one_ = Qp();
        two_ = Qp();
        ah_ = Ah();
        recv_cq_ = Cq();
        events_.reset();
        n_.reset();
        vt::Test::TearDown();
    }
    Send message(uint64_t id, ibv_sge sge, ibv_qp *to, unsigned flags = IBV_SEND_SIGNALED)
    {
        Send s(IBV_WR_SEND, {sge}, flags);
        s.id(id);
        if (GetParam() == IBV_QPT_UD)
            s.datagram(ah_, to->qp_num, 0x11111111);
        return s;
    }
    ibv_sge good() const
    {
        return n_->sge(0, 8);
    }
    ibv_sge bad() const
    {
        return {n_->addr(), 8, 0x12345};
    }
    void ready(ibv_qp *qp, uint64_t id)
    {
        ASSERT_EQ(post_recv(qp, id, {n_->sge(4096, 64)}), 0);
    }
    void expect_next(ibv_cq *cq, uint64_t id, ibv_wc_status status = IBV_WC_SUCCESS)
    {
        ibv_wc wc = next_wc(cq);
        EXPECT_EQ(wc.wr_id, id);
        EXPECT_EQ(wc.status, status);
    }
    void fail()
    {
        ASSERT_EQ(message(99, bad(), two_).post(one_), 0);
        expect_next(n_->cq, 99, IBV_WC_LOC_PROT_ERR);
        ASSERT_EQ(state_of(one_), IBV_QPS_SQE);
    }

    std::unique_ptr<Node> n_;
    std::unique_ptr<Events> events_;
    Cq recv_cq_;
    Ah ah_;
    Qp one_, two_;
};

TEST_P(Sqe, TheFailedSendAndThoseBehindItCompleteAndReceivingGoesOn)
{
    ready(two_, 21);
    ready(two_, 22);
    ready(one_, 11);
    std::vector<Send> chain;
    for (uint64_t id = 1; id <= 4; id++)
        chain.push_back(message(id, id == 2 ? bad() : good(), two_, id == 2 || id == 3 ? 0 : IBV_SEND_SIGNALED));
    for (size_t i = 0; i < chain.size(); i++) {
        chain[i].wr.sg_list = chain[i].list.data();
        chain[i].wr.num_sge = 1;
        chain[i].wr.next = i + 1 < chain.size() ? &chain[i + 1].wr : nullptr;
    }
    ibv_send_wr *refused;
    ASSERT_EQ(ibv_post_send(one_, &chain[0].wr, &refused), 0);
    expect_next(n_->cq, 1);
    expect_next(n_->cq, 2, IBV_WC_LOC_PROT_ERR);
    expect_next(n_->cq, 3, IBV_WC_WR_FLUSH_ERR);
    expect_next(n_->cq, 4, IBV_WC_WR_FLUSH_ERR);
    expect_next(recv_cq_, 21);
    ibv_qp_attr a = query(one_);
    EXPECT_EQ(a.qp_state, IBV_QPS_SQE);
    EXPECT_EQ(a.cur_qp_state, IBV_QPS_SQE);
    EXPECT_EQ(one_->state, IBV_QPS_SQE);
    EXPECT_EQ(state_of(two_), IBV_QPS_RTS);

    ASSERT_EQ(message(5, good(), two_).post(one_), 0) << "as in ERR";
    expect_next(n_->cq, 5, IBV_WC_WR_FLUSH_ERR);
    EXPECT_TRUE(cq_empty(recv_cq_)) << "nothing was sent, and no receive flushed";
    for (uint64_t id : {11u, 12u}) {
        ASSERT_EQ(message(id, good(), one_).post(two_), 0);
        expect_next(n_->cq, id);
        expect_next(recv_cq_, id);
        ready(one_, id + 1);
    }
    EXPECT_EQ(state_of(one_), IBV_QPS_SQE);
    check_fabric();
    events_->settle();
    for (ibv_event_type type : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR,
                                IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_SQ_DRAINED})
        EXPECT_EQ(events_->all(type), 0) << ibv_event_type_str(type) << ": the completion told it";
}

TEST_P(Sqe, BackToRtsItSendsAgain)
{
    fail();
    ibv_qp_attr a = {};
    a.qp_state = IBV_QPS_RTS;
    a.cur_qp_state = IBV_QPS_RTS;
    EXPECT_EQ(ibv_modify_qp(one_, &a, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
    a.cur_qp_state = IBV_QPS_SQE;
    a.qkey = 0x11111111;
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    int attribute = GetParam() == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    EXPECT_EQ(ibv_modify_qp(one_, &a, IBV_QP_STATE | IBV_QP_CUR_STATE | attribute), 0);
    ready(two_, 21);
    ASSERT_EQ(message(1, good(), two_).post(one_), 0);
    expect_next(n_->cq, 1);
    expect_next(recv_cq_, 21);
    EXPECT_EQ(state_of(one_), IBV_QPS_RTS);
    fail();
    EXPECT_EQ(to_state(one_, IBV_QPS_RTS), 0);
}

TEST_P(Sqe, OtherWaysOut)
{
    fail();
    for (ibv_qp_state to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_SQD, IBV_QPS_SQE})
        EXPECT_EQ(to_state(one_, to), EINVAL) << to;
    EXPECT_EQ(state_of(one_), IBV_QPS_SQE);
    ready(one_, 11);
    EXPECT_EQ(to_state(one_, IBV_QPS_ERR), 0);
    expect_next(recv_cq_, 11, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(to_state(one_, IBV_QPS_RTS), EINVAL);
    for (Qp *qp : {&one_, &two_})
        EXPECT_EQ(to_state(*qp, IBV_QPS_RESET), 0);
    connect(one_, n_->lid, two_, n_->lid);
    fail();
    EXPECT_EQ(to_state(one_, IBV_QPS_RESET), 0);
}

// The message that SQD brings to its end may fail too. It is held back until its region is gone, which takes longer delays on a busy
// machine.
TEST_P(Sqe, AMessageThatFailsInSqdEndsThereToo)
{
    const std::string what = GetParam() == IBV_QPT_UD ? "datagram " : "packet ";
    int too_early = 0;
    bool draining;
    for (unsigned us = 20000;; us *= 2) {
        Mr doomed(ibv_reg_mr(n_->pd, n_->mem.data(), 64, 0));
        need(doomed, "ibv_reg_mr");
        order("delay " + what + std::to_string(us));
        ASSERT_EQ(message(1, {n_->addr(), 8, doomed->lkey}, two_).post(one_), 0);
        ASSERT_EQ(message(2, good(), two_).post(one_), 0);
        ASSERT_EQ(to_sqd(one_, true), 0);
        draining = is_draining(one_);
        ASSERT_EQ(doomed.destroy(), 0);
        ibv_wc wc = next_wc(n_->cq);
        ASSERT_EQ(wc.wr_id, 1u);
        if (wc.status == IBV_WC_LOC_PROT_ERR)
            break;
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        too_early++;
        ASSERT_EQ(to_state(one_, IBV_QPS_RTS), 0);
        expect_next(n_->cq, 2);
    }
    EXPECT_TRUE(draining);
    expect_next(n_->cq, 2, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(state_of(one_), IBV_QPS_SQE);
    EXPECT_FALSE(is_draining(one_));
    events_->expect(IBV_EVENT_SQ_DRAINED, one_, too_early);
    EXPECT_EQ(to_sqd(one_, true), EINVAL);

    ready(one_, 11);
    ASSERT_EQ(message(3, good(), one_).post(two_), 0);
    expect_next(n_->cq, 3);
    expect_next(recv_cq_, 11);
    EXPECT_EQ(to_state(one_, IBV_QPS_RTS), 0);
    ready(two_, 21);
    ASSERT_EQ(message(4, good(), two_).post(one_), 0);
    expect_next(n_->cq, 4);
    expect_next(recv_cq_, 21);
    check_fabric();
}

INSTANTIATE_TEST_SUITE_P(Types, Sqe, ::testing::Values(IBV_QPT_UC, IBV_QPT_UD),
                         [](const auto &info) { return std::string(info.param == IBV_QPT_UC ? "Uc" : "Ud"); });

// Of a reliable QP it is an error of the connection.
TEST_F(SendQueue, AReliableQpGoesToErr)
{
    Node n;
    RcPair p(n, n);
    EXPECT_EQ(outcome(p.a, Send(IBV_WR_SEND, {{n.addr(), 8, 0x12345}})), IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(state_of(p.a), IBV_QPS_ERR);
}

} // namespace
