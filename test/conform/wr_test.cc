// ibv_wr_*: every hook and every operation of each QP type; a session posts all of its work requests or none.
#include "conform/faults.h"
#include "conform/peer.h"

namespace
{

using namespace vt;

constexpr int atomic_access = all_access | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr uint64_t writes = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
constexpr uint64_t atomics = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

uint64_t operations(ibv_qp_type type)
{
    switch (type) {
    case IBV_QPT_UD: return sends;
    case IBV_QPT_UC: return sends | writes;
    default: return sends | writes | atomics | IBV_QP_EX_WITH_RDMA_READ;
    }
}

Qp make_ex(const Node &n, ibv_qp_type type, uint64_t ops, uint32_t send_wr = 16)
{
    auto a = qp_attr(type, n.pd, n.cq);
    a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    a.send_ops_flags = ops;
    a.cap.max_send_wr = send_wr;
    return Qp(ibv_create_qp_ex(n.ctx, &a));
}

// A QP made for ibv_wr_*, connected to one that receives into recv_at.
class Wr : public vt::Test, public ::testing::WithParamInterface<ibv_qp_type>
{
  protected:
    Wr() : host_("VERBS_SHIM_HOST", "h"), type_(GetParam())
    {
        n_.reset(new Node(1 << 16, atomic_access));
        recv_cq_ = make_cq(n_->ctx);
        if (type_ == IBV_QPT_XRC_SEND) {
            xrcd_ = make_xrcd(n_->ctx);
            srq_ = make_xrc_srq(n_->pd, xrcd_, recv_cq_);
        }
        ah_ = make_ah(n_->pd, n_->lid);
        make();
    }
    void make()
    {
        one_ = Qp();
        two_ = Qp();
        one_ = make_ex(*n_, type_, operations(type_));
        need(one_, "ibv_create_qp_ex");
        ex_ = ibv_qp_to_qp_ex(one_);
        need(ex_ != nullptr, "ibv_qp_to_qp_ex");
        two_ = srq_ ? make_tgt(xrcd_) : make_qp(type_, n_->pd, recv_cq_);
        Path p;
        p.access |= IBV_ACCESS_REMOTE_ATOMIC;
        if (type_ == IBV_QPT_UC) {
            bring_up_uc(one_, two_->qp_num);
            bring_up_uc(two_, one_->qp_num);
        } else {
            connect(one_, n_->lid, two_, n_->lid, p);
        }
    }
    Path init_path() const
    {
        Path p;
        if (type_ == IBV_QPT_UC)
            p.access = IBV_ACCESS_REMOTE_WRITE;
        return p;
    }
    void bring_up_uc(ibv_qp *qp, uint32_t peer)
    {
        need(to_init(qp, init_path()) == 0, "to INIT");
        ibv_qp_attr a = {};
        a.qp_state = IBV_QPS_RTR;
        a.path_mtu = IBV_MTU_1024;
        a.dest_qp_num = peer;
        a.ah_attr.dlid = n_->lid;
        a.ah_attr.port_num = 1;
        need(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) == 0, "to RTR");
        a.qp_state = IBV_QPS_RTS;
        need(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0, "to RTS");
    }
    void TearDown() override
    {
        check_fabric();
        ah_ = Ah();
        one_ = Qp();
        two_ = Qp();
        srq_ = Srq();
        xrcd_ = Xrcd();
        recv_cq_ = Cq();
        n_.reset();
        vt::Test::TearDown();
    }
    bool has(uint64_t op) const
    {
        return operations(type_) & op;
    }
    void post()
    {
        std::vector<ibv_sge> list = {n_->sge(recv_at, 4096)};
        need((srq_ ? post_recv(srq_, 5, list) : post_recv(two_, 5, list)) == 0, "post");
    }
    // The address of what was begun last.
    void address()
    {
        if (type_ == IBV_QPT_UD)
            ibv_wr_set_ud_addr(ex_, ah_, two_->qp_num, 0x11111111);
        if (type_ == IBV_QPT_XRC_SEND)
            ibv_wr_set_xrc_srqn(ex_, srq_num(srq_));
    }
    void start(uint64_t id = 1, unsigned flags = IBV_SEND_SIGNALED)
    {
        ibv_wr_start(ex_);
        ex_->wr_id = id;
        ex_->wr_flags = flags;
    }
    // Offset of the payload in what arrives.
    size_t head() const
    {
        return type_ == IBV_QPT_UD ? 40 : 0;
    }
    void expect_sent(ibv_wc_opcode opcode, uint64_t id = 1)
    {
        ibv_wc wc = next_wc(n_->cq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.opcode, opcode);
        EXPECT_EQ(wc.wr_id, id);
        EXPECT_EQ(wc.qp_num, one_->qp_num);
    }
    ibv_wc expect_received(uint32_t length)
    {
        ibv_wc wc = next_wc(recv_cq_);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.wr_id, 5u);
        EXPECT_EQ(wc.byte_len, length + head());
        return wc;
    }

    static constexpr size_t recv_at = 8192, rdma_at = 32768;
    Setting host_;
    ibv_qp_type type_;
    std::unique_ptr<Node> n_;
    Cq recv_cq_;
    Xrcd xrcd_;
    Srq srq_;
    Qp one_, two_;
    Ah ah_;
    ibv_qp_ex *ex_ = nullptr;
};

