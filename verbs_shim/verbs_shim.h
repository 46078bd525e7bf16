/* Software HCAs behind the libibverbs API.
 *
 * The library exports the public ibv_* names, for LD_PRELOAD, and the same functions as vshim_*, for programs that link it: include
 * verbs_shim_names.h instead of <infiniband/verbs.h>. Real devices are forwarded to the real libibverbs. */
#ifndef VERBS_SHIM_H
#define VERBS_SHIM_H

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

enum vshim_devices {
	VSHIM_DEVICES_ALL = 0,  /* real ones first, then software */
	VSHIM_DEVICES_REAL,     /* what the real libibverbs lists */
	VSHIM_DEVICES_SOFTWARE, /* only software ones */
};

/* Choose which devices later ibv_get_device_list calls of this process return; default VSHIM_DEVICES_ALL. 0, or EINVAL. Thread-safe;
 * lists and contexts already there are not affected. */
int vshim_select_devices(enum vshim_devices which);

/* 1 if the device is a software HCA, else 0. dev is one that a device list returned and that was not freed, or the device of an open
 * context. */
int vshim_device_is_software(const struct ibv_device *dev);

/* The NUMA node a software HCA is said to be near to, -1 if nothing was said or dev is no software HCA. dev: as above. */
int vshim_device_numa_node(const struct ibv_device *dev);

/* What senders by a port went through since the port is there. */
struct vshim_port_counters {
	uint64_t rnr_received; /* messages that had to wait for a receive buffer */
	uint64_t retries;      /* requests sent again for want of an answer */
};

/* Counters of a port, for all who use it. 0, or EINVAL: dev is no software HCA, or has no such port. dev: as above. */
int vshim_device_port_counters(const struct ibv_device *dev, uint8_t port, struct vshim_port_counters *counters);

#ifdef __cplusplus
}
#endif

#endif
