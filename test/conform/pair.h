// Two QPs of this process, connected with each other.
#ifndef TEST_CONFORM_PAIR_H
#define TEST_CONFORM_PAIR_H

#include "conform/verbs.h"

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

} // namespace vt

#endif
