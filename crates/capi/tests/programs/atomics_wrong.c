/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * atomics_wrong: mistakes with atomic operations and loops dealt out, by number; each ends the job with a sentence.
 */
#include <comem.h>
#include <stdlib.h>

static void loop(uint64_t low, uint64_t high, void *unused) {
    (void)low;
    (void)high;
    (void)unused;
    comem_for_dynamic(1, 1, loop, NULL);
}

static void nothing(uint64_t low, uint64_t high, void *unused) {
    (void)low;
    (void)high;
    (void)unused;
}

int main(int argc, char **argv) {
    if (comem_start() != 0) return 1;
    char *memory = (char *)comem_alloc_all(8192, NULL);
    int64_t own = 0;
    switch (atoi(argv[argc - 1])) {
    case 1: comem_fetch_add_relaxed_i64(&own, 1); break;
    case 2: comem_fetch_add_i64((int64_t *)(void *)(memory + 4), 1); break;
    case 3:
        comem_node_barrier();
        comem_freeze(memory);
        comem_fetch_add_i64((int64_t *)(void *)memory, 1);
        break;
    case 4: comem_for_dynamic(5, 1, loop, NULL); break;
    case 5: comem_for_dynamic((uint64_t)comem_node() + 5, 1, nothing, NULL); break;
    default:
        comem_node_barrier();
        comem_free(memory);
        comem_node_barrier();
        comem_fetch_add_i64((int64_t *)(void *)memory, 1);
    }
    return comem_finish();
}
