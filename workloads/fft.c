/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * fft: the Fourier transform of N complex numbers in six steps (SPLASH-2's FFT; Bailey's method; HLRC on UDP,
 * section 4.2).
 *
 * The numbers are a matrix of sqrt(N) x sqrt(N), of which each thread has a block of rows at home with it. Transpose;
 * transform each row and multiply by the twiddle factors; transpose; transform each row; transpose. All communication
 * is in the transpositions: a thread reads a patch of every other thread's rows and writes its own.
 *
 * The result is the same, bit for bit, for any number of threads.
 */
#include "kernel.h"

enum { SAMPLES = 2, SAMPLES_CHECKED = 8, TILE = 8, SEED = 11 };

typedef struct number {
    double re, im;
} number;

static int64_t side = 256; /* the square root of N */

static int side_bits;         /* its logarithm */
static number **shared[2];    /* two matrices, by row */
static number *fine, *coarse; /* exp(-2 pi i k / N) and exp(-2 pi i k / side), for k below `side` */

/* ---- arithmetic ------------------------------------------------------------------------------------------------ */

static inline number times(number a, number b) {
    return (number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static inline number conjugate(number a) {
    return (number){a.re, -a.im};
}

/* exp(-2 pi i k / N), for any k from 0. */
static inline number root(int64_t k) {
    return times(coarse[k >> side_bits & (side - 1)], fine[k & (side - 1)]);
}

static number first_value(int64_t index) {
    const uint64_t place = SEED + 2 * (uint64_t)index;
    return (number){kernel_random(place) - 0.5, kernel_random(place + 1) - 0.5};
}

static void make_roots(void) {
    const double circle = 2 * acos(-1.0);
    while ((int64_t)1 << side_bits < side) side_bits++;
    fine = kernel_private((size_t)side * sizeof *fine);
    coarse = kernel_private((size_t)side * sizeof *coarse);
    for (int64_t k = 0; k < side; k++) {
        const double small = circle * (double)k / (double)(side * side), large = circle * (double)k / (double)side;
        fine[k] = (number){cos(small), -sin(small)};
        coarse[k] = (number){cos(large), -sin(large)};
    }
}

/* ---- a row ----------------------------------------------------------------------------------------------------- */

static void swap_by_reversed_bits(number *row) {
    for (int64_t i = 1, j = 0; i < side; i++) {
        int64_t bit = side >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j ^= bit;
        if (i < j) {
            number swap = row[i];
            row[i] = row[j];
            row[j] = swap;
        }
    }
}

/* Transforms a row in place; backwards if `inverse`, without dividing by its length. */
static void transform_row(number *row, int inverse) {
    swap_by_reversed_bits(row);
    for (int64_t half = 1; half < side; half *= 2) {
        for (int64_t base = 0; base < side; base += 2 * half) {
            number *restrict low = row + base, *restrict high = row + base + half;
            for (int64_t k = 0, w = 0; k < half; k++, w += side / half / 2) {
                const number turned = times(high[k], inverse ? conjugate(coarse[w]) : coarse[w]);
                high[k] = (number){low[k].re - turned.re, low[k].im - turned.im};
                low[k] = (number){low[k].re + turned.re, low[k].im + turned.im};
            }
        }
    }
}

/* Multiplies row i of the matrix by the twiddle factors. */
static void twiddle_row(number *row, int64_t i, int inverse) {
    for (int64_t j = 0; j < side; j++) row[j] = times(row[j], inverse ? conjugate(root(i * j)) : root(i * j));
}

/* ---- the matrix ------------------------------------------------------------------------------------------------ */

/* Writes this thread's rows of `to`, tile by tile, from the columns of `from`: first from its own rows, then from the
 * next thread's, so that not all ask the same one. */
static void transpose(number **to, number **from) {
    const int threads = comem_threads(), self = comem_thread();
    int64_t low, high, from_low, from_high;
    kernel_part(side, threads, self, &low, &high);
    for (int t = 0; t < threads; t++) {
        kernel_part(side, threads, (self + t) % threads, &from_low, &from_high);
        for (int64_t ii = low; ii < high; ii += TILE) {
            for (int64_t jj = from_low; jj < from_high; jj += TILE) {
                for (int64_t j = jj; j < jj + TILE && j < from_high; j++) {
                    for (int64_t i = ii; i < ii + TILE && i < high; i++) to[i][j] = from[j][i];
                }
            }
        }
    }
}

/* Transforms what is in `x`; the result is in `y`. Ends with a barrier. */
static void transform(number **x, number **y, int inverse) {
    int64_t low, high;
    kernel_part(side, comem_threads(), comem_thread(), &low, &high);
    transpose(y, x);
    for (int64_t i = low; i < high; i++) {
        transform_row(y[i], inverse);
        twiddle_row(y[i], i, inverse);
    }
    comem_barrier();
    transpose(x, y);
    for (int64_t i = low; i < high; i++) transform_row(x[i], inverse);
    comem_barrier();
    transpose(y, x);
    comem_barrier();
}

static void work(void *unused) {
    (void)unused;
    int64_t low, high;
    kernel_part(side, comem_threads(), comem_thread(), &low, &high);
    for (int warm = 0; warm < 2; warm++) { /* the first transform to warm up */
        for (int64_t i = low; i < high; i++) {
            for (int64_t j = 0; j < side; j++) {
                shared[0][i][j] = first_value(i * side + j);
                shared[1][i][j] = (number){0, 0};
            }
        }
        comem_barrier();
        double start = now();
        transform(shared[0], shared[1], 0);
        if (comem_thread() == 0) kernel_seconds = now() - start;
    }
}

/* Transforms the result back, and leaves in each thread's part how many of its numbers are not what they were. */
static void work_back(void *parts) {
    int64_t low, high, wrong = 0;
    const double points = (double)(side * side);
    comem_barrier(); /* node 0 has looked at the result */
    transform(shared[1], shared[0], 1);
    kernel_part(side, comem_threads(), comem_thread(), &low, &high);
    for (int64_t i = low; i < high; i++) {
        for (int64_t j = 0; j < side; j++) {
            const number x = first_value(i * side + j), y = shared[0][i][j];
            wrong += !(fabs(x.re - y.re / points) + fabs(x.im - y.im / points) < 1e-12);
        }
    }
    *((int64_t **)parts)[comem_thread()] = wrong;
    comem_barrier();
}

static void new_shared_matrix(int which) {
    const int threads = comem_threads();
    const size_t row_bytes = (size_t)side * sizeof(number);
    size_t *bytes = kernel_private((size_t)threads * sizeof *bytes);
    void **parts = kernel_private((size_t)threads * sizeof *parts);
    int64_t low, high;
    for (int t = 0; t < threads; t++) {
        kernel_part(side, threads, t, &low, &high);
        bytes[t] = (size_t)(high - low) * row_bytes;
    }
    kernel_alloc_parts(which == 0 ? "x" : "y", bytes, parts);
    shared[which] = kernel_private((size_t)side * sizeof *shared[which]);
    for (int t = 0; t < threads; t++) {
        kernel_part(side, threads, t, &low, &high);
        char *part = parts[t];
        for (int64_t i = low; i < high; i++) {
            shared[which][i] = (number *)(void *)(part + (size_t)(i - low) * row_bytes);
        }
    }
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

/* Whether some of the results are what the definition of the transform gives. */
static int samples_are_right(void) {
    const int64_t points = side * side;
    for (int s = 0; s < (kernel_check ? SAMPLES_CHECKED : SAMPLES); s++) {
        const int64_t k = s == 0 ? 0 : (int64_t)(mix((uint64_t)s) % (uint64_t)points);
        number sum = {0, 0};
        for (int64_t n = 0, kn = 0; n < points; n++, kn = (kn + k) % points) {
            const number term = times(first_value(n), root(kn));
            sum = (number){sum.re + term.re, sum.im + term.im};
        }
        const number y = shared[1][k / side][k % side];
        if (!(fabs(sum.re - y.re) + fabs(sum.im - y.im) < 1e-9 * (double)side)) return 0;
    }
    return 1;
}

/* Whether the results have N times the energy of the numbers (Parseval's theorem). A single result that has stayed what
 * it was before takes about one part in N from it: more, up to N = 2^36, than is allowed here for rounding. */
static int energy_is_right(void) {
    const double points = (double)(side * side);
    double before = 0, after = 0;
    for (int64_t i = 0; i < side; i++) {
        double row_before = 0, row_after = 0;
        for (int64_t j = 0; j < side; j++) {
            const number x = first_value(i * side + j), y = shared[1][i][j];
            row_before += x.re * x.re + x.im * x.im;
            row_after += y.re * y.re + y.im * y.im;
        }
        before += row_before;
        after += row_after;
    }
    return fabs(after / points - before) < 1e-11 * before;
}

static uint64_t checksum(void) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < side; i++) {
        for (int64_t j = 0; j < side; j++) {
            sum = mix(sum ^ kernel_bits(shared[1][i][j].re));
            sum = mix(sum ^ kernel_bits(shared[1][i][j].im));
        }
    }
    return sum;
}

/* Transforms back with all threads; whether every number is again what it was. Every node makes the call. */
static int inverse_is_right(void) {
    size_t *bytes = kernel_private((size_t)comem_threads() * sizeof *bytes);
    void **parts = kernel_private((size_t)comem_threads() * sizeof *parts);
    for (int t = 0; t < comem_threads(); t++) bytes[t] = sizeof(int64_t);
    kernel_alloc_parts("wrong numbers", bytes, parts);
    comem_parallel(work_back, parts);
    int64_t wrong = 0;
    for (int t = 0; comem_node() == 0 && t < comem_threads(); t++) wrong += *(int64_t *)parts[t];
    return wrong == 0;
}

int main(int argc, char **argv) {
    const option numbers[] = {
        {"--side", &side, NULL, NULL, "the square root of how many numbers, a power of two"},
    };
    static const preset presets[] = {
        {"tiny", "for tests", {128}},
        {"hlrc", "HLRC on UDP, table 1", {2048}},
        {"large", "four times HLRC on UDP", {4096}},
    };
    kernel_start(argc, argv, numbers, COUNT_OF(numbers), presets, COUNT_OF(presets));
    if (side < 2 || side > 1 << 20 || (side & (side - 1)) != 0) refuse("fft", "--side is a power of two up to 2^20");
    make_roots();
    for (int which = 0; which < 2; which++) new_shared_matrix(which);
    comem_parallel(work, NULL);
    uint64_t sum = 0;
    int right = 1;
    if (comem_node() == 0) {
        sum = checksum();
        right = energy_is_right() && samples_are_right();
    }
    if (kernel_check) right &= inverse_is_right();
    if (comem_node() == 0) printf("fft side=%" PRId64, side);
    return kernel_finish(sum, right);
}
