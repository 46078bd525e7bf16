// Bytes between two processes: every operation, over RC with and without an SRQ and over XRC, at sizes around each boundary of the
// implementation (inline, bounce buffer, MTU, page), each byte looked at on the other side.
#include "conform/peer.h"

namespace
{

using namespace vt;

enum Transport { RC, RC_SRQ, XRC };
const char *const transport_name[] = {"Rc", "RcWithSrq", "Xrc"};

constexpr size_t area = 1 << 21;

char pattern(uint32_t seed, size_t i)
{
    return (char) (seed * 2654435761u + i * 131 + (i >> 8));
}

void fill(Node &n, size_t at, uint32_t length, uint32_t seed)
{
    for (size_t i = 0; i < length; i++)
        n.mem[at + i] = pattern(seed, i);
}

// First wrong byte, or -1.
long first_wrong(const Node &n, size_t at, uint32_t length, uint32_t seed)
{
    for (size_t i = 0; i < length; i++)
        if (n.mem[at + i] != pattern(seed, i))
            return (long) i;
    return -1;
}

// What the sender asks of the receiving process.
struct Order {
    enum What { POST, EXPECT_MESSAGE, CHECK, FILL, QUIT } what;
    uint64_t id;
    uint32_t length, seed, pieces;
    ibv_wc_opcode opcode;
    uint32_t imm;
    bool with_imm;
};

constexpr size_t recv_at = 64, rdma_at = area / 2;

class Receiver
{
  public:
    Receiver(const Link &link, Transport t) : link_(link), t_(t), n_(area), xrcd_(make_xrcd(n_.ctx))
    {
        if (t == RC_SRQ)
            srq_ = make_srq(n_.pd);
        if (t == XRC)
            srq_ = make_xrc_srq(n_.pd, xrcd_, n_.cq);
        qp_ = t == XRC ? make_tgt(xrcd_) : make_qp(IBV_QPT_RC, n_.pd, n_.cq, srq_);
        connect_over(link, qp_, {n_.lid, qp_->qp_num, t == XRC ? srq_num(srq_) : 0, n_.mr->rkey, n_.addr(rdma_at)});
        link.meet();
    }

    void serve()
    {
        for (;;) {
            Order o = link_.get<Order>();
            long answer = -1;
            switch (o.what) {
            case Order::POST: post(o); break;
            case Order::EXPECT_MESSAGE: answer = message(o); break;
            case Order::CHECK: answer = first_wrong(n_, rdma_at, o.length, o.seed); break;
            case Order::FILL: fill(n_, rdma_at, o.length, o.seed); break;
            case Order::QUIT: return;
            }
            link_.put(answer);
        }
    }

  private:
    void post(const Order &o)
    {
        std::vector<ibv_sge> list;
        uint32_t done = 0;
        for (uint32_t i = 0; i < o.pieces; i++) {
            uint32_t len = i + 1 == o.pieces ? o.length - done : o.length / o.pieces;
            list.push_back(n_.sge(recv_at + done, len));
            done += len;
        }
        memset(&n_.mem[recv_at], 0xee, o.length + 1);
        EXPECT_EQ(t_ == RC ? post_recv(qp_, o.id, list) : post_recv(srq_, o.id, list), 0);
    }

    long message(const Order &o)
    {
        ibv_wc wc = next_wc(n_.cq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.opcode, o.opcode);
        EXPECT_EQ(wc.wr_id, o.id);
        EXPECT_EQ(wc.byte_len, o.length);
        EXPECT_EQ(wc.qp_num, qp_->qp_num) << "XRC: the local TGT QP's number";
        EXPECT_EQ((wc.wc_flags & IBV_WC_WITH_IMM) != 0, o.with_imm);
        if (o.with_imm) {
            EXPECT_EQ(be32toh(wc.imm_data), o.imm);
        }
        if (o.opcode != IBV_WC_RECV)
            return -1;
        EXPECT_EQ(n_.mem[recv_at + o.length], (char) 0xee) << "a byte behind the message was touched";
        return first_wrong(n_, recv_at, o.length, o.seed);
    }

