// Locks that lean towards one thread: nobody else is inside with it, whoever comes is let in, and alone it needs no mutex.
#include <gtest/gtest.h>

extern "C" {
#include "core/lock.h"
}

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace
{

class Lock : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        alarm(120);
        vs_lock_setup();
        vs_lock_init(&lock_);
    }
    void TearDown() override
    {
        vs_lock_destroy(&lock_);
    }
    // Takes it and leaves it; true if that took no mutex.
    bool fast()
    {
        ::vs_lock(&lock_);
        bool fast = lock_.fast;
        vs_unlock(&lock_);
        return fast;
    }
    // The same until it takes no mutex any more; how often that was.
    unsigned lean()
    {
        unsigned n = 0;
        while (!fast())
            n++;
        return n;
    }
    struct vs_lock lock_;
};

// Of this process: is it waiting in the kernel?
bool sleeps(pid_t thread)
{
    std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string line;
    std::getline(stat, line);
    size_t name = line.rfind(')');
    return name != std::string::npos && line.compare(name, 3, ") S") == 0;
}

#define NEEDS_BIAS()                                                                                                   \
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0)) {                                             \
        GTEST_SKIP() << "this kernel has no expedited membarrier";                                                     \
    }

TEST_F(Lock, AloneItNeedsNoMutex)
{
    NEEDS_BIAS();
    unsigned first = lean();
    for (int i = 0; i < 1000; i++)
        ASSERT_TRUE(fast()) << i;
    // Not even while something else has the mutex, as long as that has not withdrawn the bias.
    ASSERT_EQ(pthread_mutex_lock(&lock_.mutex), 0);
    EXPECT_TRUE(fast());
    pthread_mutex_unlock(&lock_.mutex);
    printf("biased after %u times\n", first);
}

TEST_F(Lock, AnotherThreadWithdrawsTheBias)
{
    NEEDS_BIAS();
    lean();
    std::thread([&] { EXPECT_FALSE(fast()); }).join();
    EXPECT_FALSE(fast());
}

// Each time it was withdrawn it takes longer to come back: threads that take turns are left with the mutex.
TEST_F(Lock, TurnsEndTheBias)
{
    NEEDS_BIAS();
    unsigned first = lean(), last = first;
    for (int i = 0; i < 5; i++) {
        std::thread([&] { fast(); }).join();
        last = lean();
    }
    EXPECT_GE(last, 16 * first);
}

// The one that had it may still be about to write `held`, so another has to wait until that one has come by the mutex.
TEST_F(Lock, AnotherHasItOnceTheFirstCameBack)
{
    NEEDS_BIAS();
    lean();
    std::thread([&] {
        for (int i = 0; i < 10000; i++)
            ASSERT_FALSE(fast());
    }).join();
    fast();
    std::thread([&] {
        unsigned n = lean();
        EXPECT_GT(n, 0u);
    }).join();
}

TEST_F(Lock, TryingFailsWhileSomebodyIsInside)
{
    auto try_elsewhere = [&] {
        bool got = false;
        std::thread([&] {
            got = vs_trylock(&lock_);
            if (got)
                vs_unlock(&lock_);
        }).join();
        return got;
    };
    for (int i = 0; i < 200; i++) { // by the mutex first, then without
        ::vs_lock(&lock_);
        ASSERT_FALSE(vs_trylock(&lock_)) << "its own thread, " << i;
        ASSERT_FALSE(i % 40 == 39 && try_elsewhere()) << i;
        vs_unlock(&lock_);
    }
    EXPECT_TRUE(try_elsewhere());
    EXPECT_TRUE(vs_trylock(&lock_));
    vs_unlock(&lock_);
}

// One thread nearly always, others now and then, waiting or trying; what they change is plain memory.
TEST_F(Lock, NobodyIsInsideWithAnother)
{
    const unsigned others = 3, visits = 2000;
    unsigned seed = std::random_device{}();
    printf("seed %u\n", seed);
    std::atomic<unsigned> ended{0};
    uint64_t a = 0, b = 0, expected = 0, torn = 0;
    auto visit = [&] {
        torn += a != b;
        a++;
        b++;
    };
    std::vector<std::thread> threads;
    std::atomic<uint64_t> tried{0};
    for (unsigned t = 0; t < others; t++)
        threads.emplace_back([&, t] {
            std::minstd_rand random(seed + t);
            for (unsigned i = 0; i < visits; i++) {
                for (unsigned pause = random() % 2000; pause > 0; pause--)
                    vs_cpu_relax();
                if (random() % 4) {
                    ::vs_lock(&lock_);
                } else if (!vs_trylock(&lock_)) {
                    sched_yield();
                    continue;
                }
                visit();
                vs_unlock(&lock_);
                tried++;
            }
            ended++;
        });
    while (ended < others)
        for (int i = 0; i < 100; i++) {
            ::vs_lock(&lock_);
            if (!lock_.fast)
                lock_.wanted = 1; // leans again at once, whatever came before
            visit();
            expected++;
            vs_unlock(&lock_);
        }
    for (auto &t : threads)
        t.join();
    EXPECT_EQ(torn, 0u);
    EXPECT_EQ(a, expected + tried);
    EXPECT_EQ(b, expected + tried);
}

// Whoever waits for the thread that is inside without the mutex is woken when that leaves.
TEST_F(Lock, WhoWaitsIsWoken)
{
    NEEDS_BIAS();
    for (int i = 0; i < 200; i++) {
        lock_.wanted = 1;
        lean();
        ::vs_lock(&lock_);
        std::atomic<bool> in{false};
        std::atomic<pid_t> id{0};
        std::thread other([&] {
            id = (pid_t) syscall(SYS_gettid);
            ::vs_lock(&lock_);
            in = true;
            vs_unlock(&lock_);
        });
        while (__atomic_load_n(&lock_.bias, __ATOMIC_RELAXED) != 0 || (i % 2 && !sleeps(id)))
            sched_yield();
        ASSERT_FALSE(in);
        vs_unlock(&lock_);
        other.join();
        ASSERT_TRUE(in);
    }
}

} // namespace
