// Automatic path migration between processes on two simulated hosts: the requester is this process on host h0, the responder another
// on host h1. Links that fail at either end, migration by software at either end, rearming and failing back.
#include "conform/apm.h"

namespace
{

using namespace vt;

enum Kind { RC, XRC };
enum Paths { LMC, PORTS };

struct Hello {
    Way way[2]; // as the other end sees them: peer_lid is this end's
    uint32_t qpn, srqn;
};

struct Report {
    ibv_mig_state mig;
    uint8_t port, bits;
    uint16_t dlid;
    int migrations, errors; // PATH_MIG, PATH_MIG_ERR events
    int delivered;
};

// What both ends have: the two paths out of this host, and a QP.
struct End {
    Node n;
    Events events{n};
    Cq recv_cq = make_cq(n.ctx);
    Xrcd xrcd;
    Srq srq;
    Qp qp;
    Way way[2];
    uint32_t peer_srqn = 0;

    End(Kind kind, Paths paths, bool requester)
    {
        for (uint8_t i = 0; i < 2; i++) {
            ibv_port_attr port;
            uint8_t num = paths == PORTS ? (uint8_t) (i + 1) : 1, bits = paths == PORTS ? 0 : i;
            need(ibv_query_port(n.ctx, num, &port) == 0, "ibv_query_port");
            way[i] = {num, bits, (uint16_t) (port.lid + bits)};
        }
        if (kind == XRC && requester) {
            qp = make_qp(IBV_QPT_XRC_SEND, n.pd, n.cq);
        } else if (kind == XRC) {
            xrcd = make_xrcd(n.ctx);
            srq = make_xrc_srq(n.pd, xrcd, recv_cq);
            qp = make_tgt(xrcd);
        } else {
            srq = make_srq(n.pd);
            qp = make_qp(IBV_QPT_RC, n.pd, requester ? n.cq : recv_cq, srq);
        }
    }
    void join(const Link &link, Kind kind)
    {
        link.put(Hello{{way[0], way[1]}, qp->qp_num, kind == XRC && srq ? srq_num(srq) : 0});
        Hello h = link.get<Hello>();
        for (int i = 0; i < 2; i++)
            way[i].peer_lid = h.way[i].peer_lid;
        peer_srqn = h.srqn;
        need(bring_up_on(qp, way[0], h.qpn) == 0, "to RTS");
        link.meet();
    }
    Report report()
    {
        events.settle();
        ibv_qp_attr a = query(qp);
        Report r = {a.path_mig_state, a.ah_attr.port_num, a.ah_attr.src_path_bits, a.ah_attr.dlid, 0, 0, 0};
        r.migrations = events.count(IBV_EVENT_PATH_MIG, qp);
        r.errors = events.count(IBV_EVENT_PATH_MIG_ERR, qp);
        for (ibv_wc wc = {}; ibv_poll_cq(recv_cq, 1, &wc) == 1; r.delivered++)
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        return r;
    }
};

// The responder: does what it is told.
void respond(const Link &link, Kind kind, Paths paths)
{
    End end(kind, paths, false);
    end.join(link, kind);
    for (char what; (what = link.get<char>()) != 'e';) {
        if (what == '0' || what == '1') {
            need(load(end.qp, end.way[what - '0'], true) == 0, "load and rearm");
        } else if (what == 'm') {
            need(migrate_to(end.qp, IBV_MIG_MIGRATED) == 0, "migrate");
        } else if (what == 'p') {
            need(post_recv(end.srq, 1) == 0, "post_recv");
        }
        link.put(end.report());
    }
}

class ApmHosts : public vt::Test, public ::testing::WithParamInterface<std::tuple<Kind, Paths>>
{
  protected:
    ApmHosts()
        : topology_("VERBS_SHIM_TOPOLOGY", paths() == LMC ? "lmc=1" : "ports=2"),
          h1_(new Setting("VERBS_SHIM_HOST", "h1")), peer_([](const Link &link) { respond(link, kind(), paths()); })
    {
        h1_.reset();
        h0_ = std::make_unique<Setting>("VERBS_SHIM_HOST", "h0");
        end_ = std::make_unique<End>(kind(), paths(), true);
        end_->join(peer_.link(), kind());
    }
    void TearDown() override
    {
        check_fabric();
        peer_.link().put('e');
        EXPECT_EQ(peer_.wait(), 0);
        end_.reset();
        vt::Test::TearDown();
    }
    static Kind kind()
    {
        return std::get<0>(GetParam());
    }
    static Paths paths()
    {
        return std::get<1>(GetParam());
    }
    Report tell(char what) const
    {
        peer_.link().put(what);
        return peer_.link().get<Report>();
    }
    // A message to the responder, and how it ended.
    ibv_wc_status send()
    {
        tell('p');
        Send s(IBV_WR_SEND);
        s.to_srq(end_->peer_srqn);
        return outcome(end_->qp, s);
    }
    // Both ends get the path as alternate, and one message arms both.
    void arm(int path)
    {
        ASSERT_EQ(load(end_->qp, end_->way[path], true), 0);
        ASSERT_EQ(tell((char) ('0' + path)).mig, IBV_MIG_REARM);
        ASSERT_EQ(send(), IBV_WC_SUCCESS);
        Report there = tell('?'), here = end_->report();
        ASSERT_EQ(there.delivered, 1);
        ASSERT_EQ(there.mig, IBV_MIG_ARMED);
        ASSERT_EQ(here.mig, IBV_MIG_ARMED);
    }
    // Both ends use this path now, after that many migrations, each told once.
    void expect_on(int path, int migrations, int delivered = 1)
    {
        Report there = tell('?'), here = end_->report();
        for (const Report *r : {&there, &here}) {
            EXPECT_EQ(r->mig, IBV_MIG_MIGRATED);
            EXPECT_EQ(r->port, end_->way[path].port);
            EXPECT_EQ(r->bits, end_->way[path].bits);
            EXPECT_EQ(r->migrations, migrations);
            EXPECT_EQ(r->errors, 0);
        }
        EXPECT_EQ(here.dlid, end_->way[path].peer_lid);
        EXPECT_EQ(there.delivered, delivered);
    }
    std::string port(const char *host, int path) const
    {
        return std::string(host) + "/vshim0/" + std::to_string(end_->way[path].port);
    }

