/* A stand-in for libcomem in one process: the table at its real address, a stretch of lines memory, and a thread that
 * plays another node. That thread takes units away all the time: it locks the entry, makes a barrier on all processors,
 * waits for hazards that match, copies the data away and fills the unit with MAGIC. It leaves some units locked. The
 * functions here bring units back.
 *
 * Environment: FAKE_ADVERSARY=0 leaves that thread out; FAKE_UNIT is the unit in bytes; FAKE_COUNTS=1 prints what was
 * called.
 */
#define _GNU_SOURCE
#include "fake.h"
#include "../abi.h"
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINES ((char *)0x200000000000)
#define LINES_BYTES (64ull << 20)
#define BUSY 0x80
#define NOT_EXCLUSIVE 0x02

static char *home;             /* the data of units that are invalid here */
static unsigned char *invalid; /* one a unit */
static unsigned char *locked;  /* one a unit: its entry does not become 0, so every store to it is a call */
static size_t unit_bytes = COMEM_LINE_BYTES, used;
static uint64_t *slots;
static atomic_uint slots_used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_ulong loads, stores, owns, atomics, genuine, revoked, hazards_met;
static atomic_ulong recent[64]; /* units that were brought back: they are taken away again soon */
static atomic_uint recent_next;
static atomic_int sweep_wanted; /* the adversary's thread takes all units away, and sets it to 0 */

static void die(const char *what) {
    fprintf(stderr, "fake: %s\n", what);
    abort();
}

static _Atomic(uint16_t) *entry(const void *address) {
    return (_Atomic(uint16_t) *)(COMEM_TABLE + ((uintptr_t)address >> COMEM_LINE_SHIFT << 1));
}

static int on;

static int is_lines(const void *address) { return (size_t)((const char *)address - LINES) < LINES_BYTES; }

static size_t unit_of(const void *address) { return ((const char *)address - LINES) / unit_bytes; }

static void set_entries(size_t unit, uint16_t value) {
    for (size_t i = 0; i < unit_bytes; i += COMEM_LINE_BYTES) atomic_store(entry(LINES + unit * unit_bytes + i), value);
}

/* Whole words of 8 bytes, as the real runtime's copies: no reader sees half a MAGIC. */
static void copy_words(void *to, const void *from, size_t bytes) {
    for (size_t i = 0; i < bytes / 8; i++)
        __atomic_store_n((uint64_t *)to + i, __atomic_load_n((const uint64_t *)from + i, __ATOMIC_RELAXED),
                         __ATOMIC_RELAXED);
}

static int hazard_matches(size_t unit) {
    uintptr_t first = (uintptr_t)LINES + unit * unit_bytes, end = first + unit_bytes;
    for (unsigned i = 0; i < atomic_load(&slots_used); i++) {
        uint64_t word = __atomic_load_n(slots + i * COMEM_HAZARD_SLOT_BYTES / 8, __ATOMIC_ACQUIRE);
        uintptr_t line = (word & (COMEM_ADDRESS_END - 1)) / COMEM_LINE_BYTES * COMEM_LINE_BYTES;
        uint64_t lines = word >> COMEM_HAZARD_LINES_SHIFT;
        if (lines > COMEM_HAZARD_LINES_MAX) die("a hazard of too many lines");
        if (word && line < end && line + (lines ? lines : 1) * COMEM_LINE_BYTES > first) return 1;
    }
    return 0;
}

/* `lock` is held. */
static void revoke_unit(size_t unit, int keep_copy) {
    char *data = LINES + unit * unit_bytes;
    if (!invalid[unit] && atomic_load(entry(data)) == 0) {
        set_entries(unit, BUSY);
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
        struct timespec start, now;
        clock_gettime(CLOCK_MONOTONIC, &start);
        while (hazard_matches(unit)) {
            atomic_fetch_add(&hazards_met, 1);
            sched_yield();
            clock_gettime(CLOCK_MONOTONIC, &now);
            if (now.tv_sec > start.tv_sec + 20) die("a hazard stays up: its thread waits inside it");
        }
    }
    if (!keep_copy && !invalid[unit]) {
        copy_words(home + unit * unit_bytes, data, unit_bytes);
        for (size_t i = 0; i < unit_bytes / 8; i++)
            __atomic_store_n((uint64_t *)data + i, COMEM_MAGIC * 0x100000001ull, __ATOMIC_RELAXED);
        invalid[unit] = 1;
    }
    set_entries(unit, NOT_EXCLUSIVE);
    if (atomic_fetch_add(&revoked, 1) % 4 == 0 && on) locked[unit] = 1;
}

