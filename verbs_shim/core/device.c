#include "core/device.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/limits.h"

void vs_device_init(struct vs_device *device, uint32_t hca_index)
{
	const struct vs_hca_shm *hca = vs_fabric_hca(hca_index);

	memset(device, 0, sizeof(*device));
	device->hca = hca_index;
	device->ibv.node_type = IBV_NODE_CA;
	device->ibv.transport_type = IBV_TRANSPORT_IB;
	snprintf(device->ibv.name, sizeof(device->ibv.name), "vshim%u", hca->index);
	snprintf(device->ibv.dev_name, sizeof(device->ibv.dev_name), "uverbs_vshim%u", hca->index);
	snprintf(device->ibv.dev_path, sizeof(device->ibv.dev_path), "/sys/class/infiniband_verbs/uverbs_vshim%u", hca->index);
	snprintf(device->ibv.ibdev_path, sizeof(device->ibv.ibdev_path), "/sys/class/infiniband/vshim%u", hca->index);
}

int vs_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	VS_ASKS_KERNEL(query_device, context);
	const struct vs_hca_shm *hca = vs_context(context)->hca;

	*attr = (struct ibv_device_attr){
		.fw_ver = "1.0",
		.node_guid = htobe64(hca->guid),
		.sys_image_guid = htobe64(hca->guid),
		.max_mr_size = UINT64_MAX,
		.page_size_cap = (uint64_t)sysconf(_SC_PAGESIZE),
		.vendor_id = 0x565348,
		.vendor_part_id = 1,
		.hw_ver = 1,
		.max_qp = (int)vs_tables[VS_QP].count - 1,
		.max_qp_wr = VS_MAX_QP_WR,
		.device_cap_flags = IBV_DEVICE_XRC | IBV_DEVICE_AUTO_PATH_MIG | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
				    IBV_DEVICE_CURR_QP_STATE_MOD,
		.max_sge = VS_MAX_SGE,
		.max_sge_rd = VS_MAX_SGE,
		.max_cq = (int)vs_tables[VS_CQ].count,
		.max_cqe = 131071,
		.max_mr = (int)vs_tables[VS_MR].count,
		.max_pd = (int)vs_tables[VS_PD].count,
		.max_qp_rd_atom = VS_MAX_RD_ATOMIC,
		.max_res_rd_atom = VS_MAX_RD_ATOMIC * 65536,
		.max_qp_init_rd_atom = VS_MAX_RD_ATOMIC,
		.atomic_cap = vs_fabric_atomics() == VS_ATOMICS_GLOB ? IBV_ATOMIC_GLOB : IBV_ATOMIC_HCA,
		.max_ah = INT32_MAX,
		.max_mcast_grp = (int)vs_tables[VS_MCAST].count,
		.max_mcast_qp_attach = (int)vs_tables[VS_MCAST].count,
		.max_total_mcast_qp_attach = (int)vs_tables[VS_MCAST].count,
		.max_srq = (int)vs_tables[VS_SRQ].count,
		.max_srq_wr = VS_MAX_SRQ_WR,
		.max_srq_sge = VS_MAX_SGE,
		.max_pkeys = VS_PKEY_TABLE,
		.local_ca_ack_delay = 15,
		.phys_port_cnt = (uint8_t)hca->num_ports,
	};
	if (vs_hidden(VS_CAP_XRC))
		attr->device_cap_flags &= ~(unsigned)IBV_DEVICE_XRC;
	if (vs_hidden(VS_CAP_APM) || vs_fabric_ethernet(hca))
		attr->device_cap_flags &= ~(unsigned)IBV_DEVICE_AUTO_PATH_MIG;
	if (vs_hidden(VS_CAP_ATOMICS))
		attr->atomic_cap = IBV_ATOMIC_NONE;
	return 0;
}

int vs_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr,
		       size_t size)
{
	if (input && input->comp_mask)
		return EINVAL;
	if (size < sizeof(attr->orig_attr))
		return EOPNOTSUPP;
	memset(attr, 0, size); /* nothing of what the extended structure tells of is there, but: */
	if (size >= offsetof(struct ibv_device_attr_ex, phys_port_cnt_ex) + sizeof(attr->phys_port_cnt_ex))
		attr->phys_port_cnt_ex = vs_context(context)->hca->num_ports;
	return vs_query_device(context, &attr->orig_attr);
}

int vs_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr, size_t size)
{
	VS_ASKS_KERNEL(query_port, context);
	const struct vs_port_shm *port = vs_fabric_port(vs_context(context)->hca, port_num);
	struct ibv_port_attr full = { 0 };
	enum ibv_port_state state;

	if (!port)
		return EINVAL;
	state = (enum ibv_port_state)vs_load(&port->state);
	full.state = state;
	full.max_mtu = IBV_MTU_4096;
	full.active_mtu = IBV_MTU_4096;
	full.gid_tbl_len = 1;
	full.port_cap_flags = IBV_PORT_SYS_IMAGE_GUID_SUP;
	full.max_msg_sz = vs_fabric_max_msg();
	full.pkey_tbl_len = (uint16_t)vs_fabric_pkeys(port);
	full.lid = vs_fabric_lid(port);
	full.sm_lid = full.lid ? (uint16_t)(1 + port->subnet) : 0; /* a subnet manager each */
	full.lmc = port->lmc;
	full.max_vl_num = 1;
	full.active_width = 2; /* 4X */
	full.active_speed = 32; /* EDR */
	full.phys_state = state == IBV_PORT_DOWN ? 3 : 5; /* Disabled, LinkUp */
	full.link_layer = port->ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
	full.flags = port->ethernet ? (uint8_t)IBV_QPF_GRH_REQUIRED : 0;
	memset(attr, 0, size);
	memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full)); /* the caller's structure may be older, or newer */
	return 0;
}

static bool refused_errno(enum vs_verb verb, struct ibv_context *context)
{
	int err = vs_kernel_refuses(verb, context);

	if (err)
		errno = err;
	return err != 0;
}

int vs_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	const struct vs_port_shm *port = vs_fabric_port(vs_context(context)->hca, port_num);

	if (refused_errno(VS_VERB_query_gid, context))
		return -1;
	if (!port || vs_fabric_gid(port, index, gid)) {
		errno = EINVAL;
		return -1;
	}
	return 0;
}

int vs_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	const struct vs_port_shm *port = vs_fabric_port(vs_context(context)->hca, port_num);

	if (refused_errno(VS_VERB_query_pkey, context))
		return -1;
	if (!port || index < 0 || (uint32_t)index >= vs_fabric_pkeys(port)) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htobe16(port->pkey[index]);
	return 0;
}

int vs_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	__be16 entry;

	const struct vs_port_shm *port = vs_fabric_port(vs_context(context)->hca, port_num);

	for (int i = 0; port && i < (int)vs_fabric_pkeys(port); i++)
		if (vs_query_pkey(context, port_num, i, &entry) == 0 && entry == pkey)
			return i;
	errno = EINVAL;
	return -1;
}
