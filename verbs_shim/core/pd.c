#include "core/pd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/memlock.h"
#include "core/users.h"
#include "core/window.h"

struct ibv_pd *vs_alloc_pd(struct ibv_context *context)
{
	VS_ASKS_KERNEL_POINTER(alloc_pd, context);
	struct vs_pd *pd = calloc(1, sizeof(*pd));
	uint32_t index;
	int err;

	if (!pd)
		return NULL;
	vs_control_lock();
	err = vs_slot_alloc(VS_PD, vs_me_id, &index);
	if (!err) {
		((struct vs_pd_shm *)vs_slot_at(VS_PD, index))->hca = vs_context(context)->hca_index;
		((struct vs_slot *)vs_slot_at(VS_PD, index))->context = vs_context(context)->number;
		vs_slot_publish(VS_PD, index);
	}
	vs_control_unlock();
	if (err) {
		free(pd);
		errno = err;
		return NULL;
	}
	pd->id = vs_slot_id(VS_PD, index);
	pd->ibv.context = context;
	pd->ibv.handle = pd->id;
	return &pd->ibv;
}

int vs_dealloc_pd(struct ibv_pd *ibpd)
{
	VS_DESTROYS(dealloc_pd, ibpd->context);
	struct vs_pd *pd = vs_pd(ibpd);
	int err = 0;

	if (vs_load(&pd->ahs))
		return EBUSY;
	vs_control_lock();
	if (vs_pd_in_use(pd->id))
		err = EBUSY;
	else
		vs_slot_retire(VS_PD, vs_slot_index(VS_PD, pd->id));
	vs_control_unlock();
	if (err)
		return err;
	/* Nothing is found through a PD's slot on the data path, only its id compared: no grace period. */
	vs_control_lock();
	vs_slot_free(VS_PD, vs_slot_index(VS_PD, pd->id));
	vs_control_unlock();
	free(pd);
	return 0;
}

/* ---- address vectors ---- */

int vs_av_from_attr(const struct vs_hca_shm *hca, const struct ibv_ah_attr *attr, struct vs_av *av)
{
	const struct vs_port_shm *port = vs_fabric_port(hca, attr->port_num);

	if (!port || attr->sl > 15)
		return EINVAL;
	if (port->ethernet ? !attr->is_global : attr->dlid == 0 || attr->src_path_bits >> port->lmc)
		return EINVAL;
	if (attr->is_global && attr->grh.sgid_index != 0)
		return EINVAL;
	*av = (struct vs_av){
		.dlid = port->ethernet ? vs_fabric_lid_of_gid(&attr->grh.dgid) : attr->dlid,
		.ethernet = port->ethernet != 0,
		.sl = attr->sl,
		.path_bits = port->ethernet ? 0 : attr->src_path_bits,
		.static_rate = attr->static_rate,
		.is_global = attr->is_global,
		.port = attr->port_num,
	};
	if (!attr->is_global)
		return 0;
	memcpy(av->gid, attr->grh.dgid.raw, sizeof(av->gid));
	av->flow_label = attr->grh.flow_label;
	av->sgid_index = attr->grh.sgid_index;
	av->hop_limit = attr->grh.hop_limit;
	av->traffic_class = attr->grh.traffic_class;
	return 0;
}

void vs_av_to_attr(const struct vs_av *av, struct ibv_ah_attr *attr)
{
	*attr = (struct ibv_ah_attr){
		.dlid = av->ethernet ? 0 : av->dlid,
		.sl = av->sl,
		.src_path_bits = av->path_bits,
		.static_rate = av->static_rate,
		.is_global = av->is_global,
		.port_num = av->port,
	};
	if (!av->is_global)
		return;
	memcpy(attr->grh.dgid.raw, av->gid, sizeof(av->gid));
	attr->grh.flow_label = av->flow_label;
	attr->grh.sgid_index = av->sgid_index;
	attr->grh.hop_limit = av->hop_limit;
	attr->grh.traffic_class = av->traffic_class;
}

