// What programs that nobody here wrote count on beyond the man pages: UCX, Open MPI's openib, pyverbs, perftest.
#include "verbs.h"

namespace
{

using namespace vt;
using ProgramsTest = vt::Test;

mode_t mode_of(const char *path)
{
    struct stat st;
    return ::stat(path, &st) == 0 ? st.st_mode : 0;
}

TEST_F(ProgramsTest, TheClassDirectoryIsThereBeforeAnyDeviceWasAskedFor)
{
    EXPECT_TRUE(S_ISDIR(mode_of("/sys/class/infiniband")));
    EXPECT_EQ(access("/dev/infiniband", R_OK | X_OK), 0);
}

TEST_F(ProgramsTest, FilesOfListedDevicesAreThere)
{
    Context c = open_device();
    std::string node = std::string("/dev/infiniband/") + c->device->dev_name;
    EXPECT_EQ(mode_of(node.c_str()), (mode_t) (S_IFCHR | 0666));
    EXPECT_EQ(access(node.c_str(), R_OK | W_OK), 0);
    EXPECT_EQ(access(node.c_str(), X_OK), -1);
    EXPECT_EQ(errno, EACCES);
    EXPECT_TRUE(S_ISDIR(mode_of(c->device->ibdev_path)));
    EXPECT_TRUE(S_ISDIR(mode_of(c->device->dev_path)));
}

TEST_F(ProgramsTest, OtherFilesAreAsTheyAre)
{
    struct stat st;
    Context c = open_device();
    EXPECT_EQ(::stat("/dev/infiniband/uverbs_vshim99", &st), -1);
    EXPECT_EQ(errno, ENOENT);
    EXPECT_EQ(::stat("", &st), -1);
    EXPECT_EQ(errno, ENOENT);
    EXPECT_EQ(access("/dev/null/x", F_OK), -1);
    EXPECT_EQ(errno, ENOTDIR);
    EXPECT_EQ(::stat("/dev/null", &st), 0);
    EXPECT_TRUE(S_ISCHR(st.st_mode));
}

// ---- sizes and capabilities ----

// A program that fills a CQ posts as many as cqe says.
TEST_F(ProgramsTest, ACqHasTheRoomThatWasAskedForAndNotManyTimesThat)
{
    Context c = open_device();
    for (int asked : {1, 2, 3, 7, 8, 100}) {
        Cq cq = make_cq(c, asked);
        EXPECT_GE(cq->cqe, asked);
        EXPECT_LE(cq->cqe, 2 * asked);
        ASSERT_EQ(ibv_resize_cq(cq, 7), 0);
        EXPECT_EQ(cq->cqe, 7);
    }
}

TEST_F(ProgramsTest, TheExtendedAttributesCountThePortsToo)
{
    Context c = open_device();
    ibv_device_attr_ex a;
    ASSERT_EQ(ibv_query_device_ex(c, nullptr, &a), 0);
    EXPECT_EQ(a.phys_port_cnt_ex, a.orig_attr.phys_port_cnt);
}

// ---- creating with flags ----

int creation_error(const Node &n, ibv_qp_type type, uint32_t flags)
{
    auto a = qp_attr(type, n.pd, n.cq);
    a.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    a.create_flags = flags;
    Qp qp(ibv_create_qp_ex(n.ctx, &a));
    return qp ? 0 : errno;
}

TEST_F(ProgramsTest, NoFlagsAreFineAndUnknownOnesAreNot)
{
    Node n;
    for (ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND}) {
        EXPECT_EQ(creation_error(n, type, 0), 0) << type;
        EXPECT_EQ(creation_error(n, type, IBV_QP_CREATE_SCATTER_FCS), EINVAL) << type;
        EXPECT_EQ(creation_error(n, type, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB), type == IBV_QPT_UD ? 0 : EINVAL) << type;
    }
}

struct Group {
    union ibv_gid gid = {};
    uint16_t lid = 0xc001;
    Ah ah;

    explicit Group(const Node &n)
    {
        gid.raw[0] = 0xff;
        gid.raw[15] = 1;
        ibv_ah_attr a = {};
        a.dlid = lid;
        a.port_num = 1;
        a.is_global = 1;
        a.grh.dgid = gid;
        ah = Ah(ibv_create_ah(n.pd, &a));
        need(ah, "ibv_create_ah");
    }
};

