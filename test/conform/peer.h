// Peers that are not in reach of a pointer: QPs of other processes, and those that only an address handle names.
#ifndef TEST_CONFORM_PEER_H
#define TEST_CONFORM_PEER_H

#include "conform/verbs.h"
#include "lib/task.h"

namespace vt
{

// Each end tells the other where it is, and brings up its QP. The peer's address.
inline Address connect_over(const Link &link, ibv_qp *qp, const Address &mine, Path p = {})
{
    link.put(mine);
    Address peer = link.get<Address>();
    p.qpn = peer.qpn;
    p.lid = peer.lid;
    bring_up(qp, p);
    return peer;
}

// An end into whose memory the other does not write.
inline Address connect_over(const Link &link, ibv_qp *qp, const Node &n, Path p = {})
{
    return connect_over(link, qp, Address{n.lid, qp->qp_num, 0, 0, 0}, p);
}

inline Ah make_ah(ibv_pd *pd, uint16_t lid)
{
    ibv_ah_attr a = {};
    a.dlid = lid;
    a.port_num = 1;
    Ah ah(ibv_create_ah(pd, &a));
    need(ah, "ibv_create_ah");
    return ah;
}

} // namespace vt

#endif