    Setting topology_;
    std::unique_ptr<Setting> h1_, h0_;
    Child peer_;
    std::unique_ptr<End> end_;
};

class ApmHostsOverPorts : public ApmHosts
{
};

// ---- by the requester, whose packets get lost ----

TEST_P(ApmHostsOverPorts, LinkDownAtEitherEndAndBack)
{
    int migrations = 0, on = 0;
    for (const char *host : {"h0", "h1", "h1", "h0"}) {
        arm(!on);
        order("link down " + port(host, on));
        EXPECT_EQ(send(), IBV_WC_SUCCESS) << host;
        on = !on;
        expect_on(on, ++migrations);
        order("link up " + port(host, !on));
    }
}

// Nobody is told, and the other LIDs of the same port are still reached.
TEST_P(ApmHosts, NoRouteToOneLidOfEitherEndAndBack)
{
    int migrations = 0, on = 0;
    for (const char *host : {"h0", "h1", "h1", "h0"}) {
        arm(!on);
        const std::string lid = port(host, on) + " " + std::to_string(end_->way[on].bits);
        order("route down " + lid);
        EXPECT_EQ(send(), IBV_WC_SUCCESS) << host;
        on = !on;
        expect_on(on, ++migrations);
        order("route up " + lid);
    }
}

TEST_P(ApmHosts, LostPacketsAndLostAnswers)
{
    int migrations = 0, on = 0;
    for (const char *what : {"packet", "ack"}) {
        arm(!on);
        order(std::string("drop ") + what + " times 2"); // as many as there are tries on a path
        EXPECT_EQ(send(), IBV_WC_SUCCESS) << what;
        on = !on;
        expect_on(on, ++migrations);
    }
}

TEST_P(ApmHosts, NotArmedMeansRetryExceeded)
{
    order("drop packet times 2");
    EXPECT_EQ(send(), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(end_->report().migrations, 0);
    EXPECT_EQ(tell('?').migrations, 0);
}

// ---- by software; the other end follows with the next message ----

TEST_P(ApmHosts, SoftwareAtTheRequester)
{
    arm(1);
    ASSERT_EQ(migrate_to(end_->qp, IBV_MIG_MIGRATED), 0);
    EXPECT_EQ(end_->report().migrations, 1);
    Report there = tell('?');
    EXPECT_EQ(there.mig, IBV_MIG_ARMED) << "nothing has come yet";
    EXPECT_EQ(there.migrations, 0);
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    expect_on(1, 1);
}

TEST_P(ApmHosts, SoftwareAtTheResponder)
{
    arm(1);
    EXPECT_EQ(tell('m').migrations, 1);
    EXPECT_EQ(end_->report().mig, IBV_MIG_ARMED);
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    expect_on(1, 1);
    arm(0);
    EXPECT_EQ(tell('m').migrations, 2);
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    expect_on(0, 2);
}

TEST_P(ApmHosts, SoftwareAtBothEnds)
{
    arm(1);
    ASSERT_EQ(migrate_to(end_->qp, IBV_MIG_MIGRATED), 0);
    EXPECT_EQ(tell('m').migrations, 1);
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    expect_on(1, 1);
}

// The responder's alternate leads elsewhere: it refuses to follow, says so, and stays where it is.
TEST_P(ApmHosts, AMigrationThatTheOtherEndCannotFollow)
{
    arm(1);
    ibv_qp_attr a = {};
    a.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(tell('?').errors, 0);
    Way crossed = end_->way[0]; // from the first path's source to the second one's destination
    crossed.peer_lid = end_->way[1].peer_lid;
    set_alternate(&a, crossed);
    ASSERT_EQ(ibv_modify_qp(end_->qp, &a, IBV_QP_STATE | IBV_QP_ALT_PATH), 0) << "not diagnosed when loaded";
    ASSERT_EQ(migrate_to(end_->qp, IBV_MIG_MIGRATED), 0);
    EXPECT_EQ(send(), IBV_WC_RETRY_EXC_ERR);
    Report there = tell('?');
    EXPECT_EQ(there.mig, IBV_MIG_ARMED);
    EXPECT_EQ(there.migrations, 0);
    EXPECT_GE(there.errors, 1);
    EXPECT_EQ(there.delivered, 0);
}

std::string shape_name(const ::testing::TestParamInfo<std::tuple<Kind, Paths>> &info)
{
    return std::string(std::get<0>(info.param) == RC ? "Rc" : "Xrc") + (std::get<1>(info.param) == LMC ? "OverLmc" : "OverPorts");
}

INSTANTIATE_TEST_SUITE_P(All, ApmHosts, ::testing::Combine(::testing::Values(RC, XRC), ::testing::Values(LMC, PORTS)), shape_name);
INSTANTIATE_TEST_SUITE_P(All, ApmHostsOverPorts, ::testing::Combine(::testing::Values(RC, XRC), ::testing::Values(PORTS)), shape_name);

} // namespace
