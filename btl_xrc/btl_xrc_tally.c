/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE
#endif
#include "btl_xrc_tally.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROW_MAGIC 0x32594c4c41545258ull

/* clang-format off */
const struct xrc_stat_info xrc_stat_info[XRC_STATS] = {
    [XRC_STAT_INI_MADE] = {"ini_made", "INI QPs made since the start", XRC_STAT_COUNTER},
    [XRC_STAT_INI] = {"ini_qps", "INI QPs there are", XRC_STAT_LEVEL},
    [XRC_STAT_TGT_MADE] = {"tgt_made", "TGT QPs made since the start", XRC_STAT_COUNTER},
    [XRC_STAT_TGT_OPENED] = {"tgt_opened", "TGT QPs of other ranks opened to keep them, since the start", XRC_STAT_COUNTER},
    [XRC_STAT_TGT] = {"tgt_handles", "TGT QPs this process holds, its own and those of others", XRC_STAT_LEVEL},
    [XRC_STAT_RECV_BYTES] = {"recv_bytes", "Registered receive buffers, bytes: rises as queues grow", XRC_STAT_LEVEL},
    [XRC_STAT_WIREUP_BYTES] = {"wireup_bytes", "Registered buffers of the wire-up queues, bytes", XRC_STAT_LEVEL},
    [XRC_STAT_CACHE_BYTES] = {"cache_bytes", "Send buffers and the application's memory, registered through the cache, "
                                             "bytes", XRC_STAT_LEVEL},
    [XRC_STAT_CACHE_MOST] = {"cache_bytes_most", "The most that cache_bytes has been", XRC_STAT_HIGH},
    [XRC_STAT_REGISTERED] = {"registered_bytes", "All memory that is registered, bytes", XRC_STAT_LEVEL},
    [XRC_STAT_WAITING] = {"waiting_sends", "Sends, puts, gets and atomics that wait for their turn", XRC_STAT_LEVEL},
    [XRC_STAT_WAITING_MOST] = {"waiting_sends_most", "The most that waiting_sends has been", XRC_STAT_HIGH},
    [XRC_STAT_SRQ_BUFFERS] = {"srq_buffers", "Receive buffers there are: a queue gets more when they run low", XRC_STAT_LEVEL},
    [XRC_STAT_SRQ_LOW] = {"srq_low_percent", "The fewest receive buffers that were left in a queue when some were posted "
                                             "again, percent; a message that this process has not looked at yet has "
                                             "taken none", XRC_STAT_LOW},
    [XRC_STAT_SRQ_LIMITS] = {"srq_limits", "Limit events of receive queues", XRC_STAT_COUNTER},
    [XRC_STAT_RNR] = {"rnr_waits", "Sends that found no receive buffer, by all users of the ports that are used; 0 where "
                                   "the HCA does not tell", XRC_STAT_SHARED},
    [XRC_STAT_RETRIES] = {"retries", "Packets sent again for want of an answer, by all users of the ports that are used; "
                                     "0 where the HCA does not tell", XRC_STAT_SHARED},
    [XRC_STAT_REQUESTS] = {"requests", "Connection requests sent, those sent again included", XRC_STAT_COUNTER},
    [XRC_STAT_RESENDS] = {"resends", "Connection requests sent again", XRC_STAT_COUNTER},
    [XRC_STAT_CONNECT_LAST] = {"connect_us", "How long the last connection took, microseconds", XRC_STAT_LEVEL},
    [XRC_STAT_CONNECT_MOST] = {"connect_us_most", "How long the slowest connection took, microseconds", XRC_STAT_HIGH},
    [XRC_STAT_MIGRATIONS] = {"migrations", "Times that an INI QP has moved to its alternate path", XRC_STAT_COUNTER},
    [XRC_STAT_ARMINGS] = {"armings", "Times that an INI QP has got an alternate path and was armed", XRC_STAT_COUNTER},
    [XRC_STAT_NOTICES] = {"notices", "Times that another host has said that its port has failed", XRC_STAT_COUNTER},
    [XRC_STAT_PORT_ERRORS] = {"port_errors", "Times that a port of an HCA in use has failed", XRC_STAT_COUNTER},
    [XRC_STAT_PUTS] = {"puts", "Puts", XRC_STAT_COUNTER},
    [XRC_STAT_GETS] = {"gets", "Gets", XRC_STAT_COUNTER},
    [XRC_STAT_ATOMICS] = {"atomics", "Atomics", XRC_STAT_COUNTER},
    [XRC_STAT_BLIND] = {"atomics_blind", "Of the atomics those whose old value nobody wanted", XRC_STAT_COUNTER},
    [XRC_STAT_BOUNCED] = {"bounced", "Puts, gets and atomics that went through buffers, as their memory could not be "
                                     "registered", XRC_STAT_COUNTER},
    [XRC_STAT_DROPPED] = {"dropped", "Messages and fragments that were not for this process, or not to be understood",
                          XRC_STAT_COUNTER},
};
/* clang-format on */

