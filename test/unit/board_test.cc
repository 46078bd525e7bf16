// SPDX-License-Identifier: BSD-3-Clause
// The notice board in the domain file: files that are not what they should be, ranks that come, leave and are killed.
#include "btl_xrc_board.h"
#include "lib/task.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

static int interruptions;

// As the C library's, but for so many times that a signal comes.
extern "C" int posix_fallocate(int fd, off_t offset, off_t len)
{
    if (interruptions > 0) {
        --interruptions;
        return EINTR;
    }
    return fallocate(fd, 0, offset, len) == 0 ? 0 : errno;
}

namespace
{

const unsigned kWatchdogSeconds = 60;

xrc_board_member member(uint32_t vpid)
{
    xrc_board_member m = {};
    m.name = {7, vpid};
    m.ud = {0x100 + vpid, 1};
    m.addr.port = 1;
    return m;
}

xrc_tgt_key key(uint32_t vpid)
{
    return {{9, vpid}, 0, 1};
}

// Another rank: a process that does what it is told, a letter at a time, and answers each with a byte.
class Rank
{
  public:
    Rank(const std::string &path, uint32_t vpid)
    {
        EXPECT_EQ(pipe(to_), 0);
        EXPECT_EQ(pipe(from_), 0);
        pid_ = fork();
        if (pid_ == 0) {
            alarm(kWatchdogSeconds);
            close(to_[1]);
            close(from_[0]);
            serve(path, vpid);
        }
        close(to_[0]);
        close(from_[1]);
        EXPECT_EQ(answer(), 'j');
    }

    ~Rank()
    {
        close(to_[1]);
        close(from_[0]);
        if (pid_ > 0) {
            waitpid(pid_, nullptr, 0);
        }
    }

    void tell(char what)
    {
        EXPECT_EQ(write(to_[1], &what, 1), 1);
    }

    char ask(char what)
    {
        tell(what);
        return answer();
    }

    char answer()
    {
        char c = 0;
        return read(from_[0], &c, 1) == 1 ? c : 0;
    }

    pid_t pid() const
    {
        return pid_;
    }

    void kill9()
    {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }

  private:
    [[noreturn]] void serve(const std::string &path, uint32_t vpid)
    {
        xrc_board *board = nullptr;
        xrc_board_error error;
        const xrc_board_member me = member(vpid);
        char c = xrc_board_join(path.c_str(), &me, &board, &error) == 0 ? 'j' : 'e';
        while (write(from_[1], &c, 1) == 1 && board != nullptr && read(to_[0], &c, 1) == 1) {
            c = obey(&board, c, vpid);
        }
        _exit(0);
    }

    // t: list a TGT and keep it. m: list one and leave it in the making. k: keep that of rank 0. l: leave.
    // L: say that we are leaving. x: die in the middle of a change, with the lock held. w: have the lock, waiting as one that does not run
    // at once when it is woken.
    static char obey(xrc_board **board, char what, uint32_t vpid)
    {
        const xrc_tgt_key own = key(vpid), zero = key(0);
        if (what == 'l') {
            const char last = xrc_board_leave(*board) ? 'y' : 'n';
            *board = nullptr;
            return last;
        }
        if (what == 'L') {
            xrc_board_set_leaving(*board);
            return 'o';
        }
        if (what == 'w') {
            vt::give_way();
            xrc_board_lock(*board);
            xrc_board_unlock(*board);
            return 'o';
        }
        xrc_board_lock(*board);
        xrc_board_tgt *t = what == 'k' ? xrc_board_tgt_find(*board, &zero) : xrc_board_tgt_add(*board, &own);
        bool good = t != nullptr;
        if (what == 'x') {
            t->next = 0x7fffffff;
            raise(SIGKILL);
        }
        if (good && what == 't') {
            t->tgt_qpn = 0x1000 + vpid;
            t->state = XRC_TGT_READY;
        }
        if (good && what != 'm') {
            good = xrc_board_keep(*board, t);
        }
        xrc_board_unlock(*board);
        return good ? 'o' : 'f';
    }

