/* XRC domains: one for each inode and HCA, shared by every process that opens the same file there. */
#ifndef VS_XRCD_H
#define VS_XRCD_H

#include "core/objects.h"

/* ibv_open_xrcd. NULL and errno: EOPNOTSUPP (unknown comp_mask), EINVAL (FD or OFLAGS missing; O_EXCL and the domain exists), EBADF,
 * EAGAIN (no domain and no O_CREAT), ENOMEM. fd -1 makes a private domain. The program may close fd at once. */
struct ibv_xrcd *vs_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);

/* 0, or EBUSY while this handle has XRC SRQs or TGT QP handles. */
int vs_close_xrcd(struct ibv_xrcd *xrcd);

/* The context is being closed: the files of its domains are let go; what is left of the handles is the program's. */
void vs_xrcds_forget(const struct ibv_context *context);

static inline struct vs_xrcd *vs_xrcd(struct ibv_xrcd *x)
{
	return vs_container(x, struct vs_xrcd, ibv);
}

#endif
