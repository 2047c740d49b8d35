/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * signals.c: one thread writes outside of any lock and says so, and others read once they have been told: by flags, by
 * semaphores, by barriers of some of the threads, by signs under locks.
 */
#include "random.h"

#ifdef COMEM_PTHREADS
/* Barriers of some threads, over plain ones: each stays in use by the same threads while it is full. */
static void meet(uint64_t name, int count) {
    static struct {
        uint64_t name;
        int arrived, rounds;
    } places[4 * REGIONS_MAX];
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    size_t i = 0;
    while (places[i].rounds + places[i].arrived > 0 && places[i].name != name) i++;
    places[i].name = name;
    const int round = places[i].rounds;
    if (++places[i].arrived == count) {
        places[i].arrived = 0;
        places[i].rounds++;
        pthread_cond_broadcast(&changed);
    }
    while (places[i].rounds == round) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}
#else
/* BARRIER of the PARMACS macros. */
extern void comem_barrier_of(uint64_t name, unsigned threads);
static void meet(uint64_t name, int count) {
    comem_barrier_of(name, (unsigned)count);
}
#endif

/* A thread's part of a region, or of what comes behind its first bytes. */
static span part_of(const region *r, uint64_t behind, int who) {
    const uint64_t length = (r->size - behind) / (uint64_t)threads();
    return (span){behind + length * (uint64_t)who, length};
}

static span some_of(dice *d, const region *r, uint64_t behind) {
    const uint64_t room = r->size - behind, length = 1 + roll(d, room);
    return (span){behind + roll(d, room - length + 1), length};
}

/* Most threads write their parts and raise a flag; most wait for most flags and read. */
void use_broadcast(thread *self, const region *r) {
    const uint64_t value = ++self->passed[r->number];
    for (int from = 0; from < threads(); from++) {
        dice d = dice_for("broadcast", self->phase, r->number * threads() + from);
        if (one_in(&d, 3)) continue;
        change(self, r, part_of(r, 0, from), draw(&d), from == self->number);
        if (from == self->number) comem_flag_set(name_of(r, from), value);
    }
    for (int i = 0; i < threads(); i++) {
        const int from = (self->number + i) % threads();
        dice d = dice_for("broadcast", self->phase, r->number * threads() + from);
        if (one_in(&d, 3) || blend(draw(&d), (uint64_t)self->number) % 3 == 0) continue;
        comem_flag_wait(name_of(r, from), value);
        check(self, "behind a flag", r, part_of(r, 0, from));
    }
}

/* The flag goes from thread to thread; who has it may write anywhere. */
void use_ring(thread *self, const region *r) {
    dice d = dice_for("ring", self->phase, r->number);
    const int steps = threads() * (1 + roll_int(&d, 4)), first = roll_int(&d, threads()), in_turn = one_in(&d, 2);
    uint64_t *passed = &self->passed[r->number];
    for (int i = 0; i < steps; i++, ++*passed) {
        const int any = roll_int(&d, threads()), who = in_turn ? (first + i) % threads() : any, all = one_in(&d, 2);
        const int mine = who == self->number;
        const span s = some_of(&d, r, 0);
        const uint64_t key = draw(&d);
        if (mine) {
            comem_flag_wait(name_of(r, 0), *passed);
            check(self, "in a ring", r, all ? (span){0, r->size} : s);
        }
        change(self, r, s, key, mine);
        if (!mine) continue;
        pause_maybe(key);
        comem_flag_set(name_of(r, 0), *passed + 1);
    }
}

/* A pipe from one thread to another: semaphores count its empty and its full slots. */
typedef struct pipe_of {
    const region *r;
    uint64_t empty, full;
    span slot; /* the first one */
    uint64_t slots;
    int puts, takes, tries;
} pipe_of;

