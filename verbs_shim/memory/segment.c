#include "memory/segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "memory/pages.h"
#include "memory/process.h"

#ifdef __SANITIZE_THREAD__ /* gcc 12's does not know pthread_mutex_clocklock() */
#include <sanitizer/tsan_interface.h>
#define TSAN_PRE_LOCK(mutex) __tsan_mutex_pre_lock((mutex), 0)
#define TSAN_POST_LOCK(mutex) __tsan_mutex_post_lock((mutex), 0, 0)
#else
#define TSAN_PRE_LOCK(mutex) ((void)0)
#define TSAN_POST_LOCK(mutex) ((void)0)
#endif

struct vs_segment *vs_seg;
struct vs_places vs_places;

static int dir_fd = -1;
static int seg_fd = -1;
static int spare_fd = -1; /* for leaving when all others are in use */

#define LOOK_AGAIN_NS 100000000
#define SEGMENT_NAME "segment"
#define LOCK_NAME "lock"

/* This user's number outside, for whom `unshare -r` has made root: the same user's programs inside and outside share a fabric. */
static unsigned long outer_uid(void)
{
	unsigned long uid = geteuid(), inside, outside, count;
	FILE *map = fopen("/proc/self/uid_map", "re");

	while (map && fscanf(map, "%lu %lu %lu", &inside, &outside, &count) == 3)
		if (uid >= inside && uid - inside < count) {
			uid = outside + (uid - inside);
			break;
		}
	if (map)
		fclose(map);
	return uid;
}

/* Without slashes at its end: with one, a link in its place would be followed. */
static size_t path_length(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	return n;
}

static void fabric_path(char *buf, size_t size)
{
	const char *env = getenv("VERBS_SHIM_FABRIC");

	if (env && env[0])
		snprintf(buf, size, "%.*s", (int)path_length(env), env);
	else
		snprintf(buf, size, "/dev/shm/verbs_shim.%lu", outer_uid());
}

/* Only files of our own that nobody else can open are trusted. */
static int check_private(int fd, mode_t type)
{
	struct stat st;

	if (fstat(fd, &st))
		return errno;
	if ((st.st_mode & S_IFMT) != type || st.st_uid != geteuid() || (st.st_mode & 077))
		return EPERM;
	return 0;
}

int vs_segment_open(const char *name, int flags)
{
	return openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
}

void vs_segment_unlink(const char *name)
{
	unlinkat(dir_fd, name, 0);
}

static int open_dir(bool create)
{
	char path[4096];
	bool made;
	int err;

	fabric_path(path, sizeof(path));
	made = create && !mkdir(path, 0700);
	if (create && !made && errno != EEXIST)
		return errno;
	VS_POINT(dir_made);
	dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir_fd < 0) {
		err = create && errno == ENOENT ? ESTALE : errno; /* the last to leave removed it in between */
		if (made)
			rmdir(path);
		return err;
	}
	err = check_private(dir_fd, S_IFDIR);
	if (err) {
		close(dir_fd);
		dir_fd = -1;
	}
	return err;
}

static void close_dir(void)
{
	if (dir_fd >= 0)
		close(dir_fd);
	dir_fd = -1;
}

static void give_up_spare(void)
{
	if (spare_fd >= 0)
		close(spare_fd);
	spare_fd = -1;
}

bool vs_segment_dir_gone(void)
{
	struct stat st;

	return fstat(dir_fd, &st) || st.st_nlink == 0;
}

/* The directory's lock serialises making, joining, leaving and removing. The last to leave unlinks it, so a lock gained on an
 * unlinked file counts for nothing: ESTALE, start again. */
static int lock_dir(int *lock_fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct stat st;
	int fd = vs_segment_open(LOCK_NAME, O_RDWR | O_CREAT), err;

	if (fd < 0)
		return errno == ENOENT ? ESTALE : errno;
	VS_POINT(lock_made);
	err = check_private(fd, S_IFREG);
	while (!err && fcntl(fd, F_SETLKW, &lock))
		if (errno != EINTR)
			err = errno;
	if (!err && (fstat(fd, &st) || st.st_nlink == 0))
		err = ESTALE;
	if (err) {
		close(fd);
		return err;
	}
	VS_POINT(lock_taken);
	*lock_fd = fd;
	return 0;
}

/* ---- geometry ---- */

static uint64_t page_up(uint64_t n)
{
	return (n + VS_PAGE - 1) & ~(VS_PAGE - 1);
}

