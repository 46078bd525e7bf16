// What two threads or processes do to one object at the same moment. The moments are the points between two steps on shared state, where
// a build for tests calls back, so that each race has a known end; where there is no such point, one end is written into the segment.
#define VS_CRASH_POINTS
#include "conform/faults.h"
#include "conform/pair.h"
#include "conform/peer.h"
#include "conform/window.h"

extern "C" {
#include "core/cq.h"
#include "core/event.h"
#include "hca/hca.h"
}

#include <atomic>
#include <thread>

// One thread has more CQs in a poll session at a time than the thread sanitizer can order locks of.
extern "C" const char *__tsan_default_options()
{
    return "detect_deadlocks=0";
}

namespace
{

using namespace vt;

// When the thread which made this comes by a point, the first time or each, do something else. Other threads come by as well, also when
// this is gone again, and see that it is not theirs.
class At
{
  public:
    enum Times { ONCE, EACH };
    At(vs_point point, std::function<void()> deed, Times times = ONCE)
    {
        point_ = point;
        times_ = times;
        came_by_ = false;
        deed_ = std::move(deed);
        vs_store(&vs_point_hook, &come_by);
    }
    At(const At &) = delete;
    ~At()
    {
        vs_store(&vs_point_hook, nullptr);
        point_ = none;
        EXPECT_TRUE(came_by_) << "never came by it";
    }

  private:
    static void come_by(vs_point point)
    {
        if (point_ != point)
            return;
        came_by_ = true;
        if (times_ == ONCE)
            point_ = none;
        deed_();
    }
    static constexpr vs_point none = VS_NUM_POINTS;
    static inline thread_local vs_point point_ = none;
    static inline thread_local Times times_;
    static inline thread_local bool came_by_;
    static inline thread_local std::function<void()> deed_;
};

// Time for what may come, and must not matter.
template <class Cond> void perhaps(Cond cond)
{
    for (int i = 0; i < 2000 && !cond(); i++)
        sched_yield();
}

uint32_t shared_state(ibv_qp *qp)
{
    return vs_load(&vs_qp(qp)->shm->state);
}

class Race : public vt::Test
{
};

// Until here, or until it is taken out, nobody finds it.
class Dying
{
  public:
    explicit Dying(vs_slot *slot) : slot_(slot), word_(vs_load(&slot->word))
    {
        vs_store(&slot->word, (word_ & ~0xffu) | VS_DYING);
    }
    Dying(const Dying &) = delete;
    ~Dying()
    {
        vs_store(&slot_->word, word_);
    }

