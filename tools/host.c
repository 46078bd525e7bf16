/* SPDX-License-Identifier: BSD-3-Clause */
/* What a host gives to whoever uses an HCA: locked memory, a place for a file, device nodes, drivers. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "doctor.h"

#define HOST         "host"
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- locked memory ---- */

/* What a program sends by RDMA gets locked as well; this much leaves room for it. */
#define COMFORTABLE (UINT64_C(64) << 20)

#define INITIAL_USER_NS 0xeffffffdu /* PROC_USER_INIT_INO of the kernel */

/* The kernel asks for it in the initial user namespace. Where no /proc tells the namespace it is believed. */
static bool may_lock_all(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}, {0}};
    struct stat ns;
    if (0 != syscall(SYS_capget, &header, data) || 0 == (data[0].effective & 1u << CAP_IPC_LOCK)) {
        return false;
    }
    return 0 != stat("/proc/self/ns/user", &ns) || INITIAL_USER_NS == ns.st_ino;
}

static const char *limit_text(rlim_t limit, char *buffer, size_t size)
{
    if (RLIM_INFINITY == limit) {
        return "unlimited";
    }
    snprintf(buffer, size, "%" PRIu64 " KiB", (uint64_t) limit >> 10);
    return buffer;
}

static void add_limit(cJSON *facts, const char *name, rlim_t limit)
{
    if (RLIM_INFINITY == limit) {
        cJSON_AddStringToObject(facts, name, "unlimited");
    } else {
        cJSON_AddNumberToObject(facts, name, (double) limit);
    }
}

static struct xrc_recvq_locked locked_per_port(const struct options *options)
{
    return xrc_recvq_locked(&options->recvq, (size_t) sysconf(_SC_PAGESIZE));
}

static const char *memory_advice(const struct rlimit *limit)
{
    return limit->rlim_cur < limit->rlim_max
               ? "the hard limit allows more: ulimit -S -l hard, in the job's script or in its shell's profile"
               : "let it be unlimited: /etc/security/limits.conf, and LimitMEMLOCK= of the batch system's daemons";
}

void host_check_memory(const struct options *options)
{
    struct rlimit limit = {0, 0};
    char soft[32], hard[32];
    struct xrc_recvq_locked port = locked_per_port(options);
    bool all = may_lock_all();
    getrlimit(RLIMIT_MEMLOCK, &limit);
    cJSON *facts = cJSON_AddObjectToObject(report_host(), "locked_memory");
    add_limit(facts, "soft", limit.rlim_cur);
    add_limit(facts, "hard", limit.rlim_max);
    cJSON_AddNumberToObject(facts, "needed_per_port", (double) port.start);
    cJSON_AddNumberToObject(facts, "most_per_port", (double) port.most);
    cJSON_AddBoolToObject(facts, "ipc_lock", all);

    bool endless = all || RLIM_INFINITY == limit.rlim_cur || limit.rlim_cur >= COMFORTABLE;
    enum level level = endless ? GOOD : limit.rlim_cur >= port.start ? POOR : BAD;
    report(
        level, HOST, "locked memory", GOOD == level ? NULL : memory_advice(&limit),
        "limit %s, hard %s%s; a process locks %zu KiB for each port at its start, up to %zu KiB as its receive queues "
        "grow, and what it sends by RDMA",
        limit_text(limit.rlim_cur, soft, sizeof(soft)), limit_text(limit.rlim_max, hard, sizeof(hard)),
        all ? " (CAP_IPC_LOCK lifts them for this user)" : "", port.start >> 10, port.most >> 10);
}

void host_check_memory_of_all(const struct options *options, unsigned ports)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    struct xrc_recvq_locked port = locked_per_port(options);
    uint64_t start = (uint64_t) port.start * ports, most = (uint64_t) port.most * ports;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (ports > 1 && limit.rlim_cur < most && !may_lock_all()) {
        report(POOR, HOST, "locked memory", memory_advice(&limit),
               "%u ports together take %" PRIu64 " KiB at the start and up to %" PRIu64 " KiB, more than the limit: %s",
               ports, start >> 10, most >> 10,
               limit.rlim_cur < start ? "only the first ones will be used" : "not all receive queues will grow");
    }
}

/* ---- the domain file ---- */

