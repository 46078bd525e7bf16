/* A segment file that somebody else left: its head holds anything. Joining works or is refused with an errno value, and nothing outside
 * the file is looked at. The control lock is left alone: a lock that lies is no lock, whoever wrote it. */
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
	setenv("VERBS_SHIM_FABRIC", dir, 1);
	atexit(remove_fabric);
	sound = malloc(sizeof(*sound));
	if (!sound || vs_attach())
		abort();
	memcpy(sound, vs_seg, sizeof(*sound));
	vs_detach();
	return 0;
}

/* Two bytes choose the place, the rest is written over what lies there. */
static void overlay(struct vs_segment *head, const uint8_t *data, size_t size)
{
	size_t most = offsetof(struct vs_segment, control), at, n;

	if (size <= 2)
		return;
	at = (data[0] | (size_t)data[1] << 8) % most;
	n = size - 2 < most - at ? size - 2 : most - at;
	memcpy((char *)head + at, data + 2, n);
}

static void plant(const uint8_t *data, size_t size)
{
	struct vs_segment *head = malloc(sizeof(*head));
	char path[96];
	int fd;

	memcpy(head, sound, sizeof(*head));
	overlay(head, data, size);
	snprintf(path, sizeof(path), "%s/segment", dir);
	if (mkdir(dir, 0700) && errno != EEXIST)
		abort();
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)VS_SEGMENT_SIZE) || pwrite(fd, head, sizeof(*head), 0) != (ssize_t)sizeof(*head))
		abort();
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
