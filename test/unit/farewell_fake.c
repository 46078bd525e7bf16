/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit/farewell_fake.h"

#include "btl_xrc_conn.h"
#include "btl_xrc_ud.h"

static mca_btl_xrc_module_t module[FAREWELL_PORTS];
static unsigned room[FAREWELL_PORTS], said[FAREWELL_INIS], lost;

/* In the places of those of btl_xrc_ud.c; linked with --wrap. */
bool __wrap_xrc_ud_has_room(const struct xrc_ud *ud);
void __wrap_xrc_ud_send(mca_btl_xrc_module_t *by, const struct xrc_contact *to, const struct xrc_port_addr *where,
                        struct xrc_msg *msg);

bool __wrap_xrc_ud_has_room(const struct xrc_ud *ud)
{
    return *(const unsigned *) (const void *) ud > 0;
}

void __wrap_xrc_ud_send(mca_btl_xrc_module_t *by, const struct xrc_contact *to, const struct xrc_port_addr *where,
                        struct xrc_msg *msg)
{
    unsigned *left = (unsigned *) (void *) by->ud;
    (void) to;
    (void) where;
    if (0 == *left) {
        ++lost;
    } else if (XRC_MSG_DISCONNECT == msg->type) {
        --*left;
        ++said[msg->ini_qpn];
    }
}

void farewell_reset(void)
{
    memset(room, 0, sizeof(room));
    memset(said, 0, sizeof(said));
    lost = 0;
    for (unsigned i = 0; i < FAREWELL_PORTS; ++i) {
        module[i].ud = (struct xrc_ud *) (void *) &room[i];
    }
}

void farewell_room(unsigned port, unsigned n)
{
    room[port] += n;
}

void farewell_say(unsigned port, uint32_t ini_qpn)
{
    struct xrc_farewell *farewell = (struct xrc_farewell *) calloc(1, sizeof(*farewell));
    farewell->module = &module[port];
    farewell->ini_qpn = ini_qpn;
    xrc_conn_service_farewell(farewell);
}

bool farewell_go_on(bool at_once)
{
    return xrc_conn_service_say_farewells(at_once);
}

unsigned farewell_said(uint32_t ini_qpn)
{
    return said[ini_qpn];
}

unsigned farewell_lost(void)
{
    return lost;
}
