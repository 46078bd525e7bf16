/* The shared segment as it lies in memory: what a kernel and an HCA would hold.
 *
 * Fixed-width types, offsets never pointers, sizes asserted. Every process of the fabric maps it; any of them may die at any
 * instruction. Three rules make that safe:
 *   1. An object exists exactly while its slot's word says LIVE: one atomic store makes it, one unmakes it.
 *   2. Whatever can be derived (use counts, free pages) is derived, or rebuilt after a death under the control lock.
 *   3. Queues carry the claimer's process number in the claimed slot itself (ring.h), so a dead claimer is visible there.
 * Everything read from here may have been written by a hostile process of the same user: copy, then check. */
#ifndef VS_LAYOUT_H
#define VS_LAYOUT_H

#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define VS_MAGIC UINT64_C(0x31434a5856424956) /* "VIBVXJC1" */
#define VS_LAYOUT_VERSION 16u
#define VS_PAGE UINT64_C(4096)
#define VS_SEGMENT_SIZE (UINT64_C(4) << 30) /* sparse; pages are reserved when objects are made */

#define VS_MAX_PORTS 4u    /* of an HCA */
#define VS_MAX_HCAS 8u     /* of a host */
#define VS_MAX_SUBNETS 4u  /* of the fabric */
#define VS_MAX_MSG (UINT32_C(1) << 30) /* bytes of a message, unless VERBS_SHIM_TOPOLOGY says fewer */
#define VS_MIN_MSG 4096u   /* what it may say: at least an MTU */
#define VS_PKEY_TABLE 8u   /* entries of a port */
#define VS_MAX_SGE 32u     /* of any work request */
#define VS_LID_LIMIT 49152u /* unicast LIDs are 1..0xBFFF */
#define VS_SAVED_ATOMICS 16u /* of a QP: at least max_dest_rd_atomic */
#define VS_HAZARDS 32u     /* threads of one process inside the data path at a time */
#define VS_EVENTS 512u     /* event records a process may have unread; power of two */
#define VS_COPY_STAGE 65536u

/* The tables of object slots. */
enum vs_table {
	VS_PROC,
	VS_HOST,
	VS_HCA,
	VS_PORT,
	VS_PD,
	VS_MR,
	VS_CQ,
	VS_SRQ,
	VS_XRCD,
	VS_XRCD_REF, /* one process's handle on an XRCD */
	VS_QP,
	VS_MCAST,  /* one QP's membership of a multicast group */
	VS_QP_REF, /* one process's handle on a shared TGT QP */
	VS_TABLES
};

/* Head of every slot, whose size is rounded up to cache lines. word = generation << 8 | state, where the generation counts the slot's lives
 * and an id holds its low bits; owner = id of the process that made it, 0 for the fabric's own objects. context tells the contexts of that
 * process apart, for the one that closes. ext_* names the pages of the data region that belong to the object; they are free exactly when no
 * slot names them. */
struct vs_slot {
	uint32_t word;
	uint32_t owner;
	uint32_t ext_page;
	uint32_t ext_pages;
	uint32_t context;
	uint32_t pad;
};

enum vs_slot_state {
	VS_FREE = 0,
	VS_MAKING = 1, /* owner fills it in; nobody else looks */
	VS_LIVE = 2,
	VS_DYING = 3, /* found by no new lookup; freed once every process has left the data path once */
};

/* ---- queues (the protocol is in ring.h) ---- */

/* Completion or event ring; its entries lie in the owning object's pages (CQ) or behind it (process events). */
struct vs_ring {
	uint64_t tail;     /* hint: where the next entry goes */
	uint32_t entries;  /* power of two */
	uint32_t overruns; /* entries refused because the ring was full */
};

#define VS_CQE_DATA 16u /* bytes of payload that a completion can hold */

