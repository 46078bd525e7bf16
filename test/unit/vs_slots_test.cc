// Slots of the segment and their pages: ids and generations, what is found, what was forged, ends of tables.
#include "attached.h"

extern "C" {
#include "memory/pages.h"
#include "memory/process.h"
#include "memory/slots.h"
}

#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

namespace
{

class Slots : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        alarm(120);
        use_own_fabric();
        ASSERT_EQ(vs_segment_attach(), 0);
        vs_control_lock();
    }
    void TearDown() override
    {
        vs_control_unlock();
        vs_segment_detach();
    }
    uint32_t make(vs_table t, uint32_t *index)
    {
        EXPECT_EQ(vs_slot_alloc(t, vs_me_id, index), 0);
        vs_slot_publish(t, *index);
        return vs_slot_id(t, *index);
    }
};

TEST_F(Slots, AnIdNamesOneLife)
{
    for (int t = VS_PD; t < VS_TABLES; t++) {
        std::set<uint32_t> ids;
        for (int i = 0; i < 300; i++) {
            uint32_t index, id = make((vs_table) t, &index);
            EXPECT_TRUE(ids.insert(id).second) << "table " << t << ": id " << id << " came twice";
            EXPECT_NE(id, 0u);
            EXPECT_EQ(vs_slot_get((vs_table) t, id), vs_slot_at((vs_table) t, index));
            vs_slot_free((vs_table) t, index);
            EXPECT_EQ(vs_slot_get((vs_table) t, id), nullptr);
        }
    }
}

TEST_F(Slots, AWordNamesOneLifeEvenWhereItsIdComesAgain)
{
    std::set<uint64_t> lives;
    std::set<uint32_t> ids;
    bool again = false;
    for (int i = 0; i < 40000; i++) {
        uint32_t index, id = make(VS_QP, &index);
        uint32_t word = ((vs_slot *) vs_slot_at(VS_QP, index))->word;
        again |= !ids.insert(id).second;
        ASSERT_TRUE(lives.insert((uint64_t) index << 32 | word).second) << "life " << i << " of slot " << index;
        vs_slot_free(VS_QP, index);
    }
    EXPECT_TRUE(again) << "else this proves nothing: too few lives a slot";
}

TEST_F(Slots, OnlyTheLivingAreFound)
{
    uint32_t index;
    ASSERT_EQ(vs_slot_alloc(VS_QP, vs_me_id, &index), 0);
    uint32_t id = vs_slot_id(VS_QP, index);
    EXPECT_EQ(vs_slot_get(VS_QP, id), nullptr) << "being made";
    vs_slot_publish(VS_QP, index);
    EXPECT_NE(vs_slot_get(VS_QP, id), nullptr);
    vs_slot_retire(VS_QP, index);
    EXPECT_EQ(vs_slot_get(VS_QP, id), nullptr) << "dying";
    EXPECT_EQ(vs_slot_id(VS_QP, index), id);
    vs_slot_free(VS_QP, index);
    EXPECT_EQ(vs_slot_get(VS_QP, id), nullptr);
}

TEST_F(Slots, NumbersOnTheWireHave24Bits)
{
    for (vs_table t : {VS_QP, VS_SRQ})
        for (int i = 0; i < 600; i++) {
            uint32_t index, id = make(t, &index);
            EXPECT_LT(id, 1u << 24);
            EXPECT_GT(id, 1u) << "0 and 1 are reserved";
            vs_slot_free(t, index);
        }
}

TEST_F(Slots, IdsFromNowhereAreNotFound)
{
    for (int t = 0; t < VS_TABLES; t++)
        for (uint32_t id : {0u, 1u, 0xffffu, 0x10000u, 0xffffffu, 0x1000000u, 0x7fffffffu, 0x80000000u, 0xffffffffu})
            if (id != vs_me_id) {
                EXPECT_EQ(vs_slot_get((vs_table) t, id), nullptr) << t << " " << id;
            }
}

