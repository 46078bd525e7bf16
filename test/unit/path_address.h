/* SPDX-License-Identifier: BSD-3-Clause */
/* Paths of a module that has what is said here, for C++, which cannot read the component's own header. */
#ifndef TEST_UNIT_PATH_ADDRESS_H
#define TEST_UNIT_PATH_ADDRESS_H

#include <stdbool.h>

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

/* What xrc_path_look() makes of an HCA's answer. */
struct path_seen {
    int mig;
    bool ready;
    struct ibv_ah_attr primary;
    struct ibv_ah_attr alternate;
};

/* ibv_query_qp ends with @a rc and has put @a answer there. */
int path_look(const struct ibv_qp_attr *answer, int rc, struct path_seen *seen);

bool path_is(const struct ibv_ah_attr *ah, const struct xrc_side *local, const struct xrc_side *remote);

#ifdef __cplusplus
}
#endif

#endif
