#include "fabric/fabric.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "fabric/faults.h"
#include "fabric/topology.h"

#define GUID_BASE UINT64_C(0x0256534800000000) /* locally administered */
#define DEFAULT_PREFIX UINT64_C(0xfe80000000000000)
#define DEFAULT_PKEY 0xffff

static int my_host_name(char name[64])
{
	const char *env = getenv("VERBS_SHIM_HOST");
	struct utsname uts;
	size_t len;

	if (!env || !env[0]) {
		if (uname(&uts))
			return errno;
		env = uts.nodename;
	}
	len = strlen(env);
	if (len == 0 || len > 63)
		return EINVAL;
	memcpy(name, env, len + 1);
	return 0;
}

static int find_host(const char *name)
{
	struct vs_host_shm *host;
	uint32_t index;

	vs_for_each_live (VS_HOST, index, host)
		if (!strncmp(host->name, name, sizeof(host->name)))
			return (int)index;
	return -1;
}

/* ---- making a host: its HCAs and ports belong to the maker until the host is published ---- */

/* They lead to the port before it has them, and are looked up only once it has. */
static int take_lids(struct vs_port_shm *port, uint32_t port_index, uint32_t lmc)
{
	uint32_t n = 1u << lmc, lid = (vs_seg->next_lid + n) & ~(n - 1);
	struct vs_port_shm now = { .lid = (uint16_t)lid, .num = port->num, .lmc = (uint8_t)lmc };

	if (lid + n > VS_LID_LIMIT)
		return ENOMEM;
	vs_seg->next_lid = lid + n - 1;
	for (uint32_t i = 0; i < n; i++)
		vs_store(&vs_seg->lid_port[lid + i], (uint16_t)(port_index + 1));
	VS_POINT(lids_taken);
	vs_store(&port->lid_word, now.lid_word);
	return 0;
}

static uint32_t in_turn(uint32_t i, uint32_t n)
{
	return n ? i % n : 0;
}

static int make_port(struct vs_hca_shm *hca, uint32_t hca_index, uint32_t num)
{
	struct vs_port_shm *port;
	uint32_t index;
	int err = vs_slot_alloc(VS_PORT, vs_me_id, &index);

	if (err)
		return err;
	port = vs_slot_at(VS_PORT, index);
	port->hca = hca_index;
	port->num = (uint8_t)num;
	port->subnet = in_turn((uint32_t)hca->index * hca->num_ports + num - 1, vs_load(&vs_seg->topology_subnets));
	port->prefix = DEFAULT_PREFIX + in_turn(port->subnet, vs_load(&vs_seg->topology_prefixes));
	port->ethernet = vs_load(&vs_seg->topology_roce) != 0;
	port->guid = hca->guid + num;
	port->pkey[0] = DEFAULT_PKEY;
	port->state = IBV_PORT_ACTIVE;
	err = take_lids(port, index, vs_seg->topology_lmc);
	if (err)
		return err;
	hca->port[num - 1] = index;
	vs_slot_publish(VS_PORT, index);
	return 0;
}

static int make_hca(struct vs_host_shm *host, uint32_t host_index, uint32_t nth)
{
	struct vs_hca_shm *hca;
	uint32_t index;
	int err = vs_slot_alloc(VS_HCA, vs_me_id, &index);

	if (err)
		return err;
	hca = vs_slot_at(VS_HCA, index);
	hca->host = host_index;
	hca->index = nth;
	hca->guid = GUID_BASE + ((uint64_t)(host_index + 1) << 16) + ((uint64_t)(nth + 1) << 8);
	hca->num_ports = vs_seg->topology_ports;
	for (uint32_t p = 1; !err && p <= hca->num_ports; p++)
		err = make_port(hca, index, p);
	if (err)
		return err;
	host->hca[nth] = index;
	vs_slot_publish(VS_HCA, index);
	return 0;
}

