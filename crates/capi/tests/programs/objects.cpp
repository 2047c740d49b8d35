// SPDX-License-Identifier: MIT OR Apache-2.0
//
// objects: shared objects of C++ whose elements have all sizes, written and read by all threads of several nodes.
#include <comem.hpp>

#include "check.h"

#include <atomic>
#include <cstdio>

namespace {

constexpr std::uint64_t LENGTH = 203;
constexpr int ROUNDS = 40;

// Twelve bytes, none of which are padding.
struct Triple {
    std::int32_t one, two, three;
};

// More than the largest unit of lines memory.
struct Large {
    std::int64_t words[300];
};

template <class T>
T Make(std::uint64_t i);
template <>
std::uint8_t Make(std::uint64_t i) { return static_cast<std::uint8_t>(i * 37); }
// Some have the value of an invalid line.
template <>
std::int32_t Make(std::uint64_t i) { return static_cast<std::int32_t>(i % 5 == 0 ? 0xfffdfffdu : i); }
template <>
double Make(std::uint64_t i) { return static_cast<double>(i) / 3; }
template <>
Triple Make(std::uint64_t i) {
    const auto word = static_cast<std::int32_t>(i);
    return Triple{word, static_cast<std::int32_t>(0xfffdfffdu), -word};
}
template <>
Large Make(std::uint64_t i) {
    Large large{};
    for (auto &word : large.words) word = static_cast<std::int64_t>(i);
    return large;
}

template <class T>
bool Same(const T &one, const T &two) { return std::memcmp(&one, &two, sizeof(T)) == 0; }

// Each thread writes every so many elements, and reads what the next thread wrote, one by one and as a range.
template <class T>
void Shape(comem::object_array<T> array) {
    const auto me = static_cast<std::uint64_t>(comem::thread()), all = static_cast<std::uint64_t>(comem::threads());
    for (std::uint64_t i = me; i < LENGTH; i += all) array[i] = Make<T>(i);
    comem::barrier();
    for (std::uint64_t i = (me + 1) % all; i < LENGTH; i += all) CHECK(Same(array.read(i), Make<T>(i)));
    std::uint64_t at = 3;
    for (const T &element : array.read_range(3, LENGTH - 2)) CHECK(Same(element, Make<T>(at++)));
    CHECK(at == LENGTH - 2);
    comem::barrier();
    const comem::part part = comem::split(LENGTH);
    at = part.low;
    for (T &element : array.range(part.low, part.high)) element = Make<T>(++at);
    comem::barrier();
    for (std::uint64_t i = 0; i < LENGTH; i++) CHECK(Same(array.read(i), Make<T>(i + 1)));
    comem::barrier();
}

} // namespace

int main(int argc, char **argv) {
    comem::start(argc, argv);
    const auto threads = static_cast<std::uint64_t>(comem::threads());
    comem::object_array<std::uint8_t> bytes(LENGTH);
    comem::object_array<std::int32_t> ints(LENGTH, comem::object_options().unit(5).label("ints"));
    comem::object_array<double> doubles(LENGTH, comem::object_options().home(COMEM_HOME_CYCLIC, 2));
    comem::object_array<Triple> triples(LENGTH);
    comem::object_array<Large> larges(LENGTH);
    comem::object_matrix<double> matrix(threads, 5);
    comem::object_array<Triple> whole(1);
    comem::object_var<std::int64_t> total, product(comem::object_options().label("product"));
    std::atomic<bool> ok{true};
    comem::parallel([&] {
        if (comem::thread() == 0) product = 1;
        Shape(bytes);
        Shape(ints);
        Shape(doubles);
        Shape(triples);
        Shape(larges);
        const auto me = static_cast<std::uint64_t>(comem::thread());
        for (int round = 0; round < ROUNDS; round++) {
            comem::lock_guard guard(1);
            total += 2;
            total++;
            product = product * 3 % 1000003;
        }
        // No lock: each element is still seen whole.
        for (int round = 0; round < ROUNDS; round++) {
            const auto word = static_cast<std::int32_t>(me + 1);
            whole[0] = Triple{word, 2 * word, 3 * word};
            const Triple found = whole.read(0);
            CHECK(found.two == 2 * found.one && found.three == 3 * found.one && found.one > 0);
        }
        for (std::uint64_t column = 0; column < 5; column++) matrix(me, column) = static_cast<double>(me * 5 + column);
        comem::barrier();
        double sum = 0;
        for (double cell : matrix.read_rows(0, threads)) sum += cell;
        CHECK(sum == static_cast<double>(threads * 5 * (threads * 5 - 1) / 2));
        comem::barrier();
        CHECK(total == static_cast<std::int64_t>(threads) * ROUNDS * 3);
        std::int64_t expected = 1;
        for (std::uint64_t i = 0; i < threads * ROUNDS; i++) expected = expected * 3 % 1000003;
        CHECK(product == expected);
        if (comem::sum(__atomic_load_n(&failures, __ATOMIC_RELAXED)) > 0) ok = false;
    });
    if (comem::node() == 0) std::printf("objects: %s\n", ok ? "ok" : "WRONG");
    comem::finish();
    return ok ? 0 : 1;
}