struct ibv_ah *vs_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	VS_MAY_REFUSE_POINTER(create_ah);
	struct vs_ah *ah = calloc(1, sizeof(*ah));
	int err;

	if (!ah)
		return NULL;
	err = vs_av_from_attr(vs_context(pd->context)->hca, attr, &ah->av);
	if (err) {
		free(ah);
		errno = err;
		return NULL;
	}
	ah->ibv.context = pd->context;
	ah->ibv.pd = pd;
	vs_add(&vs_pd(pd)->ahs, 1);
	return &ah->ibv;
}

int vs_destroy_ah(struct ibv_ah *ah)
{
	VS_MAY_REFUSE(destroy_ah);
	vs_add(&vs_pd(ah->pd)->ahs, -1u);
	free(vs_container(ah, struct vs_ah, ibv));
	return 0;
}

/* ---- memory regions ---- */

#define ACCESS_KNOWN                                                                                                               \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_OPTIONAL_RANGE)

static int check_region(void *addr, size_t length, uint64_t iova, unsigned access)
{
	if (access & ~(unsigned)ACCESS_KNOWN)
		return EOPNOTSUPP; /* memory windows, zero-based, on demand, huge pages */
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if ((uintptr_t)addr + length < (uintptr_t)addr || iova + length < iova)
		return EINVAL;
	return 0;
}

struct vs_own_region vs_own_regions[1u << 18]; /* pages are touched as regions are made */

static void record_region(const struct vs_mr *mr, uint32_t pd, uint64_t iova, unsigned access)
{
	struct vs_own_region *own = &vs_own_regions[vs_slot_index(VS_MR, mr->id)];

	vs_store_relaxed(&own->addr, (uintptr_t)mr->ibv.addr);
	vs_store_relaxed(&own->length, mr->ibv.length);
	vs_store_relaxed(&own->iova, iova);
	vs_store_relaxed(&own->pd, pd);
	vs_store_relaxed(&own->access, access);
	vs_store(&own->id, mr->id);
}

/* Nothing lies in it from now on, also for who asks for key 0; its memory is charged no more. Once, whoever comes first: the one who
 * deregisters it, or who closes its context. */
static void forget_region(struct vs_own_region *own, uint32_t id)
{
	uint64_t addr = vs_load(&own->addr), length = vs_load(&own->length);

	if (!vs_cas(&own->id, id, 0))
		return;
	vs_store(&own->length, 0);
	vs_memlock_release((const void *)(uintptr_t)addr, length);
}

void vs_own_regions_prune(void)
{
	vs_control_lock();
	for (uint32_t i = 0; i < vs_tables[VS_MR].count && vs_slot_at(VS_MR, i); i++) {
		uint32_t id = vs_load(&vs_own_regions[i].id);

		if (id && !vs_slot_get(VS_MR, id))
			forget_region(&vs_own_regions[i], id);
	}
	vs_control_unlock();
}

void vs_own_regions_forget(void)
{
	for (uint32_t i = 0; i < vs_tables[VS_MR].count && vs_slot_at(VS_MR, i); i++) {
		uint32_t id = vs_load(&vs_own_regions[i].id);

		if (id)
			forget_region(&vs_own_regions[i], id);
	}
}

/* Until nobody can be inside it any more. */
static void retire_region(uint32_t id)
{
	uint32_t index = vs_slot_index(VS_MR, id);
	struct vs_shared *shared = vs_window_withdraw(id);

	vs_control_lock();
	vs_slot_retire(VS_MR, index);
	vs_control_unlock();
	forget_region(&vs_own_regions[index], id);
	vs_quiesce();
	vs_window_unmap(shared);
	vs_control_lock();
	vs_slot_free(VS_MR, index);
	vs_control_unlock();
}