/* One completion (or event), one cache line. */
struct vs_cqe {
	uint64_t word; /* ring protocol */
	uint8_t opcode;    /* enum ibv_wc_opcode */
	uint8_t status;    /* enum ibv_wc_status */
	uint8_t wc_flags;  /* IBV_WC_GRH, _WITH_IMM */
	uint8_t kind;      /* enum vs_cqe_kind */
	uint32_t qpn;      /* local QP */
	uint32_t rq;       /* receive: queue the WQE came from (VS_RQ_SRQ | id, or QPN) */
	uint32_t wqe;      /* receive: pool index; send: position in the send queue */
	uint32_t byte_len;
	uint32_t imm;      /* network order, as in the WR */
	uint32_t src_qp;
	uint16_t slid;
	uint16_t pkey_index;
	uint8_t sl;
	uint8_t path_bits;
	uint8_t payload;   /* enum vs_cqe_payload */
	uint8_t solicited;
	uint32_t generation; /* receive: of the WQE's posting */
	uint8_t data[VS_CQE_DATA];
};
static_assert(sizeof(struct vs_cqe) == 64, "a completion is one cache line");

/* Where a received payload waits for the poll that copies it to where it belongs; or it is there already. */
enum vs_cqe_payload { VS_PAYLOAD_PLACED = 0, VS_PAYLOAD_BOUNCED = 1 /* in the WQE's bounce buffer */, VS_PAYLOAD_HERE = 2 };

enum vs_cqe_kind { VS_CQE_VOID = 0, VS_CQE_SEND = 1, VS_CQE_RECV = 2 };
#define VS_RQ_SRQ 0x80000000u

/* One event record; shares the ring protocol, hence the size, with completions. */
struct vs_event {
	uint64_t word;
	uint32_t type;   /* enum ibv_event_type, or enum vs_internal_event */
	uint32_t table;  /* of the element: VS_CQ, VS_QP, VS_QP_REF, VS_SRQ, VS_PORT */
	uint32_t id;     /* of the element */
	uint32_t port;   /* port number of port events */
	uint32_t number; /* of what is raised once for a change that has a number: the same event again is none */
	uint32_t pad0;
	uint64_t pad[4];
};
static_assert(sizeof(struct vs_event) == sizeof(struct vs_cqe), "events use the completion ring");

enum vs_internal_event {
	VS_EVENT_QP_FLUSH = 0x1000, /* your QP was moved to ERR by its peer: flush its queues */
	VS_EVENT_RQ_RETURN,         /* a sender died holding WQEs of this queue: post them again */
};

struct vs_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

/* A receive queue: a ring of positions and a pool of WQEs, both in the owning object's pages. What takers write, what the owner writes and
 * what hardly anybody writes lie in different cache lines. */
struct vs_rq {
	uint64_t head; /* hint: next position to take */
	uint64_t pad0[7];
	uint64_t tail; /* next position to post; only the owner moves it */
	uint64_t pad1[7];
	uint32_t ring_entries; /* power of two >= pool_entries */
	uint32_t pool_entries;
	uint32_t max_sge;
	uint32_t bounce; /* payload bytes each WQE can hold in the segment */
	uint32_t wqe_stride;
	uint64_t limit; /* arming << 32 | SRQ watermark; 0 = not armed; VS_LIMIT_REACHED | process slot: that one tells of it */
};

#define VS_LIMIT_REACHED 0x80000000u

struct vs_wqe {
	uint64_t word; /* ring protocol */
	uint32_t num_sge;
	uint32_t generation;
	struct vs_sge sge[]; /* max_sge of them, then the bounce buffer, 64-byte aligned */
};

/* ---- fabric ---- */

struct vs_host_shm {
	struct vs_slot s;
	char name[64];
	uint32_t num_hcas;
	uint32_t hca[VS_MAX_HCAS]; /* slot numbers */
};

#define VS_UNPLUGGED 1u

enum vs_plugging { VS_PLUGS = 1, VS_UNPLUGS = 2 };

