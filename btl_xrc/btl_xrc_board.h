/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The notice board: the content of the domain file. It lists the local ranks of a job that use one device, the job's
 * TGT QPs there, and who keeps each of them. Plain C and POSIX, so that it can be tested alone, with kill -9.
 *
 * Who is alive is told by a POSIX lock that each rank holds on a byte of its own in the file; the kernel lets go of it
 * when the process dies, however it dies. A process must open the file once only: closing any other descriptor of it
 * would drop the lock. The board's mutex is robust; whoever finds its holder dead puts the lists in order.
 */
#ifndef BTL_XRC_BOARD_H
#define BTL_XRC_BOARD_H

#include <stdbool.h>
#include <sys/types.h>

#include "btl_xrc_conn_fsm.h"
#include "btl_xrc_wire.h"

#ifdef __cplusplus
extern "C" {
#endif

#define XRC_BOARD_RANKS   1024u
#define XRC_BOARD_TGTS    8192u
#define XRC_BOARD_KEEPERS 2
#define XRC_BOARD_NOBODY  UINT32_MAX

struct xrc_board;

enum xrc_board_fault {
    XRC_BOARD_OK = 0,
    XRC_BOARD_OPEN,    /**< cannot be opened or made */
    XRC_BOARD_PLANTED, /**< not a plain file of ours: a link, a directory, another owner, open to others */
    XRC_BOARD_SIZE,    /**< of another size than this version makes */
    XRC_BOARD_VERSION, /**< written by something else */
    XRC_BOARD_SPACE,   /**< the file system is full */
    XRC_BOARD_SYSTEM,  /**< locking or mapping failed */
    XRC_BOARD_FULL,    /**< more local ranks than there is room for */
};

/** What went wrong, for a message. */
struct xrc_board_error {
    enum xrc_board_fault fault;
    int err;   /**< errno where there is one, else 0 */
    bool seen; /**< the file could be looked at: it has ... */
    unsigned uid;
    unsigned mode;
};

/** What a rank tells the others of its domain. */
struct xrc_board_member {
    struct xrc_name name;
    struct xrc_ud_addr ud; /**< qpn 0: not ready for messages yet */
    struct xrc_port_addr addr;
};

/** Whose TGT it is: an initiator process, its module, and our port that it came in by. */
struct xrc_tgt_key {
    struct xrc_name name;
    uint32_t module;
    uint32_t port;
};

/** A TGT QP as listed. Read and written under the board's lock only. */
struct xrc_board_tgt {
    uint32_t state; /**< see xrc_board_state() */
    uint32_t next;  /**< chain, index + 1 */
    struct xrc_tgt_key key;
    uint32_t generation;
    uint32_t ini_qpn;
    uint32_t tgt_qpn;
    uint32_t tgt_psn;
    uint32_t maker;                     /**< rank slot + 1 */
    uint32_t keeper[XRC_BOARD_KEEPERS]; /**< rank slot + 1, 0 = nobody */
    struct xrc_port_addr ini_addr;      /**< where its initiator asked for it, and ... */
    struct xrc_ud_addr ini_ud;          /**< ... its wire-up queue there */
    uint32_t path_seq;                  /**< latest alternate that its initiator has asked for */
    struct xrc_side ini_side; /**< where its initiator's wire-up queue is, at that alternate's end if possible */
};

/** Open or make the board at @a path and take a place on it. 0, or -1 with @a error filled in. */
int xrc_board_join(const char *path, const struct xrc_board_member *me, struct xrc_board **out,
                   struct xrc_board_error *error);

/** Give up the place; true when this was the last rank and the file is gone. Frees @a board. */
bool xrc_board_leave(struct xrc_board *board);

/** For people: what is wrong with the file. */
const char *xrc_board_fault_text(enum xrc_board_fault fault);

int xrc_board_fd(const struct xrc_board *board);
struct xrc_uuid xrc_board_uuid(const struct xrc_board *board);
uint32_t xrc_board_slot(const struct xrc_board *board);

void xrc_board_lock(struct xrc_board *board);
void xrc_board_unlock(struct xrc_board *board);

/** Tell the others how to reach this rank. */
void xrc_board_publish(struct xrc_board *board, const struct xrc_ud_addr *ud, const struct xrc_port_addr *addr);

/** From now on nobody should ask this rank to keep anything. */
void xrc_board_set_leaving(struct xrc_board *board);

/** Is the rank in @a slot alive? Costs a system call. */
bool xrc_board_alive(struct xrc_board *board, uint32_t slot);

/**
 * A live rank which could keep @a tgt (does not yet, is not leaving, can get messages), searched from @a start on.
 * Copies its entry to @a member; returns its slot or XRC_BOARD_NOBODY. Lock held.
 */
uint32_t xrc_board_candidate(struct xrc_board *board, const struct xrc_board_tgt *tgt, uint32_t start,
                             struct xrc_board_member *member);

/** Entry of the rank in @a slot; false when that slot is empty. Lock held. */
bool xrc_board_member_at(struct xrc_board *board, uint32_t slot, struct xrc_board_member *member);

/** The TGT listed for @a key, or NULL. Lock held. */
struct xrc_board_tgt *xrc_board_tgt_find(struct xrc_board *board, const struct xrc_tgt_key *key);

/** List a TGT in state MAKING with this rank as its maker; NULL when the board is full. Lock held. */
struct xrc_board_tgt *xrc_board_tgt_add(struct xrc_board *board, const struct xrc_tgt_key *key);

/** Take a TGT off the board. Lock held. */
void xrc_board_tgt_remove(struct xrc_board *board, struct xrc_board_tgt *tgt);

/** Its state, XRC_TGT_NONE also where the file says what no rank writes. Lock held. */
enum xrc_tgt_state xrc_board_state(const struct xrc_board_tgt *tgt);

/** The TGT at @a index, NULL when out of range. Lock held. */
struct xrc_board_tgt *xrc_board_tgt_at(struct xrc_board *board, uint32_t index);
uint32_t xrc_board_tgt_index(const struct xrc_board *board, const struct xrc_board_tgt *tgt);

/** Number of live keepers of @a tgt; dead ones are struck off. Lock held. */
unsigned xrc_board_keepers(struct xrc_board *board, struct xrc_board_tgt *tgt);

/** As xrc_board_keepers, but without this rank and those that are leaving. Lock held. */
unsigned xrc_board_staying_keepers(struct xrc_board *board, struct xrc_board_tgt *tgt);

/** Enter this rank as a keeper, in place of one that leaves if need be; false: no room. Idempotent. Lock held. */
bool xrc_board_keep(struct xrc_board *board, struct xrc_board_tgt *tgt);

/** Strike this rank off as a keeper. Lock held. */
void xrc_board_unkeep(struct xrc_board *board, struct xrc_board_tgt *tgt);

/** As xrc_board_unkeep; true: nobody keeps it any more, and it is off the board. Lock held. */
bool xrc_board_quit(struct xrc_board *board, struct xrc_board_tgt *tgt);

/** True when no live rank makes or keeps @a tgt any more. Lock held. */
bool xrc_board_orphaned(struct xrc_board *board, struct xrc_board_tgt *tgt);

/** TGTs listed, for reports. Lock held. */
uint32_t xrc_board_tgt_count(struct xrc_board *board);

#ifdef __cplusplus
}
#else
_Static_assert(sizeof(struct xrc_board_tgt) == 100, "the board's layout is shared");
#endif
#endif
