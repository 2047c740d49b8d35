/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * sea: the temperature of a sea, cell by cell (DSM/IP, section 4.2; an integer version of SPLASH-2's OCEAN).
 *
 * In every iteration each cell of water becomes the average of its four neighbours; land and the edge keep their
 * temperature. There are two fields, one to read and one to write, which change places after each iteration, so the
 * result is the same, bit for bit, for any number of threads. Rows are dealt out in one block for each thread, and
 * what travels is the rows on either side of the borders between blocks.
 *
 * Temperatures are in units of 0.0001 degrees. Everything is computed in integers, on every machine alike.
 */
#include "common.h"

enum { DEGREE = 10000, LAND = INT32_MIN, RESPLIT = 16, UNIT_CELLS_MAX = 65536 };

static int64_t rows = 512, columns = 512, iterations = 100, unit = -1;
static int ranges, check, weighted;
static const char *dump;

static comem_array_i32 fields[2];
static unsigned char *water; /* 1 where a cell changes */
static double seconds;

/* ---- the sea at first ----------------------------------------------------------------------------------------- */

/* Sine of `phase` (1024 to the circle), times 1024, by parabolas. */
static int64_t wave(int64_t phase) {
    int64_t p = ((phase % 1024) + 1024) % 1024;
    int64_t q = p % 512;
    int64_t height = q * (512 - q) / 64;
    return p < 512 ? height : -height;
}

/* Whether a cell is land: a large island with bays, a small one, and a coast in the south-west. Places are in
 * thousandths of the sea's size. */
static int is_land(int64_t row, int64_t column) {
    int64_t y = row * 1000 / rows, x = column * 1000 / columns;
    int64_t dy = y - 430, dx = x - 560;
    int64_t bay = wave(dx * 3 + dy * 2) / 48 + wave(dy * 5 - dx) / 64;
    if (dx * dx / 2 + dy * dy < (110 + bay) * (110 + bay)) return 1;
    dy = y - 720, dx = x - 800;
    if (dx * dx + dy * dy * 2 < (55 + bay / 2) * (55 + bay / 2)) return 1;
    return (1000 - y) + x + wave(x * 4) / 24 < 330;
}

/* The first temperature: cold in the north, a warm current that winds from the west coast to the north-east, a cold
 * one from the north-west, and eddies between them. */
static int32_t first_temperature(int64_t row, int64_t column) {
    int64_t y = row * 1000 / rows, x = column * 1000 / columns;
    int64_t temperature = 4 * DEGREE + y * 14 * DEGREE / 1000;
    int64_t warm = y - (780 - x / 2 + wave(x * 2) / 16);
    if (warm > -70 && warm < 70) temperature += (70 * 70 - warm * warm) * 11 * DEGREE / (70 * 70);
    int64_t cold = x - (170 + y / 3 + wave(y * 3) / 20);
    if (cold > -60 && cold < 60 && y < 560) temperature -= (60 * 60 - cold * cold) * 9 * DEGREE / (60 * 60);
    temperature += wave(x * 9 + wave(y * 5) / 8) * wave(y * 8) / 1024 * 2 * DEGREE / 1024;
    return (int32_t)(is_land(row, column) ? 14 * DEGREE : temperature);
}

static int is_edge(int64_t row, int64_t column) {
    return row == 0 || column == 0 || row == rows - 1 || column == columns - 1;
}

/* ---- an iteration --------------------------------------------------------------------------------------------- */

/* The next temperature of a cell of water: the average of its neighbours, rounded. */
static inline int32_t average(int32_t north, int32_t south, int32_t west, int32_t east) {
    return (north + south + west + east + 2) >> 2;
}

/* Rows [low, high), element by element. */
static void iterate_elements(comem_array_i32 from, comem_array_i32 to, uint64_t low, uint64_t high) {
    const uint64_t width = (uint64_t)columns;
    for (uint64_t row = low; row < high; row++) {
        for (uint64_t cell = row * width + 1; cell < row * width + width - 1; cell++) {
            if (!water[cell]) continue;
            int32_t next = average(comem_read_i32(from, cell - width), comem_read_i32(from, cell + width),
                                   comem_read_i32(from, cell - 1), comem_read_i32(from, cell + 1));
            comem_write_i32(to, cell, next);
        }
    }
}

/* One row of plain memory: `from` points to the row to read, `to` to the one to write. */
static void iterate_row(const int32_t *from, int32_t *restrict to, const unsigned char *restrict is_water) {
    const int32_t *restrict north = from - columns, *restrict south = from + columns, *restrict here = from;
    const int64_t last = columns - 1;
    for (int64_t i = 1; i < last; i++) {
        int32_t next = average(north[i], south[i], here[i - 1], here[i + 1]);
        int32_t mask = -(int32_t)is_water[i]; /* a choice without a branch, several cells at a time */
        to[i] = (next & mask) | (here[i] & ~mask);
    }
}

/* Rows [low, high), as plain memory between begin and end. */
static void iterate_ranges(comem_array_i32 from, comem_array_i32 to, uint64_t low, uint64_t high) {
    const uint64_t width = (uint64_t)columns;
    if (low == high) return;
    const int32_t *read = comem_read_begin_i32(from, (low - 1) * width, (high + 1) * width);
    int32_t *write = comem_write_begin_i32(to, low * width, high * width);
    for (uint64_t row = 0; row < high - low; row++) {
        iterate_row(read + (row + 1) * width, write + row * width, water + (low + row) * width);
    }
    comem_write_end_i32(to, low * width, high * width);
    comem_read_end_i32(from, (low - 1) * width, (high + 1) * width);
}

/* ---- the run -------------------------------------------------------------------------------------------------- */

/* Writes the first temperatures of rows [low, high) of both fields. */
static void fill(uint64_t low, uint64_t high) {
    const uint64_t width = (uint64_t)columns;
    for (int field = 0; field < 2; field++) {
        int32_t *cells = comem_write_begin_i32(fields[field], low * width, high * width);
        for (uint64_t i = 0; i < (high - low) * width; i++) {
            cells[i] = first_temperature((int64_t)(low + i / width), (int64_t)(i % width));
        }
        comem_write_end_i32(fields[field], low * width, high * width);
    }
}

static void work(void *unused) {
    (void)unused;
    comem_array_i32 from = fields[0], to = fields[1];
    uint64_t low, high;
    comem_split((uint64_t)rows, &low, &high);
    fill(low, high);
    comem_barrier();
    double start = now();
    comem_split((uint64_t)rows - 2, &low, &high);
    for (int64_t i = 0; i < iterations; i++) {
        if (weighted && i % RESPLIT == 0) comem_split_weighted((uint64_t)rows - 2, &low, &high);
        if (ranges) {
            iterate_ranges(from, to, low + 1, high + 1);
        } else {
            iterate_elements(from, to, low + 1, high + 1);
        }
        comem_barrier();
        comem_array_i32 swap = from;
        from = to;
        to = swap;
    }
    if (comem_thread() == 0) seconds = now() - start;
}

/* The same in plain memory, in one thread, without Comem. The caller frees the field. */
static int32_t *run_plainly(void) {
    const size_t cells = (size_t)rows * (size_t)columns;
    int32_t *from = malloc(cells * sizeof *from), *to = malloc(cells * sizeof *to);
    if (!from || !to) refuse("sea", "no memory for the check");
    for (size_t i = 0; i < cells; i++) from[i] = first_temperature((int64_t)i / columns, (int64_t)i % columns);
    memcpy(to, from, cells * sizeof *from);
    for (int64_t i = 0; i < iterations; i++) {
        for (int64_t row = 1; row < rows - 1; row++) {
            iterate_row(from + row * columns, to + row * columns, water + row * columns);
        }
        int32_t *swap = from;
        from = to;
        to = swap;
    }
    free(to);
    return from;
}

static uint64_t checksum(const int32_t *cells) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < rows * columns; i++) sum = mix(sum ^ (uint64_t)(uint32_t)cells[i]);
    return sum;
}

