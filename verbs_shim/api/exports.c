/* Every public function of libibverbs: a software HCA's object goes to the implementation, any other to the real library. Man pages
 * ibv_*(3) say what each does; the headers under core/ and hca/ say where software HCAs choose among what the pages allow. */
#include "api/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/real.h"
#include "core/context.h"
#include "core/cq.h"
#include "core/device.h"
#include "core/event.h"
#include "core/import.h"
#include "core/mcast.h"
#include "core/pd.h"
#include "core/qp.h"
#include "core/srq.h"

/* verbs.h wraps these in macros of the same name. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_get_device_list

/* What a verb returns in a forked child for an object of its parent's: EIO, in the way that it reports errors. */
#define INHERITED_RESULT(ret, fail) (errno = EIO, (ret)((intptr_t)(fail) == EOPNOTSUPP ? EIO : (intptr_t)(fail)))

/* FORWARD(type, value without the real library, name, version of the symbol, parameters, arguments, is it ours, what then) */
#define FORWARD_AS(ret, fail, ours_name, name, version, params, args, ours, mine)                                                  \
	VS_PUBLIC ret ours_name params;                                                                                                \
	VS_PUBLIC ret ours_name params                                                                                                 \
	{                                                                                                                              \
		static ret(*real) params;                                                                                                  \
		int whose = (int)(ours);                                                                                                   \
		if (whose == VS_INHERITED)                                                                                                 \
			return INHERITED_RESULT(ret, fail);                                                                                    \
		if (whose)                                                                                                                 \
			return mine;                                                                                                           \
		if (!real)                                                                                                                 \
			real = (ret(*) params)vs_real(#name, version);                                                                         \
		return real ? real args : fail;                                                                                            \
	}                                                                                                                              \
	VS_PUBLIC ret name params __attribute__((alias(#ours_name)));

#define FORWARD(ret, fail, base, version, params, args, ours, mine)                                                                \
	FORWARD_AS(ret, fail, vshim_##base, ibv_##base, "IBVERBS_" version, params, args, ours, mine)

/* The same for functions without a result. */
#define FORWARD_VOID(base, version, params, args, ours, mine)                                                                      \
	VS_PUBLIC void vshim_##base params;                                                                                            \
	VS_PUBLIC void vshim_##base params                                                                                             \
	{                                                                                                                              \
		static void(*real) params;                                                                                                 \
		int whose = (int)(ours);                                                                                                   \
		if (whose == VS_INHERITED)                                                                                                 \
			return;                                                                                                                \
		if (whose) {                                                                                                               \
			mine;                                                                                                                  \
			return;                                                                                                                \
		}                                                                                                                          \
		if (!real)                                                                                                                 \
			real = (void(*) params)vs_real("ibv_" #base, "IBVERBS_" version);                                                      \
		if (real)                                                                                                                  \
			real args;                                                                                                             \
	}                                                                                                                              \
	VS_PUBLIC void ibv_##base params __attribute__((alias("vshim_" #base)));

#define NO EOPNOTSUPP
#define SYSFS_DEVICE "/sys/class/infiniband/vshim" /* as in core/device.c */

static void *refuse(int err)
{
	errno = err;
	return NULL;
}


static int refuse_int(int err)
{
	errno = err;
	return -1;
}

/* ---- devices ---- */

FORWARD(struct ibv_device **, NULL, get_device_list, "1.1", (int *num_devices), (num_devices), true, vs_get_device_list(num_devices))
FORWARD_VOID(free_device_list, "1.1", (struct ibv_device * *list), (list), true, vs_free_device_list(list))
FORWARD(const char *, NULL, get_device_name, "1.1", (struct ibv_device * device), (device), vs_device_ours(device), device->name)
FORWARD(int, -1, get_device_index, "1.9", (struct ibv_device * device), (device), vs_device_ours(device), -1)

static __be64 guid_of(const struct ibv_device *device)
{
	const struct vs_device *d = vs_container(device, struct vs_device, ibv);
	const struct vs_hca_shm *hca = vs_seg ? vs_fabric_hca(d->hca) : NULL;

	return hca ? htobe64(hca->guid) : 0;
}

FORWARD(__be64, 0, get_device_guid, "1.1", (struct ibv_device * device), (device), vs_device_ours(device), guid_of(device))
FORWARD(struct ibv_context *, NULL, open_device, "1.1", (struct ibv_device * device), (device), vs_device_ours(device),
	vs_open_device(device))
FORWARD(int, NO, close_device, "1.1", (struct ibv_context * context), (context), vs_ours(context), vs_close_device(context))

static struct ibv_context *import_context(int cmd_fd)
{
	struct vs_device *device = vs_import_find(cmd_fd);

	return device ? vs_import_device(&device->ibv, cmd_fd) : refuse(ENODEV);
}

FORWARD(struct ibv_context *, NULL, import_device, "1.10", (int cmd_fd), (cmd_fd), vs_import_find(cmd_fd) != NULL,
	import_context(cmd_fd))
FORWARD(int, NO, query_device, "1.1", (struct ibv_context * context, struct ibv_device_attr *attr), (context, attr), vs_ours(context),
	vs_query_device(context, attr))

/* The exported function knows only the fields that were there before link_layer and what follows came in. */
FORWARD(int, NO, query_port, "1.1", (struct ibv_context * context, uint8_t port, struct _compat_ibv_port_attr *attr),
	(context, port, attr), vs_ours(context),
	vs_query_port(context, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, link_layer)))
FORWARD(int, -1, query_gid, "1.1", (struct ibv_context * context, uint8_t port, int index, union ibv_gid *gid),
	(context, port, index, gid), vs_ours(context), vs_query_gid(context, port, index, gid))
FORWARD(int, -1, query_pkey, "1.1", (struct ibv_context * context, uint8_t port, int index, __be16 *pkey), (context, port, index, pkey),
	vs_ours(context), vs_query_pkey(context, port, index, pkey))
FORWARD(int, -1, get_pkey_index, "1.5", (struct ibv_context * context, uint8_t port, __be16 pkey), (context, port, pkey),
	vs_ours(context), vs_get_pkey_index(context, port, pkey))

static int gid_entry(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	if (flags || size < sizeof(*entry))
		return EINVAL;
	if (port > 255)
		return EINVAL;
	if (vs_query_gid(context, (uint8_t)port, (int)index, &entry->gid))
		return errno;
	entry->gid_index = index;
	entry->port_num = port;
	entry->gid_type = vs_fabric_ethernet(vs_context(context)->hca) ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB;
	entry->ndev_ifindex = 0;
	return 0;
}

static ssize_t gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max, uint32_t flags, size_t size)
{
	uint32_t ports = vs_context(context)->hca->num_ports;

	if (max < ports)
		return -EINVAL;
	for (uint32_t p = 1; p <= ports; p++) {
		int err = gid_entry(context, p, 0, &entries[p - 1], flags, size);

		if (err)
			return -err;
	}
	return ports;
}

FORWARD_AS(int, NO, _vshim_query_gid_ex, _ibv_query_gid_ex, "IBVERBS_1.11",
	   (struct ibv_context * context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags, size_t size),
	   (context, port, index, entry, flags, size), vs_ours(context), gid_entry(context, port, index, entry, flags, size))
FORWARD_AS(ssize_t, -NO, _vshim_query_gid_table, _ibv_query_gid_table, "IBVERBS_1.11",
	   (struct ibv_context * context, struct ibv_gid_entry *entries, size_t max, uint32_t flags, size_t size),
	   (context, entries, max, flags, size), vs_ours(context), gid_table(context, entries, max, flags, size))

/* ---- what rdma-core's own tools ask beside the API ---- */

enum gid_type_sysfs { GID_TYPE_SYSFS_IB_ROCE_V1, GID_TYPE_SYSFS_ROCE_V2 };

static int gid_type(struct ibv_context *context, enum gid_type_sysfs *type)
{
	*type = vs_fabric_ethernet(vs_context(context)->hca) ? GID_TYPE_SYSFS_ROCE_V2 : GID_TYPE_SYSFS_IB_ROCE_V1;
	return 0;
}

FORWARD_AS(int, -1, vshim_query_gid_type, ibv_query_gid_type, "IBVERBS_PRIVATE_34",
	   (struct ibv_context * context, uint8_t port, unsigned int index, enum gid_type_sysfs *type), (context, port, index, type),
	   vs_ours(context), ((void)port, (void)index, gid_type(context, type)))

/* Files of a device's directory in sysfs, which for a software HCA does not exist. */
static int read_sysfs(const char *dir, const char *file, char *buf, size_t size)
{
	static const char *const files[][2] = { { "board_id", "VSHIM" }, { "hca_type", "verbs_shim" }, { "fw_ver", "1.0" } };

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (!strcmp(file, files[i][0]))
			return snprintf(buf, size, "%s", files[i][1]);
	if (!strcmp(file, "device/numa_node"))
		return snprintf(buf, size, "%d", vs_fabric_numa_node((uint32_t)strtoul(dir + strlen(SYSFS_DEVICE), NULL, 10)));
	return refuse_int(ENOENT);
}

FORWARD(int, -1, read_sysfs_file, "1.0", (const char *dir, const char *file, char *buf, size_t size), (dir, file, buf, size),
	!strncmp(dir, SYSFS_DEVICE, strlen(SYSFS_DEVICE)), read_sysfs(dir, file, buf, size))

/* ---- protection domains, address handles, memory ---- */

FORWARD(struct ibv_pd *, NULL, alloc_pd, "1.1", (struct ibv_context * context), (context), vs_ours(context), vs_alloc_pd(context))
FORWARD(int, NO, dealloc_pd, "1.1", (struct ibv_pd * pd), (pd), vs_ours(pd->context), vs_dealloc_pd(pd))
FORWARD(struct ibv_pd *, NULL, import_pd, "1.10", (struct ibv_context * context, uint32_t handle), (context, handle), vs_ours(context),
	vs_import_pd(context, handle))
FORWARD_VOID(unimport_pd, "1.10", (struct ibv_pd * pd), (pd), vs_ours(pd->context), vs_unimport_pd(pd))
FORWARD(struct ibv_ah *, NULL, create_ah, "1.1", (struct ibv_pd * pd, struct ibv_ah_attr *attr), (pd, attr), vs_ours(pd->context),
	vs_create_ah(pd, attr))
FORWARD(int, NO, destroy_ah, "1.1", (struct ibv_ah * ah), (ah), vs_ours(ah->context), vs_destroy_ah(ah))

static int ah_attr_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	uint32_t flow;

	*attr = (struct ibv_ah_attr){ .dlid = wc->slid, .sl = wc->sl, .src_path_bits = wc->dlid_path_bits, .port_num = port };
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0; /* and grh may be NULL */
	flow = be32toh(grh->version_tclass_flow);
	attr->is_global = 1;
	attr->grh.dgid = grh->sgid;
	attr->grh.flow_label = flow & 0xfffff;
	attr->grh.traffic_class = (uint8_t)(flow >> 20);
	attr->grh.hop_limit = grh->hop_limit;
	(void)context;
	return 0;
}

static struct ibv_ah *ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	ah_attr_from_wc(pd->context, port, wc, grh, &attr);
	return vs_create_ah(pd, &attr);
}

FORWARD(int, -1, init_ah_from_wc, "1.1",
	(struct ibv_context * context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *attr),
	(context, port, wc, grh, attr), vs_ours(context), ah_attr_from_wc(context, port, wc, grh, attr))
FORWARD(struct ibv_ah *, NULL, create_ah_from_wc, "1.1", (struct ibv_pd * pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port),
	(pd, wc, grh, port), vs_ours(pd->context), ah_from_wc(pd, wc, grh, port))
FORWARD(int, NO, resolve_eth_l2_from_gid, "1.1",
	(struct ibv_context * context, struct ibv_ah_attr *attr, uint8_t eth_mac[6], uint16_t *vid), (context, attr, eth_mac, vid),
	vs_ours(context), EOPNOTSUPP)

FORWARD(struct ibv_mr *, NULL, reg_mr, "1.1", (struct ibv_pd * pd, void *addr, size_t length, int access), (pd, addr, length, access),
	vs_ours(pd->context), vs_reg_mr(pd, addr, length, (uintptr_t)addr, (unsigned)access))
FORWARD(struct ibv_mr *, NULL, reg_mr_iova, "1.7", (struct ibv_pd * pd, void *addr, size_t length, uint64_t iova, int access),
	(pd, addr, length, iova, access), vs_ours(pd->context), vs_reg_mr(pd, addr, length, iova, (unsigned)access))
FORWARD(struct ibv_mr *, NULL, reg_mr_iova2, "1.8", (struct ibv_pd * pd, void *addr, size_t length, uint64_t iova, unsigned int access),
	(pd, addr, length, iova, access), vs_ours(pd->context), vs_reg_mr(pd, addr, length, iova, access))
FORWARD(struct ibv_mr *, NULL, reg_dmabuf_mr, "1.12",
	(struct ibv_pd * pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access), (pd, offset, length, iova, fd, access),
	vs_ours(pd->context), refuse(EOPNOTSUPP))
static int rereg(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	errno = vs_rereg_mr(mr, flags, pd, addr, length, (unsigned)access);
	return errno == 0 ? 0 : errno == EINVAL ? IBV_REREG_MR_ERR_INPUT : IBV_REREG_MR_ERR_CMD;
}

FORWARD(int, IBV_REREG_MR_ERR_CMD, rereg_mr, "1.1",
	(struct ibv_mr * mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access), (mr, flags, pd, addr, length, access),
	vs_ours(mr->context), rereg(mr, flags, pd, addr, length, access))
FORWARD(int, NO, dereg_mr, "1.1", (struct ibv_mr * mr), (mr), vs_ours(mr->context), vs_dereg_mr(mr))
FORWARD(struct ibv_mr *, NULL, import_mr, "1.10", (struct ibv_pd * pd, uint32_t handle), (pd, handle), vs_ours(pd->context),
	vs_import_mr(pd, handle))
FORWARD_VOID(unimport_mr, "1.10", (struct ibv_mr * mr), (mr), vs_ours(mr->context), vs_unimport_mr(mr))
FORWARD(struct ibv_dm *, NULL, import_dm, "1.13", (struct ibv_context * context, uint32_t handle), (context, handle),
	vs_ours(context), refuse(EOPNOTSUPP))
FORWARD_VOID(unimport_dm, "1.13", (struct ibv_dm * dm), (dm), vs_ours(dm->context), (void)dm)

/* ---- completions ---- */

FORWARD(struct ibv_comp_channel *, NULL, create_comp_channel, "1.0", (struct ibv_context * context), (context), vs_ours(context),
	vs_create_comp_channel(context))
FORWARD(int, NO, destroy_comp_channel, "1.0", (struct ibv_comp_channel * channel), (channel), vs_ours(channel->context),
	vs_destroy_comp_channel(channel))
FORWARD(struct ibv_cq *, NULL, create_cq, "1.1",
	(struct ibv_context * context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector),
	(context, cqe, cq_context, channel, vector), vs_ours(context), vs_create_cq(context, cqe, cq_context, channel, vector))
FORWARD(int, NO, resize_cq, "1.1", (struct ibv_cq * cq, int cqe), (cq, cqe), vs_ours(cq->context), vs_resize_cq(cq, cqe))
FORWARD(int, NO, destroy_cq, "1.1", (struct ibv_cq * cq), (cq), vs_ours(cq->context), vs_destroy_cq(cq))
FORWARD(int, -1, get_cq_event, "1.1", (struct ibv_comp_channel * channel, struct ibv_cq **cq, void **cq_context),
	(channel, cq, cq_context), vs_ours(channel->context), vs_get_cq_event(channel, cq, cq_context))
FORWARD_VOID(ack_cq_events, "1.1", (struct ibv_cq * cq, unsigned int nevents), (cq, nevents), vs_ours(cq->context),
	     vs_ack_cq_events(cq, nevents))
FORWARD(int, -1, get_async_event, "1.1", (struct ibv_context * context, struct ibv_async_event *event), (context, event),
	vs_ours(context), vs_get_async_event(context, event))

/* Only QP, CQ and SRQ events have an element to ask; nothing waits for acknowledgements of the others. */
static int event_ours(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return vs_ours(event->element.cq->context);
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return vs_ours(event->element.srq->context);
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return vs_ours(event->element.qp->context);
	default:
		return VS_FOREIGN;
	}
}

FORWARD_VOID(ack_async_event, "1.1", (struct ibv_async_event * event), (event), event_ours(event), vs_ack_async_event(event))

/* ---- queues ---- */

FORWARD(struct ibv_srq *, NULL, create_srq, "1.1", (struct ibv_pd * pd, struct ibv_srq_init_attr *init), (pd, init),
	vs_ours(pd->context), vs_create_srq(pd, init))
FORWARD(int, NO, modify_srq, "1.1", (struct ibv_srq * srq, struct ibv_srq_attr *attr, int mask), (srq, attr, mask),
	vs_ours(srq->context), vs_modify_srq(srq, attr, mask))
FORWARD(int, NO, query_srq, "1.1", (struct ibv_srq * srq, struct ibv_srq_attr *attr), (srq, attr), vs_ours(srq->context),
	vs_query_srq(srq, attr))
FORWARD(int, NO, destroy_srq, "1.1", (struct ibv_srq * srq), (srq), vs_ours(srq->context), vs_destroy_srq(srq))
FORWARD(struct ibv_qp *, NULL, create_qp, "1.1", (struct ibv_pd * pd, struct ibv_qp_init_attr *init), (pd, init), vs_ours(pd->context),
	vs_create_qp(pd, init))
FORWARD(int, NO, modify_qp, "1.1", (struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask), (qp, attr, mask), vs_ours(qp->context),
	vs_modify_qp(qp, attr, mask))
FORWARD(int, NO, query_qp, "1.1", (struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init),
	(qp, attr, mask, init), vs_ours(qp->context), vs_query_qp(qp, attr, mask, init))
FORWARD(int, NO, destroy_qp, "1.1", (struct ibv_qp * qp), (qp), vs_ours(qp->context), vs_destroy_qp(qp))
static struct ibv_qp_ex *qp_ex_of(struct ibv_qp *qp)
{
	return vs_qp(qp)->has_wr_hooks ? &vs_qp(qp)->ibv_ex : refuse(EOPNOTSUPP);
}

FORWARD(struct ibv_qp_ex *, NULL, qp_to_qp_ex, "1.6", (struct ibv_qp * qp), (qp), vs_ours(qp->context), qp_ex_of(qp))
FORWARD(int, 0, query_qp_data_in_order, "1.14", (struct ibv_qp * qp, enum ibv_wr_opcode op, uint32_t flags), (qp, op, flags),
	vs_ours(qp->context), 0)
FORWARD(int, NO, attach_mcast, "1.1", (struct ibv_qp * qp, const union ibv_gid *gid, uint16_t lid), (qp, gid, lid),
	vs_ours(qp->context), vs_attach_mcast(qp, gid, lid))
FORWARD(int, NO, detach_mcast, "1.1", (struct ibv_qp * qp, const union ibv_gid *gid, uint16_t lid), (qp, gid, lid),
	vs_ours(qp->context), vs_detach_mcast(qp, gid, lid))
FORWARD(int, NO, query_ece, "1.10", (struct ibv_qp * qp, struct ibv_ece *ece), (qp, ece), vs_ours(qp->context), EOPNOTSUPP)
FORWARD(int, NO, set_ece, "1.10", (struct ibv_qp * qp, struct ibv_ece *ece), (qp, ece), vs_ours(qp->context), EOPNOTSUPP)

/* ---- fork: software HCAs reach memory through the process, never through pages, so a fork cannot part them ---- */

static int fork_init(void)
{
	int (*real)(void) = vs_real("ibv_fork_init", "IBVERBS_1.1");
	int err = real ? real() : 0;

	return vs_have_real_devices() ? err : 0;
}

FORWARD(int, NO, fork_init, "1.1", (void), (), true, fork_init())
FORWARD(enum ibv_fork_status, IBV_FORK_UNNEEDED, is_fork_initialized, "1.13", (void), (), false, IBV_FORK_UNNEEDED)

/* ---- names and rates: the real library's ---- */

static const char unknown[] = "unknown";

FORWARD(const char *, unknown, node_type_str, "1.1", (enum ibv_node_type type), (type), false, NULL)
FORWARD(const char *, unknown, port_state_str, "1.1", (enum ibv_port_state state), (state), false, NULL)
FORWARD(const char *, unknown, event_type_str, "1.1", (enum ibv_event_type event), (event), false, NULL)
FORWARD(const char *, unknown, wc_status_str, "1.1", (enum ibv_wc_status status), (status), false, NULL)
FORWARD(int, -1, rate_to_mult, "1.0", (enum ibv_rate rate), (rate), false, 0)
FORWARD_AS(enum ibv_rate, IBV_RATE_MAX, vshim_mult_to_ibv_rate, mult_to_ibv_rate, "IBVERBS_1.0", (int mult), (mult), false, IBV_RATE_MAX)
FORWARD(int, -1, rate_to_mbps, "1.1", (enum ibv_rate rate), (rate), false, 0)
FORWARD_AS(enum ibv_rate, IBV_RATE_MAX, vshim_mbps_to_ibv_rate, mbps_to_ibv_rate, "IBVERBS_1.1", (int mbps), (mbps), false, IBV_RATE_MAX)
