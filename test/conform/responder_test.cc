// In which order the responder checks a request, and what each failed check leads to. Every cause alone, and every two that can go
// together: the one that is checked first decides.
#include "conform/faults.h"
#include "conform/pair.h"

#include <set>

namespace
{

using namespace vt;

enum Cause { LISTEN, PKEY, PSN, SRQN, QP_ACCESS, RKEY, NO_WQE, WQE_KEY, LENGTH };

enum Applies : unsigned { RC = 1, XRC = 2, ANY = RC | XRC };
enum Operation : unsigned { SENDS = 1, WRITES = 2, BOTH = SENDS | WRITES };

struct Rule {
    Cause cause;
    const char *name;
    ibv_wc_status status; // the requester's
    int event;            // of the responder's QP, which is then in ERR; -1: none, and it stays as it is
    int receive;          // the status of the receive WQE that it cost; -1: none
    unsigned applies;
    unsigned operations;
};

// In the order of the checks.
const Rule order_of_checks[] = {
    {LISTEN, "the QP is not in RTR or beyond", IBV_WC_RETRY_EXC_ERR, -1, -1, ANY, BOTH},
    {PKEY, "P_Key mismatch", IBV_WC_RETRY_EXC_ERR, -1, -1, ANY, BOTH},
    {PSN, "PSN ahead", IBV_WC_RETRY_EXC_ERR, -1, -1, ANY, BOTH},
    {SRQN, "no such SRQ in the domain", IBV_WC_REM_INV_RD_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, -1, XRC, BOTH},
    {QP_ACCESS, "the QP does not allow it", IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR, -1, ANY, WRITES},
    {RKEY, "bad remote key", IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR, -1, ANY, WRITES},
    {NO_WQE, "no receive WQE", IBV_WC_RNR_RETRY_EXC_ERR, -1, -1, ANY, BOTH},
    {WQE_KEY, "bad key in the WQE", IBV_WC_REM_OP_ERR, IBV_EVENT_QP_REQ_ERR, IBV_WC_LOC_PROT_ERR, ANY, SENDS},
    {LENGTH, "longer than the WQE", IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR, IBV_WC_LOC_LEN_ERR, ANY, SENDS},
};

class Responder : public vt::Test, public ::testing::WithParamInterface<Applies>
{
  protected:
    Responder() : host_("VERBS_SHIM_HOST", "h")
    {
        n_ = std::make_unique<Node>();
        recv_cq_ = make_cq(n_->ctx);
        order("pkey h/vshim0/1 1 0x8001");
        need(ack_next(n_->ctx) == IBV_EVENT_PKEY_CHANGE, "the event of that");
    }
    void TearDown() override
    {
        destroy_ends();
        recv_cq_ = Cq();
        n_.reset();
        vt::Test::TearDown();
    }
    void make_ends()
    {
        if (GetParam() == XRC) {
            xrcd_ = make_xrcd(n_->ctx);
            srq_ = make_xrc_srq(n_->pd, xrcd_, recv_cq_);
            responder_ = make_tgt(xrcd_);
            requester_ = make_qp(IBV_QPT_XRC_SEND, n_->pd, n_->cq);
        } else {
            srq_ = make_srq(n_->pd);
            responder_ = make_qp(IBV_QPT_RC, n_->pd, recv_cq_, srq_);
            requester_ = make_qp(IBV_QPT_RC, n_->pd, n_->cq);
        }
    }
    void destroy_ends()
    {
        requester_ = Qp();
        responder_ = Qp();
        srq_ = Srq();
        xrcd_ = Xrcd();
    }
    void connect_with(const std::set<Cause> &causes)
    {
        Path p;
        p.lid = n_->lid;
        p.retry = p.rnr = 0;
        p.access = causes.count(QP_ACCESS) ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
        p.qpn = requester_->qp_num;
        ibv_qp_attr key = {};
        key.pkey_index = 1;
        need(to_init(responder_, p) == 0, "to INIT");
        if (causes.count(PKEY))
            need(ibv_modify_qp(responder_, &key, IBV_QP_PKEY_INDEX) == 0, "P_Key");
        if (!causes.count(LISTEN))
            need(to_rtr(responder_, p) == 0 && to_rts(responder_, p) == 0, "to RTS");
        p.qpn = responder_->qp_num;
        if (causes.count(PSN))
            p.psn += 5;
        bring_up(requester_, p);
    }
    void post_receive(const std::set<Cause> &causes)
    {
        ibv_sge sge = n_->sge(4096, causes.count(LENGTH) ? 4 : 64);
        if (causes.count(WQE_KEY))
            sge.lkey ^= 0x40000000;
        if (!causes.count(NO_WQE))
            need(post_recv(srq_, 1, {sge}) == 0, "post_recv");
    }
    ibv_wc_status request(const std::set<Cause> &causes, Operation op)
    {
        Send s(op == SENDS ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM, {n_->sge(0, 8)});
        s.at(n_->addr(128), n_->mr->rkey ^ (causes.count(RKEY) ? 0x40000000 : 0));
        if (GetParam() == XRC)
            s.to_srq(srq_num(srq_) ^ (causes.count(SRQN) ? 0x800000 : 0));
        return outcome(requester_, s);
    }
    // What rule says must come of it.
    void try_with(const std::set<Cause> &causes, Operation op, const Rule &rule)
    {
        make_ends();
        connect_with(causes);
        post_receive(causes);
        ibv_qp_state before = state_of(responder_);
        EXPECT_EQ(request(causes, op), rule.status) << ibv_wc_status_str(rule.status);
        EXPECT_EQ(state_of(requester_), IBV_QPS_ERR);
        EXPECT_EQ(state_of(responder_), rule.event < 0 ? before : IBV_QPS_ERR);
        if (rule.event >= 0) {
            EXPECT_EQ(ack_next(n_->ctx), rule.event);
            EXPECT_EQ(ack_next(n_->ctx), IBV_EVENT_QP_LAST_WQE_REACHED);
        }
        if (rule.receive >= 0) {
            EXPECT_EQ(next_wc(recv_cq_).status, rule.receive);
        }
        EXPECT_TRUE(cq_empty(recv_cq_));
        destroy_ends();
    }
    bool fits(const Rule &r, Operation op) const
    {
        return r.applies & GetParam() && r.operations & op;
    }

