// Packets, answers and datagrams that are lost, doubled or late to order: what arrives, what the sender sees, what is counted.
#include "conform/pair.h"
#include "conform/peer.h"

namespace
{

using namespace vt;

class PacketFaults : public BothEnds, public ::testing::WithParamInterface<Kind>
{
  protected:
    PacketFaults() : BothEnds(GetParam())
    {
        connect_ends();
    }
    void make_retrying(int retry)
    {
        Path p;
        p.retry = (uint8_t)retry;
        connect_ends(p);
    }
    Send message(ibv_wr_opcode op = IBV_WR_SEND, uint32_t length = 8)
    {
        Send s(op, {n_->sge(0, length)});
        return to_responder(s.at(n_->addr(32768), n_->mr->rkey));
    }
    void post(int n = 1)
    {
        for (int i = 0; i < n; i++)
            post_receive(1, {n_->sge(8192, 4096)});
    }
    long sender(const char *counter)
    {
        return qp_counter(one_->qp_num, counter);
    }
    long receiver(const char *counter)
    {
        return qp_counter(two_->qp_num, counter);
    }
};

TEST_P(PacketFaults, TheNthPacketsAreLost)
{
    make_retrying(2);
    order("drop packet nth 4 times 2");
    post(10);
    for (int i = 0; i < 10; i++) {
        EXPECT_EQ(outcome(one_, message()), IBV_WC_SUCCESS);
        EXPECT_EQ(delivered(), 1) << i;
        EXPECT_EQ(sender("dropped"), i < 3 ? 0 : 2) << "the fourth message is lost twice, message " << i;
    }
    EXPECT_EQ(sender("retries"), 2);
    EXPECT_EQ(receiver("duplicates"), 0);
    EXPECT_EQ(counter_of("h/vshim0/1", "dropped"), 2);
    EXPECT_EQ(counter_of("h/vshim0/1", "retries"), 2);
}

TEST_P(PacketFaults, RetryCountIsExact)
{
    for (int retry = 0; retry <= 7; retry++) {
        make_retrying(retry);
        post();
        if (retry > 0)
            order("drop packet times " + std::to_string(retry));
        EXPECT_EQ(outcome(one_, message()), IBV_WC_SUCCESS) << retry;
        EXPECT_EQ(sender("retries"), retry);
        EXPECT_EQ(delivered(), 1);
        order("drop packet times " + std::to_string(retry + 1));
        EXPECT_EQ(outcome(one_, message()), IBV_WC_RETRY_EXC_ERR) << retry;
        EXPECT_EQ(sender("dropped"), 2 * retry + 1) << "retry_cnt + 1 tries, no more and no fewer";
        EXPECT_EQ(state_of(one_), IBV_QPS_ERR);
        EXPECT_EQ(state_of(two_), IBV_QPS_RTS) << "it knows nothing of it";
        EXPECT_EQ(delivered(), 0);
    }
}

TEST_P(PacketFaults, ALostAnswerIsAskedForAgain)
{
    post(3);
    order("drop ack");
    EXPECT_EQ(outcome(one_, message()), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 1) << "exactly once";
    EXPECT_EQ(receiver("duplicates"), 1);
    EXPECT_EQ(sender("retries"), 1);
    EXPECT_EQ(outcome(one_, message()), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 1);
}

// The case that a program must live with: the data arrived, and the sender sees an error.
TEST_P(PacketFaults, ALostAnswerWithoutRetries)
{
    make_retrying(0);
    post(2);
    n_->mem[0] = 'x';
    order("drop ack");
    EXPECT_EQ(outcome(one_, message()), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(delivered(), 1);
    EXPECT_EQ(n_->mem[8192], 'x');
    EXPECT_EQ(state_of(one_), IBV_QPS_ERR);
    make_retrying(0);
    order("drop ack");
    EXPECT_EQ(outcome(one_, message(IBV_WR_RDMA_WRITE)), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(n_->mem[32768], 'x') << "a write as well";
}

TEST_P(PacketFaults, EveryOperationIsRepeated)
{
    const ibv_wr_opcode ops[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ};
    for (ibv_wr_opcode op : ops)
        for (const char *fault : {"drop packet", "drop ack", "dup packet"}) {
            int taken = op == IBV_WR_RDMA_WRITE || op == IBV_WR_RDMA_READ ? 0 : 1;
            memset(&n_->mem[0], 'a' + op, 3000);
            memset(&n_->mem[8192], 0, 4096);
            memset(&n_->mem[32768], op == IBV_WR_RDMA_READ ? 'r' : 0, 3000);
            post(taken);
            order(fault);
            EXPECT_EQ(outcome(one_, message(op, 3000)), IBV_WC_SUCCESS) << op << " " << fault;
            EXPECT_EQ(delivered(), taken);
            size_t where = op == IBV_WR_RDMA_READ ? 0 : op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM ? 8192 : 32768;
            char expect = op == IBV_WR_RDMA_READ ? 'r' : (char)('a' + op);
            EXPECT_EQ(std::count(&n_->mem[where], &n_->mem[where] + 3000, expect), 3000) << op << " " << fault;
        }
    EXPECT_EQ(receiver("duplicates"), 10);
    EXPECT_EQ(outcome(one_, message(IBV_WR_RDMA_WRITE)), IBV_WC_SUCCESS) << "the PSNs still agree";
}

TEST_P(PacketFaults, DoubledMessagesArriveOnce)
{
    post(8);
    order("dup packet times 8");
    for (int i = 0; i < 8; i++)
        EXPECT_EQ(outcome(one_, message()), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 8);
    EXPECT_EQ(receiver("duplicates"), 8);
    EXPECT_EQ(sender("retries"), 0);
}

TEST_P(PacketFaults, LateMessagesKeepTheirOrder)
{
    post(6);
    order("delay packet 3000 nth 2 times 2");
    for (uint64_t i = 0; i < 6; i++)
        ASSERT_EQ(message().id(i).post(one_), 0);
    for (uint64_t i = 0; i < 6; i++) {
        ibv_wc wc = next_wc(n_->cq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.wr_id, i);
    }
    EXPECT_EQ(delivered(), 6);
    EXPECT_EQ(sender("retries"), 0);
}

TEST_P(PacketFaults, LateAndThenLost)
{
    post();
    order("delay packet 2000");
    order("drop packet nth 1"); // the first rule that hits counts; the delayed packet meets no second one
    EXPECT_EQ(outcome(one_, message()), IBV_WC_SUCCESS);
    EXPECT_EQ(outcome(one_, message(IBV_WR_RDMA_WRITE)), IBV_WC_SUCCESS) << "the next one is lost, and repeated";
    EXPECT_EQ(sender("dropped"), 1);
    EXPECT_EQ(delivered(), 1);
}

TEST_P(PacketFaults, ForEverUntilCleared)
{
    order("drop packet times ever");
    EXPECT_EQ(outcome(one_, message()), IBV_WC_RETRY_EXC_ERR);
    connect_ends();
    EXPECT_EQ(outcome(one_, message()), IBV_WC_RETRY_EXC_ERR);
    order("clear");
    connect_ends();
    post();
    EXPECT_EQ(outcome(one_, message()), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 1);
}

TEST_P(PacketFaults, RulesHaveAPlace)
{
    post(2);
    order("drop packet at h/vshim0/1");
    EXPECT_EQ(outcome(one_, message()), IBV_WC_SUCCESS);
    EXPECT_EQ(sender("dropped"), 1);
    EXPECT_NE(vshim("drop packet at g").status, 0) << "no such host";
    EXPECT_NE(vshim("drop packet at h/vshim0/2").status, 0);
    EXPECT_EQ(outcome(one_, message()), IBV_WC_SUCCESS);
    EXPECT_EQ(sender("dropped"), 1);
    EXPECT_EQ(delivered(), 2);
}

TEST_P(PacketFaults, SpentRulesMakeRoom)
{
    for (int i = 0; i < 40; i++) {
        order("drop packet");
        EXPECT_EQ(outcome(one_, message(IBV_WR_RDMA_WRITE)), IBV_WC_SUCCESS);
    }
    EXPECT_EQ(sender("dropped"), 40);
    for (int i = 0; i < 16; i++)
        order("drop packet nth 1000000");
    Told full = vshim("drop packet");
    EXPECT_EQ(full.status, 1);
    EXPECT_NE(full.text.find("too many rules"), std::string::npos) << full.text;
    order("clear");
    order("drop packet nth 1000000");
}

// ---- counters of what needs no order ----

TEST_P(PacketFaults, ReceiverNotReadyIsCounted)
{
    Path p;
    p.rnr = 2;
    connect_ends(p);
    EXPECT_EQ(outcome(one_, message()), IBV_WC_RNR_RETRY_EXC_ERR);
    EXPECT_EQ(receiver("rnr_sent"), 3) << "rnr_retry + 1";
    EXPECT_EQ(sender("rnr_received"), 3);
    EXPECT_EQ(counter_of("h/vshim0/1", "rnr_sent"), 3);
    EXPECT_EQ(counter_of("h/vshim0/1", "rnr_received"), 3);
    EXPECT_EQ(sender("retries"), 0);
}

TEST_P(PacketFaults, NaksAreCounted)
{
    Send s = message(IBV_WR_RDMA_WRITE);
    s.at(n_->addr(0), n_->mr->rkey + 1);
    EXPECT_EQ(outcome(one_, s), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(receiver("naks_sent"), 1);
    EXPECT_EQ(counter_of("h/vshim0/1", "naks_sent"), 1);
    EXPECT_EQ(receiver("unknown_srqn"), 0);
}

TEST_P(PacketFaults, AnRnrAnswerCanBeLostToo)
{
    Path p;
    p.rnr = 7;
    p.retry = 3;
    connect_ends(p);
    order("drop ack times 2");
    ASSERT_EQ(message().post(one_), 0);
    until([&] { return receiver("rnr_sent") >= 4; });
    post();
    EXPECT_EQ(next_wc(n_->cq).status, IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 1);
    EXPECT_EQ(sender("retries"), 2);
}

INSTANTIATE_TEST_SUITE_P(All, PacketFaults, ::testing::Values(RC, RC_SRQ, XRC), [](const auto &info) {
    return std::string(info.param == RC ? "Rc" : info.param == RC_SRQ ? "RcWithSrq" : "Xrc");
});

// ---- datagrams ----

class DatagramFaults : public vt::Test
{
  protected:
    DatagramFaults() : host_("VERBS_SHIM_HOST", "h")
    {
        n_.reset(new Node);
        recv_cq_ = make_cq(n_->ctx);
        one_ = make_qp(IBV_QPT_UD, n_->pd, n_->cq);
        two_ = make_qp(IBV_QPT_UD, n_->pd, recv_cq_);
        bring_up(one_, {});
        bring_up(two_, {});
        ah_ = make_ah(n_->pd, n_->lid);
    }
    void TearDown() override
    {
        check_fabric();
        ah_ = Ah();
        one_ = Qp();
        two_ = Qp();
        recv_cq_ = Cq();
        n_.reset();
        vt::Test::TearDown();
    }
    Send message(uint32_t id)
    {
        return Send(IBV_WR_SEND_WITH_IMM, {n_->sge(0, 8)}).datagram(ah_, two_->qp_num, 0x11111111).imm(id).id(id);
    }
    // What arrived, by immediate data.
    std::vector<uint32_t> arrived()
    {
        std::vector<uint32_t> ids;
        for (ibv_wc wc = {}; ibv_poll_cq(recv_cq_, 1, &wc) == 1;) {
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
            ids.push_back(be32toh(wc.imm_data));
        }
        return ids;
    }
    void send_some(uint32_t n)
    {
        for (uint32_t i = 0; i < 2 * n; i++)
            need(post_recv(two_, i, {n_->sge(8192, 256)}) == 0, "post");
        for (uint32_t i = 1; i <= n; i++)
            need(message(i).post(one_) == 0, "send");
        for (uint32_t i = 1; i <= n; i++) {
            ibv_wc wc = next_wc(n_->cq);
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << "complete once sent, whatever became of it";
            EXPECT_EQ(wc.wr_id, i);
        }
    }

    Setting host_;
    std::unique_ptr<Node> n_;
    Cq recv_cq_;
    Qp one_, two_;
    Ah ah_;
};

TEST_F(DatagramFaults, Lost)
{
    order("drop datagram nth 2 times 2");
    send_some(5);
    EXPECT_EQ(arrived(), (std::vector<uint32_t>{1, 4, 5}));
    EXPECT_EQ(qp_counter(one_->qp_num, "dropped"), 2);
    EXPECT_EQ(counter_of("h/vshim0/1", "dropped"), 2);
}

TEST_F(DatagramFaults, Doubled)
{
    order("dup datagram nth 3");
    send_some(4);
    EXPECT_EQ(arrived(), (std::vector<uint32_t>{1, 2, 3, 3, 4}));
}

TEST_F(DatagramFaults, Late)
{
    order("delay datagram 2000 nth 2");
    send_some(4);
    EXPECT_EQ(arrived(), (std::vector<uint32_t>{1, 2, 3, 4})) << "what is behind it on its QP waits with it";
}

TEST_F(DatagramFaults, ConnectedPacketsAreNoDatagrams)
{
    order("drop packet times ever");
    order("drop ack times ever");
    send_some(3);
    EXPECT_EQ(arrived(), (std::vector<uint32_t>{1, 2, 3}));
}

TEST_F(DatagramFaults, WithoutABufferItIsCountedWhereItArrives)
{
    EXPECT_EQ(outcome(one_, message(1)), IBV_WC_SUCCESS);
    EXPECT_EQ(qp_counter(two_->qp_num, "dropped"), 1);
    EXPECT_EQ(qp_counter(one_->qp_num, "dropped"), 0);
    EXPECT_TRUE(arrived().empty());
}

TEST_F(DatagramFaults, GroupsMeetThemAsOnePacket)
{
    union ibv_gid gid = {};
    gid.raw[0] = 0xff;
    gid.raw[1] = 0x12;
    gid.raw[15] = 7;
    ASSERT_EQ(ibv_attach_mcast(two_, &gid, 0xc007), 0);
    ibv_ah_attr a = {};
    a.dlid = 0xc007;
    a.port_num = 1;
    a.is_global = 1;
    a.grh.dgid = gid;
    Ah group(ibv_create_ah(n_->pd, &a));
    ASSERT_TRUE(group);
    for (uint32_t i = 0; i < 8; i++)
        ASSERT_EQ(post_recv(two_, i, {n_->sge(8192, 256)}), 0);
    order("drop datagram nth 2");
    order("dup datagram nth 3");
    order("delay datagram 1000 nth 4");
    for (uint32_t i = 1; i <= 5; i++) {
        Send s(IBV_WR_SEND_WITH_IMM, {n_->sge(0, 8)});
        EXPECT_EQ(outcome(one_, s.datagram(group, 0xffffff, 0x11111111).imm(i)), IBV_WC_SUCCESS);
    }
    EXPECT_EQ(arrived(), (std::vector<uint32_t>{1, 3, 3, 4, 5}));
    EXPECT_EQ(ibv_detach_mcast(two_, &gid, 0xc007), 0);
}

} // namespace