class WrOfADatagram : public Wr
{
};
class WrOfAConnection : public Wr
{
};
class WrOfAReliableConnection : public Wr
{
};

TEST_P(Wr, Send)
{
    post();
    memcpy(&n_->mem[0], "hello", 5);
    start(77);
    ibv_wr_send(ex_);
    address();
    ibv_wr_set_sge(ex_, n_->mr->lkey, n_->addr(0), 5);
    ASSERT_EQ(ibv_wr_complete(ex_), 0);
    expect_sent(IBV_WC_SEND, 77);
    EXPECT_FALSE(expect_received(5).wc_flags & IBV_WC_WITH_IMM);
    EXPECT_EQ(memcmp(&n_->mem[recv_at + head()], "hello", 5), 0);
}

TEST_P(Wr, SendWithImmAndList)
{
    post();
    memcpy(&n_->mem[0], "hello", 5);
    start();
    ibv_wr_send_imm(ex_, htobe32(0xabcd));
    address();
    ibv_sge list[3] = {n_->sge(3, 2), n_->sge(0, 0), n_->sge(0, 3)};
    ibv_wr_set_sge_list(ex_, 3, list);
    ASSERT_EQ(ibv_wr_complete(ex_), 0);
    expect_sent(IBV_WC_SEND);
    ibv_wc wc = expect_received(5);
    EXPECT_TRUE(wc.wc_flags & IBV_WC_WITH_IMM);
    EXPECT_EQ(be32toh(wc.imm_data), 0xabcdu);
    EXPECT_EQ(memcmp(&n_->mem[recv_at + head()], "lohel", 5), 0);
}

TEST_P(Wr, Inline)
{
    for (bool list : {false, true}) {
        post();
        char text[] = "inline data";
        ibv_data_buf bufs[3] = {{text, 3}, {text, 0}, {text + 3, 8}};
        start();
        ibv_wr_send(ex_);
        address();
        if (list)
            ibv_wr_set_inline_data_list(ex_, 3, bufs);
        else
            ibv_wr_set_inline_data(ex_, text, 11);
        memset(text, 0, sizeof(text)); // the data were copied
        ASSERT_EQ(ibv_wr_complete(ex_), 0);
        expect_sent(IBV_WC_SEND);
        expect_received(11);
        EXPECT_EQ(memcmp(&n_->mem[recv_at + head()], "inline data", 11), 0);
    }
}

TEST_P(WrOfAConnection, Writes)
{
    memcpy(&n_->mem[0], "hello", 5);
    start();
    ibv_wr_rdma_write(ex_, n_->mr->rkey, n_->addr(rdma_at));
    address();
    ibv_wr_set_sge(ex_, n_->mr->lkey, n_->addr(0), 5);
    ASSERT_EQ(ibv_wr_complete(ex_), 0);
    expect_sent(IBV_WC_RDMA_WRITE);
    EXPECT_EQ(memcmp(&n_->mem[rdma_at], "hello", 5), 0);
    post();
    start();
    ibv_wr_rdma_write_imm(ex_, n_->mr->rkey, n_->addr(rdma_at + 100), htobe32(9));
    address();
    ibv_wr_set_inline_data(ex_, const_cast<char *>("imm"), 3);
    ASSERT_EQ(ibv_wr_complete(ex_), 0);
    expect_sent(IBV_WC_RDMA_WRITE);
    ibv_wc wc = expect_received(3);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(be32toh(wc.imm_data), 9u);
    EXPECT_EQ(memcmp(&n_->mem[rdma_at + 100], "imm", 3), 0);
}

