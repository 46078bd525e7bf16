// The lock-free queues: completion rings and receive queues, in one process that is joined to a fabric of its own. Dead processes are
// played by claiming with another process number.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

extern "C" {
#include "memory/ring.h"
}

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace
{

class Joined : public ::testing::Test
{
  protected:
    static void SetUpTestSuite()
    {
        alarm(120);
        if (!getenv("VERBS_SHIM_FABRIC"))
            setenv("VERBS_SHIM_FABRIC", ("/dev/shm/vt." + std::to_string(getpid())).c_str(), 1);
    }
    void SetUp() override
    {
        ASSERT_EQ(vs_segment_attach(), 0);
    }
    void TearDown() override
    {
        vs_segment_detach();
    }
    static uint32_t me()
    {
        return vs_slot_index(VS_PROC, vs_me_id);
    }
};

// ---- completion rings ----

constexpr uint32_t entries = 16;

class Ring : public Joined
{
  protected:
    void SetUp() override
    {
        Joined::SetUp();
        vs_ring_init(&ring, slots, entries);
    }
    bool push(uint32_t value)
    {
        vs_cqe c = {};
        c.qpn = value;
        c.kind = VS_CQE_SEND;
        return vs_ring_push(&ring, slots, entries, &c);
    }
    bool pop(uint32_t *value)
    {
        vs_cqe c;
        if (!vs_ring_ready(slots, entries, head))
            return false;
        vs_ring_pop(slots, entries, head++, &c);
        *value = c.kind == VS_CQE_VOID ? UINT32_MAX : c.qpn;
        return true;
    }
    // A producer that claims the next entry and goes no further.
    void claim_as(uint32_t proc)
    {
        uint64_t tail = ring.tail;
        ASSERT_TRUE(
            vs_cas(&slots[tail % entries].word, vs_word(VS_RING_EMPTY, tail, 0), vs_word(VS_RING_CLAIMED, tail, proc)));
    }
    vs_ring ring = {};
    alignas(64) vs_cqe slots[entries] = {};
    uint64_t head = 0;
};

TEST_F(Ring, EmptyHasNothing)
{
    uint32_t v;
    EXPECT_FALSE(pop(&v));
}

TEST_F(Ring, KeepsOrderOverManyLaps)
{
    uint32_t v, next = 0;
    std::mt19937 rng(1);
    for (uint32_t i = 0; i < 1000 * entries;) {
        for (uint32_t n = rng() % entries; n > 0 && i - next < entries; n--)
            ASSERT_TRUE(push(i++));
        for (uint32_t n = rng() % entries; n > 0 && pop(&v); n--)
            ASSERT_EQ(v, next++);
    }
}

TEST_F(Ring, FullRefusesAndCountsAndGoesOnAfterwards)
{
    uint32_t v;
    for (uint32_t i = 0; i < entries; i++)
        ASSERT_TRUE(push(i));
    EXPECT_FALSE(push(99));
    EXPECT_FALSE(push(99));
    EXPECT_EQ(ring.overruns, 2u);
    ASSERT_TRUE(pop(&v));
    EXPECT_EQ(v, 0u);
    EXPECT_TRUE(push(100));
    EXPECT_FALSE(push(101));
    for (uint32_t i = 1; i < entries; i++) {
        ASSERT_TRUE(pop(&v));
        EXPECT_EQ(v, i);
    }
    ASSERT_TRUE(pop(&v));
    EXPECT_EQ(v, 100u);
}

TEST_F(Ring, OthersPassAnUnfinishedEntryAndTheReaperRollsItOn)
{
    uint32_t v;
    claim_as(500);
    ASSERT_TRUE(push(1));
    ASSERT_TRUE(push(2));
    EXPECT_FALSE(pop(&v)) << "order: nothing before the unfinished one";
    EXPECT_TRUE(vs_ring_stalled(slots, entries, head));
    EXPECT_EQ(vs_ring_reap(&ring, slots, entries, 501), 0u) << "not that one's";
    EXPECT_EQ(vs_ring_reap(&ring, slots, entries, 500), 1u);
    EXPECT_EQ(vs_ring_reap(&ring, slots, entries, 500), 0u);
    ASSERT_TRUE(pop(&v));
    EXPECT_EQ(v, UINT32_MAX) << "void";
    ASSERT_TRUE(pop(&v));
    EXPECT_EQ(v, 1u);
    ASSERT_TRUE(pop(&v));
    EXPECT_EQ(v, 2u);
    EXPECT_FALSE(vs_ring_stalled(slots, entries, head));
}

TEST_F(Ring, SeveralDeadProducersAreRolledOnAtOnce)
{
    uint32_t v;
    for (uint32_t i = 0; i < entries / 2; i++) {
        claim_as(500);
        ring.tail++;
        ASSERT_TRUE(push(i));
    }
    EXPECT_EQ(vs_ring_reap(&ring, slots, entries, 500), entries / 2);
    for (uint32_t i = 0; i < entries / 2; i++) {
        ASSERT_TRUE(pop(&v));
        EXPECT_EQ(v, UINT32_MAX);
        ASSERT_TRUE(pop(&v));
        EXPECT_EQ(v, i);
    }
    EXPECT_FALSE(pop(&v));
}

// A hint that lags or leads is caught up with; one that is nonsense makes the push fail, never hang or write elsewhere.
TEST_F(Ring, HostileTailsEndInARefusalOrASuccess)
{
    std::mt19937_64 rng(2);
    for (int i = 0; i < 2000; i++) {
        ring.tail = i % 3 ? rng() : rng() % (4 * entries);
        if (i % 5 == 0)
            slots[rng() % entries].word = rng();
        push((uint32_t) i);
        uint32_t v;
        pop(&v);
    }
    vs_ring_init(&ring, slots, entries);
    head = 0;
    ASSERT_TRUE(push(1));
    ring.tail = 0; // lags
    EXPECT_TRUE(push(2));
    uint32_t v;
    ASSERT_TRUE(pop(&v) && v == 1);
    ASSERT_TRUE(pop(&v) && v == 2);
}

TEST_F(Ring, ManyProducersLoseAndDoubleNothing)
{
    constexpr uint32_t producers = 4, each = 30000;
    std::atomic<bool> bad{false};
    std::vector<std::thread> threads;
    for (uint32_t p = 0; p < producers; p++)
        threads.emplace_back([&, p] {
            for (uint32_t i = 0; i < each; i++)
                while (!push(p << 24 | i))
                    sched_yield();
        });
    std::vector<uint32_t> next(producers);
    for (uint32_t got = 0; got < producers * each;) {
        uint32_t v;
        if (!pop(&v)) {
            sched_yield();
            continue;
        }
        bad = bad || (v & 0xffffff) != next[v >> 24]++;
        got++;
    }
    for (auto &t : threads)
        t.join();
    EXPECT_FALSE(bad) << "each producer's entries come once and in its order";
    uint32_t v;
    EXPECT_FALSE(pop(&v));
}

// ---- receive queues ----

class Rq : public Joined
{
  protected:
    void make(uint32_t pool, uint32_t sge = 2, uint32_t bounce = 256)
    {
        bytes = vs_rq_bytes(pool, sge, bounce);
        pages.assign(bytes / 8 + 64, 0);
        memset(&rq, 0, sizeof(rq));
        vs_rq_init(&rq, pages.data(), pool, sge, bounce);
        ASSERT_TRUE(vs_rq_open(&view, &rq, pages.data(), bytes));
    }
    void release(uint32_t w)
    {
        vs_store(&vs_rq_wqe(&view, w)->word, vs_word(VS_WQE_IDLE, 0, 0));
    }
    vs_rq rq = {};
    vs_rq_view view = {};
    std::vector<uint64_t> pages;
    uint64_t bytes = 0;
};

TEST_F(Rq, TakesInPostOrder)
{
    make(5);
    uint32_t w;
    EXPECT_FALSE(vs_rq_take(&view, &w));
    for (uint32_t i : {3u, 0u, 4u, 1u, 2u})
        vs_rq_post(&view, i);
    EXPECT_EQ(vs_rq_available(&view), 5u);
    for (uint32_t i : {3u, 0u, 4u, 1u, 2u}) {
        ASSERT_TRUE(vs_rq_take(&view, &w));
        EXPECT_EQ(w, i);
    }
    EXPECT_FALSE(vs_rq_take(&view, &w));
    EXPECT_EQ(vs_rq_available(&view), 0u);
}

// Completions are consumed in any order, so WQEs come back in any order; for pools of every size, over many laps.
TEST_F(Rq, OutOfOrderReleaseOverManyLaps)
{
    for (uint32_t pool : {1u, 2u, 3u, 7u, 8u, 9u, 64u, 100u}) {
        make(pool);
        std::mt19937 rng(pool);
        std::vector<uint32_t> free_wqes(pool), taken, posted;
        for (uint32_t i = 0; i < pool; i++)
            free_wqes[i] = i;
        for (int step = 0; step < 20000; step++) {
            uint32_t w;
            switch (rng() % 3) {
            case 0:
                if (free_wqes.empty())
                    break;
                std::swap(free_wqes[rng() % free_wqes.size()], free_wqes.back());
                vs_rq_post(&view, free_wqes.back());
                posted.push_back(free_wqes.back());
                free_wqes.pop_back();
                break;
            case 1:
                ASSERT_EQ(vs_rq_take(&view, &w), !posted.empty()) << pool << " step " << step;
                if (posted.empty())
                    break;
                ASSERT_EQ(w, posted.front());
                posted.erase(posted.begin());
                taken.push_back(w);
                break;
            default:
                if (taken.empty())
                    break;
                std::swap(taken[rng() % taken.size()], taken.back());
                release(taken.back());
                free_wqes.push_back(taken.back());
                taken.pop_back();
            }
        }
    }
}

TEST_F(Rq, WhatADeadTakerHeldIsReturnedAndOnlyThat)
{
    make(4);
    uint32_t w;
    for (uint32_t i = 0; i < 4; i++)
        vs_rq_post(&view, i);
    ASSERT_TRUE(vs_rq_take(&view, &w));
    ASSERT_TRUE(vs_rq_take(&view, &w));
    vs_wqe *dead = vs_rq_wqe(&view, 1);
    dead->word = vs_word(VS_WQE_TAKEN, vs_word_pos(dead->word), 500);
    EXPECT_EQ(vs_rq_reap(&view, 501), 0u);
    EXPECT_EQ(vs_rq_reap(&view, 500), 1u);
    EXPECT_EQ(vs_word_kind(dead->word), (unsigned) VS_WQE_RETURNED);
    EXPECT_EQ(vs_word_kind(vs_rq_wqe(&view, 0)->word), (unsigned) VS_WQE_TAKEN) << "a living process's stays";
    vs_rq_post(&view, 1);
    for (uint32_t want : {2u, 3u, 1u}) {
        ASSERT_TRUE(vs_rq_take(&view, &w));
        EXPECT_EQ(w, want);
    }
}

// A taker that died after taking and before moving the ring on: whoever comes next does it.
TEST_F(Rq, ATakenWqeWhoseRingEntryWasLeftBehindIsPassed)
{
    make(4);
    for (uint32_t i = 0; i < 2; i++)
        vs_rq_post(&view, i);
    vs_wqe *wqe = vs_rq_wqe(&view, 0);
    ASSERT_TRUE(vs_cas(&wqe->word, vs_word(VS_WQE_POSTED, 0, 0), vs_word(VS_WQE_TAKEN, 0, 500)));
    uint32_t w;
    ASSERT_TRUE(vs_rq_take(&view, &w));
    EXPECT_EQ(w, 1u);
    EXPECT_EQ(vs_rq_reap(&view, 500), 1u);
    vs_rq_post(&view, 0);
    ASSERT_TRUE(vs_rq_take(&view, &w));
    EXPECT_EQ(w, 0u);
}

TEST_F(Rq, GivenBackIsReturned)
{
    make(2);
    uint32_t w;
    vs_rq_post(&view, 0);
    ASSERT_TRUE(vs_rq_take(&view, &w));
    vs_rq_give_back(&view, w);
    EXPECT_EQ(vs_word_kind(vs_rq_wqe(&view, 0)->word), (unsigned) VS_WQE_RETURNED);
    EXPECT_FALSE(vs_rq_take(&view, &w)) << "until its owner posts it again";
}

TEST_F(Rq, HeadersThatDoNotFitTheirPagesAreRefused)
{
    make(8);
    const vs_rq good = rq;
    vs_rq_view v;
    EXPECT_FALSE(vs_rq_open(&v, &rq, nullptr, bytes));
    EXPECT_FALSE(vs_rq_open(&v, &rq, pages.data(), bytes - 1));
    struct {
        uint32_t vs_rq::*field;
        std::vector<uint32_t> bad;
    } rows[] = {
        {&vs_rq::pool_entries, {0, 7 + 2, 16, 0xffff, 0x10000, UINT32_MAX}},
        {&vs_rq::ring_entries, {0, 7, 16, UINT32_MAX}},
        {&vs_rq::max_sge, {4, VS_MAX_SGE + 1, UINT32_MAX}},
        {&vs_rq::bounce, {0, 512, 1u << 21, UINT32_MAX}},
        {&vs_rq::wqe_stride, {0, 64, 4096, UINT32_MAX}},
    };
    for (auto &row : rows)
        for (uint32_t bad : row.bad) {
            rq = good;
            rq.*row.field = bad;
            EXPECT_FALSE(vs_rq_open(&v, &rq, pages.data(), bytes)) << bad;
        }
    rq = good;
    EXPECT_TRUE(vs_rq_open(&v, &rq, pages.data(), bytes));
}

// Random bytes in every word that others can write: takes end, and never name a WQE outside the pool.
TEST_F(Rq, HostileWordsEndInARefusalOrAWqeOfThePool)
{
    make(8);
    std::mt19937_64 rng(3);
    for (int i = 0; i < 5000; i++) {
        rq.head = i % 3 ? rng() : rng() % 32;
        rq.tail = rng();
        view.ring[rng() % view.ring_entries] = i % 2 ? rng() : vs_word(0, rng() % 32, (uint32_t) rng() % 16);
        vs_rq_wqe(&view, (uint32_t) rng() % 8)->word = i % 2 ? rng() : vs_word(VS_WQE_POSTED, rng() % 32, 0);
        uint32_t w = 0;
        if (vs_rq_take(&view, &w)) {
            ASSERT_LT(w, 8u);
        }
        vs_rq_available(&view);
        vs_rq_reap(&view, (uint32_t) rng() & 0xffff);
    }
}

TEST_F(Rq, ManyTakersGetEachWqeOnce)
{
    constexpr uint32_t pool = 16, total = 60000;
    make(pool);
    std::atomic<uint32_t> taken{0};
    std::atomic<bool> twice{false};
    std::atomic<int> holder[pool] = {};
    std::vector<std::thread> threads;
    std::atomic<uint64_t> back{0}; // bit: WQE is free for its owner
    for (uint32_t t = 0; t < 3; t++)
        threads.emplace_back([&] {
            while (taken < total) {
                uint32_t w;
                if (!vs_rq_take(&view, &w)) {
                    sched_yield();
                    continue;
                }
                twice = twice || holder[w].exchange(1) != 0;
                taken++;
                holder[w] = 0;
                back.fetch_or(UINT64_C(1) << w);
            }
        });
    for (uint32_t i = 0; i < pool; i++)
        vs_rq_post(&view, i);
    while (taken < total) {
        uint64_t bits = back.exchange(0);
        for (uint32_t w = 0; w < pool; w++)
            if (bits >> w & 1) {
                release(w);
                vs_rq_post(&view, w);
            }
        sched_yield();
    }
    for (auto &t : threads)
        t.join();
    EXPECT_FALSE(twice);
}

} // namespace
