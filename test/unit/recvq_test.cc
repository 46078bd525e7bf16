// SPDX-License-Identifier: BSD-3-Clause
// The receive_queues parameter, good and bad.
#include "btl_xrc_recvq.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace {

struct Good {
    const char *spec;
    unsigned n;
    xrc_recvq_class last;
};

const Good good[] = {
    {"X,64,1", 1, {64, 1, 0, 1, 1, 0}},
    {"X,64,2", 1, {64, 2, 1, 1, 1, 0}},
    {"X,64,3", 1, {64, 3, 2, 1, 1, 0}},
    {"X,1024,256", 1, {1024, 256, 192, 64, 64, 0}},
    {"X,1024,1024", 1, {1024, 1024, 768, 64, 256, 0}},
    {"X,1024,256,100", 1, {1024, 256, 100, 64, 64, 0}},
    {"X,1024,256,0", 1, {1024, 256, 0, 64, 64, 0}},
    {"X,1024,256,100,7", 1, {1024, 256, 100, 7, 64, 0}},
    {"X,1024,256,100,7,32", 1, {1024, 256, 100, 7, 32, 0}},
    {"X,1024,256,100,7,0", 1, {1024, 256, 100, 7, 256, 0}},
    {"X,1024,256,100,7,32,8", 1, {1024, 256, 100, 7, 32, 8}},
    {"X,1024,256,100,7,32,31", 1, {1024, 256, 100, 7, 32, 31}},
    {"X,67108864,65535,65534,65535", 1, {67108864, 65535, 65534, 65535, 16383, 0}},
    {"X,1024,1024:X,12288,256:X,65536,64", 3, {65536, 64, 48, 16, 16, 0}},
    {"X,64,8:X,128,8:X,256,8:X,512,8:X,1024,8:X,2048,8:X,4096,8:X,8192,8", 8, {8192, 8, 6, 2, 2, 0}},
    {"X,0128,0008", 1, {128, 8, 6, 2, 2, 0}},
};

TEST(RecvQ, GoodOnes)
{
    for (const Good &row : good) {
        xrc_recvq q;
        unsigned where = 99;
        ASSERT_EQ(xrc_recvq_parse(row.spec, &q, &where), XRC_RECVQ_OK) << row.spec;
        ASSERT_EQ(q.nclasses, row.n) << row.spec;
        EXPECT_EQ(std::memcmp(&q.c[q.nclasses - 1], &row.last, sizeof row.last), 0) << row.spec;
        EXPECT_EQ(where, 99u);
    }
}

struct Bad {
    const char *spec;
    xrc_recvq_fault fault;
    unsigned where;
};

