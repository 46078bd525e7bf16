// Datagrams: GRH bytes, what is dropped without a word, length limits, what the completion tells.
#include "conform/faults.h"

namespace
{

using namespace vt;

class UdTest : public vt::Test
{
  protected:
    UdTest() : a(make_qp(IBV_QPT_UD, n.pd, n.cq)), rcq(make_cq(m.ctx))
    {
        auto attr = qp_attr(IBV_QPT_UD, m.pd, rcq);
        b = Qp(ibv_create_qp_ex(m.ctx, &attr));
        need(b, "ibv_create_qp_ex");
        bring_up(a, {});
        bring_up(b, {});
        ah = make_ah();
    }
    Ah make_ah(bool global = false, uint16_t lid = 0, uint8_t sl = 0)
    {
        ibv_ah_attr attr = {};
        attr.dlid = lid ? lid : m.lid;
        attr.port_num = 1;
        attr.sl = sl;
        attr.is_global = global;
        if (global) {
            need(ibv_query_gid(m.ctx, 1, 0, &attr.grh.dgid) == 0, "ibv_query_gid");
            attr.grh.hop_limit = 7;
            attr.grh.traffic_class = 9;
            attr.grh.flow_label = 0x12345;
        }
        Ah made(ibv_create_ah(n.pd, &attr));
        need(made, "ibv_create_ah");
        return made;
    }
    Send to(ibv_ah *handle, uint32_t qkey, uint32_t length, ibv_wr_opcode op = IBV_WR_SEND)
    {
        Send s(op, {n.sge(0, length)});
        s.datagram(handle, b->qp_num, qkey);
        return s;
    }
    static constexpr uint32_t qkey = 0x11111111;
    Node n, m;
    Qp a, b;
    Cq rcq;
    Ah ah;

