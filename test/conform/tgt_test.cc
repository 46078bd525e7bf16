// Shared TGT QPs: ibv_open_qp's table, modify and query through any handle, and who keeps the QP alive. Creator and openers are equal
// (__ib_destroy_shared_qp); since Linux 4.12 the QP goes with its last handle, also when the process that held it dies.
#include "conform/verbs.h"

namespace
{

using namespace vt;

class TgtTest : public vt::Test
{
};

int open_error(ibv_context *c, ibv_qp_open_attr a)
{
    errno = 0;
    Qp qp(ibv_open_qp(c, &a));
    return qp ? 0 : errno;
}

TEST_F(TgtTest, OpenNeedsNumberDomainAndType)
{
    Context c = open_device();
    Xrcd x = make_xrcd(c);
    Qp tgt = make_tgt(x);
    auto a = open_attr(x, tgt->qp_num);
    EXPECT_EQ(open_error(c, a), 0);
    for (uint32_t bit :
         {(uint32_t) IBV_QP_OPEN_ATTR_NUM, (uint32_t) IBV_QP_OPEN_ATTR_XRCD, (uint32_t) IBV_QP_OPEN_ATTR_TYPE}) {
        auto less = a;
        less.comp_mask &= ~bit;
        EXPECT_EQ(open_error(c, less), EINVAL) << bit;
    }
    a.comp_mask |= IBV_QP_OPEN_ATTR_RESERVED;
    EXPECT_EQ(open_error(c, a), EOPNOTSUPP);
}

TEST_F(TgtTest, OpenFindsOnlyTgtQpsOfThisDomain)
{
    Node n;
    Xrcd x = make_xrcd(n.ctx), other = make_xrcd(n.ctx);
    Qp tgt = make_tgt(x), rc = make_qp(IBV_QPT_RC, n.pd, n.cq);
    EXPECT_EQ(open_error(n.ctx, open_attr(other, tgt->qp_num)), EINVAL) << "another domain";
    EXPECT_EQ(open_error(n.ctx, open_attr(x, tgt->qp_num + 1)), EINVAL) << "no such number";
    EXPECT_EQ(open_error(n.ctx, open_attr(x, rc->qp_num)), EINVAL) << "not a TGT QP";
    EXPECT_EQ(open_error(n.ctx, open_attr(x, 0xffffffff)), EINVAL);
    for (ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_XRC_SEND, IBV_QPT_UD}) {
        auto a = open_attr(x, tgt->qp_num);
        a.qp_type = type;
        EXPECT_EQ(open_error(n.ctx, a), EINVAL) << type;
    }
    uint32_t old = tgt->qp_num;
    EXPECT_EQ(tgt.destroy(), 0);
    EXPECT_EQ(open_error(n.ctx, open_attr(x, old)), EINVAL) << "a dead number";
    Qp next = make_tgt(x);
    EXPECT_NE(next->qp_num, old) << "a number is not given out again at once";
}

TEST_F(TgtTest, OpenedHandleShowsNumberContextAndUnknownState)
{
    Context c = open_device();
    Xrcd x = make_xrcd(c);
    Qp tgt = make_tgt(x);
    auto a = open_attr(x, tgt->qp_num);
    int mark;
    a.qp_context = &mark;
    Qp plain(ibv_open_qp(c, &a));
    a.comp_mask |= IBV_QP_OPEN_ATTR_CONTEXT;
    Qp with(ibv_open_qp(c, &a));
    ASSERT_TRUE(plain && with) << "also the creator, and again";
    EXPECT_EQ(plain->qp_num, tgt->qp_num);
    EXPECT_EQ(plain->state, IBV_QPS_UNKNOWN);
    EXPECT_EQ(plain->qp_context, nullptr);
    EXPECT_EQ(with->qp_context, &mark);
    EXPECT_EQ(with->qp_type, IBV_QPT_XRC_RECV);
    EXPECT_EQ(with->pd, nullptr);
    EXPECT_EQ(with->send_cq, nullptr);
    EXPECT_EQ(with->recv_cq, nullptr);
    EXPECT_EQ(with->srq, nullptr);
}

