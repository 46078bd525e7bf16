// Automatic path migration, on RC and XRC, over LMC paths of one port and over second ports: which moves of the migration state
// software may ask for, arming by real traffic, and migration by the requester, by its peer and by software.
//
// Both ends are in this process; apm_shared_test.cc has TGT QPs that several processes hold.
#include "conform/apm.h"
#include "conform/pair.h"

namespace
{

using namespace vt;

// ---- two paths between two QPs of this process ----

enum Paths { LMC, PORTS };

using Shape = std::tuple<Kind, Paths>;

std::string shape_name(const ::testing::TestParamInfo<Shape> &info)
{
    return std::string(std::get<0>(info.param) == XRC ? "Xrc" : "Rc") + (std::get<1>(info.param) == LMC ? "OverLmc" : "OverPorts");
}

// Over LMC both use port 1: the first path is LID 0 of each end's port, the second its LID with path bit 1. Over ports
// the first is port 1 to port 1, the second port 2 to port 2.
class Apm : public BothEnds, public ::testing::WithParamInterface<Shape>
{
  protected:
    Apm() : BothEnds(std::get<0>(GetParam()), over_lmc() ? "lmc=1" : "ports=2"), events_(new Events(*n_))
    {
        ibv_port_attr port;
        for (uint8_t i = 0; i < 2; i++) {
            uint8_t num = over_lmc() ? 1 : (uint8_t)(i + 1), bits = over_lmc() ? i : 0;
            need(ibv_query_port(n_->ctx, num, &port) == 0, "ibv_query_port");
            way_[i] = {num, bits, (uint16_t)(port.lid + bits)};
        }
        need(bring_up_on(one_, way_[0], two_->qp_num) == 0 && bring_up_on(two_, way_[0], one_->qp_num) == 0, "to RTS");
    }
    static bool over_lmc()
    {
        return std::get<1>(GetParam()) == LMC;
    }
    void TearDown() override
    {
        events_.reset();
        BothEnds::TearDown();
    }

    // A message of one end to the other, and how it ended; delivered must say how many arrived.
    ibv_wc_status send()
    {
        post();
        return next_wc(n_->cq).status;
    }
    void post()
    {
        post_receive(++sent_);
        Send s;
        need(to_responder(s).post(one_) == 0, "ibv_post_send");
    }
    // One message arms both: the request the responder, its answer the requester.
    void arm(int alternate = 1)
    {
        ASSERT_EQ(load(one_, way_[alternate], true), 0);
        ASSERT_EQ(load(two_, way_[alternate], true), 0);
        ASSERT_EQ(send(), IBV_WC_SUCCESS);
        ASSERT_EQ(delivered(), 1);
        ASSERT_EQ(mig_of(one_), IBV_MIG_ARMED);
        ASSERT_EQ(mig_of(two_), IBV_MIG_ARMED);
    }
    int load_in_partition(ibv_qp *qp, uint16_t pkey_index, uint8_t timeout = 8)
    {
        ibv_qp_attr a = {};
        a.qp_state = IBV_QPS_RTS;
        a.path_mig_state = IBV_MIG_REARM;
        set_alternate(&a, way_[1], timeout);
        a.alt_pkey_index = pkey_index;
        return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
    }
    void expect_events(ibv_event_type type, const ibv_qp *of, int n)
    {
        events_->expect(type, of, n);
    }

