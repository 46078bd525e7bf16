// Global paths on InfiniBand: a connected QP takes a packet only with the GRH that its own path would have, GIDs of both ends included, and
// drops any other without a word, as one with another LID. Of two alternate paths the GIDs tell which, too.
#include "conform/apm.h"
#include "conform/pair.h"

namespace
{

using namespace vt;

union ibv_gid gid_of(ibv_context *c)
{
    union ibv_gid gid;
    need(ibv_query_gid(c, 1, 0, &gid) == 0, "ibv_query_gid");
    return gid;
}

// What the address vector of an end says of the other's GID.
enum Says { NO_GRH, RIGHT, OTHER_PORT, OTHER_SUBNET, ITSELF };

// Two HCAs with two LIDs each, and a connection from the first to the second.
class Gids : public BothEnds, public ::testing::WithParamInterface<Kind>
{
  protected:
    Gids() : BothEnds(GetParam(), "devices=2,lmc=1", all_access, 1)
    {
    }
    static union ibv_gid gid(Says says, const Node &self, const Node &peer)
    {
        union ibv_gid g = gid_of(says == ITSELF ? self.ctx : peer.ctx);
        g.raw[15] ^= says == OTHER_PORT ? 0x40 : 0;
        g.raw[7] ^= says == OTHER_SUBNET ? 1 : 0;
        return g;
    }
    static void bring_up_as(ibv_qp *qp, Says says, const Node &self, const Node &peer, uint32_t qpn)
    {
        union ibv_gid g = gid(says, self, peer);
        Path p;
        p.qpn = qpn;
        p.lid = peer.lid;
        p.timeout = 1;
        p.gid = says == NO_GRH ? nullptr : &g;
        need(to_state(qp, IBV_QPS_RESET) == 0, "to RESET");
        bring_up(qp, p);
    }
    // The receive WQE in which a message of one end arrives at the other; 0: it does not.
    uint64_t arrives_in(ibv_wc_status *status)
    {
        Send s(IBV_WR_SEND, {n_->sge(0, 8)});
        *status = outcome(one_, to_responder(s));
        ibv_wc wc;
        return ibv_poll_cq(recv_cq_, 1, &wc) == 1 ? wc.wr_id : 0;
    }
};

TEST_P(Gids, BothEndsMustMeanTheSamePath)
{
    uint64_t next = 1;
    for (uint64_t i = next; i <= 25; i++)
        post_receive(i, {other_->sge(0, 64)});
    for (Says requester : {NO_GRH, RIGHT, OTHER_PORT, OTHER_SUBNET, ITSELF})
        for (Says responder : {NO_GRH, RIGHT, OTHER_PORT, OTHER_SUBNET, ITSELF}) {
            SCOPED_TRACE("requester " + std::to_string(requester) + ", responder " + std::to_string(responder));
            bool good = requester == responder && requester <= RIGHT;
            bring_up_as(one_, requester, *n_, *other_, two_->qp_num);
            bring_up_as(two_, responder, *other_, *n_, one_->qp_num);
            ibv_wc_status status;
            EXPECT_EQ(arrives_in(&status), good ? next++ : 0) << "what is dropped takes no WQE";
            EXPECT_EQ(status, good || GetParam() == UC_SRQ ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
            EXPECT_EQ(state_of(two_), IBV_QPS_RTS) << "it has seen nothing";
        }
    EXPECT_EQ(qp_counter(two_->qp_num, "naks_sent"), 0);
}

INSTANTIATE_TEST_SUITE_P(Transports, Gids, ::testing::Values(RC_SRQ, UC_SRQ, XRC), [](const auto &info) {
    return info.param == RC_SRQ ? "Rc" : info.param == UC_SRQ ? "Uc" : "Xrc";
});

// ---- alternate paths ----

class GlobalAlternates : public Gids
{
  protected:
    GlobalAlternates() : events_(std::make_unique<Events>(*other_))
    {
    }
    void TearDown() override
    {
        events_.reset();
        Gids::TearDown();
    }
    // From LID 1 to LID 1 of either end, beside a path without GRH between their first ones.
    static void load_global(ibv_qp *qp, Says says, const Node &self, const Node &peer)
    {
        ibv_qp_attr a = {};
        a.qp_state = IBV_QPS_RTS;
        a.path_mig_state = IBV_MIG_REARM;
        set_alternate(&a, {1, 1, (uint16_t)(peer.lid + 1)});
        a.alt_ah_attr.is_global = says != NO_GRH;
        a.alt_ah_attr.grh.dgid = gid(says, self, peer);
        ASSERT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE), 0);
    }
    std::unique_ptr<Events> events_;
};

TEST_P(GlobalAlternates, APeerMigratesToThePathThatItHasLoaded)
{
    struct {
        Says requester, responder;
    } rows[] = {{NO_GRH, NO_GRH},    {RIGHT, RIGHT},      {NO_GRH, RIGHT}, {RIGHT, NO_GRH},       {OTHER_PORT, RIGHT},
                {RIGHT, OTHER_PORT}, {ITSELF, RIGHT},     {RIGHT, ITSELF}, {OTHER_SUBNET, RIGHT}, {RIGHT, OTHER_SUBNET}};
    for (auto &row : rows) {
        SCOPED_TRACE("requester " + std::to_string(row.requester) + ", responder " + std::to_string(row.responder));
        bool good = row.requester == row.responder;
        bring_up_as(one_, NO_GRH, *n_, *other_, two_->qp_num);
        bring_up_as(two_, NO_GRH, *other_, *n_, one_->qp_num);
        load_global(one_, row.requester, *n_, *other_);
        load_global(two_, row.responder, *other_, *n_);
        ASSERT_EQ(post_recv(srq_, 1, {other_->sge(0, 64)}), 0);
        ibv_wc_status status;
        ASSERT_NE(arrives_in(&status), 0u);
        ASSERT_EQ(mig_of(one_), IBV_MIG_ARMED);
        ASSERT_EQ(mig_of(two_), IBV_MIG_ARMED);
        events_->drain();
        events_->forget(two_);
        ASSERT_EQ(migrate_to(one_, IBV_MIG_MIGRATED), 0);
        ASSERT_EQ(post_recv(srq_, 2, {other_->sge(0, 64)}), 0);
        EXPECT_EQ(arrives_in(&status) != 0, good);
        EXPECT_EQ(status, good ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
        ASSERT_EQ(mig_of(two_), good ? IBV_MIG_MIGRATED : IBV_MIG_ARMED);
        until([&] { return events_->count(good ? IBV_EVENT_PATH_MIG : IBV_EVENT_PATH_MIG_ERR, two_) > 0; });
        events_->settle();
        EXPECT_EQ(events_->count(good ? IBV_EVENT_PATH_MIG_ERR : IBV_EVENT_PATH_MIG, two_), 0);
        events_->forget(two_);
    }
}

INSTANTIATE_TEST_SUITE_P(Transports, GlobalAlternates, ::testing::Values(RC_SRQ, XRC),
                         [](const auto &info) { return info.param == RC_SRQ ? "Rc" : "Xrc"; });

} // namespace
