// SPDX-License-Identifier: MIT OR Apache-2.0
//
// comem_dsm.hpp: the names of the DSM/IP paper (section 3.1), for programs that were written for it.
//
//     int self = DSM_Startup();       // every thread of the job runs from here on; gives its number
//     SharedIntArray a(1000);
//     a.Write(3, a.Read(2) + 1);
//     DSM_Barrier();
//
// In DSM/IP a machine ran one thread, so start such programs with one thread for each node (-t 1, as by default).
#ifndef COMEM_DSM_HPP
#define COMEM_DSM_HPP

#include "comem.hpp"

using comem::SharedByteArray;
using comem::SharedDouble;
using comem::SharedDoubleArray;
using comem::SharedFloat;
using comem::SharedFloatArray;
using comem::SharedInt;
using comem::SharedIntArray;
using comem::SharedLong;
using comem::SharedLongArray;

// A lock; locks are told apart by the order in which they are constructed, which is the same on every node.
class DSM_Lock : public comem::Lock {
public:
    DSM_Lock() : comem::Lock(first + next++) {}

private:
    // Far from the small numbers that programs choose themselves.
    static constexpr std::uint64_t first = UINT64_C(0x44534d0000000000);
    static inline std::uint64_t next = 0;
};

// Joins the job and waits for all others; gives this thread's number.
inline int DSM_Startup() {
    int self = comem::Startup();
    comem::Barrier();
    return self;
}
inline int DSM_Threads() { return comem::Threads(); }
inline void DSM_Barrier() { comem::Barrier(); }
inline void DSM_Finish() { comem::Finish(); }

#endif // COMEM_DSM_HPP