    std::unique_ptr<Events> events_;
    Way way_[2];
    uint64_t sent_ = 0;
};

class ApmOverPorts : public Apm
{
};

// ---- what software may ask for ----

TEST_P(Apm, SoftwareMovesFromMigrated)
{
    for (ibv_qp *qp : {(ibv_qp *)one_, (ibv_qp *)two_}) {
        EXPECT_EQ(mig_of(qp), IBV_MIG_MIGRATED) << "the state after creation";
        EXPECT_EQ(migrate_to(qp, IBV_MIG_ARMED), EINVAL) << "only hardware arms";
        EXPECT_EQ(migrate_to(qp, IBV_MIG_MIGRATED), 0) << "no move, which programs ask for";
        EXPECT_EQ(mig_of(qp), IBV_MIG_MIGRATED);
        EXPECT_EQ(migrate_to(qp, (ibv_mig_state)3), EINVAL);
        EXPECT_EQ(load(qp, way_[1], false), 0);
        EXPECT_EQ(mig_of(qp), IBV_MIG_MIGRATED) << "loading alone moves nothing";
        EXPECT_EQ(migrate_to(qp, IBV_MIG_REARM), 0);
        EXPECT_EQ(mig_of(qp), IBV_MIG_REARM);
    }
    expect_events(IBV_EVENT_PATH_MIG, one_, 0);
}

TEST_P(Apm, SoftwareMovesFromRearm)
{
    for (ibv_qp *qp : {(ibv_qp *)one_, (ibv_qp *)two_}) {
        ASSERT_EQ(load(qp, way_[1], true), 0);
        EXPECT_EQ(migrate_to(qp, IBV_MIG_ARMED), EINVAL);
        EXPECT_EQ(migrate_to(qp, IBV_MIG_MIGRATED), EINVAL);
        EXPECT_EQ(mig_of(qp), IBV_MIG_REARM) << "a refused move changes nothing";
        EXPECT_EQ(migrate_to(qp, IBV_MIG_REARM), 0);
        EXPECT_EQ(mig_of(qp), IBV_MIG_REARM);
    }
}

TEST_P(Apm, SoftwareMovesFromArmed)
{
    arm();
    EXPECT_EQ(migrate_to(one_, IBV_MIG_ARMED), EINVAL);
    EXPECT_EQ(migrate_to(one_, IBV_MIG_REARM), EINVAL);
    EXPECT_EQ(load(one_, way_[0], true), EINVAL);
    ibv_qp_attr a = query(one_);
    EXPECT_EQ(a.path_mig_state, IBV_MIG_ARMED);
    EXPECT_EQ(a.alt_ah_attr.dlid, way_[1].peer_lid) << "all checks come before any change";
    EXPECT_EQ(migrate_to(one_, IBV_MIG_MIGRATED), 0);
    EXPECT_EQ(mig_of(one_), IBV_MIG_MIGRATED);
    expect_events(IBV_EVENT_PATH_MIG, one_, 1);
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 1);
    EXPECT_EQ(mig_of(two_), IBV_MIG_MIGRATED) << "the other end follows with the next packet";
    expect_events(IBV_EVENT_PATH_MIG, two_, 1);
}

TEST_P(Apm, StatesThatTheNewQpStateForbids)
{
    ibv_qp_attr a = {};
    for (ibv_qp *qp : {(ibv_qp *)one_, (ibv_qp *)two_}) {
        ASSERT_EQ(to_state(qp, IBV_QPS_SQD), 0);
        a.qp_state = IBV_QPS_SQD;
        set_alternate(&a, way_[1]);
        a.path_mig_state = IBV_MIG_REARM;
        EXPECT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE), EINVAL) << "REARM needs RTS";
        EXPECT_EQ(query(qp).alt_port_num, 0) << "nothing was loaded";
        a.path_mig_state = IBV_MIG_MIGRATED;
        EXPECT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE), 0);
        a.qp_state = IBV_QPS_RTS;
        a.path_mig_state = IBV_MIG_REARM;
        EXPECT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PATH_MIG_STATE), 0) << "SQD -> RTS";
        EXPECT_EQ(mig_of(qp), IBV_MIG_REARM);
    }
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(mig_of(one_), IBV_MIG_ARMED);
    ASSERT_EQ(to_state(one_, IBV_QPS_SQD), 0);
    a.qp_state = IBV_QPS_SQD;
    a.path_mig_state = IBV_MIG_MIGRATED;
    EXPECT_EQ(ibv_modify_qp(one_, &a, IBV_QP_STATE | IBV_QP_PATH_MIG_STATE), 0) << "software migrates in SQD as well";
    expect_events(IBV_EVENT_PATH_MIG, one_, 1);
    delivered();
}

