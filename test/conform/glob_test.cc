// HCAs whose atomics are atomic with the CPU's (IBV_ATOMIC_GLOB): the owner of a word changes it by CPU atomics while
// peers do so by RDMA, in memory that both map and in memory that the owner alone maps, and no change is lost. Those who
// die in the middle take nobody with them, and whatever the engine of the owner cannot touch is an error of the request.
#include "conform/atomic.h"
#include "conform/pair.h"
#include "conform/peer.h"
#include "conform/window.h"

#include <linux/capability.h>

#include <atomic>
#include <random>
#include <thread>

namespace
{

using namespace vt;

constexpr uint64_t times = sanitized ? 300 : 3000;

// The words of a region that are changed.
constexpr size_t sum_at = 64, swap_at = 128;

uint64_t *at_word(char *at)
{
    return reinterpret_cast<uint64_t *>(at);
}

// Adds 1 by comparing and swapping.
template <class Swap> void count_up(uint64_t guess, Swap swap)
{
    for (uint64_t found; (found = swap(guess, guess + 1)) != guess;)
        guess = found;
}

// The CPU's part: both words, until told to stop, and at least as often as the peers do.
class Hammer
{
  public:
    explicit Hammer(char *at)
        : thread_([this, at] {
              for (; done_ < times || !stop_; done_++) {
                  __atomic_fetch_add(at_word(at + sum_at), 1, __ATOMIC_SEQ_CST);
                  count_up(word_at(at + swap_at), [at](uint64_t compare, uint64_t swap) {
                      __atomic_compare_exchange_n(at_word(at + swap_at), &compare, swap, false, __ATOMIC_SEQ_CST,
                                                  __ATOMIC_SEQ_CST);
                      return compare;
                  });
              }
          })
    {
    }
    // How often it added to each word.
    uint64_t stop()
    {
        stop_ = true;
        thread_.join();
        return done_;
    }

  private:
    std::atomic<bool> stop_{false};
    std::atomic<uint64_t> done_{0};
    std::thread thread_;
};

// A peer's part: one add to each word. false: the target is gone.
bool add_once(Side &s, const Region &r)
{
    if (s.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, r, sum_at, 1) != IBV_WC_SUCCESS)
        return false;
    bool there = true;
    count_up(s.word(), [&](uint64_t compare, uint64_t swap) {
        there = there && s.atomic(IBV_WR_ATOMIC_CMP_AND_SWP, r, swap_at, compare, swap) == IBV_WC_SUCCESS;
        return there ? s.word() : compare;
    });
    return there;
}

class Glob : public vt::Test
{
  protected:
    Setting topology_{"VERBS_SHIM_TOPOLOGY", "atomics=glob"};
};

// ---- no change is lost ----

class GlobMemory : public Glob, public ::testing::WithParamInterface<std::tuple<MemoryKind, bool>>
{
};

// Three peers, one of which has registered the memory as well where it can be mapped twice.
TEST_P(GlobMemory, CpuAndPeersTogether)
{
    constexpr int peers = 3;
    auto [kind, xrc] = GetParam();
    Memory memory(kind, page);
    std::vector<std::unique_ptr<Child>> children;
    for (int i = 0; i < peers; i++)
        children.emplace_back(new Child([&memory, i, xrc = xrc](const Link &link) {
            Side s(link, false, xrc);
            Mr mr = i == 0 ? s.reg(memory.map(), page) : Mr();
            Region r = s.told();
            uint64_t last = 0;
            for (uint64_t n = 0; n < times; n++) {
                EXPECT_TRUE(add_once(s, r));
                uint64_t now = s.word();
                EXPECT_TRUE(n == 0 || now > last) << "each sees its own adds";
                last = now;
            }
            s.link.meet();
        }));
    {
        char *at = memory.map();
        std::vector<std::unique_ptr<Side>> sides;
        std::vector<Mr> regions;
        for (auto &child : children) {
            sides.emplace_back(new Side(child->link(), true, xrc));
            regions.push_back(sides.back()->reg(at, page));
        }
        for (int i = 0; i < peers; i++)
            sides[i]->tell(regions[i]);
        Hammer cpu(at);
        for (auto &s : sides)
            s->link.meet();
        uint64_t all = cpu.stop() + peers * times;
        EXPECT_EQ(word_at(at + sum_at), all);
        EXPECT_EQ(word_at(at + swap_at), all);
        for (auto &child : children)
            EXPECT_EQ(child->wait(), 0);
        check_fabric();
    }
}

INSTANTIATE_TEST_SUITE_P(All, GlobMemory,
                         ::testing::Combine(::testing::Values(PRIVATE, MEMFD, FORKED), ::testing::Bool()),
                         [](const auto &info) {
                             return std::string(memory_name[std::get<0>(info.param)])
                                    + (std::get<1>(info.param) ? "Xrc" : "Rc");
                         });

