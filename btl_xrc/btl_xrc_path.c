/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_path.h"

#include <errno.h>

#include "btl_xrc_rails.h"
#include "btl_xrc_ud.h"

#define HOPS 64

void xrc_path_address(const mca_btl_xrc_module_t *module, const struct xrc_port_addr *remote, struct ibv_ah_attr *ah)
{
    memset(ah, 0, sizeof(*ah));
    ah->dlid = remote->lid;
    ah->sl = (uint8_t) mca_btl_xrc_component.params.service_level;
    ah->port_num = module->addr.port;
    ah->src_path_bits = module->path_bits;
    if (IBV_LINK_LAYER_ETHERNET == remote->link_layer) {
        ah->is_global = 1;
        memcpy(ah->grh.dgid.raw, remote->gid, sizeof(remote->gid));
        ah->grh.sgid_index = module->gid_index;
        ah->grh.hop_limit = HOPS;
    }
}

int xrc_path_init(const mca_btl_xrc_module_t *module, struct ibv_qp *qp, unsigned access)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = (uint16_t) mca_btl_xrc_component.params.pkey_index,
                               .port_num = module->addr.port,
                               .qp_access_flags = access};
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void fill_rtr(const mca_btl_xrc_module_t *module, const struct xrc_path *path, struct ibv_qp_attr *attr)
{
    memset(attr, 0, sizeof(*attr));
    attr->qp_state = IBV_QPS_RTR;
    attr->path_mtu = (enum ibv_mtu)(path->remote.mtu < module->addr.mtu ? path->remote.mtu : module->addr.mtu);
    attr->dest_qp_num = path->remote_qpn;
    attr->rq_psn = path->remote_psn;
    attr->max_dest_rd_atomic = path->rd_atomic;
    attr->min_rnr_timer = (uint8_t) mca_btl_xrc_component.params.min_rnr_timer;
    xrc_path_address(module, &path->remote, &attr->ah_attr);
}

static void fill_rts(const struct xrc_path *path, struct ibv_qp_attr *attr)
{
    const struct xrc_params *p = &mca_btl_xrc_component.params;
    memset(attr, 0, sizeof(*attr));
    attr->qp_state = IBV_QPS_RTS;
    attr->timeout = (uint8_t) p->timeout;
    attr->retry_cnt = (uint8_t) p->retry_count;
    attr->rnr_retry = (uint8_t) p->rnr_retry;
    attr->sq_psn = path->local_psn;
    attr->max_rd_atomic = path->rd_atomic;
}

