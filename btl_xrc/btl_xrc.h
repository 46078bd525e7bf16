/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The component and its modules. One module is one active port of an XRC-capable HCA, or, with max_lmc, one LID of it.
 *
 * Threads: MPI threads (one, or many under MPI_THREAD_MULTIPLE) own everything here but what is marked "service": that
 * belongs to the one service thread, which does wire-up and events. The two exchange work through lock-free stacks
 * (struct xrc_stack); the locks they share are a node's until that node is connected (see xrc_node_lock()) and that of
 * path migration, which is not taken for a message.
 */
#ifndef BTL_XRC_H
#define BTL_XRC_H

#include "btl_xrc_compat.h"

#include "opal/class/opal_free_list.h"
#include "opal/class/opal_hash_table.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/mca/rcache/base/base.h"
#include "opal/mca/rcache/rcache.h"
#include "opal/util/output.h"

#include "btl_xrc_conn_fsm.h"
#include "btl_xrc_recvq.h"
#include "btl_xrc_tally.h"
#include "btl_xrc_verbs.h"
#include "btl_xrc_wire.h"

BEGIN_C_DECLS

struct xrc_apm;
struct xrc_area;
struct xrc_board;
struct xrc_bounce;
struct xrc_conn;
struct xrc_frag;
struct xrc_gone;
struct xrc_landed;
struct xrc_node;
struct xrc_tgt;
struct xrc_ud;

/* Lanes share a send queue: one for each size class, one for put and get. Each has its own window. */
#define XRC_LANE_RDMA XRC_MAX_CLASSES
#define XRC_LANES     (XRC_MAX_CLASSES + 1)

/* ---- a lock-free stack: many push, one takes all ---- */

struct xrc_link {
    struct xrc_link *next;
};

struct xrc_stack {
    struct xrc_link *top;
};

