/* What programs see. devices.c: the device list; context.c: contexts and their operation tables; exports.c: every public name;
 * paths.c: files that programs look for. */
#ifndef VS_API_H
#define VS_API_H

#include <stdbool.h>

#include "hca/hca.h"

#define VS_PUBLIC __attribute__((visibility("default")))

/* ---- devices.c ---- */
struct ibv_device **vs_get_device_list(int *num_devices);
void vs_free_device_list(struct ibv_device **list);
bool vs_device_ours(const struct ibv_device *device);
bool vs_have_real_devices(void);

/* The i-th software HCA of the host, i less than VS_MAX_HCAS, if the last device list had it; else NULL. Takes no lock: stat may be called
 * anywhere. */
const struct ibv_device *vs_device_shown(uint32_t i);

/* ---- context.c ---- */
struct ibv_context *vs_open_device(struct ibv_device *device);
int vs_close_device(struct ibv_context *context);

/* Another context on the device of the one that cmd_fd, duplicated, belongs to. Owns cmd_fd from then on. NULL and errno. */
struct ibv_context *vs_import_device(struct ibv_device *device, int cmd_fd);

/* Is this a context of a software HCA? VS_INHERITED: one that a forked child has of its parent's, or
 * one of a process that has left the fabric at exit. */
enum vs_whose { VS_FOREIGN = 0, VS_OURS, VS_INHERITED };
enum vs_whose vs_ours(const struct ibv_context *context);

/* Turn it from one into the other. */
void vs_disown(struct vs_context *context);

#endif
