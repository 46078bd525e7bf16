#include "api/api.h"

#include <errno.h>
#include <stdlib.h>

#include "api/real.h"
#include "core/context.h"
#include "core/device.h"
#include "verbs_shim.h"

/* The devices of this process's host; a device structure stays for good, as programs keep pointers to it. */
static struct vs_device devices[VS_MAX_HCAS];
static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t shown; /* bit i: devices[i] is plugged in, as far as this process knows; atomic */
static_assert(VS_MAX_HCAS <= 32, "a bit for each");
static enum vshim_devices selected;

/* What ibv_free_device_list needs lies in front of the array that programs see. */
struct device_list {
	struct ibv_device **real;
	bool attached;
	struct ibv_device *entry[];
};

static struct ibv_device **get_real(int *n)
{
	struct ibv_device **(*get)(int *) = vs_real("ibv_get_device_list", "IBVERBS_1.1");
	struct ibv_device **list = get ? get(n) : NULL;

	if (!list)
		*n = 0; /* ENOSYS: no RDMA in this kernel, which is an empty list */
	return list;
}

static void free_real(struct ibv_device **list)
{
	void (*free_list)(struct ibv_device **) = vs_real("ibv_free_device_list", "IBVERBS_1.1");

	if (list && free_list)
		free_list(list);
}

bool vs_have_real_devices(void)
{
	int n;
	struct ibv_device **list = get_real(&n);

	free_real(list);
	return n > 0;
}

/* Returns those to show, as bits. */
static uint32_t refresh_devices(void)
{
	const struct vs_host_shm *host = vs_fabric_my_host();
	uint32_t n = host ? vs_load(&host->num_hcas) : 0, there = 0;

	pthread_mutex_lock(&devices_lock);
	for (uint32_t i = 0; i < n && i < VS_MAX_HCAS; i++) {
		const struct vs_hca_shm *hca = vs_fabric_hca(host->hca[i]);

		if (!hca)
			continue;
		if (!devices[i].ibv.name[0] || devices[i].hca != host->hca[i])
			vs_device_init(&devices[i], host->hca[i]);
		if (vs_hca_there(hca))
			there |= 1u << i;
	}
	vs_store(&shown, there);
	pthread_mutex_unlock(&devices_lock);
	return there;
}

static struct ibv_device **build_list(struct ibv_device **real, int num_real, uint32_t ours, bool attached)
{
	size_t n = (size_t)num_real + (size_t)__builtin_popcount(ours);
	struct device_list *list = calloc(1, sizeof(*list) + (n + 1) * sizeof(list->entry[0]));

	if (!list)
		return NULL;
	list->real = real;
	list->attached = attached;
	for (int i = 0; i < num_real; i++)
		list->entry[i] = real[i];
	for (uint32_t i = VS_MAX_HCAS; i-- > 0;)
		if (ours >> i & 1)
			list->entry[--n] = &devices[i].ibv;
	return list->entry;
}

struct ibv_device **vs_get_device_list(int *num_devices)
{
	enum vshim_devices which = (enum vshim_devices)vs_load(&selected);
	struct ibv_device **real = NULL, **list;
	int num_real = 0, err = 0;
	uint32_t ours = 0;
	bool attached = false;

	if (which != VSHIM_DEVICES_SOFTWARE)
		real = get_real(&num_real);
	if (which != VSHIM_DEVICES_REAL) {
		err = vs_attach();
		attached = err == 0;
		if (attached)
			ours = refresh_devices();
	}
	list = err && num_real == 0 ? NULL : build_list(real, num_real, ours, attached);
	if (!list) {
		err = err ? err : ENOMEM;
		free_real(real);
		if (attached)
			vs_detach();
		if (num_devices)
			*num_devices = 0;
		errno = err;
		return NULL;
	}
	if (num_devices)
		*num_devices = num_real + __builtin_popcount(ours);
	return list;
}

void vs_free_device_list(struct ibv_device **entries)
{
	struct device_list *list = vs_container(entries, struct device_list, entry);

	free_real(list->real);
	if (list->attached)
		vs_detach();
	free(list);
}

bool vs_device_ours(const struct ibv_device *device)
{
	return (uintptr_t)device >= (uintptr_t)devices && (uintptr_t)device < (uintptr_t)(devices + VS_MAX_HCAS);
}

const struct ibv_device *vs_device_shown(uint32_t i)
{
	return vs_load(&shown) >> i & 1 ? &devices[i].ibv : NULL;
}

VS_PUBLIC int vshim_device_is_software(const struct ibv_device *dev)
{
	return vs_device_ours(dev);
}

VS_PUBLIC int vshim_device_numa_node(const struct ibv_device *dev)
{
	const struct vs_hca_shm *hca = vs_device_ours(dev) ? vs_fabric_hca(((const struct vs_device *)dev)->hca) : NULL;

	return hca ? vs_fabric_numa_node(hca->index) : -1;
}

VS_PUBLIC int vshim_device_port_counters(const struct ibv_device *dev, uint8_t num, struct vshim_port_counters *counters)
{
	const struct vs_hca_shm *hca = vs_device_ours(dev) ? vs_fabric_hca(((const struct vs_device *)dev)->hca) : NULL;
	const struct vs_port_shm *port = hca ? vs_fabric_port(hca, num) : NULL;

	if (!port)
		return EINVAL;
	counters->rnr_received = vs_load(&port->counters.rnr_received);
	counters->retries = vs_load(&port->counters.retries);
	return 0;
}

VS_PUBLIC int vshim_select_devices(enum vshim_devices which)
{
	if (which != VSHIM_DEVICES_ALL && which != VSHIM_DEVICES_REAL && which != VSHIM_DEVICES_SOFTWARE)
		return EINVAL;
	vs_store(&selected, which);
	return 0;
}

static void forked(void)
{
	pthread_mutex_init(&devices_lock, NULL);
}

__attribute__((constructor)) static void load(void)
{
	vs_hca_init();
	vs_api_ops = (struct vs_api_ops){ .disown = vs_disown, .forked = forked };
}

__attribute__((destructor)) static void unload(void)
{
	vs_leave_at_exit();
}
