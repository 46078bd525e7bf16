/* SPDX-License-Identifier: BSD-3-Clause */
/* Farewells of the service thread, into wire-up queues that take what they are told to, for C++. */
#ifndef TEST_UNIT_FAREWELL_FAKE_H
#define TEST_UNIT_FAREWELL_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAREWELL_PORTS 2
#define FAREWELL_INIS  1024

void farewell_reset(void);

/** The queue of @a port takes so many more messages. */
void farewell_room(unsigned port, unsigned n);

/** An INI of this number, on this port, is gone. */
void farewell_say(unsigned port, uint32_t ini_qpn);

/** Whatever can go, goes; or all @a at_once. True: some are left. */
bool farewell_go_on(bool at_once);

/** How often it has been said that this INI is gone. */
unsigned farewell_said(uint32_t ini_qpn);

/** Messages that there was no room for. */
unsigned farewell_lost(void);

#ifdef __cplusplus
}
#endif

#endif
