// What is refused, and how: one table of verbs, circumstances and errno values. Each row is tried and printed; what was refused has
// changed nothing, so that everything can be destroyed at the end.
#include "conform/pair.h"
#include "conform/peer.h"

#include <functional>

namespace
{

using namespace vt;

// Of a verb that returns an object.
int why(const void *object)
{
    return object ? 0 : errno;
}

// One of everything.
struct World {
    Node n;
    TempFile file, unlisted;
    Xrcd xrcd = make_xrcd(n.ctx, file.fd()), other = make_xrcd(n.ctx);
    Channel channel{ibv_create_comp_channel(n.ctx)};
    Cq cq = make_cq(n.ctx, 8, channel);
    Srq basic = make_srq(n.pd, 2, 2), xrc = make_xrc_srq(n.pd, xrcd, cq, 2, 2);
    Qp tgt = make_tgt(xrcd), handle = open_tgt(xrcd, tgt->qp_num), foreign = make_tgt(other);
    Qp ini = make_qp(IBV_QPT_XRC_SEND, n.pd, n.cq), rc = make_qp(IBV_QPT_RC, n.pd, n.cq, basic),
       ud = make_qp(IBV_QPT_UD, n.pd, n.cq);
    Pd mr_pd{ibv_alloc_pd(n.ctx)}, ah_pd{ibv_alloc_pd(n.ctx)}, srq_pd{ibv_alloc_pd(n.ctx)}, qp_pd{ibv_alloc_pd(n.ctx)};
    Mr mr{ibv_reg_mr(mr_pd, n.mem.data(), 8, 0)};
    Srq of_srq_pd = make_srq(srq_pd);
    Qp of_qp_pd = make_qp(IBV_QPT_RC, qp_pd, n.cq);
    Ah ah;
    ibv_device_attr dev = {};

    World()
    {
        ah = make_ah(ah_pd, n.lid);
        need(mr && handle && ibv_query_device(n.ctx, &dev) == 0, "the world");
        need(to_init(ud) == 0 && ibv_attach_mcast(ud, &group, 0xc001) == 0, "ibv_attach_mcast");
        for (ibv_srq *srq : {(ibv_srq *) basic, (ibv_srq *) xrc})
            need(post_recv(srq, 1) == 0 && post_recv(srq, 2) == 0, "post_recv");
    }
    ~World()
    {
        EXPECT_EQ(ibv_detach_mcast(ud, &group, 0xc001), 0);
    }
    ibv_gid group = {{0xff, 0x12}};