    int to_[2] = {-1, -1};
    int from_[2] = {-1, -1};
    pid_t pid_ = 0;
};

class Board : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        alarm(kWatchdogSeconds);
        const char *tmp = getenv("TMPDIR");
        std::string pattern = std::string(tmp != nullptr ? tmp : "/tmp") + "/board.XXXXXX";
        std::vector<char> dir(pattern.begin(), pattern.end());
        dir.push_back('\0');
        ASSERT_NE(mkdtemp(dir.data()), nullptr);
        dir_ = dir.data();
        path_ = dir_ + "/btl_xrc_dev0";
    }

    void TearDown() override
    {
        alarm(0);
        unlink(path_.c_str());
        EXPECT_EQ(rmdir(dir_.c_str()), 0) << "something was left in " << dir_;
    }

    xrc_board *join(uint32_t vpid = 0)
    {
        xrc_board *board = nullptr;
        const xrc_board_member me = member(vpid);
        return xrc_board_join(path_.c_str(), &me, &board, &error_) == 0 ? board : nullptr;
    }

    xrc_board_fault fault()
    {
        xrc_board *board = join();
        if (board != nullptr) {
            xrc_board_leave(board);
            return XRC_BOARD_OK;
        }
        return error_.fault;
    }

    bool exists() const
    {
        return access(path_.c_str(), F_OK) == 0;
    }

    void put(size_t size, mode_t mode = 0600, char fill = 'x') const
    {
        const int fd = open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
        ASSERT_GE(fd, 0);
        const std::vector<char> data(size, fill);
        ASSERT_EQ(write(fd, data.data(), size), static_cast<ssize_t>(size));
        ASSERT_EQ(fchmod(fd, mode), 0);
        close(fd);
    }

    size_t file_size()
    {
        xrc_board *board = join();
        struct stat st = {};
        stat(path_.c_str(), &st);
        xrc_board_leave(board);
        return static_cast<size_t>(st.st_size);
    }

    std::string dir_, path_;
    xrc_board_error error_ = {};
};

TEST_F(Board, LastOneRemovesIt)
{
    xrc_board *board = join();
    ASSERT_NE(board, nullptr);
    struct stat st;
    ASSERT_EQ(stat(path_.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 07777u, 0600u);
    Rank other(path_, 1);
    EXPECT_EQ(other.ask('l'), 'n');
    EXPECT_TRUE(exists());
    EXPECT_TRUE(xrc_board_leave(board));
    EXPECT_FALSE(exists());
}

TEST_F(Board, EachBoardHasItsOwnUuid)
{
    xrc_board *board = join();
    const xrc_uuid first = xrc_board_uuid(board);
    xrc_board_leave(board);
    board = join();
    const xrc_uuid second = xrc_board_uuid(board);
    xrc_board_leave(board);
    EXPECT_NE(memcmp(&first, &second, sizeof first), 0);
}

TEST_F(Board, PlantedFilesAreRefused)
{
    put(0, 0644);
    EXPECT_EQ(fault(), XRC_BOARD_PLANTED) << "open to others";
    EXPECT_TRUE(error_.seen);
    EXPECT_EQ(error_.mode, 0644u);
    unlink(path_.c_str());
    put(0, 0700);
    EXPECT_EQ(fault(), XRC_BOARD_PLANTED) << "executable";
    unlink(path_.c_str());

    ASSERT_EQ(symlink((dir_ + "/elsewhere").c_str(), path_.c_str()), 0);
    EXPECT_EQ(fault(), XRC_BOARD_PLANTED) << "a link";
    EXPECT_NE(access((dir_ + "/elsewhere").c_str(), F_OK), 0) << "the link was followed";
    unlink(path_.c_str());

    put(0);
    ASSERT_EQ(link(path_.c_str(), (dir_ + "/second").c_str()), 0);
    EXPECT_EQ(fault(), XRC_BOARD_PLANTED) << "a second name";
    unlink((dir_ + "/second").c_str());
    unlink(path_.c_str());

    ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
    EXPECT_EQ(fault(), XRC_BOARD_PLANTED) << "a directory";
    rmdir(path_.c_str());

    ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
    EXPECT_EQ(fault(), XRC_BOARD_PLANTED) << "a fifo";
    unlink(path_.c_str());

    EXPECT_EQ(fault(), XRC_BOARD_OK);
}

TEST_F(Board, ForeignOwnerIsRefused)
{
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root can give a file away";
    }
    put(0);
    ASSERT_EQ(chown(path_.c_str(), 65534, 65534), 0);
    EXPECT_EQ(fault(), XRC_BOARD_PLANTED);
    EXPECT_EQ(error_.uid, 65534u);
}

