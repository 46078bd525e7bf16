/* SPDX-License-Identifier: BSD-3-Clause */
/* Verbs: libibverbs alone, or with the software HCA behind the same calls. */
#ifndef BTL_XRC_VERBS_H
#define BTL_XRC_VERBS_H

#include "btl_xrc_config.h"

#if BTL_XRC_HAVE_VERBS_SHIM
#    include "verbs_shim_names.h"

#    include "verbs_shim.h"
#else
#    include <infiniband/verbs.h>
#endif

#endif
