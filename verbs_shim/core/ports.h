/* What a subnet manager does to ports: the change, then its event to every context of the host's. Control lock held. */
#ifndef VS_PORTS_H
#define VS_PORTS_H

#include "fabric/fabric.h"

/* Only an active port carries packets: PORT_ACTIVE when it becomes one, PORT_ERR when it was one. */
void vs_port_set_state(struct vs_port_shm *port, enum ibv_port_state state);

/* As vs_fabric_set_lmc; LID_CHANGE. */
int vs_port_set_lmc(uint32_t port_index, uint32_t lmc);

/* Entry index of the P_Key table; PKEY_CHANGE. */
void vs_port_set_pkey(struct vs_port_shm *port, uint32_t index, uint16_t value);

/* Reaper: tell of changes that a dead process had made and not told all of. Some hear twice. */
void vs_ports_reaped(uint32_t proc_id);

#endif
