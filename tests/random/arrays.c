/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * arrays.c: typed arrays, beside regions. In a phase most are written by owners, element by element or as ranges, and
 * read behind the barrier. Some are *relays*: one element says whose turn it is, and the others are written turn by
 * turn without any synchronisation, since single elements are sequentially consistent.
 */
#include "random.h"

#include <sched.h>

enum { LENGTH_MAX = 3000, ELEMENT_MAX = 200, RUN_MAX = 64, UNIT_MAX = 200000 };
enum { SAMPLES = 12, TURN_WRITES = 5, NOBODYS_TRIES = 4 };

/* An array. The model's bytes lie as its elements do. */
typedef struct typed {
    comem_array array;
    uint64_t size, length;
    int part; /* of the program: where it is created */
    int relay;
} typed;

/* How a phase writes an array: in runs of elements, each of which has one owner. */
typedef struct plan {
    uint64_t run, runs, key;
    int owners, one_of, downwards, checks;
    enum filling filling;
} plan;

static typed arrays[ARRAYS_MAX];

static int exists(int number, int part) {
    return arrays[number].array.object && arrays[number].part <= part;
}

static void create(int number, dice *d) {
    static const uint64_t sizes[] = {1, 2, 4, 8, 8, 3, 12, 24, 100, ELEMENT_MAX};
    static const char *const engines[] = {NULL, "msi", "owner"};
    typed *a = &arrays[number];
    comem_object_options options = {.label = "typed", .engine = engines[roll(d, COUNT_OF(engines))]};
    a->relay = one_in(d, 3);
    a->size = a->relay ? WORD : sizes[roll(d, COUNT_OF(sizes))];
    a->length = 2 + roll(d, one_in(d, 2) ? 100 : LENGTH_MAX);
    const uint64_t most = UNIT_MAX / a->size < a->length ? UNIT_MAX / a->size : a->length;
    if (one_in(d, 2)) options.unit_elements = 1 + roll(d, one_in(d, 2) ? 8 : most);
    options.home = roll_int(d, 3);
    if (options.home == COMEM_HOME_CYCLIC) options.home_number = roll_int(d, 4);
    if (options.home == COMEM_HOME_ON) options.home_number = roll_int(d, nodes());
    const int failed = comem_create(&a->array, a->size, a->length, &options);
    if (failed) refuse("random", comem_last_error());
}

void create_arrays(int part, thread *all, int count) {
    for (int i = 0; i < ARRAYS_MAX && has(TYPED_ARRAYS); i++) {
        dice d = dice_for("arrays", 0, i);
        arrays[i].part = roll_int(&d, 4);
        if (arrays[i].part != part) continue;
        create(i, &d);
        for (int t = 0; t < count; t++) all[t].arrays[i] = calloc(arrays[i].length, arrays[i].size);
    }
}

/* ---- elements and ranges ---------------------------------------------------------------------------------------- */

/* One element: by the function for its type, where there is one, or by that for any size. */
static void get(const typed *a, uint64_t index, void *out, int by_type) {
    switch (by_type ? a->size : 0) {
    case 1: *(uint8_t *)out = comem_read_u8((comem_array_u8){a->array}, index); break;
    case 2: *(uint16_t *)out = comem_read_u16((comem_array_u16){a->array}, index); break;
    case 4: *(uint32_t *)out = comem_read_u32((comem_array_u32){a->array}, index); break;
    case 8: *(uint64_t *)out = comem_read_u64((comem_array_u64){a->array}, index); break;
    default: comem_read(a->array, index, out);
    }
}

static void put(const typed *a, uint64_t index, const void *value, int by_type) {
    switch (by_type ? a->size : 0) {
    case 1: comem_write_u8((comem_array_u8){a->array}, index, *(const uint8_t *)value); break;
    case 2: comem_write_u16((comem_array_u16){a->array}, index, *(const uint16_t *)value); break;
    case 4: comem_write_u32((comem_array_u32){a->array}, index, *(const uint32_t *)value); break;
    case 8: comem_write_u64((comem_array_u64){a->array}, index, *(const uint64_t *)value); break;
    default: comem_write(a->array, index, value);
    }
}

static unsigned char *model_of(const thread *self, const typed *a, uint64_t index) {
    return self->arrays[a - arrays] + index * a->size;
}

static void compare(const thread *self, const char *what, const typed *a, const unsigned char *memory, uint64_t low,
                    uint64_t high) {
    char all[80];
    snprintf(all, sizeof all, "array %d, %s", (int)(a - arrays), what);
    check_memory(self, all, NULL, memory, model_of(self, a, low), (span){low * a->size, (high - low) * a->size});
}

static void check_elements(const thread *self, const char *what, const typed *a, uint64_t low, uint64_t high) {
    _Alignas(uint64_t) unsigned char value[ELEMENT_MAX];
    for (uint64_t i = low; i < high; i++) {
        get(a, i, value, (int)(i & 1));
        compare(self, what, a, value, i, i + 1);
    }
}

static void check_range(const thread *self, const char *what, const typed *a, uint64_t low, uint64_t high) {
    const unsigned char *memory = comem_read_begin(a->array, low, high);
    compare(self, what, a, memory, low, high);
    comem_read_end(a->array, low, high);
}

/* ---- written by owners ------------------------------------------------------------------------------------------- */

static plan plan_for(const thread *self, const typed *a) {
    dice d = dice_for("array", self->phase, (int)(a - arrays));
    plan p = {.run = 1 + roll(&d, one_in(&d, 2) ? 4 : RUN_MAX), .key = draw(&d)};
    if (p.run > a->length) p.run = a->length;
    p.runs = a->length / p.run;
    p.owners = roll_int(&d, 4);
    p.one_of = 1 + roll_int(&d, 5);
    p.downwards = one_in(&d, 4);
    p.checks = roll_int(&d, 3);
    const int filling = roll_int(&d, 8);
    p.filling = filling < FILLINGS ? (enum filling)filling : FRESH;
    return p;
}