TEST_F(Glob, ToItself)
{
    Node n(page, atomic_access);
    Path p;
    p.access |= IBV_ACCESS_REMOTE_ATOMIC;
    RcPair rc(n, n, p);
    XrcPair xrc(n, n, p);
    Hammer cpu(n.mem.data());
    for (uint64_t i = 0; i < times; i++) {
        bool by_rc = i % 2;
        auto atomic = [&](ibv_wr_opcode op, size_t at, uint64_t compare_add, uint64_t swap) {
            Atomic a(n, op, n.addr(at), n.mr->rkey, compare_add, swap);
            a.to_srq(xrc.srqn);
            EXPECT_EQ(outcome(by_rc ? rc.a : xrc.ini, a), IBV_WC_SUCCESS);
            return word(n, 0);
        };
        uint64_t found = atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, sum_at, 1, 0);
        count_up(found, [&](uint64_t compare, uint64_t swap) {
            return atomic(IBV_WR_ATOMIC_CMP_AND_SWP, swap_at, compare, swap);
        });
    }
    uint64_t all = cpu.stop() + times;
    EXPECT_EQ(word_at(n.mem.data() + sum_at), all);
    EXPECT_EQ(word_at(n.mem.data() + swap_at), all);
}

// ---- who waits for whom ----

void drop_rights()
{
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2] = {};
    need(syscall(SYS_capset, &header, none) == 0, "capset");
}

// Adds to the other's word and to its own, as many at a time as fit. Packets leave late, so that mostly it is the engine
// that carries them out.
void add_both_ways(Side &s, uint64_t adds)
{
    char *at = s.n.mem.data() + (1 << 17);
    Mr mr = s.reg(at, page);
    Path p;
    p.access |= IBV_ACCESS_REMOTE_ATOMIC;
    RcPair itself(s.n, s.n, p);
    s.tell(mr);
    Region other = s.told(), own = {(uintptr_t) at, mr->rkey};
    s.link.meet();
    for (uint64_t posted = 0, done = 0; done < 2 * adds;) {
        for (; posted < 2 * adds && posted < done + 64; posted++) {
            const Region &r = posted % 2 ? own : other;
            Atomic a(s.n, IBV_WR_ATOMIC_FETCH_AND_ADD, r.addr, r.rkey, 1);
            a.to_srq(s.peer.srqn);
            need(a.post(posted % 2 ? itself.a : s.qp) == 0, "ibv_post_send");
        }
        EXPECT_EQ(next_wc(s.n.cq).status, IBV_WC_SUCCESS);
        done++;
    }
    s.link.meet();
    EXPECT_EQ(word_at(at), 2 * adds);
    s.link.meet();
}

class GlobTurns : public vt::Test, public ::testing::WithParamInterface<bool>
{
};

// Each engine waits for the other's, and for its turn at a word that the other one holds. Without IBV_ATOMIC_GLOB engines
// are asked for bytes where the kernel refuses them, as it does here.
TEST_P(GlobTurns, TwoEnginesAtEachOthersWords)
{
    Setting topology("VERBS_SHIM_TOPOLOGY", topology_of(GetParam()));
    auto end = [](const Link &link, const Link &other) {
        drop_rights();
        need(prctl(PR_SET_DUMPABLE, 0) == 0, "PR_SET_DUMPABLE");
        {
            Side s(other, false);
            link.meet();
            add_both_ways(s, repetitions(1000, 20000));
        }
        link.meet();
    };
    int fds[2];
    need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, "socketpair");
    Child a([&](const Link &link) { end(link, Link(fds[0])); });
    Child b([&](const Link &link) { end(link, Link(fds[1])); });
    close(fds[0]);
    close(fds[1]);
    a.link().get<char>();
    b.link().get<char>();
    order("delay packet 1 times ever");
    a.link().put('m');
    b.link().put('m');
    a.link().meet();
    b.link().meet();
    EXPECT_EQ(a.wait(), 0);
    EXPECT_EQ(b.wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, GlobTurns, ::testing::Bool(),
                         [](const auto &info) { return std::string(info.param ? "Glob" : "Hca"); });

