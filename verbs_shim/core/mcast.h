/* Multicast groups of UD QPs. */
#ifndef VS_MCAST_H
#define VS_MCAST_H

#include "core/objects.h"

/* EINVAL: no UD QP, or no multicast GID or LID. Attaching twice is harmless. ENOMEM. */
int vs_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);

/* EINVAL: not attached. */
int vs_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);

/* Take the QP out of all groups. Control lock held. */
void vs_mcast_leave(uint32_t qpn);

/* Is the QP in any group? Control lock held. */
bool vs_mcast_member(uint32_t qpn);

#endif