    const Link &link_;
    Transport t_;
    Node n_;
    Xrcd xrcd_;
    Srq srq_;
    Qp qp_;
};

class Data : public vt::Test, public ::testing::WithParamInterface<Transport>
{
  protected:
    Data()
        : other_(new Child([](const Link &link) { Receiver(link, GetParam()).serve(); })), link_(other_->link()),
          n_(new Node(area))
    {
        qp_ = make_qp(GetParam() == XRC ? IBV_QPT_XRC_SEND : IBV_QPT_RC, n_->pd, n_->cq);
        peer_ = connect_over(link_, qp_, *n_);
        link_.meet();
    }
    void TearDown() override
    {
        link_.put(Order{Order::QUIT, 0, 0, 0, 0, IBV_WC_RECV, 0, false});
        EXPECT_EQ(other_->wait(), 0);
        qp_ = Qp();
        n_.reset();
        vt::Test::TearDown();
    }
    void order(Order::What what, uint32_t length, ibv_wc_opcode opcode = IBV_WC_RECV, bool imm = false)
    {
        link_.put(Order{what, id_, length, seed_, pieces_, opcode, imm_, imm});
        EXPECT_EQ(link_.get<long>(), -1) << "first wrong byte; operation " << what << ", length " << length;
    }
    std::vector<ibv_sge> split(size_t at, uint32_t length, uint32_t pieces)
    {
        std::vector<ibv_sge> list;
        uint32_t done = 0;
        for (uint32_t i = 0; i < pieces; i++) {
            uint32_t len = i + 1 == pieces ? length - done : length / pieces;
            list.push_back(n_->sge(at + done, len));
            done += len;
        }
        return list;
    }
    // Send with this opcode and have the other side look at it.
    void run(ibv_wr_opcode op, uint32_t length, uint32_t pieces, unsigned flags = IBV_SEND_SIGNALED)
    {
        bool write = op == IBV_WR_RDMA_WRITE || op == IBV_WR_RDMA_WRITE_WITH_IMM;
        bool imm = op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
        SCOPED_TRACE(testing::Message() << "opcode " << op << " length " << length << " pieces " << pieces);
        id_++;
        seed_ = seed_ * 7 + length;
        imm_ = 0xabc00000 + length;
        pieces_ = pieces;
        if (op != IBV_WR_RDMA_WRITE)
            order(Order::POST, imm && write ? 0 : length);
        fill(*n_, 0, length, seed_);
        ASSERT_EQ(Send(op, split(0, length, pieces), flags)
                      .to_srq(peer_.srqn)
                      .at(peer_.addr, peer_.rkey)
                      .imm(imm_)
                      .id(id_)
                      .post(qp_),
                  0);
        if (flags & IBV_SEND_INLINE)
            memset(n_->mem.data(), 0, length); // the buffer is the program's again
        if (flags & IBV_SEND_SIGNALED) {
            ibv_wc wc = next_wc(n_->cq);
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
            EXPECT_EQ(wc.wr_id, id_);
            EXPECT_EQ(wc.qp_num, qp_->qp_num);
            EXPECT_EQ(wc.opcode, write ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
        }
        if (op != IBV_WR_RDMA_WRITE)
            order(Order::EXPECT_MESSAGE, length, write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV, imm);
        if (write)
            order(Order::CHECK, length);
    }
    void read(uint32_t length, uint32_t pieces)
    {
        SCOPED_TRACE(testing::Message() << "READ length " << length << " pieces " << pieces);
        id_++;
        seed_ = seed_ * 7 + length;
        order(Order::FILL, length);
        memset(n_->mem.data(), 0xee, length + 1);
        ASSERT_EQ(Send(IBV_WR_RDMA_READ, split(0, length, pieces))
                      .to_srq(peer_.srqn)
                      .at(peer_.addr, peer_.rkey)
                      .id(id_)
                      .post(qp_),
                  0);
        ibv_wc wc = next_wc(n_->cq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.wr_id, id_);
        EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
        EXPECT_EQ(wc.byte_len, length);
        EXPECT_EQ(first_wrong(*n_, 0, length, seed_), -1);
        EXPECT_EQ(n_->mem[length], (char) 0xee);
    }

    std::unique_ptr<Child> other_;
    Link link_;
    std::unique_ptr<Node> n_;
    Address peer_;
    Qp qp_;
    uint64_t id_ = 0;
    uint32_t seed_ = 1, imm_ = 0, pieces_ = 1;
};

const uint32_t sizes[] = {0,    1,     2,     7,     15,    16,    17,    63,     64,     65,      255,
                          256,  257,   1023,  1024,  1025,  2048,  4095,  4096,   4097,   8191,    8192,
                          8193, 16383, 16384, 16385, 65535, 65536, 65537, 100000, 262144, 1048575, 1048576};

TEST_P(Data, SendsOfEverySizeArrive)
{
    for (uint32_t size : sizes)
        for (ibv_wr_opcode op : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM})
            run(op, size, 1);
}

TEST_P(Data, WritesOfEverySizeArrive)
{
    for (uint32_t size : sizes)
        for (ibv_wr_opcode op : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM})
            run(op, size, 1);
}