TEST_P(WrOfAReliableConnection, ReadAndAtomics)
{
    memcpy(&n_->mem[rdma_at], "remote", 6);
    start();
    ibv_wr_rdma_read(ex_, n_->mr->rkey, n_->addr(rdma_at));
    address();
    ibv_wr_set_sge(ex_, n_->mr->lkey, n_->addr(0), 6);
    ASSERT_EQ(ibv_wr_complete(ex_), 0);
    expect_sent(IBV_WC_RDMA_READ);
    EXPECT_EQ(memcmp(&n_->mem[0], "remote", 6), 0);
    uint64_t v = 40;
    memcpy(&n_->mem[rdma_at], &v, 8);
    start();
    ibv_wr_atomic_fetch_add(ex_, n_->mr->rkey, n_->addr(rdma_at), 2);
    address();
    ibv_wr_set_sge(ex_, n_->mr->lkey, n_->addr(0), 8);
    ex_->wr_id = 2;
    ibv_wr_atomic_cmp_swp(ex_, n_->mr->rkey, n_->addr(rdma_at), 42, 7);
    address();
    ibv_wr_set_sge(ex_, n_->mr->lkey, n_->addr(8), 8);
    ASSERT_EQ(ibv_wr_complete(ex_), 0);
    expect_sent(IBV_WC_FETCH_ADD);
    expect_sent(IBV_WC_COMP_SWAP, 2);
    uint64_t old[2];
    memcpy(old, &n_->mem[0], 16);
    memcpy(&v, &n_->mem[rdma_at], 8);
    EXPECT_EQ(old[0], 40u);
    EXPECT_EQ(old[1], 42u);
    EXPECT_EQ(v, 7u);
}

TEST_P(Wr, ManyInOneSession)
{
    for (int round = 0; round < 3; round++) { // the queue wraps
        for (int i = 0; i < 12; i++)
            post();
        ibv_wr_start(ex_);
        for (uint64_t i = 0; i < 12; i++) {
            ex_->wr_id = i;
            ex_->wr_flags = i == 11 ? IBV_SEND_SIGNALED : 0;
            ibv_wr_send(ex_);
            address();
            ibv_wr_set_inline_data(ex_, &i, sizeof(i));
        }
        EXPECT_TRUE(cq_empty(recv_cq_)) << "nothing is posted before ibv_wr_complete";
        ASSERT_EQ(ibv_wr_complete(ex_), 0);
        expect_sent(IBV_WC_SEND, 11);
        for (int i = 0; i < 12; i++)
            expect_received(8);
        EXPECT_TRUE(cq_empty(n_->cq));
    }
}

TEST_P(Wr, AbortPostsNothing)
{
    post();
    start();
    ibv_wr_send(ex_);
    address();
    ibv_wr_set_inline_data(ex_, const_cast<char *>("x"), 1);
    ibv_wr_abort(ex_);
    EXPECT_TRUE(cq_empty(n_->cq));
    EXPECT_TRUE(cq_empty(recv_cq_));
    start(9);
    ibv_wr_send(ex_);
    address();
    ASSERT_EQ(ibv_wr_complete(ex_), 0);
    expect_sent(IBV_WC_SEND, 9);
    expect_received(0);
}

// After an error nothing of the session is posted, and the QP goes on as before.
TEST_P(Wr, AnErrorPostsNothing)
{
    char big[2000] = {};
    ibv_sge list[40] = {};
    struct Row {
        const char *what;
        int error;
        std::function<void()> spoil;
    };
    const std::vector<Row> rows = {
        {"too much inline data", ENOMEM, [&] { ibv_wr_set_inline_data(ex_, big, sizeof(big)); }},
        {"too many ranges", ENOMEM, [&] { ibv_wr_set_sge_list(ex_, 40, list); }},
        {"more than the queue holds", ENOMEM,
         [&] {
             for (int i = 0; i < 16; i++) {
                 ibv_wr_send(ex_);
                 address();
             }
         }},
        {"a verb that is not there", EOPNOTSUPP, [&] { ibv_wr_local_inv(ex_, 1); }},
        {"nor this", EOPNOTSUPP, [&] { ibv_wr_send_inv(ex_, 1); }},
        {"nor this", EOPNOTSUPP, [&] { ibv_wr_send_tso(ex_, big, 10, 10); }},
    };
    for (const Row &row : rows) {
        post();
        start();
        ibv_wr_send(ex_);
        address();
        row.spoil();
        ibv_wr_send(ex_);
        address();
        EXPECT_EQ(ibv_wr_complete(ex_), row.error) << row.what;
        EXPECT_TRUE(cq_empty(n_->cq)) << row.what;
        EXPECT_TRUE(cq_empty(recv_cq_)) << row.what;
        start(3);
        ibv_wr_send(ex_);
        address();
        ASSERT_EQ(ibv_wr_complete(ex_), 0) << "after " << row.what;
        expect_sent(IBV_WC_SEND, 3);
        expect_received(0);
    }
}

TEST_P(Wr, SetterBeforeAnyOperation)
{
    start();
    ibv_wr_set_sge(ex_, 1, 2, 3);
    EXPECT_EQ(ibv_wr_complete(ex_), EINVAL);
    start();
    EXPECT_EQ(ibv_wr_complete(ex_), 0) << "an empty session";
    EXPECT_TRUE(cq_empty(n_->cq));
}

