// What the conformance and crash tests share: owners for verbs objects, connecting, posting, polling, other processes.
//
// Errors of the set-up throw; a rule under test is an EXPECT. The sender's own thread runs the responder, so that everything a
// message does at the receiver has happened once its completion was polled: no test waits for time to pass.
#ifndef TEST_CONFORM_VERBS_H
#define TEST_CONFORM_VERBS_H

#include "verbs_shim_names.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace vt
{

inline void need(bool ok, const char *what)
{
    if (!ok)
        throw std::runtime_error(std::string(what) + ": " + strerror(errno));
}

// ---- the program ----

// The address or the thread sanitizer: each access takes several times as long, and it is these that are looked at, not rare moments.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

// How often something random is done: much more often when there is time.
inline int repetitions(int ordinary, int thorough)
{
    const char *asked = getenv("XRC_LONG");
    if (asked && *asked)
        return sanitized ? ordinary : thorough;
    return sanitized ? ordinary / 5 : ordinary;
}

constexpr unsigned watchdog_seconds = 240;

inline std::string fabric_dir()
{
    const char *dir = getenv("VERBS_SHIM_FABRIC");
    return dir ? dir : "";
}

// A fabric of this program's own, and an alarm that ends it whatever hangs.
class Program : public ::testing::Environment
{
  public:
    void SetUp() override
    {
        if (fabric_dir().empty())
            setenv("VERBS_SHIM_FABRIC", ("/dev/shm/vt." + std::to_string(getpid())).c_str(), 1);
        need(vshim_select_devices(VSHIM_DEVICES_SOFTWARE) == 0, "vshim_select_devices");
        alarm(watchdog_seconds);
    }
};

inline ::testing::Environment *const program = ::testing::AddGlobalTestEnvironment(new Program);

// Every test ends with no process in the fabric, hence no object and no file.
class Test : public ::testing::Test
{
  protected:
    void TearDown() override
    {
        struct stat st;
        EXPECT_TRUE(stat(fabric_dir().c_str(), &st) != 0 && errno == ENOENT) << "the fabric's files are still there";
    }
};

// ---- owners ----

// Destroys what it holds, and a refusal is a failure.
template <class T, int (*Free)(T *)> class Own
{
  public:
    Own() = default;
    explicit Own(T *p) : p_(p)
    {
    }
    Own(Own &&o) noexcept : p_(std::exchange(o.p_, nullptr))
    {
    }
    Own &operator=(Own &&o) noexcept
    {
        std::swap(p_, o.p_);
        return *this;
    }
    ~Own()
    {
        if (p_) {
            EXPECT_EQ(Free(p_), 0);
        }
    }
    operator T *() const
    {
        return p_;
    }
    T *operator->() const
    {
        return p_;
    }
    T *release()
    {
        return std::exchange(p_, nullptr);
    }
    // The answer of the verb; the object is given up when it was destroyed.
    int destroy()
    {
        int err = Free(p_);
        if (!err)
            p_ = nullptr;
        return err;
    }

  private:
    T *p_ = nullptr;
};

// verbs.h has this one as a function of each source file's own.
inline int close_xrcd(ibv_xrcd *x)
{
    return ibv_close_xrcd(x);
}

using Context = Own<ibv_context, ibv_close_device>;
using Pd = Own<ibv_pd, ibv_dealloc_pd>;
using Mr = Own<ibv_mr, ibv_dereg_mr>;
using Cq = Own<ibv_cq, ibv_destroy_cq>;
using Srq = Own<ibv_srq, ibv_destroy_srq>;
using Qp = Own<ibv_qp, ibv_destroy_qp>;
using Ah = Own<ibv_ah, ibv_destroy_ah>;
using Xrcd = Own<ibv_xrcd, close_xrcd>;
using Channel = Own<ibv_comp_channel, ibv_destroy_comp_channel>;

inline Context open_device(int index = 0)
{
    int n = 0;
    ibv_device **list = ibv_get_device_list(&n);
    need(list != nullptr, "ibv_get_device_list");
    ibv_context *c = index < n ? ibv_open_device(list[index]) : nullptr;
    int err = errno;
    ibv_free_device_list(list);
    errno = err;
    need(c != nullptr, "ibv_open_device");
    return Context(c);
}

inline Cq make_cq(ibv_context *c, int entries = 64, ibv_comp_channel *channel = nullptr)
{
    Cq cq(ibv_create_cq(c, entries, nullptr, channel, 0));
    need(cq, "ibv_create_cq");
    return cq;
}

constexpr int all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// A device, a PD, a CQ and registered memory: what every test needs.
struct Node {
    Context ctx;
    Pd pd;
    Cq cq;
    std::vector<char> mem;
    Mr mr;
    uint16_t lid;

    explicit Node(size_t bytes = 1 << 16, int access = all_access, int device = 0)
        : ctx(open_device(device)), mem(bytes)
    {
        pd = Pd(ibv_alloc_pd(ctx));
        need(pd, "ibv_alloc_pd");
        cq = make_cq(ctx, 1024);
        mr = Mr(ibv_reg_mr(pd, mem.data(), mem.size(), access));
        need(mr, "ibv_reg_mr");
        ibv_port_attr port;
        need(ibv_query_port(ctx, 1, &port) == 0, "ibv_query_port");
        lid = port.lid;
    }
    ibv_sge sge(size_t at, uint32_t length) const
    {
        return {(uintptr_t) mem.data() + at, length, mr->lkey};
    }
    uint64_t addr(size_t at = 0) const
    {
        return (uintptr_t) mem.data() + at;
    }
};

inline ibv_qp_cap caps(uint32_t sends = 64, uint32_t recvs = 64, uint32_t sge = 4, uint32_t inl = 64)
{
    ibv_qp_cap c = {};
    c.max_send_wr = sends;
    c.max_recv_wr = recvs;
    c.max_send_sge = c.max_recv_sge = sge;
    c.max_inline_data = inl;
    return c;
}

inline ibv_qp_init_attr_ex qp_attr(ibv_qp_type type, ibv_pd *pd, ibv_cq *cq, ibv_srq *srq = nullptr)
{
    ibv_qp_init_attr_ex a = {};
    a.qp_type = type;
    a.comp_mask = IBV_QP_INIT_ATTR_PD;
    a.pd = pd;
    a.send_cq = cq;
    a.recv_cq = type == IBV_QPT_XRC_SEND ? nullptr : cq;
    a.srq = srq;
    a.cap = caps();
    return a;
}

inline Qp make_qp(ibv_qp_type type, ibv_pd *pd, ibv_cq *cq, ibv_srq *srq = nullptr)
{
    auto a = qp_attr(type, pd, cq, srq);
    Qp qp(ibv_create_qp_ex(pd->context, &a));
    need(qp, "ibv_create_qp_ex");
    return qp;
}

inline Qp make_tgt(ibv_xrcd *xrcd)
{
    ibv_qp_init_attr_ex a = {};
    a.qp_type = IBV_QPT_XRC_RECV;
    a.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    a.xrcd = xrcd;
    Qp qp(ibv_create_qp_ex(xrcd->context, &a));
    need(qp, "ibv_create_qp_ex(XRC_RECV)");
    return qp;
}

inline ibv_qp_open_attr open_attr(ibv_xrcd *xrcd, uint32_t qpn)
{
    ibv_qp_open_attr a = {};
    a.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    a.qp_num = qpn;
    a.xrcd = xrcd;
    a.qp_type = IBV_QPT_XRC_RECV;
    return a;
}

inline Qp open_tgt(ibv_xrcd *xrcd, uint32_t qpn)
{
    auto a = open_attr(xrcd, qpn);
    return Qp(ibv_open_qp(xrcd->context, &a));
}

inline ibv_xrcd *try_open_xrcd(ibv_context *c, int fd, int oflags)
{
    ibv_xrcd_init_attr a = {};
    a.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    a.fd = fd;
    a.oflags = oflags;
    return ibv_open_xrcd(c, &a);
}

inline Xrcd make_xrcd(ibv_context *c, int fd = -1, int oflags = O_CREAT)
{
    Xrcd x(try_open_xrcd(c, fd, oflags));
    need(x, "ibv_open_xrcd");
    return x;
}

inline Srq make_srq(ibv_pd *pd, uint32_t wr = 64, uint32_t sge = 4)
{
    ibv_srq_init_attr a = {};
    a.attr.max_wr = wr;
    a.attr.max_sge = sge;
    Srq s(ibv_create_srq(pd, &a));
    need(s, "ibv_create_srq");
    return s;
}

inline Srq make_xrc_srq(ibv_pd *pd, ibv_xrcd *xrcd, ibv_cq *cq, uint32_t wr = 64, uint32_t sge = 4)
{
    ibv_srq_init_attr_ex a = {};
    a.attr.max_wr = wr;
    a.attr.max_sge = sge;
    a.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    a.srq_type = IBV_SRQT_XRC;
    a.pd = pd;
    a.xrcd = xrcd;
    a.cq = cq;
    Srq s(ibv_create_srq_ex(pd->context, &a));
    need(s, "ibv_create_srq_ex");
    return s;
}

inline uint32_t srq_num(ibv_srq *srq)
{
    uint32_t n = 0;
    need(ibv_get_srq_num(srq, &n) == 0, "ibv_get_srq_num");
    return n;
}

// ---- states ----

// Short timers: a timeout of 4.096 us * 2^8 is 1 ms, RNR timer code 1 is 10 us.
struct Path {
    uint32_t qpn = 0;
    uint16_t lid = 0;
    int access = all_access & ~IBV_ACCESS_LOCAL_WRITE;
    uint8_t min_rnr = 1;
    uint8_t timeout = 8;
    uint8_t retry = 1;
    uint8_t rnr = 7;
    uint32_t psn = 0x123;
    uint32_t qkey = 0x11111111;
    uint8_t port = 1;
    uint16_t pkey_index = 0;
    uint8_t path_bits = 0;
    ibv_mtu mtu = IBV_MTU_1024;
    const union ibv_gid *gid = nullptr; // of the peer's port; then a GRH is sent
};

inline int to_init(ibv_qp *qp, const Path &p = {})
{
    ibv_qp_attr a = {};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = p.port;
    a.pkey_index = p.pkey_index;
    a.qp_access_flags = p.access;
    a.qkey = p.qkey;
    int last = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last);
}

