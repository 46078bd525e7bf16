/* Every structure of the segment against its invariants, with the control lock held. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/users.h"
#include "fabric/faults.h"
#include "memory/pages.h"
#include "tools/report.h"
#include "tools/tool.h"

static char broken[256]; /* the first one */

static bool fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

static bool fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(broken, sizeof(broken), format, args);
	va_end(args);
	return false;
}

/* ---- slots: known states, living owners ---- */

static bool check_slots(enum vs_table t)
{
	const struct vs_slot *slot;
	uint32_t i;

	for (i = 0; (slot = vs_slot_at(t, i)) != NULL; i++) {
		if (vs_slot_state(slot) > VS_DYING)
			return fail("%s slot %u: state %u", vs_tables[t].name, i, vs_slot_state(slot));
		if (vs_slot_state(slot) == VS_FREE && slot->ext_pages)
			return fail("%s slot %u: free, yet has pages", vs_tables[t].name, i);
		if (vs_slot_state(slot) == VS_LIVE && slot->owner && !vs_process(slot->owner))
			return fail("%s slot %u: its process %08x is gone", vs_tables[t].name, i, slot->owner);
	}
	return true;
}

/* ---- references ---- */

static bool refers(const char *what, uint32_t i, const char *to, enum vs_table table, uint32_t id)
{
	return vs_slot_get(table, id) != NULL || fail("%s slot %u: no %s %08x", what, i, to, id);
}

static bool check_qp(const struct vs_qp_shm *qp, uint32_t i)
{
	uint32_t id = vs_slot_id(VS_QP, i);

	if (qp->state > IBV_QPS_ERR)
		return fail("qp slot %u: state %u", i, qp->state);
	if (qp->type == IBV_QPT_XRC_RECV) {
		if (!vs_tgt_in_use(id) && vs_seg->knobs.tgt_exit != VS_TGT_ORPHAN)
			return fail("TGT QP 0x%06x: nobody holds it", id);
		return refers("TGT qp", i, "xrcd", VS_XRCD, qp->xrcd);
	}
	return refers("qp", i, "pd", VS_PD, qp->pd) && refers("qp", i, "send cq", VS_CQ, qp->send_cq) &&
	       (!qp->recv_cq || refers("qp", i, "recv cq", VS_CQ, qp->recv_cq)) && (!qp->srq || refers("qp", i, "srq", VS_SRQ, qp->srq));
}

static bool check_srq(const struct vs_srq_shm *srq, uint32_t i)
{
	if (!refers("srq", i, "pd", VS_PD, srq->pd))
		return false;
	return srq->type != IBV_SRQT_XRC || (refers("srq", i, "xrcd", VS_XRCD, srq->xrcd) && refers("srq", i, "cq", VS_CQ, srq->cq) &&
					     refers("srq", i, "xrcd handle", VS_XRCD_REF, srq->xrcd_ref));
}

/* A file's bytes lie at the same place within a page in every mapping. */
static bool check_mr(const struct vs_mr_shm *mr, uint32_t i)
{
	const struct vs_backing *b = &mr->backing;

	if (b->flags & ~(uint32_t)(VS_BACKED | VS_BACKED_WRITABLE) || (b->flags & VS_BACKED ? b->ino == 0 : b->flags || b->ino || b->dev))
		return fail("mr slot %u: half a file behind it", i);
	if (b->offset + mr->length < b->offset || (b->flags && (b->offset - mr->addr) % VS_PAGE))
		return fail("mr slot %u: no mapping puts that part of a file there", i);
	if (mr->seal != vs_region_seal(vs_slot_id(VS_MR, i), mr->addr, mr->length))
		return fail("mr slot %u: it lies elsewhere than where it was registered", i);
	return refers("mr", i, "pd", VS_PD, mr->pd);
}