static int make_host(const char *name, uint32_t *index)
{
	struct vs_host_shm *host;
	int err = vs_slot_alloc(VS_HOST, vs_me_id, index);

	if (err)
		return err;
	host = vs_slot_at(VS_HOST, *index);
	strcpy(host->name, name);
	for (uint32_t i = 0; !err && i < vs_seg->topology_devices; i++)
		err = make_hca(host, *index, i);
	host->num_hcas = vs_seg->topology_devices;
	VS_POINT(host_made);
	if (!err)
		vs_slot_publish(VS_HOST, *index);
	VS_POINT(host_published);
	vs_fabric_reap(vs_me_id); /* hands them to the fabric, or frees them after a failure */
	return err;
}

/* The first process of a segment decides its topology. */
int vs_fabric_set_topology(void)
{
	struct vs_topology t;
	int err;

	if (vs_seg->topology_devices > VS_MAX_HCAS || vs_seg->topology_ports > VS_MAX_PORTS || vs_seg->topology_lmc > 7)
		return EPROTO; /* nobody of ours wrote that */
	if (vs_seg->topology_ports)
		return 0;
	err = vs_topology_parse(getenv("VERBS_SHIM_TOPOLOGY"), &t);
	if (err)
		return err;
	err = vs_knobs_set(getenv("VERBS_SHIM_KNOBS"));
	if (err)
		return err;
	vs_seg->topology_devices = t.devices;
	vs_seg->topology_lmc = t.lmc;
	vs_seg->topology_subnets = t.subnets;
	vs_seg->topology_prefixes = t.prefixes ? t.prefixes : t.subnets;
	vs_seg->topology_numa = t.numa;
	vs_store(&vs_seg->topology_roce, t.roce);
	vs_store(&vs_seg->topology_atomics, t.atomics);
	vs_store(&vs_seg->topology_max_msg, t.max_msg);
	VS_POINT(topology_set);
	vs_store(&vs_seg->topology_ports, t.ports);
	return 0;
}

int vs_fabric_join(void)
{
	char name[64];
	uint32_t index;
	int err = my_host_name(name), found;

	if (err)
		return err;
	vs_control_lock();
	err = vs_fabric_set_topology();
	found = find_host(name);
	index = (uint32_t)found;
	if (!err && found < 0)
		err = make_host(name, &index);
	if (!err)
		vs_me->host = index;
	vs_control_unlock();
	return err;
}

int vs_fabric_set_lmc(uint32_t port_index, uint32_t lmc)
{
	struct vs_port_shm *port = vs_slot_at(VS_PORT, port_index);
	uint16_t old = port->lid;
	uint8_t old_lmc = port->lmc;
	int err;

	if (lmc > 7 || port->ethernet)
		return EINVAL;
	err = take_lids(port, port_index, lmc);
	if (err)
		return err;
	VS_POINT(port_moved);
	for (uint32_t i = 0; i < 1u << old_lmc; i++)
		vs_store(&vs_seg->lid_port[old + i], 0);
	vs_add(&vs_seg->fabric_epoch, 1);
	return 0;
}

/* ---- plugging ---- */

static void set_ports(const struct vs_hca_shm *hca, enum ibv_port_state state)
{
	for (uint32_t p = 1; p <= VS_MAX_PORTS; p++) {
		struct vs_port_shm *port = vs_fabric_port(hca, p);

		if (port)
			vs_store(&port->state, state);
	}
	vs_add(&vs_seg->fabric_epoch, 1);
}

static void unplug(struct vs_hca_shm *hca)
{
	set_ports(hca, IBV_PORT_DOWN);
	VS_POINT(hca_downed);
	if (vs_hca_there(hca))
		vs_add(&hca->incarnation, 1);
}

static void plug(struct vs_hca_shm *hca)
{
	if (!vs_hca_there(hca))
		vs_add(&hca->incarnation, 1);
	VS_POINT(hca_back);
	set_ports(hca, IBV_PORT_ACTIVE);
}

static void tell_unplugged(void)
{
	struct vs_proc_shm *proc;
	uint32_t index;

	vs_add(&vs_seg->unplugs, 1);
	VS_POINT(hca_gone);
	vs_for_each_live (VS_PROC, index, proc)
		vs_process_wake(proc);
}