struct vs_hca_shm {
	struct vs_slot s;
	uint64_t guid;
	uint64_t changing; /* process that plugs or unplugs it << 32 | enum vs_plugging, until that is done and told */
	uint32_t host; /* slot number */
	uint32_t index; /* on its host: vshim<index> */
	uint32_t incarnation; /* one more when it is unplugged and when it is plugged in again; VS_UNPLUGGED: it is not there */
	uint32_t num_ports;
	uint32_t port[VS_MAX_PORTS]; /* slot numbers */
};

/* What a port, or a QP, went through. Counted where it is rare, never on the way of a message that arrives. */
struct vs_counters {
	uint64_t unknown_srqn; /* requests for an SRQ that is not there, or of another domain */
	uint64_t rnr_sent;
	uint64_t rnr_received;
	uint64_t naks_sent;
	uint64_t retries;    /* requests sent again for want of an answer */
	uint64_t migrations;
	uint64_t duplicates; /* requests that came again */
	uint64_t dropped;    /* packets lost: to a fault, or a datagram or message of a UC QP without a WQE */
};

struct vs_port_shm {
	struct vs_slot s;
	uint64_t prefix; /* host order */
	uint64_t guid;
	uint32_t hca; /* slot number */
	union {
		struct {
			uint16_t lid; /* base LID; lmc low bits are zero. What stands for the MAC address where a port is Ethernet's */
			uint8_t num;  /* 1.. */
			uint8_t lmc;
		};
		uint32_t lid_word; /* LID and LMC change by one store */
	};
	uint32_t state; /* enum ibv_port_state */
	uint16_t pkey[VS_PKEY_TABLE];
	uint32_t subnet; /* only ports of one subnet reach each other */
	uint32_t ethernet;
	uint32_t no_route_lid; /* the base LID that no_route is about; of another it says nothing */
	uint64_t no_route[2]; /* by path bits: LIDs that no switch knows a way to */
	uint64_t telling; /* process that changes it << 32 | event to tell of that, from before that until all are told */
	struct vs_counters counters;
};

/* ---- faults to order, and where kernels and chips differ ---- */

enum vs_tgt_exit { VS_TGT_DESTROY, VS_TGT_ORPHAN };
enum vs_tgt_events { VS_EVENTS_ALL, VS_EVENTS_CREATOR };
enum vs_bad_srqn { VS_SRQN_NAK4, VS_SRQN_NAK2, VS_SRQN_NAK1, VS_SRQN_DROP };

/* Whom src_qp names in what an XRC SRQ received: as mlx5 the INI, as mlx4 the SRQ. */
enum vs_src_qp { VS_SRC_QP_MLX5, VS_SRC_QP_MLX4 };

/* What atomics exclude, as in enum ibv_atomic_cap: each other, or the CPUs' atomics on the same word as well. */
enum vs_atomics { VS_ATOMICS_HCA, VS_ATOMICS_GLOB };

/* Capabilities that can be taken away; bits of hidden_caps. */
enum vs_cap { VS_CAP_XRC = 1, VS_CAP_APM = 2, VS_CAP_ATOMICS = 4, VS_CAP_SRQ_LIMIT = 8, VS_CAP_MODIFY_SRQ = 16, VS_CAP_OPEN_QP = 32 };

struct vs_knobs {
	union {
		struct {
			uint8_t tgt_exit;
			uint8_t tgt_events;
			uint8_t bad_srqn;
			uint8_t src_qp;
		};
		uint32_t word; /* all of them change by one store */
	};
	uint32_t hidden_caps;
};

/* A verb that is to fail, while faults.refusing says so. count = calls to let pass << 32 | calls to refuse. */
struct vs_refusal {
	uint64_t count;
	uint32_t error; /* errno value */
	uint32_t host;  /* slot + 1; 0: any */
	uint32_t every; /* calls that pass between two that are refused */
	uint32_t pad;
};

#define VS_MAX_VERBS 64u
#define VS_MAX_RULES 16u

enum vs_rule_kind { VS_RULE_NONE, VS_RULE_DROP, VS_RULE_DUP, VS_RULE_DELAY };
enum vs_rule_what { VS_WHAT_PACKET, VS_WHAT_ACK, VS_WHAT_DATAGRAM };

