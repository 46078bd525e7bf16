/* SPDX-License-Identifier: BSD-3-Clause */
/* The numbers of this process: performance variables of MPI_T, and what verbosity 10 says at the end. */
#include "opal/mca/base/mca_base_pvar.h"

#include "btl_xrc.h"

#define COUNTERS (&mca_btl_xrc_component.counters)

/* Of the buffers that a queue has, in percent; the worst queue. */
static uint32_t least_posted(void)
{
    uint32_t least = 100;
    for (unsigned m = 0; m < mca_btl_xrc_component.nmodules; ++m) {
        const mca_btl_xrc_module_t *module = mca_btl_xrc_component.modules[m];
        for (unsigned i = 0; i < mca_btl_xrc_component.recvq.nclasses; ++i) {
            uint32_t here = __atomic_load_n(&module->srq[i].low_percent, __ATOMIC_RELAXED);
            least = here < least ? here : least;
        }
    }
    return least;
}

static int64_t buffers_made(void)
{
    int64_t sum = 0;
    for (unsigned m = 0; m < mca_btl_xrc_component.nmodules; ++m) {
        const mca_btl_xrc_module_t *module = mca_btl_xrc_component.modules[m];
        for (unsigned i = 0; i < mca_btl_xrc_component.recvq.nclasses; ++i) {
            sum += __atomic_load_n(&module->srq[i].made, __ATOMIC_RELAXED);
        }
    }
    return sum;
}

static struct xrc_port_counters at_start;

/* Each port once, by the module of its first LID. */
static struct xrc_port_counters count_ports(void)
{
    struct xrc_port_counters sum = {0, 0};
    for (unsigned i = 0; i < mca_btl_xrc_component.nmodules; ++i) {
        const mca_btl_xrc_module_t *module = mca_btl_xrc_component.modules[i];
        if (0 == module->path_bits) {
            struct xrc_port_counters port = xrc_device_port_counters(module->device, module->addr.port);
            sum.rnr_waits += port.rnr_waits;
            sum.retries += port.retries;
        }
    }
    return sum;
}

void xrc_stats_start(void)
{
    at_start = count_ports();
}

static int64_t value_of(enum xrc_stat stat)
{
    const struct xrc_counters *c = COUNTERS;
    switch (stat) {
    case XRC_STAT_INI_MADE: return xrc_counted(&c->ini_qps);
    case XRC_STAT_INI: return xrc_counted(&c->ini_qps) - xrc_counted(&c->ini_gone);
    case XRC_STAT_TGT_MADE: return xrc_counted(&c->tgt_created);
    case XRC_STAT_TGT_OPENED: return xrc_counted(&c->tgt_opened);
    case XRC_STAT_TGT: return xrc_counted(&c->tgt_created) + xrc_counted(&c->tgt_opened) - xrc_counted(&c->tgt_closed);
    case XRC_STAT_RECV_BYTES: return xrc_counted(&c->recv_bytes);
    case XRC_STAT_WIREUP_BYTES: return xrc_counted(&c->wireup_bytes);
    case XRC_STAT_CACHE_BYTES: return xrc_counted(&c->cache_bytes);
    case XRC_STAT_CACHE_MOST: return xrc_counted(&c->cache_bytes_most);
    case XRC_STAT_REGISTERED:
        return xrc_counted(&c->recv_bytes) + xrc_counted(&c->wireup_bytes) + xrc_counted(&c->cache_bytes);
    case XRC_STAT_WAITING: return xrc_counted(&c->waiting);
    case XRC_STAT_WAITING_MOST: return xrc_counted(&c->waiting_most);
    case XRC_STAT_SRQ_BUFFERS: return buffers_made();
    case XRC_STAT_SRQ_LOW: return least_posted();
    case XRC_STAT_SRQ_LIMITS: return xrc_counted(&c->srq_limits);
    case XRC_STAT_RNR: return (int64_t) (count_ports().rnr_waits - at_start.rnr_waits);
    case XRC_STAT_RETRIES: return (int64_t) (count_ports().retries - at_start.retries);
    case XRC_STAT_REQUESTS: return xrc_counted(&c->requests);
    case XRC_STAT_RESENDS: return xrc_counted(&c->repeats);
    case XRC_STAT_CONNECT_LAST: return xrc_counted(&c->connect_us);
    case XRC_STAT_CONNECT_MOST: return xrc_counted(&c->connect_us_most);
    case XRC_STAT_MIGRATIONS: return xrc_counted(&c->migrations);
    case XRC_STAT_ARMINGS: return xrc_counted(&c->armings);
    case XRC_STAT_NOTICES: return xrc_counted(&c->notices);
    case XRC_STAT_PORT_ERRORS: return xrc_counted(&c->port_errors);
    case XRC_STAT_PUTS: return c->puts;
    case XRC_STAT_GETS: return c->gets;
    case XRC_STAT_ATOMICS: return c->atomics;
    case XRC_STAT_BLIND: return c->atomics_blind;
    case XRC_STAT_BOUNCED: return c->bounced;
    case XRC_STAT_DROPPED: return xrc_counted(&c->bad_messages) + c->bad_frags;
    case XRC_STATS: break;
    }
    return 0;
}

