/* The engine: one thread a process, asleep unless something waits for it. It hands events and completion notifications to this
 * process's descriptors, runs RNR and ack timers, copies memory for peers that may not reach it themselves, and carries out atomics on what
 * only this process maps where those exclude the CPU's. */
#ifndef VS_ENGINE_H
#define VS_ENGINE_H

#include <stdint.h>

#include "memory/process.h"

/* What the layers above want done; set once, before the first start. */
struct vs_engine_ops {
	uint64_t (*run_timers)(uint64_t now); /* returns the next deadline, 0 for none */
	void (*serve_copies)(void);
	void (*flush_qp)(uint32_t qpn);              /* its peer moved it to ERR */
	void (*return_wqes)(uint32_t table, uint32_t id); /* a sender died holding some */
	void (*forget)(void);                        /* in a forked child: whatever of the above was left to do is the parent's */
};

/* The engine never waits for a lock that a program's thread may hold for long: that thread may be waiting for another process's engine,
 * which waits for this one. Is the caller the engine? */
bool vs_engine_is_me(void);

extern struct vs_engine_ops vs_engine_ops;

/* 0 or an errno value. */
int vs_engine_start(void);

/* Returns once the thread is gone. */
void vs_engine_stop(void);

/* In a forked child: there is no such thread. */
void vs_engine_forget(void);

/* Wake this process's engine. */
void vs_engine_kick(void);

#endif
