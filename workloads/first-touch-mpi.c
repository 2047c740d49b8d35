/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * first-touch-mpi: bytes that one process has and the other has never seen, by MPI_Bcast into fresh memory and a read
 * of each page, to compare with first touches of shared memory (`comem-bench first-touch`). Prints the microseconds a
 * page of each round as JSON. The first round warms up and does not count.
 */
#include "kernel.h"

#include <mpi.h>

static int64_t mebibytes = 64, rounds = 5;

/* The microseconds a page, as process 1 sees them. */
static double round_of(char *source, int self, size_t bytes) {
    const size_t pages = bytes / KERNEL_PAGE;
    /* As large as this it is memory of its own from the system each time, never touched. */
    char *place = self == 0 ? source : malloc(bytes);
    uint64_t sum = 0;
    if (!place) refuse("first-touch-mpi", "no memory");
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = now();
    MPI_Bcast(place, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    for (size_t page = 0; page < pages; page++) sum += (uint64_t)place[page * KERNEL_PAGE];
    const double seconds = now() - start;
    if (sum != pages) refuse("first-touch-mpi", "the bytes are not what they were");
    if (self != 0) free(place);
    return 1e6 * seconds / (double)pages;
}

int main(int argc, char **argv) {
    const option numbers[] = {
        {"--mebibytes", &mebibytes, NULL, NULL, "how much goes from one process to the other"},
        {"--rounds", &rounds, NULL, NULL, "how often, after once to warm up"},
    };
    int self;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &self);
    read_options(argc, argv, numbers, COUNT_OF(numbers));
    if (mebibytes < 32 || mebibytes > 1024) refuse("first-touch-mpi", "32 to 1024 MiB");
    const size_t bytes = (size_t)mebibytes << 20;
    char *source = self == 0 ? malloc(bytes) : NULL;
    if (self == 0 && !source) refuse("first-touch-mpi", "no memory");
    if (self == 0) memset(source, 1, bytes);
    if (self == 1) printf("{\"base\": [");
    for (int64_t round = 0; round <= rounds; round++) {
        const double us = round_of(source, self, bytes);
        if (self == 1 && round > 0) printf("%s%.6f", round > 1 ? ", " : "", us);
    }
    if (self == 1) printf("]}\n");
    MPI_Finalize();
    return 0;
}