static uint64_t changing(uint32_t proc_id, enum vs_plugging how)
{
	return (uint64_t)proc_id << 32 | how;
}

static void begin_plugging(struct vs_hca_shm *hca, enum vs_plugging how)
{
	if (vs_exchange(&hca->changing, changing(vs_me_id, how)))
		tell_unplugged(); /* another one's order, who would now be forgotten if he died before he told of it */
	VS_POINT(hca_changing);
}

void vs_fabric_unplug(struct vs_hca_shm *hca)
{
	begin_plugging(hca, VS_UNPLUGS);
	unplug(hca);
}

void vs_fabric_plug(struct vs_hca_shm *hca)
{
	if (vs_hca_there(hca))
		return;
	begin_plugging(hca, VS_PLUGS);
	plug(hca);
	VS_POINT(hca_changed);
	vs_store(&hca->changing, 0);
}

void vs_fabric_unplugged(void)
{
	struct vs_hca_shm *hca;
	uint32_t index;

	vs_quiesce();
	tell_unplugged();
	vs_for_each_live (VS_HCA, index, hca)
		vs_cas(&hca->changing, changing(vs_me_id, VS_UNPLUGS), 0);
}

/* What a dead process had begun is brought to its end: nobody is left with half an HCA, or does not hear that it is gone. */
static void finish_plugging(uint32_t proc_id)
{
	struct vs_hca_shm *hca;
	bool unplugs = false;
	uint32_t index;

	vs_for_each_live (VS_HCA, index, hca) {
		uint64_t now = vs_load(&hca->changing);

		if (now == changing(proc_id, VS_PLUGS)) {
			plug(hca);
			vs_cas(&hca->changing, now, 0);
		} else if (now == changing(proc_id, VS_UNPLUGS)) {
			unplug(hca);
			unplugs = true;
		}
	}
	if (!unplugs)
		return;
	tell_unplugged();
	vs_for_each_live (VS_HCA, index, hca)
		vs_cas(&hca->changing, changing(proc_id, VS_UNPLUGS), 0);
}

/* ---- what a dead process was making ---- */

static bool of_live_host(uint32_t host_index)
{
	struct vs_host_shm *host = vs_slot_at(VS_HOST, host_index);

	return host && vs_slot_state(&host->s) == VS_LIVE;
}

static void settle(enum vs_table table, uint32_t index, struct vs_slot *slot, bool keep)
{
	if (keep)
		slot->owner = 0;
	else
		vs_slot_free(table, index);
	VS_POINT(fabric_settled);
}

void vs_fabric_reap(uint32_t proc_id)
{
	struct vs_host_shm *host;
	struct vs_hca_shm *hca, *parent;
	struct vs_port_shm *port;
	uint32_t index;

	finish_plugging(proc_id);
	vs_for_each_slot (VS_PORT, index, port) {
		parent = vs_slot_at(VS_HCA, port->hca);
		if (port->s.owner == proc_id)
			settle(VS_PORT, index, &port->s, parent && of_live_host(parent->host));
	}
	vs_for_each_slot (VS_HCA, index, hca)
		if (hca->s.owner == proc_id)
			settle(VS_HCA, index, &hca->s, of_live_host(hca->host));
	vs_for_each_slot (VS_HOST, index, host)
		if (host->s.owner == proc_id)
			settle(VS_HOST, index, &host->s, of_live_host(index));
}

/* ---- looking ---- */

struct vs_host_shm *vs_fabric_my_host(void)
{
	return vs_slot_at(VS_HOST, vs_me->host);
}

struct vs_hca_shm *vs_fabric_hca(uint32_t hca_index)
{
	return vs_slot_at(VS_HCA, hca_index);
}

int vs_fabric_numa_node(uint32_t nth)
{
	uint32_t nodes = vs_seg ? vs_load(&vs_seg->topology_numa) : 0;

	return nodes ? (int)in_turn(nth, nodes) : -1;
}

struct vs_port_shm *vs_fabric_port(const struct vs_hca_shm *hca, uint32_t num)
{
	if (!hca || num < 1 || num > hca->num_ports || num > VS_MAX_PORTS)
		return NULL;
	return vs_slot_at(VS_PORT, hca->port[num - 1]);
}