static uint64_t table_layout(uint64_t offset[VS_TABLES])
{
	uint64_t at = page_up(sizeof(struct vs_segment));

	for (int t = 0; t < VS_TABLES; t++) {
		offset[t] = at;
		at += page_up((uint64_t)vs_tables[t].count * vs_tables[t].size);
	}
	return at;
}

static int init_control(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attr;
	int err = pthread_mutexattr_init(&attr);

	if (err)
		return err;
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	err = pthread_mutex_init(mutex, &attr);
	pthread_mutexattr_destroy(&attr);
	return err;
}

static int init_segment(void)
{
	int err = vs_segment_reserve(0, page_up(sizeof(struct vs_segment)));

	if (err)
		return err;
	vs_seg->magic = VS_MAGIC;
	vs_seg->version = VS_LAYOUT_VERSION;
	vs_seg->size = VS_SEGMENT_SIZE;
	vs_seg->data_offset = table_layout(vs_seg->table_offset);
	vs_seg->data_pages = (uint32_t)((VS_SEGMENT_SIZE - vs_seg->data_offset) / VS_PAGE);
	for (int t = 0; t < VS_TABLES; t++) {
		vs_seg->slot_size[t] = vs_tables[t].size;
		vs_seg->slot_count[t] = vs_tables[t].count;
	}
	vs_seg->fabric_epoch = 1;
	err = init_control(&vs_seg->control);
	VS_POINT(segment_initialised);
	if (!err)
		vs_store(&vs_seg->ready, 1);
	return err;
}

/* Does the mapped file hold what this build understands? */
static bool understood(const struct vs_segment *seg)
{
	uint64_t offset[VS_TABLES], data = table_layout(offset);

	if (seg->magic != VS_MAGIC || seg->version != VS_LAYOUT_VERSION || !vs_load(&seg->ready) || seg->size != VS_SEGMENT_SIZE)
		return false;
	if (seg->data_offset != data || memcmp(offset, seg->table_offset, sizeof(offset)))
		return false;
	for (int t = 0; t < VS_TABLES; t++)
		if (seg->slot_size[t] != vs_tables[t].size || seg->slot_count[t] != vs_tables[t].count)
			return false;
	return true;
}

/* ---- making, finding, removing ---- */

static void unmap_segment(void)
{
	if (vs_seg)
		munmap(vs_seg, VS_SEGMENT_SIZE);
	vs_seg = NULL;
	if (seg_fd >= 0)
		close(seg_fd);
	seg_fd = -1;
}

static void find_places(void)
{
	uint64_t offset[VS_TABLES], data = table_layout(offset);

	for (int t = 0; t < VS_TABLES; t++)
		vs_places.table[t] = vs_at(offset[t]);
	vs_places.data = vs_at(data);
	vs_places.data_pages = (uint32_t)((VS_SEGMENT_SIZE - data) / VS_PAGE);
}

static int map_segment(void)
{
	void *p = mmap(NULL, VS_SEGMENT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, seg_fd, 0);

	if (p == MAP_FAILED)
		return errno;
	vs_seg = p;
	find_places();
	return 0;
}

/* Call visit with the name of each liveness file until it says true, and say so. Not by opendir(), which needs a descriptor: a process that
 * has none left must not leave files behind. */
static bool any_live_name(bool (*visit)(const char *name))
{
	char buf[4096] __attribute__((aligned(8)));
	ssize_t n;

	lseek(dir_fd, 0, SEEK_SET);
	while ((n = getdents64(dir_fd, buf, sizeof(buf))) > 0)
		for (char *at = buf; at < buf + n; at += ((struct dirent64 *)(void *)at)->d_reclen) {
			const struct dirent64 *e = (struct dirent64 *)(void *)at;

			if (!strncmp(e->d_name, "live.", 5) && visit(e->d_name))
				return true;
		}
	return false;
}

static bool remove_live_name(const char *name)
{
	vs_segment_unlink(name);
	VS_POINT(live_removed);
	return false;
}

static void remove_files(bool all)
{
	vs_segment_unlink(SEGMENT_NAME);
	VS_POINT(segment_unlinked);
	any_live_name(remove_live_name);
	if (all)
		vs_segment_unlink(LOCK_NAME);
	VS_POINT(lock_unlinked);
}

/* Growing a file beyond RLIMIT_FSIZE raises a signal, which ends programs. */
static bool over_file_limit(void)
{
	struct rlimit limit;

	return !getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < VS_SEGMENT_SIZE;
}

