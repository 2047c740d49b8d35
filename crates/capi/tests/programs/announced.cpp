// SPDX-License-Identifier: MIT OR Apache-2.0
//
// announced: what is stored in an element may lie in shared memory, where reading it faults. No store is announced
// meanwhile: the thread serves others while it waits, and the element's unit may leave with its old value.
#include <comem.hpp>

#include "check.h"

#include <csignal>
#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>

namespace {

comem_tls seat = {0, 3};
alignas(64) unsigned char memory[64];
unsigned char permissions[8] = {3, 3, 3, 3, 3, 3, 3, 3};
std::size_t page_bytes;
void *page;
volatile std::sig_atomic_t faults, announced;

// A fault on the page: notes whether a store is announced, and lets the access be made.
void OnFault(int, siginfo_t *info, void *) {
    if (info->si_addr != page) _exit(2);
    faults = faults + 1;
    if (seat.writing != 0) announced = announced + 1;
    mprotect(page, page_bytes, PROT_READ | PROT_WRITE);
}

// What `store` stores comes from the page, which faults once.
template <class Store>
void Check(Store store) {
    faults = announced = 0;
    mprotect(page, page_bytes, PROT_NONE);
    store();
    CHECK(faults == 1);
    CHECK(announced == 0);
    CHECK(seat.writing == 0);
}

template <class T>
void CheckAll() {
    T &source = *static_cast<T *>(page);
    comem::object_array<T> array(8 / sizeof(T));
    comem::object_var<T> variable;
    array[0] = T();
    Check([&] { array.write(0, source); });
    Check([&] { array[0] = source; });
    Check([&] { variable = source; });
    Check([&] { variable.write(source); });
    Check([&] { array[0] += source; });
    Check([&] { swap(array[0], source); });
}

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
    page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    page = mmap(nullptr, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    struct sigaction action = {};
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGSEGV, &action, nullptr) == 0);
    // The first store gives the thread its seat.
    comem::object_array<int>(1)[0] = 1;
    CheckAll<std::int8_t>();
    CheckAll<std::int32_t>();
    CheckAll<std::int64_t>();
    CheckAll<double>();
    comem_array_i64 plain = {{memory, permissions, 1, nullptr}};
    Check([&] { comem_write_i64(plain, 0, *static_cast<std::int64_t *>(page)); });
    return failures != 0;
}
