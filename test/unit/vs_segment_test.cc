// The segment's files: making, joining and leaving, what was planted or left behind, full file systems.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

extern "C" {
#include "core/context.h"
#include "memory/pages.h"
#include "memory/slots.h"
}

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace
{

class Segment : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        alarm(120);
        const char *env = getenv("VERBS_SHIM_FABRIC");
        base_ = env ? env : "/dev/shm/vt." + std::to_string(getpid());
        dir_ = base_;
    }
    void TearDown() override
    {
        setenv("VERBS_SHIM_FABRIC", base_.c_str(), 1);
        EXPECT_FALSE(exists(dir_)) << "files left behind";
    }
    void use(const std::string &dir)
    {
        dir_ = dir;
        setenv("VERBS_SHIM_FABRIC", dir.c_str(), 1);
    }
    static bool exists(const std::string &path)
    {
        struct stat st;
        return lstat(path.c_str(), &st) == 0;
    }
    std::string file(const char *name) const
    {
        return dir_ + "/" + name;
    }
    std::set<std::string> files() const
    {
        std::set<std::string> names;
        DIR *d = opendir(dir_.c_str());
        while (dirent *e = d ? readdir(d) : nullptr)
            if (e->d_name[0] != '.')
                names.insert(e->d_name);
        if (d)
            closedir(d);
        return names;
    }
    void make_dir(mode_t mode = 0700)
    {
        ASSERT_EQ(mkdir(dir_.c_str(), 0700), 0);
        ASSERT_EQ(chmod(dir_.c_str(), mode), 0);
    }
    void remove_all()
    {
        for (const std::string &name : files())
            unlink(file(name.c_str()).c_str());
        rmdir(dir_.c_str());
    }
    // Runs in a process of its own; its exit status, or 256 + the signal that ended it.
    static int in_child(const std::function<int()> &body)
    {
        fflush(nullptr);
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(60);
            _exit(body());
        }
        int status = 0;
        waitpid(pid, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
    }
    // A segment left behind by a process that was killed; then changed.
    void leave_behind(const std::function<void(vs_segment *)> &change = {})
    {
        ASSERT_EQ(in_child([] { return vs_segment_attach() ? 1 : (raise(SIGKILL), 0); }), 256 + SIGKILL);
        ASSERT_TRUE(exists(file("segment")));
        if (!change)
            return;
        int fd = open(file("segment").c_str(), O_RDWR | O_CLOEXEC);
        ASSERT_GE(fd, 0);
        void *p = mmap(nullptr, sizeof(vs_segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ASSERT_NE(p, MAP_FAILED);
        change((vs_segment *) p);
        munmap(p, sizeof(vs_segment));
        close(fd);
    }
    std::string base_, dir_;
};

// ---- making and leaving ----

TEST_F(Segment, AttachingTwiceIsAttachingOnce)
{
    ASSERT_EQ(vs_segment_attach(), 0);
    void *at = vs_seg;
    EXPECT_EQ(vs_segment_attach(), 0);
    EXPECT_EQ(vs_seg, at);
    vs_segment_detach();
    EXPECT_EQ(vs_seg, nullptr);
    vs_segment_detach();
}

TEST_F(Segment, OnlyTheOwnerMayOpenItsFiles)
{
    ASSERT_EQ(vs_segment_attach(), 0);
    struct stat st;
    ASSERT_EQ(stat(dir_.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0700u);
    EXPECT_EQ(files().size(), 3u) << "segment, lock, one live file";
    for (const std::string &name : files()) {
        ASSERT_EQ(stat(file(name.c_str()).c_str(), &st), 0);
        EXPECT_EQ(st.st_mode & 0777, 0600u) << name;
    }
    vs_segment_detach();
}

TEST_F(Segment, LookingOnlyFindsNoFabricAndMakesNone)
{
    EXPECT_EQ(vs_segment_attach_existing(), ENOENT);
    EXPECT_FALSE(exists(dir_));
}

TEST_F(Segment, TheLastOutRemovesTheFiles)
{
    int ready[2], go[2];
    ASSERT_EQ(pipe(ready), 0);
    ASSERT_EQ(pipe(go), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char c;
        if (vs_segment_attach())
            _exit(1);
        (void) !write(ready[1], "r", 1);
        (void) !read(go[0], &c, 1);
        vs_segment_detach();
        _exit(0);
    }
    char c;
    ASSERT_EQ(read(ready[0], &c, 1), 1);
    ASSERT_EQ(vs_segment_attach(), 0);
    EXPECT_EQ(files().size(), 4u);
    vs_segment_detach();
    EXPECT_TRUE(exists(file("segment"))) << "the other is still there";
    ASSERT_EQ(write(go[1], "g", 1), 1);
    int status;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
    for (int fd : {ready[0], ready[1], go[0], go[1]})
        close(fd);
}

TEST_F(Segment, TheOnlyProcessesLeftoversAreClearedByTheNext)
{
    for (int round = 0; round < 5; round++)
        leave_behind();
    ASSERT_EQ(vs_segment_attach(), 0);
    EXPECT_EQ(files().size(), 3u) << "the dead processes' live files are gone";
    vs_proc_shm *proc;
    uint32_t index, n = 0;
    vs_for_each_slot(VS_PROC, index, proc) n++;
    EXPECT_EQ(n, 1u);
    vs_segment_detach();
}

// More than fit into one round of burying.
TEST_F(Segment, TheLastToLeaveClearsManyDeadAtOnce)
{
    std::vector<pid_t> pids;
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    ASSERT_EQ(vs_segment_attach(), 0);
    for (int i = 0; i < 150; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            vs_segment_forget();
            if (vs_segment_attach())
                _exit(1);
            (void) !write(ready[1], "r", 1);
            pause();
        }
        pids.push_back(pid);
    }
    char c;
    for (size_t i = 0; i < pids.size(); i++)
        ASSERT_EQ(read(ready[0], &c, 1), 1);
    for (pid_t pid : pids)
        kill(pid, SIGKILL);
    for (pid_t pid : pids)
        ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
    vs_segment_detach();
    EXPECT_FALSE(exists(file("segment")));
    close(ready[0]);
    close(ready[1]);
}

// Hazards that no thread of the data path has written: a thread gets in, and nobody waits for them for ever, however many there are.
TEST_F(Segment, ForgedHazardsHoldNobodyForLong)
{
    vs_patience_ns = 20000000;
    ASSERT_EQ(vs_segment_attach(), 0);
    for (vs_hazard &h : vs_me->hazard)
        h.word = 7;
    vs_me->hazards = VS_HAZARDS;
    vs_hazard *mine = vs_enter();
    ASSERT_NE(mine, nullptr);
    EXPECT_NE(mine->word, 7u);
    vs_exit(mine);
    vs_quiesce();
    for (vs_hazard &h : vs_me->hazard)
        h.word = 0;
    vs_segment_detach();
    vs_patience_ns = UINT64_C(10000000000);
}

TEST_F(Segment, LookingAtLeftoversRemovesThem)
{
    leave_behind();
    EXPECT_EQ(vs_segment_attach_existing(), ENOENT);
}

// Topology, knobs and orders are those of the process that makes the segment: they stay while anybody lives, and no longer.
TEST_F(Segment, NothingOfTheDeadIsKept)
{
    auto live_and_die = [] {
        setenv("VERBS_SHIM_TOPOLOGY", "devices=2,ports=3", 1);
        setenv("VERBS_SHIM_KNOBS", "tgt_exit=orphan", 1);
        if (vs_attach())
            return 1;
        raise(SIGKILL);
        return 0;
    };
    auto ports = [] { return vs_seg->topology_devices * 10 + vs_seg->topology_ports; };
    ASSERT_EQ(in_child(live_and_die), 256 + SIGKILL);
    ASSERT_EQ(vs_attach(), 0);
    EXPECT_EQ(ports(), 11u);
    EXPECT_EQ(vs_seg->knobs.tgt_exit, VS_TGT_DESTROY);
    EXPECT_EQ(in_child(live_and_die), 256 + SIGKILL);
    EXPECT_EQ(ports(), 11u);
    vs_detach();
}

TEST_F(Segment, ADirectoryDeletedUnderneathDoesNotHoldAnybodyBack)
{
    EXPECT_EQ(in_child([&] {
                  if (vs_segment_attach())
                      return 1;
                  remove_all();
                  vs_segment_detach();
                  return 0;
              }),
              0);
}

TEST_F(Segment, ManyComeAndGoAtOnce)
{
    std::vector<pid_t> pids;
    for (int i = 0; i < 8; i++) {
        pids.push_back(fork());
        if (pids.back() == 0) {
            alarm(60);
            for (int k = 0; k < 100; k++) {
                if (vs_segment_attach())
                    _exit(1);
                if (vs_process_any() == false)
                    _exit(2);
                vs_segment_detach();
            }
            _exit(0);
        }
    }
    for (pid_t pid : pids) {
        int status;
        ASSERT_EQ(waitpid(pid, &status, 0), pid);
        EXPECT_EQ(status, 0);
    }
}

// ---- what was planted ----

TEST_F(Segment, ADirectoryOpenToOthersIsRefused)
{
    for (mode_t mode : {0777, 0755, 0710, 0701}) {
        make_dir(mode);
        EXPECT_EQ(vs_segment_attach(), EPERM) << std::oct << mode;
        EXPECT_TRUE(files().empty());
        remove_all();
    }
}

TEST_F(Segment, ADirectoryOfAnotherOwnerIsRefused)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root to give a directory away";
    make_dir();
    ASSERT_EQ(chown(dir_.c_str(), 65534, 65534), 0);
    EXPECT_EQ(vs_segment_attach(), EPERM);
    remove_all();
}

