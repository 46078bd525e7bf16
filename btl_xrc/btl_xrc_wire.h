/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Everything one process tells another: the blob each process publishes, the wire-up messages and the header before
 * each fragment. Plain C, no Open MPI and no verbs in here, so that it can be tested alone.
 *
 * All numbers travel in network byte order at fixed offsets. A decoder copies first, then checks, and sets its result
 * only when all of it was good.
 */
#ifndef BTL_XRC_WIRE_H
#define BTL_XRC_WIRE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XRC_MAX_CLASSES 8  /**< size classes of receive queues */
#define XRC_MAX_MODULES 16 /**< ports a process may offer */
#define XRC_MAX_SIDES   4  /**< ends of alternate paths a process may offer for one port */
#define XRC_UUID_BYTES  16
#define XRC_GID_BYTES   16

/** A process, as Open MPI names it. */
struct xrc_name {
    uint32_t job;
    uint32_t vpid;
};

/** One XRC domain: a job on a host on a device. Random, made by whoever created the domain file. */
struct xrc_uuid {
    uint8_t b[XRC_UUID_BYTES];
};

/** Where a port is to be found on the fabric. */
struct xrc_port_addr {
    uint8_t gid[XRC_GID_BYTES];
    uint16_t lid;
    uint8_t port;
    uint8_t mtu;        /**< enum ibv_mtu */
    uint8_t link_layer; /**< IBV_LINK_LAYER_* */
};

/** Where a process's wire-up queue is to be found. */
struct xrc_ud_addr {
    uint32_t qpn;
    uint32_t qkey;
};

/** One end of a path: a port, one of its LIDs, and the wire-up queue on that port (qpn 0: none). */
struct xrc_side {
    uint16_t lid; /**< path bits included */
    uint8_t port;
    uint8_t bits; /**< path bits, the LID's offset from the port's base LID */
    struct xrc_ud_addr ud;
};

/** One of our ends, and how many INIs that began at another one use it now. All 0: none. */
struct xrc_moved {
    uint32_t port;
    uint32_t lid;
    uint32_t inis;
};

/** A process that wire-up messages can be sent to. */
struct xrc_contact {
    struct xrc_name name;
    struct xrc_ud_addr ud;
};

/* ---- the published blob ---- */

/** One module of a process as its peers see it. */
struct xrc_modex_module {
    struct xrc_uuid domain;
    struct xrc_port_addr addr;
    struct xrc_ud_addr ud;
    uint32_t srqn[XRC_MAX_CLASSES];
};

/** All a process publishes. */
struct xrc_modex {
    uint8_t nclasses;
    uint8_t nmodules;
    uint32_t class_size[XRC_MAX_CLASSES]; /**< largest payload of each class */
    struct xrc_modex_module module[XRC_MAX_MODULES];
};

/** Why a blob was refused. */
enum xrc_modex_fault {
    XRC_MODEX_OK = 0,
    XRC_MODEX_SHORT,   /**< cut off */
    XRC_MODEX_FOREIGN, /**< not one of ours */
    XRC_MODEX_VERSION, /**< of another version */
    XRC_MODEX_LENGTH,  /**< its length and its counts disagree */
    XRC_MODEX_CHECKSUM,
    XRC_MODEX_RANGE, /**< a value no process can have */
};

/** Bytes that xrc_modex_encode needs for @a modex. */
size_t xrc_modex_size(const struct xrc_modex *modex);

/** Pack @a modex; returns the bytes written, or 0 when @a cap is too small or the counts are out of range. */
size_t xrc_modex_encode(const struct xrc_modex *modex, void *buf, size_t cap);

/** Unpack what a peer published. Sets @a modex only on XRC_MODEX_OK. */
enum xrc_modex_fault xrc_modex_decode(const void *buf, size_t len, struct xrc_modex *modex);

/** For people: what is wrong with a blob. */
const char *xrc_modex_fault_text(enum xrc_modex_fault fault);

/* ---- wire-up messages, over UD ---- */