TEST_F(Board, WrongSizeAndVersionAreRefused)
{
    const size_t size = file_size();
    put(100);
    EXPECT_EQ(fault(), XRC_BOARD_SIZE);
    unlink(path_.c_str());
    put(size + 1);
    EXPECT_EQ(fault(), XRC_BOARD_SIZE);
    unlink(path_.c_str());
    put(size);
    EXPECT_EQ(fault(), XRC_BOARD_VERSION);
    unlink(path_.c_str());
    put(size, 0600, '\0');
    EXPECT_EQ(fault(), XRC_BOARD_OK) << "one that was never finished is made anew";
}

// A profiler's signals make some file systems give up.
TEST_F(Board, SignalsDoNotDisturbIt)
{
    interruptions = 3;
    EXPECT_EQ(fault(), XRC_BOARD_OK) << strerror(error_.err);
    EXPECT_EQ(interruptions, 0);
}

TEST_F(Board, MissingDirectory)
{
    const xrc_board_member me = member(0);
    xrc_board *board = nullptr;
    EXPECT_EQ(xrc_board_join((dir_ + "/none/btl_xrc_dev0").c_str(), &me, &board, &error_), -1);
    EXPECT_EQ(error_.fault, XRC_BOARD_OPEN);
    EXPECT_EQ(error_.err, ENOENT);
    EXPECT_FALSE(error_.seen) << "has neither owner nor mode";
    EXPECT_EQ(board, nullptr);
}

