/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * records.c: records under locks, reader-writer locks, and semaphores used as locks.
 *
 * A record's word 0 counts its steps; each other word is written anew in one step of so many, with a number that
 * follows from the step. So whoever holds the lock knows from word 0 what the others must be, though in which order the
 * threads came he does not; when a phase is over, everybody knows how many steps there were.
 */
#include "random.h"

enum { EVERY_WORD = 1 << 20, FEW_WORDS = 3 };

/* A thread's steps in a phase. */
typedef struct turn {
    dice d;
    int hot; /* the lock that most steps are for; -1: none */
    int looks; /* how closely a record is looked at before its step */
} turn;

void choose_record(region *r, dice *d) {
    const uint64_t room = r->size / WORD;
    r->locks = 1 + roll(d, LOCKS_MAX);
    if (r->locks * 2 > room) r->locks = 1;
    r->words = 2 + roll(d, 60);
    while (r->words * r->locks > room) r->words /= 2;
    r->spacing = one_in(d, 2) ? 1 : room / (r->words * r->locks);
}

static uint64_t place(const region *r, int lock, uint64_t word) {
    return WORD * r->spacing * (word * r->locks + (uint64_t)lock);
}

/* In one of so many steps the word is written. */
static uint64_t period(int lock, uint64_t word) {
    static const uint64_t periods[] = {1, 2, 3, 7, 16, 61};
    return word == 0 ? 1 : periods[(word + (uint64_t)lock) % COUNT_OF(periods)];
}

/* What a word is after so many steps. */
static uint64_t value(const region *r, int lock, uint64_t word, uint64_t steps) {
    const uint64_t last = steps / period(lock, word) * period(lock, word);
    if (word == 0 || last == 0) return last;
    return blend(blend((uint64_t)seed, (uint64_t)(r->number * LOCKS_MAX + lock)), blend(last, word));
}

static void look(const thread *self, const char *what, const region *r, int lock, uint64_t words) {
    const uint64_t steps = *word_at(r, place(r, lock, 0));
    for (uint64_t w = 1; w < r->words && w < words; w++) {
        const uint64_t found = *word_at(r, place(r, lock, w)), due = value(r, lock, w, steps);
        if (found == due) continue;
        char all[128];
        snprintf(all, sizeof all, "%s, lock %d after %" PRIu64 " steps, word %" PRIu64, what, lock, steps, w);
        report(self, all, r, place(r, lock, w), at(r, place(r, lock, w)), found, due);
        return;
    }
}

static void step(const region *r, int lock) {
    const uint64_t steps = *word_at(r, place(r, lock, 0)) + 1;
    for (uint64_t w = r->words; w-- > 0;) {
        if (steps % period(lock, w) == 0) *word_at(r, place(r, lock, w)) = value(r, lock, w, steps);
    }
}

static void acquire(const region *r, int lock, int to_write) {
    const uint64_t name = name_of(r, lock);
    if (r->kind == LOCKS) {
        comem_lock(name);
    } else if (r->kind == SEMAPHORES) {
        comem_sem_wait(name);
    } else if (to_write) {
        comem_wrlock(name);
    } else {
        comem_rdlock(name);
    }
}

static void release(const region *r, int lock) {
    const uint64_t name = name_of(r, lock);
    if (r->kind == LOCKS) {
        comem_unlock(name);
    } else if (r->kind == SEMAPHORES) {
        comem_sem_post(name);
    } else {
        comem_rwunlock(name);
    }
}

static void step_once(const thread *self, const region *r, int lock, int looks, uint64_t key) {
    acquire(r, lock, 1);
    if (looks > 0) look(self, "under a lock", r, lock, looks == 1 ? FEW_WORDS : EVERY_WORD);
    pause_maybe(key);
    step(r, lock);
    if (looks == 3) look(self, "under a lock, after its step", r, lock, EVERY_WORD);
    release(r, lock);
}

