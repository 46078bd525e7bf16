// The timers that IBTA's tables give: RNR NAK codes and ack timeout codes, against a copy of the rules, in milliseconds.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>

extern "C" uint64_t vs_rnr_time(uint8_t code);
extern "C" uint64_t vs_ack_time(uint8_t code);

namespace
{

const double rnr_ms[32] = {655.36, .01,   .02,   .03,   .04,   .06,    .08,    .12,    .16,    .24,   .32,
                           .48,    .64,   .96,   1.28,  1.92,  2.56,   3.84,   5.12,   7.68,   10.24, 15.36,
                           20.48,  30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52};

TEST(Timer, RnrNakCodes)
{
    for (unsigned code = 0; code < 32; code++) {
        printf("RNR NAK timer %2u  %6.2f ms\n", code, rnr_ms[code]);
        EXPECT_EQ(vs_rnr_time((uint8_t) code), (uint64_t) (rnr_ms[code] * 1e6 + .5)) << code;
    }
}

TEST(Timer, AckTimeoutCodes)
{
    EXPECT_EQ(vs_ack_time(0), 0u) << "for ever";
    for (unsigned code = 1; code < 32; code++)
        EXPECT_EQ(vs_ack_time((uint8_t) code), (uint64_t) 4096 << code) << "4.096 us * 2^" << code;
}

} // namespace
