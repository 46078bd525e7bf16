// Processes that end with threads still at work: at exit, in the middle of everything; and where the first thread has ended before the others.
#include "conform/faults.h"
#include "conform/peer.h"

#include <sys/syscall.h>

#include <atomic>
#include <fstream>
#include <thread>

namespace
{

using namespace vt;

class ExitTest : public vt::Test
{
};

constexpr uint32_t depth = 32;

// What the threads work on: there until the very end.
struct Busy {
    Node node;
    Qp out, in;
    Busy() : out(make_qp(IBV_QPT_RC, node.pd, node.cq)), in(make_qp(IBV_QPT_RC, node.pd, node.cq))
    {
    }
};

std::atomic<long> turns[3]; // of those threads that open no files, for which exit() has a lock now

// exit() flushes streams after all destructors, the library's included: the threads go on for a while even then.
ssize_t last_of_all(void *, const char *, size_t size)
{
    for (auto &t : turns)
        for (long enough = t + 100; t < enough;)
            sched_yield();
    return (ssize_t) size;
}

void flush_late()
{
    FILE *f = fopencookie(nullptr, "w", {nullptr, last_of_all, nullptr, nullptr});
    need(f && fputc('x', f) == 'x', "fopencookie");
}

[[noreturn]] void wrong(const char *what)
{
    fprintf(stderr, "%s\n", what);
    _exit(7);
}

void send_all_the_time(Busy *b)
{
    for (uint32_t i = 0;; turns[0]++) {
        Send s(IBV_WR_SEND_WITH_IMM, {b->node.sge(0, 64)});
        int err = s.imm(i).post(b->out);
        i += !err;
    }
}

void poll_all_the_time(Busy *b)
{
    for (ibv_wc wc;; turns[1]++)
        if (ibv_poll_cq(b->node.cq, 1, &wc) < 0)
            wrong("ibv_poll_cq");
}

void repost_all_the_time(Busy *b)
{
    for (;; turns[2]++)
        post_recv(b->in, 1, {b->node.sge(64, 64)});
}

ibv_mr *mr; // what was made before the end and is refused to be destroyed after it is not lost
ibv_cq *cq;

void make_all_the_time(Busy *b)
{
    for (char byte;;) {
        if (!mr || ibv_dereg_mr(mr) == 0)
            mr = ibv_reg_mr(b->node.pd, &byte, 1, 0);
        if (!cq || ibv_destroy_cq(cq) == 0)
            cq = ibv_create_cq(b->node.ctx, 16, nullptr, nullptr, 0);
    }
}

void exit_while_busy(const Link &link)
{
    static Busy *b = new Busy;
    connect_over(link, b->out, b->node);
    connect_over(link, b->in, b->node);
    link.meet();
    for (auto work : {send_all_the_time, poll_all_the_time, repost_all_the_time, make_all_the_time})
        std::thread(work, b).detach();
    link.meet();
    flush_late();
    exit(0);
}

// Reads its entries until the sender has ended, and all that were sent then; they come as they were numbered.
struct Reader {
    Node n;
    Cq cq;
    Qp in, out;
    uint32_t next = 0;