// No room for the file: an error, and nothing is left. A size limit stands in for a full file system.
TEST_F(Board, NoSpaceIsAnErrorAndNoSignal)
{
    const pid_t pid = fork();
    if (pid == 0) {
        signal(SIGXFSZ, SIG_IGN);
        const rlimit limit = {4096, 4096};
        setrlimit(RLIMIT_FSIZE, &limit);
        const bool good = join() == nullptr && error_.err == EFBIG && !exists();
        _exit(good ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST_F(Board, KilledRankIsSeenDead)
{
    xrc_board *board = join();
    Rank other(path_, 1);
    EXPECT_TRUE(xrc_board_alive(board, 1));
    other.kill9();
    EXPECT_FALSE(xrc_board_alive(board, 1));
    EXPECT_TRUE(xrc_board_alive(board, xrc_board_slot(board)));
    EXPECT_FALSE(xrc_board_alive(board, XRC_BOARD_RANKS));
    EXPECT_TRUE(xrc_board_leave(board)) << "the dead do not hold the file";
}

TEST_F(Board, DescriptorsOfOthersDoNotMatter)
{
    xrc_board *board = join();
    Rank other(path_, 1);
    const int fd = dup(xrc_board_fd(board));
    EXPECT_TRUE(xrc_board_alive(board, 1));
    EXPECT_EQ(other.ask('l'), 'n');
    EXPECT_FALSE(xrc_board_alive(board, 1));
    xrc_board_leave(board);
    close(fd);
}

TEST_F(Board, SlotOfTheDeadIsTakenWithoutItsDuties)
{
    xrc_board *board = join();
    {
        Rank other(path_, 1);
        ASSERT_EQ(other.ask('t'), 'o');
        other.kill9();
    }
    Rank next(path_, 2);
    const xrc_tgt_key k = key(1);
    xrc_board_lock(board);
    xrc_board_tgt *t = xrc_board_tgt_find(board, &k);
    ASSERT_NE(t, nullptr);
    xrc_board_member m;
    ASSERT_TRUE(xrc_board_member_at(board, 1, &m));
    EXPECT_EQ(m.name.vpid, 2u);
    EXPECT_EQ(xrc_board_keepers(board, t), 0u);
    EXPECT_TRUE(xrc_board_orphaned(board, t));
    xrc_board_unlock(board);
    EXPECT_EQ(next.ask('l'), 'n');
    xrc_board_leave(board);
}

// Who looks on behind the last one asked comes round to everybody: one that cannot does not stand in the way for ever.
TEST_F(Board, EachCandidateHasItsTurn)
{
    xrc_board *board = join();
    const xrc_tgt_key k = key(1);
    Rank a(path_, 1), b(path_, 2), c(path_, 3);
    xrc_board_lock(board);
    xrc_board_tgt *t = xrc_board_tgt_add(board, &k);
    ASSERT_NE(t, nullptr);
    xrc_board_member m;
    uint32_t start = 0;
    for (uint32_t want : {1u, 2u, 3u, 1u}) {
        EXPECT_EQ(xrc_board_candidate(board, t, start, &m), want);
        start = want + 1;
    }
    xrc_board_unlock(board);
    xrc_board_leave(board);
}

TEST_F(Board, CrashedBoardIsMadeAnew)
{
    {
        Rank other(path_, 1);
        ASSERT_EQ(other.ask('t'), 'o');
        other.kill9();
    }
    EXPECT_TRUE(exists());
    xrc_board *board = join();
    ASSERT_NE(board, nullptr);
    const xrc_tgt_key k = key(1);
    xrc_board_lock(board);
    EXPECT_EQ(xrc_board_tgt_find(board, &k), nullptr) << "a TGT of a job that is gone";
    xrc_board_unlock(board);
    EXPECT_TRUE(xrc_board_leave(board));
}

// Of those who let go, one is the last, and it alone takes the TGT off the board.
TEST_F(Board, TheLastToQuitIsToldSo)
{
    xrc_board *board = join();
    const xrc_tgt_key zero = key(0);
    xrc_board_lock(board);
    xrc_board_tgt *t = xrc_board_tgt_add(board, &zero);
    ASSERT_NE(t, nullptr);
    t->state = XRC_TGT_READY;
    EXPECT_TRUE(xrc_board_keep(board, t));
    xrc_board_unlock(board);
    Rank a(path_, 1);
    EXPECT_EQ(a.ask('k'), 'o');
    xrc_board_lock(board);
    EXPECT_FALSE(xrc_board_quit(board, t)) << "another one keeps it";
    EXPECT_EQ(xrc_board_tgt_find(board, &zero), t);
    EXPECT_TRUE(xrc_board_keep(board, t));
    xrc_board_unlock(board);
    a.kill9();
    xrc_board_lock(board);
    EXPECT_TRUE(xrc_board_quit(board, t)) << "the other one is dead";
    EXPECT_EQ(xrc_board_tgt_find(board, &zero), nullptr);
    xrc_board_unlock(board);
    EXPECT_TRUE(xrc_board_leave(board));
}

TEST_F(Board, KeepersAreTwoAndLive)
{
    xrc_board *board = join();
    const xrc_tgt_key zero = key(0);
    xrc_board_lock(board);
    xrc_board_tgt *t = xrc_board_tgt_add(board, &zero);
    ASSERT_NE(t, nullptr);
    EXPECT_FALSE(xrc_board_orphaned(board, t)) << "we are making it";
    t->state = XRC_TGT_READY;
    EXPECT_TRUE(xrc_board_keep(board, t));
    EXPECT_TRUE(xrc_board_keep(board, t));
    EXPECT_EQ(xrc_board_keepers(board, t), 1u);
    xrc_board_unlock(board);

    Rank a(path_, 1), b(path_, 2);
    EXPECT_EQ(a.ask('k'), 'o');
    EXPECT_EQ(b.ask('k'), 'f') << "two are enough";
    xrc_board_member m;
    xrc_board_lock(board);
    EXPECT_EQ(xrc_board_staying_keepers(board, t), 1u);
    EXPECT_EQ(xrc_board_candidate(board, t, 1, &m), 2u);
    xrc_board_unlock(board);

    a.kill9();
    xrc_board_lock(board);
    EXPECT_EQ(xrc_board_keepers(board, t), 1u);
    EXPECT_EQ(xrc_board_staying_keepers(board, t), 0u);
    xrc_board_unlock(board);
    EXPECT_EQ(b.ask('k'), 'o');

    EXPECT_EQ(b.ask('L'), 'o');
    xrc_board_lock(board);
    EXPECT_EQ(xrc_board_staying_keepers(board, t), 0u) << "one that leaves does not count";
    EXPECT_EQ(xrc_board_candidate(board, t, 0, &m), XRC_BOARD_NOBODY);
    xrc_board_unlock(board);
    Rank c(path_, 3);
    EXPECT_EQ(c.ask('k'), 'o') << "and makes room";

    xrc_board_lock(board);
    xrc_board_unkeep(board, t);
    EXPECT_FALSE(xrc_board_orphaned(board, t));
    xrc_board_tgt_remove(board, t);
    EXPECT_EQ(xrc_board_tgt_find(board, &zero), nullptr);
    xrc_board_unlock(board);
    for (Rank *r : {&b, &c}) {
        r->ask('l');
    }
    EXPECT_TRUE(xrc_board_leave(board));
}

TEST_F(Board, MakerThatDiesLeavesAnOrphan)
{
    xrc_board *board = join();
    Rank other(path_, 1);
    ASSERT_EQ(other.ask('m'), 'o');
    const xrc_tgt_key k = key(1);
    xrc_board_lock(board);
    xrc_board_tgt *t = xrc_board_tgt_find(board, &k);
    ASSERT_NE(t, nullptr);
    EXPECT_FALSE(xrc_board_orphaned(board, t));
    xrc_board_unlock(board);
    other.kill9();
    xrc_board_lock(board);
    EXPECT_TRUE(xrc_board_orphaned(board, t));
    xrc_board_unlock(board);
    xrc_board_leave(board);
}

// Killed inside the lock, in the middle of a change: whoever comes next finds the lists in order.
TEST_F(Board, DeathInsideTheLockIsMended)
{
    xrc_board *board = join();
    xrc_board_lock(board);
    for (uint32_t v = 100; v < 200; ++v) {
        const xrc_tgt_key k = key(v);
        ASSERT_NE(xrc_board_tgt_add(board, &k), nullptr);
    }
    xrc_board_unlock(board);
    {
        Rank other(path_, 1);
        other.tell('x');
        EXPECT_EQ(other.answer(), 0);
    }
    xrc_board_lock(board);
    for (uint32_t v = 100; v < 200; ++v) {
        const xrc_tgt_key k = key(v);
        EXPECT_NE(xrc_board_tgt_find(board, &k), nullptr) << v;
    }
    const xrc_tgt_key dead = key(1);
    xrc_board_tgt *t = xrc_board_tgt_find(board, &dead);
    ASSERT_NE(t, nullptr);
    EXPECT_TRUE(xrc_board_orphaned(board, t));
    EXPECT_EQ(xrc_board_tgt_count(board), 101u);
    xrc_board_unlock(board);
    xrc_board_leave(board);
}

// The file is memory that others write to: no state that it may have leads out of a table.
TEST_F(Board, StatesThatNobodyWritesAreNone)
{
    xrc_board *board = join();
    const xrc_tgt_key k = key(1);
    xrc_board_lock(board);
    xrc_board_tgt *t = xrc_board_tgt_add(board, &k);
    ASSERT_NE(t, nullptr);
    EXPECT_EQ(xrc_board_state(t), XRC_TGT_MAKING);
    for (uint32_t state : {static_cast<uint32_t>(XRC_TGT_STATES), 0x80000000u, UINT32_MAX}) {
        t->state = state;
        EXPECT_EQ(xrc_board_state(t), XRC_TGT_NONE) << state;
        EXPECT_EQ(xrc_board_tgt_find(board, &k), nullptr) << state;
        EXPECT_EQ(xrc_board_tgt_count(board), 0u) << state;
    }
    xrc_board_tgt *again = xrc_board_tgt_add(board, &k);
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(xrc_board_tgt_find(board, &k), again);
    xrc_board_unlock(board);
    EXPECT_TRUE(xrc_board_leave(board));
}

TEST_F(Board, FillsEmptiesAndFillsAgain)
{
    xrc_board *board = join();
    xrc_board_lock(board);
    for (int round = 0; round < 2; ++round) {
        for (uint32_t v = 0; v < XRC_BOARD_TGTS; ++v) {
            const xrc_tgt_key k = key(v);
            ASSERT_NE(xrc_board_tgt_add(board, &k), nullptr) << v;
        }
        const xrc_tgt_key more = key(XRC_BOARD_TGTS);
        EXPECT_EQ(xrc_board_tgt_add(board, &more), nullptr);
        EXPECT_EQ(xrc_board_tgt_count(board), XRC_BOARD_TGTS);
        for (uint32_t v = 0; v < XRC_BOARD_TGTS; ++v) {
            const xrc_tgt_key k = key((v * 7919u) % XRC_BOARD_TGTS);
            xrc_board_tgt *t = xrc_board_tgt_find(board, &k);
            ASSERT_NE(t, nullptr);
            EXPECT_EQ(xrc_board_tgt_at(board, xrc_board_tgt_index(board, t)), t);
            xrc_board_tgt_remove(board, t);
        }
        EXPECT_EQ(xrc_board_tgt_count(board), 0u);
    }
    EXPECT_EQ(xrc_board_tgt_at(board, XRC_BOARD_TGTS), nullptr);
    xrc_board_unlock(board);
    xrc_board_leave(board);
}

// The lock is free, its first waiter woken. Before that one has it we take it again, and the first is killed: the second still gets its turn.
TEST_F(Board, AWaiterThatIsKilledWhenItIsWokenTakesNobodysTurn)
{
    vt::OneCpu cpu;
    xrc_board *board = join();
    Rank first(path_, 1), second(path_, 2);
    xrc_board_lock(board);
    for (Rank *rank : {&first, &second}) {
        rank->tell('w');
        vt::until_it_sleeps(std::to_string(rank->pid()));
    }
    xrc_board_unlock(board);
    xrc_board_lock(board);
    first.kill9();
    xrc_board_unlock(board);
    EXPECT_EQ(second.answer(), 'o');
    EXPECT_EQ(second.ask('l'), 'n');
    EXPECT_TRUE(xrc_board_leave(board));
}

// Ranks come and go at the same time, some by kill -9; each that lives finds one board with all the others.
TEST_F(Board, ComingAndGoingInParallel)
{
    xrc_board *board = join();
    const xrc_uuid uuid = xrc_board_uuid(board);
    for (int round = 0; round < 10; ++round) {
        std::vector<pid_t> pids;
        for (uint32_t v = 1; v <= 6; ++v) {
            const pid_t pid = fork();
            if (pid == 0) {
                alarm(kWatchdogSeconds);
                xrc_board *mine = join(v);
                const xrc_uuid seen = mine != nullptr ? xrc_board_uuid(mine) : xrc_uuid{};
                if (mine == nullptr || memcmp(&seen, &uuid, sizeof uuid) != 0) {
                    _exit(1);
                }
                if (v % 3 == 0) {
                    raise(SIGKILL);
                }
                xrc_board_leave(mine);
                _exit(0);
            }
            pids.push_back(pid);
        }
        for (const pid_t pid : pids) {
            int status = 0;
            waitpid(pid, &status, 0);
            EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) != 0);
        }
    }
    EXPECT_TRUE(xrc_board_leave(board));
}

TEST(BoardTexts, AreThere)
{
    for (int f = XRC_BOARD_OK; f <= XRC_BOARD_FULL; ++f) {
        EXPECT_STRNE(xrc_board_fault_text(static_cast<xrc_board_fault>(f)), "unknown");
    }
}

} // namespace
