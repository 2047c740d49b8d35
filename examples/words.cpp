// SPDX-License-Identifier: MIT OR Apache-2.0
//
// words.cpp: std::vector, std::map and strings in memory that all nodes share. Each thread counts the words of its
// lines in a map that all of them use, and the busiest words are sorted in a vector.
//
//     c++ -std=c++17 -Iinclude examples/words.cpp -Ltarget/release -lcomem -Wl,-rpath,$PWD/target/release -o words
//     comem run -n 4 ./words
#include <comem.hpp>

#include <algorithm>
#include <cstdio>

namespace {

const char *const lines[] = {
    "a node is one process of the job", "the threads of a node share one copy of a page",
    "a page has one home",              "the home of a page keeps the newest copy",
    "a lock has one holder",            "the holder of a lock may change the map",
};
constexpr std::uint64_t kTimes = 50;

// What all share: made by one thread, found by the others through a pointer in shared memory.
struct Shared {
    comem::map<comem::string, long> counts;
    comem::vector<std::pair<long, comem::string>> busiest;
};

void Count(Shared &shared, const char *line) {
    comem::lock_guard hold(1); // the map and its allocations: one critical section
    for (const char *at = line; *at != '\0';) {
        const char *end = at + std::strcspn(at, " ");
        ++shared.counts[comem::string(at, end)];
        at = end + (*end != '\0');
    }
}

} // namespace

int main() {
    comem::start();
    auto **root = static_cast<Shared **>(comem_alloc_all(sizeof(Shared *), nullptr)); // the same address on every node
    std::uint64_t total = std::size(lines) * kTimes;
    comem::parallel([&] {
        if (comem::thread() == 0) *root = comem::create<Shared>();
        comem::barrier();
        Shared &shared = **root;
        comem::for_dynamic(total, 4, [&](std::uint64_t low, std::uint64_t high) {
            for (std::uint64_t i = low; i < high; i++) Count(shared, lines[i % std::size(lines)]);
        });
        comem::barrier();
        if (comem::thread() == comem::threads() - 1) { // another thread than the one that made it
            shared.busiest.reserve(shared.counts.size());
            for (const auto &[word, count] : shared.counts) shared.busiest.emplace_back(count, word);
            std::sort(shared.busiest.begin(), shared.busiest.end(), std::greater<>());
        }
        comem::barrier();
        if (comem::thread() == 0) {
            for (std::size_t i = 0; i < 3; i++) {
                std::printf("%ld times %s\n", shared.busiest[i].first, shared.busiest[i].second.c_str());
            }
            comem::destroy(*root);
        }
    });
    comem::finish();
}