TEST_F(TgtTest, OpenWorksInEveryState)
{
    Context c = open_device();
    Xrcd x = make_xrcd(c);
    Qp tgt = make_tgt(x);
    Path p;
    p.qpn = 77;
    p.lid = 1;
    std::function<int()> moves[] = {[] { return 0; },
                                    [&] { return to_init(tgt, p); },
                                    [&] { return to_rtr(tgt, p); },
                                    [&] { return to_rts(tgt, p); },
                                    [&] { return to_state(tgt, IBV_QPS_SQD); },
                                    [&] { return to_state(tgt, IBV_QPS_ERR); },
                                    [&] { return to_state(tgt, IBV_QPS_RESET); }};
    for (auto &move : moves) {
        ASSERT_EQ(move(), 0);
        EXPECT_EQ(open_error(c, open_attr(x, tgt->qp_num)), 0) << state_of(tgt);
    }
}

// ib_modify_qp and ib_query_qp act on the real QP; only the caller's ibv_qp.state is refreshed.
TEST_F(TgtTest, AnyHandleMovesAndShowsTheRealQp)
{
    Context c = open_device();
    Xrcd x = make_xrcd(c);
    Qp tgt = make_tgt(x), opened = open_tgt(x, tgt->qp_num);
    ASSERT_TRUE(opened);
    ASSERT_EQ(to_init(opened), 0);
    EXPECT_EQ(opened->state, IBV_QPS_INIT);
    EXPECT_EQ(tgt->state, IBV_QPS_RESET) << "stale until asked";
    EXPECT_EQ(state_of(tgt), IBV_QPS_INIT);
    EXPECT_EQ(tgt->state, IBV_QPS_INIT);
    Path p;
    p.qpn = 99;
    p.lid = 1;
    EXPECT_EQ(to_rtr(tgt, p), 0);
    EXPECT_EQ(to_rts(opened, p), 0);
    ibv_qp_attr a;
    ibv_qp_init_attr init;
    ASSERT_EQ(ibv_query_qp(tgt, &a, IBV_QP_AV, &init), 0);
    EXPECT_EQ(a.ah_attr.dlid, 1) << "the address vector comes back (97daf8140)";
    EXPECT_EQ(a.ah_attr.port_num, 1);
    EXPECT_EQ(a.dest_qp_num, 99u);
    EXPECT_EQ(a.timeout, p.timeout);
    EXPECT_EQ(to_state(opened, IBV_QPS_ERR), 0) << "no owner's privilege";
    EXPECT_EQ(state_of(tgt), IBV_QPS_ERR);
    EXPECT_EQ(to_state(tgt, IBV_QPS_RESET), 0);
    EXPECT_EQ(state_of(opened), IBV_QPS_RESET);
}

// ---- lifetime ----

struct Receiver {
    Node n;
    Xrcd x;
    Srq srq;
    explicit Receiver(int fd) : x(make_xrcd(n.ctx, fd)), srq(make_xrc_srq(n.pd, x, n.cq))
    {
        for (int i = 0; i < 32; i++)
            need(post_recv(srq, (uint64_t) i, {n.sge(0, 64)}) == 0, "post_recv");
    }
    Address address(ibv_qp *tgt) const
    {
        return {n.lid, tgt->qp_num, srq_num(srq), n.mr->rkey, n.addr()};
    }
};

// How a message to this address ends.
ibv_wc_status send_to(const Node &n, ibv_qp *ini, const Address &a)
{
    return outcome(ini, Send(IBV_WR_SEND, {n.sge(0, 8)}).to_srq(a.srqn));
}

