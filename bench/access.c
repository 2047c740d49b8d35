/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * access: accesses that hit, in C: `access WHAT COUNT` runs a loop of COUNT of them, to have its instructions counted
 * (by `comem-bench access`). WHAT is read-hits, read-plain, write-hits or write-plain.
 */
#include <comem.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENTS = 4096 };

static int64_t plain[ELEMENTS];

/* The next index, which the compiler knows nothing of: it makes no vector instructions of the loops, and may still use
 * a load as an operand (of volatile elements it does not). Costs no instruction. */
static inline uint64_t after(uint64_t i) {
    i++;
    __asm__ volatile("" : "+r"(i));
    return i;
}

__attribute__((noinline)) static int64_t read_hits(comem_array_i64 array, uint64_t count) {
    int64_t sum = 0;
    for (uint64_t i = 0; i < count; i = after(i)) sum += comem_read_i64(array, i);
    return sum;
}

__attribute__((noinline)) static int64_t read_plain(const int64_t *array, uint64_t count) {
    int64_t sum = 0;
    for (uint64_t i = 0; i < count; i = after(i)) sum += array[i];
    return sum;
}

__attribute__((noinline)) static void write_hits(comem_array_i64 array, uint64_t count) {
    for (uint64_t i = 0; i < count; i = after(i)) comem_write_i64(array, i, (int64_t)i);
}

__attribute__((noinline)) static void write_plain(int64_t *array, uint64_t count) {
    for (uint64_t i = 0; i < count; i = after(i)) array[i] = (int64_t)i;
    __asm__ volatile("" : : "r"(array) : "memory"); /* what was written is used */
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s read-hits|read-plain|write-hits|write-plain COUNT\n", argv[0]);
        return 2;
    }
    if (comem_start() != 0) return 3;
    comem_array_i64 array = comem_new_i64(ELEMENTS, NULL);
    write_hits(array, ELEMENTS); /* every element is here and writable from now on */
    int64_t sum = 0;
    for (long long times = atoll(argv[2]) / ELEMENTS; times > 0; times--) {
        if (strcmp(argv[1], "read-hits") == 0) {
            sum += read_hits(array, ELEMENTS);
        } else if (strcmp(argv[1], "read-plain") == 0) {
            sum += read_plain(plain, ELEMENTS);
        } else if (strcmp(argv[1], "write-hits") == 0) {
            write_hits(array, ELEMENTS);
        } else {
            write_plain(plain, ELEMENTS);
        }
    }
    printf("%lld\n", (long long)sum);
    return comem_finish() != 0;
}
