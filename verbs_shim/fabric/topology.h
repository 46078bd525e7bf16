/* What HCAs a new simulated host gets: VERBS_SHIM_TOPOLOGY, read by the process that creates the segment. */
#ifndef VS_TOPOLOGY_H
#define VS_TOPOLOGY_H

#include <stdint.h>

struct vs_topology {
	uint32_t devices; /* HCAs of a host: 0..VS_MAX_HCAS */
	uint32_t ports;   /* of an HCA: 1..VS_MAX_PORTS */
	uint32_t lmc;     /* of a port: 0..7; 2^lmc LIDs each */
	uint32_t subnets; /* that the ports of a host are on in turn: 1..VS_MAX_SUBNETS */
	uint32_t prefixes; /* that these subnets share: 1..VS_MAX_SUBNETS, 0 for one each */
	uint32_t numa;    /* nodes that the HCAs of a host are near to in turn: 0..VS_MAX_HCAS, 0 for nobody knows */
	uint32_t max_msg; /* bytes of the longest message a port carries: VS_MIN_MSG..VS_MAX_MSG */
	uint32_t roce;    /* 1: the ports are Ethernet's, which have GIDs and no LIDs */
	uint32_t atomics; /* enum vs_atomics */
};

/* Parse "devices=2,ports=2,lmc=1,subnets=2,prefixes=1,numa=2,max_msg=65536,roce=1,atomics=glob", any part of it, in any order; NULL or
 * empty gives one HCA with one InfiniBand port and one LID, on one subnet, messages of VS_MAX_MSG bytes, and VS_ATOMICS_HCA. 0 or EINVAL
 * (*out untouched): an unknown or doubled key, no number, one out of range, an unknown word, or an LMC where there are no LIDs. */
int vs_topology_parse(const char *text, struct vs_topology *out);

#endif