  private:
    vs_slot *slot_;
    uint32_t word_;
};

// ---- objects that are being destroyed ----

// A target is remembered by the word of its slot. One that was looked at while its object was being destroyed would be good for ever.
TEST_F(Race, WhatIsBeingDestroyedIsNoTarget)
{
    Node n;
    XrcPair x(n, n);
    RcPair p(n, n);
    auto *srq = (vs_srq_shm *)vs_slot_get(VS_SRQ, x.srqn);
    vs_qp_shm *qp = vs_qp(p.b)->shm;
    vs_target t;
    EXPECT_TRUE(vs_target_of_srq(srq, x.srqn, &t));
    EXPECT_TRUE(vs_target_of_qp(qp, p.b->qp_num, &t));
    Dying no_srq(&srq->s), no_qp(&qp->s);
    EXPECT_FALSE(vs_target_of_srq(srq, x.srqn, &t));
    EXPECT_FALSE(vs_target_of_qp(qp, p.b->qp_num, &t));
}

unsigned unread_of(ibv_cq *ibcq, uint32_t qpn)
{
    struct vs_cq *cq = vs_cq(ibcq);
    unsigned n = 0;
    for (uint32_t i = 0; i < cq->entries; i++)
        n += vs_word_kind(vs_load(&cq->ring[i].word)) == VS_RING_FULL && cq->ring[i].kind != VS_CQE_VOID && cq->ring[i].qpn == qpn;
    return n;
}

// The engine, told that a peer moved the QP to ERR, comes when its completions are cleared away already. What it would add there is read
// by another thread's poll, which then works with a QP that is being freed.
TEST_F(Race, NothingIsFlushedIntoTheCqOfAQpThatIsGone)
{
    Node n;
    Path slow;
    slow.min_rnr = 0;
    RcPair p(n, n, slow);
    ASSERT_EQ(Send(IBV_WR_SEND, {n.sge(0, 8)}).post(p.a), 0); // and waits for a receive
    uint32_t qpn = p.a->qp_num;
    At purged(VS_POINT_qp_purged, [&] {
        vs_store(&vs_qp(p.a)->shm->state, (uint32_t)IBV_QPS_ERR);
        EXPECT_TRUE(vs_requester_flush_by_number(qpn));
    });
    ASSERT_EQ(p.a.destroy(), 0);
    EXPECT_EQ(unread_of(n.cq, qpn), 0u);
}

// ---- into the error state ----

// An error that meets a move from RTR to RTS is an error all the same.
TEST_F(Race, AQpFailsWhateverStateItIsJustMovedTo)
{
    Node n;
    for (int i = 0; i < 100; i++) {
        RcPair p(n, n);
        std::atomic<bool> moving{false}, done{false};
        std::thread mover([&] {
            uint32_t *state = &vs_qp(p.b)->shm->state;
            while (!done) {
                vs_cas(state, IBV_QPS_RTS, IBV_QPS_RTR);
                vs_cas(state, IBV_QPS_RTR, IBV_QPS_RTS);
                moving = true;
            }
        });
        until([&] { return moving.load(); });
        EXPECT_EQ(outcome(p.a, Send(IBV_WR_RDMA_WRITE, {n.sge(0, 8)}).at(n.addr(), ~n.mr->rkey)), IBV_WC_REM_ACCESS_ERR);
        EXPECT_EQ(shared_state(p.b), (uint32_t)IBV_QPS_ERR) << "round " << i;
        done = true;
        mover.join();
        if (HasFailure())
            break;
    }
}

// Events of this type before one that is ordered now, all acknowledged.
unsigned events_until_now(ibv_context *c, ibv_qp *qp, ibv_event_type type)
{
    vs_event_send(vs_me_id, IBV_EVENT_PATH_MIG_ERR, VS_QP, qp->qp_num, 0);
    for (unsigned n = 0;;) {
        ibv_event_type next = ack_next(c);
        if (next == IBV_EVENT_PATH_MIG_ERR)
            return n;
        n += next == type;
    }
}

// A QP's own send fails, and at the same moment what its peer asks of it.
TEST_F(Race, TheLastWqeIsReachedOnce)
{
    Node n;
    Srq srq = make_srq(n.pd);
    RcPair p(n, n, {}, caps(), srq);
    {
        At failed(VS_POINT_send_failed, [&] {
            EXPECT_EQ(Send(IBV_WR_RDMA_WRITE, {n.sge(0, 8)}).at(n.addr(), ~n.mr->rkey).post(p.a), 0);
        });
        ASSERT_EQ(Send(IBV_WR_SEND, {{n.addr(), 8, ~n.mr->lkey}}).post(p.b), 0);
    }
    EXPECT_EQ(events_until_now(n.ctx, p.b, IBV_EVENT_QP_LAST_WQE_REACHED), 1u);
}

// Nor does it count that the completion which tells of it found no room.
TEST_F(Race, TheLastWqeIsReachedOnceWhereTheCqOverruns)
{
    Node n;
    Srq srq = make_srq(n.pd);
    Cq full = make_cq(n.ctx, 1);
    auto attr = qp_attr(IBV_QPT_RC, n.pd, full, srq);
    attr.recv_cq = n.cq;
    Qp a = make_qp(IBV_QPT_RC, n.pd, n.cq), b(ibv_create_qp_ex(n.ctx, &attr));
    need(b, "ibv_create_qp_ex");
    connect(a, n.lid, b, n.lid);
    for (int i = 0; i <= full->cqe; i++)
        ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, {n.sge(0, 8)}).at(n.addr(), n.mr->rkey).post(b), 0);
    ASSERT_EQ(state_of(b), IBV_QPS_RTS);
    ASSERT_EQ(Send(IBV_WR_SEND, {{n.addr(), 8, ~n.mr->lkey}}).post(b), 0);
    EXPECT_EQ(events_until_now(n.ctx, b, IBV_EVENT_QP_LAST_WQE_REACHED), 1u);
}

// ---- what is found and remembered ----