const Bad bad[] = {
    {nullptr, XRC_RECVQ_EMPTY, 0},
    {"", XRC_RECVQ_EMPTY, 0},
    {":", XRC_RECVQ_EMPTY, 0},
    {"X,64,1:", XRC_RECVQ_EMPTY, 1},
    {":X,64,1", XRC_RECVQ_EMPTY, 0},
    {"X,64,1::X,128,1", XRC_RECVQ_EMPTY, 1},
    {"P,128,256,192,128", XRC_RECVQ_NOT_X, 0},
    {"S,2048,1024,1008,64", XRC_RECVQ_NOT_X, 0},
    {"P,128,256,192,128:S,2048,1024,1008,64:S,12288,1024,1008,64:S,65536,1024,1008,64", XRC_RECVQ_NOT_X, 0},
    {"X,128,256:S,2048,1024", XRC_RECVQ_NOT_X, 1},
    {"X,128,256:X,2048,1024:P,65536,64", XRC_RECVQ_NOT_X, 2},
    {"x,64,1", XRC_RECVQ_TYPE, 0},
    {"Q,64,1", XRC_RECVQ_TYPE, 0},
    {" X,64,1", XRC_RECVQ_TYPE, 0},
    {"64,1", XRC_RECVQ_TYPE, 0},
    {"XX,64,1", XRC_RECVQ_TYPE, 0},
    {"X", XRC_RECVQ_FIELDS, 0},
    {"X,64", XRC_RECVQ_FIELDS, 0},
    {"X,64,1:X", XRC_RECVQ_FIELDS, 1},
    {"X,64,9,8,7,6,5,4", XRC_RECVQ_FIELDS, 0},
    {"X,", XRC_RECVQ_NUMBER, 0},
    {"X,64,", XRC_RECVQ_NUMBER, 0},
    {"X,,1", XRC_RECVQ_NUMBER, 0},
    {"X,64,-1", XRC_RECVQ_NUMBER, 0},
    {"X,64,+1", XRC_RECVQ_NUMBER, 0},
    {"X,64, 1", XRC_RECVQ_NUMBER, 0},
    {"X,64,1 ", XRC_RECVQ_NUMBER, 0},
    {"X,0x40,1", XRC_RECVQ_NUMBER, 0},
    {"X,64k,1", XRC_RECVQ_NUMBER, 0},
    {"X,64,1.5", XRC_RECVQ_NUMBER, 0},
    {"X,64,1;X,128,1", XRC_RECVQ_NUMBER, 0},
    {"X,4294967296,1", XRC_RECVQ_NUMBER, 0},
    {"X,99999999999999999999999,1", XRC_RECVQ_NUMBER, 0},
    {"X,0,1", XRC_RECVQ_SIZE, 0},
    {"X,63,1", XRC_RECVQ_SIZE, 0},
    {"X,67108865,1", XRC_RECVQ_SIZE, 0},
    {"X,4294967295,1", XRC_RECVQ_SIZE, 0},
    {"X,64,0", XRC_RECVQ_NUM, 0},
    {"X,64,65536", XRC_RECVQ_NUM, 0},
    {"X,64,8,8", XRC_RECVQ_LOW, 0},
    {"X,64,8,9", XRC_RECVQ_LOW, 0},
    {"X,64,8,4,0", XRC_RECVQ_WINDOW, 0},
    {"X,64,8,4,65536", XRC_RECVQ_WINDOW, 0},
    {"X,64,8,4,2,9", XRC_RECVQ_INIT, 0},
    {"X,64,8,4,2,4,4", XRC_RECVQ_LIMIT, 0},
    {"X,64,8,4,2,0,8", XRC_RECVQ_LIMIT, 0},
    {"X,128,8:X,128,8", XRC_RECVQ_ORDER, 1},
    {"X,64,8:X,256,8:X,128,8", XRC_RECVQ_ORDER, 2},
    {"X,64,8:X,128,8:X,256,8:X,512,8:X,1024,8:X,2048,8:X,4096,8:X,8192,8:X,16384,8", XRC_RECVQ_MANY, 8},
};

TEST(RecvQ, BadOnes)
{
    for (const Bad &row : bad) {
        const std::string spec = row.spec != nullptr ? row.spec : "(null)";
        xrc_recvq q;
        std::memset(&q, 0x5a, sizeof q);
        unsigned where = 99;
        EXPECT_EQ(xrc_recvq_parse(row.spec, &q, &where), row.fault) << spec;
        EXPECT_EQ(where, row.where) << spec;
        EXPECT_EQ(q.nclasses, 0x5a5a5a5au) << spec << ": touched";
        EXPECT_EQ(xrc_recvq_parse(row.spec, &q, nullptr), row.fault) << spec;
    }
}

// Any prefix of a good string is good or refused, and never read behind its end.
TEST(RecvQ, EachPrefixIsSettled)
{
    const std::string whole = "X,1024,256,100,7,32,8:X,2048,64";
    for (size_t n = 0; n <= whole.size(); ++n) {
        const std::string cut = whole.substr(0, n);
        xrc_recvq q;
        const xrc_recvq_fault fault = xrc_recvq_parse(cut.c_str(), &q, nullptr);
        EXPECT_STRNE(xrc_recvq_fault_text(fault), "unknown") << cut;
    }
}