Qp ini_to(const Node &n, const Address &a)
{
    Qp ini = make_qp(IBV_QPT_XRC_SEND, n.pd, n.cq);
    Path p;
    p.qpn = a.qpn;
    p.lid = a.lid;
    bring_up(ini, p);
    return ini;
}

void bring_up_to(ibv_qp *tgt, uint32_t ini, uint16_t lid)
{
    Path p;
    p.qpn = ini;
    p.lid = lid;
    bring_up(tgt, p);
}

TEST_F(TgtTest, DestroyingOneHandleOfTwoKeepsTheQp)
{
    for (bool creator_first : {true, false}) {
        TempFile f;
        Receiver r(f.fd());
        Node n;
        Qp tgt = make_tgt(r.x), opened = open_tgt(r.x, tgt->qp_num);
        Address a = r.address(tgt);
        Qp ini = ini_to(n, a);
        bring_up_to(tgt, ini->qp_num, n.lid);
        EXPECT_EQ((creator_first ? tgt : opened).destroy(), 0);
        EXPECT_EQ(send_to(n, ini, a), IBV_WC_SUCCESS);
        EXPECT_EQ((creator_first ? opened : tgt).destroy(), 0);
        EXPECT_EQ(send_to(n, ini, a), IBV_WC_RETRY_EXC_ERR) << "gone from the wire with its last handle";
    }
}

// The creator exits or is killed; another process still holds a handle.
class TgtHandover : public TgtTest, public ::testing::WithParamInterface<bool>
{
};

TEST_P(TgtHandover, TheQpOutlivesItsCreatorWhileAnotherHoldsIt)
{
    TempFile f;
    Child creator([&](const Link &link) {
        Context c = open_device();
        Xrcd x = make_xrcd(c, f.fd());
        Qp tgt = make_tgt(x);
        link.put<uint32_t>(tgt->qp_num);
        link.meet();
        tgt.release();
        x.release();
        c.release();
        _exit(0);
    });
    uint32_t qpn = creator.link().get<uint32_t>();
    {
        Receiver r(f.fd());
        Qp opened = open_tgt(r.x, qpn);
        ASSERT_TRUE(opened);
        if (GetParam()) {
            creator.kill();
        } else {
            creator.link().meet();
            EXPECT_EQ(creator.wait(), 0);
        }
        Node n;
        Address a = r.address(opened);
        Qp ini = ini_to(n, a);
        bring_up_to(opened, ini->qp_num, n.lid);
        EXPECT_EQ(send_to(n, ini, a), IBV_WC_SUCCESS);
        EXPECT_EQ(opened.destroy(), 0);
        EXPECT_EQ(send_to(n, ini, a), IBV_WC_RETRY_EXC_ERR);
    }
}

TEST_P(TgtHandover, TheQpGoesWithTheProcessThatHeldItsLastHandle)
{
    TempFile f;
    Child receiver([&](const Link &link) {
        Receiver r(f.fd());
        link.put(r.address(make_tgt(r.x)));
        link.meet();
        link.meet();
    });
    receiver.link().get<Address>();
    Child creator([&](const Link &link) {
        Context c = open_device();
        Xrcd x = make_xrcd(c, f.fd());
        Qp tgt = make_tgt(x);
        link.put<uint32_t>(tgt->qp_num);
        Address ini = link.get<Address>();
        bring_up_to(tgt, ini.qpn, ini.lid);
        link.meet();
        link.meet();
        tgt.release();
        x.release();
        c.release();
        _exit(0);
    });
    uint32_t qpn = creator.link().get<uint32_t>();
    {
        Node n;
        Receiver r(f.fd()); // its SRQ lives on: only the TGT dies
        Address a = {n.lid, qpn, srq_num(r.srq), 0, 0};
        Qp ini = ini_to(n, a);
        creator.link().put(Address{n.lid, ini->qp_num, 0, 0, 0});
        creator.link().meet();
        EXPECT_EQ(send_to(n, ini, a), IBV_WC_SUCCESS);
        if (GetParam()) {
            creator.kill();
        } else {
            creator.link().meet();
            EXPECT_EQ(creator.wait(), 0);
        }
        ibv_wc_status last = IBV_WC_SUCCESS;
        while (last == IBV_WC_SUCCESS) { // until the death is noticed
            last = send_to(n, ini, a);
            while (!cq_empty(r.n.cq))
                ASSERT_EQ(post_recv(r.srq, 0, {r.n.sge(0, 64)}), 0);
        }
        EXPECT_EQ(last, IBV_WC_RETRY_EXC_ERR);
        EXPECT_EQ(open_error(r.n.ctx, open_attr(r.x, qpn)), EINVAL);
    }
    receiver.link().meet();
    receiver.link().meet();
}

