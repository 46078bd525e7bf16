// Ports of Ethernet: GIDs lead where LIDs do not, a GRH is a must, and nothing migrates.
//
// The rules are the kernel's: rdma_check_ah_attr (a GRH is required), ib_resolve_eth_dmac (the GID says where), is_valid_mcast_lid (groups
// have no LID), and ib_modify_qp, which refuses alternate paths where a link layer is not InfiniBand.
#include "conform/faults.h"

namespace
{

using namespace vt;

union ibv_gid gid_of(ibv_context *c)
{
    union ibv_gid gid;
    need(ibv_query_gid(c, 1, 0, &gid) == 0, "ibv_query_gid");
    return gid;
}

Path towards(const union ibv_gid &gid, uint32_t qpn)
{
    Path p;
    p.gid = &gid;
    p.qpn = qpn;
    return p;
}

// Two hosts' worth of objects in one process: of an HCA each.
class Roce : public vt::Test
{
  protected:
    Roce() : topology_("VERBS_SHIM_TOPOLOGY", "devices=2,roce=1")
    {
        n = std::make_unique<Node>();
        m = std::make_unique<Node>(1 << 16, all_access, 1);
        n_gid = gid_of(n->ctx);
        m_gid = gid_of(m->ctx);
    }
    void TearDown() override
    {
        n.reset();
        m.reset();
        vt::Test::TearDown();
    }
    void connect(ibv_qp *a, ibv_qp *b) const
    {
        bring_up(a, towards(m_gid, b->qp_num));
        bring_up(b, towards(n_gid, a->qp_num));
    }
    ibv_ah_attr to(const union ibv_gid &gid) const
    {
        ibv_ah_attr a = {};
        a.port_num = 1;
        a.is_global = 1;
        a.grh.dgid = gid;
        a.grh.hop_limit = 64;
        return a;
    }
    Setting topology_;
    std::unique_ptr<Node> n, m;
    union ibv_gid n_gid, m_gid;
};

TEST_F(Roce, WhatAPortTells)
{
    ibv_port_attr port;
    ibv_device_attr device;
    ibv_gid_entry entry;
    __be16 pkey;
    ASSERT_EQ(ibv_query_port(n->ctx, 1, &port), 0);
    EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    EXPECT_EQ(port.lid, 0);
    EXPECT_EQ(port.sm_lid, 0);
    EXPECT_EQ(port.lmc, 0);
    EXPECT_TRUE(port.flags & IBV_QPF_GRH_REQUIRED);
    EXPECT_EQ(port.pkey_tbl_len, 1);
    EXPECT_EQ(ibv_query_pkey(n->ctx, 1, 0, &pkey), 0);
    EXPECT_EQ(ibv_query_pkey(n->ctx, 1, 1, &pkey), -1);
    ASSERT_EQ(ibv_query_gid_ex(n->ctx, 1, 0, &entry, 0), 0);
    EXPECT_EQ(entry.gid_type, (uint32_t) IBV_GID_TYPE_ROCE_V2);
    ASSERT_EQ(ibv_query_device(n->ctx, &device), 0);
    EXPECT_FALSE(device.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG);
    EXPECT_TRUE(device.device_cap_flags & IBV_DEVICE_XRC);
}

TEST_F(Roce, AnAddressNeedsAGrhAndNoLid)
{
    ibv_ah_attr attr = to(m_gid);
    attr.is_global = 0;
    attr.dlid = 1;
    errno = 0;
    EXPECT_EQ(ibv_create_ah(n->pd, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    attr = to(m_gid);
    EXPECT_TRUE(Ah(ibv_create_ah(n->pd, &attr)));
    Qp qp = make_qp(IBV_QPT_RC, n->pd, n->cq);
    ASSERT_EQ(to_init(qp), 0);
    Path p;
    p.qpn = 5;
    p.lid = 1;
    EXPECT_EQ(to_rtr(qp, p), EINVAL);
    p.gid = &m_gid;
    p.lid = 0;
    EXPECT_EQ(to_rtr(qp, p), 0);
    ibv_qp_attr now;
    ibv_qp_init_attr init;
    ASSERT_EQ(ibv_query_qp(qp, &now, IBV_QP_AV, &init), 0);
    EXPECT_EQ(now.ah_attr.dlid, 0);
    EXPECT_TRUE(now.ah_attr.is_global);
    EXPECT_EQ(memcmp(&now.ah_attr.grh.dgid, &m_gid, sizeof(m_gid)), 0);
}

TEST_F(Roce, MessagesOfRcAndXrcArrive)
{
    Qp a = make_qp(IBV_QPT_RC, n->pd, n->cq), b = make_qp(IBV_QPT_RC, m->pd, m->cq);
    connect(a, b);
    memset(n->mem.data(), 0x5a, 300);
    ASSERT_EQ(post_recv(b, 1, {m->sge(0, 300)}), 0);
    EXPECT_EQ(outcome(a, Send(IBV_WR_SEND, {n->sge(0, 300)})), IBV_WC_SUCCESS);
    EXPECT_EQ(next_wc(m->cq).byte_len, 300u);
    EXPECT_EQ(memcmp(m->mem.data(), n->mem.data(), 300), 0);

    Xrcd xrcd = make_xrcd(m->ctx);
    Srq srq = make_xrc_srq(m->pd, xrcd, m->cq);
    Qp ini = make_qp(IBV_QPT_XRC_SEND, n->pd, n->cq), tgt = make_tgt(xrcd);
    connect(ini, tgt);
    ASSERT_EQ(post_recv(srq, 2, {m->sge(1000, 300)}), 0);
    EXPECT_EQ(outcome(ini, Send(IBV_WR_SEND, {n->sge(0, 300)}).to_srq(srq_num(srq))), IBV_WC_SUCCESS);
    EXPECT_EQ(next_wc(m->cq).wr_id, 2u);
    EXPECT_EQ(memcmp(&m->mem[1000], n->mem.data(), 300), 0);
}

TEST_F(Roce, PacketsToAGidThatNobodyHasGetLost)
{
    union ibv_gid nobody = m_gid;
    nobody.raw[15] ^= 0x40;
    Qp qp = make_qp(IBV_QPT_RC, n->pd, n->cq);
    bring_up(qp, towards(nobody, 5));
    EXPECT_EQ(outcome(qp, Send()), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Roce, DatagramsComeWithAGrhThatLeadsBack)
{
    Qp a = make_qp(IBV_QPT_UD, n->pd, n->cq), b = make_qp(IBV_QPT_UD, m->pd, m->cq);
    bring_up(a, {});
    bring_up(b, {});
    ibv_ah_attr attr = to(m_gid);
    Ah ah(ibv_create_ah(n->pd, &attr));
    ASSERT_TRUE(ah);
    ASSERT_EQ(post_recv(b, 1, {m->sge(0, 500)}), 0);
    EXPECT_EQ(outcome(a, Send(IBV_WR_SEND, {n->sge(0, 8)}).datagram(ah, b->qp_num, 0x11111111)), IBV_WC_SUCCESS);
    ibv_wc wc = next_wc(m->cq);
    ibv_grh grh;
    memcpy(&grh, m->mem.data(), sizeof(grh));
    EXPECT_TRUE(wc.wc_flags & IBV_WC_GRH);
    EXPECT_EQ(wc.slid, 0);
    EXPECT_EQ(memcmp(&grh.sgid, &n_gid, sizeof(n_gid)), 0);
    EXPECT_EQ(memcmp(&grh.dgid, &m_gid, sizeof(m_gid)), 0);
    Ah back(ibv_create_ah_from_wc(m->pd, &wc, &grh, 1));
    ASSERT_TRUE(back);
    ASSERT_EQ(post_recv(a, 2, {n->sge(1000, 500)}), 0);
    EXPECT_EQ(outcome(b, Send(IBV_WR_SEND, {m->sge(0, 8)}).datagram(back, a->qp_num, 0x11111111)), IBV_WC_SUCCESS);
    EXPECT_EQ(next_wc(n->cq).wr_id, 2u);
}

TEST_F(Roce, GroupsAreKnownByTheirGidsAlone)
{
    union ibv_gid group = {};
    group.raw[0] = 0xff;
    group.raw[1] = 0x0e;
    group.raw[15] = 7;
    Qp a = make_qp(IBV_QPT_UD, n->pd, n->cq), b = make_qp(IBV_QPT_UD, m->pd, m->cq);
    bring_up(a, {});
    bring_up(b, {});
    ASSERT_EQ(ibv_attach_mcast(b, &group, 0), 0);
    ibv_ah_attr attr = to(group);
    Ah ah(ibv_create_ah(n->pd, &attr));
    ASSERT_TRUE(ah);
    ASSERT_EQ(post_recv(b, 1, {m->sge(0, 500)}), 0);
    EXPECT_EQ(outcome(a, Send(IBV_WR_SEND, {n->sge(0, 8)}).datagram(ah, 0xffffff, 0x11111111)), IBV_WC_SUCCESS);
    EXPECT_EQ(next_wc(m->cq).wr_id, 1u);
    EXPECT_EQ(ibv_detach_mcast(b, &group, 0), 0);
    Qp connected = make_qp(IBV_QPT_RC, n->pd, n->cq);
    ASSERT_EQ(to_init(connected), 0);
    EXPECT_EQ(to_rtr(connected, towards(group, 5)), EINVAL) << "a group is no peer";
}

TEST_F(Roce, NothingMigrates)
{
    Qp a = make_qp(IBV_QPT_RC, n->pd, n->cq), b = make_qp(IBV_QPT_RC, m->pd, m->cq);
    connect(a, b);
    ibv_qp_attr attr = {};
    attr.alt_port_num = attr.alt_ah_attr.port_num = 1;
    attr.alt_ah_attr = to(m_gid);
    attr.alt_timeout = 8;
    attr.path_mig_state = IBV_MIG_REARM;
    EXPECT_EQ(ibv_modify_qp(a, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE), EINVAL);
    EXPECT_EQ(ibv_modify_qp(a, &attr, IBV_QP_ALT_PATH), EINVAL);
    EXPECT_EQ(ibv_modify_qp(a, &attr, IBV_QP_PATH_MIG_STATE), EINVAL);
    order("caps -apm");
    EXPECT_EQ(ibv_modify_qp(a, &attr, IBV_QP_ALT_PATH), EINVAL) << "the link layer is looked at first";
    ibv_qp_init_attr init;
    ASSERT_EQ(ibv_query_qp(a, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE, &init), 0);
    EXPECT_EQ(attr.alt_port_num, 0) << "nothing was loaded";
    EXPECT_EQ(attr.path_mig_state, IBV_MIG_MIGRATED);
}

} // namespace