// ALT_PATH and PATH_MIG_STATE belong to exactly these transitions (the rule book's own copy).
TEST_P(Apm, TransitionsThatTakeThem)
{
    struct Row {
        ibv_qp_state from, to;
        bool alt, mig;
    };
    const Row rows[] = {
        {IBV_QPS_RESET, IBV_QPS_INIT, false, false}, {IBV_QPS_INIT, IBV_QPS_INIT, false, false}, {IBV_QPS_INIT, IBV_QPS_RTR, true, false},
        {IBV_QPS_RTR, IBV_QPS_RTS, true, true},      {IBV_QPS_RTS, IBV_QPS_RTS, true, true},     {IBV_QPS_RTS, IBV_QPS_SQD, false, false},
        {IBV_QPS_SQD, IBV_QPS_SQD, true, true},      {IBV_QPS_SQD, IBV_QPS_RTS, true, true},     {IBV_QPS_RTS, IBV_QPS_ERR, false, false},
        {IBV_QPS_RTS, IBV_QPS_RESET, false, false},
    };
    const ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV};
    Xrcd domain = make_xrcd(n_->ctx);
    int tried = 0;
    for (ibv_qp_type type : types)
        for (const Row &row : rows)
            for (int what = 1; what < 4; what++) {
                Qp qp = type == IBV_QPT_XRC_RECV ? make_tgt(domain) : make_qp(type, n_->pd, n_->cq);
                const ibv_qp_state chain[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD};
                ibv_qp_attr a = {};
                a.port_num = a.ah_attr.port_num = 1;
                a.ah_attr.dlid = way_[0].peer_lid;
                a.path_mtu = IBV_MTU_1024;
                a.max_rd_atomic = a.max_dest_rd_atomic = 1;
                a.timeout = 8;
                set_alternate(&a, way_[1]);
                auto move = [&](ibv_qp_state from, ibv_qp_state to, int extra) {
                    int mask = IBV_QP_STATE | extra;
                    if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
                        mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
                    if (to == IBV_QPS_RTR)
                        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                (type == IBV_QPT_XRC_SEND ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
                    if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
                        mask |= IBV_QP_TIMEOUT | IBV_QP_SQ_PSN |
                                (type == IBV_QPT_XRC_RECV ? 0 : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
                    a.qp_state = to;
                    return ibv_modify_qp(qp, &a, mask);
                };
                for (int i = 0; chain[i] != row.from; i++)
                    ASSERT_EQ(move(chain[i], chain[i + 1], 0), 0) << type << " " << chain[i];
                a.path_mig_state = row.to == IBV_QPS_SQD ? IBV_MIG_MIGRATED : IBV_MIG_REARM;
                bool ok = (!(what & 1) || row.alt) && (!(what & 2) || row.mig);
                int err = move(row.from, row.to, (what & 1 ? IBV_QP_ALT_PATH : 0) | (what & 2 ? IBV_QP_PATH_MIG_STATE : 0));
                EXPECT_EQ(err, ok ? 0 : EINVAL) << type << ": " << row.from << " -> " << row.to << ", attributes " << what;
                EXPECT_EQ(state_of(qp), ok ? row.to : row.from);
                tried++;
            }
    printf("%d transitions tried\n", tried);
}

TEST_P(Apm, AlternatesThatAreNone)
{
    ibv_qp_attr a = {};
    a.qp_state = IBV_QPS_RTS;
    auto load_it = [&] { return ibv_modify_qp(one_, &a, IBV_QP_STATE | IBV_QP_ALT_PATH); };
    set_alternate(&a, way_[1]);
    a.alt_port_num = 9;
    EXPECT_EQ(load_it(), EINVAL) << "no such port";
    set_alternate(&a, way_[1]);
    a.alt_ah_attr.port_num = (uint8_t)(3 - way_[1].port);
    EXPECT_EQ(load_it(), EINVAL) << "two ports named";
    set_alternate(&a, way_[1]);
    a.alt_ah_attr.dlid = 0xc001;
    EXPECT_EQ(load_it(), EINVAL) << "multicast";
    set_alternate(&a, way_[1]);
    a.alt_pkey_index = 1000;
    EXPECT_EQ(load_it(), EINVAL);
    a.alt_pkey_index = 0;
    set_alternate(&a, way_[1], 32);
    EXPECT_EQ(load_it(), EINVAL);
    set_alternate(&a, way_[1]);
    a.alt_ah_attr.src_path_bits = 2;
    EXPECT_EQ(load_it(), EINVAL) << "path bits the port has not";
    EXPECT_EQ(query(one_).alt_port_num, 0);
    set_alternate(&a, way_[1], 20);
    EXPECT_EQ(load_it(), 0);
    ibv_qp_attr q = query(one_);
    EXPECT_EQ(q.alt_ah_attr.dlid, way_[1].peer_lid);
    EXPECT_EQ(q.alt_ah_attr.src_path_bits, way_[1].bits);
    EXPECT_EQ(q.alt_port_num, way_[1].port);
    EXPECT_EQ(q.alt_timeout, 20);
}

TEST_P(Apm, WithoutTheCapability)
{
    ibv_device_attr d;
    ASSERT_EQ(ibv_query_device(n_->ctx, &d), 0);
    EXPECT_TRUE(d.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG);
    order("caps -apm");
    ASSERT_EQ(ibv_query_device(n_->ctx, &d), 0);
    EXPECT_FALSE(d.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG);
    for (ibv_qp *qp : {(ibv_qp *)one_, (ibv_qp *)two_}) {
        EXPECT_EQ(load(qp, way_[1], false), EOPNOTSUPP);
        EXPECT_EQ(load(qp, way_[1], true), EOPNOTSUPP);
        EXPECT_EQ(migrate_to(qp, IBV_MIG_REARM), EOPNOTSUPP);
        EXPECT_EQ(migrate_to(qp, IBV_MIG_MIGRATED), 0) << "what programs say on their way to RTS";
        EXPECT_EQ(query(qp).alt_port_num, 0);
    }
    order("caps +apm");
    EXPECT_EQ(load(one_, way_[1], true), 0);
}

// ---- arming ----

TEST_P(Apm, OnlyTrafficArms)
{
    ASSERT_EQ(load(two_, way_[1], true), 0);
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(mig_of(two_), IBV_MIG_REARM) << "the request said MigReq: its sender has not rearmed";
    ASSERT_EQ(load(one_, way_[1], true), 0);
    EXPECT_EQ(mig_of(one_), IBV_MIG_REARM);
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(mig_of(two_), IBV_MIG_ARMED);
    EXPECT_EQ(mig_of(one_), IBV_MIG_ARMED) << "by the answer";
    expect_events(IBV_EVENT_PATH_MIG, one_, 0);
    EXPECT_EQ(delivered(), 2);
}

TEST_P(Apm, WhatGetsLostArmsNobody)
{
    ASSERT_EQ(load(one_, way_[1], true), 0);
    ASSERT_EQ(load(two_, way_[1], true), 0);
    order("drop packet times 2");
    EXPECT_EQ(send(), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(mig_of(two_), IBV_MIG_REARM) << "armed by a packet that never came";
    EXPECT_EQ(mig_of(one_), IBV_MIG_REARM) << "a QP that is not armed does not migrate";
    EXPECT_EQ(delivered(), 0);
}

TEST_P(Apm, ALostAnswerArmsOneEnd)
{
    ASSERT_EQ(load(one_, way_[1], true), 0);
    ASSERT_EQ(load(two_, way_[1], true), 0);
    order("drop ack times 2");
    EXPECT_EQ(send(), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(mig_of(two_), IBV_MIG_ARMED);
    EXPECT_EQ(mig_of(one_), IBV_MIG_REARM) << "armed by an answer that never came";
    EXPECT_EQ(delivered(), 1) << "the message itself arrived";
}

// ---- migrating ----

TEST_P(Apm, ExhaustedRetriesMigrate)
{
    arm();
    order("drop packet times 2"); // as many as there are tries on the first path
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 1) << "exactly once";
    for (ibv_qp *qp : {(ibv_qp *)one_, (ibv_qp *)two_}) {
        ibv_qp_attr a = query(qp);
        EXPECT_EQ(a.path_mig_state, IBV_MIG_MIGRATED);
        EXPECT_EQ(a.ah_attr.dlid, way_[1].peer_lid) << "the alternate is the path in use";
        EXPECT_EQ(a.ah_attr.src_path_bits, way_[1].bits);
        EXPECT_EQ(a.ah_attr.port_num, way_[1].port);
        EXPECT_EQ(a.port_num, way_[1].port);
        EXPECT_EQ(a.alt_ah_attr.dlid, way_[1].peer_lid) << "and reads as the alternate until another is loaded";
        EXPECT_EQ(qp_counter(qp->qp_num, "migrations"), 1);
        expect_events(IBV_EVENT_PATH_MIG, qp, 1);
    }
    EXPECT_EQ(qp_counter(one_->qp_num, "retries"), 2);
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 1);
}

TEST_P(Apm, TheAlternatesPkeyAndTimeoutBecomeThePrimarys)
{
    order("pkey all 1 0x8123");
    for (ibv_qp *qp : {(ibv_qp *)one_, (ibv_qp *)two_})
        ASSERT_EQ(load_in_partition(qp, 1, 9), 0);
    ASSERT_EQ(send(), IBV_WC_SUCCESS);
    ASSERT_EQ(delivered(), 1);
    order("drop packet times 2");
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 1);
    for (ibv_qp *qp : {(ibv_qp *)one_, (ibv_qp *)two_}) {
        ibv_qp_attr a;
        ibv_qp_init_attr init;
        ASSERT_EQ(ibv_query_qp(qp, &a, IBV_QP_PKEY_INDEX | IBV_QP_TIMEOUT | IBV_QP_PATH_MIG_STATE, &init), 0);
        EXPECT_EQ(a.path_mig_state, IBV_MIG_MIGRATED);
        EXPECT_EQ(a.pkey_index, 1);
        EXPECT_EQ(a.timeout, 9);
    }
}

