/* What the software HCA offers at most; ibv_query_device reports these, creation enforces them. */
#ifndef VS_LIMITS_H
#define VS_LIMITS_H

#include "memory/layout.h"

#define VS_MAX_QP_WR 16384u
#define VS_MAX_SRQ_WR 32767u
#define VS_MAX_INLINE 1024u
#define VS_MAX_RD_ATOMIC 16u
#define VS_MAX_MTU 4096u
#define VS_GRH_BYTES 40u

#endif