static void pass_item(thread *self, const pipe_of *p, uint64_t item, uint64_t key) {
    const span s = {p->slot.offset + item % p->slots * p->slot.length, p->slot.length};
    if (p->puts && p->tries) {
        while (comem_sem_trywait(p->empty) != 1) usleep(100);
    } else if (p->puts) {
        comem_sem_wait(p->empty);
    }
    if (p->puts) check(self, "empty slot of a pipe", p->r, s);
    change(self, p->r, s, key, p->puts);
    if (p->puts) {
        comem_sem_post(p->full);
        pause_maybe(key);
    }
    if (p->takes) {
        comem_sem_wait(p->full);
        check(self, "full slot of a pipe", p->r, s);
    }
    /* Who takes an item writes too. */
    unsigned char *mark = model_at(self, p->r, s.offset);
    ++*mark;
    if (!p->takes) return;
    *(volatile unsigned char *)at(p->r, s.offset) = *mark;
    comem_sem_post(p->empty);
}

void use_pipes(thread *self, const region *r) {
    dice fixed = dice_for("slots", 0, r->number), d = dice_for("pipes", self->phase, r->number);
    const int pairs = threads() / 2, first = !self->begun[r->number];
    const uint64_t slots = 1 + roll(&fixed, 5);
    if (pairs == 0) return;
    const uint64_t part = r->size / (uint64_t)pairs / WORD * WORD, length = part / slots;
    if (length < WORD) return;
    self->begun[r->number] = 1;
    const uint64_t items = one_in(&d, 5) ? 40 : 1 + roll(&d, 12);
    const int tries = one_in(&d, 4), turned = roll_int(&d, 2), shift = roll_int(&d, 2 * pairs);
    for (int i = 0; i < pairs; i++) {
        const int from = (2 * i + turned + shift) % (2 * pairs), to = (2 * i + 1 - turned + shift) % (2 * pairs);
        const pipe_of p = {
            .r = r, .empty = name_of(r, 2 * i), .full = name_of(r, 2 * i + 1), .slots = slots, .tries = tries,
            .slot = {part * (uint64_t)i, length}, .puts = from == self->number, .takes = to == self->number,
        };
        for (uint64_t k = 0; first && p.takes && k < slots; k++) comem_sem_post(p.empty);
        for (uint64_t k = 0; k < items; k++) pass_item(self, &p, k, draw(&d));
    }
}

static void change_of_round(const thread *self, const region *r, int who, int round, int writes) {
    dice d = dice_for("meeting", self->phase, (r->number * threads() + who) * 8 + round);
    change(self, r, part_of(r, 0, who), draw(&d), writes);
}

/* One round of one group: all write, and then all read. */
static void meet_once(const thread *self, const region *r, int group, int size, int round) {
    for (int i = 0; i < size; i++) change_of_round(self, r, group * size + i, round, group * size + i == self->number);
    meet(name_of(r, group), size);
    for (int i = 0; i < size; i++) {
        if (mix((uint64_t)(self->phase * threads() + i + self->number * 31)) % 2 == 0) continue;
        check(self, "after a barrier of some", r, part_of(r, 0, group * size + i));
    }
    meet(name_of(r, group), size);
}

/* One or two groups of threads have barriers of their own. */
void use_meetings(thread *self, const region *r) {
    dice d = dice_for("meetings", self->phase, r->number);
    if (threads() < 2) return;
    const int groups = 1 + roll_int(&d, 2), rounds = 1 + roll_int(&d, 4), size = threads() / groups;
    for (int group = 0; group < groups; group++) {
        const int mine = self->number / size == group;
        for (int round = 0; round < rounds; round++) {
            if (mine) meet_once(self, r, group, size, round);
            for (int i = 0; i < size && !mine; i++) change_of_round(self, r, group * size + i, round, 0);
        }
    }
}

/* Signs: a word for each thread, under one of `locks` locks. */
typedef struct signs {
    const region *r;
    int locks;
    uint64_t value;
} signs;

