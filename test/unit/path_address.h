/* SPDX-License-Identifier: BSD-3-Clause */
/* xrc_path_address() of a module that has what is said here, for C++, which cannot read the component's own header. */
#ifndef TEST_UNIT_PATH_ADDRESS_H
#define TEST_UNIT_PATH_ADDRESS_H

#include "btl_xrc_verbs.h"
#include "btl_xrc_wire.h"

#ifdef __cplusplus
extern "C" {
#endif

struct path_from {
    uint8_t port;
    uint8_t path_bits;
    uint8_t gid_index;
    int service_level; /* the parameter */
};

void path_address(const struct path_from *from, const struct xrc_port_addr *remote, struct ibv_ah_attr *ah);

#ifdef __cplusplus
}
#endif

#endif
