// HCAs that go away under running processes, and come back: who is told, what verbs say, what becomes of traffic, what stays as it is.
#include "conform/pair.h"
#include "conform/peer.h"
#include "conform/world.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

namespace
{

using namespace vt;

// Two HCAs on this host; the first one goes. Destroy verbs of lost objects succeed, but for tests that want them not to.
class Unplug : public vt::Test
{
  protected:
    Unplug()
        : host_("VERBS_SHIM_HOST", "h"), topology_("VERBS_SHIM_TOPOLOGY", "devices=2"),
          destroy_("RDMAV_ALLOW_DISASSOC_DESTROY", "1")
    {
    }
    Setting host_, topology_, destroy_;
};

// The context is told, once, and then there are no events any more.
void expect_lost(ibv_context *c)
{
    ibv_async_event e = next_event(c);
    EXPECT_EQ(e.event_type, IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&e);
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(ibv_get_async_event(c, &e), -1);
        EXPECT_EQ(errno, EIO);
        EXPECT_TRUE(readable(c->async_fd));
    }
}

void expect_no_event(ibv_context *c)
{
    EXPECT_FALSE(readable(c->async_fd));
}

void unplug(const Node &n)
{
    order("unplug h/vshim0");
    expect_lost(n.ctx);
}

void expect_silence(ibv_cq *cq)
{
    for (int i = 0; i < 1000; i++)
        ASSERT_TRUE(cq_empty(cq));
}

Send write_to(const Node &from, const Node &to)
{
    return Send(IBV_WR_RDMA_WRITE, {from.sge(0, 8)}).at(to.addr(64), to.mr->rkey);
}

std::vector<std::string> devices()
{
    int n;
    ibv_device **list = ibv_get_device_list(&n);
    need(list != nullptr, "ibv_get_device_list");
    std::vector<std::string> names;
    for (int i = 0; i < n; i++)
        names.push_back(ibv_get_device_name(list[i]));
    EXPECT_EQ(list[n], nullptr);
    ibv_free_device_list(list);
    return names;
}

using Names = std::vector<std::string>;

// ---- who is told ----

TEST_F(Unplug, EveryContextOfItIsToldAndNoOther)
{
    Context first = open_device(0), second = open_device(0), other = open_device(1);
    order("unplug h/vshim0");
    expect_lost(first);
    expect_lost(second);
    expect_no_event(other);
    order("unplug h/vshim0"); // is gone already
    EXPECT_EQ(devices(), Names{"vshim1"});
    Context later = open_device(0);
    EXPECT_STREQ(ibv_get_device_name(later->device), "vshim1");
    order("unplug all");
    expect_lost(other);
    expect_lost(later);
    EXPECT_EQ(devices(), Names{});
    check_fabric();
}

// Do all threads of the process sleep, but for its first one if that is this?
bool asleep(pid_t pid)
{
    for (auto &task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
        if (task.path().filename() == std::to_string(getpid()))
            continue;
        std::ifstream stat(task.path() / "stat");
        std::string line;
        std::getline(stat, line);
        if (line.find(") S ") == std::string::npos)
            return false;
    }
    return true;
}

// Until they have gone to sleep and do not wake up, which a few moments in a row tell.
void wait_asleep(pid_t pid)
{
    for (int in_a_row = 0; in_a_row < 20; sched_yield())
        in_a_row = asleep(pid) ? in_a_row + 1 : 0;
}

// Two contexts, with a thread that waits for each event there is: of both, and of a channel of each.
void waiter(const Link &link)
{
    struct One {
        Context ctx = open_device(0);
        Channel channel{ibv_create_comp_channel(ctx)}, unused{ibv_create_comp_channel(ctx)};
        Cq cq = make_cq(ctx, 16, channel);
    } one[2];
    std::atomic<int> told{0};
    std::vector<std::thread> threads;
    for (One &o : one) {
        need(ibv_req_notify_cq(o.cq, 0) == 0, "ibv_req_notify_cq");
        threads.emplace_back([&] {
            expect_lost(o.ctx);
            told++;
        });
        for (ibv_comp_channel *channel : {(ibv_comp_channel *) o.channel, (ibv_comp_channel *) o.unused})
            threads.emplace_back([&, channel] {
                ibv_cq *cq;
                void *context;
                for (int i = 0; i < 2; i++) {
                    EXPECT_EQ(ibv_get_cq_event(channel, &cq, &context), -1);
                    EXPECT_EQ(errno, EIO);
                }
                told++;
            });
    }
    link.put('r');
    for (auto &t : threads)
        t.join();
    EXPECT_EQ(told, 6);
    EXPECT_EQ(ibv_create_comp_channel(one[0].ctx), nullptr);
    EXPECT_EQ(errno, EIO);
}

