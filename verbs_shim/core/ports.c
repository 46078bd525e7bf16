#include "core/ports.h"

#include "core/event.h"
#include "fabric/faults.h"

/* From here on, whoever clears this process away tells of the event in its place. */
static void begin(struct vs_port_shm *port, enum ibv_event_type event)
{
	vs_store_full(&port->telling, (uint64_t)vs_me_id << 32 | event);
	VS_POINT(port_changing);
}

static void tell(struct vs_port_shm *port, enum ibv_event_type event)
{
	vs_add(&vs_seg->fabric_epoch, 1);
	vs_event_port(port, event);
	VS_POINT(port_told);
	vs_store(&port->telling, 0);
}

void vs_port_set_state(struct vs_port_shm *port, enum ibv_port_state state)
{
	uint32_t was = vs_load(&port->state);
	enum ibv_event_type event = state == IBV_PORT_ACTIVE ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
	bool told = was != state && (was == IBV_PORT_ACTIVE || state == IBV_PORT_ACTIVE);

	if (told)
		begin(port, event);
	vs_store(&port->state, state);
	VS_POINT(state_set);
	if (told)
		tell(port, event);
	else
		vs_add(&vs_seg->fabric_epoch, 1);
}

int vs_port_set_lmc(uint32_t port_index, uint32_t lmc)
{
	struct vs_port_shm *port = vs_slot_at(VS_PORT, port_index);
	int err;

	begin(port, IBV_EVENT_LID_CHANGE);
	err = vs_fabric_set_lmc(port_index, lmc);
	if (err)
		vs_store(&port->telling, 0);
	else
		tell(port, IBV_EVENT_LID_CHANGE);
	return err;
}

void vs_port_set_pkey(struct vs_port_shm *port, uint32_t index, uint16_t value)
{
	begin(port, IBV_EVENT_PKEY_CHANGE);
	vs_store(&port->pkey[index], value);
	VS_POINT(pkey_set);
	tell(port, IBV_EVENT_PKEY_CHANGE);
}

/* Did it come to what the event says? Of LIDs and P_Keys it says no more than to look. */
static bool came_about(const struct vs_port_shm *port, enum ibv_event_type event)
{
	bool active = vs_load(&port->state) == IBV_PORT_ACTIVE;

	return event == IBV_EVENT_PORT_ACTIVE ? active : event == IBV_EVENT_PORT_ERR ? !active : true;
}

void vs_ports_reaped(uint32_t proc_id)
{
	struct vs_port_shm *port;
	uint32_t index;

	vs_for_each_live (VS_PORT, index, port) {
		uint64_t telling = vs_load(&port->telling);

		if (telling >> 32 != proc_id)
			continue;
		if (came_about(port, (enum ibv_event_type)(uint32_t)telling))
			vs_event_port(port, (uint32_t)telling);
		vs_cas(&port->telling, telling, 0);
	}
}
