#include "hca/hca.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/engine.h"
#include "core/pd.h"
#include "core/window.h"

/* ---- is the peer alive? ----
 * A dead process's pid may belong to another one soon; so before bytes are moved by pid, and now and then anyway, its lock is looked
 * at. */

#define FRESH_NS 10000000u

static uint64_t last_seen[1024]; /* by process slot: coarse clock, with the generation in the low bits */

static uint64_t coarse_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t seen_stamp(uint64_t now, uint32_t proc_id)
{
	return (now & ~UINT64_C(0xffff)) | proc_id >> vs_tables[VS_PROC].index_bits;
}

bool vs_peer_fresh(uint32_t proc_id)
{
	uint64_t now = coarse_now(), seen = vs_load_relaxed(&last_seen[vs_slot_index(VS_PROC, proc_id) & 1023]);

	if (vs_process_look_due(now))
		return false;
	return proc_id == vs_me_id || ((seen & 0xffff) == proc_id >> vs_tables[VS_PROC].index_bits && now - seen < FRESH_NS);
}

void vs_peer_look(uint32_t proc_id)
{
	if (vs_process_alive(proc_id)) {
		vs_store_relaxed(&last_seen[vs_slot_index(VS_PROC, proc_id) & 1023], seen_stamp(coarse_now(), proc_id));
		vs_process_look_around(); /* a TGT QP lives by other processes than the one it delivers to */
		return;
	}
	vs_control_lock();
	vs_process_reap_dead();
	vs_control_unlock();
}

/* ---- between ranges of this process ---- */

/* The last bytes become visible last, as from a chip: programs poll them. */
static void copy_in_order(char *dst, const char *src, uint64_t n)
{
	uint64_t tail = n >= 8 ? 8 : n, head = n - tail, word;

	if (head) {
		memcpy(dst, src, head);
		dst += head;
		src += head;
	}
	if (tail == 8 && (uintptr_t)dst % 8 == 0) {
		memcpy(&word, src, 8);
		vs_store((uint64_t *)(void *)dst, word);
		return;
	}
	for (uint64_t i = 0; i < tail; i++)
		vs_store(&dst[i], src[i]);
}

uint64_t vs_copy_ranges(const struct iovec *dst, unsigned num_dst, const struct iovec *src, unsigned num_src, uint64_t length)
{
	unsigned d = 0, s = 0;
	uint64_t d_off = 0, s_off = 0, done = 0;

	if (num_dst && num_src && dst->iov_len >= length && src->iov_len >= length) { /* as nearly always */
		copy_in_order(dst->iov_base, src->iov_base, length);
		return length;
	}
	while (done < length && d < num_dst && s < num_src) {
		uint64_t n = dst[d].iov_len - d_off;

		if (n > src[s].iov_len - s_off)
			n = src[s].iov_len - s_off;
		if (n > length - done)
			n = length - done;
		copy_in_order((char *)dst[d].iov_base + d_off, (const char *)src[s].iov_base + s_off, n);
		done += n;
		d_off += n;
		s_off += n;
		if (d_off == dst[d].iov_len) {
			d++;
			d_off = 0;
		}
		if (s_off == src[s].iov_len) {
			s++;
			s_off = 0;
		}
	}
	return done;
}

/* ---- by the kernel: process_vm_readv and process_vm_writev ---- */

/* Drop n bytes from the front of a list. */
static void advance(struct iovec **iov, unsigned *count, uint64_t n)
{
	while (*count && n >= (*iov)->iov_len) {
		n -= (*iov)->iov_len;
		(*iov)++;
		(*count)--;
	}
	if (*count) {
		(*iov)->iov_base = (char *)(*iov)->iov_base + n;
		(*iov)->iov_len -= n;
	}
}

/* Cut a list to length bytes. */
static unsigned cut(struct iovec *out, const struct iovec *in, unsigned n, uint64_t length)
{
	unsigned i;

	for (i = 0; i < n && length > 0; i++) {
		out[i] = in[i];
		if (out[i].iov_len > length)
			out[i].iov_len = length;
		length -= out[i].iov_len;
	}
	return i;
}

