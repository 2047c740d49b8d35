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
    comem::Vector<long> numbers;
    comem::Map<comem::String, comem::Vector<int>> lists;
    comem::String text;
    Base *base = nullptr;
};

comem::String Name(int thread) {
    // Longer than what a string keeps within itself.
    return comem::String("the list of the thread with the number ") + comem::String(std::to_string(thread).c_str());
}

void Work(Shared **root) {
    const int me = comem::Thread(), threads = comem::Threads();
    if (me == 0) {
        comem::Guard hold(1);
        *root = comem::New<Shared>();
        (*root)->base = comem::New<Seven>();
    }
    comem::Barrier();
    Shared &shared = **root;
    for (int i = 0; i < kRounds; i++) {
        comem::Guard hold(1);
        shared.numbers.push_back(me * 1000L + i); // grows, and gives back what others allocated
        shared.lists[Name(me)].push_back(i);
        shared.text += static_cast<char>('a' + me % 26);
    }
    comem::Barrier();
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
    comem::Barrier();
    {
        comem::Guard hold(1);
        shared.lists.erase(Name((me + 1) % threads)); // what another has made
    }
    comem::Barrier();
    CHECK(shared.lists.empty());
    comem::Barrier();
    if (me == threads - 1) {
        comem::Delete(shared.base);
        comem::Delete(*root);
    }
}

} // namespace

int main() {
    comem::Startup();
    auto **root = static_cast<Shared **>(comem_alloc_all(sizeof(Shared *), nullptr));
    auto *words = static_cast<std::int64_t *>(comem_alloc_all(4096, nullptr));
    auto *real = reinterpret_cast<double *>(words + 8);
    comem::Parallel([&] {
        comem::Barrier();
        Work(root);
        comem::FetchAdd(words, 2);
        comem::FetchAddRelaxed(real, 0.25);
        comem::FetchMax(words + 1, comem::Thread());
        // A piece that throws is the end of the loop for its thread; what its node had taken besides may be left out.
        int threw = 0;
        try {
            comem::ForDynamic(100, 1, [&](std::uint64_t low, std::uint64_t) {
                comem::FetchAddRelaxed(words + 2, 1);
                if (low == 40) throw low;
            });
        } catch (std::uint64_t low) {
            threw = low == 40;
        }
        comem::Barrier();
        CHECK(comem::Sum(threw) == 1);
        CHECK(words[2] > 0 && words[2] <= 100);
        CHECK(words[0] == 2 * comem::Threads() && *real == 0.25 * comem::Threads() && words[1] == comem::Threads() - 1);
        CHECK(comem::AtomicLoad(words) == words[0] && comem::CompareExchange(words + 3, std::int64_t(9), 1) == 0);
    });
    comem::NodeBarrier();
    comem::FetchAdd(words, failures);
    comem::NodeBarrier();
    const bool right = words[0] == 2 * comem::Threads();
    if (comem::Node() == 0) std::printf("containers: %s\n", right ? "ok" : "wrong");
    comem::Finish();
    return right ? 0 : 1;
}
