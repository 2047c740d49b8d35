// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Forks in C++, of functions as they are and as addresses.
#include <Quarks.h>
#include <cstdio>

static unsigned long region;

static void add() { reinterpret_cast<long *>(region)[Qknodeid] += long(Qknodeid); }

int main(int argc, char **argv) {
    Qk_initialize();
    Qk_create_region(1, 4096, &region);
    for (int round = 0; round < 2; round++) {
        for (int node = 2; node <= Qknumnodes; node++) {
            if (round == 0) Qk_fork(add);
            else Qk_fork(reinterpret_cast<void *>(add));
        }
        Qk_wait_for_threads();
    }
    bool right = true;
    for (int node = 2; node <= Qknumnodes; node++) right = right && reinterpret_cast<long *>(region)[node] == 2 * node;
    std::puts(right ? "ok" : "another sum");
    Qk_shutdown(1);
}
