/* SPDX-License-Identifier: BSD-3-Clause */
/* The path between two ports, and the QP transitions that set it. */
#ifndef BTL_XRC_PATH_H
#define BTL_XRC_PATH_H

#include "btl_xrc.h"

/** What both ends of an INI-TGT pair agree on. */
struct xrc_path {
    struct xrc_port_addr remote;
    uint32_t remote_qpn;
    uint32_t remote_psn;
    uint32_t local_psn;
    uint8_t rd_atomic; /* reads and atomics on the way */
};

/** Address of the port @a remote as @a module reaches it. */
void xrc_path_address(const mca_btl_xrc_module_t *module, const struct xrc_port_addr *remote, struct ibv_ah_attr *ah);

/** RESET to INIT, for either end. 0 or an errno value, as the others. */
int xrc_path_init(const mca_btl_xrc_module_t *module, struct ibv_qp *qp, unsigned access);

/** An INI in INIT: to RTR and RTS. */
int xrc_path_ini_ready(const mca_btl_xrc_module_t *module, struct ibv_qp *ini, const struct xrc_path *path);

/** A TGT in INIT: to RTR and RTS. RTS only because paths can be armed for migration there, not before. */
int xrc_path_tgt_ready(const mca_btl_xrc_module_t *module, struct ibv_qp *tgt, const struct xrc_path *path);

/**
 * The ends of paths this process offers for @a module's port: that port itself first, then what may stand in for it.
 * None where the port is Ethernet's: ends have LIDs, and nothing migrates there.
 */
unsigned xrc_path_sides(const mca_btl_xrc_module_t *module, struct xrc_side side[XRC_MAX_SIDES]);

/** The first module on that port of @a device, NULL when the port is not used. */
mca_btl_xrc_module_t *xrc_path_module_at(const struct xrc_device *device, uint8_t port);

/** How a QP's paths stand, as far as migration goes. */
struct xrc_path_status {
    enum ibv_mig_state mig;
    bool ready; /* in RTS */
    struct ibv_ah_attr primary;
    struct ibv_ah_attr alternate;
};

/** Ask the HCA. 0 or an errno value, as the others. */
int xrc_path_look(struct ibv_qp *qp, struct xrc_path_status *status);

/** Is that the path between these two ends? */
bool xrc_path_is(const struct ibv_ah_attr *ah, const struct xrc_side *local, const struct xrc_side *remote);

/** Load the alternate path of a QP in RTS and rearm it. */
int xrc_path_load(const mca_btl_xrc_module_t *module, struct ibv_qp *qp, const struct xrc_side *local,
                  const struct xrc_side *remote);

/** Make an armed QP change to its alternate path now. */
int xrc_path_migrate(struct ibv_qp *qp);

#endif
