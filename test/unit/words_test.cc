// SPDX-License-Identifier: BSD-3-Clause
// Numbers and words that people give to parameters, and what is nearest to a wrong one.
#include "btl_xrc_words.h"

#include <gtest/gtest.h>

#include <climits>
#include <string>

namespace
{

TEST(Words, Distance)
{
    const struct {
        const char *a, *b;
        unsigned distance;
    } rows[] = {
        {"", "", 0},           {"", "abc", 3},
        {"abc", "", 3},        {"ports", "ports", 0},
        {"PORTS", "ports", 0}, {"port", "ports", 1},
        {"prots", "ports", 1}, {"kitten", "sitting", 3},
        {"of", "off", 1},      {"recieve_queues", "receive_queues", 1},
        {"ca", "abc", 3},
    };
    for (const auto &row : rows) {
        EXPECT_EQ(row.distance, xrc_words_distance(row.a, row.b)) << row.a << " " << row.b;
        EXPECT_EQ(row.distance, xrc_words_distance(row.b, row.a)) << row.b << " " << row.a;
    }
}

TEST(Words, DistanceOfLongOnesIsThatOfTheirBeginnings)
{
    std::string a(1000, 'a'), b(5000, 'a');
    EXPECT_EQ(0u, xrc_words_distance(a.c_str(), b.c_str()));
    EXPECT_EQ(63u, xrc_words_distance(a.c_str(), ""));
}

TEST(Words, Nearest)
{
    const char *const words[] = {"off", "ports", "lmc", "auto"};
    const struct {
        const char *given;
        unsigned index;
    } rows[] = {{"of", 0}, {"Off", 0}, {"port", 1}, {"lcm", 2}, {"automatic", 3}, {"auot", 3}, {"", 0}};
    for (const auto &row : rows) {
        EXPECT_EQ(row.index, xrc_words_nearest(row.given, words, 4)) << row.given;
    }
    EXPECT_EQ(0u, xrc_words_nearest("off", words, 0));
}

TEST(Words, Alike)
{
    EXPECT_TRUE(xrc_words_alike("btl_xrc_recieve_queues", "btl_xrc_receive_queues"));
    EXPECT_TRUE(xrc_words_alike("timeout", "ib_timeout"));
    EXPECT_FALSE(xrc_words_alike("xyzzy", "mtu"));
    EXPECT_FALSE(xrc_words_alike("", "mtu"));
}

TEST(Words, Numbers)
{
    const xrc_range range = {-1, 4096, 7, "bytes"};
    const struct {
        const char *text;
        bool good;
        int value;
    } rows[] = {
        {"0", true, 0},
        {"-1", true, -1},
        {"4096", true, 4096},
        {" 12", true, 12},
        {"0x10", true, 16},
        {"010", true, 8},
        {"4k", true, 4096},
        {"2K", true, 2048},
        {"-2", false, -1},
        {"4097", false, 4096},
        {"5k", false, 4096},
        {"1m", false, 4096},
        {"-1g", false, -1},
        {"5000000000", false, 4096},
        {"99999999999999999999999", false, 4096},
        {"-99999999999999999999999", false, -1},
        {"9999999999999999g", false, 4096},
        {"-9999999999999999g", false, -1},
        {"", false, 7},
        {"abc", false, 7},
        {"true", false, 7},
        {"12x", false, 7},
        {"1kb", false, 7},
        {"1.5", false, 7},
        {"k", false, 7},
        {"1 2", false, 7},
    };
    for (const auto &row : rows) {
        int value = 99;
        EXPECT_EQ(row.good, xrc_words_number(row.text, &range, &value)) << row.text;
        EXPECT_EQ(row.value, value) << row.text;
    }
}

std::string range_text(const xrc_range &range)
{
    char buf[64];
    xrc_words_range(buf, sizeof buf, &range);
    return buf;
}

TEST(Words, Ranges)
{
    EXPECT_EQ("1 to 86400 seconds", range_text({1, 86400, 30, "seconds"}));
    EXPECT_EQ("0 to 7", range_text({0, 7, 7, ""}));
    EXPECT_EQ("-1 or more buffers", range_text({-1, INT_MAX, -1, "buffers"}));
    EXPECT_EQ("0 or more", range_text({0, INT_MAX, 1, ""}));
}

std::string list_text(const char *const *words, unsigned n, size_t size = 64)
{
    std::string buf(size, 'x');
    xrc_words_list(&buf[0], size, words, n);
    return buf.c_str();
}

TEST(Words, Lists)
{
    const char *const words[] = {"off", "ports", "lmc"};
    EXPECT_EQ("", list_text(words, 0));
    EXPECT_EQ("off", list_text(words, 1));
    EXPECT_EQ("off or ports", list_text(words, 2));
    EXPECT_EQ("off, ports or lmc", list_text(words, 3));
    EXPECT_EQ("off, po", list_text(words, 3, 8));
    EXPECT_EQ("", list_text(words, 3, 1));
}

} // namespace
