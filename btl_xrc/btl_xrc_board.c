/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE /* open file description locks */
#endif
#include "btl_xrc_board.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__ /* gcc 12's does not know pthread_mutex_clocklock() */
#    include <sanitizer/tsan_interface.h>
#    define TSAN_PRE_LOCK(mutex)  __tsan_mutex_pre_lock((mutex), 0)
#    define TSAN_POST_LOCK(mutex) __tsan_mutex_post_lock((mutex), 0, 0)
#else
#    define TSAN_PRE_LOCK(mutex)  ((void) 0)
#    define TSAN_POST_LOCK(mutex) ((void) 0)
#endif

#define BOARD_MAGIC   0x4252584452414f42ull
#define BOARD_VERSION 4u
#define BOARD_BUCKETS 1024u

#define LOOK_AGAIN_NS 100000000

/* Bytes of the file that are only ever locked; far behind its content. */
#define LOCK_DOOR  ((off_t) 1 << 40)
#define LOCK_RANKS (LOCK_DOOR + 1)

enum rank_state { RANK_FREE = 0, RANK_HERE, RANK_LEAVING };

struct rank {
    uint32_t state;
    struct xrc_board_member member;
};

/* The file, as every rank maps it. */
struct layout {
    uint64_t magic; /* written last: a board without it was never finished */
    uint32_t version;
    uint32_t size;
    struct xrc_uuid uuid;
    pthread_mutex_t mutex;
    uint32_t used; /* TGT entries below this index have been used */
    uint32_t free; /* chain of free ones among them, index + 1 */
    uint32_t bucket[BOARD_BUCKETS];
    struct rank rank[XRC_BOARD_RANKS];
    struct xrc_board_tgt tgt[XRC_BOARD_TGTS];
};

struct xrc_board {
    int fd;
    uint32_t slot;
    struct layout *map;
    char *path;
};

/* ---- locks of the kernel ---- */

/* The door: held by whoever joins or leaves. Goes with the descriptor, so it must be one of ours alone. */
static int door(int fd, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = LOCK_DOOR, .l_len = 1};
    int rc;
    do {
        rc = fcntl(fd, F_OFD_SETLKW, &lock);
    } while (rc != 0 && errno == EINTR);
    return rc;
}

static bool take_rank_byte(int fd, uint32_t slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_RANKS + slot, .l_len = 1};
    return fcntl(fd, F_SETLK, &lock) == 0;
}

static bool rank_byte_taken(int fd, uint32_t slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_RANKS + slot, .l_len = 1};
    return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* ---- chains of TGT entries ---- */

enum xrc_tgt_state xrc_board_state(const struct xrc_board_tgt *tgt)
{
    uint32_t state = tgt->state;
    return state < XRC_TGT_STATES ? (enum xrc_tgt_state) state : XRC_TGT_NONE;
}

static uint32_t bucket_of(const struct xrc_tgt_key *key)
{
    uint32_t h = key->name.vpid * 2654435761u ^ key->name.job * 40503u ^ key->module << 7 ^ key->port;
    return (h ^ h >> 16) % BOARD_BUCKETS;
}

static bool same_key(const struct xrc_tgt_key *a, const struct xrc_tgt_key *b)
{
    return a->name.job == b->name.job && a->name.vpid == b->name.vpid && a->module == b->module && a->port == b->port;
}

/* After a death inside the lock: all chains anew from what the entries say of themselves. */
static void rebuild(struct layout *map)
{
    memset(map->bucket, 0, sizeof map->bucket);
    map->free = 0;
    if (map->used > XRC_BOARD_TGTS) {
        map->used = XRC_BOARD_TGTS;
    }
    for (uint32_t i = 0; i < map->used; ++i) {
        struct xrc_board_tgt *t = &map->tgt[i];
        uint32_t *head = xrc_board_state(t) == XRC_TGT_NONE ? &map->free : &map->bucket[bucket_of(&t->key)];
        if (head == &map->free) {
            t->state = XRC_TGT_NONE;
        }
        t->next = *head;
        *head = i + 1;
    }
}

static struct timespec later(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    ts.tv_nsec += LOOK_AGAIN_NS;
    if (ts.tv_nsec >= 1000000000) {
        ts.tv_nsec -= 1000000000;
        ts.tv_sec++;
    }
    return ts;
}

