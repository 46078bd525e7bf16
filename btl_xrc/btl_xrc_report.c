/* SPDX-License-Identifier: BSD-3-Clause */
/* btl_xrc_report: this process's row, and the host's report by whoever is the last (see btl_xrc_tally.h). */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "opal/util/printf.h"

#include "btl_xrc.h"

static int tally = -1;

/* Beside the domain file of the first device. To be freed. */
static char *path_of_tally(void)
{
    char *path = NULL;
    return opal_asprintf(&path, "%s/btl_xrc_report", mca_btl_xrc_component.modules[0]->device->dir) < 0 ? NULL : path;
}

void xrc_report_begin(void)
{
    char *path = mca_btl_xrc_component.params.report ? path_of_tally() : NULL;
    if (NULL == path) {
        return;
    }
    tally = xrc_tally_join(path, OPAL_PROC_MY_NAME.vpid);
    if (tally < 0) {
        opal_output(0, "btl:xrc: no report: %s: %s", path, strerror(errno));
    }
    free(path);
}

static void predict(struct xrc_tally_row *row)
{
    const struct xrc_recvq *q = &mca_btl_xrc_component.recvq;
    uint64_t rails = mca_btl_xrc_component.nmodules;
    for (unsigned i = 0; i < q->nclasses; ++i) {
        uint64_t buffer = q->c[i].size + sizeof(struct xrc_hdr);
        row->recv_formula += q->c[i].num * buffer * rails;
        row->recv_start += q->c[i].init * buffer * rails;
    }
}

static void fill_rail(struct xrc_tally_rail *rail, const mca_btl_xrc_module_t *module)
{
    const struct xrc_reach *r = &module->reach;
    snprintf(rail->device, sizeof(rail->device), "%s", module->device->name);
    rail->port = module->addr.port;
    rail->lid = module->addr.lid;
    rail->domains = (uint32_t) xrc_counted(&r->domains);
    rail->peers = (uint32_t) xrc_counted(&r->peers);
    rail->own_peers = (uint32_t) xrc_counted(&r->own_peers);
    rail->inis = (uint32_t) xrc_counted(&r->inis);
    memcpy(rail->moved, r->moved, sizeof(rail->moved));
}

static void fill(struct xrc_tally_row *row)
{
    row->rank = OPAL_PROC_MY_NAME.vpid;
    predict(row);
    row->nrails = mca_btl_xrc_component.nmodules;
    for (unsigned i = 0; i < row->nrails; ++i) {
        fill_rail(&row->rail[i], mca_btl_xrc_component.modules[i]);
    }
    for (unsigned i = 0; i < XRC_STATS; ++i) {
        row->stat[i] = xrc_stats_value((enum xrc_stat) i);
    }
}

void xrc_report_end(void)
{
    char *path = tally >= 0 ? path_of_tally() : NULL;
    if (NULL == path) {
        return;
    }
    struct xrc_tally_row row = {0};
    struct xrc_tally sum;
    fill(&row);
    if (xrc_tally_leave(tally, path, &row, &sum)) {
        char *text = xrc_tally_text(&sum, opal_process_info.nodename);
        if (NULL != text) {
            fputs(text, stderr);
        }
        free(text);
    }
    tally = -1;
    free(path);
}
