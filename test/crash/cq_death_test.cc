// What a completion queue makes of a producer that died over one of its entries: resized meanwhile, or read when somebody looked.
#include "conform/verbs.h"

extern "C" {
#include "core/context.h"
#include "memory/pages.h"
#include "memory/ring.h"
}

namespace
{

using namespace vt;

class CqDeathTest : public vt::Test
{
};

// A process that claims the next entry, as vs_ring_push does before it writes the body, and is killed over it.
class Claimer
{
  public:
    explicit Claimer(uint32_t cq) : child_([cq](const Link &link) { claim(link, cq); })
    {
        child_.link().get<char>();
    }
    void kill()
    {
        child_.kill();
    }

  private:
    static void claim(const Link &link, uint32_t cq)
    {
        need(vs_attach() == 0, "vs_attach");
        auto *shm = (vs_cq_shm *) vs_slot_get(VS_CQ, cq);
        uint64_t bytes, tail = vs_load(&shm->ring.tail);
        auto *slots = (vs_cqe *) vs_extent(&shm->s, &bytes);
        need(vs_cas(&slots[tail & (shm->ring.entries - 1)].word, vs_word(VS_RING_EMPTY, tail, 0),
                    vs_word(VS_RING_CLAIMED, tail, vs_slot_index(VS_PROC, vs_me_id))),
             "claim");
        link.put('c');
        link.get<char>(); // never comes
    }
    Child child_;
};

// A QP pair within one node: what is sent arrives in a CQ of its own.
struct Pair {
    Qp a, b;
    Pair(const Node &n, ibv_cq *recv_cq)
    {
        auto attr = qp_attr(IBV_QPT_RC, n.pd, n.cq);
        a = Qp(ibv_create_qp_ex(n.ctx, &attr));
        attr.recv_cq = recv_cq;
        b = Qp(ibv_create_qp_ex(n.ctx, &attr));
        need(a && b, "ibv_create_qp_ex");
        connect(a, n.lid, b, n.lid);
    }
    void send(uint64_t id) const
    {
        ASSERT_EQ(post_recv(b, id), 0);
        ASSERT_EQ(outcome(a, Send()), IBV_WC_SUCCESS);
    }
};

TEST_F(CqDeathTest, ResizingKeepsWhatLiesBehindAKilledProducersEntry)
{
    Node n;
    Cq cq = make_cq(n.ctx);
    Pair p(n, cq);
    p.send(1);
    Claimer claimer(cq->handle);
    p.send(2);
    p.send(3);
    claimer.kill();
    ASSERT_EQ(ibv_resize_cq(cq, 500), 0);
    for (uint64_t id : {1, 2, 3})
        EXPECT_EQ(next_wc(cq).wr_id, id);
    p.send(4);
    EXPECT_EQ(next_wc(cq).wr_id, 4u);
    EXPECT_TRUE(cq_empty(cq));
}

// Events come in order, each in a turn of the engine of its own: with the second one the turn that the first came in is over.
void two_turns_of_the_engine(const Node &n, ibv_qp *tgt)
{
    for (int i = 0; i < 2; i++) {
        Path nowhere;
        nowhere.qpn = 5;
        nowhere.lid = n.lid;
        bring_up(tgt, nowhere);
        ASSERT_EQ(to_state(tgt, IBV_QPS_ERR), 0);
        EXPECT_EQ(ack_next(n.ctx), IBV_EVENT_QP_LAST_WQE_REACHED);
        ASSERT_EQ(to_state(tgt, IBV_QPS_RESET), 0);
    }
}

// The engine comes to look whether the CQ stands still while the program is just reading it, and so cannot know.
TEST_F(CqDeathTest, ACqThatIsReadWhenTheEngineComesIsLookedAtAgain)
{
    Node n;
    Channel ch(ibv_create_comp_channel(n.ctx));
    ibv_cq_init_attr_ex attr = {};
    attr.cqe = 64;
    attr.channel = ch;
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    ibv_cq_ex *ex = ibv_create_cq_ex(n.ctx, &attr);
    ASSERT_NE(ex, nullptr);
    Cq cq(ibv_cq_ex_to_cq(ex));
    Pair p(n, cq);
    Xrcd x = make_xrcd(n.ctx);
    Qp tgt = make_tgt(x);
    p.send(1);
    Claimer claimer(cq->handle);
    p.send(2);
    ibv_poll_cq_attr poll = {};
    ASSERT_EQ(ibv_start_poll(ex, &poll), 0);
    EXPECT_EQ(ex->wr_id, 1u);
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0); // it stands still, and the engine is told so
    two_turns_of_the_engine(n, tgt);
    ibv_end_poll(ex);
    claimer.kill();
    ibv_cq *got;
    void *context;
    ASSERT_EQ(ibv_get_cq_event(ch, &got, &context), 0);
    ibv_ack_cq_events(got, 1);
    EXPECT_EQ(next_wc(cq).wr_id, 2u);
}

} // namespace