TEST_F(Unplug, WhoWaitsForEventsIsWoken)
{
    Child child(waiter);
    ASSERT_EQ(child.link().get<char>(), 'r');
    wait_asleep(child.pid());
    order("unplug h/vshim0");
    EXPECT_EQ(child.wait(), 0);
}

// What came before is read before.
TEST_F(Unplug, EarlierEventsAreNotLost)
{
    Node n;
    Channel channel(ibv_create_comp_channel(n.ctx));
    need(channel, "ibv_create_comp_channel");
    Cq cq = make_cq(n.ctx, 16, channel);
    Srq srq = make_srq(n.pd);
    Qp one = make_qp(IBV_QPT_RC, n.pd, n.cq), two = make_qp(IBV_QPT_RC, n.pd, cq, srq);
    connect(one, n.lid, two, n.lid);
    ASSERT_EQ(ibv_req_notify_cq(cq, 0) | post_recv(srq, 7), 0);
    ASSERT_EQ(outcome(one, Send(IBV_WR_SEND)), IBV_WC_SUCCESS);
    ASSERT_EQ(to_state(two, IBV_QPS_ERR), 0);
    until([&] { return readable(n.ctx->async_fd) && readable(channel->fd); });
    order("unplug h/vshim0");
    EXPECT_EQ(ack_next(n.ctx), IBV_EVENT_QP_LAST_WQE_REACHED);
    expect_lost(n.ctx);
    ibv_cq *of = nullptr;
    void *context;
    ASSERT_EQ(ibv_get_cq_event(channel, &of, &context), 0);
    EXPECT_EQ(of, (ibv_cq *) cq);
    ibv_ack_cq_events(cq, 1);
    EXPECT_EQ(ibv_get_cq_event(channel, &of, &context), -1);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(next_wc(cq).wr_id, 7u);
    EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0) << "asks no kernel";
}

// ---- what verbs say ----

TEST_F(Unplug, EveryVerbThatAsksTheKernelSaysEio)
{
    const std::set<std::string> asking = {
        "query_device", "query_port", "query_gid", "query_pkey", "create_comp_channel", "alloc_pd",   "reg_mr",
        "rereg_mr",     "create_cq",  "resize_cq", "open_xrcd",  "create_srq",          "modify_srq", "query_srq",
        "create_qp",    "open_qp",    "modify_qp", "query_qp",   "attach_mcast"};
    const std::set<std::string> own = {"create_ah", "destroy_ah", "req_notify_cq", "post_recv", "post_srq_recv"};
    // Making comes before destroying, and a completion after a post; they are in other tests.
    const std::set<std::string> elsewhere = {"dealloc_pd",  "dereg_mr",   "destroy_cq",   "close_xrcd",
                                             "destroy_srq", "destroy_qp", "detach_mcast", "post_send"};
    World w;
    unsigned seen = 0;
    unplug(w.n);
    std::string before = objects();
    for (auto &[name, call] : w.verbs) {
        seen++;
        if (asking.count(name)) {
            EXPECT_EQ(call(), EIO) << name;
        } else if (own.count(name)) {
            EXPECT_EQ(call(), 0) << name;
        } else if (name == "open_device") {
            EXPECT_EQ(call(), ENODEV);
        } else {
            EXPECT_TRUE(elsewhere.count(name)) << name;
        }
    }
    EXPECT_EQ(seen, asking.size() + own.size() + elsewhere.size() + 1);
    EXPECT_EQ(objects(), before);
    union ibv_gid group = {};
    group.raw[0] = 0xff;
    EXPECT_EQ(ibv_detach_mcast(w.ud, &group, 0xc001), EIO);
    ibv_gid_entry entry;
    EXPECT_EQ(ibv_query_gid_ex(w.n.ctx, 1, 0, &entry, 0), EIO);
    EXPECT_EQ(ibv_query_gid_table(w.n.ctx, &entry, 1, 0), -EIO);
    EXPECT_EQ(ibv_import_pd(w.n.ctx, w.n.pd->handle), nullptr);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(ibv_import_mr(w.n.pd, w.n.mr->handle), nullptr);
    EXPECT_EQ(errno, EIO);
    ibv_cq_init_attr_ex attr = {};
    attr.cqe = 16;
    EXPECT_EQ(ibv_create_cq_ex(w.n.ctx, &attr), nullptr);
    EXPECT_EQ(errno, EIO);
    check_fabric();
}