    // The fabric must be left before the base class looks.
    void TearDown() override
    {
        ah = Ah();
        a = Qp();
        b = Qp();
        rcq = Cq();
        for (Node *node : {&n, &m}) {
            node->mr = Mr();
            node->cq = Cq();
            node->pd = Pd();
            node->ctx = Context();
        }
        vt::Test::TearDown();
    }
};

TEST_F(UdTest, PayloadStartsBehindTheGrhsBytes)
{
    for (uint32_t length : {0u, 1u, 100u, 2048u, 4096u}) {
        memset(m.mem.data(), 0xee, 5000);
        for (uint32_t i = 0; i < length; i++)
            n.mem[i] = (char) (i * 7);
        ASSERT_EQ(post_recv(b, 3, {m.sge(0, 5000)}), 0);
        EXPECT_EQ(outcome(a, to(ah, qkey, length)), IBV_WC_SUCCESS);
        ibv_wc wc = next_wc(rcq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.byte_len, length + 40);
        EXPECT_FALSE(wc.wc_flags & IBV_WC_GRH);
        EXPECT_EQ(memcmp(&m.mem[40], n.mem.data(), length), 0);
        EXPECT_EQ(m.mem[40 + length], (char) 0xee);
    }
}

TEST_F(UdTest, CompletionNamesTheSender)
{
    Ah with_sl = make_ah(false, 0, 5);
    ASSERT_EQ(post_recv(b, 3, {m.sge(0, 500)}), 0);
    Send s = to(with_sl, qkey, 8, IBV_WR_SEND_WITH_IMM);
    EXPECT_EQ(outcome(a, s.imm(77)), IBV_WC_SUCCESS);
    ibv_wc wc = next_wc(rcq);
    EXPECT_EQ(wc.src_qp, a->qp_num);
    EXPECT_EQ(wc.slid, n.lid);
    EXPECT_EQ(wc.sl, 5);
    EXPECT_EQ(wc.qp_num, b->qp_num);
    EXPECT_EQ(wc.dlid_path_bits, 0);
    EXPECT_EQ(wc.pkey_index, 0);
    EXPECT_EQ(wc.wr_id, 3u);
    EXPECT_TRUE(wc.wc_flags & IBV_WC_WITH_IMM);
    EXPECT_EQ(be32toh(wc.imm_data), 77u);
}

TEST_F(UdTest, AGlobalAddressPutsAGrhThereAndItLeadsBack)
{
    Ah global = make_ah(true);
    ASSERT_EQ(post_recv(b, 3, {m.sge(0, 500)}), 0);
    EXPECT_EQ(outcome(a, to(global, qkey, 8)), IBV_WC_SUCCESS);
    ibv_wc wc = next_wc(rcq);
    ASSERT_TRUE(wc.wc_flags & IBV_WC_GRH);
    ibv_grh grh;
    memcpy(&grh, m.mem.data(), sizeof(grh));
    union ibv_gid from, dest;
    ASSERT_EQ(ibv_query_gid(n.ctx, 1, 0, &from), 0);
    ASSERT_EQ(ibv_query_gid(m.ctx, 1, 0, &dest), 0);
    EXPECT_EQ(memcmp(&grh.sgid, &from, 16), 0);
    EXPECT_EQ(memcmp(&grh.dgid, &dest, 16), 0);
    EXPECT_EQ(grh.hop_limit, 7);
    EXPECT_EQ(be32toh(grh.version_tclass_flow), 6u << 28 | 9u << 20 | 0x12345);
    Ah back(ibv_create_ah_from_wc(m.pd, &wc, &grh, 1));
    ASSERT_TRUE(back);
    ASSERT_EQ(post_recv(a, 4, {n.sge(0, 500)}), 0);
    Send reply(IBV_WR_SEND, {m.sge(1000, 8)});
    ASSERT_EQ(reply.datagram(back, wc.src_qp, qkey).post(b), 0);
    EXPECT_EQ(next_wc(rcq).status, IBV_WC_SUCCESS);
    EXPECT_EQ(next_wc(n.cq).byte_len, 48u);
}

TEST_F(UdTest, AWrongQkeyIsDroppedWithoutAWord)
{
    ASSERT_EQ(post_recv(b, 1, {m.sge(0, 500)}), 0);
    EXPECT_EQ(outcome(a, to(ah, qkey + 1, 8)), IBV_WC_SUCCESS);
    EXPECT_TRUE(cq_empty(rcq));
    EXPECT_EQ(outcome(a, to(ah, qkey, 8)), IBV_WC_SUCCESS);
    EXPECT_EQ(next_wc(rcq).wr_id, 1u) << "the WQE is still there";
}

TEST_F(UdTest, AQkeyWithTheTopBitMeansTheQpsOwn)
{
    ASSERT_EQ(post_recv(b, 1, {m.sge(0, 500)}), 0);
    EXPECT_EQ(outcome(a, to(ah, 0x80000000, 8)), IBV_WC_SUCCESS);
    EXPECT_EQ(next_wc(rcq).status, IBV_WC_SUCCESS);
}

TEST_F(UdTest, WithoutAWqeAQpOrALidItIsDropped)
{
    EXPECT_EQ(outcome(a, to(ah, qkey, 8)), IBV_WC_SUCCESS) << "no WQE";
    Send nowhere(IBV_WR_SEND, {n.sge(0, 8)});
    EXPECT_EQ(outcome(a, nowhere.datagram(ah, 0xfffff0, qkey)), IBV_WC_SUCCESS) << "no QP";
    Qp rc = make_qp(IBV_QPT_RC, m.pd, m.cq);
    EXPECT_EQ(outcome(a, nowhere.datagram(ah, rc->qp_num, qkey)), IBV_WC_SUCCESS) << "no UD QP";
    Ah lost = make_ah(false, 0x3000);
    EXPECT_EQ(outcome(a, to(lost, qkey, 8)), IBV_WC_SUCCESS) << "no LID";
    EXPECT_TRUE(cq_empty(rcq));
}

TEST_F(UdTest, AQpThatIsNotReadyToReceiveDrops)
{
    ASSERT_EQ(post_recv(b, 1, {m.sge(0, 500)}), 0);
    ASSERT_EQ(to_state(b, IBV_QPS_RESET), 0);
    EXPECT_EQ(outcome(a, to(ah, qkey, 8)), IBV_WC_SUCCESS);
    ASSERT_EQ(to_init(b), 0);
    ASSERT_EQ(post_recv(b, 2, {m.sge(0, 500)}), 0);
    EXPECT_EQ(outcome(a, to(ah, qkey, 8)), IBV_WC_SUCCESS);
    EXPECT_TRUE(cq_empty(rcq));
    ASSERT_EQ(to_rtr(b, {}), 0);
    EXPECT_EQ(outcome(a, to(ah, qkey, 8)), IBV_WC_SUCCESS);
    EXPECT_EQ(next_wc(rcq).wr_id, 2u);
}

// HCAs complete a WQE that is too small with LOC_LEN_ERR (qib would drop the message and keep the WQE).
TEST_F(UdTest, ATooSmallBufferCompletesWithLocLenErr)
{
    for (uint32_t room : {47u, 40u, 39u, 0u}) {
        ASSERT_EQ(post_recv(b, room, {m.sge(0, room)}), 0);
        EXPECT_EQ(outcome(a, to(ah, qkey, 8)), IBV_WC_SUCCESS);
        ibv_wc wc = next_wc(rcq);
        EXPECT_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
        EXPECT_EQ(wc.wr_id, room);
    }
    ASSERT_EQ(post_recv(b, 1, {m.sge(0, 48)}), 0);
    EXPECT_EQ(outcome(a, to(ah, qkey, 8)), IBV_WC_SUCCESS);
    EXPECT_EQ(next_wc(rcq).status, IBV_WC_SUCCESS);
}

TEST_F(UdTest, MoreThanTheMtuIsALocalLengthError)
{
    ASSERT_EQ(post_recv(b, 1, {m.sge(0, 8000)}), 0);
    EXPECT_EQ(outcome(a, to(ah, qkey, 4097)), IBV_WC_LOC_LEN_ERR);
    EXPECT_TRUE(cq_empty(rcq));
}

TEST_F(UdTest, GrhAndPayloadAreScatteredOverTheList)
{
    for (int i = 0; i < 100; i++)
        n.mem[(size_t) i] = (char) i;
    ASSERT_EQ(post_recv(b, 1, {m.sge(0, 30), m.sge(1000, 20), m.sge(2000, 200)}), 0);
    EXPECT_EQ(outcome(a, to(ah, qkey, 100)), IBV_WC_SUCCESS);
    EXPECT_EQ(next_wc(rcq).byte_len, 140u);
    EXPECT_EQ(memcmp(&m.mem[1010], &n.mem[0], 10), 0);
    EXPECT_EQ(memcmp(&m.mem[2000], &n.mem[10], 90), 0);
}

TEST_F(UdTest, OneQpTalksToMany)
{
    std::vector<Qp> others;
    for (int i = 0; i < 10; i++) {
        others.push_back(make_qp(IBV_QPT_UD, m.pd, m.cq));
        bring_up(others.back(), {});
        ASSERT_EQ(post_recv(others.back(), (uint64_t) i, {m.sge(0, 500)}), 0);
    }
    for (int i = 0; i < 10; i++) {
        Send s(IBV_WR_SEND, {n.sge(0, 8)});
        EXPECT_EQ(outcome(a, s.datagram(ah, others[(size_t) i]->qp_num, qkey)), IBV_WC_SUCCESS);
        ibv_wc wc = next_wc(m.cq);
        EXPECT_EQ(wc.wr_id, (uint64_t) i);
        EXPECT_EQ(wc.qp_num, others[(size_t) i]->qp_num);
    }
}

// ---- several LIDs and P_Keys ----

class UdPaths : public vt::Test
{
  protected:
    UdPaths() : topology_("VERBS_SHIM_TOPOLOGY", "lmc=2"), host_("VERBS_SHIM_HOST", "h")
    {
    }
    Setting topology_, host_;
};

// A QP that sends and receives with this entry of the P_Key table.
Qp datagrams(const Node &n, ibv_cq *cq, uint16_t pkey_index)
{
    Qp qp = make_qp(IBV_QPT_UD, n.pd, cq);
    Path p;
    p.pkey_index = pkey_index;
    bring_up(qp, p);
    return qp;
}

// One LID of the sender's four, to one of the receiver's four.
Ah from_to(const Node &n, uint8_t from_bits, uint16_t to_lid)
{
    ibv_ah_attr attr = {};
    attr.dlid = to_lid;
    attr.port_num = 1;
    attr.src_path_bits = from_bits;
    Ah ah(ibv_create_ah(n.pd, &attr));
    need(ah, "ibv_create_ah");
    return ah;
}

TEST_F(UdPaths, TheCompletionTellsWhichPathItCameByAndAReplyTakesIt)
{
    Node n;
    order("pkey h/vshim0/1 1 0x8123");
    order("pkey h/vshim0/1 2 0x8123");
    ibv_cq_init_attr_ex attr = {};
    attr.cqe = 64;
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    Cq cq(ibv_cq_ex_to_cq(ibv_create_cq_ex(n.ctx, &attr)));
    need(cq, "ibv_create_cq_ex");
    Qp asks = datagrams(n, n.cq, 2), answers = datagrams(n, cq, 1);
    Ah there = from_to(n, 2, (uint16_t) (n.lid + 3));
    for (uint64_t i = 1; i <= 2; i++) {
        ASSERT_EQ(post_recv(answers, i, {n.sge(8192, 256)}), 0);
        ASSERT_EQ(outcome(asks, Send(IBV_WR_SEND, {n.sge(0, 8)}).datagram(there, answers->qp_num, 0x11111111)), IBV_WC_SUCCESS);
    }
    ibv_wc wc = next_wc(cq);
    EXPECT_EQ(wc.wr_id, 1u);
    EXPECT_EQ(wc.slid, n.lid + 2);
    EXPECT_EQ(wc.dlid_path_bits, 3);
    EXPECT_EQ(wc.pkey_index, 1) << "of the QP that received it";

    auto *ex = reinterpret_cast<ibv_cq_ex *>((ibv_cq *) cq);
    ibv_poll_cq_attr poll = {};
    ASSERT_EQ(ibv_start_poll(ex, &poll), 0);
    EXPECT_EQ(ex->wr_id, 2u);
    EXPECT_EQ(ibv_wc_read_slid(ex), n.lid + 2u);
    EXPECT_EQ(ibv_wc_read_dlid_path_bits(ex), 3);
    ibv_end_poll(ex);

    Ah back(ibv_create_ah_from_wc(n.pd, &wc, nullptr, 1));
    ASSERT_TRUE(back);
    ASSERT_EQ(post_recv(asks, 3, {n.sge(16384, 256)}), 0);
    ASSERT_EQ(outcome(answers, Send(IBV_WR_SEND, {n.sge(0, 8)}).datagram(back, wc.src_qp, 0x11111111)), IBV_WC_SUCCESS);
    ibv_wc reply = next_wc(n.cq);
    EXPECT_EQ(reply.wr_id, 3u);
    EXPECT_EQ(reply.slid, n.lid + 3) << "it comes from where the question went";
    EXPECT_EQ(reply.dlid_path_bits, 2);
    EXPECT_EQ(reply.pkey_index, 2);
}

// A group's LID is none of the port's, so none of its bits are path bits.
TEST_F(UdPaths, ACopyForAGroupHasNoPathBits)
{
    Node n;
    union ibv_gid group = {};
    group.raw[0] = 0xff;
    group.raw[15] = 3;
    Qp qp = datagrams(n, n.cq, 0);
    ASSERT_EQ(ibv_attach_mcast(qp, &group, 0xc003), 0);
    ibv_ah_attr attr = {};
    attr.dlid = 0xc003;
    attr.port_num = 1;
    attr.is_global = 1;
    attr.grh.dgid = group;
    Ah ah(ibv_create_ah(n.pd, &attr));
    ASSERT_TRUE(ah);
    ASSERT_EQ(post_recv(qp, 1, {n.sge(8192, 256)}), 0);
    ASSERT_EQ(Send(IBV_WR_SEND, {n.sge(0, 8)}).datagram(ah, 0xffffff, 0x11111111).id(2).post(qp), 0);
    ibv_wc copy = next_wc(n.cq);
    EXPECT_EQ(copy.wr_id, 1u);
    EXPECT_EQ(copy.dlid_path_bits, 0);
    EXPECT_EQ(next_wc(n.cq).wr_id, 2u);
    EXPECT_EQ(ibv_detach_mcast(qp, &group, 0xc003), 0);
}

} // namespace
