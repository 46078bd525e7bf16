// CMP_AND_SWP and FETCH_AND_ADD on RC and XRC: results, what is checked and in which order, many processes at one word, and the saved
// result: a request that comes again is answered as before and never carried out twice. All of it with either kind of atomicity.
#include "conform/atomic.h"
#include "conform/peer.h"

namespace
{

using namespace vt;

class AtomicOps : public BothEnds, public ::testing::WithParamInterface<std::tuple<Kind, bool>>
{
  protected:
    AtomicOps() : BothEnds(std::get<0>(GetParam()), topology_of(glob()), atomic_access), other_pd_(ibv_alloc_pd(n_->ctx))
    {
        make();
    }
    static bool glob()
    {
        return std::get<1>(GetParam());
    }
    void make(Path p = {})
    {
        p.access |= IBV_ACCESS_REMOTE_ATOMIC;
        connect_ends(p);
    }
    void TearDown() override
    {
        other_pd_ = Pd();
        BothEnds::TearDown();
    }
    ibv_wc run(Atomic a)
    {
        need(to_responder(a).id(7).post(one_) == 0, "post");
        return next_wc(n_->cq);
    }
    ibv_wc_status add(uint64_t addr, uint32_t rkey, uint64_t n = 1)
    {
        return run(Atomic(*n_, IBV_WR_ATOMIC_FETCH_AND_ADD, addr, rkey, n)).status;
    }

    Pd other_pd_;
    static constexpr size_t at_ = 4096; // of the word
};

TEST_P(AtomicOps, FetchAndAdd)
{
    word(*n_, at_) = 40;
    word(*n_, at_ + 8) = 1234;
    ibv_wc wc = run(Atomic(*n_, IBV_WR_ATOMIC_FETCH_AND_ADD, n_->addr(at_), n_->mr->rkey, 2));
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_FETCH_ADD);
    EXPECT_EQ(wc.wr_id, 7u);
    EXPECT_EQ(wc.byte_len, 8u);
    EXPECT_EQ(word(*n_, 0), 40u) << "the value before";
    EXPECT_EQ(word(*n_, at_), 42u);
    EXPECT_EQ(word(*n_, at_ + 8), 1234u);
    EXPECT_EQ(add(n_->addr(at_), n_->mr->rkey, UINT64_MAX), IBV_WC_SUCCESS);
    EXPECT_EQ(word(*n_, at_), 41u) << "adding wraps";
}

TEST_P(AtomicOps, CompareAndSwap)
{
    word(*n_, at_) = 40;
    ibv_wc wc = run(Atomic(*n_, IBV_WR_ATOMIC_CMP_AND_SWP, n_->addr(at_), n_->mr->rkey, 40, 99));
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_COMP_SWAP);
    EXPECT_EQ(word(*n_, 0), 40u);
    EXPECT_EQ(word(*n_, at_), 99u);
    EXPECT_EQ(run(Atomic(*n_, IBV_WR_ATOMIC_CMP_AND_SWP, n_->addr(at_), n_->mr->rkey, 40, 7)).status, IBV_WC_SUCCESS);
    EXPECT_EQ(word(*n_, 0), 99u);
    EXPECT_EQ(word(*n_, at_), 99u) << "another value: nothing is swapped";
}

TEST_P(AtomicOps, TheResultMayBeScattered)
{
    word(*n_, at_) = 0x1122334455667788;
    Atomic a(*n_, IBV_WR_ATOMIC_FETCH_AND_ADD, n_->addr(at_), n_->mr->rkey, 1);
    a.list = {n_->sge(0, 3), n_->sge(100, 5)};
    EXPECT_EQ(run(a).status, IBV_WC_SUCCESS);
    EXPECT_EQ(memcmp(&n_->mem[0], "\x88\x77\x66", 3), 0);
    EXPECT_EQ(memcmp(&n_->mem[100], "\x55\x44\x33\x22\x11", 5), 0);
}

TEST_P(AtomicOps, InALine)
{
    word(*n_, at_) = 0;
    const int n = 40;
    for (int i = 0; i < n; i++) {
        Atomic a(*n_, IBV_WR_ATOMIC_FETCH_AND_ADD, n_->addr(at_), n_->mr->rkey, 3, 0, 8 * (size_t)i);
        ASSERT_EQ(to_responder(a).post(one_), 0);
    }
    for (int i = 0; i < n; i++) {
        EXPECT_EQ(next_wc(n_->cq).status, IBV_WC_SUCCESS);
        EXPECT_EQ(word(*n_, 8 * (size_t)i), 3u * (unsigned)i);
    }
    EXPECT_EQ(word(*n_, at_), 3u * n);
}

