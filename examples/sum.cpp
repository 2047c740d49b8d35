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
