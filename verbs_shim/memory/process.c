#include "memory/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_AROUND_NS 100000000u

struct vs_proc_shm *vs_me;
uint32_t vs_me_id;
void (*vs_process_retire_hook)(uint32_t proc_id);
void (*vs_process_free_hook)(uint32_t proc_id);

static int live_fd = -1; /* holds the lock that shows this process is alive; nobody in this process may open the file again */

static void live_name(uint32_t proc_id, char *buf, size_t size)
{
	snprintf(buf, size, "live.%08x", proc_id);
}

uint64_t vs_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* A POSIX lock, not a pid: released by the kernel at death, seen from any pid namespace, never reused. */
static int live_lock(uint32_t proc_id)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char name[32];
	int fd;

	live_name(proc_id, name, sizeof(name));
	fd = vs_segment_open(name, O_RDWR | O_CREAT);
	if (fd < 0)
		return errno;
	VS_POINT(live_made);
	if (fcntl(fd, F_SETLK, &lock)) {
		int err = errno;

		close(fd);
		return err;
	}
	live_fd = fd;
	return 0;
}

bool vs_process_alive(uint32_t proc_id)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char name[32];
	int fd, rc;

	if (proc_id == vs_me_id)
		return true;
	live_name(proc_id, name, sizeof(name));
	fd = vs_segment_open(name, O_RDONLY);
	if (fd < 0)
		return errno != ENOENT || vs_segment_dir_gone(); /* out of descriptors says nothing about the peer */
	rc = fcntl(fd, F_OFD_GETLK, &lock);
	close(fd);
	return rc != 0 || lock.l_type != F_UNLCK;
}

static uint64_t pid_namespace(void)
{
	struct stat st;

	return stat("/proc/thread-self/ns/pid", &st) ? 0 : st.st_ino;
}

static void read_comm(char *comm, size_t size)
{
	FILE *f = fopen("/proc/self/comm", "re");

	if (!f)
		return;
	if (fgets(comm, (int)size, f))
		comm[strcspn(comm, "\n")] = '\0';
	fclose(f);
}

int vs_process_join(void)
{
	struct vs_proc_shm *proc;
	uint32_t index;
	int err = vs_slot_alloc(VS_PROC, 0, &index);

	if (err)
		return err;
	proc = vs_slot_at(VS_PROC, index);
	err = live_lock(vs_slot_id(VS_PROC, index));
	if (err) {
		vs_slot_free(VS_PROC, index);
		return err;
	}
	VS_POINT(process_locked);
	proc->pid = getpid();
	proc->thread = (int32_t)syscall(SYS_gettid); /* until there is an engine */
	proc->host = VS_NO_HOST; /* until it joins one; tools never do */
	proc->pid_ns = pid_namespace();
	read_comm(proc->comm, sizeof(proc->comm));
	proc->events.entries = VS_EVENTS;
	for (uint32_t i = 0; i < VS_EVENTS; i++)
		proc->event[i].word = (uint64_t)i << 16; /* EMPTY at position i, see ring.h */
	proc->s.owner = vs_slot_id(VS_PROC, index);
	vs_me_id = proc->s.owner;
	vs_me = proc;
	vs_slot_publish(VS_PROC, index);
	VS_POINT(process_published);
	return 0;
}

/* Marked last, and safe to do again: whoever began may have died half-way. */
static void retire(uint32_t index)
{
	if (vs_process_retire_hook)
		vs_process_retire_hook(vs_slot_id(VS_PROC, index));
	VS_POINT(process_retired);
	vs_slot_retire(VS_PROC, index);
}

void vs_process_reap_dead(void)
{
	struct vs_proc_shm *proc;
	uint32_t index, id;
	char name[32];

	vs_for_each_slot (VS_PROC, index, proc) {
		id = vs_slot_id(VS_PROC, index);
		if (vs_slot_state(&proc->s) == VS_DYING || vs_process_alive(id))
			continue;
		retire(index);
		live_name(id, name, sizeof(name));
		vs_segment_unlink(name);
		VS_POINT(process_unlinked);
	}
}

static uint64_t next_look; /* atomic */

bool vs_process_look_due(uint64_t now)
{
	return now >= vs_load_relaxed(&next_look);
}

void vs_process_look_around(void)
{
	uint64_t due = vs_load_relaxed(&next_look), now = vs_now();

	if (now < due || !vs_cas(&next_look, due, now + LOOK_AROUND_NS))
		return;
	vs_control_lock();
	vs_process_reap_dead();
	vs_control_unlock();
}

static bool any_dead(void)
{
	struct vs_proc_shm *proc;
	uint32_t index;

	vs_for_each_live (VS_PROC, index, proc)
		if (!vs_process_alive(vs_slot_id(VS_PROC, index)))
			return true;
	return false;
}

uint64_t vs_process_watch(uint64_t now)
{
	uint64_t last = vs_load(&vs_seg->looked);

	if (last <= now && now - last < LOOK_AROUND_NS)
		return last + LOOK_AROUND_NS;
	if (vs_cas(&vs_seg->looked, last, now) && any_dead()) {
		vs_control_lock();
		vs_process_reap_dead();
		vs_control_unlock();
	}
	return now + LOOK_AROUND_NS;
}

#define MANY 64u

