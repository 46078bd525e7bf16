// `vshim check` finds what is planted into the segment, and names it. Everything is put back before the objects are destroyed.
#include "conform/faults.h"
#include "conform/pair.h"

#include <sys/mman.h>

#include "memory/slots.h"

namespace
{

using namespace vt;

// The segment as any process of this user may map it.
class Segment
{
  public:
    Segment()
    {
        int fd = open((fabric_dir() + "/segment").c_str(), O_RDWR | O_CLOEXEC);
        need(fd >= 0, "open");
        base_ = static_cast<char *>(mmap(nullptr, VS_SEGMENT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        close(fd);
        need(base_ != MAP_FAILED, "mmap");
    }
    Segment(const Segment &) = delete;
    ~Segment()
    {
        munmap(base_, VS_SEGMENT_SIZE);
    }
    vs_segment &head()
    {
        return *reinterpret_cast<vs_segment *>(base_);
    }
    // The live slots of a table.
    template <class T> std::vector<T *> live(vs_table t)
    {
        std::vector<T *> slots;
        for (uint32_t i = 0; i < head().reserved[t]; i++) {
            char *at = base_ + head().table_offset[t] + (size_t)i * head().slot_size[t];
            if ((reinterpret_cast<vs_slot *>(at)->word & 0xff) == VS_LIVE)
                slots.push_back(reinterpret_cast<T *>(at));
        }
        return slots;
    }
    template <class T> T &first(vs_table t)
    {
        auto slots = live<T>(t);
        need(!slots.empty(), "no live slot");
        return *slots[0];
    }
    char *pages(const vs_slot &s)
    {
        return base_ + head().data_offset + s.ext_page * VS_PAGE;
    }

  private:
    char *base_;
};

class Check : public vt::Test
{
  protected:
    struct Objects {
        Node n;
        XrcPair pair{n, n};
        Qp rc = make_qp(IBV_QPT_RC, n.pd, n.cq);
    };
    Check() : host_("VERBS_SHIM_HOST", "h"), objects_(new Objects), seg_(new Segment)
    {
        check_fabric();
    }
    void TearDown() override
    {
        seg_.reset();
        objects_.reset();
        vt::Test::TearDown();
    }
    // With the field changed, check says what is wrong; with it put back, nothing.
    template <class T> void plant(T &field, T value, const char *says)
    {
        T good = field;
        field = value;
        Told told = vshim("check");
        Told json = vshim("check --json");
        field = good;
        EXPECT_EQ(told.status, 1) << says;
        EXPECT_NE(told.text.find(says), std::string::npos) << told.text << " does not say '" << says << "'";
        EXPECT_EQ(json.status, 1);
        EXPECT_NE(json.text.find("\"ok\":\tfalse"), std::string::npos) << json.text;
        EXPECT_NE(json.text.find(says), std::string::npos) << json.text;
        check_fabric();
    }

    Setting host_;
    std::unique_ptr<Objects> objects_;
    std::unique_ptr<Segment> seg_;
};

TEST_F(Check, Slots)
{
    auto &mr = seg_->first<vs_mr_shm>(VS_MR);
    plant(mr.s.word, mr.s.word | 0xff, "mr slot");
    plant(mr.s.owner, (uint32_t)0x00700007, "its process 00700007 is gone");
    plant(mr.s.word, (mr.s.word & ~0xffu) | 9, "state 9");
    auto &cq = seg_->first<vs_cq_shm>(VS_CQ);
    plant(cq.s.ext_pages, 0x7fffffffu, "cq slot");
    plant(mr.addr, mr.addr + 4096, "elsewhere than where it was registered");
    plant(mr.length, mr.length + 1, "elsewhere than where it was registered");
}

TEST_F(Check, References)
{
    plant(seg_->first<vs_mr_shm>(VS_MR).pd, 0x123456u, "no pd 00123456");
    plant(seg_->first<vs_srq_shm>(VS_SRQ).cq, 0x123456u, "no cq 00123456");
    {
        Qp ud = make_qp(IBV_QPT_UD, objects_->n.pd, objects_->n.cq);
        union ibv_gid gid = {};
        gid.raw[0] = 0xff;
        gid.raw[15] = 1;
        ASSERT_EQ(ibv_attach_mcast(ud, &gid, 0xc001), 0);
        plant(seg_->first<vs_mcast_shm>(VS_MCAST).qp, 0x123456u, "no qp 00123456");
        ASSERT_EQ(ibv_detach_mcast(ud, &gid, 0xc001), 0);
    }
    plant(seg_->first<vs_srq_shm>(VS_SRQ).xrcd, 0x123456u, "no xrcd 00123456");
    plant(seg_->first<vs_srq_shm>(VS_SRQ).xrcd_ref, 0x123456u, "no xrcd handle 00123456");
    // Of handles only those that keep nothing: what is kept by a spoilt one would be reclaimed when the tool leaves.
    plant(seg_->first<vs_qp_ref_shm>(VS_QP_REF).xrcd_ref, 0x123456u, "no xrcd handle 00123456");
    for (vs_qp_shm *qp : seg_->live<vs_qp_shm>(VS_QP)) {
        plant(qp->state, 77u, "state 77");
        if (qp->type == IBV_QPT_XRC_RECV) {
            plant(qp->xrcd, 0x123456u, "no xrcd 00123456");
            continue;
        }
        plant(qp->pd, 0x123456u, "no pd 00123456");
        plant(qp->send_cq, 0x123456u, "no send cq 00123456");
        plant(qp->recv_cq, 0x123456u, "no recv cq 00123456");
        plant(qp->srq, 0x123456u, "no srq 00123456");
    }
}

TEST_F(Check, FilesBehindRegions)
{
    auto &b = seg_->first<vs_mr_shm>(VS_MR).backing; // none
    plant(b.flags, (uint32_t)VS_BACKED, "half a file behind it");
    plant(b.flags, (uint32_t)VS_BACKED_WRITABLE, "half a file behind it");
    plant(b.flags, 0x80000000u, "half a file behind it");
    plant(b.ino, UINT64_C(7), "half a file behind it");
    plant(b.dev, UINT64_C(7), "half a file behind it");
    plant(b.offset, UINT64_MAX, "no mapping puts that part of a file there");
    void *at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(at != MAP_FAILED, "mmap");
    {
        Mr mr(ibv_reg_mr(objects_->n.pd, at, 4096, all_access));
        need(mr, "ibv_reg_mr");
        auto regions = seg_->live<vs_mr_shm>(VS_MR);
        auto shared = std::find_if(regions.begin(), regions.end(), [&](auto *r) { return r->addr == (uintptr_t) at; });
        ASSERT_NE(shared, regions.end());
        check_fabric();
        plant((*shared)->backing.ino, UINT64_C(0), "half a file behind it");
        plant((*shared)->backing.offset, (*shared)->backing.offset + 1, "no mapping puts that part of a file there");
    }
    munmap(at, 4096);
}

TEST_F(Check, Pages)
{
    auto cqs = seg_->live<vs_cq_shm>(VS_CQ);
    ASSERT_GE(cqs.size(), 2u);
    plant(cqs[0]->s.ext_page, cqs[1]->s.ext_page, "belongs to another as well");
    plant(cqs[0]->s.ext_page, seg_->head().data_pages, "pages outside the segment");
    uint64_t &word = seg_->head().page_map[seg_->head().data_pages / 64 - 1];
    plant(word, word | 1, "the page map does not say what the slots say");
}

TEST_F(Check, Queues)
{
    auto &cq = seg_->first<vs_cq_shm>(VS_CQ);
    plant(cq.ring.entries, cq.ring.entries * 1024, "its ring does not fit its pages");
    plant(cq.ring.entries, 3u, "its ring does not fit its pages");
    auto *e = reinterpret_cast<vs_cqe *>(seg_->pages(cq.s));
    plant(e[5].word, (uint64_t)6 << 16, "entry 5 is torn");
    plant(e[5].word, UINT64_C(1) << 62 | 5 << 16 | 0x3333, "entry 5 is held by a dead process");
    auto &proc = seg_->first<vs_proc_shm>(VS_PROC); // this program: the tool comes after it
    plant(proc.events.entries, 1024u, "its event ring has another length");
    plant(proc.event[9].word, (uint64_t)10 << 16, "process slot 0: entry 9 is torn");
    plant(proc.event[9].word, UINT64_C(1) << 62 | 9 << 16 | 0x3333, "process slot 0: entry 9 is held by a dead process");
    plant(proc.copy.client, 0x00700007u, "it copies for 00700007, which is gone");
    auto &srq = seg_->first<vs_srq_shm>(VS_SRQ);
    char *pool = seg_->pages(srq.s) + (srq.rq.ring_entries * sizeof(uint64_t) + 63) / 64 * 64;
    plant(reinterpret_cast<vs_wqe *>(pool + 3 * srq.rq.wqe_stride)->word, UINT64_C(2) << 62 | 0x3333, "WQE 3 is held by a dead process");
    plant(srq.rq.ring_entries, 7u, "its receive queue does not fit its pages");
    plant(srq.rq.wqe_stride, 8u, "its receive queue does not fit its pages");
    for (vs_qp_shm *qp : seg_->live<vs_qp_shm>(VS_QP))
        if (qp->s.ext_pages)
            plant(qp->rq.pool_entries, 0u, "its receive queue does not fit its pages");
}

TEST_F(Check, Fabric)
{
    auto &port = seg_->first<vs_port_shm>(VS_PORT);
    plant(port.lmc, (uint8_t)9, "LMC 9");
    plant(port.lid, (uint16_t)4000, "LID 4000 leads elsewhere");
    plant(seg_->first<vs_hca_shm>(VS_HCA).num_ports, 99u, "too many ports");
}

} // namespace
