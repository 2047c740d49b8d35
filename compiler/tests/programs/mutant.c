// A few checks, each of which is left out once: every such build must go wrong beside the adversary.
#include "../fake.h"
#include <stdint.h>
#include <stdio.h>

static __attribute__((noinline)) int64_t read_all(const int64_t *p, int n) {
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += p[i];
    return sum;
}
static __attribute__((noinline)) void write_all(int64_t *p, int n, int64_t by) {
    for (int i = 0; i < n; i += 2) p[i] = by + i;
}
static __attribute__((noinline)) double read_reals(const double *p, int n) {
    double sum = 0;
    for (int i = 0; i < n; i += 3) sum += p[i];
    return sum;
}
static __attribute__((noinline)) int read_bytes(const signed char *p, int n) {
    int sum = 0;
    for (int i = 0; i < n; i += 2) sum += p[i];
    return sum;
}
static __attribute__((noinline)) int count(int *p, int by) { return __atomic_fetch_add(p, by, __ATOMIC_RELAXED); }

int main(void) {
    enum { N = 3000 };
    int64_t *p = shared_alloc(N * 8);
    double *d = shared_alloc(N * 8);
    signed char *b = shared_alloc(N);
    int *c = shared_alloc(4);
    for (int round = 0; round < 40; round++) {
        write_all(p, N, round);
        printf("%ld %g %d\n", (long)read_all(p, N), read_reals(d, N), read_bytes(b, N));
        for (int i = 0; i < 100; i++) count(c, 1);
    }
    printf("%d\n", count(c, 0));
    return 0;
}
