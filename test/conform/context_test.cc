// Contexts and processes: several of them, closing with objects left over, preloading, simulated hosts, topologies.
#include "conform/faults.h"
#include "conform/pair.h"

#include <dlfcn.h>
#include <sys/utsname.h>

#include <fstream>
#include <thread>

namespace
{

using namespace vt;

class ContextTest : public vt::Test
{
};

// What closing destroyed the program still has in its own memory, as with any verbs library: not lost, only of no use any more.
std::vector<void *> &useless = *new std::vector<void *>; // there until the very end

template <class T> void leave(T &object)
{
    useless.push_back(object.release());
}

// ---- contexts ----

TEST_F(ContextTest, TwoContextsOfAProcessTalkToEachOther)
{
    Node a, b;
    Qp qa = make_qp(IBV_QPT_RC, a.pd, a.cq), qb = make_qp(IBV_QPT_RC, b.pd, b.cq);
    connect(qa, a.lid, qb, b.lid);
    memcpy(a.mem.data(), "hello", 6);
    ASSERT_EQ(post_recv(qb, 1, {b.sge(0, 64)}), 0);
    EXPECT_EQ(outcome(qa, Send(IBV_WR_SEND, {a.sge(0, 6)})), IBV_WC_SUCCESS);
    EXPECT_EQ(next_wc(b.cq).byte_len, 6u);
    EXPECT_STREQ(b.mem.data(), "hello");
}

// A device may be closed and opened again while the process stays in the fabric; events must find the new context.
TEST_F(ContextTest, EventsArriveAfterTheDeviceWasClosedAndOpenedAgain)
{
    int n;
    ibv_device **list = ibv_get_device_list(&n); // keeps the process in the fabric
    for (int round = 0; round < 3; round++) {
        Context c = open_device();
        Xrcd x = make_xrcd(c);
        Qp tgt = make_tgt(x);
        for (int i = 0; i < 5; i++) {
            Path p;
            p.qpn = 9;
            p.lid = 1;
            bring_up(tgt, p);
            ASSERT_EQ(to_state(tgt, IBV_QPS_ERR), 0);
            EXPECT_EQ(ack_next(c), IBV_EVENT_QP_LAST_WQE_REACHED);
            ASSERT_EQ(to_state(tgt, IBV_QPS_RESET), 0);
        }
    }
    ibv_free_device_list(list);
}

// uverbs_destroy_ufile_hw at the last close: what was made through the context and not destroyed is gone for everybody.
TEST_F(ContextTest, ClosingDestroysWhatIsLeft)
{
    TempFile f;
    Node sender;
    Qp ini = make_qp(IBV_QPT_XRC_SEND, sender.pd, sender.cq), rc = make_qp(IBV_QPT_RC, sender.pd, sender.cq);
    Address a;
    {
        Node n;
        Xrcd x = make_xrcd(n.ctx, f.fd());
        Srq srq = make_xrc_srq(n.pd, x, n.cq);
        Qp tgt = make_tgt(x), qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
        connect(ini, sender.lid, tgt, n.lid);
        connect(rc, sender.lid, qp, n.lid);
        ASSERT_EQ(post_recv(srq, 1, {n.sge(0, 8)}), 0);
        a = {n.lid, tgt->qp_num, srq_num(srq), n.mr->rkey, n.addr()};
        EXPECT_EQ(outcome(ini, Send(IBV_WR_SEND, {sender.sge(0, 8)}).to_srq(a.srqn)), IBV_WC_SUCCESS);
        leave(tgt);
        leave(qp);
        leave(srq);
        leave(x);
        leave(n.mr);
        leave(n.cq);
        leave(n.pd);
        EXPECT_EQ(ibv_close_device(n.ctx.release()), 0);
    }
    EXPECT_EQ(outcome(ini, Send(IBV_WR_SEND, {sender.sge(0, 8)}).to_srq(a.srqn)), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(outcome(rc, Send(IBV_WR_RDMA_WRITE, {sender.sge(0, 8)}).at(a.addr, a.rkey)), IBV_WC_RETRY_EXC_ERR);
    Xrcd again(try_open_xrcd(sender.ctx, f.fd(), 0));
    EXPECT_FALSE(again);
    EXPECT_EQ(errno, EAGAIN) << "the domain went with its last handle";
}

int open_descriptors()
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

TEST_F(ContextTest, ClosingLetsGoOfTheFilesOfDomains)
{
    TempFile f;
    Node keep;
    int before = open_descriptors();
    for (int i = 0; i < 3; i++) {
        Context c = open_device();
        Xrcd x = make_xrcd(c, f.fd());
        leave(x);
        EXPECT_EQ(c.destroy(), 0);
    }
    EXPECT_EQ(open_descriptors(), before);
}

// A copy of the library, unloaded with a device open and loaded again: what it holds stays, and its thread has its code.
TEST_F(ContextTest, UnloadedAndLoadedAgain)
{
    Child child([](const Link &) {
        Dl_info own;
        need(dladdr(reinterpret_cast<void *>(ibv_get_device_list), &own) != 0, "dladdr");
        auto *temporary = new TempFile;
        TempFile &copy = *temporary;
        std::ifstream in(own.dli_fname, std::ios::binary);
        std::ofstream(copy.path(), std::ios::binary) << in.rdbuf();
        for (bool close : {true, false}) {
            void *lib = dlopen(copy.path().c_str(), RTLD_NOW | RTLD_LOCAL);
            need(lib != nullptr, "dlopen");
            auto list = reinterpret_cast<decltype(&ibv_get_device_list)>(dlsym(lib, "ibv_get_device_list"));
            auto open = reinterpret_cast<decltype(&ibv_open_device)>(dlsym(lib, "ibv_open_device"));
            auto alloc = reinterpret_cast<decltype(&ibv_alloc_pd)>(dlsym(lib, "ibv_alloc_pd"));
            ibv_device **devices = list(nullptr);
            need(devices && devices[0], "devices");
            ibv_context *c = open(devices[0]);
            need(c != nullptr, "ibv_open_device");
            ibv_pd *pd = alloc(c);
            EXPECT_NE(pd, nullptr);
            EXPECT_EQ(dlclose(lib), 0);
            order("flap all 3 1"); // which its thread has to tell its context
            lib = dlopen(copy.path().c_str(), RTLD_NOW | RTLD_LOCAL);
            auto dealloc = reinterpret_cast<decltype(&ibv_dealloc_pd)>(dlsym(lib, "ibv_dealloc_pd"));
            auto done = reinterpret_cast<decltype(&ibv_close_device)>(dlsym(lib, "ibv_close_device"));
            auto drop = reinterpret_cast<decltype(&ibv_free_device_list)>(dlsym(lib, "ibv_free_device_list"));
            EXPECT_EQ(dealloc(pd), 0);
            if (close) {
                EXPECT_EQ(done(c), 0);
                drop(devices);
            }
            EXPECT_EQ(dlclose(lib), 0);
        }
        delete temporary;
        fflush(nullptr);
        exit(::testing::Test::HasFailure() ? 1 : 0); // with a device open
    });
    EXPECT_EQ(child.wait(), 0);
}

// A process may be in the fabric for long before it opens a device.
TEST_F(ContextTest, NothingIsHeardOfWhatWasBefore)
{
    Setting host("VERBS_SHIM_HOST", "h");
    int n = 0;
    ibv_device **list = ibv_get_device_list(&n);
    ASSERT_GE(n, 1);
    order("flap all 3 1");
    {
        Context c(ibv_open_device(list[0]));
        nonblocking(c->async_fd);
        order("link down all");
        pollfd fd = {c->async_fd, POLLIN, 0};
        ASSERT_EQ(poll(&fd, 1, -1), 1);
        EXPECT_EQ(ack_next(c), IBV_EVENT_PORT_ERR);
        ibv_async_event e;
        EXPECT_EQ(ibv_get_async_event(c, &e), -1) << ibv_event_type_str(e.event_type);
        order("link up all");
    }
    ibv_free_device_list(list);
}

TEST_F(ContextTest, ClosingOneContextLeavesTheOthersObjectsAlone)
{
    TempFile f;
    Node keep;
    Xrcd x = make_xrcd(keep.ctx, f.fd());
    Qp tgt = make_tgt(x);
    {
        Context c = open_device();
        Xrcd y = make_xrcd(c, f.fd());
        Qp opened = open_tgt(y, tgt->qp_num);
        ASSERT_TRUE(opened);
        useless.push_back(ibv_alloc_pd(c));
        ASSERT_TRUE(useless.back());
        leave(opened);
        leave(y);
    }
    EXPECT_EQ(state_of(tgt), IBV_QPS_RESET);
    Srq srq = make_xrc_srq(keep.pd, x, keep.cq);
    EXPECT_EQ(post_recv(srq, 1, {keep.sge(0, 8)}), 0);
}

// ---- preloading ----

// Where the library lies that this program runs with.
std::string library_path()
{
    std::string path;
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (fgets(line, sizeof(line), maps)) {
        char *p = strchr(line, '/');
        if (p && strstr(p, "libverbs_shim.so")) {
            path = std::string(p, strcspn(p, "\n"));
            break;
        }
    }
    fclose(maps);
    return path;
}

TEST_F(ContextTest, AnUnmodifiedProgramSeesTheDeviceWhenPreloaded)
{
    std::string lib = library_path();
    ASSERT_FALSE(lib.empty());
    std::string command = "env LD_PRELOAD='" + lib + "' ibv_devices";
    FILE *out = popen(command.c_str(), "r");
    ASSERT_NE(out, nullptr);
    std::string text;
    char line[256];
    while (fgets(line, sizeof(line), out))
        text += line;
    int status = pclose(out);
    if (WEXITSTATUS(status) == 127)
        GTEST_SKIP() << "no ibv_devices on this machine";
    if (!sanitized) {
        EXPECT_EQ(status, 0);
        EXPECT_NE(text.find("vshim0"), std::string::npos) << text;
    }
}

// ---- hosts and topologies ----

// A child of another simulated host, with its own choice of devices where it makes the segment.
Child on_host(const char *name, const std::function<void(const Link &)> &body)
{
    return Child([&](const Link &link) {
        setenv("VERBS_SHIM_HOST", name, 1);
        body(link);
    });
}

TEST_F(ContextTest, TwoSimulatedHostsHaveDifferentDevicesAndReachEachOther)
{
    struct Id {
        uint64_t guid;
        uint16_t lid;
        uint32_t qpn;
    };
    auto body = [](const Link &link) {
        Node n;
        ibv_device_attr dev;
        need(ibv_query_device(n.ctx, &dev) == 0, "ibv_query_device");
        Qp qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
        link.put(Id{dev.node_guid, n.lid, qp->qp_num});
        Id peer = link.get<Id>();
        EXPECT_NE(peer.guid, dev.node_guid);
        EXPECT_NE(peer.lid, n.lid);
        Path p;
        p.qpn = peer.qpn;
        p.lid = peer.lid;
        bring_up(qp, p);
        ASSERT_EQ(post_recv(qp, 1, {n.sge(0, 30000)}), 0);
        link.meet();
        EXPECT_EQ(Send(IBV_WR_SEND, {n.sge(30000, 30000)}).id(2).post(qp), 0);
        for (int i = 0; i < 2; i++)
            EXPECT_EQ(next_wc(n.cq).status, IBV_WC_SUCCESS);
        link.meet();
    };
    Child a = on_host("left", body), b = on_host("right", body);
    Id ia = a.link().get<Id>(), ib = b.link().get<Id>();
    a.link().put(ib);
    b.link().put(ia);
    for (int round = 0; round < 2; round++) {
        EXPECT_EQ(a.link().get<char>(), 'm');
        EXPECT_EQ(b.link().get<char>(), 'm');
        a.link().put('m');
        b.link().put('m');
    }
    EXPECT_EQ(a.wait(), 0);
    EXPECT_EQ(b.wait(), 0);
}

// An XRCD belongs to a device: the same file on two hosts keys two domains.
TEST_F(ContextTest, AFileIsNoBridgeBetweenHosts)
{
    TempFile f;
    Child a = on_host("left", [&](const Link &link) {
        Context c = open_device();
        Xrcd x = make_xrcd(c, f.fd());
        link.meet();
        link.meet();
    });
    a.link().meet();
    Child b = on_host("right", [&](const Link &) {
        Context c = open_device();
        EXPECT_EQ(try_open_xrcd(c, f.fd(), 0), nullptr);
        EXPECT_EQ(errno, EAGAIN);
    });
    EXPECT_EQ(b.wait(), 0);
    a.link().meet();
    EXPECT_EQ(a.wait(), 0);
}

TEST_F(ContextTest, BadHostNamesAreRefused)
{
    Child a = on_host(std::string(64, 'x').c_str(), [](const Link &) {
        int n = -1;
        EXPECT_EQ(ibv_get_device_list(&n), nullptr);
        EXPECT_EQ(errno, EINVAL);
        EXPECT_EQ(n, 0);
    });
    EXPECT_EQ(a.wait(), 0);
}

TEST_F(ContextTest, TheTopologyDecidesDevicesPortsAndLmc)
{
    Child a([](const Link &) {
        setenv("VERBS_SHIM_TOPOLOGY", "devices=3,ports=2,lmc=2", 1);
        int n = 0;
        ibv_device **list = ibv_get_device_list(&n);
        ASSERT_EQ(n, 3);
        std::vector<uint16_t> lids;
        for (int d = 0; d < n; d++) {
            EXPECT_EQ(std::string(ibv_get_device_name(list[d])), "vshim" + std::to_string(d));
            EXPECT_TRUE(vshim_device_is_software(list[d]));
            Context c = open_device(d);
            ibv_device_attr dev;
            ASSERT_EQ(ibv_query_device(c, &dev), 0);
            EXPECT_EQ(dev.phys_port_cnt, 2);
            EXPECT_EQ(ibv_get_device_guid(list[d]), dev.node_guid);
            for (uint8_t port = 1; port <= 2; port++) {
                ibv_port_attr attr;
                ASSERT_EQ(ibv_query_port(c, port, &attr), 0);
                EXPECT_EQ(attr.lmc, 2);
                EXPECT_EQ(attr.lid % 4, 0) << "the low LMC bits of a base LID are zero";
                lids.push_back(attr.lid);
            }
            ibv_port_attr attr;
            EXPECT_EQ(ibv_query_port(c, 0, &attr), EINVAL);
            EXPECT_EQ(ibv_query_port(c, 3, &attr), EINVAL);
        }
        std::sort(lids.begin(), lids.end());
        for (size_t i = 1; i < lids.size(); i++)
            EXPECT_GE(lids[i], lids[i - 1] + 4) << "ports own 2^LMC LIDs each";
        ibv_free_device_list(list);
    });
    EXPECT_EQ(a.wait(), 0);
}

// Both ends must name the LIDs the other sends from and to; with them traffic runs over path bits and second ports.
TEST_F(ContextTest, PathBitsAndSecondPortsCarryTraffic)
{
    Child a([](const Link &) {
        setenv("VERBS_SHIM_TOPOLOGY", "devices=2,ports=2,lmc=1", 1);
        Node x(1 << 16, all_access, 0), y(1 << 16, all_access, 1);
        ibv_port_attr px, py;
        ASSERT_EQ(ibv_query_port(x.ctx, 2, &px), 0);
        ASSERT_EQ(ibv_query_port(y.ctx, 1, &py), 0);
        for (uint8_t bits_x : {0, 1})
            for (uint8_t bits_y : {0, 1})
                for (bool right : {true, false}) {
                    Qp qx = make_qp(IBV_QPT_RC, x.pd, x.cq), qy = make_qp(IBV_QPT_RC, y.pd, y.cq);
                    Path p;
                    p.timeout = 1;
                    p.qpn = qy->qp_num;
                    p.lid = (uint16_t) (py.lid + bits_y);
                    p.path_bits = bits_x;
                    p.port = 2;
                    bring_up(qx, p);
                    p.qpn = qx->qp_num;
                    p.lid = (uint16_t) (px.lid + (right ? bits_x : !bits_x));
                    p.path_bits = bits_y;
                    p.port = 1;
                    bring_up(qy, p);
                    ASSERT_EQ(post_recv(qy, 1), 0);
                    EXPECT_EQ(outcome(qx, Send()), right ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR)
                        << "a packet from another LID than the path's is dropped";
                }
    });
    EXPECT_EQ(a.wait(), 0);
}

// What a port says it carries, and not a byte more.
TEST_F(ContextTest, TheLongestMessageOfAPort)
{
    Child a([](const Link &) {
        setenv("VERBS_SHIM_TOPOLOGY", "max_msg=5000", 1);
        Node x, y;
        ibv_port_attr port;
        ASSERT_EQ(ibv_query_port(x.ctx, 1, &port), 0);
        EXPECT_EQ(port.max_msg_sz, 5000u);
        for (auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ})
            for (uint32_t length : {5000u, 5001u}) {
                RcPair p(x, y);
                EXPECT_EQ(outcome(p.a, Send(opcode, {x.sge(0, length)}).at(y.addr(0), y.mr->rkey)),
                          length == 5000 ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR);
            }
    });
    EXPECT_EQ(a.wait(), 0);
}

// Ports are on the subnets in turn, HCAs near the NUMA nodes in turn. What one prefix says need not be true.
TEST_F(ContextTest, SubnetsDoNotReachEachOther)
{
    for (bool one_prefix : {false, true}) {
        Child a([one_prefix](const Link &) {
            const std::string topology = "devices=2,ports=2,numa=2,subnets=2";
            setenv("VERBS_SHIM_TOPOLOGY", (topology + (one_prefix ? ",prefixes=1" : "")).c_str(), 1);
            Node x(1 << 16, all_access, 0), y(1 << 16, all_access, 1);
            EXPECT_EQ(vshim_device_numa_node(x.ctx->device), 0);
            EXPECT_EQ(vshim_device_numa_node(y.ctx->device), 1);
            for (uint8_t from : {1, 2})
                for (uint8_t to : {1, 2}) {
                    ibv_port_attr px, py;
                    union ibv_gid gx, gy;
                    ASSERT_EQ(ibv_query_port(x.ctx, from, &px), 0);
                    ASSERT_EQ(ibv_query_port(y.ctx, to, &py), 0);
                    ASSERT_EQ(ibv_query_gid(x.ctx, from, 0, &gx), 0);
                    ASSERT_EQ(ibv_query_gid(y.ctx, to, 0, &gy), 0);
                    EXPECT_EQ(px.sm_lid == py.sm_lid, from == to);
                    EXPECT_EQ(gx.global.subnet_prefix == gy.global.subnet_prefix, one_prefix || from == to);
                    Qp qx = make_qp(IBV_QPT_RC, x.pd, x.cq), qy = make_qp(IBV_QPT_RC, y.pd, y.cq);
                    Path p;
                    p.timeout = 1;
                    p.qpn = qy->qp_num;
                    p.lid = py.lid;
                    p.port = from;
                    bring_up(qx, p);
                    p.qpn = qx->qp_num;
                    p.lid = px.lid;
                    p.port = to;
                    bring_up(qy, p);
                    ASSERT_EQ(post_recv(qy, 1), 0);
                    EXPECT_EQ(outcome(qx, Send()), from == to ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
                }
        });
        EXPECT_EQ(a.wait(), 0);
    }
}

TEST_F(ContextTest, NoDevicesIsAnEmptyListAndANonsenseTopologyAnError)
{
    Child none([](const Link &) {
        setenv("VERBS_SHIM_TOPOLOGY", "devices=0", 1);
        int n = -1;
        ibv_device **list = ibv_get_device_list(&n);
        ASSERT_NE(list, nullptr);
        EXPECT_EQ(n, 0);
        EXPECT_EQ(list[0], nullptr);
        ibv_free_device_list(list);
    });
    EXPECT_EQ(none.wait(), 0);
    Child bad([](const Link &) {
        setenv("VERBS_SHIM_TOPOLOGY", "devices=many", 1);
        EXPECT_EQ(ibv_get_device_list(nullptr), nullptr);
        EXPECT_EQ(errno, EINVAL);
    });
    EXPECT_EQ(bad.wait(), 0);
}

// ---- what ports say ----

TEST_F(ContextTest, PortGidAndPkeyTables)
{
    Context c = open_device();
    ibv_port_attr port;
    ASSERT_EQ(ibv_query_port(c, 1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
    EXPECT_GT(port.lid, 0);
    EXPECT_LT(port.lid, 0xc000);
    EXPECT_EQ(port.active_mtu, IBV_MTU_4096);
    ibv_device_attr dev;
    ASSERT_EQ(ibv_query_device(c, &dev), 0);
    EXPECT_TRUE(dev.device_cap_flags & IBV_DEVICE_XRC);
    union ibv_gid gid;
    for (int i = 0; i < port.gid_tbl_len; i++) {
        ASSERT_EQ(ibv_query_gid(c, 1, i, &gid), 0);
        EXPECT_EQ(be64toh(gid.global.subnet_prefix), 0xfe80000000000000u);
        EXPECT_NE(gid.global.interface_id, 0u);
    }
    EXPECT_NE(ibv_query_gid(c, 1, port.gid_tbl_len, &gid), 0);
    EXPECT_NE(ibv_query_gid(c, 1, -1, &gid), 0);
    EXPECT_NE(ibv_query_gid(c, 2, 0, &gid), 0);
    __be16 pkey;
    ASSERT_EQ(ibv_query_pkey(c, 1, 0, &pkey), 0);
    EXPECT_EQ(be16toh(pkey), 0xffff);
    EXPECT_EQ(ibv_get_pkey_index(c, 1, pkey), 0);
    EXPECT_EQ(ibv_get_pkey_index(c, 1, htobe16(0x1234)), -1);
    EXPECT_NE(ibv_query_pkey(c, 1, port.pkey_tbl_len, &pkey), 0);
    EXPECT_NE(ibv_query_pkey(c, 1, -1, &pkey), 0);
    ibv_device_attr_ex ex;
    ASSERT_EQ(ibv_query_device_ex(c, nullptr, &ex), 0);
    EXPECT_EQ(ex.orig_attr.node_guid, dev.node_guid);
}

TEST_F(ContextTest, AsyncGetOnAnEmptyQueueIsEagainWhenNonblocking)
{
    Context c = open_device();
    nonblocking(c->async_fd);
    ibv_async_event e;
    EXPECT_EQ(ibv_get_async_event(c, &e), -1);
    EXPECT_EQ(errno, EAGAIN);
}

TEST_F(ContextTest, ReadsOfTheAsyncFdBlockUntilAnEventComes)
{
    Context c = open_device();
    Xrcd x = make_xrcd(c);
    Qp tgt = make_tgt(x);
    Path p;
    p.qpn = 9;
    p.lid = 1;
    bring_up(tgt, p);
    ibv_event_type got{};
    std::thread reader([&] { got = ack_next(c); });
    ASSERT_EQ(to_state(tgt, IBV_QPS_ERR), 0);
    reader.join();
    EXPECT_EQ(got, IBV_EVENT_QP_LAST_WQE_REACHED);
}

} // namespace