// The link goes down between a look at it and its being remembered: the next message looks again. An unreliable QP, since the answer
// would be lost.
TEST_F(Race, AWayIsNotRememberedAsOfLaterThanTheLook)
{
    Node n;
    RcPair p(n, n, {}, caps(), nullptr, IBV_QPT_UC);
    ASSERT_EQ(post_recv(p.b, 1, {n.sge(64, 8)}), 0);
    ASSERT_EQ(post_recv(p.b, 2, {n.sge(64, 8)}), 0);
    {
        At placed(VS_POINT_send_placed, [&] {
            vs_store(&vs_fabric_port(vs_fabric_hca(vs_qp(p.b)->hca_index), 1)->state, (uint32_t)IBV_PORT_DOWN);
            vs_add(&vs_seg->fabric_epoch, 1);
        });
        EXPECT_EQ(Send(IBV_WR_SEND, {n.sge(0, 8)}).id(9).post(p.a), 0);
    }
    EXPECT_EQ(Send(IBV_WR_SEND, {n.sge(0, 8)}).id(9).post(p.a), 0);
    int arrived = 0;
    ibv_wc wc;
    while (ibv_poll_cq(n.cq, 1, &wc) == 1)
        arrived += wc.wr_id != 9;
    EXPECT_EQ(arrived, 1) << "the second finds no link";
}

// One holder of a TGT resets it while a message is just arriving, and another brings it up again at once. What that message leaves behind
// belongs to the QP as it was.
TEST_F(Race, AMessageFromBeforeAResetMovesNothing)
{
    Node n;
    XrcPair x(n, n);
    Qp other = open_tgt(x.xrcd, x.tgt->qp_num);
    need(other, "ibv_open_qp");
    ASSERT_EQ(post_recv(x.srq, 1, {n.sge(64, 8)}), 0);
    Path path;
    path.qpn = x.ini->qp_num;
    path.lid = n.lid;
    std::atomic<bool> up{false};
    std::thread resets, brings_up;
    {
        At placed(VS_POINT_send_placed, [&] {
            resets = std::thread([&] { EXPECT_EQ(to_state(x.tgt, IBV_QPS_RESET), 0); });
            until([&] { return shared_state(x.tgt) == IBV_QPS_RESET; });
            brings_up = std::thread([&] {
                EXPECT_EQ(to_init(other, path), 0);
                EXPECT_EQ(to_rtr(other, path), 0);
                up = true;
            });
            until([&] { return shared_state(x.tgt) != IBV_QPS_RESET; });
            perhaps([&] { return up.load(); });
        });
        EXPECT_EQ(Send(IBV_WR_SEND, {n.sge(0, 8)}).to_srq(x.srqn).post(x.ini), 0);
    }
    resets.join();
    brings_up.join();
    EXPECT_EQ(vs_load(&vs_qp(x.tgt)->shm->epsn), path.psn);
}

// ---- waiting ----

