/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which ports are used, and which port of a peer each of them talks to. Plain C, no Open MPI and no verbs, so that it
 * can be tested alone.
 */
#ifndef BTL_XRC_RAILS_H
#define BTL_XRC_RAILS_H

#include <stdbool.h>

#include "btl_xrc_wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A port of ours, as far as it tells something about its fabric. */
struct xrc_rail {
    struct xrc_port_addr addr;
    uint16_t lids;   /**< it answers to so many, from addr.lid on */
    uint16_t sm_lid; /**< of its subnet manager */
};

/** Can the two reach each other, as far as prefix and link layer tell? */
bool xrc_rails_same_fabric(const struct xrc_port_addr *a, const struct xrc_port_addr *b);

/**
 * Which of a peer's @a ntheirs ports our port number @a me talks to: our k-th port on a fabric to the peer's k-th one
 * there, -1 when it has fewer. Always the same pair from both sides: what one registers for a put or get, it does on
 * the device that the message about it goes out by, and the other answers by the device it came in by.
 */
int xrc_rails_match(const struct xrc_port_addr *mine, unsigned me, const struct xrc_modex_module *theirs,
                    unsigned ntheirs);

/**
 * True when two of @a n ports are on different fabrics although they have one prefix: then nothing tells who reaches
 * whom. Fabrics differ where subnet managers do, or where a LID is given out twice. The two go to @a a and @a b.
 */
bool xrc_rails_clash(const struct xrc_rail *rails, unsigned n, unsigned *a, unsigned *b);

/** Megabits a second, from a port's speed and width codes; unknown ones count as the slowest. */
uint32_t xrc_rails_bandwidth(unsigned speed, unsigned width);

/**
 * How many LIDs of a port become modules: with @a lmc it has 2^lmc, of which at most @a most are used (0: all). Never 0.
 */
unsigned xrc_rails_lids(unsigned lmc, int most);

/**
 * The path bits that may stand in for @a bits on a port of which the first @a rails LIDs are rails, at most @a most of them
 * to @a spare; returns how many. Rails keep out of each other's way as long as there are LIDs enough: first come those that
 * are this rail's share of the others, then the rest of these, then the LIDs of other rails.
 */
unsigned xrc_rails_spares(unsigned lmc, unsigned rails, unsigned bits, uint8_t *spare, unsigned most);

/** Does "device" or "device:port", one of those that @a list names, mean this port? */
bool xrc_rails_named(const char *list, const char *device, int port);

/**
 * Strike off the devices that are farther away than others: keep[i] is set where closeness[i] is the highest of all.
 * Those that do not tell (0) are kept, and when none tells all are.
 */
void xrc_rails_nearest(const unsigned *closeness, unsigned n, bool *keep);

#ifdef __cplusplus
}
#endif
#endif
