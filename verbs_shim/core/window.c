#include "core/window.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/backing.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the list and the epoch's moves */
static struct vs_shared *offered; /* its head is read without the lock, to see whether there is any */
static uint32_t epoch; /* moves when the list does; read without the lock */
static uint32_t mapped; /* second mappings; atomic */

#define MAX_MAPPED 4096u /* a process may have 65530 mappings, and most are to be the program's */

/* ---- what this process offers ---- */

static bool same_backing(const struct vs_backing *a, const struct vs_backing *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->offset == b->offset && a->flags == b->flags;
}

/* As registering does in a kernel: every page is there from now on, or none of this. A later store cannot find the file system full. */
static bool populate(const struct vs_shared *s)
{
	int how = s->backing.flags & VS_BACKED_WRITABLE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

	return madvise(s->map, s->map_length, MADV_DONTFORK) == 0 && madvise(s->map, s->map_length, how) == 0;
}

struct vs_shared *vs_window_map(void *addr, size_t length)
{
	size_t before = (uintptr_t)addr & ((size_t)sysconf(_SC_PAGESIZE) - 1);
	struct vs_backing backing, again;
	struct vs_shared *s;

	if (!vs_backing_find(addr, length, &backing) || vs_load_relaxed(&mapped) >= MAX_MAPPED)
		return NULL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->backing = backing;
	s->length = length;
	s->map_length = before + length;
	s->map = mremap((char *)addr - before, 0, s->map_length, MREMAP_MAYMOVE); /* length 0: a second mapping of the same pages */
	if (s->map == MAP_FAILED) {
		free(s);
		return NULL;
	}
	vs_add_relaxed(&mapped, 1);
	s->at = (char *)s->map + before;
	/* The program's mapping may have been replaced since it was looked at; this one is nobody else's. */
	if (!vs_backing_find(s->at, length, &again) || !same_backing(&again, &backing) || !populate(s)) {
		vs_window_unmap(s);
		return NULL;
	}
	return s;
}

void vs_window_unmap(struct vs_shared *s)
{
	while (s) {
		struct vs_shared *next = s->next;

		munmap(s->map, s->map_length);
		vs_add_relaxed(&mapped, -1u);
		free(s);
		s = next;
	}
}

void vs_window_offer(struct vs_shared *s, uint32_t id, uint32_t context)
{
	pthread_mutex_lock(&lock);
	s->id = id;
	s->context = context;
	s->next = offered;
	vs_store(&offered, s);
	vs_store(&epoch, epoch + 1);
	pthread_mutex_unlock(&lock);
}

static struct vs_shared *withdraw(bool (*match)(const struct vs_shared *, uint32_t), uint32_t what)
{
	struct vs_shared *out = NULL, *s, **at = &offered;

	pthread_mutex_lock(&lock);
	while ((s = *at) != NULL) {
		if (!match(s, what)) {
			at = &s->next;
			continue;
		}
		vs_store(at, s->next);
		s->next = out;
		out = s;
	}
	if (out)
		vs_store(&epoch, epoch + 1);
	pthread_mutex_unlock(&lock);
	return out;
}

static bool has_id(const struct vs_shared *s, uint32_t id)
{
	return s->id == id;
}

static bool has_context(const struct vs_shared *s, uint32_t context)
{
	return s->context == context;
}

struct vs_shared *vs_window_withdraw(uint32_t id)
{
	return withdraw(has_id, id);
}

struct vs_shared *vs_window_withdraw_context(uint32_t context)
{
	return withdraw(has_context, context);
}

void vs_window_before_fork(void)
{
	pthread_mutex_lock(&lock);
}

void vs_window_after_fork(bool child)
{
	while (child && offered) {
		struct vs_shared *s = offered;

		offered = s->next;
		free(s); /* what it mapped was not inherited */
	}
	if (child) {
		vs_store(&epoch, epoch + 1);
		vs_store_relaxed(&mapped, 0);
	}
	pthread_mutex_unlock(&lock);
}

/* ---- windows onto what peers offer ---- */

static bool covers(uint64_t addr, uint64_t length, uint64_t at, uint64_t n)
{
	return at >= addr && n <= length && at - addr <= length - n;
}

static bool may(const struct vs_backing *b, bool write)
{
	return b->flags & VS_BACKED && (!write || b->flags & VS_BACKED_WRITABLE);
}

/* What of the peer's region, if anything, lies in s. The region does not wrap. */
static bool overlap(const struct vs_window *w, const struct vs_shared *s, struct vs_window *out)
{
	uint64_t theirs = w->backing.offset, ours = s->backing.offset;
	uint64_t from = theirs > ours ? theirs : ours;
	uint64_t their_end = theirs + w->region_length, our_end = ours + s->length;
	uint64_t to = their_end < our_end ? their_end : our_end;

	if (w->backing.dev != s->backing.dev || w->backing.ino != s->backing.ino || !may(&s->backing, w->write) || from >= to)
		return false;
	*out = *w;
	out->addr = w->region_addr + (from - theirs);
	out->length = to - from;
	out->at = s->at + (from - ours);
	return true;
}

/* Fill in the part of the region around [addr, addr + length): the one that is mapped here, or what is known not to be. */
static void look(struct vs_window *w, uint64_t addr, uint64_t length)
{
	struct vs_window part;
	bool any = false;

	w->at = NULL;
	pthread_mutex_lock(&lock);
	w->epoch = epoch;
	for (const struct vs_shared *s = offered; s; s = s->next) {
		if (!overlap(w, s, &part))
			continue;
		any = true;
		if (covers(part.addr, part.length, addr, length)) {
			*w = part;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	if (w->at)
		return;
	w->addr = any ? addr : w->region_addr;
	w->length = any ? length : w->region_length;
}

static bool known(const struct vs_window *w, const struct vs_window *asked, uint64_t addr, uint64_t length)
{
	return w->key == asked->key && w->epoch == vs_load(&epoch) && w->write == asked->write && w->region_addr == asked->region_addr &&
	       w->region_length == asked->region_length && same_backing(&w->backing, &asked->backing) &&
	       covers(w->addr, w->length, addr, length);
}

/* Each word once: its writer may be hostile. */
static void read_claim(const struct vs_mr_shm *mr, struct vs_window *w)
{
	w->region_addr = vs_load_relaxed(&mr->addr);
	w->region_length = vs_load_relaxed(&mr->length);
	w->backing.dev = vs_load_relaxed(&mr->backing.dev);
	w->backing.ino = vs_load_relaxed(&mr->backing.ino);
	w->backing.offset = vs_load_relaxed(&mr->backing.offset);
	w->backing.flags = vs_load_relaxed(&mr->backing.flags);
}

void *vs_window_at(struct vs_qp *qp, uint32_t key, uint64_t addr, uint64_t length, bool write)
{
	struct vs_window asked = { .key = key, .write = write };
	const struct vs_mr_shm *mr;
	struct vs_window *w;

	mr = vs_load(&offered) ? vs_slot_get(VS_MR, key) : NULL;
	if (!mr)
		return NULL;
	read_claim(mr, &asked);
	if (!may(&asked.backing, write) || !covers(asked.region_addr, asked.region_length, addr, length) ||
	    asked.backing.offset + asked.region_length < asked.backing.offset)
		return NULL;
	w = &qp->windows[(vs_slot_index(VS_MR, key) * 2 + write) % VS_WINDOWS];
	if (!known(w, &asked, addr, length)) {
		*w = asked;
		look(w, addr, length);
	}
	return w->at ? w->at + (addr - w->addr) : NULL;
}
