// Path migration of TGT QPs that several processes hold: the state is the real QP's, any handle may move it, and PATH_MIG reaches
// every holder, or with tgt_events=creator only the one that made it (kernels since 5.8).
#include "conform/apm.h"

namespace
{

using namespace vt;

// Another process with a handle on the TGT, which does what it is told.
void holder(const Link &link, int fd)
{
    Node n;
    Xrcd x = make_xrcd(n.ctx, fd);
    link.put('r');
    Qp tgt = open_tgt(x, link.get<uint32_t>());
    need(tgt, "ibv_open_qp");
    Events events(n);
    link.put('o');
    for (char what; (what = link.get<char>()) != 'q';) {
        int answer = 0;
        Way w;
        switch (what) {
        case 'l':
            w = link.get<Way>();
            answer = load(tgt, w, true);
            break;
        case 'm': answer = migrate_to(tgt, IBV_MIG_MIGRATED); break;
        case 's': answer = mig_of(tgt); break;
        case 'd': answer = query(tgt).ah_attr.dlid; break;
        case 'n':
            events.settle();
            answer = events.count(IBV_EVENT_PATH_MIG, tgt);
            break;
        }
        link.put(answer);
    }
}

class SharedTgt : public vt::Test
{
  protected:
    SharedTgt() : topology_("VERBS_SHIM_TOPOLOGY", "lmc=1"), host_("VERBS_SHIM_HOST", "h")
    {
        int fd = file_.fd();
        for (auto &h : holders_)
            h.reset(new Child([fd](const Link &link) { holder(link, fd); }));
        n_.reset(new Node);
        events_.reset(new Events(*n_));
        for (auto &h : holders_)
            need(h->link().get<char>() == 'r', "ready");
        xrcd_ = make_xrcd(n_->ctx, fd);
        cq_ = make_cq(n_->ctx);
        srq_ = make_xrc_srq(n_->pd, xrcd_, cq_);
        tgt_ = make_tgt(xrcd_);
        ini_ = make_qp(IBV_QPT_XRC_SEND, n_->pd, n_->cq);
        for (auto &h : holders_) {
            h->link().put(tgt_->qp_num);
            need(h->link().get<char>() == 'o', "opened");
        }
        for (uint8_t i = 0; i < 2; i++)
            way_[i] = {1, i, (uint16_t)(n_->lid + i)};
        need(bring_up_on(ini_, way_[0], tgt_->qp_num) == 0 && bring_up_on(tgt_, way_[0], ini_->qp_num) == 0, "to RTS");
    }
    void TearDown() override
    {
        check_fabric();
        for (auto &h : holders_)
            if (h)
                h->link().put('q');
        for (auto &h : holders_)
            h.reset();
        ini_ = Qp();
        tgt_ = Qp();
        srq_ = Srq();
        cq_ = Cq();
        xrcd_ = Xrcd();
        events_.reset();
        n_.reset();
        vt::Test::TearDown();
    }
    int ask(int who, char what)
    {
        holders_[who]->link().put(what);
        return holders_[who]->link().get<int>();
    }
    int ask(int who, char what, Way w)
    {
        holders_[who]->link().put(what);
        holders_[who]->link().put(w);
        return holders_[who]->link().get<int>();
    }
    ibv_wc_status send()
    {
        need(post_recv(srq_, 1) == 0, "post");
        return outcome(ini_, Send(IBV_WR_SEND).to_srq(srq_num(srq_)));
    }
    int delivered()
    {
        ibv_wc wc;
        int n = 0;
        while (ibv_poll_cq(cq_, 1, &wc) == 1)
            n++;
        return n;
    }
    void expect_path_mig(int creator, int others)
    {
        events_->expect(IBV_EVENT_PATH_MIG, tgt_, creator);
        for (int i = 0; i < 2; i++)
            EXPECT_EQ(ask(i, 'n'), others) << "holder " << i;
    }

