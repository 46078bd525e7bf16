// VERBS_SHIM_TOPOLOGY: what is understood, what is refused, and that a refusal changes nothing.
extern "C" {
#include "fabric/topology.h"
#include "memory/layout.h"
}

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace
{

struct Case {
    const char *text;
    int err;
    uint32_t devices, ports, lmc;
    uint32_t subnets = 1, prefixes = 0, numa = 0, max_msg = VS_MAX_MSG, roce = 0, atomics = VS_ATOMICS_HCA;
};

const Case cases[] = {
    {nullptr, 0, 1, 1, 0},
    {"", 0, 1, 1, 0},
    {"devices=2", 0, 2, 1, 0},
    {"ports=2", 0, 1, 2, 0},
    {"lmc=3", 0, 1, 1, 3},
    {"devices=2,ports=2,lmc=1", 0, 2, 2, 1},
    {"lmc=1,devices=8,ports=4", 0, 8, 4, 1},
    {"devices=0", 0, 0, 1, 0},
    {"lmc=0", 0, 1, 1, 0},
    {"lmc=7", 0, 1, 1, 7},
    {"devices=007", 0, 7, 1, 0},
    {"subnets=2", 0, 1, 1, 0, 2},
    {"devices=2,subnets=4,prefixes=1,numa=8", 0, 2, 1, 0, 4, 1, 8},
    {"subnets=0", EINVAL, 0, 0, 0},
    {"subnets=5", EINVAL, 0, 0, 0},
    {"prefixes=5", EINVAL, 0, 0, 0},
    {"numa=9", EINVAL, 0, 0, 0},
    {"max_msg=4096", 0, 1, 1, 0, 1, 0, 0, 4096},
    {"max_msg=1073741824", 0, 1, 1, 0},
    {"roce=1,ports=2", 0, 1, 2, 0, 1, 0, 0, VS_MAX_MSG, 1},
    {"roce=0,lmc=1", 0, 1, 1, 1},
    {"roce=2", EINVAL, 0, 0, 0},
    {"roce=1,lmc=1", EINVAL, 0, 0, 0},
    {"atomics=glob", 0, 1, 1, 0, 1, 0, 0, VS_MAX_MSG, 0, VS_ATOMICS_GLOB},
    {"lmc=1,atomics=glob,ports=2", 0, 1, 2, 1, 1, 0, 0, VS_MAX_MSG, 0, VS_ATOMICS_GLOB},
    {"atomics=hca", 0, 1, 1, 0},
    {"atomics=", EINVAL, 0, 0, 0},
    {"atomics=1", EINVAL, 0, 0, 0},
    {"atomics=glo", EINVAL, 0, 0, 0},
    {"atomics=globe", EINVAL, 0, 0, 0},
    {"atomics=hca,", EINVAL, 0, 0, 0},
    {"atomics=hca,atomics=glob", EINVAL, 0, 0, 0},
    {"max_msg=4095", EINVAL, 0, 0, 0},
    {"max_msg=1073741825", EINVAL, 0, 0, 0},
    {"max_msg=4294971392", EINVAL, 0, 0, 0},
    {"devices=9", EINVAL, 0, 0, 0},
    {"ports=0", EINVAL, 0, 0, 0},
    {"ports=5", EINVAL, 0, 0, 0},
    {"lmc=8", EINVAL, 0, 0, 0},
    {"devices=-1", EINVAL, 0, 0, 0},
    {"devices=+1", EINVAL, 0, 0, 0},
    {"devices= 1", EINVAL, 0, 0, 0},
    {"devices=", EINVAL, 0, 0, 0},
    {"devices", EINVAL, 0, 0, 0},
    {"devices=x", EINVAL, 0, 0, 0},
    {"devices=1x", EINVAL, 0, 0, 0},
    {"devices=1,", EINVAL, 0, 0, 0},
    {",devices=1", EINVAL, 0, 0, 0},
    {"devices=1,,ports=1", EINVAL, 0, 0, 0},
    {"devices=1 ports=1", EINVAL, 0, 0, 0},
    {"devices=1,devices=1", EINVAL, 0, 0, 0},
    {"Devices=1", EINVAL, 0, 0, 0},
    {"hosts=2", EINVAL, 0, 0, 0},
    {"devices=18446744073709551617", EINVAL, 0, 0, 0},
    {"devices=4294967297", EINVAL, 0, 0, 0},
};

TEST(Topology, Strings)
{
    for (const Case &c : cases) {
        SCOPED_TRACE(c.text ? c.text : "(null)");
        vs_topology t = {77, 78, 79, 80, 81, 82, 83, 84, 85};
        EXPECT_EQ(vs_topology_parse(c.text, &t), c.err);
        EXPECT_EQ(t.devices, c.err ? 77 : c.devices);
        EXPECT_EQ(t.ports, c.err ? 78 : c.ports);
        EXPECT_EQ(t.lmc, c.err ? 79 : c.lmc);
        EXPECT_EQ(t.subnets, c.err ? 80 : c.subnets);
        EXPECT_EQ(t.prefixes, c.err ? 81 : c.prefixes);
        EXPECT_EQ(t.numa, c.err ? 82 : c.numa);
        EXPECT_EQ(t.max_msg, c.err ? 83 : c.max_msg);
        EXPECT_EQ(t.roce, c.err ? 84 : c.roce);
        EXPECT_EQ(t.atomics, c.err ? 85 : c.atomics);
    }
}

TEST(Topology, EveryCutOfAGoodStringIsGoodOrRefused)
{
    const std::string good = "devices=8,ports=4,lmc=7,subnets=2,prefixes=1,numa=2,max_msg=65536,atomics=glob";
    for (size_t n = 0; n <= good.size(); n++) {
        vs_topology t;
        int err = vs_topology_parse(good.substr(0, n).c_str(), &t);
        if (err == 0) {
            EXPECT_LE(t.devices, VS_MAX_HCAS);
            EXPECT_LE(t.ports, VS_MAX_PORTS);
            EXPECT_LE(t.max_msg, VS_MAX_MSG);
            EXPECT_LE(t.atomics, (uint32_t) VS_ATOMICS_GLOB);
        }
        EXPECT_TRUE(err == 0 || err == EINVAL);
    }
}

} // namespace
