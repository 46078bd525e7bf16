/* SPDX-License-Identifier: BSD-3-Clause */
/* What Open MPI calls to find out whether there is anything to be done here. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>

#include "btl_xrc_apm.h"
#include "btl_xrc_error.h"
#include "btl_xrc_locality.h"
#include "btl_xrc_module.h"
#include "btl_xrc_rails.h"
#include "btl_xrc_service.h"

static int component_register(void);
static int component_open(void);
static int component_close(void);
static mca_btl_base_module_t **component_init(int *num, bool progress_threads, bool mpi_threads);

/* clang-format off */
mca_btl_xrc_component_t mca_btl_xrc_component = {
    .super = {
        .btl_version = {
            MCA_BTL_DEFAULT_VERSION("xrc"),
            .mca_open_component = component_open,
            .mca_close_component = component_close,
            .mca_register_component_params = component_register,
        },
        .btl_data = {.param_field = MCA_BASE_METADATA_PARAM_NONE},
        .btl_init = component_init,
        .btl_progress = mca_btl_xrc_component_progress,
    },
};

/* clang-format on */

MCA_BASE_COMPONENT_INIT(opal, btl, xrc)

/*
 * Open MPI checks neither its own version nor the BTL interface's, and two series share a library name. Structures
 * differ between series, so nothing may be touched in another one.
 */
static bool right_series(void)
{
    int major = -1, minor = -1;
    const char *v = opal_version_string;
    while ('\0' != *v && ('0' > *v || '9' < *v)) {
        ++v;
    }
    if (2 == sscanf(v, "%d.%d", &major, &minor) && XRC_BUILT_MAJOR == major && XRC_BUILT_MINOR == minor) {
        return true;
    }
    if (xrc_params_named()) {
        opal_output(0, "btl:xrc: built for Open MPI %d.%d, this is %s: not used", XRC_BUILT_MAJOR, XRC_BUILT_MINOR,
                    opal_version_string);
    }
    return false;
}

static int component_register(void)
{
    if (!right_series()) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
#ifdef BTL_XRC_HELPDIR
    opal_show_help_add_dir(BTL_XRC_HELPDIR);
#endif
    int rc = xrc_params_register();
    if (OPAL_SUCCESS == rc) {
        rc = xrc_stats_register();
    }
    return OPAL_SUCCESS == rc
               ? mca_btl_base_param_register(&mca_btl_xrc_component.super.btl_version, &mca_btl_xrc_module.super)
               : rc;
}

static int component_open(void)
{
    mca_btl_xrc_component.speak = xrc_params_named();
    mca_btl_xrc_component.said = false;
    mca_btl_xrc_component.finalized = 0;
    mca_btl_xrc_component.usable = OPAL_SUCCESS == xrc_params_check();
    return OPAL_SUCCESS;
}

static int component_close(void)
{
    free(mca_btl_xrc_component.modules);
    mca_btl_xrc_component.modules = NULL;
    return OPAL_SUCCESS;
}

/* ---- finding ports ---- */

/* Devices looked at. */
#define MOST_DEVICES 32u

static unsigned most_modules(void)
{
    int limit = mca_btl_xrc_component.params.max_btls;
    return limit < 0 || limit > XRC_MAX_MODULES ? XRC_MAX_MODULES : (unsigned) limit;
}

/* What atomics exclude, in the words of the device attribute. */
static const char *atomics_word(const mca_btl_base_module_t *btl)
{
    if (!(btl->btl_flags & MCA_BTL_FLAGS_ATOMIC_FOPS)) {
        return "none";
    }
    return btl->btl_atomic_flags & MCA_BTL_ATOMIC_SUPPORTS_GLOB ? "GLOB" : "HCA";
}

static void add_module(struct xrc_device *device, uint8_t port, uint8_t path_bits)
{
    mca_btl_xrc_module_t *module = xrc_module_create(device, port, path_bits);
    if (NULL != module) {
        mca_btl_xrc_component.modules[mca_btl_xrc_component.nmodules++] = module;
        XRC_VERBOSE(10, "using %s port %u, LID %u, inline up to %u bytes, atomics: %s", device->name, port,
                    module->addr.lid, module->max_inline, atomics_word(&module->super));
    }
}

