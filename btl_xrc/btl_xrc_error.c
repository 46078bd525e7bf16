/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "opal/util/printf.h"

#include "btl_xrc_apm.h"
#include "btl_xrc_conn.h"
#include "btl_xrc_help.h"
#include "btl_xrc_service.h"

#define HELP_FILE "help-mpi-btl-xrc.txt"

void xrc_say(const char *format, ...)
{
    char line[1024];
    size_t most = sizeof(line) - 1; /* and the end of the line */
    va_list args;
    int n = snprintf(line, most, "[%s:%05d] ", opal_process_info.nodename, (int) getpid());
    size_t length = n < 0 ? 0 : (size_t) n < most ? (size_t) n : most - 1;
    va_start(args, format);
    n = vsnprintf(line + length, most - length, format, args);
    va_end(args);
    length += n < 0 ? 0 : (size_t) n < most - length ? (size_t) n : most - length - 1;
    line[length++] = '\n';
    ssize_t rc = write(STDERR_FILENO, line, length);
    (void) rc; /* nobody else to tell */
}

static char *render_own(const char *topic, va_list args)
{
    char *text = NULL;
    for (unsigned i = 0; i < sizeof(xrc_help) / sizeof(xrc_help[0]); ++i) {
        if (0 == strcmp(xrc_help[i].topic, topic)) {
            return opal_vasprintf(&text, xrc_help[i].text, args) >= 0 ? text : NULL;
        }
    }
    return NULL;
}

/*
 * Most troubles hit all local ranks at once. Whoever makes the mark in the session directory is the one to speak;
 * without such a directory it is local rank 0.
 */