TEST_P(Data, ReadsOfEverySizeArrive)
{
    for (uint32_t size : sizes)
        read(size, 1);
}

TEST_P(Data, GatherAndScatterListsKeepTheOrderOfBytes)
{
    for (uint32_t size : {3u, 15u, 16u, 17u, 64u, 1000u, 8192u, 8193u, 100001u})
        for (uint32_t pieces : {2u, 3u, 4u}) {
            for (ibv_wr_opcode op : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM})
                run(op, size, pieces);
            read(size, pieces);
        }
}

TEST_P(Data, InlineBuffersAreFreeAtOnce)
{
    for (uint32_t size : {0u, 1u, 8u, 63u, 64u})
        for (ibv_wr_opcode op : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM})
            for (uint32_t pieces : {1u, 3u})
                run(op, size, pieces, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
}

TEST_P(Data, UnsignalledSendsRetireWithALaterSignalledOne)
{
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 63; i++)
            run(IBV_WR_SEND, 10, 1, 0);
        EXPECT_TRUE(cq_empty(n_->cq));
        run(IBV_WR_SEND, 10, 1);
        EXPECT_TRUE(cq_empty(n_->cq));
    }
}

// A queue of unsignalled WRs alone can never be reclaimed.
TEST_P(Data, UnsignalledSendsAloneFillTheQueue)
{
    for (int i = 0; i < 64; i++)
        ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, {}, 0).to_srq(peer_.srqn).post(qp_), 0) << i;
    EXPECT_EQ(Send(IBV_WR_RDMA_WRITE, {}, 0).to_srq(peer_.srqn).post(qp_), ENOMEM);
    EXPECT_EQ(Send(IBV_WR_RDMA_WRITE, {}).to_srq(peer_.srqn).post(qp_), ENOMEM);
}

// A message shorter than the WQE: the rest of the buffer stays as it was.
TEST_P(Data, ShortMessagesFillWqesPartly)
{
    id_ = 5;
    pieces_ = 2;
    order(Order::POST, 1000);
    fill(*n_, 0, 600, seed_);
    EXPECT_EQ(outcome(qp_, Send(IBV_WR_SEND, {n_->sge(0, 600)}).to_srq(peer_.srqn)), IBV_WC_SUCCESS);
    link_.put(Order{Order::EXPECT_MESSAGE, id_, 600, seed_, 2, IBV_WC_RECV, 0, false});
    EXPECT_EQ(link_.get<long>(), -1);
}

INSTANTIATE_TEST_SUITE_P(Transports, Data, ::testing::Values(RC, RC_SRQ, XRC),
                         [](const auto &info) { return transport_name[info.param]; });

// ---- in order, many, both ways ----

TEST(DataOrder, ThousandsOfSmallMessagesArriveInPostOrderThroughAShortQueue)
{
    constexpr uint32_t count = 20000;
    Child receiver([](const Link &link) {
        Node n;
        Qp qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
        connect_over(link, qp, n);
        for (uint32_t i = 0; i < 16; i++)
            need(post_recv(qp, i, {n.sge(64 * i, 64)}) == 0, "post_recv");
        link.meet();
        uint32_t wrong = 0;
        for (uint32_t i = 0; i < count; i++) {
            ibv_wc wc = next_wc(n.cq);
            uint32_t got;
            memcpy(&got, &n.mem[64 * wc.wr_id], sizeof(got));
            wrong += wc.status != IBV_WC_SUCCESS || got != i || wc.byte_len != 4 + i % 60;
            need(post_recv(qp, wc.wr_id, {n.sge(64 * wc.wr_id, 64)}) == 0, "post_recv");
        }
        EXPECT_EQ(wrong, 0u);
        link.meet();
    });
    Node n;
    Qp qp = make_qp(IBV_QPT_RC, n.pd, n.cq);
    connect_over(receiver.link(), qp, n);
    receiver.link().meet();
    for (uint32_t i = 0; i < count; i++) {
        memcpy(n.mem.data(), &i, sizeof(i));
        ASSERT_EQ(Send(IBV_WR_SEND, {n.sge(0, 4 + i % 60)}, IBV_SEND_INLINE | IBV_SEND_SIGNALED).post(qp), 0);
        ASSERT_EQ(next_wc(n.cq).status, IBV_WC_SUCCESS);
    }
    receiver.link().meet();
    EXPECT_EQ(receiver.wait(), 0);
}

} // namespace
