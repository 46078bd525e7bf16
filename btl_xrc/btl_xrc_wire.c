/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_wire.h"

#include <string.h>

#define MODEX_MAGIC   0x5852434du /* "XRCM" */
#define MODEX_VERSION 2u
#define MODEX_HEAD    12u
#define MODEX_MODULE  48u /* without its SRQ numbers */
#define MODEX_TAIL    4u

#define MSG_MAGIC   0x58524355u /* "XRCU" */
#define MSG_VERSION 2u

/* A place in a buffer. Callers have checked that there is room. */
struct cursor {
    uint8_t *p;
};

static void put8(struct cursor *c, uint8_t v)
{
    *c->p++ = v;
}

static void put16(struct cursor *c, uint16_t v)
{
    put8(c, (uint8_t) (v >> 8));
    put8(c, (uint8_t) v);
}

static void put32(struct cursor *c, uint32_t v)
{
    put16(c, (uint16_t) (v >> 16));
    put16(c, (uint16_t) v);
}

static void put_bytes(struct cursor *c, const uint8_t *from, size_t n)
{
    memcpy(c->p, from, n);
    c->p += n;
}

static uint8_t get8(struct cursor *c)
{
    return *c->p++;
}

static uint16_t get16(struct cursor *c)
{
    uint16_t hi = get8(c);
    return (uint16_t) (hi << 8 | get8(c));
}

static uint32_t get32(struct cursor *c)
{
    uint32_t hi = get16(c);
    return hi << 16 | get16(c);
}

static void get_bytes(struct cursor *c, uint8_t *to, size_t n)
{
    memcpy(to, c->p, n);
    c->p += n;
}

/* Adler's sum: finds what the fabric's own CRC cannot, a blob or message put together wrongly. */
static uint32_t checksum(const uint8_t *p, size_t n)
{
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < n; ++i) {
        a = (a + p[i]) % 65521u;
        b = (b + a) % 65521u;
    }
    return b << 16 | a;
}

static void put_addr(struct cursor *c, const struct xrc_port_addr *a)
{
    put_bytes(c, a->gid, XRC_GID_BYTES);
    put16(c, a->lid);
    put8(c, a->port);
    put8(c, a->mtu);
    put8(c, a->link_layer);
}

static void get_addr(struct cursor *c, struct xrc_port_addr *a)
{
    get_bytes(c, a->gid, XRC_GID_BYTES);
    a->lid = get16(c);
    a->port = get8(c);
    a->mtu = get8(c);
    a->link_layer = get8(c);
}

static void put_side(struct cursor *c, const struct xrc_side *s)
{
    put16(c, s->lid);
    put8(c, s->port);
    put8(c, s->bits);
    put32(c, s->ud.qpn);
    put32(c, s->ud.qkey);
}

static void get_side(struct cursor *c, struct xrc_side *s)
{
    s->lid = get16(c);
    s->port = get8(c);
    s->bits = get8(c);
    s->ud.qpn = get32(c);
    s->ud.qkey = get32(c);
}

static int addr_ok(const struct xrc_port_addr *a)
{
    return a->port != 0 && a->mtu >= 1 && a->mtu <= 5 && a->link_layer <= 2;
}

static int qpn_ok(uint32_t n)
{
    return n <= 0xffffffu;
}

/* At most 128 LIDs a port. */
static int sides_ok(const struct xrc_msg *m)
{
    int ok = m->nsides <= XRC_MAX_SIDES && (XRC_MSG_ARM != m->type || 2 == m->nsides);
    for (unsigned i = 0; ok && i < m->nsides; ++i) {
        const struct xrc_side *s = &m->side[i];
        ok = 0 != s->port && 0 != s->lid && s->bits < 128 && (s->lid & s->bits) == s->bits && qpn_ok(s->ud.qpn);
    }
    return ok;
}

static size_t modex_size(unsigned nclasses, unsigned nmodules)
{
    return MODEX_HEAD + 4u * nclasses + nmodules * (MODEX_MODULE + 4u * nclasses) + MODEX_TAIL;
}

size_t xrc_modex_size(const struct xrc_modex *modex)
{
    return modex_size(modex->nclasses, modex->nmodules);
}

static void put_module(struct cursor *c, const struct xrc_modex_module *m, unsigned nclasses)
{
    put_bytes(c, m->domain.b, XRC_UUID_BYTES);
    put_addr(c, &m->addr);
    put8(c, 0);
    put16(c, 0);
    put32(c, m->ud.qpn);
    put32(c, m->ud.qkey);
    for (unsigned i = 0; i < nclasses; ++i) {
        put32(c, m->srqn[i]);
    }
}

