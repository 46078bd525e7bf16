// SPDX-License-Identifier: BSD-3-Clause
// Which ports are used, and with which of a peer's ports each of them talks.
#include "btl_xrc_locality.h"
#include "btl_xrc_rails.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace {

constexpr uint8_t kInfiniBand = 1, kEthernet = 2;

xrc_port_addr port(uint8_t prefix, uint8_t guid, uint16_t lid = 1, uint8_t link_layer = kInfiniBand)
{
    xrc_port_addr a = {};
    a.gid[0] = 0xfe;
    a.gid[7] = prefix;
    a.gid[15] = guid;
    a.lid = lid;
    a.link_layer = link_layer;
    return a;
}

std::vector<int> matches(const std::vector<xrc_port_addr> &mine, const std::vector<xrc_port_addr> &theirs)
{
    std::vector<xrc_modex_module> modules(theirs.size());
    for (size_t i = 0; i < theirs.size(); ++i) {
        modules[i].addr = theirs[i];
    }
    std::vector<int> result;
    for (unsigned i = 0; i < mine.size(); ++i) {
        result.push_back(xrc_rails_match(mine.data(), i, modules.data(), static_cast<unsigned>(modules.size())));
    }
    return result;
}

// The subnet prefix decides: a port is never tried on a fabric it is not on. Both sides see the same pairs.
TEST(Rails, PortsOfOneFabricMeetInTurn)
{
    const auto a1 = port(1, 1), a2 = port(1, 2), b1 = port(2, 3), b2 = port(2, 4), e = port(1, 5, 0, kEthernet);
    EXPECT_EQ(matches({a1, a2}, {a1, a2}), (std::vector<int>{0, 1}));
    EXPECT_EQ(matches({a1, b1}, {b1, a1}), (std::vector<int>{1, 0}));
    EXPECT_EQ(matches({a1, a2, b1, b2}, {b1, b2, a1, a2}), (std::vector<int>{2, 3, 0, 1}));
    EXPECT_EQ(matches({a1, a2}, {a1}), (std::vector<int>{0, -1}));
    EXPECT_EQ(matches({a1}, {a1, a2}), (std::vector<int>{0}));
    EXPECT_EQ(matches({a1, b1}, {b2}), (std::vector<int>{-1, 0}));
    EXPECT_EQ(matches({a1, b1, a2}, {a1, a2, b1, b2}), (std::vector<int>{0, 2, 1}));
    EXPECT_EQ(matches({a1}, {e}), (std::vector<int>{-1}));
    EXPECT_EQ(matches({a1}, {}), (std::vector<int>{-1}));
}

TEST(Rails, BothSidesSeeTheSamePairs)
{
    const std::vector<xrc_port_addr> all = {port(1, 1), port(2, 2), port(1, 3), port(2, 4), port(1, 5)};
    for (unsigned mine = 0; mine < 32; ++mine) {
        for (unsigned theirs = 0; theirs < 32; ++theirs) {
            std::vector<xrc_port_addr> a, b;
            for (unsigned i = 0; i < 5; ++i) {
                if (mine >> i & 1) {
                    a.push_back(all[i]);
                }
                if (theirs >> i & 1) {
                    b.push_back(all[i]);
                }
            }
            const std::vector<int> there = matches(a, b), back = matches(b, a);
            for (size_t i = 0; i < there.size(); ++i) {
                EXPECT_TRUE(there[i] < 0 || back[there[i]] == static_cast<int>(i)) << mine << " " << theirs;
            }
        }
    }
}

