/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl_xrc_rails.h"

#include <stdlib.h>
#include <string.h>

#define PREFIX_BYTES        8
#define LINK_LAYER_ETHERNET 2 /* IBV_LINK_LAYER_ETHERNET */

bool xrc_rails_same_fabric(const struct xrc_port_addr *a, const struct xrc_port_addr *b)
{
    return a->link_layer == b->link_layer && 0 == memcmp(a->gid, b->gid, PREFIX_BYTES);
}

int xrc_rails_match(const struct xrc_port_addr *mine, unsigned me, const struct xrc_modex_module *theirs,
                    unsigned ntheirs)
{
    unsigned pick = 0;
    for (unsigned i = 0; i < me; ++i) {
        pick += xrc_rails_same_fabric(&mine[i], &mine[me]);
    }
    for (unsigned i = 0; i < ntheirs; ++i) {
        if (xrc_rails_same_fabric(&theirs[i].addr, &mine[me]) && 0 == pick--) {
            return (int) i;
        }
    }
    return -1;
}

static bool lids_overlap(const struct xrc_rail *a, const struct xrc_rail *b)
{
    return a->addr.lid < b->addr.lid + b->lids && b->addr.lid < a->addr.lid + a->lids;
}

/* Ports of Ethernet have no LIDs, and their prefixes say nothing. */
static bool two_fabrics(const struct xrc_rail *a, const struct xrc_rail *b)
{
    bool same_port = 0 == memcmp(a->addr.gid, b->addr.gid, XRC_GID_BYTES);
    return !same_port && LINK_LAYER_ETHERNET != a->addr.link_layer && xrc_rails_same_fabric(&a->addr, &b->addr)
           && (a->sm_lid != b->sm_lid || lids_overlap(a, b));
}

bool xrc_rails_clash(const struct xrc_rail *rails, unsigned n, unsigned *a, unsigned *b)
{
    for (unsigned i = 0; i < n; ++i) {
        for (unsigned k = i + 1; k < n; ++k) {
            if (two_fabrics(&rails[i], &rails[k])) {
                *a = i;
                *b = k;
                return true;
            }
        }
    }
    return false;
}

uint32_t xrc_rails_bandwidth(unsigned speed, unsigned width)
{
    static const struct {
        unsigned code;
        uint32_t value;
    } speeds[] = {{1, 2000}, {2, 4000}, {4, 8000}, {8, 10000}, {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}},
      widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
    uint32_t s = speeds[0].value, w = widths[0].value;
    for (unsigned i = 0; i < sizeof(speeds) / sizeof(speeds[0]); ++i) {
        s = speeds[i].code == speed ? speeds[i].value : s;
    }
    for (unsigned i = 0; i < sizeof(widths) / sizeof(widths[0]); ++i) {
        w = widths[i].code == width ? widths[i].value : w;
    }
    return s * w;
}

unsigned xrc_rails_lids(unsigned lmc, int most)
{
    unsigned there = 1u << (lmc & 7u);
    return most > 0 && (unsigned) most < there ? (unsigned) most : there;
}

enum { OWN_SHARE, OTHERS_SHARE, A_RAIL, STANDINGS };

static unsigned standing(unsigned rails, unsigned bits, unsigned candidate)
{
    return candidate < rails ? A_RAIL : candidate % rails == bits % rails ? OWN_SHARE : OTHERS_SHARE;
}

unsigned xrc_rails_spares(unsigned lmc, unsigned rails, unsigned bits, uint8_t *spare, unsigned most)
{
    unsigned n = 0, lids = 1u << (lmc & 7u);
    for (unsigned pass = 0; pass < STANDINGS; ++pass) {
        for (unsigned k = 1; k < lids && n < most; ++k) {
            unsigned candidate = (bits + k) % lids;
            if (pass == standing(rails, bits, candidate)) {
                spare[n++] = (uint8_t) candidate;
            }
        }
    }
    return n;
}

/* One name of a list, which ends where the next begins. */
static bool names(const char *word, size_t length, const char *device, int port)
{
    size_t n = strlen(device);
    if (length < n || 0 != strncmp(word, device, n)) {
        return false;
    }
    if (length == n) {
        return true;
    }
    char *end;
    long number = ':' == word[n] ? strtol(word + n + 1, &end, 10) : 0;
    return ':' == word[n] && end != word + n + 1 && end == word + length && number == port;
}

bool xrc_rails_named(const char *list, const char *device, int port)
{
    while ('\0' != *list) {
        size_t length = strcspn(list, ",");
        if (names(list, length, device, port)) {
            return true;
        }
        list += length + (',' == list[length]);
    }
    return false;
}

void xrc_rails_nearest(const unsigned *closeness, unsigned n, bool *keep)
{
    unsigned best = 0;
    for (unsigned i = 0; i < n; ++i) {
        best = closeness[i] > best ? closeness[i] : best;
    }
    for (unsigned i = 0; i < n; ++i) {
        keep[i] = 0 == closeness[i] || closeness[i] == best;
    }
}
