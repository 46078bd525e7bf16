// How the HCA's contexts present themselves to programs, which were compiled with libibverbs' headers and find most verbs through pointers.
#include "conform/verbs.h"

namespace
{

using namespace vt;

class Abi : public vt::Test
{
};

// An extended context is one whose abi_compat is all ones, and has the operations that its size, counted from its end, takes in.
TEST_F(Abi, TheContextIsExtendedAndAsLargeAsItSays)
{
    Context c = open_device();
    ASSERT_EQ(c->abi_compat, __VERBS_ABI_IS_EXTENDED);
    verbs_context *v = verbs_get_ctx(c);
    ASSERT_NE(v, nullptr);
    EXPECT_EQ(v->sz, sizeof(verbs_context));
    EXPECT_EQ(&v->context, (ibv_context *) c);
    EXPECT_EQ(reinterpret_cast<char *>(&v->context) - reinterpret_cast<char *>(v), (ptrdiff_t) offsetof(verbs_context, context));
}

TEST_F(Abi, WhatIsReachedThroughPointersIsThere)
{
    Context c = open_device();
    EXPECT_NE(verbs_get_ctx_op((ibv_context *) c, query_port), nullptr);
    EXPECT_NE(verbs_get_ctx_op((ibv_context *) c, query_device_ex), nullptr);
    EXPECT_NE(verbs_get_ctx_op((ibv_context *) c, open_xrcd), nullptr);
    EXPECT_NE(verbs_get_ctx_op((ibv_context *) c, close_xrcd), nullptr);
    EXPECT_NE(verbs_get_ctx_op((ibv_context *) c, create_srq_ex), nullptr);
    EXPECT_NE(verbs_get_ctx_op((ibv_context *) c, get_srq_num), nullptr);
    EXPECT_NE(verbs_get_ctx_op((ibv_context *) c, create_qp_ex), nullptr);
    EXPECT_NE(verbs_get_ctx_op((ibv_context *) c, open_qp), nullptr);
    EXPECT_NE(verbs_get_ctx_op((ibv_context *) c, create_cq_ex), nullptr);
    EXPECT_NE(c->ops.poll_cq, nullptr);
    EXPECT_NE(c->ops.req_notify_cq, nullptr);
    EXPECT_NE(c->ops.post_send, nullptr);
    EXPECT_NE(c->ops.post_recv, nullptr);
    EXPECT_NE(c->ops.post_srq_recv, nullptr);
}


// The size of the caller's attributes comes along, and nothing behind it is touched.
TEST_F(Abi, QueryPortWritesNoMoreThanItWasGivenRoomFor)
{
    Context c = open_device();
    verbs_context *v = verbs_get_ctx(c);
    for (size_t room : {offsetof(ibv_port_attr, link_layer), offsetof(ibv_port_attr, port_cap_flags2), sizeof(ibv_port_attr)}) {
        unsigned char bytes[sizeof(ibv_port_attr) + 64];
        memset(bytes, 0xa5, sizeof(bytes));
        ASSERT_EQ(v->query_port(c, 1, reinterpret_cast<ibv_port_attr *>(bytes), room), 0);
        EXPECT_EQ(reinterpret_cast<ibv_port_attr *>(bytes)->state, IBV_PORT_ACTIVE);
        for (size_t i = room; i < sizeof(bytes); i++)
            ASSERT_EQ(bytes[i], 0xa5) << "byte " << i << " of " << room;
    }
}

} // namespace
