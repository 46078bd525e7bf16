// What a process that moves somebody's QP or queue has to tell comes exactly once to everybody concerned, wherever it is killed; so does
// what whoever clears it away tells in its place, who may be killed as well. And others find a path that it was loading as it was, or as
// it becomes.
#define VS_CRASH_POINTS
#include "memory/point.h"

#include "conform/apm.h"
#include "conform/peer.h"

extern "C" {
#include "memory/process.h"
}

#include <ostream>

namespace
{

using namespace vt;

struct Counts {
    int migrated, established, refused, last_wqe, limit, overrun;

    bool operator==(const Counts &o) const
    {
        return memcmp(this, &o, sizeof(o)) == 0;
    }
};

std::ostream &operator<<(std::ostream &to, const Counts &c)
{
    return to << "PATH_MIG " << c.migrated << " COMM_EST " << c.established << " QP_ACCESS_ERR " << c.refused
              << " LAST_WQE " << c.last_wqe << " SRQ_LIMIT " << c.limit << " CQ_ERR " << c.overrun;
}

Counts counted(Events &events, ibv_qp *tgt)
{
    events.settle();
    return {events.count(IBV_EVENT_PATH_MIG, tgt),      events.count(IBV_EVENT_COMM_EST, tgt),
            events.count(IBV_EVENT_QP_ACCESS_ERR, tgt), events.count(IBV_EVENT_QP_LAST_WQE_REACHED, tgt),
            events.all(IBV_EVENT_SRQ_LIMIT_REACHED),    events.all(IBV_EVENT_CQ_ERR)};
}

struct Alternate {
    uint16_t lid, pkey_index;
    uint8_t bits, timeout;
    ibv_mig_state state;
};

bool operator==(const Alternate &a, const Alternate &b)
{
    return a.lid == b.lid && a.pkey_index == b.pkey_index && a.bits == b.bits && a.timeout == b.timeout
           && a.state == b.state;
}

Alternate alternate_of(ibv_qp *qp)
{
    ibv_qp_attr a = query(qp);
    return {a.alt_ah_attr.dlid, a.alt_pkey_index, a.alt_ah_attr.src_path_bits, a.alt_timeout, a.path_mig_state};
}

// Path number i of the one port, with everything different from the others'.
int load_path(ibv_qp *qp, uint16_t lid, uint8_t i)
{
    ibv_qp_attr a = {};
    a.qp_state = IBV_QPS_RTS;
    a.path_mig_state = IBV_MIG_REARM;
    set_alternate(&a, {1, i, (uint16_t) (lid + i)}, (uint8_t) (8 + i));
    return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
}

void answer_questions(const Link &link, Events &events, ibv_qp *tgt)
{
    for (char what; (what = link.get<char>()) != 'q';) {
        if (what == 'n')
            link.put(counted(events, tgt));
        else if (what == 'l')
            link.put(load_path(tgt, link.get<uint16_t>(), 2));
        else
            link.put(alternate_of(tgt));
    }
}

// Makes the TGT, and has the SRQ that the victim sends to.
void creator(const Link &link, int fd, bool up, int entries)
{
    alarm(60);
    Node n;
    Xrcd x = make_xrcd(n.ctx, fd);
    Cq cq = make_cq(n.ctx, entries);
    Srq srq = make_xrc_srq(n.pd, x, cq);
    Qp tgt = make_tgt(x);
    Events events(n);
    for (uint64_t i = 0; i < 8; i++)
        need(post_recv(srq, i) == 0, "ibv_post_srq_recv");
    ibv_srq_attr limit = {};
    limit.srq_limit = 8;
    link.put(Address{n.lid, tgt->qp_num, srq_num(srq), n.mr->rkey, n.addr()});
    Path p;
    p.lid = n.lid;
    p.qpn = link.get<uint32_t>();
    need(to_init(tgt, p) == 0 && to_rtr(tgt, p) == 0, "to RTR");
    if (up)
        need(to_rts(tgt, p) == 0 && load_path(tgt, n.lid, 1) == 0, "to RTS");
    link.put('r');
    if (link.get<char>() == 'l')
        need(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0, "ibv_modify_srq");
    link.put('l');
    answer_questions(link, events, tgt);
}

void opener(const Link &link, int fd)
{
    alarm(60);
    Node n;
    Xrcd x = make_xrcd(n.ctx, fd);
    Qp tgt = open_tgt(x, link.get<uint32_t>());
    need(tgt, "ibv_open_qp");
    Events events(n);
    link.put('r');
    answer_questions(link, events, tgt);
}

struct Victim {
    Node n;
    Xrcd x;
    Qp ini, tgt;
    Address peer;

