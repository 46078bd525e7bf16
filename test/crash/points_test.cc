// A process is stopped at each named point between two steps on shared state, again and again, while it works with another. The other
// must never hang, must keep everything it has, and is left with a sound segment; once both are gone nothing is left.
#define VS_CRASH_POINTS
#include "memory/point.h"

#include "../conform/peer.h"

extern "C" {
#include "core/context.h"
#include "core/ports.h"
#include "core/reap.h"
#include "fabric/faults.h"
}

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <sstream>

using namespace vt;

namespace
{

constexpr int kills_wanted = sanitized ? 2 : 20;

constexpr uint32_t small = 64, large = 60000;
constexpr size_t shared_size = 1 << 16;
constexpr size_t receives = 16;

// In a Side's memory: what is sent, the sum, then a place for each receive. Nothing is received where something is sent from: the
// engine may still be sending it.
constexpr size_t sum_at = 1 << 16;
constexpr size_t recv_at(uint64_t i)
{
    return sum_at + 64 + i * large;
}
constexpr int access_flags = all_access | IBV_ACCESS_REMOTE_ATOMIC;

struct Hello {
    Address xrc;
    uint32_t ini_qpn, rc_qpn, wrong_qpn, ud_qpn;
    uint32_t shared_rkey;
    uint64_t shared_addr;
};

// The file that keys the domain is also memory that both map.
char *map_shared(int file)
{
    void *p = mmap(nullptr, shared_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    need(p != MAP_FAILED, "mmap");
    return static_cast<char *>(p);
}

// What one process has: an XRC domain with an SRQ behind it and a QP pair to the other's, and an RC QP.
struct Side {
    Node node;
    Xrcd xrcd;
    Channel channel;
    Cq srq_cq;
    Srq srq;
    Qp tgt, ini, rc;
    Qp wrong; // for what is refused
    Qp ud;
    Ah ah;
    char *shared;
    Mr shared_mr;
    Address peer = {};
    uint32_t shared_rkey = 0, wrong_qpn = 0, ud_qpn = 0;
    uint64_t shared_addr = 0;

    explicit Side(int file)
        : node(recv_at(receives), access_flags), xrcd(make_xrcd(node.ctx, file)),
          channel(ibv_create_comp_channel(node.ctx)), srq_cq(make_cq(node.ctx, 256, channel))
    {
        srq = make_xrc_srq(node.pd, xrcd, srq_cq, 32);
        tgt = make_tgt(xrcd);
        ini = make_qp(IBV_QPT_XRC_SEND, node.pd, node.cq);
        rc = make_qp(IBV_QPT_RC, node.pd, node.cq);
        wrong = make_qp(IBV_QPT_RC, node.pd, node.cq);
        ud = make_qp(IBV_QPT_UD, node.pd, node.cq);
        shared = map_shared(file);
        shared_mr = Mr(ibv_reg_mr(node.pd, shared, shared_size, access_flags));
        need(shared_mr, "ibv_reg_mr");
        for (size_t i = 0; i < receives; i++)
            post_recv(srq, i, {node.sge(recv_at(i), large)});
    }
    void join(const Link &link)
    {
        link.put(Hello{{node.lid, tgt->qp_num, srq_num(srq), node.mr->rkey, node.addr()},
                       ini->qp_num,
                       rc->qp_num,
                       wrong->qp_num,
                       ud->qp_num,
                       shared_mr->rkey,
                       (uintptr_t) shared});
        Hello h = link.get<Hello>();
        peer = h.xrc;
        shared_rkey = h.shared_rkey;
        shared_addr = h.shared_addr;
        Path p;
        p.lid = peer.lid;
        p.access = access_flags & ~IBV_ACCESS_LOCAL_WRITE;
        p.qpn = peer.qpn;
        bring_up(ini, p);
        p.qpn = h.ini_qpn;
        bring_up(tgt, p);
        p.qpn = h.rc_qpn;
        bring_up(rc, p);
        wrong_qpn = h.wrong_qpn;
        ud_qpn = h.ud_qpn;
        bring_up(ud, {});
        ah = make_ah(node.pd, peer.lid);
        renew();
        link.meet();
    }
    // The alternate is the second LID of each port (LMC 1). Failures do not matter here: the other may be dying.
    void arm()
    {
        ibv_qp_attr a = {};
        a.alt_ah_attr.dlid = peer.lid + 1;
        a.alt_ah_attr.src_path_bits = 1;
        a.alt_ah_attr.port_num = a.alt_port_num = 1;
        a.alt_timeout = 8;
        a.path_mig_state = IBV_MIG_REARM;
        ibv_modify_qp(rc, &a, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
    }
    // By software, once traffic has armed it.
    void migrate()
    {
        ibv_qp_attr now = {};
        ibv_qp_init_attr init;
        for (int i = 0; i < 100 && now.path_mig_state != IBV_MIG_ARMED; i++) {
            arm();
            add();
            reap();
            sched_yield();
            need(ibv_query_qp(rc, &now, IBV_QP_PATH_MIG_STATE, &init) == 0, "ibv_query_qp");
        }
        ibv_qp_attr a = {};
        a.path_mig_state = IBV_MIG_MIGRATED;
        ibv_modify_qp(rc, &a, IBV_QP_PATH_MIG_STATE);
    }
    void send(uint32_t length)
    {
        if (state_of(ini) == IBV_QPS_RTS)
            Send(IBV_WR_SEND, {node.sge(0, length)}).to_srq(peer.srqn).post(ini);
    }
    // Into memory of the other that this process maps, too.
    void write_shared()
    {
        if (state_of(rc) == IBV_QPS_RTS)
            Send(IBV_WR_RDMA_WRITE, {node.sge(0, small)}).at(shared_addr, shared_rkey).post(rc);
    }
    // What is refused puts the QP into ERR, at both ends.
    void renew()
    {
        Path p;
        p.lid = peer.lid;
        p.qpn = wrong_qpn;
        if (state_of(wrong) == IBV_QPS_RTS)
            return;
        to_state(wrong, IBV_QPS_RESET);
        if (to_init(wrong, p) == 0 && to_rtr(wrong, p) == 0) // unless the other has had it refused already
            to_rts(wrong, p);
        for (int i = 0; i < 2; i++)
            post_recv(wrong, 0);
    }
    void ask_wrongly()
    {
        if (state_of(wrong) == IBV_QPS_RTS)
            Send(IBV_WR_RDMA_WRITE, {node.sge(0, small)}).at(peer.addr, 0x12345).post(wrong);
        renew();
    }
    void send_datagram()
    {
        Send(IBV_WR_SEND, {node.sge(0, small)}).datagram(ah, ud_qpn, 0x11111111).post(ud);
    }
    // Both limit the SRQ that the other sends to, and post receives for datagrams at the end of its memory.
    void limit()
    {
        ibv_srq_attr a = {};
        a.srq_limit = receives;
        ibv_modify_srq(srq, &a, IBV_SRQ_LIMIT);
        post_recv(ud, 0, {node.sge(recv_at(0), 128)});
    }
    void add()
    {
        Send s(IBV_WR_ATOMIC_FETCH_AND_ADD, {node.sge(sum_at, 8)});
        s.wr.wr.atomic.remote_addr = peer.addr + sum_at;
        s.wr.wr.atomic.rkey = peer.rkey;
        s.wr.wr.atomic.compare_add = 1;
        if (state_of(rc) == IBV_QPS_RTS)
            s.post(rc);
    }
    void reap()
    {
        ibv_wc wc;
        while (ibv_poll_cq(node.cq, 1, &wc) == 1) {
        }
        while (ibv_poll_cq(srq_cq, 1, &wc) == 1)
            post_recv(srq, wc.wr_id, {node.sge(recv_at(wc.wr_id), large)});
        while (readable(node.ctx->async_fd))
            ack_next(node.ctx);
    }
};

// As root the kernel lets anyone into anyone's memory; without that right the peer's engine has to do the copies.
void drop_rights()
{
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2] = {};
    syscall(SYS_capset, &header, none);
}

bool needs_engine(const std::string &die_at)
{
    return die_at.compare(0, 5, "copy_") == 0;
}

// HCAs whose atomics are atomic with the CPU's.
bool needs_glob(const std::string &die_at)
{
    return die_at.compare(0, 5, "glob_") == 0;
}

// On the second HCA, where nobody else is.
void change_fabric()
{
    vs_host_shm *host = vs_fabric_my_host();
    uint32_t index = host->hca[1];
    vs_hca_shm *hca = vs_fabric_hca(index);
    vs_port_shm *port = vs_fabric_port(hca, 1);
    vs_control_lock();
    vs_port_set_lmc(hca->port[0], 2);
    vs_port_set_lmc(hca->port[0], 1);
    vs_fabric_set_route(port, 0, false);
    vs_fabric_set_route(port, 0, true);
    vs_port_set_state(port, IBV_PORT_DOWN);
    vs_port_set_state(port, IBV_PORT_ACTIVE);
    vs_port_set_pkey(port, 1, 0x8001);
    vs_fabric_unplug(hca);
    vs_control_unlock();
    vs_fabric_unplugged();
    vs_control_lock();
    vs_fabric_plug(hca);
    vs_control_unlock();
    vs_fault_refuse(VS_VERB_query_srq, ENOMEM, 0, 1, 1, 1000);
    vs_fault_refuse(VS_VERB_query_srq, 0, 0, 0, 1, 0);
    vs_rule rule = {};
    rule.kind = VS_RULE_DROP;
    rule.what = VS_WHAT_DATAGRAM;
    rule.port = hca->port[0] + 1;
    rule.count = 1;
    vs_fault_add_rule(&rule);
    vs_fault_clear_rules();
    vs_knobs_set("src_qp=mlx5");
    vs_reap_orphans();
}

// More completions than a CQ has room for, of a QP of this process's own.
void overrun(Side &s)
{
    Cq cq = make_cq(s.node.ctx, 1);
    Qp loud = make_qp(IBV_QPT_UC, s.node.pd, cq);
    Path p;
    p.lid = s.node.lid;
    p.qpn = loud->qp_num;
    bring_up(loud, p);
    for (int i = 0; i < 8; i++)
        Send(IBV_WR_SEND, {s.node.sge(0, 8)}).post(loud);
    while (state_of(loud) != IBV_QPS_ERR || !readable(s.node.ctx->async_fd))
        sched_yield();
    s.reap();
}

// The other's TGT QP is everybody's in the domain.
void modify_shared(Side &s)
{
    Qp shared = open_tgt(s.xrcd, s.peer.qpn);
    ibv_qp_attr a = {};
    a.qp_access_flags = access_flags & ~IBV_ACCESS_LOCAL_WRITE;
    a.min_rnr_timer = 1;
    if (shared)
        ibv_modify_qp(shared, &a, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER);
}

// The first packet at a QP in RTR, which stops then.
void begin(Side &s)
{
    Qp from = make_qp(IBV_QPT_RC, s.node.pd, s.node.cq), to = make_qp(IBV_QPT_RC, s.node.pd, s.node.cq);
    Path p;
    p.lid = s.node.lid;
    p.access = access_flags & ~IBV_ACCESS_LOCAL_WRITE;
    p.qpn = from->qp_num;
    need(to_init(to, p) == 0 && to_rtr(to, p) == 0, "to RTR");
    p.qpn = to->qp_num;
    bring_up(from, p);
    Send(IBV_WR_RDMA_WRITE, {s.node.sge(0, small)}).at(s.node.addr(), s.node.mr->rkey).post(from);
    to_state(to, IBV_QPS_ERR);
}

void churn(Side &s)
{
    begin(s);
    change_fabric();
    overrun(s);
    modify_shared(s);
    Cq cq = make_cq(s.node.ctx, 16);
    ibv_resize_cq(cq, 100);
    std::vector<char> mem(4096);
    Pd pd(ibv_alloc_pd(s.node.ctx));
    Mr mr(ibv_reg_mr(s.node.pd, mem.data(), mem.size(), all_access));
    ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS, pd, nullptr, 0, IBV_ACCESS_LOCAL_WRITE);
    Qp again = open_tgt(s.xrcd, s.peer.qpn);
    Qp spare = make_tgt(s.xrcd);
    Qp stops = make_qp(IBV_QPT_UC, s.node.pd, s.node.cq); // for sending, by an error of its own
    Path p;
    p.lid = s.node.lid;
    p.qpn = stops->qp_num;
    bring_up(stops, p);
    Send(IBV_WR_SEND, {{s.node.addr(), 8, 0x12345}}).post(stops);
}

// Another process dies with the control lock when this one waits for it, and the first to wait rebuilds what that guards.
void orphan_the_lock()
{
    Child holder([](const Link &link) {
        vs_point_stop_at(nullptr);
        need(vs_attach_observer() == 0, "vs_attach_observer");
        vs_control_lock();
        link.put('h');
        until_it_sleeps(std::to_string(getppid()));
        raise(SIGKILL);
    });
    holder.link().get<char>();
    vs_control_lock();
    vs_control_unlock();
    EXPECT_EQ(holder.wait(), 256 + SIGKILL);
}

// Where the victim is stopped, and whether its set-up counts: it comes by many points a dozen times before it has done anything.
struct Stop {
    std::string point;
    int nth;
    bool once_joined;

