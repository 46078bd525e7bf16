/* SPDX-License-Identifier: BSD-3-Clause */
/* What each process publishes about itself, and how it reads what others have published. */
#include "btl_xrc_board.h"
#include "btl_xrc_error.h"
#include "btl_xrc_ud.h"

static void describe(const mca_btl_xrc_module_t *module, struct xrc_modex_module *m)
{
    m->domain = xrc_board_uuid(module->device->board);
    m->addr = module->addr;
    m->ud = xrc_ud_address(module->ud);
    for (unsigned i = 0; i < mca_btl_xrc_component.recvq.nclasses; ++i) {
        m->srqn[i] = module->srq[i].srqn;
    }
}

/* Also with no modules at all: a peer then knows at once, and does not wait for us. */
int xrc_modex_publish(void)
{
    const struct xrc_recvq *q = &mca_btl_xrc_component.recvq;
    struct xrc_modex modex = {.nclasses = (uint8_t) (q->nclasses > 0 ? q->nclasses : 1),
                              .nmodules = (uint8_t) mca_btl_xrc_component.nmodules,
                              .class_size = {1}};
    for (unsigned i = 0; i < q->nclasses; ++i) {
        modex.class_size[i] = q->c[i].size;
    }
    for (unsigned i = 0; i < mca_btl_xrc_component.nmodules; ++i) {
        describe(mca_btl_xrc_component.modules[i], &modex.module[i]);
    }
    uint8_t buf[sizeof(struct xrc_modex) + 64];
    size_t size = xrc_modex_encode(&modex, buf, sizeof(buf));
    if (0 == size) {
        return OPAL_ERROR;
    }
    int rc;
    OPAL_MODEX_SEND(rc, XRC_PMIX_GLOBAL, &mca_btl_xrc_component.super.btl_version, buf, size);
    return rc;
}

int xrc_modex_fetch(const opal_proc_t *proc, struct xrc_modex *modex)
{
    void *buf = NULL;
    size_t size = 0;
    int rc;
    OPAL_MODEX_RECV(rc, &mca_btl_xrc_component.super.btl_version, &proc->proc_name, &buf, &size);
    if (OPAL_SUCCESS != rc || NULL == buf) {
        XRC_VERBOSE(5, "[%u,%u] has published nothing for xrc", (unsigned) proc->proc_name.jobid,
                    (unsigned) proc->proc_name.vpid);
        free(buf);
        return OPAL_ERR_NOT_FOUND;
    }
    enum xrc_modex_fault fault = xrc_modex_decode(buf, size, modex);
    free(buf);
    if (XRC_MODEX_OK != fault) {
        char *host = xrc_compat_hostname(proc);
        xrc_show_help("bad modex", host, (unsigned) proc->proc_name.vpid, xrc_modex_fault_text(fault));
        free(host);
        return OPAL_ERR_UNREACH;
    }
    return OPAL_SUCCESS;
}
