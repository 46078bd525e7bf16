/* The ibv_wr_* interface of a QP created with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS. */
#ifndef VS_WR_H
#define VS_WR_H

#include "core/objects.h"

/* Set every hook of the QP. */
void vs_wr_init(struct vs_qp *qp);

/* enum ibv_qp_create_send_ops_flags that a QP of this type can be created with. */
uint64_t vs_wr_operations(enum ibv_qp_type type);

#endif
