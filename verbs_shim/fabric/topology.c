#include "fabric/topology.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "memory/layout.h"

static const struct {
	const char *key;
	size_t offset;
	uint32_t min, max;
} keys[] = {
	{ "devices=", offsetof(struct vs_topology, devices), 0, VS_MAX_HCAS },
	{ "ports=", offsetof(struct vs_topology, ports), 1, VS_MAX_PORTS },
	{ "lmc=", offsetof(struct vs_topology, lmc), 0, 7 },
	{ "subnets=", offsetof(struct vs_topology, subnets), 1, VS_MAX_SUBNETS },
	{ "prefixes=", offsetof(struct vs_topology, prefixes), 0, VS_MAX_SUBNETS },
	{ "numa=", offsetof(struct vs_topology, numa), 0, VS_MAX_HCAS },
	{ "max_msg=", offsetof(struct vs_topology, max_msg), VS_MIN_MSG, VS_MAX_MSG },
	{ "roce=", offsetof(struct vs_topology, roce), 0, 1 },
};

#define NUM_KEYS (sizeof(keys) / sizeof(keys[0]))

static int find_key(const char *text)
{
	for (size_t k = 0; k < NUM_KEYS; k++)
		if (!strncmp(text, keys[k].key, strlen(keys[k].key)))
			return (int)k;
	return -1;
}

int vs_topology_parse(const char *text, struct vs_topology *out)
{
	struct vs_topology t = { .devices = 1, .ports = 1, .subnets = 1, .max_msg = VS_MAX_MSG };
	unsigned seen = 0;

	while (text && *text) {
		int k = find_key(text);
		unsigned long value;
		char *end;

		if (k < 0 || seen & 1u << k)
			return EINVAL;
		seen |= 1u << k;
		text += strlen(keys[k].key);
		if (!isdigit((unsigned char)*text))
			return EINVAL;
		value = strtoul(text, &end, 10);
		if (value < keys[k].min || value > keys[k].max)
			return EINVAL;
		*(uint32_t *)((char *)&t + keys[k].offset) = (uint32_t)value;
		text = end;
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
