/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_room.h"

uint32_t xrc_room_all_windows(void)
{
    const struct xrc_recvq *q = &mca_btl_xrc_component.recvq;
    uint32_t sum = (uint32_t) mca_btl_xrc_component.params.rdma_window;
    for (unsigned i = 0; i < q->nclasses; ++i) {
        sum += q->c[i].window;
    }
    return sum;
}

static void share_out(struct xrc_node *node, uint32_t depth)
{
    const struct xrc_recvq *q = &mca_btl_xrc_component.recvq;
    uint32_t wanted = xrc_room_all_windows();
    memset(node->credit, 0, sizeof(node->credit));
    for (unsigned i = 0; i <= q->nclasses; ++i) {
        uint32_t window = i < q->nclasses ? q->c[i].window : (uint32_t) mca_btl_xrc_component.params.rdma_window;
        uint32_t share = depth >= wanted ? window : (uint32_t) ((uint64_t) window * depth / wanted);
        node->credit[i < q->nclasses ? i : XRC_LANE_RDMA] = share > 0 ? (int32_t) share : 1;
    }
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/*
 * Set as much of the CQ aside as the service thread may post, but a quarter of what is left at most: others must go on, also when
 * many connect, or one never gets an answer.
 */
static int32_t borrow(const struct xrc_node *node)
{
    mca_btl_xrc_module_t *module = node->module;
    int32_t loan = 0;
    for (unsigned i = 0; i < XRC_LANES; ++i) {
        loan += node->credit[i];
    }
    loan = smaller(loan, module->send_room / 4);
    return loan > 0 && xrc_room_take(module, loan) ? loan : 0;
}

/* A quarter of what is left of that half at most, for the sake of nodes to come. */
void xrc_room_refill(struct xrc_node *node)
{
    mca_btl_xrc_module_t *module = node->module;
    int32_t kept = module->send_cq->cqe / 2;
    int32_t n = smaller((int32_t) (node->signal_every - 1 - node->quiet), (module->send_room - kept) / 4);
    if (n <= 0) {
        return;
    }
    if (OPAL_THREAD_ADD_FETCH32(&module->send_room, -n) >= kept) {
        node->quiet += (uint32_t) n;
    } else {
        xrc_room_give(module, n);
    }
}

void xrc_room_begin(struct xrc_node *node, uint32_t depth)
{
    share_out(node, depth);
    node->in_flight = node->unsignalled = node->quiet = 0;
    /* Half a window at most stays unsignalled: the other half brings the completion that retires it. */
    node->signal_every = ((uint32_t) node->credit[0] + 1) / 2;
    xrc_room_refill(node);
    node->borrowed = borrow(node);
}

void xrc_room_end(struct xrc_node *node)
{
    xrc_room_give(node->module, (int32_t) (node->quiet + node->unsignalled));
    node->quiet = node->unsignalled = 0;
}