static int by_kernel(pid_t pid, bool write, const struct iovec *remote, unsigned num_remote, const struct iovec *local,
		     unsigned num_local, uint64_t length)
{
	struct iovec r[VS_MAX_SGE], l[VS_MAX_SGE + 1], *rp = r, *lp = l; /* a datagram's GRH is one more */
	unsigned nr = cut(r, remote, num_remote, length), nl = cut(l, local, num_local, length);

	while (length > 0) {
		ssize_t n = write ? process_vm_writev(pid, lp, nl, rp, nr, 0) : process_vm_readv(pid, lp, nl, rp, nr, 0);

		if (n <= 0)
			return n < 0 ? errno : EFAULT;
		length -= (uint64_t)n;
		advance(&rp, &nr, (uint64_t)n);
		advance(&lp, &nl, (uint64_t)n);
	}
	return 0;
}

/* ---- by the target's engine, where the kernel will not let us ---- */

/* An engine that waits for another must not keep that one waiting for itself. */
void vs_place_serve_meanwhile(void)
{
	if (vs_engine_is_me())
		vs_place_serve();
}

static void wait_word(uint32_t *word, uint32_t seen)
{
	const struct timespec ts = { .tv_nsec = vs_engine_is_me() ? 100000 : 10000000 };

	vs_place_serve_meanwhile();
	syscall(SYS_futex, word, FUTEX_WAIT, seen, &ts, NULL, 0);
}

/* Dead, or on its way out: its engine has ended, and it waits until nobody is inside the data path any more. */
static bool gone(uint32_t proc_id)
{
	const struct vs_proc_shm *proc = vs_process(proc_id);

	return !proc || vs_load(&proc->leaving) || !vs_process_alive(proc_id);
}

static int claim_copier(struct vs_proc_shm *proc, uint32_t proc_id)
{
	struct vs_patience patience = { 0 };
	uint32_t state;

	for (unsigned spins = 1; !vs_cas(&proc->copy.client, 0, vs_me_id); spins++) {
		uint32_t holder = vs_load(&proc->copy.client);

		if (spins % 256 == 0 && gone(proc_id))
			return ESRCH;
		if (spins % 256 == 0 && holder && !vs_process_alive(holder))
			vs_cas(&proc->copy.client, holder, 0);
		if (vs_patience_ends(&patience))
			return ESRCH;
		vs_place_serve_meanwhile();
		sched_yield();
	}
	while ((state = vs_load(&proc->copy.state)) == VS_COPY_ASKED) { /* by one that died since */
		if (gone(proc_id))
			return ESRCH;
		wait_word(&proc->copy.state, state);
	}
	return 0;
}

static void ask_copier(struct vs_proc_shm *proc, const struct vs_ask *ask)
{
	proc->copy.ask = *ask;
	vs_store_full(&proc->copy.state, VS_COPY_ASKED);
}

static int await_copier(struct vs_proc_shm *proc, uint32_t proc_id)
{
	vs_process_wake(proc);
	while (vs_load(&proc->copy.state) == VS_COPY_ASKED) {
		wait_word(&proc->copy.state, VS_COPY_ASKED);
		if (vs_load(&proc->copy.state) == VS_COPY_ASKED && gone(proc_id))
			return ESRCH;
	}
	return (int)vs_load(&proc->copy.result);
}

static void release_copier(struct vs_proc_shm *proc)
{
	vs_store(&proc->copy.state, VS_COPY_IDLE);
	vs_store(&proc->copy.client, 0);
}

/* One remote range, through the stage. *local moves on. */
static int by_engine_range(struct vs_proc_shm *proc, uint32_t proc_id, bool write, const struct vs_sge *range, uint64_t length,
			   struct iovec **local, unsigned *num_local)
{
	for (uint64_t at = 0; at < length;) {
		uint32_t n = length - at > VS_COPY_STAGE ? VS_COPY_STAGE : (uint32_t)(length - at);
		struct vs_ask ask = { .what = write ? VS_ASK_WRITE : VS_ASK_READ, .key = range->lkey, .addr = range->addr + at, .length = n };
		struct iovec stage = { proc->stage, n };
		int err;

		if (write)
			vs_copy_ranges(&stage, 1, *local, *num_local, n);
		VS_POINT(copy_claimed);
		ask_copier(proc, &ask);
		VS_POINT(copy_asked);
		err = await_copier(proc, proc_id);
		if (err)
			return err;
		if (!write)
			vs_copy_ranges(*local, *num_local, &stage, 1, n);
		advance(local, num_local, n);
		at += n;
	}
	return 0;
}