static int create_segment(void)
{
	int err;

	seg_fd = vs_segment_open(SEGMENT_NAME, O_RDWR | O_CREAT | O_EXCL);
	if (seg_fd < 0)
		return errno == ENOSPC ? ENOMEM : errno;
	VS_POINT(segment_created);
	err = over_file_limit() ? EFBIG : ftruncate(seg_fd, (off_t)VS_SEGMENT_SIZE) ? errno : map_segment();
	VS_POINT(segment_mapped);
	if (!err)
		err = init_segment();
	if (err) {
		unmap_segment();
		remove_files(false);
	}
	return err;
}

static int open_existing(void)
{
	struct stat st;
	int err;

	seg_fd = vs_segment_open(SEGMENT_NAME, O_RDWR);
	if (seg_fd < 0)
		return errno;
	err = check_private(seg_fd, S_IFREG);
	if (!err && fstat(seg_fd, &st))
		err = errno;
	if (!err && (uint64_t)st.st_size != VS_SEGMENT_SIZE)
		err = EPROTO;
	if (!err && st.st_blocks == 0)
		err = EPROTO; /* its maker died at once, or the file system lost it: do not touch the hole */
	if (!err)
		err = map_segment();
	if (!err && !understood(vs_seg))
		err = EPROTO;
	if (err)
		unmap_segment();
	return err;
}

/* Is any process of this fabric alive? Asked of the liveness files, whose meaning no layout changes. */
static bool live_name_is_locked(const char *name)
{
	return vs_process_alive((uint32_t)strtoul(name + 5, NULL, 16));
}

static bool any_live_file(void)
{
	return any_live_name(live_name_is_locked);
}

/* What processes that are all dead have left is nobody's, whatever it holds: it goes, and with it their topology, knobs and orders. */
static int open_or_create(bool create)
{
	int err = open_existing();

	if ((!err || err == EPROTO) && !any_live_file()) {
		unmap_segment();
		remove_files(false);
		err = ENOENT;
	}
	if (err == ENOENT && create)
		err = create_segment();
	return err;
}

static void remove_dir(void)
{
	char path[4096];

	fabric_path(path, sizeof(path));
	rmdir(path);
	VS_POINT(dir_removed);
}

static int attach_locked(bool create)
{
	int err = open_or_create(create);

	if (err)
		return err;
	vs_control_lock();
	vs_process_reap_dead();
	err = vs_process_join();
	vs_control_unlock();
	if (err)
		unmap_segment();
	else
		vs_process_bury();
	return err;
}

/* Nothing of a failed attempt stays, but what others planted there is not ours to remove. */
static void tidy_up(int err)
{
	if (err != EPERM && err != ELOOP && !any_live_file())
		remove_files(true);
	remove_dir();
}

static int attach(bool create)
{
	int err, lock_fd = -1;

	do {
		err = open_dir(create);
		if (err == ESTALE)
			continue;
		if (err)
			return err;
		err = lock_dir(&lock_fd);
		if (!err) {
			err = attach_locked(create);
			if (err)
				tidy_up(err);
			else
				spare_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
			close(lock_fd);
		} else if (err != EPERM) {
			remove_dir(); /* unless somebody has come in between */
		}
		if (err)
			close_dir();
	} while (err == ESTALE);
	return err;
}

int vs_segment_attach(void)
{
	return vs_seg ? 0 : attach(true);
}

int vs_segment_attach_existing(void)
{
	return vs_seg ? 0 : attach(false);
}

static void leave(void (*part)(void))
{
	int lock_fd = -1;
	bool last;

	give_up_spare();
	while (lock_dir(&lock_fd) == ESTALE && !vs_segment_dir_gone()) {
	}
	vs_control_lock();
	vs_process_reap_dead();
	vs_control_unlock();
	vs_process_leave(part);
	VS_POINT(segment_left);
	vs_control_lock();
	last = !vs_process_any();
	vs_control_unlock();
	if (last) {
		remove_files(true);
		remove_dir();
	}
	if (lock_fd >= 0)
		close(lock_fd);
}

/* ---- leaving under threads that still run ----
 * They may be anywhere, with pointers to slots and queues whose pages are somebody else's once this process has left. None is inside the
 * data path or has the control lock when memory of this process alone, with all slots and queues zero, takes the segment's place: all at
 * once, so that it is for them as if everybody else had gone. The one that leaves goes on through a second mapping until it has left. */

uint32_t vs_leaving;
enum { LEAVING = 1, LEFT = 2 };
static __thread bool leaver __attribute__((tls_model("initial-exec")));
static struct vs_segment *second; /* the leaver's view, through which it also takes the control lock; NULL: there was no room */

static void map_second(void)
{
	void *p = mmap(NULL, VS_SEGMENT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, seg_fd, 0);

	second = p == MAP_FAILED ? NULL : p;
}