static int make_region(struct vs_mr *mr, uint32_t pd, uint64_t iova, unsigned access)
{
	struct vs_shared *shared;
	struct vs_mr_shm *shm;
	uint32_t index;
	int err = vs_memlock_charge(mr->ibv.addr, mr->ibv.length);

	if (err)
		return err;
	shared = vs_window_map(mr->ibv.addr, mr->ibv.length);
	vs_control_lock();
	err = vs_slot_alloc(VS_MR, vs_me_id, &index);
	if (!err) {
		shm = vs_slot_at(VS_MR, index);
		shm->s.context = vs_context(mr->ibv.context)->number;
		shm->addr = (uintptr_t)mr->ibv.addr;
		shm->length = mr->ibv.length;
		shm->iova = iova;
		shm->pd = pd;
		shm->access = access;
		if (shared)
			shm->backing = shared->backing;
		mr->id = vs_slot_id(VS_MR, index);
		shm->seal = vs_region_seal(mr->id, shm->addr, shm->length);
		vs_slot_publish(VS_MR, index);
		record_region(mr, pd, iova, access);
	}
	vs_control_unlock();
	if (err) {
		vs_window_unmap(shared);
		vs_memlock_release(mr->ibv.addr, mr->ibv.length);
	} else if (shared) {
		vs_window_offer(shared, mr->id, vs_context(mr->ibv.context)->number);
	}
	return err;
}

/* PD and access, the keys staying: peers go on with those they have, as on mlx4 and mlx5. In between nothing is allowed, so that no
 * request meets the old access in the new PD. */
static void change_rights(uint32_t index, uint32_t pd, unsigned access)
{
	struct vs_mr_shm *shm = vs_slot_at(VS_MR, index);
	struct vs_own_region *own = &vs_own_regions[index];

	vs_store(&shm->access, 0);
	vs_store(&own->access, 0);
	VS_POINT(rights_withdrawn);
	vs_quiesce();
	vs_control_lock();
	vs_store(&shm->pd, pd);
	vs_store(&own->pd, pd);
	VS_POINT(rights_moved);
	vs_store(&shm->access, access);
	vs_store(&own->access, access);
	vs_control_unlock();
}

/* To other memory: a region with other keys. */
static int change_place(struct vs_mr *mr, struct vs_mr *with, unsigned access)
{
	int err = make_region(with, vs_pd(with->ibv.pd)->id, (uintptr_t)with->ibv.addr, access);

	if (err)
		return err;
	with->ibv.handle = with->ibv.lkey = with->ibv.rkey = with->id;
	retire_region(mr->id);
	return 0;
}

int vs_rereg_mr(struct ibv_mr *ibmr, int flags, struct ibv_pd *pd, void *addr, size_t length, unsigned access)
{
	VS_ASKS_KERNEL(rereg_mr, ibmr->context);
	struct vs_mr *mr = vs_container(ibmr, struct vs_mr, ibv), with = *mr;
	uint32_t index = vs_slot_index(VS_MR, mr->id);
	const struct vs_mr_shm *shm = vs_slot_at(VS_MR, index);
	int err;

	if ((flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) || flags == 0 || ((flags & IBV_REREG_MR_CHANGE_PD) && !pd))
		return EINVAL;
	if (flags & IBV_REREG_MR_CHANGE_PD)
		with.ibv.pd = pd;
	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		access = shm->access;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		with.ibv.addr = addr;
		with.ibv.length = length;
	}
	err = check_region(with.ibv.addr, with.ibv.length, (uintptr_t)with.ibv.addr, access);
	if (!err && (flags & IBV_REREG_MR_CHANGE_TRANSLATION))
		err = change_place(mr, &with, access);
	else if (!err)
		change_rights(index, vs_pd(with.ibv.pd)->id, access);
	if (!err)
		*mr = with;
	return err;
}

struct ibv_mr *vs_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	VS_ASKS_KERNEL_POINTER(reg_mr, pd->context);
	int err = check_region(addr, length, iova, access);
	struct vs_mr *mr = NULL;

	if (!err) {
		mr = calloc(1, sizeof(*mr));
		if (!mr)
			return NULL;
		mr->ibv.context = pd->context;
		mr->ibv.pd = pd;
		mr->ibv.addr = addr;
		mr->ibv.length = length;
		err = make_region(mr, vs_pd(pd)->id, iova, access);
	}
	if (err) {
		free(mr);
		errno = err;
		return NULL;
	}
	mr->ibv.handle = mr->ibv.lkey = mr->ibv.rkey = mr->id;
	return &mr->ibv;
}

int vs_dereg_mr(struct ibv_mr *ibmr)
{
	VS_DESTROYS(dereg_mr, ibmr->context);
	struct vs_mr *mr = vs_container(ibmr, struct vs_mr, ibv);

	retire_region(mr->id);
	free(mr);
	return 0;
}
