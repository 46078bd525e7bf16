/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_recvq.h"

#include <stdbool.h>
#include <string.h>

enum field { F_SIZE, F_NUM, F_LOW, F_WINDOW, F_INIT, F_LIMIT, F_MAX };

/* One entry as written: what is given, what is left to its default. */
struct entry {
    uint32_t v[F_MAX];
    bool given[F_MAX];
};

static bool is_end(char ch)
{
    return ch == '\0' || ch == ':';
}

/* Digits only: no sign, no blank, no hex; *p moves behind them. False on overflow or when there is none. */
static bool number(const char **p, uint32_t *out)
{
    uint64_t v = 0;
    const char *s = *p;
    for (; *s >= '0' && *s <= '9'; ++s) {
        v = v * 10 + (uint64_t) (*s - '0');
        if (v > UINT32_MAX) {
            return false;
        }
    }
    if (s == *p) {
        return false;
    }
    *p = s;
    *out = (uint32_t) v;
    return true;
}

static enum xrc_recvq_fault letter(const char **p)
{
    char ch = **p;
    if (ch == 'P' || ch == 'S' || ch == 'p' || ch == 's') {
        return XRC_RECVQ_NOT_X;
    }
    if (ch != 'X') {
        return is_end(ch) ? XRC_RECVQ_EMPTY : XRC_RECVQ_TYPE;
    }
    ++*p;
    return XRC_RECVQ_OK;
}

/* Reads one entry up to its ':' or the end. */
static enum xrc_recvq_fault scan(const char **p, struct entry *e)
{
    enum xrc_recvq_fault fault = letter(p);
    if (fault != XRC_RECVQ_OK) {
        return fault;
    }
    memset(e, 0, sizeof *e);
    unsigned n = 0;
    for (; **p == ','; ++n) {
        if (n == F_MAX) {
            return XRC_RECVQ_FIELDS;
        }
        ++*p;
        if (!number(p, &e->v[n])) {
            return XRC_RECVQ_NUMBER;
        }
        e->given[n] = true;
    }
    if (!is_end(**p)) {
        return n == 0 ? XRC_RECVQ_TYPE : XRC_RECVQ_NUMBER;
    }
    return n < 2 ? XRC_RECVQ_FIELDS : XRC_RECVQ_OK;
}