// A QP that was reset while it waited, here for hours, and waits again: for as long as it is told now. The channel, since a poll would
// run timers itself.
TEST_F(Race, ANewDeadlineCountsAfterAReset)
{
    Node n;
    Channel channel(ibv_create_comp_channel(n.ctx));
    Cq cq = make_cq(n.ctx, 16, channel);
    Qp slow = make_qp(IBV_QPT_RC, n.pd, cq), quick = make_qp(IBV_QPT_RC, n.pd, cq);
    Path nobody;
    nobody.lid = n.lid;
    nobody.retry = 0;
    auto fails = [&](ibv_qp *qp) {
        ibv_cq *got;
        void *context;
        need(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");
        need(Send(IBV_WR_SEND, {n.sge(0, 8)}).post(qp) == 0, "ibv_post_send");
        need(ibv_get_cq_event(channel, &got, &context) == 0, "ibv_get_cq_event");
        ibv_ack_cq_events(got, 1);
        return next_wc(cq).status;
    };
    nobody.timeout = 31;
    nobody.qpn = slow->qp_num ^ 0x800000;
    bring_up(slow, nobody);
    ASSERT_EQ(Send(IBV_WR_SEND, {n.sge(0, 8)}).post(slow), 0);
    nobody.timeout = 8;
    bring_up(quick, nobody);
    EXPECT_EQ(fails(quick), IBV_WC_RETRY_EXC_ERR); // now the engine has seen both
    ASSERT_EQ(to_state(slow, IBV_QPS_RESET), 0);
    bring_up(slow, nobody);
    EXPECT_EQ(fails(slow), IBV_WC_RETRY_EXC_ERR);
}

// ---- completions behind one of a dead process ----

vs_proc_shm *process_of(pid_t pid)
{
    vs_proc_shm *proc;
    uint32_t index;
    vs_for_each_live(VS_PROC, index, proc) if (proc->pid == pid) return proc;
    return nullptr;
}

// As vs_ring_push does it, for another process.
void claim_for(ibv_cq *ibcq, const vs_proc_shm *proc)
{
    struct vs_cq *cq = vs_cq(ibcq);
    uint64_t tail = vs_load(&cq->shm->ring.tail);
    vs_store(&cq->ring[tail & (cq->entries - 1)].word, vs_word(VS_RING_CLAIMED, tail, vs_slot_index(VS_PROC, proc->s.owner)));
}

TEST_F(Race, APollSessionFindsWhatLiesBehindADeadProducer)
{
    Child producer([](const Link &link) {
        Context c = open_device();
        link.put('h');
        link.get<char>(); // never comes
    });
    producer.link().get<char>();
    Node n;
    ibv_cq_init_attr_ex a = {};
    a.cqe = 16;
    ibv_cq_ex *ex = ibv_create_cq_ex(n.ctx, &a);
    ASSERT_NE(ex, nullptr);
    Cq cq(ibv_cq_ex_to_cq(ex));
    Qp from = make_qp(IBV_QPT_RC, n.pd, cq), to = make_qp(IBV_QPT_RC, n.pd, n.cq);
    connect(from, n.lid, to, n.lid);
    vs_proc_shm *proc = process_of(producer.pid());
    ASSERT_NE(proc, nullptr);
    claim_for(cq, proc);
    ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, {n.sge(0, 8)}).at(n.addr(), n.mr->rkey).id(5).post(from), 0);
    ibv_poll_cq_attr none = {};
    EXPECT_EQ(ibv_start_poll(ex, &none), ENOENT);
    producer.kill();
    until([&] { return ibv_start_poll(ex, &none) == 0; });
    EXPECT_EQ(ex->wr_id, 5u);
    ibv_end_poll(ex);
}

// A producer that died between its entry and the ring's tail leaves the tail behind. What it delivered goes with the QP all the same, and
// the receive that it took is the queue's again.
TEST_F(Race, ATailLeftBehindHidesNothingFromADestruction)
{
    Node n;
    Srq srq = make_srq(n.pd, 1);
    Cq cq = make_cq(n.ctx);
    Qp from = make_qp(IBV_QPT_RC, n.pd, n.cq), to = make_qp(IBV_QPT_RC, n.pd, cq, srq);
    connect(from, n.lid, to, n.lid);
    ASSERT_EQ(post_recv(srq, 1, {n.sge(64, 8)}), 0);
    ASSERT_EQ(outcome(from, Send(IBV_WR_SEND, {n.sge(0, 8)})), IBV_WC_SUCCESS);
    vs_add(&vs_cq((ibv_cq *)cq)->shm->ring.tail, -1ul);
    ASSERT_EQ(to.destroy(), 0);
    EXPECT_TRUE(cq_empty(cq));
    EXPECT_EQ(post_recv(srq, 2, {n.sge(64, 8)}), 0);
}

// ---- more to do than there is room to say so ----

constexpr int many = 300;

