/* Contexts, and this process's place in the fabric. */
#ifndef VS_CONTEXT_H
#define VS_CONTEXT_H

#include "core/objects.h"

/* Join the fabric, or stay joined once more; each success is paid back with vs_detach. 0 or an errno value. */
int vs_attach(void);
void vs_detach(void);

/* Join only to look, without a host; ENOENT where there is no fabric. Paid back with vs_detach. */
int vs_attach_observer(void);

/* Join without a host, making the fabric if there is none: it stays while the caller does. Paid back with vs_detach. */
int vs_attach_keeper(void);

/* At exit: leave, whatever is still open and whatever threads still run; what the process holds goes the way the kernel would send it. */
void vs_leave_at_exit(void);

/* Is the process doing, or past, that? */
extern bool vs_exiting;

/* Open an HCA of this host; v.context.ops and the verbs_context ops are the caller's to fill in. NULL and errno. */
struct vs_context *vs_context_open(struct vs_device *device);

/* Close, destroying what was made through it and not destroyed. */
int vs_context_close(struct vs_context *context);

/* What the api layer does; set once, before there are contexts. */
struct vs_api_ops {
	void (*disown)(struct vs_context *context); /* a forked child does not own it, nor a process that has left: its operations must refuse */
	void (*forked)(void);                       /* in the child, whether or not there are contexts */
};
extern struct vs_api_ops vs_api_ops;

/* Completion channels. */
struct ibv_comp_channel *vs_create_comp_channel(struct ibv_context *context);
int vs_destroy_comp_channel(struct ibv_comp_channel *channel); /* EBUSY while CQs use it */

#endif
