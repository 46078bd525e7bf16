#include "core/context.h"

#include <errno.h>
#include <stdlib.h>

#include "core/engine.h"
#include "core/event.h"
#include "core/lock.h"
#include "core/memlock.h"
#include "core/pd.h"
#include "core/qp.h"
#include "core/reap.h"
#include "core/window.h"
#include "core/xrcd.h"

struct vs_qp *vs_local_qp[65536];
struct vs_qp *vs_local_qp_ref[65536];
struct vs_srq *vs_local_srq[16384];
struct vs_cq *vs_local_cq[32768];
pthread_mutex_t vs_objects_lock = PTHREAD_MUTEX_INITIALIZER;
struct vs_context *vs_contexts;
struct vs_cq *vs_channel_cqs;
struct vs_channel *vs_channels;
struct vs_api_ops vs_api_ops;
bool vs_exiting;

static pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t engine_lock = PTHREAD_MUTEX_INITIALIZER; /* while the first context starts the engine, and the last stops it */
static unsigned attach_count;

static void lock_before_fork(void)
{
	pthread_mutex_lock(&attach_lock);
	vs_window_before_fork();
}

static void unlock_in_parent(void)
{
	vs_window_after_fork(false);
	pthread_mutex_unlock(&attach_lock);
}

/* The child's own objects will have the same slots. */
static void forget_objects(void)
{
#define FORGET(array, table)                                                                                                       \
	for (uint32_t i = 0; i < vs_tables[table].count && vs_slot_at(table, i); i++)                                                  \
		if (array[i])                                                                                                              \
			array[i] = NULL
	FORGET(vs_local_qp, VS_QP);
	FORGET(vs_local_qp_ref, VS_QP_REF);
	FORGET(vs_local_srq, VS_SRQ);
	FORGET(vs_local_cq, VS_CQ);
#undef FORGET
	vs_own_regions_forget();
	vs_memlock_forget();
	vs_contexts = NULL;
	vs_channel_cqs = NULL;
	vs_channels = NULL;
}

/* The child holds no lock that shows it alive, so it is no process of the fabric: it starts anew if it ever asks for devices. */
static void forget_in_child(void)
{
	for (struct vs_context *c = vs_contexts; c; c = c->next)
		vs_api_ops.disown(c);
	if (vs_seg) {
		vs_engine_forget();
		forget_objects();
		vs_segment_forget();
		attach_count = 0;
	}
	vs_exiting = false;
	vs_window_after_fork(true);
	if (vs_api_ops.forked)
		vs_api_ops.forked();
	pthread_mutex_init(&attach_lock, NULL);
	pthread_mutex_init(&vs_objects_lock, NULL);
	pthread_mutex_init(&engine_lock, NULL);
}

static int set_hooks(void)
{
	static bool done;
	int err = 0;

	if (!done) {
		vs_process_retire_hook = vs_reap_retire;
		vs_process_free_hook = vs_reap_free;
		err = pthread_atfork(lock_before_fork, unlock_in_parent, forget_in_child);
		done = err == 0;
	}
	return err;
}

static int attach_member(void)
{
	int err = vs_segment_attach();

	if (err)
		return err;
	vs_event_reset();
	err = vs_fabric_join();
	if (err)
		vs_segment_detach();
	return err;
}

static int attach(int (*first)(void))
{
	int err;

	pthread_mutex_lock(&attach_lock);
	err = vs_exiting ? ENODEV : 0; /* there is nothing to come back to */
	if (!err && attach_count == 0) {
		vs_lock_setup();
		err = set_hooks();
		if (!err)
			err = first();
	}
	if (!err)
		attach_count++;
	pthread_mutex_unlock(&attach_lock);
	return err;
}

int vs_attach(void)
{
	return attach(attach_member);
}

int vs_attach_observer(void)
{
	return attach(vs_segment_attach_existing);
}

int vs_attach_keeper(void)
{
	return attach(vs_segment_attach);
}

void vs_detach(void)
{
	pthread_mutex_lock(&attach_lock);
	if (attach_count && --attach_count == 0)
		vs_segment_detach();
	pthread_mutex_unlock(&attach_lock);
}

/* Late verbs, of threads that still run and of destructors that run later, come no further than this. */
static void disown_contexts(void)
{
	pthread_mutex_lock(&vs_objects_lock);
	for (struct vs_context *c = vs_contexts; c; c = c->next)
		vs_api_ops.disown(c);
	pthread_mutex_unlock(&vs_objects_lock);
}

void vs_leave_at_exit(void)
{
	pthread_mutex_lock(&attach_lock);
	if (attach_count) {
		vs_store(&vs_exiting, true);
		disown_contexts();
		pthread_mutex_lock(&engine_lock);
		vs_engine_stop();
		pthread_mutex_unlock(&engine_lock);
		vs_segment_leave();
		attach_count = 0;
	}
	pthread_mutex_unlock(&attach_lock);
}

/* ---- contexts ---- */

static int link_context(struct vs_context *c)
{
	static uint32_t numbers; /* under engine_lock; 0 is none */
	int err = 0;

	pthread_mutex_lock(&engine_lock);
	if (!vs_contexts)
		err = vs_engine_start();
	if (!err) {
		c->number = ++numbers ? numbers : ++numbers;
		pthread_mutex_lock(&vs_objects_lock);
		c->next = vs_contexts;
		vs_contexts = c;
		pthread_mutex_unlock(&vs_objects_lock);
	}
	pthread_mutex_unlock(&engine_lock);
	return err;
}

