#include "hca/path.h"

#include <string.h>

#include "core/event.h"
#include "core/owed.h"
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

/* Migrate by the word that was looked at, if it is still that. */
static bool migrate(struct vs_qp_shm *qp, uint32_t qpn, uint64_t word)
{
	const struct vs_hca_shm *hca = vs_fabric_hca(qp->hca);
	uint64_t next = vs_path_migrated(word);
	struct vs_port_shm *to;

	if (next == word || !vs_cas(&qp->path_word, word, next))
		return false;
	VS_POINT(path_migrated);
	to = hca ? vs_fabric_port(hca, qp->path[vs_path_primary(next)].av.port) : NULL;
	if (to)
		VS_COUNT(migrations, to, qp);
	vs_owed_migrated(qp, qpn, next);
	return true;
}

bool vs_path_migrate(struct vs_qp_shm *qp, uint32_t qpn)
{
	return migrate(qp, qpn, vs_load(&qp->path_word));
}

static bool receive_armed(struct vs_qp_shm *qp, uint32_t qpn, const struct vs_packet *p, uint64_t word)
{
	if (on_path(qp, &qp->path[vs_path_alternate(word)], p))
		return migrate(qp, qpn, word) || vs_path_receive(qp, qpn, p); /* unless the paths are others by now */
	if (!on_path(qp, &qp->path[vs_path_primary(word)], p))
		vs_event_qp(qp, qpn, IBV_EVENT_PATH_MIG_ERR, 0);
	return false;
}

bool vs_path_receive(struct vs_qp_shm *qp, uint32_t qpn, const struct vs_packet *p)
{
	uint64_t word = vs_load(&qp->path_word);

	if ((word & 0xff) == IBV_MIG_ARMED && p->mig_req)
		return receive_armed(qp, qpn, p, word);
	if (!on_path(qp, &qp->path[vs_path_primary(word)], p))
		return false;
	if ((word & 0xff) == IBV_MIG_REARM && !p->mig_req)
		vs_cas(&qp->path_word, word, (word & ~(uint64_t)0xff) | IBV_MIG_ARMED);
	return true;
}