// Two fabrics on one prefix are told by their subnet managers or by a LID that was given out twice (open-mpi/ompi#1352:
// a warning that counted ports warns where there is one fabric). In any order of ports.
TEST(Rails, ClashIsTwoFabricsOnOnePrefix)
{
    struct {
        xrc_rail first, second;
        bool clash;
    } const rows[] = {
        {{port(0, 1, 4), 1, 1}, {port(0, 2, 5), 1, 1}, false},
        {{port(0, 1, 4), 1, 1}, {port(0, 2, 5), 1, 2}, true},
        {{port(0, 1, 4), 1, 1}, {port(0, 2, 4), 1, 1}, true},
        {{port(0, 1, 4), 4, 1}, {port(0, 2, 7), 1, 1}, true},
        {{port(0, 1, 4), 4, 1}, {port(0, 2, 8), 4, 1}, false},
        {{port(0, 1, 4), 1, 1}, {port(0, 1, 4), 1, 1}, false}, // one port
        {{port(0, 1, 4), 1, 1}, {port(1, 2, 4), 1, 2}, false},
        {{port(0, 1, 0, kEthernet), 1, 0}, {port(0, 2, 0, kEthernet), 1, 0}, false},
    };
    unsigned a = 99, b = 99;
    for (const auto &row : rows) {
        const xrc_rail there[] = {row.first, row.second}, back[] = {row.second, row.first};
        EXPECT_EQ(xrc_rails_clash(there, 2, &a, &b), row.clash);
        EXPECT_EQ(xrc_rails_clash(back, 2, &a, &b), row.clash);
    }
    const xrc_rail four[] = {
        {port(1, 1, 4), 1, 1}, {port(0, 2, 5), 1, 2}, {port(1, 3, 6), 1, 1}, {port(0, 4, 7), 1, 3}};
    EXPECT_TRUE(xrc_rails_clash(four, 4, &a, &b));
    EXPECT_EQ(a, 1u);
    EXPECT_EQ(b, 3u);
    EXPECT_FALSE(xrc_rails_clash(four, 3, &a, &b));
    EXPECT_FALSE(xrc_rails_clash(four, 0, &a, &b));
}

TEST(Rails, Bandwidth)
{
    EXPECT_EQ(xrc_rails_bandwidth(1, 1), 2000u);
    EXPECT_EQ(xrc_rails_bandwidth(32, 2), 100000u);
    EXPECT_EQ(xrc_rails_bandwidth(4, 8), 96000u);
    EXPECT_EQ(xrc_rails_bandwidth(128, 16), 200000u);
    EXPECT_EQ(xrc_rails_bandwidth(0, 0), 2000u) << "unknown";
    EXPECT_EQ(xrc_rails_bandwidth(255, 255), 2000u);
}

// Never more path bits than the port's LMC has (openucx/ucx 63a9fae1a0: path bits beyond an LMC of 0).
std::vector<unsigned> spares(unsigned lmc, unsigned rails, unsigned bits, unsigned most)
{
    std::vector<uint8_t> spare(most + 1, 0xff);
    unsigned n = xrc_rails_spares(lmc, rails, bits, spare.data(), most);
    EXPECT_LE(n, most);
    EXPECT_EQ(spare[most], 0xff);
    return {spare.begin(), spare.begin() + n};
}

TEST(Rails, SpareLids)
{
    using V = std::vector<unsigned>;
    EXPECT_EQ(spares(0, 1, 0, 3), V());
    EXPECT_EQ(spares(2, 1, 0, 3), (V{1, 2, 3}));
    EXPECT_EQ(spares(2, 2, 0, 3), (V{2, 3, 1})) << "its share, the other rail's, the other rail";
    EXPECT_EQ(spares(2, 2, 1, 3), (V{3, 2, 0}));
    EXPECT_EQ(spares(1, 2, 0, 3), (V{1})) << "nothing is left over: then the rails stand in for each other";
    EXPECT_EQ(spares(1, 2, 1, 3), (V{0}));
    EXPECT_EQ(spares(2, 3, 1, 3), (V{3, 2, 0})) << "one is left over: for all three";
    EXPECT_EQ(spares(3, 2, 1, 2), (V{3, 5}));
    EXPECT_EQ(spares(3, 2, 1, 0), V());
}

// Never itself, none twice, all if there is room; and two rails share none while there are shares for both.
TEST(Rails, SpareLidsOfAllShapes)
{
    for (unsigned lmc = 0; lmc <= 7; ++lmc) {
        for (unsigned rails = 1; rails <= 1u << lmc && rails <= XRC_MAX_MODULES; ++rails) {
            std::set<unsigned> firsts;
            for (unsigned bits = 0; bits < rails; ++bits) {
                std::vector<unsigned> all = spares(lmc, rails, bits, 128);
                std::set<unsigned> different(all.begin(), all.end());
                EXPECT_EQ(all.size(), (1u << lmc) - 1);
                EXPECT_EQ(different.size(), all.size());
                EXPECT_EQ(different.count(bits), 0u);
                if (!all.empty()) {
                    firsts.insert(all[0]);
                }
            }
            if (2 * rails <= 1u << lmc) {
                EXPECT_EQ(firsts.size(), rails) << "LMC " << lmc;
                EXPECT_GE(*firsts.begin(), rails) << "LMC " << lmc;
            }
        }
    }
}