/* Writes the field: rows and columns, then the cells, all int32; land as the smallest number. */
static int write_dump(const int32_t *cells) {
    FILE *file = fopen(dump, "wb");
    if (!file) return -1;
    int32_t size[2] = {(int32_t)rows, (int32_t)columns};
    int bad = fwrite(size, sizeof size, 1, file) != 1;
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t column = 0; column < columns; column++) {
            int32_t cell = is_land(row, column) ? (int32_t)LAND : cells[row * columns + column];
            bad |= fwrite(&cell, sizeof cell, 1, file) != 1;
        }
    }
    return (fclose(file) != 0 || bad) ? -1 : 0;
}

/* Prints the line of results and gives the exit status. */
static int report(void) {
    const uint64_t cells = (uint64_t)rows * (uint64_t)columns;
    comem_array_i32 last = fields[iterations % 2];
    const int32_t *field = comem_read_begin_i32(last, 0, cells);
    printf("sea: %" PRId64 "x%" PRId64 " %" PRId64 " iterations checksum=%016" PRIx64, rows, columns, iterations,
           checksum(field));
    uint64_t wrong = 0;
    int64_t largest = 0;
    if (check) {
        int32_t *expected = run_plainly();
        for (uint64_t i = 0; i < cells; i++) {
            int64_t error = llabs((long long)field[i] - expected[i]);
            wrong += error != 0;
            if (error > largest) largest = error;
        }
        free(expected);
        printf(" wrong=%" PRIu64 " largest_error=%" PRId64, wrong, largest);
    }
    printf(" threads=%d time_s=%.6f %s\n", comem_threads(), seconds, wrong ? "WRONG" : "ok");
    int failed = wrong != 0;
    if (dump && write_dump(field) != 0) {
        fprintf(stderr, "sea: cannot write %s\n", dump);
        failed = 1;
    }
    comem_read_end_i32(last, 0, cells);
    return failed;
}

