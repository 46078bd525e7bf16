/* Objects of this process by descriptor and handle, as ibv_import_* gives them: another context on the same HCA, other structures for
 * the same PD and MR. An import owns nothing: unimporting drops the structure, destroying the object through either one ends it for
 * both. Contexts of other processes cannot be imported: memory is reached through the process that registered it. */
#ifndef VS_IMPORT_H
#define VS_IMPORT_H

#include "core/objects.h"

/* The device of the context that cmd_fd, or what it was duplicated from, belongs to; NULL if none of this process's. */
struct vs_device *vs_import_find(int cmd_fd);

/* NULL and errno: EINVAL (no such handle on the HCA, or not this process's; an MR of another PD), ENOMEM. */
struct ibv_pd *vs_import_pd(struct ibv_context *context, uint32_t handle);
struct ibv_mr *vs_import_mr(struct ibv_pd *pd, uint32_t handle); /* its addr is NULL */

void vs_unimport_pd(struct ibv_pd *pd);
void vs_unimport_mr(struct ibv_mr *mr);

#endif
