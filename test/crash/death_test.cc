// Processes that die at the worst moments, one moment a test. The dying process works on the segment with the library's inner functions
// (it is a process of its own, so the two copies of the library never meet); the survivors use the public interface.
#include "conform/peer.h"
#include "conform/verbs.h"

extern "C" {
#include "core/context.h"
#include "hca/hca.h"
#include "memory/pages.h"
}

#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <fstream>
#include <thread>

namespace
{

using namespace vt;

class DeathTest : public vt::Test
{
};

// What a process does inside the segment before it is killed. Runs in the child.
void in_segment(const Link &link, const std::function<void()> &deed)
{
    need(vs_attach() == 0, "vs_attach");
    deed();
    link.put('d');
    link.get<char>(); // never comes
}

// Run it and kill it once it is done.
void die_after(const std::function<void()> &deed, const std::function<void()> &with_deed_done = {})
{
    Child victim([&](const Link &link) { in_segment(link, deed); });
    victim.link().get<char>();
    if (with_deed_done)
        with_deed_done();
    victim.kill();
}

vs_proc_shm *process_of(pid_t pid)
{
    vs_proc_shm *proc;
    uint32_t index;
    vs_for_each_live(VS_PROC, index, proc) if (proc->pid == pid) return proc;
    return nullptr;
}

// Claim the next entry of a completion ring, as vs_ring_push does before it writes the body.
void claim(vs_ring *ring, vs_cqe *slots, uint32_t entries)
{
    uint64_t tail = vs_load(&ring->tail);
    vs_cqe *slot = &slots[tail & (entries - 1)];
    need(vs_cas(&slot->word, vs_word(VS_RING_EMPTY, tail, 0),
                vs_word(VS_RING_CLAIMED, tail, vs_slot_index(VS_PROC, vs_me_id))),
         "claim");
}

struct RcPair {
    Qp a, b;
    RcPair(const Node &from, const Node &to, ibv_cq *recv_cq, uint32_t recvs, Path p = {})
    {
        auto attr = qp_attr(IBV_QPT_RC, from.pd, from.cq);
        a = Qp(ibv_create_qp_ex(from.ctx, &attr));
        attr = qp_attr(IBV_QPT_RC, to.pd, to.cq);
        attr.recv_cq = recv_cq;
        attr.cap.max_recv_wr = recvs;
        b = Qp(ibv_create_qp_ex(to.ctx, &attr));
        need(a && b, "ibv_create_qp_ex");
        connect(a, from.lid, b, to.lid, p);
    }
};

// ---- receive queue entries ----

TEST_F(DeathTest, AWqeHeldByAKilledSenderIsUsableAgain)
{
    Node n;
    Xrcd x = make_xrcd(n.ctx);
    Cq cq = make_cq(n.ctx);
    Srq srq = make_xrc_srq(n.pd, x, cq, 1);
    Qp tgt = make_tgt(x), ini = make_qp(IBV_QPT_XRC_SEND, n.pd, n.cq);
    connect(ini, n.lid, tgt, n.lid);
    ASSERT_EQ(post_recv(srq, 1, {n.sge(0, 64)}), 0);
    uint32_t num = srq_num(srq);
    die_after(
        [&] {
            auto *shm = (vs_srq_shm *) vs_slot_get(VS_SRQ, num);
            vs_target t;
            uint32_t wqe;
            need(shm && vs_target_of_srq(shm, num, &t) && vs_rq_take(&t.view, &wqe), "take the WQE");
        },
        [&] { // while the holder lives there is none: this waits
            ASSERT_EQ(Send(IBV_WR_SEND, {n.sge(0, 8)}).to_srq(num).post(ini), 0);
            ASSERT_TRUE(cq_empty(cq));
        });
    EXPECT_EQ(next_wc(n.cq).status, IBV_WC_SUCCESS) << "the waiting sender finds out by itself";
    EXPECT_EQ(next_wc(cq).wr_id, 1u);
}

// A sender that delivered and then died: its message is still to be read, so its WQE must not serve another.
TEST_F(DeathTest, TheWqeOfAnUnreadMessageStaysTakenWhenItsSenderIsGone)
{
    for (bool killed : {true, false}) {
        TempFile f;
        Child sender([&](const Link &link) {
            Node n;
            Qp ini = make_qp(IBV_QPT_XRC_SEND, n.pd, n.cq);
            Address to = connect_over(link, ini, n);
            link.meet();
            memset(n.mem.data(), 'A', 64);
            EXPECT_EQ(outcome(ini, Send(IBV_WR_SEND, {n.sge(0, 64)}).to_srq(to.srqn)), IBV_WC_SUCCESS);
            link.meet();
            if (killed)
                link.get<char>();
        });
        {
            Node n;
            Xrcd x = make_xrcd(n.ctx, f.fd());
            Cq cq = make_cq(n.ctx);
            Srq srq = make_xrc_srq(n.pd, x, cq, 1);
            ASSERT_EQ(post_recv(srq, 1, {n.sge(0, 64)}), 0);
            Qp tgt = make_tgt(x), tgt2 = make_tgt(x), ini = make_qp(IBV_QPT_XRC_SEND, n.pd, n.cq);
            connect_over(sender.link(), tgt, {n.lid, tgt->qp_num, srq_num(srq), 0, 0});
            sender.link().meet();
            sender.link().meet();
            if (killed)
                sender.kill();
            else
                EXPECT_EQ(sender.wait(), 0);
            Xrcd look = make_xrcd(n.ctx, f.fd()); // looks for the dead
            // Events come in order: once this one is here, what the sender's death left for the engine has been done.
            Path nowhere;
            nowhere.qpn = 5;
            nowhere.lid = n.lid;
            bring_up(tgt2, nowhere);
            ASSERT_EQ(to_state(tgt2, IBV_QPS_ERR), 0);
            EXPECT_EQ(ack_next(n.ctx), IBV_EVENT_QP_LAST_WQE_REACHED);

            Qp tgt3 = make_tgt(x);
            Path once;
            once.rnr = 0;
            connect(ini, n.lid, tgt3, n.lid, once);
            memset(&n.mem[128], 'B', 64);
            EXPECT_EQ(outcome(ini, Send(IBV_WR_SEND, {n.sge(128, 64)}).to_srq(srq_num(srq))), IBV_WC_RNR_RETRY_EXC_ERR);
            EXPECT_EQ(next_wc(cq).wr_id, 1u);
            EXPECT_EQ(n.mem[63], 'A');
            EXPECT_TRUE(cq_empty(cq));
            EXPECT_EQ(post_recv(srq, 2, {n.sge(0, 64)}), 0) << "now it is free";
        }
    }
}

// ---- completion and event rings ----

TEST_F(DeathTest, ACompletionBehindAKilledProducersEntryIsRead)
{
    Node n;
    Cq cq = make_cq(n.ctx);
    RcPair p(n, n, cq, 8);
    uint32_t id = cq->handle;
    die_after([&] {
        auto *shm = (vs_cq_shm *) vs_slot_get(VS_CQ, id);
        uint64_t bytes;
        claim(&shm->ring, (vs_cqe *) vs_extent(&shm->s, &bytes), shm->ring.entries);
    });
    ASSERT_EQ(post_recv(p.b, 5), 0);
    EXPECT_EQ(outcome(p.a, Send()), IBV_WC_SUCCESS);
    EXPECT_EQ(next_wc(cq).wr_id, 5u);
    EXPECT_TRUE(cq_empty(cq));
}

// Claims one entry after the other, and finishes each when asked to; answers how often the engine of its parent was woken.
void claim_and_finish(const Link &link, uint32_t cq)
{
    need(vs_attach() == 0, "vs_attach");
    auto *shm = (vs_cq_shm *) vs_slot_get(VS_CQ, cq);
    vs_proc_shm *reader = process_of(getppid());
    uint64_t bytes, pos = 0;
    auto *slots = (vs_cqe *) vs_extent(&shm->s, &bytes);
    need(reader && slots, "find the CQ");
    claim(&shm->ring, slots, shm->ring.entries);
    for (char word = 'w'; word != 'e'; word = link.get<char>()) {
        if (word == 'f') {
            slots[pos].kind = VS_CQE_VOID;
            vs_store(&slots[pos].word, vs_word(VS_RING_FULL, pos, 0));
            need(vs_cas(&shm->ring.tail, pos, pos + 1), "tail");
            if (++pos < 21)
                claim(&shm->ring, slots, shm->ring.entries);
        }
        link.put(vs_load(&reader->wake));
    }
    vs_detach();
}

// Polls meet an entry that is being written all the time. Only one that stays so gets the engine, by a system call, to look for the dead.
TEST_F(DeathTest, AnEntryThatIsBeingWrittenConcernsNobody)
{
    Node n;
    Cq cq = make_cq(n.ctx);
    uint32_t id = cq->handle;
    Child writer([&](const Link &link) { claim_and_finish(link, id); });
    auto ask = [&](char word) {
        writer.link().put(word);
        return writer.link().get<uint32_t>();
    };
    uint32_t wakes = writer.link().get<uint32_t>();
    for (int entry = 0; entry < 20; entry++) {
        for (int i = 0; i < 20; i++)
            ASSERT_TRUE(cq_empty(cq));
        ASSERT_EQ(ask('f'), wakes);
        ASSERT_TRUE(cq_empty(cq)) << "void";
    }
    while (ask('w') == wakes)
        ASSERT_TRUE(cq_empty(cq));
    ask('f');
    writer.link().put('e');
    EXPECT_EQ(writer.wait(), 0);
}

TEST_F(DeathTest, ASleeperIsWokenForACompletionBehindAKilledProducersEntry)
{
    Node n;
    Channel ch(ibv_create_comp_channel(n.ctx));
    Cq cq = make_cq(n.ctx, 64, ch);
    RcPair p(n, n, cq, 8);
    uint32_t id = cq->handle;
    ibv_cq *got;
    void *context;
    die_after(
        [&] {
            auto *shm = (vs_cq_shm *) vs_slot_get(VS_CQ, id);
            uint64_t bytes;
            claim(&shm->ring, (vs_cqe *) vs_extent(&shm->s, &bytes), shm->ring.entries);
        },
        [&] { // the usual loop of a program: event, arm, poll, sleep
            ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
            ASSERT_EQ(post_recv(p.b, 5), 0);
            EXPECT_EQ(outcome(p.a, Send()), IBV_WC_SUCCESS);
            ASSERT_EQ(ibv_get_cq_event(ch, &got, &context), 0);
            ibv_ack_cq_events(got, 1);
            ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
            EXPECT_TRUE(cq_empty(cq)) << "it stands still at the unfinished entry";
        });
    ASSERT_EQ(ibv_get_cq_event(ch, &got, &context), 0);
    ibv_ack_cq_events(got, 1);
    EXPECT_EQ(next_wc(cq).wr_id, 5u);
}

TEST_F(DeathTest, AnEventBehindAKilledWritersRecordArrives)
{
    Node n;
    Xrcd x = make_xrcd(n.ctx);
    Qp tgt = make_tgt(x);
    Path p;
    p.qpn = 5;
    p.lid = n.lid;
    bring_up(tgt, p);
    pid_t me = getpid();
    die_after([&] {
        vs_proc_shm *proc = process_of(me);
        need(proc != nullptr, "find the parent");
        claim(&proc->events, (vs_cqe *) (void *) proc->event, VS_EVENTS);
    });
    ASSERT_EQ(to_state(tgt, IBV_QPS_ERR), 0);
    EXPECT_EQ(ack_next(n.ctx), IBV_EVENT_QP_LAST_WQE_REACHED);
}

// ---- the data path ----

// Destroying waits for everybody who may still see the object, but not for the dead.
TEST_F(DeathTest, DestroyDoesNotWaitForAProcessKilledInsideTheDataPath)
{
    Node n;
    die_after([] { vs_enter(); });
    Mr mr(ibv_reg_mr(n.pd, n.mem.data(), 64, 0));
    EXPECT_EQ(mr.destroy(), 0);
}

TEST_F(DeathTest, DestroyWaitsForALivingProcessInsideTheDataPath)
{
    Node n;
    Child inside([](const Link &link) {
        need(vs_attach() == 0, "vs_attach");
        vs_hazard *h = vs_enter();
        link.meet();
        link.get<char>();
        vs_exit(h);
        vs_detach();
    });
    inside.link().meet();
    Mr mr(ibv_reg_mr(n.pd, n.mem.data(), 64, 0));
    std::atomic<bool> destroyed{false};
    const uint64_t patience = std::exchange(vs_patience_ns, UINT64_C(3600000000000)); // however little of a CPU this test gets
    std::thread destroyer([&] {
        EXPECT_EQ(mr.destroy(), 0);
        destroyed = true;
    });
    for (int i = 0; i < 10000 && !destroyed; i++)
        sched_yield();
    EXPECT_FALSE(destroyed);
    inside.link().put('g');
    destroyer.join();
    vs_patience_ns = patience;
    EXPECT_EQ(inside.wait(), 0);
}

// ---- the control lock ----

TEST_F(DeathTest, TheControlLockOfAKilledHolderIsTakenOverAndItsHalfMadeObjectsGo)
{
    Node n;
    Xrcd x = make_xrcd(n.ctx);
    for (vs_table table : {VS_QP, VS_XRCD, VS_SRQ, VS_MR, VS_QP_REF, VS_CQ})
        for (bool owned : {true, false}) {
            uint32_t before = 0, after = 0;
            auto used = [&](uint32_t *n_used) {
                Child counter([&](const Link &link) {
                    need(vs_attach() == 0, "vs_attach");
                    vs_slot *slot;
                    uint32_t index, count = 0;
                    vs_for_each_slot(table, index, slot) count++;
                    vs_detach();
                    link.put(count);
                });
                *n_used = counter.link().get<uint32_t>();
                EXPECT_EQ(counter.wait(), 0);
            };
            used(&before);
            die_after([&] {
                uint32_t index;
                vs_control_lock();
                need(vs_slot_alloc(table, owned ? vs_me_id : 0, &index) == 0, "vs_slot_alloc");
                need(vs_extent_alloc((vs_slot *) vs_slot_at(table, index), 10000) == 0, "vs_extent_alloc");
            });
            Qp tgt = make_tgt(x); // takes the lock
            EXPECT_EQ(tgt.destroy(), 0);
            used(&after);
            EXPECT_EQ(after, before) << "table " << table << (owned ? ", owned" : ", of nobody");
        }
}

// A process that dies between giving up its handle and its QP leaves an orphan, which the next one clears away.
TEST_F(DeathTest, ATgtQpWhoseLastHandleVanishedHalfWayIsCleared)
{
    TempFile f;
    Child maker([&](const Link &link) {
        Context c = open_device();
        Xrcd own = make_xrcd(c, f.fd());
        Qp tgt = make_tgt(own);
        link.put<uint32_t>(tgt->qp_num);
        link.get<char>();
    });
    uint32_t qpn = maker.link().get<uint32_t>();
    Node n;
    Xrcd x = make_xrcd(n.ctx, f.fd());
    die_after([&] { // another's handle is taken away under the lock, whose holder then dies
        vs_qp_ref_shm *ref;
        uint32_t index;
        vs_control_lock();
        vs_for_each_live(VS_QP_REF, index, ref) if (ref->qp == qpn) vs_slot_free(VS_QP_REF, index);
    });
    auto a = open_attr(x, qpn);
    EXPECT_EQ(ibv_open_qp(n.ctx, &a), nullptr);
    maker.kill();
}

// ---- copies by the target's engine: another pid namespace, where process_vm_* cannot reach ----

// A child in a pid namespace of its own; its result is -1 where that is not allowed.
int in_pid_namespace(const std::function<void(const Link &)> &body, const Link &link)
{
    uid_t uid = geteuid();
    if (unshare(uid == 0 ? CLONE_NEWPID : CLONE_NEWUSER | CLONE_NEWPID))
        return -1;
    if (uid != 0)
        std::ofstream("/proc/self/uid_map") << uid << ' ' << uid << " 1\n";
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(watchdog_seconds);
        try {
            body(link);
        } catch (const std::exception &e) {
            fprintf(stderr, "%s\n", e.what());
            _exit(3);
        }
        _exit(::testing::Test::HasFailure());
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

constexpr uint32_t big = 200000;
constexpr int messages = 12;

// Both ends send big messages at once, into queues that are still empty, and then sleep: everything is carried out by the two engines,
// each of which needs the other.
void exchange(const Link &link)
{
    Node n(4 * big);
    Channel ch(ibv_create_comp_channel(n.ctx));
    Cq cq = make_cq(n.ctx, 64, ch);
    Qp qp = make_qp(IBV_QPT_RC, n.pd, cq);
    Address peer = connect_over(link, qp, {n.lid, qp->qp_num, 0, n.mr->rkey, n.addr(2 * big)});
    memset(n.mem.data(), 'x', big);
    link.meet();
    need(ibv_req_notify_cq(cq, 0) == 0, "arm");
    for (uint64_t i = 0; i < messages; i++)
        need(Send(IBV_WR_SEND, {n.sge(0, big)}).post(qp) == 0, "post_send");
    link.meet();
    for (uint64_t i = 0; i < messages; i++)
        need(post_recv(qp, i, {n.sge(big, big / 2), n.sge(3 * big, big / 2)}) == 0, "post_recv");
    for (int done = 0; done < 2 * messages;) {
        ibv_cq *got;
        void *context;
        need(ibv_get_cq_event(ch, &got, &context) == 0, "ibv_get_cq_event");
        ibv_ack_cq_events(got, 1);
        need(ibv_req_notify_cq(cq, 0) == 0, "arm");
        ibv_wc wc;
        while (ibv_poll_cq(cq, 1, &wc) == 1) {
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
            done++;
        }
    }
    EXPECT_EQ(n.mem[big], 'x');
    EXPECT_EQ(n.mem[3 * big + big / 2 - 1], 'x');
    EXPECT_EQ(outcome(qp, Send(IBV_WR_RDMA_WRITE, {n.sge(0, big)}).at(peer.addr, peer.rkey)), IBV_WC_SUCCESS);
    memset(n.mem.data(), 0, big);
    EXPECT_EQ(outcome(qp, Send(IBV_WR_RDMA_READ, {n.sge(0, big)}).at(peer.addr, peer.rkey)), IBV_WC_SUCCESS);
    EXPECT_EQ(n.mem[big - 1], 'x');
    link.meet();
}

TEST_F(DeathTest, TwoPidNamespacesExchangeBigMessagesThroughTheirEngines)
{
    Child other([](const Link &link) {
        int status = in_pid_namespace(exchange, link);
        if (status < 0)
            link.put(Address{}); // not allowed here
        EXPECT_LE(status, 0);
    });
    auto body = [&](const Link &link) {
        // The first thing the other sends is its address: look whether it could make a namespace at all.
        exchange(link);
    };
    Child here([&](const Link &link) { body(link); });
    Address theirs = other.link().get<Address>(), ours = here.link().get<Address>();
    if (theirs.qpn == 0) {
        kill(here.pid(), SIGKILL);
        here.wait();
        GTEST_SKIP() << "no pid namespaces for this user";
    }
    other.link().put(ours);
    here.link().put(theirs);
    for (int round = 0; round < 3; round++) {
        other.link().get<char>();
        here.link().get<char>();
        other.link().put('m');
        here.link().put('m');
    }
    EXPECT_EQ(here.wait(), 0);
    EXPECT_EQ(other.wait(), 0);
}

TEST_F(DeathTest, ACopyRequestOfAKilledProcessBlocksNobody)
{
    Child receiver([](const Link &link) {
        Node n(2 * big);
        Qp qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
        connect_over(link, qp, {n.lid, qp->qp_num, 0, n.mr->rkey, n.addr()});
        link.meet();
        link.meet();
    });
    Address a = receiver.link().get<Address>();
    pid_t target = receiver.pid();
    die_after([&] {
        vs_proc_shm *proc = process_of(target);
        need(proc && vs_cas(&proc->copy.client, 0, vs_me_id), "claim the copier");
    });
    Child sender([&](const Link &link) {
        int status = in_pid_namespace(
            [&](const Link &inner) {
                Node n(big);
                Qp qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
                inner.put(Address{n.lid, qp->qp_num, 0, 0, 0});
                Path p;
                p.qpn = a.qpn;
                p.lid = a.lid;
                bring_up(qp, p);
                inner.meet();
                EXPECT_EQ(outcome(qp, Send(IBV_WR_RDMA_WRITE, {n.sge(0, big)}).at(a.addr, a.rkey)), IBV_WC_SUCCESS);
            },
            link);
        if (status < 0)
            link.put(Address{});
        EXPECT_LE(status, 0);
    });
    Address from = sender.link().get<Address>();
    receiver.link().put(from);
    receiver.link().meet();
    if (from.qpn != 0)
        sender.link().meet();
    EXPECT_EQ(sender.wait(), 0);
    receiver.link().meet();
    EXPECT_EQ(receiver.wait(), 0);
}

// ---- what an engine is asked for ----

// Asks a process's engine, in another's name as it were: nobody has checked this before.
uint32_t ask(vs_proc_shm *proc, const vs_ask &what)
{
    while (!vs_cas(&proc->copy.client, 0, vs_me_id))
        sched_yield();
    proc->copy.ask = what;
    vs_store_full(&proc->copy.state, VS_COPY_ASKED);
    vs_process_wake(proc);
    while (vs_load(&proc->copy.state) == VS_COPY_ASKED)
        sched_yield();
    uint32_t result = vs_load(&proc->copy.result);
    vs_store(&proc->copy.state, VS_COPY_IDLE);
    vs_store(&proc->copy.client, 0);
    return result;
}

struct AskedRegions {
    uint64_t addr; // of a page between two others
    uint32_t atomic, readable, unmapped, closed;
    uint64_t unmapped_addr;
};

constexpr size_t asked_page = 4096;

void ask_wrongly(vs_proc_shm *proc, const AskedRegions &r)
{
    const uint64_t last = r.addr + asked_page - 8;
    const vs_ask bad[] = {
        {VS_ASK_ADD, 0, r.addr, 1, 0, 0, 0},
        {VS_ASK_ADD, r.atomic + 1, r.addr, 1, 0, 0, 0},
        {VS_ASK_ADD, UINT32_MAX, r.addr, 1, 0, 0, 0},
        {VS_ASK_ADD, r.readable, r.addr, 1, 0, 0, 0},
        {VS_ASK_ADD, r.closed, r.addr, 1, 0, 0, 0},
        {VS_ASK_ADD, r.unmapped, r.unmapped_addr, 1, 0, 0, 0},
        {VS_ASK_ADD, r.atomic, r.addr - 8, 1, 0, 0, 0},
        {VS_ASK_ADD, r.atomic, r.addr + 4, 1, 0, 0, 0},
        {VS_ASK_ADD, r.atomic, last + 1, 1, 0, 0, 0},
        {VS_ASK_ADD, r.atomic, last + 8, 1, 0, 0, 0},
        {VS_ASK_ADD, r.atomic, UINT64_MAX - 7, 1, 0, 0, 0},
        {VS_ASK_ADD, r.atomic, 0, 1, 0, 0, 0},
        {VS_ASK_SWAP + 1, r.atomic, r.addr, 1, 0, 0, 0},
        {UINT32_MAX, r.atomic, r.addr, 1, 0, 8, 0},
        {VS_ASK_WRITE, r.readable, r.addr, 0, 0, 8, 0},
        {VS_ASK_WRITE, r.atomic, last, 0, 0, 16, 0},
        {VS_ASK_WRITE, r.atomic, r.addr - 8, 0, 0, 16, 0},
        {VS_ASK_WRITE, r.atomic, r.addr, 0, 0, UINT32_MAX, 0},
        {VS_ASK_WRITE, 0, r.addr, 0, 0, 8, 0},
        {VS_ASK_WRITE, r.closed, r.addr, 0, 0, 8, 0},
    };
    memset(proc->stage, 'x', 64);
    for (const vs_ask &a : bad) {
        EXPECT_NE(ask(proc, a), 0u) << "what " << a.what << " key " << a.key << " at " << a.addr - r.addr;
        vs_ask swap = a;
        if (a.what == VS_ASK_ADD)
            swap.what = VS_ASK_SWAP;
        EXPECT_NE(ask(proc, swap), 0u);
    }
    // The slot says that the region is larger, and begins earlier.
    auto *mr = (vs_mr_shm *) vs_slot_get(VS_MR, r.atomic);
    need(mr != nullptr, "the region's slot");
    mr->addr -= asked_page;
    mr->length += 2 * asked_page;
    EXPECT_NE(ask(proc, {VS_ASK_ADD, r.atomic, r.addr - 8, 1, 0, 0, 0}), 0u);
    EXPECT_NE(ask(proc, {VS_ASK_WRITE, r.atomic, r.addr - 8, 0, 0, 8, 0}), 0u);
    mr->addr += asked_page;
    mr->length -= 2 * asked_page;
}

TEST_F(DeathTest, AnEngineTouchesNothingButItsProcesssRegions)
{
    Child owner([](const Link &link) {
        std::vector<char> room(5 * asked_page);
        char *at = (char *) (((uintptr_t) room.data() + 2 * asked_page - 1) & ~(asked_page - 1));
        constexpr int atomic = all_access | IBV_ACCESS_REMOTE_ATOMIC;
        Node n;
        Mr whole(ibv_reg_mr(n.pd, at, asked_page, atomic)), readable(ibv_reg_mr(n.pd, at, asked_page, IBV_ACCESS_REMOTE_READ));
        void *gone = mmap(nullptr, asked_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        need(gone != MAP_FAILED, "mmap");
        Mr unmapped(ibv_reg_mr(n.pd, gone, asked_page, atomic));
        uint32_t closed;
        {
            Context c = open_device();
            Pd pd(ibv_alloc_pd(c));
            Mr left(ibv_reg_mr(pd, at, asked_page, atomic)); // goes with its context
            need(left, "ibv_reg_mr");
            closed = left->rkey;
            left.release();
            pd.release();
        }
        // What it was is gone, and nothing else may be mapped there meanwhile.
        need(mmap(gone, asked_page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == gone, "mmap");
        link.put(AskedRegions{(uintptr_t) at, whole->rkey, readable->rkey, unmapped->rkey, closed, (uintptr_t) gone});
        link.meet();
        EXPECT_EQ(__atomic_load_n((uint64_t *) (void *) at, __ATOMIC_SEQ_CST), 15u);
        EXPECT_EQ(std::count(room.begin(), room.end(), 0), (ptrdiff_t) room.size() - 1);
    });
    AskedRegions r = owner.link().get<AskedRegions>();
    pid_t target = owner.pid();
    Child liar([&](const Link &) {
        need(vs_attach() == 0, "vs_attach");
        vs_proc_shm *proc = process_of(target);
        need(proc != nullptr, "find the owner");
        ask_wrongly(proc, r);
        EXPECT_EQ(ask(proc, {VS_ASK_ADD, r.atomic, r.addr, 7, 0, 0, 0}), 0u);
        EXPECT_EQ(vs_load(&proc->copy.old), 0u);
        EXPECT_EQ(ask(proc, {VS_ASK_SWAP, r.atomic, r.addr, 7, 15, 0, 0}), 0u);
        EXPECT_EQ(vs_load(&proc->copy.old), 7u);
        EXPECT_EQ(ask(proc, {VS_ASK_ADD, r.atomic, r.addr + asked_page - 8, 0, 0, 0, 0}), 0u) << "its last word";
        vs_detach();
    });
    EXPECT_EQ(liar.wait(), 0);
    owner.link().meet();
    EXPECT_EQ(owner.wait(), 0);
}

} // namespace