// A peer waits inside the data path for this process's engine; whoever resizes a CQ waits for that peer; and the engine, whose QP completes
// into that CQ, waits until it has its new size. It must serve the peer meanwhile: else each time takes until quiesce gives up.
TEST_F(Glob, AnEngineThatWaitsForACqThatIsResizedServesItsPeers)
{
    Child peer([](const Link &link) {
        Node n(page, all_access | IBV_ACCESS_REMOTE_ATOMIC);
        Qp qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
        Address to = connect_over(link, qp, n);
        link.meet();
        while (!readable(link.fd())) {
            Send add(IBV_WR_ATOMIC_FETCH_AND_ADD, {n.sge(0, 8)});
            add.wr.wr.atomic.remote_addr = to.addr;
            add.wr.wr.atomic.rkey = to.rkey;
            add.wr.wr.atomic.compare_add = 1;
            ASSERT_EQ(outcome(qp, add), IBV_WC_SUCCESS);
        }
        link.meet();
    });
    Node n(page, all_access | IBV_ACCESS_REMOTE_ATOMIC);
    Path p;
    p.access |= IBV_ACCESS_REMOTE_ATOMIC;
    Qp target = make_qp(IBV_QPT_RC, n.pd, n.cq);
    connect_over(peer.link(), target, {n.lid, target->qp_num, 0, n.mr->rkey, n.addr()}, p);
    Cq cq = make_cq(n.ctx);
    Qp waits = make_qp(IBV_QPT_RC, n.pd, cq), dry = make_qp(IBV_QPT_RC, n.pd, n.cq);
    connect(waits, n.lid, dry, n.lid); // tries again every 10 us
    ASSERT_EQ(Send().post(waits), 0);
    peer.link().meet();
    for (int i = 0; i < 100; i++)
        ASSERT_EQ(ibv_resize_cq(cq, i % 2 ? 100 : 500), 0);
    peer.link().meet();
    EXPECT_EQ(peer.wait(), 0);
    ASSERT_EQ(post_recv(dry, 1), 0);
    EXPECT_EQ(next_wc(cq).status, IBV_WC_SUCCESS);
}

// An owner that stands still keeps a request waiting, and it is carried out once the owner goes on.
TEST_F(Glob, AnOwnerThatStandsStill)
{
    Child owner([](const Link &link) {
        Memory memory(PRIVATE, page);
        char *at = memory.map();
        Side s(link, true);
        Mr mr = s.reg(at, page);
        s.tell(mr);
        s.link.meet();
        EXPECT_EQ(word_at(at + sum_at), 7u);
    });
    {
        Side s(owner.link(), false);
        Region r = s.told();
        int status;
        need(kill(owner.pid(), SIGSTOP) == 0, "SIGSTOP");
        need(waitpid(owner.pid(), &status, WUNTRACED) == owner.pid() && WIFSTOPPED(status), "it stops");
        std::atomic<bool> asked{false};
        std::thread requester([&] {
            asked = true;
            EXPECT_EQ(s.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, r, sum_at, 7), IBV_WC_SUCCESS);
        });
        until([&] { return asked.load(); });
        need(kill(owner.pid(), SIGCONT) == 0, "SIGCONT");
        requester.join();
        s.link.meet();
        EXPECT_EQ(owner.wait(), 0);
    }
}

// ---- deaths ----

// How far a process is, in memory that all map.
struct Progress {
    std::atomic<uint64_t> done{0};

    static Progress *make()
    {
        void *p = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        need(p != MAP_FAILED, "mmap");
        return new (p) Progress;
    }
};

class GlobDeath : public Glob, public ::testing::WithParamInterface<std::tuple<MemoryKind, bool>>
{
  protected:
    GlobDeath() : seed_(std::random_device{}()), random_(seed_), progress_(Progress::make())
    {
        printf("seed %u\n", seed_);
    }
    ~GlobDeath() override
    {
        munmap(progress_, page);
    }
    // Some time on, wherever the process is then.
    void let_it_work()
    {
        uint64_t far = progress_->done + random_() % 200, spins = random_() % 5000;
        until([&] { return progress_->done > far; });
        for (uint64_t i = 0; i < spins; i++)
            __atomic_signal_fence(__ATOMIC_SEQ_CST);
    }
    unsigned seed_;
    std::mt19937 random_;
    Progress *progress_;
};

constexpr int deaths = 6;

