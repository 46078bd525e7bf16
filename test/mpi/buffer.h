/* SPDX-License-Identifier: BSD-3-Clause */
/* Message buffers with guards on both sides, and the content of messages. */
#ifndef MPI_CHECK_BUFFER_H
#define MPI_CHECK_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns room for len bytes between two guards; ends the program when there is no memory. */
unsigned char *buffer_new(size_t len);
void buffer_free(void *data);

/* Puts new guards around the first len bytes; the buffer must have room for them. */
void buffer_guard(unsigned char *data, size_t len);
bool buffer_guards_intact(const unsigned char *data, size_t len);

uint64_t mix64(uint64_t x);
void pattern_fill(void *data, size_t len, uint64_t key);
unsigned char pattern_byte(uint64_t key, size_t at);
/* Offset of the first wrong byte, or len. */
size_t pattern_mismatch(const void *data, size_t len, uint64_t key);

#endif
