/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_locality.h"

/* Above any depth. */
#define INSIDE 1000u

static hwloc_obj_t numa_node(hwloc_topology_t topology, unsigned node)
{
    hwloc_obj_t obj = NULL;
    while (NULL != (obj = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, obj))) {
        if (obj->os_index == node) {
            return obj;
        }
    }
    return NULL;
}

/* How deep the smallest part of the machine is that has both. The NUMA node itself is no such part: it hangs beside. */
static unsigned shared_depth(hwloc_topology_t topology, hwloc_const_cpuset_t a, hwloc_const_cpuset_t b)
{
    hwloc_cpuset_t both = hwloc_bitmap_alloc();
    unsigned depth = 0;
    if (NULL != both && 0 == hwloc_bitmap_or(both, a, b)) {
        hwloc_obj_t obj = hwloc_get_obj_covering_cpuset(topology, both);
        depth = NULL != obj && obj->depth > 0 ? (unsigned) obj->depth : 0;
    }
    hwloc_bitmap_free(both);
    return depth;
}

unsigned xrc_locality_closeness(hwloc_topology_t topology, hwloc_const_cpuset_t binding, unsigned node)
{
    hwloc_obj_t obj = numa_node(topology, node);
    if (NULL == obj || NULL == obj->cpuset || hwloc_bitmap_iszero(binding)
        || hwloc_bitmap_isincluded(hwloc_topology_get_topology_cpuset(topology), binding)) {
        return 0;
    }
    if (hwloc_bitmap_intersects(binding, obj->cpuset)) {
        return INSIDE;
    }
    return 1 + shared_depth(topology, binding, obj->cpuset);
}

static void measure(hwloc_topology_t topology, const int *nodes, unsigned n, unsigned *closeness)
{
    hwloc_cpuset_t binding = hwloc_bitmap_alloc();
    if (NULL != binding && 0 == hwloc_get_cpubind(topology, binding, HWLOC_CPUBIND_PROCESS)) {
        for (unsigned i = 0; i < n; ++i) {
            closeness[i] = nodes[i] >= 0 ? xrc_locality_closeness(topology, binding, (unsigned) nodes[i]) : 0;
        }
    }
    hwloc_bitmap_free(binding);
}

void xrc_locality_here(const int *nodes, unsigned n, unsigned *closeness)
{
    hwloc_topology_t topology;
    for (unsigned i = 0; i < n; ++i) {
        closeness[i] = 0;
    }
    if (0 != hwloc_topology_init(&topology)) {
        return;
    }
    if (0 == hwloc_topology_load(topology)) {
        measure(topology, nodes, n, closeness);
    }
    hwloc_topology_destroy(topology);
}
