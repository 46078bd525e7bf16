// XRC domains: the table of ib_uverbs_open_xrcd (one tree a device, keyed by inode) and the two counts that closing obeys.
#include "conform/verbs.h"

namespace
{

using namespace vt;

class XrcdTest : public vt::Test
{
};

// The errno of an open that must fail, 0 if it succeeded.
int open_error(ibv_context *c, int fd, int oflags)
{
    errno = 0;
    Xrcd x(try_open_xrcd(c, fd, oflags));
    return x ? 0 : errno;
}

// Are two handles on the same domain? A TGT QP made through one can then be opened through the other.
bool same_domain(ibv_xrcd *a, ibv_xrcd *b)
{
    Qp made = make_tgt(a), opened = open_tgt(b, made->qp_num);
    return opened != nullptr;
}

TEST_F(XrcdTest, CompMaskBitsTheLibraryDoesNotKnowAreRefused)
{
    Context c = open_device();
    ibv_xrcd_init_attr a = {};
    a.fd = -1;
    a.oflags = O_CREAT;
    a.comp_mask = IBV_XRCD_INIT_ATTR_RESERVED | IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    EXPECT_EQ(ibv_open_xrcd(c, &a), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(XrcdTest, BothFdAndOflagsMustBeGiven)
{
    Context c = open_device();
    for (uint32_t mask : {0u, (uint32_t) IBV_XRCD_INIT_ATTR_FD, (uint32_t) IBV_XRCD_INIT_ATTR_OFLAGS}) {
        ibv_xrcd_init_attr a = {};
        a.fd = -1;
        a.oflags = O_CREAT;
        a.comp_mask = mask;
        EXPECT_EQ(ibv_open_xrcd(c, &a), nullptr) << mask;
        EXPECT_EQ(errno, EINVAL) << mask;
    }
}

TEST_F(XrcdTest, FdThatIsNotOpenIsEbadf)
{
    Context c = open_device();
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    EXPECT_EQ(open_error(c, fd, O_CREAT), EBADF);
    EXPECT_EQ(open_error(c, -2, O_CREAT), EBADF);
    EXPECT_EQ(open_error(c, AT_FDCWD, O_CREAT), EBADF);
}

// The kernel's fdget() does not take descriptors that only name a path.
TEST_F(XrcdTest, PathOnlyFdIsEbadf)
{
    Context c = open_device();
    TempFile f;
    int fd = open(f.path().c_str(), O_PATH | O_CLOEXEC);
    EXPECT_EQ(open_error(c, fd, O_CREAT), EBADF);
    close(fd);
}

TEST_F(XrcdTest, UnlistedInodeNeedsOcreat)
{
    Context c = open_device();
    TempFile f;
    EXPECT_EQ(open_error(c, f.fd(), 0), EAGAIN);
    EXPECT_EQ(open_error(c, f.fd(), O_EXCL), EAGAIN);
    EXPECT_EQ(open_error(c, f.fd(), O_CREAT), 0);
    EXPECT_EQ(open_error(c, f.fd(), O_CREAT | O_EXCL), 0);
    EXPECT_EQ(open_error(c, f.fd(), 0), EAGAIN) << "the domain went with its last handle";
}

TEST_F(XrcdTest, ListedInodeIsSharedUnlessOexcl)
{
    Context c = open_device();
    TempFile f;
    Xrcd first = make_xrcd(c, f.fd(), O_CREAT);
    EXPECT_EQ(open_error(c, f.fd(), 0), 0);
    EXPECT_EQ(open_error(c, f.fd(), O_CREAT), 0) << "O_CREAT is harmless";
    EXPECT_EQ(open_error(c, f.fd(), O_EXCL), EINVAL) << "EINVAL, not EEXIST, and without O_CREAT";
    EXPECT_EQ(open_error(c, f.fd(), O_CREAT | O_EXCL), EINVAL);
    Xrcd second = make_xrcd(c, f.fd(), 0);
    EXPECT_TRUE(same_domain(first, second));
}

TEST_F(XrcdTest, WithoutFdEachDomainIsPrivateAndOflagsAreNotLookedAt)
{
    Context c = open_device();
    Xrcd a = make_xrcd(c, -1, 0), b = make_xrcd(c, -1, O_EXCL), d = make_xrcd(c, -1, O_CREAT | O_EXCL);
    EXPECT_FALSE(same_domain(a, b));
    EXPECT_FALSE(same_domain(a, d));
    EXPECT_TRUE(same_domain(a, a));
}

TEST_F(XrcdTest, AnyKindOfFileIsAKey)
{
    Context c = open_device();
    int pipe_fds[2];
    need(pipe2(pipe_fds, O_CLOEXEC) == 0, "pipe2");
    int dir = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (int fd : {dir, null, pipe_fds[0]}) {
        Xrcd a = make_xrcd(c, fd), b = make_xrcd(c, fd, 0);
        EXPECT_TRUE(same_domain(a, b));
    }
    for (int fd : {dir, null, pipe_fds[0], pipe_fds[1]})
        close(fd);
}

TEST_F(XrcdTest, ReadOnlyDescriptorAndHardLinkNameTheSameDomain)
{
    Context c = open_device();
    TempFile f;
    std::string other = f.path() + ".link";
    need(link(f.path().c_str(), other.c_str()) == 0, "link");
    int ro = open(other.c_str(), O_RDONLY | O_CLOEXEC);
    unlink(other.c_str());
    {
        Xrcd a = make_xrcd(c, f.fd()), b = make_xrcd(c, ro, 0);
        EXPECT_TRUE(same_domain(a, b));
    }
    close(ro);
}

TEST_F(XrcdTest, TheDescriptorMayBeClosedAtOnce)
{
    Context c = open_device();
    TempFile f;
    int fd = open(f.path().c_str(), O_RDONLY | O_CLOEXEC);
    Xrcd a = make_xrcd(c, fd);
    close(fd);
    Xrcd b = make_xrcd(c, f.fd(), 0);
    EXPECT_TRUE(same_domain(a, b));
}

// A file made again under the same name is another inode, even if the file system gives it the old number.
TEST_F(XrcdTest, UnlinkedInodeStaysAndARecreatedFileIsAnotherDomain)
{
    Context c = open_device();
    TempFile dir_entry;
    std::string path = dir_entry.path() + ".x";
    int old_fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    Xrcd old = make_xrcd(c, old_fd);
    unlink(path.c_str());
    int new_fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    unlink(path.c_str());
    EXPECT_EQ(open_error(c, new_fd, 0), EAGAIN);
    Xrcd fresh = make_xrcd(c, new_fd);
    EXPECT_FALSE(same_domain(old, fresh));
    Xrcd again = make_xrcd(c, old_fd, 0);
    EXPECT_TRUE(same_domain(old, again)) << "a holder of the old inode still finds its domain";
    close(old_fd);
    close(new_fd);
}

TEST_F(XrcdTest, TwoContextsOfADeviceShareTheDomain)
{
    Context c1 = open_device(), c2 = open_device();
    TempFile f;
    Xrcd a = make_xrcd(c1, f.fd()), b = make_xrcd(c2, f.fd(), 0);
    EXPECT_TRUE(same_domain(a, b));
}

// ---- closing ----

TEST_F(XrcdTest, CloseIsBusyWhileThisHandleHasAnSrqOrATgtHandle)
{
    Node n;
    TempFile f;
    Xrcd a = make_xrcd(n.ctx, f.fd()), b = make_xrcd(n.ctx, f.fd());
    Srq srq = make_xrc_srq(n.pd, a, n.cq);
    EXPECT_EQ(a.destroy(), EBUSY);
    EXPECT_EQ(srq.destroy(), 0);
    Qp tgt = make_tgt(a);
    EXPECT_EQ(a.destroy(), EBUSY);
    Qp opened = open_tgt(b, tgt->qp_num);
    ASSERT_TRUE(opened);
    EXPECT_EQ(b.destroy(), EBUSY) << "an opened QP counts on the opener's handle";
    EXPECT_EQ(tgt.destroy(), 0);
    EXPECT_EQ(a.destroy(), 0) << "the creator's handle is free, though the QP lives";
    EXPECT_EQ(b.destroy(), EBUSY);
    EXPECT_EQ(opened.destroy(), 0);
    EXPECT_EQ(b.destroy(), 0);
}

TEST_F(XrcdTest, ARefusedCloseChangesNothing)
{
    Node n;
    Xrcd x = make_xrcd(n.ctx);
    Srq srq = make_xrc_srq(n.pd, x, n.cq);
    EXPECT_EQ(x.destroy(), EBUSY);
    Qp tgt = make_tgt(x);
    EXPECT_EQ(post_recv(srq, 1), 0);
    EXPECT_EQ(x.destroy(), EBUSY);
}

// Closing in every order of QP, SRQ, CQ, XRCD and PD: EBUSY exactly where something still uses the object.
TEST_F(XrcdTest, EveryOrderOfDestructionEndsWithNothing)
{
    std::vector<int> order = {0, 1, 2, 3, 4};
    int orders = 0;
    do {
        Node n;
        Xrcd x = make_xrcd(n.ctx);
        Pd pd(ibv_alloc_pd(n.ctx));
        Cq cq = make_cq(n.ctx);
        Srq srq = make_xrc_srq(pd, x, cq);
        Qp tgt = make_tgt(x);
        bool qp_there = true, srq_there = true;
        for (int step : order) {
            switch (step) {
            case 0:
                EXPECT_EQ(tgt.destroy(), 0);
                qp_there = false;
                break;
            case 1:
                EXPECT_EQ(srq.destroy(), 0);
                srq_there = false;
                break;
            case 2: EXPECT_EQ(cq.destroy(), srq_there ? EBUSY : 0); break;
            case 3: EXPECT_EQ(x.destroy(), srq_there || qp_there ? EBUSY : 0); break;
            case 4: EXPECT_EQ(pd.destroy(), srq_there ? EBUSY : 0); break;
            }
        }
        orders++;
    } while (std::next_permutation(order.begin(), order.end()));
    EXPECT_EQ(orders, 120);
}

// ---- across processes ----

TEST_F(XrcdTest, ProcessesShareTheDomainAndEachClosesItsOwnHandle)
{
    TempFile f;
    Child other([&](const Link &link) {
        Node n;
        Xrcd x = make_xrcd(n.ctx, f.fd());
        Qp tgt = make_tgt(x);
        link.put<uint32_t>(tgt->qp_num);
        link.meet();
        EXPECT_EQ(x.destroy(), EBUSY) << "own TGT handle";
        EXPECT_EQ(tgt.destroy(), 0);
        EXPECT_EQ(x.destroy(), 0) << "the other's handles do not matter";
        link.meet();
    });
    uint32_t qpn = other.link().get<uint32_t>();
    Context c = open_device();
    EXPECT_EQ(open_error(c, f.fd(), O_EXCL), EINVAL);
    Xrcd x = make_xrcd(c, f.fd(), 0);
    Qp tgt = open_tgt(x, qpn);
    EXPECT_TRUE(tgt);
    other.link().meet();
    other.link().meet();
    EXPECT_EQ(x.destroy(), EBUSY);
    EXPECT_EQ(state_of(tgt), IBV_QPS_RESET) << "the QP is still there";
}

// Cleanup at exit is that of a close, and a kill is an exit.
TEST_F(XrcdTest, AKilledHoldersHandleIsGone)
{
    TempFile f;
    Child other([&](const Link &link) {
        Node n;
        Xrcd x = make_xrcd(n.ctx, f.fd());
        link.meet();
        link.meet();
    });
    other.link().meet();
    Context c = open_device();
    EXPECT_EQ(open_error(c, f.fd(), 0), 0);
    other.kill();
    EXPECT_EQ(open_error(c, f.fd(), 0), EAGAIN);
}

// Two processes open and close the last handle at the same time (the kernel's xrcd_tree_mutex): no domain is lost or left.
TEST_F(XrcdTest, OpenRacesWithTheLastClose)
{
    TempFile f;
    auto loop = [&](const Link &link) {
        Context c = open_device();
        link.meet();
        for (int i = 0; i < 500; i++) {
            Xrcd x = make_xrcd(c, f.fd());
            Qp tgt = make_tgt(x);
        }
    };
    Child other(loop);
    {
        Context c = open_device();
        other.link().meet();
        for (int i = 0; i < 500; i++) {
            Xrcd x = make_xrcd(c, f.fd());
            Qp tgt = make_tgt(x);
        }
    }
    EXPECT_EQ(other.wait(), 0);
    Context c = open_device();
    EXPECT_EQ(open_error(c, f.fd(), 0), EAGAIN);
}

TEST_F(XrcdTest, DomainsNeverRunOutWhenTheyAreClosed)
{
    Context c = open_device();
    for (int i = 0; i < 10000; i++)
        ASSERT_EQ(open_error(c, -1, O_CREAT), 0) << i;
}

} // namespace