size_t xrc_modex_encode(const struct xrc_modex *modex, void *buf, size_t cap)
{
    size_t size = xrc_modex_size(modex);
    if (modex->nclasses == 0 || modex->nclasses > XRC_MAX_CLASSES || modex->nmodules > XRC_MAX_MODULES || size > cap) {
        return 0;
    }
    struct cursor c = {buf};
    put32(&c, MODEX_MAGIC);
    put16(&c, MODEX_VERSION);
    put16(&c, (uint16_t) size);
    put8(&c, modex->nclasses);
    put8(&c, modex->nmodules);
    put16(&c, 0);
    for (unsigned i = 0; i < modex->nclasses; ++i) {
        put32(&c, modex->class_size[i]);
    }
    for (unsigned i = 0; i < modex->nmodules; ++i) {
        put_module(&c, &modex->module[i], modex->nclasses);
    }
    put32(&c, checksum(buf, size - MODEX_TAIL));
    return size;
}

static int get_module(struct cursor *c, struct xrc_modex_module *m, unsigned nclasses)
{
    get_bytes(c, m->domain.b, XRC_UUID_BYTES);
    get_addr(c, &m->addr);
    c->p += 3;
    m->ud.qpn = get32(c);
    m->ud.qkey = get32(c);
    int ok = addr_ok(&m->addr) && qpn_ok(m->ud.qpn);
    for (unsigned i = 0; i < nclasses; ++i) {
        m->srqn[i] = get32(c);
        ok = ok && qpn_ok(m->srqn[i]);
    }
    return ok;
}

static enum xrc_modex_fault modex_body(struct cursor *c, struct xrc_modex *m)
{
    uint32_t last = 0;
    for (unsigned i = 0; i < m->nclasses; ++i) {
        m->class_size[i] = get32(c);
        if (m->class_size[i] <= last) {
            return XRC_MODEX_RANGE;
        }
        last = m->class_size[i];
    }
    for (unsigned i = 0; i < m->nmodules; ++i) {
        if (!get_module(c, &m->module[i], m->nclasses)) {
            return XRC_MODEX_RANGE;
        }
    }
    return XRC_MODEX_OK;
}

enum xrc_modex_fault xrc_modex_decode(const void *buf, size_t len, struct xrc_modex *modex)
{
    if (buf == NULL || len < MODEX_HEAD + MODEX_TAIL) {
        return XRC_MODEX_SHORT;
    }
    struct cursor c = {(uint8_t *) (uintptr_t) buf};
    if (get32(&c) != MODEX_MAGIC) {
        return XRC_MODEX_FOREIGN;
    }
    if (get16(&c) != MODEX_VERSION) {
        return XRC_MODEX_VERSION;
    }
    size_t said = get16(&c);
    if (said > len) {
        return XRC_MODEX_SHORT;
    }
    struct xrc_modex m;
    memset(&m, 0, sizeof m);
    m.nclasses = get8(&c);
    m.nmodules = get8(&c);
    c.p += 2;
    if (m.nclasses == 0 || m.nclasses > XRC_MAX_CLASSES || m.nmodules > XRC_MAX_MODULES) {
        return XRC_MODEX_RANGE;
    }
    if (said != len || said != modex_size(m.nclasses, m.nmodules)) {
        return XRC_MODEX_LENGTH;
    }
    struct cursor tail = {(uint8_t *) (uintptr_t) buf + said - MODEX_TAIL};
    if (get32(&tail) != checksum(buf, said - MODEX_TAIL)) {
        return XRC_MODEX_CHECKSUM;
    }
    enum xrc_modex_fault fault = modex_body(&c, &m);
    if (fault == XRC_MODEX_OK) {
        *modex = m;
    }
    return fault;
}

const char *xrc_modex_fault_text(enum xrc_modex_fault fault)
{
    static const char *const text[] = {
        [XRC_MODEX_OK] = "good",
        [XRC_MODEX_SHORT] = "cut off",
        [XRC_MODEX_FOREIGN] = "not written by this component",
        [XRC_MODEX_VERSION] = "written by another version of this component",
        [XRC_MODEX_LENGTH] = "of a wrong length",
        [XRC_MODEX_CHECKSUM] = "damaged (checksum)",
        [XRC_MODEX_RANGE] = "with impossible values",
    };
    return (unsigned) fault < sizeof text / sizeof text[0] ? text[fault] : "unknown";
}

