// SPDX-License-Identifier: BSD-3-Clause
// The numbers of a host's ranks: how they add up, who prints, and that nobody waits for the dead.
#include "btl_xrc_tally.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace
{

class Tally : public testing::Test
{
  protected:
    void SetUp() override
    {
        char name[] = "/tmp/tally_test.XXXXXX";
        ASSERT_NE(nullptr, mkdtemp(name));
        dir = name;
        path = dir + "/report";
    }

    void TearDown() override
    {
        unlink(path.c_str());
        EXPECT_EQ(0, rmdir(dir.c_str()));
    }

    bool exists() const
    {
        return access(path.c_str(), F_OK) == 0;
    }

    std::string dir, path;
};

xrc_tally_row row_of(uint64_t puts)
{
    xrc_tally_row row = {};
    row.stat[XRC_STAT_PUTS] = puts;
    return row;
}

// A rank in a process of its own: it joins, tells so, and leaves when it is told to.
class Rank
{
  public:
    Rank(const std::string &path, uint32_t number)
    {
        EXPECT_EQ(0, pipe(to));
        EXPECT_EQ(0, pipe(from));
        pid = fork();
        if (pid == 0) {
            run(path, number);
        }
        EXPECT_TRUE(heard('j'));
    }

    ~Rank()
    {
        if (pid > 0) {
            kill(pid, SIGKILL);
            waitpid(pid, nullptr, 0);
        }
        for (int fd : {to[0], to[1], from[0], from[1]}) {
            close(fd);
        }
    }

    void tell_to_leave()
    {
        EXPECT_EQ(1, write(to[1], "l", 1));
    }

    // Joined and ended of the tally that it got, 0 when it was not the last.
    unsigned left()
    {
        unsigned answer[2] = {};
        EXPECT_EQ((ssize_t) sizeof answer, read(from[0], answer, sizeof answer));
        int status;
        EXPECT_EQ(pid, waitpid(pid, &status, 0));
        EXPECT_EQ(0, status);
        pid = 0;
        return answer[0] * 100 + answer[1];
    }

    void die()
    {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
        pid = 0;
    }

  private:
    bool heard(char what)
    {
        char c = 0;
        return read(from[0], &c, 1) == 1 && c == what;
    }

    [[noreturn]] void run(const std::string &path, uint32_t number)
    {
        char c;
        int fd = xrc_tally_join(path.c_str(), number);
        if (fd < 0 || write(from[1], "j", 1) != 1 || read(to[0], &c, 1) != 1) {
            _exit(1);
        }
        xrc_tally_row row = row_of(1);
        xrc_tally sum;
        unsigned answer[2] = {};
        if (xrc_tally_leave(fd, path.c_str(), &row, &sum)) {
            answer[0] = sum.joined;
            answer[1] = sum.stat[XRC_STAT_PUTS] == sum.ended ? sum.ended : 99;
        }
        _exit(write(from[1], answer, sizeof answer) == (ssize_t) sizeof answer ? 0 : 1);
    }

    int to[2], from[2];
    pid_t pid;
};

TEST_F(Tally, OneRankPrintsItsOwn)
{
    int fd = xrc_tally_join(path.c_str(), 7);
    ASSERT_GE(fd, 0);
    EXPECT_TRUE(exists());
    xrc_tally_row row = row_of(3);
    xrc_tally sum;
    ASSERT_TRUE(xrc_tally_leave(fd, path.c_str(), &row, &sum));
    EXPECT_EQ(1u, sum.joined);
    EXPECT_EQ(1u, sum.ended);
    EXPECT_EQ(3u, sum.stat[XRC_STAT_PUTS]);
    EXPECT_FALSE(exists());
}

TEST_F(Tally, TheLastOnePrints)
{
    Rank a(path, 0), b(path, 1), c(path, 2);
    b.tell_to_leave();
    EXPECT_EQ(0u, b.left());
    a.tell_to_leave();
    EXPECT_EQ(0u, a.left());
    EXPECT_TRUE(exists());
    c.tell_to_leave();
    EXPECT_EQ(303u, c.left());
    EXPECT_FALSE(exists());
}

TEST_F(Tally, NobodyWaitsForTheDead)
{
    Rank a(path, 0), b(path, 1), c(path, 2);
    a.die();
    b.tell_to_leave();
    EXPECT_EQ(0u, b.left());
    c.tell_to_leave();
    EXPECT_EQ(302u, c.left());
    EXPECT_FALSE(exists());
}

// All at once: exactly one prints, and it has all rows.
// A rank that has ended clears away its job's directory while another still adds its row: that one prints.
TEST_F(Tally, AFileThatWasRemovedUnderneathIsReportedAllTheSame)
{
    std::vector<std::unique_ptr<Rank>> ranks;
    for (uint32_t i = 0; i < 3; ++i) {
        ranks.push_back(std::make_unique<Rank>(path, i));
    }
    ranks[0]->tell_to_leave();
    EXPECT_EQ(0u, ranks[0]->left());
    EXPECT_EQ(0, unlink(path.c_str()));
    ranks[1]->tell_to_leave();
    EXPECT_EQ(0u, ranks[1]->left());
    ranks[2]->tell_to_leave();
    EXPECT_EQ(303u, ranks[2]->left());
}

TEST_F(Tally, ExactlyOnePrints)
{
    for (int round = 0; round < 50; ++round) {
        std::vector<std::unique_ptr<Rank>> ranks;
        for (uint32_t i = 0; i < 4; ++i) {
            ranks.push_back(std::make_unique<Rank>(path, i));
        }
        for (auto &r : ranks) {
            r->tell_to_leave();
        }
        std::multiset<unsigned> answers;
        for (auto &r : ranks) {
            answers.insert(r->left());
        }
        EXPECT_EQ((std::multiset<unsigned>{0, 0, 0, 404}), answers);
        EXPECT_FALSE(exists());
    }
}

TEST_F(Tally, PlantedFilesAreRefused)
{
    ASSERT_EQ(0, symlink("/etc/passwd", path.c_str()));
    EXPECT_EQ(-1, xrc_tally_join(path.c_str(), 0));
    unlink(path.c_str());
    close(open(path.c_str(), O_CREAT | O_WRONLY, 0600));
    ASSERT_EQ(0, chmod(path.c_str(), 0666));
    EXPECT_EQ(-1, xrc_tally_join(path.c_str(), 0));
    unlink(path.c_str());
    ASSERT_EQ(0, mkfifo(path.c_str(), 0600));
    EXPECT_EQ(-1, xrc_tally_join(path.c_str(), 0));
}

TEST_F(Tally, NoiseIsLeftOut)
{
    int noise = open(path.c_str(), O_CREAT | O_WRONLY, 0600);
    std::vector<char> bytes(sizeof(xrc_tally_row), 'x');
    ASSERT_EQ((ssize_t) bytes.size(), write(noise, bytes.data(), bytes.size()));
    close(noise);
    int fd = xrc_tally_join(path.c_str(), 0);
    ASSERT_GE(fd, 0);
    xrc_tally_row row = row_of(1);
    row.nrails = 1;
    memset(row.rail[0].device, 'd', sizeof row.rail[0].device); // no end
    xrc_tally sum;
    ASSERT_TRUE(xrc_tally_leave(fd, path.c_str(), &row, &sum));
    EXPECT_EQ(1u, sum.joined);
    EXPECT_EQ(1u, sum.ended);
    EXPECT_EQ(1u, sum.nrails);
    EXPECT_EQ(sizeof row.rail[0].device - 1, strlen(sum.rail[0].at.device));
}

// Rows as the file would hold them: the magic number is put in by those who write.
xrc_tally sum_of(const std::string &dir, std::vector<xrc_tally_row> rows)
{
    std::string path = dir + "/rows";
    xrc_tally sum = {};
    std::vector<int> fds;
    for (uint32_t i = 0; i < rows.size(); ++i) {
        int fd = xrc_tally_join(path.c_str(), i);
        EXPECT_GE(fd, 0);
        EXPECT_TRUE(xrc_tally_leave(fd, path.c_str(), &rows[i], &sum));
    }
    sum = {};
    for (const auto &row : rows) {
        xrc_tally_add(&sum, &row);
    }
    return sum;
}

xrc_tally_row one_of_2x2(uint64_t made, uint64_t opened)
{
    xrc_tally_row row = {};
    row.stat[XRC_STAT_INI_MADE] = 2;
    row.stat[XRC_STAT_TGT_MADE] = made;
    row.stat[XRC_STAT_TGT_OPENED] = opened;
    row.stat[XRC_STAT_RECV_BYTES] = 2048;
    row.stat[XRC_STAT_CACHE_MOST] = 1024 * made;
    row.stat[XRC_STAT_SRQ_LOW] = 50 + made;
    row.stat[XRC_STAT_RNR] = 10 + made;
    row.recv_formula = 4096;
    row.recv_start = 1024;
    row.nrails = 1;
    strcpy(row.rail[0].device, "mlx5_0");
    row.rail[0].port = 1;
    row.rail[0].lid = 9;
    row.rail[0].domains = 1;
    row.rail[0].peers = 2;
    row.rail[0].own_peers = 1;
    row.rail[0].inis = 2;
    row.rail[0].moved[2] = {2, 12, 1};
    return row;
}

TEST_F(Tally, AddsUp)
{
    xrc_tally sum = sum_of(dir, {one_of_2x2(3, 1), one_of_2x2(1, 3)});
    EXPECT_EQ(2u, sum.ended);
    EXPECT_EQ(4u, sum.stat[XRC_STAT_INI_MADE]);
    EXPECT_EQ(4u, sum.stat[XRC_STAT_TGT_MADE]);
    EXPECT_EQ(4096u, sum.stat[XRC_STAT_RECV_BYTES]);
    EXPECT_EQ(3072u, sum.stat[XRC_STAT_CACHE_MOST]) << "the most that any rank has";
    EXPECT_EQ(51u, sum.stat[XRC_STAT_SRQ_LOW]) << "the least that any rank has";
    EXPECT_EQ(13u, sum.stat[XRC_STAT_RNR]) << "all have seen the same port";
    ASSERT_EQ(1u, sum.nrails);
    EXPECT_EQ(2u, sum.rail[0].ranks);
    EXPECT_EQ(4u, sum.rail[0].wanted);
    EXPECT_EQ(6u, sum.rail[0].pairs);
    EXPECT_EQ(4u, sum.rail[0].at.inis);
}

TEST_F(Tally, TheReport)
{
    xrc_tally sum = sum_of(dir, {one_of_2x2(3, 1), one_of_2x2(1, 3)});
    char *made = xrc_tally_text(&sum, "node7");
    ASSERT_NE(nullptr, made);
    std::string text = made;
    free(made);
    EXPECT_EQ(0u, text.find("btl xrc: report of host node7, 2 ranks\n")) << text;
    for (const char *line :
         {"    INI                     4          4 ", "    TGT                     4          4 ",
          "    second handles          4          4 ", "    RC instead              6          - ",
          "    receive buffers         8          4 ", "      at the start          2          - ",
          "    mlx5_0 port 1 LID 9                 2               1            2            1      4\n"
          "      now at port 2 LID 12                                                          2\n"}) {
        EXPECT_NE(std::string::npos, text.find(line)) << line << "\n" << text;
    }
    sum.joined = 3;
    made = xrc_tally_text(&sum, "node7");
    ASSERT_NE(nullptr, made);
    EXPECT_EQ(0, strncmp(made, "btl xrc: report of host node7, 2 ranks; 1 ended without a word\n", 62)) << made;
    free(made);
}

TEST_F(Tally, MoreRailsThanThereIsRoomFor)
{
    xrc_tally_row row = one_of_2x2(1, 1);
    std::vector<xrc_tally_row> rows;
    for (uint32_t lid = 0; lid < 3 * XRC_MAX_MODULES; ++lid) {
        row.rail[0].lid = lid;
        rows.push_back(row);
    }
    xrc_tally sum = sum_of(dir, rows);
    EXPECT_EQ(2u * XRC_MAX_MODULES, sum.nrails);
    EXPECT_EQ(3u * XRC_MAX_MODULES, sum.ended);
    rows[0].nrails = XRC_MAX_MODULES + 1;
    xrc_tally_add(&sum, &rows[0]);
    EXPECT_EQ(3u * XRC_MAX_MODULES, sum.ended) << "a row that cannot be";
}

TEST(Stats, EachHasANameOfItsOwnAndAText)
{
    std::set<std::string> names;
    for (const auto &info : xrc_stat_info) {
        ASSERT_NE(nullptr, info.name);
        EXPECT_NE(nullptr, info.help) << info.name;
        EXPECT_TRUE(names.insert(info.name).second) << info.name;
    }
}

} // namespace
