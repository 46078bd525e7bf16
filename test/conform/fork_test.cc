// Forking with a device open, and replacing the program: what a child has, and what its parent keeps.
#include "conform/faults.h"
#include "conform/pair.h"

#include <thread>

namespace
{

using namespace vt;

// ---- without ibv_fork_init and after it: there are no pages to keep from the child ----

class ForkTest : public vt::Test, public ::testing::WithParamInterface<bool>
{
  protected:
    void SetUp() override
    {
        if (GetParam()) {
            ASSERT_EQ(ibv_fork_init(), 0);
        }
    }
};

INSTANTIATE_TEST_SUITE_P(Init, ForkTest, ::testing::Bool(),
                         [](const auto &info) { return std::string(info.param ? "WithForkInit" : "WithoutForkInit"); });

// The child's device files are the parent's: everything it inherited says EIO and nothing of the parent's is touched.
TEST_P(ForkTest, AForkedChildGetsEioFromWhatItInherited)
{
    Node n;
    Xrcd x = make_xrcd(n.ctx);
    Srq srq = make_xrc_srq(n.pd, x, n.cq);
    Qp rc = make_qp(IBV_QPT_RC, n.pd, n.cq), peer = make_qp(IBV_QPT_RC, n.pd, n.cq), tgt = make_tgt(x);
    connect(rc, n.lid, peer, n.lid);
    ASSERT_EQ(post_recv(peer, 5, {n.sge(0, 8)}), 0);
    ASSERT_EQ(Send(IBV_WR_SEND, {n.sge(0, 8)}).id(6).post(rc), 0); // two unread completions
    {
        Child child([&](const Link &) {
            ibv_wc wc;
            EXPECT_EQ(ibv_poll_cq(n.cq, 1, &wc), -EIO);
            EXPECT_EQ(ibv_req_notify_cq(n.cq, 0), EIO);
            EXPECT_EQ(Send(IBV_WR_SEND, {n.sge(0, 8)}).post(rc), EIO);
            EXPECT_EQ(post_recv(rc, 1), EIO);
            EXPECT_EQ(post_recv(srq, 1), EIO);
            EXPECT_EQ(to_state(rc, IBV_QPS_ERR), EIO);
            EXPECT_EQ(to_state(tgt, IBV_QPS_ERR), EIO);
            ibv_qp_attr a;
            ibv_qp_init_attr init;
            EXPECT_EQ(ibv_query_qp(rc, &a, 0, &init), EIO);
            EXPECT_EQ(ibv_destroy_qp(rc), EIO);
            EXPECT_EQ(ibv_destroy_srq(srq), EIO);
            EXPECT_EQ(ibv_close_xrcd(x), EIO);
            EXPECT_EQ(ibv_dereg_mr(n.mr), EIO);
            EXPECT_EQ(ibv_destroy_cq(n.cq), EIO);
            EXPECT_EQ(ibv_dealloc_pd(n.pd), EIO);
            auto refused = [](void *p) { return p == nullptr && errno == EIO; };
            EXPECT_TRUE(refused(ibv_alloc_pd(n.ctx)));
            EXPECT_TRUE(refused(ibv_create_cq(n.ctx, 4, nullptr, nullptr, 0)));
            EXPECT_TRUE(refused(ibv_reg_mr(n.pd, n.mem.data(), 8, 0)));
            EXPECT_TRUE(refused(try_open_xrcd(n.ctx, -1, O_CREAT)));
            auto attr = qp_attr(IBV_QPT_RC, n.pd, n.cq);
            EXPECT_TRUE(refused(ibv_create_qp_ex(n.ctx, &attr)));
            auto open = open_attr(x, tgt->qp_num);
            EXPECT_TRUE(refused(ibv_open_qp(n.ctx, &open)));
            ibv_port_attr port;
            EXPECT_EQ(ibv_query_port(n.ctx, 1, &port), EIO);
            ibv_device_attr dev;
            EXPECT_EQ(ibv_query_device(n.ctx, &dev), EIO);
            EXPECT_EQ(ibv_close_device(n.ctx), EIO);
        });
        EXPECT_EQ(child.wait(), 0);
    }
    EXPECT_EQ(state_of(rc), IBV_QPS_RTS);
    EXPECT_EQ(next_wc(n.cq).wr_id, 5u);
    EXPECT_EQ(next_wc(n.cq).wr_id, 6u);
}

TEST_P(ForkTest, AForkedChildMakesItsOwnContextAndTalksToItsParent)
{
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the thread sanitizer knows no threads in a child of a threaded process";
#endif
    Node n;
    Qp qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
    Child child([&](const Link &link) {
        Node own;
        Qp mine = make_qp(IBV_QPT_RC, own.pd, own.cq);
        link.put(Address{own.lid, mine->qp_num, 0, 0, 0});
        Path p;
        p.qpn = link.get<uint32_t>();
        p.lid = own.lid;
        bring_up(mine, p);
        ASSERT_EQ(post_recv(mine, 3, {own.sge(0, 20000)}), 0);
        link.meet();
        EXPECT_EQ(next_wc(own.cq).byte_len, 20000u);
        EXPECT_EQ(own.mem[19999], 'z');
        EXPECT_EQ(Send(IBV_WR_SEND).post(qp), EIO) << "the parent's stay the parent's";
        ibv_wc wc;
        EXPECT_EQ(ibv_poll_cq(n.cq, 1, &wc), -EIO);
    });
    Address a = child.link().get<Address>();
    child.link().put<uint32_t>(qp->qp_num);
    Path p;
    p.qpn = a.qpn;
    p.lid = a.lid;
    bring_up(qp, p);
    child.link().meet();
    memset(n.mem.data(), 'z', 20000);
    EXPECT_EQ(outcome(qp, Send(IBV_WR_SEND, {n.sge(0, 20000)})), IBV_WC_SUCCESS);
    EXPECT_EQ(child.wait(), 0);
}

// What waited for a timer when the parent forked is the parent's to send: the child's engine begins with nothing.
TEST_P(ForkTest, AForkedChildsEngineSendsNothingOfItsParents)
{
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the thread sanitizer knows no threads in a child of a threaded process";
#endif
    Node n;
    Qp a = make_qp(IBV_QPT_RC, n.pd, n.cq), b = make_qp(IBV_QPT_RC, n.pd, n.cq);
    connect(a, n.lid, b, n.lid);
    ASSERT_EQ(Send().post(a), 0); // no receive: it is tried again and again
    Child child([&](const Link &link) {
        link.meet();
        Node own;
        Qp qp = make_qp(IBV_QPT_RC, own.pd, own.cq);
        Path nowhere;
        nowhere.qpn = qp->qp_num + 1;
        nowhere.lid = own.lid;
        nowhere.retry = 5; // more tries than the parent's has
        bring_up(qp, nowhere);
        EXPECT_EQ(outcome(qp, Send()), IBV_WC_RETRY_EXC_ERR);
        link.meet();
    });
    Path other;
    other.psn = 0x10; // before the one that the parent's was to have: with that it is out of sequence
    for (ibv_qp *qp : {(ibv_qp *) a, (ibv_qp *) b})
        ASSERT_EQ(to_state(qp, IBV_QPS_RESET), 0);
    connect(a, n.lid, b, n.lid, other);
    child.link().meet();
    child.link().meet();
    EXPECT_EQ(child.wait(), 0);
    EXPECT_EQ(state_of(a), IBV_QPS_RTS);
    ASSERT_EQ(post_recv(b, 1), 0);
    ASSERT_EQ(Send().id(2).post(a), 0);
    EXPECT_EQ(next_wc(n.cq).wr_id, 1u);
    EXPECT_EQ(next_wc(n.cq).wr_id, 2u);
    EXPECT_TRUE(cq_empty(n.cq));
}

// The parent keeps all it has when a child that only forked exits.
TEST_P(ForkTest, AChildThatExitsTakesNothingAway)
{
    Node n;
    Qp a = make_qp(IBV_QPT_RC, n.pd, n.cq), b = make_qp(IBV_QPT_RC, n.pd, n.cq);
    connect(a, n.lid, b, n.lid);
    for (int i = 0; i < 10; i++) {
        pid_t pid = fork();
        if (pid == 0)
            exit(0); // with destructors
        int status;
        ASSERT_EQ(waitpid(pid, &status, 0), pid);
        ASSERT_EQ(status, 0);
        ASSERT_EQ(post_recv(b, 1), 0);
        ASSERT_EQ(Send().post(a), 0);
        for (int k = 0; k < 2; k++)
            ASSERT_EQ(next_wc(n.cq).status, IBV_WC_SUCCESS);
    }
}

// exec closes the device file (O_CLOEXEC): the process lives on as another program, its objects do not.
class ExecTest : public vt::Test
{
};

TEST_F(ExecTest, ExecDestroysWhatTheProcessHad)
{
    TempFile f;
    Child child([&](const Link &link) {
        Context c = open_device();
        Xrcd x = make_xrcd(c, f.fd());
        link.meet();
        execlp("tail", "tail", "-f", "/dev/null", (char *) nullptr);
    });
    child.link().meet();
    Context c = open_device();
    int err = 0;
    while (err != EAGAIN) { // until the exec has happened
        Xrcd x(try_open_xrcd(c, f.fd(), 0));
        err = x ? 0 : errno;
        ASSERT_TRUE(err == 0 || err == EAGAIN);
        sched_yield();
    }
    EXPECT_EQ(kill(child.pid(), 0), 0) << "it is still there";
    child.kill();
}

} // namespace
