// Limits: outstanding READs and atomics, descriptors, and in sanitized builds the memory behind a posted buffer.
#include "conform/pair.h"

#include <sys/resource.h>

using namespace vt;

namespace
{

class Limits : public Test
{
};

// IBTA: more outstanding READs and atomics than the responder has resources for is an invalid request; none is the least there is.
void expect_invalid(ibv_wr_opcode op)
{
    Node n(1 << 12, all_access | IBV_ACCESS_REMOTE_ATOMIC);
    Qp a = make_qp(IBV_QPT_RC, n.pd, n.cq), b = make_qp(IBV_QPT_RC, n.pd, n.cq);
    Path p;
    p.lid = n.lid;
    p.access |= IBV_ACCESS_REMOTE_ATOMIC;
    p.qpn = b->qp_num;
    bring_up(a, p);
    p.qpn = a->qp_num;
    need(to_init(b, p) == 0, "to INIT");
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = p.qpn;
    attr.rq_psn = p.psn;
    attr.max_dest_rd_atomic = 0;
    attr.min_rnr_timer = 1;
    attr.ah_attr.dlid = n.lid;
    attr.ah_attr.port_num = 1;
    ASSERT_EQ(ibv_modify_qp(b, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              0);
    Send s(op, {n.sge(64, 8)});
    if (op == IBV_WR_RDMA_READ) {
        s.at(n.addr(), n.mr->rkey);
    } else {
        s.wr.wr.atomic.remote_addr = n.addr();
        s.wr.wr.atomic.rkey = n.mr->rkey;
    }
    EXPECT_EQ(outcome(a, s), IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(state_of(b), IBV_QPS_ERR);
}

TEST_F(Limits, AReadNeedsRoomAtTheResponder)
{
    expect_invalid(IBV_WR_RDMA_READ);
}

TEST_F(Limits, AnAtomicNeedsRoomAtTheResponder)
{
    expect_invalid(IBV_WR_ATOMIC_FETCH_AND_ADD);
}

// Whatever is created when descriptors run out says so, and works again once there are some.
// A requester that may have none outstanding can carry none out; other operations it can.
void expect_none(const Node &n, ibv_qp *qp, uint32_t srqn)
{
    for (ibv_wr_opcode op : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
        Path p;
        p.lid = n.lid;
        ibv_qp_attr was = {};
        ibv_qp_init_attr init;
        need(ibv_query_qp(qp, &was, IBV_QP_DEST_QPN, &init) == 0, "ibv_query_qp");
        p.qpn = was.dest_qp_num;
        need(to_state(qp, IBV_QPS_RESET) == 0 && to_init(qp, p) == 0 && to_rtr(qp, p) == 0, "to RTR");
        ibv_qp_attr attr = {};
        attr.qp_state = IBV_QPS_RTS;
        attr.sq_psn = p.psn;
        attr.timeout = 8;
        attr.max_rd_atomic = 0;
        need(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_MAX_QP_RD_ATOMIC) == 0,
             "to RTS");
        Send s(op, {n.sge(64, 8)});
        s.to_srq(srqn);
        if (op == IBV_WR_RDMA_READ) {
            s.at(n.addr(), n.mr->rkey);
        } else {
            s.wr.wr.atomic.remote_addr = n.addr();
            s.wr.wr.atomic.rkey = n.mr->rkey;
        }
        EXPECT_EQ(outcome(qp, s), IBV_WC_LOC_QP_OP_ERR) << op;
        EXPECT_EQ(state_of(qp), IBV_QPS_ERR);
    }
}

TEST_F(Limits, ReadsAndAtomicsNeedRoomAtTheRequester)
{
    Node n(1 << 12, all_access | IBV_ACCESS_REMOTE_ATOMIC);
    RcPair p(n, n);
    expect_none(n, p.a, 0);
    EXPECT_EQ(state_of(p.b), IBV_QPS_RTS) << "nothing was sent";
    XrcPair x(n, n);
    expect_none(n, x.ini, x.srqn);
    EXPECT_EQ(state_of(x.tgt), IBV_QPS_RTS);
}

TEST_F(Limits, WithoutRoomOtherOperationsWork)
{
    Node n;
    RcPair p(n, n);
    ibv_qp_attr a = {};
    ASSERT_EQ(to_state(p.a, IBV_QPS_SQD), 0);
    ASSERT_EQ(ibv_modify_qp(p.a, &a, IBV_QP_MAX_QP_RD_ATOMIC), 0);
    ASSERT_EQ(to_state(p.a, IBV_QPS_RTS), 0);
    EXPECT_EQ(outcome(p.a, Send(IBV_WR_RDMA_WRITE, {n.sge(64, 8)}).at(n.addr(), n.mr->rkey)), IBV_WC_SUCCESS);
    EXPECT_EQ(outcome(p.a, Send(IBV_WR_RDMA_READ, {n.sge(64, 8)}).at(n.addr(), n.mr->rkey)), IBV_WC_LOC_QP_OP_ERR);
}

// More may be posted than may be outstanding: the rest waits its turn.
TEST_F(Limits, MorePostedThanMayBeOutstanding)
{
    Node n;
    RcPair p(n, n);
    ibv_qp_attr a = {};
    a.max_rd_atomic = 1;
    ASSERT_EQ(to_state(p.a, IBV_QPS_SQD), 0);
    ASSERT_EQ(ibv_modify_qp(p.a, &a, IBV_QP_MAX_QP_RD_ATOMIC), 0);
    for (uint64_t i = 0; i < 32; i++)
        ASSERT_EQ(Send(IBV_WR_RDMA_READ, {n.sge(64, 8)}).at(n.addr(), n.mr->rkey).id(i).post(p.a), 0);
    ASSERT_EQ(to_state(p.a, IBV_QPS_RTS), 0);
    for (uint64_t i = 0; i < 32; i++) {
        ibv_wc wc = next_wc(n.cq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.wr_id, i);
    }
}

TEST_F(Limits, TheDevicesLimitsHold)
{
    Node n;
    ibv_device_attr dev;
    ASSERT_EQ(ibv_query_device(n.ctx, &dev), 0);
    RcPair p(n, n);
    ASSERT_EQ(to_state(p.a, IBV_QPS_SQD), 0);
    ibv_qp_attr a = {};
    a.max_rd_atomic = (uint8_t)dev.max_qp_init_rd_atom;
    a.max_dest_rd_atomic = (uint8_t)dev.max_qp_rd_atom;
    EXPECT_EQ(ibv_modify_qp(p.a, &a, IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC), 0);
    a.max_rd_atomic++;
    EXPECT_EQ(ibv_modify_qp(p.a, &a, IBV_QP_MAX_QP_RD_ATOMIC), EINVAL);
    a.max_dest_rd_atomic++;
    EXPECT_EQ(ibv_modify_qp(p.a, &a, IBV_QP_MAX_DEST_RD_ATOMIC), EINVAL);
}

TEST_F(Limits, OutOfDescriptors)
{
    Child child([](const Link &) {
        Node n;
        rlimit limit, none;
        need(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
        none = limit;
        none.rlim_cur = 3; // what is open stays open
        need(setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
        errno = 0;
        EXPECT_EQ(ibv_create_comp_channel(n.ctx), nullptr);
        EXPECT_EQ(errno, EMFILE);
        errno = 0;
        EXPECT_EQ(try_open_xrcd(n.ctx, 0, O_CREAT), nullptr); // the domain keeps a descriptor of its file
        EXPECT_EQ(errno, EMFILE);
        errno = 0;
        EXPECT_EQ(ibv_open_device(n.ctx->device), nullptr);
        EXPECT_EQ(errno, EMFILE);
        XrcPair pair(n, n); // a private domain needs none
        post_recv(pair.srq, 1, {n.sge(0, 64)});
        EXPECT_EQ(outcome(pair.ini, Send(IBV_WR_SEND, {n.sge(64, 32)}).to_srq(pair.srqn)), IBV_WC_SUCCESS);
        need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
        {
            Channel again(ibv_create_comp_channel(n.ctx));
            EXPECT_NE((ibv_comp_channel *) again, nullptr);
        }
        need(setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit"); // and so it leaves
    });
    EXPECT_EQ(child.wait(), 0);
}

// The segment is a large file, though a sparse one. Growing it beyond the limit would end the program by a signal.
TEST_F(Limits, FilesMayNotBeThatLarge)
{
    Child child([](const Link &) {
        rlimit limit = {1u << 30, 1u << 30};
        need(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
        int n = 0;
        errno = 0;
        ibv_device **list = ibv_get_device_list(&n);
        int err = errno;
        EXPECT_TRUE(!list || n == 0);
        EXPECT_EQ(err, EFBIG);
        if (list)
            ibv_free_device_list(list);
    });
    EXPECT_EQ(child.wait(), 0);
    Child limited([](const Link &link) {
        link.get<char>();
        rlimit limit = {1u << 30, 1u << 30};
        need(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
        Node n;
        XrcPair pair(n, n);
        post_recv(pair.srq, 1, {n.sge(0, 64)});
        EXPECT_EQ(outcome(pair.ini, Send(IBV_WR_SEND, {n.sge(64, 32)}).to_srq(pair.srqn)), IBV_WC_SUCCESS);
    });
    Node makes; // which is not limited
    limited.link().put('g');
    EXPECT_EQ(limited.wait(), 0);
}

// A process that has none left when it first asks for devices, and with each number more, until there are enough.
TEST_F(Limits, OutOfDescriptorsFromTheStart)
{
    bool worked = false;
    for (rlim_t spare = 0; !worked && spare < 32; spare++) {
        Child child([spare](const Link &link) {
            int next = dup(0); // the lowest that is free
            close(next);
            rlimit limit = {(rlim_t) next + spare, (rlim_t) next + 32};
            need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
            int devices = 0;
            errno = 0;
            ibv_device **list = ibv_get_device_list(&devices);
            ibv_context *c = list && devices ? ibv_open_device(list[0]) : nullptr;
            int err = errno;
            if (!c) {
                EXPECT_TRUE(err == EMFILE || (list && !devices)) << strerror(err);
            }
            if (c) {
                EXPECT_EQ(ibv_close_device(c), 0);
            }
            if (list)
                ibv_free_device_list(list);
            link.put<bool>(c != nullptr);
        });
        worked = child.link().get<bool>();
        EXPECT_EQ(child.wait(), 0) << "with " << spare << " descriptors";
        struct stat st;
        EXPECT_NE(stat(fabric_dir().c_str(), &st), 0) << "files of the fabric are left, with " << spare << " descriptors";
    }
    EXPECT_TRUE(worked);
}

#if defined(__SANITIZE_ADDRESS__)
// Each way to post, and what is wrong with one of its entries.
class LimitsDeathTest : public ::testing::Test
{
  protected:
    // The second of two entries is beyond what was allocated, or was freed.
    static void dies(const std::function<void(Node &, std::vector<ibv_sge>)> &post)
    {
        GTEST_FLAG_SET(death_test_style, "threadsafe");
        for (bool freed : {false, true})
            EXPECT_DEATH(
                {
                    Node n;
                    char *buffer = new char[64];
                    Mr mr(ibv_reg_mr(n.pd, buffer, 64, all_access));
                    uintptr_t addr = (uintptr_t) buffer;
                    if (freed)
                        delete[] buffer;
                    post(n, {n.sge(0, 8), {addr, freed ? 64u : 65u, mr->lkey}});
                },
                freed ? "heap-use-after-free" : "heap-buffer-overflow");
    }
};

TEST_F(LimitsDeathTest, PostRecv)
{
    dies([](Node &n, std::vector<ibv_sge> list) {
        Qp qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
        to_init(qp);
        post_recv(qp, 1, std::move(list));
    });
}

TEST_F(LimitsDeathTest, PostSrqRecv)
{
    dies([](Node &n, std::vector<ibv_sge> list) {
        Xrcd x = make_xrcd(n.ctx);
        Srq srq = make_xrc_srq(n.pd, x, n.cq);
        post_recv(srq, 1, std::move(list));
    });
}

TEST_F(LimitsDeathTest, PostSend)
{
    dies([](Node &n, std::vector<ibv_sge> list) {
        RcPair p(n, n);
        Send(IBV_WR_RDMA_WRITE, std::move(list)).at(n.addr(), n.mr->rkey).post(p.a);
    });
}

TEST_F(LimitsDeathTest, PostSendInline)
{
    dies([](Node &n, std::vector<ibv_sge> list) {
        RcPair p(n, n, {}, caps(4, 4, 4, 128));
        for (ibv_sge &sge : list)
            sge.lkey = 0;
        Send(IBV_WR_SEND, std::move(list), IBV_SEND_INLINE).post(p.a);
    });
}

TEST_F(LimitsDeathTest, WrHooks)
{
    dies([](Node &n, std::vector<ibv_sge> list) {
        auto attr = qp_attr(IBV_QPT_RC, n.pd, n.cq);
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
        Qp qp(ibv_create_qp_ex(n.ctx, &attr));
        connect(qp, n.lid, make_qp(IBV_QPT_RC, n.pd, n.cq), n.lid);
        ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
        ibv_wr_start(ex);
        ibv_wr_rdma_write(ex, n.mr->rkey, n.addr());
        ibv_wr_set_sge_list(ex, list.size(), list.data());
        ibv_wr_complete(ex);
    });
}

// Entries name what peers would: the buffer is looked at where it lies.
TEST_F(LimitsDeathTest, OtherAddresses)
{
    dies([](Node &n, std::vector<ibv_sge> list) {
        RcPair p(n, n);
        Mr other(ibv_reg_mr_iova(n.pd, reinterpret_cast<void *>(list[1].addr), 64, 0x10000, all_access));
        list[1] = {0x10000, list[1].length, other->lkey};
        Send(IBV_WR_RDMA_WRITE, std::move(list)).at(n.addr(), n.mr->rkey).post(p.a);
    });
}

TEST(ShadowTest, BuffersUnderOtherAddressesAreFine)
{
    Node n;
    RcPair p(n, n);
    std::vector<char> buffer(64);
    Mr other(ibv_reg_mr_iova(n.pd, buffer.data(), 64, 0x10000, all_access));
    EXPECT_EQ(outcome(p.a, Send(IBV_WR_RDMA_WRITE, {{0x10000, 64, other->lkey}}).at(n.addr(), n.mr->rkey)), IBV_WC_SUCCESS);
}
#endif

} // namespace