    int open_domain(uint32_t mask, int fd, int oflags)
    {
        ibv_xrcd_init_attr a = {mask, fd, oflags};
        return why(ibv_open_xrcd(n.ctx, &a));
    }
    int create_srq(uint32_t mask, ibv_srq_type type, uint32_t max_wr = 4, uint32_t max_sge = 1)
    {
        ibv_srq_init_attr_ex a = {};
        a.attr.max_wr = max_wr;
        a.attr.max_sge = max_sge;
        a.comp_mask = mask;
        a.srq_type = type;
        a.pd = n.pd;
        a.xrcd = xrcd;
        a.cq = cq;
        return why(ibv_create_srq_ex(n.ctx, &a));
    }
    int modify_srq(ibv_srq *srq, uint32_t limit, int mask)
    {
        ibv_srq_attr a = {4, 0, limit};
        return ibv_modify_srq(srq, &a, mask);
    }
    int create_qp(ibv_qp_type type, const std::function<void(ibv_qp_init_attr_ex &)> &change)
    {
        auto a = qp_attr(type, n.pd, n.cq);
        if (type == IBV_QPT_XRC_RECV) {
            a.comp_mask = IBV_QP_INIT_ATTR_XRCD;
            a.xrcd = xrcd;
        }
        change(a);
        return why(ibv_create_qp_ex(n.ctx, &a));
    }
    int open_qp(const std::function<void(ibv_qp_open_attr &)> &change)
    {
        auto a = open_attr(xrcd, tgt->qp_num);
        change(a);
        return why(ibv_open_qp(n.ctx, &a));
    }
    int modify_qp(ibv_qp *qp, int mask, const std::function<void(ibv_qp_attr &)> &change)
    {
        ibv_qp_attr a = {};
        a.qp_state = IBV_QPS_INIT;
        a.port_num = 1;
        change(a);
        return ibv_modify_qp(qp, &a, mask);
    }
};

struct Row {
    const char *verb, *when;
    int want;
    std::function<int(World &)> run;
};

constexpr uint32_t xrcd_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
constexpr uint32_t srq_pd = IBV_SRQ_INIT_ATTR_PD, srq_type = IBV_SRQ_INIT_ATTR_TYPE, srq_xrcd = IBV_SRQ_INIT_ATTR_XRCD,
                   srq_cq = IBV_SRQ_INIT_ATTR_CQ;
constexpr int init_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

const Row domains[] = {
    {"open_xrcd", "unknown comp_mask bit", EOPNOTSUPP,
     [](World &w) { return w.open_domain(xrcd_mask | 4, -1, O_CREAT); }},
    {"open_xrcd", "without FD", EINVAL, [](World &w) { return w.open_domain(IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT); }},
    {"open_xrcd", "without OFLAGS", EINVAL, [](World &w) { return w.open_domain(IBV_XRCD_INIT_ATTR_FD, -1, O_CREAT); }},
    {"open_xrcd", "descriptor that is not open", EBADF,
     [](World &w) { return w.open_domain(xrcd_mask, 1 << 20, O_CREAT); }},
    {"open_xrcd", "unlisted inode, without O_CREAT", EAGAIN,
     [](World &w) { return w.open_domain(xrcd_mask, w.unlisted.fd(), 0); }},
    {"open_xrcd", "unlisted inode, O_EXCL alone", EAGAIN,
     [](World &w) { return w.open_domain(xrcd_mask, w.unlisted.fd(), O_EXCL); }},
    {"open_xrcd", "listed inode, O_EXCL", EINVAL,
     [](World &w) { return w.open_domain(xrcd_mask, w.file.fd(), O_EXCL); }},
    {"open_xrcd", "listed inode, O_CREAT and O_EXCL", EINVAL,
     [](World &w) { return w.open_domain(xrcd_mask, w.file.fd(), O_CREAT | O_EXCL); }},
    {"close_xrcd", "SRQ and TGT handles", EBUSY, [](World &w) { return ibv_close_xrcd(w.xrcd); }},
    {"close_xrcd", "a TGT handle", EBUSY, [](World &w) { return ibv_close_xrcd(w.other); }},
    {"open_qp", "unknown comp_mask bit", EOPNOTSUPP,
     [](World &w) { return w.open_qp([](auto &a) { a.comp_mask |= 16; }); }},
    {"open_qp", "without NUM", EINVAL,
     [](World &w) { return w.open_qp([](auto &a) { a.comp_mask &= ~IBV_QP_OPEN_ATTR_NUM; }); }},
    {"open_qp", "without XRCD", EINVAL,
     [](World &w) { return w.open_qp([](auto &a) { a.comp_mask &= ~IBV_QP_OPEN_ATTR_XRCD; }); }},
    {"open_qp", "without TYPE", EINVAL,
     [](World &w) { return w.open_qp([](auto &a) { a.comp_mask &= ~IBV_QP_OPEN_ATTR_TYPE; }); }},
    {"open_qp", "a type that is not shared", EINVAL,
     [](World &w) { return w.open_qp([](auto &a) { a.qp_type = IBV_QPT_RC; }); }},
    {"open_qp", "number of another domain", EINVAL,
     [](World &w) { return w.open_qp([&w](auto &a) { a.qp_num = w.foreign->qp_num; }); }},
    {"open_qp", "number of no TGT QP", EINVAL,
     [](World &w) { return w.open_qp([&w](auto &a) { a.qp_num = w.rc->qp_num; }); }},
};

const Row srqs[] = {
    {"create_srq_ex", "unknown comp_mask bit", EOPNOTSUPP,
     [](World &w) { return w.create_srq(srq_pd | srq_type | 1 << 9, IBV_SRQT_BASIC); }},
    {"create_srq_ex", "without PD", EINVAL,
     [](World &w) { return w.create_srq(srq_type | srq_xrcd | srq_cq, IBV_SRQT_XRC); }},
    {"create_srq_ex", "XRC without a domain", EINVAL,
     [](World &w) { return w.create_srq(srq_type | srq_pd | srq_cq, IBV_SRQT_XRC); }},
    {"create_srq_ex", "XRC without a CQ", EINVAL,
     [](World &w) { return w.create_srq(srq_type | srq_pd | srq_xrcd, IBV_SRQT_XRC); }},
    {"create_srq_ex", "tag matching", EOPNOTSUPP,
     [](World &w) { return w.create_srq(srq_type | srq_pd | srq_cq, IBV_SRQT_TM); }},
    {"create_srq_ex", "max_wr over the device's", EINVAL,
     [](World &w) { return w.create_srq(srq_type | srq_pd, IBV_SRQT_BASIC, (uint32_t) w.dev.max_srq_wr + 1); }},
    {"create_srq_ex", "max_sge over the device's", EINVAL,
     [](World &w) { return w.create_srq(srq_type | srq_pd, IBV_SRQT_BASIC, 4, (uint32_t) w.dev.max_srq_sge + 1); }},
    {"modify_srq", "MAX_WR", EINVAL, [](World &w) { return w.modify_srq(w.xrc, 0, IBV_SRQ_MAX_WR); }},
    {"modify_srq", "a limit that is not below max_wr", EINVAL,
     [](World &w) { return w.modify_srq(w.xrc, 2, IBV_SRQ_LIMIT); }},
    {"get_srq_num", "basic SRQ", EOPNOTSUPP,
     [](World &w) {
         uint32_t n;
         return ibv_get_srq_num(w.basic, &n);
     }},
    {"post_srq_recv", "full", ENOMEM, [](World &w) { return post_recv(w.xrc, 3); }},
    {"post_srq_recv", "num_sge over max_sge", EINVAL,
     [](World &w) { return post_recv(w.xrc, 3, std::vector<ibv_sge>(3)); }},
    {"destroy_srq", "basic, a QP", EBUSY, [](World &w) { return ibv_destroy_srq(w.basic); }},
};

const Row qps[] = {
    {"create_qp_ex", "INI without PD", EINVAL,
     [](World &w) { return w.create_qp(IBV_QPT_XRC_SEND, [](auto &a) { a.comp_mask = 0; }); }},
    {"create_qp_ex", "INI with a domain", EINVAL,
     [](World &w) {
         return w.create_qp(IBV_QPT_XRC_SEND, [&w](auto &a) {
             a.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
             a.xrcd = w.xrcd;
         });
     }},
    {"create_qp_ex", "INI with an SRQ", EINVAL,
     [](World &w) { return w.create_qp(IBV_QPT_XRC_SEND, [&w](auto &a) { a.srq = w.basic; }); }},
    {"create_qp_ex", "INI with create_flags", EINVAL,
     [](World &w) {
         return w.create_qp(IBV_QPT_XRC_SEND, [](auto &a) {
             a.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
             a.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
         });
     }},
    {"create_qp_ex", "TGT without a domain", EINVAL,
     [](World &w) { return w.create_qp(IBV_QPT_XRC_RECV, [](auto &a) { a.comp_mask = 0; }); }},
    {"create_qp_ex", "TGT with a basic SRQ", EINVAL,
     [](World &w) { return w.create_qp(IBV_QPT_XRC_RECV, [&w](auto &a) { a.srq = w.basic; }); }},
    {"create_qp_ex", "RC with an XRC SRQ", EINVAL,
     [](World &w) { return w.create_qp(IBV_QPT_RC, [&w](auto &a) { a.srq = w.xrc; }); }},
    {"create_qp_ex", "RC without recv_cq", EINVAL,
     [](World &w) { return w.create_qp(IBV_QPT_RC, [](auto &a) { a.recv_cq = nullptr; }); }},
    {"create_qp_ex", "max_send_wr over the device's", EINVAL,
     [](World &w) {
         return w.create_qp(IBV_QPT_RC, [&w](auto &a) { a.cap.max_send_wr = (uint32_t) w.dev.max_qp_wr + 1; });
     }},
    {"create_qp_ex", "raw packets", EOPNOTSUPP,
     [](World &w) { return w.create_qp(IBV_QPT_RAW_PACKET, [](auto &) {}); }},
    {"create_qp", "TGT", EINVAL,
     [](World &w) {
         ibv_qp_init_attr a = {};
         a.qp_type = IBV_QPT_XRC_RECV;
         return why(ibv_create_qp(w.n.pd, &a));
     }},
    {"modify_qp", "unknown mask bit", EOPNOTSUPP,
     [](World &w) { return w.modify_qp(w.ini, init_mask | 1 << 30, [](auto &) {}); }},
    {"modify_qp", "no such port", EINVAL,
     [](World &w) { return w.modify_qp(w.ini, init_mask, [](auto &a) { a.port_num = 9; }); }},
    {"modify_qp", "no such P_Key index", EINVAL,
     [](World &w) { return w.modify_qp(w.ini, init_mask, [](auto &a) { a.pkey_index = 999; }); }},
    {"modify_qp", "no state", EINVAL,
     [](World &w) { return w.modify_qp(w.ini, init_mask, [](auto &a) { a.qp_state = (ibv_qp_state) 7; }); }},
    {"modify_qp", "another current state", EINVAL,
     [](World &w) {
         return w.modify_qp(w.ini, init_mask | IBV_QP_CUR_STATE, [](auto &a) { a.cur_qp_state = IBV_QPS_RTS; });
     }},
    {"modify_qp", "RESET to ERR", EINVAL, [](World &w) { return to_state(w.ini, IBV_QPS_ERR); }},
    {"post_send", "TGT", EOPNOTSUPP, [](World &w) { return Send().post(w.tgt); }},
    {"post_send", "before RTS", EINVAL, [](World &w) { return Send().post(w.ini); }},
    {"post_recv", "TGT", EOPNOTSUPP, [](World &w) { return post_recv(w.tgt, 1); }},
    {"post_recv", "INI", EINVAL, [](World &w) { return post_recv(w.ini, 1); }},
    {"post_recv", "RC with an SRQ", EINVAL, [](World &w) { return post_recv(w.rc, 1); }},
    {"destroy_qp", "in a multicast group", EBUSY, [](World &w) { return ibv_destroy_qp(w.ud); }},
};

const Row others[] = {
    {"dealloc_pd", "an MR", EBUSY, [](World &w) { return ibv_dealloc_pd(w.mr_pd); }},
    {"dealloc_pd", "an AH", EBUSY, [](World &w) { return ibv_dealloc_pd(w.ah_pd); }},
    {"dealloc_pd", "an SRQ", EBUSY, [](World &w) { return ibv_dealloc_pd(w.srq_pd); }},
    {"dealloc_pd", "a QP", EBUSY, [](World &w) { return ibv_dealloc_pd(w.qp_pd); }},
    {"destroy_cq", "an XRC SRQ", EBUSY, [](World &w) { return ibv_destroy_cq(w.cq); }},
    {"destroy_cq", "QPs", EBUSY, [](World &w) { return ibv_destroy_cq(w.n.cq); }},
    {"destroy_comp_channel", "a CQ", EBUSY, [](World &w) { return ibv_destroy_comp_channel(w.channel); }},
    {"create_cq", "no completion", EINVAL,
     [](World &w) { return why(ibv_create_cq(w.n.ctx, 0, nullptr, nullptr, 0)); }},
    {"create_cq", "no such vector", EINVAL,
     [](World &w) { return why(ibv_create_cq(w.n.ctx, 4, nullptr, nullptr, 9999)); }},
    {"resize_cq", "no completion", EINVAL, [](World &w) { return ibv_resize_cq(w.cq, 0); }},
    {"reg_mr", "remote write without local write", EINVAL,
     [](World &w) { return why(ibv_reg_mr(w.n.pd, w.n.mem.data(), 8, IBV_ACCESS_REMOTE_WRITE)); }},
    {"reg_mr", "on demand", EOPNOTSUPP,
     [](World &w) { return why(ibv_reg_mr(w.n.pd, w.n.mem.data(), 8, IBV_ACCESS_ON_DEMAND)); }},
    {"query_port", "no such port", EINVAL,
     [](World &w) {
         ibv_port_attr a;
         return ibv_query_port(w.n.ctx, 9, &a);
     }},
};

class Errno : public vt::Test
{
  protected:
    template <size_t N> void expect(const Row (&rows)[N])
    {
        World w;
        for (const Row &r : rows) {
            int err = r.run(w);
            printf("%-22s %-36s %s\n", r.verb, r.when, strerrorname_np(r.want));
            EXPECT_EQ(err, r.want) << r.verb << ", " << r.when;
        }
    }
};

TEST_F(Errno, DomainsAndSharedQps)
{
    expect(domains);
}

TEST_F(Errno, SharedReceiveQueues)
{
    expect(srqs);
}

TEST_F(Errno, QueuePairs)
{
    expect(qps);
}

TEST_F(Errno, WhatTheyUse)
{
    expect(others);
}

} // namespace