static int owner(const plan *p, uint64_t run, int phase) {
    const uint64_t all = (uint64_t)threads();
    switch (p->owners) {
    case 0: return (int)(run % all);
    case 1: return (int)(run * all / p->runs);
    case 2: return (int)(mix(p->key ^ run) % all);
    default: return (int)((run + (uint64_t)phase) % all);
    }
}

static int is_written(const plan *p, uint64_t run) {
    return mix(p->key ^ ~run) % (uint64_t)p->one_of == 0;
}

/* Reads what nobody writes in this phase, while a range is held: its units may leave meanwhile, and come back. */
static void look_beside(const thread *self, const typed *a, const plan *p, uint64_t key) {
    for (uint64_t i = 0; i < NOBODYS_TRIES; i++) {
        const uint64_t run = mix(key + i) % p->runs;
        if (!is_written(p, run)) check_elements(self, "beside a range", a, run * p->run, run * p->run + 1);
    }
}

static void write_range(const thread *self, const typed *a, const plan *p, uint64_t low, const unsigned char *bytes) {
    const uint64_t high = low + p->run, key = mix(p->key + low);
    unsigned char *memory = comem_write_begin(a->array, low, high);
    if (p->checks > 0) compare(self, "before a write", a, memory, low, high);
    if (key % 4 == 0) look_beside(self, a, p, key);
    store(memory, bytes, p->run * a->size, key >> 8);
    if (key % 8 == 0) look_beside(self, a, p, key);
    comem_write_end(a->array, low, high);
}

static void write_run(const thread *self, const typed *a, const plan *p, uint64_t run) {
    unsigned char bytes[RUN_MAX * ELEMENT_MAX];
    const uint64_t low = run * p->run, high = low + p->run;
    if (!is_written(p, run)) return;
    fill(bytes, model_of(self, a, low), (span){low * a->size, p->run * a->size}, p->key, p->filling);
    const int mine = owner(p, run, self->phase) == self->number, by_element = mix(p->key ^ low) % 2 == 0;
    if (mine && by_element) {
        if (p->checks > 0) check_elements(self, "before a write", a, low, high);
        _Alignas(uint64_t) unsigned char value[ELEMENT_MAX];
        for (uint64_t i = low; i < high; i++) {
            memcpy(value, bytes + (i - low) * a->size, a->size);
            put(a, i, value, (int)(i & 1));
        }
    } else if (mine) {
        write_range(self, a, p, low, bytes);
    }
    memcpy(model_of(self, a, low), bytes, p->run * a->size);
    if (mine && p->checks == 2) check_elements(self, "after a write", a, low, high);
}

static void write_array(const thread *self, const typed *a) {
    const plan p = plan_for(self, a);
    for (uint64_t i = 0; i < p.runs; i++) write_run(self, a, &p, p.downwards ? p.runs - 1 - i : i);
}

static void read_array(const thread *self, const typed *a) {
    dice d = dice_for("array reads", self->phase, (int)(a - arrays) * threads() + self->number);
    if (one_in(&d, 3)) return;
    if (one_in(&d, 3)) check_range(self, "read all", a, 0, a->length);
    for (int i = 0; i < SAMPLES; i++) {
        const uint64_t low = roll(&d, a->length), most = a->length - low;
        const uint64_t high = low + 1 + roll(&d, most < RUN_MAX ? most : RUN_MAX);
        if (one_in(&d, 2)) {
            check_elements(self, "read", a, low, high);
        } else {
            check_range(self, "read as a range", a, low, high);
        }
    }
}

/* ---- relays ------------------------------------------------------------------------------------------------------ */

/* Element 0 counts turns. A thread whose turn it is checks some elements, writes some, and lets the next one go. */
static void run_relay(thread *self, const typed *a) {
    const int number = (int)(a - arrays);
    dice order = dice_for("relay", self->phase, number);
    const int turns = threads() * (1 + roll_int(&order, 2)), first = roll_int(&order, threads());
    for (int i = 0; i < turns; i++) {
        const uint64_t turn = ++self->turns[number];
        const int mine = (first + i) % threads() == self->number;
        uint64_t stands = 0;
        while (mine && (get(a, 0, &stands, 1), stands != turn - 1)) sched_yield();
        dice d = dice_for("turn", (int)turn, number);
        for (int w = 0; w < TURN_WRITES; w++) {
            const uint64_t index = 1 + roll(&d, a->length - 1), value = draw(&d);
            if (mine) check_elements(self, "in a relay", a, index, index + 1);
            if (mine) put(a, index, &value, (int)(value & 1));
            memcpy(model_of(self, a, index), &value, WORD);
        }
        memcpy(model_of(self, a, 0), &turn, WORD);
        if (mine) put(a, 0, &turn, (int)(turn & 1));
    }
}

void use_arrays(thread *self, int part) {
    for (int i = 0; i < ARRAYS_MAX; i++) {
        dice d = dice_for("use array", self->phase, i);
        const int way = roll_int(&d, 4);
        if (!exists(i, part) || way == 0) continue;
        if (way == 1) {
            read_array(self, &arrays[i]);
        } else if (arrays[i].relay) {
            run_relay(self, &arrays[i]);
        } else {
            write_array(self, &arrays[i]);
        }
    }
}

void check_arrays(const thread *self) {
    for (int i = 0; i < ARRAYS_MAX; i++) {
        if (exists(i, INT_MAX)) check_range(self, "in the end", &arrays[i], 0, arrays[i].length);
    }
}