/* File systems of several hosts: locks and inodes there are not this kernel's alone. Numbers as in statfs(2). */
static const struct {
    uint32_t magic;
    const char *name;
} shared_systems[] = {
    {0x00006969u, "NFS"},    {0x0000517bu, "SMB"},  {0xff534d42u, "CIFS"},  {0xfe534d42u, "SMB2"},
    {0x0bd00bd0u, "Lustre"}, {0x47504653u, "GPFS"}, {0x00c36400u, "Ceph"},  {0x19830326u, "BeeGFS"},
    {0x01021997u, "9P"},     {0x5346414fu, "AFS"},  {0x7461636fu, "OCFS2"}, {0x01161970u, "GFS2"},
    {0xaad7aaeau, "PanFS"},  {0x65735546u, "FUSE"}, {0x73757245u, "Coda"},  {0x20030528u, "OrangeFS"},
};

static const char *shared_system(const char *dir)
{
    struct statfs st;
    if (0 == statfs(dir, &st)) {
        for (unsigned i = 0; i < COUNT(shared_systems); ++i) {
            if (shared_systems[i].magic == (uint32_t) st.f_type) {
                return shared_systems[i].name;
            }
        }
    }
    return NULL;
}

/* Where Open MPI puts its session directories. */
static const char *session_base(void)
{
    static const char *const names[] = {"TMPDIR", "TEMP", "TMP"};
    for (unsigned i = 0; i < COUNT(names); ++i) {
        const char *value = getenv(names[i]);
        if (NULL != value && '\0' != *value) {
            return value;
        }
    }
    return "/tmp";
}

