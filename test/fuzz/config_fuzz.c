/* What comes in through environment variables: topologies and knobs. Whatever the text, the answer is 0 or EINVAL, and only 0 changes
 * anything. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/faults.h"
#include "fabric/topology.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_topology(const char *text)
{
	struct vs_topology t = { .devices = 77, .ports = 77, .lmc = 77, .atomics = 77 };
	int err = vs_topology_parse(text, &t);

	if (err ? err != EINVAL || t.devices != 77 || t.ports != 77 || t.lmc != 77 || t.atomics != 77 :
		  t.devices > VS_MAX_HCAS || t.ports < 1 || t.ports > VS_MAX_PORTS || t.lmc > 7 || t.atomics > VS_ATOMICS_GLOB)
		abort();
}

static void check_knobs(const char *text)
{
	struct vs_knobs before = vs_seg->knobs, *now = &vs_seg->knobs;
	int err = vs_knobs_set(text);

	if (err ? err != EINVAL || memcmp(&before, now, sizeof(before)) :
		  now->tgt_exit > VS_TGT_ORPHAN || now->tgt_events > VS_EVENTS_CREATOR || now->bad_srqn > VS_SRQN_DROP ||
		  now->src_qp > VS_SRC_QP_MLX4)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	if (!vs_seg)
		vs_seg = calloc(1, sizeof(*vs_seg));
	memcpy(text, data, size);
	text[size] = '\0';
	check_topology(text);
	check_knobs(text);
	free(text);
	return 0;
}
