// ibv_modify_qp on QPs in every state against an independent copy of the rules: for every type and move the exact mask, each required
// attribute removed, each forbidden one added. What is refused changes nothing.
#include "conform/pair.h"
#include "conform/peer.h"
#include "conform/qp_rules.h"

#include <cstdio>

namespace
{

using namespace vt;
using rules::Key;
using rules::Row;

std::string words(int mask)
{
    std::string text;
    for (auto &a : rules::attribute)
        if (mask & a.second)
            text += (text.empty() ? "" : " ") + a.first;
    return text;
}

// One QP of each type, brought into any state and asked for any move. All values are good, so that the mask alone decides.
class Modify : public vt::Test, public ::testing::WithParamInterface<std::string>
{
  protected:
    Modify() : type_(rules::type_of.at(GetParam())), n_(new Node), cq_(make_cq(n_->ctx))
    {
        if (type_ == IBV_QPT_XRC_RECV) {
            xrcd_ = make_xrcd(n_->ctx);
            qp_ = make_tgt(xrcd_);
        } else {
            qp_ = make_qp(type_, n_->pd, cq_);
        }
        ah_ = make_ah(n_->pd, n_->lid);
    }
    void TearDown() override
    {
        qp_ = Qp();
        ah_ = Ah();
        xrcd_ = Xrcd();
        cq_ = Cq();
        n_.reset();
        vt::Test::TearDown();
    }
    // false: no QP of this type gets there.
    bool bring_to(ibv_qp_state state)
    {
        Path p;
        p.lid = n_->lid;
        p.qpn = qp_->qp_num;
        if (state == IBV_QPS_SQE && type_ != IBV_QPT_UC && type_ != IBV_QPT_UD)
            return false;
        need(to_state(qp_, IBV_QPS_RESET) == 0, "to RESET");
        if (state != IBV_QPS_RESET)
            need(to_init(qp_, p) == 0, "to INIT");
        if (state == IBV_QPS_ERR)
            need(to_state(qp_, IBV_QPS_ERR) == 0, "to ERR");
        if (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE)
            need(to_rtr(qp_, p) == 0, "to RTR");
        if (state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE)
            need(to_rts(qp_, p) == 0, "to RTS");
        if (state == IBV_QPS_SQD)
            need(to_state(qp_, IBV_QPS_SQD) == 0, "to SQD");
        if (state == IBV_QPS_SQE)
            need(outcome(qp_, Send(IBV_WR_SEND, {{n_->addr(), 8, 0x12345}}).datagram(ah_, 1, 1)) == IBV_WC_LOC_PROT_ERR,
                 "to SQE");
        need(state_of(qp_) == state, "the state");
        return true;
    }
    ibv_qp_attr good_values(ibv_qp_state from, ibv_qp_state to) const
    {
        ibv_qp_attr a = {};
        a.qp_state = to;
        a.cur_qp_state = from;
        a.path_mtu = IBV_MTU_1024;
        a.path_mig_state = IBV_MIG_MIGRATED;
        a.qkey = 0x11111111;
        a.dest_qp_num = qp_->qp_num;
        a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        a.ah_attr.dlid = a.alt_ah_attr.dlid = n_->lid;
        a.ah_attr.port_num = a.alt_ah_attr.port_num = a.port_num = a.alt_port_num = 1;
        a.max_rd_atomic = a.max_dest_rd_atomic = 1;
        a.timeout = a.alt_timeout = 8;
        return a;
    }
    void expect(Key key, int mask)
    {
        auto [type, from, to] = key;
        ibv_qp_attr a = good_values(from, to);
        int want = rules::allowed(table_, key, rules::strip(type, mask)) ? 0 : EINVAL;
        cases_++;
        accepted_ += want == 0;
        ASSERT_EQ(ibv_modify_qp(qp_, &a, mask | IBV_QP_STATE), want)
            << GetParam() << " from " << from << " to " << to << " with " << words(mask);
        ASSERT_EQ(state_of(qp_), want ? from : to);
        if (want == 0)
            bring_to(from);
    }

    ibv_qp_type type_;
    std::unique_ptr<Node> n_;
    Cq cq_;
    Xrcd xrcd_;
    Ah ah_;
    Qp qp_;
    std::map<Key, Row> table_ = rules::read();
    int cases_ = 0, accepted_ = 0;
};

TEST_P(Modify, EveryMoveWithEveryAttributeRemovedOrAdded)
{
    printf("%-4s %-5s %-5s  %-36s %s\n", "type", "from", "to", "required", "optional");
    for (auto &from : rules::state_of) {
        if (!bring_to(from.second))
            continue;
        for (auto &to : rules::state_of) {
            Key key = {type_, from.second, to.second};
            bool listed = table_.count(key);
            Row row = listed ? table_[key] : Row{};
            for (int base : {0, row.required, row.required | row.optional}) {
                expect(key, base);
                for (auto &a : rules::attribute)
                    expect(key, base ^ a.second);
            }
            ASSERT_FALSE(HasFatalFailure());
            if (listed)
                printf("%-4s %-5s %-5s  %-36s %s\n", GetParam().c_str(), from.first.c_str(), to.first.c_str(),
                       words(row.required).c_str(), words(row.optional).c_str());
        }
    }
    printf("%d cases, %d of them accepted\n", cases_, accepted_);
    EXPECT_GT(cases_, 2000);
    EXPECT_GT(accepted_, 50);
}

INSTANTIATE_TEST_SUITE_P(Types, Modify, ::testing::Values("rc", "uc", "ud", "ini", "tgt"),
                         [](const auto &info) { return info.param; });

} // namespace
