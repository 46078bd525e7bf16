// ibv_create_cq_ex with its poll sessions, and ibv_resize_cq, also while another process completes into the CQ.
#include "conform/faults.h"
#include "conform/peer.h"

namespace
{

using namespace vt;

using CqEx = std::unique_ptr<ibv_cq_ex, void (*)(ibv_cq_ex *)>;

CqEx make_cq_ex(ibv_context *c, uint64_t wc_flags, uint32_t comp_mask = 0, uint32_t flags = 0, uint32_t cqe = 64)
{
    ibv_cq_init_attr_ex a = {};
    a.cqe = cqe;
    a.wc_flags = wc_flags;
    a.comp_mask = comp_mask;
    a.flags = flags;
    errno = 0;
    return CqEx(ibv_create_cq_ex(c, &a), [](ibv_cq_ex *cq) { EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0); });
}

class CqExTest : public vt::Test
{
};

TEST_F(CqExTest, WhatCanBeAskedFor)
{
    Context c = open_device();
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t flag = UINT64_C(1) << bit;
        bool ok = (flag & IBV_WC_STANDARD_FLAGS) == flag;
        CqEx cq = make_cq_ex(c, flag);
        EXPECT_EQ((bool)cq, ok) << "wc_flags bit " << bit;
        if (!cq) {
            EXPECT_EQ(errno, EOPNOTSUPP) << bit;
        }
    }
    EXPECT_TRUE(make_cq_ex(c, IBV_WC_STANDARD_FLAGS));
    EXPECT_TRUE(make_cq_ex(c, 0, IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_SINGLE_THREADED));
    EXPECT_FALSE(make_cq_ex(c, 0, IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN));
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_FALSE(make_cq_ex(c, 0, 1u << 20));
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_FALSE(make_cq_ex(c, 0, 0, 0, 0)) << "no entries";
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(make_cq_ex(c, 0, 0, 0, UINT32_MAX));
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(CqExTest, ReadsEverything)
{
    Node n;
    CqEx ex = make_cq_ex(n.ctx, IBV_WC_STANDARD_FLAGS);
    ASSERT_TRUE(ex);
    Qp one = make_qp(IBV_QPT_UD, n.pd, n.cq), two = make_qp(IBV_QPT_UD, n.pd, ibv_cq_ex_to_cq(ex.get()));
    bring_up(one, {});
    bring_up(two, {});
    ibv_ah_attr a = {};
    a.dlid = n.lid;
    a.port_num = 1;
    a.sl = 3;
    Ah ah(ibv_create_ah(n.pd, &a));
    ibv_poll_cq_attr poll = {};
    EXPECT_EQ(ibv_start_poll(ex.get(), &poll), ENOENT);
    for (uint32_t i = 1; i <= 3; i++) {
        ASSERT_EQ(post_recv(two, 100 + i, {n.sge(8192, 256)}), 0);
        ASSERT_EQ(outcome(one, Send(IBV_WR_SEND_WITH_IMM, {n.sge(0, 8 * i)}).datagram(ah, two->qp_num, 0x11111111).imm(i)), IBV_WC_SUCCESS);
    }
    ASSERT_EQ(ibv_start_poll(ex.get(), &poll), 0);
    for (uint32_t i = 1; i <= 3; i++) {
        EXPECT_EQ(ex->wr_id, 100 + i);
        EXPECT_EQ(ex->status, IBV_WC_SUCCESS);
        EXPECT_EQ(ibv_wc_read_opcode(ex.get()), IBV_WC_RECV);
        EXPECT_EQ(ibv_wc_read_vendor_err(ex.get()), 0u);
        EXPECT_EQ(ibv_wc_read_byte_len(ex.get()), 40 + 8 * i);
        EXPECT_EQ(be32toh(ibv_wc_read_imm_data(ex.get())), i);
        EXPECT_EQ(ibv_wc_read_qp_num(ex.get()), two->qp_num);
        EXPECT_EQ(ibv_wc_read_src_qp(ex.get()), one->qp_num);
        EXPECT_EQ(ibv_wc_read_wc_flags(ex.get()), (unsigned)IBV_WC_WITH_IMM);
        EXPECT_EQ(ibv_wc_read_slid(ex.get()), n.lid);
        EXPECT_EQ(ibv_wc_read_sl(ex.get()), 3);
        EXPECT_EQ(ibv_wc_read_dlid_path_bits(ex.get()), 0);
        EXPECT_EQ(ibv_next_poll(ex.get()), i < 3 ? 0 : ENOENT);
    }
    ibv_end_poll(ex.get());
    EXPECT_EQ(ibv_start_poll(ex.get(), &poll), ENOENT);
    poll.comp_mask = 1;
    EXPECT_EQ(ibv_start_poll(ex.get(), &poll), EINVAL);
    ah = Ah();
}

