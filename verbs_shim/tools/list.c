#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/qp.h"
#include "hca/hca.h"
#include "tools/report.h"
#include "tools/tool.h"

/* What a process can hold, in the order of the columns. */
enum kind { PD, MR, CQ, SRQ, XRCD, QP_RC, QP_UC, QP_UD, QP_INI, TGT_HANDLES, KINDS };

static const char *const kind_name[KINDS] = { "pd", "mr", "cq", "srq", "xrcd", "qp_rc", "qp_uc", "qp_ud", "qp_ini", "tgt_handles" };

struct counts {
	unsigned n[KINDS];
};

static int kind_of_qp(const struct vs_qp_shm *qp)
{
	switch (qp->type) {
	case IBV_QPT_RC:
		return QP_RC;
	case IBV_QPT_UC:
		return QP_UC;
	case IBV_QPT_UD:
		return QP_UD;
	case IBV_QPT_XRC_SEND:
		return QP_INI;
	default:
		return -1; /* a TGT QP is the domain's */
	}
}

static void count_table(enum vs_table table, enum kind kind, uint32_t owner, struct counts *c)
{
	struct vs_slot *slot;
	uint32_t index;

	vs_for_each_live (table, index, slot)
		if (slot->owner == owner)
			c->n[kind]++;
}

static struct counts count_process(uint32_t id)
{
	struct counts c = { { 0 } };
	struct vs_qp_shm *qp;
	uint32_t index;

	count_table(VS_PD, PD, id, &c);
	count_table(VS_MR, MR, id, &c);
	count_table(VS_CQ, CQ, id, &c);
	count_table(VS_SRQ, SRQ, id, &c);
	count_table(VS_XRCD_REF, XRCD, id, &c);
	count_table(VS_QP_REF, TGT_HANDLES, id, &c);
	vs_for_each_live (VS_QP, index, qp)
		if (qp->s.owner == id && kind_of_qp(qp) >= 0)
			c.n[kind_of_qp(qp)]++;
	return c;
}

/* Entries that the CQs of a process have memory for. */
static double cq_entries(uint32_t owner)
{
	struct vs_cq_shm *cq;
	uint32_t index;
	double sum = 0;

	vs_for_each_live (VS_CQ, index, cq)
		if (cq->s.owner == owner)
			sum += vs_load(&cq->ring.entries);
	return sum;
}

/* What is counted by host, whoever the owner. */
struct host_counts {
	unsigned tgt;
	unsigned mig[IBV_MIG_ARMED + 1]; /* INI and TGT QPs by migration state */
	double silent_us;		 /* the longest that an INI QP tries before it takes its path for dead */
};

/* On the path in use; on an alternate one as well, if it has one. */
static double silent_us(struct vs_qp_shm *qp)
{
	uint64_t word = vs_load(&qp->path_word), first = vs_ack_time(qp->path[vs_path_primary(word)].timeout);
	uint64_t second = word & VS_PATH_LOADED ? vs_ack_time(qp->path[vs_path_alternate(word)].timeout) : first;

	return first && second ? (double)(first > second ? first : second) / 1000 * (qp->retry_cnt + 1) : INFINITY;
}

static struct host_counts count_host(uint32_t host)
{
	const struct vs_hca_shm *hca;
	struct host_counts c = { 0 };
	struct vs_qp_shm *qp;
	uint32_t index;

	vs_for_each_live (VS_QP, index, qp) {
		enum ibv_mig_state mig = vs_qp_mig_state(qp);

		hca = vs_fabric_hca(qp->hca);
		if (!hca || hca->host != host || (qp->type != IBV_QPT_XRC_RECV && qp->type != IBV_QPT_XRC_SEND))
			continue;
		c.tgt += qp->type == IBV_QPT_XRC_RECV;
		if (mig <= IBV_MIG_ARMED)
			c.mig[mig]++;
		if (qp->type == IBV_QPT_XRC_SEND && silent_us(qp) > c.silent_us)
			c.silent_us = silent_us(qp);
	}
	return c;
}

/* ---- as a tree, which is what --json prints and the text is made of ---- */

