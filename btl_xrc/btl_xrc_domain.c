/* SPDX-License-Identifier: BSD-3-Clause */
/* The XRC domain of this job on this host and device: a file whose inode is its key and whose content is the board. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "opal/util/printf.h"

#include "btl_xrc_board.h"
#include "btl_xrc_error.h"

/* As mkdir -p with mode 0700. Other local ranks do the same at the same time. */
static int make_directories(const char *path)
{
    char *copy = strdup(path);
    if (NULL == copy) {
        return ENOMEM;
    }
    int rc = 0;
    for (char *p = copy + 1; 0 == rc; ++p) {
        if ('/' == *p || '\0' == *p) {
            char end = *p;
            *p = '\0';
            if (0 != mkdir(copy, 0700) && EEXIST != errno && !(EROFS == errno && 0 == access(copy, F_OK))) {
                rc = errno;
            }
            *p = end;
            if ('\0' == end) {
                break;
            }
        }
    }
    free(copy);
    return rc;
}

static bool usable(const char *dir)
{
    return NULL != dir && '\0' != *dir && 0 == make_directories(dir) && 0 == access(dir, W_OK | X_OK);
}

/* Ours alone, and no link that somebody else has put there. */
static bool is_private(const char *dir)
{
    struct stat st;
    return 0 == lstat(dir, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && 0 == (st.st_mode & 077);
}

/*
 * A directory that only this job's ranks on this host will think of. Under one /tmp there may be several (simulated)
 * hosts, hence the host's name.
 */
static char *private_directory(struct xrc_device *device)
{
    const char *tmp = getenv("TMPDIR");
    char *dir = NULL;
    if (NULL == tmp || '/' != *tmp) {
        tmp = "/tmp";
    }
    if (opal_asprintf(&dir, "%s/btl_xrc.%u.%s.%08x", tmp, (unsigned) geteuid(), opal_process_info.nodename,
                      (unsigned) OPAL_PROC_MY_NAME.jobid)
        < 0) {
        return NULL;
    }
    if (!usable(dir) || !is_private(dir)) {
        xrc_show_help("no directory", opal_process_info.nodename,
                      NULL != opal_process_info.job_session_dir ? opal_process_info.job_session_dir : "none", dir);
        free(dir);
        return NULL;
    }
    device->private_dir = strdup(dir);
    return dir;
}

/* The session directory; without one (direct launch) what PMIx has, else a private one. To be freed. */
static char *find_directory(struct xrc_device *device)
{
    if (usable(opal_process_info.job_session_dir)) {
        return strdup(opal_process_info.job_session_dir);
    }
    char *dir = xrc_compat_job_directory();
    if (usable(dir)) {
        return dir;
    }
    free(dir);
    return private_directory(device);
}

static int join(struct xrc_device *device, const char *path)
{
    struct xrc_board_member me = {.name = {OPAL_PROC_MY_NAME.jobid, OPAL_PROC_MY_NAME.vpid}};
    struct xrc_board_error error;
    if (0 == xrc_board_join(path, &me, &device->board, &error)) {
        return OPAL_SUCCESS;
    }
    char owner[48] = "-";
    if (error.seen) {
        snprintf(owner, sizeof(owner), "uid %u, mode %04o", error.uid, error.mode);
    }
    xrc_show_help("bad domain file", path, opal_process_info.nodename, xrc_board_fault_text(error.fault),
                  0 != error.err ? strerror(error.err) : "-", owner);
    return OPAL_ERROR;
}

static int open_xrcd(struct xrc_device *device)
{
    struct ibv_xrcd_init_attr init = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                      .fd = xrc_board_fd(device->board),
                                      .oflags = O_CREAT};
    errno = 0;
    device->xrcd = ibv_open_xrcd(device->context, &init);
    if (NULL == device->xrcd) {
        xrc_error_verb(device, "ibv_open_xrcd", errno);
        return OPAL_ERROR;
    }
    return OPAL_SUCCESS;
}

int xrc_domain_open(struct xrc_device *device)
{
    char *dir = find_directory(device), *path = NULL;
    if (NULL == dir) {
        return OPAL_ERROR;
    }
    int rc =
        opal_asprintf(&path, "%s/btl_xrc_%s", dir, device->name) < 0 ? OPAL_ERR_OUT_OF_RESOURCE : join(device, path);
    free(path);
    device->dir = dir;
    return OPAL_SUCCESS == rc ? open_xrcd(device) : rc;
}

/* The XRCD first: the file, and with it the inode, must not be replaced under it. */
void xrc_domain_close(struct xrc_device *device)
{
    if (NULL != device->xrcd) {
        int rc = ibv_close_xrcd(device->xrcd);
        if (0 != rc) {
            XRC_VERBOSE(1, "ibv_close_xrcd on %s: %s", device->name, strerror(rc));
        }
        device->xrcd = NULL;
    }
    if (NULL != device->board) {
        if (xrc_board_leave(device->board) && NULL != device->private_dir) {
            rmdir(device->private_dir);
        }
        device->board = NULL;
    }
    free(device->dir);
    free(device->private_dir);
    device->dir = device->private_dir = NULL;
}
