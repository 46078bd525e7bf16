#include "api/api.h"

#include <errno.h>
#include <unistd.h>

#include "core/context.h"
#include "core/cq.h"
#include "core/device.h"
#include "core/pd.h"
#include "core/srq.h"
#include "core/xrcd.h"

/* What verbs.h calls through the context. Operations that are not here are NULL or refuse with EOPNOTSUPP, as verbs.h does for a
 * missing one. */
static const struct ibv_context_ops context_ops = {
	.poll_cq = vs_poll_cq,
	.req_notify_cq = vs_req_notify_cq,
	.post_srq_recv = vs_post_srq_recv,
	.post_send = vs_post_send,
	.post_recv = vs_post_recv,
};

static void fill_extended(struct verbs_context *v)
{
	v->query_port = vs_query_port;
	v->query_device_ex = vs_query_device_ex;
	v->create_cq_ex = vs_create_cq_ex;
	v->create_qp_ex = vs_create_qp_ex;
	v->open_qp = vs_open_qp;
	v->create_srq_ex = vs_create_srq_ex;
	v->get_srq_num = vs_get_srq_num;
	v->open_xrcd = vs_open_xrcd;
	v->close_xrcd = vs_close_xrcd;
	v->sz = sizeof(*v);
}

/* ---- in a forked child: the device is the parent's, as /dev/infiniband/uverbs* would be. Every verb says EIO. So it does at exit, once the
 * process has left the fabric; but a thread that polls until the very end finds nothing, and no error ---- */

static int no_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	(void)cq, (void)n, (void)wc;
	return vs_load(&vs_exiting) ? 0 : -EIO;
}

static int no_notify(struct ibv_cq *cq, int solicited_only)
{
	(void)cq, (void)solicited_only;
	return EIO;
}

static int no_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)srq;
	*bad = wr;
	return EIO;
}

static int no_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	*bad = wr;
	return EIO;
}

static int no_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp;
	*bad = wr;
	return EIO;
}

static int no_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	(void)c, (void)port, (void)attr, (void)size;
	return EIO;
}

static int no_query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in, struct ibv_device_attr_ex *attr, size_t size)
{
	(void)c, (void)in, (void)attr, (void)size;
	return EIO;
}

static int no_srq_num(struct ibv_srq *srq, uint32_t *num)
{
	(void)srq, (void)num;
	return EIO;
}

static int no_close_xrcd(struct ibv_xrcd *x)
{
	(void)x;
	return EIO;
}

/* For verbs that make something: they differ only in what they do not return. */
#define NO_MAKE(name, type, attr_type)                                                                                             \
	static type *name(struct ibv_context *c, attr_type *attr)                                                                      \
	{                                                                                                                              \
		(void)c, (void)attr;                                                                                                       \
		errno = EIO;                                                                                                               \
		return NULL;                                                                                                               \
	}

NO_MAKE(no_create_cq_ex, struct ibv_cq_ex, struct ibv_cq_init_attr_ex)
NO_MAKE(no_create_qp_ex, struct ibv_qp, struct ibv_qp_init_attr_ex)
NO_MAKE(no_open_qp, struct ibv_qp, struct ibv_qp_open_attr)
NO_MAKE(no_create_srq_ex, struct ibv_srq, struct ibv_srq_init_attr_ex)
NO_MAKE(no_open_xrcd, struct ibv_xrcd, struct ibv_xrcd_init_attr)

void vs_disown(struct vs_context *c)
{
	struct verbs_context *v = &c->v;
	struct ibv_context_ops *ops = &v->context.ops;

	/* One by one: threads may be calling through them. */
	vs_store(&ops->poll_cq, no_poll);
	vs_store(&ops->req_notify_cq, no_notify);
	vs_store(&ops->post_srq_recv, no_srq_recv);
	vs_store(&ops->post_send, no_send);
	vs_store(&ops->post_recv, no_recv);
	v->query_port = no_query_port;
	v->query_device_ex = no_query_device_ex;
	v->create_cq_ex = no_create_cq_ex;
	v->create_qp_ex = no_create_qp_ex;
	v->open_qp = no_open_qp;
	v->create_srq_ex = no_create_srq_ex;
	v->get_srq_num = no_srq_num;
	v->open_xrcd = no_open_xrcd;
	v->close_xrcd = no_close_xrcd;
}

enum vs_whose vs_ours(const struct ibv_context *context)
{
	if (context->ops.poll_cq == vs_poll_cq)
		return VS_OURS;
	return context->ops.poll_cq == no_poll ? VS_INHERITED : VS_FOREIGN;
}

struct ibv_context *vs_open_device(struct ibv_device *device)
{
	struct vs_context *c = vs_context_open(vs_container(device, struct vs_device, ibv));

	if (!c)
		return NULL;
	fill_extended(&c->v);
	c->v.context.device = device;
	c->v.context.ops = context_ops;
	c->v.context.cmd_fd = c->async.read_fd; /* a descriptor of its own is all that ibv_import_device needs */
	c->v.context.async_fd = c->async.read_fd;
	c->v.context.num_comp_vectors = 1;
	c->v.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&c->v.context.mutex, NULL);
	return &c->v.context;
}

struct ibv_context *vs_import_device(struct ibv_device *device, int cmd_fd)
{
	struct ibv_context *context = vs_open_device(device);

	if (context)
		context->cmd_fd = cmd_fd;
	return context;
}

int vs_close_device(struct ibv_context *context)
{
	pthread_mutex_destroy(&context->mutex);
	if (context->cmd_fd != context->async_fd)
		close(context->cmd_fd);
	return vs_context_close(vs_context(context));
}