// Operations that the QP type has not: refused, and nothing posted.
TEST_P(Wr, OperationsOfOtherTypes)
{
    const std::pair<uint64_t, std::function<void()>> ops[] = {
        {IBV_QP_EX_WITH_RDMA_WRITE, [this] { ibv_wr_rdma_write(ex_, n_->mr->rkey, n_->addr(rdma_at)); }},
        {IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, [this] { ibv_wr_rdma_write_imm(ex_, n_->mr->rkey, n_->addr(rdma_at), 1); }},
        {IBV_QP_EX_WITH_RDMA_READ, [this] { ibv_wr_rdma_read(ex_, n_->mr->rkey, n_->addr(rdma_at)); }},
        {IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, [this] { ibv_wr_atomic_cmp_swp(ex_, n_->mr->rkey, n_->addr(rdma_at), 1, 2); }},
        {IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, [this] { ibv_wr_atomic_fetch_add(ex_, n_->mr->rkey, n_->addr(rdma_at), 1); }},
    };
    for (auto &[op, call] : ops) {
        if (has(op))
            continue;
        start();
        call();
        address();
        EXPECT_EQ(ibv_wr_complete(ex_), EINVAL) << op;
        EXPECT_TRUE(cq_empty(n_->cq));
    }
}

TEST_P(WrOfADatagram, ADatagramNeedsAnAddress)
{
    post();
    start();
    ibv_wr_send(ex_);
    address();
    ASSERT_EQ(ibv_wr_complete(ex_), 0);
    expect_sent(IBV_WC_SEND);
    expect_received(0);
    start();
    ibv_wr_send(ex_); // the address of an earlier one must not be used
    EXPECT_EQ(ibv_wr_complete(ex_), EINVAL);
    EXPECT_TRUE(cq_empty(n_->cq));
}

TEST_P(Wr, StatesThatDoNotSend)
{
    Qp qp = make_ex(*n_, type_, operations(type_));
    ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    for (int i = 0; i < 2; i++) {
        ibv_wr_start(ex);
        ex->wr_flags = 0;
        ibv_wr_send(ex);
        EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
        ASSERT_EQ(to_init(qp, init_path()), 0);
    }
    ASSERT_EQ(to_state(one_, IBV_QPS_ERR), 0);
    start(4);
    ibv_wr_send(ex_);
    address();
    EXPECT_EQ(ibv_wr_complete(ex_), 0);
    ibv_wc wc = next_wc(n_->cq);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, 4u);
}

TEST_P(Wr, Creation)
{
    for (unsigned bit = 0; bit < 16; bit++) {
        uint64_t op = UINT64_C(1) << bit;
        errno = 0;
        Qp qp = make_ex(*n_, type_, op);
        EXPECT_EQ((bool)qp, has(op)) << "operation bit " << bit;
        if (!qp) {
            EXPECT_EQ(errno, EOPNOTSUPP) << bit;
        }
    }
    Qp plain = make_qp(type_, n_->pd, n_->cq);
    EXPECT_EQ(ibv_qp_to_qp_ex(plain), nullptr) << "not made for it";
    order("caps -atomics");
    if (has(atomics)) {
        EXPECT_FALSE(make_ex(*n_, type_, operations(type_)));
        EXPECT_EQ(errno, EOPNOTSUPP);
        start();
        ibv_wr_atomic_fetch_add(ex_, n_->mr->rkey, n_->addr(rdma_at), 1);
        EXPECT_EQ(ibv_wr_complete(ex_), EINVAL);
    }
    order("caps +atomics");
}

TEST_P(Wr, RefusedAsPostsAre)
{
    order("refuse post_send EIO");
    start();
    ibv_wr_send(ex_);
    address();
    EXPECT_EQ(ibv_wr_complete(ex_), EIO);
    EXPECT_TRUE(cq_empty(n_->cq));
}

std::string type_name(const ::testing::TestParamInfo<ibv_qp_type> &info)
{
    return info.param == IBV_QPT_RC ? "Rc" : info.param == IBV_QPT_UC ? "Uc" : info.param == IBV_QPT_UD ? "Ud" : "Xrc";
}

INSTANTIATE_TEST_SUITE_P(All, Wr, ::testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND), type_name);
INSTANTIATE_TEST_SUITE_P(All, WrOfADatagram, ::testing::Values(IBV_QPT_UD), type_name);
INSTANTIATE_TEST_SUITE_P(All, WrOfAConnection, ::testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_XRC_SEND), type_name);
INSTANTIATE_TEST_SUITE_P(All, WrOfAReliableConnection, ::testing::Values(IBV_QPT_RC, IBV_QPT_XRC_SEND), type_name);

} // namespace
