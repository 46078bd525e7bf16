// Atomic work requests, on RC and on XRC.
#ifndef TEST_CONFORM_ATOMIC_H
#define TEST_CONFORM_ATOMIC_H

#include "conform/pair.h"

namespace vt
{

constexpr int atomic_access = all_access | IBV_ACCESS_REMOTE_ATOMIC;

// An atomic; the old value comes to offset `to` of the sender's memory.
struct Atomic : Send {
    Atomic(const Node &n, ibv_wr_opcode op, uint64_t addr, uint32_t rkey, uint64_t compare_add, uint64_t swap = 0,
           size_t to = 0, uint32_t length = 8)
        : Send(op, {n.sge(to, length)})
    {
        wr.wr.atomic.remote_addr = addr;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = compare_add;
        wr.wr.atomic.swap = swap;
    }
};

inline uint64_t &word(Node &n, size_t at)
{
    return *reinterpret_cast<uint64_t *>(&n.mem[at]);
}

// What VERBS_SHIM_TOPOLOGY says for HCAs whose atomics are atomic with the CPU's (IBV_ATOMIC_GLOB), or for the ordinary ones.
inline const char *topology_of(bool glob)
{
    return glob ? "atomics=glob" : "";
}

} // namespace vt

#endif