static inline void xrc_stack_push(struct xrc_stack *stack, struct xrc_link *item)
{
    item->next = __atomic_load_n(&stack->top, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&stack->top, &item->next, item, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

static inline bool xrc_stack_empty(const struct xrc_stack *stack)
{
    return NULL == __atomic_load_n(&stack->top, __ATOMIC_RELAXED);
}

/** All items, oldest first. */
static inline struct xrc_link *xrc_stack_take(struct xrc_stack *stack)
{
    struct xrc_link *item = __atomic_exchange_n(&stack->top, NULL, __ATOMIC_ACQUIRE), *oldest = NULL;
    while (NULL != item) {
        struct xrc_link *next = item->next;
        item->next = oldest;
        oldest = item;
        item = next;
    }
    return oldest;
}

#define XRC_CONTAINER(ptr, type, member) ((type *) ((char *) (ptr) -offsetof(type, member)))

/* ---- what a user can set ---- */

enum xrc_shim_use { XRC_SHIM_AUTO, XRC_SHIM_NEVER, XRC_SHIM_ALWAYS };

enum xrc_apm_use { XRC_APM_USE_OFF, XRC_APM_USE_PORTS, XRC_APM_USE_LMC, XRC_APM_USE_AUTO };

struct xrc_params {
    char *receive_queues;
    char *if_include;
    char *if_exclude;
    char *rcache;
    int shim; /* enum xrc_shim_use */
    int apm;  /* enum xrc_apm_use */
    int apm_over_ports;
    int apm_over_lmc;
    int verbose;
    int max_btls;
    int max_lmc;
    int ignore_locality;
    int warn_default_gid_prefix;
    int warn_nonexistent_if;
    int free_list_num;
    int free_list_max;
    int free_list_inc;
    int cq_size;
    int poll_cq_batch;
    int rdma_window;
    int max_inline_data;
    int pkey_index;
    int gid_index;
    int service_level;
    int mtu;
    int rd_atomic;
    int min_rnr_timer;
    int timeout;
    int retry_count;
    int rnr_retry;
    int connect_timeout;
    int report;
};

/* ---- the component ---- */

/*
 * What happened, for reports and performance variables, which read it at any time. Nothing else depends on it, so all of
 * it is relaxed. xrc_count() is for what happens rarely and in any thread; those of an opal_atomic type are the MPI threads' alone and
 * cost no more than an addition where there is only one of them.
 */
struct xrc_counters {
    int64_t ini_qps; /* made since the start */
    int64_t ini_gone;
    int64_t tgt_created;
    int64_t tgt_opened;
    int64_t tgt_closed; /* handles, made or opened */
    int64_t requests;   /* REQUESTs sent, repeats included */
    int64_t repeats;
    int64_t bad_messages; /* not for us, or not ours */
    int64_t migrations;   /* of our INI QPs */
    int64_t armings;      /* INI QPs seen armed */
    int64_t notices;      /* MIGRATE for an INI of ours, not too late */
    int64_t port_errors;
    int64_t srq_limits;
    int64_t connect_us; /* the last connection, and the slowest */
    int64_t connect_us_most;
    int64_t waiting; /* fragments that wait in some node */
    int64_t waiting_most;
    int64_t recv_bytes; /* registered */
    int64_t wireup_bytes;
    int64_t cache_bytes;
    int64_t cache_bytes_most;
    opal_atomic_int32_t bad_frags;
    opal_atomic_int64_t puts;
    opal_atomic_int64_t gets;
    opal_atomic_int64_t atomics;
    opal_atomic_int64_t atomics_blind; /* of those */
    opal_atomic_int64_t bounced;       /* of any of the three: what went through buffers */
};

/** Add @a n; what it is then. */
static inline int64_t xrc_count(int64_t *counter, int64_t n)
{
    return __atomic_add_fetch(counter, n, __ATOMIC_RELAXED);
}

static inline int64_t xrc_counted(const int64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/** The highest of @a most and @a n stays. */
static inline void xrc_count_most(int64_t *most, int64_t n)
{
    int64_t seen = xrc_counted(most);
    while (n > seen && !__atomic_compare_exchange_n(most, &seen, n, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

/** Whom a module has met, this process itself left out. Counted as above. */
struct xrc_reach {
    int64_t domains;   /* remote ones */
    int64_t peers;     /* in those */
    int64_t own_peers; /* in our own */
    int64_t inis;
    struct xrc_moved moved[XRC_MAX_SIDES]; /* where those INIs are now that have migrated; btl_xrc_apm's */
};

struct mca_btl_xrc_component_t {
    mca_btl_base_component_3_0_0_t super;
    struct xrc_params params;
    struct xrc_recvq recvq;
    struct mca_btl_xrc_module_t **modules;
    unsigned nmodules;
    unsigned finalized;
    bool usable;          /* the version guard and the parameters were happy */
    bool speak;           /* somebody wants to hear why we cannot be used */
    bool said;            /* and has been told something */
    uint32_t generations; /* of INI QPs: each has a number of its own */
    struct xrc_counters counters;
};
typedef struct mca_btl_xrc_component_t mca_btl_xrc_component_t;

OPAL_DECLSPEC extern mca_btl_xrc_component_t mca_btl_xrc_component;

/* ---- an HCA ---- */

struct xrc_device {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_device_attr attr;
    mca_rcache_base_module_t *rcache;
    struct xrc_board *board;
    struct ibv_xrcd *xrcd;
    char *dir;            /* the domain file's directory */
    char *private_dir;    /* the same when we had to make it */
    struct xrc_tgt *tgts; /* service: handles this process holds */
    unsigned refs;        /* modules on it */
    bool window_said;     /* memory for one-sided communication was refused */
    bool no_open_qp;      /* service: the verbs library has no ibv_open_qp */
    bool leaving;         /* service: no new TGTs here */
    bool telling;         /* service: initiators have still to hear of a port that has failed */
    uint64_t down;        /* service: ports that have failed, a bit each */
    bool fatal;           /* service sets it, progress reports it */
    char name[IBV_SYSFS_NAME_MAX];
};

/* ---- receive side of a size class ---- */

struct xrc_recv {
    struct ibv_recv_wr wr;
    struct ibv_sge sge;
    struct xrc_srq *srq;
};

/* Receive buffers that were made together. */
struct xrc_piece {
    struct xrc_piece *next;
    struct ibv_mr *mr;
    char *memory;
    size_t size;
    struct xrc_recv recvs[];
};

/* What is due for a queue. */
enum xrc_srq_todo {
    XRC_SRQ_POST = 1, /* posting failed */
    XRC_SRQ_GROW = 2, /* the limit event came */
    XRC_SRQ_LOOK = 4, /* are many buffers filled at once? */
};

/* First what each message needs, then what each time that buffers are posted needs. */
struct xrc_srq {
    opal_mutex_t lock;
    struct ibv_recv_wr *chain;
    uint32_t returned; /* length of the chain */
    uint32_t batch;    /* so many of those it has may be missing before they are posted again */
    uint32_t posted;
    uint32_t todo; /* enum xrc_srq_todo, any thread's */
    struct ibv_srq *srq;
    uint64_t posts;       /* buffers posted since the start */
    uint64_t look_at;     /* look when there were so many posts */
    uint32_t least;       /* of posted, when some were posted again, since it grew */
    uint32_t low_percent; /* the same of all it had, since the start */
    uint32_t srqn;
    uint32_t num;   /* buffers it may have */
    uint32_t made;  /* buffers it has */
    uint32_t slack; /* so many of num may be missing before they are posted again */
    uint32_t looks; /* one after the other */
    uint64_t gap;   /* posts between these and the next */
    uint64_t seen;  /* receives until a look became due */
    bool armed;     /* a limit event is to come */
    bool deaf;      /* none comes here */
    bool refused;   /* more buffers, and that was said */
    size_t bytes;   /* of all pieces */
    struct xrc_piece *pieces;
    struct ibv_pd *pd;
    const struct xrc_recvq_class *klass;
};

/* ---- a module ---- */

/* Memory that could not be registered, and operations on such. */
struct xrc_bounces {
    opal_mutex_t lock;
    opal_atomic_int32_t work; /* operations, and answers that wait */
    struct xrc_bounce *first;
    struct xrc_landed *landed;
    struct xrc_area *areas;
    uint32_t serial;
    bool busy; /* some thread is at it */
};

#define XRC_TABLE_CHUNK 1024u

/* Endpoints of our own job by rank: two levels, so that a reader needs no lock while it grows. */
struct xrc_rank_table {
    struct mca_btl_base_endpoint_t **chunk[4096];
};

struct mca_btl_xrc_module_t {
    mca_btl_base_module_t super;
    struct xrc_device *device;
    uint8_t index;
    uint8_t gid_index;
    uint8_t path_bits; /* of its LID */
    uint16_t sm_lid;
    uint8_t recv_fault_said;
    uint8_t lmc;
    struct xrc_port_addr addr;
    uint32_t max_msg;
    uint32_t max_inline;
    struct ibv_cq *send_cq;
    struct ibv_cq *recv_cq;
    opal_atomic_int32_t send_room; /* completions that still fit into send_cq */
    opal_atomic_int32_t rdma_left; /* puts, gets and atomics not yet completed */
    struct xrc_srq srq[XRC_MAX_CLASSES];
    opal_free_list_t send_frags[XRC_MAX_CLASSES];
    opal_free_list_t rdma_frags;
    opal_free_list_t mark_frags;
    struct xrc_frag *sink; /* a send buffer that is never sent: where atomics put old values that nobody wants */
    struct xrc_hdr hdr;    /* our name, ready to copy */
    opal_mutex_t lock;     /* nodes, endpoints, starved */
    struct xrc_node *nodes;
    uint32_t serial;          /* of the last of them */
    struct xrc_node *starved; /* wait for send_room */
    struct xrc_rank_table *ranks;
    opal_hash_table_t strangers; /* endpoints of other jobs by name */
    struct xrc_stack results;    /* struct xrc_result: what the service thread has finished with */
    struct xrc_bounces bounces;
    struct xrc_ud *ud; /* service */
    mca_btl_base_module_error_cb_fn_t error_cb;
    struct xrc_reach reach;
    bool closing;
    bool frags_ready;
};
typedef struct mca_btl_xrc_module_t mca_btl_xrc_module_t;

struct mca_btl_base_registration_handle_t {
    uint32_t lkey;
    uint32_t rkey;
    uint32_t area; /* not 0: could not be registered, has no keys; see btl_xrc_bounce.h */
    uint32_t zero;
};

_Static_assert(sizeof(mca_btl_base_registration_handle_t) % 8 == 0, "osc/rdma puts 64-bit words behind handles");

struct xrc_registration {
    mca_rcache_base_registration_t super;
    struct ibv_mr *mr;
    mca_btl_base_registration_handle_t handle;
};

/* ---- files with only a function or two ---- */

int xrc_params_register(void);
int xrc_params_check(void);
bool xrc_params_named(void);

/** MPI_Finalize waits for nobody (async_mpi_finalize). */
bool xrc_params_ends_alone(void);

/** Say which parameters of ours are set in the environment that do not exist, once, and what may have been meant. */
void xrc_params_warn_unknown(void);
bool xrc_params_port_wanted(const char *device, int port);

/** Say which entries of if_include or if_exclude name no device and no port of these. */
void xrc_names_check(struct ibv_device **list, unsigned n);

int xrc_modex_publish(void);
int xrc_modex_fetch(const opal_proc_t *proc, struct xrc_modex *modex);

mca_btl_xrc_module_t *xrc_module_create(struct xrc_device *device, uint8_t port, uint8_t path_bits);
void xrc_module_destroy(mca_btl_xrc_module_t *module);

/** Have the other ranks of its domain write to this module. */
void xrc_module_listen(mca_btl_xrc_module_t *module);
void xrc_module_quiesce(mca_btl_xrc_module_t *module);

/** Have all arrived that is buffered here, before the peers that it is for are forgotten. */
void xrc_module_linger(mca_btl_xrc_module_t *module);

struct xrc_device *xrc_device_open(struct ibv_device *ibdev);
void xrc_device_release(struct xrc_device *device);
int xrc_device_find(struct ibv_device ***list, int *num);
int xrc_device_numa_node(struct ibv_device *ibdev);

/** What a port's HCA counts for all who use it, 0 where it does not. Costs system calls. */
struct xrc_port_counters {
    uint64_t rnr_waits;
    uint64_t retries;
};
struct xrc_port_counters xrc_device_port_counters(const struct xrc_device *device, uint8_t port);

int xrc_domain_open(struct xrc_device *device);
void xrc_domain_close(struct xrc_device *device);

int xrc_srq_create(mca_btl_xrc_module_t *module, unsigned klass);
void xrc_srq_destroy(struct xrc_srq *srq);
void xrc_srq_return(struct xrc_srq *srq, struct xrc_recv *recv);
void xrc_srq_serve(struct xrc_srq *srq, uint32_t todo);

/** Something is due for a queue: progress will do it. */
static inline void xrc_srq_due(struct xrc_srq *srq, enum xrc_srq_todo todo)
{
    __atomic_fetch_or(&srq->todo, (uint32_t) todo, __ATOMIC_RELEASE);
}

int mca_btl_xrc_component_progress(void);

/** Sends alone go on, and connecting. */
int xrc_progress_sends(mca_btl_xrc_module_t *module);
void xrc_module_fail(mca_btl_xrc_module_t *module, opal_proc_t *proc, const char *why);

/** Register the performance variables. */
int xrc_stats_register(void);

/** Where the HCAs' own counters stand; what comes later is counted. */
void xrc_stats_start(void);

uint64_t xrc_stats_value(enum xrc_stat stat);
void xrc_stats_say(const mca_btl_xrc_module_t *module);

/** This process is one of those that btl_xrc_report tells of, if that is asked for. */
void xrc_report_begin(void);

/** Its numbers are final. The last process of a host prints. */
void xrc_report_end(void);

/* ---- the BTL interface, one operation a file ---- */

mca_btl_base_descriptor_t *mca_btl_xrc_alloc(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                             uint8_t order, size_t size, uint32_t flags);
int mca_btl_xrc_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *des);
mca_btl_base_descriptor_t *mca_btl_xrc_prepare_src(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                                   opal_convertor_t *convertor, uint8_t order, size_t reserve,
                                                   size_t *size, uint32_t flags);
int mca_btl_xrc_send(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                     mca_btl_base_descriptor_t *des, mca_btl_base_tag_t tag);
int mca_btl_xrc_sendi(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, opal_convertor_t *convertor,
                      void *header, size_t header_size, size_t payload_size, uint8_t order, uint32_t flags,
                      mca_btl_base_tag_t tag, mca_btl_base_descriptor_t **descriptor);
int mca_btl_xrc_put(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local_address,
                    uint64_t remote_address, mca_btl_base_registration_handle_t *local_handle,
                    mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
                    mca_btl_base_rdma_completion_fn_t cbfunc, void *cbcontext, void *cbdata);
int mca_btl_xrc_get(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local_address,
                    uint64_t remote_address, mca_btl_base_registration_handle_t *local_handle,
                    mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
                    mca_btl_base_rdma_completion_fn_t cbfunc, void *cbcontext, void *cbdata);
int mca_btl_xrc_atomic_fop(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local_address,
                           uint64_t remote_address, mca_btl_base_registration_handle_t *local_handle,
                           mca_btl_base_registration_handle_t *remote_handle, mca_btl_base_atomic_op_t operation,
                           uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t cbfunc,
                           void *cbcontext, void *cbdata);
int mca_btl_xrc_atomic_op(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, uint64_t remote_address,
                          mca_btl_base_registration_handle_t *remote_handle, mca_btl_base_atomic_op_t operation,
                          uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t cbfunc,
                          void *cbcontext, void *cbdata);
int mca_btl_xrc_atomic_cswap(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint, void *local_address,
                             uint64_t remote_address, mca_btl_base_registration_handle_t *local_handle,
                             mca_btl_base_registration_handle_t *remote_handle, uint64_t compare, uint64_t value,
                             int flags, int order, mca_btl_base_rdma_completion_fn_t cbfunc, void *cbcontext,
                             void *cbdata);
int mca_btl_xrc_flush(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint);
int mca_btl_xrc_add_procs(mca_btl_base_module_t *btl, size_t nprocs, opal_proc_t **procs,
                          struct mca_btl_base_endpoint_t **endpoints, opal_bitmap_t *reachable);
int mca_btl_xrc_del_procs(mca_btl_base_module_t *btl, size_t nprocs, opal_proc_t **procs,
                          struct mca_btl_base_endpoint_t **endpoints);
mca_btl_base_registration_handle_t *mca_btl_xrc_register_mem(mca_btl_base_module_t *btl,
                                                             struct mca_btl_base_endpoint_t *endpoint, void *base,
                                                             size_t size, uint32_t flags);
int mca_btl_xrc_deregister_mem(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *handle);

/** For whoever wants to know more: level 1 says little, 10 a line for each connection, 30 each wire-up message. */
#define XRC_VERBOSE(level, ...)                                                                                        \
    do {                                                                                                               \
        if ((level) <= mca_btl_xrc_component.params.verbose) {                                                         \
            xrc_say(__VA_ARGS__);                                                                                      \
        }                                                                                                              \
    } while (0)

/**
 * A line of its own on stderr, as opal_output() has them. That one formats into memory which all threads share, and locks only
 * where it knows of several: it does not know of the service thread.
 */
void xrc_say(const char *format, ...) __opal_attribute_format__(__printf__, 1, 2);

END_C_DECLS
#endif
