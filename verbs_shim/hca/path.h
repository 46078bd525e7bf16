/* Paths of connected QPs: what a packet carries of its path, what an arriving one does to the receiver's migration state. */
#ifndef VS_HCA_PATH_H
#define VS_HCA_PATH_H

#include "core/qp.h"

struct vs_packet {
	struct vs_port_shm *from;
	struct vs_port_shm *to;
	uint16_t slid, dlid;
	uint16_t pkey;
	bool mig_req;
	bool has_grh;
	union ibv_gid sgid, dgid; /* in the GRH */
};

/* A packet that this QP sends on its primary path. false: it arrives nowhere. */
bool vs_path_send(struct vs_qp_shm *qp, struct vs_packet *packet);

/* Does this QP take the packet? It must come on a path of the QP's: LIDs, P_Key, and a GRH with the GIDs of both ends where the path is
 * global, none where it is not. Arms it, or migrates it and raises PATH_MIG, as the packet says. Inside the data path.
 *   REARM and MigReq clear, on the primary path: ARMED, no event.
 *   ARMED and MigReq set, on the alternate path: migrates. On neither path: dropped, PATH_MIG_ERR. On the primary: dropped.
 *   Otherwise it must come on the primary path. */
bool vs_path_receive(struct vs_qp_shm *qp, uint32_t qpn, const struct vs_packet *packet);

/* Migrate an armed QP and tell its holders; false if it was not armed. */
bool vs_path_migrate(struct vs_qp_shm *qp, uint32_t qpn);

#endif
