/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * lu: a dense matrix as the product of a lower and an upper triangle, by blocks (SPLASH-2's LU; Nautilus, section 7;
 * HLRC on UDP, section 4.2).
 *
 * The matrix is an array of square blocks, each contiguous. The threads form a grid as square as can be, laid over the
 * blocks again and again, and a thread owns the blocks it falls on: they lie together in pages at home with it, and
 * nobody else writes them. In step k the owner factors diagonal block k; after a barrier the owners of the other
 * blocks in row and column k solve for theirs; after another, every block below and to the right of the diagonal
 * subtracts the product of two of those. There is no pivoting: the diagonal dominates.
 *
 * Every element goes through the same operations in the same order whoever does them, so the result is the same, bit
 * for bit, for any number of threads.
 */
#include "kernel.h"

enum { SAMPLES = 200, COMMON_SIZE = 32, SEED = 7 };

static int64_t size = 512, block = 32, unit_pages = 0;

static int64_t blocks;    /* in a row of the matrix */
static int64_t grid_rows; /* of threads; as many columns as there are threads for it */
static double **shared;   /* the blocks, by row and column */

/* ---- blocks ---------------------------------------------------------------------------------------------------- */

static int64_t grid_columns(void) {
    return comem_threads() / grid_rows;
}

static int owner(int64_t i, int64_t j) {
    return (int)(i % grid_rows * grid_columns() + j % grid_columns());
}

static double first_value(int64_t row, int64_t column) {
    double value = kernel_random(SEED + (uint64_t)(row * size + column));
    return row == column ? value + (double)size : value;
}

static void fill_block(double *a, int64_t i, int64_t j) {
    for (int64_t r = 0; r < block; r++) {
        for (int64_t c = 0; c < block; c++) a[r * block + c] = first_value(i * block + r, j * block + c);
    }
}

/* a := its factors, the lower one with ones on the diagonal, which are left out. */
KERNEL_HOT static void factor(double *a) {
    for (int64_t k = 0; k < block; k++) {
        for (int64_t r = k + 1; r < block; r++) {
            const double f = a[r * block + k] /= a[k * block + k];
            for (int64_t c = k + 1; c < block; c++) a[r * block + c] -= f * a[k * block + c];
        }
    }
}

/* a := a times the inverse of the upper factor in `diagonal`. */
KERNEL_HOT static void solve_upper(double *restrict a, const double *restrict diagonal) {
    for (int64_t r = 0; r < block; r++) {
        for (int64_t k = 0; k < block; k++) {
            const double f = a[r * block + k] /= diagonal[k * block + k];
            for (int64_t c = k + 1; c < block; c++) a[r * block + c] -= f * diagonal[k * block + c];
        }
    }
}

/* a := the inverse of the lower factor in `diagonal`, times a. */
KERNEL_HOT static void solve_lower(double *restrict a, const double *restrict diagonal) {
    for (int64_t k = 0; k < block; k++) {
        for (int64_t r = k + 1; r < block; r++) {
            const double f = diagonal[r * block + k];
            for (int64_t c = 0; c < block; c++) a[r * block + c] -= f * a[k * block + c];
        }
    }
}

/* a := a - l u, for blocks of n rows. */
static inline void subtract_n(double *restrict a, const double *restrict l, const double *restrict u, int64_t n) {
    for (int64_t r = 0; r < n; r++) {
        for (int64_t k = 0; k < n; k++) {
            const double f = l[r * n + k];
            for (int64_t c = 0; c < n; c++) a[r * n + c] -= f * u[k * n + c];
        }
    }
}

/* The same; a size known when this is compiled lets the compiler work on several elements at a time. */
KERNEL_HOT static void subtract(double *a, const double *l, const double *u) {
    if (block == COMMON_SIZE) {
        subtract_n(a, l, u, COMMON_SIZE);
    } else {
        subtract_n(a, l, u, block);
    }
}

/* ---- the computation ------------------------------------------------------------------------------------------- */

static void step(int64_t k) {
    const int self = comem_thread();
    double *diagonal = shared[k * blocks + k];
    if (owner(k, k) == self) factor(diagonal);
    comem_barrier();
    for (int64_t i = k + 1; i < blocks; i++) {
        if (owner(i, k) == self) solve_upper(shared[i * blocks + k], diagonal);
        if (owner(k, i) == self) solve_lower(shared[k * blocks + i], diagonal);
    }
    comem_barrier();
    for (int64_t i = k + 1; i < blocks; i++) {
        for (int64_t j = k + 1; j < blocks; j++) {
            if (owner(i, j) == self) subtract(shared[i * blocks + j], shared[i * blocks + k], shared[k * blocks + j]);
        }
    }
}

