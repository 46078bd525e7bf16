// Processes killed at random moments under mixed traffic. Every worker talks to every other over XRC and over RC: sends of all sizes,
// writes, reads, atomics, handles opened and closed. One of them only receives, and sleeps until its completion channel wakes it. One is
// killed and started anew, again and again; the others must go on, no message may arrive damaged, and the fabric must hold exactly the
// objects of those who live.
#include "conform/verbs.h"

#include <sys/mman.h>

#include <chrono>
#include <map>
#include <random>
#include <sstream>

namespace
{

using namespace vt;

constexpr int workers = 4, sleeper = 3;
constexpr uint32_t slot_bytes = 12288, wqes = 32, rc_wqes = 4; // of the SRQ, and of each RC QP
constexpr uint32_t buffers = wqes + workers * rc_wqes;
enum { XRC, RC, LANES };                                    // which of two QPs to a peer
constexpr uint32_t area = 4 * workers * LANES * slot_bytes; // where READs land; the receive buffers lie behind it
constexpr uint32_t words = area + buffers * slot_bytes;     // behind those: what each one counts, what its word held
constexpr int access_to_all = all_access | IBV_ACCESS_REMOTE_ATOMIC;

// What the workers know of each other, in memory that all map. A worker fills in its row and then sets its generation.
struct Row {
    uint32_t generation; // 0: nobody is there
    uint16_t lid;
    uint32_t srqn, rkey;
    uint64_t addr;
    uint32_t tgt[workers], ini[workers], rc[workers]; // towards each other worker
    uint32_t round[workers];                          // moves when the QPs towards that worker were made again
    uint64_t progress;                                // steps, or how often it was woken
    uint64_t atomics;                                 // of ours that were carried out
    uint32_t paused;
};

struct Board {
    Row row[workers];
    uint32_t pause, stop;
};

template <class T> T load(const T &v)
{
    return __atomic_load_n(&v, __ATOMIC_SEQ_CST);
}

template <class T, class U> void store(T &v, U value)
{
    __atomic_store_n(&v, (T) value, __ATOMIC_SEQ_CST);
}

// ---- a worker ----

struct Message {
    uint32_t magic, length, seed;
};

constexpr uint32_t magic = 0x6b696c6c;

class Worker
{
  public:
    Worker(Board &board, int me, int domain_fd, uint32_t seed)
        : board_(board), me_(me), rng_(seed), n_(words + 4096, access_to_all), xrcd_(make_xrcd(n_.ctx, domain_fd)),
          channel_(ibv_create_comp_channel(n_.ctx)), recv_cq_(make_cq(n_.ctx, 256, channel_)),
          srq_(make_xrc_srq(n_.pd, xrcd_, recv_cq_, wqes, 1))
    {
        for (uint64_t i = 0; i < wqes; i++)
            repost(i);
        Row &row = board_.row[me_];
        row.lid = n_.lid;
        row.srqn = srq_num(srq_);
        row.rkey = n_.mr->rkey;
        row.addr = n_.addr();
        for (int peer = 0; peer < workers; peer++)
            if (peer != me_)
                make_pair(peer);
        need(ibv_req_notify_cq(recv_cq_, 0) == 0, "ibv_req_notify_cq");
    }

    void run(uint32_t generation)
    {
        store(board_.row[me_].generation, generation);
        while (!load(board_.stop)) {
            if (load(board_.pause))
                pause();
            if (me_ == sleeper ? sleep() : step())
                __atomic_fetch_add(&board_.row[me_].progress, 1, __ATOMIC_SEQ_CST);
        }
    }

  private:
    // A QP to send by, and the places of its buffers among all.
    struct Lane {
        Qp qp;
        int outstanding = 0;
        uint32_t posted = 0;
    };

    struct Peer {
        Qp tgt;
        Lane lane[LANES];
        uint64_t connected_to = 0; // generation and round of the peer, 0: not connected
    };

    // The first buffers are the SRQ's, then come those of each RC QP.
    void repost(uint64_t id)
    {
        ibv_sge at = n_.sge(area + id * slot_bytes, slot_bytes);
        int err =
            id < wqes ? post_recv(srq_, id, {at}) : post_recv(peers_[(id - wqes) / rc_wqes].lane[RC].qp, id, {at});
        need(err == 0, "post_recv");
    }