/*
 * A waiter that is killed between being woken and taking the lock takes the wake-up with it, when somebody else was there
 * first: who unlocks next sees no waiters. So nobody waits for a wake-up alone.
 */
static int lock_robust(pthread_mutex_t *mutex)
{
    int err;
    TSAN_PRE_LOCK(mutex);
    do {
#if __GLIBC_PREREQ(2, 30)
        const struct timespec until = later(CLOCK_MONOTONIC);
        err = pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until);
#else
        const struct timespec until = later(CLOCK_REALTIME);
        err = pthread_mutex_timedlock(mutex, &until);
#endif
    } while (err == ETIMEDOUT);
    TSAN_POST_LOCK(mutex);
    return err;
}

void xrc_board_lock(struct xrc_board *board)
{
    if (lock_robust(&board->map->mutex) == EOWNERDEAD) {
        rebuild(board->map);
        pthread_mutex_consistent(&board->map->mutex);
    }
}

void xrc_board_unlock(struct xrc_board *board)
{
    pthread_mutex_unlock(&board->map->mutex);
}

/* ---- making and checking the file ---- */

static int fault(struct xrc_board_error *error, enum xrc_board_fault what, int err)
{
    error->fault = what;
    error->err = err;
    return -1;
}

static int check_file(int fd, struct stat *st, struct xrc_board_error *error)
{
    if (fstat(fd, st) != 0) {
        return fault(error, XRC_BOARD_SYSTEM, errno);
    }
    error->seen = true;
    error->uid = st->st_uid;
    error->mode = st->st_mode & 07777u;
    if (!S_ISREG(st->st_mode) || st->st_uid != geteuid() || (st->st_mode & 07177) != 0 || st->st_nlink > 1) {
        return fault(error, XRC_BOARD_PLANTED, 0);
    }
    return 0;
}

static void make_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex, &attr);
    pthread_mutexattr_destroy(&attr);
}

static int make_layout(struct layout *map, struct xrc_board_error *error)
{
    map->magic = 0;
    memset(map, 0, sizeof *map);
    map->version = BOARD_VERSION;
    map->size = sizeof *map;
    if (getrandom(map->uuid.b, sizeof map->uuid.b, 0) != (ssize_t) sizeof map->uuid.b) {
        return fault(error, XRC_BOARD_SYSTEM, errno);
    }
    make_mutex(&map->mutex);
    __atomic_store_n(&map->magic, BOARD_MAGIC, __ATOMIC_RELEASE);
    return 0;
}

static bool anybody_there(int fd, const struct layout *map)
{
    for (uint32_t i = 0; i < XRC_BOARD_RANKS; ++i) {
        if (map->rank[i].state != RANK_FREE && rank_byte_taken(fd, i)) {
            return true;
        }
    }
    return false;
}

/*
 * A signal makes a file system give up and undo what it has done: one that comes again and again, as a profiler's does, must
 * not get in at all. What cannot be kept out, a debugger say, means once more.
 */
static int allocate(int fd, off_t size)
{
    sigset_t all, old;
    int err;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    do {
        err = posix_fallocate(fd, 0, size);
    } while (err == EINTR);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return err;
}

/*
 * Space first: the file must never be larger than what the file system has given, or a later touch is a SIGBUS. A
 * file left by a crash (no magic, or nobody alive in it) is made anew; its old uuid must not come back.
 */
static int map_file(struct xrc_board *board, const struct stat *st, struct xrc_board_error *error)
{
    int err = allocate(board->fd, sizeof(struct layout));
    if (err != 0) {
        if (st->st_size == 0) {
            unlink(board->path);
        }
        return fault(error, err == ENOSPC || err == EDQUOT ? XRC_BOARD_SPACE : XRC_BOARD_SYSTEM, err);
    }
    void *p = mmap(NULL, sizeof(struct layout), PROT_READ | PROT_WRITE, MAP_SHARED, board->fd, 0);
    if (p == MAP_FAILED) {
        return fault(error, XRC_BOARD_SYSTEM, errno);
    }
    board->map = (struct layout *) p;
    if (board->map->magic != 0 && board->map->magic != BOARD_MAGIC) {
        return fault(error, XRC_BOARD_VERSION, 0);
    }
    bool fresh = board->map->magic == 0;
    if (!fresh && (board->map->version != BOARD_VERSION || board->map->size != sizeof(struct layout))) {
        return fault(error, XRC_BOARD_VERSION, 0);
    }
    return fresh || !anybody_there(board->fd, board->map) ? make_layout(board->map, error) : 0;
}

