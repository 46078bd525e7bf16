#include "core/mcast.h"

#include <errno.h>
#include <string.h>

static struct vs_mcast_shm *find(uint32_t qpn, const union ibv_gid *gid, uint16_t lid, uint32_t *index)
{
	struct vs_mcast_shm *m;

	vs_for_each_live (VS_MCAST, *index, m)
		if (m->qp == qpn && m->lid == lid && !memcmp(m->gid, gid->raw, sizeof(m->gid)))
			return m;
	return NULL;
}

/* On Ethernet a group has no LID, and whatever is passed means nothing. */
static bool valid(const struct ibv_qp *qp, const union ibv_gid *gid, uint16_t *lid)
{
	if (vs_fabric_ethernet(vs_context(qp->context)->hca))
		*lid = vs_fabric_lid_of_gid(gid);
	return qp->qp_type == IBV_QPT_UD && gid->raw[0] == 0xff && *lid >= VS_LID_LIMIT && *lid != 0xffff;
}

int vs_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	VS_ASKS_KERNEL(attach_mcast, qp->context);
	struct vs_mcast_shm *m;
	uint32_t index;
	int err = 0;

	if (!valid(qp, gid, &lid))
		return EINVAL;
	vs_control_lock();
	if (!find(qp->qp_num, gid, lid, &index)) {
		err = vs_slot_alloc(VS_MCAST, vs_me_id, &index);
		if (!err) {
			m = vs_slot_at(VS_MCAST, index);
			m->s.context = vs_context(qp->context)->number;
			m->qp = qp->qp_num;
			m->lid = lid;
			memcpy(m->gid, gid->raw, sizeof(m->gid));
			vs_slot_publish(VS_MCAST, index);
		}
	}
	vs_control_unlock();
	return err;
}

int vs_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	VS_ASKS_KERNEL(detach_mcast, qp->context);
	uint32_t index;
	bool found;

	if (!valid(qp, gid, &lid))
		return EINVAL;
	vs_control_lock();
	found = find(qp->qp_num, gid, lid, &index) != NULL;
	if (found)
		vs_slot_free(VS_MCAST, index); /* a sender that still sees it finds the QP by number, or not at all: no grace period */
	vs_control_unlock();
	return found ? 0 : EINVAL;
}

void vs_mcast_leave(uint32_t qpn)
{
	struct vs_mcast_shm *m;
	uint32_t index;

	vs_for_each_live (VS_MCAST, index, m)
		if (m->qp == qpn)
			vs_slot_free(VS_MCAST, index);
}

bool vs_mcast_member(uint32_t qpn)
{
	struct vs_mcast_shm *m;
	uint32_t index;

	vs_for_each_live (VS_MCAST, index, m)
		if (m->qp == qpn)
			return true;
	return false;
}
