/* SPDX-License-Identifier: BSD-3-Clause */
/* The data checkers: what their parts share. */
#ifndef MPI_CHECK_H
#define MPI_CHECK_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ascending, without duplicates. */
struct size_list {
    size_t *v;
    size_t n;
};

/* One run, seen from one rank. Every rank goes through the same parts with the same sizes, so `serial`, which
 * numbers the messages and makes each one's content its own, agrees everywhere without talking. */
struct check {
    int rank, ranks;
    uint64_t seed;
    size_t max;
    struct size_list sizes;
    const char *part;
    uint64_t serial;
    uint64_t messages, bytes, errors;
};

struct part {
    const char *name;
    const char *what;
    void (*run)(struct check *c);
};

/* What makes a checker of check.c: name, thread level, parts. */
extern const char check_name[];
extern const int check_threads;
extern const struct part check_parts[];
extern const size_t check_part_count;

void part_sizes(struct check *c);
void part_self(struct check *c);
void part_window(struct check *c);
void part_strided(struct check *c);
void part_pairs(struct check *c);
void part_probe(struct check *c);
void part_alltoall(struct check *c);
void part_allreduce(struct check *c);

/* Key of the content of one message. */
uint64_t check_key(const struct check *c, int from, int to, uint64_t serial);

/* A message of len bytes arrived in data (a guarded buffer, see buffer.h). Counts it, and reports what is wrong. */
void check_received(struct check *c, const void *data, size_t len, int from, uint64_t serial);
void check_error(struct check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A repeatable number below `bound`, the same on all ranks that ask with the same serial and salt. */
uint64_t check_random(const struct check *c, uint64_t serial, uint64_t salt, uint64_t bound);

#endif