static void add_port(struct xrc_device *device, uint8_t port)
{
    struct ibv_port_attr attr;
    if (mca_btl_xrc_component.nmodules >= most_modules() || !xrc_params_port_wanted(device->name, port)) {
        return;
    }
    int rc = ibv_query_port(device->context, port, &attr);
    if (0 != rc) {
        xrc_error_verb(device, "ibv_query_port", rc);
        return;
    }
    if (IBV_PORT_ACTIVE != attr.state) {
        return;
    }
    unsigned lids =
        IBV_LINK_LAYER_ETHERNET == attr.link_layer ? 1 : xrc_rails_lids(attr.lmc, mca_btl_xrc_component.params.max_lmc);
    for (unsigned bits = 0; bits < lids && mca_btl_xrc_component.nmodules < most_modules(); ++bits) {
        add_module(device, port, (uint8_t) bits);
    }
}

/* A device with no port to be used is not even joined: its domain file would be left to nobody. */
static bool device_wanted(struct ibv_device *ibdev)
{
    for (int port = 1; port <= UINT8_MAX; ++port) {
        if (xrc_params_port_wanted(ibv_get_device_name(ibdev), port)) {
            return true;
        }
    }
    return false;
}

/* Which of the devices that are wanted are to be used: those near this process, if it is bound. */
static void choose_devices(struct ibv_device **list, unsigned num, bool *use)
{
    int nodes[MOST_DEVICES];
    unsigned closeness[MOST_DEVICES], wanted = 0, known = 0;
    for (unsigned i = 0; i < num; ++i) {
        use[i] = device_wanted(list[i]);
        nodes[i] = use[i] ? xrc_device_numa_node(list[i]) : -1;
        wanted += use[i];
        known += nodes[i] >= 0;
    }
    /* To look at the machine takes time; only where there is something to choose. */
    if (wanted < 2 || 0 == known || mca_btl_xrc_component.params.ignore_locality) {
        return;
    }
    bool near[MOST_DEVICES];
    xrc_locality_here(nodes, num, closeness);
    xrc_rails_nearest(closeness, num, near);
    for (unsigned i = 0; i < num; ++i) {
        if (use[i] && !near[i]) {
            XRC_VERBOSE(5, "%s is farther away than others, not used (btl_xrc_ignore_locality)",
                        ibv_get_device_name(list[i]));
        }
        use[i] = use[i] && near[i];
    }
}

static void add_device(struct ibv_device *ibdev)
{
    struct xrc_device *device = xrc_device_open(ibdev);
    if (NULL == device) {
        return;
    }
    for (uint8_t port = 1; port <= device->attr.phys_port_cnt; ++port) {
        add_port(device, port);
    }
    xrc_device_release(device);
}

static int add_devices(void)
{
    struct ibv_device **list = NULL;
    bool use[MOST_DEVICES];
    int num = 0;
    int rc = xrc_device_find(&list, &num);
    if (0 != rc) {
        XRC_VERBOSE(5, "no list of devices: %s", strerror(rc));
        return 0;
    }
    unsigned n = (unsigned) num < MOST_DEVICES ? (unsigned) num : MOST_DEVICES;
    xrc_names_check(list, n);
    choose_devices(list, n, use);
    for (unsigned i = 0; i < n && mca_btl_xrc_component.nmodules < most_modules(); ++i) {
        if (use[i]) {
            add_device(list[i]);
        }
    }
    ibv_free_device_list(list);
    return num;
}

/* Two fabrics with one prefix: nothing tells which port reaches which. */
static void look_for_clash(void)
{
    struct xrc_rail rails[XRC_MAX_MODULES];
    unsigned n = mca_btl_xrc_component.nmodules, a, b;
    mca_btl_xrc_module_t *const *m = mca_btl_xrc_component.modules;
    for (unsigned i = 0; i < n; ++i) {
        rails[i] = (struct xrc_rail){m[i]->addr, 1, m[i]->sm_lid};
    }
    if (mca_btl_xrc_component.params.warn_default_gid_prefix && xrc_rails_clash(rails, n, &a, &b)) {
        uint64_t prefix;
        memcpy(&prefix, m[a]->addr.gid, sizeof(prefix));
        xrc_show_help("one prefix", opal_process_info.nodename, m[a]->device->name, m[a]->addr.port, m[a]->addr.lid,
                      m[a]->sm_lid, m[b]->device->name, m[b]->addr.port, m[b]->addr.lid, m[b]->sm_lid,
                      (unsigned long) be64toh(prefix));
    }
}

