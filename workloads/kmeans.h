/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * kmeans.h: the points of kmeans.c and of kmeans-mpi.c, the step of some of them, and their checksum. The Python
 * programs of bench/python/pick.py compute the same bits.
 *
 * Five clouds of points in a plane. In a step each point gets the number of the nearest centre, and each centre moves
 * to the middle of its points. Coordinates are whole numbers of 1/1024, so that sums are exact in whatever order they
 * are made.
 */
#ifndef WORKLOADS_KMEANS_H
#define WORKLOADS_KMEANS_H

#include "kernel.h"

enum { CENTRES = 5 };

typedef struct point {
    double x, y;
} point;

/* Of a centre's points: the sums of their coordinates, and how many there are. */
typedef struct cluster {
    double x, y, count;
} cluster;

static const point KMEANS_MIDDLES[CENTRES] = {{0, 0}, {10, 0}, {0, 10}, {10, 10}, {5, 5}};
static const point KMEANS_ASIDE[CENTRES] = {{1, 1}, {-2, 1}, {1, -2}, {-1, -1}, {0.5, -0.5}};
static int64_t points = 200000, steps = 20;

static inline void kmeans_start(int argc, char **argv) {
    const option numbers[] = {
        {"--points", &points, NULL, NULL, "points"},
        {"--steps", &steps, NULL, NULL, "steps"},
    };
    static const preset presets[] = {
        {"tiny", "for tests", {2000, 10}},
        {"usual", "examples/python/kmeans.py", {200000, 20}},
        {"large", "ten times the usual", {2000000, 20}},
    };
    kernel_start(argc, argv, numbers, COUNT_OF(numbers), presets, COUNT_OF(presets));
    if (points < 100 || points > 1 << 28 || steps < 1) refuse("kmeans", "100 to 2^28 points, and a step or more");
}

/* A whole number of 1/1024, at least -2 and below 2. */
static inline double kmeans_spread(uint64_t index) {
    return (double)((int64_t)(mix(index) >> 52) - 2048) / 1024;
}

static inline point kmeans_point(int64_t i) {
    const uint64_t number = 3 * (uint64_t)i;
    const point middle = KMEANS_MIDDLES[mix(number) % CENTRES];
    return (point){middle.x + kmeans_spread(number + 1), middle.y + kmeans_spread(number + 2)};
}

static inline void kmeans_first_centres(point *centres) {
    for (int k = 0; k < CENTRES; k++) {
        centres[k] = (point){KMEANS_MIDDLES[k].x + KMEANS_ASIDE[k].x, KMEANS_MIDDLES[k].y + KMEANS_ASIDE[k].y};
    }
}

/* Labels `count` points with their nearest centres, the first of several, and adds the points up by centre. */
KERNEL_HOT static void kmeans_step(const point *at, int8_t *labels, int64_t count, const point *centres,
                                   cluster *clusters) {
    cluster sums[CENTRES] = {{0, 0, 0}};
    for (int64_t i = 0; i < count; i++) {
        int nearest = 0;
        double least = INFINITY;
        for (int k = 0; k < CENTRES; k++) {
            const double dx = at[i].x - centres[k].x, dy = at[i].y - centres[k].y, square = dx * dx + dy * dy;
            if (square < least) least = square, nearest = k;
        }
        labels[i] = (int8_t)nearest;
        sums[nearest].x += at[i].x;
        sums[nearest].y += at[i].y;
        sums[nearest].count += 1;
    }
    memcpy(clusters, sums, sizeof sums);
}

static inline void kmeans_move(point *centres, const cluster *clusters) {
    for (int k = 0; k < CENTRES; k++) {
        centres[k] = (point){clusters[k].x / clusters[k].count, clusters[k].y / clusters[k].count};
    }
}

/* What labels number `first` and following add to the checksum, whoever has them. */
static inline uint64_t kmeans_checksum(const int8_t *labels, int64_t first, int64_t count) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++) sum += mix((uint64_t)labels[i] + (uint64_t)(first + i));
    return sum;
}

/* What the centres add. */
static inline uint64_t kmeans_checksum_of_centres(const point *centres) {
    uint64_t sum = 0;
    for (int k = 0; k < CENTRES; k++) {
        sum += mix(kernel_bits(centres[k].x) + 2 * (uint64_t)k) + mix(kernel_bits(centres[k].y) + 2 * (uint64_t)k + 1);
    }
    return sum;
}

#endif /* WORKLOADS_KMEANS_H */
