/* Shared receive queues, basic and XRC. */
#ifndef VS_SRQ_H
#define VS_SRQ_H

#include "core/objects.h"

/* ibv_create_srq and ibv_create_srq_ex. attr's max_wr and max_sge are updated to what was granted. NULL and errno: EINVAL (PD
 * missing; XRC without domain or CQ; caps out of range), EOPNOTSUPP (unknown comp_mask or type), ENOMEM. */
struct ibv_srq *vs_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
struct ibv_srq *vs_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);

/* 24-bit number on the wire of an XRC SRQ; EOPNOTSUPP for a basic one (mlx4's rule). */
int vs_get_srq_num(struct ibv_srq *srq, uint32_t *num);

/* IBV_SRQ_LIMIT arms the one-shot watermark; IBV_SRQ_MAX_WR is EINVAL, as on mlx4 and mlx5. */
int vs_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int vs_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);

/* EBUSY while a QP was made with it. XRC traffic does not keep it: later messages find no such SRQ. */
int vs_destroy_srq(struct ibv_srq *srq);

/* Taker, inside the data path: raise the limit event if this take crossed the watermark. */
void vs_srq_check_limit(struct vs_srq_shm *srq, uint32_t srq_id, uint32_t available);

/* Reaper: if this process died before it told that the limit was reached, tell it. */
void vs_srq_reaped(struct vs_srq_shm *srq, uint32_t srq_id, uint32_t proc_index);

#endif
