/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * model.c: shared memory is written and read here, and compared with what it must hold.
 */
#include "random.h"

#include <signal.h>

enum { REPORTS = 6, LEFT_S = 5, STEP = 64, CALL_MAX = 70000 };

int wrong;

/* Wrong values can make a program wait for ever: it is given a few seconds to report others. */
static void end_now(int unused) {
    (void)unused;
    _exit(ENDED_WRONG);
}

static void end_soon(void) {
    signal(SIGALRM, end_now);
    alarm(LEFT_S);
}

void report(const thread *self, const char *what, const region *r, uint64_t offset, const void *address, uint64_t found,
            uint64_t due) {
    uint64_t later = 0;
    const int count = __atomic_add_fetch(&wrong, 1, __ATOMIC_SEQ_CST);
    if (count == 1) end_soon();
    if (count > REPORTS) return;
    if (address) {
        usleep(20000);
        memcpy(&later, (const void *)((uintptr_t)address & ~(uintptr_t)(WORD - 1)), sizeof later);
    }
    fprintf(stderr,
            "WRONG: node %d thread %d phase %d, %s: region %d (%s) offset %" PRIu64 " page %" PRIu64
            ": found %" PRIx64 ", not %" PRIx64 "; the word a moment later: %" PRIx64 "\n",
            comem_node(), self->number, self->phase, what, r ? r->number : -1, r ? kind_names[r->kind] : "block",
            offset, offset / PAGE, found, due, later);
}

void check_memory(const thread *self, const char *what, const region *r, const unsigned char *memory,
                  const unsigned char *due, span s) {
    uint64_t first = s.length, count = 0;
    if (memcmp(memory, due, s.length) == 0) return;
    for (uint64_t i = 0; i < s.length; i++) {
        if (((const volatile unsigned char *)memory)[i] == due[i]) continue;
        if (count++ == 0) first = i;
    }
    char all[128];
    snprintf(all, sizeof all, "%s, %" PRIu64 " bytes of %" PRIu64 "%s", what, count, s.length,
             count ? "" : " (they differed, and then did not)");
    if (count == 0) first = 0;
    report(self, all, r, s.offset + first, memory + first, memory[first], due[first]);
}

void check(const thread *self, const char *what, const region *r, span s) {
    check_memory(self, what, r, at(r, s.offset), model_at(self, r, s.offset), s);
}

void check_all(const thread *self, const char *what, const region *r) {
    check(self, what, r, (span){0, r->size});
}

/* Shared memory goes into a file by one system call, and comes back into private memory by another. */
void check_by_call(const thread *self, const region *r, span s) {
    if (s.length > CALL_MAX) s.length = CALL_MAX;
    unsigned char *copy = calloc(1, s.length);
    const ssize_t out = pwrite(self->file, at(r, s.offset), s.length, 0);
    if (out != (ssize_t)s.length) {
        report(self, "write by a system call came short", r, s.offset, NULL, (uint64_t)out, s.length);
    } else if (pread(self->file, copy, s.length, 0) == out) {
        check_memory(self, "read by a system call", r, copy, model_at(self, r, s.offset), s);
    }
    free(copy);
}

void store_by_call(const thread *self, const region *r, uint64_t offset, const unsigned char *from, uint64_t length) {
    if (pwrite(self->file, from, length, 0) != (ssize_t)length) return;
    const ssize_t in = pread(self->file, at(r, offset), length, 0);
    if (in != (ssize_t)length) report(self, "read into it came short", r, offset, NULL, (uint64_t)in, length);
}

void fill(unsigned char *out, const unsigned char *old, span s, uint64_t key, enum filling way) {
    for (uint64_t i = 0; i < s.length; i++) {
        const uint64_t place = s.offset + i;
        switch (way) {
        case COUNTED: out[i] = (unsigned char)(old[i] + (place % WORD == 0)); break;
        case SAME: out[i] = old[i]; break;
        case ZEROS: out[i] = 0; break;
        case SOME: out[i] = (unsigned char)(old[i] + (mix(key ^ place) % 5 == 0)); break;
        default: out[i] = (unsigned char)(mix(key ^ (place / WORD)) >> (8 * (place % WORD)));
        }
    }
}

/* Whole words of TYPE, and bytes before and after them. */
#define STORE_WORDS(NAME, TYPE)                                                                                       \
    static void NAME(unsigned char *to, const unsigned char *from, uint64_t length) {                                 \
        const uint64_t odd = (uintptr_t)to % sizeof(TYPE), before = odd ? sizeof(TYPE) - odd : 0;                     \
        uint64_t i = 0;                                                                                               \
        for (; i < length && i < before; i++) ((volatile unsigned char *)to)[i] = from[i];                            \
        for (; i + sizeof(TYPE) <= length; i += sizeof(TYPE)) {                                                       \
            TYPE value;                                                                                               \
            memcpy(&value, from + i, sizeof value);                                                                   \
            *(volatile TYPE *)(void *)(to + i) = value;                                                               \
        }                                                                                                             \
        for (; i < length; i++) ((volatile unsigned char *)to)[i] = from[i];                                          \
    }
STORE_WORDS(store_bytes, uint8_t)
STORE_WORDS(store_halves, uint32_t)
STORE_WORDS(store_words, uint64_t)

static void store_downwards(unsigned char *to, const unsigned char *from, uint64_t length) {
    for (uint64_t i = length; i-- > 0;) ((volatile unsigned char *)to)[i] = from[i];
}

/* One instruction that faults in its middle, where the processor has such. */
static void store_string(unsigned char *to, const unsigned char *from, uint64_t length) {
#if defined(__x86_64__) && !defined(COMEM_PTHREADS)
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(length)::"memory");
#else
    memcpy(to, from, length);
#endif
}

void store(unsigned char *to, const unsigned char *from, uint64_t length, uint64_t way) {
    switch (way % 6) {
    case 0: memcpy(to, from, length); break;
    case 1: store_bytes(to, from, length); break;
    case 2: store_halves(to, from, length); break;
    case 3: store_words(to, from, length); break;
    case 4: store_downwards(to, from, length); break;
    default: store_string(to, from, length);
    }
}

void change(const thread *self, const region *r, span s, uint64_t key, int writes) {
    const uint64_t one_of = 1 + key % 3;
    unsigned char bytes[STEP];
    for (uint64_t done = 0; done < s.length; done += STEP) {
        const span part = {s.offset + done, s.length - done < STEP ? s.length - done : STEP};
        if (mix(key ^ done) % one_of != 0) continue;
        fill(bytes, model_at(self, r, part.offset), part, key, (enum filling)((key >> 8) % FILLINGS));
        if (writes) store(at(r, part.offset), bytes, part.length, key >> 16);
        memcpy(model_at(self, r, part.offset), bytes, part.length);
    }
}

void pause_maybe(uint64_t key) {
    if (!has(PAUSES)) return;
    if (key % 23 == 0) {
        usleep((useconds_t)(key / 23 % 400));
    } else if (key % 211 == 1) {
        usleep(3000);
    } else if (key % 29 == 2) {
        for (volatile uint64_t i = 0; i < key % 20000; i++) continue;
    }
}