    void send()
    {
        outcome(ini, Send(IBV_WR_SEND).to_srq(peer.srqn));
    }
};

// What the victim does up to where it is killed, and what of it.
struct Deed {
    const char *name;
    void (*prepare)(Victim &v);
    void (*act)(Victim &v);
    Counts creator, opener;
    bool up = true;   // the TGT is in RTS, and an alternate path is loaded
    int entries = 64; // of the CQ
    bool limited = false;
};

void nothing(Victim &)
{
}

void arm(Victim &v)
{
    need(load_path(v.ini, v.peer.lid, 1) == 0, "load");
    v.send();
    need(mig_of(v.ini) == IBV_MIG_ARMED && mig_of(v.tgt) == IBV_MIG_ARMED, "armed");
}

void arm_and_migrate(Victim &v)
{
    arm(v);
    need(migrate_to(v.ini, IBV_MIG_MIGRATED) == 0, "migrate");
}

void send_one(Victim &v)
{
    v.send();
}

const Deed deeds[] = {
    {"migration", arm_and_migrate, send_one, {1, 0, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 0}},
    {"software_migration",
     arm,
     [](Victim &v) { migrate_to(v.tgt, IBV_MIG_MIGRATED); },
     {1, 0, 0, 0, 0, 0},
     {1, 0, 0, 0, 0, 0}},
    {"first_packet", nothing, send_one, {0, 1, 0, 0, 0, 0}, {0, 1, 0, 0, 0, 0}, false},
    {"refusal",
     nothing,
     [](Victim &v) {
         Send(IBV_WR_RDMA_WRITE, {v.n.sge(0, 8)}).to_srq(v.peer.srqn).at(v.peer.addr, v.peer.rkey + 1).post(v.ini);
     },
     {0, 0, 1, 1, 0, 0},
     {0, 0, 1, 1, 0, 0}},
    {"stop", nothing, [](Victim &v) { to_state(v.tgt, IBV_QPS_ERR); }, {0, 0, 0, 1, 0, 0}, {0, 0, 0, 1, 0, 0}},
    {"limit", nothing, send_one, {0, 0, 0, 0, 1, 0}, {0, 0, 0, 0, 0, 0}, true, 64, true},
    {"overrun",
     nothing,
     [](Victim &v) {
         for (int i = 0; i < 4; i++)
             v.send();
     },
     {0, 0, 0, 0, 0, 1},
     {0, 0, 0, 0, 0, 0},
     true,
     1},
};

enum { MIGRATION, SOFTWARE, FIRST, REFUSAL, STOP, LIMIT, OVERRUN };

struct Case {
    int deed;
    const char *point, *times;
};

const Case cases[] = {
    {MIGRATION, "path_migrated", "1"}, {MIGRATION, "ring_claimed", "1"},   {MIGRATION, "event_pushed", "1"},
    {MIGRATION, "event_pushed", "2"},  {MIGRATION, "migration_told", "1"}, {SOFTWARE, "path_migrated", "1"},
    {SOFTWARE, "event_pushed", "1"},   {SOFTWARE, "event_pushed", "2"},    {SOFTWARE, "migration_told", "1"},
    {FIRST, "established", "1"},       {FIRST, "event_pushed", "1"},       {FIRST, "event_pushed", "2"},
    {FIRST, "owed_told", "1"},         {REFUSAL, "qp_failed", "1"},        {REFUSAL, "event_pushed", "1"},
    {REFUSAL, "event_pushed", "4"},    {REFUSAL, "owed_told", "1"},        {STOP, "qp_stopped", "1"},
    {STOP, "event_pushed", "1"},       {STOP, "owed_told", "1"},           {LIMIT, "limit_reached", "1"},
    {LIMIT, "event_pushed", "1"},      {LIMIT, "limit_told", "1"},         {OVERRUN, "cq_overrun", "1"},
    {OVERRUN, "event_pushed", "1"},    {OVERRUN, "overrun_told", "1"},
};

// Joins, which clears away the dead; perhaps not to the end.
void look_for_the_dead(const std::string &stopped_at)
{
    Child next([&](const Link &) {
        vs_point_stop_at(stopped_at.empty() ? nullptr : stopped_at.c_str());
        Context c = open_device();
    });
    next.wait();
}

// Two that hold a TGT, and a third that sends to it and has a handle of its own.
class Told : public Test
{
  protected:
    Told() : topology_("VERBS_SHIM_TOPOLOGY", "lmc=2")
    {
    }
    ~Told() override
    {
        vs_patience_ns = patience_;
    }
    void start(const Deed &deed, const std::string &stop)
    {
        int fd = file_.fd();
        bool up = deed.up;
        creator_.reset(new Child([=](const Link &link) { creator(link, fd, up, deed.entries); }));
        Address a = creator_->link().get<Address>();
        opener_.reset(new Child([=](const Link &link) { opener(link, fd); }));
        opener_->link().put(a.qpn);
        ASSERT_EQ(opener_->link().get<char>(), 'r');
        victim_.reset(new Child([&deed, fd, a, stop](const Link &link) { be_victim(link, fd, a, deed, stop); }));
        creator_->link().put(victim_->link().get<uint32_t>());
        ASSERT_EQ(creator_->link().get<char>(), 'r');
        victim_->link().put('g');
        ASSERT_EQ(victim_->link().get<char>(), 'p');
        creator_->link().put(deed.limited ? 'l' : '-');
        ASSERT_EQ(creator_->link().get<char>(), 'l');
        lid_ = a.lid;
        victim_->link().put('g');
    }
    void start_and_lose(const Deed &deed, const std::string &stop)
    {
        start(deed, stop);
        if (HasFatalFailure())
            return;
        EXPECT_EQ(victim_->wait(), 256 + SIGKILL);
    }
    template <class T> T ask(const std::unique_ptr<Child> &who, char what)
    {
        who->link().put(what);
        return who->link().get<T>();
    }
    void end()
    {
        for (auto *c : {&creator_, &opener_}) {
            (*c)->link().put('q');
            EXPECT_EQ((*c)->wait(), 0);
        }
    }
    static void be_victim(const Link &link, int fd, const Address &a, const Deed &deed, const std::string &stop)
    {
        Victim v;
        v.x = make_xrcd(v.n.ctx, fd);
        v.ini = make_qp(IBV_QPT_XRC_SEND, v.n.pd, v.n.cq);
        v.tgt = open_tgt(v.x, a.qpn);
        v.peer = a;
        link.put(v.ini->qp_num);
        link.get<char>();
        Path p;
        p.lid = a.lid;
        p.qpn = a.qpn;
        bring_up(v.ini, p);
        deed.prepare(v);
        link.put('p');
        link.get<char>();
        vs_point_stop_at(stop.c_str());
        deed.act(v);
    }