inline int to_rtr(ibv_qp *qp, const Path &p)
{
    ibv_qp_attr a = {};
    a.qp_state = IBV_QPS_RTR;
    if (qp->qp_type == IBV_QPT_UD)
        return ibv_modify_qp(qp, &a, IBV_QP_STATE);
    a.path_mtu = p.mtu;
    a.dest_qp_num = p.qpn;
    a.rq_psn = p.psn;
    a.max_dest_rd_atomic = 4;
    a.min_rnr_timer = p.min_rnr;
    a.ah_attr.dlid = p.lid;
    a.ah_attr.port_num = p.port;
    a.ah_attr.src_path_bits = p.path_bits;
    if (p.gid) {
        a.ah_attr.is_global = 1;
        a.ah_attr.grh.dgid = *p.gid;
        a.ah_attr.grh.hop_limit = 1;
    }
    bool responds = qp->qp_type != IBV_QPT_XRC_SEND && qp->qp_type != IBV_QPT_UC;
    int responder = responds ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
    return ibv_modify_qp(qp, &a,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | responder);
}

inline int to_rts(ibv_qp *qp, const Path &p = {})
{
    ibv_qp_attr a = {};
    a.qp_state = IBV_QPS_RTS;
    a.sq_psn = p.psn;
    a.timeout = p.timeout;
    a.retry_cnt = p.retry;
    a.rnr_retry = p.rnr;
    a.max_rd_atomic = 4;
    if (qp->qp_type == IBV_QPT_UD || qp->qp_type == IBV_QPT_UC)
        return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN);
    int requester = qp->qp_type == IBV_QPT_XRC_RECV ? 0 : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | requester);
}