    Setting host_;
    std::unique_ptr<Node> n_;
    Cq recv_cq_;
    Xrcd xrcd_;
    Srq srq_;
    Qp requester_, responder_;
};

TEST_P(Responder, EveryCheckAlone)
{
    printf("%-32s %-30s %-40s %s\n", "cause, in the order of checks", "requester completes with", "responder's event",
           "its WQE");
    for (const Rule &r : order_of_checks) {
        for (Operation op : {SENDS, WRITES})
            if (fits(r, op)) {
                SCOPED_TRACE(std::string(r.name) + (op == SENDS ? ", SEND" : ", RDMA_WRITE_WITH_IMM"));
                try_with({r.cause}, op, r);
            }
        if (r.applies & GetParam())
            printf("%-32s %-30s %-40s %s\n", r.name, ibv_wc_status_str(r.status),
                   r.event < 0 ? "none" : ibv_event_type_str((ibv_event_type) r.event),
                   r.receive < 0 ? "stays posted" : ibv_wc_status_str((ibv_wc_status) r.receive));
    }
}

TEST_P(Responder, OfTwoTheFirstDecides)
{
    int pairs = 0;
    for (const Rule &first : order_of_checks)
        for (const Rule &second : order_of_checks)
            for (Operation op : {SENDS, WRITES}) {
                std::set<Cause> both = {first.cause, second.cause};
                if (first.cause >= second.cause || !fits(first, op) || !fits(second, op)
                    || both == std::set{NO_WQE, WQE_KEY} || both == std::set{NO_WQE, LENGTH})
                    continue; // there is no WQE to have a fault
                SCOPED_TRACE(std::string(first.name) + " before " + second.name
                             + (op == SENDS ? ", SEND" : ", RDMA_WRITE_WITH_IMM"));
                try_with(both, op, first);
                pairs++;
            }
    printf("%d pairs\n", pairs);
    EXPECT_GT(pairs, 25);
}

TEST_P(Responder, WhatTheRequesterFindsItselfNeverArrives)
{
    make_ends();
    connect_with({});
    post_receive({});
    auto send = [&](uint32_t lkey) {
        Send s(IBV_WR_SEND, {{n_->addr(), 8, lkey}});
        return outcome(requester_, s.to_srq(GetParam() == XRC ? srq_num(srq_) : 0));
    };
    struct {
        const char *name;
        uint32_t lkey;
        ibv_wc_status status;
    } const rows[] = {{"bad local key", n_->mr->lkey ^ 0x40000000, IBV_WC_LOC_PROT_ERR},
                      {"posted in ERR", n_->mr->lkey, IBV_WC_WR_FLUSH_ERR}};
    for (auto &r : rows) {
        EXPECT_EQ(send(r.lkey), r.status) << r.name;
        EXPECT_EQ(state_of(requester_), IBV_QPS_ERR);
        EXPECT_EQ(state_of(responder_), IBV_QPS_RTS);
        EXPECT_TRUE(cq_empty(recv_cq_));
        printf("%-32s %s\n", r.name, ibv_wc_status_str(r.status));
    }
}

INSTANTIATE_TEST_SUITE_P(Transports, Responder, ::testing::Values(RC, XRC),
                         [](const auto &info) { return std::string(info.param == RC ? "Rc" : "Xrc"); });

} // namespace
