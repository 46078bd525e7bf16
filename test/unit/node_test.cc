// SPDX-License-Identifier: BSD-3-Clause
// The send side of a remote domain: whose turn it is, windows on HCAs that give less, and room in the CQ that all INIs share.
#include "unit/node_fake.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace
{

const uint32_t small = 24;

struct Node : testing::Test {
    fake_options options = {1, 4096, 16, 1024, false, 256};
    unsigned handed = 0;

    ~Node() override
    {
        fake_end();
    }

    void begin()
    {
        fake_begin(&options);
    }

    // With a message of its own, which is over.
    void connect(unsigned node)
    {
        send(node, 0);
        fake_connect(node);
        while (fake_do(node)) {
        }
        fake_progress();
        ASSERT_EQ(fake_ended(true), handed);
    }

    void send(unsigned node, unsigned peer, unsigned klass = 0, unsigned n = 1, uint32_t size = small)
    {
        for (unsigned i = 0; i < n; ++i, ++handed) {
            ASSERT_EQ(fake_send(node, peer, klass, size), 0);
        }
    }

    // Until nothing moves any more.
    void run()
    {
        for (bool moved = true; moved;) {
            moved = false;
            for (unsigned n = 0; n < options.nodes; ++n) {
                moved = fake_do(n) || moved;
            }
            fake_progress();
        }
    }

    void expect_all_over()
    {
        run();
        EXPECT_EQ(fake_waiting(), 0u);
        EXPECT_EQ(fake_ended(true), handed);
        EXPECT_EQ(fake_ended(false), 0u);
        EXPECT_EQ(fake_refused(), 0u);
        EXPECT_FALSE(fake_overrun());
    }

    static std::vector<int> posted(unsigned from)
    {
        std::vector<int> to;
        for (int peer; (peer = fake_posted(0, from)) >= 0; ++from) {
            to.push_back(peer);
        }
        return to;
    }
};

// ---- turns ----

TEST_F(Node, WhoSendsALittleWaitsForOneRoundAndNotForWhoFloods)
{
    options.window = 2;
    begin();
    connect(0);
    send(0, 0, 0, 8);
    send(0, 1, 0, 3);
    send(0, 2, 0, 2);
    expect_all_over();
    EXPECT_EQ(posted(1), (std::vector<int>{0, 0, /**/ 0, 1, 2, /**/ 0, 1, 2, /**/ 0, 1, /**/ 0, 0, 0}));
}

TEST_F(Node, WhoComesLateHasItsTurnInTheSameRound)
{
    options.window = 1;
    begin();
    connect(0);
    send(0, 0, 0, 100);
    for (unsigned peer = 1; peer < FAKE_PEERS; ++peer) {
        const unsigned before = static_cast<unsigned>(posted(0).size());
        send(0, peer);
        for (int i = 0; i < 2; ++i) {
            ASSERT_TRUE(fake_do(0));
            fake_progress();
        }
        const std::vector<int> next = posted(before);
        ASSERT_EQ(next.size(), 2u);
        EXPECT_TRUE(next[0] == static_cast<int>(peer) || next[1] == static_cast<int>(peer)) << peer;
    }
    expect_all_over();
}

// Whatever is sent when, by whom: nobody who waits sees another one go twice.
TEST_F(Node, NobodyGoesTwiceWhileAnotherWaits)
{
    std::mt19937 random(4711);
    options.window = 2;
    begin();
    connect(0);
    unsigned seen = static_cast<unsigned>(posted(0).size());
    unsigned left[FAKE_PEERS] = {}, others[FAKE_PEERS][FAKE_PEERS] = {};
    for (int step = 0; step < 2000; ++step) {
        const unsigned peer = random() % 4 ? 0 : random() % FAKE_PEERS;
        if (fake_waiting() < 40) {
            send(0, peer);
            if (left[peer]++ == 0) {
                std::fill(others[peer], others[peer] + FAKE_PEERS, 0);
            }
        }
        if (random() % 3) {
            fake_do(0);
            fake_progress();
        }
        for (int gone; (gone = fake_posted(0, seen)) >= 0; ++seen) {
            --left[gone];
            std::fill(others[gone], others[gone] + FAKE_PEERS, 0);
            for (unsigned who = 0; who < FAKE_PEERS; ++who) {
                ASSERT_LE(left[who] > 0 && static_cast<int>(who) != gone ? ++others[who][gone] : 0, 1u)
                    << "peer " << gone << " twice while " << who << " waits, step " << step;
            }
        }
    }
    expect_all_over();
}

TEST_F(Node, ALongMessageThatWaitsHoldsUpNobodyElse)
{
    options.window = 1;
    begin();
    connect(0);
    send(0, 0, 2, 5, 60000);
    send(0, 1, 0, 1);
    EXPECT_EQ(fake_posted(0, 2), 1);
    EXPECT_EQ(fake_waiting(), 4u);
    expect_all_over();
}

TEST_F(Node, PeersThatComeBeforeTheConnectionAllHaveTheirTurn)
{
    options.window = 2;
    begin();
    send(0, 0, 0, 20);
    for (unsigned peer = 1; peer < 6; ++peer) {
        send(0, peer);
    }
    fake_connect(0);
    expect_all_over();
    const std::vector<int> to = posted(0);
    EXPECT_EQ(std::vector<int>(to.begin(), to.begin() + 7), (std::vector<int>{0, 1, 2, 3, 4, 5, 0}));
}

// ---- HCAs that give less than they are asked for ----

struct Depth : Node, testing::WithParamInterface<std::tuple<uint32_t, bool>> {
};

TEST_P(Depth, EverythingArrives)
{
    std::mt19937 random(99);
    options.depth = std::get<0>(GetParam());
    options.refuses = std::get<1>(GetParam());
    begin();
    if (options.refuses && options.depth < FAKE_CLASSES + 1) {
        return; // no queue has less than one for each window, and that is said
    }
    connect(0);
    for (int i = 0; i < 500; ++i) {
        // At first only what is not signalled, which must not fill the queue alone.
        const unsigned peer = random() % FAKE_PEERS, klass = i < 100 ? 0 : random() % FAKE_CLASSES;
        if (klass > 0 || !fake_send_now(0, peer, small)) {
            send(0, peer, klass, 1, klass > 0 ? 10000 : small);
        }
        if (random() % 4 == 0) {
            fake_do(0);
            fake_progress();
        }
    }
    expect_all_over();
}

INSTANTIATE_TEST_SUITE_P(Of, Depth,
                         testing::Combine(testing::Values(1, 2, 3, 4, 5, 8, 17, 33, 63, 64, 1000), testing::Bool()));

TEST_F(Node, LessInlineDataIsNeverExceeded)
{
    for (uint32_t inlines : {0u, 1u, 32u, 100u}) {
        options.inlines = inlines;
        begin();
        connect(0);
        handed = 1;
        for (uint32_t size : {0u, 1u, 2u, 31u, 32u, 33u, 99u, 100u, 101u, 256u, 257u}) {
            send(0, 1, 0, 3, size);
        }
        expect_all_over();
        handed = 0;
        if (inlines != 100u) {
            fake_end();
        }
    }
}

// ---- room in the CQ ----

TEST_F(Node, EachNodeHasItsRunsWhereThereIsRoom)
{
    options.nodes = 8;
    begin();
    for (unsigned n = 0; n < 8; ++n) {
        connect(n);
    }
    const unsigned before = fake_signalled();
    for (int i = 0; i < 100; ++i) {
        for (unsigned n = 0; n < 8; ++n) {
            ASSERT_TRUE(fake_send_now(n, 0, small));
        }
        run();
    }
    EXPECT_EQ(fake_signalled() - before, 8u * (100 / 8)) << "one in eight, half of a window of 16";
}

// All INIs fail when nothing of what they have posted is done: each work request comes back, signalled or not.
TEST_F(Node, ManyLostPeersDoNotOverrunASmallCq)
{
    options.nodes = 16;
    options.cqe = 64;
    options.window = 64;
    begin();
    for (unsigned n = 0; n < 16; ++n) {
        connect(n);
    }
    for (int round = 0; round < 64; ++round) {
        for (unsigned n = 0; n < 16; ++n) {
            if (!fake_send_now(n, round % 3, small)) {
                send(n, round % 3);
            }
        }
        ASSERT_LE(fake_on_the_way(), 64u);
    }
    const unsigned well = fake_ended(true);
    for (unsigned n = 0; n < 16; ++n) {
        fake_fail(n);
    }
    EXPECT_FALSE(fake_overrun());
    fake_progress();
    EXPECT_EQ(fake_waiting(), 0u);
    EXPECT_EQ(fake_ended(true), well);
    EXPECT_EQ(fake_ended(false), handed - well) << "each comes back once";
}

// CQs of all sizes, traffic of all kinds, INIs that fail and go: never more on the way than there is room for, never stuck.
TEST_F(Node, RoomIsNeverExceededAndNeverLost)
{
    for (int cqe : {1, 2, 3, 7, 16, 40, 64, 200, 1000}) {
        std::mt19937 random(static_cast<unsigned>(cqe));
        options.nodes = 12;
        options.cqe = cqe;
        options.window = 1 + random() % 32;
        begin();
        handed = 0;
        bool open[FAKE_NODES] = {};
        for (int step = 0; step < 3000; ++step) {
            const unsigned n = random() % options.nodes, peer = random() % FAKE_PEERS;
            if (!open[n]) {
                send(n, peer);
                fake_connect(n);
                open[n] = true;
            } else if (random() % 3) {
                if (!fake_send_now(n, peer, small)) {
                    send(n, peer, random() % FAKE_CLASSES);
                }
            } else {
                fake_do(n);
                fake_progress();
            }
            ASSERT_LE(fake_on_the_way(), static_cast<unsigned>(cqe)) << "step " << step;
        }
        expect_all_over();
        for (unsigned n = 0; n < options.nodes; ++n) {
            fake_close(n);
        }
        EXPECT_EQ(fake_room(), cqe) << "of " << cqe;
        if (cqe != 1000) {
            fake_end();
        }
    }
}

} // namespace
