// What tests of path migration share: loading alternates, migration states, the events of one process.
#ifndef TEST_CONFORM_APM_H
#define TEST_CONFORM_APM_H

#include "conform/faults.h"

namespace vt
{

// ---- attributes ----

inline int migrate_to(ibv_qp *qp, ibv_mig_state state)
{
    ibv_qp_attr a = {};
    a.qp_state = IBV_QPS_RTS;
    a.path_mig_state = state;
    return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PATH_MIG_STATE);
}

inline ibv_qp_attr query(ibv_qp *qp)
{
    ibv_qp_attr a = {};
    ibv_qp_init_attr init;
    need(ibv_query_qp(qp, &a, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_AV, &init) == 0, "ibv_query_qp");
    return a;
}

inline ibv_mig_state mig_of(ibv_qp *qp)
{
    return query(qp).path_mig_state;
}

// One end of a path.
struct Way {
    uint8_t port;
    uint8_t bits;
    uint16_t peer_lid;
};

inline void set_way(ibv_ah_attr *av, const Way &w)
{
    *av = {};
    av->dlid = w.peer_lid;
    av->port_num = w.port;
    av->src_path_bits = w.bits;
}

inline void set_alternate(ibv_qp_attr *a, const Way &w, uint8_t timeout = 8)
{
    set_way(&a->alt_ah_attr, w);
    a->alt_port_num = w.port;
    a->alt_timeout = timeout;
}

inline int load(ibv_qp *qp, const Way &w, bool rearm, ibv_qp_state state = IBV_QPS_RTS)
{
    ibv_qp_attr a = {};
    a.qp_state = state;
    a.path_mig_state = IBV_MIG_REARM;
    set_alternate(&a, w);
    return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_ALT_PATH | (rearm ? IBV_QP_PATH_MIG_STATE : 0));
}

inline int bring_up_on(ibv_qp *qp, const Way &w, uint32_t peer, uint8_t retry = 1, uint8_t timeout = 8)
{
    Path p;
    p.qpn = peer;
    p.lid = w.peer_lid;
    p.port = w.port;
    p.path_bits = w.bits;
    p.retry = retry;
    p.timeout = timeout;
    int err = to_init(qp, p);
    err = err ? err : to_rtr(qp, p);
    return err ? err : to_rts(qp, p);
}

// ---- events ----

// The events of a process, counted. The engine delivers in order: once an event of the process's own making is there, so is
// everything that was raised before.
class Events
{
  public:
    explicit Events(const Node &n) : n_(n), cq_(make_cq(n.ctx)), srq_(make_srq(n.pd))
    {
        nonblocking(n.ctx->async_fd);
    }
    int count(ibv_event_type type, const ibv_qp *of)
    {
        drain();
        return (int)std::count(seen_.begin(), seen_.end(), std::make_pair(type, of));
    }
    int all(ibv_event_type type)
    {
        drain();
        return (int)std::count_if(seen_.begin(), seen_.end(), [type](auto &e) { return e.first == type; });
    }
    void settle()
    {
        Qp mark = make_qp(IBV_QPT_RC, n_.pd, n_.cq, srq_);
        need(to_init(mark) == 0 && to_state(mark, IBV_QPS_ERR) == 0, "mark");
        until([&] { return count(IBV_EVENT_QP_LAST_WQE_REACHED, mark) == 1; });
        forget(mark);
    }
    // Waits for n of them, and sees that there are no more.
    void expect(ibv_event_type type, const ibv_qp *of, int n)
    {
        until([&] { return count(type, of) >= n; });
        settle();
        EXPECT_EQ(count(type, of), n) << ibv_event_type_str(type);
    }
    void forget(const ibv_qp *of)
    {
        seen_.erase(std::remove_if(seen_.begin(), seen_.end(), [of](auto &e) { return e.second == of; }), seen_.end());
    }
    void drain()
    {
        ibv_async_event e;
        while (ibv_get_async_event(n_.ctx, &e) == 0) {
            seen_.emplace_back(e.event_type, e.element.qp);
            ibv_ack_async_event(&e);
        }
    }

  private:
    const Node &n_;
    Cq cq_;
    Srq srq_;
    std::vector<std::pair<ibv_event_type, const ibv_qp *>> seen_;
};

} // namespace vt

#endif
