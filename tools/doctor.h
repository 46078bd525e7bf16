/* SPDX-License-Identifier: BSD-3-Clause */
/* xrc_doctor: can this host run btl xrc? It does what the BTL does when a job starts, and says what came of it. */
#ifndef XRC_DOCTOR_H
#define XRC_DOCTOR_H

#include <stdbool.h>

#include "btl_xrc_board.h"
#include "btl_xrc_recvq.h"
#include "btl_xrc_verbs.h"
#include "report.h"

/** As the parameter btl_xrc_shim. */
enum shim_use { SHIM_AUTO, SHIM_NEVER, SHIM_ALWAYS };

/** What the command line says. */
struct options {
    const char *devices; /**< as btl_xrc_if_include; NULL: all */
    struct xrc_recvq recvq;
    enum shim_use shim;
    bool json;
};

/* ---- host.c: what the system gives to whoever uses an HCA ---- */

/** A file as the job's domain file would be, already without a name, opened twice as by two ranks. */
struct domain_file {
    struct xrc_board *board;
    int fd[2];
};

/** Can receive buffers be locked? */
void host_check_memory(const struct options *options);

/** The same for all ports that can be used. */
void host_check_memory_of_all(const struct options *options, unsigned ports);

/** Make one where the job's would be. Where there is no place for it a report says why. */
void host_make_domain_file(struct domain_file *file);
void host_drop_domain_file(struct domain_file *file);

/** May this user open the kernel's verbs devices? */
void host_check_nodes(void);

/** libibverbs lists no device: what does the kernel know? True if it has any. The software HCA may be a spare. */
bool host_explain_no_device(bool spare);

/** Room for what the software HCA keeps in memory. */
void host_check_fabric(void);

/* ---- device.c: an HCA and its ports ---- */

/** An HCA, opened twice as by two ranks. */
struct device {
    const char *name;
    struct ibv_context *context[2];
    struct ibv_device_attr attr;
    struct ibv_pd *pd;
    struct ibv_xrcd *xrcd[2];
    cJSON *facts;
    bool software;
};

/** Look at all devices that the BTL would use. */
void devices_check(const struct options *options, const struct domain_file *file);

/* ---- trial.c: queues and a message ---- */

/** A port as the trial needs it. */
struct port {
    struct ibv_port_attr attr;
    union ibv_gid gid;
    const char *about;
    uint8_t number;
};

/** Make what the BTL makes on a port and send a message through it. False after a report that says what failed. */
bool trial_port(const struct options *options, struct device *device, const struct port *port);

/** Make a TGT QP and open it by the other rank's domain. False after a report: no TGT QP can be made at all. */
bool trial_tgt(struct device *device);

/** Report a verb that failed with err; 0 stands for no reason given. */
void trial_failed(const char *about, const char *check, const char *verb, int err);

#endif