static int by_engine(struct vs_proc_shm *proc, uint32_t proc_id, bool write, const struct vs_sge *remote, unsigned num_remote,
		     const struct iovec *local, unsigned num_local, uint64_t length)
{
	struct iovec l[VS_MAX_SGE + 1], *lp = l;
	unsigned nl = cut(l, local, num_local, length);
	int err = claim_copier(proc, proc_id);

	for (unsigned i = 0; !err && i < num_remote && length > 0; i++) {
		uint64_t n = remote[i].length < length ? remote[i].length : length;

		err = by_engine_range(proc, proc_id, write, &remote[i], n, &lp, &nl);
		length -= n;
	}
	if (err != ESRCH)
		release_copier(proc);
	return err;
}

int vs_place_change_there(uint32_t proc_id, const struct vs_sge *remote, const struct vs_atomic *op, uint64_t *old)
{
	struct vs_proc_shm *proc = vs_process(proc_id);
	struct vs_ask ask = { .what = op->add ? VS_ASK_ADD : VS_ASK_SWAP,
			      .key = remote->lkey,
			      .addr = remote->addr,
			      .compare_add = op->compare_add,
			      .swap = op->swap };
	int err = proc ? claim_copier(proc, proc_id) : ESRCH;

	if (err)
		return err;
	VS_POINT(glob_claimed);
	ask_copier(proc, &ask);
	VS_POINT(glob_asked);
	err = await_copier(proc, proc_id);
	VS_POINT(glob_answered);
	*old = vs_load_relaxed(&proc->copy.old);
	if (err != ESRCH)
		release_copier(proc);
	return err;
}

static int serve_copy(const struct vs_ask *ask)
{
	struct iovec stage = { vs_me->stage, ask->length }, memory = { (void *)(uintptr_t)ask->addr, ask->length };
	bool write = ask->what == VS_ASK_WRITE;

	if (ask->length > VS_COPY_STAGE || !vs_own_range(ask->key, ask->addr, ask->length, write ? IBV_ACCESS_LOCAL_WRITE : 0))
		return EFAULT;
	/* Through the kernel even for our own memory: a range the program has unmapped is EFAULT, not a crash. */
	return by_kernel(vs_me->thread, write, &memory, 1, &stage, 1, ask->length);
}

/* Is it mapped, and may it be written? The kernel adds 0 to it, atomically, and says EFAULT where we would crash. Nobody is to be woken; if
 * the program uses the word as a futex, one of its waiters may be nevertheless, as any may at any time. */
static bool may_change(uint64_t *word)
{
	uint32_t nobody = 0;

	return syscall(SYS_futex, &nobody, FUTEX_WAKE_OP_PRIVATE, 0, NULL, word, FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_LT, 0)) >= 0;
}

static int serve_atomic(const struct vs_ask *ask)
{
	struct vs_atomic op = { .add = ask->what == VS_ASK_ADD, .compare_add = ask->compare_add, .swap = ask->swap };
	uint64_t *word = (uint64_t *)(uintptr_t)ask->addr;

	if (ask->addr % sizeof(*word) || !vs_own_range(ask->key, ask->addr, sizeof(*word), IBV_ACCESS_REMOTE_ATOMIC))
		return EFAULT;
	VS_POINT(glob_checked);
	if (!may_change(word))
		return EFAULT;
	vs_store_relaxed(&vs_me->copy.old, vs_place_change(word, &op));
	VS_POINT(glob_changed);
	return 0;
}

static int serve_one(const struct vs_ask *ask)
{
	switch (ask->what) {
	case VS_ASK_READ:
	case VS_ASK_WRITE:
		return serve_copy(ask);
	case VS_ASK_ADD:
	case VS_ASK_SWAP:
		return serve_atomic(ask);
	default:
		return EINVAL;
	}
}

