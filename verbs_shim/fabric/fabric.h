/* Hosts, HCAs, ports, and who can reach whom.
 *
 * A host appears when a process of that name attaches (VERBS_SHIM_HOST, else the UTS node name) and stays while the segment does.
 * LIDs are given out in order; a port owns 2^lmc of them. Ports are on one subnet unless VERBS_SHIM_TOPOLOGY has more.
 *
 * A port of Ethernet (RoCE) has a LID as well, which stands for its MAC address: address vectors are turned into it by their GIDs, as a kernel
 * asks for a neighbour's address, and no program sees it. */
#ifndef VS_FABRIC_H
#define VS_FABRIC_H

#include <infiniband/verbs.h>

#include "memory/process.h"

/* Put this process on its host, making host, HCAs and ports if it is the first there. 0, EINVAL (VERBS_SHIM_TOPOLOGY or _KNOBS unreadable, or
 * a host name of no or more than 63 characters) or ENOMEM. */
int vs_fabric_join(void);

/* What new hosts get and the knobs, from the environment, unless that is settled. 0 or EINVAL. Control lock held. */
int vs_fabric_set_topology(void);

/* The host this process is on. */
struct vs_host_shm *vs_fabric_my_host(void);

struct vs_hca_shm *vs_fabric_hca(uint32_t hca_index);

/* Is it plugged in? */
static inline bool vs_hca_there(const struct vs_hca_shm *hca)
{
	return hca && !(vs_load(&hca->incarnation) & VS_UNPLUGGED);
}

/* Unplug an HCA: its ports are down, and whatever was made on it is lost. Or plug it in again, as new. Once is as good as twice. Control
 * lock held; after unplugging the caller lets go of it and calls vs_fabric_unplugged. */
void vs_fabric_unplug(struct vs_hca_shm *hca);
void vs_fabric_plug(struct vs_hca_shm *hca);

/* Returns once nothing moves on unplugged HCAs; their processes' engines are told to look. Without the control lock. */
void vs_fabric_unplugged(void);

/* NUMA node that the nth HCA of a host is near to; -1: as on machines that do not tell. */
int vs_fabric_numa_node(uint32_t nth);

/* Bytes of the longest message that ports carry. */
static inline uint32_t vs_fabric_max_msg(void)
{
	uint32_t most = vs_load_relaxed(&vs_seg->topology_max_msg);

	return most < VS_MAX_MSG ? most : VS_MAX_MSG;
}

/* What atomics exclude. */
static inline enum vs_atomics vs_fabric_atomics(void)
{
	return vs_seg ? (enum vs_atomics)vs_load_relaxed(&vs_seg->topology_atomics) : VS_ATOMICS_HCA;
}

/* Port num (1..) of an HCA, or NULL. */
struct vs_port_shm *vs_fabric_port(const struct vs_hca_shm *hca, uint32_t num);

/* The port that answers to a LID, or NULL. */
struct vs_port_shm *vs_fabric_port_of_lid(uint16_t lid);

/* The LID of a port as programs see it: 0 where it is not configured (see vs_query_port), or Ethernet's. */
uint16_t vs_fabric_lid(const struct vs_port_shm *port);

/* Where a port of Ethernet sends what is for this GID: a LID as in vs_av, VS_LID_LIMIT for groups, 0 (nobody's) for a GID that nobody has. */
uint16_t vs_fabric_lid_of_gid(const union ibv_gid *gid);

/* Are these Ethernet's ports? Those of an HCA are all the same. */
bool vs_fabric_ethernet(const struct vs_hca_shm *hca);

/* Length of a port's P_Key table: one where there is no subnet manager to fill it. */
uint32_t vs_fabric_pkeys(const struct vs_port_shm *port);

/* Entry index of a port's GID table, network order. 0 or EINVAL. */
int vs_fabric_gid(const struct vs_port_shm *port, int index, union ibv_gid *gid);

/* Where a packet sent from this port along this address vector arrives: NULL if nowhere (link down, no such LID, another subnet, no way
 * to that LID). */
struct vs_port_shm *vs_fabric_route(const struct vs_port_shm *from, const struct vs_av *av);

/* Whether the switches know a way to the port's LID with these path bits; nobody is told when they do not. 0, or EINVAL (the port has no
 * such LID). Control lock held. */
int vs_fabric_set_route(struct vs_port_shm *port, uint32_t bits, bool there);

/* Are both ports up? */
bool vs_fabric_up(const struct vs_port_shm *a, const struct vs_port_shm *b);

/* Do two P_Keys let their ports talk? Same number, and at least one full member. */
bool vs_fabric_pkey_match(uint16_t a, uint16_t b);

/* Reaper: settle fabric objects that a dead process was making. Control lock held. */
void vs_fabric_reap(uint32_t proc_id);

#endif
