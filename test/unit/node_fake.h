/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One module of the BTL, its nodes and peers, on an HCA that does a work request when it is told to, for C++, which cannot read the
 * component's own headers. The HCA is strict: a full send queue is ENOMEM, more inline data than was granted EINVAL, a queue's slots are
 * free again when a completion has been polled, and a CQ that has no room for one more has overrun.
 */
#ifndef TEST_UNIT_NODE_FAKE_H
#define TEST_UNIT_NODE_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAKE_NODES   64
#define FAKE_PEERS   16
#define FAKE_CLASSES 3

struct fake_options {
    unsigned nodes;
    int cqe;          /* of the send CQ */
    uint32_t window;  /* of each size class, and of puts and gets */
    uint32_t depth;   /* an INI has no more */
    bool refuses;     /* to make one that is to have more, instead of granting less */
    uint32_t inlines; /* inline data an INI takes */
};

void fake_begin(const struct fake_options *options);
void fake_end(void);

/** Hand a message to the BTL; its connection has to be made if need be. Ends by fake_ended(). */
int fake_send(unsigned node, unsigned peer, unsigned klass, uint32_t size);

/** The same as mca_btl_xrc_sendi does it: unsignalled where possible, now or not at all. True: it is on its way. */
bool fake_send_now(unsigned node, unsigned peer, uint32_t size);

/** The other side has answered: the service thread posts what waits, and progress takes note. */
void fake_connect(unsigned node);

/** The HCA does the next work request of this node. False: there is none. */
bool fake_do(unsigned node);

/** What it has not done fails, the first with an error of its own, the rest flushed. */
void fake_fail(unsigned node);

/** All peers of this node are gone, and so is its INI. */
void fake_close(unsigned node);

/** Progress polls and does what follows. */
void fake_progress(void);

/** For whom the n-th work request of this node was; -1: not posted yet. */
int fake_posted(unsigned node, unsigned n);

unsigned fake_on_the_way(void); /* work requests that have been posted and whose slots are not free again */
unsigned fake_signalled(void);  /* of all that were ever posted */
unsigned fake_waiting(void);    /* messages that the BTL keeps */
unsigned fake_ended(bool well); /* messages handed over by fake_send() */
unsigned fake_refused(void);    /* posts that were wrong, EINVAL */
bool fake_overrun(void);
int fake_room(void);

#ifdef __cplusplus
}
#endif

#endif
