/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit/path_address.h"

#include "btl_xrc_path.h"

void path_address(const struct path_from *from, const struct xrc_port_addr *remote, struct ibv_ah_attr *ah)
{
    static mca_btl_xrc_module_t module;
    module.addr.port = from->port;
    module.path_bits = from->path_bits;
    module.gid_index = from->gid_index;
    mca_btl_xrc_component.params.service_level = from->service_level;
    xrc_path_address(&module, remote, ah);
}