/* Control lock held. Where there is no room for all that, the threads keep the segment. */
static void part(void)
{
	char *own = mmap(NULL, VS_SEGMENT_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct vs_proc_shm *me = (struct vs_proc_shm *)(void *)(own + ((char *)vs_me - (char *)vs_seg));

	if (own == MAP_FAILED || !second)
		return;
	memcpy(own, vs_seg, offsetof(struct vs_segment, control)); /* what the fabric is like */
	memcpy(me->hazard, vs_me->hazard, sizeof(me->hazard)); /* all taken, still */
	me->leaving = vs_me->leaving;
	/* Not by mremap(): programs that watch mappings put functions of four arguments in its place, which lose the address (UCX 1.13). */
	if (syscall(SYS_mremap, own, VS_SEGMENT_SIZE, VS_SEGMENT_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, vs_seg) == (long)vs_seg) {
		vs_seg = second;
		find_places();
		/* Our threads that wait for the control lock wait here from now on: there they would use up what wakes others. */
		syscall(SYS_futex, &second->control.__data.__lock, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	}
	VS_POINT(segment_parted);
}

void vs_segment_leave(void)
{
	struct vs_segment *threads = vs_seg;

	map_second();
	leaver = true;
	vs_store_full(&vs_leaving, LEAVING);
	vs_process_shut();
	leave(part);
	close(seg_fd);
	seg_fd = -1;
	if (vs_seg != threads) {
		vs_seg = threads; /* the other mapping stays: somebody may just be looking there */
		find_places();
		vs_process_open();
	}
	vs_store(&vs_leaving, LEFT);
	leaver = false;
}

void vs_segment_detach(void)
{
	if (!vs_seg)
		return;
	leave(NULL);
	vs_process_forget();
	unmap_segment();
	close_dir();
}

void vs_segment_forget(void)
{
	/* Stays mapped: objects the child inherited still point into it. */
	vs_process_forget();
	vs_seg = NULL;
	vs_leaving = 0;
	close(seg_fd);
	seg_fd = -1;
	give_up_spare();
	close_dir();
}

/* ---- space ---- */

int vs_segment_reserve(uint64_t offset, uint64_t bytes)
{
	while (fallocate(seg_fd, 0, (off_t)offset, (off_t)bytes))
		if (errno != EINTR)
			return errno == ENOSPC || errno == EDQUOT ? ENOMEM : errno;
	return 0;
}

void vs_segment_punch(uint64_t offset, uint64_t bytes)
{
	(void)fallocate(seg_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
}

/* ---- control lock ---- */

/* Objects are made under the lock alone: what is still being made now was its dead holder's, also where the slot is to be nobody's. */
static void free_half_made(void)
{
	struct vs_slot *slot;
	uint32_t index;

	for (int t = 0; t < VS_TABLES; t++)
		vs_for_each_slot ((enum vs_table)t, index, slot)
			if (vs_slot_state(slot) == VS_MAKING)
				vs_slot_free((enum vs_table)t, index);
}

/* A waiter that is killed between being woken and taking the lock takes the wake-up with it, when somebody else was there first: who unlocks
 * next sees no waiters. So nobody waits for a wake-up alone. */
static int lock_robust(pthread_mutex_t *mutex)
{
	struct timespec until;
	int err;

	TSAN_PRE_LOCK(mutex);
	do {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += LOOK_AGAIN_NS;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		err = pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until);
	} while (err == ETIMEDOUT);
	TSAN_POST_LOCK(mutex);
	return err;
}

static void lock_control(pthread_mutex_t *control)
{
	if (lock_robust(control) == EOWNERDEAD) {
		vs_pages_rebuild();
		free_half_made();
		VS_POINT(control_rebuilt);
		vs_add(&vs_seg->fabric_epoch, 1); /* it may have changed a path and not come to saying so */
		vs_process_reap_dead();
		pthread_mutex_consistent(control);
	}
}

/* The leaver sees its lock in one place all the time. */
static pthread_mutex_t *control_lock(void)
{
	return leaver && second ? &second->control : &vs_seg->control;
}

void vs_control_lock(void)
{
	pthread_mutex_t *control = control_lock();

	lock_control(control);
	if (!vs_load(&vs_leaving) || leaver)
		return;
	/* Not this one's any more. While somebody has it nobody parts with the segment, so it is given back to where it came from. */
	pthread_mutex_unlock(control);
	while (vs_load(&vs_leaving) != LEFT)
		sched_yield();
	lock_control(&vs_seg->control);
}

void vs_control_unlock(void)
{
	pthread_mutex_unlock(control_lock());
}
