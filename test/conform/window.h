// Memory that two processes map, each for itself, and operations of one on regions of the other in it.
#ifndef TEST_CONFORM_WINDOW_H
#define TEST_CONFORM_WINDOW_H

#include "conform/faults.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

namespace vt
{

constexpr size_t page = 4096;
constexpr int window_access = all_access | IBV_ACCESS_REMOTE_ATOMIC;

// Once forbidden, what moves bytes between processes ends this one with SIGSYS; outside sanitizers so does everything that operations
// which nobody disturbs have no need of. The look whether the peer is alive, every few milliseconds, is allowed.
inline void forbid_calls()
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const int listed[] = {SYS_process_vm_readv, SYS_process_vm_writev};
    const unsigned of_listed = SECCOMP_RET_KILL_PROCESS, of_others = SECCOMP_RET_ALLOW;
#else
    const int listed[] = {SYS_openat, SYS_fcntl,    SYS_close,       SYS_clock_gettime, SYS_futex,
                          SYS_sendto, SYS_recvfrom, SYS_sched_yield, SYS_exit_group,    SYS_write};
    const unsigned of_listed = SECCOMP_RET_ALLOW, of_others = SECCOMP_RET_KILL_PROCESS;
#endif
    std::vector<sock_filter> code = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    for (int nr : listed) {
        code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned) nr, 0, 1));
        code.push_back(BPF_STMT(BPF_RET | BPF_K, of_listed));
    }
    code.push_back(BPF_STMT(BPF_RET | BPF_K, of_others));
    sock_fprog program = {(unsigned short) code.size(), code.data()};
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS");
    need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "PR_SET_SECCOMP");
}

enum MemoryKind { MEMFD, SHM_OPEN, FILE_ON_DISK, FORKED, SYSTEM_V, PRIVATE };
const char *const memory_name[] = {"Memfd", "ShmOpen", "FileOnDisk", "Forked", "SystemV", "Private"};

// Made before the fork; each process maps it for itself. Its bytes begin as zeros.
class Memory
{
  public:
    explicit Memory(MemoryKind kind, size_t size) : kind_(kind), size_(size)
    {
        std::string name = "/vt." + std::to_string(getpid());
        switch (kind) {
        case MEMFD: fd_ = memfd_create("vt", MFD_CLOEXEC); break;
        case SHM_OPEN:
            fd_ = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
            shm_unlink(name.c_str());
            break;
        case FILE_ON_DISK:
            file_.reset(new TempFile);
            fd_ = dup(file_->fd());
            break;
        case SYSTEM_V:
            id_ = shmget(IPC_PRIVATE, size, 0600);
            need(id_ >= 0, "shmget");
            return;
        case FORKED:
            at_ = static_cast<char *>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
            need(at_ != MAP_FAILED, "mmap");
            return;
        case PRIVATE: return;
        }
        need(fd_ >= 0 && ftruncate(fd_, (off_t) size) == 0, "a file");
    }
    Memory(const Memory &) = delete;
    ~Memory()
    {
        if (fd_ >= 0)
            close(fd_);
        if (id_ >= 0)
            shmctl(id_, IPC_RMID, nullptr);
        if (at_)
            munmap(at_, size_);
    }
    size_t size() const
    {
        return size_;
    }
    // Somewhere, or at want in place of what is there. The process unmaps it by ending.
    char *map(size_t offset = 0, int prot = PROT_READ | PROT_WRITE, char *want = nullptr) const
    {
        void *p;
        if (kind_ == FORKED)
            return at_;
        if (kind_ == SYSTEM_V)
            p = shmat(id_, nullptr, 0);
        else if (kind_ == PRIVATE)
            p = mmap(nullptr, size_, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        else
            p = mmap(want, size_ - offset, prot, MAP_SHARED | (want ? MAP_FIXED : 0), fd_, (off_t) offset);
        need(p != MAP_FAILED, "map");
        return static_cast<char *>(p);
    }

  private:
    MemoryKind kind_;
    size_t size_;
    std::unique_ptr<TempFile> file_;
    int fd_ = -1, id_ = -1;
    char *at_ = nullptr;
};

// What the other side is told of a region.
struct Region {
    uint64_t addr;
    uint32_t rkey;
};

// One end of a connection, RC or XRC, from the requester to the target.
struct Side {
    Link link;
    Node n{1 << 18};
    Xrcd xrcd;
    Srq srq;
    Qp qp;
    Address peer = {};