    void here() const
    {
        vs_point_stop_at((point + ":" + std::to_string(nth)).c_str());
    }
};

// A third process of the domain is killed, and the victim may be the first to find that out.
void bury(pid_t third)
{
    int fd = (int) syscall(SYS_pidfd_open, third, 0);
    pollfd p = {fd, POLLIN, 0};
    need(fd >= 0, "pidfd_open");
    ::kill(third, SIGKILL);
    need(poll(&p, 1, -1) == 1, "poll");
    close(fd);
    vs_control_lock();
    vs_process_reap_dead();
    vs_control_unlock();
    vs_process_bury();
}

void work(Side &s, const Link &link, const Stop &stop, pid_t third)
{
    link.put('h');
    s.join(link);
    if (stop.once_joined) {
        stop.here();
        bury(third);
    }
    s.arm();
    for (int i = 0; i < 8; i++) {
        s.limit();
        s.send(small);
        s.send(large);
        s.write_shared();
        s.send_datagram();
        s.ask_wrongly();
        s.add();
        s.reap();
        churn(s);
        s.migrate();
        for (int k = 0; k < 10 && stop.point == "control_rebuilt"; k++)
            orphan_the_lock(); // the survivor may wait for it, too
    }
}

// Of a process that leaves as programs do at exit, with all that it has.
bool is_of_exit(const std::string &point)
{
    return point == "process_shut" || point == "segment_parted";
}

void victim(const Link &link, int file, const Stop &stop, pid_t third)
{
    if (!stop.once_joined)
        stop.here();
    if (needs_engine(stop.point)) {
        drop_rights();
        prctl(PR_SET_DUMPABLE, 0);
    }
    auto s = std::make_unique<Side>(file);
    work(*s, link, stop, third);
    if (is_of_exit(stop.point)) {
        vs_leave_at_exit();
        _exit(0);
    }
}

bool alive(const Link &link)
{
    try {
        link.get<char>();
        return true;
    } catch (const std::exception &) {
        return false;
    }
}

// What the victim's death may not have hurt: the SRQ it was sending to still takes messages, in this process's own loop.
void still_works(Side &s)
{
    Qp tgt = make_tgt(s.xrcd), ini = make_qp(IBV_QPT_XRC_SEND, s.node.pd, s.node.cq);
    connect(ini, s.node.lid, tgt, s.node.lid);
    for (int i = 0; i < 40; i++) {
        bool sent = false, arrived = false;
        Send(IBV_WR_SEND, {s.node.sge(0, i % 2 ? small : large)}).to_srq(srq_num(s.srq)).post(ini);
        while (!sent || !arrived) { // among what the victim left behind
            ibv_wc wc;
            if (ibv_poll_cq(s.node.cq, 1, &wc) == 1 && wc.qp_num == ini->qp_num) {
                ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
                sent = true;
            }
            if (ibv_poll_cq(s.srq_cq, 1, &wc) == 1) {
                ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
                arrived |= wc.qp_num == tgt->qp_num;
                post_recv(s.srq, wc.wr_id, {s.node.sge(recv_at(wc.wr_id), large)});
            }
            sched_yield();
        }
    }
}

// What `vshim COMMAND` says, also on its error output.
std::string vshim(const std::string &command)
{
    const char *tool = getenv("VSHIM");
    std::string out;
    need(tool && *tool, "VSHIM is not set");
    FILE *f = popen((std::string(tool) + " " + command + " 2>&1").c_str(), "r");
    need(f != nullptr, "popen");
    for (int c; (c = fgetc(f)) != EOF;)
        out += (char) c;
    return pclose(f) == 0 ? out : "failed: " + out;
}

// Once the victim is gone the segment is sound, and what this process holds, with the TGT QPs of its host, is all there is.
void only_this_is_left(int done, const std::string &tgts, const std::string &objects)
{
    pollfd p = {done, POLLIN, 0};
    need(poll(&p, 1, -1) == 1, "poll"); // its lock may outlive its sockets
    EXPECT_EQ(vshim("check"), "");
    std::istringstream list(vshim("list"));
    std::string host, mine, more;
    std::getline(list, host);
    std::getline(list, mine);
    EXPECT_EQ(host.substr(host.find(": ") + 2), tgts);
    EXPECT_EQ(mine.substr(std::min(mine.find(" pd "), mine.size())), objects);
    EXPECT_EQ(atoi(mine.c_str()), getpid());
    EXPECT_FALSE(std::getline(list, more)) << more;
}

void only_side_is_left(int done)
{
    only_this_is_left(done, "1 TGT QPs", " pd 1 mr 2 cq 2 srq 1 xrcd 1 qp_rc 2 qp_ud 1 qp_ini 1 tgt_handles 1");
}

void survivor(const Link &link, int done, int file, bool closed_memory)
{
    if (closed_memory) {
        drop_rights();
        prctl(PR_SET_DUMPABLE, 0);
    }
    if (!alive(link)) { // the victim died while it joined
        Node node;
        only_this_is_left(done, "0 TGT QPs", " pd 1 mr 1 cq 1");
        return;
    }
    Side s(file);
    try {
        s.join(link);
    } catch (const std::exception &) {
        still_works(s);
        only_side_is_left(done);
        return;
    }
    s.arm();
    for (int i = 0; !readable(done); i++) {
        ibv_req_notify_cq(s.srq_cq, 0);
        s.send(i % 3 ? small : large);
        s.arm();
        s.limit();
        s.renew();
        s.send_datagram();
        s.write_shared();
        s.add();
        s.reap();
        sched_yield();
    }
    still_works(s);
    only_side_is_left(done);
}

// true: it was stopped there.
bool run_once(const Stop &stop)
{
    TempFile file;
    need(ftruncate(file.fd(), shared_size) == 0, "ftruncate");
    int link[2], done[2], status;
    need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link) == 0, "socketpair");
    need(pipe2(done, O_CLOEXEC) == 0, "pipe2");
    {
        Child third([&](const Link &l) {
            if (stop.once_joined) {
                Side s(file.fd());
                l.put('h');
                l.get<char>(); // never comes
            }
        });
        if (stop.once_joined)
            third.link().get<char>();
        Child worker([&](const Link &) {
            close(link[1]);
            victim(Link(link[0]), file.fd(), stop, third.pid());
        });
        Child other([&](const Link &) {
            close(link[0]);
            survivor(Link(link[1]), done[0], file.fd(), needs_engine(stop.point));
        });
        close(link[0]);
        close(link[1]);
        status = worker.wait();
        if (stop.once_joined)
            third.kill();
        EXPECT_TRUE(status == 256 + SIGKILL || status == 0) << "the victim ended with " << status;
        need(write(done[1], "", 1) == 1, "write");
        EXPECT_EQ(other.wait(), 0) << "the survivor";
    }
    close(done[0]);
    close(done[1]);
    // Whoever looks next clears away the last one, too.
    if (vs_attach_observer() == 0)
        vs_detach();
    return status != 0;
}

