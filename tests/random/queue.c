/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * queue.c: a queue under a lock, whose users wait for room and for items by condition variables. Word 0 counts what was
 * taken, word 1 what was put in; items follow, in a ring.
 */
#include "random.h"

enum { TAKEN = 0, PUT = WORD, ITEMS = 64, LOCK = 0, ROOM, NEWS };

/* What a phase does with a queue. */
typedef struct queue {
    const region *r;
    uint64_t words, room; /* of an item; items that there is room for */
    uint64_t total;       /* items that pass in this phase */
    uint64_t producers, consumers, place; /* how many threads put, how many take, which of them this is */
    int to_all;           /* signals are broadcasts */
    uint64_t key;
} queue;

static queue queue_for(const thread *self, const region *r) {
    dice fixed = dice_for("queues", 0, r->number), d = dice_for("queue", self->phase, r->number);
    const uint64_t all = (uint64_t)threads();
    queue q = {.r = r, .words = 1 + roll(&fixed, 40), .room = 1 + roll(&fixed, 6)};
    if (ITEMS + q.room * q.words * WORD > r->size) q.words = q.room = 1;
    q.producers = 1 + roll(&d, all - 1);
    q.consumers = all - q.producers;
    q.place = ((uint64_t)self->number + roll(&d, all)) % all;
    q.total = 1 + roll(&d, 30);
    q.to_all = one_in(&d, 3);
    q.key = draw(&d);
    return q;
}

static uint64_t item_at(const queue *q, uint64_t item) {
    return ITEMS + item % q->room * q->words * WORD;
}

static uint64_t item_word(const queue *q, uint64_t item, uint64_t word) {
    return blend(blend((uint64_t)seed, (uint64_t)q->r->number), blend(item, word));
}

static void tell(const queue *q, int condition) {
    if (q->to_all) {
        comem_cond_broadcast(name_of(q->r, condition));
    } else {
        comem_cond_signal(name_of(q->r, condition));
    }
}

static void put(const queue *q) {
    volatile uint64_t *taken = word_at(q->r, TAKEN), *last = word_at(q->r, PUT);
    comem_lock(name_of(q->r, LOCK));
    while (*last - *taken >= q->room) comem_cond_wait(name_of(q->r, ROOM), name_of(q->r, LOCK));
    const uint64_t item = *last;
    for (uint64_t w = 0; w < q->words; w++) *word_at(q->r, item_at(q, item) + w * WORD) = item_word(q, item, w);
    *last = item + 1;
    tell(q, NEWS);
    comem_unlock(name_of(q->r, LOCK));
}

static void take(const thread *self, const queue *q) {
    volatile uint64_t *taken = word_at(q->r, TAKEN), *last = word_at(q->r, PUT);
    comem_lock(name_of(q->r, LOCK));
    while (*last == *taken) comem_cond_wait(name_of(q->r, NEWS), name_of(q->r, LOCK));
    const uint64_t item = *taken;
    for (uint64_t w = 0; w < q->words; w++) {
        const uint64_t offset = item_at(q, item) + w * WORD, found = *word_at(q->r, offset);
        if (found == item_word(q, item, w)) continue;
        report(self, "item of a queue", q->r, offset, at(q->r, offset), found, item_word(q, item, w));
        break;
    }
    *taken = item + 1;
    tell(q, ROOM);
    comem_unlock(name_of(q->r, LOCK));
}

/* So many of `total` fall to one of `parts`. */
static uint64_t share(uint64_t total, uint64_t part, uint64_t parts) {
    return total / parts + (part < total % parts);
}

static void note(thread *self, const queue *q) {
    uint64_t *passed = &self->passed[q->r->number];
    for (const uint64_t end = *passed + q->total; *passed < end; ++*passed) {
        for (uint64_t w = 0; w < q->words; w++) {
            expect(self, q->r, item_at(q, *passed) + w * WORD, item_word(q, *passed, w));
        }
    }
    expect(self, q->r, TAKEN, *passed);
    expect(self, q->r, PUT, *passed);
}

void use_queue(thread *self, const region *r) {
    if (threads() == 1) return;
    const queue q = queue_for(self, r);
    const int puts = q.place < q.producers;
    const uint64_t among = puts ? q.producers : q.consumers, place = puts ? q.place : q.place - q.producers;
    const uint64_t mine = share(q.total, place, among);
    for (uint64_t i = 0; i < mine; i++) {
        if (puts) {
            put(&q);
        } else {
            take(self, &q);
        }
        pause_maybe(blend(q.key ^ i, q.place));
    }
    note(self, &q);
}