TEST_P(AtomicOps, MisalignedIsAnInvalidRequest)
{
    for (size_t off = 1; off < 8; off++) {
        EXPECT_EQ(add(n_->addr(at_ + off), n_->mr->rkey), IBV_WC_REM_INV_REQ_ERR) << off;
        EXPECT_EQ(add(n_->addr(at_ + off), n_->mr->rkey), IBV_WC_WR_FLUSH_ERR);
        make();
    }
    EXPECT_EQ(add(n_->addr(at_ + 1), 0x12345), IBV_WC_REM_INV_REQ_ERR) << "before the key is looked at";
}

// The address on the wire is what must be aligned; what lies behind it in memory need not be.
TEST_P(AtomicOps, MisalignedBehindAnAlignedAddress)
{
    Mr odd(ibv_reg_mr_iova(n_->pd, &n_->mem[at_ + 3], 64, 0x10000, atomic_access));
    ASSERT_TRUE(odd);
    uint64_t v = 5;
    memcpy(&n_->mem[at_ + 3], &v, 8);
    EXPECT_EQ(add(0x10000, odd->rkey), IBV_WC_SUCCESS);
    memcpy(&v, &n_->mem[at_ + 3], 8);
    EXPECT_EQ(v, 6u);
    EXPECT_EQ(word(*n_, 0), 5u);
}

TEST_P(AtomicOps, QpAccess)
{
    for (int access : {0, (int)IBV_ACCESS_REMOTE_READ, (int)(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)}) {
        Path p;
        p.access = access;
        connect_ends(p);
        EXPECT_EQ(add(n_->addr(at_), n_->mr->rkey), IBV_WC_REM_INV_REQ_ERR) << access;
        EXPECT_EQ(state_of(two_), IBV_QPS_ERR);
    }
    EXPECT_EQ(word(*n_, at_), 0u);
}

TEST_P(AtomicOps, RegionAccessAndKey)
{
    Mr plain(ibv_reg_mr(n_->pd, n_->mem.data(), n_->mem.size(), all_access));
    EXPECT_EQ(add(n_->addr(at_), plain->rkey), IBV_WC_REM_ACCESS_ERR) << "no REMOTE_ATOMIC";
    make();
    EXPECT_EQ(add(n_->addr(at_), n_->mr->rkey + 1), IBV_WC_REM_ACCESS_ERR) << "no such key";
    make();
    EXPECT_EQ(add(n_->addr(n_->mem.size()), n_->mr->rkey), IBV_WC_REM_ACCESS_ERR) << "behind the region";
    make();
    EXPECT_EQ(add(n_->addr(n_->mem.size() - 8), n_->mr->rkey), IBV_WC_SUCCESS) << "its last word";
    Mr other(ibv_reg_mr(other_pd_, n_->mem.data(), n_->mem.size(), atomic_access));
    EXPECT_EQ(add(n_->addr(at_), other->rkey), IBV_WC_REM_ACCESS_ERR) << "another PD's";
    make();
    uint32_t old = other->rkey;
    EXPECT_EQ(other.destroy(), 0);
    EXPECT_EQ(add(n_->addr(at_), old), IBV_WC_REM_ACCESS_ERR) << "deregistered";
    EXPECT_EQ(word(*n_, at_), 0u) << "none of these was carried out";
    EXPECT_EQ(ibv_reg_mr(n_->pd, n_->mem.data(), 64, IBV_ACCESS_REMOTE_ATOMIC), nullptr) << "REMOTE_ATOMIC needs LOCAL_WRITE";
    EXPECT_EQ(errno, EINVAL);
}

TEST_P(AtomicOps, LocalSide)
{
    for (uint32_t length : {0u, 4u, 7u, 9u, 16u}) {
        EXPECT_EQ(run(Atomic(*n_, IBV_WR_ATOMIC_FETCH_AND_ADD, n_->addr(at_), n_->mr->rkey, 1, 0, 0, length)).status, IBV_WC_LOC_LEN_ERR)
            << length;
        make();
    }
    Mr readable(ibv_reg_mr(n_->pd, n_->mem.data(), 64, 0));
    Atomic a(*n_, IBV_WR_ATOMIC_FETCH_AND_ADD, n_->addr(at_), n_->mr->rkey, 1);
    a.list[0].lkey = readable->lkey;
    EXPECT_EQ(run(a).status, IBV_WC_LOC_PROT_ERR) << "the result is written there";
    EXPECT_EQ(word(*n_, at_), 0u) << "not carried out when the result has no place";
    make();
    a.list[0].lkey = n_->mr->lkey;
    a.wr.send_flags |= IBV_SEND_INLINE;
    EXPECT_EQ(a.post(one_), EINVAL);
}

