/* A segment file of somebody who lives: its head, the first slots of its tables and the pages behind them hold anything. Joining works or
 * is refused with an errno value, whoever is dead is reaped, and nothing outside the file is looked at. The control lock is left alone: a
 * lock that lies is no lock, whoever wrote it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/context.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static char dir[64];
static struct vs_segment *sound; /* a copy of a good head */
static int neighbour = -1;       /* the file whose lock says that somebody lives */

static void remove_fabric(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	if (system(command))
		_exit(1);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	snprintf(dir, sizeof(dir), "/dev/shm/vfuzz.%d", (int)getpid());
	setenv("VERBS_SHIM_FABRIC", dir, 0);
	snprintf(dir, sizeof(dir), "%s", getenv("VERBS_SHIM_FABRIC"));
	atexit(remove_fabric);
	sound = malloc(sizeof(*sound));
	if (!sound || vs_attach())
		abort();
	memcpy(sound, vs_seg, sizeof(*sound));
	vs_detach();
	return 0;
}

/* ---- what is written over the good head ---- */

#define SLOTS 4u /* of a table that can hold something */
#define PAGES 8u /* behind the tables, likewise */

static uint64_t table_end(enum vs_table table, const struct vs_segment *head)
{
	return head->table_offset[table] + (uint64_t)SLOTS * vs_tables[table].size;
}

/* The places that an input can reach. Others are holes. */
static void place(unsigned which, const struct vs_segment *head, uint64_t *from, uint64_t *to)
{
	*from = 0;
	*to = offsetof(struct vs_segment, control);
	if (which == 1) {
		*from = offsetof(struct vs_segment, page_map);
		*to = *from + 64;
	} else if (which == 2) {
		*from = head->data_offset;
		*to = *from + PAGES * VS_PAGE;
	} else if (which > 2) {
		*from = head->table_offset[which - 3];
		*to = table_end((enum vs_table)(which - 3), head);
	}
}

/* A slot is live, has a page, and is the dead process's of the same number until the input says something else: while the first is reaped,
 * the others' queues are those of the living. */
static void fill_slots(int fd, struct vs_segment *head, enum vs_table table, unsigned n)
{
	struct vs_slot slot = { .word = 1u << 8 | VS_LIVE, .owner = 1u << vs_tables[VS_PROC].index_bits, .ext_pages = 1 };

	for (unsigned i = 0; i < n; i++, slot.owner++, slot.ext_page++)
		if (pwrite(fd, &slot, sizeof(slot), (off_t)(head->table_offset[table] + (uint64_t)i * vs_tables[table].size)) !=
		    sizeof(slot))
			abort();
	if (head->reserved[table] < SLOTS)
		head->reserved[table] = SLOTS;
}

/* The first bytes tell how many slots of each table are filled, two tables a byte. */
static void fill_tables(int fd, struct vs_segment *head, const uint8_t *data)
{
	for (unsigned t = 0; t < VS_TABLES; t++) {
		unsigned n = (data[t / 2] >> (t % 2 * 4) & 15) % (SLOTS + 1);

		if (n)
			fill_slots(fd, head, (enum vs_table)t, n);
	}
}

#define COUNTS ((VS_TABLES + 1) / 2)

/* Then pieces: which place, where in it, how many bytes, and these. */
static void overlay(int fd, const struct vs_segment *head, const uint8_t *data, size_t size)
{
	while (size > 4) {
		uint64_t from, to, at, n = data[3] % 32;

		place(data[0] % (3 + VS_TABLES), head, &from, &to);
		at = from + (data[1] | (uint64_t)data[2] << 8) * 4 % (to - from);
		data += 4, size -= 4;
		n = n < size ? n : size;
		n = n < to - at ? n : to - at;
		if (pwrite(fd, data, n, (off_t)at) != (ssize_t)n)
			abort();
		data += n, size -= n;
	}
}

static int make_file(const char *name)
{
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		abort();
	return fd;
}

/* Whose segment it is: the only process that the files tell of, and no slot does. */
static void plant_neighbour(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (neighbour >= 0)
		close(neighbour);
	neighbour = make_file("live.ffffffff");
	if (fcntl(neighbour, F_OFD_SETLK, &lock))
		abort();
}

static void plant(const uint8_t *data, size_t size)
{
	struct vs_segment *head = malloc(sizeof(*head));
	int fd;

	memcpy(head, sound, sizeof(*head));
	if (mkdir(dir, 0700) && errno != EEXIST)
		abort();
	plant_neighbour();
	fd = make_file("segment");
	if (ftruncate(fd, (off_t)VS_SEGMENT_SIZE))
		abort();
	if (size >= COUNTS)
		fill_tables(fd, head, data);
	if (pwrite(fd, head, sizeof(*head), 0) != (ssize_t)sizeof(*head))
		abort();
	if (size >= COUNTS)
		overlay(fd, sound, data + COUNTS, size - COUNTS);
	close(fd);
	free(head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct stat st;
	int err;

	plant(data, size);
	err = vs_attach();
	if (err == 0) {
		if (!vs_fabric_my_host() || vs_fabric_my_host()->num_hcas > VS_MAX_HCAS)
			abort();
		vs_detach();
		if (stat(dir, &st) == 0)
			abort(); /* the last to leave removes it */
	} else if (err != EPROTO && err != ENOMEM && err != EINVAL) {
		abort();
	}
	if (err)
		remove_fabric();
	return 0;
}