void xrc_msg_encode(const struct xrc_msg *msg, uint8_t buf[XRC_MSG_BYTES])
{
    memset(buf, 0, XRC_MSG_BYTES);
    struct cursor c = {buf};
    put32(&c, MSG_MAGIC);
    put8(&c, MSG_VERSION);
    put8(&c, msg->type);
    put8(&c, msg->reason);
    put8(&c, msg->module);
    put32(&c, msg->src.job);
    put32(&c, msg->src.vpid);
    put32(&c, msg->dst.job);
    put32(&c, msg->dst.vpid);
    put_bytes(&c, msg->domain.b, XRC_UUID_BYTES);
    put32(&c, msg->generation);
    put32(&c, msg->ini_qpn);
    put32(&c, msg->ini_psn);
    put32(&c, msg->tgt_qpn);
    put32(&c, msg->tgt_psn);
    put32(&c, msg->slot);
    put_addr(&c, &msg->addr);
    put8(&c, msg->rd_atomic);
    put32(&c, msg->ud.qpn);
    put32(&c, msg->ud.qkey);
    put32(&c, msg->path_seq);
    put8(&c, msg->nsides);
    for (unsigned i = 0; i < XRC_MAX_SIDES; ++i) {
        put_side(&c, &msg->side[i]);
    }
    c.p = buf + XRC_MSG_BYTES - 4;
    put32(&c, checksum(buf, XRC_MSG_BYTES - 4));
}

int xrc_msg_decode(const void *buf, size_t len, struct xrc_msg *msg)
{
    if (len != XRC_MSG_BYTES) {
        return -1;
    }
    uint8_t copy[XRC_MSG_BYTES];
    memcpy(copy, buf, sizeof copy);
    struct cursor c = {copy}, tail = {copy + XRC_MSG_BYTES - 4};
    if (get32(&c) != MSG_MAGIC || get8(&c) != MSG_VERSION || get32(&tail) != checksum(copy, XRC_MSG_BYTES - 4)) {
        return -1;
    }
    struct xrc_msg m;
    memset(&m, 0, sizeof m);
    m.type = get8(&c);
    m.reason = get8(&c);
    m.module = get8(&c);
    m.src.job = get32(&c);
    m.src.vpid = get32(&c);
    m.dst.job = get32(&c);
    m.dst.vpid = get32(&c);
    get_bytes(&c, m.domain.b, XRC_UUID_BYTES);
    m.generation = get32(&c);
    m.ini_qpn = get32(&c);
    m.ini_psn = get32(&c);
    m.tgt_qpn = get32(&c);
    m.tgt_psn = get32(&c);
    m.slot = get32(&c);
    get_addr(&c, &m.addr);
    m.rd_atomic = get8(&c);
    m.ud.qpn = get32(&c);
    m.ud.qkey = get32(&c);
    m.path_seq = get32(&c);
    m.nsides = get8(&c);
    for (unsigned i = 0; i < XRC_MAX_SIDES; ++i) {
        get_side(&c, &m.side[i]);
    }
    if (m.type == 0 || m.type >= XRC_MSG_TYPES || m.reason >= XRC_REASONS || m.module >= XRC_MAX_MODULES
        || !addr_ok(&m.addr) || !qpn_ok(m.ini_qpn) || !qpn_ok(m.tgt_qpn) || !qpn_ok(m.ud.qpn) || !sides_ok(&m)) {
        return -1;
    }
    *msg = m;
    return 0;
}

const char *xrc_msg_type_name(unsigned type)
{
    static const char *const name[XRC_MSG_TYPES] = {
        [XRC_MSG_REQUEST] = "REQUEST", [XRC_MSG_RESPONSE] = "RESPONSE",
        [XRC_MSG_REJECT] = "REJECT",   [XRC_MSG_DISCONNECT] = "DISCONNECT",
        [XRC_MSG_KEEP] = "KEEP",       [XRC_MSG_KEPT] = "KEPT",
        [XRC_MSG_DROP] = "DROP",       [XRC_MSG_ARM] = "ARM",
        [XRC_MSG_ARMED] = "ARMED",     [XRC_MSG_MIGRATE] = "MIGRATE",
        [XRC_MSG_GONE] = "GONE",
    };
    return type < XRC_MSG_TYPES && name[type] != NULL ? name[type] : "?";
}

const char *xrc_msg_reason_text(unsigned reason)
{
    static const char *const text[XRC_REASONS] = {
        [XRC_REASON_NONE] = "no reason given",
        [XRC_REASON_NO_RESOURCES] = "it has no QP or no room on its notice board left",
        [XRC_REASON_LEAVING] = "it is finalizing",
        [XRC_REASON_UNSUPPORTED] = "its verbs library has no ibv_open_qp",
        [XRC_REASON_GONE] = "it knows no such TGT QP",
        [XRC_REASON_PATH] = "its TGT QP cannot have that alternate path",
    };
    return reason < XRC_REASONS ? text[reason] : "unknown reason";
}