TEST_P(AtomicOps, WhatTheDeviceSays)
{
    ibv_atomic_cap cap = glob() ? IBV_ATOMIC_GLOB : IBV_ATOMIC_HCA;
    ibv_device_attr d;
    ibv_device_attr_ex x;
    ASSERT_EQ(ibv_query_device(n_->ctx, &d), 0);
    EXPECT_EQ(d.atomic_cap, cap);
    ASSERT_EQ(ibv_query_device_ex(n_->ctx, nullptr, &x), 0);
    EXPECT_EQ(x.orig_attr.atomic_cap, cap);
}

TEST_P(AtomicOps, WithoutTheCapability)
{
    order("caps -atomics");
    ibv_device_attr d;
    ASSERT_EQ(ibv_query_device(n_->ctx, &d), 0);
    EXPECT_EQ(d.atomic_cap, IBV_ATOMIC_NONE);
    Atomic a(*n_, IBV_WR_ATOMIC_FETCH_AND_ADD, n_->addr(at_), n_->mr->rkey, 1);
    EXPECT_EQ(a.post(one_), EINVAL);
    order("caps +atomics");
    ASSERT_EQ(ibv_query_device(n_->ctx, &d), 0);
    EXPECT_EQ(d.atomic_cap, glob() ? IBV_ATOMIC_GLOB : IBV_ATOMIC_HCA);
    EXPECT_EQ(add(n_->addr(at_), n_->mr->rkey), IBV_WC_SUCCESS);
}

// ---- the saved result ----

TEST_P(AtomicOps, ALostAnswerIsReplayed)
{
    word(*n_, at_) = 10;
    order("drop ack");
    EXPECT_EQ(add(n_->addr(at_), n_->mr->rkey, 5), IBV_WC_SUCCESS);
    EXPECT_EQ(word(*n_, at_), 15u) << "carried out once";
    EXPECT_EQ(word(*n_, 0), 10u) << "the saved result";
    EXPECT_EQ(qp_counter(two_->qp_num, "duplicates"), 1);
    EXPECT_EQ(qp_counter(one_->qp_num, "retries"), 1);
}

TEST_P(AtomicOps, TheReplayedResultIsTheOldOne)
{
    Path p;
    p.retry = 7;
    make(p);
    word(*n_, at_) = 10;
    word(*n_, 0) = 0xdead;
    order("drop ack times 7");
    EXPECT_EQ(run(Atomic(*n_, IBV_WR_ATOMIC_CMP_AND_SWP, n_->addr(at_), n_->mr->rkey, 10, 20)).status, IBV_WC_SUCCESS);
    EXPECT_EQ(word(*n_, 0), 10u) << "a second execution would have said 20";
    EXPECT_EQ(word(*n_, at_), 20u);
    EXPECT_EQ(qp_counter(two_->qp_num, "duplicates"), 7);
}