static const char *text_or_dash(const char *text)
{
    return NULL != text ? text : "-";
}

static void say_no_device(int found)
{
    static const char *const use[] = {
        [XRC_SHIM_AUTO] = "auto", [XRC_SHIM_NEVER] = "never", [XRC_SHIM_ALWAYS] = "always"};
    const struct xrc_params *p = &mca_btl_xrc_component.params;
    xrc_show_help("no device", opal_process_info.nodename, found, use[p->shim], text_or_dash(p->if_include),
                  text_or_dash(p->if_exclude));
}

/* A message that holds any payload ob1 sends at once, its own header included. */
#define EAGER_LEAST 256u

static bool limits_good(void)
{
    const struct xrc_recvq *q = &mca_btl_xrc_component.recvq;
    size_t largest = q->c[q->nclasses - 1].size, eager = mca_btl_xrc_module.super.btl_eager_limit;
    if (largest >= EAGER_LEAST && eager >= EAGER_LEAST) {
        return true;
    }
    xrc_show_help("limits", (unsigned long) largest, (unsigned long) eager, (unsigned long) EAGER_LEAST);
    return false;
}

static void give_up_modules(void)
{
    while (mca_btl_xrc_component.nmodules > 0) {
        xrc_module_destroy(mca_btl_xrc_component.modules[--mca_btl_xrc_component.nmodules]);
    }
}

/*
 * A child of a process with registered memory must not have its pages swapped under the HCA. Nothing can be registered before, so
 * this is the first verb; one that other users of the library have called before does no harm. Newer kernels need none of it.
 */
static void prepare_fork(void)
{
    int rc = ibv_fork_init();
    if (0 != rc) {
        XRC_VERBOSE(1, "ibv_fork_init: %s", strerror(rc));
    }
}

/* Find all ports and start serving them; how many there are. */
static unsigned start(void)
{
    mca_btl_xrc_component.modules = (mca_btl_xrc_module_t **) calloc(XRC_MAX_MODULES, sizeof(mca_btl_xrc_module_t *));
    if (NULL == mca_btl_xrc_component.modules || !mca_btl_xrc_component.usable || !limits_good()) {
        return 0;
    }
    prepare_fork();
    int found = add_devices();
    if (0 == mca_btl_xrc_component.nmodules) {
        if (!mca_btl_xrc_component.said) {
            say_no_device(found);
        }
        return 0;
    }
    look_for_clash();
    int rc = xrc_service_start();
    if (0 != rc) {
        opal_output(0, "btl:xrc: the service thread cannot be started: %s", strerror(rc));
        give_up_modules();
    }
    return mca_btl_xrc_component.nmodules;
}

static mca_btl_base_module_t **component_init(int *num, bool progress_threads, bool mpi_threads)
{
    (void) progress_threads;
    (void) mpi_threads;
    unsigned n = start();
    mca_btl_xrc_component.speak = mca_btl_xrc_component.speak || n > 0;
    xrc_params_warn_unknown();
    *num = 0;
    int rc = xrc_modex_publish();
    mca_btl_base_module_t **modules = n > 0 ? (mca_btl_base_module_t **) calloc(n, sizeof(*modules)) : NULL;
    if (OPAL_SUCCESS != rc || NULL == modules) {
        xrc_service_stop();
        give_up_modules();
        free(modules);
        return NULL;
    }
    for (unsigned i = 0; i < n; ++i) {
        modules[i] = &mca_btl_xrc_component.modules[i]->super;
    }
    *num = (int) n;
    xrc_stats_start();
    xrc_report_begin();
    xrc_apm_check();
    return modules;
}

void xrc_component_forget(const mca_btl_xrc_module_t *module)
{
    unsigned n = 0;
    for (unsigned i = 0; i < mca_btl_xrc_component.nmodules; ++i) {
        if (mca_btl_xrc_component.modules[i] != module) {
            mca_btl_xrc_component.modules[n++] = mca_btl_xrc_component.modules[i];
        }
    }
    mca_btl_xrc_component.nmodules = n;
}
