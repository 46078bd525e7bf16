// SPDX-License-Identifier: BSD-3-Clause
// What processes tell each other: whole, and cut, spoilt or foreign in every way that a peer could do it.
#include "btl_xrc_wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace
{

xrc_modex sample(unsigned classes, unsigned modules)
{
    xrc_modex m;
    std::memset(&m, 0, sizeof m);
    m.nclasses = static_cast<uint8_t>(classes);
    m.nmodules = static_cast<uint8_t>(modules);
    for (unsigned i = 0; i < classes; ++i) {
        m.class_size[i] = 1000 * (i + 1);
    }
    for (unsigned k = 0; k < modules; ++k) {
        xrc_modex_module &p = m.module[k];
        for (unsigned i = 0; i < XRC_UUID_BYTES; ++i) {
            p.domain.b[i] = static_cast<uint8_t>(16 * k + i);
            p.addr.gid[i] = static_cast<uint8_t>(100 + k + i);
        }
        p.addr.lid = static_cast<uint16_t>(0xff01 + k);
        p.addr.port = static_cast<uint8_t>(1 + k);
        p.addr.mtu = 5;
        p.addr.link_layer = 1;
        p.ud = {0xabcdefu - k, 0x7fffffffu - k};
        for (unsigned i = 0; i < classes; ++i) {
            p.srqn[i] = 0xfffff0u + i;
        }
    }
    return m;
}

std::vector<uint8_t> packed(const xrc_modex &m)
{
    std::vector<uint8_t> buf(xrc_modex_size(&m));
    EXPECT_EQ(xrc_modex_encode(&m, buf.data(), buf.size()), buf.size());
    return buf;
}

// Put right what the checksum would find, so that the checks behind it are reached.
void reseal(std::vector<uint8_t> &buf)
{
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i + 4 < buf.size(); ++i) {
        a = (a + buf[i]) % 65521u;
        b = (b + a) % 65521u;
    }
    uint32_t sum = b << 16 | a;
    for (int i = 0; i < 4; ++i) {
        buf[buf.size() - 4 + i] = static_cast<uint8_t>(sum >> (24 - 8 * i));
    }
}

TEST(Modex, ComesBackAsItWas)
{
    for (unsigned classes = 1; classes <= XRC_MAX_CLASSES; ++classes) {
        for (unsigned modules = 0; modules <= XRC_MAX_MODULES; ++modules) {
            xrc_modex in = sample(classes, modules), out;
            std::memset(&out, 0x5a, sizeof out);
            std::vector<uint8_t> buf = packed(in);
            ASSERT_EQ(xrc_modex_decode(buf.data(), buf.size(), &out), XRC_MODEX_OK);
            ASSERT_EQ(out.nclasses, classes);
            ASSERT_EQ(out.nmodules, modules);
            EXPECT_EQ(std::memcmp(in.class_size, out.class_size, sizeof in.class_size), 0);
            for (unsigned k = 0; k < modules; ++k) {
                const xrc_modex_module &a = in.module[k], &b = out.module[k];
                EXPECT_EQ(std::memcmp(&a.domain, &b.domain, sizeof a.domain), 0);
                EXPECT_EQ(std::memcmp(a.addr.gid, b.addr.gid, sizeof a.addr.gid), 0);
                EXPECT_EQ(a.addr.lid, b.addr.lid);
                EXPECT_EQ(a.addr.port, b.addr.port);
                EXPECT_EQ(a.addr.mtu, b.addr.mtu);
                EXPECT_EQ(a.addr.link_layer, b.addr.link_layer);
                EXPECT_EQ(a.ud.qpn, b.ud.qpn);
                EXPECT_EQ(a.ud.qkey, b.ud.qkey);
                EXPECT_EQ(std::memcmp(a.srqn, b.srqn, sizeof a.srqn), 0);
            }
        }
    }
}

TEST(Modex, NoRoomNoBlob)
{
    xrc_modex m = sample(3, 2);
    std::vector<uint8_t> buf(xrc_modex_size(&m) - 1);
    EXPECT_EQ(xrc_modex_encode(&m, buf.data(), buf.size()), 0u);
    m.nclasses = 0;
    buf.resize(4096);
    EXPECT_EQ(xrc_modex_encode(&m, buf.data(), buf.size()), 0u);
    m = sample(3, 2);
    m.nmodules = XRC_MAX_MODULES + 1;
    EXPECT_EQ(xrc_modex_encode(&m, buf.data(), buf.size()), 0u);
}

// Each cut is refused, and the result not touched. The copy is as long as what is left, so that ASan sees a read too far.
TEST(Modex, EachCutIsRefused)
{
    std::vector<uint8_t> whole = packed(sample(3, 2));
    for (size_t n = 0; n < whole.size(); ++n) {
        std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<long>(n));
        xrc_modex out;
        std::memset(&out, 0x5a, sizeof out);
        EXPECT_NE(xrc_modex_decode(cut.data(), cut.size(), &out), XRC_MODEX_OK) << n << " bytes";
        EXPECT_EQ(out.nmodules, 0x5a);
    }
    EXPECT_EQ(xrc_modex_decode(nullptr, 0, nullptr), XRC_MODEX_SHORT);
}

