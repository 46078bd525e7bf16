/* Windows: memory of a peer that this process maps as well, so that one-sided operations on it are plain loads and stores.
 *
 * Whoever registers memory that one MAP_SHARED mapping of a file backs says in the region's slot which bytes of which file those are, and
 * keeps a second mapping of them of its own. A window onto a peer's region is found where those bytes are among the ones that this process
 * has registered itself. What the slot says only selects among them: it may be forged. */
#ifndef VS_WINDOW_H
#define VS_WINDOW_H

#include "core/objects.h"

/* Shared memory of this process, mapped a second time: the program may unmap its own, and a region stays what it was. */
struct vs_shared {
	struct vs_shared *next;
	uint32_t id; /* of the region */
	uint32_t context; /* it was registered through */
	struct vs_backing backing;
	uint64_t length;
	char *at; /* its first byte */
	void *map;
	size_t map_length;
};

/* NULL where it is not such memory, or cannot be mapped again or be backed by its file system as a whole. */
struct vs_shared *vs_window_map(void *addr, size_t length);

/* The region with this id is registered: windows may use its memory. */
void vs_window_offer(struct vs_shared *shared, uint32_t id, uint32_t context);

/* No new window uses it; those inside the data path still may. Returns what vs_window_unmap is to get after a grace period. */
struct vs_shared *vs_window_withdraw(uint32_t id);
struct vs_shared *vs_window_withdraw_context(uint32_t context);

void vs_window_unmap(struct vs_shared *shared);

/* Where [addr, addr + length) of a peer's region with this key, in the peer's addresses and checked before, lies in this process; NULL:
 * nowhere. Inside the data path, with the QP's lock; good until the data path is left. */
void *vs_window_at(struct vs_qp *qp, uint32_t key, uint64_t addr, uint64_t length, bool write);

/* Around fork. The child has no second mappings. */
void vs_window_before_fork(void);
void vs_window_after_fork(bool child);

#endif