    Side(const Link &l, bool target, bool xrc = false) : link(l), xrcd(make_xrcd(n.ctx))
    {
        if (xrc && target)
            srq = make_xrc_srq(n.pd, xrcd, n.cq);
        if (xrc)
            qp = target ? make_tgt(xrcd) : make_qp(IBV_QPT_XRC_SEND, n.pd, n.cq);
        else
            qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
        link.put(Address{n.lid, qp->qp_num, xrc && target ? srq_num(srq) : 0, 0, 0});
        peer = link.get<Address>();
        bring_up(qp, path());
        link.meet();
    }
    Path path() const
    {
        Path p;
        p.qpn = peer.qpn;
        p.lid = peer.lid;
        p.access = window_access & ~IBV_ACCESS_LOCAL_WRITE;
        return p;
    }
    // After an error: both ends again, from the start.
    void again()
    {
        link.meet();
        need(to_state(qp, IBV_QPS_RESET) == 0, "RESET");
        link.meet();
        bring_up(qp, path());
        link.meet();
    }
    Mr reg(char *at, size_t length, int access = window_access) const
    {
        Mr mr(ibv_reg_mr(n.pd, at, length, access));
        need(mr, "ibv_reg_mr");
        return mr;
    }
    void tell(const ibv_mr *mr) const
    {
        link.put(Region{(uintptr_t) mr->addr, mr->rkey});
    }
    Region told() const
    {
        return link.get<Region>();
    }
    ibv_wc_status rdma(ibv_wr_opcode op, const Region &r, size_t offset, uint32_t length, size_t local = 0)
    {
        Send s(op, {n.sge(local, length)});
        s.at(r.addr + offset, r.rkey).to_srq(peer.srqn).imm(0x1234);
        return outcome(qp, s);
    }
    ibv_wc_status atomic(ibv_wr_opcode op, const Region &r, size_t offset, uint64_t compare_add, uint64_t swap = 0)
    {
        Send s(op, {n.sge(0, 8)});
        s.wr.wr.atomic.remote_addr = r.addr + offset;
        s.wr.wr.atomic.rkey = r.rkey;
        s.wr.wr.atomic.compare_add = compare_add;
        s.wr.wr.atomic.swap = swap;
        s.to_srq(peer.srqn);
        return outcome(qp, s);
    }
    // A word to write, and the word that came back.
    uint64_t word() const
    {
        uint64_t v;
        memcpy(&v, n.mem.data(), sizeof(v));
        return v;
    }
    ibv_wc_status write_word(const Region &r, size_t offset, uint64_t v)
    {
        memcpy(n.mem.data(), &v, sizeof(v));
        return rdma(IBV_WR_RDMA_WRITE, r, offset, sizeof(v));
    }
    uint64_t read_word(const Region &r, size_t offset)
    {
        EXPECT_EQ(rdma(IBV_WR_RDMA_READ, r, offset, 8), IBV_WC_SUCCESS);
        return word();
    }
};

// Until the other process has ended: what it may still reach stays.
inline void until_gone(const Link &link)
{
    try {
        for (;;)
            link.get<char>();
    } catch (const std::exception &) {
    }
}

inline uint64_t word_at(const char *at)
{
    return __atomic_load_n(reinterpret_cast<const uint64_t *>(at), __ATOMIC_ACQUIRE);
}

} // namespace vt

#endif
