/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>

#include "opal/util/printf.h"

#include "btl_xrc.h"
#include "btl_xrc_bounce.h"
#include "btl_xrc_error.h"

#define PARAMS mca_btl_xrc_component.params

/* ---- which devices there are ---- */

#if BTL_XRC_HAVE_VERBS_SHIM
static int list_devices(enum vshim_devices which, struct ibv_device ***list, int *num)
{
    int rc = vshim_select_devices(which);
    *num = 0;
    if (0 != rc) {
        return rc;
    }
    *list = ibv_get_device_list(num);
    return NULL != *list ? 0 : errno;
}

/* Whether libibverbs has a driver for it or not. */
static bool kernel_has_device(void)
{
    bool found = false;
    DIR *dir = opendir("/sys/class/infiniband");
    const struct dirent *entry;
    while (NULL != dir && !found && NULL != (entry = readdir(dir))) {
        found = '.' != entry->d_name[0];
    }
    if (NULL != dir) {
        closedir(dir);
    }
    return found;
}

/* The software HCA is for hosts without any RDMA device: one that does not work is to be mended, not replaced by a slower one. */
int xrc_device_find(struct ibv_device ***list, int *num)
{
    if (XRC_SHIM_ALWAYS == PARAMS.shim) {
        return list_devices(VSHIM_DEVICES_SOFTWARE, list, num);
    }
    int rc = list_devices(VSHIM_DEVICES_REAL, list, num);
    bool none = 0 != rc || 0 == *num;
    if (!none || XRC_SHIM_NEVER == PARAMS.shim || !xrc_params_named() || kernel_has_device()) {
        return rc;
    }
    if (0 == rc) {
        ibv_free_device_list(*list);
    }
    rc = list_devices(VSHIM_DEVICES_SOFTWARE, list, num);
    if (0 == rc && *num > 0 && 0 == opal_process_info.my_local_rank) {
        opal_output(0, "btl:xrc: host %s has no RDMA device, using the software HCA (btl_xrc_shim=never refuses this)",
                    opal_process_info.nodename);
    }
    return rc;
}
#else
int xrc_device_find(struct ibv_device ***list, int *num)
{
    *num = 0;
    if (XRC_SHIM_ALWAYS == PARAMS.shim) {
        return ENODEV;
    }
    *list = ibv_get_device_list(num);
    return NULL != *list ? 0 : errno;
}
#endif

/* What the system says in a file; -1: nothing. */
static int read_numa_node(const struct ibv_device *ibdev)
{
    char *path = NULL;
    int node = -1;
    if (opal_asprintf(&path, "%s/device/numa_node", ibdev->ibdev_path) < 0) {
        return -1;
    }
    FILE *file = fopen(path, "re");
    if (NULL != file) {
        if (1 != fscanf(file, "%d", &node)) {
            node = -1;
        }
        fclose(file);
    }
    free(path);
    return node;
}

/* The NUMA node a device is near to, -1: unknown. */
int xrc_device_numa_node(struct ibv_device *ibdev)
{
#if BTL_XRC_HAVE_VERBS_SHIM
    if (vshim_device_is_software(ibdev)) {
        return vshim_device_numa_node(ibdev);
    }
#endif
    return read_numa_node(ibdev);
}

/* ---- what the HCA counts ---- */

/* A file of the port's that holds a number; 0: none. */
static uint64_t read_counter(const struct xrc_device *device, uint8_t port, const char *name)
{
    char *path = NULL;
    uint64_t value = 0;
    if (opal_asprintf(&path, "%s/ports/%u/hw_counters/%s", device->context->device->ibdev_path, port, name) < 0) {
        return 0;
    }
    FILE *file = fopen(path, "re");
    if (NULL != file) {
        if (1 != fscanf(file, "%" SCNu64, &value)) {
            value = 0;
        }
        fclose(file);
    }
    free(path);
    return value;
}

