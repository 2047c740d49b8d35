// SPDX-License-Identifier: MIT OR Apache-2.0
//
// job: the natural syntax on several nodes: every thread writes, all others read what it wrote.
#include <comem.hpp>

#include <cstdio>

int main(int argc, char **argv) {
    comem::start(argc, argv);
    const int threads = comem::threads();
    const auto options = comem::object_options().unit(1).label("row");
    comem::object_array<std::int32_t> row(static_cast<std::uint64_t>(threads), options);
    comem::object_matrix<double> table(static_cast<std::uint64_t>(threads), 3);
    comem::object_var<std::int32_t> total;
    comem::object_var<int> wrong;
    comem::parallel([&] {
        const auto self = static_cast<std::uint64_t>(comem::thread());
        row[self] = static_cast<int>(self) + 1;
        table(self, 2) = 0.5 * static_cast<double>(row[self]);
        comem::barrier();
        int sum = 0;
        for (std::uint64_t i = 0; i < row.size(); i++) sum += row[i];
        double halves = 0;
        for (double cell : table.read_rows(0, table.rows())) halves += cell;
        const int expected = threads * (threads + 1) / 2;
        comem::lock_guard guard(1);
        total += sum;
        if (sum != expected || halves != 0.5 * expected) wrong++;
    });
    comem::parallel([] { comem::barrier(); });
    bool ok = wrong == 0 && total == threads * (threads * (threads + 1) / 2);
    if (comem::node() == 0) std::printf("job: %s\n", ok ? "ok" : "WRONG");
    comem::finish();
    return ok ? 0 : 1;
}
