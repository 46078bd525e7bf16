// A process of the same user maps the segment and writes random bytes into slots, queues, events and buffers, while others work, and while
// vshim looks. The others may get errors, but they do not crash, do not run away and do not hang. What lies in front of the tables (locks, geometry) is left alone:
// who may write there needs no verbs to do harm.
#include "../conform/faults.h"
#include "../conform/pair.h"
#include "../conform/peer.h"

#include <sys/mman.h>

#include <random>

#include "memory/slots.h"

using namespace vt;

// Two transfers into the same bytes are a data race of the program, and here the attacker can bring them about in programs that have
// none. The thread sanitizer would be right about them; what is asked here is whether anybody crashes or hangs.
extern "C" const char *__tsan_default_options()
{
    return "report_bugs=0";
}

namespace
{

// Not just anywhere in 4 GiB of holes: where something lies.
void scribble(unsigned seed, int writes)
{
    int fd = open((fabric_dir() + "/segment").c_str(), O_RDWR);
    need(fd >= 0, "open");
    auto *base = static_cast<char *>(mmap(nullptr, VS_SEGMENT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    need(base != MAP_FAILED, "mmap");
    auto *head = reinterpret_cast<vs_segment *>(base);
    std::mt19937 random(seed);
    const vs_table victims[] = {VS_PD, VS_MR, VS_CQ, VS_SRQ, VS_XRCD, VS_XRCD_REF, VS_QP, VS_QP_REF, VS_MCAST, VS_HOST, VS_HCA, VS_PORT};
    for (int i = 0; i < writes; i++) {
        char *at;
        if (random() % 4 == 0) {
            // A process: its events, and what its engine is asked. Turns and hazards are waited for, see unit/vs_segment_test.
            const struct {
                size_t from, bytes;
            } parts[] = {{offsetof(vs_proc_shm, events), offsetof(vs_proc_shm, hazard) - offsetof(vs_proc_shm, events)},
                         {offsetof(vs_proc_shm, event), 64 * sizeof(vs_event)},
                         {offsetof(vs_proc_shm, stage), 4096}};
            auto &part = parts[random() % 3];
            at = base + head->table_offset[VS_PROC] + random() % 2 * head->slot_size[VS_PROC] + part.from + random() % part.bytes;
        } else if (random() % 2) {
            vs_table t = victims[random() % (sizeof(victims) / sizeof(victims[0]))];
            uint64_t slots = head->reserved[t] < 8 ? head->reserved[t] : 8; // the ones in use are the first
            if (slots == 0)
                continue;
            at = base + head->table_offset[t] + random() % (slots * head->slot_size[t]);
        } else {
            uint64_t used = 0;
            for (uint64_t p = 0; p < 4096; p++)
                used = head->page_map[p / 64] >> (p % 64) & 1 ? p + 1 : used;
            if (used == 0)
                continue;
            at = base + head->data_offset + random() % (used * VS_PAGE);
        }
        *reinterpret_cast<volatile char *>(at) = (char) random();
    }
    munmap(base, VS_SEGMENT_SIZE);
    close(fd);
}

// Memory that both victims map and register, and the other's region in it.
struct SharedMemory {
    char *at;
    Mr mr;
    Qp rc;
    Address peer;
};

constexpr size_t shared_size = 1 << 16;

SharedMemory join(const Node &n, char *at, const Link &other)
{
    SharedMemory s{at,
                   Mr(ibv_reg_mr(n.pd, at, shared_size, all_access | IBV_ACCESS_REMOTE_ATOMIC)),
                   make_qp(IBV_QPT_RC, n.pd, n.cq),
                   {}};
    need(s.mr, "ibv_reg_mr");
    Path p;
    p.access |= IBV_ACCESS_REMOTE_ATOMIC;
    s.peer = connect_over(other, s.rc, {n.lid, s.rc->qp_num, 0, s.mr->rkey, (uintptr_t) at}, p);
    return s;
}

void one_sided(const Node &n, const SharedMemory &s, int i)
{
    uint64_t at = s.peer.addr + (unsigned) i % 64 * 1000;
    Send(IBV_WR_RDMA_WRITE, {n.sge(0, 500)}).at(at, s.peer.rkey).post(s.rc);
    Send(IBV_WR_RDMA_READ, {n.sge(0, 500)}).at(at, s.peer.rkey).post(s.rc);
    Send add(IBV_WR_ATOMIC_FETCH_AND_ADD, {n.sge(0, 8)});
    add.wr.wr.atomic.remote_addr = at;
    add.wr.wr.atomic.rkey = s.peer.rkey;
    add.post(s.rc);
}

// Everything a program does, whatever it answers; each loop is bounded.
void work(const Node &n, const XrcPair &x, ibv_qp *rc, const SharedMemory &shared)
{
    ibv_wc wc[8];
    for (int i = 0; i < 200; i++) {
        post_recv(x.srq, i, {n.sge(0, 30000)});
        post_recv(rc, i, {n.sge(0, 30000)});
        Send(IBV_WR_SEND, {n.sge(0, i % 2 ? 40u : 20000u)}).to_srq(x.srqn).post(x.ini);
        Send(IBV_WR_SEND, {n.sge(0, 40)}).post(rc);
        Send(IBV_WR_RDMA_WRITE, {n.sge(0, 40)}).at(n.addr(), n.mr->rkey).post(rc);
        one_sided(n, shared, i);
        ibv_poll_cq(n.cq, 8, wc);
        ibv_poll_cq(x.srq_cq, 8, wc);
        ibv_qp_attr a;
        ibv_qp_init_attr init;
        ibv_query_qp(x.tgt, &a, IBV_QP_STATE, &init);
    }
    ibv_srq_attr limit = {};
    limit.srq_limit = 1;
    ibv_modify_srq(x.srq, &limit, IBV_SRQ_LIMIT);
    to_state(x.ini, IBV_QPS_ERR);
    to_state(rc, IBV_QPS_RESET);
}

// The process ends without destroying anything: refusals are expected, and the kernel would not care either.
[[noreturn]] void victim(const Link &link, char *memory, const Link &other)
{
    auto *n = new Node;
    auto *x = new XrcPair(*n, *n);
    auto *rc = new Qp(make_qp(IBV_QPT_RC, n->pd, n->cq));
    Path itself;
    itself.qpn = (*rc)->qp_num;
    itself.lid = n->lid;
    bring_up(*rc, itself);
    auto *shared = new SharedMemory(join(*n, memory, other));
    link.put('h');
    for (int i = 0; i < 10; i++)
        work(*n, *x, *rc, *shared);
    _exit(0);
}

TEST(Hostile, RandomBytesHurtNobody)
{
    const int rounds = repetitions(30, 300);
    unsigned first = std::random_device{}();
    printf("seed %u\n", first);
    for (int r = 0; r < rounds; r++) {
        alarm(60);
        setenv("VERBS_SHIM_TOPOLOGY", r % 2 ? "atomics=glob" : "", 1);
        unsigned seed = first + (unsigned) r;
        int fds[2];
        need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, "socketpair");
        auto *memory =
            static_cast<char *>(mmap(nullptr, shared_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        need(memory != MAP_FAILED, "mmap");
        Child a([&](const Link &link) { victim(link, memory, Link(fds[0])); });
        Child b([&](const Link &link) { victim(link, memory, Link(fds[1])); });
        close(fds[0]);
        close(fds[1]);
        munmap(memory, shared_size);
        a.link().get<char>();
        b.link().get<char>();
        scribble(seed, 3000);
        for (const char *look : {"list", "list --json", "counters", "check", "link up all"})
            EXPECT_LT(vshim(look).status, 3) << look << ", seed " << seed;
        EXPECT_EQ(a.wait(), 0) << "seed " << seed;
        EXPECT_EQ(b.wait(), 0) << "seed " << seed;
        std::string gone = "rm -rf " + fabric_dir();
        need(system(gone.c_str()) == 0, "rm");
        if (HasFailure())
            break;
    }
}

} // namespace