/* An INI has no responder, a TGT no requester: the masks differ, and a core that is strict refuses the other's. */
int xrc_path_ini_ready(const mca_btl_xrc_module_t *module, struct ibv_qp *ini, const struct xrc_path *path)
{
    struct ibv_qp_attr attr;
    fill_rtr(module, path, &attr);
    int rc = ibv_modify_qp(ini, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
    if (0 == rc) {
        fill_rts(path, &attr);
        rc = ibv_modify_qp(ini, &attr,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN
                               | IBV_QP_MAX_QP_RD_ATOMIC);
    }
    return rc;
}

int xrc_path_tgt_ready(const mca_btl_xrc_module_t *module, struct ibv_qp *tgt, const struct xrc_path *path)
{
    struct ibv_qp_attr attr;
    fill_rtr(module, path, &attr);
    int rc = ibv_modify_qp(tgt, &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
                               | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (0 == rc) {
        fill_rts(path, &attr);
        rc = ibv_modify_qp(tgt, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN);
    }
    return rc;
}

/* ---- alternate paths ---- */

static bool is_on(const mca_btl_xrc_module_t *module, const struct xrc_device *device, uint8_t port)
{
    return module->device == device && module->addr.port == port;
}

mca_btl_xrc_module_t *xrc_path_module_at(const struct xrc_device *device, uint8_t port)
{
    for (unsigned i = 0; i < mca_btl_xrc_component.nmodules; ++i) {
        if (is_on(mca_btl_xrc_component.modules[i], device, port)) {
            return mca_btl_xrc_component.modules[i];
        }
    }
    return NULL;
}

/* Rails begin on the first LIDs of a port. */
static unsigned rails_on(const struct xrc_device *device, uint8_t port)
{
    unsigned n = 0;
    for (unsigned i = 0; i < mca_btl_xrc_component.nmodules; ++i) {
        n += is_on(mca_btl_xrc_component.modules[i], device, port);
    }
    return n;
}

static bool same_subnet(const mca_btl_xrc_module_t *module, uint8_t port)
{
    union ibv_gid gid;
    return 0 == ibv_query_gid(module->device->context, port, 0, &gid) && 0 == memcmp(gid.raw, module->addr.gid, 8);
}

static void add_ports(const mca_btl_xrc_module_t *module, struct xrc_side *side, unsigned *n)
{
    for (unsigned p = 1; p <= module->device->attr.phys_port_cnt && *n < XRC_MAX_SIDES; ++p) {
        struct ibv_port_attr port;
        if (p == module->addr.port || 0 != ibv_query_port(module->device->context, (uint8_t) p, &port)
            || IBV_PORT_ACTIVE != port.state || IBV_LINK_LAYER_ETHERNET == port.link_layer
            || !same_subnet(module, (uint8_t) p)) {
            continue;
        }
        const mca_btl_xrc_module_t *other = xrc_path_module_at(module->device, (uint8_t) p);
        /* Rails that share a port should not share its first LID, too. */
        uint8_t bits = module->path_bits < 1u << port.lmc ? module->path_bits : 0;
        side[(*n)++] = (struct xrc_side){.lid = (uint16_t) (port.lid + bits),
                                         .port = (uint8_t) p,
                                         .bits = bits,
                                         .ud = NULL != other ? xrc_ud_address(other->ud) : (struct xrc_ud_addr){0, 0}};
    }
}

static void add_lids(const mca_btl_xrc_module_t *module, struct xrc_side *side, unsigned *n)
{
    uint8_t spare[XRC_MAX_SIDES];
    unsigned rails = rails_on(module->device, module->addr.port), base = module->addr.lid - (unsigned) module->path_bits;
    unsigned spares = xrc_rails_spares(module->lmc, rails, module->path_bits, spare, XRC_MAX_SIDES - *n);
    for (unsigned k = 0; k < spares; ++k) {
        side[*n] = side[0];
        side[*n].lid = (uint16_t) (base + spare[k]);
        side[(*n)++].bits = spare[k];
    }
}

unsigned xrc_path_sides(const mca_btl_xrc_module_t *module, struct xrc_side side[XRC_MAX_SIDES])
{
    int use = mca_btl_xrc_component.params.apm;
    unsigned n = 1;
    if (IBV_LINK_LAYER_ETHERNET == module->addr.link_layer) {
        return 0;
    }
    side[0] = (struct xrc_side){.lid = module->addr.lid,
                                .bits = module->path_bits,
                                .port = module->addr.port,
                                .ud = xrc_ud_address(module->ud)};
    if (XRC_APM_USE_OFF == use || !(module->device->attr.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG)) {
        return n;
    }
    if (XRC_APM_USE_LMC != use) {
        add_ports(module, side, &n);
    }
    if (XRC_APM_USE_PORTS != use) {
        add_lids(module, side, &n);
    }
    return n;
}

/* Address of @a remote, reached from our end @a local. InfiniBand only. */
static void side_address(const struct xrc_side *local, const struct xrc_side *remote, struct ibv_ah_attr *ah)
{
    memset(ah, 0, sizeof(*ah));
    ah->dlid = remote->lid;
    ah->sl = (uint8_t) mca_btl_xrc_component.params.service_level;
    ah->src_path_bits = local->bits;
    ah->port_num = local->port;
}

int xrc_path_look(struct ibv_qp *qp, struct xrc_path_status *status)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    int rc = ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PORT | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE,
                          &init);
    if (0 == rc) {
        *status = (struct xrc_path_status){.mig = attr.path_mig_state,
                                           .ready = IBV_QPS_RTS == attr.qp_state,
                                           .primary = attr.ah_attr,
                                           .alternate = attr.alt_ah_attr};
        status->primary.port_num = attr.port_num;
        status->alternate.port_num = attr.alt_port_num;
    }
    return rc;
}

bool xrc_path_is(const struct ibv_ah_attr *ah, const struct xrc_side *local, const struct xrc_side *remote)
{
    return ah->dlid == remote->lid && ah->port_num == local->port && ah->src_path_bits == local->bits;
}

/* The same P_Key may lie elsewhere in another port's table. */
static int same_pkey(const mca_btl_xrc_module_t *module, uint8_t port, uint16_t *index)
{
    struct ibv_context *context = module->device->context;
    uint16_t want = 0, have = 0;
    *index = (uint16_t) mca_btl_xrc_component.params.pkey_index;
    if (port == module->addr.port) {
        return 0;
    }
    if (0 != ibv_query_pkey(context, module->addr.port, *index, (__be16 *) &want)) {
        return EIO;
    }
    for (unsigned i = 0; i < module->device->attr.max_pkeys; ++i) {
        if (0 == ibv_query_pkey(context, port, (int) i, (__be16 *) &have) && have == want) {
            *index = (uint16_t) i;
            return 0;
        }
    }
    return ENOENT;
}

int xrc_path_load(const mca_btl_xrc_module_t *module, struct ibv_qp *qp, const struct xrc_side *local,
                  const struct xrc_side *remote)
{
    struct ibv_qp_attr attr = {.path_mig_state = IBV_MIG_REARM,
                               .alt_port_num = local->port,
                               .alt_timeout = (uint8_t) mca_btl_xrc_component.params.timeout};
    int rc = same_pkey(module, local->port, &attr.alt_pkey_index);
    side_address(local, remote, &attr.alt_ah_attr);
    return 0 != rc ? rc : ibv_modify_qp(qp, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
}

int xrc_path_migrate(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.path_mig_state = IBV_MIG_MIGRATED};
    return ibv_modify_qp(qp, &attr, IBV_QP_PATH_MIG_STATE);
}
