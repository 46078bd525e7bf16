// Two QPs of this process, connected with each other: alone, and as what tests of a connection begin with.
#ifndef TEST_CONFORM_PAIR_H
#define TEST_CONFORM_PAIR_H

#include "conform/faults.h"

namespace vt
{

// Two QPs of the same type, RC unless said. The second one may receive through an SRQ.
struct RcPair {
    Qp a, b;
    RcPair(const Node &from, const Node &to, Path p = {}, ibv_qp_cap cap = caps(), ibv_srq *srq = nullptr,
           ibv_qp_type type = IBV_QPT_RC)
    {
        auto attr = qp_attr(type, from.pd, from.cq);
        attr.cap = cap;
        a = Qp(ibv_create_qp_ex(from.ctx, &attr));
        attr = qp_attr(type, to.pd, to.cq, srq);
        attr.cap = cap;
        b = Qp(ibv_create_qp_ex(to.ctx, &attr));
        need(a && b, "ibv_create_qp_ex");
        connect(a, from.lid, b, to.lid, p);
    }
};

// An INI and a TGT QP, connected, with an XRC SRQ behind the TGT; both ends in this process.
struct XrcPair {
    Xrcd xrcd;
    Cq srq_cq;
    Srq srq;
    Qp tgt, ini;
    uint32_t srqn;

    XrcPair(const Node &from, const Node &to, Path p = {}, uint32_t srq_wr = 64)
        : xrcd(make_xrcd(to.ctx)), srq_cq(make_cq(to.ctx))
    {
        srq = make_xrc_srq(to.pd, xrcd, srq_cq, srq_wr);
        tgt = make_tgt(xrcd);
        ini = make_qp(IBV_QPT_XRC_SEND, from.pd, from.cq);
        srqn = srq_num(srq);
        connect(ini, from.lid, tgt, to.lid, p);
    }
};

// What a connection is of, and what its responder receives through: a queue of its own, an SRQ, or the XRC SRQ behind a TGT.
enum Kind { RC, RC_SRQ, UC_SRQ, XRC };

// Both ends of a connection: on one HCA of host h, or the responder on another one of it. It has a CQ of its own.
class BothEnds : public Test
{
  protected:
    explicit BothEnds(Kind kind, const std::string &topology = "", int access = all_access, int responder_device = 0)
        : topology_("VERBS_SHIM_TOPOLOGY", topology), host_("VERBS_SHIM_HOST", "h"), kind_(kind), n_(new Node(1 << 16, access)),
          other_(responder_device ? new Node(1 << 16, access, responder_device) : nullptr), recv_cq_(make_cq(responder().ctx, 256))
    {
        if (kind == XRC) {
            xrcd_ = make_xrcd(responder().ctx);
            srq_ = make_xrc_srq(responder().pd, xrcd_, recv_cq_);
        } else if (kind != RC) {
            srq_ = make_srq(responder().pd);
        }
        make_ends();
    }
    void TearDown() override
    {
        check_fabric();
        one_ = Qp();
        two_ = Qp();
        srq_ = Srq();
        xrcd_ = Xrcd();
        recv_cq_ = Cq();
        other_.reset();
        n_.reset();
        Test::TearDown();
    }
    const Node &responder() const
    {
        return other_ ? *other_ : *n_;
    }
    void make_ends()
    {
        ibv_qp_type type = kind_ == UC_SRQ ? IBV_QPT_UC : IBV_QPT_RC;
        one_ = Qp();
        two_ = Qp();
        one_ = make_qp(kind_ == XRC ? IBV_QPT_XRC_SEND : type, n_->pd, n_->cq);
        two_ = kind_ == XRC ? make_tgt(xrcd_) : make_qp(type, responder().pd, recv_cq_, srq_);
    }
    // Both ends anew, and brought up.
    void connect_ends(Path from_one, Path from_two)
    {
        make_ends();
        from_one.qpn = two_->qp_num;
        from_one.lid = responder().lid;
        from_two.qpn = one_->qp_num;
        from_two.lid = n_->lid;
        bring_up(one_, from_one);
        bring_up(two_, from_two);
    }
    void connect_ends(const Path &p = {})
    {
        connect_ends(p, p);
    }
    // Of the requester's, to wherever the responder receives.
    template <class Request> Request &to_responder(Request &request) const
    {
        if (kind_ == XRC)
            request.to_srq(srq_num(srq_));
        return request;
    }
    void post_receive(uint64_t id, std::vector<ibv_sge> list = {})
    {
        need((srq_ ? post_recv(srq_, id, std::move(list)) : post_recv(two_, id, std::move(list))) == 0, "post");
    }
    // How many messages have arrived since the last look, all of them well.
    int delivered()
    {
        int n = 0;
        for (ibv_wc wc = {}; ibv_poll_cq(recv_cq_, 1, &wc) == 1; n++)
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        return n;
    }

    Setting topology_, host_;
    Kind kind_;
    std::unique_ptr<Node> n_, other_; // the requester's, the responder's if it is another
    Cq recv_cq_;
    Xrcd xrcd_;
    Srq srq_;
    Qp one_, two_; // requester, responder
};

} // namespace vt

#endif
