// The responder's order of checks and the requester's statuses: each cause, what the sender sees, which event the receiver's side
// gets, and what becomes of both QPs. Class-C errors put both into ERR.
#include "conform/pair.h"

#include <sys/mman.h>

namespace
{

using namespace vt;

class ErrorTest : public vt::Test
{
  protected:
    // The status at the sender and the events of the receiver's QP, which is then in ERR.
    void expect_fatal(Node &to, ibv_qp *sender, ibv_qp *receiver, Send send, ibv_wc_status status, ibv_event_type event,
                      bool has_srq)
    {
        EXPECT_EQ(outcome(sender, std::move(send)), status);
        EXPECT_EQ(state_of(sender), IBV_QPS_ERR);
        EXPECT_EQ(state_of(receiver), IBV_QPS_ERR);
        EXPECT_EQ(ack_next(to.ctx), event);
        if (has_srq) {
            EXPECT_EQ(ack_next(to.ctx), IBV_EVENT_QP_LAST_WQE_REACHED);
        }
    }
};

// ---- XRC: the SRQ number ----

TEST_F(ErrorTest, UnknownSrqNumberIsNak4)
{
    Node from, to;
    for (ibv_wr_opcode op : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE_WITH_IMM}) {
        XrcPair p(from, to);
        Send s(op, {from.sge(0, 8)});
        s.to_srq(p.srqn ^ 0x800000).at(to.addr(), to.mr->rkey);
        expect_fatal(to, p.ini, p.tgt, s, IBV_WC_REM_INV_RD_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, true);
        EXPECT_TRUE(cq_empty(p.srq_cq));
    }
}

TEST_F(ErrorTest, SrqOfAnotherDomainOrBasicSrqIsNak4)
{
    Node from, to;
    Xrcd other = make_xrcd(to.ctx);
    Srq foreign = make_xrc_srq(to.pd, other, to.cq), basic = make_srq(to.pd);
    for (uint32_t n : {srq_num(foreign), basic->handle}) {
        XrcPair p(from, to);
        expect_fatal(to, p.ini, p.tgt, Send(IBV_WR_SEND, {from.sge(0, 8)}).to_srq(n), IBV_WC_REM_INV_RD_REQ_ERR,
                     IBV_EVENT_QP_ACCESS_ERR, true);
    }
}

TEST_F(ErrorTest, ADestroyedSrqIsNak4)
{
    Node from, to;
    XrcPair p(from, to);
    ASSERT_EQ(post_recv(p.srq, 1, {to.sge(0, 8)}), 0);
    EXPECT_EQ(outcome(p.ini, Send(IBV_WR_SEND, {from.sge(0, 8)}).to_srq(p.srqn)), IBV_WC_SUCCESS);
    EXPECT_EQ(p.srq.destroy(), 0);
    EXPECT_TRUE(cq_empty(p.srq_cq)) << "its unread completions went with it";
    expect_fatal(to, p.ini, p.tgt, Send(IBV_WR_SEND, {from.sge(0, 8)}).to_srq(p.srqn), IBV_WC_REM_INV_RD_REQ_ERR,
                 IBV_EVENT_QP_ACCESS_ERR, true);
}

// ---- keys, PDs, ranges, access ----

struct Rdma {
    const char *name;
    std::function<uint32_t(Node &, ibv_mr *read_only, ibv_mr *other_pd)> key;
    int64_t offset;
    uint32_t length;
    ibv_wc_status write, read;
};

