// Waits are as long as the tables of the InfiniBand specification say for the code that a QP was given: 9.7.6.1.3 (ack timeout,
// 4.096 us * 2^code) and table 45 (RNR NAK timer field). Only lower bounds: what takes longer took longer on this machine.
#include "conform/pair.h"

#include <chrono>

namespace
{

using namespace vt;

class Timer : public BothEnds, public ::testing::WithParamInterface<Kind>
{
  protected:
    using Clock = std::chrono::steady_clock;

    Timer() : BothEnds(GetParam())
    {
    }
    Send message() const
    {
        Send s;
        return to_responder(s);
    }
    // Microseconds until it ended in this way.
    double ends_after(ibv_wc_status status)
    {
        auto began = Clock::now();
        EXPECT_EQ(outcome(one_, message()), status);
        return std::chrono::duration<double, std::micro>(Clock::now() - began).count();
    }
};

// The responder's timer counts, not the requester's; each retry waits for it.
TEST_P(Timer, RnrWaitsAreTheResponders)
{
    const struct {
        uint8_t code;
        double us;
    } table[] = {{1, 10}, {8, 160}, {16, 2560}, {20, 10240}, {24, 40960}, {27, 122880}};
    for (auto &row : table)
        for (uint8_t retries : {1, 2}) {
            Path requester, responder;
            requester.rnr = retries;
            responder.min_rnr = row.code;
            connect_ends(requester, responder);
            double us = ends_after(IBV_WC_RNR_RETRY_EXC_ERR);
            printf("RNR timer %2d (%6.0f us), %d retries: %.0f us\n", row.code, row.us, retries, us);
            EXPECT_GE(us, retries * row.us);
            EXPECT_EQ(qp_counter(one_->qp_num, "rnr_received"), retries + 1);
        }
}

TEST_P(Timer, EachTryWaitsForItsAnswer)
{
    for (uint8_t code : {5, 10, 12})
        for (uint8_t retries : {0, 1, 2}) {
            Path requester;
            requester.timeout = code;
            requester.retry = retries;
            connect_ends(requester, {});
            order("drop packet times ever");
            double us = ends_after(IBV_WC_RETRY_EXC_ERR), one = 4.096 * (1u << code);
            printf("ack timeout %2d (%6.0f us), %d retries: %.0f us\n", code, one, retries, us);
            EXPECT_GE(us, (retries + 1) * one);
            order("clear");
        }
}

// Whatever moves on gives all retries back. The receive is there long before the time is over: code 0 is 655.36 ms, and the first try was
// made before the post came back.
TEST_P(Timer, RnrRetriesStartAnewWithEachMessage)
{
    Path requester, responder;
    requester.rnr = 1;
    responder.min_rnr = 0;
    connect_ends(requester, responder);
    for (uint64_t i = 0; i < 3; i++) {
        ASSERT_EQ(message().id(i).post(one_), 0);
        post_receive(i);
        ibv_wc wc = next_wc(n_->cq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.wr_id, i);
    }
    EXPECT_EQ(qp_counter(one_->qp_num, "rnr_received"), 3);
}

TEST_P(Timer, RetriesStartAnewWithEachMessage)
{
    Path requester;
    requester.retry = 1;
    connect_ends(requester, {});
    for (uint64_t i = 0; i < 3; i++) {
        post_receive(i);
        order("drop packet nth 1");
        EXPECT_EQ(outcome(one_, message()), IBV_WC_SUCCESS);
    }
    EXPECT_EQ(qp_counter(one_->qp_num, "retries"), 3);
}

INSTANTIATE_TEST_SUITE_P(All, Timer, ::testing::Values(RC_SRQ, XRC), [](const auto &info) { return info.param == XRC ? "Xrc" : "Rc"; });

} // namespace