TEST_F(Slots, TablesHaveAnEnd)
{
    uint32_t index, n = 0;
    int err;
    while ((err = vs_slot_alloc(VS_XRCD, vs_me_id, &index)) == 0)
        n++;
    EXPECT_EQ(err, ENOMEM);
    EXPECT_EQ(n, vs_tables[VS_XRCD].count);
    vs_slot_free(VS_XRCD, 17);
    EXPECT_EQ(vs_slot_alloc(VS_XRCD, vs_me_id, &index), 0);
    EXPECT_EQ(index, 17u);
    for (uint32_t i = 0; i < n; i++)
        vs_slot_free(VS_XRCD, i);
}

// A count of reserved slots that somebody has written over: no slot beyond the table is looked at.
TEST_F(Slots, AForgedReservationLeadsNowhere)
{
    const uint32_t reserved = vs_seg->reserved[VS_HOST];
    vs_seg->reserved[VS_HOST] = 0xa500;
    for (uint32_t i = 0; i < 2 * vs_tables[VS_HOST].count + 2; i++) {
        uint32_t index;
        ASSERT_EQ(vs_slot_alloc(VS_HOST, vs_me_id, &index), 0);
        ASSERT_LT(index, vs_tables[VS_HOST].count);
        vs_slot_free(VS_HOST, index);
    }
    vs_seg->reserved[VS_HOST] = reserved;
}

TEST_F(Slots, ANewSlotIsZero)
{
    uint32_t index;
    make(VS_QP, &index);
    auto *qp = (vs_qp_shm *) vs_slot_at(VS_QP, index);
    memset((char *) qp + sizeof(vs_slot), 0xff, sizeof(*qp) - sizeof(vs_slot));
    vs_slot_free(VS_QP, index);
    uint32_t again = ~index;
    while (again != index) {
        ASSERT_EQ(vs_slot_alloc(VS_QP, vs_me_id, &again), 0);
        if (again != index)
            vs_slot_publish(VS_QP, again);
    }
    const char *bytes = (const char *) qp;
    for (size_t i = sizeof(vs_slot); i < sizeof(*qp); i++)
        ASSERT_EQ(bytes[i], 0) << i;
}

TEST_F(Slots, ExtentsDoNotOverlapAndComeBack)
{
    std::vector<std::pair<uint32_t, uint32_t>> seen;
    std::vector<uint32_t> slots;
    for (int i = 0; i < 200; i++) {
        uint32_t index;
        make(VS_CQ, &index);
        auto *slot = (vs_slot *) vs_slot_at(VS_CQ, index);
        ASSERT_EQ(vs_extent_alloc(slot, (uint64_t) (i % 7 + 1) * 5000), 0);
        for (auto &[page, pages] : seen)
            ASSERT_TRUE(slot->ext_page >= page + pages || slot->ext_page + slot->ext_pages <= page);
        seen.emplace_back(slot->ext_page, slot->ext_pages);
        slots.push_back(index);
    }
    for (uint32_t index : slots)
        vs_slot_free(VS_CQ, index);
    for (uint64_t word : vs_seg->page_map)
        ASSERT_EQ(word, 0u);
}

TEST_F(Slots, ExtentsThatPointOutsideTheRegionAreNone)
{
    vs_slot forged = {};
    uint64_t bytes;
    struct {
        uint32_t page, pages;
    } rows[] = {{0, 0},          {vs_seg->data_pages, 1}, {vs_seg->data_pages - 1, 2}, {0, vs_seg->data_pages + 1},
                {UINT32_MAX, 2}, {2, UINT32_MAX}};
    for (auto &row : rows) {
        forged.ext_page = row.page;
        forged.ext_pages = row.pages;
        EXPECT_EQ(vs_extent(&forged, &bytes), nullptr) << row.page << " " << row.pages;
        vs_extent_free(&forged); // and giving them back touches nothing
    }
    forged.ext_page = vs_seg->data_pages - 1;
    forged.ext_pages = 1;
    EXPECT_NE(vs_extent(&forged, &bytes), nullptr);
}

} // namespace
