/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * kmeans: clusters of points (examples/python/kmeans.py), to compare with what else a user would write: kmeans-mpi.c,
 * and the ways of bench/python/pick.py.
 *
 * Each thread labels its points and adds them up by centre; a reduction brings the sums together. They are exact, so
 * the result is the same, bit for bit, for any number of threads.
 */
#include "kmeans.h"

static void **parts, **labels; /* shared, for each thread: its points and their labels */
static point centres[CENTRES]; /* of node 0, after the last step */

static void part_of(int thread, int64_t *low, int64_t *high) {
    kernel_part(points, comem_threads(), thread, low, high);
}

static void work(void *unused) {
    (void)unused;
    const int self = comem_thread();
    int64_t low, high;
    point at[CENTRES], *mine = parts[self];
    part_of(self, &low, &high);
    for (int64_t i = low; i < high; i++) {
        mine[i - low] = kmeans_point(i);
        ((int8_t *)labels[self])[i - low] = 0;
    }
    kmeans_first_centres(at);
    comem_barrier();
    const double start = now();
    for (int64_t step = 0; step < steps; step++) {
        cluster clusters[CENTRES];
        kmeans_step(mine, labels[self], high - low, at, clusters);
        comem_reduce_f64(COMEM_SUM, &clusters[0].x, CENTRES * 3);
        kmeans_move(at, clusters);
    }
    comem_barrier();
    if (self != 0) return;
    kernel_seconds = now() - start;
    memcpy(centres, at, sizeof centres);
}

/* Shared memory in one part for each thread. */
static void **new_parts(const char *label, size_t element) {
    const int threads = comem_threads();
    size_t *bytes = kernel_private((size_t)threads * sizeof *bytes);
    void **list = kernel_private((size_t)threads * sizeof *list);
    for (int t = 0; t < threads; t++) {
        int64_t low, high;
        part_of(t, &low, &high);
        bytes[t] = (size_t)(high - low) * element;
    }
    kernel_alloc_parts(label, bytes, list);
    return list;
}

/* Whether the centres have come to the middles that the points were made about, and labels are those of one thread. */
static int is_right(void) {
    point at[CENTRES];
    cluster clusters[CENTRES];
    point *alone = kernel_private((size_t)points * sizeof *alone);
    int8_t *alone_labels = kernel_private((size_t)points);
    int right = 1;
    for (int64_t i = 0; i < points; i++) alone[i] = kmeans_point(i);
    kmeans_first_centres(at);
    for (int64_t step = 0; step < steps; step++) {
        kmeans_step(alone, alone_labels, points, at, clusters);
        kmeans_move(at, clusters);
    }
    for (int k = 0; k < CENTRES; k++) {
        right &= fabs(centres[k].x - KMEANS_MIDDLES[k].x) < 0.3 && fabs(centres[k].y - KMEANS_MIDDLES[k].y) < 0.3;
    }
    for (int t = 0; t < comem_threads(); t++) {
        int64_t low, high;
        part_of(t, &low, &high);
        right &= memcmp(alone_labels + low, labels[t], (size_t)(high - low)) == 0;
    }
    return right && memcmp(at, centres, sizeof at) == 0;
}

int main(int argc, char **argv) {
    kmeans_start(argc, argv);
    parts = new_parts("points", sizeof(point));
    labels = new_parts("labels", 1);
    comem_parallel(work, NULL);
    if (comem_node() != 0) return kernel_finish(0, 1);
    uint64_t sum = kmeans_checksum_of_centres(centres);
    for (int t = 0; t < comem_threads(); t++) {
        int64_t low, high;
        part_of(t, &low, &high);
        sum += kmeans_checksum(labels[t], low, high - low);
    }
    const int right = is_right();
    printf("kmeans points=%" PRId64 " steps=%" PRId64, points, steps);
    return kernel_finish(sum, right);
}
