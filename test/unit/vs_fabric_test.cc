// LIDs lead to ports that are there, and to nothing else.
#include <infiniband/verbs.h>

#include "attached.h"

extern "C" {
#include "fabric/fabric.h"
#include "memory/slots.h"
}

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace
{

class Fabric : public Attached
{
};

TEST_F(Fabric, ALidLeadsToItsPort)
{
    vs_port_shm *port = vs_fabric_port(vs_fabric_hca(vs_fabric_my_host()->hca[0]), 1);
    ASSERT_NE(port, nullptr);
    EXPECT_EQ(vs_fabric_port_of_lid(port->lid), port);
    EXPECT_EQ(vs_fabric_port_of_lid(0), nullptr);
    EXPECT_EQ(vs_fabric_port_of_lid(VS_LID_LIMIT - 1), nullptr);
    EXPECT_EQ(vs_fabric_port_of_lid(VS_LID_LIMIT), nullptr);
}

// The maker of a host may die before it is there; its ports are freed, the map of LIDs still names them.
TEST_F(Fabric, NoLidLeadsToAPortThatIsNot)
{
    uint32_t index;
    vs_control_lock();
    ASSERT_EQ(vs_slot_alloc(VS_PORT, vs_me_id, &index), 0);
    ASSERT_EQ(vs_fabric_set_lmc(index, 1), 0);
    auto *port = (vs_port_shm *) vs_slot_at(VS_PORT, index);
    uint16_t lid = port->lid;
    EXPECT_EQ(vs_fabric_port_of_lid(lid), nullptr) << "in the making";
    vs_slot_publish(VS_PORT, index);
    EXPECT_EQ(vs_fabric_port_of_lid(lid), port);
    EXPECT_EQ(vs_fabric_port_of_lid(lid + 1), port);
    EXPECT_EQ(vs_fabric_port_of_lid(lid + 2), nullptr);
    vs_slot_free(VS_PORT, index);
    EXPECT_EQ(vs_fabric_port_of_lid(lid), nullptr) << "gone";
    EXPECT_EQ(vs_fabric_port_of_lid(lid + 1), nullptr);
    vs_control_unlock();
}

} // namespace