    Reader() : cq(make_cq(n.ctx, 2 * depth))
    {
        auto attr = qp_attr(IBV_QPT_RC, n.pd, n.cq);
        attr.recv_cq = cq;
        in = Qp(ibv_create_qp_ex(n.ctx, &attr));
        need(in, "ibv_create_qp_ex");
        out = make_qp(IBV_QPT_RC, n.pd, n.cq);
        for (uint32_t i = 0; i < depth; i++)
            post_recv(in, i, {n.sge(64 * i, 64)});
    }
    void read()
    {
        ibv_wc wc;
        int got;
        while ((got = ibv_poll_cq(cq, 1, &wc)) == 1) {
            ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
            ASSERT_EQ(be32toh(wc.imm_data), next++);
            post_recv(in, wc.wr_id, {n.sge(64 * wc.wr_id, 64)});
        }
        ASSERT_EQ(got, 0);
    }
    void write()
    {
        ibv_wc wc;
        Send(IBV_WR_SEND, {n.sge(0, 8)}).post(out);
        while (ibv_poll_cq(n.cq, 1, &wc) == 1) {
        }
    }
    // Whoever was about to put an entry into the queue is gone, and it moves on.
    void still_reads()
    {
        auto attr = qp_attr(IBV_QPT_RC, n.pd, n.cq);
        attr.recv_cq = cq;
        Cq sent = make_cq(n.ctx);
        Qp b(ibv_create_qp_ex(n.ctx, &attr)), a = make_qp(IBV_QPT_RC, n.pd, sent);
        connect(a, n.lid, b, n.lid);
        ASSERT_EQ(post_recv(b, 1000), 0);
        ASSERT_EQ(outcome(a, Send()), IBV_WC_SUCCESS);
        EXPECT_EQ(next_wc(cq).wr_id, 1000u);
    }
};

TEST_F(ExitTest, WithThreadsThatSendAndPollAndPostAndMake)
{
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "programs look into the table of operations without a lock, as verbs.h has it";
#endif
    const int rounds = repetitions(100, 1000);
    for (int round = 0; round < rounds && !HasFailure(); round++) {
        Child busy(exit_while_busy);
        Reader r;
        connect_over(busy.link(), r.in, r.n);
        connect_over(busy.link(), r.out, r.n);
        busy.link().meet();
        for (int i = 0; i < round % 10; i++) { // not always at the same moment
            r.read();
            r.write();
        }
        busy.link().put('m');
        int status = 0;
        for (pid_t ended = 0; ended == 0 && !HasFailure(); ended = waitpid(busy.pid(), &status, WNOHANG | WNOWAIT)) {
            r.read();
            r.write();
        }
        EXPECT_EQ(busy.wait(), 0);
        r.read();
        r.still_reads();
        if (round % 10 == 0)
            check_fabric();
    }
}

// ---- the first thread ends ----

// Is the first thread of this process, by whose number peers know it, no more than its exit status?
bool first_thread_ended()
{
    std::ifstream f("/proc/" + std::to_string(getpid()) + "/stat");
    std::string text((std::istreambuf_iterator<char>(f)), {});
    return text.compare(text.rfind(')') + 2, 1, "Z") == 0;
}

constexpr uint32_t large = 60000;

void receive_without_first_thread(const Link &link)
{
    while (!first_thread_ended())
        sched_yield();
    {
        Node n(3 * large);
        Qp qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
        connect_over(link, qp, {n.lid, qp->qp_num, 0, n.mr->rkey, n.addr(large)});
        ASSERT_EQ(post_recv(qp, 1, {n.sge(0, large)}), 0);
        memset(n.mem.data() + 2 * large, 'r', large);
        link.meet();
        EXPECT_EQ(next_wc(n.cq).status, IBV_WC_SUCCESS);
        link.meet();
        EXPECT_EQ(n.mem[large - 1], 's');
        EXPECT_EQ(n.mem[2 * large - 1], 'w');
    }
}

// Each time a peer looks for its memory at another moment after its start. The thread sanitizer knows no threads but the first in a child of
// a process that had some, so it sees one round.
class FirstThread : public ExitTest, public ::testing::WithParamInterface<int>
{
};

#if defined(__SANITIZE_THREAD__)
constexpr int moments = 1;
#else
constexpr int moments = 20;
#endif

INSTANTIATE_TEST_SUITE_P(Rounds, FirstThread, ::testing::Range(0, moments));

TEST_P(FirstThread, OfTheFirstThreadAlone)
{
    Child receiver([](const Link &link) {
        std::thread([&link] {
            try {
                receive_without_first_thread(link);
            } catch (const std::exception &e) {
                wrong(e.what());
            }
            _exit(HasFailure());
        }).detach();
        syscall(SYS_exit, 0); // of this thread
    });
    Node n(large);
    Qp qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
    Address to = connect_over(receiver.link(), qp, n);
    receiver.link().meet();
    memset(n.mem.data(), 's', large);
    EXPECT_EQ(outcome(qp, Send(IBV_WR_SEND, {n.sge(0, large)})), IBV_WC_SUCCESS);
    memset(n.mem.data(), 'w', large);
    EXPECT_EQ(outcome(qp, Send(IBV_WR_RDMA_WRITE, {n.sge(0, large)}).at(to.addr, to.rkey)), IBV_WC_SUCCESS);
    EXPECT_EQ(outcome(qp, Send(IBV_WR_RDMA_READ, {n.sge(0, large)}).at(to.addr + large, to.rkey)), IBV_WC_SUCCESS);
    EXPECT_EQ(n.mem[large - 1], 'r');
    receiver.link().meet();
    EXPECT_EQ(receiver.wait(), 0);
}

} // namespace
