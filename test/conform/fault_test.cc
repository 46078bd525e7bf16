// Faults to order that are no packets: verbs that fail once and work again, capabilities that are taken away, links, LIDs and P_Keys
// that change under everyone, and the knobs for what kernels and HCAs do differently.
#include "conform/pair.h"
#include "conform/world.h"

namespace
{

using namespace vt;

// ---- verbs that are refused ----

class Refusals : public vt::Test
{
  protected:
    Refusals() : host_("VERBS_SHIM_HOST", "h")
    {
    }
    Setting host_;
};

TEST_F(Refusals, EveryVerbOnceAndThenItWorks)
{
    World w;
    const std::pair<const char *, int> errors[] = {{"ENOMEM", ENOMEM}, {"EAGAIN", EAGAIN}, {"EPERM", EPERM}};
    int refused = 0;
    EXPECT_EQ(w.verbs.size(), 33u) << "as many as can be refused";
    for (auto &[name, call] : w.verbs) {
        ASSERT_EQ(call(), 0) << name << " before";
        std::string before = objects();
        for (auto &[error, number] : errors) {
            order("refuse " + name + " " + error);
            EXPECT_EQ(call(), number) << name;
            EXPECT_EQ(objects(), before) << name << ": something was left behind or lost";
            EXPECT_EQ(call(), 0) << name << " after";
            EXPECT_EQ(objects(), before) << name;
            refused++;
        }
    }
    check_fabric();
    printf("%d refusals\n", refused);
}

TEST_F(Refusals, TheNthCallAndOff)
{
    World w;
    auto &call = w.verbs["alloc_pd"];
    order("refuse alloc_pd ENOSPC nth 3 times 2");
    const int expect[] = {0, 0, ENOSPC, ENOSPC, 0, 0};
    for (int e : expect)
        EXPECT_EQ(call(), e);
    order("refuse alloc_pd nth 2 times 2 every 3");
    for (int e : {0, ENOMEM, 0, 0, ENOMEM, 0, 0, 0, 0})
        EXPECT_EQ(call(), e);
    order("refuse alloc_pd times ever");
    for (int i = 0; i < 5; i++)
        EXPECT_EQ(call(), ENOMEM) << "the default";
    order("refuse alloc_pd off");
    EXPECT_EQ(call(), 0);
    order("refuse alloc_pd times ever");
    order("refuse reg_mr times ever");
    order("clear");
    EXPECT_EQ(call(), 0);
    EXPECT_EQ(w.verbs["reg_mr"](), 0);
}

TEST_F(Refusals, OnOneHostOnly)
{
    Child other([](const Link &link) {
        setenv("VERBS_SHIM_HOST", "g", 1);
        link.get<char>();
        {
            World w;
            link.put('r');
            link.get<char>();
            EXPECT_EQ(w.verbs["alloc_pd"](), ENOMEM);
            EXPECT_EQ(w.verbs["alloc_pd"](), 0);
        }
        link.put('d');
    });
    World w;
    other.link().put('g');
    other.link().get<char>();
    order("refuse alloc_pd on g");
    EXPECT_EQ(w.verbs["alloc_pd"](), 0);
    other.link().put('g');
    other.link().get<char>();
    EXPECT_EQ(w.verbs["alloc_pd"](), 0);
}

TEST_F(Refusals, PostsStopAtTheRefusedOne)
{
    World w;
    ibv_sge sge = w.n.sge(0, 8);
    ibv_send_wr wr[2] = {}, *bad = nullptr;
    wr[0].opcode = wr[1].opcode = IBV_WR_RDMA_WRITE;
    wr[0].next = &wr[1];
    wr[0].sg_list = wr[1].sg_list = &sge;
    wr[0].num_sge = wr[1].num_sge = 1;
    order("refuse post_send EIO");
    EXPECT_EQ(ibv_post_send(w.rc, wr, &bad), EIO);
    EXPECT_EQ(bad, &wr[0]) << "and nothing was posted";
    EXPECT_TRUE(cq_empty(w.n.cq));
    order("refuse post_srq_recv EIO");
    ibv_recv_wr recv = recv_wr(1, &sge, 1), *bad_recv = nullptr;
    EXPECT_EQ(ibv_post_srq_recv(w.srq, &recv, &bad_recv), EIO);
    EXPECT_EQ(bad_recv, &recv);
}

// ---- capabilities ----

class Caps : public Refusals
{
};

TEST_F(Caps, Xrc)
{
    World w;
    order("caps -xrc");
    ibv_device_attr d;
    ASSERT_EQ(ibv_query_device(w.n.ctx, &d), 0);
    EXPECT_FALSE(d.device_cap_flags & IBV_DEVICE_XRC);
    EXPECT_EQ(w.verbs["open_xrcd"](), EOPNOTSUPP);
    ibv_srq_init_attr_ex a = {};
    a.attr.max_wr = a.attr.max_sge = 1;
    a.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    a.srq_type = IBV_SRQT_XRC;
    a.pd = w.n.pd;
    a.xrcd = w.xrcd;
    a.cq = w.n.cq;
    EXPECT_EQ(ibv_create_srq_ex(w.n.ctx, &a), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    auto q = qp_attr(IBV_QPT_XRC_SEND, w.n.pd, w.n.cq);
    EXPECT_EQ(ibv_create_qp_ex(w.n.ctx, &q), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    q = {};
    q.qp_type = IBV_QPT_XRC_RECV;
    q.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    q.xrcd = w.xrcd;
    EXPECT_EQ(ibv_create_qp_ex(w.n.ctx, &q), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(w.verbs["open_qp"](), EOPNOTSUPP);
    EXPECT_EQ(w.verbs["create_qp"](), 0) << "RC is still there";
    order("caps +xrc");
    EXPECT_EQ(w.verbs["open_xrcd"](), 0);
    EXPECT_EQ(w.verbs["open_qp"](), 0);
}

TEST_F(Caps, OpenQp)
{
    World w;
    order("caps -open_qp");
    EXPECT_EQ(w.verbs["open_qp"](), EOPNOTSUPP);
    order("caps +open_qp");
    EXPECT_EQ(w.verbs["open_qp"](), 0);
    order("open-qp off");
    EXPECT_EQ(w.verbs["open_qp"](), EOPNOTSUPP);
    order("open-qp on");
    EXPECT_EQ(w.verbs["open_qp"](), 0);
    Qp tgt = make_tgt(w.xrcd);
    order("caps -open_qp");
    EXPECT_TRUE(make_tgt(w.xrcd)) << "making one's own is another matter";
}

TEST_F(Caps, ModifySrq)
{
    World w;
    order("caps -modify_srq");
    EXPECT_EQ(w.verbs["modify_srq"](), EOPNOTSUPP);
    EXPECT_EQ(w.verbs["query_srq"](), 0);
    order("clear");
    EXPECT_EQ(w.verbs["modify_srq"](), 0);
}

TEST_F(Caps, SrqLimitEvent)
{
    World w;
    nonblocking(w.n.ctx->async_fd);
    ibv_srq_attr a = {};
    a.srq_limit = 2;
    Cq cq = make_cq(w.n.ctx);
    Qp two = make_qp(IBV_QPT_RC, w.n.pd, cq, w.srq), one = make_qp(IBV_QPT_RC, w.n.pd, w.n.cq);
    connect(one, w.n.lid, two, w.n.lid);
    for (int round = 0; round < 2; round++) {
        order(round == 0 ? "caps -srq_limit" : "caps +srq_limit");
        ASSERT_EQ(post_recv(w.srq, 1) | post_recv(w.srq, 2), 0);
        ASSERT_EQ(ibv_modify_srq(w.srq, &a, IBV_SRQ_LIMIT), 0);
        ASSERT_EQ(outcome(one, Send(IBV_WR_SEND)), IBV_WC_SUCCESS);
        EXPECT_EQ(next_wc(cq).opcode, IBV_WC_RECV);
        ibv_async_event e;
        if (round == 1)
            until([&] { return ibv_get_async_event(w.n.ctx, &e) == 0; });
        if (round == 1) {
            EXPECT_EQ(e.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
            ibv_ack_async_event(&e);
        }
        ibv_srq_attr q;
        ASSERT_EQ(ibv_query_srq(w.srq, &q), 0);
        EXPECT_EQ(q.srq_limit, round == 0 ? 2u : 0u) << "the event disarms";
        EXPECT_EQ(outcome(one, Send(IBV_WR_SEND)), IBV_WC_SUCCESS);
        EXPECT_EQ(next_wc(cq).opcode, IBV_WC_RECV);
        EXPECT_FALSE(readable(w.n.ctx->async_fd) && round == 1) << "one event for one arming";
    }
}

// ---- what happens to ports ----

struct PortEvents {
    int number[2][4]; // context, kind
};

constexpr ibv_event_type kinds[4] = {IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE};

// A process with contexts on both HCAs of its host, three of them on the first, which counts their port events when asked.
void watcher(const Link &link, const char *host)
{
    setenv("VERBS_SHIM_HOST", host, 1);
    Context c[4] = {open_device(0), open_device(0), open_device(0), open_device(1)};
    Node mark0(4096, all_access, 0), mark1(4096, all_access, 1);
    link.put('r');
    while (link.get<char>() == 'n') {
        int n[4][4] = {};
        for (int i = 0; i < 4; i++)
            nonblocking(c[i]->async_fd);
        // An event of the process's own, after which all earlier ones have been delivered.
        Srq srq = make_srq(mark0.pd);
        Qp qp = make_qp(IBV_QPT_RC, mark0.pd, mark0.cq, srq);
        need(to_init(qp) == 0 && to_state(qp, IBV_QPS_ERR) == 0, "mark");
        while (ack_next(mark0.ctx) != IBV_EVENT_QP_LAST_WQE_REACHED) {
        }
        for (int i = 0; i < 4; i++) {
            ibv_async_event e;
            while (ibv_get_async_event(c[i], &e) == 0) {
                for (int k = 0; k < 4; k++)
                    n[i][k] += e.event_type == kinds[k] && e.element.port_num == 1;
                ibv_ack_async_event(&e);
            }
        }
        for (int i = 1; i < 3; i++)
            EXPECT_EQ(memcmp(n[i], n[0], sizeof(n[0])), 0) << "every context of the HCA alike";
        PortEvents answer;
        memcpy(answer.number[0], n[0], sizeof(n[0]));
        memcpy(answer.number[1], n[3], sizeof(n[3]));
        link.put(answer);
    }
}

TEST(Ports, EventsGoToEveryContextOfTheHcaAndOnlyThere)
{
    Setting topology("VERBS_SHIM_TOPOLOGY", "devices=2");
    struct Who {
        const char *host;
        std::unique_ptr<Child> child;
    } who[3] = {{"a", nullptr}, {"a", nullptr}, {"b", nullptr}};
    for (auto &w : who) {
        const char *host = w.host;
        w.child.reset(new Child([host](const Link &link) { watcher(link, host); }));
    }
    for (auto &w : who)
        ASSERT_EQ(w.child->link().get<char>(), 'r');
    struct Step {
        const char *order;
        int kind, hca, on_a, on_b;
    };
    const Step steps[] = {
        {"link down a/vshim0/1", 0, 0, 1, 0}, {"link down a/vshim0/1", 0, 0, 0, 0}, // is down already
        {"link up a/vshim0", 1, 0, 1, 0},     {"link down a/vshim1", 0, 1, 1, 0},   {"link up a", 1, 1, 1, 0},
        {"lmc b/vshim0/1 2", 2, 0, 0, 1},     {"pkey a/vshim1/1 1 0x8001", 3, 1, 1, 0}, {"link down b", 0, 0, 0, 1},
        {"link up all", 1, 0, 0, 1},          {"flap a/vshim0/1 3 0", 0, 0, 3, 0},
        {"port a/vshim0/1 init", 0, 0, 1, 0}, {"port a/vshim0/1 armed", 0, 0, 0, 0}, // was none already
        {"port a/vshim0/1 down", 0, 0, 0, 0}, {"port a/vshim0/1 active", 1, 0, 1, 0}, {"port a/vshim0 active", 1, 0, 0, 0},
        {"flap a/vshim0/1 --every 2 --for 7", 0, 0, 3, 0},
    };
    for (const Step &s : steps) {
        order(s.order);
        for (auto &w : who) {
            w.child->link().put('n');
            PortEvents e = w.child->link().get<PortEvents>();
            EXPECT_EQ(e.number[s.hca][s.kind], w.host[0] == 'a' ? s.on_a : s.on_b) << s.order << ", host " << w.host;
            if (strchr(s.order, '/')) {
                EXPECT_EQ(e.number[1 - s.hca][s.kind], 0) << s.order << ", host " << w.host << ", the other HCA";
            }
        }
    }
    check_fabric();
    for (auto &w : who)
        w.child->link().put('q');
}

TEST(Ports, WhatQueriesSayAndTrafficDoes)
{
    Setting host("VERBS_SHIM_HOST", "h");
    World w;
    ibv_port_attr a;
    auto write = [&] { return outcome(w.rc, Send(IBV_WR_RDMA_WRITE, {w.n.sge(0, 8)}).at(w.n.addr(64), w.n.mr->rkey)); };
    auto reconnect = [&](uint16_t lid) {
        ASSERT_EQ(to_state(w.rc, IBV_QPS_RESET) | to_state(w.spare, IBV_QPS_RESET), 0);
        connect(w.rc, lid, w.spare, lid);
    };
    EXPECT_EQ(write(), IBV_WC_SUCCESS);
    order("link down h/vshim0/1");
    ASSERT_EQ(ibv_query_port(w.n.ctx, 1, &a), 0);
    EXPECT_EQ(a.state, IBV_PORT_DOWN);
    EXPECT_EQ(write(), IBV_WC_RETRY_EXC_ERR);
    order("link up h/vshim0/1");
    ASSERT_EQ(ibv_query_port(w.n.ctx, 1, &a), 0);
    EXPECT_EQ(a.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(a.lid, w.n.lid) << "the LID stays";
    reconnect(w.n.lid);
    EXPECT_EQ(write(), IBV_WC_SUCCESS);
    for (auto [name, state, lid] : {std::tuple{"down", IBV_PORT_DOWN, 0}, {"init", IBV_PORT_INIT, 0}, {"armed", IBV_PORT_ARMED, 1},
                                    {"active", IBV_PORT_ACTIVE, 1}}) {
        order(std::string("port h/vshim0/1 ") + name);
        ASSERT_EQ(ibv_query_port(w.n.ctx, 1, &a), 0);
        EXPECT_EQ(a.state, state);
        EXPECT_EQ(a.phys_state, state == IBV_PORT_DOWN ? 3 : 5) << "Disabled or LinkUp";
        EXPECT_EQ(a.lid, lid ? w.n.lid : 0);
        reconnect(w.n.lid);
        EXPECT_EQ(write(), state == IBV_PORT_ACTIVE ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR) << name;
    }
    order("lmc h/vshim0/1 2");
    ASSERT_EQ(ibv_query_port(w.n.ctx, 1, &a), 0);
    EXPECT_EQ(a.lmc, 2);
    EXPECT_EQ(a.lid % 4, 0);
    EXPECT_NE(a.lid, w.n.lid);
    EXPECT_EQ(write(), IBV_WC_RETRY_EXC_ERR) << "the old LID is nobody's";
    reconnect(a.lid);
    EXPECT_EQ(write(), IBV_WC_SUCCESS);
    __be16 key;
    order("pkey h/vshim0/1 3 0x8123");
    ASSERT_EQ(ibv_query_pkey(w.n.ctx, 1, 3, &key), 0);
    EXPECT_EQ(be16toh(key), 0x8123);
    EXPECT_EQ(ibv_get_pkey_index(w.n.ctx, 1, htobe16(0x8123)), 3);
    order("pkey h/vshim0/1 0 0x7fff"); // a limited member, and so is the other end
    EXPECT_EQ(write(), IBV_WC_RETRY_EXC_ERR) << "two limited members may not talk";
    order("pkey h/vshim0/1 0 0xffff");
    reconnect(a.lid);
    EXPECT_EQ(write(), IBV_WC_SUCCESS);
}

// ---- knobs ----

class Knobs : public Refusals
{
};

// However the last process with a handle ends, or if it only closes the device.
TEST_F(Knobs, TgtExit)
{
    enum End { KILLED, EXIT, CLOSE };
    for (const char *value : {"destroy", "orphan"})
        for (End end : {KILLED, EXIT, CLOSE}) {
            TempFile file;
            int fd = file.fd();
            Child maker([fd, end](const Link &link) {
                Address ini = link.get<Address>();
                Context c = open_device();
                Xrcd x = make_xrcd(c, fd);
                Qp tgt = make_tgt(x);
                Path p;
                p.lid = ini.lid;
                p.qpn = ini.qpn;
                bring_up(tgt, p);
                link.put(tgt->qp_num);
                link.get<char>();
                if (end == CLOSE) {
                    EXPECT_EQ(c.destroy(), 0);
                    link.meet();
                    link.get<char>();
                }
                _exit(0); // holding everything
            });
            bool lives = std::string(value) == "orphan";
            Node n;
            Qp ini = make_qp(IBV_QPT_XRC_SEND, n.pd, n.cq);
            order(std::string("set tgt_exit=") + value);
            maker.link().put(Address{n.lid, ini->qp_num, 0, 0, 0});
            Path p;
            p.lid = n.lid;
            p.qpn = maker.link().get<uint32_t>();
            p.rnr = 0;
            if (end == KILLED)
                maker.kill();
            else
                maker.link().put('e');
            if (end == EXIT) {
                EXPECT_EQ(maker.wait(), 0);
            }
            if (end == CLOSE)
                maker.link().meet();
            check_fabric();
            bring_up(ini, p);
            Xrcd x(try_open_xrcd(n.ctx, fd, 0));
            EXPECT_EQ((bool)x, lives) << "the domain stays listed as long as the QP";
            if (lives) {
                Srq srq = make_xrc_srq(n.pd, x, n.cq);
                ASSERT_EQ(post_recv(srq, 5, {n.sge(0, 8)}), 0);
                Send s(IBV_WR_SEND, {n.sge(64, 8)});
                ASSERT_EQ(s.to_srq(srq_num(srq)).post(ini), 0);
                for (int i = 0; i < 2; i++)
                    EXPECT_EQ(next_wc(n.cq).status, IBV_WC_SUCCESS) << "it goes on receiving";
                {
                    Qp tgt = open_tgt(x, p.qpn);
                    EXPECT_TRUE(tgt) << "without a handle anywhere, it can still be opened";
                    EXPECT_EQ(ibv_close_xrcd(x), EBUSY);
                    check_fabric();
                } // destroying the last handle explicitly destroys it, in all kernels
                EXPECT_FALSE(open_tgt(x, p.qpn));
            } else {
                EXPECT_EQ(outcome(ini, Send(IBV_WR_SEND)), IBV_WC_RETRY_EXC_ERR);
            }
            if (end == CLOSE) {
                maker.link().put('x');
                EXPECT_EQ(maker.wait(), 0);
            }
            check_fabric();
        }
}

// From the environment of the process that makes the segment.
TEST_F(Knobs, OrphansAreReclaimed)
{
    TempFile file;
    int fd = file.fd();
    Setting knobs("VERBS_SHIM_KNOBS", "tgt_exit=orphan,bad_srqn=nak1");
    Child maker([fd](const Link &link) {
        link.get<char>();
        Context c = open_device();
        Xrcd x = make_xrcd(c, fd);
        Qp tgt = make_tgt(x);
        link.put(tgt->qp_num);
        pause();
    });
    Node n;
    maker.link().put('g');
    uint32_t qpn = maker.link().get<uint32_t>();
    maker.kill();
    check_fabric();
    EXPECT_NE(objects().find("host h: 1 TGT QP"), std::string::npos) << objects();
    {
        Xrcd x = make_xrcd(n.ctx, fd, 0);
        order("reclaim");
        EXPECT_FALSE(open_tgt(x, qpn));
        check_fabric();
    }
    EXPECT_EQ(try_open_xrcd(n.ctx, fd, 0), nullptr);
    EXPECT_EQ(errno, EAGAIN) << "the domain went with its last user";
    EXPECT_NE(objects().find("host h: 0 TGT QP"), std::string::npos) << objects();
}

// Where TGT QPs go with their last handle there are none without: those that the other mode kept go when the knob is turned back.
TEST_F(Knobs, TurnedBackNoOrphanStays)
{
    TempFile file;
    int fd = file.fd();
    Child maker([fd](const Link &link) {
        link.get<char>();
        Context c = open_device();
        Xrcd x = make_xrcd(c, fd);
        Qp one = make_tgt(x), two = make_tgt(x);
        link.put(one->qp_num);
        link.put(two->qp_num);
        pause();
    });
    Node n;
    order("set tgt_exit=orphan");
    maker.link().put('g');
    auto one = maker.link().get<uint32_t>(), two = maker.link().get<uint32_t>();
    maker.kill();
    Xrcd x = make_xrcd(n.ctx, fd, 0);
    Qp held = open_tgt(x, one);
    ASSERT_TRUE(held);
    order("set bad_srqn=nak4");
    EXPECT_NE(objects().find("host h: 2 TGT QP"), std::string::npos) << "another knob does not matter: " << objects();
    order("set tgt_exit=destroy");
    EXPECT_NE(objects().find("host h: 1 TGT QP"), std::string::npos) << "the one that is held: " << objects();
    EXPECT_FALSE(open_tgt(x, two));
    EXPECT_EQ(state_of(held), IBV_QPS_RESET);
    check_fabric();
    EXPECT_EQ(held.destroy(), 0);
    EXPECT_FALSE(open_tgt(x, one));
    EXPECT_EQ(x.destroy(), 0);
    EXPECT_EQ(try_open_xrcd(n.ctx, fd, 0), nullptr);
}

TEST_F(Knobs, UnreadableOnesLetNobodyIn)
{
    Setting knobs("VERBS_SHIM_KNOBS", "tgt_exit=maybe");
    int n = 0;
    ibv_device **list = ibv_get_device_list(&n);
    EXPECT_TRUE(list == nullptr || n == 0);
    if (list)
        ibv_free_device_list(list);
}

TEST_F(Knobs, BadSrqn)
{
    struct Row {
        const char *value;
        ibv_wc_status status;
        ibv_event_type event;
    };
    const Row rows[] = {{"nak4", IBV_WC_REM_INV_RD_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR},
                        {"nak2", IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
                        {"nak1", IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
                        {"drop", IBV_WC_RETRY_EXC_ERR, IBV_EVENT_COMM_EST}};
    Node n;
    Xrcd other = make_xrcd(n.ctx);
    Srq foreign = make_xrc_srq(n.pd, other, n.cq), basic = make_srq(n.pd);
    long unknown = 0;
    for (const Row &row : rows) {
        order(std::string("set bad_srqn=") + row.value);
        for (int which = 0; which < 3; which++) {
            XrcPair p(n, n);
            uint32_t srqn = which == 0 ? 0xabcdef : which == 1 ? srq_num(foreign) : p.srqn;
            if (which == 2) {
                EXPECT_EQ(p.srq.destroy(), 0);
            }
            EXPECT_EQ(outcome(p.ini, Send(IBV_WR_SEND).to_srq(srqn)), row.status) << row.value << " " << which;
            bool dropped = row.status == IBV_WC_RETRY_EXC_ERR;
            EXPECT_EQ(state_of(p.tgt), dropped ? IBV_QPS_RTS : IBV_QPS_ERR);
            int tries = dropped ? 2 : 1; // retry_cnt is 1
            EXPECT_EQ(qp_counter(p.tgt->qp_num, "unknown_srqn"), tries);
            EXPECT_EQ(qp_counter(p.tgt->qp_num, "naks_sent"), dropped ? 0 : 1);
            unknown += tries;
            if (!dropped) {
                EXPECT_EQ(ack_next(n.ctx), row.event);
                EXPECT_EQ(ack_next(n.ctx), IBV_EVENT_QP_LAST_WQE_REACHED);
            }
        }
    }
    EXPECT_EQ(counter_of("h/vshim0/1", "unknown_srqn"), unknown);
    check_fabric();
}

// What a receive from an INI says of its source: the INI, or the SRQ that took it; in error, too.
std::string source_over_xrc(const Node &n, bool too_long = false)
{
    XrcPair p(n, n);
    EXPECT_EQ(post_recv(p.srq, 1, {n.sge(8192, too_long ? 4 : 64)}), 0);
    EXPECT_EQ(outcome(p.ini, Send(IBV_WR_SEND, {n.sge(0, 8)}).to_srq(p.srqn)), too_long ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS);
    ibv_wc wc = next_wc(p.srq_cq);
    EXPECT_EQ(wc.status, too_long ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS);
    EXPECT_EQ(wc.qp_num, p.tgt->qp_num);
    return wc.src_qp == p.ini->qp_num ? "mlx5" : wc.src_qp == p.srqn ? "mlx4" : "neither";
}

// Receives from other QPs say what they always do.
TEST_F(Knobs, SrcQp)
{
    Node n;
    EXPECT_EQ(source_over_xrc(n), "mlx5") << "the default";
    for (const char *value : {"mlx4", "mlx5"}) {
        order(std::string("set src_qp=") + value);
        EXPECT_EQ(source_over_xrc(n), value);
        EXPECT_EQ(source_over_xrc(n, true), value);
        Cq cq = make_cq(n.ctx);
        for (ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
            Qp one = make_qp(type, n.pd, n.cq), two = make_qp(type, n.pd, cq);
            connect(one, n.lid, two, n.lid);
            ASSERT_EQ(post_recv(two, 1), 0);
            EXPECT_EQ(outcome(one, Send()), IBV_WC_SUCCESS);
            EXPECT_EQ(next_wc(cq).src_qp, one->qp_num) << type;
        }
    }
}

TEST_F(Knobs, SrcQpFromTheEnvironment)
{
    Setting knobs("VERBS_SHIM_KNOBS", "src_qp=mlx4");
    EXPECT_EQ(source_over_xrc(Node()), "mlx4");
}

// An error of a shared TGT QP, told to every holder or to its creator alone.
TEST_F(Knobs, TgtEvents)
{
    for (const char *value : {"all", "creator"}) {
        Context opener = open_device(), maker = open_device();
        nonblocking(opener->async_fd);
        Node n;
        order(std::string("set tgt_events=") + value);
        TempFile file;
        Xrcd made_in = make_xrcd(maker, file.fd()), opened_in = make_xrcd(opener, file.fd());
        Srq srq = make_xrc_srq(n.pd, made_in, n.cq);
        Qp tgt = make_tgt(made_in), handle = open_tgt(opened_in, tgt->qp_num), ini = make_qp(IBV_QPT_XRC_SEND, n.pd, n.cq);
        ASSERT_TRUE(handle);
        connect(ini, n.lid, tgt, n.lid);
        EXPECT_EQ(outcome(ini, Send(IBV_WR_SEND).to_srq(1)), IBV_WC_REM_INV_RD_REQ_ERR);
        EXPECT_EQ(ack_next(maker), IBV_EVENT_QP_ACCESS_ERR);
        EXPECT_EQ(ack_next(maker), IBV_EVENT_QP_LAST_WQE_REACHED);
        // Events of one raising are sent handle by handle: a later one of the opener's own tells that all are here.
        Pd pd(ibv_alloc_pd(opener));
        Cq cq = make_cq(opener);
        Srq own = make_srq(pd);
        Qp mark = make_qp(IBV_QPT_RC, pd, cq, own);
        ASSERT_EQ(to_init(mark) | to_state(mark, IBV_QPS_ERR), 0);
        int seen = 0;
        for (bool marked = false; !marked;) {
            ibv_async_event e;
            until([&] { return ibv_get_async_event(opener, &e) == 0; });
            seen += e.element.qp == (ibv_qp *)handle;
            marked = e.element.qp == (ibv_qp *)mark;
            ibv_ack_async_event(&e);
        }
        EXPECT_EQ(seen, std::string(value) == "all" ? 2 : 0) << value;
    }
}

} // namespace