TEST_F(Segment, ASymbolicLinkInPlaceOfTheDirectoryIsRefused)
{
    std::string target = base_ + ".target";
    ASSERT_EQ(mkdir(target.c_str(), 0700), 0);
    ASSERT_EQ(symlink(target.c_str(), dir_.c_str()), 0);
    int err = vs_segment_attach();
    EXPECT_TRUE(err == ELOOP || err == ENOTDIR) << err;
    unlink(dir_.c_str());
    EXPECT_EQ(rmdir(target.c_str()), 0) << "and nothing was put there";
}

TEST_F(Segment, ADirectoryThatCannotBeMadeIsTheErrorOfMkdir)
{
    use(base_ + ".nowhere/f");
    EXPECT_EQ(vs_segment_attach(), ENOENT);
    use("/proc/f");
    EXPECT_EQ(vs_segment_attach(), ENOENT);
}

TEST_F(Segment, AFileInPlaceOfTheDirectoryIsRefused)
{
    std::ofstream(dir_) << "x";
    EXPECT_EQ(vs_segment_attach(), ENOTDIR);
    unlink(dir_.c_str());
}

TEST_F(Segment, ASegmentFileOpenToOthersIsRefusedAndLeftAlone)
{
    make_dir();
    std::ofstream(file("segment")) << "planted";
    chmod(file("segment").c_str(), 0644);
    EXPECT_EQ(vs_segment_attach(), EPERM);
    EXPECT_TRUE(exists(file("segment"))) << "what is not ours is not removed";
    remove_all();
}