/* A packet that is to meet a fault, while faults.ruling says so. count = packets to let pass << 32 | packets to hit. */
struct vs_rule {
	uint64_t count;
	uint32_t kind;
	uint32_t what;
	uint32_t port; /* slot + 1 of either end; 0: any */
	uint32_t delay_us;
};

struct vs_faults {
	uint64_t refusing; /* a bit for each refusal that is in force: one store orders it, or takes it back */
	uint32_t ruling;   /* the same for rules */
	uint32_t pad;
	struct vs_refusal refusal[VS_MAX_VERBS];
	struct vs_rule rule[VS_MAX_RULES];
};

/* ---- what ib_uverbs keeps ---- */

struct vs_pd_shm {
	struct vs_slot s;
	uint32_t hca;
};

/* The file behind memory that is mapped MAP_SHARED: other processes may map it as well. */
struct vs_backing {
	uint64_t dev;    /* as in st_dev */
	uint64_t ino;
	uint64_t offset; /* in the file */
	uint32_t flags;  /* enum vs_backing_flags; 0: private memory, or of several mappings */
	uint32_t pad;
};

enum vs_backing_flags { VS_BACKED = 1, VS_BACKED_WRITABLE = 2 };

struct vs_mr_shm {
	struct vs_slot s;
	uint64_t addr;   /* in the owner's address space */
	uint64_t length;
	uint64_t iova;   /* what remote peers call addr */
	uint32_t pd;     /* id */
	uint32_t access; /* enum ibv_access_flags */
	struct vs_backing backing; /* of [addr, addr + length) */
	uint64_t seal; /* of where it lies, which never changes: vs_region_seal() */
};

/* A peer that writes to a region by way of the kernel names addresses of another process, and nobody there looks at them any more. So bytes
 * written astray in the region's slot must not lead it elsewhere: with the id, this tells them from what the owner wrote. */
static inline uint64_t vs_region_seal(uint32_t id, uint64_t addr, uint64_t length)
{
	uint64_t h = id * UINT64_C(0x9e3779b97f4a7c15);

	h = (h ^ h >> 32 ^ addr) * UINT64_C(0xff51afd7ed558ccd);
	h = (h ^ h >> 32 ^ length) * UINT64_C(0xc4ceb9fe1a85ec53);
	return h ^ h >> 32;
}

struct vs_cq_shm {
	struct vs_slot s;
	uint32_t hca;
	uint32_t armed; /* enum vs_cq_arm */
	uint32_t error; /* overrun seen: who tells of it, then VS_CQ_TOLD */
	uint32_t resizing; /* VS_CQ_RESIZING: producers stay out */
	struct vs_ring ring;
};

#define VS_CQ_TOLD 1u /* no process's id */

/* A value of its own: the owner rights what was written astray (vs_cq_right_resizing), but what the reaper has counted as a resize by then
 * (vs_cq_count_resizes) stays counted until its next turn. */
#define VS_CQ_RESIZING 0x52657331u

/* For what a CQ is armed, if for anything. Beside it, that a notification waits for the owner's engine: in the same word, so that there is
 * no moment, for a producer to die in, when the CQ is not armed any more and not fired yet. */
enum vs_cq_arm { VS_CQ_ARM_SOLICITED = 1, VS_CQ_ARM_ANY = 2, VS_CQ_FIRED = 4 };

struct vs_srq_shm {
	struct vs_slot s;
	uint32_t hca;
	uint32_t type; /* enum ibv_srq_type */
	uint32_t pd;
	uint32_t xrcd;     /* XRC: id of the domain */
	uint32_t xrcd_ref; /* XRC: id of the handle it was made through */
	uint32_t cq;       /* XRC: id */
	uint32_t max_wr;
	uint32_t max_sge;
	struct vs_rq rq;
};

/* A domain is keyed by inode and by the inode's birth, since file systems use inode numbers again. */
struct vs_xrcd_shm {
	struct vs_slot s;
	uint32_t hca;
	uint32_t incarnation; /* of the HCA */
	uint32_t keyed; /* 0: private (opened with fd -1) */
	uint64_t dev;
	uint64_t ino;
	uint64_t birth_sec;
	uint32_t birth_nsec;
};