/* `lock` is held: takes some unit away, as likely as not one that was in use lately. */
static void revoke_some(uint64_t *random) {
    *random ^= *random << 13, *random ^= *random >> 7, *random ^= *random << 17;
    size_t units = used / unit_bytes;
    if (!units) return;
    size_t unit = *random % units;
    if (*random >> 33 & 1) unit = atomic_load(&recent[*random >> 40 & 63]);
    revoke_unit(unit, (*random >> 50 & 7) == 0);
}

static void *adversary(void *unused) {
    (void)unused;
    uint64_t random = 88172645463325252ull;
    for (;;) {
        pthread_mutex_lock(&lock);
        for (int i = 0; i < 4; i++) revoke_some(&random);
        if (atomic_load(&sweep_wanted)) {
            for (size_t unit = 0; unit < used / unit_bytes; unit++) revoke_unit(unit, 0);
            atomic_store(&sweep_wanted, 0);
        }
        pthread_mutex_unlock(&lock);
        for (int i = 0; i < 300; i++)
            __builtin_ia32_pause(); /* no yield: a busy machine would not come back for long */
    }
    return 0;
}

__attribute__((constructor(101))) static void start(void) {
    if (getenv("FAKE_UNIT")) unit_bytes = atoi(getenv("FAKE_UNIT"));
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (mmap(LINES, LINES_BYTES, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, -1, 0) != LINES)
        die("no lines memory");
    home = mmap(0, LINES_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    invalid = mmap(0, LINES_BYTES / COMEM_LINE_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    locked = mmap(0, LINES_BYTES / COMEM_LINE_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0) die("no membarrier");
    on = !getenv("FAKE_ADVERSARY") || strcmp(getenv("FAKE_ADVERSARY"), "0") != 0;
    pthread_t thread;
    if (on) pthread_create(&thread, 0, adversary, 0);
}

__attribute__((destructor)) static void finish(void) {
    if (getenv("FAKE_COUNTS"))
        fprintf(stderr, "fake: loads=%lu stores=%lu owns=%lu atomics=%lu genuine=%lu revoked=%lu hazards_met=%lu\n",
                loads, stores, owns, atomics, genuine, revoked, hazards_met);
}

void *shared_alloc(size_t bytes) {
    pthread_mutex_lock(&lock);
    void *out = LINES + used;
    size_t first = used / unit_bytes;
    used += (bytes + 4095) / 4096 * 4096;
    if (used > LINES_BYTES) die("lines memory is full");
    for (size_t unit = first; unit < used / unit_bytes; unit++) revoke_unit(unit, 0);
    pthread_mutex_unlock(&lock);
    return out;
}

/* `lock` is held: the unit is valid, and exclusive if wanted, unless it is locked. */
static void bring(const void *address, int exclusive) {
    static uint64_t random = 1234567891011;
    size_t unit = unit_of(address);
    if (on) revoke_some(&random); /* so that much happens on a busy machine too */
    if (invalid[unit]) {
        copy_words(LINES + unit * unit_bytes, home + unit * unit_bytes, unit_bytes);
        invalid[unit] = 0;
    }
    if (exclusive && !locked[unit]) set_entries(unit, 0);
    atomic_store(&recent[atomic_fetch_add(&recent_next, 1) % 64], unit);
}

/* `lock` is held: an access that needed a call is over. Takes the unit away again soon. So there is no lack of misses
 * where the adversary's thread and the program's seldom run at the same time. */
static void used_once(const void *address) {
    static uint64_t random = 10987654321;
    if (!on) return;
    revoke_some(&random);
    if (random >> 20 & 15) revoke_unit(unit_of(address), 0);
}

/* How often the calling thread has asked for the same units in a row, and has got some locked. */
static __thread unsigned asked_in_vain;
static __thread const void *asked_for;

/* Copies between lines memory and private memory, unit by unit. */
static void each_unit(char *shared, char *own, size_t bytes, int store) {
    asked_in_vain = 0;
    while (bytes) {
        size_t part = bytes;
        if (is_lines(shared)) {
            size_t left = unit_bytes - (shared - LINES) % unit_bytes;
            part = part < left ? part : left;
            pthread_mutex_lock(&lock);
            if (store && atomic_load(&recent_next) % 8 == 0) locked[unit_of(shared)] = 0;
            bring(shared, store && (atomic_load(&recent_next) & 3));
        }
        memcpy(store ? shared : own, store ? own : shared, part);
        if (is_lines(shared)) {
            used_once(shared);
            pthread_mutex_unlock(&lock);
        }
        shared += part, own += part, bytes -= part;
    }
}

/* A wait inside a hazard is a mistake of the plug-in. */
static void no_hazard(void) {
    if (__comem_hazard && *__comem_hazard) die("a call of the runtime while the hazard is up");
}

void __comem_inline_load(const void *address, void *value, size_t bytes) {
    no_hazard();
    atomic_fetch_add(&loads, 1);
    each_unit((char *)address, value, bytes, 0);
}

void __comem_inline_store(void *address, const void *value, size_t bytes) {
    no_hazard();
    atomic_fetch_add(&stores, 1);
    each_unit(address, (char *)value, bytes, 1);
}

void __comem_inline_read(void *out, const void *shared, size_t bytes) {
    no_hazard(), each_unit((char *)shared, out, bytes, 0);
}
void __comem_inline_write(void *shared, const void *in, size_t bytes) {
    no_hazard(), each_unit(shared, (char *)in, bytes, 1);
}

/* Whether all units could be made exclusive: locked ones only if they are to be unlocked. */
static int own(const void *first, size_t bytes, int unlock) {
    int all = 1;
    no_hazard();
    atomic_fetch_add(&owns, 1);
    char *at = (char *)((uintptr_t)first / unit_bytes * unit_bytes);
    for (; at < (char *)first + bytes; at += unit_bytes)
        if (is_lines(at)) {
            pthread_mutex_lock(&lock);
            if (unlock) locked[unit_of(at)] = 0;
            bring(at, 1);
            all &= !locked[unit_of(at)];
            pthread_mutex_unlock(&lock);
        }
    return all;
}

void __comem_inline_own(const void *first, size_t bytes) {
    int all = own(first, bytes, 0);
    asked_in_vain = all || first != asked_for ? 0 : asked_in_vain + 1;
    asked_for = first;
    if (asked_in_vain > 1000) die("a strip waits for units that own leaves locked");
}

void __comem_inline_own_again(const void *first, size_t bytes) {
    asked_in_vain = 0;
    own(first, bytes, 1);
}

void *__comem_inline_memmove(void *to, const void *from, size_t bytes) {
    char small[256], *copy = bytes <= sizeof small ? small : malloc(bytes);
    __comem_inline_read(copy, from, bytes);
    __comem_inline_write(to, copy, bytes);
    if (copy != small) free(copy);
    return to;
}

void *__comem_inline_memcpy(void *to, const void *from, size_t bytes) {
    return __comem_inline_memmove(to, from, bytes);
}

void *__comem_inline_memset(void *to, int byte, size_t bytes) {
    char some[64];
    memset(some, byte, sizeof some);
    for (size_t done = 0; done < bytes; done += sizeof some)
        __comem_inline_write((char *)to + done, some, bytes - done < sizeof some ? bytes - done : sizeof some);
    return to;
}

#define ATOMIC(T)                                                                                                      \
    static void atomic_##T(T *at, uint32_t op, T operand, const T *expected, T *old) {                                 \
        T was = *at, now = was;                                                                                        \
        switch (op) {                                                                                                  \
        case 0: now = operand; break;                                                                                  \
        case 1: now = was + operand; break;                                                                            \
        case 2: now = was - operand; break;                                                                            \
        case 3: now = was & operand; break;                                                                            \
        case 4: now = ~(was & operand); break;                                                                         \
        case 5: now = was | operand; break;                                                                            \
        case 6: now = was ^ operand; break;                                                                            \
        case 100: now = was == *expected ? operand : was; break;                                                       \
        default: die("an atomic operation that the tests do not know");                                                \
        }                                                                                                              \
        *at = now, *old = was;                                                                                         \
    }
ATOMIC(uint8_t)
ATOMIC(uint16_t)
ATOMIC(uint32_t)
ATOMIC(uint64_t)

void __comem_inline_atomic(void *address, uint32_t bytes, uint32_t op, const void *operand, const void *expected,
                           void *old) {
    no_hazard();
    atomic_fetch_add(&atomics, 1);
    int lines = is_lines(address);
    if (lines) {
        pthread_mutex_lock(&lock);
        /* The thread's own revocation: another thread's atomic instruction under way is waited for. */
        revoke_unit(unit_of(address), 1);
        bring(address, 0);
    }
    switch (bytes) {
    case 1: atomic_uint8_t(address, op, *(uint8_t *)operand, expected, old); break;
    case 2: atomic_uint16_t(address, op, *(uint16_t *)operand, expected, old); break;
    case 4: atomic_uint32_t(address, op, *(uint32_t *)operand, expected, old); break;
    case 8: atomic_uint64_t(address, op, *(uint64_t *)operand, expected, old); break;
    default: die("an atomic operation of this size");
    }
    if (lines) {
        if (!locked[unit_of(address)]) set_entries(unit_of(address), 0);
        used_once(address);
        pthread_mutex_unlock(&lock);
    }
}

void __comem_inline_object(uint32_t abi, const char *module, void *(*hazard)(void)) {
    (void)module, (void)hazard;
    if (abi != COMEM_INLINE_ABI) die("another version of the interface");
    if (slots) return;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (mmap((void *)COMEM_TABLE, COMEM_TABLE_BYTES, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, -1, 0) !=
        (void *)COMEM_TABLE)
        die("no table");
    slots = mmap(0, COMEM_HAZARD_SLOTS * COMEM_HAZARD_SLOT_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
}

static void *another_slot(void) {
    unsigned slot = atomic_fetch_add(&slots_used, 1);
    if (slot >= COMEM_HAZARD_SLOTS) die("no hazard is left");
    return slots + slot * COMEM_HAZARD_SLOT_BYTES / 8;
}

void *__comem_inline_enter(void) { return another_slot(); }

/* Between the check of an entry and the store, in builds with COMEM_INLINE_WINDOWS=1: waits until the adversary has
 * taken all units away, or waits for a hazard. So what is wrong without hazards is wrong on every machine. */
void __comem_inline_window(void) {
    static __thread unsigned calls;
    unsigned long met = atomic_load(&hazards_met);
    if (!on || ++calls % 16) return;
    atomic_store(&sweep_wanted, 1);
    while (atomic_load(&sweep_wanted) && atomic_load(&hazards_met) == met) sched_yield();
}

void __comem_inline_verify(const void *address, size_t bytes, const char *where) {
    (void)bytes;
    if (is_lines(address)) {
        fprintf(stderr, "fake: %s: an address taken for private is in lines memory\n", where);
        abort();
    }
}

static void (*handlers[65])(int);

static void handle(int number) {
    static __thread uint64_t *of_handlers;
    uint64_t *interrupted = __comem_hazard;
    if (!of_handlers) of_handlers = another_slot();
    __comem_hazard = of_handlers;
    handlers[number](number);
    __comem_hazard = interrupted;
}

int __comem_inline_sigaction(int number, const struct sigaction *action, struct sigaction *old) {
    struct sigaction own = *action;
    handlers[number] = action->sa_handler;
    own.sa_handler = handle;
    return sigaction(number, &own, old);
}

void (*__comem_inline_signal(int number, void (*handler)(int)))(int) {
    handlers[number] = handler;
    signal(number, handle);
    return SIG_DFL;
}