const Rdma rdma_rows[] = {
    {"good", [](Node &n, ibv_mr *, ibv_mr *) { return n.mr->rkey; }, 0, 8, IBV_WC_SUCCESS, IBV_WC_SUCCESS},
    {"last byte", [](Node &n, ibv_mr *, ibv_mr *) { return n.mr->rkey; }, 65535, 1, IBV_WC_SUCCESS, IBV_WC_SUCCESS},
    {"one too far", [](Node &n, ibv_mr *, ibv_mr *) { return n.mr->rkey; }, 65535, 2, IBV_WC_REM_ACCESS_ERR,
     IBV_WC_REM_ACCESS_ERR},
    {"before", [](Node &n, ibv_mr *, ibv_mr *) { return n.mr->rkey; }, -1, 2, IBV_WC_REM_ACCESS_ERR,
     IBV_WC_REM_ACCESS_ERR},
    {"behind", [](Node &n, ibv_mr *, ibv_mr *) { return n.mr->rkey; }, 65536, 1, IBV_WC_REM_ACCESS_ERR,
     IBV_WC_REM_ACCESS_ERR},
    {"no such key", [](Node &n, ibv_mr *, ibv_mr *) { return n.mr->rkey ^ 0x40000000; }, 0, 8, IBV_WC_REM_ACCESS_ERR,
     IBV_WC_REM_ACCESS_ERR},
    {"read-only region", [](Node &, ibv_mr *ro, ibv_mr *) { return ro->rkey; }, 0, 8, IBV_WC_REM_ACCESS_ERR,
     IBV_WC_SUCCESS},
    {"region of another PD", [](Node &, ibv_mr *, ibv_mr *pd) { return pd->rkey; }, 0, 8, IBV_WC_REM_ACCESS_ERR,
     IBV_WC_REM_ACCESS_ERR},
    {"zero length names no region", [](Node &, ibv_mr *, ibv_mr *) { return 0u; }, 0, 0, IBV_WC_SUCCESS,
     IBV_WC_SUCCESS},
};

class ErrorXrcOrRc : public ErrorTest, public ::testing::WithParamInterface<bool>
{
  protected:
    // A fresh pair for each row, since a failure ends it.
    struct Pair {
        std::unique_ptr<XrcPair> xrc;
        std::unique_ptr<RcPair> rc;
        ibv_qp *from() const
        {
            return xrc ? xrc->ini : rc->a;
        }
        ibv_qp *to() const
        {
            return xrc ? xrc->tgt : rc->b;
        }
        uint32_t srqn() const
        {
            return xrc ? xrc->srqn : 0;
        }
    };
    Pair make(const Node &from, const Node &to, Path p = {}) const
    {
        Pair pair;
        if (GetParam())
            pair.xrc = std::make_unique<XrcPair>(from, to, p);
        else
            pair.rc = std::make_unique<RcPair>(from, to, p);
        return pair;
    }
    // A receive WQE where the pair's messages go, and the CQ they complete into.
    int post(const Pair &p, uint64_t id, std::vector<ibv_sge> list) const
    {
        return p.xrc ? post_recv(p.xrc->srq, id, std::move(list)) : post_recv(p.rc->b, id, std::move(list));
    }
    static ibv_cq *recv_cq(const Pair &p, const Node &to)
    {
        return p.xrc ? p.xrc->srq_cq : to.cq;
    }
};

TEST_P(ErrorXrcOrRc, RemoteKeyRangePdAndAccessAreChecked)
{
    Node from, to;
    Mr read_only(ibv_reg_mr(to.pd, to.mem.data(), to.mem.size(), IBV_ACCESS_REMOTE_READ));
    Pd other(ibv_alloc_pd(to.ctx));
    Mr other_pd(ibv_reg_mr(other, to.mem.data(), to.mem.size(), all_access));
    for (const Rdma &row : rdma_rows)
        for (ibv_wr_opcode op : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
            SCOPED_TRACE(testing::Message() << row.name << (op == IBV_WR_RDMA_READ ? ", READ" : ", WRITE"));
            Pair p = make(from, to);
            Send s(op, {from.sge(0, row.length)});
            s.at(to.addr() + (uint64_t) row.offset, row.key(to, read_only, other_pd)).to_srq(p.srqn());
            ibv_wc_status want = op == IBV_WR_RDMA_READ ? row.read : row.write;
            if (want == IBV_WC_SUCCESS) {
                EXPECT_EQ(outcome(p.from(), s), want);
                EXPECT_EQ(state_of(p.to()), IBV_QPS_RTS);
            } else {
                expect_fatal(to, p.from(), p.to(), s, want, IBV_EVENT_QP_ACCESS_ERR, GetParam());
            }
        }
}

