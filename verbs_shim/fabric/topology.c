#include "fabric/topology.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "memory/layout.h"

static const char *const atomics_words[] = { [VS_ATOMICS_HCA] = "hca", [VS_ATOMICS_GLOB] = "glob" };

static const struct {
	const char *key;
	size_t offset;
	uint32_t min, max;
	const char *const *words; /* in place of numbers; max of them is the last */
} keys[] = {
	{ "devices=", offsetof(struct vs_topology, devices), 0, VS_MAX_HCAS, NULL },
	{ "ports=", offsetof(struct vs_topology, ports), 1, VS_MAX_PORTS, NULL },
	{ "lmc=", offsetof(struct vs_topology, lmc), 0, 7, NULL },
	{ "subnets=", offsetof(struct vs_topology, subnets), 1, VS_MAX_SUBNETS, NULL },
	{ "prefixes=", offsetof(struct vs_topology, prefixes), 0, VS_MAX_SUBNETS, NULL },
	{ "numa=", offsetof(struct vs_topology, numa), 0, VS_MAX_HCAS, NULL },
	{ "max_msg=", offsetof(struct vs_topology, max_msg), VS_MIN_MSG, VS_MAX_MSG, NULL },
	{ "roce=", offsetof(struct vs_topology, roce), 0, 1, NULL },
	{ "atomics=", offsetof(struct vs_topology, atomics), VS_ATOMICS_HCA, VS_ATOMICS_GLOB, atomics_words },
};

#define NUM_KEYS (sizeof(keys) / sizeof(keys[0]))

static int find_key(const char *text)
{
	for (size_t k = 0; k < NUM_KEYS; k++)
		if (!strncmp(text, keys[k].key, strlen(keys[k].key)))
			return (int)k;
	return -1;
}

/* The number at *text, which moves behind it. false: none. */
static bool read_number(const char **text, unsigned long *value)
{
	char *end;

	if (!isdigit((unsigned char)**text))
		return false;
	*value = strtoul(*text, &end, 10);
	*text = end;
	return true;
}

/* The same for one of key k's words. */
static bool read_word(const char **text, int k, unsigned long *value)
{
	size_t length = strcspn(*text, ",");

	for (*value = keys[k].min; *value <= keys[k].max; ++*value) {
		const char *word = keys[k].words[*value];

		if (strlen(word) == length && !strncmp(*text, word, length)) {
			*text += length;
			return true;
		}
	}
	return false;
}

int vs_topology_parse(const char *text, struct vs_topology *out)
{
	struct vs_topology t = { .devices = 1, .ports = 1, .subnets = 1, .max_msg = VS_MAX_MSG };
	unsigned seen = 0;

	while (text && *text) {
		int k = find_key(text);
		unsigned long value = 0;

		if (k < 0 || seen & 1u << k)
			return EINVAL;
		seen |= 1u << k;
		text += strlen(keys[k].key);
		if (keys[k].words ? !read_word(&text, k, &value) : !read_number(&text, &value))
			return EINVAL;
		if (value < keys[k].min || value > keys[k].max)
			return EINVAL;
		*(uint32_t *)((char *)&t + keys[k].offset) = (uint32_t)value;
		if (*text == ',' && text[1])
			text++;
		else if (*text)
			return EINVAL;
	}
	if (t.roce && t.lmc)
		return EINVAL;
	*out = t;
	return 0;
}
