// What two threads or processes do to one object at the same moment. The moments are the points between two steps on shared state, where
// a build for tests calls back, so that each race has a known end; where there is no such point, one end is written into the segment.
#define VS_CRASH_POINTS
#include "conform/faults.h"
#include "conform/pair.h"
#include "conform/peer.h"

extern "C" {
#include "core/cq.h"
#include "core/event.h"
#include "hca/hca.h"
}

#include <atomic>
#include <thread>

namespace
{

using namespace vt;

// The first time that the thread which made this comes by a point, do something else.
class At
{
  public:
    At(vs_point point, std::function<void()> deed)
    {
        at_ = this;
        point_ = point;
        thread_ = std::this_thread::get_id();
        deed_ = std::move(deed);
        vs_store(&vs_point_hook, &come_by);
    }
    At(const At &) = delete;
    ~At()
    {
        vs_store(&vs_point_hook, nullptr);
        EXPECT_TRUE(done_) << "never came by " << vs_point_name[point_];
    }

  private:
    static void come_by(vs_point point)
    {
        if (point != at_->point_ || std::this_thread::get_id() != at_->thread_ || at_->done_.exchange(true))
            return;
        at_->deed_();
    }
    static inline At *at_;
    vs_point point_;
    std::thread::id thread_;
    std::function<void()> deed_;
    std::atomic<bool> done_{false};
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
