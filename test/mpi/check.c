/* SPDX-License-Identifier: BSD-3-Clause */
/* What the data checkers share: options, running parts, judging and reporting.
 * Plain MPI: they judge any transport. Exit status: 0 all right, 1 wrong data, 2 wrong use, 3 stuck, 77 not possible here. */
#include "buffer.h"
#include "check.h"
#include "sizes.h"
#include "stuck.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
    const char *parts;
    const char *limits;
    const char *hold;
    unsigned timeout;
    double seconds;
};

uint64_t check_key(const struct check *c, int from, int to, uint64_t serial)
{
    return mix64(c->seed ^ mix64(((uint64_t) from << 40) ^ ((uint64_t) to << 20) ^ mix64(serial)));
}

uint64_t check_random(const struct check *c, uint64_t serial, uint64_t salt, uint64_t bound)
{
    return mix64(c->seed + mix64(serial * 1024 + salt)) % bound;
}

void check_error(struct check *c, const char *format, ...)
{
    enum { MOST_REPORTED = 5 };
    char text[512];
    va_list args;

    if (c->errors++ >= MOST_REPORTED)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "%s: rank %d: %s: %s\n", check_name, c->rank, c->part, text);
}

void check_received(struct check *c, const void *data, size_t len, int from, uint64_t serial)
{
    uint64_t key = check_key(c, from, c->rank, serial);
    size_t at = pattern_mismatch(data, len, key);

    if (at < len)
        check_error(c, "message %llu of %zu bytes from %d: byte %zu is %02x and should be %02x",
                    (unsigned long long) serial, len, from, at, ((const unsigned char *) data)[at],
                    pattern_byte(key, at));
    if (!buffer_guards_intact(data, len))
        check_error(c, "message %llu of %zu bytes from %d: bytes outside the buffer were written",
                    (unsigned long long) serial, len, from);
    c->messages++;
    c->bytes += len;
}

static bool chosen(const char *list, const char *name)
{
    size_t n = strlen(name);

    if (!list)
        return true;
    for (const char *at = list; (at = strstr(at, name)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == 0))
            return true;
    return false;
}

/* Returns the errors of all ranks. */
static uint64_t run_part(struct check *c, const struct part *part, unsigned timeout)
{
    uint64_t mine[3], all[3] = {0, 0, 0};

    c->part = part->name;
    c->messages = c->bytes = c->errors = 0;
    stuck_after(timeout, "%s: rank %d: stuck in part %s", check_name, c->rank, c->part);
    part->run(c);
    mine[0] = c->messages, mine[1] = c->bytes, mine[2] = c->errors;
    MPI_Allreduce(mine, all, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    alarm(0);
    if (c->rank == 0) {
        printf("%s %-10s %8llu messages %9.1f MiB  %s\n", all[2] ? "FAIL" : "PASS", part->name,
               (unsigned long long) all[0], (double) all[1] / (1 << 20), part->what);
        fflush(stdout);
    }
    /* A transport that is wrong may have summed up wrongly too. */
    return all[2] ? all[2] : c->errors;
}

static uint64_t run_parts(struct check *c, const struct options *options)
{
    uint64_t errors = 0;

    for (size_t i = 0; i < check_part_count; i++)
        if (chosen(options->parts, check_parts[i].name))
            errors += run_part(c, &check_parts[i], options->timeout);
    return errors;
}

/* Rank 0 looks at the clock for all. */
static bool time_left(double until)
{
    int left = MPI_Wtime() < until;

    MPI_Bcast(&left, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return left;
}

/* Whoever opens the FIFO for writing is kept waiting until all ranks are connected and idle, and keeps them so until
 * it closes it. */
static void hold(const struct check *c, const char *fifo)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (c->rank == 0) {
        char nothing[16];
        int in = open(fifo, O_RDONLY);

        if (in < 0)
            fprintf(stderr, "%s: --hold %s: %s\n", check_name, fifo, strerror(errno));
        while (in >= 0 && read(in, nothing, sizeof(nothing)) > 0)
            continue;
        close(in);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void usage(FILE *to)
{
    fprintf(to,
            "usage: mpirun ... %s [options]\n"
            "  --parts A,B    only these parts (default: all)\n"
            "  --max BYTES    largest message (default 8388608)\n"
            "  --limits A,B   further sizes around which to try all\n"
            "  --seed N       other data and sizes\n"
            "  --seconds S    again and again for S seconds\n"
            "  --timeout S    a part that takes longer is stuck (default 120)\n"
            "  --hold FIFO    at the end stand still while somebody has FIFO open for writing\n"
            "parts:\n",
            check_name);
    for (size_t i = 0; i < check_part_count; i++)
        fprintf(to, "  %-10s %s\n", check_parts[i].name, check_parts[i].what);
}

static bool number(const char *text, uint64_t most, uint64_t *value)
{
    char *end;

    errno = 0;
    *value = strtoull(text, &end, 0);
    return *text && !*end && *text != '-' && !errno && *value <= most;
}

/* Returns false on wrong use. */
static bool parse(int argc, char **argv, struct check *c, struct options *o)
{
    static const struct option known[] = {
        {"parts", required_argument, NULL, 'p'},   {"max", required_argument, NULL, 'm'},
        {"limits", required_argument, NULL, 'l'},  {"seed", required_argument, NULL, 's'},
        {"seconds", required_argument, NULL, 'S'}, {"timeout", required_argument, NULL, 't'},
        {"hold", required_argument, NULL, 'h'},    {NULL, 0, NULL, 0},
    };
    uint64_t value = 0;
    bool good = true;

    for (int option; good && (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'p': o->parts = optarg; break;
        case 'l': o->limits = optarg; break;
        case 'h': o->hold = optarg; break;
        case 'm': good = number(optarg, 1u << 30, &value), c->max = value; break;
        case 's': good = number(optarg, UINT64_MAX, &c->seed); break;
        case 'S': good = number(optarg, 1000000, &value), o->seconds = (double) value; break;
        case 't': good = number(optarg, 1000000, &value), o->timeout = (unsigned) value; break;
        default: good = false;
        }
    }
    return good && optind == argc;
}

int main(int argc, char **argv)
{
    struct check c = {.seed = 1, .max = 8 << 20, .part = "start"};
    struct options options = {.timeout = 120};
    uint64_t errors = 0;
    int level;

    MPI_Init_thread(&argc, &argv, check_threads, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &c.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c.ranks);
    if (!parse(argc, argv, &c, &options)) {
        if (c.rank == 0)
            usage(stderr);
        MPI_Finalize();
        return 2;
    }
    if (level < check_threads) {
        if (c.rank == 0)
            printf("%s: this MPI has no such thread level\n", check_name);
        MPI_Finalize();
        return 77;
    }
    stuck_after(options.timeout, "%s: rank %d: stuck in part %s", check_name, c.rank, c.part);
    c.sizes = sizes_to_try(c.max, options.limits);
    double until = MPI_Wtime() + options.seconds;
    do
        errors += run_parts(&c, &options);
    while (time_left(until));
    if (options.hold)
        hold(&c, options.hold);
    if (c.rank == 0)
        printf("%s: %d ranks, %zu sizes up to %zu bytes: %s\n", check_name, c.ranks, c.sizes.n, c.max,
               errors ? "FAILED" : "every byte is right");
    free(c.sizes.v);
    MPI_Finalize();
    return errors != 0;
}