TEST_P(ErrorXrcOrRc, ADeregisteredRegionIsGone)
{
    Node from, to;
    Mr mr(ibv_reg_mr(to.pd, to.mem.data(), 64, all_access));
    Pair p = make(from, to);
    Send s(IBV_WR_RDMA_WRITE, {from.sge(0, 8)});
    s.at(to.addr(), mr->rkey).to_srq(p.srqn());
    EXPECT_EQ(outcome(p.from(), s), IBV_WC_SUCCESS);
    EXPECT_EQ(mr.destroy(), 0);
    expect_fatal(to, p.from(), p.to(), s, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR, GetParam());
}

// The access flags of the responding QP come before the key: NAK invalid request.
TEST_P(ErrorXrcOrRc, TheRespondersQpMustAllowTheOperation)
{
    Node from, to;
    for (auto [op, access, ok] :
         {std::tuple<ibv_wr_opcode, int, bool>{IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_READ, false},
          {IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_WRITE, false},
          {IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE, true},
          {IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ, true},
          {IBV_WR_RDMA_WRITE_WITH_IMM, 0, false}}) {
        Path path;
        path.access = access;
        Pair p = make(from, to, path);
        Send s(op, {from.sge(0, 8)});
        s.at(to.addr(), to.mr->rkey).to_srq(p.srqn());
        if (ok)
            EXPECT_EQ(outcome(p.from(), s), IBV_WC_SUCCESS);
        else
            expect_fatal(to, p.from(), p.to(), s, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR, GetParam());
    }
}

// ---- local errors ----

TEST_P(ErrorXrcOrRc, TheSendersOwnKeysAreChecked)
{
    Node from, to;
    Pd other(ibv_alloc_pd(from.ctx));
    Mr other_pd(ibv_reg_mr(other, from.mem.data(), from.mem.size(), all_access));
    Mr read_only(ibv_reg_mr(from.pd, from.mem.data(), from.mem.size(), 0));
    ibv_sge good = from.sge(0, 8), bad_key = good, bad_pd = good, too_far = from.sge(60, 8), ro = good;
    Mr small(ibv_reg_mr(from.pd, from.mem.data(), 64, all_access));
    too_far.lkey = small->lkey;
    bad_key.lkey ^= 0x40000000;
    bad_pd.lkey = other_pd->lkey;
    ro.lkey = read_only->lkey;
    struct {
        ibv_wr_opcode op;
        ibv_sge sge;
        ibv_wc_status want;
    } rows[] = {
        {IBV_WR_RDMA_WRITE, good, IBV_WC_SUCCESS},        {IBV_WR_RDMA_WRITE, bad_key, IBV_WC_LOC_PROT_ERR},
        {IBV_WR_RDMA_WRITE, bad_pd, IBV_WC_LOC_PROT_ERR}, {IBV_WR_RDMA_WRITE, too_far, IBV_WC_LOC_PROT_ERR},
        {IBV_WR_RDMA_WRITE, ro, IBV_WC_SUCCESS},          {IBV_WR_RDMA_READ, ro, IBV_WC_LOC_PROT_ERR},
        {IBV_WR_SEND, bad_key, IBV_WC_LOC_PROT_ERR},
    };
    for (auto &row : rows) {
        Pair p = make(from, to);
        EXPECT_EQ(outcome(p.from(), Send(row.op, {row.sge}).at(to.addr(), to.mr->rkey).to_srq(p.srqn())), row.want);
        EXPECT_EQ(state_of(p.from()), row.want == IBV_WC_SUCCESS ? IBV_QPS_RTS : IBV_QPS_ERR);
        EXPECT_EQ(state_of(p.to()), IBV_QPS_RTS) << "nothing went out";
    }
}

TEST_P(ErrorXrcOrRc, NoRegionAnswersToKeyZero)
{
    Node from, to; // the first region of all, whose number is 0, is from's
    Pair p = make(from, to);
    EXPECT_EQ(from.mr.destroy(), 0);
    Send write(IBV_WR_RDMA_WRITE, {{from.addr(), 8, 0}});
    EXPECT_EQ(outcome(p.from(), write.at(to.addr(), to.mr->rkey).to_srq(p.srqn())), IBV_WC_LOC_PROT_ERR);
}