TEST(RecvQ, ClassOf)
{
    xrc_recvq q;
    ASSERT_EQ(xrc_recvq_parse("X,64,8:X,1024,8:X,65536,8", &q, nullptr), XRC_RECVQ_OK);
    const struct {
        size_t len;
        unsigned klass;
    } rows[] = {{0, 0}, {1, 0}, {63, 0}, {64, 0}, {65, 1}, {1023, 1}, {1024, 1}, {1025, 2}, {65536, 2}, {65537, 3},
                {SIZE_MAX, 3}};
    for (const auto &row : rows) {
        EXPECT_EQ(xrc_recvq_class_of(&q, row.len), row.klass) << row.len;
    }
}

// What a port locks: each part by itself is what the others make of it.
TEST(RecvQ, LockedMemory)
{
    const size_t page = 4096, ud = 576 * 256;
    xrc_recvq q;
    EXPECT_EQ(xrc_recvq_stride(64), 128u);
    EXPECT_EQ(xrc_recvq_stride(48), 64u);
    EXPECT_EQ(xrc_recvq_sends_at_a_time(32, 1024), 32u);
    EXPECT_EQ(xrc_recvq_sends_at_a_time(32, 65536), 8u);
    EXPECT_EQ(xrc_recvq_sends_at_a_time(1000000, 1024), 512u);
    EXPECT_EQ(xrc_recvq_sends_at_a_time(32, 64u << 20), 1u);
    ASSERT_EQ(xrc_recvq_parse("X,64,8,6,2,8", &q, nullptr), XRC_RECVQ_OK);
    EXPECT_EQ(xrc_recvq_locked(&q, page).start, ud + page + page);
    EXPECT_EQ(xrc_recvq_locked(&q, page).most, ud + page + page);
    ASSERT_EQ(xrc_recvq_parse("X,64,33,8,1,33:X,65536,2,1,1,2", &q, nullptr), XRC_RECVQ_OK);
    EXPECT_EQ(xrc_recvq_locked(&q, page).start, ud + 2 * page + page + 33 * page + 129 * page);
    EXPECT_EQ(xrc_recvq_locked(&q, page).most, ud + 2 * page + page + 33 * page + 129 * page);
    // 100 buffers, 100 more, 56 more
    ASSERT_EQ(xrc_recvq_parse("X,64,256,8,1,100", &q, nullptr), XRC_RECVQ_OK);
    EXPECT_EQ(xrc_recvq_locked(&q, page).start, ud + page + 4 * page);
    EXPECT_EQ(xrc_recvq_locked(&q, page).most, ud + page + (4 + 4 + 2) * page);
}

// Twice as many each time, until there are all.
TEST(RecvQ, Growth)
{
    struct {
        const char *spec;
        std::vector<uint32_t> pieces;
    } const rows[] = {
        {"X,64,1", {1}},
        {"X,64,2", {1, 1}},
        {"X,64,7", {1, 1, 2, 3}},
        {"X,1024,512", {128, 128, 256}},
        {"X,64,512,384,64,16", {16, 16, 32, 64, 128, 256}},
        {"X,64,512,384,64,0", {512}},
        {"X,64,65535,1,1,32768", {32768, 32767}},
    };
    for (const auto &row : rows) {
        xrc_recvq q;
        ASSERT_EQ(xrc_recvq_parse(row.spec, &q, nullptr), XRC_RECVQ_OK) << row.spec;
        std::vector<uint32_t> pieces;
        for (uint32_t made = 0, n; (n = xrc_recvq_next(&q.c[0], made)) > 0; made += n)
            pieces.push_back(n);
        EXPECT_EQ(pieces, row.pieces) << row.spec;
    }
}

}  // namespace
