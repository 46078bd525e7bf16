// The vshim tool is killed over each order, at every point that it comes by: the nth of them, for all n. Whoever goes on has a sound segment,
// hears of whatever became of the order, and can give it again.
#include "../conform/faults.h"

using namespace vt;

namespace
{

// Two ports, so that what is sent from one to the other meets a switch.
struct Host {
    Setting name{"VERBS_SHIM_HOST", "h0"};
    Setting topology{"VERBS_SHIM_TOPOLOGY", "ports=2"};
    Setting destroy{"RDMAV_ALLOW_DISASSOC_DESTROY", "1"}; // also what was unplugged
    Node node{4096};
};

struct Seen {
    bool there;
    ibv_port_attr port;
    uint16_t pkey;
};

Seen look(ibv_context *ctx)
{
    Seen s = {};
    s.there = ibv_query_port(ctx, 1, &s.port) == 0;
    ibv_query_pkey(ctx, 1, 1, &s.pkey);
    return s;
}

ibv_wc_status send_from_port_1_to_2(const Node &n)
{
    ibv_port_attr port;
    need(ibv_query_port(n.ctx, 2, &port) == 0, "ibv_query_port");
    Qp from = make_qp(IBV_QPT_RC, n.pd, n.cq), to = make_qp(IBV_QPT_RC, n.pd, n.cq);
    Path p;
    p.lid = port.lid;
    p.qpn = to->qp_num;
    bring_up(from, p);
    p.lid = look(n.ctx).port.lid;
    p.qpn = from->qp_num;
    p.port = 2;
    bring_up(to, p);
    return outcome(from, Send(IBV_WR_RDMA_WRITE, {n.sge(0, 64)}).at(n.addr(64), n.mr->rkey));
}

int try_alloc_pd(const Node &n)
{
    Pd pd(ibv_alloc_pd(n.ctx));
    return pd ? 0 : errno;
}

bool can_xrc(const Node &n)
{
    ibv_device_attr a = {};
    need(ibv_query_device(n.ctx, &a) == 0, "ibv_query_device");
    return a.device_cap_flags & IBV_DEVICE_XRC;
}

struct Order {
    const char *name, *before, *words;
    bool (*holds)(const Node &n); // once it was carried out
};

bool anything(const Node &)
{
    return true;
}

const Order orders[] = {
    {"LinkDown", "", "link down all", [](const Node &n) { return look(n.ctx).port.state == IBV_PORT_DOWN; }},
    {"LinkUp", "link down all", "link up all", [](const Node &n) { return look(n.ctx).port.state == IBV_PORT_ACTIVE; }},
    {"Port", "", "port all init", [](const Node &n) { return look(n.ctx).port.state == IBV_PORT_INIT; }},
    {"Flap", "", "flap all 1 1", [](const Node &n) { return look(n.ctx).port.state == IBV_PORT_ACTIVE; }},
    {"Lmc", "", "lmc all 2", [](const Node &n) { return look(n.ctx).port.lmc == 2; }},
    {"Route", "", "route down all 0", [](const Node &n) { return send_from_port_1_to_2(n) == IBV_WC_RETRY_EXC_ERR; }},
    {"Pkey", "", "pkey all 1 0x8001", [](const Node &n) { return look(n.ctx).pkey == htobe16(0x8001); }},
    {"Unplug", "", "unplug all", [](const Node &n) { return !look(n.ctx).there; }},
    {"Plug", "unplug all", "plug all", [](const Node &) { return look(open_device()).port.state == IBV_PORT_ACTIVE; }},
    {"Refuse", "", "refuse alloc_pd EBUSY times ever", [](const Node &n) { return try_alloc_pd(n) == EBUSY; }},
    {"RefuseOther", "refuse alloc_pd EAGAIN times ever", "refuse alloc_pd EBUSY times ever",
     [](const Node &n) { return try_alloc_pd(n) == EBUSY; }},
    {"RefuseOff", "refuse alloc_pd EBUSY times ever", "refuse alloc_pd off",
     [](const Node &n) { return try_alloc_pd(n) == 0; }},
    {"Drop", "", "drop packet times ever",
     [](const Node &n) { return send_from_port_1_to_2(n) == IBV_WC_RETRY_EXC_ERR; }},
    {"Clear", "drop packet times ever", "clear",
     [](const Node &n) { return send_from_port_1_to_2(n) == IBV_WC_SUCCESS; }},
    {"Caps", "", "caps -xrc -apm", [](const Node &n) { return !can_xrc(n); }},
    {"Set", "", "set tgt_exit=orphan,src_qp=mlx4", anything},
    {"Devices", "", "devices 3", anything},
    {"Reclaim", "", "reclaim", anything},
    {"List", "", "list", anything},
    {"Check", "", "check", anything},
    {"Counters", "", "counters", anything},
};

Told killed_at(int nth, const std::string &words)
{
    Setting there("VERBS_SHIM_DIE_AT", "any:" + std::to_string(nth));
    alarm(watchdog_seconds);
    return run(tool() + "_points", words);
}

// Waits until the context has heard of it.
void hear(ibv_context *ctx, ibv_event_type wanted)
{
    while (ack_next(ctx) != wanted) {
    }
}

void hear_of_changes(ibv_context *ctx, const Seen &before, const Seen &now)
{
    if (!now.there) {
        if (before.there)
            hear(ctx, IBV_EVENT_DEVICE_FATAL);
        return;
    }
    if (now.port.state != before.port.state)
        hear(ctx, now.port.state == IBV_PORT_ACTIVE ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
    if (now.port.lmc != before.port.lmc)
        hear(ctx, IBV_EVENT_LID_CHANGE);
    if (now.pkey != before.pkey)
        hear(ctx, IBV_EVENT_PKEY_CHANGE);
}

// From point to point; in an ordinary check with a sanitizer, where the tool takes long to start, every fifth.
const int stride = 5 / repetitions(5, 5);

class Orders : public Test, public ::testing::WithParamInterface<Order>
{
};

TEST_P(Orders, KilledAnywhereLeavesNothingHalf)
{
    bool killed = true;
    int n = 1;
    for (; killed && !HasFailure(); n += stride) {
        SCOPED_TRACE(testing::Message() << "killed at point " << n);
        Host h;
        if (*GetParam().before)
            order(GetParam().before);
        while (readable(h.node.ctx->async_fd) && look(h.node.ctx).there)
            ack_next(h.node.ctx);
        Seen before = look(h.node.ctx);
        Told told = killed_at(n, GetParam().words);
        killed = told.status == 256 + SIGKILL;
        EXPECT_TRUE(killed || told.status == 0) << told.text;
        check_fabric();
        hear_of_changes(h.node.ctx, before, look(h.node.ctx));
        order(GetParam().words);
        EXPECT_TRUE(GetParam().holds(h.node));
        check_fabric();
    }
    printf("%s: %d kills\n", GetParam().words, (n - 1) / stride - 1);
    EXPECT_GE(n - 2 * stride, 5) << "the last point at which it was killed";
}

INSTANTIATE_TEST_SUITE_P(All, Orders, ::testing::ValuesIn(orders),
                         [](const auto &info) { return std::string(info.param.name); });

class OrdersTest : public Test
{
};

// Killed anywhere while it makes a fabric, fills it and removes it.
TEST_F(OrdersTest, AFabricThatWithWasMakingIsNobodys)
{
    bool killed = true;
    int n = 1;
    for (; killed && !HasFailure(); n += stride) {
        SCOPED_TRACE(testing::Message() << "killed at point " << n);
        Setting topology("VERBS_SHIM_TOPOLOGY", "ports=2");
        Told told = killed_at(n, "with 'set src_qp=mlx4; devices 2' -- true");
        killed = told.status == 256 + SIGKILL;
        EXPECT_TRUE(killed || told.status == 0) << told.text;
        Host h;
        EXPECT_EQ(send_from_port_1_to_2(h.node), IBV_WC_SUCCESS);
        check_fabric();
    }
    printf("with: %d kills\n", (n - 1) / stride - 1);
    EXPECT_GE(n - 2 * stride, 20) << "the last point at which it was killed";
}

// Orphans there may not be any more once `set` has said so, also where it does not come to clearing them away.
TEST_F(OrdersTest, OrphansGoThoughWhoForbidsThemIsKilled)
{
    bool killed = true;
    for (int n = 1; killed && !HasFailure(); n += stride) {
        SCOPED_TRACE(testing::Message() << "killed at point " << n);
        Host h;
        order("set tgt_exit=orphan");
        {
            Xrcd domain = make_xrcd(h.node.ctx);
            Qp orphan = make_tgt(domain);
        }
        killed = killed_at(n, "set tgt_exit=destroy").status == 256 + SIGKILL;
        check_fabric();
        order("set tgt_exit=destroy");
        EXPECT_NE(objects().find("0 TGT QPs"), std::string::npos) << objects();
    }
}

// A route that is down is one to a LID. The LIDs that a port gets next are reached, however far the order has come.
TEST_F(OrdersTest, ALostRouteIsNoneOfTheNextLids)
{
    bool killed = true;
    for (int n = 1; killed && !HasFailure(); n += stride) {
        SCOPED_TRACE(testing::Message() << "killed at point " << n);
        Host h;
        order("route down h0/vshim0/2 0");
        killed = killed_at(n, "lmc h0/vshim0/2 1").status == 256 + SIGKILL;
        check_fabric();
        ibv_port_attr port;
        ASSERT_EQ(ibv_query_port(h.node.ctx, 2, &port), 0);
        EXPECT_EQ(send_from_port_1_to_2(h.node), port.lmc ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
    }
}

} // namespace
