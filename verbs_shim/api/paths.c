/* Files that a kernel would keep for HCAs. Programs look whether they are there before they use a device (UCX: its character device)
 * or ask for any (Open MPI: the class directory). Only looking is answered: nothing opens them, and what really exists comes first. */
#include "api/api.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the file a kernel would have at path, or 0 for none. */
static mode_t mode_of(const char *path)
{
	static const char *const directories[] = { "/sys/class/infiniband", "/sys/class/infiniband_verbs", "/dev/infiniband" };
	const struct ibv_device *device;

	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
		if (!strcmp(path, directories[i]))
			return S_IFDIR | 0755;
	for (unsigned i = 0; i < VS_MAX_HCAS; i++) {
		device = vs_device_shown(i);
		if (!device)
			continue;
		if (!strcmp(path, device->ibdev_path) || !strcmp(path, device->dev_path))
			return S_IFDIR | 0755;
		if (!strncmp(path, "/dev/infiniband/", 16) && !strcmp(path + 16, device->dev_name))
			return S_IFCHR | 0666;
	}
	return 0;
}

/* A call has failed with errno: what would the file's mode be, if the reason is that only software HCAs have it? */
static mode_t mode_if_missing(const char *path)
{
	return errno == ENOENT && path && path[0] == '/' ? mode_of(path) : 0;
}

VS_PUBLIC int stat(const char *restrict path, struct stat *restrict st)
{
	int before = errno;
	mode_t mode;

	if (fstatat(AT_FDCWD, path, st, 0) == 0)
		return 0;
	mode = mode_if_missing(path);
	if (!mode)
		return -1;
	*st = (struct stat){ .st_mode = mode, .st_nlink = 1, .st_blksize = 4096 };
	errno = before;
	return 0;
}

VS_PUBLIC int stat64(const char *restrict path, struct stat64 *restrict st) __attribute__((alias("stat")));

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one structure for both on 64-bit Linux");

VS_PUBLIC int access(const char *path, int wanted)
{
	int before = errno;
	mode_t mode;

	if (faccessat(AT_FDCWD, path, wanted, 0) == 0)
		return 0;
	mode = mode_if_missing(path);
	if (!mode)
		return -1;
	if ((wanted & X_OK) && !S_ISDIR(mode)) {
		errno = EACCES;
		return -1;
	}
	errno = before;
	return 0;
}