TEST_P(ErrorXrcOrRc, AMessageOverThePortsLimitIsALocalLengthError)
{
    Node from, to;
    ibv_port_attr port;
    ASSERT_EQ(ibv_query_port(from.ctx, 1, &port), 0);
    // Address space that is never touched: the length is looked at first.
    size_t bytes = (size_t) port.max_msg_sz / 2 + 4096, all = (size_t) UINT32_MAX + 1;
    void *space = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(space, MAP_FAILED);
    Mr mr(ibv_reg_mr(from.pd, space, all, 0));
    if (!mr && errno == ENOMEM) {
        munmap(space, all);
        GTEST_SKIP() << "RLIMIT_MEMLOCK is below the port's message limit";
    }
    ASSERT_TRUE(mr);
    ibv_sge big = {(uintptr_t) space, (uint32_t) bytes, mr->lkey};
    Pair p = make(from, to);
    EXPECT_EQ(outcome(p.from(), Send(IBV_WR_SEND, {big, big}).to_srq(p.srqn())), IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(state_of(p.from()), IBV_QPS_ERR);
    Pair q = make(from, to);
    std::vector<ibv_sge> four(4, ibv_sge{(uintptr_t) space, UINT32_MAX, mr->lkey});
    EXPECT_EQ(outcome(q.from(), Send(IBV_WR_SEND, four).to_srq(q.srqn())), IBV_WC_LOC_LEN_ERR)
        << "the sum does not fit 32 bits";
    EXPECT_EQ(mr.destroy(), 0);
    munmap(space, all);
}

// ---- the receiver's WQE ----

TEST_P(ErrorXrcOrRc, ATooLongMessageFailsOnBothSides)
{
    Node from, to;
    for (uint32_t length : {9u, 20000u}) { // below and above what a WQE carries in the segment
        Pair p = make(from, to);
        ASSERT_EQ(post(p, 42, {to.sge(0, 4), to.sge(8, 4)}), 0);
        expect_fatal(to, p.from(), p.to(), Send(IBV_WR_SEND, {from.sge(0, length)}).to_srq(p.srqn()),
                     IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR, GetParam());
        ibv_wc wc = next_wc(recv_cq(p, to));
        EXPECT_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
        EXPECT_EQ(wc.wr_id, 42u);
    }
}

TEST_P(ErrorXrcOrRc, ReceiveBuffersAreCheckedAgainstTheirPd)
{
    Node from, to;
    Pd other(ibv_alloc_pd(to.ctx));
    Mr other_pd(ibv_reg_mr(other, to.mem.data(), to.mem.size(), all_access));
    Mr read_only(ibv_reg_mr(to.pd, to.mem.data(), to.mem.size(), 0));
    for (uint32_t key : {other_pd->lkey, read_only->lkey, to.mr->lkey ^ 0x40000000}) {
        Pair p = make(from, to);
        ibv_sge bad = to.sge(0, 64);
        bad.lkey = key;
        ASSERT_EQ(post(p, 43, {bad}), 0);
        expect_fatal(to, p.from(), p.to(), Send(IBV_WR_SEND, {from.sge(0, 8)}).to_srq(p.srqn()), IBV_WC_REM_OP_ERR,
                     IBV_EVENT_QP_REQ_ERR, GetParam());
        ibv_wc wc = next_wc(recv_cq(p, to));
        EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
        EXPECT_EQ(wc.wr_id, 43u);
    }
}

TEST_P(ErrorXrcOrRc, ZeroLengthMessagesNeedAWqeButNoBuffer)
{
    Node from, to;
    Path path;
    path.rnr = 0;
    Pair p = make(from, to, path);
    ASSERT_EQ(post(p, 7, {}), 0);
    EXPECT_EQ(outcome(p.from(), Send(IBV_WR_SEND).to_srq(p.srqn())), IBV_WC_SUCCESS);
    ibv_wc wc = next_wc(recv_cq(p, to));
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, 0u);
    EXPECT_EQ(outcome(p.from(), Send(IBV_WR_SEND).to_srq(p.srqn())), IBV_WC_RNR_RETRY_EXC_ERR);
}

