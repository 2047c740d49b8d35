// SPDX-License-Identifier: MIT OR Apache-2.0
//
// sum.cpp: a shared array, one thread on each node.
//
//     c++ -std=c++17 -Iinclude examples/sum.cpp -Ltarget/release -lcomem -Wl,-rpath,$PWD/target/release -o sum
//     comem run -n 4 ./sum
#include <comem.hpp>
#include <cstdio>
int main(int argc, char **argv) {
    comem::start(argc, argv);
    comem::object_array<long> sums(comem::threads());           // one array on all nodes
    auto mine = comem::split(1000000);                         // my share of the work
    for (auto i = mine.low; i < mine.high; i++) sums[comem::thread()] += long(i);
    comem::barrier();
    long total = 0;
    for (int t = 0; t < comem::threads(); t++) total += sums[t];  // fetched when read
    if (comem::thread() == 0) std::printf("%ld\n", total);
    comem::finish();
}
