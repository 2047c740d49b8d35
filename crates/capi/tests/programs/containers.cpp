// SPDX-License-Identifier: MIT OR Apache-2.0
//
// containers: std::vector, std::map and std::string whose memory is shared, changed by all threads of all nodes in
// turn.
#include <comem.hpp>

#include "check.h"

#include <cstdio>

namespace {

constexpr int kRounds = 12;

struct Base {
    virtual ~Base() = default;
    virtual int Number() const = 0;
};
struct Seven : Base {
    int Number() const override { return 7; }
};

struct Shared {
    comem::vector<long> numbers;
    comem::map<comem::string, comem::vector<int>> lists;
    comem::string text;
    Base *base = nullptr;
};

comem::string Name(int thread) {
    // Longer than what a string keeps within itself.
    return comem::string("the list of the thread with the number ") + comem::string(std::to_string(thread).c_str());
}

void Work(Shared **root) {
    const int me = comem::thread(), threads = comem::threads();
    if (me == 0) {
        comem::lock_guard hold(1);
        *root = comem::create<Shared>();
        (*root)->base = comem::create<Seven>();
    }
    comem::barrier();
    Shared &shared = **root;
    for (int i = 0; i < kRounds; i++) {
        comem::lock_guard hold(1);
        shared.numbers.push_back(me * 1000L + i); // grows, and gives back what others allocated
        shared.lists[Name(me)].push_back(i);
        shared.text += static_cast<char>('a' + me % 26);
    }
    comem::barrier();
    CHECK(shared.numbers.size() == static_cast<std::size_t>(threads * kRounds));
    CHECK(shared.lists.size() == static_cast<std::size_t>(threads));
    long sum = 0;
    for (long number : shared.numbers) sum += number;
    CHECK(sum == 1000L * kRounds * threads * (threads - 1) / 2 + threads * (kRounds * (kRounds - 1) / 2));
    for (int t = 0; t < threads; t++) {
        const auto found = shared.lists.find(Name(t));
        CHECK(found != shared.lists.end() && found->second.size() == kRounds && found->second.back() == kRounds - 1);
    }
    CHECK(shared.text.size() == static_cast<std::size_t>(threads * kRounds));
    CHECK(shared.base->Number() == 7); // linked with -no-pie
    comem::barrier();
    {
        comem::lock_guard hold(1);
        shared.lists.erase(Name((me + 1) % threads)); // what another has made
    }
    comem::barrier();
    CHECK(shared.lists.empty());
    comem::barrier();
    if (me == threads - 1) {
        comem::destroy(shared.base);
        comem::destroy(*root);
    }
}

} // namespace

int main() {
    comem::start();
    auto **root = static_cast<Shared **>(comem_alloc_all(sizeof(Shared *), nullptr));
    auto *words = static_cast<std::int64_t *>(comem_alloc_all(4096, nullptr));
    auto *real = reinterpret_cast<double *>(words + 8);
    comem::parallel([&] {
        comem::barrier();
        Work(root);
        comem::fetch_add(words, 2);
        comem::fetch_add_relaxed(real, 0.25);
        comem::fetch_max(words + 1, comem::thread());
        // A piece that throws is the end of the loop for its thread; what its node had taken besides may be left out.
        int threw = 0;
        try {
            comem::for_dynamic(100, 1, [&](std::uint64_t low, std::uint64_t) {
                comem::fetch_add_relaxed(words + 2, 1);
                if (low == 40) throw low;
            });
        } catch (std::uint64_t low) {
            threw = low == 40;
        }
        comem::barrier();
        CHECK(comem::sum(threw) == 1);
        CHECK(words[2] > 0 && words[2] <= 100);
        CHECK(words[0] == 2 * comem::threads() && *real == 0.25 * comem::threads() && words[1] == comem::threads() - 1);
        CHECK(comem::load(words) == words[0] && comem::compare_exchange(words + 3, std::int64_t(9), 1) == 0);
    });
    comem::node_barrier();
    comem::fetch_add(words, failures);
    comem::node_barrier();
    const bool right = words[0] == 2 * comem::threads();
    if (comem::node() == 0) std::printf("containers: %s\n", right ? "ok" : "wrong");
    comem::finish();
    return right ? 0 : 1;
}