// ---- RNR ----

TEST_P(ErrorXrcOrRc, RnrRetriesRunOut)
{
    Node from, to;
    for (ibv_wr_opcode op : {IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM})
        for (uint8_t rnr : {0, 1, 6}) {
            Path path;
            path.rnr = rnr;
            Pair p = make(from, to, path);
            Send s(op, {from.sge(0, 8)});
            EXPECT_EQ(outcome(p.from(), s.at(to.addr(), to.mr->rkey).to_srq(p.srqn())), IBV_WC_RNR_RETRY_EXC_ERR);
            EXPECT_EQ(state_of(p.from()), IBV_QPS_ERR);
            EXPECT_EQ(state_of(p.to()), IBV_QPS_RTS) << "RNR is no error of the responder";
        }
}

TEST_P(ErrorXrcOrRc, RnrRetry7WaitsForEverAndOrderIsKept)
{
    Node from, to;
    Pair p = make(from, to);
    for (uint64_t i = 0; i < 5; i++)
        ASSERT_EQ(Send(IBV_WR_SEND, {from.sge(0, (uint32_t) i + 1)}).to_srq(p.srqn()).id(i).post(p.from()), 0);
    for (int i = 0; i < 1000; i++)
        ASSERT_TRUE(cq_empty(from.cq));
    for (uint64_t i = 0; i < 5; i++) {
        ASSERT_EQ(post(p, 100 + i, {to.sge(0, 64)}), 0);
        ibv_wc wc = next_wc(from.cq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.wr_id, i);
        wc = next_wc(recv_cq(p, to));
        EXPECT_EQ(wc.byte_len, i + 1);
        EXPECT_EQ(wc.wr_id, 100 + i);
    }
}

// A port counts who waits, and who sends again; for all who use it.
TEST_F(ErrorTest, PortsCountWaits)
{
    Node from, to;
    XrcPair p(from, to);
    vshim_port_counters before, after;
    ASSERT_EQ(vshim_device_port_counters(from.ctx->device, 1, &before), 0);
    ASSERT_EQ(Send(IBV_WR_SEND, {from.sge(0, 8)}).to_srq(p.srqn).id(1).post(p.ini), 0);
    ASSERT_TRUE(cq_empty(from.cq));
    ASSERT_EQ(post_recv(p.srq, 1, {to.sge(0, 8)}), 0);
    EXPECT_EQ(next_wc(from.cq).status, IBV_WC_SUCCESS);
    ASSERT_EQ(vshim_device_port_counters(from.ctx->device, 1, &after), 0);
    EXPECT_GT(after.rnr_received, before.rnr_received);
    EXPECT_EQ(after.retries, before.retries);
    for (uint8_t port : {0, 2, 255})
        EXPECT_EQ(vshim_device_port_counters(from.ctx->device, port, &after), EINVAL);
    ibv_device foreign = {};
    EXPECT_EQ(vshim_device_port_counters(&foreign, 1, &after), EINVAL);
}

// One empty SRQ stalls all later messages of the INI to other SRQs.
TEST_F(ErrorTest, AnEmptySrqBlocksTheWholeIni)
{
    Node from, to;
    XrcPair p(from, to);
    Srq other = make_xrc_srq(to.pd, p.xrcd, p.srq_cq);
    ASSERT_EQ(post_recv(other, 2, {to.sge(0, 8)}), 0);
    ASSERT_EQ(Send(IBV_WR_SEND, {from.sge(0, 8)}).to_srq(p.srqn).id(1).post(p.ini), 0);
    ASSERT_EQ(Send(IBV_WR_SEND, {from.sge(0, 8)}).to_srq(srq_num(other)).id(2).post(p.ini), 0);
    ASSERT_EQ(
        Send(IBV_WR_RDMA_WRITE, {from.sge(0, 8)}).to_srq(srq_num(other)).at(to.addr(), to.mr->rkey).id(3).post(p.ini),
        0);
    for (int i = 0; i < 1000; i++)
        ASSERT_TRUE(cq_empty(from.cq) && cq_empty(p.srq_cq));
    ASSERT_EQ(post_recv(p.srq, 1, {to.sge(0, 8)}), 0);
    for (uint64_t id : {1, 2, 3})
        EXPECT_EQ(next_wc(from.cq).wr_id, id);
    EXPECT_EQ(next_wc(p.srq_cq).wr_id, 1u);
    EXPECT_EQ(next_wc(p.srq_cq).wr_id, 2u);
}

