/* Protection domains, address handles, memory regions. */
#ifndef VS_PD_H
#define VS_PD_H

#include "core/objects.h"

/* NULL and errno: ENOMEM. */
struct ibv_pd *vs_alloc_pd(struct ibv_context *context);

/* 0, or EBUSY while a QP, SRQ, MR or AH is made of it. */
int vs_dealloc_pd(struct ibv_pd *pd);

/* NULL and errno: EINVAL (no such port, source path bits outside the port's LMC, multicast LID, GID index). */
struct ibv_ah *vs_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int vs_destroy_ah(struct ibv_ah *ah);

/* Check and convert an address vector of an HCA. 0 or EINVAL. */
int vs_av_from_attr(const struct vs_hca_shm *hca, const struct ibv_ah_attr *attr, struct vs_av *av);
void vs_av_to_attr(const struct vs_av *av, struct ibv_ah_attr *attr);

/* iova: what remote peers call addr. NULL and errno: EINVAL (range wraps; REMOTE_WRITE or REMOTE_ATOMIC without LOCAL_WRITE, as the
 * kernel's ib_check_mr_access), EOPNOTSUPP (access bits the HCA has not), ENOMEM (also: more than
 * RLIMIT_MEMLOCK without CAP_IPC_LOCK). */
struct ibv_mr *vs_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access);

/* ibv_rereg_mr, an errno value in place of its error codes; the region is as it was after an error. Other memory means other keys. */
int vs_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, unsigned access);

/* This process's own record of its regions, by slot number: what the segment says of them, others can write, and our own memory is only
 * touched where we ourselves registered it. */
struct vs_own_region {
	uint64_t addr, length, iova;
	uint32_t pd, access;
	uint32_t id; /* 0: none; written last, cleared first */
};
extern VS_HIDDEN struct vs_own_region vs_own_regions[];

/* Does a region that calls its memory [iova, iova + bytes) cover [addr, addr + length)? *at is then where that is, from start on. */
static inline bool vs_region_covers(uint64_t iova, uint64_t bytes, uint64_t start, uint64_t addr, uint64_t length, uint64_t *at)
{
	if (addr < iova || length > bytes || addr - iova > bytes - length)
		return false;
	*at = start + (addr - iova);
	return true;
}

/* Does the region of this process with this key lie in pd, cover [addr, addr + length) of its I/O addresses and allow access? *at is then
 * the address. */
static inline bool vs_own_key(uint32_t key, uint32_t pd, uint64_t addr, uint64_t length, unsigned access, uint64_t *at)
{
	const struct vs_own_region *own = &vs_own_regions[vs_slot_index(VS_MR, key)];

	if (vs_load(&own->id) != key || vs_load_relaxed(&own->pd) != pd || (vs_load_relaxed(&own->access) & access) != access)
		return false;
	return vs_region_covers(vs_load_relaxed(&own->iova), vs_load_relaxed(&own->length), vs_load_relaxed(&own->addr), addr, length, at);
}

/* Does the region of this process with this key cover [at, at + length) of its memory, and allow access? */
static inline bool vs_own_range(uint32_t key, uint64_t at, uint64_t length, unsigned access)
{
	const struct vs_own_region *own = &vs_own_regions[vs_slot_index(VS_MR, key)];
	uint64_t start;

	if (vs_load(&own->id) != key || (vs_load_relaxed(&own->access) & access) != access)
		return false;
	start = vs_load_relaxed(&own->addr);
	return vs_region_covers(start, vs_load_relaxed(&own->length), start, at, length, &at);
}

/* Forget the regions whose slots are gone: their context was closed over them. */
void vs_own_regions_prune(void);

/* In a forked child: those are its parent's. */
void vs_own_regions_forget(void);

/* Returns once no peer can be inside the memory any more. */
int vs_dereg_mr(struct ibv_mr *mr);

#endif
