/* SPDX-License-Identifier: BSD-3-Clause */
/* HCAs and their ports, chosen and refused as by btl_xrc_device.c and btl_xrc_component.c. */
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "btl_xrc_rails.h"
#include "doctor.h"

/* ---- which devices there are ---- */

#if BTL_XRC_HAVE_VERBS_SHIM

static bool is_software(struct ibv_device *ibdev)
{
    return 0 != vshim_device_is_software(ibdev);
}

static struct ibv_device **list_of(enum vshim_devices which, int *num)
{
    *num = 0;
    return 0 == vshim_select_devices(which) ? ibv_get_device_list(num) : NULL;
}

static struct ibv_device **software_devices(int *num)
{
    struct ibv_device **list = list_of(VSHIM_DEVICES_SOFTWARE, num);
    int err = errno;
    host_check_fabric();
    if (NULL != list && 0 == *num) {
        report(BAD, "host", "software HCA",
               "vshim plug all brings back what vshim unplug took; see VERBS_SHIM_TOPOLOGY",
               "this host has none: unplugged, or devices=0");
    } else if (NULL == list) {
        report(BAD, "host", "software HCA",
               "see vshim list; another user's files, or those of another build, may be in its way", "not there: %s",
               strerror(err));
    }
    return list;
}

/* As xrc_device_find() of the BTL. */
static struct ibv_device **find_devices(enum shim_use use, int *num)
{
    if (SHIM_ALWAYS == use) {
        return software_devices(num);
    }
    struct ibv_device **list = list_of(VSHIM_DEVICES_REAL, num);
    if (*num > 0 || host_explain_no_device(SHIM_NEVER != use) || SHIM_NEVER == use) {
        return list;
    }
    if (NULL != list) {
        ibv_free_device_list(list);
    }
    report(GOOD, "host", "software HCA", NULL,
           "btl xrc uses it here, where it is asked for by name: mpirun --mca btl xrc,self (--mca btl_xrc_shim never "
           "forbids it); other verbs programs: LD_PRELOAD=" DOCTOR_SHIM_LIB);
    return software_devices(num);
}

#else

/* The library may have been preloaded. */
static bool is_software(struct ibv_device *ibdev)
{
    int (*ask)(const struct ibv_device *) =
        (int (*)(const struct ibv_device *)) dlsym(RTLD_DEFAULT, "vshim_device_is_software");
    return NULL != ask && 0 != ask(ibdev);
}

static struct ibv_device **find_devices(enum shim_use use, int *num)
{
    *num = 0;
    if (SHIM_ALWAYS == use) {
        report(BAD, "host", "software HCA", "build without --without-verbs-shim", "this build has none");
        return NULL;
    }
    struct ibv_device **list = ibv_get_device_list(num);
    if (0 == *num && !host_explain_no_device(false)) {
        report(BAD, "host", "software HCA",
               "build without --without-verbs-shim, or LD_PRELOAD one's library libverbs_shim.so",
               "this build has none, and without it btl xrc has nothing to run on");
    }
    return list;
}

#endif

static bool port_wanted(const struct options *options, const char *device, int port)
{
    return NULL == options->devices || xrc_rails_named(options->devices, device, port);
}

static bool device_wanted(const struct options *options, const char *device)
{
    for (int port = 1; port <= UINT8_MAX; ++port) {
        if (port_wanted(options, device, port)) {
            return true;
        }
    }
    return false;
}

/* Those that can be used, as the BTL compares them. */
struct rails {
    unsigned n;
    struct xrc_rail rail[XRC_MAX_MODULES];
};

/* Ports that could stand in for each other: active, InfiniBand, of the subnet of the first such. */
struct paths {
    unsigned ports;
    unsigned lids; /* most of any port */
    uint64_t prefix;
};

/* What the ports of a device are looked at for. */
struct look {
    const struct options *options;
    struct device *device;
    struct rails *rails;
    struct paths paths;
    bool ready; /* there is a domain for its queues */
};

/* ---- a port ---- */

static const char *layer_name(uint8_t layer)
{
    return IBV_LINK_LAYER_ETHERNET == layer ? "Ethernet" : "InfiniBand";
}

static uint64_t prefix_of(const union ibv_gid *gid)
{
    uint64_t prefix;
    memcpy(&prefix, gid->raw, sizeof(prefix));
    return be64toh(prefix);
}

static bool is_ethernet(const struct port *port)
{
    return IBV_LINK_LAYER_ETHERNET == port->attr.link_layer;
}

static unsigned mtu_bytes(enum ibv_mtu mtu)
{
    return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << (unsigned) mtu : 0;
}

