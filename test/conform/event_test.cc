// Asynchronous events: acknowledging them, and how often COMM_EST comes.
#include "conform/apm.h"
#include "conform/pair.h"

#include <atomic>
#include <set>
#include <thread>

namespace
{

using namespace vt;

// Each kind of object that events name, with one that has just been raised. Destroying the object waits for the acknowledgement of an event
// that was read, and takes one along that was not.
enum Named { OF_QP, OF_TGT_HANDLE, OF_SRQ, OF_CQ };

class Acknowledgements : public vt::Test, public ::testing::WithParamInterface<Named>
{
  protected:
    Acknowledgements() : node_(new Node), n_(*node_)
    {
        nonblocking(n_.ctx->async_fd);
        switch (GetParam()) {
        case OF_QP: make_qp_event(); break;
        case OF_TGT_HANDLE: make_tgt_event(); break;
        case OF_SRQ: make_srq_event(); break;
        case OF_CQ: make_cq_event(); break;
        }
        pollfd fd = {n_.ctx->async_fd, POLLIN, 0};
        need(poll(&fd, 1, -1) == 1, "poll");
    }
    void TearDown() override
    {
        other_ = Qp();
        xrc_.reset();
        pair_.reset();
        srq_ = Srq();
        cq_ = Cq();
        node_.reset();
        vt::Test::TearDown();
    }
    void make_qp_event()
    {
        srq_ = make_srq(n_.pd);
        pair_ = std::make_unique<RcPair>(n_, n_, Path(), caps(), srq_);
        need(to_state(pair_->b, IBV_QPS_ERR) == 0, "to ERR"); // LAST_WQE_REACHED
        destroy_ = [this] { return pair_->b.destroy(); };
    }
    // An unknown SRQ number. One handle of two: the other keeps the QP.
    void make_tgt_event()
    {
        xrc_ = std::make_unique<XrcPair>(n_, n_);
        order("set tgt_events=creator");
        other_ = open_tgt(xrc_->xrcd, xrc_->tgt->qp_num);
        need(outcome(xrc_->ini, Send().to_srq(xrc_->srqn ^ 0x800000)) == IBV_WC_REM_INV_RD_REQ_ERR, "NAK");
        destroy_ = [this] { return xrc_->tgt.destroy(); };
    }
    void make_srq_event()
    {
        srq_ = make_srq(n_.pd);
        for (uint64_t i = 0; i < 2; i++)
            need(post_recv(srq_, i) == 0, "post_recv");
        ibv_srq_attr a = {};
        a.srq_limit = 2;
        need(ibv_modify_srq(srq_, &a, IBV_SRQ_LIMIT) == 0, "ibv_modify_srq");
        {
            RcPair pair(n_, n_, Path(), caps(), srq_);
            need(outcome(pair.a, Send()) == IBV_WC_SUCCESS, "send"); // SRQ_LIMIT_REACHED
        }
        destroy_ = [this] { return srq_.destroy(); };
    }
    void make_cq_event()
    {
        cq_ = make_cq(n_.ctx, 4);
        {
            auto attr = qp_attr(IBV_QPT_RC, n_.pd, cq_);
            attr.recv_cq = n_.cq;
            Qp a(ibv_create_qp_ex(n_.ctx, &attr)), b = make_qp(IBV_QPT_RC, n_.pd, n_.cq);
            connect(a, n_.lid, b, n_.lid);
            for (int i = 0, room = cq_->cqe + 1; i <= room; i++)
                need(Send(IBV_WR_RDMA_WRITE).post(a) == 0, "ibv_post_send"); // CQ_ERR, then QP_FATAL
            need(state_of(a) == IBV_QPS_ERR, "no overrun");
        }
        destroy_ = [this] { return cq_.destroy(); };
    }

    std::unique_ptr<Node> node_;
    Node &n_;
    Srq srq_;
    Cq cq_;
    std::unique_ptr<RcPair> pair_;
    std::unique_ptr<XrcPair> xrc_;
    Qp other_;
    std::function<int()> destroy_;
};

TEST_P(Acknowledgements, OfReadEventsAreWaitedFor)
{
    ibv_async_event e = next_event(n_.ctx);
    std::atomic<bool> destroyed{false};
    std::thread destroyer([&] {
        EXPECT_EQ(destroy_(), 0);
        destroyed = true;
    });
    for (int i = 0; i < 10000; i++) {
        EXPECT_FALSE(destroyed) << "not before the acknowledgement";
        sched_yield();
    }
    ibv_ack_async_event(&e);
    destroyer.join();
}

TEST_P(Acknowledgements, UnreadEventsGoWithTheObject)
{
    EXPECT_EQ(destroy_(), 0);
    ibv_async_event e;
    std::set<ibv_event_type> left;
    while (ibv_get_async_event(n_.ctx, &e) == 0) {
        left.insert(e.event_type);
        ibv_ack_async_event(&e);
    }
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(left.count(IBV_EVENT_QP_LAST_WQE_REACHED) + left.count(IBV_EVENT_SRQ_LIMIT_REACHED) + left.count(IBV_EVENT_CQ_ERR)
                  + left.count(IBV_EVENT_QP_ACCESS_ERR),
              0u);
}

std::string name_of(const ::testing::TestParamInfo<Named> &info)
{
    const char *const names[] = {"Qp", "TgtHandle", "Srq", "Cq"};
    return names[info.param];
}

INSTANTIATE_TEST_SUITE_P(All, Acknowledgements, ::testing::Values(OF_QP, OF_TGT_HANDLE, OF_SRQ, OF_CQ), name_of);

// Once for each time that the QP comes to RTR; if it is in RTS by then, not at all.
class Established : public vt::Test, public ::testing::WithParamInterface<bool>
{
};

TEST_P(Established, OncePerRtr)
{
    Node n;
    Events events(n);
    Cq recv_cq = make_cq(n.ctx);
    Srq srq = make_srq(n.pd);
    XrcPair x(n, n);
    RcPair rc(n, n, Path(), caps(), srq);
    ibv_qp *from = GetParam() ? x.ini : rc.a, *to = GetParam() ? x.tgt : rc.b;
    Path there, back;
    there.lid = back.lid = n.lid;
    there.qpn = to->qp_num;
    back.qpn = from->qp_num;
    for (int round = 1; round <= 2; round++) {
        for (ibv_qp *qp : {from, to})
            ASSERT_EQ(to_state(qp, IBV_QPS_RESET), 0);
        bring_up(from, there);
        ASSERT_EQ(to_init(to, back), 0);
        ASSERT_EQ(to_rtr(to, back), 0);
        for (uint64_t i = 0; i < 2; i++) {
            ASSERT_EQ(post_recv(GetParam() ? x.srq : srq, i), 0);
            ASSERT_EQ(outcome(from, Send().to_srq(GetParam() ? x.srqn : 0)), IBV_WC_SUCCESS);
            next_wc(GetParam() ? x.srq_cq : n.cq);
        }
        events.expect(IBV_EVENT_COMM_EST, to, round);
        ASSERT_EQ(to_rts(to, back), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Established, ::testing::Bool(), [](const auto &info) { return info.param ? "Xrc" : "Rc"; });

} // namespace