struct vs_port_shm *vs_fabric_port_of_lid(uint16_t lid)
{
	struct vs_port_shm *port;
	uint16_t entry;

	if (lid >= VS_LID_LIMIT)
		return NULL;
	entry = vs_load(&vs_seg->lid_port[lid]);
	if (entry == 0)
		return NULL;
	port = vs_slot_at(VS_PORT, entry - 1u); /* or what is left of one whose maker died before its host was there */
	return port && vs_slot_state(&port->s) == VS_LIVE && (lid & ~((1u << (port->lmc & 7)) - 1)) == port->lid ? port : NULL;
}

uint16_t vs_fabric_lid(const struct vs_port_shm *port)
{
	uint32_t state = vs_load(&port->state);

	return !port->ethernet && (state == IBV_PORT_ARMED || state == IBV_PORT_ACTIVE) ? port->lid : 0;
}

uint16_t vs_fabric_lid_of_gid(const union ibv_gid *gid)
{
	struct vs_port_shm *port;
	uint32_t index;

	if (gid->raw[0] == 0xff)
		return VS_LID_LIMIT;
	vs_for_each_live (VS_PORT, index, port)
		if (port->ethernet && htobe64(port->prefix) == gid->global.subnet_prefix &&
		    htobe64(port->guid) == gid->global.interface_id)
			return port->lid;
	return 0;
}

bool vs_fabric_ethernet(const struct vs_hca_shm *hca)
{
	const struct vs_port_shm *port = vs_fabric_port(hca, 1);

	return port && port->ethernet;
}

uint32_t vs_fabric_pkeys(const struct vs_port_shm *port)
{
	return port->ethernet ? 1 : VS_PKEY_TABLE;
}

int vs_fabric_gid(const struct vs_port_shm *port, int index, union ibv_gid *gid)
{
	if (index != 0)
		return EINVAL;
	gid->global.subnet_prefix = htobe64(port->prefix);
	gid->global.interface_id = htobe64(port->guid);
	return 0;
}

bool vs_fabric_up(const struct vs_port_shm *a, const struct vs_port_shm *b)
{
	return vs_load(&a->state) == IBV_PORT_ACTIVE && vs_load(&b->state) == IBV_PORT_ACTIVE;
}

/* What a port sends to itself meets no switch. */
static bool routed(const struct vs_port_shm *from, const struct vs_port_shm *to, uint16_t lid)
{
	uint32_t bits = (uint32_t)(lid - to->lid) & 127;

	return from == to || vs_load(&to->no_route_lid) != to->lid || !(vs_load_relaxed(&to->no_route[bits / 64]) >> (bits % 64) & 1);
}

struct vs_port_shm *vs_fabric_route(const struct vs_port_shm *from, const struct vs_av *av)
{
	struct vs_port_shm *to = vs_fabric_port_of_lid(av->dlid);

	return to && to->subnet == from->subnet && vs_fabric_up(from, to) && routed(from, to, av->dlid) ? to : NULL;
}

int vs_fabric_set_route(struct vs_port_shm *port, uint32_t bits, bool there)
{
	uint64_t *word, bit;

	if (bits >= 1u << port->lmc)
		return EINVAL;
	if (port->no_route_lid != port->lid) {
		vs_store(&port->no_route[0], 0);
		vs_store(&port->no_route[1], 0);
		VS_POINT(routes_forgotten);
		vs_store(&port->no_route_lid, port->lid);
	}
	word = &port->no_route[bits / 64];
	bit = UINT64_C(1) << (bits % 64);
	vs_store(word, there ? *word & ~bit : *word | bit);
	VS_POINT(route_set);
	vs_add(&vs_seg->fabric_epoch, 1);
	return 0;
}

bool vs_fabric_pkey_match(uint16_t a, uint16_t b)
{
	return (a & 0x7fff) && (a & 0x7fff) == (b & 0x7fff) && ((a | b) & 0x8000);
}