static void look_twice(const thread *self, const region *r, int lock, uint64_t key) {
    acquire(r, lock, 0);
    look(self, "to read", r, lock, EVERY_WORD);
    pause_maybe(key);
    look(self, "to read once more", r, lock, EVERY_WORD);
    release(r, lock);
}

/* Two locks at once: steps in either order, released in either order. */
static void step_both(const thread *self, const region *r, int outer, int inner, uint64_t key) {
    const int early = key & 1, crossed = key >> 1 & 1;
    acquire(r, outer, 1);
    if (early) step(r, outer);
    acquire(r, inner, 1);
    look(self, "under two locks, the inner", r, inner, EVERY_WORD);
    step(r, inner);
    if (!early) {
        look(self, "under two locks, the outer", r, outer, EVERY_WORD);
        step(r, outer);
    }
    release(r, crossed ? outer : inner);
    look(self, "under the one of two locks that is left", r, crossed ? inner : outer, EVERY_WORD);
    release(r, crossed ? inner : outer);
}

/* One thing that one thread does; the others note the steps. */
static void one_turn(thread *self, const region *r, turn *t, int mine) {
    uint64_t *steps = self->steps[r->number];
    const int locks = (int)r->locks, any = roll_int(&t->d, locks), to_hot = !one_in(&t->d, 8);
    const int lock = t->hot >= 0 && to_hot ? t->hot : any;
    const uint64_t what = roll(&t->d, 8), key = draw(&t->d);
    if (what < 5) {
        steps[lock]++;
        if (mine) step_once(self, r, lock, t->looks, key);
    } else if (what == 5) {
        if (mine) look_twice(self, r, lock, key);
    } else if (what == 6 && lock + 1 < locks) {
        const int inner = lock + 1 + roll_int(&t->d, locks - lock - 1);
        steps[lock]++;
        steps[inner]++;
        if (mine) step_both(self, r, lock, inner, key);
    } else if (mine) {
        pause_maybe(key);
    }
}

static void use_locks(thread *self, const region *r) {
    dice d = dice_for("locks", self->phase, r->number);
    if (r->kind == SEMAPHORES && !self->begun[r->number]) {
        self->begun[r->number] = 1;
        for (int i = 0; i < (int)r->locks && self->number == 0; i++) comem_sem_post(name_of(r, i));
    }
    const int often = one_in(&d, 6) ? 20 + roll_int(&d, 30) : 1 + roll_int(&d, 5);
    const int some = roll_int(&d, (int)r->locks), hot = one_in(&d, 4) ? some : -1, looks = roll_int(&d, 4);
    for (int t = 0; t < threads(); t++) {
        turn now_on = {dice_for("turns", self->phase, r->number * threads() + t), hot, looks};
        const int turns = one_in(&now_on.d, 4) ? 0 : often;
        for (int i = 0; i < turns; i++) one_turn(self, r, &now_on, t == self->number);
    }
}

/* For each record one thread makes a step without its lock: barriers order it. */
static void step_without_locks(thread *self, const region *r) {
    dice d = dice_for("no locks", self->phase, r->number);
    for (int lock = 0; lock < (int)r->locks; lock++) {
        const int left_out = one_in(&d, 2), who = roll_int(&d, threads());
        if (left_out) continue;
        self->steps[r->number][lock]++;
        if (who != self->number) continue;
        look(self, "without a lock", r, lock, EVERY_WORD);
        step(r, lock);
    }
}

void use_records(thread *self, const region *r) {
    dice d = dice_for("records", self->phase, r->number);
    if (one_in(&d, 6)) {
        step_without_locks(self, r);
    } else {
        use_locks(self, r);
    }
    for (int lock = 0; lock < (int)r->locks; lock++) {
        const uint64_t steps = self->steps[r->number][lock];
        for (uint64_t w = 0; w < r->words; w++) expect(self, r, place(r, lock, w), value(r, lock, w, steps));
    }
}
