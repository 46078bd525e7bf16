// RDMA and atomics on memory that both processes map: through the requester's own mapping, without a system call, and only while both
// regions are what they were. The requester is a child, so that a call it was forbidden ends it alone.
#include "conform/pair.h"
#include "conform/window.h"

#include "memory/slots.h"

namespace
{

using namespace vt;

constexpr uint32_t sizes[] = {1, 7, 8, 9, 64, 200, page, 70000};
constexpr size_t area = 1 << 17, areas = sizeof(sizes) / sizeof(sizes[0]), words = areas * area, whole = words + page;

char pattern(size_t i, uint32_t seed)
{
    return (char) (seed * 131 + i * 7 + (i >> 8) + 1);
}

// Of each size one area, alternately aligned and not.
size_t at_area(size_t k)
{
    return k * area + (k % 2 ? 3 : 0);
}

bool holds(const char *at, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++)
        if (at[i] != pattern(i, length))
            return false;
    return true;
}

// Everything one-sided, on the target's region.
void traffic(Side &s, const Region &r)
{
    for (size_t k = 0; k < areas; k++) {
        for (uint32_t i = 0; i < sizes[k]; i++)
            s.n.mem[i] = pattern(i, sizes[k]);
        EXPECT_EQ(s.rdma(k % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM, r, at_area(k), sizes[k]),
                  IBV_WC_SUCCESS);
        EXPECT_EQ(s.rdma(IBV_WR_RDMA_READ, r, at_area(k), sizes[k], 1 << 17), IBV_WC_SUCCESS);
        EXPECT_TRUE(holds(s.n.mem.data() + (1 << 17), sizes[k])) << sizes[k] << " bytes read";
    }
    EXPECT_EQ(s.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, r, words, 5), IBV_WC_SUCCESS);
    EXPECT_EQ(s.word(), 100u);
    EXPECT_EQ(s.atomic(IBV_WR_ATOMIC_CMP_AND_SWP, r, words + 8, 200, 7), IBV_WC_SUCCESS);
    EXPECT_EQ(s.word(), 200u);
    EXPECT_EQ(s.atomic(IBV_WR_ATOMIC_CMP_AND_SWP, r, words + 16, 1, 7), IBV_WC_SUCCESS);
    EXPECT_EQ(s.word(), 300u) << "not equal, not swapped";
}

void prepare(char *at)
{
    const uint64_t start[] = {100, 200, 300};
    memcpy(at + words, start, sizeof(start));
}

void expect_traffic(const char *at)
{
    for (size_t k = 0; k < areas; k++)
        EXPECT_TRUE(holds(at + at_area(k), sizes[k])) << sizes[k] << " bytes";
    EXPECT_EQ(word_at(at + words), 105u);
    EXPECT_EQ(word_at(at + words + 8), 7u);
    EXPECT_EQ(word_at(at + words + 16), 300u);
}

using Body = std::function<void(Side &)>;

class Window : public vt::Test
{
  protected:
    // The requester's part in a process of its own, the target's here.
    void run(const Body &requester, const Body &target, bool xrc = false, int ends = 0)
    {
        Child child([&](const Link &link) {
            Side s(link, false, xrc);
            requester(s);
        });
        {
            Side s(child.link(), true, xrc);
            target(s);
            EXPECT_EQ(child.wait(), ends);
            check_fabric();
        }
    }
};

