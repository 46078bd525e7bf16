/* Shared TGT QPs: the real QP is an object of the domain, a process holds handles on it. Creator and openers are equal; the QP goes
 * with its last handle, whether that is destroyed or its process dies (the kernel's rule since 4.12). */
#ifndef VS_TGT_H
#define VS_TGT_H

#include "core/objects.h"

struct ibv_qp *vs_create_tgt(struct ibv_context *context, struct ibv_qp_init_attr_ex *init);
int vs_destroy_tgt_handle(struct vs_qp *handle);

#endif
