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

} // namespace vt

#endif
