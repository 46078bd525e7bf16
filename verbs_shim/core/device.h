/* What devices and ports say of themselves. */
#ifndef VS_DEVICE_H
#define VS_DEVICE_H

#include "core/objects.h"

/* Fill in the public structure of an HCA of this host. */
void vs_device_init(struct vs_device *device, uint32_t hca_index);

int vs_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int vs_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr,
		       size_t size);

/* size: of the caller's structure, which newer headers have made longer. */
int vs_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr, size_t size);
int vs_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid);
int vs_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey);
int vs_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey);

#endif