class WindowKinds : public Window, public ::testing::WithParamInterface<std::tuple<MemoryKind, bool>>
{
  protected:
    MemoryKind kind() const
    {
        return std::get<0>(GetParam());
    }
    void exchange(bool forbid, int ends)
    {
        bool xrc = std::get<1>(GetParam());
        Memory memory(kind(), whole);
        char *gap = static_cast<char *>(mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        auto requester = [&](Side &s) {
            Memory elsewhere(MEMFD, whole); // so that the two map the memory at different addresses
            elsewhere.map();
            char *at = memory.map();
            Mr mr = s.reg(at, whole);
            Region r = s.told();
            EXPECT_TRUE(kind() == FORKED || r.addr != (uintptr_t) at);
            if (forbid)
                forbid_calls();
            traffic(s, r);
            s.link.meet();
            if (forbid)
                _exit(HasFailure());
        };
        auto target = [&](Side &s) {
            char *at = memory.map();
            prepare(at);
            Mr mr = s.reg(at, whole);
            for (int i = 0; i < 3; i++)
                EXPECT_EQ(xrc ? post_recv(s.srq, i) : post_recv(s.qp, i), 0);
            s.tell(mr);
            if (ends)
                return until_gone(s.link);
            s.link.meet();
            expect_traffic(at);
            for (int i = 0; i < 3; i++) {
                ibv_wc wc = next_wc(s.n.cq);
                EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
                EXPECT_EQ(wc.imm_data, htobe32(0x1234));
            }
        };
        run(requester, target, xrc, ends);
        munmap(gap, page);
    }
};

class Shared : public WindowKinds
{
};
class NotShared : public WindowKinds
{
};

TEST_P(Shared, NoSystemCall)
{
    exchange(true, 0);
}

TEST_P(NotShared, RightAllTheSame)
{
    exchange(false, 0);
}

// What the test above would show if the bytes did move by a call.
TEST_P(NotShared, ACallWouldBeSeen)
{
    exchange(true, 256 + SIGSYS);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<MemoryKind, bool>> &info)
{
    return std::string(memory_name[std::get<0>(info.param)]) + (std::get<1>(info.param) ? "Xrc" : "Rc");
}

INSTANTIATE_TEST_SUITE_P(All, Shared,
                         ::testing::Combine(::testing::Values(MEMFD, SHM_OPEN, FILE_ON_DISK, FORKED),
                                            ::testing::Bool()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(All, NotShared, ::testing::Combine(::testing::Values(SYSTEM_V, PRIVATE), ::testing::Bool()),
                         name_of);

// ---- which bytes ----

TEST_F(Window, PartOfTheRegionIsMappedHere)
{
    Memory memory(MEMFD, 8 * page);
    auto requester = [&](Side &s) {
        Mr mr = s.reg(memory.map() + 2 * page, 2 * page);
        Region r = s.told();
        // Across the edges, and outside: by the kernel.
        for (size_t at : {size_t(0), 2 * page - 4, 4 * page - 4, 7 * page})
            EXPECT_EQ(s.write_word(r, at, at + 1), IBV_WC_SUCCESS);
        EXPECT_EQ(s.write_word(r, 3 * page, 33), IBV_WC_SUCCESS);
        forbid_calls();
        EXPECT_EQ(s.write_word(r, 2 * page, 22), IBV_WC_SUCCESS);
        EXPECT_EQ(s.write_word(r, 4 * page - 16, 44), IBV_WC_SUCCESS);
        s.link.meet();
        _exit(HasFailure());
    };
    auto target = [&](Side &s) {
        char *at = memory.map();
        Mr mr = s.reg(at, 8 * page);
        s.tell(mr);
        s.link.meet();
        EXPECT_EQ(word_at(at), 1u);
        EXPECT_EQ(word_at(at + 7 * page), 7 * page + 1);
        EXPECT_EQ(word_at(at + 3 * page), 33u);
        EXPECT_EQ(word_at(at + 2 * page), 22u);
        EXPECT_EQ(word_at(at + 4 * page - 16), 44u);
        uint64_t across;
        memcpy(&across, at + 4 * page - 4, 8);
        EXPECT_EQ(across, 4 * page - 3);
    };
    run(requester, target);
}

TEST_F(Window, TheSameFileAtAnotherOffset)
{
    Memory memory(MEMFD, 8 * page);
    auto requester = [&](Side &s) {
        Mr mr = s.reg(memory.map() + 24, 8 * page - 24);
        Region r = s.told();
        forbid_calls();
        EXPECT_EQ(s.write_word(r, 40, 1), IBV_WC_SUCCESS);
        EXPECT_EQ(s.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, r, 40, 1), IBV_WC_SUCCESS);
        s.link.meet();
        _exit(HasFailure());
    };
    auto target = [&](Side &s) {
        char *at = memory.map(5 * page);
        Mr mr = s.reg(at + 64, page);
        s.tell(mr);
        s.link.meet();
        EXPECT_EQ(word_at(at + 64 + 40), 2u);
        EXPECT_EQ(word_at(memory.map() + 5 * page + 64 + 40), 2u);
    };
    run(requester, target);
}

// A large SEND has its receive buffer there as well.
TEST_F(Window, ASendIntoIt)
{
    Memory memory(MEMFD, whole);
    auto requester = [&](Side &s) {
        Mr mr = s.reg(memory.map(), whole);
        s.link.meet();
        for (uint32_t i = 0; i < 70000; i++)
            s.n.mem[i] = pattern(i, 70000);
        forbid_calls();
        EXPECT_EQ(outcome(s.qp, Send(IBV_WR_SEND, {s.n.sge(0, 70000)})), IBV_WC_SUCCESS);
        s.link.meet();
        _exit(HasFailure());
    };
    auto target = [&](Side &s) {
        char *at = memory.map();
        Mr mr = s.reg(at, whole);
        EXPECT_EQ(post_recv(s.qp, 1, {{(uintptr_t) at, 30000, mr->lkey}, {(uintptr_t) at + 30000, 40001, mr->lkey}}),
                  0);
        s.link.meet();
        s.link.meet();
        EXPECT_TRUE(holds(at, 70000));
    };
    run(requester, target);
}

// ---- regions that come and go ----

TEST_F(Window, TheTargetRegistersOtherMemory)
{
    Memory first(MEMFD, page), second(MEMFD, page);
    auto requester = [&](Side &s) {
        char *at = first.map(), *other = second.map();
        Mr mr = s.reg(at, page);
        Region old = s.told();
        EXPECT_EQ(s.write_word(old, 0, 1), IBV_WC_SUCCESS);
        s.link.meet(); // deregistered, and registered anew with the second file at the same address
        Region now = s.told();
        EXPECT_EQ(now.addr, old.addr);
        EXPECT_EQ(s.write_word(now, 0, 2), IBV_WC_SUCCESS);
        EXPECT_EQ(word_at(at), 1u) << "the file that this process has registered, but the target has no more";
        EXPECT_EQ(word_at(other), 2u);
        Mr mr2 = s.reg(other, page);
        EXPECT_EQ(s.write_word(now, 0, 3), IBV_WC_SUCCESS);
        EXPECT_EQ(word_at(other), 3u);
        EXPECT_EQ(s.write_word(old, 0, 9), IBV_WC_REM_ACCESS_ERR);
        EXPECT_EQ(word_at(at), 1u);
        EXPECT_EQ(word_at(other), 3u);
        s.link.meet();
    };
    auto target = [&](Side &s) {
        char *at = first.map();
        Mr mr = s.reg(at, page);
        s.tell(mr);
        s.link.meet();
        EXPECT_EQ(mr.destroy(), 0);
        second.map(0, PROT_READ | PROT_WRITE, at);
        Mr again = s.reg(at, page);
        s.tell(again);
        s.link.meet();
    };
    run(requester, target);
}

TEST_F(Window, TheTargetMovesItsRegion)
{
    Memory memory(MEMFD, 2 * page);
    auto requester = [&](Side &s) {
        char *at = memory.map();
        Mr mr = s.reg(at, 2 * page);
        Region r = s.told();
        forbid_calls();
        EXPECT_EQ(s.write_word(r, 0, 1), IBV_WC_SUCCESS);
        s.link.meet();
        r = s.told(); // moved by ibv_rereg_mr to the second page
        EXPECT_EQ(s.write_word(r, 0, 2), IBV_WC_SUCCESS);
        EXPECT_EQ(word_at(at), 1u);
        EXPECT_EQ(word_at(at + page), 2u);
        s.link.meet();
        _exit(HasFailure());
    };
    auto target = [&](Side &s) {
        char *at = memory.map();
        Mr mr = s.reg(at, page);
        s.tell(mr);
        s.link.meet();
        EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, at + page, page, 0), 0);
        s.tell(mr);
        s.link.meet();
    };
    run(requester, target);
}

