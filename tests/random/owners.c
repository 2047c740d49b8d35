/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * owners.c: in a phase each grain of a region has one owner, who alone may write it; barriers order the phases. Also
 * the ways to read a region that nobody writes.
 */
#include "random.h"

enum { GRAINS_MAX = 8192, GRAIN_MAX = 16384, SAMPLES = 20, LOOK = 64 };

/* How a phase writes a region: in which grains, whose they are, and in which order a thread goes through them. */
typedef struct plan {
    uint64_t grain, grains, key;
    int owners;           /* the function that says whose a grain is */
    uint64_t one_of;      /* of so many grains one is written */
    enum filling filling;
    uint64_t way, stride; /* how grains are stored, and how far the next one is */
    int downwards, checks, by_call, touched;
} plan;

static plan plan_for(const thread *self, const region *r) {
    static const uint64_t sizes[] = {1, 2, 3, 4, 8, 8, 12, 24, 64, 100, 256, 1024, 4096, 8192, 16384};
    dice d = dice_for("owners", self->phase, r->number);
    plan p = {.grain = sizes[roll(&d, COUNT_OF(sizes))], .key = draw(&d)};
    while (r->size / p.grain > GRAINS_MAX) p.grain *= 2;
    if (p.grain > r->size) p.grain = r->size;
    p.grains = r->size / p.grain;
    p.owners = roll_int(&d, 7);
    p.one_of = 1 + roll(&d, 4);
    if (one_in(&d, 5)) p.one_of = 97;
    const int filling = roll_int(&d, 8);
    p.filling = filling < FILLINGS ? (enum filling)filling : FRESH;
    p.way = draw(&d);
    p.stride = one_in(&d, 4) ? 2 + roll(&d, 61) : 1;
    p.downwards = one_in(&d, 4);
    p.checks = roll_int(&d, 3);
    p.by_call = one_in(&d, 9) && p.grain >= 256 && has(SYSTEM_CALLS);
    p.touched = one_in(&d, 7) && has(TOUCHES);
    return p;
}

static int owner(const plan *p, uint64_t grain, int phase) {
    const uint64_t all = (uint64_t)threads(), in_turn = grain, in_runs = grain * all / p->grains;
    const uint64_t per_node = (uint64_t)comem_threads_per_node();
    switch (p->owners) {
    case 0: return (int)(in_turn % all);
    case 1: return (int)in_runs;
    case 2: return (int)(mix(p->key ^ grain) % all);
    case 3: return (int)(p->key % all);
    case 4: return (int)((in_turn + (uint64_t)phase) % all);
    case 5: return (int)((in_runs + (uint64_t)phase) % all);
    default: return (int)(in_runs / per_node * per_node);
    }
}

static int is_written(const plan *p, uint64_t grain) {
    return mix(p->key ^ ~grain) % p->one_of == 0;
}

static void touch_some(const thread *self, const region *r, const plan *p) {
    for (uint64_t i = 0; i < p->grains; i++) {
        if (owner(p, i, self->phase) != self->number || !is_written(p, i) || mix(p->way ^ i) % 4 != 0) continue;
        comem_prefetch(at(r, i * p->grain), p->grain, 1);
    }
}

static void write_grain(const thread *self, const region *r, const plan *p, uint64_t grain) {
    unsigned char bytes[GRAIN_MAX];
    const span s = {grain * p->grain, p->grain};
    if (!is_written(p, grain)) return;
    fill(bytes, model_at(self, r, s.offset), s, p->key, p->filling);
    const int mine = owner(p, grain, self->phase) == self->number;
    if (mine && p->checks > 0) check(self, "before a write", r, s);
    if (mine && p->by_call && mix(grain) % 4 == 0) {
        store_by_call(self, r, s.offset, bytes, s.length);
    } else if (mine) {
        store(at(r, s.offset), bytes, s.length, p->way);
    }
    memcpy(model_at(self, r, s.offset), bytes, s.length);
    if (mine && p->checks == 2) check(self, "after a write", r, s);
}

void write_by_owners(const thread *self, const region *r) {
    const plan p = plan_for(self, r);
    if (p.touched) touch_some(self, r, &p);
    for (uint64_t start = 0; start < p.stride; start++) {
        for (uint64_t i = start; i < p.grains; i += p.stride) {
            write_grain(self, r, &p, p.downwards ? p.grains - 1 - i : i);
        }
    }
}

static span span_at(const region *r, uint64_t offset, uint64_t length) {
    return (span){offset, length < r->size - offset ? length : r->size - offset};
}

static void read_pages(const thread *self, const region *r) {
    for (uint64_t o = 0; o < r->size; o += PAGE) check(self, "read upwards", r, span_at(r, o, PAGE));
}

static void read_downwards(const thread *self, const region *r) {
    for (uint64_t page = (r->size - 1) / PAGE + 1; page-- > 0;) {
        check(self, "read downwards", r, span_at(r, page * PAGE, LOOK));
    }
}

static void read_samples(const thread *self, const region *r, dice *d) {
    for (int i = 0; i < SAMPLES; i++) {
        const uint64_t offset = roll(d, r->size);
        check(self, "read here and there", r, span_at(r, offset, 1 + roll(d, 300)));
    }
}

static void read_strided(const thread *self, const region *r, dice *d) {
    const uint64_t stride = PAGE * (1 + roll(d, 9));
    for (uint64_t start = 0; start < stride; start += PAGE) {
        for (uint64_t o = start; o < r->size; o += stride) check(self, "read with a stride", r, span_at(r, o, WORD));
    }
}

/* Two of three threads read. */
void read_region(const thread *self, const region *r) {
    dice d = dice_for("reads", self->phase, r->number * threads() + self->number);
    if (one_in(&d, 3)) return;
    const uint64_t from = roll(&d, r->size);
    if (one_in(&d, 11) && has(TOUCHES)) comem_prefetch(at(r, from), r->size - from, 0);
    switch (roll(&d, 6)) {
    case 0: check_all(self, "read all", r); break;
    case 1: read_pages(self, r); break;
    case 2: read_downwards(self, r); break;
    case 3: read_samples(self, r, &d); break;
    case 4: read_strided(self, r, &d); break;
    default:
        if (has(SYSTEM_CALLS)) check_by_call(self, r, span_at(r, from, r->size));
    }
}