// ---- the last one to leave, who removes the files: he is killed over that while another comes and goes ----

bool is_of_removal(const std::string &point)
{
    return point == "segment_unlinked" || point == "live_removed" || point == "lock_unlinked" || point == "dir_removed";
}

void come_and_go()
{
    Node n(4096);
    Qp from = make_qp(IBV_QPT_RC, n.pd, n.cq), to = make_qp(IBV_QPT_RC, n.pd, n.cq);
    connect(from, n.lid, to, n.lid);
    EXPECT_EQ(outcome(from, Send(IBV_WR_RDMA_WRITE, {n.sge(0, small)}).at(n.addr(64), n.mr->rkey)), IBV_WC_SUCCESS);
}

// As one that was killed leaves it; no process has this id.
void plant_live_file()
{
    int fd = open((fabric_dir() + "/live.00000001").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    need(fd >= 0, "live file");
    close(fd);
}

bool run_alone(const Stop &stop)
{
    int done[2], status;
    need(pipe2(done, O_CLOEXEC) == 0, "pipe2");
    {
        Child worker([&](const Link &) {
            stop.here();
            for (int i = 0; i < 200; i++) {
                Node n(4096);
                plant_live_file();
            }
        });
        Child other([&](const Link &) {
            for (unsigned i = 0; !readable(done[0]); i++) {
                come_and_go();
                usleep(i % 7 * 300);
            }
            Node node;
            only_this_is_left(done[0], "0 TGT QPs", " pd 1 mr 1 cq 1");
        });
        status = worker.wait();
        EXPECT_TRUE(status == 256 + SIGKILL || status == 0) << "the victim ended with " << status;
        need(write(done[1], "", 1) == 1, "write");
        EXPECT_EQ(other.wait(), 0) << "the survivor";
    }
    close(done[0]);
    close(done[1]);
    return status != 0;
}

void kill_alone(Stop stop)
{
    int kills = 0, runs = 0;
    while (kills < kills_wanted && runs++ < 10 * kills_wanted && !testing::Test::HasFailure()) {
        SCOPED_TRACE(testing::Message() << stop.point << " for the " << stop.nth << ". time");
        alarm(60);
        kills += run_alone(stop);
        stop.nth = stop.nth % 5 + 1;
    }
    printf("%s: %d kills in %d runs\n", stop.point.c_str(), kills, runs);
    EXPECT_GE(kills, kills_wanted) << "the work does not come by " << stop.point << " often enough";
}

class Points : public Test, public ::testing::WithParamInterface<int>
{
};

// A tenth of the kills counts from the victim's start, the others from when it has joined, where it comes by then and before.
TEST_P(Points, StoppedThereHurtsNobodyElse)
{
    Stop stop = {vs_point_name[GetParam()], 1, false};
    if (is_of_removal(stop.point)) {
        kill_alone(stop);
        return;
    }
    int kills[2] = {0, 0}, runs = 0;
    bool begins = true, recurs = true, again = true; // does it come by in its set-up, afterwards, a second time?
    setenv("VERBS_SHIM_TOPOLOGY", needs_glob(stop.point) ? "devices=2,lmc=1,atomics=glob" : "devices=2,lmc=1", 1);
    while (kills[0] + kills[1] < kills_wanted && runs++ < 10 * kills_wanted && !HasFailure()) {
        SCOPED_TRACE(testing::Message() << stop.point << " for the " << stop.nth << ". time "
                                        << (stop.once_joined ? "once joined" : "from the start"));
        alarm(60);
        bool killed = run_once(stop);
        kills[stop.once_joined] += killed;
        begins &= killed || stop.once_joined || stop.nth > 1;
        recurs &= killed || !stop.once_joined || stop.nth > 1;
        again &= killed || stop.nth != 2;
        bool joined = !begins || (recurs && kills[0] >= std::max(1, kills_wanted / 10));
        again |= joined != stop.once_joined;
        stop.nth = killed && again && joined == stop.once_joined ? stop.nth + 1 : 1;
        stop.once_joined = joined;
    }
    printf("%s: %d kills from the start, %d once joined, in %d runs\n", stop.point.c_str(), kills[0], kills[1], runs);
    EXPECT_GE(kills[0] + kills[1], kills_wanted) << "the work does not come by " << stop.point << " often enough";
}

INSTANTIATE_TEST_SUITE_P(All, Points, ::testing::Range(0, (int) VS_NUM_POINTS),
                         [](const auto &info) { return std::string(vs_point_name[info.param]); });

} // namespace