inline int to_state(ibv_qp *qp, ibv_qp_state state)
{
    ibv_qp_attr a = {};
    a.qp_state = state;
    return ibv_modify_qp(qp, &a, IBV_QP_STATE);
}

// RESET -> RTS in one go.
inline void bring_up(ibv_qp *qp, const Path &p)
{
    need(to_init(qp, p) == 0, "to INIT");
    need(to_rtr(qp, p) == 0, "to RTR");
    need(to_rts(qp, p) == 0, "to RTS");
}

inline ibv_qp_state state_of(ibv_qp *qp)
{
    ibv_qp_attr a;
    ibv_qp_init_attr init;
    need(ibv_query_qp(qp, &a, IBV_QP_STATE, &init) == 0, "ibv_query_qp");
    return a.qp_state;
}

inline void connect(ibv_qp *a, uint16_t lid_a, ibv_qp *b, uint16_t lid_b, Path p = {})
{
    Path from_a = p, from_b = p;
    from_a.qpn = b->qp_num;
    from_a.lid = lid_b;
    from_b.qpn = a->qp_num;
    from_b.lid = lid_a;
    bring_up(a, from_a);
    bring_up(b, from_b);
}

// ---- posting and polling ----

struct Send {
    ibv_send_wr wr = {};
    std::vector<ibv_sge> list;

