/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * fft: the Fourier transform of N complex numbers in six steps (SPLASH-2's FFT; Bailey's method; HLRC on UDP,
 * section 4.2).
 *
 * The numbers are a matrix of sqrt(N) x sqrt(N), of which each thread has a block of rows at home with it. Transpose;
 * transform each row and multiply by the twiddle factors; transpose; transform each row; transpose. All communication
 * is in the transpositions: a thread reads a patch of every other thread's rows and writes its own.
 *
 * A thread's rows lie in memory as patches, one for each thread that will read it, and a patch as strips of a few
 * columns, row by row: whoever transposes reads each patch once, in the order of its addresses, and no page is read by
 * two nodes. A few rows at a time are gathered into memory of the thread's own, transformed there, and stored as part
 * of the strips.
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
static number **shared[2];    /* two matrices: patch o * threads + p has the rows of owner o, the columns of part p */
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
KERNEL_HOT static void transform_row(number *row, int inverse) {
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
KERNEL_HOT static void twiddle_row(number *row, int64_t i, int inverse) {
    for (int64_t j = 0; j < side; j++) row[j] = times(row[j], inverse ? conjugate(root(i * j)) : root(i * j));
}

/* ---- the matrix ------------------------------------------------------------------------------------------------ */

/* How many rows or columns part `part` has. */
static inline int64_t size_of_part(int part) {
    int64_t low, high;
    kernel_part(side, comem_threads(), part, &low, &high);
    return high - low;
}

static inline int64_t strip_count(int part) {
    return (size_of_part(part) + TILE - 1) / TILE;
}

/* A strip of the rows of `owner`: columns TILE * strip and following of part `part`, TILE to a row. */
static inline number *strip_of(number **matrix, int owner, int part, int64_t strip) {
    return matrix[owner * comem_threads() + part] + strip * size_of_part(owner) * TILE;
}

static number *element(number **matrix, int64_t i, int64_t j) {
    const int owner = (int)(((i + 1) * comem_threads() - 1) / side);
    const int part = (int)(((j + 1) * comem_threads() - 1) / side);
    int64_t row, column, unused;
    kernel_part(side, comem_threads(), owner, &row, &unused);
    kernel_part(side, comem_threads(), part, &column, &unused);
    return strip_of(matrix, owner, part, (j - column) / TILE) + (i - row) * TILE + (j - column) % TILE;
}

/* Rows of a thread's own, one behind the other, a cache line apart: rows of 2^n bytes would be in each other's way. */
static inline int64_t pitch(void) {
    return side + KERNEL_LINE / (int64_t)sizeof(number);
}

static number *new_rows(void) {
    return kernel_private((size_t)(TILE * pitch()) * sizeof(number));
}

/* Reads rows [low, high) of a strip, which lie one behind the other, as columns. */
KERNEL_HOT static void gather_rows(number *rows, const number *next, int64_t low, int64_t high) {
    for (int64_t j = low; j < high; j++) {
        for (int64_t k = 0; k < TILE; k++) rows[k * pitch() + j] = *next++;
    }
}

/* Stores `columns` columns from `j` of `count` rows as rows of a strip. */
KERNEL_HOT static void scatter_rows(number *next, const number *rows, int64_t j, int64_t columns, int64_t count) {
    for (int64_t k = 0; k < count; k++) {
        memcpy(next + k * TILE, rows + k * pitch() + j, (size_t)columns * sizeof *next);
    }
}

/* Reads a strip of this thread's columns: they are the rows of the transposed matrix. First from its own part, then
 * from the next thread's, so that not all ask the same one. */
static void gather(number *rows, number **from, int64_t strip) {
    const int threads = comem_threads(), self = comem_thread();
    int64_t low, high;
    for (int t = 0; t < threads; t++) {
        const int owner = (self + t) % threads;
        kernel_part(side, threads, owner, &low, &high);
        gather_rows(rows, strip_of(from, owner, self, strip), low, high);
    }
}

/* Stores `count` rows as rows i and following of this thread's part, where its first is `first`. */
static void scatter(number **to, const number *rows, int64_t i, int64_t count, int64_t first) {
    const int threads = comem_threads(), self = comem_thread();
    int64_t low, high;
    for (int part = 0; part < threads; part++) {
        kernel_part(side, threads, part, &low, &high);
        for (int64_t j = low; j < high; j += TILE) {
            number *next = strip_of(to, self, part, (j - low) / TILE) + (i - first) * TILE;
            scatter_rows(next, rows, j, high - j < TILE ? high - j : TILE, count);
        }
    }
}

enum { MOVE = 0, TRANSFORM = 1, TWIDDLE = 2 };

/* Transposes `from` into `to`, a few rows at a time, and does with each row on its way what `what` says. Ends with a
 * barrier. */
static void transpose(number **to, number **from, number *rows, int what, int inverse) {
    int64_t low, high;
    kernel_part(side, comem_threads(), comem_thread(), &low, &high);
    for (int64_t i = low; i < high; i += TILE) {
        const int64_t count = high - i < TILE ? high - i : TILE;
        gather(rows, from, (i - low) / TILE);
        for (int64_t k = 0; k < count; k++) {
            if (what & TRANSFORM) transform_row(rows + k * pitch(), inverse);
            if (what & TWIDDLE) twiddle_row(rows + k * pitch(), i + k, inverse);
        }
        scatter(to, rows, i, count, low);
    }
    comem_barrier();
}

/* Transforms what is in `x`; the result is in `y`. */
static void transform(number **x, number **y, number *rows, int inverse) {
    transpose(y, x, rows, TRANSFORM | TWIDDLE, inverse);
    transpose(x, y, rows, TRANSFORM, inverse);
    transpose(y, x, rows, MOVE, inverse);
}

static void work(void *unused) {
    (void)unused;
    int64_t low, high;
    number *rows = new_rows();
    kernel_part(side, comem_threads(), comem_thread(), &low, &high);
    for (int warm = 0; warm < 2; warm++) { /* the first transform to warm up */
        for (int64_t i = low; i < high; i++) {
            for (int64_t j = 0; j < side; j++) {
                *element(shared[0], i, j) = first_value(i * side + j);
                *element(shared[1], i, j) = (number){0, 0};
            }
        }
        comem_barrier();
        double start = now();
        transform(shared[0], shared[1], rows, 0);
        if (comem_thread() == 0) kernel_seconds = now() - start;
    }
}

/* Transforms the result back, and leaves in each thread's part how many of its numbers are not what they were. */
static void work_back(void *parts) {
    int64_t low, high, wrong = 0;
    const double points = (double)(side * side);
    comem_barrier(); /* node 0 has looked at the result */
    transform(shared[1], shared[0], new_rows(), 1);
    kernel_part(side, comem_threads(), comem_thread(), &low, &high);
    for (int64_t i = low; i < high; i++) {
        for (int64_t j = 0; j < side; j++) {
            const number x = first_value(i * side + j), y = *element(shared[0], i, j);
            wrong += !(fabs(x.re - y.re / points) + fabs(x.im - y.im / points) < 1e-12);
        }
    }
    *((int64_t **)parts)[comem_thread()] = wrong;
    comem_barrier();
}

/* The memory of a patch: whole pages if it takes one, so that no page is read by two nodes. */
static size_t patch_bytes(int owner, int part) {
    const size_t bytes = (size_t)(size_of_part(owner) * strip_count(part) * TILE) * sizeof(number);
    return kernel_round_up(bytes, bytes < KERNEL_PAGE ? KERNEL_LINE : KERNEL_PAGE);
}

static void new_shared_matrix(int which) {
    const int threads = comem_threads();
    size_t *bytes = kernel_private((size_t)threads * sizeof *bytes);
    void **parts = kernel_private((size_t)threads * sizeof *parts);
    for (int owner = 0; owner < threads; owner++) {
        for (int part = 0; part < threads; part++) bytes[owner] += patch_bytes(owner, part);
    }
    kernel_alloc_parts(which == 0 ? "x" : "y", bytes, parts);
    shared[which] = kernel_private((size_t)threads * (size_t)threads * sizeof *shared[which]);
    for (int owner = 0; owner < threads; owner++) {
        char *patch = parts[owner];
        for (int part = 0; part < threads; part++) {
            shared[which][owner * threads + part] = (number *)(void *)patch;
            patch += patch_bytes(owner, part);
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
        const number y = *element(shared[1], k / side, k % side);
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
            const number x = first_value(i * side + j), y = *element(shared[1], i, j);
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
            const number y = *element(shared[1], i, j);
            sum = mix(sum ^ kernel_bits(y.re));
            sum = mix(sum ^ kernel_bits(y.im));
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