static void work(void *unused) {
    (void)unused;
    for (int64_t i = 0; i < blocks; i++) {
        for (int64_t j = 0; j < blocks; j++) {
            if (owner(i, j) == comem_thread()) fill_block(shared[i * blocks + j], i, j);
        }
    }
    comem_barrier();
    double start = now();
    for (int64_t k = 0; k < blocks; k++) step(k);
    comem_barrier();
    if (comem_thread() == 0) kernel_seconds = now() - start;
}

/* Deals the blocks out: each thread's in one part. */
static void new_shared_matrix(void) {
    const int threads = comem_threads();
    const size_t block_bytes = (size_t)(block * block) * sizeof(double);
    size_t *bytes = kernel_private((size_t)threads * sizeof *bytes);
    void **parts = kernel_private((size_t)threads * sizeof *parts);
    for (grid_rows = (int64_t)sqrt((double)threads); threads % grid_rows != 0;) grid_rows--;
    for (int64_t i = 0; i < blocks * blocks; i++) bytes[owner(i / blocks, i % blocks)] += block_bytes;
    /* A block is used as a whole, so it had better move as a whole: page aggregation (Nautilus, section 6). */
    unsigned pages = (unsigned)unit_pages;
    if (unit_pages == 0) {
        const size_t whole = block_bytes / KERNEL_PAGE;
        pages = block_bytes % KERNEL_PAGE == 0 && whole <= 256 && (whole & (whole - 1)) == 0 ? (unsigned)whole : 0;
    }
    kernel_alloc_units("matrix", pages, bytes, parts);
    shared = kernel_private((size_t)(blocks * blocks) * sizeof *shared);
    for (int64_t i = 0; i < blocks * blocks; i++) {
        void **part = &parts[owner(i / blocks, i % blocks)];
        shared[i] = *part;
        *part = (char *)*part + block_bytes;
    }
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

static double element(int64_t row, int64_t column) {
    return shared[row / block * blocks + column / block][row % block * block + column % block];
}

/* How far the product of the factors is from the matrix at this element, in relation to the diagonal. */
static double residual(int64_t row, int64_t column) {
    const int64_t end = row <= column ? row : column + 1;
    double product = row <= column ? element(row, column) : 0.0;
    for (int64_t k = 0; k < end; k++) product += element(row, k) * element(k, column);
    return fabs(product - first_value(row, column)) / (double)size;
}

static int residuals_are_small(void) {
    for (int64_t s = 0; s < SAMPLES; s++) {
        int64_t row = (int64_t)(mix((uint64_t)(2 * s)) % (uint64_t)size);
        int64_t column = (int64_t)(mix((uint64_t)(2 * s + 1)) % (uint64_t)size);
        if (s % 10 == 0) column = row;
        if (!(residual(row, column) < 1e-12)) return 0;
    }
    return 1;
}

/* Whether the same computation in plain memory, by one thread and without blocks, gives the same bits. */
static int agrees(void) {
    double *a = kernel_private((size_t)(size * size) * sizeof *a);
    for (int64_t i = 0; i < size * size; i++) a[i] = first_value(i / size, i % size);
    for (int64_t k = 0; k < size; k++) {
        for (int64_t r = k + 1; r < size; r++) {
            const double f = a[r * size + k] /= a[k * size + k];
            for (int64_t c = k + 1; c < size; c++) a[r * size + c] -= f * a[k * size + c];
        }
    }
    for (int64_t i = 0; i < size * size; i++) {
        if (kernel_bits(a[i]) != kernel_bits(element(i / size, i % size))) return 0;
    }
    return 1;
}

static uint64_t checksum(void) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < size * size; i++) sum = mix(sum ^ kernel_bits(element(i / size, i % size)));
    return sum;
}

int main(int argc, char **argv) {
    const option numbers[] = {
        {"--size", &size, NULL, NULL, "rows of the matrix"},
        {"--block", &block, NULL, NULL, "rows of a block"},
        {"--unit-pages", &unit_pages, NULL, NULL, "pages that move together; 0: those of a block, if it can be"},
    };
    static const preset presets[] = {
        {"tiny", "for tests", {192, 16}},
        {"nautilus", "Nautilus, section 8", {1792, 32}},
        {"jiajia", "as Nautilus", {1792, 32}},
        {"hlrc", "HLRC on UDP, table 1", {2048, 32}},
        {"large", "four times HLRC on UDP", {4096, 32}},
    };
    kernel_start(argc, argv, numbers, COUNT_OF(numbers), presets, COUNT_OF(presets));
    if (block < 1 || size < 1 || size % block != 0 || size > 1 << 20) {
        refuse("lu", "the matrix takes a whole number of blocks, and has at most 2^20 rows");
    }
    blocks = size / block;
    new_shared_matrix();
    comem_parallel(work, NULL);
    if (comem_node() != 0) return kernel_finish(0, 1);
    const int right = residuals_are_small() && (!kernel_check || agrees());
    printf("lu size=%" PRId64 " block=%" PRId64, size, block);
    return kernel_finish(checksum(), right);
}
