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

/* Is [addr, addr + length) inside the region of this process with this key, by the process's own record? What the segment says of a
 * region, others can write; our own memory is only touched where we ourselves registered it. */
bool vs_own_range(uint32_t key, uint64_t addr, uint64_t length);

/* Returns once no peer can be inside the memory any more. */
int vs_dereg_mr(struct ibv_mr *mr);

#endif