static const char *state_advice(const struct port *port)
{
    return IBV_PORT_DOWN == port->attr.state
               ? "look at cable and switch, then ibstat; a port that nobody uses may stay like that"
           : is_ethernet(port) ? "bring its network interface up: ip link set ... up"
                               : "no subnet manager has made it active: start opensm, or the switch's own";
}

static bool check_link(const struct port *port)
{
    bool active = IBV_PORT_ACTIVE == port->attr.state;
    uint32_t mbit = xrc_rails_bandwidth(port->attr.active_speed, port->attr.active_width);
    report(active ? GOOD : BAD, port->about, "link", active ? NULL : state_advice(port), "%s, %s, %u.%u Gbit/s, MTU %u",
           ibv_port_state_str(port->attr.state), layer_name(port->attr.link_layer), mbit / 1000u, mbit % 1000u / 100u,
           mtu_bytes(port->attr.active_mtu));
    return active;
}

static void check_address(const struct port *port)
{
    static const union ibv_gid none;
    bool no_gid = 0 == memcmp(&port->gid, &none, sizeof(none));
    if (is_ethernet(port)) {
        report(no_gid ? BAD : GOOD, port->about, "address", no_gid ? "give its network interface an address" : NULL,
               "GID 0 is %s", no_gid ? "empty" : "there, peers are reached by it");
        return;
    }
    bool good = 0 != port->attr.lid;
    report(good ? GOOD : BAD, port->about, "address",
           good ? NULL : "the subnet manager has not given it a LID: look at opensm",
           "LID %u, LMC %u, subnet prefix 0x%016" PRIx64 ", subnet manager at LID %u", port->attr.lid, port->attr.lmc,
           prefix_of(&port->gid), port->attr.sm_lid);
}

#define FULL_MEMBER 0x8000u

/* btl_xrc_pkey_index is 0 unless somebody says otherwise. */
static void check_pkeys(struct device *device, const struct port *port, cJSON *facts)
{
    cJSON *list = cJSON_AddArrayToObject(facts, "pkeys");
    unsigned first = 0, used = 0;
    for (int i = 0; i < port->attr.pkey_tbl_len; ++i) {
        __be16 key = 0;
        if (0 == ibv_query_pkey(device->context[0], port->number, i, &key) && 0 != key) {
            char text[8];
            snprintf(text, sizeof(text), "0x%04x", (unsigned) be16toh(key));
            cJSON_AddItemToArray(list, cJSON_CreateString(text));
            first = 0 == i ? be16toh(key) : first;
            ++used;
        }
    }
    if (is_ethernet(port)) {
        return;
    }
    bool full = 0 != (first & FULL_MEMBER);
    report(full         ? GOOD
           : 0 != first ? POOR
                        : BAD,
           port->about, "P_Keys",
           full ? NULL
                : "let the subnet manager make it a full member (opensm: partitions.conf), or set btl_xrc_pkey_index "
                  "to another one",
           "%u; the one at index 0 is 0x%04x, %s", used, first,
           full         ? "a full member"
           : 0 != first ? "a limited member, which reaches full members only"
                        : "which is none");
}

static cJSON *port_facts(const struct port *port)
{
    cJSON *facts = cJSON_CreateObject();
    char text[24];
    snprintf(text, sizeof(text), "0x%016" PRIx64, prefix_of(&port->gid));
    cJSON_AddNumberToObject(facts, "port", port->number);
    cJSON_AddStringToObject(facts, "state", ibv_port_state_str(port->attr.state));
    cJSON_AddStringToObject(facts, "link_layer", layer_name(port->attr.link_layer));
    cJSON_AddNumberToObject(facts, "lid", port->attr.lid);
    cJSON_AddNumberToObject(facts, "lmc", port->attr.lmc);
    cJSON_AddNumberToObject(facts, "sm_lid", port->attr.sm_lid);
    cJSON_AddStringToObject(facts, "subnet_prefix", text);
    cJSON_AddNumberToObject(facts, "mbit_per_s", xrc_rails_bandwidth(port->attr.active_speed, port->attr.active_width));
    cJSON_AddNumberToObject(facts, "mtu", mtu_bytes(port->attr.active_mtu));
    return facts;
}

static bool read_port(struct device *device, struct port *port)
{
    int rc = ibv_query_port(device->context[0], port->number, &port->attr);
    if (0 == rc && 0 != ibv_query_gid(device->context[0], port->number, 0, &port->gid)) {
        rc = 0 != errno ? errno : EIO;
    }
    if (0 != rc) {
        trial_failed(port->about, "link", "ibv_query_port or ibv_query_gid", rc);
    }
    return 0 == rc;
}

/* ---- alternate paths ---- */

static void count_paths(struct paths *paths, const struct port *port)
{
    if (IBV_PORT_ACTIVE != port->attr.state || is_ethernet(port)) {
        return;
    }
    unsigned lids = 1u << (port->attr.lmc & 7u);
    paths->prefix = 0 == paths->ports ? prefix_of(&port->gid) : paths->prefix;
    paths->ports += prefix_of(&port->gid) == paths->prefix;
    paths->lids = lids > paths->lids ? lids : paths->lids;
}

