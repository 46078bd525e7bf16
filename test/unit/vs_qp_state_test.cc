// The QP state table against an independent copy of the rules' rows: for every type and transition the exact mask, each required
// attribute removed, each forbidden one added.
#include <gtest/gtest.h>
#include <unistd.h>

#include "conform/qp_rules.h"

extern "C" {
#include "core/qp_state.h"
}

namespace
{

using namespace rules;

class QpState : public ::testing::Test
{
  protected:
    static void SetUpTestSuite()
    {
        alarm(60);
    }
    void expect(Key key, int mask)
    {
        auto [type, cur, next] = key;
        cases++;
        EXPECT_EQ(vs_qp_modify_ok(type, cur, next, mask | IBV_QP_STATE), allowed(table, key, mask))
            << "type " << type << " from " << cur << " to " << next << " mask 0x" << std::hex << mask;
    }
    std::map<Key, Row> table = rules::read();
    int cases = 0;
};

TEST_F(QpState, EveryMoveOfEveryTypeWithEveryAttributeRemovedOrAdded)
{
    for (auto &t : type_of)
        for (auto &from : state_of)
            for (auto &to : state_of) {
                Key key = {t.second, from.second, to.second};
                Row row = table.count(key) ? table[key] : Row{};
                for (int base : {0, row.required, row.required | row.optional}) {
                    expect(key, base);
                    for (auto &a : attribute)
                        expect(key, base ^ a.second);
                }
            }
    printf("%d cases\n", cases);
    EXPECT_GT(cases, 2000);
}

TEST_F(QpState, EveryPairOfAttributesMoreOrLess)
{
    for (auto &entry : table)
        for (auto &a : attribute)
            for (auto &b : attribute) {
                expect(entry.first, entry.second.required ^ (a.second | b.second));
                expect(entry.first, (entry.second.required | entry.second.optional) ^ (a.second | b.second));
            }
    printf("%d cases\n", cases);
}

TEST_F(QpState, TheTableHasNoRowThatTheRulesHaveNot)
{
    unsigned n = 0;
    for (const struct vs_qp_transition *t; (t = vs_qp_transition(n)) != nullptr; n++) {
        auto row = table.find({t->type, t->cur, t->next});
        ASSERT_NE(row, table.end()) << "row " << n;
        EXPECT_EQ(t->required, row->second.required) << "row " << n;
        EXPECT_EQ(t->optional, row->second.optional) << "row " << n;
    }
    size_t moves = 0;
    for (auto &entry : table)
        moves += std::get<2>(entry.first) != IBV_QPS_RESET && std::get<2>(entry.first) != IBV_QPS_ERR;
    EXPECT_EQ(n, moves);
}

// modify_qp_mask in uverbs_cmd.c: an INI has no responder, a TGT no requester; a caller may pass an RC-shaped mask for both.
TEST_F(QpState, UverbsStripsWhatTheOtherHalfOwns)
{
    int all = 0;
    for (auto &a : attribute)
        all |= a.second;
    EXPECT_EQ(vs_qp_strip_mask(IBV_QPT_RC, all), all);
    EXPECT_EQ(vs_qp_strip_mask(IBV_QPT_UD, all), all);
    EXPECT_EQ(vs_qp_strip_mask(IBV_QPT_XRC_SEND, all), all & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    EXPECT_EQ(vs_qp_strip_mask(IBV_QPT_XRC_RECV, all),
              all & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY));
}

TEST_F(QpState, UnknownTypesAndStatesAreRefused)
{
    EXPECT_FALSE(vs_qp_modify_ok(IBV_QPT_RAW_PACKET, IBV_QPS_RESET, IBV_QPS_RESET, IBV_QP_STATE));
    EXPECT_FALSE(vs_qp_modify_ok(IBV_QPT_RC, IBV_QPS_UNKNOWN, IBV_QPS_RESET, IBV_QP_STATE));
    EXPECT_FALSE(vs_qp_modify_ok(IBV_QPT_RC, (ibv_qp_state) -1, IBV_QPS_ERR, IBV_QP_STATE));
    EXPECT_FALSE(vs_qp_modify_ok(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_UNKNOWN, IBV_QP_STATE));
    EXPECT_FALSE(vs_qp_modify_ok(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_ERR, IBV_QP_STATE)) << "RESET to ERR is no move";
}

} // namespace