    // New QPs towards a peer; whoever was connected to the old ones sees the round move.
    void make_pair(int peer)
    {
        Peer &p = peers_[peer];
        for (auto &lane : p.lane)
            lane = Lane();
        p.tgt = Qp();
        p.tgt = make_tgt(xrcd_);
        p.lane[XRC].qp = make_qp(IBV_QPT_XRC_SEND, n_.pd, n_.cq);
        p.lane[RC].qp = make_rc();
        p.connected_to = 0;
        Row &row = board_.row[me_];
        store(row.tgt[peer], p.tgt->qp_num);
        store(row.ini[peer], p.lane[XRC].qp->qp_num);
        store(row.rc[peer], p.lane[RC].qp->qp_num);
        store(row.round[peer], row.round[peer] + 1);
    }

    Qp make_rc()
    {
        auto attr = qp_attr(IBV_QPT_RC, n_.pd, n_.cq);
        attr.recv_cq = recv_cq_;
        Qp qp(ibv_create_qp_ex(n_.ctx, &attr));
        need(qp, "ibv_create_qp_ex");
        return qp;
    }

    static uint64_t stamp(const Row &row, int towards)
    {
        return (uint64_t) load(row.generation) << 32 | load(row.round[towards]);
    }

    void connect_to(int peer)
    {
        Peer &p = peers_[peer];
        const Row &row = board_.row[peer];
        uint64_t now = stamp(row, me_);
        if (now >> 32 == 0 || p.connected_to == now)
            return;
        if (p.connected_to) {
            make_pair(peer);
            return;
        }
        Path path;
        path.access |= IBV_ACCESS_REMOTE_ATOMIC;
        path.timeout = 10;
        path.retry = 3;
        path.lid = row.lid;
        path.qpn = load(row.ini[me_]);
        if (state_of(p.tgt) != IBV_QPS_RESET)
            return;
        bring_up(p.tgt, path);
        path.qpn = load(row.tgt[me_]);
        bring_up(p.lane[XRC].qp, path);
        path.qpn = load(row.rc[me_]);
        bring_up(p.lane[RC].qp, path);
        for (uint64_t i = 0; i < rc_wqes; i++)
            repost(wqes + (uint64_t) peer * rc_wqes + i);
        p.connected_to = now;
    }

    void send(int peer, int by)
    {
        Lane &lane = peers_[peer].lane[by];
        const Row &row = board_.row[peer];
        if (!peers_[peer].connected_to || lane.outstanding >= depth)
            return;
        size_t buffer = ((size_t) peer * LANES + by) * depth + lane.posted % depth;
        uint32_t length = rng_() % 4 ? 12 + rng_() % 500 : 12 + rng_() % (slot_bytes - 12);
        Send s(IBV_WR_SEND, {n_.sge((((size_t) peer * LANES + by) * 4 + rng_() % 4) * slot_bytes, length)});
        switch (rng_() % 5) {
        case 4: s = count_there(row, buffer); break;
        case 0:
            s.wr.opcode = IBV_WR_RDMA_WRITE;
            s.at(row.addr + (uint64_t) peer * 64, row.rkey);
            s.list[0].length = length % 60;
            break;
        case 1:
            s.wr.opcode = IBV_WR_RDMA_READ;
            s.at(row.addr, row.rkey);
            break;
        default: s.list[0] = fill(buffer, length);
        }
        if (by == XRC)
            s.to_srq(row.srqn);
        if (s.id((uint64_t) peer * LANES + by).post(lane.qp) == 0)
            lane.outstanding++, lane.posted++;
    }

    // One more in our word at the peer, which nobody else changes.
    Send count_there(const Row &row, size_t result)
    {
        Send s(IBV_WR_ATOMIC_FETCH_AND_ADD, {n_.sge(words + 64 + result * 8, 8)});
        s.wr.wr.atomic.remote_addr = row.addr + words + (uint64_t) me_ * 8;
        s.wr.wr.atomic.rkey = row.rkey;
        s.wr.wr.atomic.compare_add = 1;
        return s;
    }

    // A send's buffer is used again once the sends of that many places later are posted: completions come in order.
    ibv_sge fill(size_t buffer, uint32_t length)
    {
        Message m = {magic, length, (uint32_t) rng_()};
        std::vector<char> &b = out_[buffer];
        memcpy(b.data(), &m, sizeof(m));
        for (uint32_t i = sizeof(m); i < length; i++)
            b[i] = (char) (m.seed + i * 31);
        return {(uintptr_t) b.data(), length, out_mr_[buffer]->lkey};
    }

    void receive()
    {
        ibv_wc wc;
        while (ibv_poll_cq(recv_cq_, 1, &wc) == 1) {
            if (wc.status == IBV_WC_SUCCESS)
                check(&n_.mem[area + wc.wr_id * slot_bytes], wc.byte_len);
            if (wc.status == IBV_WC_SUCCESS || wc.wr_id < wqes)
                repost(wc.wr_id); // what an RC QP flushes goes with it
        }
    }