static bool check_references(void)
{
	struct vs_qp_ref_shm *ref;
	struct vs_xrcd_ref_shm *xref;
	struct vs_xrcd_shm *xrcd;
	struct vs_qp_shm *qp;
	struct vs_srq_shm *srq;
	struct vs_mcast_shm *member;
	struct vs_mr_shm *mr;
	uint32_t i;

	vs_for_each_live (VS_QP, i, qp)
		if (!check_qp(qp, i))
			return false;
	vs_for_each_live (VS_SRQ, i, srq)
		if (!check_srq(srq, i))
			return false;
	vs_for_each_live (VS_MR, i, mr)
		if (!check_mr(mr, i))
			return false;
	vs_for_each_live (VS_QP_REF, i, ref)
		if (!refers("TGT handle", i, "qp", VS_QP, ref->qp) || !refers("TGT handle", i, "xrcd handle", VS_XRCD_REF, ref->xrcd_ref))
			return false;
	vs_for_each_live (VS_XRCD_REF, i, xref)
		if (!refers("xrcd handle", i, "xrcd", VS_XRCD, xref->xrcd))
			return false;
	vs_for_each_live (VS_MCAST, i, member)
		if (!refers("multicast member", i, "qp", VS_QP, member->qp))
			return false;
	vs_for_each_live (VS_XRCD, i, xrcd)
		if (!vs_xrcd_in_use(vs_slot_id(VS_XRCD, i)))
			return fail("xrcd slot %u: nobody uses it", i);
	return true;
}

/* ---- pages: inside, nobody's twice, and the map says the same ---- */

static bool claim_pages(uint64_t *seen, const struct vs_slot *slot, enum vs_table t, uint32_t i)
{
	if (slot->ext_pages == 0)
		return true;
	if (!vs_extent_sane(slot->ext_page, slot->ext_pages))
		return fail("%s slot %u: pages outside the segment", vs_tables[t].name, i);
	for (uint32_t p = slot->ext_page; p < slot->ext_page + slot->ext_pages; p++) {
		if (seen[p / 64] >> (p % 64) & 1)
			return fail("%s slot %u: page %u belongs to another as well", vs_tables[t].name, i, p);
		seen[p / 64] |= UINT64_C(1) << (p % 64);
	}
	return true;
}

static bool check_pages(void)
{
	uint64_t *seen = calloc(sizeof(vs_seg->page_map) / 8, 8);
	const struct vs_slot *slot;
	uint32_t i;
	bool ok = seen != NULL || fail("out of memory");

	for (int t = 0; ok && t < VS_TABLES; t++)
		vs_for_each_slot ((enum vs_table)t, i, slot)
			if (!claim_pages(seen, slot, (enum vs_table)t, i)) {
				ok = false;
				break;
			}
	if (ok && memcmp(seen, vs_seg->page_map, sizeof(vs_seg->page_map)))
		ok = fail("the page map does not say what the slots say");
	free(seen);
	return ok;
}

/* ---- queues: no entry is held by a dead process ---- */

static bool holder_lives(uint64_t word)
{
	const struct vs_slot *proc = vs_slot_at(VS_PROC, vs_word_low(word));

	return proc && vs_slot_state(proc) == VS_LIVE;
}

static bool check_entry(uint64_t word, uint32_t k, uint32_t entries, const char *what, uint32_t i)
{
	if ((vs_word_pos(word) & (entries - 1)) != k || vs_word_kind(word) > VS_RING_FULL)
		return fail("%s slot %u: entry %u is torn", what, i, k);
	if (vs_word_kind(word) == VS_RING_CLAIMED && !holder_lives(word))
		return fail("%s slot %u: entry %u is held by a dead process", what, i, k);
	return true;
}

static bool check_cq(const struct vs_cq_shm *cq, uint32_t i)
{
	uint64_t bytes = 0;
	const struct vs_cqe *e = vs_extent(&cq->s, &bytes);
	uint32_t n = vs_load(&cq->ring.entries);

	if (!e || n == 0 || (n & (n - 1)) || n > bytes / sizeof(*e))
		return fail("cq slot %u: its ring does not fit its pages", i);
	for (uint32_t k = 0; k < n; k++)
		if (!check_entry(vs_load(&e[k].word), k, n, "cq", i))
			return false;
	return true;
}

/* Its events, and whom its engine works for. */
static bool check_process(const struct vs_proc_shm *proc, uint32_t i)
{
	uint32_t client = vs_load(&proc->copy.client);

	if (vs_load(&proc->events.entries) != VS_EVENTS)
		return fail("process slot %u: its event ring has another length", i);
	for (uint32_t k = 0; k < VS_EVENTS; k++)
		if (!check_entry(vs_load(&proc->event[k].word), k, VS_EVENTS, "process", i))
			return false;
	return !client || vs_process(client) || fail("process slot %u: it copies for %08x, which is gone", i, client);
}