static bool first_here(const char *topic)
{
    char *mark = NULL;
    if (NULL == opal_process_info.job_session_dir
        || opal_asprintf(&mark, "%s/btl_xrc_said_%s", opal_process_info.job_session_dir, topic) < 0) {
        return 0 == opal_process_info.my_local_rank;
    }
    for (char *p = mark + strlen(mark) - strlen(topic); '\0' != *p; ++p) {
        *p = ' ' == *p ? '_' : *p;
    }
    int fd = open(mark, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool first = fd >= 0 || (EEXIST != errno && 0 == opal_process_info.my_local_rank);
    if (fd >= 0) {
        close(fd);
    }
    free(mark);
    return first;
}

/*
 * Not by opal_show_help(): it sends the text to mpirun through PMIx, and with Open MPI 4.1.4 and PMIx 4.2 that loses
 * one message in three.
 */
void xrc_show_help(const char *topic, ...)
{
    if (!mca_btl_xrc_component.speak) {
        return;
    }
    mca_btl_xrc_component.said = true;
    if (!first_here(topic)) {
        return;
    }
    va_list args;
    va_start(args, topic);
    char *text = XRC_OWN_HELP ? render_own(topic, args) : opal_show_help_vstring(HELP_FILE, topic, true, args);
    va_end(args);
    const char *what = NULL != text ? text : topic;
    fprintf(stderr, "%s%s", what, '\n' == what[strlen(what) - 1] ? "" : "\n");
    free(text);
}

/* ---- causes ---- */

/* What a failed work request says about the other side, and what to look at. */
/* clang-format off */
static const struct {
    enum ibv_wc_status status;
    const char *cause;
    const char *advice;
} advice[] = {
    {IBV_WC_RETRY_EXC_ERR, "the other side did not answer: its process or host is gone, or the path is broken",
     "See whether the remote host and its link are up (ibstat, ibping); if the fabric is only slow, raise "
     "btl_xrc_ib_timeout."},
    {IBV_WC_RNR_RETRY_EXC_ERR, "the receiver had no buffer for too long",
     "Give it more in btl_xrc_receive_queues, or let btl_xrc_ib_rnr_retry be 7."},
    {IBV_WC_REM_ACCESS_ERR, "the remote memory is not, or no longer, registered",
     "This is a fault in a program or in Open MPI: was the buffer freed while in use?"},
    {IBV_WC_REM_INV_REQ_ERR, "the other side refused the request",
     "Its receive queue may be gone because the process has ended."},
    {IBV_WC_REM_INV_RD_REQ_ERR, "the receive queue of the other side does not exist any more",
     "The process has ended, or was killed; look for its own message."},
    {IBV_WC_REM_OP_ERR, "the other side could not finish the request", "Look for messages on the remote host."},
    {IBV_WC_LOC_PROT_ERR, "local memory is not, or no longer, registered",
     "This is a fault in a program or in Open MPI: was the buffer freed while in use?"},
    {IBV_WC_WR_FLUSH_ERR, "the processes on the other side have ended without waiting for it",
     "Is there a message that the program sends and nobody receives before MPI_Comm_disconnect or MPI_Finalize?"},
    {IBV_WC_LOC_LEN_ERR, "a message is longer than the port allows", "This is a fault in this component."},
};

/* clang-format on */

#define ADVICES (sizeof(advice) / sizeof(advice[0]))

static unsigned advice_for(enum ibv_wc_status status)
{
    unsigned i = 0;
    while (i < ADVICES && advice[i].status != status) {
        ++i;
    }
    return i;
}

static char *host_of(const struct mca_btl_base_endpoint_t *endpoint)
{
    return NULL != endpoint ? xrc_compat_hostname(endpoint->proc) : strdup("unknown");
}

void xrc_error_send(struct xrc_node *node, const struct mca_btl_base_endpoint_t *endpoint, enum ibv_wc_status status)
{
    unsigned i = advice_for(status);
    char *host = host_of(endpoint), *paths = xrc_apm_describe(node->apm);
    uint32_t qpn = XRC_NO_QPN != xrc_node_ini_qpn(node) ? xrc_node_ini_qpn(node) : 0;
    if (NULL != paths) {
        xrc_show_help("all paths failed", opal_process_info.nodename, node->module->device->name, host,
                      NULL != endpoint ? (unsigned) endpoint->name.vpid : 0u, paths, qpn, (unsigned) node->tgt_qpn,
                      ibv_wc_status_str(status), i < ADVICES ? advice[i].cause : "-");
        free(paths);
        free(host);
        return;
    }
    xrc_show_help("send failed", opal_process_info.nodename, node->module->device->name,
                  (unsigned) node->module->addr.port, host, NULL != endpoint ? (unsigned) endpoint->name.vpid : 0u,
                  (unsigned) node->addr.lid, qpn, (unsigned) node->tgt_qpn, ibv_wc_status_str(status),
                  i < ADVICES ? advice[i].cause : "-", i < ADVICES ? advice[i].advice : "-");
    free(host);
}

void xrc_error_recv(mca_btl_xrc_module_t *module, enum ibv_wc_status status)
{
    OPAL_THREAD_ADD_FETCH32(&mca_btl_xrc_component.counters.bad_frags, 1);
    if (!module->recv_fault_said && !module->closing && IBV_WC_WR_FLUSH_ERR != status) {
        module->recv_fault_said = 1;
        XRC_VERBOSE(1, "%s port %u: a receive failed: %s", module->device->name, module->addr.port,
                    ibv_wc_status_str(status));
    }
}

void xrc_error_connect(const struct xrc_conn *conn)
{
    const struct xrc_node *node = conn->node;
    char *host = host_of(node->endpoints);
    char *why = NULL;
    if (0 != conn->err) {
        opal_asprintf(&why, "our INI QP could not be connected: %s", strerror(conn->err));
    } else if (0 != conn->reason) {
        opal_asprintf(&why, "it refused: %s", xrc_msg_reason_text(conn->reason));
    } else {
        why = strdup("it never answered");
    }
    xrc_show_help("no connection", opal_process_info.nodename, node->module->device->name,
                  (unsigned) node->module->addr.port, host, (unsigned) conn->contact[0].name.vpid,
                  (unsigned) conn->remote.lid, (unsigned) conn->contact[0].ud.qpn, NULL != why ? why : "-",
                  conn->attempt, conn->ncontacts, (unsigned) ((xrc_service_now_ms() - conn->began_ms) / 1000u));
    free(why);
    free(host);
}

void xrc_error_verb(const struct xrc_device *device, const char *what, int err)
{
    struct rlimit limit = {0, 0};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    char locked[32] = "unlimited";
    if (RLIM_INFINITY != limit.rlim_cur) {
        snprintf(locked, sizeof(locked), "%lu KiB", (unsigned long) (limit.rlim_cur >> 10));
    }
    xrc_show_help("verb failed", what, device->name, opal_process_info.nodename,
                  0 != err ? strerror(err) : "no reason given", locked);
}