/* Returns how many were dead: not more than fit. */
static uint32_t bury_some(void)
{
	uint32_t dead[MANY], n = 0, index;
	struct vs_proc_shm *proc;

	vs_control_lock();
	vs_for_each_slot (VS_PROC, index, proc)
		if (vs_slot_state(&proc->s) == VS_DYING && n < MANY)
			dead[n++] = vs_slot_id(VS_PROC, index);
	vs_control_unlock();
	if (n == 0)
		return 0;
	vs_quiesce();
	vs_control_lock();
	for (uint32_t i = 0; i < n; i++) {
		index = vs_slot_index(VS_PROC, dead[i]);
		if (vs_slot_id(VS_PROC, index) != dead[i] || vs_slot_state(vs_slot_at(VS_PROC, index)) != VS_DYING)
			continue; /* another was faster */
		if (vs_process_free_hook)
			vs_process_free_hook(dead[i]);
		VS_POINT(process_buried);
		vs_slot_free(VS_PROC, index);
	}
	vs_control_unlock();
	return n;
}

void vs_process_bury(void)
{
	while (bury_some() == MANY) {
	}
}

void vs_process_leave(void (*part)(void))
{
	char name[32];

	vs_control_lock();
	retire(vs_slot_index(VS_PROC, vs_me_id));
	if (part)
		part();
	vs_control_unlock();
	vs_process_bury();
	live_name(vs_me_id, name, sizeof(name));
	vs_segment_unlink(name);
	VS_POINT(process_left);
	if (live_fd >= 0)
		close(live_fd);
	live_fd = -1;
}

void vs_process_forget(void)
{
	if (live_fd >= 0)
		close(live_fd); /* in a forked child, which has no lock on it */
	live_fd = -1;
	vs_me = NULL;
	vs_me_id = 0;
}

bool vs_process_any(void)
{
	struct vs_proc_shm *proc;
	uint32_t index;

	vs_for_each_slot (VS_PROC, index, proc)
		return true;
	return false;
}

/* ---- grace ---- */

uint64_t vs_patience_ns = UINT64_C(10000000000);

bool vs_patience_ends(struct vs_patience *p)
{
	if (++p->looks % 64 != 0)
		return p->ended;
	if (p->until == 0)
		p->until = vs_now() + vs_patience_ns * (p->rounds ? p->rounds : 1);
	p->ended = vs_now() >= p->until;
	return p->ended;
}

/* Never backwards, whoever else is about it: quiesce looks no further. */
static void raise_hazards(uint32_t n)
{
	uint32_t seen;

	do {
		seen = vs_load_relaxed(&vs_me->hazards);
	} while (seen < n && !vs_cas(&vs_me->hazards, seen, n));
}

struct vs_hazard *vs_enter(void)
{
	static __thread uint32_t mine __attribute__((tls_model("initial-exec")));
	struct vs_patience patience = { 0 };
	uint32_t i = mine, spins = 0;

	for (;;) {
		struct vs_hazard *h = &vs_me->hazard[i];
		uint64_t stamp = vs_load_relaxed(&h->pad[0]) + 1;

		if (i >= vs_load_relaxed(&vs_me->hazards))
			raise_hazards(i + 1);
		if (vs_load_relaxed(&h->word) == 0 && vs_cas(&h->word, 0, stamp)) {
			vs_fence_behind();
			vs_store_relaxed(&h->pad[0], stamp);
			mine = i;
			return h;
		}
		if (++spins % VS_HAZARDS == 0) {
			sched_yield();
			if (vs_patience_ends(&patience))
				vs_store(&h->word, 0);
		}
		i = (i + 1) % VS_HAZARDS;
	}
}

static void back_off(unsigned tries)
{
	const struct timespec nap = { .tv_nsec = 50000 };

	if (tries < 100)
		vs_cpu_relax();
	else if (tries < 200)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

static void wait_out(const struct vs_hazard *h, uint32_t proc_id, struct vs_patience *patience)
{
	uint64_t seen = vs_load(&h->word);

	for (unsigned i = 0; seen != 0 && vs_load(&h->word) == seen && !vs_patience_ends(patience); i++) {
		if (i >= 200 && i % 20 == 0 && !vs_process_alive(proc_id))
			return;
		back_off(i);
	}
}

static void quiesce(const struct vs_proc_shm *proc, uint32_t id, struct vs_patience *patience)
{
	uint32_t n = vs_load(&proc->leaving) == VS_SHUT ? 0 : vs_load(&proc->hazards);

	for (uint32_t i = 0; i < n && i < VS_HAZARDS; i++)
		wait_out(&proc->hazard[i], id, patience);
}

/* Its own threads first, for which there is all the patience: they reach its own memory. */
void vs_quiesce(void)
{
	struct vs_patience own = { 0 }, patience = { 0 };
	struct vs_proc_shm *proc;
	uint32_t index;

	vs_fence();
	if (vs_me)
		quiesce(vs_me, vs_me_id, &own);
	vs_for_each_slot (VS_PROC, index, proc)
		if (proc != vs_me)
			quiesce(proc, vs_slot_id(VS_PROC, index), &patience);
}

/* Whoever comes in finds every place taken. */
void vs_process_shut(void)
{
	struct vs_patience patience = { 0 };
	unsigned tries = 0;

	vs_store_full(&vs_me->leaving, VS_SERVES_NOBODY);
	for (uint32_t i = 0; i < VS_HAZARDS; i++)
		while (!vs_cas(&vs_me->hazard[i].word, 0, 1) && !vs_patience_ends(&patience))
			back_off(tries++);
	vs_store_full(&vs_me->leaving, VS_SHUT);
	VS_POINT(process_shut);
}

void vs_process_open(void)
{
	vs_store(&vs_me->leaving, VS_STAYS);
	for (uint32_t i = 0; i < VS_HAZARDS; i++)
		vs_store(&vs_me->hazard[i].word, 0);
}

void vs_process_wake(struct vs_proc_shm *proc)
{
	vs_add(&proc->wake, 1);
	syscall(SYS_futex, &proc->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