static void check_migration(const struct device *device, const struct paths *paths)
{
    bool apm = 0 != (device->attr.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG);
    bool ports = paths->ports > 1, lmc = paths->lids > 1;
    if (!apm) {
        report(POOR, device->name, "path migration",
               "leave btl_xrc_apm off: a job does not survive a failed link on this HCA",
               "the HCA has none (IBV_DEVICE_AUTO_PATH_MIG)");
    } else if (!ports && !lmc) {
        report(POOR, device->name, "path migration",
               "for btl_xrc_apm connect another port to the same subnet, or raise the LMC in the subnet manager "
               "(opensm: lmc 1)",
               "the HCA has it, but there is no other path: %u active InfiniBand port%s with one LID", paths->ports,
               1 == paths->ports ? "" : "s");
    } else {
        report(GOOD, device->name, "path migration", NULL, "btl_xrc_apm can be %s",
               ports && lmc ? "ports, lmc or auto"
               : ports      ? "ports or auto"
                            : "lmc or auto");
    }
    cJSON_AddBoolToObject(device->facts, "apm", apm);
}

/* ---- a device ---- */

static void add_rail(struct rails *rails, const struct port *port)
{
    if (rails->n < XRC_MAX_MODULES) {
        struct xrc_rail *rail = &rails->rail[rails->n++];
        *rail = (struct xrc_rail){
            .addr = {.lid = port->attr.lid, .port = port->number, .link_layer = port->attr.link_layer},
            .lids = 1,
            .sm_lid = port->attr.sm_lid};
        memcpy(rail->addr.gid, port->gid.raw, sizeof(rail->addr.gid));
    }
}

static void check_port(struct look *look, const struct port *port)
{
    cJSON *facts = port_facts(port);
    cJSON_AddItemToArray(cJSON_GetObjectItem(look->device->facts, "ports"), facts);
    bool usable = check_link(port);
    check_address(port);
    check_pkeys(look->device, port, facts);
    usable = usable && look->ready && trial_port(look->options, look->device, port);
    cJSON_AddBoolToObject(facts, "usable", usable);
    if (usable) {
        add_rail(look->rails, port);
        report_usable(port->about, look->device->software);
    }
}

static void check_ports(struct look *look)
{
    struct device *device = look->device;
    cJSON_AddArrayToObject(device->facts, "ports");
    for (unsigned i = 1; i <= device->attr.phys_port_cnt; ++i) {
        char about[IBV_SYSFS_NAME_MAX + 8];
        struct port port = {.about = about, .number = (uint8_t) i};
        snprintf(about, sizeof(about), "%s:%u", device->name, i);
        if (!read_port(device, &port)) {
            continue;
        }
        count_paths(&look->paths, &port); /* one that is not to be used is an alternate all the same */
        if (port_wanted(look->options, device->name, (int) i)) {
            check_port(look, &port);
        }
    }
}

static const char *xrc_advice(const struct device *device)
{
    return BTL_XRC_HAVE_VERBS_SHIM && !device->software
               ? "it needs an HCA that has XRC (mlx4, mlx5, hns); without one: mpirun --mca btl_xrc_shim always"
               : "it needs an HCA that has XRC (mlx4, mlx5, hns)";
}

static bool check_capabilities(const struct options *options, const struct device *device)
{
    const struct ibv_device_attr *attr = &device->attr;
    bool xrc = 0 != (attr->device_cap_flags & IBV_DEVICE_XRC);
    cJSON *facts = device->facts, *srq = cJSON_AddObjectToObject(facts, "srq");
    cJSON_AddStringToObject(facts, "firmware", attr->fw_ver);
    cJSON_AddBoolToObject(facts, "xrc", xrc);
    cJSON_AddNumberToObject(srq, "max", attr->max_srq);
    cJSON_AddNumberToObject(srq, "max_wr", attr->max_srq_wr);
    cJSON_AddNumberToObject(srq, "max_sge", attr->max_srq_sge);
    report(xrc ? GOOD : BAD, device->name, "XRC", xrc ? NULL : xrc_advice(device), "%s",
           xrc ? "the HCA has it" : "the HCA has none (IBV_DEVICE_XRC)");

    unsigned most = 0, classes = options->recvq.nclasses;
    for (unsigned i = 0; i < classes; ++i) {
        most = options->recvq.c[i].num > most ? options->recvq.c[i].num : most;
    }
    bool room = attr->max_srq >= (int) classes && attr->max_srq_wr >= (int) most;
    report(room ? GOOD : BAD, device->name, "SRQs",
           room ? NULL : "ask for fewer or shorter queues in btl_xrc_receive_queues",
           "%d of up to %d entries; a process uses %u a port, of up to %u", attr->max_srq, attr->max_srq_wr, classes,
           most);
    return xrc;
}

