/* Which file lies behind memory of this process. */
#ifndef VS_BACKING_H
#define VS_BACKING_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "memory/layout.h"

/* One mapping, as the kernel describes it. */
struct vs_mapping {
	uint64_t start, end;
	uint64_t offset; /* of start, in the file */
	uint64_t dev, ino; /* 0: no file */
	bool readable, writable, shared;
	char name[PATH_MAX];
};

/* The mapping around an address of this process, from an open /proc/.../maps: by the kernel's PROCMAP_QUERY (Linux 6.11), or from the
 * text. 0, ENOENT (nothing is mapped there), or why it cannot be said (ENOTTY: an older kernel). */
int vs_mapping_query(int maps, uint64_t addr, struct vs_mapping *out);
int vs_mapping_search(FILE *maps, uint64_t addr, struct vs_mapping *out);

/* false unless one MAP_SHARED mapping of a file covers [addr, addr + length), and the file is told from all others by its numbers. */
bool vs_backing_find(const void *addr, size_t length, struct vs_backing *out);

#endif
