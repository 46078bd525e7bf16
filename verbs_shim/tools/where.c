#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fabric/fabric.h"
#include "tools/answer.h"
#include "tools/tool.h"

int vshim_host(const char *name)
{
	struct vs_host_shm *host;
	uint32_t index;

	vs_for_each_live (VS_HOST, index, host)
		if (!strncmp(host->name, name, sizeof(host->name))) {
			vshim_answer_about("hosts", name);
			return (int)index;
		}
	vshim_refuse(ENOENT, "no host '%s' (see vshim list)", name);
	return -1;
}

const char *vshim_text(const char *name, size_t size)
{
	static char text[2][65];
	static unsigned turn;
	char *to = text[turn++ % 2];

	snprintf(to, sizeof(text[0]), "%.*s", (int)size, name);
	return to;
}

static const char *device_name(const struct vs_hca_shm *hca, char *name, size_t size)
{
	const struct vs_host_shm *host = hca ? vs_slot_at(VS_HOST, hca->host) : NULL;

	if (host)
		snprintf(name, size, "%s/vshim%u", vshim_text(host->name, sizeof(host->name)), hca->index);
	else
		snprintf(name, size, "?");
	return name;
}

const char *vshim_port_name(uint32_t port_index)
{
	static char name[128];
	const struct vs_port_shm *port = vs_slot_at(VS_PORT, port_index);
	const struct vs_hca_shm *hca = vs_fabric_hca(port->hca);
	char device[96];

	snprintf(name, sizeof(name), "%s/%u", device_name(hca, device, sizeof(device)), port->num);
	return name;
}

/* Is name the same as text, or does it go on with a slash after it? */
static bool names(const char *text, const char *name)
{
	size_t n = strlen(text);

	return !strcmp(text, "all") || (!strncmp(name, text, n) && (name[n] == '\0' || name[n] == '/'));
}

unsigned vshim_each_port(const char *text, void (*f)(uint32_t port_index, void *arg), void *arg)
{
	struct vs_port_shm *port;
	uint32_t index;
	unsigned n = 0;

	vs_for_each_live (VS_PORT, index, port) {
		if (!names(text, vshim_port_name(index)) || !vs_hca_there(vs_fabric_hca(port->hca)))
			continue;
		vshim_answer_about("ports", vshim_port_name(index));
		f(index, arg);
		n++;
	}
	if (n == 0)
		vshim_refuse(ENOENT, "no port '%s'; name one as HOST/DEV/PORT, or HOST/DEV, HOST, all (see vshim counters)", text);
	return n;
}

unsigned vshim_each_hca(const char *text, void (*f)(struct vs_hca_shm *hca))
{
	struct vs_hca_shm *hca;
	uint32_t index;
	unsigned n = 0;

	vs_for_each_live (VS_HCA, index, hca) {
		char name[96];

		if (!names(text, device_name(hca, name, sizeof(name))))
			continue;
		vshim_answer_about("devices", name);
		f(hca);
		n++;
	}
	if (n == 0)
		vshim_refuse(ENOENT, "no HCA '%s'; name one as HOST/DEV, or HOST, all", text);
	return n;
}
