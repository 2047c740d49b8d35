/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * ranges: what is written within a range of elements stays, whatever the thread does meanwhile, and ends without a
 * beginning are refused; two nodes.
 */
#include <comem.h>

#include "check.h"

#include <stdio.h>
#include <string.h>

enum { ROUNDS = 50, UNIT = 16 };

static comem_array_i64 a, b; /* of one unit each, at node 1 */
static int refused;

static void note(int code, const char *message, void *unused) {
    (void)message, (void)unused;
    refused += code == COMEM_E_MISUSE;
}

/* Node 0 writes its elements of a unit of which node 1 wants others each time that node 0 waits. */
static void crossed(void) {
    for (int64_t round = 1; round <= ROUNDS; round++) {
        if (comem_node() == 1) {
            comem_flag_wait(1, (uint64_t)round);
            comem_write_i64(a, UNIT - 1, round);
            comem_flag_set(2, (uint64_t)round);
            comem_flag_wait(3, (uint64_t)round);
            comem_write_i64(a, UNIT - 1, -round);
            comem_flag_set(4, (uint64_t)round);
            continue;
        }
        CHECK(comem_read_begin_i64(a, 4, 8) != NULL);
        int64_t *mine = comem_write_begin_i64(a, 0, 4);
        CHECK(comem_read_end_i64(a, 4, 8) == 0);
        comem_flag_set(1, (uint64_t)round);
        comem_flag_wait(2, (uint64_t)round);
        mine[0] = round;
        CHECK(comem_write_end_i64(a, 0, 4) == 0);
        comem_flag_set(3, (uint64_t)round);
        comem_flag_wait(4, (uint64_t)round);
        CHECK(comem_read_i64(a, 0) == round);
    }
}

/* What is read goes into a range of a unit that node 1 takes while node 0 waits for what it reads. */
static void read_into_a_range(void) {
    for (int64_t round = 1; round <= ROUNDS; round++) {
        if (comem_node() == 1) {
            comem_write_i64(b, 3, round);
            comem_flag_set(5, (uint64_t)round);
            for (int i = 0; i < 40; i++) comem_write_i64(a, UNIT - 1, i);
            comem_flag_wait(6, (uint64_t)round);
            continue;
        }
        comem_flag_wait(5, (uint64_t)round);
        int64_t *mine = comem_write_begin_i64(a, 0, 4);
        mine[2] = -7;
        CHECK(comem_read(b.any, 3, &mine[2]) == 0 && mine[2] == round);
        CHECK(comem_write_end_i64(a, 0, 4) == 0);
        CHECK(comem_read_i64(a, 2) == round);
        comem_flag_set(6, (uint64_t)round);
    }
}

static void unmatched_ends(void) {
    comem_barrier();
    if (comem_node() != 0) return;
    comem_write_i64(b, 5, 55);
    refused = 0;
    CHECK(comem_write_end_i64(b, 5, 6) == COMEM_E_MISUSE); /* never begun */
    CHECK(comem_read_begin_i64(b, 4, 8) != NULL);
    CHECK(comem_write_end_i64(b, 4, 8) == COMEM_E_MISUSE); /* begun to read */
    CHECK(comem_read_end_i64(b, 4, 7) == COMEM_E_MISUSE);  /* other bounds */
    CHECK(comem_read_end_i64(b, 4, 8) == 0);
    CHECK(comem_read_end_i64(b, 4, 8) == COMEM_E_MISUSE); /* ended before */
    CHECK(comem_read_end_i64(b, 3, 3) == 0);              /* nothing needs no beginning */
    CHECK(refused == 4 && comem_read_i64(b, 5) == 55);
}

/* A collective call that fails has had no effect: the range is still lent, and what was to be reduced is as it was. */
static void failed_calls(void) {
    double values[200];
    for (int i = 0; i < 200; i++) values[i] = i;
    comem_barrier();
    int64_t *mine = comem_node() == 0 ? comem_write_begin_i64(a, 0, 4) : NULL;
    CHECK(comem_reduce_f64(COMEM_SUM, values, comem_node() == 0 ? 150 : 200) == COMEM_E_MISUSE);
    for (int i = 0; i < 200; i++) CHECK(values[i] == i);
    if (comem_node() == 1) {
        comem_flag_wait(7, 1);
        comem_write_i64(a, UNIT - 1, 1);
        comem_flag_set(8, 1);
        comem_flag_wait(9, 1); /* never: node 0 ends the job */
    }
    comem_flag_set(7, 1);
    comem_flag_wait(8, 1);
    mine[1] = 77;
    CHECK(comem_write_end_i64(a, 0, 4) == 0);
    CHECK(comem_read_i64(a, 1) == 77 && comem_read_i64(a, UNIT - 1) == 1);
}

/* Of no numbers too a reduction is a barrier. */
static void nothing_reduced(void) {
    if (comem_node() == 1) comem_write_i64(b, 9, 99);
    CHECK(comem_reduce_f64(COMEM_SUM, NULL, 0) == 0);
    CHECK(comem_read_i64(b, 9) == 99);
}

/* With an argument, the calls that fail: collective calls have come apart then, so node 0 ends the job, with status
 * 42. */
int main(int argc, char **argv) {
    const comem_object_options options = {.unit_elements = UNIT, .home = COMEM_HOME_ON, .home_number = 1};
    CHECK(comem_start() == 0 && comem_nodes() == 2);
    comem_set_error_handler(note, NULL);
    a = comem_new_i64(UNIT, &options);
    b = comem_new_i64(UNIT, &options);
    comem_barrier();
    if (argc > 1) {
        (void)argv;
        failed_calls();
        comem_abort(failures == 0 ? 42 : 1, "ranges: over");
    }
    crossed();
    comem_barrier();
    read_into_a_range();
    comem_barrier();
    unmatched_ends();
    comem_barrier();
    nothing_reduced();
    const int node = comem_node();
    CHECK(comem_finish() == 0);
    if (failures == 0 && node == 0) puts("ranges: ok");
    return failures != 0;
}