    explicit Send(ibv_wr_opcode op = IBV_WR_SEND, std::vector<ibv_sge> sges = {}, unsigned flags = IBV_SEND_SIGNALED)
        : list(std::move(sges))
    {
        wr.opcode = op;
        wr.send_flags = flags;
    }
    Send &to_srq(uint32_t srqn)
    {
        wr.qp_type.xrc.remote_srqn = srqn;
        return *this;
    }
    Send &at(uint64_t addr, uint32_t rkey)
    {
        wr.wr.rdma.remote_addr = addr;
        wr.wr.rdma.rkey = rkey;
        return *this;
    }
    Send &datagram(ibv_ah *ah, uint32_t qpn, uint32_t qkey)
    {
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = qpn;
        wr.wr.ud.remote_qkey = qkey;
        return *this;
    }
    Send &id(uint64_t n)
    {
        wr.wr_id = n;
        return *this;
    }
    Send &imm(uint32_t n)
    {
        wr.imm_data = htobe32(n);
        return *this;
    }
    int post(ibv_qp *qp)
    {
        ibv_send_wr *bad = nullptr;
        wr.sg_list = list.data();
        wr.num_sge = (int) list.size();
        return ibv_post_send(qp, &wr, &bad);
    }
};

inline ibv_recv_wr recv_wr(uint64_t id, ibv_sge *list, int n)
{
    ibv_recv_wr wr = {};
    wr.wr_id = id;
    wr.sg_list = list;
    wr.num_sge = n;
    return wr;
}

inline int post_recv(ibv_qp *qp, uint64_t id, std::vector<ibv_sge> list = {})
{
    ibv_recv_wr wr = recv_wr(id, list.data(), (int) list.size()), *bad;
    return ibv_post_recv(qp, &wr, &bad);
}

inline int post_recv(ibv_srq *srq, uint64_t id, std::vector<ibv_sge> list = {})
{
    ibv_recv_wr wr = recv_wr(id, list.data(), (int) list.size()), *bad;
    return ibv_post_srq_recv(srq, &wr, &bad);
}

// The next completion; the watchdog ends a wait for one that never comes.
inline ibv_wc next_wc(ibv_cq *cq)
{
    ibv_wc wc = {};
    int n;
    while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
        sched_yield();
    need(n == 1, "ibv_poll_cq");
    return wc;
}

inline bool cq_empty(ibv_cq *cq)
{
    ibv_wc wc;
    return ibv_poll_cq(cq, 1, &wc) == 0;
}

