#include "core/xrcd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/context.h"
#include "core/users.h"

static struct vs_xrcd *xrcds; /* of this process, under vs_objects_lock */

/* The kernel pins the inode while its domain is listed. Here each handle keeps a descriptor of the file, and the key also holds the
 * inode's birth, for the moment between the last handle's death and its reaping. */
static int read_key(int fd, struct vs_xrcd_shm *key)
{
	struct statx sx;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || flags & O_PATH)
		return EBADF; /* as fdget(), which takes no descriptor that only names a path */
	if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &sx))
		return errno;
	key->keyed = 1;
	key->dev = makedev(sx.stx_dev_major, sx.stx_dev_minor);
	key->ino = sx.stx_ino;
	if (sx.stx_mask & STATX_BTIME) {
		key->birth_sec = (uint64_t)sx.stx_btime.tv_sec;
		key->birth_nsec = sx.stx_btime.tv_nsec;
	}
	return 0;
}

static bool same_key(const struct vs_xrcd_shm *a, const struct vs_xrcd_shm *b)
{
	return a->keyed && b->keyed && a->hca == b->hca && a->incarnation == b->incarnation && a->dev == b->dev && a->ino == b->ino && a->birth_sec == b->birth_sec &&
	       a->birth_nsec == b->birth_nsec;
}

static struct vs_xrcd_shm *find(const struct vs_xrcd_shm *key, uint32_t *index)
{
	struct vs_xrcd_shm *xrcd;

	vs_for_each_live (VS_XRCD, *index, xrcd)
		if (same_key(xrcd, key))
			return xrcd;
	return NULL;
}

static int make(const struct vs_xrcd_shm *key, uint32_t *index)
{
	struct vs_xrcd_shm *xrcd;
	int err = vs_slot_alloc(VS_XRCD, 0, index);

	if (err)
		return err;
	xrcd = vs_slot_at(VS_XRCD, *index);
	xrcd->hca = key->hca;
	xrcd->incarnation = key->incarnation;
	xrcd->keyed = key->keyed;
	xrcd->dev = key->dev;
	xrcd->ino = key->ino;
	xrcd->birth_sec = key->birth_sec;
	xrcd->birth_nsec = key->birth_nsec;
	return 0;
}

/* The table of ib_uverbs_open_xrcd: O_CREAT is harmless where the domain exists, O_EXCL alone refuses it. */
static int find_or_make(const struct vs_xrcd_shm *key, int oflags, uint32_t *index, bool *made)
{
	bool exists = find(key, index) != NULL;

	*made = !exists;
	if (exists)
		return oflags & O_EXCL ? EINVAL : 0;
	if (key->keyed && !(oflags & O_CREAT))
		return EAGAIN;
	return make(key, index);
}

static int open_handle(struct vs_xrcd *x, const struct vs_xrcd_shm *key, int oflags)
{
	uint32_t index, ref;
	bool made;
	int err;

	vs_control_lock();
	vs_process_reap_dead(); /* a domain goes with its last handle, also when a process dies with it */
	err = find_or_make(key, oflags, &index, &made);
	if (err)
		goto unlock;
	err = vs_slot_alloc(VS_XRCD_REF, vs_me_id, &ref);
	if (err) {
		if (made)
			vs_slot_free(VS_XRCD, index);
		goto unlock;
	}
	x->id = vs_slot_id(VS_XRCD, index);
	x->ref_id = vs_slot_id(VS_XRCD_REF, ref);
	((struct vs_xrcd_ref_shm *)vs_slot_at(VS_XRCD_REF, ref))->xrcd = x->id;
	((struct vs_slot *)vs_slot_at(VS_XRCD_REF, ref))->context = vs_context(x->ibv.context)->number;
	vs_slot_publish(VS_XRCD_REF, ref); /* first: a domain without handles is an orphan to a reaper */
	VS_POINT(xrcd_handle);
	if (made)
		vs_slot_publish(VS_XRCD, index);
unlock:
	vs_control_unlock();
	return err;
}

struct ibv_xrcd *vs_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	VS_ASKS_KERNEL_POINTER(open_xrcd, context);
	struct vs_xrcd_shm key = { .hca = vs_context(context)->hca_index, .incarnation = vs_context(context)->incarnation };
	struct vs_xrcd *x;
	int err = 0;

	if (vs_hidden(VS_CAP_XRC) || attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED)
		err = EOPNOTSUPP;
	else if (!(attr->comp_mask & IBV_XRCD_INIT_ATTR_FD) || !(attr->comp_mask & IBV_XRCD_INIT_ATTR_OFLAGS))
		err = EINVAL;
	else if (attr->fd != -1)
		err = read_key(attr->fd, &key);
	if (err) {
		errno = err;
		return NULL;
	}
	x = calloc(1, sizeof(*x));
	if (!x)
		return NULL;
	x->ibv.context = context;
	x->fd = attr->fd == -1 ? -1 : fcntl(attr->fd, F_DUPFD_CLOEXEC, 0);
	err = attr->fd != -1 && x->fd < 0 ? errno : open_handle(x, &key, attr->oflags);
	if (err) {
		if (x->fd >= 0)
			close(x->fd);
		free(x);
		errno = err;
		return NULL;
	}
	pthread_mutex_lock(&vs_objects_lock);
	x->next = xrcds;
	xrcds = x;
	pthread_mutex_unlock(&vs_objects_lock);
	return &x->ibv;
}

static void unlink_xrcd(const struct vs_xrcd *x)
{
	struct vs_xrcd **at = &xrcds;

	pthread_mutex_lock(&vs_objects_lock);
	while (*at && *at != x)
		at = &(*at)->next;
	if (*at)
		*at = x->next;
	pthread_mutex_unlock(&vs_objects_lock);
}

void vs_xrcds_forget(const struct ibv_context *context)
{
	pthread_mutex_lock(&vs_objects_lock);
	for (struct vs_xrcd **at = &xrcds, *x; (x = *at) != NULL;) {
		if (x->ibv.context != context) {
			at = &x->next;
			continue;
		}
		*at = x->next;
		if (x->fd >= 0)
			close(x->fd);
		x->fd = -1;
	}
	pthread_mutex_unlock(&vs_objects_lock);
}

int vs_close_xrcd(struct ibv_xrcd *ibx)
{
	VS_DESTROYS(close_xrcd, ibx->context);
	struct vs_xrcd *x = vs_xrcd(ibx);
	uint32_t index = vs_slot_index(VS_XRCD, x->id), ref = vs_slot_index(VS_XRCD_REF, x->ref_id);
	bool last;

	vs_control_lock();
	if (vs_xrcd_ref_in_use(x->ref_id)) {
		vs_control_unlock();
		return EBUSY;
	}
	/* Nothing is reached through a domain's slots on the data path, only its id compared: no grace period. */
	vs_slot_free(VS_XRCD_REF, ref);
	last = !vs_xrcd_in_use(x->id);
	if (last)
		vs_slot_free(VS_XRCD, index);
	vs_control_unlock();
	unlink_xrcd(x);
	if (x->fd >= 0)
		close(x->fd);
	free(x);
	return 0;
}