TEST_F(Segment, ASegmentFileOfAnotherOwnerIsRefusedAndLeftAlone)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root to give a file away";
    make_dir();
    std::ofstream(file("segment")) << "planted";
    chmod(file("segment").c_str(), 0600);
    ASSERT_EQ(chown(file("segment").c_str(), 65534, 65534), 0);
    EXPECT_EQ(vs_segment_attach(), EPERM);
    EXPECT_TRUE(exists(file("segment")));
    remove_all();
}

TEST_F(Segment, LinksInPlaceOfFilesAreNotFollowed)
{
    for (const char *name : {"segment", "lock"}) {
        std::string target = base_ + ".victim";
        make_dir();
        std::ofstream(target) << "precious";
        chmod(target.c_str(), 0600);
        ASSERT_EQ(symlink(target.c_str(), file(name).c_str()), 0);
        EXPECT_EQ(vs_segment_attach(), ELOOP) << name;
        std::string content;
        std::ifstream(target) >> content;
        EXPECT_EQ(content, "precious");
        unlink(target.c_str());
        remove_all();
    }
}

// What another build may have made, or somebody scribbled.
const std::function<void(vs_segment *)> not_understood[] = {
    [](vs_segment *s) { s->magic = 1; },
    [](vs_segment *s) { s->version++; },
    [](vs_segment *s) { s->ready = 0; },
    [](vs_segment *s) { s->size /= 2; },
    [](vs_segment *s) { s->slot_size[VS_QP] += 64; },
    [](vs_segment *s) { s->slot_count[VS_MR]--; },
    [](vs_segment *s) { s->table_offset[VS_CQ] += 4096; },
    [](vs_segment *s) { s->data_offset -= 4096; },
};

TEST_F(Segment, ForeignOrBrokenSegmentsAreReplacedOnceTheirProcessesAreDead)
{
    for (auto &change : not_understood) {
        leave_behind(change);
        ASSERT_EQ(vs_segment_attach(), 0);
        EXPECT_EQ(vs_seg->version, VS_LAYOUT_VERSION);
        EXPECT_EQ(files().size(), 3u);
        vs_segment_detach();
    }
}

