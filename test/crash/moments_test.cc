// Moments between two steps on shared state that matter only where something else lies in a certain place: each a named point at which one
// process is stopped, and what another must still have then.
#define VS_CRASH_POINTS
#include "../conform/peer.h"

extern "C" {
#include "core/context.h"
#include "memory/process.h"
}

#include <sys/syscall.h>

#include <atomic>
#include <thread>

using namespace vt;

namespace
{

class MomentsTest : public vt::Test
{
};

// Ends its process there. The environment is read once, at the first point that it comes by: this program itself never joins the fabric.
void die_at(const std::string &point)
{
    setenv("VERBS_SHIM_DIE_AT", point.c_str(), 1);
}

void look_for_the_dead()
{
    Child next([](const Link &) { Context c = open_device(); });
    EXPECT_EQ(next.wait(), 0);
}

constexpr int page_of_cqes = 4096 / 64;

// A CQ that shrinks gets fewer pages elsewhere. In between it must not name as many there as it had: those behind are another's.
TEST_F(MomentsTest, ACqKilledWhileItShrinksTakesNobodysPages)
{
    Child victim([](const Link &link) {
        die_at("pages_placed:3");
        Context c = open_device();
        Cq hole = make_cq(c, page_of_cqes - 1); // one page, before the other process's
        link.meet();
        Cq large = make_cq(c, 16 * page_of_cqes - 1);
        EXPECT_EQ(hole.destroy(), 0);
        ibv_resize_cq(large, page_of_cqes - 1);
    });
    victim.link().get<char>();
    Child other([](const Link &link) {
        Node n;
        Qp qp = make_qp(IBV_QPT_RC, n.pd, n.cq), peer = make_qp(IBV_QPT_RC, n.pd, n.cq);
        connect(qp, n.lid, peer, n.lid);
        ASSERT_EQ(post_recv(peer, 1, {n.sge(0, 64)}), 0);
        ASSERT_EQ(Send(IBV_WR_SEND, {n.sge(64, 64)}).id(2).post(qp), 0);
        link.meet();
        link.meet();
        std::vector<uint64_t> ids = {next_wc(n.cq).wr_id, next_wc(n.cq).wr_id};
        std::sort(ids.begin(), ids.end());
        EXPECT_EQ(ids, (std::vector<uint64_t>{1, 2}));
    });
    other.link().meet();
    victim.link().put('m');
    EXPECT_EQ(victim.wait(), 256 + SIGKILL);
    look_for_the_dead();
    other.link().meet();
    EXPECT_EQ(other.wait(), 0);
}

uint32_t count_slots(vs_table table)
{
    uint32_t index, n = 0;
    vs_slot *slot;
    vs_for_each_slot(table, index, slot) n++;
    return n;
}

// Who dies while he frees an object leaves it as his, for whoever comes after him.
TEST_F(MomentsTest, ASlotWhoseOwnerIsKilledWhileHeFreesItIsFree)
{
    for (vs_table table : {VS_PD, VS_CQ, VS_MR}) {
        Child other([&](const Link &link) {
            Node n;
            uint32_t before = count_slots(table);
            link.meet();
            link.meet();
            EXPECT_EQ(count_slots(table), before) << "table " << table;
        });
        other.link().meet();
        Child victim([&](const Link &) {
            die_at("slot_emptied");
            Context c = open_device();
            Pd pd(ibv_alloc_pd(c));
            if (table == VS_CQ)
                make_cq(c);
            char byte;
            if (table == VS_MR)
                Mr(ibv_reg_mr(pd, &byte, 1, 0));
        });
        EXPECT_EQ(victim.wait(), 256 + SIGKILL);
        look_for_the_dead();
        other.link().meet();
        EXPECT_EQ(other.wait(), 0);
    }
}

// ---- after the process has left ----

std::atomic<bool> in_sender, left_fabric;
std::atomic<long> posts;

void die_after_leaving(vs_point point)
{
    if (left_fabric && point == VS_POINT_ring_claimed)
        kill(getpid(), SIGKILL);
}

// Destructors with a priority come after the library's, which leaves the fabric.
__attribute__((destructor(101))) void outlast_the_library()
{
    if (!in_sender)
        return;
    left_fabric = true;
    for (long enough = posts + 100; posts < enough;)
        sched_yield();
}

void send_until_the_end(const Link &link)
{
    static Node *n = new Node;
    static Qp *qp = new Qp(make_qp(IBV_QPT_RC, n->pd, n->cq));
    connect_over(link, *qp, *n);
    vs_point_hook = die_after_leaving;
    link.meet();
    in_sender = true;
    std::thread([] {
        for (ibv_wc wc;; posts++) {
            Send(IBV_WR_SEND).post(*qp);
            ibv_poll_cq(n->cq, 1, &wc);
        }
    }).detach();
    while (posts < 10)
        sched_yield();
    exit(0);
}

// A thread that still sends then must not claim a place in anybody's queue: in whose name, and who would roll it on?
TEST_F(MomentsTest, AThreadThatOutlivesItsProcesssLeaveClaimsNothing)
{
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "programs look into the table of operations without a lock, as verbs.h has it";
#endif
    for (int round = 0; round < 20 && !HasFailure(); round++) {
        Child sender(send_until_the_end);
        Child receiver([](const Link &link) {
            Node n;
            Qp in = make_qp(IBV_QPT_RC, n.pd, n.cq);
            for (uint64_t i = 0; i < 64; i++)
                post_recv(in, i);
            connect_over(link, in, n);
            link.meet();
            ibv_wc wc;
            while (!readable(link.fd()))
                while (ibv_poll_cq(n.cq, 1, &wc) == 1)
                    post_recv(in, wc.wr_id);
            while (ibv_poll_cq(n.cq, 1, &wc) == 1) {
            }
            Qp a = make_qp(IBV_QPT_RC, n.pd, n.cq), b = make_qp(IBV_QPT_RC, n.pd, n.cq);
            connect(a, n.lid, b, n.lid);
            ASSERT_EQ(post_recv(b, 1000), 0);
            ASSERT_EQ(Send().id(2000).post(a), 0);
            EXPECT_EQ(next_wc(n.cq).wr_id, 1000u) << "it moves on";
            EXPECT_EQ(next_wc(n.cq).wr_id, 2000u);
        });
        sender.link().put(receiver.link().get<Address>());
        receiver.link().put(sender.link().get<Address>());
        receiver.link().get<char>();
        sender.link().meet();
        receiver.link().put('m');
        EXPECT_EQ(sender.wait(), 0);
        receiver.link().put('e');
        EXPECT_EQ(receiver.wait(), 0);
    }
}

// ---- while it leaves ----

void take_control()
{
    vs_control_lock();
    vs_control_unlock();
}

std::atomic<pid_t> waiter;
pid_t behind; // the other process that waits
int go_fd;    // it waits, once it reads this

// The control lock is held, and the segment not yet parted with.
void line_up(vs_point point)
{
    if (point != VS_POINT_process_retired)
        return;
    vs_point_hook = nullptr;
    std::thread([] {
        waiter = (pid_t) syscall(SYS_gettid);
        take_control();
    }).detach();
    while (waiter == 0)
        sched_yield();
    until_it_sleeps("self/task/" + std::to_string(waiter));
    need(write(go_fd, "", 1) == 1, "write");
    until_it_sleeps(std::to_string(behind));
}

// As one that is woken, and does not run at once.
void wait_in_line(const Link &link)
{
    need(vs_attach_keeper() == 0, "vs_attach_keeper");
    give_way();
    link.put('h');
    link.get<char>();
    take_control();
    vs_detach();
}

void join_line(Child &child)
{
    child.link().put('g');
    until_it_sleeps(std::to_string(child.pid()));
}

// The lock is free, its first waiter woken. Before that one has it somebody else comes by and takes it, who knows of no waiters, and the first
// is killed: the second still gets its turn.
TEST_F(MomentsTest, AWaiterThatIsKilledWhenItIsWokenTakesNobodysTurn)
{
    OneCpu cpu;
    Child first(wait_in_line), second(wait_in_line);
    first.link().get<char>();
    second.link().get<char>();
    Child holder([&](const Link &link) {
        need(vs_attach_keeper() == 0, "vs_attach_keeper");
        vs_control_lock();
        link.meet();
        vs_control_unlock();
        vs_control_lock();
        kill(first.pid(), SIGKILL);
        link.meet();
        vs_control_unlock();
        vs_detach();
    });
    holder.link().get<char>();
    join_line(first);
    join_line(second);
    holder.link().put('m');
    holder.link().get<char>();
    EXPECT_EQ(first.wait(), 256 + SIGKILL);
    holder.link().put('m');
    EXPECT_EQ(holder.wait(), 0);
    EXPECT_EQ(second.wait(), 0);
}

// Its own thread comes first in the line, and then waits for a lock that nobody else sees.
TEST_F(MomentsTest, AThreadThatWaitsWhileItsProcessLeavesTakesNobodysTurn)
{
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "programs look into the table of operations without a lock, as verbs.h has it";
#endif
    int go[2];
    need(pipe2(go, O_CLOEXEC) == 0, "pipe2");
    Child other([&](const Link &link) {
        Context c = open_device();
        char byte;
        link.put('h');
        need(read(go[0], &byte, 1) == 1, "read");
        take_control();
    });
    other.link().get<char>();
    behind = other.pid();
    go_fd = go[1];
    Child leaver([](const Link &) {
        new Context(open_device());
        vs_point_hook = line_up;
        exit(0);
    });
    EXPECT_EQ(leaver.wait(), 0);
    EXPECT_EQ(other.wait(), 0);
    close(go[0]);
    close(go[1]);
}

} // namespace
