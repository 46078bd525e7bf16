// The data path's grace period: whoever waits for those inside looks as far as anybody has ever been.

#include "attached.h"

extern "C" {
#include "memory/process.h"
}

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace
{

using Process = Attached;

// All threads go on together, spinning: so that they meet in the few instructions that matter.
class Barrier
{
  public:
    explicit Barrier(unsigned n) : n_(n)
    {
    }
    void wait()
    {
        unsigned turn = turn_;
        if (++here_ == n_) {
            here_ = 0;
            turn_++;
            return;
        }
        for (unsigned looks = 1; turn_ == turn; looks++)
            if (looks % 100 == 0)
                sched_yield();
    }

  private:
    const unsigned n_;
    std::atomic<unsigned> here_{0}, turn_{0};
};

// Of several threads that come in for the first time, one that saw the count before the others raised it set it back: quiesce then passed
// over those who were inside.
TEST_F(Process, TheCountOfHazardsNeverGoesBackwards)
{
    constexpr unsigned threads = 3;
    constexpr int rounds = 4000;
    Barrier barrier(threads);
    std::atomic<int> missed{0};
    std::atomic<uint32_t> most{0};
    std::vector<std::thread> all;
    for (unsigned t = 0; t < threads; t++)
        all.emplace_back([&, t] {
            for (int i = 0; i < rounds; i++) {
                if (t == 0) {
                    most = 0;
                    vs_store(&vs_me->hazards, 0);
                }
                barrier.wait();
                vs_hazard *h = vs_enter();
                uint32_t reached = (uint32_t) (h - vs_me->hazard) + 1, seen = most;
                while (seen < reached && !most.compare_exchange_weak(seen, reached)) {
                }
                barrier.wait();
                if (t == 0)
                    missed += vs_load(&vs_me->hazards) < most;
                barrier.wait();
                vs_exit(h);
            }
        });
    for (std::thread &t : all)
        t.join();
    EXPECT_EQ(missed, 0) << "of " << rounds << " rounds";
}

} // namespace
