#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "tools/report.h"
#include "tools/tool.h"

static const struct {
	const char *name;
	size_t offset;
} counters[] = {
#define COUNTER(name) { #name, offsetof(struct vs_counters, name) }
	COUNTER(unknown_srqn), COUNTER(rnr_sent),   COUNTER(rnr_received), COUNTER(naks_sent),
	COUNTER(retries),      COUNTER(migrations), COUNTER(duplicates),   COUNTER(dropped),
#undef COUNTER
};

#define NUM_COUNTERS (sizeof(counters) / sizeof(counters[0]))

static void add_counters(cJSON *tree, const struct vs_counters *c)
{
	for (size_t i = 0; i < NUM_COUNTERS; i++)
		cJSON_AddNumberToObject(tree, counters[i].name, (double)vs_load((const uint64_t *)(const void *)((const char *)c + counters[i].offset)));
}

static bool any(const struct vs_counters *c)
{
	static const struct vs_counters none;

	return memcmp(c, &none, sizeof(none)) != 0;
}

static const char *link_of(const struct vs_port_shm *port)
{
	if (!vs_hca_there(vs_fabric_hca(port->hca)))
		return "unplugged";
	return vs_load(&port->state) == IBV_PORT_ACTIVE ? "up" : "down";
}

static void add_ports(cJSON *ports)
{
	struct vs_port_shm *port;
	uint32_t index;

	vs_for_each_live (VS_PORT, index, port) {
		cJSON *tree = cJSON_CreateObject();

		cJSON_AddStringToObject(tree, "port", vshim_port_name(index));
		cJSON_AddNumberToObject(tree, "lid", port->lid);
		cJSON_AddNumberToObject(tree, "lmc", port->lmc);
		cJSON_AddStringToObject(tree, "link", link_of(port));
		add_counters(tree, &port->counters);
		cJSON_AddItemToArray(ports, tree);
	}
}

static void add_qps(cJSON *qps)
{
	struct vs_qp_shm *qp;
	uint32_t index;

	vs_for_each_live (VS_QP, index, qp) {
		cJSON *tree;
		char number[16];

		if (!any(&qp->counters))
			continue;
		tree = cJSON_CreateObject();
		snprintf(number, sizeof(number), "0x%06x", vs_slot_id(VS_QP, index));
		cJSON_AddStringToObject(tree, "qpn", number);
		add_counters(tree, &qp->counters);
		cJSON_AddItemToArray(qps, tree);
	}
}

static void print_row(const char *name, const cJSON *tree)
{
	printf("%s", name);
	for (size_t i = 0; i < NUM_COUNTERS; i++) {
		double n = cJSON_GetObjectItem(tree, counters[i].name)->valuedouble;

		if (n > 0)
			printf("  %s %.0f", counters[i].name, n);
	}
	putchar('\n');
}

static int print_text(const cJSON *tree, bool printed)
{
	const cJSON *row;
	char name[192];

	if (printed)
		return 0;
	cJSON_ArrayForEach (row, cJSON_GetObjectItem(tree, "ports")) {
		snprintf(name, sizeof(name), "%-24s LID %-5d LMC %d  link %-4s", cJSON_GetObjectItem(row, "port")->valuestring,
			 cJSON_GetObjectItem(row, "lid")->valueint, cJSON_GetObjectItem(row, "lmc")->valueint,
			 cJSON_GetObjectItem(row, "link")->valuestring);
		print_row(name, row);
	}
	cJSON_ArrayForEach (row, cJSON_GetObjectItem(tree, "qps")) {
		snprintf(name, sizeof(name), "QP %s", cJSON_GetObjectItem(row, "qpn")->valuestring);
		print_row(name, row);
	}
	return 0;
}

static cJSON *counter_tree(bool there)
{
	cJSON *tree = cJSON_CreateObject(), *ports = cJSON_AddArrayToObject(tree, "ports"), *qps = cJSON_AddArrayToObject(tree, "qps");

	if (there) {
		add_ports(ports);
		add_qps(qps);
	}
	return tree;
}

int vshim_counters(int argc, char **argv)
{
	return vshim_report(argc, argv, counter_tree, print_text);
}