/* mlx5's names and mlx4's; each driver has its own. */
struct xrc_port_counters xrc_device_port_counters(const struct xrc_device *device, uint8_t port)
{
#if BTL_XRC_HAVE_VERBS_SHIM
    struct vshim_port_counters soft;
    if (0 == vshim_device_port_counters(device->context->device, port, &soft)) {
        return (struct xrc_port_counters){soft.rnr_received, soft.retries};
    }
#endif
    return (struct xrc_port_counters){read_counter(device, port, "rnr_nak_retry_err")
                                          + read_counter(device, port, "sq_num_rnr"),
                                      read_counter(device, port, "local_ack_timeout_err")};
}

/* ---- registration ---- */

static int access_of(uint32_t flags)
{
    int access = 0;
    if (flags & MCA_RCACHE_ACCESS_REMOTE_READ) {
        access |= IBV_ACCESS_REMOTE_READ;
    }
    if (flags & MCA_RCACHE_ACCESS_REMOTE_WRITE) {
        access |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
    }
    if (flags & MCA_RCACHE_ACCESS_REMOTE_ATOMIC) {
        access |= IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE;
    }
    if (flags & MCA_RCACHE_ACCESS_LOCAL_WRITE) {
        access |= IBV_ACCESS_LOCAL_WRITE;
    }
    return access;
}

