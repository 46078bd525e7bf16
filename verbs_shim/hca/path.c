#include "hca/path.h"

#include <string.h>

#include "core/event.h"
#include "hca/hca.h"

bool vs_path_send(struct vs_qp_shm *qp, struct vs_packet *packet)
{
	const struct vs_path *path = vs_qp_primary(qp);
	const struct vs_hca_shm *hca = vs_fabric_hca(qp->hca);

	packet->from = hca ? vs_fabric_port(hca, path->av.port) : NULL;
	if (!packet->from)
		return false;
	packet->to = vs_fabric_route(packet->from, &path->av);
	if (!packet->to)
		return false;
	packet->slid = packet->from->lid | path->av.path_bits;
	packet->dlid = path->av.dlid;
	packet->pkey = packet->from->pkey[path->pkey_index % VS_PKEY_TABLE];
	packet->mig_req = vs_qp_mig_state(qp) == IBV_MIG_MIGRATED;
	packet->has_grh = path->av.is_global != 0;
	memcpy(packet->dgid.raw, path->av.gid, sizeof(path->av.gid));
	return vs_fabric_gid(packet->from, path->av.sgid_index, &packet->sgid) == 0;
}

/* A GRH is there where the path has one, and there alone. It leads to this port, from the one that the path leads to. */
static bool grh_fits(const struct vs_path *path, const struct vs_packet *p)
{
	union ibv_gid own;

	if (!p->has_grh || !path->av.is_global)
		return p->has_grh == (path->av.is_global != 0);
	return vs_fabric_gid(p->to, path->av.sgid_index, &own) == 0 && memcmp(&p->dgid, &own, sizeof(own)) == 0 &&
	       memcmp(&p->sgid, path->av.gid, sizeof(path->av.gid)) == 0;
}

static bool on_path(const struct vs_qp_shm *qp, const struct vs_path *path, const struct vs_packet *p)
{
	return p->to->hca == qp->hca && p->to->num == path->av.port && p->slid == path->av.dlid &&
	       p->dlid == (p->to->lid | path->av.path_bits) && grh_fits(path, p) &&
	       vs_fabric_pkey_match(p->pkey, p->to->pkey[path->pkey_index % VS_PKEY_TABLE]);
}

bool vs_path_migrate(struct vs_qp_shm *qp, uint32_t qpn)
{
	const struct vs_hca_shm *hca = vs_fabric_hca(qp->hca);
	struct vs_port_shm *to;

	if (!vs_qp_migrate(qp))
		return false;
	to = hca ? vs_fabric_port(hca, vs_qp_primary(qp)->av.port) : NULL;
	if (to)
		VS_COUNT(migrations, to, qp);
	vs_event_qp(qp, qpn, IBV_EVENT_PATH_MIG);
	return true;
}

static bool receive_armed(struct vs_qp_shm *qp, uint32_t qpn, const struct vs_packet *p)
{
	if (on_path(qp, vs_qp_alternate(qp), p)) {
		vs_path_migrate(qp, qpn);
		return true;
	}
	if (!on_path(qp, vs_qp_primary(qp), p))
		vs_event_qp(qp, qpn, IBV_EVENT_PATH_MIG_ERR);
	return false;
}

bool vs_path_receive(struct vs_qp_shm *qp, uint32_t qpn, const struct vs_packet *p)
{
	uint32_t word = vs_load(&qp->path_word);

	if ((word & 0xff) == IBV_MIG_ARMED && p->mig_req)
		return receive_armed(qp, qpn, p);
	if (!on_path(qp, vs_qp_primary(qp), p))
		return false;
	if ((word & 0xff) == IBV_MIG_REARM && !p->mig_req)
		vs_cas(&qp->path_word, word, (word & ~0xffu) | IBV_MIG_ARMED);
	return true;
}