TEST(Modex, EachFlippedBitIsRefused)
{
    std::vector<uint8_t> whole = packed(sample(2, 2));
    for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
        std::vector<uint8_t> bad = whole;
        bad[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
        xrc_modex out;
        EXPECT_NE(xrc_modex_decode(bad.data(), bad.size(), &out), XRC_MODEX_OK) << "bit " << bit;
    }
}

TEST(Modex, SaysWhatIsWrong)
{
    const std::vector<uint8_t> whole = packed(sample(3, 1));
    xrc_modex out;
    std::vector<uint8_t> b = whole;
    b[0] ^= 1;
    EXPECT_EQ(xrc_modex_decode(b.data(), b.size(), &out), XRC_MODEX_FOREIGN);
    b = whole;
    b[5] ^= 2;
    EXPECT_EQ(xrc_modex_decode(b.data(), b.size(), &out), XRC_MODEX_VERSION);
    b = whole;
    b.push_back(0);
    EXPECT_EQ(xrc_modex_decode(b.data(), b.size(), &out), XRC_MODEX_LENGTH);
    b = whole;
    b[8] = XRC_MAX_CLASSES + 1;
    EXPECT_EQ(xrc_modex_decode(b.data(), b.size(), &out), XRC_MODEX_RANGE);
    b = whole;
    b[9] = 2;
    EXPECT_EQ(xrc_modex_decode(b.data(), b.size(), &out), XRC_MODEX_LENGTH);
    b = whole;
    b[20] ^= 1;
    EXPECT_EQ(xrc_modex_decode(b.data(), b.size(), &out), XRC_MODEX_CHECKSUM);
    for (unsigned f = XRC_MODEX_OK; f <= XRC_MODEX_RANGE; ++f) {
        EXPECT_STRNE(xrc_modex_fault_text(static_cast<xrc_modex_fault>(f)), "unknown");
    }
    EXPECT_STREQ(xrc_modex_fault_text(static_cast<xrc_modex_fault>(99)), "unknown");
}

// With a good checksum: values no process can have.
TEST(Modex, ImpossibleValuesAreRefused)
{
    const size_t module = 12 + 4 * 2;
    const struct {
        size_t offset;
        uint8_t value;
        const char *what;
    } rows[] = {
        {12, 0xff, "sizes that fall"},       {module + 34, 0, "port 0"},     {module + 35, 0, "MTU 0"},
        {module + 35, 6, "MTU 6"},           {module + 36, 3, "link layer"}, {module + 40, 1, "QPN of 25 bits"},
        {module + 48, 1, "SRQN of 25 bits"},
    };
    for (const auto &row : rows) {
        std::vector<uint8_t> b = packed(sample(2, 1));
        ASSERT_NE(b[row.offset], row.value) << row.what;
        b[row.offset] = row.value;
        reseal(b);
        xrc_modex out;
        EXPECT_EQ(xrc_modex_decode(b.data(), b.size(), &out), XRC_MODEX_RANGE) << row.what;
    }
}

xrc_msg message(unsigned type)
{
    xrc_msg m;
    std::memset(&m, 0, sizeof m);
    m.type = static_cast<uint8_t>(type);
    m.reason = XRC_REASON_LEAVING;
    m.module = 3;
    m.rd_atomic = 16;
    m.src = {0xdeadbeef, 1};
    m.dst = {0xcafe0001, 0xfffffffe};
    for (unsigned i = 0; i < XRC_UUID_BYTES; ++i) {
        m.domain.b[i] = static_cast<uint8_t>(0xf0 + i);
        m.addr.gid[i] = static_cast<uint8_t>(i);
    }
    m.generation = 0x80000001;
    m.ini_qpn = 0xffffff;
    m.ini_psn = 0x123456;
    m.tgt_qpn = 0x800001;
    m.tgt_psn = 0xfedcba;
    m.slot = 4711;
    m.addr.lid = 0xbfff;
    m.addr.port = 2;
    m.addr.mtu = 4;
    m.addr.link_layer = 1;
    m.ud = {0x00beef, 0x12345678};
    m.path_seq = 0x87654321;
    m.nsides = static_cast<uint8_t>(type == XRC_MSG_ARM ? 2 : XRC_MAX_SIDES);
    for (unsigned i = 0; i < XRC_MAX_SIDES; ++i) {
        m.side[i] = {static_cast<uint16_t>(0xbff0 + i),
                     static_cast<uint8_t>(1 + i),
                     static_cast<uint8_t>(i),
                     {0xfedc00 + i, 99 + i}};
    }
    return m;
}

