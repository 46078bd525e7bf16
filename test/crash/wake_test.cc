// A process sleeps until a peer's completion or event wakes it, and the peer is stopped between having left it and the wake. There may be
// nobody else to notice, or a third process that clears the dead one away. Either way the sleeper wakes up.
#define VS_CRASH_POINTS
#include "memory/point.h"

#include "../conform/peer.h"

using namespace vt;

namespace
{

// Two ends of an RC connection that say who they are by way of the test.
struct End {
    Node node;
    Channel channel;
    Cq cq;
    Srq srq;
    Qp qp;

    End(int entries, bool shares_queue) : channel(ibv_create_comp_channel(node.ctx)), cq(make_cq(node.ctx, entries, channel))
    {
        if (shares_queue)
            srq = make_srq(node.pd);
        auto attr = qp_attr(IBV_QPT_RC, node.pd, cq, srq);
        attr.send_cq = node.cq;
        qp = Qp(ibv_create_qp_ex(node.ctx, &attr));
        need(qp, "ibv_create_qp_ex");
    }
    Address join(const Link &link)
    {
        return connect_over(link, qp, {node.lid, qp->qp_num, 0, node.mr->rkey, node.addr()});
    }
};

// What is slept for: how the sleeper does that, and what the sender does about it.
struct Wait {
    const char *name;
    void (*prepare)(End &e);
    void (*sleep)(End &e);
    void (*act)(End &e, const Address &peer);
    int entries = 64; // of the CQ slept at
    bool shares_queue = false;
};

void send_solicited(End &e, const Address &)
{
    Send(IBV_WR_SEND, {e.node.sge(0, 8)}, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED).post(e.qp);
}

void write_without_right(End &e, const Address &peer)
{
    Send(IBV_WR_RDMA_WRITE, {e.node.sge(0, 8)}).at(peer.addr, peer.rkey + 1).post(e.qp);
}

void sleep_for_completion(End &e)
{
    ibv_cq *cq;
    void *context;
    need(ibv_get_cq_event(e.channel, &cq, &context) == 0, "ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
    EXPECT_EQ(cq, e.cq);
    ibv_wc wc = {};
    EXPECT_EQ(ibv_poll_cq(e.cq, 1, &wc), 1) << "there when the event is";
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, 7u);
    EXPECT_TRUE(cq_empty(e.cq));
    EXPECT_FALSE(readable(e.channel->fd)) << "one arming, one event";
}

template <int solicited> void arm_with_receive(End &e)
{
    need(post_recv(e.qp, 7, {e.node.sge(0, 64)}) == 0, "ibv_post_recv");
    need(ibv_req_notify_cq(e.cq, solicited) == 0, "ibv_req_notify_cq");
}

void sleep_for_event(End &e)
{
    EXPECT_EQ(ack_next(e.node.ctx), IBV_EVENT_QP_ACCESS_ERR);
}

void prepare_receive(End &e)
{
    need(post_recv(e.qp, 7, {e.node.sge(0, 64)}) == 0, "ibv_post_recv");
}

void sleep_for_error(End &e)
{
    sleep_for_event(e);
    EXPECT_EQ(next_wc(e.cq).status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(state_of(e.qp), IBV_QPS_ERR);
}

void prepare_limit(End &e)
{
    ibv_srq_attr a = {};
    a.srq_limit = 2;
    for (int i = 0; i < 2; i++)
        need(post_recv(e.srq, 7, {e.node.sge(0, 64)}) == 0, "ibv_post_srq_recv");
    need(ibv_modify_srq(e.srq, &a, IBV_SRQ_LIMIT) == 0, "ibv_modify_srq");
}

void sleep_for_limit(End &e)
{
    EXPECT_EQ(ack_next(e.node.ctx), IBV_EVENT_SRQ_LIMIT_REACHED);
    ibv_srq_attr a = {};
    EXPECT_EQ(ibv_query_srq(e.srq, &a), 0);
    EXPECT_EQ(a.srq_limit, 0u);
}

void prepare_receives(End &e)
{
    for (int i = 0; i < 8; i++)
        prepare_receive(e);
}

void sleep_for_overrun(End &e)
{
    EXPECT_EQ(ack_next(e.node.ctx), IBV_EVENT_CQ_ERR);
}

void send_many(End &e, const Address &peer)
{
    for (int i = 0; i < 8; i++)
        send_solicited(e, peer);
}

const Wait waits[] = {
    {"completion", arm_with_receive<0>, sleep_for_completion, send_solicited},
    {"solicited", arm_with_receive<1>, sleep_for_completion, send_solicited},
    {"event", [](End &) {}, sleep_for_event, write_without_right},
    {"error", prepare_receive, sleep_for_error, write_without_right},
    {"limit", prepare_limit, sleep_for_limit, send_solicited, 64, true},
    {"overrun", prepare_receives, sleep_for_overrun, send_many, 1},
};

struct Case {
    int wait;
    const char *point;
};

const Case cases[] = {{0, "ring_full"},    {0, "cq_fired"},  {1, "ring_full"},     {1, "cq_fired"},  {2, "ring_full"},
                      {2, "event_pushed"}, {3, "qp_failed"}, {4, "limit_reached"}, {5, "cq_overrun"}};

class Wake : public Test, public ::testing::WithParamInterface<std::tuple<Case, bool>>
{
};

TEST_P(Wake, OfWhomASenderLeftSomethingBeforeItDied)
{
    auto [c, beside_a_third] = GetParam();
    const Wait &w = waits[c.wait];
    const std::string point = c.point;
    Child sleeper([&](const Link &link) {
        alarm(60);
        End e(w.entries, w.shares_queue);
        e.join(link);
        w.prepare(e);
        link.put('p');
        w.sleep(e);
    });
    Child sender([&](const Link &link) {
        End e(64, false);
        Address peer = e.join(link);
        link.get<char>();
        vs_point_stop_at(point.c_str());
        w.act(e, peer);
    });
    Child third([&](const Link &link) { // whoever joins clears away the dead
        if (link.get<char>() == 'j') {
            Node n;
            link.put('j');
            link.get<char>();
        }
    });
    Address a = sleeper.link().get<Address>(), b = sender.link().get<Address>();
    sleeper.link().put(b);
    sender.link().put(a);
    sleeper.link().get<char>();
    sender.link().put('g');
    EXPECT_EQ(sender.wait(), 256 + SIGKILL);
    third.link().put(beside_a_third ? 'j' : '-');
    if (beside_a_third)
        third.link().get<char>();
    EXPECT_EQ(sleeper.wait(), 0);
    if (beside_a_third)
        third.link().put('e');
}

INSTANTIATE_TEST_SUITE_P(All, Wake, ::testing::Combine(::testing::ValuesIn(cases), ::testing::Bool()), [](const auto &info) {
    const Case &c = std::get<0>(info.param);
    return std::string(waits[c.wait].name) + "_" + c.point + (std::get<1>(info.param) ? "_beside_a_third" : "_alone");
});

} // namespace
