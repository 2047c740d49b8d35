/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * atomics: operations on single words of shared memory, loops dealt out, and the barrier of nodes. The same source
 * runs on one node and many, sequentially, and with plain threads.
 */
#include <comem.h>

#include "check.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 200, ITEMS = 3000, PAGE = 4096, PLACES = 5, SWITCHES = 3 };

/* Words of all kinds beside each other, plain data among them, and the same at another home. */
typedef struct words {
    int64_t count;
    int64_t plain;
    uint64_t bits;
    double sum;
    int64_t least, greatest;
    uint32_t narrow;
    int32_t neighbour;
    uint64_t swapped;
    int64_t ticket;
} words;

static words *at[PLACES]; /* under each placement */
static int64_t *owner;    /* who has got each item, plus one */
static int64_t *message;  /* what an ordered operation tells of */

static void operations(words *w) {
    const int me = comem_thread(), threads = comem_threads();
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t old = comem_fetch_add_relaxed_i64(&w->count, 1);
        CHECK(old >= i && old < (int64_t)threads * ROUNDS);
        comem_fetch_add_relaxed_f64(&w->sum, 0.5);
        comem_fetch_sub_relaxed_u32(&w->narrow, 1);
        if (i % 16 == 0) comem_fetch_min_relaxed_i64(&w->least, -(int64_t)(me * ROUNDS + i));
        if (i % 16 == 0) comem_fetch_max_relaxed_i64(&w->greatest, me * ROUNDS + i);
    }
    comem_fetch_or_relaxed_u64(&w->bits, UINT64_C(1) << me);
    uint64_t seen = comem_load_relaxed_u64(&w->swapped);
    for (;;) {
        const uint64_t found = comem_compare_exchange_relaxed_u64(&w->swapped, seen, seen + 3);
        if (found == seen) break;
        seen = found;
    }
    comem_barrier();
    /* Behind a barrier plain loads see what the operations have left. */
    const int64_t last = (threads - 1) * ROUNDS + (ROUNDS - 1) / 16 * 16;
    CHECK(w->count == (int64_t)threads * ROUNDS);
    CHECK(w->sum == 0.5 * threads * ROUNDS);
    CHECK(w->narrow == (uint32_t)-(threads * ROUNDS) && w->neighbour == 77);
    CHECK(w->least == -last && w->greatest == last);
    CHECK(w->bits == (threads < 64 ? (UINT64_C(1) << threads) - 1 : ~UINT64_C(0)));
    CHECK(w->swapped == 3 * (uint64_t)threads);
    comem_barrier();
    /* And operations find what was stored plainly before it, by whatever thread, also if it is what stood there
     * once. */
    for (int round = 0; round < SWITCHES; round++) {
        if (me == round % threads) w->count = round == 1 ? 0 : 1000;
        comem_barrier();
        const int64_t got = comem_fetch_add_relaxed_i64(&w->count, 2);
        CHECK(got >= (round == 1 ? 0 : 1000) && got % 2 == 0);
        comem_barrier();
        CHECK(w->count == (round == 1 ? 0 : 1000) + 2 * threads);
        comem_barrier();
    }
    /* A thread's own plain store comes before its operation, and its plain load behind it. */
    if (me == threads - 1) {
        w->plain = 40;
        CHECK(comem_fetch_add_relaxed_i64(&w->plain, 2) == 40);
        CHECK(w->plain == 42);
        w->plain += 1;
        CHECK(comem_exchange_relaxed_i64(&w->plain, 5) == 43 && w->plain == 5);
    }
    comem_barrier();
    CHECK(w->plain == 5);
    comem_barrier();
    /* Under a lock, plain accesses and operations on one word: as on one machine. */
    for (int i = 0; i < 10; i++) {
        comem_lock(5);
        if ((i + me) % 2) {
            w->plain += 1;
        } else {
            comem_fetch_add_relaxed_i64(&w->plain, 1);
        }
        comem_unlock(5);
    }
    comem_barrier();
    CHECK(w->plain == 5 + 10 * threads);
    comem_barrier();
}