// Post it and return how it ended.
inline ibv_wc_status outcome(ibv_qp *qp, Send send)
{
    int err = send.post(qp);
    errno = err;
    need(err == 0, "ibv_post_send");
    return next_wc(qp->send_cq).status;
}

// ---- events ----

inline ibv_async_event next_event(ibv_context *c)
{
    ibv_async_event e = {};
    need(ibv_get_async_event(c, &e) == 0, "ibv_get_async_event");
    return e;
}

// The type of the next event, acknowledged.
inline ibv_event_type ack_next(ibv_context *c)
{
    ibv_async_event e = next_event(c);
    ibv_ack_async_event(&e);
    return e.event_type;
}

inline bool readable(int fd)
{
    pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, 0) == 1;
}

inline void nonblocking(int fd)
{
    need(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0, "fcntl");
}

// ---- other processes ----

// A line to another process, for plain structures.
class Link
{
  public:
    explicit Link(int fd) : fd_(fd)
    {
    }
    template <class T> void put(const T &v) const
    {
        need(::send(fd_, &v, sizeof(v), MSG_NOSIGNAL) == (ssize_t) sizeof(v), "send");
    }
    template <class T> T get() const
    {
        T v;
        need(recv(fd_, &v, sizeof(v), MSG_WAITALL) == (ssize_t) sizeof(v), "the other process is gone: recv");
        return v;
    }
    // Nobody goes on before both are here.
    void meet() const
    {
        put('m');
        need(get<char>() == 'm', "meet");
    }
    int fd() const
    {
        return fd_;
    }

  private:
    int fd_;
};

// A process of its own, forked while this one is not in the fabric. Its failed expectations make it exit with 1, exceptions with 3.
class Child
{
  public:
    explicit Child(const std::function<void(const Link &)> &body)
    {
        int fds[2];
        need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, "socketpair");
        fflush(nullptr);
        pid_ = fork();
        need(pid_ >= 0, "fork");
        if (pid_ == 0) {
            close(fds[0]);
            run(body, Link(fds[1]));
        }
        close(fds[1]);
        fd_ = fds[0];
    }
    Child(const Child &) = delete;
    ~Child()
    {
        if (pid_ > 0 && std::uncaught_exceptions() > 0)
            ::kill(pid_, SIGKILL); // it would wait for us
        if (pid_ > 0) {
            EXPECT_EQ(wait(), 0);
        }
        close(fd_);
    }
    Link link() const
    {
        return Link(fd_);
    }
    pid_t pid() const
    {
        return pid_;
    }
    // Exit status, or 256 + the signal that ended it.
    int wait()
    {
        int status = 0;
        need(waitpid(std::exchange(pid_, -1), &status, 0) > 0, "waitpid");
        return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
    }
    void kill()
    {
        ::kill(pid_, SIGKILL);
        EXPECT_EQ(wait(), 256 + SIGKILL);
    }

  private:
    [[noreturn]] static void run(const std::function<void(const Link &)> &body, const Link &link)
    {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(watchdog_seconds);
        try {
            body(link);
        } catch (const std::exception &e) {
            fprintf(stderr, "child %d: %s\n", (int) getpid(), e.what());
            _exit(3);
        }
        fflush(nullptr);
        _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    pid_t pid_ = -1;
    int fd_ = -1;
};

// Where a peer can be reached.
struct Address {
    uint16_t lid;
    uint32_t qpn;
    uint32_t srqn;
    uint32_t rkey;
    uint64_t addr;
};

// A file to key a domain with, removed at the end.
class TempFile
{
  public:
    TempFile()
    {
        const char *dir = getenv("TMPDIR");
        path_ = std::string(dir ? dir : "/tmp") + "/vt.XXXXXX";
        fd_ = mkstemp(path_.data());
        need(fd_ >= 0, "mkstemp");
    }
    TempFile(const TempFile &) = delete;
    ~TempFile()
    {
        close(fd_);
        unlink(path_.c_str());
    }
    int fd() const
    {
        return fd_;
    }
    const std::string &path() const
    {
        return path_;
    }

  private:
    std::string path_;
    int fd_;
};

} // namespace vt

#endif
