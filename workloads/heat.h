/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * heat.h: the plate of heat.c and of heat-mpi.c: its numbers, a step of some rows, and their checksum. The Python
 * programs of bench/python/pick.py compute the same bits.
 *
 * A plate is square. Its upper edge is hot; in a step every cell but those of the edges becomes the mean of its four
 * neighbours.
 */
#ifndef WORKLOADS_HEAT_H
#define WORKLOADS_HEAT_H

#include "kernel.h"

static const double HEAT_EDGE = 100;
static int64_t size = 1000, steps = 200;

static inline void heat_start(int argc, char **argv) {
    const option numbers[] = {
        {"--size", &size, NULL, NULL, "rows and columns of the plate"},
        {"--steps", &steps, NULL, NULL, "steps"},
    };
    static const preset presets[] = {
        {"tiny", "for tests", {66, 30}},
        {"usual", "examples/python/heat.py", {1000, 200}},
        {"large", "16 times the usual", {4000, 200}},
    };
    kernel_start(argc, argv, numbers, COUNT_OF(numbers), presets, COUNT_OF(presets));
    if (size < 3 || size > 1 << 15 || steps < 1) refuse("heat", "3 to 2^15 rows, and a step or more");
}

/* Rows [low, high) of a plate before the first step; `to` is row `low`. */
static inline void heat_fill(double *to, int64_t low, int64_t high) {
    for (int64_t row = low; row < high; row++) {
        for (int64_t k = 0; k < size; k++) *to++ = row == 0 ? HEAT_EDGE : 0;
    }
}

/* A step of `rows` rows of `columns` cells; `from` and `to` are the first of them, with a row above and one below. */
KERNEL_HOT static void heat_step(double *restrict to, const double *restrict from, int64_t rows, int64_t columns) {
    for (int64_t row = 0; row < rows; row++) {
        const double *above = from + (row - 1) * columns, *here = above + columns, *below = here + columns;
        double *restrict next = to + row * columns;
        for (int64_t k = 1; k < columns - 1; k++) {
            next[k] = 0.25 * (((above[k] + below[k]) + here[k - 1]) + here[k + 1]);
        }
    }
}

/* What cells number `first` and following add to the checksum, whoever has them. */
static inline uint64_t heat_checksum(const double *cells, int64_t first, int64_t count) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++) sum += mix(kernel_bits(cells[i]) + (uint64_t)(first + i));
    return sum;
}

#endif /* WORKLOADS_HEAT_H */