// The responder's alternate is in another partition than the packets that ask it to migrate.
TEST_P(Apm, AnAlternateInAnotherPartitionIsNotFollowed)
{
    order("pkey all 1 0x8123");
    ASSERT_EQ(load_in_partition(one_, 1), 0);
    ASSERT_EQ(load_in_partition(two_, 0), 0);
    ASSERT_EQ(send(), IBV_WC_SUCCESS);
    ASSERT_EQ(delivered(), 1);
    ASSERT_EQ(mig_of(two_), IBV_MIG_ARMED);
    ASSERT_EQ(migrate_to(one_, IBV_MIG_MIGRATED), 0);
    EXPECT_EQ(send(), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(delivered(), 0);
    EXPECT_EQ(mig_of(two_), IBV_MIG_ARMED);
    until([&] { return events_->count(IBV_EVENT_PATH_MIG_ERR, two_) >= 1; });
    expect_events(IBV_EVENT_PATH_MIG, two_, 0);
}

TEST_P(Apm, ALostAnswerMigratesAndDeliversOnce)
{
    arm();
    order("drop ack times 2");
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 1) << "the repeats were recognised, on the other path as well";
    EXPECT_EQ(qp_counter(two_->qp_num, "duplicates"), 2);
    EXPECT_EQ(mig_of(one_), IBV_MIG_MIGRATED);
    EXPECT_EQ(mig_of(two_), IBV_MIG_MIGRATED);
}

