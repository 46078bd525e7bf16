/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What people write for parameters: numbers within a range, words of a list, and what is nearest to one that is wrong.
 * Plain C, so that it can be tested alone.
 */
#ifndef BTL_XRC_WORDS_H
#define BTL_XRC_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a number may be. */
struct xrc_range {
    int min;
    int max; /**< INT_MAX: no limit */
    int initial;
    const char *unit; /**< "" where it has none */
};

/**
 * Edit distance: letters put in, left out or replaced, and neighbours that have changed places, count one each; upper and
 * lower case are the same. Only the first 63 letters count.
 */
unsigned xrc_words_distance(const char *a, const char *b);

/** Index of the word nearest to @a given, the first of several; @a n when there are no words. */
unsigned xrc_words_nearest(const char *given, const char *const *words, unsigned n);

/** Is one likely to have been meant as the other? At most every third letter differs. */
bool xrc_words_alike(const char *a, const char *b);

/**
 * Read a number: decimal, 0x or 0, and k, m or g behind it for 2^10, 2^20, 2^30. False when @a text is none or is not
 * within @a range; *value is then the nearest that is, or the default.
 */
bool xrc_words_number(const char *text, const struct xrc_range *range, int *value);

/** "1 to 86400 seconds". As snprintf. */
int xrc_words_range(char *buf, size_t size, const struct xrc_range *range);

/** "off, ports or lmc". Cut off where @a buf ends. */
void xrc_words_list(char *buf, size_t size, const char *const *words, unsigned n);

#ifdef __cplusplus
}
#endif
#endif