/* A new rank takes a dead one's slot over: nobody may take it for the keeper the dead one was. */
static void forget_rank(struct layout *map, uint32_t slot)
{
    for (uint32_t i = 0; i < map->used && i < XRC_BOARD_TGTS; ++i) {
        struct xrc_board_tgt *t = &map->tgt[i];
        for (int k = 0; k < XRC_BOARD_KEEPERS; ++k) {
            if (t->keeper[k] == slot + 1) {
                t->keeper[k] = 0;
            }
        }
        if (t->maker == slot + 1) {
            t->maker = 0;
        }
    }
}

static int take_slot(struct xrc_board *board, const struct xrc_board_member *me, struct xrc_board_error *error)
{
    for (uint32_t i = 0; i < XRC_BOARD_RANKS; ++i) {
        struct rank *r = &board->map->rank[i];
        if (r->state != RANK_FREE && rank_byte_taken(board->fd, i)) {
            continue;
        }
        if (!take_rank_byte(board->fd, i)) {
            continue;
        }
        xrc_board_lock(board);
        forget_rank(board->map, i);
        r->member = *me;
        r->state = RANK_HERE;
        xrc_board_unlock(board);
        board->slot = i;
        return 0;
    }
    return fault(error, XRC_BOARD_FULL, 0);
}

