/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * regions.c: which regions there are, where they lie, and how long they live.
 */
#include "random.h"

enum { KEPT_SMALL = 60000, ORDERED_MAX = 400000, SMALL_MAX = 12000 };

region regions[REGIONS_MAX];
int region_count;

const char *const kind_names[KINDS] = {"owners", "locks", "readers",  "queue", "semaphores", "broadcast",
                                       "ring",   "pipes", "meetings", "signs", "atomics"};
static const char *const engine_names[ENGINES] = {"hlrc", "scope", "msi", "lrc", "multicast"};

static int fits(enum kind kind, enum engine engine) {
    if (engine == SCOPE || engine == MULTICAST) return kind <= QUEUE;
    return kind != ATOMICS || engine == MSI;
}

/* Owners and locks come more often than the others. */
static enum kind choose_kind(dice *d, enum engine engine) {
    for (;;) {
        const int rolled = roll_int(d, KINDS + 4);
        const enum kind kind = rolled < KINDS ? (enum kind)rolled : rolled % 2 ? OWNERS : LOCKS;
        if (fits(kind, engine)) return kind;
    }
}

static uint64_t choose_size(dice *d, enum kind kind, int large, int small) {
    const uint64_t way = roll(d, 10);
    uint64_t size = way < 2   ? 256 + roll(d, PAGE)
                    : way < 6 ? PAGE * (1 + roll(d, 8))
                    : way < 8 ? PAGE * (1 + roll(d, 64))
                              : 100000 + roll(d, 200000);
    if (large) size = PAGE * (300 + roll(d, 900));
    /* Where one thread waits for the next, most are small. */
    if (kind >= BROADCAST && kind <= SIGNS) {
        const uint64_t most = kind != SIGNS && !one_in(d, 4) ? KEPT_SMALL : ORDERED_MAX;
        if (size > most) size = most;
    }
    if (small) size = 512 + roll(d, SMALL_MAX);
    return size / WORD * WORD;
}

static void choose_place(region *r, dice *d) {
    comem_region_options *o = &r->options;
    o->home = roll_int(d, 5);
    if (o->home == COMEM_HOME_CYCLIC) o->home_number = roll_int(d, 4);
    if (o->home == COMEM_HOME_ON) o->home_number = roll_int(d, nodes());
    if (one_in(d, 4)) o->unit_pages = 1u << roll(d, 6);
    if (one_in(d, 4)) o->alignment = (size_t)1 << roll(d, 17);
    snprintf(r->label, sizeof r->label, "r%d", r->number);
    if (one_in(d, 3)) o->label = r->label;
}

static void choose_life(region *r, dice *d) {
    static const int windows[] = {1, 2, 5, 20, 60, 120};
    r->window = windows[roll(d, COUNT_OF(windows))];
    r->percent = 10 + roll_int(d, 90);
    const int late = one_in(d, 3), length = (int)phases;
    r->birth = roll_int(d, length);
    if (!late || !has(LATE_REGIONS)) r->birth = 0;
    const int last_write = r->birth + 1 + roll_int(d, length), end = r->birth + 1 + roll_int(d, length);
    r->readonly = one_in(d, 5) && has(READONLY) ? last_write : NEVER;
    r->death = one_in(d, 4) && has(FREEING) ? end : NEVER;
}

void fit_unit(comem_region_options *o, enum engine engine) {
    if ((engine == LRC || engine == MULTICAST) && o->unit_pages > 8) o->unit_pages = 8;
}

static void choose_region(region *r, int large, int small) {
    dice d = dice_for("region", 0, r->number);
    const int named = one_in(&d, 2) && mixed;
    const int engine = roll_int(&d, ENGINES);
    r->engine = named ? (enum engine)engine : job_engine;
    if (named) r->options.engine = engine_names[engine];
    r->kind = choose_kind(&d, r->engine);
    r->size = choose_size(&d, r->kind, large && r->number < 2, small);
    choose_place(r, &d);
    fit_unit(&r->options, r->engine);
    choose_life(r, &d);
    if (r->kind == LOCKS || r->kind == READERS || r->kind == SEMAPHORES) choose_record(r, &d);
}

void choose_regions(void) {
    dice d = dice_for("program", 0, 0);
    region_count = 3 + roll_int(&d, REGIONS_MAX - 2);
    const int size = roll_int(&d, 6);
    for (int i = 0; i < region_count; i++) {
        regions[i].number = i;
        choose_region(&regions[i], size < 2, size == 2);
    }
}

static void allocate(region *r) {
    dice d = dice_for("allocation", 0, r->number);
    const comem_region_options *o = &r->options;
    const int moved = o->home != COMEM_HOME_AUTOMATIC || o->alignment || o->unit_pages;
    const int plain = !moved && !o->engine && !o->label;
    r->data = comem_alloc_all(r->size, plain && one_in(&d, 2) ? NULL : o);
    if (!r->data) refuse("random", "no shared memory");
}

void allocate_first(void) {
    for (int i = 0; i < region_count; i++) {
        if (wanted(&regions[i]) && regions[i].birth == 0) allocate(&regions[i]);
    }
}

/* The node's first thread allocates, declares and frees. All threads wait for new regions, and no node goes on before
 * all have them. */
void change_lives(const thread *self, pthread_barrier_t *of_node) {
    const int first = self->number % comem_threads_per_node() == 0;
    int born = 0;
    for (int i = 0; i < region_count; i++) {
        region *r = &regions[i];
        if (!wanted(r)) continue;
        if (r->birth == self->phase && self->phase > 0) {
            if (first) allocate(r);
            born = 1;
        }
        /* Where it ends in the same phase another node may have freed it already. */
        if (r->readonly == self->phase && r->readonly < r->death && first) comem_freeze(r->data);
        if (r->death == self->phase && first) comem_free(r->data);
    }
    if (!born) return;
    pthread_barrier_wait(of_node);
    comem_barrier();
}

int lives(const region *r, int phase) {
    return wanted(r) && phase >= r->birth && phase < r->death;
}

int may_write(const region *r, int phase) {
    return phase < r->readonly;
}

uint64_t name_of(const region *r, int index) {
    const uint64_t plain = (uint64_t)r->number * 1000 + (uint64_t)index;
    dice d = dice_for("names", 0, 0);
    switch (roll(&d, 4)) {
    case 0: return plain;
    case 1: return UINT64_C(1) << 63 | plain;
    default: return blend(d.key, plain) >> roll(&d, 16);
    }
}

static void show_region(const region *r) {
    const comem_region_options *o = &r->options;
    const char *engine = engine_names[r->engine], *how = o->engine ? " by name" : "";
    printf("region %d: %s, %s%s, %" PRIu64 " bytes", r->number, kind_names[r->kind], engine, how, r->size);
    printf(", home %d %d, units of %u, alignment %zu", o->home, o->home_number, o->unit_pages, o->alignment);
    printf(", windows of %d, %d %%", r->window, r->percent);
    if (r->locks) {
        printf(", %" PRIu64 " records of %" PRIu64 " words, %" PRIu64 " apart", r->locks, r->words, r->spacing);
    }
    if (r->birth > 0) printf(", from phase %d", r->birth);
    if (r->readonly != NEVER) printf(", readonly from %d", r->readonly);
    if (r->death != NEVER) printf(", freed in %d", r->death);
    printf("\n");
}

void show_regions(void) {
    for (int i = 0; i < region_count; i++) show_region(&regions[i]);
}