static bool open_domains(struct device *device, const struct domain_file *file)
{
    for (int i = 0; i < 2; ++i) {
        struct ibv_xrcd_init_attr init = {
            .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = file->fd[i], .oflags = O_CREAT};
        errno = 0;
        device->xrcd[i] = ibv_open_xrcd(device->context[i], &init);
        if (NULL == device->xrcd[i]) {
            trial_failed(device->name, "XRC domain", "ibv_open_xrcd", errno);
            return false;
        }
    }
    report(GOOD, device->name, "XRC domain", NULL, "opened twice by one file, as two ranks do");
    return true;
}

static void close_all(struct device *device)
{
    int rc = 0;
    for (int i = 0; i < 2; ++i) {
        rc = NULL != device->xrcd[i] ? ibv_close_xrcd(device->xrcd[i]) : 0;
        if (0 != rc) {
            trial_failed(device->name, "XRC domain", "ibv_close_xrcd", rc);
        }
    }
    rc = NULL != device->pd ? ibv_dealloc_pd(device->pd) : 0;
    if (0 != rc) {
        trial_failed(device->name, "device", "ibv_dealloc_pd", rc);
    }
    for (int i = 0; i < 2; ++i) {
        if (NULL != device->context[i] && 0 != ibv_close_device(device->context[i])) {
            trial_failed(device->name, "device", "ibv_close_device", errno);
        }
    }
}

/* False after a report. */
static bool open_device(struct device *device, struct ibv_device *ibdev)
{
    for (int i = 0; i < 2; ++i) {
        errno = 0;
        device->context[i] = ibv_open_device(ibdev);
        if (NULL == device->context[i]) {
            trial_failed(device->name, "device", "ibv_open_device", errno);
            return false;
        }
    }
    int rc = ibv_query_device(device->context[0], &device->attr);
    if (0 != rc) {
        trial_failed(device->name, "device", "ibv_query_device", rc);
        return false;
    }
    return true;
}

static bool prepare(struct device *device, const struct domain_file *file)
{
    errno = 0;
    device->pd = ibv_alloc_pd(device->context[0]);
    if (NULL == device->pd) {
        trial_failed(device->name, "device", "ibv_alloc_pd", errno);
        return false;
    }
    return file->fd[0] >= 0 && open_domains(device, file) && trial_tgt(device);
}

static void check_device(const struct options *options, struct ibv_device *ibdev, const struct domain_file *file,
                         struct rails *rails)
{
    struct device device = {.name = ibv_get_device_name(ibdev), .software = is_software(ibdev)};
    struct look look = {.options = options, .device = &device, .rails = rails};
    device.facts = report_device(device.name, device.software);
    if (open_device(&device, ibdev)) {
        look.ready = check_capabilities(options, &device) && prepare(&device, file);
        check_ports(&look);
        check_migration(&device, &look.paths);
    }
    close_all(&device);
}

/* Two fabrics with one prefix: the BTL cannot tell who reaches whom. */
static void check_prefixes(const struct rails *rails)
{
    unsigned a, b;
    if (xrc_rails_clash(rails->rail, rails->n, &a, &b)) {
        report(POOR, "host", "subnet prefixes",
               "give each fabric a prefix of its own (opensm: subnet_prefix), or use only one with btl_xrc_if_include",
               "the ports with LID %u and LID %u are on different fabrics that have the same prefix",
               rails->rail[a].addr.lid, rails->rail[b].addr.lid);
    }
}

static unsigned check_list(const struct options *options, struct ibv_device **list, int num,
                           const struct domain_file *file)
{
    static struct rails rails;
    unsigned looked_at = 0;
    for (int i = 0; i < num; ++i) {
        if (device_wanted(options, ibv_get_device_name(list[i]))) {
            check_device(options, list[i], file, &rails);
            ++looked_at;
        }
    }
    check_prefixes(&rails);
    host_check_memory_of_all(options, report_usable_ports());
    return looked_at;
}

void devices_check(const struct options *options, const struct domain_file *file)
{
    int num = 0;
    struct ibv_device **list = find_devices(options->shim, &num);
    host_check_nodes();
    if (num > 0 && !is_software(list[0])) {
        report(GOOD, "host", "RDMA devices", NULL, "%d", num);
    }
    if (0 == check_list(options, list, num, file) && num > 0) {
        report(BAD, "host", "RDMA devices", "see ibv_devices for their names", "%d, but none is named by '%s'", num,
               options->devices);
    }
    if (NULL != list) {
        ibv_free_device_list(list);
    }
}