static void unlink_context(struct vs_context *c)
{
	struct vs_context **at;

	pthread_mutex_lock(&engine_lock);
	pthread_mutex_lock(&vs_objects_lock);
	for (at = &vs_contexts; *at && *at != c; at = &(*at)->next) {
	}
	if (*at)
		*at = c->next;
	for (struct vs_channel **ch = &vs_channels; *ch;)
		if ((*ch)->ibv.context == &c->v.context)
			*ch = (*ch)->next;
		else
			ch = &(*ch)->next;
	pthread_mutex_unlock(&vs_objects_lock);
	if (!vs_contexts)
		vs_engine_stop();
	pthread_mutex_unlock(&engine_lock);
}

/* The first QP of a context from slot *i on; *i is then the next. Under the lock, since those of other contexts are freed as they please. */
static struct vs_qp *next_qp(const struct ibv_context *c, uint32_t *i)
{
	struct vs_qp *qp = NULL;

	pthread_mutex_lock(&vs_objects_lock);
	for (; !qp && *i < vs_tables[VS_QP].count; (*i)++)
		if (vs_local_qp[*i] && vs_local_qp[*i]->ibv.context == c)
			qp = vs_local_qp[*i];
	pthread_mutex_unlock(&vs_objects_lock);
	return qp;
}

/* What this process keeps of a context's objects is forgotten, not freed: the program may still hold pointers. */
static void forget_local(const struct ibv_context *c)
{
	struct vs_qp *qp;
	uint32_t next = 0;

	while ((qp = next_qp(c, &next)) != NULL)
		vs_qp_ops.forget(qp); /* without the lock, which the engine takes: a timer may wait for another process's */
	pthread_mutex_lock(&vs_objects_lock);
#define FORGET(array)                                                                                                              \
	for (size_t i = 0; i < sizeof(array) / sizeof(array[0]); i++)                                                                  \
		if (array[i] && array[i]->ibv.context == c)                                                                                \
			array[i] = NULL
	FORGET(vs_local_qp);
	FORGET(vs_local_qp_ref);
	FORGET(vs_local_srq);
	FORGET(vs_local_cq);
#undef FORGET
	for (struct vs_cq **at = &vs_channel_cqs; *at;)
		if ((*at)->ibv.context == c)
			*at = (*at)->next;
		else
			at = &(*at)->next;
	pthread_mutex_unlock(&vs_objects_lock);
}

/* As the kernel does at the last close of the device file. */
static void destroy_left(struct vs_context *c)
{
	struct vs_shared *shared;

	if (!vs_reap_context_retire(c->number))
		return;
	forget_local(&c->v.context);
	vs_xrcds_forget(&c->v.context);
	vs_own_regions_prune();
	shared = vs_window_withdraw_context(c->number);
	vs_reap_context_free(c->number);
	vs_window_unmap(shared);
}

struct vs_context *vs_context_open(struct vs_device *device)
{
	VS_MAY_REFUSE_POINTER(open_device);
	struct vs_context *c;
	int err = vs_attach();

	if (err) {
		errno = err;
		return NULL;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		err = ENOMEM;
		goto detach;
	}
	c->device = device;
	c->hca_index = device->hca;
	c->hca = vs_fabric_hca(device->hca);
	c->incarnation = c->hca ? vs_load(&c->hca->incarnation) : VS_UNPLUGGED;
	if (c->incarnation & VS_UNPLUGGED) {
		err = ENODEV;
		goto free_context;
	}
	c->lost_is_destroyed = getenv("RDMAV_ALLOW_DISASSOC_DESTROY") != NULL;
	err = vs_notifier_open(&c->async);
	if (err)
		goto free_context;
	err = link_context(c);
	if (err)
		goto close_notifier;
	if (!vs_lost(c))
		return c; /* from here on the engine sees if it is */
	err = ENODEV;
	unlink_context(c);

close_notifier:
	vs_notifier_close(&c->async);
free_context:
	free(c);
detach:
	vs_detach();
	errno = err;
	return NULL;
}

int vs_context_close(struct vs_context *c)
{
	destroy_left(c);
	unlink_context(c);
	vs_notifier_close(&c->async);
	free(c);
	vs_detach();
	return 0;
}

/* ---- completion channels ---- */

struct ibv_comp_channel *vs_create_comp_channel(struct ibv_context *context)
{
	VS_ASKS_KERNEL_POINTER(create_comp_channel, context);
	struct vs_channel *ch = calloc(1, sizeof(*ch));
	int err;

	if (!ch)
		return NULL;
	err = vs_notifier_open(&ch->notifier);
	if (err) {
		free(ch);
		errno = err;
		return NULL;
	}
	ch->ibv.context = context;
	ch->ibv.fd = ch->notifier.read_fd;
	pthread_mutex_lock(&vs_objects_lock);
	ch->next = vs_channels;
	vs_channels = ch;
	if (vs_context(context)->told)
		vs_notifier_end(&ch->notifier);
	pthread_mutex_unlock(&vs_objects_lock);
	return &ch->ibv;
}

static void unlink_channel(struct vs_channel *ch)
{
	struct vs_channel **at;

	pthread_mutex_lock(&vs_objects_lock);
	for (at = &vs_channels; *at && *at != ch; at = &(*at)->next) {
	}
	if (*at)
		*at = ch->next;
	pthread_mutex_unlock(&vs_objects_lock);
}

int vs_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct vs_channel *ch = vs_container(channel, struct vs_channel, ibv);
	int busy;

	pthread_mutex_lock(&channel->context->mutex);
	busy = channel->refcnt;
	pthread_mutex_unlock(&channel->context->mutex);
	if (busy)
		return EBUSY;
	unlink_channel(ch);
	vs_notifier_close(&ch->notifier);
	free(ch);
	return 0;
}