/* Two numbers that are read one after the other may make less than nothing. */
uint64_t xrc_stats_value(enum xrc_stat stat)
{
    int64_t value = value_of(stat);
    return value > 0 ? (uint64_t) value : 0;
}

/* ---- MPI_T ---- */

static int read_pvar(const mca_base_pvar_t *pvar, void *value, void *obj)
{
    const struct xrc_stat_info *info = (const struct xrc_stat_info *) pvar->ctx;
    (void) obj;
    *(unsigned long long *) value = xrc_stats_value((enum xrc_stat)(info - xrc_stat_info));
    return OPAL_SUCCESS;
}

static int class_of(enum xrc_stat_kind kind)
{
    switch (kind) {
    case XRC_STAT_LEVEL: return MCA_BASE_PVAR_CLASS_LEVEL;
    case XRC_STAT_HIGH: return MCA_BASE_PVAR_CLASS_HIGHWATERMARK;
    case XRC_STAT_LOW: return MCA_BASE_PVAR_CLASS_LOWWATERMARK;
    case XRC_STAT_COUNTER:
    case XRC_STAT_SHARED: break;
    }
    return MCA_BASE_PVAR_CLASS_COUNTER;
}

int xrc_stats_register(void)
{
    for (unsigned i = 0; i < XRC_STATS; ++i) {
        const struct xrc_stat_info *info = &xrc_stat_info[i];
        int rc = mca_base_component_pvar_register(
            &mca_btl_xrc_component.super.btl_version, info->name, info->help, OPAL_INFO_LVL_4, class_of(info->kind),
            MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL, MCA_BASE_VAR_BIND_NO_OBJECT,
            MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, read_pvar, NULL, NULL,
            (void *) (uintptr_t) info);
        if (rc < 0) {
            return rc;
        }
    }
    return OPAL_SUCCESS;
}

/* ---- at the end ---- */

static long long number(enum xrc_stat stat)
{
    return (long long) xrc_stats_value(stat);
}

/* Said at verbosity 10 when a module is finalized. */
void xrc_stats_say(const mca_btl_xrc_module_t *module)
{
    const struct xrc_reach *r = &module->reach;
    size_t memory = 0;
    for (unsigned i = 0; i < mca_btl_xrc_component.recvq.nclasses; ++i) {
        memory += module->srq[i].bytes;
    }
    XRC_VERBOSE(10,
                "%s port %u: %lld peers in %lld domains; this process made %lld INI and %lld TGT QPs and opened %lld; "
                "%lld requests sent, %lld of them again; %zu KiB of receive buffers; %lld migrations, %lld notices, "
                "armed %lld times; dropped: %lld messages and fragments; %lld puts, %lld gets, %lld atomics, %lld "
                "of them blind, %lld through buffers",
                module->device->name, module->addr.port,
                (long long) (xrc_counted(&r->peers) + xrc_counted(&r->own_peers)),
                (long long) (xrc_counted(&r->domains) + (xrc_counted(&r->own_peers) > 0)), number(XRC_STAT_INI_MADE),
                number(XRC_STAT_TGT_MADE), number(XRC_STAT_TGT_OPENED), number(XRC_STAT_REQUESTS),
                number(XRC_STAT_RESENDS), memory >> 10, number(XRC_STAT_MIGRATIONS), number(XRC_STAT_NOTICES),
                number(XRC_STAT_ARMINGS), number(XRC_STAT_DROPPED), number(XRC_STAT_PUTS), number(XRC_STAT_GETS),
                number(XRC_STAT_ATOMICS), number(XRC_STAT_BLIND), number(XRC_STAT_BOUNCED));
}