TEST_F(ProgramsTest, ABlockedQpGetsNoCopyOfItsOwnMulticast)
{
    Node n;
    Group g(n);
    Path p;
    for (uint32_t flags : {0u, (uint32_t) IBV_QP_CREATE_BLOCK_SELF_MCAST_LB}) {
        auto a = qp_attr(IBV_QPT_UD, n.pd, n.cq);
        a.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
        a.create_flags = flags;
        Cq sends = make_cq(n.ctx), others = make_cq(n.ctx);
        a.send_cq = sends;
        Qp sender(ibv_create_qp_ex(n.ctx, &a));
        a.recv_cq = others;
        Qp other(ibv_create_qp_ex(n.ctx, &a));
        for (ibv_qp *qp : {(ibv_qp *) sender, (ibv_qp *) other}) {
            bring_up(qp, p);
            ASSERT_EQ(ibv_attach_mcast(qp, &g.gid, g.lid), 0);
            ASSERT_EQ(post_recv(qp, 1, {n.sge(0, 64)}), 0);
        }
        ASSERT_EQ(outcome(sender, Send().datagram(g.ah, 0xffffff, p.qkey)), IBV_WC_SUCCESS);
        EXPECT_EQ(next_wc(others).src_qp, sender->qp_num);
        EXPECT_EQ(cq_empty(n.cq), flags != 0);
        for (ibv_qp *qp : {(ibv_qp *) sender, (ibv_qp *) other})
            EXPECT_EQ(ibv_detach_mcast(qp, &g.gid, g.lid), 0);
    }
}

// ---- registering again ----

TEST_F(ProgramsTest, OtherRightsOnTheSameMemoryKeepTheKeys)
{
    Node n;
    Qp a = make_qp(IBV_QPT_RC, n.pd, n.cq), b = make_qp(IBV_QPT_RC, n.pd, n.cq);
    connect(a, n.lid, b, n.lid);
    uint32_t rkey = n.mr->rkey, lkey = n.mr->lkey;
    auto write = [&] { return outcome(a, Send(IBV_WR_RDMA_WRITE, {n.sge(0, 8)}).at(n.addr(64), rkey)); };
    EXPECT_EQ(write(), IBV_WC_SUCCESS);
    const int fewer = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    ASSERT_EQ(ibv_rereg_mr(n.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, fewer), 0);
    EXPECT_EQ(n.mr->rkey, rkey);
    EXPECT_EQ(n.mr->lkey, lkey);
    EXPECT_EQ(write(), IBV_WC_SUCCESS);
    Pd other(ibv_alloc_pd(n.ctx));
    ASSERT_EQ(ibv_rereg_mr(n.mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
    EXPECT_EQ(n.mr->rkey, rkey);
    EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
    EXPECT_EQ(write(), IBV_WC_LOC_PROT_ERR) << "the key is of another PD now";
    EXPECT_EQ(n.mr.destroy(), 0);
}

// ---- importing ----

TEST_F(ProgramsTest, AnImportIsTheSamePdAndMrAgain)
{
    Node n;
    int fd = dup(n.ctx->cmd_fd);
    ASSERT_GE(fd, 0);
    Context again(ibv_import_device(fd));
    ASSERT_TRUE(again);
    EXPECT_EQ(again->device, n.ctx->device);
    ibv_pd *pd = ibv_import_pd(again, n.pd->handle);
    ASSERT_NE(pd, nullptr);
    ibv_mr *mr = ibv_import_mr(pd, n.mr->handle);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->addr, nullptr);
    EXPECT_EQ(mr->rkey, n.mr->rkey);
    {
        Cq cq = make_cq(again);
        Qp a = make_qp(IBV_QPT_RC, pd, cq), b = make_qp(IBV_QPT_RC, n.pd, n.cq);
        connect(a, n.lid, b, n.lid);
        Send send(IBV_WR_RDMA_WRITE, {{n.addr(), 8, mr->lkey}});
        EXPECT_EQ(outcome(a, send.at(n.addr(64), n.mr->rkey)), IBV_WC_SUCCESS);
        EXPECT_EQ(ibv_dealloc_pd(n.pd), EBUSY);
    }
    EXPECT_EQ(ibv_import_mr(pd, n.mr->handle + 1), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_import_pd(again, n.pd->handle + 1), nullptr);
    EXPECT_EQ(errno, EINVAL);
    ibv_unimport_mr(mr);
    ibv_unimport_pd(pd);
    EXPECT_EQ(again.destroy(), 0);
    EXPECT_EQ(fcntl(fd, F_GETFD), -1) << "the descriptor belongs to the imported context";
    EXPECT_EQ(ibv_import_dm(n.ctx, 1), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

} // namespace