    Setting topology_, host_;
    TempFile file_;
    std::unique_ptr<Child> holders_[2];
    std::unique_ptr<Node> n_;
    std::unique_ptr<Events> events_;
    Xrcd xrcd_;
    Cq cq_;
    Srq srq_;
    Qp tgt_, ini_;
    Way way_[2];
};

TEST_F(SharedTgt, AnyHandleLoadsAndRearms)
{
    EXPECT_EQ(ask(0, 'l', way_[1]), 0);
    EXPECT_EQ(mig_of(tgt_), IBV_MIG_REARM) << "through another process's handle";
    EXPECT_EQ(ask(1, 'l', way_[1]), 0) << "REARM again is no error: several holders may react to one event";
    ASSERT_EQ(load(ini_, way_[1], true), 0);
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(ask(0, 's'), IBV_MIG_ARMED);
    EXPECT_EQ(ask(1, 's'), IBV_MIG_ARMED);
    EXPECT_EQ(mig_of(ini_), IBV_MIG_ARMED);
    EXPECT_EQ(ask(1, 'l', way_[1]), EINVAL) << "and when it is armed already, EINVAL says so";
    EXPECT_EQ(delivered(), 1);
}

TEST_F(SharedTgt, EveryHolderHearsOfMigration)
{
    ASSERT_EQ(load(ini_, way_[1], true), 0);
    ASSERT_EQ(load(tgt_, way_[1], true), 0);
    ASSERT_EQ(send(), IBV_WC_SUCCESS);
    order("drop packet times 2");
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 2);
    expect_path_mig(1, 1);
    EXPECT_EQ(ask(0, 'd'), way_[1].peer_lid);
    events_->expect(IBV_EVENT_PATH_MIG, ini_, 1);
}

TEST_F(SharedTgt, OrOnlyItsCreator)
{
    order("set tgt_events=creator");
    ASSERT_EQ(load(ini_, way_[1], true), 0);
    ASSERT_EQ(load(tgt_, way_[1], true), 0);
    ASSERT_EQ(send(), IBV_WC_SUCCESS);
    order("drop packet times 2");
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 2);
    expect_path_mig(1, 0);
    EXPECT_EQ(ask(1, 's'), IBV_MIG_MIGRATED) << "which a holder without events sees by asking";
    order("set tgt_events=all");
    ASSERT_EQ(load(ini_, way_[0], true), 0);
    ASSERT_EQ(load(tgt_, way_[0], true), 0);
    ASSERT_EQ(send(), IBV_WC_SUCCESS);
    order("drop packet times 2");
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(delivered(), 2);
    expect_path_mig(2, 1);
}

TEST_F(SharedTgt, SoftwareMigratesThroughAnyHandle)
{
    ASSERT_EQ(load(ini_, way_[1], true), 0);
    ASSERT_EQ(ask(0, 'l', way_[1]), 0);
    ASSERT_EQ(send(), IBV_WC_SUCCESS);
    EXPECT_EQ(ask(1, 'm'), 0);
    EXPECT_EQ(mig_of(tgt_), IBV_MIG_MIGRATED);
    EXPECT_EQ(query(tgt_).ah_attr.dlid, way_[1].peer_lid);
    expect_path_mig(1, 1);
    EXPECT_EQ(send(), IBV_WC_SUCCESS) << "the INI follows when its retries run out";
    EXPECT_EQ(mig_of(ini_), IBV_MIG_MIGRATED);
    EXPECT_EQ(delivered(), 2);
}

TEST_F(SharedTgt, HandlesThatAreGoneHearNothing)
{
    ASSERT_EQ(load(ini_, way_[1], true), 0);
    ASSERT_EQ(load(tgt_, way_[1], true), 0);
    ASSERT_EQ(send(), IBV_WC_SUCCESS);
    holders_[0]->kill();
    holders_[0].reset();
    order("drop packet times 2");
    EXPECT_EQ(send(), IBV_WC_SUCCESS);
    events_->expect(IBV_EVENT_PATH_MIG, tgt_, 1);
    EXPECT_EQ(ask(1, 'n'), 1);
    EXPECT_EQ(delivered(), 2);
}

} // namespace