// Two records for each of the QPs, more than the ring has, and nobody reads them: those to the program get lost, those to the HCA do not.
TEST_F(Race, EveryQpOfAStoppedProcessIsFlushedWhenItGoesOn)
{
    Child stopped([](const Link &link) {
        Node n;
        std::vector<Qp> qps;
        for (int i = 0; i < many; i++) {
            qps.push_back(make_qp(IBV_QPT_RC, n.pd, n.cq));
            connect_over(link, qps.back(), n);
            EXPECT_EQ(post_recv(qps.back(), i), 0);
        }
        link.meet();
        link.get<char>();
        for (int i = 0; i < many; i++)
            EXPECT_EQ(next_wc(n.cq).status, IBV_WC_WR_FLUSH_ERR);
        EXPECT_TRUE(cq_empty(n.cq));
    });
    Node n;
    std::vector<Qp> qps;
    for (int i = 0; i < many; i++) {
        qps.push_back(make_qp(IBV_QPT_RC, n.pd, n.cq));
        connect_over(stopped.link(), qps.back(), n);
    }
    stopped.link().meet();
    int status;
    need(kill(stopped.pid(), SIGSTOP) == 0 && waitpid(stopped.pid(), &status, WUNTRACED) == stopped.pid(), "stop it");
    for (ibv_qp *qp : qps)
        EXPECT_EQ(outcome(qp, Send(IBV_WR_RDMA_WRITE, {n.sge(0, 8)}).at(n.addr(), 0x12345)), IBV_WC_REM_ACCESS_ERR);
    need(kill(stopped.pid(), SIGCONT) == 0, "let it go on");
    stopped.link().put('g');
    EXPECT_EQ(stopped.wait(), 0);
}

// ---- processes that end ----

// A peer with a region, reached over RC or over XRC. It ends by being killed.
class Owned : public Race, public ::testing::WithParamInterface<bool>
{
  protected:
    Child owner_{[](const Link &link) {
        Side s(link, true, GetParam());
        Mr mr = s.reg(Memory(PRIVATE, page).map(), page);
        s.tell(mr);
        until_gone(link);
    }};
    std::unique_ptr<Side> side_ = std::make_unique<Side>(owner_.link(), false, GetParam());
    Region region_ = side_->told();

    void TearDown() override
    {
        side_.reset();
        Race::TearDown();
    }
    // Before anybody else finds out.
    void kill_and_reap()
    {
        vs_control_lock();
        owner_.kill();
        vs_process_reap_dead();
        vs_control_unlock();
    }
};

// A request has found its target, which goes then with all that it has, the region as well: nobody is there to refuse anything.
TEST_P(Owned, ARequestIsNotRefusedForWhatHasGoneWithItsTarget)
{
    EXPECT_EQ(side_->atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, region_, 0, 1), IBV_WC_SUCCESS);
    At target_found(VS_POINT_target_found, [this] { std::thread([this] { kill_and_reap(); }).join(); });
    EXPECT_EQ(side_->atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, region_, 0, 1), IBV_WC_RETRY_EXC_ERR);
}

// Whoever still finds the QP finds what it serves: queue and region, also where the QP is a TGT and goes with its last handle.
TEST_P(Owned, QpsGoBeforeWhatTheyServe)
{
    auto regions = [] {
        vs_slot *mr;
        uint32_t index, n = 0;
        vs_for_each_live(VS_MR, index, mr) n++;
        return n;
    };
    uint32_t all = regions();
    std::thread([&] {
        At slot_retired(
            VS_POINT_slot_retired,
            [&] {
                if (!vs_slot_get(VS_QP, side_->peer.qpn))
                    return;
                EXPECT_EQ(regions(), all);
                EXPECT_EQ(vs_slot_get(VS_SRQ, side_->peer.srqn) != nullptr, GetParam());
            },
            At::EACH);
        kill_and_reap();
    }).join();
    EXPECT_LT(regions(), all);
}

INSTANTIATE_TEST_SUITE_P(All, Owned, ::testing::Bool(), [](const auto &info) { return info.param ? "Xrc" : "Rc"; });

// In use by its program until this goes.
class InUse
{
  public:
    explicit InUse(std::vector<ibv_qp *> qps)
        : thread_([this, qps] {
              for (ibv_qp *qp : qps)
                  vs_lock(&vs_qp(qp)->lock);
              held_ = true;
              until([this] { return leave_.load(); });
              for (ibv_qp *qp : qps)
                  vs_unlock(&vs_qp(qp)->lock);
          })
    {
        until([this] { return held_.load(); });
    }
    InUse(const InUse &) = delete;
    ~InUse()
    {
        leave_ = true;
        thread_.join();
    }

  private:
    std::atomic<bool> held_{false}, leave_{false};
    std::thread thread_;
};

