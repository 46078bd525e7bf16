// Every verb that can be refused, as a call that makes what it needs.
#ifndef TEST_CONFORM_WORLD_H
#define TEST_CONFORM_WORLD_H

#include "conform/faults.h"

#include <map>

namespace vt
{

// One object of each kind, to call every verb on.
struct World {
    Node n;
    Xrcd xrcd;
    Srq srq, xrc_srq;
    Qp rc, ud, tgt, spare;
    Channel channel;
    ibv_ah_attr ah_attr = {};
    union ibv_gid group = {};
    std::map<std::string, std::function<int()>> verbs;

    World() : n(), xrcd(make_xrcd(n.ctx)), srq(make_srq(n.pd)), xrc_srq(make_xrc_srq(n.pd, xrcd, n.cq))
    {
        rc = make_qp(IBV_QPT_RC, n.pd, n.cq);
        spare = make_qp(IBV_QPT_RC, n.pd, n.cq);
        ud = make_qp(IBV_QPT_UD, n.pd, n.cq);
        tgt = make_tgt(xrcd);
        connect(rc, n.lid, spare, n.lid);
        ah_attr.dlid = n.lid;
        ah_attr.port_num = 1;
        group.raw[0] = 0xff;
        group.raw[15] = 9;
        fill();
    }

    // Makes and at once destroys: what the verb said.
    template <class T> static int made(T own)
    {
        return own ? 0 : errno;
    }
    // Makes and destroys: what the verb said. When it was refused, the owner destroys it after all.
    template <class T> static int destroyed(T own)
    {
        need(own, "make");
        return own.destroy();
    }

    void fill()
    {
        verbs["open_device"] = [this] { return made(Context(ibv_open_device(n.ctx->device))); };
        verbs["query_device"] = [this] {
            ibv_device_attr a;
            return ibv_query_device(n.ctx, &a);
        };
        verbs["query_port"] = [this] {
            ibv_port_attr a;
            return ibv_query_port(n.ctx, 1, &a);
        };
        verbs["query_gid"] = [this] {
            union ibv_gid g;
            return ibv_query_gid(n.ctx, 1, 0, &g) ? errno : 0;
        };
        verbs["query_pkey"] = [this] {
            __be16 key;
            return ibv_query_pkey(n.ctx, 1, 0, &key) ? errno : 0;
        };
        verbs["create_comp_channel"] = [this] { return made(Channel(ibv_create_comp_channel(n.ctx))); };
        verbs["alloc_pd"] = [this] { return made(Pd(ibv_alloc_pd(n.ctx))); };
        verbs["dealloc_pd"] = [this] { return destroyed(Pd(ibv_alloc_pd(n.ctx))); };
        verbs["create_ah"] = [this] { return made(Ah(ibv_create_ah(n.pd, &ah_attr))); };
        verbs["destroy_ah"] = [this] { return destroyed(Ah(ibv_create_ah(n.pd, &ah_attr))); };
        verbs["reg_mr"] = [this] { return made(Mr(ibv_reg_mr(n.pd, n.mem.data(), 4096, 0))); };
        verbs["rereg_mr"] = [this] {
            int err = ibv_rereg_mr(n.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, all_access);
            return err ? errno : 0;
        };
        verbs["dereg_mr"] = [this] { return destroyed(Mr(ibv_reg_mr(n.pd, n.mem.data(), 4096, 0))); };
        verbs["create_cq"] = [this] { return made(Cq(ibv_create_cq(n.ctx, 16, nullptr, nullptr, 0))); };
        verbs["resize_cq"] = [this] { return ibv_resize_cq(n.cq, 2000); };
        verbs["destroy_cq"] = [this] { return destroyed(Cq(ibv_create_cq(n.ctx, 16, nullptr, nullptr, 0))); };
        verbs["req_notify_cq"] = [this] { return ibv_req_notify_cq(n.cq, 0); };
        verbs["open_xrcd"] = [this] { return made(Xrcd(try_open_xrcd(n.ctx, -1, O_CREAT))); };
        verbs["close_xrcd"] = [this] { return destroyed(Xrcd(try_open_xrcd(n.ctx, -1, O_CREAT))); };
        verbs["create_srq"] = [this] {
            ibv_srq_init_attr a = {};
            a.attr.max_wr = a.attr.max_sge = 1;
            return made(Srq(ibv_create_srq(n.pd, &a)));
        };
        verbs["modify_srq"] = [this] {
            ibv_srq_attr a = {};
            return ibv_modify_srq(srq, &a, IBV_SRQ_LIMIT);
        };
        verbs["query_srq"] = [this] {
            ibv_srq_attr a = {};
            return ibv_query_srq(srq, &a);
        };
        verbs["destroy_srq"] = [this] { return destroyed(make_srq(n.pd)); };
        verbs["create_qp"] = [this] {
            auto a = qp_attr(IBV_QPT_RC, n.pd, n.cq);
            return made(Qp(ibv_create_qp_ex(n.ctx, &a)));
        };
        verbs["open_qp"] = [this] { return made(open_tgt(xrcd, tgt->qp_num)); };
        verbs["modify_qp"] = [this] { return to_init(ud); };
        verbs["query_qp"] = [this] {
            ibv_qp_attr a;
            ibv_qp_init_attr i;
            return ibv_query_qp(ud, &a, IBV_QP_STATE, &i);
        };
        verbs["destroy_qp"] = [this] { return destroyed(make_qp(IBV_QPT_RC, n.pd, n.cq)); };
        verbs["attach_mcast"] = [this] {
            int err = ibv_attach_mcast(ud, &group, 0xc001);
            return err ? err : ibv_detach_mcast(ud, &group, 0xc001);
        };
        verbs["detach_mcast"] = [this] {
            need(ibv_attach_mcast(ud, &group, 0xc001) == 0, "ibv_attach_mcast");
            int err = ibv_detach_mcast(ud, &group, 0xc001);
            if (err) {
                EXPECT_EQ(ibv_detach_mcast(ud, &group, 0xc001), 0);
            }
            return err;
        };
        verbs["post_send"] = [this] {
            Send s(IBV_WR_RDMA_WRITE, {n.sge(0, 8)});
            int err = s.at(n.addr(64), n.mr->rkey).post(rc);
            if (!err) {
                EXPECT_EQ(next_wc(n.cq).status, IBV_WC_SUCCESS);
            }
            return err;
        };
        verbs["post_recv"] = [this] { return post_recv(spare, 1); };
        verbs["post_srq_recv"] = [this] { return post_recv(srq, 1); };
    }
};

} // namespace vt

#endif
