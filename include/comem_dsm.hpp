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

// An array that all nodes share.
template <class T>
class SharedArray : public comem::object_array<T> {
public:
    using comem::object_array<T>::object_array;
    T Read(std::uint64_t index) const { return this->read(index); }
    void Write(std::uint64_t index, const T &value) { this->write(index, value); }
};

// One shared value.
template <class T>
class SharedVar : public comem::object_var<T> {
public:
    using comem::object_var<T>::object_var;
    using comem::object_var<T>::operator=;
    T Read() const { return this->read(); }
    void Write(const T &value) { this->write(value); }
};

using SharedInt = SharedVar<std::int32_t>;
using SharedLong = SharedVar<std::int64_t>;
using SharedFloat = SharedVar<float>;
using SharedDouble = SharedVar<double>;
using SharedByteArray = SharedArray<std::uint8_t>;
using SharedIntArray = SharedArray<std::int32_t>;
using SharedLongArray = SharedArray<std::int64_t>;
using SharedFloatArray = SharedArray<float>;
using SharedDoubleArray = SharedArray<double>;

// A lock; locks are told apart by the order in which they are constructed, which is the same on every node.
class DSM_Lock : public comem::mutex {
public:
    DSM_Lock() : comem::mutex(first + next++) {}
    void Acquire() { lock(); }
    void Release() { unlock(); }

private:
    // Far from the small numbers that programs choose themselves.
    static constexpr std::uint64_t first = UINT64_C(0x44534d0000000000);
    static inline std::uint64_t next = 0;
};

// Joins the job and waits for all others; gives this thread's number.
inline int DSM_Startup() {
    int self = comem::start();
    comem::barrier();
    return self;
}
inline int DSM_Threads() { return comem::threads(); }
inline void DSM_Barrier() { comem::barrier(); }
inline void DSM_Finish() { comem::finish(); }

#endif // COMEM_DSM_HPP