static bool same_inode(const int fd[2])
{
    struct stat one, two;
    return 0 == fstat(fd[0], &one) && 0 == fstat(fd[1], &two) && one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

#define ELSEWHERE "set TMPDIR to a directory on a local file system where this user may write"

/* The name goes at once, so that nothing is left whatever happens to us. */
static bool make_file(const char *path, const char *dir, struct domain_file *file)
{
    struct xrc_board_member me = {{0, 0}, {0, 0}, {{0}, 0, 0, 0, 0}};
    struct xrc_board_error error;
    if (0 != xrc_board_join(path, &me, &file->board, &error)) {
        unlink(path);
        report(BAD, HOST, "session directory", ELSEWHERE, "%s: %s%s%s", dir, xrc_board_fault_text(error.fault),
               0 != error.err ? ": " : "", 0 != error.err ? strerror(error.err) : "");
        return false;
    }
    file->fd[0] = xrc_board_fd(file->board);
    file->fd[1] = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    unlink(path);
    if (file->fd[1] < 0 || !same_inode(file->fd)) {
        report(BAD, HOST, "session directory", ELSEWHERE, "%s: a file there, opened again, has another inode", dir);
        host_drop_domain_file(file);
        return false;
    }
    return true;
}

static void report_directory(const char *dir)
{
    const char *shared = shared_system(dir);
    if (NULL != shared) {
        report(POOR, HOST, "session directory", ELSEWHERE,
               "%s is on %s, not local: ranks share their XRC domain by a file's inode, and find the dead by its locks",
               dir, shared);
    } else {
        report(GOOD, HOST, "session directory", NULL, "%s: files there keep their inode, can be mapped and locked",
               dir);
    }
    cJSON *facts = cJSON_AddObjectToObject(report_host(), "session_directory");
    cJSON_AddStringToObject(facts, "path", dir);
    cJSON_AddBoolToObject(facts, "local", NULL == shared);
}

void host_make_domain_file(struct domain_file *file)
{
    const char *base = session_base();
    char dir[PATH_MAX], path[PATH_MAX + 16];
    int n = snprintf(dir, sizeof(dir), "%s/xrc_doctor.XXXXXX", base);
    if (n < 0 || (size_t) n >= sizeof(dir) || NULL == mkdtemp(dir)) {
        report(BAD, HOST, "session directory", ELSEWHERE, "%s: no directory can be made there: %s", base,
               (size_t) n >= sizeof(dir) ? "its name is too long" : strerror(errno));
        return;
    }
    snprintf(path, sizeof(path), "%s/domain", dir);
    bool made = make_file(path, base, file);
    rmdir(dir);
    if (made) {
        report_directory(base);
    }
}

void host_drop_domain_file(struct domain_file *file)
{
    if (file->fd[1] >= 0) {
        close(file->fd[1]);
    }
    if (NULL != file->board) {
        xrc_board_leave(file->board);
    }
    *file = (struct domain_file){NULL, {-1, -1}};
}

/* ---- device nodes and drivers ---- */

void host_check_nodes(void)
{
    glob_t nodes;
    unsigned closed = 0;
    if (0 != glob("/dev/infiniband/uverbs*", 0, NULL, &nodes)) {
        return;
    }
    for (size_t i = 0; i < nodes.gl_pathc; ++i) {
        const char *path = nodes.gl_pathv[i];
        struct stat st;
        if (0 == access(path, R_OK | W_OK)) {
            continue;
        }
        int err = errno;
        bool known = 0 == stat(path, &st);
        report(BAD, HOST, "device nodes",
               "the udev rules of rdma-core give it mode 0666: install them, or change its mode; in a container, pass "
               "it in",
               "%s (uid %u, gid %u, mode %04o) cannot be opened: %s", path, known ? (unsigned) st.st_uid : 0u,
               known ? (unsigned) st.st_gid : 0u, known ? (unsigned) (st.st_mode & 07777u) : 0u, strerror(err));
        ++closed;
    }
    if (0 == closed) {
        report(GOOD, HOST, "device nodes", NULL, "%zu of /dev/infiniband/uverbs*, which this user may open",
               nodes.gl_pathc);
    }
    globfree(&nodes);
}

/* Modules that matter, of those that are loaded or built in; "none" if there are none. */
static const char *modules_text(char *buffer, size_t size)
{
    static const char *const names[] = {"ib_core",        "ib_uverbs", "mlx4_ib", "mlx5_ib",
                                        "hns_roce_hw_v2", "rdma_rxe",  "siw"};
    size_t used = 0;
    buffer[0] = '\0';
    for (unsigned i = 0; i < COUNT(names); ++i) {
        char path[64];
        snprintf(path, sizeof(path), "/sys/module/%s", names[i]);
        if (0 == access(path, F_OK)) {
            used += (size_t) snprintf(buffer + used, size - used, "%s%s", used > 0 ? " " : "", names[i]);
        }
    }
    return used > 0 ? buffer : "none";
}

/* Names in a directory, without the hidden ones. */
static unsigned entries_in(const char *path)
{
    unsigned n = 0;
    DIR *dir = opendir(path);
    const struct dirent *entry;
    while (NULL != dir && NULL != (entry = readdir(dir))) {
        n += '.' != entry->d_name[0];
    }
    if (NULL != dir) {
        closedir(dir);
    }
    return n;
}

bool host_explain_no_device(bool spare)
{
    char modules[128];
    unsigned known = entries_in("/sys/class/infiniband"), nodes = entries_in("/sys/class/infiniband_verbs");
    const char *loaded = modules_text(modules, sizeof(modules));
    if (0 == known) {
        report(spare ? POOR : BAD, HOST, "RDMA devices",
               "if there is an HCA, load its driver: modprobe mlx5_ib (or mlx4_ib, hns_roce_hw_v2)",
               "none, and the kernel knows none (modules loaded: %s)", loaded);
    } else if (0 == nodes) {
        report(BAD, HOST, "RDMA devices",
               "load the module ib_uverbs: modprobe ib_uverbs; in a container, pass /dev/infiniband in",
               "the kernel has %u, but none for user programs (modules loaded: %s)", known, loaded);
    } else {
        report(BAD, HOST, "RDMA devices",
               "install the drivers of rdma-core (Debian: ibverbs-providers), as new as the kernel's",
               "the kernel has %u, but libibverbs has a driver for none (modules loaded: %s)", known, loaded);
    }
    return known > 0;
}

/* ---- the software HCA ---- */

/* A process needs a few MiB, and a job of the machine's size a few hundred. */
#define FABRIC_ROOM (UINT64_C(64) << 20)

void host_check_fabric(void)
{
    char dir[PATH_MAX] = "/dev/shm/";
    const char *named = getenv("VERBS_SHIM_FABRIC");
    struct statvfs st;
    if (NULL != named && '\0' != *named) {
        snprintf(dir, sizeof(dir), "%s", named);
    }
    char *slash = strrchr(dir, '/');
    if (NULL != slash) {
        slash[slash == dir] = '\0';
    }
    if (0 != statvfs(NULL != slash ? dir : ".", &st)) {
        report(BAD, HOST, "software HCA's memory", "mount a tmpfs there, or set VERBS_SHIM_FABRIC to a path elsewhere",
               "%s: %s", dir, strerror(errno));
        return;
    }
    uint64_t room = (uint64_t) st.f_bavail * st.f_frsize;
    report(room >= FABRIC_ROOM ? GOOD : POOR, HOST, "software HCA's memory",
           room >= FABRIC_ROOM ? NULL
                               : "make room, or mount it larger: containers often get 64 MiB (docker run --shm-size)",
           "%" PRIu64 " MiB are free in %s", room >> 20, dir);
}