    void check(const char *at, uint32_t length)
    {
        Message m;
        memcpy(&m, at, sizeof(m));
        need(m.magic == magic && m.length == length, "a message arrived with a damaged head");
        for (uint32_t i = sizeof(m); i < length; i++)
            if (at[i] != (char) (m.seed + i * 31))
                throw std::runtime_error("byte " + std::to_string(i) + " of " + std::to_string(length)
                                         + " arrived damaged");
    }

    void reap_sends()
    {
        ibv_wc wc;
        while (ibv_poll_cq(n_.cq, 1, &wc) == 1) {
            int peer = (int) wc.wr_id / LANES;
            Lane &lane = peers_[peer].lane[wc.wr_id % LANES];
            if (wc.qp_num != lane.qp->qp_num)
                continue;
            lane.outstanding--;
            if (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_FETCH_ADD)
                __atomic_fetch_add(&board_.row[me_].atomics, 1, __ATOMIC_SEQ_CST);
            if (wc.status != IBV_WC_SUCCESS && peers_[peer].connected_to)
                make_pair(peer);
        }
    }

    // What openers and closers do: a handle on somebody's TGT QP, a region, a CQ.
    void churn()
    {
        int whose = (int) (rng_() % workers);
        Qp handle = open_tgt(xrcd_, load(board_.row[whose].tgt[rng_() % workers]));
        Mr mr(ibv_reg_mr(n_.pd, n_.mem.data(), 4096, all_access));
        Cq cq = make_cq(n_.ctx, 16);
    }

    bool step()
    {
        for (int peer = 0; peer < workers; peer++)
            if (peer != me_) {
                connect_to(peer);
                send(peer, (int) (rng_() % LANES));
            }
        receive();
        reap_sends();
        if (rng_() % 16 == 0)
            churn();
        drop_events();
        return true;
    }

    // Looks after its connections now and then, but for messages only when it is woken: whoever dies over that must not leave it asleep.
    bool sleep()
    {
        for (int peer = 0; peer < workers; peer++)
            if (peer != me_)
                connect_to(peer);
        drop_events();
        pollfd fd = {channel_->fd, POLLIN, 0};
        if (poll(&fd, 1, 2) != 1)
            return false;
        ibv_cq *cq;
        void *context;
        need(ibv_get_cq_event(channel_, &cq, &context) == 0, "ibv_get_cq_event");
        ibv_ack_cq_events(cq, 1);
        need(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");
        receive();
        return true;
    }

    void drop_events()
    {
        while (readable(n_.ctx->async_fd)) {
            ibv_async_event e = next_event(n_.ctx);
            ibv_ack_async_event(&e);
        }
    }

    void pause()
    {
        store(board_.row[me_].paused, 1);
        while (load(board_.pause) && !load(board_.stop)) {
            if (me_ != sleeper)
                receive(); // others may still wait for WQEs
            sched_yield();
        }
        store(board_.row[me_].paused, 0);
    }

    static constexpr int depth = 8; // sends outstanding towards a peer
    static constexpr size_t out_buffers = depth * LANES * workers;
    Board &board_;
    int me_;
    std::mt19937 rng_;
    Node n_;
    std::vector<std::vector<char>> out_ = std::vector<std::vector<char>>(out_buffers, std::vector<char>(slot_bytes));
    std::vector<Mr> out_mr_ = make_out_mrs();
    Xrcd xrcd_;
    Channel channel_;
    Cq recv_cq_;
    Srq srq_;
    Peer peers_[workers];

    std::vector<Mr> make_out_mrs()
    {
        std::vector<Mr> mrs;
        for (auto &b : out_)
            mrs.push_back(Mr(ibv_reg_mr(n_.pd, b.data(), b.size(), 0)));
        return mrs;
    }

  public:
    static constexpr int mrs = 1 + (int) out_buffers;
};

// ---- the killer ----

std::string vshim(const char *command)
{
    const char *path = getenv("VSHIM");
    return std::string(path ? path : "vshim") + " " + command;
}

// The totals of `vshim list --json`.
std::map<std::string, int> totals()
{
    std::map<std::string, int> found;
    FILE *out = popen(vshim("list --json").c_str(), "r");
    need(out != nullptr, "popen");
    std::string text;
    char line[512];
    while (fgets(line, sizeof(line), out))
        text += line;
    need(pclose(out) == 0, "vshim list");
    std::istringstream in(text.substr(text.rfind("\"totals\"")));
    std::string token, name;
    std::getline(in, token); // "totals": {
    while (std::getline(in, token)) {
        size_t open = token.find('"'), close = token.find('"', open + 1), colon = token.find(':');
        if (colon != std::string::npos && open != std::string::npos)
            found[token.substr(open + 1, close - open - 1)] = atoi(token.c_str() + colon + 1);
    }
    return found;
}

std::map<std::string, int> expected(int living)
{
    int pairs = living * (workers - 1);
    return {{"pd", living},    {"mr", living * Worker::mrs}, {"cq", 2 * living}, {"srq", living},  {"xrcd", living},
            {"qp_ini", pairs}, {"tgt_handles", pairs},       {"qp_tgt", pairs},  {"qp_rc", pairs}, {"qp_ud", 0}};
}

class KillTest : public vt::Test
{
  protected:
    KillTest()
    {
        board_ = (Board *) mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        need(board_ != MAP_FAILED, "mmap");
        const char *seed = getenv("XRC_SEED");
        seed_ = seed ? (uint32_t) strtoul(seed, nullptr, 0)
                     : (uint32_t) std::chrono::steady_clock::now().time_since_epoch().count();
        printf("seed %u (XRC_SEED repeats it)\n", seed_);
        rng_.seed(seed_);
    }
    ~KillTest() override
    {
        store(board_->stop, 1);
        for (auto &c : child_)
            c.reset();
        munmap(board_, sizeof(Board));
    }