// ---- nobody answers ----

TEST_P(ErrorXrcOrRc, RetriesRunOutWhereNobodyAnswers)
{
    Node from, to;
    Pair good = make(from, to);
    struct {
        const char *name;
        std::function<void(Path &)> change;
    } rows[] = {
        {"no such QP", [](Path &p) { p.qpn = 0xfffff0; }},
        {"no such LID", [](Path &p) { p.lid = 0x3000; }},
        {"a QP connected to another", [&](Path &p) { p.qpn = good.to()->qp_num; }},
        {"no retries at all", [](Path &p) { p.qpn = 0xfffff0, p.retry = 0; }},
    };
    for (auto &row : rows) {
        SCOPED_TRACE(row.name);
        Qp qp = make_qp(GetParam() ? IBV_QPT_XRC_SEND : IBV_QPT_RC, from.pd, from.cq);
        Path p;
        p.qpn = 5;
        p.lid = to.lid;
        p.timeout = 1;
        row.change(p);
        bring_up(qp, p);
        EXPECT_EQ(outcome(qp, Send(IBV_WR_SEND, {from.sge(0, 8)})), IBV_WC_RETRY_EXC_ERR);
        EXPECT_EQ(state_of(qp), IBV_QPS_ERR);
    }
}

TEST_P(ErrorXrcOrRc, AResponderInErrDropsPackets)
{
    Node from, to;
    Pair p = make(from, to);
    ASSERT_EQ(to_state(p.to(), IBV_QPS_ERR), 0);
    if (GetParam()) {
        EXPECT_EQ(ack_next(to.ctx), IBV_EVENT_QP_LAST_WQE_REACHED);
    }
    EXPECT_EQ(outcome(p.from(), Send(IBV_WR_SEND, {from.sge(0, 8)}).to_srq(p.srqn())), IBV_WC_RETRY_EXC_ERR);
}

