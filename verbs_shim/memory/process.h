/* The fabric's processes: who is alive, who is inside the data path, how the dead are cleared away. */
#ifndef VS_PROCESS_H
#define VS_PROCESS_H

#include "memory/slots.h"

/* This process's slot and id, valid while attached. */
extern VS_HIDDEN struct vs_proc_shm *vs_me;
extern VS_HIDDEN uint32_t vs_me_id;

/* Called by segment.c, control lock held: take a process slot and the lock that shows the process is alive. */
int vs_process_join(void);

/* Called by segment.c without the control lock: this process's objects die, then its slot is free. In between, with the lock, that is
 * called which parts this process's other threads from the segment; NULL: it has none. */
void vs_process_leave(void (*part)(void));
void vs_process_forget(void);

/* What the layer that knows objects does with those of a process that is gone or leaving; both with the control lock held, both
 * harmless when done twice. First retire: no lookup finds them any more, queue entries they had claimed are rolled on. Then, after a
 * grace period, free. */
extern void (*vs_process_retire_hook)(uint32_t proc_id);
extern void (*vs_process_free_hook)(uint32_t proc_id);

/* Retire every dead process. Control lock held. They stay as DYING slots until buried. */
void vs_process_reap_dead(void);

/* The same now and then: callers that wait for something which only a dead process kept, or that have sent for a while. Takes the
 * control lock, at most ten times a second. Outside the data path. */
void vs_process_look_around(void);
bool vs_process_look_due(uint64_t now);

/* Engine: the same for all who sleep, so that whatever a dead process did not come to tell them is found. One of the fabric's engines looks,
 * ten times a second, without the control lock if nobody has died. Returns when to come again. */
uint64_t vs_process_watch(uint64_t now);

/* Free the DYING. Without the control lock and outside the data path; never from the engine, which a thread inside the data path
 * may be waiting for. */
void vs_process_bury(void);

/* Is the process with this id alive? Three system calls: slow paths only. Never false while it runs. */
bool vs_process_alive(uint32_t proc_id);

/* Is any process still there, dead or alive? Control lock held. */
bool vs_process_any(void);

/* A wait for another process, or for a word that others write. Nobody is inside the data path, or has a turn there, for ten seconds: what
 * says so was not written by the data path, and nobody hangs for it. All zero: it begins with the first question. */
struct vs_patience {
	uint64_t until;
	uint32_t looks;
	uint32_t rounds; /* times as long; 0: once */
	bool ended;
};
extern uint64_t vs_patience_ns; /* ten seconds, but in tests of this */

/* Asked in every round of a wait: is it over? */
bool vs_patience_ends(struct vs_patience *p);

/* ---- data path grace ----
 * A thread that looks at objects other than under the control lock is inside the data path: between enter and exit no slot or page
 * it can see is used again. Enter is one compare-and-swap on a line of its own. Do not nest, do not take the control lock inside. */
struct vs_hazard *vs_enter(void);

static inline void vs_exit(struct vs_hazard *h)
{
	vs_store(&h->word, 0);
}

/* Called by segment.c, at exit: wait until no other thread of this process is inside the data path; whoever comes after that waits there
 * until it is open again. The engine has ended. */
void vs_process_shut(void);
void vs_process_open(void);

/* Return once every thread of every process that was inside the data path when this was called has left it or died. Call without
 * the control lock and outside the data path. */
void vs_quiesce(void);

/* Wake a process's engine: something waits for it in the segment. */
void vs_process_wake(struct vs_proc_shm *proc);

/* The process behind an id, or NULL. */
static inline struct vs_proc_shm *vs_process(uint32_t proc_id)
{
	return (struct vs_proc_shm *)vs_slot_get(VS_PROC, proc_id);
}

/* Monotonic clock, nanoseconds. No system call. */
uint64_t vs_now(void);

#endif
