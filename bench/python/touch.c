/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * touch.c: what it costs to read another node's memory in order, from C; touch.py is the same from NumPy.
 *
 *     comem run -n 2 --rehearse --stats FILE ./touch [MEBIBYTES]
 */
#include <comem.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    if (comem_start() != 0) return fprintf(stderr, "%s\n", comem_last_error()), 1;
    size_t count = (argc > 1 ? strtoull(argv[1], NULL, 10) : 64) * (1 << 20) / sizeof(double);
    comem_region_options options = {.home = COMEM_HOME_ON, .home_number = 1};
    double *a = comem_alloc_all(count * sizeof *a, &options);
    if (comem_node() == 1)
        for (size_t i = 0; i < count; i++) a[i] = 1;
    comem_barrier();
    if (comem_node() == 0) {
        double start = now_us(), sum = 0;
        for (size_t i = 0; i < count; i++) sum += a[i];
        printf("sum %.0f, %.3f us a page\n", sum, (now_us() - start) / (count / 512.0));
    }
    comem_barrier();
    return comem_finish();
}