static bool check_rq(struct vs_slot *slot, struct vs_rq *rq, const char *what, uint32_t i)
{
	struct vs_rq_view view;
	uint64_t bytes = 0;
	void *pages = vs_extent(slot, &bytes);

	if (!vs_rq_open(&view, rq, pages, bytes))
		return fail("%s slot %u: its receive queue does not fit its pages", what, i);
	for (uint32_t k = 0; k < view.pool_entries; k++) {
		uint64_t word = vs_load(&vs_rq_wqe(&view, k)->word);

		if (vs_word_kind(word) == VS_WQE_TAKEN && !holder_lives(word))
			return fail("%s slot %u: WQE %u is held by a dead process", what, i, k);
	}
	return true;
}

static bool check_queues(void)
{
	struct vs_cq_shm *cq;
	struct vs_srq_shm *srq;
	struct vs_qp_shm *qp;
	struct vs_proc_shm *proc;
	uint32_t i, resizes = 0;

	vs_for_each_live (VS_PROC, i, proc)
		if (!check_process(proc, i))
			return false;
	vs_for_each_live (VS_CQ, i, cq) {
		if (!vs_load(&cq->resizing) && !check_cq(cq, i))
			return false;
		resizes += vs_load(&cq->resizing) == VS_CQ_RESIZING;
	}
	if (vs_load(&vs_seg->resizes) != resizes)
		return fail("%u CQs are said to be resized, not %u", vs_load(&vs_seg->resizes), resizes);
	vs_for_each_live (VS_SRQ, i, srq)
		if (!check_rq(&srq->s, &srq->rq, "srq", i))
			return false;
	vs_for_each_live (VS_QP, i, qp)
		if (qp->s.ext_pages && !check_rq(&qp->s, &qp->rq, "qp", i))
			return false;
	return true;
}

/* ---- fabric ---- */

static bool check_fabric(void)
{
	const struct vs_port_shm *port;
	const struct vs_hca_shm *hca;
	uint32_t i;

	vs_for_each_live (VS_HCA, i, hca)
		if (!vs_slot_at(VS_HOST, hca->host) || hca->num_ports > VS_MAX_PORTS)
			return fail("hca slot %u: no host, or too many ports", i);
	vs_for_each_live (VS_PORT, i, port) {
		hca = vs_fabric_hca(port->hca);
		if (!hca || (!vs_hca_there(hca) && vs_load(&port->state) != IBV_PORT_DOWN))
			return fail("port slot %u: up, and its HCA is unplugged", i);
		if (port->lmc > 7)
			return fail("port slot %u: LMC %u", i, port->lmc);
		for (uint32_t l = 0; l < 1u << port->lmc; l++)
			if (vs_fabric_port_of_lid((uint16_t)(port->lid + l)) != port)
				return fail("port slot %u: LID %u leads elsewhere", i, port->lid + l);
	}
	return true;
}

/* What is in force is whole. */
static bool check_faults(void)
{
	const struct vs_faults *faults = &vs_seg->faults;

	if (vs_load(&faults->refusing) >> VS_NUM_VERBS || vs_load(&faults->ruling) >> VS_MAX_RULES)
		return fail("orders are in force that there are not");
	for (uint32_t v = 0; v < VS_NUM_VERBS; v++)
		if (vs_load(&faults->refusing) >> v & 1 && !faults->refusal[v].error)
			return fail("%s: refused without an error", vs_verb_name[v]);
	for (uint32_t r = 0; r < VS_MAX_RULES; r++)
		if (vs_load(&faults->ruling) >> r & 1 && (!faults->rule[r].kind || faults->rule[r].kind > VS_RULE_DELAY || faults->rule[r].what > VS_WHAT_DATAGRAM))
			return fail("rule %u: in force, and no rule", r);
	return true;
}

static bool check_all(void)
{
	for (int t = 0; t < VS_TABLES; t++)
		if (!check_slots((enum vs_table)t))
			return false;
	return check_references() && check_pages() && check_queues() && check_fabric() && check_faults();
}

static cJSON *verdict_tree(bool there)
{
	cJSON *tree = cJSON_CreateObject();
	bool ok = !there || check_all();

	cJSON_AddBoolToObject(tree, "ok", ok);
	if (!ok)
		cJSON_AddStringToObject(tree, "broken", broken);
	return tree;
}

static int print_verdict(const cJSON *tree, bool printed)
{
	bool ok = cJSON_IsTrue(cJSON_GetObjectItem(tree, "ok"));

	if (!ok && !printed)
		fprintf(stderr, "vshim: %s\n", broken);
	return !ok;
}

int vshim_check(int argc, char **argv)
{
	return vshim_report(argc, argv, verdict_tree, print_verdict);
}