/* A quarter, but at least 1: small queues (1, 2, 3 buffers) must work, too. */
static uint32_t quarter(uint32_t n)
{
    return n / 4 ? n / 4 : 1;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static enum xrc_recvq_fault settle(const struct entry *e, struct xrc_recvq_class *c)
{
    c->size = e->v[F_SIZE];
    c->num = e->v[F_NUM];
    if (c->size < 64 || c->size > XRC_RECVQ_MAX_SIZE) {
        return XRC_RECVQ_SIZE;
    }
    if (c->num == 0 || c->num > XRC_RECVQ_MAX_NUM) {
        return XRC_RECVQ_NUM;
    }
    c->low = e->given[F_LOW] ? e->v[F_LOW] : c->num - quarter(c->num);
    c->window = e->given[F_WINDOW] ? e->v[F_WINDOW] : smaller(quarter(c->num), 64);
    c->init = !e->given[F_INIT] ? quarter(c->num) : e->v[F_INIT] != 0 ? e->v[F_INIT] : c->num;
    c->limit = e->v[F_LIMIT];
    if (c->low >= c->num) {
        return XRC_RECVQ_LOW;
    }
    if (c->window == 0 || c->window > XRC_RECVQ_MAX_NUM) {
        return XRC_RECVQ_WINDOW;
    }
    if (c->init > c->num) {
        return XRC_RECVQ_INIT;
    }
    return c->limit != 0 && c->limit >= c->init ? XRC_RECVQ_LIMIT : XRC_RECVQ_OK;
}

enum xrc_recvq_fault xrc_recvq_parse(const char *spec, struct xrc_recvq *out, unsigned *where)
{
    struct xrc_recvq q = {0};
    enum xrc_recvq_fault fault = spec == NULL || *spec == '\0' ? XRC_RECVQ_EMPTY : XRC_RECVQ_OK;
    const char *p = spec;
    unsigned i = 0;
    while (fault == XRC_RECVQ_OK) {
        struct entry e;
        struct xrc_recvq_class c = {0};
        fault = scan(&p, &e);
        if (fault == XRC_RECVQ_OK) {
            fault = i == XRC_MAX_CLASSES ? XRC_RECVQ_MANY : settle(&e, &c);
        }
        if (fault == XRC_RECVQ_OK && i > 0 && c.size <= q.c[i - 1].size) {
            fault = XRC_RECVQ_ORDER;
        }
        if (fault != XRC_RECVQ_OK) {
            break;
        }
        q.c[i++] = c;
        if (*p++ == '\0') {
            break;
        }
    }
    if (fault != XRC_RECVQ_OK) {
        if (where != NULL) {
            *where = i;
        }
        return fault;
    }
    q.nclasses = i;
    *out = q;
    return XRC_RECVQ_OK;
}

#define GROW_BYTES (512u << 10)

unsigned xrc_recvq_sends_at_a_time(unsigned asked, uint32_t size)
{
    unsigned most = GROW_BYTES / size;
    return asked < most ? asked : most > 0 ? most : 1;
}

static size_t whole_pages(size_t bytes, size_t page)
{
    return (bytes + page - 1) / page * page;
}

size_t xrc_recvq_bytes(const struct xrc_recvq_class *c, uint32_t n, size_t page)
{
    return whole_pages(xrc_recvq_stride(c->size) * n, page);
}

struct xrc_recvq_locked xrc_recvq_locked(const struct xrc_recvq *q, size_t page)
{
    size_t start = whole_pages((size_t) (XRC_UD_RECVS + XRC_UD_SENDS) * XRC_UD_SLOT, page), growth = 0;
    for (unsigned i = 0; i < q->nclasses; ++i) {
        const struct xrc_recvq_class *c = &q->c[i];
        start += xrc_recvq_bytes(c, xrc_recvq_sends_at_a_time(XRC_RECVQ_SENDS, c->size), page);
        start += xrc_recvq_bytes(c, c->init, page);
        for (uint32_t made = c->init; made < c->num; made += xrc_recvq_next(c, made)) {
            growth += xrc_recvq_bytes(c, xrc_recvq_next(c, made), page);
        }
    }
    return (struct xrc_recvq_locked){start, start + growth};
}

const char *xrc_recvq_fault_text(enum xrc_recvq_fault fault)
{
    static const char *const text[] = {
        [XRC_RECVQ_OK] = "good",
        [XRC_RECVQ_EMPTY] = "an entry is empty",
        [XRC_RECVQ_NOT_X] = "only X queues are possible here, P and S queues belong to other transports",
        [XRC_RECVQ_TYPE] = "an entry does not start with \"X,\"",
        [XRC_RECVQ_FIELDS] = "an entry needs size and number and has at most 6 fields",
        [XRC_RECVQ_NUMBER] = "a field is not a plain number",
        [XRC_RECVQ_SIZE] = "a buffer size is not between 64 bytes and 64 MiB",
        [XRC_RECVQ_NUM] = "the number of buffers is not between 1 and 65535",
        [XRC_RECVQ_LOW] = "the low watermark is not below the number of buffers",
        [XRC_RECVQ_WINDOW] = "the send window is not between 1 and 65535",
        [XRC_RECVQ_INIT] = "more buffers at the start than in all",
        [XRC_RECVQ_LIMIT] = "the SRQ limit is not below the number of buffers at the start",
        [XRC_RECVQ_ORDER] = "buffer sizes do not rise from entry to entry",
        [XRC_RECVQ_MANY] = "there are more than 8 entries",
    };
    return (unsigned) fault < sizeof text / sizeof text[0] ? text[fault] : "unknown";
}
