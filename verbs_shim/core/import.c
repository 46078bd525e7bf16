#include "core/import.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

struct vs_device *vs_import_find(int cmd_fd)
{
	struct vs_device *device = NULL;
	struct stat wanted, st;

	if (fstat(cmd_fd, &wanted))
		return NULL;
	pthread_mutex_lock(&vs_objects_lock);
	for (struct vs_context *c = vs_contexts; c && !device; c = c->next)
		if (fstat(c->async.read_fd, &st) == 0 && st.st_dev == wanted.st_dev && st.st_ino == wanted.st_ino)
			device = c->device;
	pthread_mutex_unlock(&vs_objects_lock);
	return device;
}

/* This process's object with this handle, or NULL and errno; control lock held. */
static const void *own_slot(enum vs_table table, uint32_t handle)
{
	const struct vs_slot *slot = vs_slot_get(table, handle);

	if (slot && slot->owner == vs_me_id)
		return slot;
	errno = EINVAL;
	return NULL;
}

static void *lost(void)
{
	errno = EIO;
	return NULL;
}

struct ibv_pd *vs_import_pd(struct ibv_context *context, uint32_t handle)
{
	struct vs_pd *pd;
	const struct vs_pd_shm *shm;

	if (vs_lost(vs_context(context)))
		return lost();
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	vs_control_lock();
	shm = own_slot(VS_PD, handle);
	if (shm && shm->hca != vs_context(context)->hca_index) {
		errno = EINVAL;
		shm = NULL;
	}
	vs_control_unlock();
	if (!shm) {
		free(pd);
		return NULL;
	}
	pd->id = pd->ibv.handle = handle;
	pd->ibv.context = context;
	return &pd->ibv;
}

struct ibv_mr *vs_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct vs_mr *mr;
	const struct vs_mr_shm *shm;

	if (vs_lost(vs_context(pd->context)))
		return lost();
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	vs_control_lock();
	shm = own_slot(VS_MR, handle);
	if (shm && shm->pd != vs_pd(pd)->id) {
		errno = EINVAL;
		shm = NULL;
	}
	if (shm)
		mr->ibv.length = shm->length;
	vs_control_unlock();
	if (!shm) {
		free(mr);
		return NULL;
	}
	mr->id = mr->ibv.handle = mr->ibv.lkey = mr->ibv.rkey = handle;
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	return &mr->ibv;
}

void vs_unimport_pd(struct ibv_pd *pd)
{
	free(vs_pd(pd));
}

void vs_unimport_mr(struct ibv_mr *mr)
{
	free(vs_container(mr, struct vs_mr, ibv));
}