/* Tickets taken by ordered operations order what their holders do: each finds all messages of those before it. */
static void in_order(words *w) {
    for (int i = 0; i < 20; i++) {
        message[(size_t)comem_thread() * 64] += 1; /* each thread's own line; read by others behind their tickets */
        const int64_t ticket = comem_fetch_add_i64(&w->ticket, 1);
        int64_t seen = 0;
        for (int t = 0; t < comem_threads(); t++) seen += ((volatile int64_t *)message)[(size_t)t * 64];
        CHECK(seen >= ticket + 1);
    }
    comem_barrier();
    CHECK(comem_load_i64(&w->ticket) == 20 * comem_threads());
    comem_barrier();
    if (comem_thread() == 0) comem_store_i64(&w->ticket, 0);
    comem_barrier();
}

static void take(uint64_t low, uint64_t high, void *argument) {
    uint64_t *most = (uint64_t *)argument;
    if (high - low > *most) *most = high - low;
    for (uint64_t i = low; i < high; i++) {
        CHECK(owner[i] == 0);
        owner[i] = comem_thread() + 1;
    }
}

static void loops(void) {
    const uint64_t totals[] = {ITEMS, 1, 0, 17, ITEMS}, chunks[] = {7, 4, 3, 1, 0};
    for (int i = 0; i < 5; i++) {
        uint64_t most = 0;
        CHECK(comem_for_dynamic(totals[i], chunks[i], take, &most) == 0);
        if (chunks[i]) CHECK(most <= chunks[i]);
        comem_barrier();
        for (uint64_t j = 0; j < ITEMS; j++) CHECK((owner[j] != 0) == (j < totals[i]));
        comem_barrier();
        if (comem_thread() == 0) memset(owner, 0, ITEMS * sizeof *owner);
        comem_barrier();
    }
    /* One after the other with nothing between them. */
    uint64_t most = 0;
    for (int i = 0; i < 200; i++) comem_for_dynamic(0, 1, take, &most);
    CHECK(most == 0);
    comem_barrier();
}

static void work(void *unused) {
    (void)unused;
    comem_barrier();
    for (int i = 0; i < PLACES; i++) operations(at[i]);
    in_order(at[0]);
    in_order(at[2]);
    loops();
}

int main(void) {
    if (comem_start() != 0) return 1;
    static const int placements[PLACES] = {COMEM_HOME_BLOCK, COMEM_HOME_CYCLIC, COMEM_HOME_ON, COMEM_HOME_FIRST_TOUCH,
                                           COMEM_HOME_AUTOMATIC};
    for (int i = 0; i < PLACES; i++) {
        comem_region_options options;
        memset(&options, 0, sizeof options);
        options.home = placements[i];
        options.home_number = i == 2 ? comem_nodes() - 1 : 0;
        at[i] = (words *)comem_alloc_all(PAGE, &options);
        if (comem_node() == 0) at[i]->neighbour = 77;
    }
    owner = (int64_t *)comem_alloc_all(ITEMS * sizeof *owner, NULL);
    message = (int64_t *)comem_alloc_all((size_t)comem_threads() * 64 * sizeof *message, NULL);
    comem_parallel(work, NULL);
    /* Each node's main thread writes, and all meet without the others. */
    owner[comem_node()] = 100 + comem_node();
    CHECK(comem_node_barrier() == 0);
    for (int node = 0; node < comem_nodes(); node++) CHECK(owner[node] == 100 + node);
#if !defined(__cplusplus)
    if (comem_node() == 0) {
        uint32_t *word = &at[0]->narrow;
        const uint32_t before = comem_load(word);
        CHECK(comem_fetch_add(word, 3) == before && comem_fetch_add_relaxed(word, 1) == before + 3);
        CHECK(comem_compare_exchange(word, before + 4, 9) == before + 4 && comem_exchange(&at[0]->sum, 1.5) > 0);
        CHECK(comem_load_relaxed(&at[0]->sum) == 1.5);
    }
#endif
    CHECK(comem_node_barrier() == 0);
    comem_fetch_add_i64(&at[1]->ticket, failures);
    CHECK(comem_node_barrier() == 0);
    if (comem_node() == 0) printf("atomics: %s\n", at[1]->ticket == 0 && failures == 0 ? "ok" : "wrong");
    const int code = comem_finish();
    return failures || code;
}