TEST_F(Window, TheRequesterDeregisters)
{
    Memory memory(MEMFD, page);
    auto requester = [&](Side &s) {
        char *at = memory.map();
        Mr mr = s.reg(at, page);
        Region r = s.told();
        EXPECT_EQ(s.write_word(r, 0, 1), IBV_WC_SUCCESS);
        EXPECT_EQ(mr.destroy(), 0);
        EXPECT_EQ(s.write_word(r, 8, 2), IBV_WC_SUCCESS) << "by the kernel";
        s.link.meet();
        forbid_calls();
        s.write_word(r, 8, 3);
        _exit(0);
    };
    auto target = [&](Side &s) {
        char *at = memory.map();
        Mr mr = s.reg(at, page);
        s.tell(mr);
        s.link.meet();
        EXPECT_EQ(word_at(at), 1u);
        EXPECT_EQ(word_at(at + 8), 2u);
        until_gone(s.link);
    };
    run(requester, target, false, 256 + SIGSYS);
}

// Registered memory is pinned: a region stays what it was, whatever its program does to the mapping.
TEST_F(Window, BothUnmapWhatIsRegistered)
{
    Memory memory(MEMFD, page);
    auto requester = [&](Side &s) {
        char *at = memory.map();
        Mr mr = s.reg(at, page);
        Region r = s.told();
        char *other =
            static_cast<char *>(mmap(at, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
        need(other == at, "mmap");
        forbid_calls();
        EXPECT_EQ(s.write_word(r, 0, 1), IBV_WC_SUCCESS);
        EXPECT_EQ(s.read_word(r, 0), 1u);
        EXPECT_EQ(word_at(at), 0u) << "other memory by now";
        s.link.meet();
        _exit(HasFailure());
    };
    auto target = [&](Side &s) {
        char *at = memory.map();
        Mr mr = s.reg(at, page);
        need(munmap(at, page) == 0, "munmap");
        s.tell(mr);
        s.link.meet();
        EXPECT_EQ(word_at(memory.map()), 1u);
    };
    run(requester, target);
}

// ---- rights ----

TEST_F(Window, TheTargetsRightsCount)
{
    Memory memory(MEMFD, 2 * page);
    auto requester = [&](Side &s) {
        char *at = memory.map();
        Mr mr = s.reg(at, 2 * page);
        for (int i = 0; i < 3; i++) {
            Region r = s.told();
            EXPECT_EQ(s.read_word(r, 0), 77u);
            ibv_wc_status status = i == 0   ? s.write_word(r, 0, 1)
                                   : i == 1 ? s.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, r, 0, 1)
                                            : s.write_word(r, page - 4, 1);
            EXPECT_EQ(status, IBV_WC_REM_ACCESS_ERR) << i;
            EXPECT_EQ(word_at(at), 77u);
            EXPECT_EQ(word_at(at + page), 0u);
            s.again();
        }
        s.link.meet();
    };
    auto target = [&](Side &s) {
        char *at = memory.map();
        at[0] = 77;
        const int access[] = {IBV_ACCESS_REMOTE_READ, all_access, window_access};
        for (int a : access) {
            Mr mr = s.reg(at, page, a);
            s.tell(mr);
            s.again();
        }
        s.link.meet();
    };
    run(requester, target);
}

TEST_F(Window, MappingsThatCannotBeWritten)
{
    Memory memory(MEMFD, 2 * page);
    auto requester = [&](Side &s) {
        char *at = memory.map(0, PROT_READ);
        Mr mr = s.reg(at, 2 * page, IBV_ACCESS_REMOTE_READ);
        Region r = s.told();
        EXPECT_EQ(s.write_word(r, 0, 5), IBV_WC_SUCCESS) << "by the kernel, into the target's mapping";
        EXPECT_EQ(word_at(at), 5u);
        char *both = memory.map();
        Mr mr2 = s.reg(both, 2 * page);
        r = s.told(); // registered for writing, but mapped for reading alone
        EXPECT_EQ(s.read_word(r, 0), 0u);
        EXPECT_EQ(s.write_word(r, 0, 6), IBV_WC_REM_OP_ERR);
        EXPECT_EQ(word_at(both + page), 0u);
        s.link.meet();
    };
    auto target = [&](Side &s) {
        char *at = memory.map(), *second = memory.map(page, PROT_READ);
        Mr mr = s.reg(at, page), mr2 = s.reg(second, page);
        s.tell(mr);
        s.tell(mr2);
        s.link.meet();
    };
    run(requester, target);
}

// Beyond the end of the file there is nothing to pin: no window, and no signal.
TEST_F(Window, AMappingLongerThanItsFile)
{
    TempFile file;
    need(ftruncate(file.fd(), page) == 0, "ftruncate");
    auto map = [&] {
        void *p = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
        need(p != MAP_FAILED, "mmap");
        return static_cast<char *>(p);
    };
    auto requester = [&](Side &s) {
        Mr mr = s.reg(map(), 2 * page);
        Region r = s.told();
        EXPECT_EQ(s.write_word(r, 8, 1), IBV_WC_SUCCESS);
        EXPECT_EQ(s.write_word(r, page, 1), IBV_WC_REM_OP_ERR);
        s.link.meet();
    };
    auto target = [&](Side &s) {
        char *at = map();
        Mr mr = s.reg(at, 2 * page);
        s.tell(mr);
        s.link.meet();
        EXPECT_EQ(word_at(at + 8), 1u);
    };
    run(requester, target);
}

// ---- processes that die or fork ----

TEST_F(Window, TheTargetIsKilled)
{
    Memory memory(MEMFD, page);
    Child child([&](const Link &link) {
        Side s(link, true);
        Mr mr = s.reg(memory.map(), page);
        s.tell(mr);
        pause();
    });
    {
        Side s(child.link(), false);
        Mr mr = s.reg(memory.map(), page);
        Region r = s.told();
        EXPECT_EQ(s.write_word(r, 0, 1), IBV_WC_SUCCESS);
        child.kill();
        ibv_wc_status status;
        while ((status = s.write_word(r, 0, 2)) == IBV_WC_SUCCESS) {
        }
        EXPECT_EQ(status, IBV_WC_RETRY_EXC_ERR);
        check_fabric();
    }
}

#ifndef __SANITIZE_THREAD__ // it knows no threads in forked children
TEST_F(Window, AChildHasNoneOfItsParents)
{
    Memory memory(MEMFD, page);
    auto requester = [&](Side &s) {
        char *at = memory.map();
        Mr mr = s.reg(at, page);
        Region r = s.told();
        EXPECT_EQ(s.write_word(r, 0, 1), IBV_WC_SUCCESS);
        Child grandchild([&](const Link &) {
            Node n;
            Mr again(ibv_reg_mr(n.pd, at, page, window_access)); // in the fabric anew
            need(again, "ibv_reg_mr");
            XrcPair pair(n, n);
            Send write(IBV_WR_RDMA_WRITE, {n.sge(0, 8)});
            n.mem[0] = 5;
            EXPECT_EQ(outcome(pair.ini, write.at((uintptr_t) at + 8, again->rkey).to_srq(pair.srqn)), IBV_WC_SUCCESS);
        });
        EXPECT_EQ(grandchild.wait(), 0);
        EXPECT_EQ(word_at(at + 8), 5u);
        forbid_calls();
        EXPECT_EQ(s.write_word(r, 0, 2), IBV_WC_SUCCESS);
        s.link.meet();
        _exit(HasFailure());
    };
    auto target = [&](Side &s) {
        char *at = memory.map();
        Mr mr = s.reg(at, page);
        s.tell(mr);
        s.link.meet();
        EXPECT_EQ(word_at(at), 2u);
    };
    run(requester, target);
}
#endif

// ---- what the segment says may be forged ----

class Forged : public Window
{
  protected:
    // The slot of the target's region in the segment, as any process of this user may map it.
    static vs_mr_shm *slot_of(uint32_t rkey)
    {
        int fd = open((fabric_dir() + "/segment").c_str(), O_RDWR | O_CLOEXEC);
        need(fd >= 0, "open");
        char *base = static_cast<char *>(mmap(nullptr, VS_SEGMENT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        close(fd);
        need(base != MAP_FAILED, "mmap");
        auto *head = reinterpret_cast<vs_segment *>(base);
        return reinterpret_cast<vs_mr_shm *>(base + head->table_offset[VS_MR]
                                             + (size_t) vs_slot_index(VS_MR, rkey) * head->slot_size[VS_MR]);
    }
};

// Each message goes by what the slot says then, not by what was found before.
TEST_F(Forged, WhatWasFoundIsComparedEachTime)
{
    Memory memory(MEMFD, 2 * page);
    auto requester = [&](Side &s) {
        char *at = memory.map();
        Mr mr = s.reg(at, 2 * page);
        Region r = s.told();
        forbid_calls();
        EXPECT_EQ(s.write_word(r, 0, 1), IBV_WC_SUCCESS);
        s.link.meet();
        s.link.meet(); // the slot names the second page now
        EXPECT_EQ(s.write_word(r, 0, 2), IBV_WC_SUCCESS);
        EXPECT_EQ(word_at(at), 1u);
        EXPECT_EQ(word_at(at + page), 2u);
        s.link.meet();
        _exit(HasFailure());
    };
    auto target = [&](Side &s) {
        char *at = memory.map();
        Mr mr = s.reg(at, page);
        vs_mr_shm *slot = slot_of(mr->rkey);
        s.tell(mr);
        s.link.meet();
        __atomic_add_fetch(&slot->backing.offset, page, __ATOMIC_SEQ_CST);
        s.link.meet();
        s.link.meet();
    };
    run(requester, target);
}

// What is not mapped here is written by way of the kernel, which knows of no regions.
TEST_F(Forged, ARegionLiesWhereItWasRegistered)
{
    auto requester = [&](Side &s) {
        Region r = s.told();
        s.n.mem.assign(s.n.mem.size(), 'x');
        EXPECT_EQ(s.rdma(IBV_WR_RDMA_WRITE, r, 0, 64), IBV_WC_SUCCESS);
        while (s.link.put('n'), s.link.get<char>() == 'g') {
            EXPECT_EQ(s.rdma(IBV_WR_RDMA_WRITE, r, 0, 64), IBV_WC_REM_OP_ERR);
            s.again();
        }
    };
    auto target = [&](Side &s) {
        Memory memory(PRIVATE, 3 * page);
        char *at = memory.map();
        Mr mr = s.reg(at + page, page);
        vs_mr_shm *slot = slot_of(mr->rkey);
        const vs_mr_shm truth = *slot;
        s.tell(mr);
        s.link.get<char>();
        for (uint64_t astray : {page, (size_t) 64, -(size_t) 64, -page}) {
            slot->addr = truth.addr + astray;
            s.link.put('g');
            s.again();
            s.link.get<char>();
        }
        slot->addr = truth.addr;
        s.link.put('q');
        EXPECT_EQ(std::count(at, at + 3 * page, 'x'), 64);
        EXPECT_EQ(std::count(at + page, at + page + 64, 'x'), 64);
    };
    run(requester, target);
}

// The worst a lie can do is to choose among what the requester has registered itself.
TEST_F(Forged, NothingButRegisteredMemoryIsTouched)
{
    Memory theirs(MEMFD, page), ours(MEMFD, 3 * page);
    auto requester = [&](Side &s) {
        char *at = ours.map();
        Mr mr = s.reg(at + page, page);
        Region r = s.told();
        s.n.mem.assign(s.n.mem.size(), 'x');
        for (;;) {
            s.link.put('n');
            if (s.link.get<char>() == 'q')
                break;
            s.rdma(IBV_WR_RDMA_WRITE, r, 0, 64);
            s.rdma(IBV_WR_RDMA_WRITE, r, page - 64, 64);
            if (state_of(s.qp) != IBV_QPS_RTS) { // an answer like any other
                s.link.put('e');
                s.again();
            }
        }
        EXPECT_EQ(std::count(at, at + 3 * page, 'x'), std::count(at + page, at + 2 * page, 'x'));
        EXPECT_GT(std::count(at + page, at + 2 * page, 'x'), 0) << "some of the lies did choose it";
    };
    auto target = [&](Side &s) {
        char *at = theirs.map();
        Mr mr = s.reg(at, page), model = s.reg(ours.map(), 3 * page);
        vs_mr_shm *slot = slot_of(mr->rkey);
        const vs_backing truth = slot->backing, lie = slot_of(model->rkey)->backing;
        const uint64_t offsets[] = {0,
                                    1,
                                    page - 64,
                                    page,
                                    page + 8,
                                    2 * page - 64,
                                    2 * page - 8,
                                    2 * page,
                                    3 * page - 1,
                                    UINT64_MAX,
                                    UINT64_MAX - 63,
                                    UINT64_MAX - page + 1};
        const uint64_t lengths[] = {page, 64, 0, 2 * page, UINT64_MAX, UINT64_MAX - page};
        s.tell(mr);
        char word = s.link.get<char>();
        for (uint64_t offset : offsets)
            for (uint64_t length : lengths) {
                slot->backing = lie;
                slot->backing.offset = offset;
                slot->length = length;
                s.link.put('g');
                while ((word = s.link.get<char>()) == 'e')
                    s.again();
            }
        slot->backing = truth;
        slot->length = page;
        s.link.put('q');
    };
    run(requester, target);
}

} // namespace
