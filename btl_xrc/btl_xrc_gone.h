/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs that end while others go on that were connected with them. After MPI_Comm_disconnect nobody removes the peers, so
 * the INIs towards them would stay until this process ends. Who lets go of the last handle of a TGT because it leaves,
 * tells its initiator (GONE), which gives the INI back.
 *
 * Only initiators of other jobs are told: those of the same job end together with it. A message that gets lost leaves an
 * INI that does no harm.
 */
#ifndef BTL_XRC_GONE_H
#define BTL_XRC_GONE_H

#include "btl_xrc_board.h"
#include "btl_xrc_conn.h"

/** What the service thread hands to the MPI side: nobody holds the TGT of one of our INIs any more. */
struct xrc_gone {
    struct xrc_result result;
    struct xrc_uuid domain;
    uint32_t generation;
    uint32_t ini_qpn;
    uint32_t tgt_qpn;
    uint32_t tgt_psn;
};

/* ---- service thread ---- */

/** Is there room for what xrc_gone_tell() would send? */
bool xrc_gone_can_tell(mca_btl_xrc_module_t *home, const struct xrc_board_tgt *entry);

/** The TGT that @a entry was about is gone: tell its initiator. */
void xrc_gone_tell(mca_btl_xrc_module_t *home, const struct xrc_board_tgt *entry);

/** GONE has come. */
void xrc_gone_told(mca_btl_xrc_module_t *module, const struct xrc_msg *msg);

#endif
