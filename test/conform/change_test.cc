// Regions that are registered anew, memory that is charged to RLIMIT_MEMLOCK, privileged Q_Keys, multicast groups, and UC QPs.
#include "conform/faults.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

namespace
{

using namespace vt;

class ChangeTest : public vt::Test
{
  protected:
    ChangeTest() : host_("VERBS_SHIM_HOST", "h")
    {
    }
    Setting host_;
};

// ---- ibv_rereg_mr ----

// What a remote write to the region says.
struct Writer {
    Qp one, two;
    const Node &n;
    explicit Writer(const Node &node) : n(node)
    {
        again();
    }
    void again()
    {
        one = Qp();
        two = Qp();
        one = make_qp(IBV_QPT_RC, n.pd, n.cq);
        two = make_qp(IBV_QPT_RC, n.pd, n.cq);
        connect(one, n.lid, two, n.lid);
    }
    ibv_wc_status write(uint64_t addr, uint32_t rkey)
    {
        ibv_wc_status s = outcome(one, Send(IBV_WR_RDMA_WRITE, {n.sge(0, 8)}).at(addr, rkey));
        if (s != IBV_WC_SUCCESS)
            again();
        return s;
    }
};

TEST_F(ChangeTest, ReregAccess)
{
    Node n;
    Writer w(n);
    Mr mr(ibv_reg_mr(n.pd, &n.mem[4096], 4096, IBV_ACCESS_LOCAL_WRITE));
    EXPECT_EQ(w.write(n.addr(4096), mr->rkey), IBV_WC_REM_ACCESS_ERR);
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, all_access), 0);
    EXPECT_EQ(w.write(n.addr(4096), mr->rkey), IBV_WC_SUCCESS);
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ), 0);
    EXPECT_EQ(w.write(n.addr(4096), mr->rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(mr->length, 4096u);
}

TEST_F(ChangeTest, ReregTranslation)
{
    Node n;
    Writer w(n);
    Mr mr(ibv_reg_mr(n.pd, &n.mem[4096], 4096, all_access));
    uint32_t old = mr->rkey;
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, &n.mem[16384], 8192, 0), 0);
    EXPECT_EQ(mr->addr, &n.mem[16384]);
    EXPECT_EQ(mr->length, 8192u);
    EXPECT_EQ(w.write(n.addr(16384 + 8184), mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(w.write(n.addr(4096), mr->rkey), IBV_WC_REM_ACCESS_ERR) << "the old place";
    if (old != mr->rkey) {
        EXPECT_EQ(w.write(n.addr(16384), old), IBV_WC_REM_ACCESS_ERR) << "the old key";
    }
    check_fabric();
}

TEST_F(ChangeTest, ReregPdAndAll)
{
    Node n;
    Writer w(n);
    Pd other(ibv_alloc_pd(n.ctx));
    Mr mr(ibv_reg_mr(n.pd, &n.mem[4096], 4096, all_access));
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
    EXPECT_EQ(mr->pd, (ibv_pd *)other);
    EXPECT_EQ(w.write(n.addr(4096), mr->rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_FLAGS_SUPPORTED, n.pd, &n.mem[8192], 64, all_access), 0);
    EXPECT_EQ(w.write(n.addr(8192), mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(other.destroy(), 0) << "the region left it";
}

TEST_F(ChangeTest, ReregRefused)
{
    Node n;
    Writer w(n);
    Mr mr(ibv_reg_mr(n.pd, &n.mem[4096], 4096, all_access));
    EXPECT_EQ(ibv_rereg_mr(mr, 0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_rereg_mr(mr, 1 << 10, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE), IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_ON_DEMAND), IBV_REREG_MR_ERR_CMD);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(w.write(n.addr(4096), mr->rkey), IBV_WC_SUCCESS) << "as it was";
    order("refuse rereg_mr ENOMEM");
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_CMD);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(w.write(n.addr(4096), mr->rkey), IBV_WC_SUCCESS);
}

// ---- RLIMIT_MEMLOCK ----

void drop_capability(unsigned cap)
{
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2] = {};
    need(syscall(SYS_capget, &header, data) == 0, "capget");
    data[0].effective &= ~(1u << cap);
    data[0].permitted &= ~(1u << cap);
    need(syscall(SYS_capset, &header, data) == 0, "capset");
}

// In whatever user namespace it is.
bool has_capability(unsigned cap)
{
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2] = {};
    need(syscall(SYS_capget, &header, data) == 0, "capget");
    return data[0].effective & 1u << cap;
}

