// SPDX-License-Identifier: MIT OR Apache-2.0
//
// job: the natural syntax on several nodes: every thread writes, all others read what it wrote.
#include <comem.hpp>

#include <cstdio>

int main(int argc, char **argv) {
    comem::Startup(argc, argv);
    const int threads = comem::Threads();
    comem::SharedIntArray row(static_cast<std::uint64_t>(threads), comem::Options().Unit(1).Label("row"));
    comem::SharedMatrix<double> table(static_cast<std::uint64_t>(threads), 3);
    comem::SharedInt total;
    comem::SharedVar<int> wrong;
    comem::Parallel([&] {
        const auto self = static_cast<std::uint64_t>(comem::Thread());
        row[self] = static_cast<int>(self) + 1;
        table(self, 2) = 0.5 * static_cast<double>(row[self]);
        comem::Barrier();
        int sum = 0;
        for (std::uint64_t i = 0; i < row.size(); i++) sum += row[i];
        double halves = 0;
        for (double cell : table.read_rows(0, table.rows())) halves += cell;
        const int expected = threads * (threads + 1) / 2;
        comem::Guard guard(1);
        total += sum;
        if (sum != expected || halves != 0.5 * expected) wrong++;
    });
    comem::Parallel([] { comem::Barrier(); });
    bool ok = wrong == 0 && total == threads * (threads * (threads + 1) / 2);
    if (comem::Node() == 0) std::printf("job: %s\n", ok ? "ok" : "WRONG");
    comem::Finish();
    return ok ? 0 : 1;
}