INSTANTIATE_TEST_SUITE_P(ExitAndKill, TgtHandover, ::testing::Bool(),
                         [](const auto &info) { return info.param ? "Killed" : "Exited"; });

// ---- events ----

TEST_F(TgtTest, EveryOpenerAndTheCreatorGetTheQpsEvents)
{
    TempFile f;
    Child opener([&](const Link &link) {
        Context c = open_device();
        Xrcd x = make_xrcd(c, f.fd());
        Qp tgt = open_tgt(x, link.get<uint32_t>());
        link.meet();
        for (ibv_event_type want : {IBV_EVENT_COMM_EST, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_LAST_WQE_REACHED}) {
            ibv_async_event e = next_event(c);
            EXPECT_EQ(e.event_type, want);
            EXPECT_EQ(e.element.qp, tgt) << "its own handle";
            ibv_ack_async_event(&e);
        }
    });
    {
        Receiver r(f.fd());
        Node n;
        Qp tgt = make_tgt(r.x);
        opener.link().put<uint32_t>(tgt->qp_num);
        opener.link().meet();
        Address a = r.address(tgt);
        Qp ini = ini_to(n, a);
        ASSERT_EQ(to_init(tgt), 0);
        Path p;
        p.qpn = ini->qp_num;
        p.lid = n.lid;
        ASSERT_EQ(to_rtr(tgt, p), 0);
        EXPECT_EQ(send_to(n, ini, a), IBV_WC_SUCCESS);
        ibv_async_event e = next_event(r.n.ctx);
        EXPECT_EQ(e.event_type, IBV_EVENT_COMM_EST);
        EXPECT_EQ(e.element.qp, tgt);
        ibv_ack_async_event(&e);
        a.srqn = 0xffffff;
        EXPECT_EQ(send_to(n, ini, a), IBV_WC_REM_INV_RD_REQ_ERR);
        EXPECT_EQ(ack_next(r.n.ctx), IBV_EVENT_QP_ACCESS_ERR);
        EXPECT_EQ(ack_next(r.n.ctx), IBV_EVENT_QP_LAST_WQE_REACHED);
        EXPECT_EQ(opener.wait(), 0);
    }
}

TEST_F(TgtTest, TwoHandlesOfOneProcessGetAnEventEach)
{
    TempFile f;
    Receiver r(f.fd());
    Qp tgt = make_tgt(r.x), opened = open_tgt(r.x, tgt->qp_num);
    bring_up_to(tgt, 5, 1);
    ASSERT_EQ(to_state(opened, IBV_QPS_ERR), 0);
    std::vector<ibv_qp *> got;
    for (int i = 0; i < 2; i++) {
        ibv_async_event e = next_event(r.n.ctx);
        EXPECT_EQ(e.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
        got.push_back(e.element.qp);
        ibv_ack_async_event(&e);
    }
    std::sort(got.begin(), got.end());
    std::vector<ibv_qp *> want = {tgt, opened};
    std::sort(want.begin(), want.end());
    EXPECT_EQ(got, want);
}

} // namespace
