// SPDX-License-Identifier: BSD-3-Clause
// The address by which a peer's port is reached.
#include "unit/path_address.h"

#include <gtest/gtest.h>

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

} // namespace
