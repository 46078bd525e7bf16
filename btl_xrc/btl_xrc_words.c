/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_words.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST 63u

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static size_t length(const char *word)
{
    return strnlen(word, LONGEST);
}

static bool same(char a, char b)
{
    return tolower((unsigned char) a) == tolower((unsigned char) b);
}

static bool swapped(const char *a, const char *b)
{
    return same(a[0], b[1]) && same(a[1], b[0]);
}

/* Optimal string alignment: row i has the distances of the first i letters of a to each beginning of b. */
unsigned xrc_words_distance(const char *a, const char *b)
{
    unsigned rows[3][LONGEST + 1], *two_up = rows[0], *up = rows[1], *row = rows[2];
    size_t na = length(a), nb = length(b);
    for (unsigned j = 0; j <= nb; ++j) {
        up[j] = j;
    }
    for (unsigned i = 1; i <= na; ++i) {
        row[0] = i;
        for (unsigned j = 1; j <= nb; ++j) {
            row[j] = least(least(up[j], row[j - 1]) + 1, up[j - 1] + !same(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && swapped(&a[i - 2], &b[j - 2])) {
                row[j] = least(row[j], two_up[j - 2] + 1);
            }
        }
        unsigned *free_row = two_up;
        two_up = up;
        up = row;
        row = free_row;
    }
    return up[nb];
}

unsigned xrc_words_nearest(const char *given, const char *const *words, unsigned n)
{
    unsigned best = n, best_distance = UINT_MAX;
    for (unsigned i = 0; i < n; ++i) {
        unsigned distance = xrc_words_distance(given, words[i]);
        if (distance < best_distance) {
            best = i;
            best_distance = distance;
        }
    }
    return best;
}

bool xrc_words_alike(const char *a, const char *b)
{
    size_t na = length(a), nb = length(b);
    return xrc_words_distance(a, b) <= (na > nb ? na : nb) / 3;
}

/* What a letter behind a number stands for, as a shift; -1: nothing. */
static int suffix_shift(const char *suffix)
{
    if ('\0' == suffix[0]) {
        return 0;
    }
    if ('\0' != suffix[1]) {
        return -1;
    }
    switch (suffix[0]) {
    case 'k':
    case 'K': return 10;
    case 'm':
    case 'M': return 20;
    case 'g':
    case 'G': return 30;
    default: return -1;
    }
}

bool xrc_words_number(const char *text, const struct xrc_range *range, int *value)
{
    char *end;
    long long n = strtoll(text, &end, 0), scaled; /* the limit of its type when there are too many digits */
    int shift = end != text ? suffix_shift(end) : -1;
    if (shift < 0) {
        *value = range->initial;
        return false;
    }
    if (__builtin_mul_overflow(n, 1LL << shift, &scaled)) {
        scaled = n < 0 ? LLONG_MIN : LLONG_MAX;
    }
    *value = scaled < range->min ? range->min : scaled > range->max ? range->max : (int) scaled;
    return *value == scaled;
}

int xrc_words_range(char *buf, size_t size, const struct xrc_range *range)
{
    const char *space = '\0' != *range->unit ? " " : "";
    if (INT_MAX == range->max) {
        return snprintf(buf, size, "%d or more%s%s", range->min, space, range->unit);
    }
    return snprintf(buf, size, "%d to %d%s%s", range->min, range->max, space, range->unit);
}

void xrc_words_list(char *buf, size_t size, const char *const *words, unsigned n)
{
    size_t used = 0;
    buf[0] = '\0';
    for (unsigned i = 0; i < n && used < size; ++i) {
        const char *joint = 0 == i ? "" : i + 1 < n ? ", " : " or ";
        used += (size_t) snprintf(buf + used, size - used, "%s%s", joint, words[i]);
    }
}