int main(int argc, char **argv) {
    const option options[] = {
        {"--rows", &rows, NULL, NULL, "rows of the sea"},
        {"--columns", &columns, NULL, NULL, "columns"},
        {"--iterations", &iterations, NULL, NULL, "how often to average"},
        {"--unit", &unit, NULL, NULL, "cells in a coherence unit, 0: chosen by Comem; by default a row"},
        {"--ranges", NULL, NULL, &ranges, "access rows as plain memory instead of cell by cell"},
        {"--weighted", NULL, NULL, &weighted, "deal out rows by the measured speed of the threads"},
        {"--check", NULL, NULL, &check, "compare with a sequential run"},
        {"--dump", NULL, &dump, NULL, "write the last field to this file"},
    };
    if (comem_start_args(&argc, argv) != 0) {
        fprintf(stderr, "%s\n", comem_last_error());
        return 3;
    }
    read_options(argc, argv, options, COUNT_OF(options));
    if (rows < 3 || columns < 3 || rows > INT32_MAX / columns) {
        refuse("sea", "a sea has 3x3 cells or more, and fewer than 2^31");
    }
    if (unit < 0) unit = columns <= UNIT_CELLS_MAX ? columns : 0;
    comem_object_options shared = {0};
    shared.unit_elements = (uint64_t)unit;
    const uint64_t cells = (uint64_t)rows * (uint64_t)columns;
    shared.label = "sea 0";
    fields[0] = comem_new_i32(cells, &shared);
    shared.label = "sea 1";
    fields[1] = comem_new_i32(cells, &shared);
    water = malloc(cells);
    if (!water) refuse("sea", "no memory");
    for (uint64_t i = 0; i < cells; i++) {
        int64_t row = (int64_t)i / columns, column = (int64_t)i % columns;
        water[i] = (unsigned char)(!is_land(row, column) && !is_edge(row, column));
    }
    comem_parallel(work, NULL);
    int failed = comem_node() == 0 ? report() : 0;
    free(water);
    return comem_finish() != 0 || failed;
}