static void give_sign(const signs *s, int who) {
    comem_lock(name_of(s->r, who % s->locks));
    *word_at(s->r, (uint64_t)who * WORD) = s->value;
    comem_unlock(name_of(s->r, who % s->locks));
}

static void await_sign(const signs *s, int from) {
    for (;;) {
        comem_lock(name_of(s->r, from % s->locks));
        const uint64_t found = *word_at(s->r, (uint64_t)from * WORD);
        comem_unlock(name_of(s->r, from % s->locks));
        if (found >= s->value) return;
        usleep(30);
    }
}

/* Each waits for the sign of the one before, and may write anywhere. */
static void hand_on(const thread *self, const signs *s, uint64_t behind, dice *d) {
    const int first = roll_int(d, threads());
    for (int i = 0; i < threads(); i++) {
        const int who = (first + i) % threads(), mine = who == self->number, all = one_in(d, 2);
        const span where = some_of(d, s->r, behind);
        const uint64_t key = draw(d);
        if (mine && i > 0) await_sign(s, (first + i - 1) % threads());
        if (mine) check(self, "handed on", s->r, all ? (span){behind, s->r->size - behind} : where);
        change(self, s->r, where, key, mine);
        if (!mine) continue;
        pause_maybe(key);
        give_sign(s, who);
    }
}

/* All write their parts, and most read most of the others'. */
static void sign_all(const thread *self, const signs *s, uint64_t behind, dice *d) {
    for (int i = 0; i < threads(); i++) {
        change(self, s->r, part_of(s->r, behind, i), draw(d), i == self->number);
        if (i == self->number) give_sign(s, i);
    }
    for (int i = 0; i < threads(); i++) {
        const int from = (self->number + i) % threads();
        if (blend(d->key, (uint64_t)(from * threads() + self->number)) % 3 == 0) continue;
        await_sign(s, from);
        check(self, "behind a sign", s->r, part_of(s->r, behind, from));
    }
}

void use_signs(thread *self, const region *r) {
    dice d = dice_for("signs", self->phase, r->number);
    const uint64_t behind = WORD * (uint64_t)threads();
    if (r->size < 9 * behind) return;
    const int chain = one_in(&d, 2);
    const signs s = {r, 1 + roll_int(&d, threads()), ++self->passed[r->number]};
    if (chain) {
        hand_on(self, &s, behind, &d);
    } else {
        sign_all(self, &s, behind, &d);
    }
    for (int i = 0; i < threads(); i++) expect(self, r, (uint64_t)i * WORD, s.value);
}

/* Under `msi`: counters that all add to, and bytes that are published by an atomic store. */
void use_atomics(thread *self, const region *r) {
    dice d = dice_for("atomics", self->phase, r->number);
    const uint64_t counters = r->size / WORD / 2, times = 1 + roll(&d, 8), room = r->size - counters * WORD;
    const span data = {counters * WORD, room < 2048 ? room : 2048};
    const int from = roll_int(&d, threads()), read = one_in(&d, 2);
    uint64_t *words = (uint64_t *)(void *)r->data;
    const uint64_t value = ++self->passed[r->number];
    change(self, r, data, draw(&d), from == self->number);
    if (from == self->number) __atomic_store_n(&words[0], value, __ATOMIC_RELEASE);
    for (int t = 0; t < threads(); t++) {
        for (uint64_t i = 0; i < times; i++) {
            const uint64_t counter = 1 + roll(&d, counters - 1), more = roll(&d, 1 << 24);
            uint64_t sum;
            memcpy(&sum, model_at(self, r, counter * WORD), sizeof sum);
            expect(self, r, counter * WORD, sum + more);
            if (t == self->number) __atomic_fetch_add(&words[counter], more, __ATOMIC_SEQ_CST);
        }
    }
    expect(self, r, 0, value);
    if (!read) return;
    while (__atomic_load_n(&words[0], __ATOMIC_ACQUIRE) < value) usleep(50);
    check(self, "behind an atomic store", r, data);
}
