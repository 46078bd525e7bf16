/* SPDX-License-Identifier: BSD-3-Clause */
/* How near an HCA is to where this process runs. */
#ifndef BTL_XRC_LOCALITY_H
#define BTL_XRC_LOCALITY_H

#include <hwloc.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * How near NUMA node @a node (as the system numbers them) is to the processors in @a binding: the higher, the nearer, 0
 * where that cannot be told - no such node, or bound to processors of the whole machine.
 */
unsigned xrc_locality_closeness(hwloc_topology_t topology, hwloc_const_cpuset_t binding, unsigned node);

/** The same for each of @a n nodes (negative: unknown) and the processors this process is bound to. */
void xrc_locality_here(const int *nodes, unsigned n, unsigned *closeness);

#ifdef __cplusplus
}
#endif
#endif