TEST_P(ApmOverPorts, LinkDownMigrates)
{
    arm();
    order("link down h/vshim0/1");
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 1);
    EXPECT_EQ(query(two_).ah_attr.port_num, 2);
    expect_events(IBV_EVENT_PATH_MIG, two_, 1);
    order("link up h/vshim0/1");
    arm(0);
    order("link down h/vshim0/2");
    EXPECT_EQ(send(), IBV_WC_SUCCESS) << "back, after the second failure";
    EXPECT_EQ(delivered(), 1);
    EXPECT_EQ(query(one_).ah_attr.port_num, 1);
    EXPECT_EQ(query(two_).ah_attr.port_num, 1);
}

TEST_P(Apm, ReloadRearmAndFailAgain)
{
    for (int round = 0; round < 4; round++) {
        arm(round % 2 ? 0 : 1);
        order("drop packet times 2");
        EXPECT_EQ(send(), IBV_WC_SUCCESS) << "round " << round;
        EXPECT_EQ(delivered(), 1);
        EXPECT_EQ(query(one_).ah_attr.dlid, way_[round % 2 ? 0 : 1].peer_lid);
        EXPECT_EQ(query(two_).ah_attr.dlid, way_[round % 2 ? 0 : 1].peer_lid);
    }
    expect_events(IBV_EVENT_PATH_MIG, one_, 4);
    expect_events(IBV_EVENT_PATH_MIG, two_, 4);
}