// What closing destroyed the program still has in its own memory.
std::vector<void *> &useless = *new std::vector<void *>;

template <class T> void leave(T &object)
{
    useless.push_back(object.release());
}

// Without the variable a destroy verb passes on what the kernel said, and nothing is given up before the device is closed.
TEST_F(Unplug, DestroyVerbsSayEioWhereNothingElseWasAskedFor)
{
    Context keep = open_device(1);
    std::string empty = objects();
    unsetenv("RDMAV_ALLOW_DISASSOC_DESTROY");
    {
        World w;
        Ah ah(ibv_create_ah(w.n.pd, &w.ah_attr));
        unplug(w.n);
        std::string before = objects();
        for (Qp *qp : {&w.rc, &w.spare, &w.ud, &w.tgt}) {
            EXPECT_EQ(qp->destroy(), EIO);
            leave(*qp);
        }
        for (Srq *srq : {&w.srq, &w.xrc_srq}) {
            EXPECT_EQ(srq->destroy(), EIO);
            leave(*srq);
        }
        EXPECT_EQ(w.xrcd.destroy(), EIO);
        EXPECT_EQ(w.n.cq.destroy(), EIO);
        EXPECT_EQ(w.n.mr.destroy(), EIO);
        EXPECT_EQ(ah.destroy(), 0) << "asks no kernel";
        EXPECT_EQ(w.n.pd.destroy(), EIO);
        EXPECT_EQ(objects(), before);
        leave(w.xrcd);
        leave(w.n.cq);
        leave(w.n.mr);
        leave(w.n.pd);
        check_fabric();
        EXPECT_EQ(w.n.ctx.destroy(), 0);
    }
    EXPECT_EQ(objects(), empty);
    check_fabric();
}

// ---- traffic ----

