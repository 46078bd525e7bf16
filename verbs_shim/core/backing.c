#include "core/backing.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "memory/atomic.h"

/* The kernel's interface, which the headers of older distributions have not. */
struct procmap_query {
	uint64_t size;
	uint64_t query_flags; /* 0: the mapping that covers query_addr */
	uint64_t query_addr;
	uint64_t vma_start, vma_end;
	uint64_t vma_flags;
	uint64_t vma_page_size;
	uint64_t vma_offset;
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	uint32_t vma_name_size;
	uint32_t build_id_size;
	uint64_t vma_name_addr;
	uint64_t build_id_addr;
};
static_assert(sizeof(struct procmap_query) == 104, "as in linux/fs.h");

#define QUERY_MAPPING _IOWR('f', 17, struct procmap_query)

enum { MAPPING_READABLE = 1, MAPPING_WRITABLE = 2, MAPPING_SHARED = 8 };

int vs_mapping_query(int maps, uint64_t addr, struct vs_mapping *out)
{
	struct procmap_query q = { .size = sizeof(q), .query_addr = addr, .vma_name_size = sizeof(out->name) };

	q.vma_name_addr = (uintptr_t)out->name;
	if (ioctl(maps, QUERY_MAPPING, &q))
		return errno;
	if (q.vma_name_size == 0)
		out->name[0] = '\0';
	out->start = q.vma_start;
	out->end = q.vma_end;
	out->offset = q.vma_offset;
	out->dev = q.inode ? makedev(q.dev_major, q.dev_minor) : 0;
	out->ino = q.inode;
	out->readable = q.vma_flags & MAPPING_READABLE;
	out->writable = q.vma_flags & MAPPING_WRITABLE;
	out->shared = q.vma_flags & MAPPING_SHARED;
	return 0;
}

/* "start-end rwxs offset major:minor inode   name" */
static bool parse_line(const char *line, struct vs_mapping *out)
{
	unsigned major, minor;
	char perms[5];
	int at = 0;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &out->start, &out->end, perms, &out->offset,
		   &major, &minor, &out->ino, &at) < 7)
		return false;
	out->dev = out->ino ? makedev(major, minor) : 0;
	out->readable = perms[0] == 'r';
	out->writable = perms[1] == 'w';
	out->shared = perms[3] == 's';
	snprintf(out->name, sizeof(out->name), "%.*s", (int)strcspn(line + at, "\n"), line + at);
	return true;
}

int vs_mapping_search(FILE *maps, uint64_t addr, struct vs_mapping *out)
{
	char *line = NULL;
	size_t size = 0;
	int err = ENOENT;

	while (err && getline(&line, &size, maps) > 0)
		if (parse_line(line, out) && addr >= out->start && addr < out->end)
			err = 0;
	free(line);
	return err;
}

static int find_mapping(uint64_t addr, struct vs_mapping *out)
{
	FILE *maps = fopen("/proc/thread-self/maps", "re");
	int err;

	if (!maps)
		return errno;
	err = vs_mapping_query(fileno(maps), addr, out);
	if (err == ENOTTY)
		err = vs_mapping_search(maps, addr, out);
	fclose(maps);
	return err;
}

/* The device of memory files: memfd_create, shared anonymous memory, System V. 0: not known. */
static uint64_t memory_device(void)
{
	static uint64_t known; /* atomic */
	uint64_t dev = vs_load_relaxed(&known);
	struct vs_mapping m;
	void *page;

	if (dev)
		return dev;
	page = mmap(NULL, VS_PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return 0;
	if (find_mapping((uintptr_t)page, &m) == 0)
		vs_store_relaxed(&known, dev = m.dev);
	munmap(page, VS_PAGE);
	return dev;
}

static bool starts_with(const char *s, const char *with)
{
	return strncmp(s, with, strlen(with)) == 0;
}

/* Do the numbers name one file? Of memory files not those of System V segments, which bear their segment's id in place of an inode number.
 * Some file systems give a number twice, in two subvolumes, and the maps do not say which is meant: their directories have devices that
 * the maps never show. The directory is there even if the file is deleted. */
static bool is_certain(struct vs_mapping *m)
{
	char *slash = strrchr(m->name, '/');
	struct stat dir;

	if (m->dev == memory_device())
		return starts_with(m->name, "/memfd:") || starts_with(m->name, "/dev/zero") || starts_with(m->name, "[anon_shmem");
	if (!slash)
		return false;
	slash[slash == m->name] = '\0';
	return stat(m->name, &dir) == 0 && dir.st_dev == m->dev;
}

bool vs_backing_find(const void *addr, size_t length, struct vs_backing *out)
{
	uint64_t at = (uintptr_t)addr;
	struct vs_mapping m;

	if (length == 0 || find_mapping(at, &m))
		return false;
	if (!m.shared || !m.readable || !m.ino || at < m.start || length > m.end - at || !is_certain(&m))
		return false;
	*out = (struct vs_backing){
		.dev = m.dev,
		.ino = m.ino,
		.offset = m.offset + (at - m.start),
		.flags = VS_BACKED | (m.writable ? VS_BACKED_WRITABLE : 0),
	};
	return true;
}