static int register_mr(void *data, void *base, size_t size, mca_rcache_base_registration_t *reg)
{
    struct xrc_device *device = (struct xrc_device *) data;
    struct xrc_registration *r = (struct xrc_registration *) reg;
    int access = access_of((uint32_t) reg->access_flags);
    if (IBV_ATOMIC_NONE == device->attr.atomic_cap) {
        access &= ~IBV_ACCESS_REMOTE_ATOMIC;
    }
    r->mr = ibv_reg_mr(device->pd, base, size, access);
    if (NULL == r->mr) {
        XRC_VERBOSE(5, "ibv_reg_mr of %zu bytes on %s: %s", size, device->name, strerror(errno));
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    r->handle = (mca_btl_base_registration_handle_t){.lkey = r->mr->lkey, .rkey = r->mr->rkey};
    struct xrc_counters *c = &mca_btl_xrc_component.counters;
    xrc_count_most(&c->cache_bytes_most, xrc_count(&c->cache_bytes, (int64_t) size));
    return OPAL_SUCCESS;
}

static int deregister_mr(void *data, mca_rcache_base_registration_t *reg)
{
    struct xrc_registration *r = (struct xrc_registration *) reg;
    (void) data;
    if (NULL != r->mr) {
        int64_t size = (int64_t) r->mr->length;
        int rc = ibv_dereg_mr(r->mr);
        if (0 != rc) {
            XRC_VERBOSE(1, "ibv_dereg_mr: %s", strerror(rc));
            return OPAL_ERROR;
        }
        r->mr = NULL;
        xrc_count(&mca_btl_xrc_component.counters.cache_bytes, -size);
    }
    return OPAL_SUCCESS;
}

static int make_rcache(struct xrc_device *device)
{
    mca_rcache_base_resources_t resources = {.cache_name = "verbs",
                                             .reg_data = device,
                                             .sizeof_reg = sizeof(struct xrc_registration),
                                             .register_mem = register_mr,
                                             .deregister_mem = deregister_mr};
    device->rcache = mca_rcache_base_module_create(PARAMS.rcache, device, &resources);
    if (NULL == device->rcache) {
        xrc_show_help("no rcache", PARAMS.rcache);
        return OPAL_ERR_NOT_AVAILABLE;
    }
    return OPAL_SUCCESS;
}

/*
 * ob1 has other ways when memory cannot be registered for others to read, and tries for ever when it cannot be for
 * anything else: then it is an area. osc/rdma asks for everything at once, and fails or tries for ever: that is said.
 */
static mca_btl_base_registration_handle_t *refused(mca_btl_xrc_module_t *module, void *base, size_t size,
                                                   uint32_t flags)
{
    struct xrc_device *device = module->device;
    if (!(flags & (MCA_BTL_REG_FLAG_REMOTE_READ | MCA_BTL_REG_FLAG_REMOTE_ATOMIC))) {
        return xrc_area_new(module, base, size);
    }
    if ((flags & MCA_BTL_REG_FLAG_REMOTE_ATOMIC) && !device->window_said) {
        device->window_said = true;
        xrc_show_help("no window", device->name, opal_process_info.nodename, (unsigned long) (size >> 10));
    }
    return NULL;
}

mca_btl_base_registration_handle_t *mca_btl_xrc_register_mem(mca_btl_base_module_t *btl,
                                                             struct mca_btl_base_endpoint_t *endpoint, void *base,
                                                             size_t size, uint32_t flags)
{
    mca_btl_xrc_module_t *module = (mca_btl_xrc_module_t *) btl;
    mca_rcache_base_module_t *rcache = module->device->rcache;
    mca_rcache_base_registration_t *reg = NULL;
    (void) endpoint;
    int rc = rcache->rcache_register(rcache, base, size, 0, (int32_t) (flags & MCA_BTL_REG_FLAG_ACCESS_ANY), &reg);
    if (OPAL_LIKELY(OPAL_SUCCESS == rc && NULL != reg)) {
        return &((struct xrc_registration *) reg)->handle;
    }
    return refused(module, base, size, flags);
}

int mca_btl_xrc_deregister_mem(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *handle)
{
    mca_btl_xrc_module_t *module = (mca_btl_xrc_module_t *) btl;
    mca_rcache_base_module_t *rcache = module->device->rcache;
    if (OPAL_UNLIKELY(0 != handle->area)) {
        xrc_area_free(module, handle);
        return OPAL_SUCCESS;
    }
    struct xrc_registration *r = XRC_CONTAINER(handle, struct xrc_registration, handle);
    return rcache->rcache_deregister(rcache, &r->super);
}

/* ---- a device ---- */

static int set_up(struct xrc_device *device)
{
    int rc = ibv_query_device(device->context, &device->attr);
    if (0 != rc) {
        xrc_error_verb(device, "ibv_query_device", rc);
        return OPAL_ERROR;
    }
    if (!(device->attr.device_cap_flags & IBV_DEVICE_XRC)) {
        XRC_VERBOSE(5, "%s has no XRC", device->name);
        return OPAL_ERR_NOT_SUPPORTED;
    }
    device->pd = ibv_alloc_pd(device->context);
    if (NULL == device->pd) {
        xrc_error_verb(device, "ibv_alloc_pd", errno);
        return OPAL_ERROR;
    }
    rc = make_rcache(device);
    return OPAL_SUCCESS == rc ? xrc_domain_open(device) : rc;
}

struct xrc_device *xrc_device_open(struct ibv_device *ibdev)
{
    struct xrc_device *device = (struct xrc_device *) calloc(1, sizeof(*device));
    if (NULL == device) {
        return NULL;
    }
    device->refs = 1;
    strncpy(device->name, ibv_get_device_name(ibdev), sizeof(device->name) - 1);
    device->context = ibv_open_device(ibdev);
    if (NULL == device->context) {
        xrc_error_verb(device, "ibv_open_device", errno);
        free(device);
        return NULL;
    }
    if (OPAL_SUCCESS != set_up(device)) {
        xrc_device_release(device);
        return NULL;
    }
    return device;
}

static void complain(const struct xrc_device *device, const char *what, int rc)
{
    if (0 != rc) {
        XRC_VERBOSE(1, "%s of %s: %s", what, device->name, strerror(rc));
    }
}

void xrc_device_release(struct xrc_device *device)
{
    if (--device->refs > 0) {
        return;
    }
    xrc_domain_close(device);
    if (NULL != device->rcache) {
        mca_rcache_base_module_destroy(device->rcache);
    }
    if (NULL != device->pd) {
        complain(device, "ibv_dealloc_pd", ibv_dealloc_pd(device->pd));
    }
    complain(device, "ibv_close_device", ibv_close_device(device->context));
    free(device);
}
