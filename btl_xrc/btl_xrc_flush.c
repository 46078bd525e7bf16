/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc.h"

#include "opal/runtime/opal_progress.h"

/*
 * Until every put, get and atomic of this module, to whatever endpoint, has completed. At least one round of progress:
 * callers wait in a loop around this for more than it counts.
 */
int mca_btl_xrc_flush(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint)
{
    mca_btl_xrc_module_t *module = (mca_btl_xrc_module_t *) btl;
    (void) endpoint;
    do {
        opal_progress();
    } while (module->rdma_left > 0);
    return OPAL_SUCCESS;
}
