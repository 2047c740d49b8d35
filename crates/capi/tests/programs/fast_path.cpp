// SPDX-License-Identifier: MIT OR Apache-2.0
//
// fast_path: the same as fast_path.c for the natural syntax of comem.hpp: `a[i] = x` and `x = a[i]`.
#include <comem.hpp>

#include "step.h"

namespace {

comem_tls seat = {0, 3};
alignas(64) unsigned char memory[STEP_ACCESSES * 8];
unsigned char permissions[STEP_ACCESSES];
volatile std::uint64_t kept;

template <class T>
struct Loops {
    static comem::object_array<T> Made() {
        static const comem::object_array<T> made(STEP_ACCESSES);
        return made;
    }
    static void Read() {
        comem::object_array<T> array = Made();
        T sum = 0;
        for (std::uint64_t i = 0; i < STEP_ACCESSES; i++) sum = static_cast<T>(sum + array[i]);
        kept = static_cast<std::uint64_t>(sum);
    }
    static void ReadPlain() {
        const volatile T *plain = reinterpret_cast<const volatile T *>(Made().handle().data);
        T sum = 0;
        for (std::uint64_t i = 0; i < STEP_ACCESSES; i++) sum = static_cast<T>(sum + plain[i]);
        kept = static_cast<std::uint64_t>(sum);
    }
    static void Write() {
        comem::object_array<T> array = Made();
        for (std::uint64_t i = 0; i < STEP_ACCESSES; i++) array[i] = static_cast<T>(static_cast<int>(i));
    }
    static void WritePlain() {
        volatile T *plain = reinterpret_cast<volatile T *>(Made().handle().data);
        for (std::uint64_t i = 0; i < STEP_ACCESSES; i++) plain[i] = static_cast<T>(static_cast<int>(i));
    }
    static int Compare(const char *read, const char *write) {
        return step_compare(read, Read, ReadPlain, 5) | step_compare(write, Write, WritePlain, 8);
    }
};

} // namespace

extern "C" {
std::uint64_t comem_load_(comem_object *, std::uint64_t) { std::abort(); }
comem_tls *comem_store_(comem_object *, std::uint64_t, std::uint64_t) { return &seat; }
const char *comem_last_error(void) { return ""; }
const char *comem_error_string(int) { return ""; }
int comem_create(comem_array *array, std::size_t, std::uint64_t length, const comem_object_options *) {
    *array = {memory, permissions, length, nullptr};
    return 0;
}
}

int main() {
    for (unsigned char &permission : permissions) permission = 3;
    int failed = Loops<std::int32_t>::Compare("x = a[i], int32", "a[i] = x, int32");
    failed |= Loops<std::int64_t>::Compare("x = a[i], int64", "a[i] = x, int64");
    failed |= Loops<double>::Compare("x = a[i], double", "a[i] = x, double");
    return failed;
}