/* 0 joined, -1 failed, 1 the file was removed while we waited at the door: try again. */
static int join_once(struct xrc_board *board, const struct xrc_board_member *me, struct xrc_board_error *error)
{
    board->fd = open(board->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (board->fd < 0) {
        return fault(error, errno == ELOOP || errno == EISDIR || errno == ENXIO ? XRC_BOARD_PLANTED : XRC_BOARD_OPEN,
                     errno);
    }
    struct stat st;
    if (check_file(board->fd, &st, error) != 0) {
        return -1;
    }
    if (door(board->fd, F_WRLCK) != 0) {
        return fault(error, XRC_BOARD_SYSTEM, errno);
    }
    if (check_file(board->fd, &st, error) != 0) {
        return -1;
    }
    if (st.st_nlink == 0) {
        return 1;
    }
    if (st.st_size != 0 && st.st_size != (off_t) sizeof(struct layout)) {
        return fault(error, XRC_BOARD_SIZE, 0);
    }
    if (map_file(board, &st, error) != 0 || take_slot(board, me, error) != 0) {
        return -1;
    }
    return door(board->fd, F_UNLCK) == 0 ? 0 : fault(error, XRC_BOARD_SYSTEM, errno);
}

static void unmap_and_close(struct xrc_board *board)
{
    if (board->map != NULL) {
        munmap(board->map, sizeof(struct layout));
        board->map = NULL;
    }
    if (board->fd >= 0) {
        close(board->fd);
        board->fd = -1;
    }
}

int xrc_board_join(const char *path, const struct xrc_board_member *me, struct xrc_board **out,
                   struct xrc_board_error *error)
{
    memset(error, 0, sizeof *error);
    struct xrc_board *board = (struct xrc_board *) calloc(1, sizeof *board);
    if (board == NULL || (board->path = strdup(path)) == NULL) {
        free(board);
        return fault(error, XRC_BOARD_SYSTEM, ENOMEM);
    }
    board->fd = -1;
    int rc;
    while ((rc = join_once(board, me, error)) == 1) {
        unmap_and_close(board);
    }
    if (rc != 0) {
        unmap_and_close(board);
        free(board->path);
        free(board);
        return -1;
    }
    *out = board;
    return 0;
}

bool xrc_board_leave(struct xrc_board *board)
{
    bool last = false;
    if (door(board->fd, F_WRLCK) == 0) {
        xrc_board_lock(board);
        forget_rank(board->map, board->slot);
        board->map->rank[board->slot].state = RANK_FREE;
        xrc_board_unlock(board);
        last = !anybody_there(board->fd, board->map);
        if (last) {
            unlink(board->path);
        }
    }
    unmap_and_close(board);
    free(board->path);
    free(board);
    return last;
}

const char *xrc_board_fault_text(enum xrc_board_fault what)
{
    static const char *const text[] = {
        [XRC_BOARD_OK] = "good",
        [XRC_BOARD_OPEN] = "it cannot be opened or created",
        [XRC_BOARD_PLANTED] = "it is not a plain file of this user with mode 0600",
        [XRC_BOARD_SIZE] = "it has a wrong size",
        [XRC_BOARD_VERSION] = "it was written by something else or another version",
        [XRC_BOARD_SPACE] = "its file system is full",
        [XRC_BOARD_SYSTEM] = "it cannot be locked or mapped",
        [XRC_BOARD_FULL] = "it lists more local ranks than there is room for",
    };
    return (unsigned) what < sizeof text / sizeof text[0] ? text[what] : "unknown";
}

/* ---- ranks ---- */

int xrc_board_fd(const struct xrc_board *board)
{
    return board->fd;
}

struct xrc_uuid xrc_board_uuid(const struct xrc_board *board)
{
    return board->map->uuid;
}

uint32_t xrc_board_slot(const struct xrc_board *board)
{
    return board->slot;
}

void xrc_board_publish(struct xrc_board *board, const struct xrc_ud_addr *ud, const struct xrc_port_addr *addr)
{
    xrc_board_lock(board);
    board->map->rank[board->slot].member.ud = *ud;
    board->map->rank[board->slot].member.addr = *addr;
    xrc_board_unlock(board);
}

void xrc_board_set_leaving(struct xrc_board *board)
{
    xrc_board_lock(board);
    board->map->rank[board->slot].state = RANK_LEAVING;
    xrc_board_unlock(board);
}

bool xrc_board_alive(struct xrc_board *board, uint32_t slot)
{
    return slot < XRC_BOARD_RANKS && board->map->rank[slot].state != RANK_FREE
           && (slot == board->slot || rank_byte_taken(board->fd, slot));
}

bool xrc_board_member_at(struct xrc_board *board, uint32_t slot, struct xrc_board_member *member)
{
    if (slot >= XRC_BOARD_RANKS || board->map->rank[slot].state == RANK_FREE) {
        return false;
    }
    *member = board->map->rank[slot].member;
    return true;
}

static bool keeps(const struct xrc_board_tgt *tgt, uint32_t slot)
{
    for (int k = 0; k < XRC_BOARD_KEEPERS; ++k) {
        if (tgt->keeper[k] == slot + 1) {
            return true;
        }
    }
    return false;
}

uint32_t xrc_board_candidate(struct xrc_board *board, const struct xrc_board_tgt *tgt, uint32_t start,
                             struct xrc_board_member *member)
{
    uint32_t used = XRC_BOARD_RANKS;
    while (used > 1 && board->map->rank[used - 1].state == RANK_FREE) {
        --used;
    }
    for (uint32_t n = 0; n < used; ++n) {
        uint32_t slot = (start % used + n) % used;
        const struct rank *r = &board->map->rank[slot];
        if (r->state == RANK_HERE && r->member.ud.qpn != 0 && slot != board->slot && !keeps(tgt, slot)
            && xrc_board_alive(board, slot)) {
            *member = r->member;
            return slot;
        }
    }
    return XRC_BOARD_NOBODY;
}

/* ---- TGTs ---- */

struct xrc_board_tgt *xrc_board_tgt_at(struct xrc_board *board, uint32_t index)
{
    return index < XRC_BOARD_TGTS ? &board->map->tgt[index] : NULL;
}

uint32_t xrc_board_tgt_index(const struct xrc_board *board, const struct xrc_board_tgt *tgt)
{
    return (uint32_t) (tgt - board->map->tgt);
}

struct xrc_board_tgt *xrc_board_tgt_find(struct xrc_board *board, const struct xrc_tgt_key *key)
{
    uint32_t i = board->map->bucket[bucket_of(key)];
    for (uint32_t steps = 0; i != 0 && i <= XRC_BOARD_TGTS && steps < XRC_BOARD_TGTS; ++steps) {
        struct xrc_board_tgt *t = &board->map->tgt[i - 1];
        if (xrc_board_state(t) != XRC_TGT_NONE && same_key(&t->key, key)) {
            return t;
        }
        i = t->next;
    }
    return NULL;
}

struct xrc_board_tgt *xrc_board_tgt_add(struct xrc_board *board, const struct xrc_tgt_key *key)
{
    struct layout *map = board->map;
    uint32_t i;
    if (map->free != 0 && map->free <= XRC_BOARD_TGTS) {
        i = map->free - 1;
        map->free = map->tgt[i].next;
    } else if (map->used < XRC_BOARD_TGTS) {
        i = map->used++;
    } else {
        return NULL;
    }
    struct xrc_board_tgt *t = &map->tgt[i];
    uint32_t *head = &map->bucket[bucket_of(key)];
    memset(t, 0, sizeof *t);
    t->key = *key;
    t->maker = board->slot + 1;
    t->next = *head;
    t->state = XRC_TGT_MAKING;
    *head = i + 1;
    return t;
}

void xrc_board_tgt_remove(struct xrc_board *board, struct xrc_board_tgt *tgt)
{
    struct layout *map = board->map;
    uint32_t self = xrc_board_tgt_index(board, tgt) + 1;
    uint32_t *link = &map->bucket[bucket_of(&tgt->key)];
    for (uint32_t steps = 0; *link != self && *link != 0 && *link <= XRC_BOARD_TGTS && steps < XRC_BOARD_TGTS;
         ++steps) {
        link = &map->tgt[*link - 1].next;
    }
    if (*link == self) {
        *link = tgt->next;
        tgt->state = XRC_TGT_NONE;
        tgt->next = map->free;
        map->free = self;
    }
}

unsigned xrc_board_keepers(struct xrc_board *board, struct xrc_board_tgt *tgt)
{
    unsigned live = 0;
    for (int k = 0; k < XRC_BOARD_KEEPERS; ++k) {
        if (tgt->keeper[k] == 0) {
            continue;
        }
        if (xrc_board_alive(board, tgt->keeper[k] - 1)) {
            ++live;
        } else {
            tgt->keeper[k] = 0;
        }
    }
    return live;
}

static bool is_leaving(const struct xrc_board *board, uint32_t slot)
{
    return slot < XRC_BOARD_RANKS && board->map->rank[slot].state == RANK_LEAVING;
}

unsigned xrc_board_staying_keepers(struct xrc_board *board, struct xrc_board_tgt *tgt)
{
    unsigned n = 0;
    (void) xrc_board_keepers(board, tgt);
    for (int k = 0; k < XRC_BOARD_KEEPERS; ++k) {
        n += tgt->keeper[k] != 0 && tgt->keeper[k] != board->slot + 1 && !is_leaving(board, tgt->keeper[k] - 1);
    }
    return n;
}

bool xrc_board_keep(struct xrc_board *board, struct xrc_board_tgt *tgt)
{
    if (keeps(tgt, board->slot)) {
        return true;
    }
    (void) xrc_board_keepers(board, tgt);
    for (int k = 0; k < XRC_BOARD_KEEPERS; ++k) {
        if (tgt->keeper[k] == 0 || is_leaving(board, tgt->keeper[k] - 1)) {
            tgt->keeper[k] = board->slot + 1;
            return true;
        }
    }
    return false;
}

void xrc_board_unkeep(struct xrc_board *board, struct xrc_board_tgt *tgt)
{
    for (int k = 0; k < XRC_BOARD_KEEPERS; ++k) {
        if (tgt->keeper[k] == board->slot + 1) {
            tgt->keeper[k] = 0;
        }
    }
}

bool xrc_board_orphaned(struct xrc_board *board, struct xrc_board_tgt *tgt)
{
    bool made = tgt->state == XRC_TGT_READY;
    bool maker_lives = tgt->maker != 0 && xrc_board_alive(board, tgt->maker - 1);
    return made ? xrc_board_keepers(board, tgt) == 0 : !maker_lives;
}

bool xrc_board_quit(struct xrc_board *board, struct xrc_board_tgt *tgt)
{
    xrc_board_unkeep(board, tgt);
    bool last = xrc_board_orphaned(board, tgt);
    if (last) {
        xrc_board_tgt_remove(board, tgt);
    }
    return last;
}

uint32_t xrc_board_tgt_count(struct xrc_board *board)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < board->map->used && i < XRC_BOARD_TGTS; ++i) {
        n += xrc_board_state(&board->map->tgt[i]) != XRC_TGT_NONE;
    }
    return n;
}