void vs_place_serve(void)
{
	struct vs_ask ask;
	struct vs_hazard *h;

	if (vs_load(&vs_me->copy.state) != VS_COPY_ASKED)
		return;
	ask = vs_me->copy.ask;
	h = vs_enter();
	vs_store(&vs_me->copy.result, (uint32_t)serve_one(&ask));
	vs_exit(h);
	VS_POINT(copy_served);
	vs_store_full(&vs_me->copy.state, VS_COPY_DONE);
	syscall(SYS_futex, &vs_me->copy.state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- the choice ---- */

/* Ranges of another process's regions, where this process maps the same memory. false: not all of them. */
static bool through_windows(struct vs_qp *from, bool write, const struct vs_sge *remote, unsigned num_remote, struct iovec *here)
{
	for (unsigned i = 0; i < num_remote; i++) {
		here[i] = (struct iovec){ .iov_len = remote[i].length };
		if (remote[i].length == 0)
			continue;
		here[i].iov_base = vs_window_at(from, remote[i].lkey, remote[i].addr, remote[i].length, write);
		if (!here[i].iov_base)
			return false;
	}
	return true;
}

uint64_t *vs_place_word(struct vs_qp *from, uint32_t proc_id, const struct vs_sge *remote)
{
	uint64_t *word = (uint64_t *)(uintptr_t)remote->addr;

	if (proc_id != vs_me_id)
		word = vs_window_at(from, remote->lkey, remote->addr, sizeof(*word), true);
	return (uintptr_t)word % sizeof(*word) ? NULL : word;
}

/* A chip's access to the program's memory: the thread sanitizer knows of nothing that orders it with the program's own. */
__attribute__((no_sanitize("thread"))) uint64_t vs_place_change(uint64_t *word, const struct vs_atomic *op)
{
	uint64_t old;

	do {
		old = vs_load(word);
	} while (!vs_cas(word, old, vs_atomic_result(op, old)));
	return old;
}

/* Do all ranges lie in regions as their owner registered them? Until we leave the data path a region may be on its way out, but no more. */
static bool sealed(const struct vs_sge *remote, unsigned num_remote)
{
	for (unsigned i = 0; i < num_remote; i++) {
		const struct vs_mr_shm *mr = vs_slot_at(VS_MR, vs_slot_index(VS_MR, remote[i].lkey));
		uint64_t addr, length, at;

		if (remote[i].length == 0)
			continue;
		if (!mr)
			return false;
		addr = vs_load_relaxed(&mr->addr);
		length = vs_load_relaxed(&mr->length);
		if (vs_load_relaxed(&mr->seal) != vs_region_seal(remote[i].lkey, addr, length) ||
		    !vs_region_covers(addr, length, addr, remote[i].addr, remote[i].length, &at))
			return false;
	}
	return true;
}

static void list_ranges(const struct vs_sge *remote, unsigned num_remote, struct iovec *out)
{
	for (unsigned i = 0; i < num_remote; i++)
		out[i] = (struct iovec){ (void *)(uintptr_t)remote[i].addr, remote[i].length };
}

int vs_place(struct vs_qp *from, uint32_t proc_id, bool write, const struct vs_sge *remote, unsigned num_remote, const struct iovec *local,
	     unsigned num_local, uint64_t length)
{
	struct vs_proc_shm *proc = vs_process(proc_id);
	struct iovec r[VS_MAX_SGE];
	int err = EPERM;

	if (length == 0)
		return 0;
	if (!proc)
		return ESRCH;
	if (proc == vs_me)
		list_ranges(remote, num_remote, r);
	if (proc == vs_me || through_windows(from, write, remote, num_remote, r)) {
		if (write)
			vs_copy_ranges(r, num_remote, local, num_local, length);
		else
			vs_copy_ranges(local, num_local, r, num_remote, length);
		VS_POINT(place_direct);
		return 0;
	}
	if (!sealed(remote, num_remote))
		return EFAULT;
	list_ranges(remote, num_remote, r);
	if (proc->pid_ns == vs_me->pid_ns)
		err = by_kernel(vs_load_relaxed(&proc->thread), write, r, num_remote, local, num_local, length);
	if (err == EPERM)
		err = by_engine(proc, proc_id, write, remote, num_remote, local, num_local, length);
	return err;
}