struct vs_xrcd_ref_shm {
	struct vs_slot s;
	uint32_t xrcd;
};

/* Address vector of a connected path. */
struct vs_av {
	uint8_t gid[16];
	uint32_t flow_label;
	uint16_t dlid;
	uint8_t sl;
	uint8_t path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint8_t ethernet; /* dlid was found by the GID, and the program knows of none */
	uint8_t pad;
};
static_assert(sizeof(struct vs_av) == 32, "address vector");

struct vs_path {
	struct vs_av av;
	uint16_t pkey_index;
	uint8_t timeout;
	uint8_t pad[5];
};

#define VS_PATHS 4u /* two that are in use, and two to write before they are */

/* path_word = version << 32 | teller << 16 | VS_PATH_LOADED | alternate << 10 | primary << 8 | enum ibv_mig_state. The version moves at
 * every ibv_modify_qp; primary and alternate are indices of paths; the teller (process slot + 1) has migrated the QP and still has to raise
 * PATH_MIG. All in one word, so that one store migrates, and one store replaces a path. */
#define VS_PATH_LOADED 0x1000u /* ALT_PATH was set since the last migration */
#define VS_PATH_TELLER 0xffff0000u
#define VS_PATH_VERSION (UINT64_C(1) << 32)
#define VS_PATH_FRESH (1u << 10) /* the first two, MIGRATED */

/* What somebody who moved a QP has to tell its holders: life << 32 | event << 16 | teller (process slot + 1), with no teller once it is
 * told. One word each: those who have to tell may meet. */
enum vs_owed {
	VS_OWED_ESTABLISHED, /* the first packet in RTR; written by the sender whose word it was */
	VS_OWED_FAILED,      /* by whoever put it into ERR for an error, before that */
	VS_OWED_STOPPED,     /* likewise, by ibv_modify_qp */
	VS_OWED
};

/* What an atomic request returned, for a repeat of it: atomics are never carried out twice. */
struct vs_saved_atomic {
	uint64_t result;
	uint32_t psn;
	uint32_t valid;
};

struct vs_qp_shm {
	struct vs_slot s;
	uint32_t type;  /* enum ibv_qp_type */
	uint32_t hca;
	uint32_t incarnation; /* of the HCA; in any other one the QP does nothing any more */
	uint32_t state; /* enum ibv_qp_state */
	uint32_t pd;
	uint32_t send_cq;
	uint32_t recv_cq;
	uint32_t srq;
	uint32_t xrcd;
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
	uint32_t sq_sig_all;
	/* attributes: written under the control lock */
	uint32_t access;
	uint32_t dest_qpn;
	uint32_t qkey;
	uint32_t rq_psn; /* as set; the running value is epsn */
	uint32_t sq_psn;
	uint32_t port;
	uint8_t path_mtu;
	uint8_t min_rnr_timer;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t sqd_notify;
	uint32_t life; /* moves at every reset */
	uint64_t path_word;
	struct vs_path path[VS_PATHS];
	/* responder: moved only by the one connected requester, inside the data path */
	uint32_t epsn;
	uint32_t msn;
	uint32_t next_saved;
	uint64_t owed[VS_OWED];
	struct vs_counters counters;
	struct vs_saved_atomic saved[VS_SAVED_ATOMICS];
	struct vs_rq rq;
};

struct vs_qp_ref_shm {
	struct vs_slot s;
	uint32_t qp;       /* id of the real TGT QP */
	uint32_t xrcd_ref; /* handle of the domain it was made or opened through */
	uint32_t creator;  /* made by ibv_create_qp_ex, not by ibv_open_qp */
};

struct vs_mcast_shm {
	struct vs_slot s;
	uint8_t gid[16];
	uint32_t qp; /* id */
	uint16_t lid;
	uint16_t pad;
};

/* ---- processes ---- */