TEST(Message, ComesBackAsItWas)
{
    for (unsigned type = 1; type < XRC_MSG_TYPES; ++type) {
        xrc_msg in = message(type), out;
        uint8_t buf[XRC_MSG_BYTES];
        xrc_msg_encode(&in, buf);
        std::memset(&out, 0, sizeof out);
        ASSERT_EQ(xrc_msg_decode(buf, sizeof buf, &out), 0);
        EXPECT_EQ(std::memcmp(&in, &out, sizeof in), 0) << xrc_msg_type_name(type);
        EXPECT_STRNE(xrc_msg_type_name(type), "?");
    }
    EXPECT_STREQ(xrc_msg_type_name(0), "?");
    EXPECT_STREQ(xrc_msg_type_name(XRC_MSG_TYPES), "?");
}

// By these the initiator tells for which of its INI QPs it is meant, and whether that has moved since.
TEST(Message, MigrateSaysWhichArmingItIsAbout)
{
    xrc_msg in = message(XRC_MSG_MIGRATE), out;
    in.nsides = 0;
    std::memset(in.side, 0, sizeof in.side);
    uint8_t buf[XRC_MSG_BYTES];
    xrc_msg_encode(&in, buf);
    ASSERT_EQ(xrc_msg_decode(buf, sizeof buf, &out), 0);
    EXPECT_EQ(out.type, XRC_MSG_MIGRATE);
    EXPECT_EQ(out.ini_qpn, in.ini_qpn);
    EXPECT_EQ(out.generation, in.generation);
    EXPECT_EQ(out.path_seq, in.path_seq);
    EXPECT_EQ(std::memcmp(&out.domain, &in.domain, sizeof in.domain), 0);
    EXPECT_EQ(out.nsides, 0);
}

// By these the initiator tells which of its INI QPs has lost its TGT, and that it is not one which took the number over.
TEST(Message, GoneSaysWhichTgtIsMeant)
{
    xrc_msg in = message(XRC_MSG_GONE), out;
    in.nsides = 0;
    std::memset(in.side, 0, sizeof in.side);
    uint8_t buf[XRC_MSG_BYTES];
    xrc_msg_encode(&in, buf);
    ASSERT_EQ(xrc_msg_decode(buf, sizeof buf, &out), 0);
    EXPECT_EQ(out.type, XRC_MSG_GONE);
    EXPECT_EQ(out.ini_qpn, in.ini_qpn);
    EXPECT_EQ(out.generation, in.generation);
    EXPECT_EQ(out.tgt_qpn, in.tgt_qpn);
    EXPECT_EQ(out.tgt_psn, in.tgt_psn);
    EXPECT_EQ(std::memcmp(&out.domain, &in.domain, sizeof in.domain), 0);
}

TEST(Message, EachFlippedBitAndEachLengthIsRefused)
{
    xrc_msg in = message(XRC_MSG_REQUEST), out;
    std::vector<uint8_t> buf(XRC_MSG_BYTES + 8);
    xrc_msg_encode(&in, buf.data());
    for (size_t n = 0; n <= buf.size(); ++n) {
        EXPECT_EQ(xrc_msg_decode(buf.data(), n, &out), n == XRC_MSG_BYTES ? 0 : -1) << n << " bytes";
    }
    for (size_t bit = 0; bit < XRC_MSG_BYTES * 8; ++bit) {
        std::vector<uint8_t> bad(buf.begin(), buf.begin() + XRC_MSG_BYTES);
        bad[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
        EXPECT_EQ(xrc_msg_decode(bad.data(), bad.size(), &out), -1) << "bit " << bit;
    }
}

TEST(Message, ImpossibleValuesAreRefused)
{
    const auto refused = [](void (*spoil)(xrc_msg &)) {
        xrc_msg in = message(XRC_MSG_RESPONSE), out;
        spoil(in);
        uint8_t buf[XRC_MSG_BYTES];
        xrc_msg_encode(&in, buf);
        return xrc_msg_decode(buf, sizeof buf, &out) == -1;
    };
    EXPECT_FALSE(refused([](xrc_msg &) {}));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.type = 0; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.type = XRC_MSG_TYPES; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.reason = XRC_REASONS; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.module = XRC_MAX_MODULES; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.addr.port = 0; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.addr.mtu = 0; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.addr.mtu = 6; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.addr.link_layer = 3; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.ini_qpn = 1u << 24; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.tgt_qpn = 1u << 24; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.ud.qpn = 1u << 24; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.nsides = XRC_MAX_SIDES + 1; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.type = XRC_MSG_ARM; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.side[0].port = 0; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.side[1].lid = 0; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.side[2].bits = 128; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.side[2].bits = 1; }));
    EXPECT_TRUE(refused([](xrc_msg &m) { m.side[3].ud.qpn = 1u << 24; }));
    for (unsigned r = 0; r < XRC_REASONS; ++r) {
        EXPECT_STRNE(xrc_msg_reason_text(r), "unknown reason");
    }
}

} // namespace
