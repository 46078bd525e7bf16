// The queue behind async and completion descriptors: one token a notification, order, forgetting, readers in threads.
extern "C" {
#include "core/notifier.h"
}

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

namespace
{

class Notifier : public ::testing::Test
{
  protected:
    static void SetUpTestSuite()
    {
        alarm(60);
    }
    void SetUp() override
    {
        ASSERT_EQ(vs_notifier_open(&n), 0);
    }
    void TearDown() override
    {
        vs_notifier_close(&n);
    }
    void nonblocking()
    {
        fcntl(n.read_fd, F_SETFL, O_NONBLOCK);
    }
    bool readable()
    {
        pollfd p = {n.read_fd, POLLIN, 0};
        return poll(&p, 1, 0) == 1;
    }
    vs_notifier n;
    int element[4];
    vs_reported reported[4] = {};
};

TEST_F(Notifier, DescriptorsAreClosedOnExec)
{
    EXPECT_TRUE(fcntl(n.read_fd, F_GETFD) & FD_CLOEXEC);
    EXPECT_TRUE(fcntl(n.write_fd, F_GETFD) & FD_CLOEXEC);
}

TEST_F(Notifier, NotificationsComeInOrderWithAllTheySay)
{
    for (uint32_t i = 0; i < 10; i++)
        ASSERT_EQ(vs_notifier_post(&n, &element[i % 4], &reported[i % 4], 100 + i, i), 0);
    for (uint32_t i = 0; i < 10; i++) {
        vs_note note;
        ASSERT_TRUE(readable());
        ASSERT_EQ(vs_notifier_take(&n, &note), 0);
        EXPECT_EQ(note.element, &element[i % 4]);
        EXPECT_EQ(note.type, 100 + i);
        EXPECT_EQ(note.port, i);
    }
    EXPECT_FALSE(readable());
    EXPECT_EQ(reported[0].count, 3u);
    EXPECT_EQ(reported[3].count, 2u);
}

// A reader that has the token, and comes to the queue only when the notification has been taken back.
TEST_F(Notifier, ForgettingNeverWaitsForATokenThatAReaderHas)
{
    char token;
    ASSERT_EQ(vs_notifier_post(&n, &element[0], &reported[0], 1, 0), 0);
    ASSERT_EQ(read(n.read_fd, &token, 1), 1);
    EXPECT_EQ(vs_notifier_forget(&n, &element[0], &reported[0]), 0u);
    EXPECT_FALSE(fcntl(n.read_fd, F_GETFL) & O_NONBLOCK) << "the program's descriptor is as it was";
}

TEST_F(Notifier, EmptyIsEagainWhenNonblocking)
{
    vs_note note;
    nonblocking();
    EXPECT_EQ(vs_notifier_take(&n, &note), EAGAIN);
}

TEST_F(Notifier, NotificationsWithoutAnElementCountForNobody)
{
    vs_note note;
    ASSERT_EQ(vs_notifier_post(&n, nullptr, nullptr, 9, 2), 0);
    ASSERT_EQ(vs_notifier_take(&n, &note), 0);
    EXPECT_EQ(note.element, nullptr);
    EXPECT_EQ(note.port, 2u);
}

// The kernel counts at read time; destroying takes unread ones along and waits for as many acknowledgements as were read.
TEST_F(Notifier, ForgetTakesTheUnreadAndTellsHowManyWereRead)
{
    for (uint32_t i = 0; i < 9; i++)
        ASSERT_EQ(vs_notifier_post(&n, &element[i % 3], &reported[i % 3], i, 0), 0);
    vs_note note;
    ASSERT_EQ(vs_notifier_take(&n, &note), 0); // element 0
    EXPECT_EQ(vs_notifier_forget(&n, &element[0], &reported[0]), 1u);
    EXPECT_EQ(vs_notifier_forget(&n, &element[1], &reported[1]), 0u);
    for (uint32_t want : {2u, 5u, 8u}) {
        ASSERT_TRUE(readable());
        ASSERT_EQ(vs_notifier_take(&n, &note), 0);
        EXPECT_EQ(note.type, want);
    }
    EXPECT_FALSE(readable()) << "their tokens went with them";
    EXPECT_EQ(vs_notifier_forget(&n, &element[2], &reported[2]), 3u);
    ASSERT_EQ(vs_notifier_post(&n, &element[3], &reported[3], 4, 0), 0) << "the list's end is still right";
    ASSERT_EQ(vs_notifier_take(&n, &note), 0);
    EXPECT_EQ(note.type, 4u);
}

TEST_F(Notifier, ForgetOnANonblockingEmptyQueueReturns)
{
    EXPECT_EQ(vs_notifier_forget(&n, &element[0], &reported[0]), 0u);
    nonblocking();
    EXPECT_EQ(vs_notifier_forget(&n, &element[0], &reported[0]), 0u);
}

TEST_F(Notifier, AReaderBlocksUntilSomethingComes)
{
    std::atomic<bool> got{false};
    vs_note note;
    std::thread reader([&] {
        EXPECT_EQ(vs_notifier_take(&n, &note), 0);
        got = true;
    });
    for (int i = 0; i < 1000; i++) {
        ASSERT_FALSE(got);
        sched_yield();
    }
    ASSERT_EQ(vs_notifier_post(&n, &element[0], &reported[0], 1, 0), 0);
    reader.join();
    EXPECT_TRUE(got);
}

TEST_F(Notifier, AFullPipeRefusesAndQueuesNothing)
{
    uint32_t posted = 0;
    int err;
    while ((err = vs_notifier_post(&n, &element[0], &reported[0], posted, 0)) == 0)
        posted++;
    EXPECT_EQ(err, EAGAIN);
    vs_note note;
    for (uint32_t i = 0; i < posted; i++) {
        ASSERT_EQ(vs_notifier_take(&n, &note), 0);
        ASSERT_EQ(note.type, i);
    }
    EXPECT_FALSE(readable());
}

TEST_F(Notifier, AfterTheEndWhatIsQueuedIsTakenAndThenAllReadersAreTold)
{
    vs_note note;
    ASSERT_EQ(vs_notifier_post(&n, &element[0], &reported[0], 1, 0), 0);
    ASSERT_EQ(vs_notifier_post(&n, &element[1], &reported[1], 2, 0), 0);
    ASSERT_EQ(vs_notifier_post(&n, &element[0], &reported[0], 3, 0), 0);
    vs_notifier_end(&n);
    vs_notifier_end(&n);
    EXPECT_EQ(vs_notifier_post(&n, &element[0], &reported[0], 4, 0), EIO);
    ASSERT_EQ(vs_notifier_take(&n, &note), 0);
    EXPECT_EQ(note.type, 1u);
    EXPECT_EQ(vs_notifier_forget(&n, &element[1], &reported[1]), 0u);
    ASSERT_EQ(vs_notifier_take(&n, &note), 0);
    EXPECT_EQ(note.type, 3u);
    for (int i = 0; i < 3; i++) {
        EXPECT_TRUE(readable());
        EXPECT_EQ(vs_notifier_take(&n, &note), EIO);
    }
    nonblocking();
    EXPECT_EQ(vs_notifier_take(&n, &note), EIO);
}

TEST_F(Notifier, TheEndWakesAllThatWait)
{
    std::vector<std::thread> readers;
    std::atomic<int> waiting{0}, told{0};
    for (int i = 0; i < 5; i++)
        readers.emplace_back([&] {
            vs_note note;
            waiting++;
            told += vs_notifier_take(&n, &note) == EIO;
        });
    while (waiting < 5)
        sched_yield();
    vs_notifier_end(&n);
    for (auto &r : readers)
        r.join();
    EXPECT_EQ(told, 5);
}

TEST_F(Notifier, AFullPipeHasItsEndAllTheSame)
{
    vs_note note;
    int queued = 0;
    while (vs_notifier_post(&n, &element[0], nullptr, 1, 0) == 0)
        queued++;
    vs_notifier_end(&n);
    for (int i = 0; i < queued; i++)
        ASSERT_EQ(vs_notifier_take(&n, &note), 0);
    EXPECT_EQ(vs_notifier_take(&n, &note), EIO);
    EXPECT_EQ(vs_notifier_take(&n, &note), EIO);
}

TEST_F(Notifier, NoDescriptorsLeftIsAnErrorNotACrash)
{
    rlimit old, none;
    getrlimit(RLIMIT_NOFILE, &old);
    none = old;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    vs_notifier other;
    EXPECT_EQ(vs_notifier_open(&other), EMFILE);
    setrlimit(RLIMIT_NOFILE, &old);
}

TEST_F(Notifier, WritersReadersAndForgettersAtOnce)
{
    constexpr uint32_t each = 20000;
    std::atomic<bool> done{false};
    nonblocking();
    std::vector<std::thread> threads;
    for (int w = 0; w < 2; w++)
        threads.emplace_back([&, w] {
            for (uint32_t i = 0; i < each; i++)
                while (vs_notifier_post(&n, &element[w], &reported[w], i, 0) == EAGAIN)
                    sched_yield();
        });
    std::thread forgetter([&] {
        while (!done) {
            ASSERT_EQ(vs_notifier_post(&n, &element[2], &reported[2], 0, 0) % EAGAIN, 0);
            vs_notifier_forget(&n, &element[2], &reported[2]);
        }
    });
    std::vector<std::thread> readers;
    std::atomic<uint32_t> of_writers{0};
    for (int r = 0; r < 2; r++)
        readers.emplace_back([&] {
            vs_note note;
            while (of_writers < 2 * each)
                if (vs_notifier_take(&n, &note) == 0)
                    of_writers += note.element != &element[2];
                else
                    sched_yield();
        });
    for (auto &t : threads)
        t.join();
    for (auto &t : readers)
        t.join();
    done = true;
    forgetter.join();
    EXPECT_EQ(of_writers, 2 * each);
    EXPECT_EQ(reported[0].count, each);
    EXPECT_EQ(reported[1].count, each);
}

} // namespace