enum xrc_msg_type {
    XRC_MSG_REQUEST = 1, /**< initiator: give me a TGT for my INI */
    XRC_MSG_RESPONSE,    /**< target: this one, ready to receive */
    XRC_MSG_REJECT,      /**< target: no, see reason */
    XRC_MSG_DISCONNECT,  /**< initiator: my INI is gone, drop its TGT */
    XRC_MSG_KEEP,        /**< between ranks of one domain: please hold this TGT, too */
    XRC_MSG_KEPT,        /**< answer to KEEP, see reason */
    XRC_MSG_DROP,        /**< between ranks of one domain: let go of this TGT */
    XRC_MSG_ARM,         /**< initiator: load this alternate path into the TGT and rearm it */
    XRC_MSG_ARMED,       /**< answer to ARM, see reason */
    XRC_MSG_MIGRATE,     /**< target: our port of the path in use has failed, use the alternate. No answer */
    XRC_MSG_GONE,        /**< target: nobody holds your INI's TGT any more. No answer */
    XRC_MSG_TYPES
};

enum xrc_msg_reason {
    XRC_REASON_NONE = 0,
    XRC_REASON_NO_RESOURCES, /**< no QP to be had, or the notice board is full */
    XRC_REASON_LEAVING,      /**< that process is on its way out */
    XRC_REASON_UNSUPPORTED,  /**< no ibv_open_qp there */
    XRC_REASON_GONE,         /**< no such TGT any more */
    XRC_REASON_PATH,         /**< that path cannot be its alternate */
    XRC_REASONS
};

/** A wire-up message. Every type uses the same layout; unused fields are 0. */
struct xrc_msg {
    uint8_t type;
    uint8_t reason;
    uint8_t module;    /**< initiator's module, part of the TGT's key */
    uint8_t rd_atomic; /**< reads and atomics on the way: REQUEST asks, RESPONSE grants */
    struct xrc_name src;
    struct xrc_name dst;
    struct xrc_uuid domain; /**< domain of the TGT: a packet for an earlier job at this QPN is not for us */
    uint32_t generation;    /**< of the initiator's INI */
    uint32_t ini_qpn;
    uint32_t ini_psn;
    uint32_t tgt_qpn;
    uint32_t tgt_psn;
    uint32_t slot;                       /**< TGT's place on the notice board (RESPONSE, KEEP, KEPT, DROP, ARM, MIGRATE) */
    uint32_t path_seq;                   /**< ARM: rises with each question; ARMED: which one is answered; MIGRATE: the last */
    uint8_t nsides;                      /**< RESPONSE and ARMED: the sender's ends of paths, the one in addr first */
    struct xrc_side side[XRC_MAX_SIDES]; /**< ARM: the initiator's end and the target's */
    struct xrc_port_addr addr;           /**< sender's port */
    struct xrc_ud_addr ud;               /**< sender's wire-up queue */
};

#define XRC_MSG_BYTES 168

/** Pack @a msg into exactly XRC_MSG_BYTES at @a buf. */
void xrc_msg_encode(const struct xrc_msg *msg, uint8_t buf[XRC_MSG_BYTES]);

/** Unpack; 0, or -1 when it is not a message of this version, whole and in range. Sets @a msg only on 0. */
int xrc_msg_decode(const void *buf, size_t len, struct xrc_msg *msg);

/** Name of a message type, "?" for others. */
const char *xrc_msg_type_name(unsigned type);

/** For people: why a request was refused. */
const char *xrc_msg_reason_text(unsigned reason);

/* ---- in front of each fragment ---- */

#define XRC_HDR_VERSION 1

/** Precedes every fragment; 16 bytes keep the payload aligned. */
struct xrc_hdr {
    uint8_t tag;
    uint8_t version;
    uint16_t zero16;
    uint32_t job_be;
    uint32_t vpid_be;
    uint32_t zero32;
};

/* ---- for memory that could not be registered ---- */

#define XRC_TAG_BOUNCE 255 /* of its header: no upper layer's */

enum xrc_bounce_kind {
    XRC_BOUNCE_LAND = 1, /* copy what follows to this place */
    XRC_BOUNCE_LANDED,   /* so many bytes of operation @a number were; 0: there is no such place */
};

/** Follows the header. */
struct xrc_bounce_msg {
    uint32_t kind_be;
    uint32_t number_be; /* of the operation, whose name it is at its initiator */
    uint32_t area_be;
    uint32_t length_be;
    uint64_t address_be;
};

#ifdef __cplusplus
}
#else
_Static_assert(sizeof(struct xrc_bounce_msg) == 24, "bounce message layout");
_Static_assert(sizeof(struct xrc_hdr) == 16, "the header is 16 bytes on the wire");
_Static_assert(offsetof(struct xrc_hdr, vpid_be) == 8, "header layout");
#endif

#endif
