/* What the fuzzer of verbs sends and receives: a buffer for each WR, with a pattern in it that no other send has. */
#ifndef VERBS_PAYLOAD_H
#define VERBS_PAYLOAD_H

#include "verbs_model.h"

#define BUFFERS 256u /* more than an input posts WRs */
#define ROOM 10000u
#define BUFFER 10240u

static unsigned char memory[BUFFERS][BUFFER], fill[BUFFER];

/* In the completion, in the segment, and straight to where they belong. */
static uint32_t length_of(unsigned choice)
{
	static const uint32_t lengths[] = { 0, 1, 16, 17, 300, 9000, ROOM, 64 };

	return lengths[choice % 8];
}

static void write_pattern(unsigned char *to, uint64_t id, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		to[i] = (unsigned char)(id * 37 + i + (i >> 8) * 5);
}

static struct ibv_sge buffer(const struct pd *pd, uint64_t id, uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)memory[id % BUFFERS], length, pd->mr->lkey };
}

/* It holds what was sent, and nothing else was touched. */
static void check_buffer(uint64_t id, uint64_t from, uint32_t length)
{
	static unsigned char sent[BUFFER];
	const unsigned char *got = memory[id % BUFFERS];

	write_pattern(sent, from, length);
	CHECK(!memcmp(got, sent, length));
	CHECK(!memcmp(got + length, fill, BUFFER - length));
}

static void prepare_payloads(void)
{
	memset(fill, 0xa5, sizeof(fill));
}

#endif