    void start(int i)
    {
        uint32_t seed = (uint32_t) rng_(), generation = ++generations_;
        child_[i] =
            std::make_unique<Child>([=](const Link &) { Worker(*board_, i, file_.fd(), seed).run(generation); });
    }

    void kill_one(int i)
    {
        child_[i]->kill();
        child_[i].reset();
        store(board_->row[i].generation, 0);
        store(board_->row[i].paused, 0);
    }

    // A worker that died by itself is a failure, not something to wait for.
    void wait_for(const std::function<bool()> &condition)
    {
        while (!condition()) {
            for (auto &c : child_) {
                siginfo_t info = {};
                if (c && waitid(P_PID, (id_t) c->pid(), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
                    throw std::runtime_error("a worker ended by itself");
            }
            poll(nullptr, 0, 1);
        }
    }

    void all_progress(uint64_t steps)
    {
        for (int i = 0; i < workers; i++)
            if (child_[i]) {
                uint64_t to = load(board_->row[i].progress) + (i == sleeper ? steps / 10 : steps);
                wait_for([&] { return load(board_->row[i].progress) >= to; });
            }
    }

    void check_objects(int living)
    {
        store(board_->pause, 1);
        for (int i = 0; i < workers; i++)
            if (child_[i])
                wait_for([&] { return load(board_->row[i].paused) != 0; });
        auto now = totals();
        for (auto &[name, count] : expected(living))
            EXPECT_EQ(now[name], count) << name;
        EXPECT_EQ(system(vshim("check").c_str()), 0);
        store(board_->pause, 0);
    }

    Board *board_;
    uint32_t seed_, generations_ = 0;
    std::mt19937 rng_;
    TempFile file_;
    std::unique_ptr<Child> child_[workers];
};

TEST_F(KillTest, SurvivorsGoOnAndOnlyTheirObjectsStay)
{
    const int kills = repetitions(200, 2000);
    for (int i = 0; i < workers; i++)
        start(i);
    all_progress(100);
    for (int k = 0; k < kills && !HasFailure(); k++) {
        SCOPED_TRACE(testing::Message() << "kill " << k);
        alarm(watchdog_seconds);
        int victim = (int) (rng_() % workers);
        uint64_t at = load(board_->row[victim].progress) + rng_() % 100;
        wait_for([&] { return load(board_->row[victim].progress) >= at; });
        for (uint32_t spin = (uint32_t) rng_() % 20000; spin; spin--)
            __asm__ __volatile__("");
        kill_one(victim);
        all_progress(30);
        check_objects(workers - 1);
        start(victim);
        wait_for([&] { return load(board_->row[victim].generation) != 0; });
    }
    all_progress(100);
    check_objects(workers);
    store(board_->stop, 1);
    for (int i = 0; i < sleeper; i++)
        EXPECT_GT(load(board_->row[i].atomics), 0u);
    for (auto &c : child_) {
        EXPECT_EQ(c->wait(), 0);
        c.reset();
    }
    for (auto &[name, count] : totals())
        EXPECT_EQ(count, 0) << name;
}

} // namespace