TEST_P(Apm, NotArmedMeansRetryExceeded)
{
    arm();
    order("drop packet times 2");
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 1);
    order("drop packet times 2");
    EXPECT_EQ(send(), IBV_WC_RETRY_EXC_ERR) << "migrated, not rearmed";
    EXPECT_EQ(delivered(), 0);
    EXPECT_EQ(state_of(one_), IBV_QPS_ERR);
    expect_events(IBV_EVENT_PATH_MIG, one_, 1);
}

TEST_P(Apm, TheAlternateFailsAsWell)
{
    arm();
    order("drop packet times 4");
    EXPECT_EQ(send(), IBV_WC_RETRY_EXC_ERR) << "retry_cnt + 1 tries on each path";
    EXPECT_EQ(delivered(), 0);
    EXPECT_EQ(qp_counter(one_->qp_num, "dropped"), 4);
    EXPECT_EQ(mig_of(one_), IBV_MIG_MIGRATED);
    EXPECT_EQ(mig_of(two_), IBV_MIG_ARMED) << "it saw none of these";
}

// As when a program hears of a failed port while the last try on it is still unanswered.
TEST_P(Apm, SoftwareMigratesAfterTheLastTry)
{
    const uint8_t no_retry = 0, one_second = 18;
    ASSERT_EQ(to_state(one_, IBV_QPS_RESET), 0);
    ASSERT_EQ(to_state(two_, IBV_QPS_RESET), 0);
    ASSERT_EQ(bring_up_on(one_, way_[0], two_->qp_num, no_retry, one_second), 0);
    ASSERT_EQ(bring_up_on(two_, way_[0], one_->qp_num, no_retry, one_second), 0);
    arm();
    order("drop packet");
    post();
    ASSERT_EQ(qp_counter(one_->qp_num, "dropped"), 1);
    ASSERT_EQ(migrate_to(one_, IBV_MIG_MIGRATED), 0);
    EXPECT_EQ(next_wc(n_->cq).status, IBV_WC_SUCCESS) << "the other path has not been tried";
    EXPECT_EQ(delivered(), 1);
    EXPECT_EQ(mig_of(two_), IBV_MIG_MIGRATED);
}

