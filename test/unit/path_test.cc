// SPDX-License-Identifier: BSD-3-Clause
// The address by which a peer's port is reached; what an HCA says of a QP's paths.
#include "unit/path_address.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

namespace
{

struct Path : testing::Test {
    path_from from = {2, 3, 5, 0};
    xrc_port_addr remote = {};

    Path()
    {
        remote.lid = 0x1234;
        remote.port = 1;
        remote.link_layer = IBV_LINK_LAYER_INFINIBAND;
        for (unsigned i = 0; i < sizeof(remote.gid); ++i) {
            remote.gid[i] = static_cast<uint8_t>(0x10 + i);
        }
    }

    // Whatever is not said must be nothing, so it begins with rubbish.
    ibv_ah_attr address() const
    {
        ibv_ah_attr ah;
        memset(&ah, 0xa5, sizeof(ah));
        path_address(&from, &remote, &ah);
        return ah;
    }
};

TEST_F(Path, LidPortAndPathBitsOfInfiniBand)
{
    const ibv_ah_attr ah = address();
    EXPECT_EQ(ah.dlid, 0x1234);
    EXPECT_EQ(ah.port_num, 2) << "ours, not the peer's";
    EXPECT_EQ(ah.src_path_bits, 3);
    EXPECT_EQ(ah.static_rate, 0);
    EXPECT_EQ(ah.is_global, 0);
    const ibv_global_route none = {};
    EXPECT_EQ(memcmp(&ah.grh, &none, sizeof(none)), 0);
}

TEST_F(Path, ServiceLevelIsTheParameter)
{
    for (int level = 0; level < 16; ++level) {
        from.service_level = level;
        EXPECT_EQ(address().sl, level);
        remote.link_layer ^= IBV_LINK_LAYER_INFINIBAND ^ IBV_LINK_LAYER_ETHERNET;
    }
}

TEST_F(Path, EthernetIsReachedByItsGid)
{
    remote.link_layer = IBV_LINK_LAYER_ETHERNET;
    const ibv_ah_attr ah = address();
    EXPECT_EQ(ah.is_global, 1);
    EXPECT_EQ(memcmp(ah.grh.dgid.raw, remote.gid, sizeof(remote.gid)), 0);
    EXPECT_EQ(ah.grh.sgid_index, 5);
    EXPECT_GT(ah.grh.hop_limit, 1);
    EXPECT_EQ(ah.grh.traffic_class, 0);
    EXPECT_EQ(ah.grh.flow_label, 0u);
    EXPECT_EQ(ah.port_num, 2);
}

// What ibv_query_qp says, where parts of it do not fit together.
struct Look : testing::Test {
    ibv_qp_attr answer = {};
    path_seen seen = {};

    Look()
    {
        answer.qp_state = IBV_QPS_RTS;
        answer.path_mig_state = IBV_MIG_ARMED;
        answer.port_num = 1;
        answer.alt_port_num = 2;
        answer.ah_attr.dlid = 10;
        answer.alt_ah_attr.dlid = 20;
    }
};

TEST_F(Look, ThePortIsTheQpsWhateverItsAddressesSay)
{
    for (uint8_t stale : {0, 1, 2, 7}) {
        answer.ah_attr.port_num = answer.alt_ah_attr.port_num = stale;
        ASSERT_EQ(path_look(&answer, 0, &seen), 0);
        EXPECT_EQ(seen.primary.port_num, 1);
        EXPECT_EQ(seen.alternate.port_num, 2);
        EXPECT_EQ(seen.primary.dlid, 10);
        EXPECT_EQ(seen.alternate.dlid, 20);
    }
}

TEST_F(Look, ArmedIsNotReadyInAnyOtherState)
{
    for (int state = IBV_QPS_RESET; state <= IBV_QPS_UNKNOWN; ++state) {
        answer.qp_state = static_cast<ibv_qp_state>(state);
        ASSERT_EQ(path_look(&answer, 0, &seen), 0);
        EXPECT_EQ(seen.mig, IBV_MIG_ARMED);
        EXPECT_EQ(seen.ready, state == IBV_QPS_RTS) << state;
    }
}

TEST_F(Look, AnHcaThatRefusesHasSaidNothing)
{
    seen.mig = IBV_MIG_REARM;
    seen.primary.dlid = 77;
    EXPECT_EQ(path_look(&answer, EIO, &seen), EIO);
    EXPECT_EQ(seen.mig, IBV_MIG_REARM);
    EXPECT_FALSE(seen.ready);
    EXPECT_EQ(seen.primary.dlid, 77);
}

TEST_F(Look, APathIsAnotherWhenOneOfItsEndsIs)
{
    xrc_side local = {}, remote = {};
    local.port = 1;
    local.bits = 3;
    remote.lid = 10;
    ibv_ah_attr ah = {};
    ah.dlid = 10;
    ah.port_num = 1;
    ah.src_path_bits = 3;
    EXPECT_TRUE(path_is(&ah, &local, &remote));
    for (auto change : {+[](ibv_ah_attr *a) { ++a->dlid; }, +[](ibv_ah_attr *a) { ++a->port_num; },
                        +[](ibv_ah_attr *a) { ++a->src_path_bits; }}) {
        ibv_ah_attr other = ah;
        change(&other);
        EXPECT_FALSE(path_is(&other, &local, &remote));
    }
}

} // namespace