// The engine finds every QP in use, more than it can keep in mind, and does later what it could not do then. Two threads, since the
// thread sanitizer follows 64 locks of each.
TEST_F(Race, EveryQpThatWasInUseIsFlushedOnceItIsNot)
{
    Node n, m;
    std::vector<std::unique_ptr<RcPair>> pairs;
    std::vector<ibv_qp *> half[2];
    for (int i = 0; i < 100; i++) {
        pairs.push_back(std::make_unique<RcPair>(n, m));
        ASSERT_EQ(post_recv(pairs.back()->b, i), 0);
        half[i % 2].push_back(pairs.back()->b);
    }
    {
        InUse one(half[0]), two(half[1]);
        for (auto &p : pairs)
            EXPECT_EQ(outcome(p->a, Send(IBV_WR_RDMA_WRITE, {n.sge(0, 8)}).at(m.addr(), 0x12345)), IBV_WC_REM_ACCESS_ERR);
        events_until_now(n.ctx, pairs[0]->a, IBV_EVENT_QP_ACCESS_ERR);
    }
    for (size_t i = 0; i < pairs.size(); i++)
        EXPECT_EQ(next_wc(m.cq).status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_TRUE(cq_empty(m.cq));
}

// ---- receives ----

// A receive that is posted just when the QP goes to ERR is flushed, by one or the other.
TEST_F(Race, AReceivePostedBesideTheFlushIsFlushed)
{
    Node n;
    RcPair p(n, n);
    std::atomic<bool> moved{false};
    std::thread mover;
    {
        At posted(VS_POINT_rq_posted, [&] {
            mover = std::thread([&] {
                EXPECT_EQ(to_state(p.b, IBV_QPS_ERR), 0);
                moved = true;
            });
            until([&] { return shared_state(p.b) == IBV_QPS_ERR; });
            perhaps([&] { return moved.load(); });
        });
        EXPECT_EQ(post_recv(p.b, 7), 0);
    }
    mover.join();
    ibv_wc wc = {};
    ASSERT_EQ(ibv_poll_cq(n.cq, 1, &wc), 1) << "it never completes";
    EXPECT_EQ(wc.wr_id, 7u);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_TRUE(cq_empty(n.cq));
}

// ---- records that no HCA writes ----

// Whoever maps the segment can write into the ring of events. What does not fit is dropped.
TEST_F(Race, EventsThatFitNothingAreDropped)
{
    Node n;
    RcPair p(n, n);
    Srq srq = make_srq(n.pd);
    uint32_t cq = vs_cq((ibv_cq *)n.cq)->id, qp = p.a->qp_num;
    for (uint32_t table : {(uint32_t)VS_TABLES, 0x7fffffffu, 0x80000000u, UINT32_MAX, (uint32_t)VS_PROC, (uint32_t)VS_MR})
        for (uint32_t type : {(uint32_t)VS_EVENT_RQ_RETURN, (uint32_t)VS_EVENT_QP_FLUSH, (uint32_t)IBV_EVENT_QP_FATAL})
            vs_event_send(vs_me_id, type, (vs_table)table, 0x10001, 0);
    vs_event_send(vs_me_id, IBV_EVENT_QP_FATAL, VS_CQ, cq, 0);
    vs_event_send(vs_me_id, IBV_EVENT_QP_FATAL, VS_SRQ, vs_srq((ibv_srq *)srq)->id, 0);
    vs_event_send(vs_me_id, IBV_EVENT_QP_FATAL, VS_HCA, vs_qp(p.a)->hca_index, 0);
    vs_event_send(vs_me_id, IBV_EVENT_CQ_ERR, VS_HCA, vs_qp(p.a)->hca_index, 0);
    vs_event_send(vs_me_id, IBV_EVENT_SRQ_ERR, VS_CQ, cq, 0);
    vs_event_send(vs_me_id, IBV_EVENT_SRQ_LIMIT_REACHED, VS_QP, qp, 0);
    vs_event_send(vs_me_id, IBV_EVENT_PORT_ERR, VS_QP, qp, 0);
    vs_event_send(vs_me_id, 99, VS_HCA, vs_qp(p.a)->hca_index, 0);
    vs_event_send(vs_me_id, IBV_EVENT_PATH_MIG, VS_QP, qp, 0);
    ibv_async_event e = next_event(n.ctx);
    EXPECT_EQ(e.event_type, IBV_EVENT_PATH_MIG) << "what fits comes, and nothing else before it";
    EXPECT_EQ(e.element.qp, (ibv_qp *)p.a);
    ibv_ack_async_event(&e);
}

} // namespace