// What it had been answered is in the sum, and what it had asked last may be: nothing else.
TEST_P(GlobDeath, OfARequester)
{
    auto [kind, xrc] = GetParam();
    Memory memory(kind, page);
    for (int i = 0; i < repetitions(deaths, 20 * deaths); i++) {
        progress_->done = 0;
        Child victim([&, xrc = xrc](const Link &link) {
            Side s(link, false, xrc);
            Mr mr = s.reg(memory.map(), page);
            Region r = s.told();
            while (s.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, r, sum_at, 1) == IBV_WC_SUCCESS)
                progress_->done++;
        });
        Child other([&, xrc = xrc](const Link &link) {
            Side s(link, false, xrc);
            Region r = s.told();
            for (uint64_t n = 0; n < times / 4; n++)
                EXPECT_EQ(s.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, r, sum_at, 1), IBV_WC_SUCCESS);
            s.link.meet();
        });
        char *at = memory.map();
        __atomic_store_n(at_word(at + sum_at), 0, __ATOMIC_SEQ_CST);
        Side s(victim.link(), true, xrc), t(other.link(), true, xrc);
        Mr one = s.reg(at, page), two = t.reg(at, page);
        s.tell(one);
        t.tell(two);
        Hammer cpu(at);
        let_it_work();
        victim.kill();
        t.link.meet();
        uint64_t least = cpu.stop() + times / 4 + progress_->done;
        EXPECT_GE(word_at(at + sum_at), least);
        EXPECT_LE(word_at(at + sum_at), least + 1) << "one was on its way, or not counted yet";
        EXPECT_EQ(other.wait(), 0);
        check_fabric();
    }
}

// Those who ask it are told, as of any target that is gone, and are well afterwards.
TEST_P(GlobDeath, OfTheOwner)
{
    auto [kind, xrc] = GetParam();
    Memory memory(kind, page);
    for (int i = 0; i < repetitions(deaths, 20 * deaths); i++) {
        progress_->done = 0;
        Child victim([&, xrc = xrc](const Link &link) {
            Side s(link, true, xrc);
            char *at = memory.map();
            Mr mr = s.reg(at, page);
            s.tell(mr);
            Hammer cpu(at);
            until_gone(link);
            cpu.stop();
        });
        {
            Side s(victim.link(), false, xrc);
            Mr mr = s.reg(memory.map(), page);
            Region r = s.told();
            std::thread killer([&] {
                let_it_work();
                kill(victim.pid(), SIGKILL);
            });
            ibv_wc_status status;
            while ((status = s.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, r, sum_at, 1)) == IBV_WC_SUCCESS)
                progress_->done++;
            killer.join();
            EXPECT_EQ(status, IBV_WC_RETRY_EXC_ERR);
            EXPECT_EQ(victim.wait(), 256 + SIGKILL);
            Path p;
            p.access |= IBV_ACCESS_REMOTE_ATOMIC;
            Mr own = s.reg(s.n.mem.data(), page);
            RcPair itself(s.n, s.n, p);
            Atomic a(s.n, IBV_WR_ATOMIC_FETCH_AND_ADD, s.n.addr(sum_at), own->rkey, 1);
            EXPECT_EQ(outcome(itself.a, a), IBV_WC_SUCCESS);
            check_fabric();
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, GlobDeath, ::testing::Combine(::testing::Values(PRIVATE, MEMFD), ::testing::Bool()),
                         [](const auto &info) {
                             return std::string(memory_name[std::get<0>(info.param)])
                                    + (std::get<1>(info.param) ? "Xrc" : "Rc");
                         });

// ---- what the owner's engine cannot touch ----

class GlobRefused : public Glob, public ::testing::WithParamInterface<bool>
{
  protected:
    // An atomic on a word that its owner has made unusable fails; one beside it works afterwards, so the engine is well.
    void refused(const std::function<void(char *)> &spoil)
    {
        bool xrc = GetParam();
        Child requester([xrc](const Link &link) {
            Side s(link, false, xrc);
            Region bad = s.told(), good = s.told();
            EXPECT_EQ(s.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, bad, sum_at, 1), IBV_WC_REM_OP_ERR);
            s.again();
            EXPECT_EQ(s.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, good, sum_at, 1), IBV_WC_SUCCESS);
            s.link.meet();
        });
        {
            Memory memory(PRIVATE, 2 * page);
            char *at = memory.map();
            Side s(requester.link(), true, xrc);
            Mr bad = s.reg(at, page), good = s.reg(at + page, page);
            spoil(at);
            s.tell(bad);
            s.tell(good);
            s.again();
            s.link.meet();
            EXPECT_EQ(word_at(at + page + sum_at), 1u);
            EXPECT_EQ(requester.wait(), 0);
        }
    }
};

TEST_P(GlobRefused, Unmapped)
{
    refused([](char *at) { need(munmap(at, page) == 0, "munmap"); });
}

TEST_P(GlobRefused, NotToBeWritten)
{
    refused([](char *at) { need(mprotect(at, page, PROT_READ) == 0, "mprotect"); });
}

TEST_P(GlobRefused, NotToBeTouched)
{
    refused([](char *at) { need(mprotect(at, page, PROT_NONE) == 0, "mprotect"); });
}

INSTANTIATE_TEST_SUITE_P(All, GlobRefused, ::testing::Bool(),
                         [](const auto &info) { return std::string(info.param ? "Xrc" : "Rc"); });

} // namespace