    const uint64_t patience_ = vs_patience_ns;
    Setting topology_;
    TempFile file_;
    std::unique_ptr<Child> creator_, opener_, victim_;
    uint16_t lid_ = 0;
};

class ToldOnce : public Told, public ::testing::WithParamInterface<std::tuple<Case, bool>>
{
};

TEST_P(ToldOnce, WhereverItsTellerIsKilled)
{
    auto [c, reaper_dies] = GetParam();
    const Deed &deed = deeds[c.deed];
    start_and_lose(deed, std::string(c.point) + ":" + c.times);
    if (HasFatalFailure())
        return;
    if (reaper_dies)
        look_for_the_dead("event_pushed"); // unless another was faster
    look_for_the_dead("");
    EXPECT_EQ(ask<Counts>(creator_, 'n'), deed.creator);
    EXPECT_EQ(ask<Counts>(opener_, 'n'), deed.opener);
    end();
}

INSTANTIATE_TEST_SUITE_P(All, ToldOnce, ::testing::Combine(::testing::ValuesIn(cases), ::testing::Bool()),
                         [](const auto &info) {
                             const Case &c = std::get<0>(info.param);
                             return std::string(deeds[c.deed].name) + "_" + c.point + "_" + c.times
                                    + (std::get<1>(info.param) ? "_and_the_reaper" : "");
                         });

void stand_still(vs_point point)
{
    if (point == VS_POINT_path_migrated)
        raise(SIGSTOP);
}

// The next change of the paths cannot wait for it, nor know whether it lives; when it goes on, all has been told.
TEST_F(Told, OfAMigrationByTheNextChangeIfItsTellerStandsStill)
{
    vs_patience_ns = 1000000; // of everybody here: what they count events by waits for all who are inside the data path
    Deed migration = deeds[MIGRATION];
    migration.act = [](Victim &v) {
        vs_point_hook = stand_still;
        v.send();
    };
    start(migration, "");
    if (HasFatalFailure())
        return;
    siginfo_t info = {};
    ASSERT_EQ(waitid(P_PID, (id_t) victim_->pid(), &info, WSTOPPED | WEXITED | WNOWAIT), 0);
    ASSERT_EQ(info.si_status, SIGSTOP);
    EXPECT_EQ(ask<Counts>(creator_, 'n'), Counts({0, 0, 0, 0, 0, 0}));
    creator_->link().put('l');
    creator_->link().put(lid_);
    EXPECT_EQ(creator_->link().get<int>(), 0);
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(ask<Counts>(creator_, 'n'), migration.creator);
        EXPECT_EQ(ask<Counts>(opener_, 'n'), migration.opener);
        if (i == 0) {
            kill(victim_->pid(), SIGCONT);
            EXPECT_EQ(victim_->wait(), 0);
        }
    }
    end();
}

// One after the other on a QP that three hold; path 1 is loaded.
TEST_F(Told, APathThatWasBeingLoadedIsTheOldOneOrTheNewOne)
{
    const Deed loads = {"load", nothing, [](Victim &v) { load_path(v.tgt, v.peer.lid, 2); }, {}, {}};
    for (const char *point : {"path_begun", "path_written", "qp_moved"}) {
        SCOPED_TRACE(point);
        uint8_t i = std::string(point) == "qp_moved" ? 2 : 1;
        start_and_lose(loads, point);
        if (HasFatalFailure())
            return;
        look_for_the_dead("");
        Alternate expected = {(uint16_t) (lid_ + i), 0, i, (uint8_t) (8 + i), IBV_MIG_REARM};
        EXPECT_EQ(ask<Alternate>(creator_, 'a'), expected);
        EXPECT_EQ(ask<Alternate>(opener_, 'a'), expected);
        end();
    }
}

} // namespace