// A wrong PSN is answered by NAK 0 and repeated until the retries are used up.
TEST_P(ErrorXrcOrRc, AheadOfSequenceIsRetriedAndFails)
{
    Node from, to;
    Pair p = make(from, to);
    Path again;
    again.qpn = p.to()->qp_num;
    again.lid = to.lid;
    again.psn = 0x123 + 5;
    ASSERT_EQ(to_state(p.from(), IBV_QPS_RESET), 0);
    bring_up(p.from(), again);
    EXPECT_EQ(outcome(p.from(), Send(IBV_WR_SEND, {from.sge(0, 8)}).to_srq(p.srqn())), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(state_of(p.to()), IBV_QPS_RTS);
}

// A timeout of 0 is infinite: the message waits, and a flush ends it.
TEST_P(ErrorXrcOrRc, TimeoutZeroNeverGivesUp)
{
    Node from, to;
    Qp qp = make_qp(GetParam() ? IBV_QPT_XRC_SEND : IBV_QPT_RC, from.pd, from.cq);
    Path p;
    p.qpn = 0xfffff0;
    p.lid = to.lid;
    p.timeout = 0;
    p.retry = 0;
    bring_up(qp, p);
    ASSERT_EQ(Send(IBV_WR_SEND, {from.sge(0, 8)}).post(qp), 0);
    for (int i = 0; i < 1000; i++)
        ASSERT_TRUE(cq_empty(from.cq));
    ASSERT_EQ(to_state(qp, IBV_QPS_ERR), 0);
    EXPECT_EQ(next_wc(from.cq).status, IBV_WC_WR_FLUSH_ERR);
}

INSTANTIATE_TEST_SUITE_P(Transports, ErrorXrcOrRc, ::testing::Bool(),
                         [](const auto &info) { return info.param ? "Xrc" : "Rc"; });

// ---- PDs of RC with an SRQ ----

// The SRQ's PD is for receive buffers; remote keys are checked against the QP's own.
TEST_F(ErrorTest, RcWithAnSrqOfAnotherPdChecksRemoteKeysAgainstTheQpsPd)
{
    Node from, to;
    Pd srq_pd(ibv_alloc_pd(to.ctx));
    Mr srq_mr(ibv_reg_mr(srq_pd, to.mem.data(), to.mem.size(), all_access));
    Srq srq = make_srq(srq_pd);
    {
        RcPair p(from, to, {}, caps(), srq);
        ibv_sge buffer = to.sge(0, 64);
        buffer.lkey = srq_mr->lkey;
        ASSERT_EQ(post_recv(srq, 1, {buffer}), 0);
        EXPECT_EQ(outcome(p.a, Send(IBV_WR_SEND, {from.sge(0, 8)})), IBV_WC_SUCCESS);
        EXPECT_EQ(next_wc(to.cq).status, IBV_WC_SUCCESS);
        EXPECT_EQ(outcome(p.a, Send(IBV_WR_RDMA_WRITE, {from.sge(0, 8)}).at(to.addr(), to.mr->rkey)), IBV_WC_SUCCESS);
        expect_fatal(to, p.a, p.b, Send(IBV_WR_RDMA_WRITE, {from.sge(0, 8)}).at(to.addr(), srq_mr->rkey),
                     IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR, true);
    }
}

// ---- memory that is no longer there ----

// A remote operational error: the region's memory was taken away behind the HCA's back. The WQE of a WRITE_WITH_IMM is not used up by it.
TEST_F(ErrorTest, UnreachableTargetMemoryIsARemoteOperationalErrorAndKeepsTheWqe)
{
    TempFile f;
    auto pair = [](const Node &to, ibv_xrcd *xrcd, const Link &link) {
        Qp tgt = make_tgt(xrcd);
        link.put<uint32_t>(tgt->qp_num);
        Path p;
        p.qpn = link.get<uint32_t>();
        p.lid = to.lid;
        bring_up(tgt, p);
        link.meet();
        return tgt;
    };
    Child receiver([&](const Link &link) {
        Node to;
        constexpr size_t bytes = 1 << 16;
        void *gone = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        Mr mr(ibv_reg_mr(to.pd, gone, bytes, all_access));
        mprotect(gone, bytes, PROT_NONE);
        Xrcd x = make_xrcd(to.ctx, f.fd());
        Srq srq = make_xrc_srq(to.pd, x, to.cq, 1);
        need(post_recv(srq, 77, {to.sge(0, 64)}) == 0, "post_recv");
        link.put(Address{to.lid, 0, srq_num(srq), mr->rkey, (uintptr_t) gone});
        for (int i = 0; i < 4; i++) {
            Qp tgt = pair(to, x, link);
            link.meet();
        }
        EXPECT_EQ(next_wc(to.cq).wr_id, 77u);
        EXPECT_TRUE(cq_empty(to.cq));
    });
    {
        Node from;
        Link link = receiver.link();
        Address a = link.get<Address>();
        auto connected = [&] {
            Qp ini = make_qp(IBV_QPT_XRC_SEND, from.pd, from.cq);
            Path p;
            p.qpn = link.get<uint32_t>();
            p.lid = a.lid;
            p.rnr = 0;
            link.put<uint32_t>(ini->qp_num);
            bring_up(ini, p);
            link.meet();
            return ini;
        };
        for (ibv_wr_opcode op : {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND}) {
            Qp ini = connected();
            ibv_wc_status want = op == IBV_WR_SEND ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR;
            EXPECT_EQ(outcome(ini, Send(op, {from.sge(0, 64)}).at(a.addr, a.rkey).to_srq(a.srqn)), want) << op;
            link.meet();
        }
    }
    EXPECT_EQ(receiver.wait(), 0);
}

} // namespace
