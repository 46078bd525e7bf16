// Which file lies behind an address: by both ways to ask the kernel.
#include <gtest/gtest.h>

extern "C" {
#include "core/backing.h"
}

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

namespace
{

constexpr size_t page = 4096;

class Backing : public ::testing::Test
{
  protected:
    Backing() : fd_(memfd_create("a name with  blanks", MFD_CLOEXEC))
    {
        EXPECT_EQ(ftruncate(fd_, 8 * page), 0);
    }
    ~Backing() override
    {
        for (auto &m : maps_)
            munmap(m.first, m.second);
        close(fd_);
    }
    char *map(int flags, size_t offset = 0, int prot = PROT_READ | PROT_WRITE, int fd = -2, void *want = nullptr)
    {
        void *p = mmap(want, 4 * page, prot, flags | (want ? MAP_FIXED : 0),
                       flags & MAP_ANONYMOUS ? -1
                       : fd == -2            ? fd_
                                             : fd,
                       (off_t) offset);
        EXPECT_NE(p, MAP_FAILED);
        maps_.emplace_back(p, 4 * page);
        return static_cast<char *>(p);
    }
    static bool found(const char *at, size_t length)
    {
        vs_backing b;
        return vs_backing_find(at, length, &b);
    }
    static void expect_same(const char *at)
    {
        vs_mapping asked, read;
        FILE *maps = fopen("/proc/self/maps", "re");
        ASSERT_NE(maps, nullptr);
        int err = vs_mapping_query(fileno(maps), (uintptr_t) at, &asked);
        int err2 = vs_mapping_search(maps, (uintptr_t) at, &read);
        fclose(maps);
        if (err == ENOTTY)
            GTEST_SKIP() << "an older kernel";
        ASSERT_EQ(err, err2);
        if (err)
            return;
        EXPECT_EQ(asked.start, read.start);
        EXPECT_EQ(asked.end, read.end);
        EXPECT_EQ(asked.dev, read.dev);
        EXPECT_EQ(asked.ino, read.ino);
        if (asked.ino) {
            EXPECT_EQ(asked.offset, read.offset);
        }
        EXPECT_EQ(asked.readable, read.readable);
        EXPECT_EQ(asked.writable, read.writable);
        EXPECT_EQ(asked.shared, read.shared);
        EXPECT_STREQ(asked.name, read.name);
    }

    int fd_;
    std::vector<std::pair<void *, size_t>> maps_;
};

TEST_F(Backing, BothWaysSayTheSame)
{
    expect_same(map(MAP_SHARED));
    expect_same(map(MAP_SHARED, 3 * page, PROT_READ) + page);
    expect_same(map(MAP_SHARED | MAP_ANONYMOUS) + 4 * page - 1);
    expect_same(map(MAP_PRIVATE));
    expect_same(map(MAP_PRIVATE | MAP_ANONYMOUS, 0, PROT_NONE));
    expect_same(nullptr);
    static int here;
    expect_same(reinterpret_cast<char *>(&here));
}

TEST_F(Backing, WhichBytesOfTheFile)
{
    struct stat st;
    ASSERT_EQ(fstat(fd_, &st), 0);
    char *at = map(MAP_SHARED, 2 * page);
    vs_backing b;
    ASSERT_TRUE(vs_backing_find(at + page + 5, 7, &b));
    EXPECT_EQ(b.ino, st.st_ino);
    EXPECT_EQ(b.dev, st.st_dev);
    EXPECT_EQ(b.offset, 3 * page + 5);
    EXPECT_EQ(b.flags, (uint32_t) (VS_BACKED | VS_BACKED_WRITABLE));
    ASSERT_TRUE(vs_backing_find(map(MAP_SHARED, 0, PROT_READ), page, &b));
    EXPECT_EQ(b.flags, (uint32_t) VS_BACKED);
}

TEST_F(Backing, NotPrivateMemory)
{
    EXPECT_FALSE(found(map(MAP_PRIVATE), page));
    EXPECT_FALSE(found(map(MAP_PRIVATE | MAP_ANONYMOUS), page));
    EXPECT_FALSE(found(nullptr, page));
    EXPECT_FALSE(found(map(MAP_SHARED), 0));
}

TEST_F(Backing, NotBeyondOneMapping)
{
    char *at = map(MAP_PRIVATE | MAP_ANONYMOUS, 0, PROT_NONE);
    map(MAP_SHARED, 4 * page, PROT_READ | PROT_WRITE, -2, at); // the same file, not the bytes that follow
    EXPECT_TRUE(found(at, 4 * page));
    EXPECT_FALSE(found(at + 1, 4 * page));
    EXPECT_FALSE(found(at, SIZE_MAX));
    ASSERT_EQ(mprotect(at + page, page, PROT_READ), 0);
    EXPECT_TRUE(found(at, page));
    EXPECT_FALSE(found(at, 2 * page));
    ASSERT_EQ(mprotect(at + page, page, PROT_NONE), 0);
    EXPECT_FALSE(found(at + page, page));
}

// A System V segment bears its id in place of an inode number: another memory file may have the same.
TEST_F(Backing, NotSystemV)
{
    int id = shmget(IPC_PRIVATE, page, 0600);
    ASSERT_GE(id, 0);
    auto *at = static_cast<char *>(shmat(id, nullptr, 0));
    shmctl(id, IPC_RMID, nullptr);
    EXPECT_FALSE(found(at, page));
    expect_same(at);
    shmdt(at);
}

TEST_F(Backing, FilesByTheirDirectory)
{
    for (std::string dir : {std::string("/dev/shm"), std::string(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp")}) {
        std::string path = dir + "/vs_backing.XXXXXX";
        int fd = mkstemp(path.data());
        ASSERT_GE(fd, 0);
        ASSERT_EQ(ftruncate(fd, 4 * page), 0);
        struct stat st;
        ASSERT_EQ(stat(dir.c_str(), &st), 0);
        char *at = map(MAP_SHARED, 0, PROT_READ | PROT_WRITE, fd);
        vs_backing there = {}, deleted = {};
        EXPECT_TRUE(vs_backing_find(at, page, &there));
        unlink(path.c_str());
        EXPECT_TRUE(vs_backing_find(at, page, &deleted));
        EXPECT_EQ(there.ino, deleted.ino);
        EXPECT_EQ(there.dev, st.st_dev);
        close(fd);
    }
}

} // namespace