bool in_initial_user_namespace()
{
    struct stat st;
    return stat("/proc/self/ns/user", &st) == 0 && st.st_ino == 0xeffffffd;
}

void limit_pages(unsigned pages)
{
    rlimit r;
    need(getrlimit(RLIMIT_MEMLOCK, &r) == 0, "getrlimit");
    r.rlim_cur = pages * 4096ul;
    need(setrlimit(RLIMIT_MEMLOCK, &r) == 0, "setrlimit");
}

int reg_error(ibv_pd *pd, void *at, size_t length)
{
    errno = 0;
    Mr mr(ibv_reg_mr(pd, at, length, all_access));
    return mr ? 0 : errno;
}

TEST_F(ChangeTest, LockedMemoryIsLimited)
{
    Child child([](const Link &) {
        drop_capability(CAP_IPC_LOCK);
        limit_pages(8);
        Context c = open_device();
        Pd pd(ibv_alloc_pd(c));
        auto *mem = static_cast<char *>(mmap(nullptr, 32 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        need(mem != MAP_FAILED, "mmap");
        for (int round = 0; round < 3; round++) {
            EXPECT_EQ(reg_error(pd, mem, 8 * 4096), 0) << "exactly the limit";
            EXPECT_EQ(reg_error(pd, mem, 8 * 4096 + 1), ENOMEM);
            EXPECT_EQ(reg_error(pd, mem + 4095, 7 * 4096 + 2), ENOMEM) << "nine pages, if only a byte of two";
            EXPECT_EQ(reg_error(pd, mem + 4095, 7 * 4096 + 1), 0);
        }
        Mr four(ibv_reg_mr(pd, mem, 4 * 4096, all_access));
        Mr same(ibv_reg_mr(pd, mem, 4 * 4096, all_access));
        ASSERT_TRUE(four && same) << "each registration is charged, the same pages twice";
        EXPECT_EQ(reg_error(pd, mem, 1), ENOMEM);
        EXPECT_EQ(ibv_rereg_mr(four, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE), 0) << "no new pages";
        EXPECT_EQ(ibv_rereg_mr(four, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, mem, 5 * 4096, 0), IBV_REREG_MR_ERR_CMD);
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_EQ(same.destroy(), 0);
        EXPECT_EQ(reg_error(pd, mem, 4 * 4096), 0) << "released when deregistered";
        EXPECT_EQ(ibv_rereg_mr(four, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, mem, 2 * 4096, 0), 0);
        EXPECT_EQ(reg_error(pd, mem, 6 * 4096), 0) << "released when shrunk";
        EXPECT_EQ(reg_error(pd, mem, 6 * 4096 + 1), ENOMEM);
        EXPECT_EQ(reg_error(pd, mem, 0), 0) << "nothing is no page";
        limit_pages(0);
        EXPECT_EQ(reg_error(pd, mem, 1), ENOMEM);
        EXPECT_EQ(four.destroy(), 0);
        munmap(mem, 32 * 4096);
    });
    EXPECT_EQ(child.wait(), 0);
}

// What closing destroys is charged no more, and what was deregistered before is not given back twice.
TEST_F(ChangeTest, LockedMemoryOfAClosedContext)
{
    Child child([](const Link &) {
        drop_capability(CAP_IPC_LOCK);
        limit_pages(8);
        auto *mem = static_cast<char *>(mmap(nullptr, 32 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        need(mem != MAP_FAILED, "mmap");
        Context other = open_device();
        for (int round = 0; round < 3; round++) {
            Context c = open_device();
            Pd pd(ibv_alloc_pd(c));
            EXPECT_EQ(reg_error(pd, mem, 2 * 4096), 0) << "and deregistered";
            EXPECT_NE(ibv_reg_mr(pd, mem, 8 * 4096, all_access), nullptr) << "round " << round;
            EXPECT_EQ(reg_error(pd, mem, 1), ENOMEM);
            pd.release();
            EXPECT_EQ(c.destroy(), 0);
        }
        Pd pd(ibv_alloc_pd(other));
        EXPECT_EQ(reg_error(pd, mem, 8 * 4096), 0);
        EXPECT_EQ(reg_error(pd, mem, 9 * 4096), ENOMEM);
        munmap(mem, 32 * 4096);
    });
    EXPECT_EQ(child.wait(), 0);
}

// The kernel counts for each address space: a child has locked nothing of what its parent has registered.
TEST_F(ChangeTest, LockedMemoryOfAForkedChild)
{
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the thread sanitizer knows no threads in a child of a threaded process";
#endif
    Child parent([](const Link &) {
        drop_capability(CAP_IPC_LOCK);
        limit_pages(8);
        Context c = open_device();
        Pd pd(ibv_alloc_pd(c));
        auto *mem = static_cast<char *>(mmap(nullptr, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        need(mem != MAP_FAILED, "mmap");
        Mr all(ibv_reg_mr(pd, mem, 8 * 4096, all_access));
        ASSERT_TRUE(all);
        Child child([mem](const Link &) {
            Context own = open_device();
            Pd own_pd(ibv_alloc_pd(own));
            EXPECT_EQ(reg_error(own_pd, mem, 8 * 4096), 0);
            EXPECT_EQ(reg_error(own_pd, mem, 8 * 4096 + 1), ENOMEM);
        });
        EXPECT_EQ(child.wait(), 0);
        EXPECT_EQ(reg_error(pd, mem, 1), ENOMEM);
    });
    EXPECT_EQ(parent.wait(), 0);
}

TEST_F(ChangeTest, LockedMemoryOfThePrivileged)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs CAP_IPC_LOCK";
    Child child([](const Link &) {
        limit_pages(1);
        Node n; // registers more than that
        EXPECT_EQ(reg_error(n.pd, n.mem.data(), n.mem.size()), 0);
    });
    EXPECT_EQ(child.wait(), 0);
}

// Into a user namespace of its own, where this process is root and may do everything.
bool enter_user_namespace()
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (unshare(CLONE_NEWUSER))
        return false;
    auto put = [](const char *file, const std::string &text) {
        int fd = open(file, O_WRONLY | O_CLOEXEC);
        need(fd >= 0 && write(fd, text.data(), text.size()) == (ssize_t)text.size(), file);
        close(fd);
    };
    put("/proc/self/setgroups", "deny");
    put("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1");
    put("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1");
    return true;
}

// The kernel asks for the capability in the initial namespace.
TEST_F(ChangeTest, LockedMemoryOfRootInANamespace)
{
    constexpr int not_permitted = 77;
    Child child([](const Link &) {
        if (!enter_user_namespace())
            _exit(not_permitted);
        EXPECT_TRUE(has_capability(CAP_IPC_LOCK)) << "or this shows nothing";
        limit_pages(2);
        Context c = open_device();
        Pd pd(ibv_alloc_pd(c));
        std::vector<char> mem(4 * 4096);
        EXPECT_EQ(reg_error(pd, mem.data(), 4096), 0);
        EXPECT_EQ(reg_error(pd, mem.data(), mem.size()), ENOMEM);
    });
    int status = child.wait();
    if (status == not_permitted)
        GTEST_SKIP() << "user namespaces are not permitted here";
    EXPECT_EQ(status, 0);
}

// ---- Q_Keys with the top bit set: for processes with CAP_NET_RAW ----

constexpr uint32_t privileged_qkey = 0x80000001;

int set_qkey(ibv_qp *qp, uint32_t qkey, int mask = IBV_QP_QKEY)
{
    ibv_qp_attr a = {};
    a.qkey = qkey;
    return ibv_modify_qp(qp, &a, mask);
}

uint32_t qkey_of(ibv_qp *qp)
{
    ibv_qp_attr a;
    ibv_qp_init_attr init;
    need(ibv_query_qp(qp, &a, IBV_QP_QKEY, &init) == 0, "ibv_query_qp");
    return a.qkey;
}

// What a process without the capability meets: EPERM, and nothing has changed.
void expect_refused()
{
    Node n;
    Qp qp = make_qp(IBV_QPT_UD, n.pd, n.cq);
    Path p;
    p.qkey = privileged_qkey;
    EXPECT_EQ(to_init(qp, p), EPERM);
    EXPECT_EQ(state_of(qp), IBV_QPS_RESET);
    EXPECT_EQ(qkey_of(qp), 0u);
    p.qkey = 0x7fffffff;
    bring_up(qp, p);
    EXPECT_EQ(set_qkey(qp, privileged_qkey), EPERM);
    EXPECT_EQ(set_qkey(qp, 0xffffffff), EPERM);
    EXPECT_EQ(qkey_of(qp), 0x7fffffffu);
    EXPECT_EQ(state_of(qp), IBV_QPS_RTS);
    EXPECT_EQ(set_qkey(qp, privileged_qkey, 0), 0) << "not asked for";
    EXPECT_EQ(set_qkey(qp, 0x1234), 0);
    EXPECT_EQ(qkey_of(qp), 0x1234u);
}

TEST_F(ChangeTest, PrivilegedQkeyOfTheUnprivileged)
{
    Child child([](const Link &) {
        drop_capability(CAP_NET_RAW);
        expect_refused();
    });
    EXPECT_EQ(child.wait(), 0);
}

// After ports and the state's value, before the state table, as in the kernel.
TEST_F(ChangeTest, PrivilegedQkeyAmongOtherErrors)
{
    Child child([](const Link &) {
        drop_capability(CAP_NET_RAW);
        Node n;
        Qp ud = make_qp(IBV_QPT_UD, n.pd, n.cq), rc = make_qp(IBV_QPT_RC, n.pd, n.cq);
        EXPECT_EQ(set_qkey(rc, 1), EINVAL) << "RC has no Q_Key";
        EXPECT_EQ(set_qkey(rc, privileged_qkey), EPERM);
        Path p;
        p.qkey = privileged_qkey;
        p.port = 9;
        EXPECT_EQ(to_init(ud, p), EINVAL) << "no such port";
        ibv_qp_attr a = {};
        a.qkey = privileged_qkey;
        a.qp_state = IBV_QPS_UNKNOWN;
        EXPECT_EQ(ibv_modify_qp(ud, &a, IBV_QP_STATE | IBV_QP_QKEY), EINVAL) << "no such state";
        EXPECT_EQ(ibv_modify_qp(ud, &a, 1 << 30 | IBV_QP_QKEY), EOPNOTSUPP) << "no such attribute";
    });
    EXPECT_EQ(child.wait(), 0);
}

TEST_F(ChangeTest, PrivilegedQkeyOfThePrivileged)
{
    if (!has_capability(CAP_NET_RAW) || !in_initial_user_namespace())
        GTEST_SKIP() << "needs CAP_NET_RAW";
    Node n;
    Cq cq = make_cq(n.ctx);
    Qp one = make_qp(IBV_QPT_UD, n.pd, n.cq), two = make_qp(IBV_QPT_UD, n.pd, cq);
    Path p;
    p.qkey = privileged_qkey;
    bring_up(one, p);
    bring_up(two, {});
    EXPECT_EQ(qkey_of(one), privileged_qkey);
    EXPECT_EQ(set_qkey(two, privileged_qkey), 0);
    ibv_ah_attr attr = {};
    attr.dlid = n.lid;
    attr.port_num = 1;
    Ah ah(ibv_create_ah(n.pd, &attr));
    ASSERT_EQ(post_recv(two, 1, {n.sge(8192, 64)}), 0);
    EXPECT_EQ(outcome(one, Send(IBV_WR_SEND, {n.sge(0, 8)}).datagram(ah, two->qp_num, 0x80000000)), IBV_WC_SUCCESS);
    EXPECT_EQ(next_wc(cq).wr_id, 1u) << "the QP's own key was sent";
}

// The kernel asks for this one in the initial namespace, too.
TEST_F(ChangeTest, PrivilegedQkeyOfRootInANamespace)
{
    constexpr int not_permitted = 77;
    Child child([](const Link &) {
        if (!enter_user_namespace())
            _exit(not_permitted);
        EXPECT_TRUE(has_capability(CAP_NET_RAW)) << "or this shows nothing";
        expect_refused();
    });
    int status = child.wait();
    if (status == not_permitted)
        GTEST_SKIP() << "user namespaces are not permitted here";
    EXPECT_EQ(status, 0);
}

// ---- multicast ----

union ibv_gid group_gid(uint8_t last)
{
    union ibv_gid gid = {};
    gid.raw[0] = 0xff;
    gid.raw[1] = 0x12;
    gid.raw[15] = last;
    return gid;
}

constexpr uint16_t group_lid = 0xc00a;

Ah group_ah(const Node &n, uint8_t last, uint16_t lid = group_lid)
{
    ibv_ah_attr a = {};
    a.dlid = lid;
    a.port_num = 1;
    a.is_global = 1;
    a.grh.dgid = group_gid(last);
    Ah ah(ibv_create_ah(n.pd, &a));
    need(ah, "ibv_create_ah");
    return ah;
}

TEST_F(ChangeTest, GroupTable)
{
    Node n;
    Qp ud = make_qp(IBV_QPT_UD, n.pd, n.cq), rc = make_qp(IBV_QPT_RC, n.pd, n.cq);
    union ibv_gid gid = group_gid(1), unicast = {};
    ibv_query_gid(n.ctx, 1, 0, &unicast);
    EXPECT_EQ(ibv_attach_mcast(rc, &gid, group_lid), EINVAL) << "UD only";
    EXPECT_EQ(ibv_attach_mcast(ud, &unicast, group_lid), EINVAL);
    EXPECT_EQ(ibv_attach_mcast(ud, &gid, 0xbfff), EINVAL) << "a unicast LID";
    EXPECT_EQ(ibv_attach_mcast(ud, &gid, 0xffff), EINVAL) << "the permissive LID";
    EXPECT_EQ(ibv_detach_mcast(ud, &gid, group_lid), EINVAL) << "not attached";
    ASSERT_EQ(ibv_attach_mcast(ud, &gid, group_lid), 0);
    EXPECT_EQ(ibv_attach_mcast(ud, &gid, group_lid), 0) << "again is no error, as in the kernel";
    EXPECT_EQ(ibv_destroy_qp(ud), EBUSY);
    EXPECT_EQ(ibv_detach_mcast(ud, &gid, group_lid + 1), EINVAL) << "another LID";
    EXPECT_EQ(ibv_detach_mcast(ud, &gid, group_lid), 0);
    EXPECT_EQ(ibv_detach_mcast(ud, &gid, group_lid), EINVAL) << "once";
    check_fabric();
}

TEST_F(ChangeTest, EveryMemberGetsACopy)
{
    constexpr int members = 3;
    auto member = [](const Link &link) {
        Node n;
        Qp qp = make_qp(IBV_QPT_UD, n.pd, n.cq);
        bring_up(qp, {});
        union ibv_gid gid = group_gid(1);
        need(ibv_attach_mcast(qp, &gid, group_lid) == 0, "attach");
        ASSERT_EQ(post_recv(qp, 1, {n.sge(0, 256)}), 0);
        link.put(qp->qp_num);
        uint32_t src = link.get<uint32_t>();
        ibv_wc wc = next_wc(n.cq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.byte_len, 45u);
        EXPECT_EQ(wc.src_qp, src);
        EXPECT_TRUE(wc.wc_flags & IBV_WC_GRH);
        EXPECT_EQ(memcmp(&n.mem[24], gid.raw, 16), 0) << "the GRH names the group";
        EXPECT_EQ(memcmp(&n.mem[40], "hello", 5), 0);
        link.meet(); // everything was sent
        EXPECT_TRUE(cq_empty(n.cq)) << "one copy";
        EXPECT_EQ(ibv_detach_mcast(qp, &gid, group_lid), 0);
    };
    std::vector<std::unique_ptr<Child>> others;
    for (int i = 0; i < members; i++)
        others.emplace_back(new Child(member));
    Node n;
    Qp qp = make_qp(IBV_QPT_UD, n.pd, n.cq), other_key = make_qp(IBV_QPT_UD, n.pd, n.cq), out = make_qp(IBV_QPT_UD, n.pd, n.cq);
    Path key;
    bring_up(qp, {});
    bring_up(out, {});
    key.qkey = 0x2222;
    bring_up(other_key, key);
    union ibv_gid gid = group_gid(1), second = group_gid(2);
    ASSERT_EQ(ibv_attach_mcast(qp, &gid, group_lid), 0);
    ASSERT_EQ(ibv_attach_mcast(other_key, &gid, group_lid), 0);
    ASSERT_EQ(ibv_attach_mcast(out, &second, group_lid), 0) << "another group on the same LID";
    Cq own = make_cq(n.ctx);
    for (Qp *q : {&qp, &other_key, &out})
        ASSERT_EQ(post_recv(*q, 7, {n.sge(8192, 256)}), 0);
    for (auto &o : others)
        o->link().get<uint32_t>();
    for (auto &o : others)
        o->link().put(qp->qp_num);
    {
        Ah ah = group_ah(n, 1), nobody = group_ah(n, 9);
        memcpy(&n.mem[0], "hello", 5);
        ASSERT_EQ(Send(IBV_WR_SEND, {n.sge(0, 5)}).datagram(nobody, 0xffffff, 0x11111111).id(2).post(qp), 0);
        EXPECT_EQ(next_wc(n.cq).wr_id, 2u) << "a group without members";
        ASSERT_EQ(Send(IBV_WR_SEND, {n.sge(0, 5)}).datagram(ah, 0xffffff, 0x11111111).id(1).post(qp), 0);
        ibv_wc copy = next_wc(n.cq), sent = next_wc(n.cq);
        EXPECT_EQ(copy.wr_id, 7u) << "the sender's own QP is a member too";
        EXPECT_EQ(copy.qp_num, qp->qp_num);
        EXPECT_EQ(sent.wr_id, 1u);
        EXPECT_TRUE(cq_empty(n.cq)) << "no member with another Q_Key, nor of another group";
    }
    for (auto &o : others)
        o->link().meet();
    for (auto &o : others)
        EXPECT_EQ(o->wait(), 0);
    EXPECT_EQ(ibv_detach_mcast(qp, &gid, group_lid) | ibv_detach_mcast(other_key, &gid, group_lid) | ibv_detach_mcast(out, &second, group_lid), 0);
    check_fabric();
}

TEST_F(ChangeTest, ADeadMemberIsNone)
{
    Child member([](const Link &link) {
        Node n;
        Qp qp = make_qp(IBV_QPT_UD, n.pd, n.cq);
        bring_up(qp, {});
        union ibv_gid gid = group_gid(1);
        need(ibv_attach_mcast(qp, &gid, group_lid) == 0, "attach");
        link.put('a');
        pause();
    });
    Node n;
    member.link().get<char>();
    member.kill();
    Qp qp = make_qp(IBV_QPT_UD, n.pd, n.cq);
    bring_up(qp, {});
    Ah ah = group_ah(n, 1);
    EXPECT_EQ(outcome(qp, Send(IBV_WR_SEND, {n.sge(0, 5)}).datagram(ah, 0xffffff, 0x11111111)), IBV_WC_SUCCESS);
    check_fabric();
}

// ---- UC ----

class Uc : public ChangeTest
{
  protected:
    Uc() : n_(new Node), recv_cq_(make_cq(n_->ctx))
    {
        one_ = make_qp(IBV_QPT_UC, n_->pd, n_->cq);
        two_ = make_qp(IBV_QPT_UC, n_->pd, recv_cq_);
        connect(one_, n_->lid, two_, n_->lid);
    }
    void TearDown() override
    {
        check_fabric();
        one_ = Qp();
        two_ = Qp();
        recv_cq_ = Cq();
        n_.reset();
        ChangeTest::TearDown();
    }
    ibv_wc_status send(uint32_t imm)
    {
        return outcome(one_, Send(IBV_WR_SEND_WITH_IMM, {n_->sge(0, 8)}).imm(imm));
    }
    std::vector<uint32_t> arrived()
    {
        std::vector<uint32_t> ids;
        for (ibv_wc wc = {}; ibv_poll_cq(recv_cq_, 1, &wc) == 1;)
            ids.push_back(be32toh(wc.imm_data));
        return ids;
    }
    void post(int n)
    {
        while (n--)
            need(post_recv(two_, 1, {n_->sge(8192, 64)}) == 0, "post");
    }

    std::unique_ptr<Node> n_;
    Cq recv_cq_;
    Qp one_, two_;
};

TEST_F(Uc, Operations)
{
    post(2);
    EXPECT_EQ(send(1), IBV_WC_SUCCESS);
    n_->mem[0] = 'w';
    EXPECT_EQ(outcome(one_, Send(IBV_WR_RDMA_WRITE, {n_->sge(0, 1)}).at(n_->addr(100), n_->mr->rkey)), IBV_WC_SUCCESS);
    EXPECT_EQ(n_->mem[100], 'w');
    EXPECT_EQ(outcome(one_, Send(IBV_WR_RDMA_WRITE_WITH_IMM, {n_->sge(0, 1)}).at(n_->addr(200), n_->mr->rkey).imm(2)), IBV_WC_SUCCESS);
    EXPECT_EQ(arrived(), (std::vector<uint32_t>{1, 2}));
    for (ibv_wr_opcode op : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV})
        EXPECT_EQ(Send(op, {n_->sge(0, 8)}).at(n_->addr(0), n_->mr->rkey).post(one_), EINVAL) << op;
}

TEST_F(Uc, NobodyIsToldOfALoss)
{
    EXPECT_EQ(send(1), IBV_WC_SUCCESS) << "without a buffer";
    EXPECT_EQ(outcome(one_, Send(IBV_WR_RDMA_WRITE_WITH_IMM, {n_->sge(0, 8)}).at(n_->addr(64), n_->mr->rkey).imm(1)), IBV_WC_SUCCESS);
    EXPECT_EQ(qp_counter(two_->qp_num, "dropped"), 2);
    EXPECT_EQ(counter_of("h/vshim0/1", "dropped"), 2) << "where it arrives";
    for (const Qp *qp : {&one_, &two_})
        EXPECT_EQ(qp_counter((*qp)->qp_num, "rnr_sent") + qp_counter((*qp)->qp_num, "rnr_received"), 0) << "no answer, so no RNR";
    EXPECT_EQ(counter_of("h/vshim0/1", "rnr_sent") + counter_of("h/vshim0/1", "rnr_received"), 0);
    post(4);
    order("drop packet nth 2");
    for (uint32_t i = 2; i <= 4; i++)
        EXPECT_EQ(send(i), IBV_WC_SUCCESS);
    EXPECT_EQ(arrived(), (std::vector<uint32_t>{2, 4}));
    EXPECT_EQ(qp_counter(one_->qp_num, "retries"), 0);
    order("drop ack times ever"); // there are none
    EXPECT_EQ(send(5), IBV_WC_SUCCESS);
    EXPECT_EQ(arrived(), (std::vector<uint32_t>{5}));
    EXPECT_EQ(qp_counter(two_->qp_num, "dropped"), 2) << "no more";
    EXPECT_EQ(outcome(one_, Send(IBV_WR_RDMA_WRITE, {n_->sge(0, 8)}).at(n_->addr(0), n_->mr->rkey + 1)), IBV_WC_SUCCESS) << "a bad key";
    EXPECT_EQ(state_of(two_), IBV_QPS_RTS);
    order("link down h/vshim0/1");
    EXPECT_EQ(send(6), IBV_WC_SUCCESS);
    order("link up h/vshim0/1");
    EXPECT_EQ(send(7), IBV_WC_SUCCESS) << "and goes on when it is up again";
    EXPECT_EQ(arrived(), (std::vector<uint32_t>{7}));
}

TEST_F(Uc, LateIsNotLost)
{
    post(2);
    order("delay packet 2000 times 2");
    EXPECT_EQ(send(1), IBV_WC_SUCCESS);
    EXPECT_EQ(send(2), IBV_WC_SUCCESS);
    EXPECT_EQ(arrived(), (std::vector<uint32_t>{1, 2}));
}

} // namespace