TEST_P(Apm, BothEndsAtOnce)
{
    arm();
    EXPECT_EQ(migrate_to(one_, IBV_MIG_MIGRATED), 0);
    EXPECT_EQ(migrate_to(two_, IBV_MIG_MIGRATED), 0);
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 1);
    EXPECT_EQ(query(one_).ah_attr.dlid, way_[1].peer_lid);
    EXPECT_EQ(query(two_).ah_attr.dlid, way_[1].peer_lid);
    expect_events(IBV_EVENT_PATH_MIG, one_, 1);
    expect_events(IBV_EVENT_PATH_MIG, two_, 1);
}

TEST_P(Apm, ResponderMigratesByAnswerToRequester)
{
    arm();
    EXPECT_EQ(migrate_to(two_, IBV_MIG_MIGRATED), 0) << "software, at the responder";
    EXPECT_EQ(send(), IBV_WC_SUCCESS) << "its old path is not listened to any more: the requester's retries run out, and it follows";
    EXPECT_EQ(delivered(), 1);
    EXPECT_EQ(mig_of(one_), IBV_MIG_MIGRATED);
    expect_events(IBV_EVENT_PATH_MIG, one_, 1);
    expect_events(IBV_EVENT_PATH_MIG, two_, 1);
}

TEST_P(Apm, AMigrationThatFitsNeitherPath)
{
    arm();
    // The requester comes from the second path; the responder's alternate says something else.
    ibv_qp_attr a = {};
    a.qp_state = IBV_QPS_RTS;
    Way wrong = way_[1];
    wrong.peer_lid = (uint16_t)(way_[1].peer_lid + 100);
    set_alternate(&a, wrong);
    ASSERT_EQ(ibv_modify_qp(two_, &a, IBV_QP_STATE | IBV_QP_ALT_PATH), 0) << "not diagnosed when loaded";
    EXPECT_EQ(migrate_to(one_, IBV_MIG_MIGRATED), 0);
    EXPECT_EQ(send(), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(delivered(), 0);
    expect_events(IBV_EVENT_PATH_MIG_ERR, two_, 2); // one for each try
    ibv_qp_attr q = query(two_);
    EXPECT_EQ(q.path_mig_state, IBV_MIG_ARMED) << "its state is unchanged";
    EXPECT_EQ(q.ah_attr.dlid, way_[0].peer_lid);
    expect_events(IBV_EVENT_PATH_MIG, two_, 0);
}

TEST_P(Apm, ResetForgetsThePaths)
{
    arm();
    for (ibv_qp *qp : {(ibv_qp *)one_, (ibv_qp *)two_}) {
        ASSERT_EQ(to_state(qp, IBV_QPS_RESET), 0);
        ibv_qp_attr a = query(qp);
        EXPECT_EQ(a.path_mig_state, IBV_MIG_MIGRATED);
        EXPECT_EQ(a.alt_port_num, 0);
    }
    ASSERT_EQ(bring_up_on(one_, way_[1], two_->qp_num), 0);
    ASSERT_EQ(bring_up_on(two_, way_[1], one_->qp_num), 0);
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 1);
    arm(0);
    expect_events(IBV_EVENT_PATH_MIG, one_, 0);
}

TEST_P(Apm, LateAnswersChangeNothing)
{
    arm();
    order("delay packet 2000");
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 1);
    EXPECT_EQ(mig_of(one_), IBV_MIG_ARMED);
    EXPECT_EQ(qp_counter(one_->qp_num, "retries"), 0);
}

INSTANTIATE_TEST_SUITE_P(All, Apm, ::testing::Combine(::testing::Values(RC_SRQ, XRC), ::testing::Values(LMC, PORTS)), shape_name);
INSTANTIATE_TEST_SUITE_P(All, ApmOverPorts, ::testing::Combine(::testing::Values(RC_SRQ, XRC), ::testing::Values(PORTS)), shape_name);

} // namespace
