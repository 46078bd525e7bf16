/* SPDX-License-Identifier: BSD-3-Clause */
#include "buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

unsigned char *buffer_new(size_t len)
{
    unsigned char *raw = malloc(len + 2 * GUARD);
    if (!raw) {
        fprintf(stderr, "no memory for %zu bytes\n", len);
        exit(2);
    }
    buffer_guard(raw + GUARD, len);
    return raw + GUARD;
}

void buffer_free(void *data)
{
    if (data)
        free((unsigned char *) data - GUARD);
}

void buffer_guard(unsigned char *data, size_t len)
{
    memset(data - GUARD, GUARD_BYTE, GUARD);
    memset(data + len, GUARD_BYTE, GUARD);
}

bool buffer_guards_intact(const unsigned char *data, size_t len)
{
    for (size_t i = 0; i < GUARD; i++)
        if (data[len + i] != GUARD_BYTE || *(data - GUARD + i) != GUARD_BYTE)
            return false;
    return true;
}

/* The finaliser of splitmix64: every input bit reaches every output bit. */
uint64_t mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t pattern_word(uint64_t key, size_t index)
{
    return mix64(key + index);
}

void pattern_fill(void *data, size_t len, uint64_t key)
{
    unsigned char *to = data;
    size_t words = len / 8;

    for (size_t i = 0; i < words; i++) {
        uint64_t word = pattern_word(key, i);
        memcpy(to + 8 * i, &word, 8);
    }
    uint64_t last = pattern_word(key, words);
    memcpy(to + 8 * words, &last, len % 8);
}

unsigned char pattern_byte(uint64_t key, size_t at)
{
    uint64_t word = pattern_word(key, at / 8);
    unsigned char bytes[8];

    memcpy(bytes, &word, 8);
    return bytes[at % 8];
}

size_t pattern_mismatch(const void *data, size_t len, uint64_t key)
{
    const unsigned char *from = data;
    size_t at = 0;

    for (; at + 8 <= len; at += 8) {
        uint64_t word = pattern_word(key, at / 8);
        if (memcmp(from + at, &word, 8))
            break;
    }
    while (at < len && from[at] == pattern_byte(key, at))
        at++;
    return at;
}
