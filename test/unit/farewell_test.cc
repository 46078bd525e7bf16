// SPDX-License-Identifier: BSD-3-Clause
// Farewells: nobody repeats them, so each must go out once, also when more are due than the wire-up queue takes.
#include "unit/farewell_fake.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace
{

const unsigned queue = 64; // sends of a wire-up queue
const unsigned many = 300;

struct Farewell : testing::Test {
    Farewell()
    {
        farewell_reset();
    }

    ~Farewell() override
    {
        farewell_go_on(true);
    }

    static unsigned said(unsigned from, unsigned to)
    {
        unsigned sum = 0;
        for (; from < to; ++from) {
            EXPECT_LE(farewell_said(from), 1u) << from;
            sum += farewell_said(from);
        }
        return sum;
    }
};

TEST_F(Farewell, MoreThanTheQueueTakesWaitAndEachIsSaidOnce)
{
    farewell_room(0, queue);
    for (unsigned i = 0; i < many; ++i) {
        farewell_say(0, i);
    }
    EXPECT_EQ(said(0, many), queue);
    for (unsigned sum = queue; sum < many; sum = said(0, many)) {
        ASSERT_TRUE(farewell_go_on(false)) << sum;
        ASSERT_EQ(said(0, many), sum) << "without room";
        farewell_room(0, 7);
        farewell_go_on(false);
        ASSERT_EQ(said(0, many), std::min(sum + 7, many));
    }
    EXPECT_FALSE(farewell_go_on(false));
    EXPECT_EQ(farewell_lost(), 0u);
}

TEST_F(Farewell, APortThatIsStuckHoldsUpNoOther)
{
    farewell_room(1, queue);
    for (unsigned i = 0; i < queue; ++i) {
        farewell_say(0, 2 * i);
        farewell_say(1, 2 * i + 1);
    }
    EXPECT_EQ(said(0, 2 * queue), queue);
    for (unsigned i = 0; i < queue; ++i) {
        EXPECT_EQ(farewell_said(2 * i + 1), 1u);
    }
    EXPECT_TRUE(farewell_go_on(false));
    farewell_room(0, queue);
    EXPECT_FALSE(farewell_go_on(false));
    EXPECT_EQ(said(0, 2 * queue), 2 * queue);
    EXPECT_EQ(farewell_lost(), 0u);
}

// The thread ends and its queue with it.
TEST_F(Farewell, AtTheEndNoneIsKept)
{
    for (unsigned i = 0; i < many; ++i) {
        farewell_say(0, i);
    }
    EXPECT_EQ(said(0, many), 0u);
    farewell_room(0, queue);
    EXPECT_FALSE(farewell_go_on(true));
    EXPECT_EQ(said(0, many), queue);
    EXPECT_EQ(farewell_lost(), many - queue);
}

} // namespace
