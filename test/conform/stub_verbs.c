/* SPDX-License-Identifier: BSD-3-Clause */
/* In place of libibverbs.so.1: one device, stub0, which has no XRC. Each call that reaches it is a line in the file $STUB_LOG. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* verbs.h wraps these in macros of the same name. */
#undef ibv_query_port
#undef ibv_get_device_list

static struct ibv_device stub = {.node_type = IBV_NODE_CA,
                                 .transport_type = IBV_TRANSPORT_IB,
                                 .name = "stub0",
                                 .dev_name = "uverbs0",
                                 .dev_path = "/nowhere/uverbs0",
                                 .ibdev_path = "/nowhere/stub0"};
static struct ibv_context context = {.device = &stub, .num_comp_vectors = 1, .cmd_fd = -1, .async_fd = -1};
static struct ibv_device *const list[] = {&stub, NULL};

static void called(const char *what)
{
    const char *path = getenv("STUB_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;

    if (log) {
        fprintf(log, "%s\n", what);
        fclose(log);
    }
}

struct ibv_device **ibv_get_device_list(int *n)
{
    struct ibv_device **copy = malloc(sizeof(list));

    memcpy(copy, list, sizeof(list));
    if (n)
        *n = 1;
    return copy;
}

void ibv_free_device_list(struct ibv_device **entries)
{
    free(entries);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    called("get_device_name");
    return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
    (void) device;
    called("get_device_guid");
    return htobe64(0x57ab);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    called("open_device");
    return device == &stub ? &context : NULL;
}

int ibv_close_device(struct ibv_context *ctx)
{
    called("close_device");
    return ctx == &context ? 0 : -1;
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
    (void) ctx;
    called("query_device");
    *attr = (struct ibv_device_attr){.fw_ver = "stub-1.0", .phys_port_cnt = 1, .max_qp = 1};
    return 0;
}

/* The fields that the exported function fills are those in front of link_layer. */
int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *compat)
{
    const struct ibv_port_attr attr = {
        .state = IBV_PORT_ACTIVE, .max_mtu = IBV_MTU_1024, .active_mtu = IBV_MTU_1024, .lid = 77};

    (void) ctx;
    (void) port;
    called("query_port");
    memcpy(compat, &attr, offsetof(struct ibv_port_attr, link_layer));
    return 0;
}

int ibv_read_sysfs_file(const char *dir, const char *file, char *buffer, size_t size)
{
    (void) dir;
    (void) file;
    (void) buffer;
    (void) size;
    return -1;
}

const char *ibv_node_type_str(enum ibv_node_type type)
{
    (void) type;
    return "stub's node";
}