static cJSON *process_tree(const struct vs_proc_shm *proc, uint32_t id, struct counts *total)
{
	struct counts c = count_process(id);
	cJSON *tree = cJSON_CreateObject(), *objects;

	cJSON_AddNumberToObject(tree, "pid", proc->pid);
	cJSON_AddStringToObject(tree, "name", vshim_text(proc->comm, sizeof(proc->comm)));
	objects = cJSON_AddObjectToObject(tree, "objects");
	for (int k = 0; k < KINDS; k++) {
		cJSON_AddNumberToObject(objects, kind_name[k], c.n[k]);
		total->n[k] += c.n[k];
	}
	cJSON_AddNumberToObject(tree, "cq_entries", cq_entries(id));
	return tree;
}

static cJSON *host_tree(const struct vs_host_shm *host, uint32_t host_index, struct counts *total, unsigned *tgt)
{
	cJSON *tree = cJSON_CreateObject(), *processes, *mig;
	struct vs_proc_shm *proc;
	struct host_counts c = count_host(host_index);
	uint32_t index;

	cJSON_AddStringToObject(tree, "name", vshim_text(host->name, sizeof(host->name)));
	processes = cJSON_AddArrayToObject(tree, "processes");
	vs_for_each_live (VS_PROC, index, proc)
		if (proc != vs_me && proc->host == host_index)
			cJSON_AddItemToArray(processes, process_tree(proc, vs_slot_id(VS_PROC, index), total));
	cJSON_AddNumberToObject(tree, "tgt", c.tgt);
	mig = cJSON_AddObjectToObject(tree, "xrc_paths");
	cJSON_AddNumberToObject(mig, "migrated", c.mig[IBV_MIG_MIGRATED]);
	cJSON_AddNumberToObject(mig, "rearm", c.mig[IBV_MIG_REARM]);
	cJSON_AddNumberToObject(mig, "armed", c.mig[IBV_MIG_ARMED]);
	cJSON_AddNumberToObject(mig, "silent_us", c.silent_us); /* null: for ever */
	*tgt += c.tgt;
	return tree;
}

static void fill_hosts(cJSON *hosts, struct counts *total, unsigned *tgt)
{
	struct vs_host_shm *host;
	uint32_t index;

	vs_for_each_live (VS_HOST, index, host)
		cJSON_AddItemToArray(hosts, host_tree(host, index, total, tgt));
}

static cJSON *fabric_tree(bool attached)
{
	cJSON *tree = cJSON_CreateObject(), *hosts = cJSON_AddArrayToObject(tree, "hosts"), *totals;
	struct counts total = { { 0 } };
	unsigned tgt = 0;

	if (attached)
		fill_hosts(hosts, &total, &tgt);
	totals = cJSON_AddObjectToObject(tree, "totals");
	for (int k = 0; k < KINDS; k++)
		cJSON_AddNumberToObject(totals, kind_name[k], total.n[k]);
	cJSON_AddNumberToObject(totals, "qp_tgt", tgt);
	return tree;
}

static int number(const cJSON *tree, const char *name)
{
	const cJSON *item = cJSON_GetObjectItem(tree, name);

	return item ? item->valueint : 0;
}

static int print_text(const cJSON *tree, bool printed)
{
	const cJSON *host, *process;

	if (printed)
		return 0;
	cJSON_ArrayForEach (host, cJSON_GetObjectItem(tree, "hosts")) {
		int armed = number(cJSON_GetObjectItem(host, "xrc_paths"), "armed");

		printf("host %s: %d TGT QPs", cJSON_GetObjectItem(host, "name")->valuestring, number(host, "tgt"));
		if (armed)
			printf(", %d INI and TGT QPs armed", armed);
		putchar('\n');
		cJSON_ArrayForEach (process, cJSON_GetObjectItem(host, "processes")) {
			printf("  %7d %-15s", number(process, "pid"), cJSON_GetObjectItem(process, "name")->valuestring);
			for (int k = 0; k < KINDS; k++) {
				int n = number(cJSON_GetObjectItem(process, "objects"), kind_name[k]);

				if (n)
					printf(" %s %d", kind_name[k], n);
			}
			putchar('\n');
		}
	}
	return 0;
}

int vshim_list(int argc, char **argv)
{
	return vshim_report(argc, argv, fabric_tree, print_text);
}
