/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * sor: red-black over-relaxation on a grid (Rice University's SOR; Nautilus, section 7; HLRC on UDP, section 4.2).
 *
 * The cells of a grid are red and black like a chessboard's, each colour in an array of its own. An iteration makes
 * every red cell the mean of its four black neighbours, then, after a barrier, every black cell the mean of its red
 * ones; the edge keeps its values. Each thread has a block of rows, in pages that are at home with it, and what
 * travels is the rows on either side of the borders. The result is the same, bit for bit, for any number of threads.
 */
#include "kernel.h"

enum { RED, BLACK };

/* What relaxes no more cells than that is always done again by one thread, in some tenths of a second; --check asks for
 * it beyond. */
enum { CELLS_CHECKED = 1 << 28 };

static int64_t rows = 512, columns = 512, iterations = 10;

/* The rows of both colours, by number. A row of one colour has columns / 2 cells. */
typedef struct grid {
    float **colour[2];
} grid;

static grid shared;

/* ---- the computation ------------------------------------------------------------------------------------------- */

static float first_value(int64_t row, int64_t column) {
    return (float)(mix((uint64_t)(row * columns + column)) >> 40) * 0x1p-24f;
}

/* The column of cell `k` of a row of one colour: red cells have an even sum of row and column. */
static int64_t column_of(int colour, int64_t row, int64_t k) {
    return 2 * k + ((row + colour) & 1);
}

static void fill(grid g, int64_t low, int64_t high) {
    for (int colour = RED; colour <= BLACK; colour++) {
        for (int64_t row = low; row < high; row++) {
            for (int64_t k = 0; k < columns / 2; k++) {
                g.colour[colour][row][k] = first_value(row, column_of(colour, row, k));
            }
        }
    }
}

/* Relaxes the cells of one colour in rows [low, high). The neighbours above and below have the cell's own index in
 * their row of the other colour; of those beside it one has, and the other is before it or behind. */
KERNEL_HOT static void relax(grid g, int colour, int64_t low, int64_t high) {
    for (int64_t row = low > 1 ? low : 1; row < high && row < rows - 1; row++) {
        const int odd = (int)((row + colour) & 1);
        const float *above = g.colour[!colour][row - 1], *below = g.colour[!colour][row + 1];
        const float *beside = g.colour[!colour][row], *other = beside + (odd ? 1 : -1);
        float *restrict here = g.colour[colour][row];
        for (int64_t k = !odd, end = columns / 2 - odd; k < end; k++) {
            here[k] = 0.25f * ((above[k] + below[k]) + (beside[k] + other[k]));
        }
    }
}

static void iterate(int64_t low, int64_t high) {
    relax(shared, RED, low, high);
    comem_barrier();
    relax(shared, BLACK, low, high);
    comem_barrier();
}

static void work(void *unused) {
    (void)unused;
    int64_t low, high;
    kernel_part(rows, comem_threads(), comem_thread(), &low, &high);
    fill(shared, low, high);
    comem_barrier();
    iterate(low, high); /* to warm up */
    double start = now();
    for (int64_t i = 0; i < iterations; i++) iterate(low, high);
    if (comem_thread() == 0) kernel_seconds = now() - start;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* The bytes from one row to the next: whole pages where that wastes little, else whole cache lines. */
static size_t row_bytes(void) {
    const size_t exact = (size_t)columns / 2 * sizeof(float), pages = kernel_round_up(exact, KERNEL_PAGE);
    return pages - exact <= pages / 4 ? pages : kernel_round_up(exact, KERNEL_LINE);
}

/* Finds the rows in the threads' parts; both colours of a row belong to the same thread. */
static grid new_shared_grid(void) {
    const int threads = comem_threads();
    size_t *bytes = kernel_private((size_t)threads * sizeof *bytes);
    void **parts = kernel_private((size_t)threads * sizeof *parts);
    grid g;
    for (int colour = RED; colour <= BLACK; colour++) {
        int64_t low, high;
        for (int t = 0; t < threads; t++) {
            kernel_part(rows, threads, t, &low, &high);
            bytes[t] = (size_t)(high - low) * row_bytes();
        }
        kernel_alloc_parts(colour == RED ? "red" : "black", bytes, parts);
        g.colour[colour] = kernel_private((size_t)rows * sizeof(float *));
        for (int t = 0; t < threads; t++) {
            kernel_part(rows, threads, t, &low, &high);
            char *part = parts[t];
            for (int64_t row = low; row < high; row++) {
                g.colour[colour][row] = (float *)(void *)(part + (size_t)(row - low) * row_bytes());
            }
        }
    }
    return g;
}

static grid new_private_grid(void) {
    grid g;
    for (int colour = RED; colour <= BLACK; colour++) {
        g.colour[colour] = kernel_private((size_t)rows * sizeof(float *));
        for (int64_t row = 0; row < rows; row++) {
            g.colour[colour][row] = kernel_private((size_t)columns / 2 * sizeof(float));
        }
    }
    return g;
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

/* Whether the same computation in plain memory, by one thread, gives the same bits. */
static int agrees(void) {
    grid g = new_private_grid();
    fill(g, 0, rows);
    for (int64_t i = 0; i <= iterations; i++) {
        relax(g, RED, 0, rows);
        relax(g, BLACK, 0, rows);
    }
    int same = 1;
    for (int colour = RED; colour <= BLACK; colour++) {
        for (int64_t row = 0; row < rows; row++) {
            same &= memcmp(g.colour[colour][row], shared.colour[colour][row], (size_t)columns / 2 * sizeof(float)) == 0;
        }
    }
    return same;
}

static uint64_t checksum(void) {
    uint64_t sum = 0;
    for (int colour = RED; colour <= BLACK; colour++) {
        for (int64_t row = 0; row < rows; row++) {
            const float *cells = shared.colour[colour][row];
            for (int64_t k = 0; k < columns / 2; k++) sum = mix(sum ^ kernel_bits((double)cells[k]));
        }
    }
    return sum;
}

int main(int argc, char **argv) {
    const option numbers[] = {
        {"--rows", &rows, NULL, NULL, "rows of the grid"},
        {"--columns", &columns, NULL, NULL, "columns, an even number"},
        {"--iterations", &iterations, NULL, NULL, "iterations, after one to warm up"},
    };
    static const preset presets[] = {
        {"tiny", "for tests", {130, 256, 5}},
        {"nautilus", "Nautilus, section 8", {1792, 1792, 10}},
        {"jiajia", "as Nautilus", {1792, 1792, 10}},
        {"hlrc", "HLRC on UDP, table 1", {2096, 2096, 8}},
        {"brazos", "Brazos, table 2", {2048, 2048, 10}},
        {"large", "four times Nautilus", {3584, 3584, 10}},
    };
    kernel_start(argc, argv, numbers, COUNT_OF(numbers), presets, COUNT_OF(presets));
    if (rows < 3 || columns < 4 || columns % 2 != 0) refuse("sor", "a grid has 3 rows or more and an even 4 columns");
    shared = new_shared_grid();
    comem_parallel(work, NULL);
    if (comem_node() != 0) return kernel_finish(0, 1);
    const int affordable = (double)rows * (double)columns * (double)(iterations + 1) <= CELLS_CHECKED;
    const int verdict = kernel_check || affordable ? agrees() : KERNEL_UNCHECKED;
    printf("sor rows=%" PRId64 " columns=%" PRId64 " iterations=%" PRId64, rows, columns, iterations);
    return kernel_finish(checksum(), verdict);
}