TEST_F(Unplug, NothingCompletesButWhatHasCompleted)
{
    Node lost(1 << 16, all_access, 0), there(1 << 16, all_access, 1);
    RcPair p(lost, there);
    Srq srq = make_srq(lost.pd);
    RcPair waits(lost, there);
    RcPair in_error(lost, lost);
    Qp ud = make_qp(IBV_QPT_UD, lost.pd, lost.cq);
    bring_up(ud, {});
    Ah ah = make_ah(lost.pd, there.lid);
    ASSERT_EQ(to_state(in_error.a, IBV_QPS_ERR), 0);
    ASSERT_EQ(write_to(lost, there).id(1).post(p.a), 0);
    ASSERT_EQ(post_recv(p.a, 2, {lost.sge(0, 64)}), 0);
    ASSERT_EQ(Send(IBV_WR_SEND, {lost.sge(0, 8)}).id(3).post(waits.a), 0) << "for a receive WQE";
    unplug(lost);
    EXPECT_EQ(next_wc(lost.cq).wr_id, 1u);

    // Queues still take what fits, and no more.
    int posted = 0, err;
    while ((err = write_to(lost, there).id(4).post(p.a)) == 0)
        posted++;
    EXPECT_EQ(err, ENOMEM);
    EXPECT_EQ(posted, 64);
    for (posted = 1; (err = post_recv(p.a, 5)) == 0;)
        posted++;
    EXPECT_EQ(err, ENOMEM);
    EXPECT_EQ(posted, 64);
    EXPECT_EQ(post_recv(srq, 6), 0);
    EXPECT_EQ(Send(IBV_WR_SEND).id(10).datagram(ah, ud->qp_num, 0x11111111).post(ud), 0);
    EXPECT_EQ(Send(IBV_WR_SEND).id(7).post(in_error.a), 0);
    EXPECT_EQ(post_recv(in_error.a, 8), 0);
    ASSERT_EQ(post_recv(waits.b, 9, {there.sge(0, 64)}), 0);
    expect_silence(lost.cq);
    expect_silence(there.cq);
    wait_asleep(getpid()); // no timer runs for what is lost

    // To whoever sends there it is as if the cable were cut.
    EXPECT_EQ(outcome(p.b, Send(IBV_WR_SEND, {there.sge(0, 8)})), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(state_of(p.b), IBV_QPS_ERR);
    expect_silence(there.cq);
    check_fabric();
}

// Of the same host, of the same process even.
TEST_F(Unplug, ASecondHcaIsNotDisturbed)
{
    Node lost(1 << 16, all_access, 0), one(1 << 16, all_access, 1), two(1 << 16, all_access, 1);
    RcPair gone(lost, one), stays(one, two);
    XrcPair xrc(one, two);
    ASSERT_EQ(Send(IBV_WR_SEND).id(1).post(stays.a), 0) << "waits for a receive WQE";
    unplug(lost);
    ASSERT_EQ(post_recv(stays.b, 2), 0);
    EXPECT_EQ(next_wc(one.cq).wr_id, 1u);
    EXPECT_EQ(next_wc(two.cq).wr_id, 2u);
    for (int i = 0; i < 100; i++) {
        ASSERT_EQ(outcome(stays.a, write_to(one, two)), IBV_WC_SUCCESS);
        ASSERT_EQ(post_recv(xrc.srq, 3, {two.sge(0, 64)}), 0);
        ASSERT_EQ(outcome(xrc.ini, Send(IBV_WR_SEND, {one.sge(0, 64)}).to_srq(xrc.srqn)), IBV_WC_SUCCESS);
        ASSERT_EQ(next_wc(xrc.srq_cq).wr_id, 3u);
    }
    expect_no_event(one.ctx);
    ibv_port_attr port;
    ASSERT_EQ(ibv_query_port(one.ctx, 1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    check_fabric();
}

// A process of host h with an XRC SRQ, a TGT QP and a UD QP in a group; then it is told, and destroys everything.
struct Targets {
    Address xrc, ud;
};

void target(const Link &link)
{
    Node n(1 << 16, all_access, 0);
    union ibv_gid group = {};
    group.raw[0] = 0xff;
    {
        XrcPair xrc(n, n); // its INI stays unused: the other process's takes its place
        Qp ud = make_qp(IBV_QPT_UD, n.pd, n.cq);
        Targets t = {{n.lid, xrc.tgt->qp_num, xrc.srqn, n.mr->rkey, n.addr()}, {n.lid, ud->qp_num, 0, 0, 0}};
        link.put(t);
        Path p;
        p.lid = link.get<uint16_t>();
        p.qpn = link.get<uint32_t>();
        need(to_state(xrc.tgt, IBV_QPS_RESET) == 0, "to RESET");
        bring_up(xrc.tgt, p);
        bring_up(ud, {});
        need(ibv_attach_mcast(ud, &group, 0xc001) == 0, "ibv_attach_mcast");
        for (int i = 0; i < 4; i++)
            need(post_recv(xrc.srq, 1, {n.sge(0, 64)}) == 0 && post_recv(ud, 2, {n.sge(1024, 1024)}) == 0, "post_recv");
        link.put('r');
        for (int i = 0; i < 3; i++)
            EXPECT_EQ(next_wc(i == 0 ? xrc.srq_cq : n.cq).status, IBV_WC_SUCCESS);
        link.meet();
        expect_lost(n.ctx);
        link.meet();
        link.get<char>();
        expect_silence(xrc.srq_cq);
        expect_silence(n.cq);
        EXPECT_EQ(ud.destroy(), 0) << "a member of a group that can be left no more";
        check_fabric();
    }
    link.put('d');
}

TEST_F(Unplug, PeersOnOtherHostsRunOutOfRetries)
{
    Child child(target);
    setenv("VERBS_SHIM_HOST", "g", 1);
    {
        Targets t = child.link().get<Targets>();
        Node n;
        Qp ini = make_qp(IBV_QPT_XRC_SEND, n.pd, n.cq), ud = make_qp(IBV_QPT_UD, n.pd, n.cq);
        child.link().put(n.lid);
        child.link().put(ini->qp_num);
        Path p;
        p.lid = t.xrc.lid;
        p.qpn = t.xrc.qpn;
        bring_up(ini, p);
        bring_up(ud, {});
        ibv_ah_attr av = {};
        av.port_num = 1;
        av.dlid = t.ud.lid;
        Ah to_one(ibv_create_ah(n.pd, &av));
        av.dlid = 0xc001;
        av.is_global = 1;
        av.grh.dgid.raw[0] = 0xff;
        Ah to_group(ibv_create_ah(n.pd, &av));
        need(to_one && to_group, "ibv_create_ah");
        ASSERT_EQ(child.link().get<char>(), 'r');
        auto datagrams = [&] {
            EXPECT_EQ(outcome(ud, Send(IBV_WR_SEND, {n.sge(0, 8)}).datagram(to_one, t.ud.qpn, 0x11111111)),
                      IBV_WC_SUCCESS);
            EXPECT_EQ(outcome(ud, Send(IBV_WR_SEND, {n.sge(0, 8)}).datagram(to_group, 0xffffff, 0x11111111)),
                      IBV_WC_SUCCESS);
        };
        ASSERT_EQ(outcome(ini, Send(IBV_WR_SEND, {n.sge(0, 8)}).to_srq(t.xrc.srqn)), IBV_WC_SUCCESS);
        datagrams();
        child.link().meet();
        order("unplug h/vshim0");
        child.link().meet(); // here it is being told
        EXPECT_EQ(outcome(ini, Send(IBV_WR_SEND, {n.sge(0, 8)}).to_srq(t.xrc.srqn)), IBV_WC_RETRY_EXC_ERR);
        datagrams();     // as always, nobody is told that nothing arrived
        order("plug h"); // which brings nothing of it back
        ASSERT_EQ(to_state(ini, IBV_QPS_RESET), 0);
        bring_up(ini, p);
        EXPECT_EQ(outcome(ini, Send(IBV_WR_SEND, {n.sge(0, 8)}).to_srq(t.xrc.srqn)), IBV_WC_RETRY_EXC_ERR);
        datagrams();
        expect_no_event(n.ctx);
        check_fabric();
        child.link().put('e');
        ASSERT_EQ(child.link().get<char>(), 'd');
    }
    EXPECT_EQ(child.wait(), 0);
}

// In the middle of traffic, again and again: whoever sends from there stops, whoever sends there runs out of retries, all is sound.
void stream(const Link &link)
{
    Node n(1 << 16, all_access, 0);
    Qp qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
    Address other = connect_over(link, qp, {n.lid, qp->qp_num, 0, n.mr->rkey, n.addr()});
    link.meet();
    nonblocking(n.ctx->async_fd);
    ibv_async_event e;
    for (int i = 0; ibv_get_async_event(n.ctx, &e) != 0; i++) {
        ibv_wc wc;
        int err = Send(IBV_WR_RDMA_WRITE, {n.sge(0, i % 2 ? 8 : 4096)}).at(other.addr, other.rkey).post(qp);
        EXPECT_TRUE(err == 0 || err == ENOMEM) << err;
        if (i == 1000)
            link.put('t');
        while (ibv_poll_cq(n.cq, 1, &wc) == 1)
            EXPECT_TRUE(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_RETRY_EXC_ERR
                        || wc.status == IBV_WC_WR_FLUSH_ERR)
                << ibv_wc_status_str(wc.status);
    }
    EXPECT_EQ(e.event_type, IBV_EVENT_DEVICE_FATAL);
    ibv_wc wc;
    while (ibv_poll_cq(n.cq, 1, &wc) == 1) {
    }
    for (int i = 0; i < 10; i++)
        write_to(n, n).post(qp);
    expect_silence(n.cq);
    link.put('d');
}

TEST_F(Unplug, InTheMiddleOfTraffic)
{
    for (int round = 0; round < 5; round++) {
        Child a(stream);
        setenv("VERBS_SHIM_HOST", "g", 1);
        Child b(stream);
        setenv("VERBS_SHIM_HOST", "h", 1);
        Address at_a = a.link().get<Address>(), at_b = b.link().get<Address>();
        a.link().put(at_b);
        b.link().put(at_a);
        ASSERT_EQ(a.link().get<char>(), 'm');
        ASSERT_EQ(b.link().get<char>(), 'm');
        a.link().put('m');
        b.link().put('m');
        ASSERT_EQ(a.link().get<char>(), 't');
        order("unplug h/vshim0");
        ASSERT_EQ(a.link().get<char>(), 'd');
        check_fabric();
        ASSERT_EQ(b.link().get<char>(), 't');
        order("unplug g");
        ASSERT_EQ(b.link().get<char>(), 'd');
        EXPECT_EQ(a.wait(), 0);
        EXPECT_EQ(b.wait(), 0);
    }
}

// ---- what is plugged in again ----

TEST_F(Unplug, PluggedInAgainItIsThereForNewContextsAlone)
{
    TempFile file;
    Node old(1 << 16, all_access, 0), there(1 << 16, all_access, 1);
    Xrcd before = make_xrcd(old.ctx, file.fd());
    RcPair p(old, there);
    for (int round = 0; round < 3; round++) {
        order("unplug h/vshim0");
        EXPECT_EQ(devices(), Names{"vshim1"});
        order("plug h");
        EXPECT_EQ(devices(), (Names{"vshim0", "vshim1"}));
        expect_no_event(there.ctx);
        Node again(1 << 16, all_access, 0);
        EXPECT_EQ(again.lid, old.lid);
        Xrcd after(try_open_xrcd(again.ctx, file.fd(), O_CREAT | O_EXCL));
        EXPECT_TRUE(after) << "not the domain that is lost";
        RcPair q(again, there);
        EXPECT_EQ(outcome(q.a, write_to(again, there)), IBV_WC_SUCCESS);
        EXPECT_EQ(outcome(q.b, write_to(there, again)), IBV_WC_SUCCESS);
        ASSERT_EQ(to_state(p.b, IBV_QPS_RESET), 0);
        Path to_old;
        to_old.lid = old.lid;
        to_old.qpn = p.a->qp_num;
        bring_up(p.b, to_old);
        EXPECT_EQ(outcome(p.b, write_to(there, old)), IBV_WC_RETRY_EXC_ERR) << "not the QP that is lost";
        ibv_device_attr attr;
        EXPECT_EQ(ibv_query_device(old.ctx, &attr), EIO);
        ASSERT_EQ(to_state(p.b, IBV_QPS_RESET), 0);
        bring_up(p.b, to_old);
        ASSERT_EQ(write_to(old, there).post(p.a), 0);
        expect_silence(old.cq);
        expect_no_event(again.ctx);
        check_fabric();
    }
    expect_lost(old.ctx);
}

TEST_F(Unplug, OutAndInAtOnceIsToldTheSame)
{
    Context old = open_device(0), there = open_device(1);
    order("unplug all");
    order("plug all");
    Context again = open_device(0);
    order("unplug h/vshim0");
    order("plug h/vshim0");
    for (ibv_context *c : {(ibv_context *) old, (ibv_context *) there, (ibv_context *) again})
        expect_lost(c);
    expect_no_event(open_device(0));
}

TEST_F(Unplug, PortsOfAnUnpluggedHcaAreNotThere)
{
    Node n(4096, all_access, 1);
    order("unplug h/vshim0");
    for (const char *words :
         {"link up h/vshim0", "port h/vshim0/1 active", "lmc h/vshim0 1", "drop packet at h/vshim0"})
        EXPECT_EQ(vshim(words).status, 1) << words;
    order("link up all");
    EXPECT_NE(vshim("counters").text.find("link unplugged"), std::string::npos) << vshim("counters").text;
    check_fabric();
    order("plug h/vshim0");
    EXPECT_EQ(vshim("counters").text.find("link unplugged"), std::string::npos);
    Node back(4096, all_access, 0);
    RcPair p(back, n);
    EXPECT_EQ(outcome(p.a, write_to(back, n)), IBV_WC_SUCCESS);
}

// ---- processes that die with it ----

TEST_F(Unplug, WhatAKilledProcessHadThereIsClearedAway)
{
    Context keep = open_device(1);
    std::string empty = objects();
    keep = Context();
    Child child([](const Link &link) {
        World w;
        link.put('r');
        expect_lost(w.n.ctx);
        link.put('t');
        pause();
    });
    ASSERT_EQ(child.link().get<char>(), 'r');
    keep = open_device(1);
    order("unplug h/vshim0");
    ASSERT_EQ(child.link().get<char>(), 't');
    child.kill();
    EXPECT_EQ(objects().find("World"), std::string::npos);
    check_fabric();
    EXPECT_EQ(objects(), empty);
}

} // namespace
