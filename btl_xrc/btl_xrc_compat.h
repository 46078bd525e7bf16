/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What differs between Open MPI 4.1 (BTL 3.1.0), 5.0 and 6.0 (BTL 3.3.0). No other file of this directory looks at a
 * version.
 */
#ifndef BTL_XRC_COMPAT_H
#define BTL_XRC_COMPAT_H

#include "btl_xrc_config.h"

#include "opal_config.h"

#include <stdlib.h>
#include <string.h>

#include "opal/constants.h"
#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/btl.h"
#include "opal/runtime/opal.h"
#include "opal/util/proc.h"
#include "opal/util/show_help.h"

#if BTL_VERSION >= 330
#    include "opal/mca/pmix/pmix-internal.h"
#    include "opal/mca/threads/mutex.h"
#    include "opal/mca/threads/thread_usage.h"
#    define XRC_PMIX_GLOBAL PMIX_GLOBAL
#else
#    include "opal/mca/pmix/pmix.h"
#    include "opal/threads/mutex.h"
#    include "opal/threads/thread_usage.h"
#    define XRC_PMIX_GLOBAL OPAL_PMIX_GLOBAL
typedef volatile int32_t opal_atomic_int32_t;
typedef volatile int64_t opal_atomic_int64_t;
#endif

/* The series that this was built for. */
#define XRC_BUILT_MAJOR OPAL_MAJOR_VERSION
#define XRC_BUILT_MINOR OPAL_MINOR_VERSION

/* Static builds of 6.0 look for a pointer of a fixed name. */
#ifndef MCA_BASE_COMPONENT_INIT
#    define MCA_BASE_COMPONENT_INIT(project, framework, name)
#endif

#ifdef MCA_BTL_FLAGS_RDMA_REMOTE_COMPLETION
#    define XRC_FLAG_REMOTE_COMPLETION MCA_BTL_FLAGS_RDMA_REMOTE_COMPLETION
#else
#    define XRC_FLAG_REMOTE_COMPLETION 0
#endif

/* 5.0 aborts in its active messages when a received fragment names no endpoint; 4.1 does not even take one. */
#define XRC_NEEDS_SENDER (BTL_VERSION >= 330)

/* What an enumerator's dump() is told from 5.0 on. */
#if BTL_VERSION >= 330
#    define XRC_ENUM_DUMP_FORMAT , __opal_attribute_unused__ mca_base_var_enum_dump_type_t format
#else
#    define XRC_ENUM_DUMP_FORMAT
#endif

/* 6.0 reads help texts from its own library only: an out-of-tree component prints its own. */
#define XRC_OWN_HELP (BTL_XRC_STANDALONE && OPAL_MAJOR_VERSION >= 6)

/** Hand a received fragment to whoever registered for @a tag. The data is valid until this returns. */
static inline void xrc_compat_deliver(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *from,
                                      mca_btl_base_tag_t tag, mca_btl_base_segment_t *segment)
{
    mca_btl_active_message_callback_t *reg = mca_btl_base_active_message_trigger + tag;
#if BTL_VERSION >= 330
    mca_btl_base_receive_descriptor_t desc = {
        .endpoint = from, .des_segments = segment, .des_segment_count = 1, .tag = tag, .cbdata = reg->cbdata};
    reg->cbfunc(btl, &desc);
#else
    mca_btl_base_descriptor_t desc = {.des_segments = segment, .des_segment_count = 1};
    (void) from;
    reg->cbfunc(btl, tag, &desc, reg->cbdata);
#endif
}

/** True when somebody listens to @a tag. */
static inline bool xrc_compat_listens(mca_btl_base_tag_t tag)
{
    return tag < MCA_BTL_TAG_MAX && NULL != mca_btl_base_active_message_trigger[tag].cbfunc;
}

/** Name of the host @a proc runs on, to be freed by the caller. */
static inline char *xrc_compat_hostname(const opal_proc_t *proc)
{
    char *name = (char *) opal_get_proc_hostname(proc);
#if BTL_VERSION >= 330
    return NULL != name ? name : strdup("unknown");
#else
    return strdup(NULL != name ? name : "unknown");
#endif
}

/** The directory PMIx made for this job on this host, to be freed by the caller; NULL when there is none. */
static inline char *xrc_compat_job_directory(void)
{
    char *dir = NULL;
    int rc;
#if BTL_VERSION >= 330
    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, PMIX_NSDIR, &opal_process_info.my_name, (char **) &dir, PMIX_STRING);
#else
    opal_process_name_t me = OPAL_PROC_MY_NAME;
    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, OPAL_PMIX_NSDIR, &me, (char **) &dir, OPAL_STRING);
#endif
    return OPAL_SUCCESS == rc ? dir : NULL;
}

#endif