TEST_P(AtomicOps, ADoubledRequestIsCarriedOutOnce)
{
    order("dup packet times 5");
    for (int i = 0; i < 5; i++)
        EXPECT_EQ(add(n_->addr(at_), n_->mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(word(*n_, at_), 5u);
    EXPECT_EQ(word(*n_, 0), 4u);
    EXPECT_EQ(qp_counter(two_->qp_num, "duplicates"), 5);
}

TEST_P(AtomicOps, ManyMoreThanAreSaved)
{
    order("drop ack nth 30");
    for (unsigned i = 0; i < 40; i++) {
        EXPECT_EQ(add(n_->addr(at_), n_->mr->rkey), IBV_WC_SUCCESS);
        ASSERT_EQ(word(*n_, 0), i);
    }
    EXPECT_EQ(word(*n_, at_), 40u);
}

TEST_P(AtomicOps, ALostAnswerWithoutRetries)
{
    Path p;
    p.retry = 0;
    make(p);
    order("drop ack");
    EXPECT_EQ(add(n_->addr(at_), n_->mr->rkey, 3), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(word(*n_, at_), 3u) << "it was carried out, and the sender does not know";
}

TEST_P(AtomicOps, ResetForgetsSavedResults)
{
    Path p;
    p.access |= IBV_ACCESS_REMOTE_ATOMIC;
    EXPECT_EQ(add(n_->addr(at_), n_->mr->rkey), IBV_WC_SUCCESS);
    ASSERT_EQ(to_state(one_, IBV_QPS_RESET), 0);
    ASSERT_EQ(to_state(two_, IBV_QPS_RESET), 0);
    connect(one_, n_->lid, two_, n_->lid, p); // the same PSN again
    EXPECT_EQ(add(n_->addr(at_), n_->mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(word(*n_, at_), 2u);
    EXPECT_EQ(word(*n_, 0), 1u);
}

INSTANTIATE_TEST_SUITE_P(All, AtomicOps, ::testing::Combine(::testing::Values(RC, XRC), ::testing::Bool()), [](const auto &info) {
    return std::string(std::get<0>(info.param) == RC ? "Rc" : "Xrc") + (std::get<1>(info.param) ? "Glob" : "");
});

// ---- between processes ----

constexpr int adders = 4, adds = 500;

class AtomicProcesses : public vt::Test, public ::testing::WithParamInterface<std::tuple<Kind, bool, bool>>
{
};

// Adds to the word of another process, and swaps a lock in and out around a counter that no HCA guards.
void adder(const Link &link, Kind kind)
{
    Node n(1 << 16, atomic_access);
    Qp qp = make_qp(kind == XRC ? IBV_QPT_XRC_SEND : IBV_QPT_RC, n.pd, n.cq);
    Path p;
    p.retry = 7;
    Address target = connect_over(link, qp, n, p);
    link.meet();
    uint64_t last = 0;
    for (int i = 0; i < adds; i++) {
        Atomic a(n, IBV_WR_ATOMIC_FETCH_AND_ADD, target.addr, target.rkey, 1);
        a.to_srq(target.srqn);
        ASSERT_EQ(outcome(qp, a), IBV_WC_SUCCESS);
        ASSERT_TRUE(i == 0 || word(n, 0) > last) << "each sees its own adds";
        last = word(n, 0);
    }
    for (int i = 0; i < 50; i++) {
        auto rdma = [&](ibv_wr_opcode op) {
            return outcome(qp, Send(op, {n.sge(8, 8)}).at(target.addr + 16, target.rkey).to_srq(target.srqn));
        };
        do {
            Atomic lock(n, IBV_WR_ATOMIC_CMP_AND_SWP, target.addr + 8, target.rkey, 0, 1);
            lock.to_srq(target.srqn);
            ASSERT_EQ(outcome(qp, lock), IBV_WC_SUCCESS);
        } while (word(n, 0) != 0);
        ASSERT_EQ(rdma(IBV_WR_RDMA_READ), IBV_WC_SUCCESS);
        word(n, 8)++;
        ASSERT_EQ(rdma(IBV_WR_RDMA_WRITE), IBV_WC_SUCCESS);
        Atomic unlock(n, IBV_WR_ATOMIC_CMP_AND_SWP, target.addr + 8, target.rkey, 1, 0);
        unlock.to_srq(target.srqn);
        ASSERT_EQ(outcome(qp, unlock), IBV_WC_SUCCESS);
    }
    link.meet();
}

// Four processes at one word, with and without faults: no add is lost, none is done twice.
TEST_P(AtomicProcesses, EveryAddCounts)
{
    auto [kind, faults, glob] = GetParam();
    Setting topology("VERBS_SHIM_TOPOLOGY", topology_of(glob));
    std::vector<std::unique_ptr<Child>> others;
    for (int i = 0; i < adders; i++)
        others.emplace_back(new Child([kind = kind](const Link &link) { adder(link, kind); }));
    Node n(1 << 16, atomic_access);
    Xrcd x = make_xrcd(n.ctx);
    Srq srq = make_xrc_srq(n.pd, x, n.cq);
    std::vector<Qp> qps;
    for (auto &o : others) {
        qps.push_back(kind == XRC ? make_tgt(x) : make_qp(IBV_QPT_RC, n.pd, n.cq));
        Path p;
        p.access |= IBV_ACCESS_REMOTE_ATOMIC;
        connect_over(o->link(), qps.back(), {n.lid, qps.back()->qp_num, srq_num(srq), n.mr->rkey, n.addr(4096)}, p);
    }
    if (faults) {
        for (int nth : {20, 300, 700, 1500}) // never so many in a row that one sender's retries run out
            order("drop ack times 3 nth " + std::to_string(nth));
        order("drop packet nth 400 times 3");
        order("dup packet nth 100 times 200");
    }
    for (auto &o : others)
        o->link().meet();
    for (auto &o : others)
        o->link().meet();
    EXPECT_EQ(word(n, 4096), (uint64_t)adders * adds);
    EXPECT_EQ(word(n, 4096 + 8), 0u) << "the lock";
    EXPECT_EQ(word(n, 4096 + 16), adders * 50u) << "what it guarded";
    for (auto &o : others)
        EXPECT_EQ(o->wait(), 0);
    check_fabric();
}

INSTANTIATE_TEST_SUITE_P(All, AtomicProcesses, ::testing::Combine(::testing::Values(RC, XRC), ::testing::Bool(), ::testing::Bool()),
                         [](const auto &info) {
                             return std::string(std::get<0>(info.param) == RC ? "Rc" : "Xrc") +
                                    (std::get<1>(info.param) ? "WithFaults" : "") + (std::get<2>(info.param) ? "Glob" : "");
                         });

} // namespace