TEST(Rails, Lids)
{
    for (unsigned lmc = 0; lmc <= 7; ++lmc) {
        EXPECT_EQ(xrc_rails_lids(lmc, 0), 1u << lmc);
        EXPECT_EQ(xrc_rails_lids(lmc, 1), 1u);
        EXPECT_EQ(xrc_rails_lids(lmc, 128), 1u << lmc);
    }
    EXPECT_EQ(xrc_rails_lids(2, 3), 3u);
}

TEST(Rails, Names)
{
    EXPECT_TRUE(xrc_rails_named("mlx5_0", "mlx5_0", 2));
    EXPECT_TRUE(xrc_rails_named("mlx4_0,mlx5_0:2", "mlx5_0", 2));
    EXPECT_TRUE(xrc_rails_named("mlx5_0:1,mlx5_0:2", "mlx5_0", 2));
    for (const char *list : {"", ",", "mlx5_0:1", "mlx5_0:", "mlx5_0:2x", "mlx5_0:x", "mlx5_01", "mlx5_", "mlx5_0 ",
                             "xmlx5_0", "mlx5_00:2", "mlx5_0:1,2"}) {
        EXPECT_FALSE(xrc_rails_named(list, "mlx5_0", 2)) << list;
    }
}

TEST(Rails, TheNearestAreKept)
{
    const unsigned closeness[] = {3, 0, 7, 7, 1};
    bool keep[5] = {};
    xrc_rails_nearest(closeness, 5, keep);
    EXPECT_EQ(std::vector<bool>(keep, keep + 5), (std::vector<bool>{false, true, true, true, false}));
    const unsigned unknown[] = {0, 0};
    xrc_rails_nearest(unknown, 2, keep);
    EXPECT_TRUE(keep[0] && keep[1]);
}

class Machine {
public:
    explicit Machine(const char *description)
    {
        EXPECT_EQ(hwloc_topology_init(&topology_), 0);
        EXPECT_EQ(hwloc_topology_set_synthetic(topology_, description), 0);
        EXPECT_EQ(hwloc_topology_load(topology_), 0);
    }

    ~Machine()
    {
        hwloc_topology_destroy(topology_);
    }

    unsigned closeness(unsigned first, unsigned last, unsigned node)
    {
        hwloc_bitmap_t binding = hwloc_bitmap_alloc();
        hwloc_bitmap_set_range(binding, first, static_cast<int>(last));
        const unsigned c = xrc_locality_closeness(topology_, binding, node);
        hwloc_bitmap_free(binding);
        return c;
    }

private:
    hwloc_topology_t topology_ = nullptr;
};

// Two packages of two NUMA nodes of two processors each.
TEST(Locality, NearerIsHigher)
{
    Machine machine("package:2 group:2 [numa] pu:2");
    const unsigned own = machine.closeness(0, 0, 0), beside = machine.closeness(0, 0, 1),
                   far = machine.closeness(0, 0, 2);
    EXPECT_GT(own, beside);
    EXPECT_GT(beside, far);
    EXPECT_EQ(far, machine.closeness(0, 0, 3));
    EXPECT_GT(far, 0u);
    EXPECT_EQ(machine.closeness(6, 7, 3), own);
    EXPECT_EQ(machine.closeness(2, 5, 1), machine.closeness(2, 5, 2)) << "both are its own";
}

TEST(Locality, NothingToChooseByIsZero)
{
    Machine machine("package:2 group:2 [numa] pu:2");
    EXPECT_EQ(machine.closeness(0, 7, 0), 0u) << "not bound";
    EXPECT_EQ(machine.closeness(0, 0, 4), 0u) << "no such node";
}

} // namespace
