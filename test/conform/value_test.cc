// Values that ibv_modify_qp refuses whatever the state table says of the attribute (ib_uverbs' modify_qp and the checks of drivers), each
// beside the last one that is taken; nothing changes by a refusal.
#include "conform/faults.h"
#include "conform/pair.h"

namespace
{

using namespace vt;

using Change = std::function<void(ibv_qp_attr &)>;

enum Move { TO_INIT, TO_RTR, TO_RTS, SQD_TO_SQD };

struct Row {
    const char *name;
    Move move;
    int bit;     // the attribute
    Change good; // the last value that is taken
    Change bad;
};

const Row rows[] = {
    {"port_num: more than there are", TO_INIT, IBV_QP_PORT, [](auto &a) { a.port_num = 2; }, [](auto &a) { a.port_num = 3; }},
    {"port_num: 0", TO_INIT, IBV_QP_PORT, [](auto &a) { a.port_num = 1; }, [](auto &a) { a.port_num = 0; }},
    {"pkey_index: the table's length", TO_INIT, IBV_QP_PKEY_INDEX, [](auto &a) { a.pkey_index = 7; },
     [](auto &a) { a.pkey_index = 8; }},
    {"path_mtu: 0", TO_RTR, IBV_QP_PATH_MTU, [](auto &a) { a.path_mtu = IBV_MTU_256; }, [](auto &a) { a.path_mtu = (ibv_mtu) 0; }},
    {"path_mtu: 6", TO_RTR, IBV_QP_PATH_MTU, [](auto &a) { a.path_mtu = IBV_MTU_4096; }, [](auto &a) { a.path_mtu = (ibv_mtu) 6; }},
    {"min_rnr_timer: 32", TO_RTR, IBV_QP_MIN_RNR_TIMER, [](auto &a) { a.min_rnr_timer = 31; }, [](auto &a) { a.min_rnr_timer = 32; }},
    {"max_dest_rd_atomic: over the device's", TO_RTR, IBV_QP_MAX_DEST_RD_ATOMIC, [](auto &a) { a.max_dest_rd_atomic = 16; },
     [](auto &a) { a.max_dest_rd_atomic = 17; }},
    {"dlid: multicast", TO_RTR, IBV_QP_AV, [](auto &a) { a.ah_attr.dlid = 0xbfff; }, [](auto &a) { a.ah_attr.dlid = 0xc000; }},
    {"src_path_bits: beyond the LMC", TO_RTR, IBV_QP_AV, [](auto &a) { a.ah_attr.src_path_bits = 1; },
     [](auto &a) { a.ah_attr.src_path_bits = 2; }},
    {"ah_attr.port_num: not the QP's", TO_RTR, IBV_QP_AV, [](auto &a) { a.ah_attr.port_num = 1; },
     [](auto &a) { a.ah_attr.port_num = 2; }},
    {"ah_attr.port_num: none", TO_RTR, IBV_QP_AV, [](auto &a) { a.ah_attr.port_num = 1; }, [](auto &a) { a.ah_attr.port_num = 0; }},
    {"timeout: 32", TO_RTS, IBV_QP_TIMEOUT, [](auto &a) { a.timeout = 31; }, [](auto &a) { a.timeout = 32; }},
    {"retry_cnt: 8", TO_RTS, IBV_QP_RETRY_CNT, [](auto &a) { a.retry_cnt = 7; }, [](auto &a) { a.retry_cnt = 8; }},
    {"rnr_retry: 8", TO_RTS, IBV_QP_RNR_RETRY, [](auto &a) { a.rnr_retry = 7; }, [](auto &a) { a.rnr_retry = 8; }},
    {"max_rd_atomic: over the device's", TO_RTS, IBV_QP_MAX_QP_RD_ATOMIC, [](auto &a) { a.max_rd_atomic = 16; },
     [](auto &a) { a.max_rd_atomic = 17; }},
    {"AV and port that do not agree", SQD_TO_SQD, IBV_QP_AV | IBV_QP_PORT, [](auto &a) { a.port_num = a.ah_attr.port_num = 2; },
     [](auto &a) { a.port_num = 2, a.ah_attr.port_num = 1; }},
};

class Value : public vt::Test
{
  protected:
    Value() : topology_("VERBS_SHIM_TOPOLOGY", "ports=2,lmc=1"), host_("VERBS_SHIM_HOST", "h"), n_(new Node), xrcd_(make_xrcd(n_->ctx))
    {
    }
    void TearDown() override
    {
        xrcd_ = Xrcd();
        n_.reset();
        vt::Test::TearDown();
    }
    Qp make(ibv_qp_type type) const
    {
        return type == IBV_QPT_XRC_RECV ? make_tgt(xrcd_) : make_qp(type, n_->pd, n_->cq);
    }
    Path path(const ibv_qp *qp) const
    {
        Path p;
        p.lid = n_->lid;
        p.qpn = qp->qp_num;
        return p;
    }
    // What the move needs; 0 where the type has not got the attribute.
    static int mask_of(ibv_qp_type type, Move move)
    {
        bool responds = type != IBV_QPT_XRC_SEND, requests = type != IBV_QPT_XRC_RECV;
        switch (move) {
        case TO_INIT: return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        case TO_RTR:
            return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
                   | (responds ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
        case TO_RTS:
            return IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN
                   | (requests ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0);
        case SQD_TO_SQD: return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PORT;
        }
        return 0;
    }
    ibv_qp_attr attr_of(const ibv_qp *qp, Move move) const
    {
        ibv_qp_attr a = {};
        const ibv_qp_state next[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD};
        a.qp_state = next[move];
        a.port_num = 1;
        a.path_mtu = IBV_MTU_1024;
        a.dest_qp_num = qp->qp_num;
        a.ah_attr.dlid = n_->lid;
        a.ah_attr.port_num = 1;
        return a;
    }
    void bring_to(ibv_qp *qp, Move before) const
    {
        Path p = path(qp);
        if (before >= TO_RTR)
            need(to_init(qp, p) == 0, "to INIT");
        if (before >= TO_RTS)
            need(to_rtr(qp, p) == 0, "to RTR");
        if (before == SQD_TO_SQD)
            need(to_rts(qp, p) == 0 && to_state(qp, IBV_QPS_SQD) == 0, "to SQD");
    }
    static std::string everything(ibv_qp *qp)
    {
        ibv_qp_attr a;
        ibv_qp_init_attr init;
        memset(&a, 0, sizeof(a));
        need(ibv_query_qp(qp, &a, 0x1fffff, &init) == 0, "ibv_query_qp");
        return std::string(reinterpret_cast<const char *>(&a), sizeof(a));
    }

    Setting topology_, host_;
    std::unique_ptr<Node> n_;
    Xrcd xrcd_;
};

TEST_F(Value, OutsideIsEinvalAndChangesNothing)
{
    const std::pair<ibv_qp_type, const char *> types[] = {
        {IBV_QPT_RC, "RC"}, {IBV_QPT_XRC_SEND, "INI"}, {IBV_QPT_XRC_RECV, "TGT"}};
    for (auto &row : rows) {
        printf("%-42s", row.name);
        for (auto &[type, name] : types) {
            int mask = mask_of(type, row.move);
            if ((mask & row.bit) != row.bit) {
                printf(" %4s", "-");
                continue;
            }
            Qp qp = make(type);
            bring_to(qp, row.move);
            std::string before = everything(qp);
            ibv_qp_attr a = attr_of(qp, row.move);
            row.bad(a);
            int err = ibv_modify_qp(qp, &a, mask);
            EXPECT_EQ(err, EINVAL) << name << ", " << row.name;
            EXPECT_EQ(everything(qp), before) << name << ", " << row.name;
            a = attr_of(qp, row.move);
            row.good(a);
            EXPECT_EQ(ibv_modify_qp(qp, &a, mask), 0) << name << ", the last that is taken: " << row.name;
            printf(" %4s", err == EINVAL ? name : "!");
        }
        printf("\n");
    }
}

TEST_F(Value, AnAddressInSqdImpliesThePort)
{
    Qp qp = make(IBV_QPT_RC);
    bring_to(qp, SQD_TO_SQD);
    ibv_qp_attr a = attr_of(qp, SQD_TO_SQD), q;
    ibv_qp_init_attr init;
    a.ah_attr.port_num = 2;
    ASSERT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV), 0);
    ASSERT_EQ(ibv_query_qp(qp, &q, IBV_QP_PORT | IBV_QP_AV, &init), 0);
    EXPECT_EQ(q.port_num, 2);
    EXPECT_EQ(q.ah_attr.port_num, 2);
}

// 24 bits on the wire: what is above them is not looked at.
TEST_F(Value, SequenceNumbersAreMasked)
{
    Qp qp = make(IBV_QPT_RC);
    Path p = path(qp);
    p.psn = 0xab123456;
    bring_up(qp, p);
    ibv_qp_attr q;
    ibv_qp_init_attr init;
    ASSERT_EQ(ibv_query_qp(qp, &q, IBV_QP_RQ_PSN | IBV_QP_SQ_PSN, &init), 0);
    EXPECT_EQ(q.rq_psn, 0x123456u);
    EXPECT_EQ(q.sq_psn, 0x123456u);
}

} // namespace