struct vs_hazard {
	uint64_t word; /* 0: outside; else changes at every entry */
	uint64_t pad[7];
};

/* What a peer asks this process's engine to do to its memory, where it may not reach that itself, or not by the CPU's atomics. */
struct vs_ask {
	uint32_t what; /* enum vs_ask_what */
	uint32_t key;  /* of the MR that it is checked against */
	uint64_t addr;
	uint64_t compare_add, swap; /* of an atomic */
	uint32_t length; /* of a copy */
	uint32_t pad;
};

enum vs_ask_what { VS_ASK_READ /* addr -> stage */, VS_ASK_WRITE /* stage -> addr */, VS_ASK_ADD, VS_ASK_SWAP };

struct vs_copy {
	uint32_t state;  /* enum vs_copy_state */
	uint32_t client; /* process id that claimed it */
	uint32_t result; /* errno */
	uint32_t pad;
	struct vs_ask ask;
	uint64_t old; /* what an atomic found */
};
static_assert(sizeof(struct vs_copy) == 64, "asking and answering is one cache line");

enum vs_copy_state { VS_COPY_IDLE = 0, VS_COPY_CLAIMED, VS_COPY_ASKED, VS_COPY_DONE };

#define VS_NO_HOST UINT32_MAX

/* How far a process is that leaves while it has threads. */
enum vs_leaving { VS_STAYS = 0, VS_SERVES_NOBODY = 1 /* its engine has ended */, VS_SHUT = 2 /* none of its threads is inside the data path */ };

struct vs_proc_shm {
	struct vs_slot s;
	int32_t pid;
	uint32_t host; /* slot number, or VS_NO_HOST */
	uint64_t pid_ns; /* inode of its pid namespace */
	char comm[16];
	uint32_t wake; /* futex the engine sleeps on */
	uint32_t hazards; /* hazard slots ever used, for short scans */
	uint32_t atomic_lock; /* id of the process doing an HCA atomic on this one's memory; 0: free */
	uint32_t sweep; /* an enum vs_internal_event found no room: its engine looks for all that they tell */
	uint32_t leaving; /* enum vs_leaving */
	int32_t thread; /* by which the kernel finds its memory: the first thread, which is its pid, may have ended; its engine has not */
	struct vs_ring events;
	struct vs_copy copy;
	struct vs_hazard hazard[VS_HAZARDS];
	struct vs_event event[VS_EVENTS];
	uint8_t stage[VS_COPY_STAGE];
};

/* ---- the head of the segment ---- */

struct vs_segment {
	uint64_t magic;
	uint32_t version;
	uint32_t ready; /* written last by the creator */
	uint64_t size;
	uint32_t slot_size[VS_TABLES]; /* of the writer: another build is refused */
	uint32_t slot_count[VS_TABLES];
	uint32_t reserved[VS_TABLES]; /* slots whose pages exist; lookups stop there */
	uint64_t table_offset[VS_TABLES];
	uint64_t data_offset;
	uint32_t data_pages;
	uint32_t resizes;      /* of CQs, under way; while 0 nobody looks for one */
	uint32_t fabric_epoch; /* moves when any path may have changed */
	uint32_t unplugs;      /* moves when an HCA was unplugged */
	uint32_t topology_devices, topology_ports, topology_lmc; /* what new hosts get */
	uint32_t topology_subnets, topology_prefixes, topology_numa;
	uint32_t topology_max_msg; /* longest message of any port */
	uint32_t topology_roce;
	uint32_t topology_atomics; /* enum vs_atomics */
	uint32_t next_lid;
	uint64_t looked; /* when an engine looked for the dead last: one does for all */
	struct vs_knobs knobs;
	struct vs_faults faults;
	pthread_mutex_t control; /* robust, shared: every change of objects; never held while waiting for others */
	uint16_t lid_port[VS_LID_LIMIT]; /* LID -> port slot + 1 */
	uint64_t page_map[(VS_SEGMENT_SIZE / VS_PAGE) / 64]; /* pages in use; rebuilt after a death */
};

#endif
