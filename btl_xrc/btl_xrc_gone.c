/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_gone.h"

#include "btl_xrc_path.h"
#include "btl_xrc_ud.h"

/* The module by whose port the TGT was asked for; NULL: nobody is to be told. */
static mca_btl_xrc_module_t *teller(mca_btl_xrc_module_t *home, const struct xrc_board_tgt *entry)
{
    return OPAL_PROC_MY_NAME.jobid == entry->key.name.job ? NULL
                                                          : xrc_path_module_at(home->device, (uint8_t) entry->key.port);
}

bool xrc_gone_can_tell(mca_btl_xrc_module_t *home, const struct xrc_board_tgt *entry)
{
    const mca_btl_xrc_module_t *by = teller(home, entry);
    return NULL == by || xrc_ud_has_room(by->ud);
}

void xrc_gone_tell(mca_btl_xrc_module_t *home, const struct xrc_board_tgt *entry)
{
    mca_btl_xrc_module_t *by = teller(home, entry);
    struct xrc_contact to = {entry->key.name, entry->ini_ud};
    struct xrc_msg msg = {.type = XRC_MSG_GONE,
                          .module = (uint8_t) entry->key.module,
                          .domain = xrc_board_uuid(home->device->board),
                          .generation = entry->generation,
                          .ini_qpn = entry->ini_qpn,
                          .tgt_qpn = entry->tgt_qpn,
                          .tgt_psn = entry->tgt_psn};
    if (NULL != by) {
        xrc_ud_send(by, &to, &entry->ini_addr, &msg);
    }
}

/* While it is being connected, the INI is the service thread's; then it is the MPI side's. */
void xrc_gone_told(mca_btl_xrc_module_t *module, const struct xrc_msg *msg)
{
    struct xrc_gone *gone = xrc_conn_service_gone(module, msg) ? NULL : (struct xrc_gone *) calloc(1, sizeof(*gone));
    if (NULL != gone) {
        gone->result.kind = XRC_RESULT_GONE;
        gone->domain = msg->domain;
        gone->generation = msg->generation;
        gone->ini_qpn = msg->ini_qpn;
        gone->tgt_qpn = msg->tgt_qpn;
        gone->tgt_psn = msg->tgt_psn;
        xrc_stack_push(&module->results, &gone->result.link);
    }
}
