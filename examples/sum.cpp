// SPDX-License-Identifier: MIT OR Apache-2.0
//
// sum.cpp: a shared array, one thread on each node.
//
//     c++ -std=c++17 -Iinclude examples/sum.cpp -Ltarget/release -lcomem -Wl,-rpath,$PWD/target/release -o sum
//     comem run -n 4 ./sum
#include <comem.hpp>
#include <cstdio>
int main(int argc, char **argv) {
    comem::Startup(argc, argv);
    comem::SharedArray<long> sums(comem::Threads());           // one array on all nodes
    auto mine = comem::Split(1000000);                         // my share of the work
    for (auto i = mine.low; i < mine.high; i++) sums[comem::Thread()] += long(i);
    comem::Barrier();
    long total = 0;
    for (int t = 0; t < comem::Threads(); t++) total += sums[t];  // fetched when read
    if (comem::Thread() == 0) std::printf("%ld\n", total);
    comem::Finish();
}