/* ---- the file ---- */

static int set_lock(int fd, int how, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    int rc;
    do {
        rc = fcntl(fd, how, &lock);
    } while (rc != 0 && errno == EINTR);
    return rc;
}

/* Links in the directory; -1: not a plain file of ours. */
static int links(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 07177) != 0
        || st.st_nlink > 1) {
        return -1;
    }
    return (int) st.st_nlink;
}

static bool write_row(int fd, struct xrc_tally_row *row)
{
    row->magic = ROW_MAGIC;
    return write(fd, row, sizeof *row) == (ssize_t) sizeof *row;
}

/* A descriptor that is locked; -1: cannot be had; -2: it was removed meanwhile. */
static int open_once(const char *path)
{
    int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0) {
        return -1;
    }
    int n = -1, err = EPERM;
    if (set_lock(fd, F_SETLKW, F_RDLCK) == 0) {
        n = links(fd);
    } else {
        err = errno;
    }
    if (n != 1) {
        close(fd);
        errno = err;
        return n == 0 ? -2 : -1;
    }
    return fd;
}

int xrc_tally_join(const char *path, uint32_t rank)
{
    int fd;
    do {
        fd = open_once(path);
    } while (fd == -2);
    struct xrc_tally_row row = {.rank = rank};
    if (fd >= 0 && !write_row(fd, &row)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void read_all(int fd, struct xrc_tally *sum)
{
    struct xrc_tally_row row;
    for (off_t at = 0; pread(fd, &row, sizeof row, at) == (ssize_t) sizeof row; at += (off_t) sizeof row) {
        xrc_tally_add(sum, &row);
    }
}

static bool has_rows(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_size > 0;
}

/*
 * All add their rows before they let go, so whoever gets the lock alone finds all of them. It may be nobody's at the
 * first try of the last two; then both have let go, and one finds the file emptied by the other. That the file is no
 * longer in its directory says nothing: a rank that ends first clears away the job's directory with all that is in it.
 */
bool xrc_tally_leave(int fd, const char *path, struct xrc_tally_row *row, struct xrc_tally *sum)
{
    row->ended = 1;
    (void) write_row(fd, row); /* without it, this rank has ended without a word */
    set_lock(fd, F_SETLK, F_UNLCK);
    bool last = set_lock(fd, F_SETLK, F_WRLCK) == 0 && links(fd) >= 0 && has_rows(fd);
    if (last) {
        memset(sum, 0, sizeof *sum);
        read_all(fd, sum);
        last = ftruncate(fd, 0) == 0;
        unlink(path);
    }
    close(fd);
    return last;
}

/* ---- adding up ---- */

static uint64_t merged(enum xrc_stat_kind kind, uint64_t sum, uint64_t value, bool first)
{
    switch (kind) {
    case XRC_STAT_COUNTER:
    case XRC_STAT_LEVEL: return sum + value;
    case XRC_STAT_HIGH:
    case XRC_STAT_SHARED: return value > sum ? value : sum;
    case XRC_STAT_LOW: return first || value < sum ? value : sum;
    }
    return sum;
}

static struct xrc_tally_sum_rail *rail_of(struct xrc_tally *sum, const struct xrc_tally_rail *rail)
{
    for (unsigned i = 0; i < sum->nrails; ++i) {
        const struct xrc_tally_rail *at = &sum->rail[i].at;
        if (at->port == rail->port && at->lid == rail->lid && strcmp(at->device, rail->device) == 0) {
            return &sum->rail[i];
        }
    }
    if (sum->nrails == sizeof(sum->rail) / sizeof(sum->rail[0])) {
        return NULL;
    }
    struct xrc_tally_sum_rail *fresh = &sum->rail[sum->nrails++];
    memcpy(fresh->at.device, rail->device, sizeof fresh->at.device);
    fresh->at.port = rail->port;
    fresh->at.lid = rail->lid;
    return fresh;
}

/* Ranks of a host see a rail's other ends alike: what finds no room comes from a row that makes no sense. */
static void add_moved(struct xrc_moved *sum, const struct xrc_moved *moved)
{
    for (unsigned i = 0; i < XRC_MAX_SIDES && 0 != moved->inis; ++i) {
        if (sum[i].inis == 0 || (sum[i].port == moved->port && sum[i].lid == moved->lid)) {
            sum[i] = (struct xrc_moved){moved->port, moved->lid, sum[i].inis + moved->inis};
            return;
        }
    }
}

static void keep_most(uint32_t *most, uint32_t value)
{
    *most = value > *most ? value : *most;
}

static void add_rail(struct xrc_tally *sum, const struct xrc_tally_rail *written)
{
    struct xrc_tally_rail rail = *written;
    rail.device[sizeof rail.device - 1] = '\0';
    struct xrc_tally_sum_rail *all = rail_of(sum, &rail);
    if (all == NULL) {
        return;
    }
    ++all->ranks;
    all->own_ranks += rail.own_peers > 0;
    all->pairs += rail.peers + rail.own_peers;
    all->wanted += rail.domains + (rail.own_peers > 0);
    all->at.inis += rail.inis;
    for (unsigned i = 0; i < XRC_MAX_SIDES; ++i) {
        add_moved(all->at.moved, &rail.moved[i]);
    }
    keep_most(&all->at.domains, rail.domains);
    keep_most(&all->at.peers, rail.peers);
    keep_most(&all->at.own_peers, rail.own_peers);
}

void xrc_tally_add(struct xrc_tally *sum, const struct xrc_tally_row *row)
{
    if (row->magic != ROW_MAGIC || row->nrails > XRC_MAX_MODULES) {
        return;
    }
    if (!row->ended) {
        ++sum->joined;
        return;
    }
    for (unsigned i = 0; i < XRC_STATS; ++i) {
        sum->stat[i] = merged(xrc_stat_info[i].kind, sum->stat[i], row->stat[i], sum->ended == 0);
    }
    sum->recv_formula += row->recv_formula;
    sum->recv_start += row->recv_start;
    for (unsigned i = 0; i < row->nrails; ++i) {
        add_rail(sum, &row->rail[i]);
    }
    ++sum->ended;
}

/* ---- the report ---- */

static void say_queue_pairs(FILE *out, const struct xrc_tally *sum)
{
    unsigned ini = 0, tgt = 0, rc = 0;
    for (unsigned i = 0; i < sum->nrails; ++i) {
        ini += sum->rail[i].wanted;
        tgt += sum->rail[i].at.peers + sum->rail[i].own_ranks;
        rc += sum->rail[i].pairs;
    }
    fprintf(out, "  queue pairs         formula       made\n");
    fprintf(out, "    INI            %10u %10" PRIu64 "   each rank: one for each domain it reaches\n", ini,
            sum->stat[XRC_STAT_INI_MADE]);
    fprintf(out, "    TGT            %10u %10" PRIu64 "   one for each rank that reaches this host\n", tgt,
            sum->stat[XRC_STAT_TGT_MADE]);
    fprintf(out, "    second handles %10u %10" PRIu64 "   two ranks hold each TGT\n", sum->ended > 1 ? tgt : 0,
            sum->stat[XRC_STAT_TGT_OPENED]);
    fprintf(out, "    RC instead     %10u          -   each rank: one for each rank it reaches\n", rc);
}

static void say_memory(FILE *out, const struct xrc_tally *sum)
{
    fprintf(out, "  registered KiB      formula       made\n");
    fprintf(out,
            "    receive buffers%10" PRIu64 " %10" PRIu64
            "   receive_queues: (size + 16) * num at most, each rank and rail\n",
            sum->recv_formula >> 10, sum->stat[XRC_STAT_RECV_BYTES] >> 10);
    fprintf(out, "      at the start %10" PRIu64 "          -   with init of num\n", sum->recv_start >> 10);
    fprintf(out, "    wire-up                 - %10" PRIu64 "\n", sum->stat[XRC_STAT_WIREUP_BYTES] >> 10);
    fprintf(out, "    all else                - %10" PRIu64 "   send buffers, the application's: the most a rank had\n",
            sum->stat[XRC_STAT_CACHE_MOST] >> 10);
}

static void say_rails(FILE *out, const struct xrc_tally *sum)
{
    fprintf(out, "  rails                             ranks  remote domains  peers there  local peers    INI\n");
    for (unsigned i = 0; i < sum->nrails; ++i) {
        const struct xrc_tally_sum_rail *r = &sum->rail[i];
        char name[48];
        snprintf(name, sizeof name, "%.24s port %u LID %u", r->at.device, r->at.port, r->at.lid);
        fprintf(out, "    %-32s %4u %15u %12u %12u %6u\n", name, r->ranks, r->at.domains, r->at.peers, r->at.own_peers,
                r->at.inis);
        for (unsigned k = 0; k < XRC_MAX_SIDES && r->at.moved[k].inis > 0; ++k) {
            snprintf(name, sizeof name, "now at port %u LID %u", r->at.moved[k].port, r->at.moved[k].lid);
            fprintf(out, "      %-72s %6u\n", name, r->at.moved[k].inis);
        }
    }
}

static void say_events(FILE *out, const struct xrc_tally *sum)
{
    static const enum xrc_stat counts[] = {
        XRC_STAT_PUTS,       XRC_STAT_GETS,         XRC_STAT_ATOMICS,      XRC_STAT_BOUNCED,     XRC_STAT_REQUESTS,
        XRC_STAT_RESENDS,    XRC_STAT_CONNECT_MOST, XRC_STAT_RNR,          XRC_STAT_RETRIES,     XRC_STAT_SRQ_LIMITS,
        XRC_STAT_SRQ_LOW,    XRC_STAT_DROPPED,      XRC_STAT_WAITING_MOST, XRC_STAT_PORT_ERRORS, XRC_STAT_ARMINGS,
        XRC_STAT_MIGRATIONS, XRC_STAT_NOTICES};
    const unsigned n = sizeof(counts) / sizeof(counts[0]);
    fprintf(out, "  events, named as performance variables: btl_xrc_...\n");
    for (unsigned i = 0; i < n; ++i) {
        fprintf(out, "%s%-18s %8" PRIu64 "%s", i % 3 == 0 ? "    " : "", xrc_stat_info[counts[i]].name,
                sum->stat[counts[i]], i % 3 == 2 || i + 1 == n ? "\n" : "   ");
    }
}

char *xrc_tally_text(const struct xrc_tally *sum, const char *host)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        return NULL;
    }
    fprintf(out, "btl xrc: report of host %s, %u rank%s", host, sum->ended, sum->ended == 1 ? "" : "s");
    if (sum->joined > sum->ended) {
        fprintf(out, "; %u ended without a word", sum->joined - sum->ended);
    }
    fprintf(out, "\n");
    say_queue_pairs(out, sum);
    say_memory(out, sum);
    say_rails(out, sum);
    say_events(out, sum);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
