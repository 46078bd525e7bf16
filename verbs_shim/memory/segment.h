/* The segment file: found or made, mapped, removed by the last process to leave; its control lock and its space. */
#ifndef VS_SEGMENT_H
#define VS_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "memory/atomic.h"
#include "memory/layout.h"

/* The mapped segment, or NULL while this process is not attached. */
extern VS_HIDDEN struct vs_segment *vs_seg;

/* Where its parts lie in this process. Worked out when it was mapped, so that nothing written into it later can move an access. */
struct vs_places {
	char *table[VS_TABLES];
	char *data;
	uint32_t data_pages;
};
extern VS_HIDDEN struct vs_places vs_places;

/* Map the fabric's segment, making it if there is none, and join it as a process of the fabric. Returns 0 or an errno value:
 * EPERM (directory or file of another owner or open to others), EPROTO (in use by another build), ENOMEM (file system full), or
 * what open and mmap say. Not reentrant: callers serialise. */
int vs_segment_attach(void);

/* As vs_segment_attach, but ENOENT where there is no segment: for tools that only look. */
int vs_segment_attach_existing(void);

/* Leave: what this process still holds is destroyed as the kernel would at exit; the last one out removes every file. */
void vs_segment_detach(void);

/* The same at exit, under threads that still run: they wait where they come into the data path or to the control lock, and then have a
 * segment of their own where the shared one was, with nothing in it. */
void vs_segment_leave(void);

/* Is this process leaving like that, or has it left? */
extern uint32_t vs_leaving;

/* Forget the mapping in a forked child, which holds nothing of its parent's. */
void vs_segment_forget(void);

/* The control lock serialises every change of objects. Never wait for another process while holding it. If its holder died, the
 * dead are reaped and the derived state rebuilt before this returns. */
void vs_control_lock(void);
void vs_control_unlock(void);

/* Have the file system back bytes of the segment, so that no later touch can fail. ENOMEM if it is full. */
int vs_segment_reserve(uint64_t offset, uint64_t bytes);

/* Give them back; they read zero from now on. */
void vs_segment_punch(uint64_t offset, uint64_t bytes);

static inline void *vs_at(uint64_t offset)
{
	return (char *)vs_seg + offset;
}

/* Files of the fabric's directory, for the liveness files of process.c. */
int vs_segment_open(const char *name, int flags);

/* Did somebody delete the directory underneath us? Then its files say nothing any more. */
bool vs_segment_dir_gone(void);
void vs_segment_unlink(const char *name);

#endif