TEST_F(CqExTest, OldAndNewPollsMix)
{
    Node n;
    CqEx ex = make_cq_ex(n.ctx, IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM);
    ibv_cq *cq = ibv_cq_ex_to_cq(ex.get());
    Qp one = make_qp(IBV_QPT_RC, n.pd, cq), two = make_qp(IBV_QPT_RC, n.pd, cq);
    connect(one, n.lid, two, n.lid);
    for (uint64_t i = 1; i <= 6; i++)
        ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, {n.sge(0, 8)}).at(n.addr(64), n.mr->rkey).id(i).post(one), 0);
    ibv_poll_cq_attr poll = {};
    for (uint64_t i = 1; i <= 6; i += 2) {
        EXPECT_EQ(next_wc(cq).wr_id, i);
        ASSERT_EQ(ibv_start_poll(ex.get(), &poll), 0);
        EXPECT_EQ(ex->wr_id, i + 1);
        EXPECT_EQ(ibv_wc_read_opcode(ex.get()), IBV_WC_RDMA_WRITE);
        ibv_end_poll(ex.get());
    }
    ASSERT_EQ(to_state(one, IBV_QPS_ERR), 0);
    ASSERT_EQ(Send(IBV_WR_SEND).id(7).post(one), 0);
    ASSERT_EQ(ibv_start_poll(ex.get(), &poll), 0);
    EXPECT_EQ(ex->status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(ibv_wc_read_qp_num(ex.get()), one->qp_num);
    ibv_end_poll(ex.get());
}

TEST_F(CqExTest, ThroughAChannel)
{
    Node n;
    Channel ch(ibv_create_comp_channel(n.ctx));
    ibv_cq_init_attr_ex a = {};
    a.cqe = 16;
    a.channel = ch;
    int mark;
    a.cq_context = &mark;
    CqEx ex(ibv_create_cq_ex(n.ctx, &a), [](ibv_cq_ex *cq) { EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0); });
    ASSERT_TRUE(ex);
    ibv_cq *cq = ibv_cq_ex_to_cq(ex.get()), *told;
    EXPECT_EQ(ibv_destroy_comp_channel(ch), EBUSY);
    Qp one = make_qp(IBV_QPT_RC, n.pd, cq), two = make_qp(IBV_QPT_RC, n.pd, cq);
    connect(one, n.lid, two, n.lid);
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
    ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, {n.sge(0, 8)}).at(n.addr(64), n.mr->rkey).post(one), 0);
    void *context;
    ASSERT_EQ(ibv_get_cq_event(ch, &told, &context), 0);
    EXPECT_EQ(told, cq);
    EXPECT_EQ(context, &mark);
    ibv_ack_cq_events(cq, 1);
}

// ---- resizing ----