TEST_F(Segment, AForeignSegmentInUseIsEprotoAndLeftAlone)
{
    ASSERT_EQ(vs_segment_attach(), 0);
    auto attach = [] {
        vs_segment_forget(); // what the fork inherited
        int err = vs_segment_attach();
        vs_segment_detach();
        return err;
    };
    std::vector<char> head(offsetof(vs_segment, control));
    memcpy(head.data(), vs_seg, head.size());
    for (auto &change : not_understood) {
        change(vs_seg);
        EXPECT_EQ(in_child(attach), EPROTO) << &change - not_understood;
        EXPECT_TRUE(exists(file("segment")));
        memcpy((void *) vs_seg, head.data(), head.size());
        EXPECT_EQ(in_child(attach), 0);
    }
    vs_segment_detach();
}

TEST_F(Segment, SegmentsOfTheWrongSizeAreReplaced)
{
    for (off_t size : {(off_t) 0, (off_t) 4096, (off_t) VS_SEGMENT_SIZE - 4096, (off_t) VS_SEGMENT_SIZE}) {
        make_dir();
        int fd = open(file("segment").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ASSERT_EQ(ftruncate(fd, size), 0); // of the right size, but all holes: its maker died at once
        close(fd);
        ASSERT_EQ(vs_segment_attach(), 0) << size;
        vs_segment_detach();
    }
}

// ---- a full file system ----

class FullFs : public Segment
{
  protected:
    void SetUp() override
    {
        Segment::SetUp();
        if (geteuid() != 0)
            GTEST_SKIP() << "needs root to mount a small file system";
        mount_ = base_ + ".mnt";
        mkdir(mount_.c_str(), 0700);
    }
    void TearDown() override
    {
        if (!mount_.empty()) {
            umount2(mount_.c_str(), MNT_DETACH);
            rmdir(mount_.c_str());
        }
        Segment::TearDown();
    }
    bool small(const char *size)
    {
        umount2(mount_.c_str(), MNT_DETACH);
        return mount("tmpfs", mount_.c_str(), "tmpfs", 0, (std::string("size=") + size).c_str()) == 0;
    }
    std::string mount_;
};

TEST_F(FullFs, IsEnomemAtOnceAndNothingIsLeft)
{
    for (const char *size : {"4k", "64k", "200k", "300k", "400k"}) {
        if (!small(size))
            GTEST_SKIP() << "mount: " << strerror(errno);
        use(mount_ + "/f");
        int status = in_child([] {
            int err = vs_attach();
            if (!err)
                vs_detach();
            return err;
        });
        EXPECT_TRUE(status == ENOMEM || status == 0) << size << ": " << status;
        EXPECT_FALSE(exists(dir_)) << size;
    }
    ASSERT_TRUE(small("4k"));
    EXPECT_EQ(in_child([] { return vs_attach(); }), ENOMEM);
}

// Objects are made until the file system is full: then ENOMEM, and what was made can be used to its last byte.
TEST_F(FullFs, FillsUpWithEnomemAndWithoutASignal)
{
    if (!small("4m"))
        GTEST_SKIP() << "mount: " << strerror(errno);
    use(mount_ + "/f");
    EXPECT_EQ(in_child([] {
                  if (vs_attach())
                      return 1;
                  std::vector<uint32_t> made;
                  uint32_t index;
                  int err;
                  vs_control_lock();
                  while ((err = vs_slot_alloc(VS_CQ, vs_me_id, &index)) == 0) {
                      err = vs_extent_alloc((vs_slot *) vs_slot_at(VS_CQ, index), 100000);
                      if (err) {
                          vs_slot_free(VS_CQ, index);
                          break;
                      }
                      vs_slot_publish(VS_CQ, index);
                      made.push_back(index);
                  }
                  if (err != ENOMEM || made.size() < 5)
                      return 2;
                  for (uint32_t i : made) {
                      uint64_t bytes = 0;
                      void *pages = vs_extent((vs_slot *) vs_slot_at(VS_CQ, i), &bytes);
                      memset(pages, 0x55, bytes);
                  }
                  for (uint32_t i : made)
                      vs_slot_free(VS_CQ, i);
                  // Given back to the file system, and zero again.
                  if (vs_slot_alloc(VS_CQ, vs_me_id, &index)
                      || vs_extent_alloc((vs_slot *) vs_slot_at(VS_CQ, index), 1000000))
                      return 3;
                  uint64_t bytes = 0;
                  char *pages = (char *) vs_extent((vs_slot *) vs_slot_at(VS_CQ, index), &bytes);
                  for (uint64_t i = 0; i < bytes; i++)
                      if (pages[i])
                          return 4;
                  vs_slot_free(VS_CQ, index);
                  vs_control_unlock();
                  vs_detach();
                  return 0;
              }),
              0);
    EXPECT_FALSE(exists(dir_));
}

} // namespace
