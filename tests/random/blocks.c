/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * blocks.c: blocks that one thread allocates in mid-run and tells the others of, which all may write, and which any may
 * free.
 */
#include "random.h"

enum { SPREAD = 64, STEP = 512 };

static uint64_t *pointers; /* to the blocks, in shared memory */
static uint64_t apart;     /* how far they lie apart there */

void allocate_blocks(void) {
    dice d = dice_for("blocks", 0, 0);
    apart = 1 + roll(&d, SPREAD);
    if (has(BLOCKS_IN_BETWEEN)) pointers = comem_alloc_all(BLOCKS * SPREAD * WORD, NULL);
}

static volatile uint64_t *pointer(int number) {
    return (volatile uint64_t *)&pointers[(uint64_t)number * apart];
}

static unsigned char *memory(int number) {
    return (unsigned char *)(uintptr_t)*pointer(number);
}

static void check_block(const thread *self, const char *what, int number) {
    const block *b = &self->blocks[number];
    check_memory(self, what, NULL, memory(number), b->model, (span){0, b->size});
}

static uint64_t choose_size(dice *d) {
    const uint64_t way = roll(d, 8);
    if (way == 6) return PAGE * (1 + roll(d, 8));
    return 1 + roll(d, way < 3 ? 2048 : way < 6 ? 16384 : 300000);
}

static comem_region_options choose_options(dice *d) {
    static const char *const engines[ENGINES] = {"hlrc", "scope", "msi", "lrc", "multicast"};
    comem_region_options o = {0};
    o.home = roll_int(d, 5);
    if (o.home == COMEM_HOME_CYCLIC) o.home_number = roll_int(d, 4);
    if (o.home == COMEM_HOME_ON) o.home_number = roll_int(d, nodes());
    if (one_in(d, 4)) o.alignment = (size_t)1 << roll(d, 17);
    if (one_in(d, 4)) o.unit_pages = 1u << roll(d, 7);
    enum engine engine = job_engine;
    if (mixed && one_in(d, 3)) {
        engine = (enum engine)roll_int(d, ENGINES);
        o.engine = engines[engine];
    }
    fit_unit(&o, engine);
    return o;
}

static void allocate_block(const thread *self, int number, const comem_region_options *o, int plain) {
    const block *b = &self->blocks[number];
    unsigned char *new = plain ? comem_alloc(b->size) : comem_alloc_with(b->size, o);
    if (!new) refuse("random", "no shared memory for a block");
    if (!plain && o->alignment && (uintptr_t)new % o->alignment != 0) {
        report(self, "alignment", NULL, 0, NULL, (uintptr_t)new, o->alignment);
    }
    *pointer(number) = (uintptr_t)new;
    check_block(self, "new", number);
}

/* Grains of a block are written by their owners: the threads in turn, or one. */
static void write_block(const thread *self, int number, dice *d, int by_all, int who) {
    const block *b = &self->blocks[number];
    const uint64_t grain = 1 + roll(d, 400), key = draw(d);
    unsigned char bytes[STEP];
    for (uint64_t i = 0; i * grain < b->size; i++) {
        const uint64_t offset = i * grain;
        const span s = {offset, b->size - offset < grain ? b->size - offset : grain};
        if (mix(key ^ offset) % 3 != 0) continue;
        fill(bytes, b->model + offset, s, key, (enum filling)(key % FILLINGS));
        if ((by_all ? (int)(i % (uint64_t)threads()) : who) == self->number) {
            check_memory(self, "before a write", NULL, memory(number) + offset, b->model + offset, s);
            store(memory(number) + offset, bytes, s.length, key >> 16);
        }
        memcpy(b->model + offset, bytes, s.length);
    }
}

static void begin_block(thread *self, int number, dice *d, int who) {
    block *b = &self->blocks[number];
    b->alive = 1;
    b->size = choose_size(d);
    b->model = calloc(1, b->size);
    const comem_region_options o = choose_options(d);
    const int plain = one_in(d, 3);
    if (who == self->number) allocate_block(self, number, &o, plain);
    write_block(self, number, d, 0, who);
}

static void end_block(thread *self, int number, dice *d, int who) {
    block *b = &self->blocks[number];
    const int last_look = one_in(d, 2);
    if (who == self->number) {
        if (last_look) check_block(self, "before it is freed", number);
        comem_free(memory(number));
    }
    free(b->model);
    b->alive = 0;
}

static void use_block(thread *self, int number) {
    dice d = dice_for("block", self->phase, number);
    dice own = dice_for("look", self->phase, number * threads() + self->number);
    const int idle = one_in(&d, 3), who = roll_int(&d, threads()), what = roll_int(&d, 4);
    const int looks = one_in(&own, 3);
    if (!self->blocks[number].alive) {
        if (!idle) begin_block(self, number, &d, who);
    } else if (idle || what == 1) {
        if (looks) check_block(self, "read", number);
    } else if (what == 0) {
        end_block(self, number, &d, who);
    } else {
        write_block(self, number, &d, what == 2, who);
    }
}

/* In one phase of three. */
void use_blocks(thread *self) {
    dice d = dice_for("any blocks", self->phase, 0);
    if (!pointers || !one_in(&d, 3)) return;
    for (int i = 0; i < BLOCKS; i++) use_block(self, i);
}

void check_blocks(const thread *self) {
    for (int i = 0; i < BLOCKS; i++) {
        if (self->blocks[i].alive) check_block(self, "in the end", i);
    }
}