TEST_F(CqExTest, ResizeKeepsTheUnread)
{
    Node n;
    Cq cq = make_cq(n.ctx, 16);
    Qp one = make_qp(IBV_QPT_RC, n.pd, cq), two = make_qp(IBV_QPT_RC, n.pd, n.cq);
    connect(one, n.lid, two, n.lid);
    uint64_t posted = 0, read = 0;
    auto post = [&](int k) {
        while (k--)
            ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, {n.sge(0, 8)}).at(n.addr(64), n.mr->rkey).id(posted++).post(one), 0);
    };
    auto take = [&](int k) {
        while (k--)
            ASSERT_EQ(next_wc(cq).wr_id, read++);
    };
    post(15);
    take(5);
    for (int size : {100, 20, 31, 1000, 63, 15, 500, 16}) {
        ASSERT_EQ(ibv_resize_cq(cq, size), 0) << size;
        EXPECT_GE(cq->cqe, size);
        take(2);
        post(2);
    }
    ASSERT_EQ(ibv_resize_cq(cq, 63), 0);
    post(40);
    int had = cq->cqe;
    EXPECT_EQ(ibv_resize_cq(cq, 16), EINVAL) << "50 completions are unread";
    EXPECT_EQ(cq->cqe, had);
    EXPECT_EQ(ibv_resize_cq(cq, 0), EINVAL);
    EXPECT_EQ(ibv_resize_cq(cq, -1), EINVAL);
    EXPECT_EQ(ibv_resize_cq(cq, 1 << 20), EINVAL);
    take(50);
    EXPECT_TRUE(cq_empty(cq));
    EXPECT_EQ(ibv_resize_cq(cq, 16), 0);
    check_fabric();
}

TEST_F(CqExTest, ResizeKeepsWhatIsArmed)
{
    Node n;
    Channel ch(ibv_create_comp_channel(n.ctx));
    Cq cq = make_cq(n.ctx, 16, ch);
    Qp one = make_qp(IBV_QPT_RC, n.pd, cq), two = make_qp(IBV_QPT_RC, n.pd, cq);
    connect(one, n.lid, two, n.lid);
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
    ASSERT_EQ(ibv_resize_cq(cq, 200), 0);
    ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, {n.sge(0, 8)}).at(n.addr(64), n.mr->rkey).post(one), 0);
    ibv_cq *told;
    void *context;
    ASSERT_EQ(ibv_get_cq_event(ch, &told, &context), 0);
    ibv_ack_cq_events(cq, 1);
}

// Another process sends without pause while this one resizes: every completion is there once, in order.
TEST_F(CqExTest, ResizeUnderTraffic)
{
    constexpr uint64_t messages = 4000;
    Child sender([](const Link &link) {
        Node n;
        Qp qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
        connect_over(link, qp, n);
        link.meet();
        for (uint64_t i = 0; i < messages; i++)
            ASSERT_EQ(outcome(qp, Send(IBV_WR_SEND_WITH_IMM, {}).imm((uint32_t)i)), IBV_WC_SUCCESS);
        link.meet();
    });
    Node n;
    Cq cq = make_cq(n.ctx, 200);
    Qp qp = make_qp(IBV_QPT_RC, n.pd, cq);
    connect_over(sender.link(), qp, n);
    for (uint64_t i = 0; i < 64; i++)
        ASSERT_EQ(post_recv(qp, i), 0);
    sender.link().meet();
    const int sizes[] = {100, 500, 70, 2000, 64};
    for (uint64_t i = 0; i < messages; i++) {
        if (i % 50 == 0) {
            ASSERT_EQ(ibv_resize_cq(cq, sizes[i / 50 % 5]), 0);
        }
        ibv_wc wc = next_wc(cq);
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        ASSERT_EQ(be32toh(wc.imm_data), i);
        ASSERT_EQ(wc.wr_id, i);
        ASSERT_EQ(post_recv(qp, i + 64), 0);
    }
    EXPECT_TRUE(cq_empty(cq));
    sender.link().meet();
    check_fabric();
}

} // namespace
