/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * comem_threads.h: comem.h over plain threads in one process, without Comem.
 *
 * Included by comem.h under -DCOMEM_PTHREADS, never by programs. It answers "what would this program be on one machine
 * with a memory that hardware shares?": shared memory is memory, locks are mutexes, and no library but pthreads is
 * linked. The environment variable COMEM_THREADS says how many threads there are (1 if it is not set).
 *
 * A wait spins briefly if every thread can have a core of its own, and then blocks. Locks, condition variables,
 * semaphores and flags have numbers for names; a table that only grows, and is read without a lock, leads from the
 * number to the thing.
 */
#ifndef COMEM_THREADS_H
#define COMEM_THREADS_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#if !defined(__GNUC__)
#error "comem_threads.h needs a compiler with GNU atomics and thread-local variables: gcc or clang"
#endif

/* How many names the table spreads well, and how often a thread looks before it blocks (some tens of microseconds). */
enum { COMEM_NAME_BITS_ = 14, COMEM_SPINS_ = 2000, COMEM_THREADS_MAX_ = 4096, COMEM_LINE_ = 64 };

/* What a number can name. */
enum { COMEM_A_LOCK_ = 1, COMEM_A_RWLOCK_, COMEM_A_CONDITION_, COMEM_A_SEMAPHORE_, COMEM_A_FLAG_, COMEM_A_MAILBOX_,
       COMEM_A_LOOP_ };

/* A named thing of any kind. */
struct comem_named_ {
    struct comem_named_ *next; /* in its list of the table */
    uint64_t name;
    int kind;
    int holder;              /* of a lock, or a writer: its thread plus one */
    uint64_t value;          /* of a flag or a semaphore */
    int readers;             /* that hold a reader-writer lock */
    int readers_waiting;     /* for the next writer to end */
    int writers_waiting;     /* new readers let them go first */
    unsigned writers_ended;
    void *messages, *newest; /* of a mailbox */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

/* That a thread holds a reader-writer lock. */
struct comem_hold_ {
    struct comem_hold_ *next;
    const struct comem_named_ *lock;
    int writes;
    int depth; /* how often it has entered */
};

/* The job: one node, so one of these for all translation units of the program. */
struct comem_job_ {
    int started;
    int threads;
    int spins;
    int numbered;           /* threads that have a number */
    unsigned generation;    /* how many barriers have opened */
    int arrived;            /* at the barrier that has not */
    int sleeping;           /* threads that blocked there */
    pthread_mutex_t mutex;  /* with `opened`, for those */
    pthread_cond_t opened;
    void *operands[COMEM_THREADS_MAX_]; /* of a reduction */
    comem_error_handler handler;
    void *handler_argument;
    struct comem_named_ *names[1 << COMEM_NAME_BITS_];
};
__attribute__((weak)) struct comem_job_ comem_job_;
__attribute__((weak)) __thread int comem_number_; /* this thread's number plus one; 0: none yet */
__attribute__((weak)) __thread struct comem_hold_ *comem_holds_;
__attribute__((weak)) __thread const char *comem_sentence_;
__attribute__((weak)) __thread uint64_t comem_loops_; /* loops dealt out that this thread has begun */
__attribute__((weak)) __thread int comem_in_loop_;

/* ---- errors ------------------------------------------------------------------------------------------------- */

static inline const char *comem_error_string(int code) {
    return code == COMEM_OK ? "no error" : "error";
}
static inline const char *comem_last_error(void) {
    return comem_sentence_ ? comem_sentence_ : "";
}
static inline void comem_set_error_handler(comem_error_handler handler, void *argument) {
    comem_job_.handler = handler;
    comem_job_.handler_argument = argument;
}
static inline void comem_abort(int status, const char *sentence) {
    fprintf(stderr, "%s\n", sentence);
    exit(status & 0xff ? status : 1);
}
static inline int comem_fail_(int code, const char *sentence) {
    comem_sentence_ = sentence;
    if (!comem_job_.handler) comem_abort(1, sentence);
    comem_job_.handler(code, sentence, comem_job_.handler_argument);
    return code;
}

/* ---- cores --------------------------------------------------------------------------------------------------- */

/* Cores of the processor time that a control group's file leaves; `cores` where it sets no limit, or is not there. */
static inline long comem_quota_(const char *folder, const char *path, int version, long cores) {
    char name[4600];
    long quota = -1, period = 100000;
    FILE *file;
    snprintf(name, sizeof name, "%s%s/%s", folder, path, version == 2 ? "cpu.max" : "cpu.cfs_quota_us");
    file = fopen(name, "r");
    if (!file) return cores;
    if (fscanf(file, version == 2 ? "%ld %ld" : "%ld", &quota, &period) < 1) quota = -1;
    fclose(file);
    if (version == 1) {
        snprintf(name, sizeof name, "%s%s/cpu.cfs_period_us", folder, path);
        file = fopen(name, "r");
        if (file) {
            if (fscanf(file, "%ld", &period) != 1) period = 100000;
            fclose(file);
        }
    }
    if (quota <= 0 || period <= 0 || quota / period >= cores) return cores;
    return quota / period > 0 ? quota / period : 1;
}
/* Cores that this process may keep busy: those it may run on, or fewer by the quotas of the control groups around
 * it. */
static inline long comem_cores_(void) {
    char line[4400], *at;
    long cores = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "Cpus_allowed:", 13)) continue;
        for (at = line + 13; *at; at++) {
            const int digit = *at >= '0' && *at <= '9' ? *at - '0' : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10 : 0;
            cores += __builtin_popcount((unsigned)digit);
        }
    }
    if (file) fclose(file);
    if (cores < 1) cores = sysconf(_SC_NPROCESSORS_ONLN);
    file = fopen("/proc/self/cgroup", "r");
    while (file && fgets(line, sizeof line, file)) {
        char *kinds = strchr(line, ':'), *path = kinds ? strchr(kinds + 1, ':') : NULL;
        int version = 2;
        if (!path) continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        if (kinds[1]) {
            char names[512];
            snprintf(names, sizeof names, ",%s,", kinds + 1);
            if (!strstr(names, ",cpu,")) continue;
            version = 1;
        }
        for (;;) {
            cores = comem_quota_(version == 2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu", path, version, cores);
            at = strrchr(path, '/');
            if (!at) break;
            *at = 0;
        }
    }
    if (file) fclose(file);
    return cores < 1 ? 1 : cores;
}

/* ---- the job ------------------------------------------------------------------------------------------------- */

static inline int comem_start(void) {
    const char *text = getenv("COMEM_THREADS");
    const int threads = text ? atoi(text) : 1;
    const long cores = comem_cores_();
    if (threads < 1 || threads > COMEM_THREADS_MAX_) {
        comem_sentence_ = "comem: COMEM_THREADS is no number of threads; set it to 1 or more";
        return COMEM_E_START;
    }
    comem_job_.threads = threads;
    comem_job_.spins = threads <= cores ? COMEM_SPINS_ : 0;
    comem_job_.numbered = 1;
    comem_number_ = 1;
    pthread_mutex_init(&comem_job_.mutex, NULL);
    pthread_cond_init(&comem_job_.opened, NULL);
    comem_job_.started = 1;
    return COMEM_OK;
}
static inline int comem_start_args(int *argc, char **argv) {
    (void)argc;
    (void)argv;
    return comem_start();
}
static inline int comem_unique_id(comem_id *id) { return memset(id, 0, sizeof *id), COMEM_OK; }
static inline int comem_start_attr(const comem_attr *attr) {
    if (attr && attr->processes > 1) {
        comem_sentence_ = "comem: a program of plain threads is one process; build it without COMEM_PTHREADS";
        return COMEM_E_START;
    }
    return comem_start();
}
static inline int comem_finish(void) {
    comem_job_.started = 0;
    return COMEM_OK;
}
static inline int comem_node(void) {
    return 0;
}
static inline int comem_nodes(void) {
    return 1;
}
static inline int comem_threads(void) {
    return comem_job_.threads;
}
static inline int comem_threads_per_node(void) {
    return comem_job_.threads;
}
static inline int comem_thread(void) {
    if (comem_number_ == 0) {
        const int number = __atomic_add_fetch(&comem_job_.numbered, 1, __ATOMIC_RELAXED);
        if (number > comem_job_.threads) {
            return comem_fail_(COMEM_E_THREAD, "comem: more threads than COMEM_THREADS says; raise it");
        }
        comem_number_ = number;
    }
    return comem_number_ - 1;
}
static inline const char *comem_version(void) {
    return COMEM_VERSION_STRING;
}

/* What a thread of comem_parallel() is to do. */
struct comem_task_ {
    void (*function)(void *argument);
    void *argument;
    int number;
    pthread_t thread;
};
static inline void *comem_run_(void *pointer) {
    struct comem_task_ *task = (struct comem_task_ *)pointer;
    comem_number_ = task->number;
    task->function(task->argument);
    return NULL;
}
#ifdef __cplusplus
#define COMEM_NOEXCEPT_ noexcept /* the other threads would go on, with an argument that the caller has given up */
#else
#define COMEM_NOEXCEPT_
#endif
static inline int comem_parallel(void (*function)(void *argument), void *argument) {
    const int others = comem_job_.threads - 1;
    struct comem_task_ *tasks = (struct comem_task_ *)calloc((size_t)others + 1, sizeof *tasks);
    if (!tasks) return comem_fail_(COMEM_E_SYSTEM, "comem: no memory to start threads; use fewer");
    for (int i = 0; i < others; i++) {
        tasks[i].function = function;
        tasks[i].argument = argument;
        tasks[i].number = i + 2;
        if (pthread_create(&tasks[i].thread, NULL, comem_run_, &tasks[i]) != 0) {
            comem_abort(1, "comem: the system gives no more threads; lower COMEM_THREADS");
        }
    }
    function(argument);
    for (int i = 0; i < others; i++) pthread_join(tasks[i].thread, NULL);
    free(tasks);
    return COMEM_OK;
}
static inline int comem_split(uint64_t total, uint64_t *low, uint64_t *high) {
    const uint64_t threads = (uint64_t)comem_job_.threads, self = (uint64_t)comem_thread();
    const uint64_t each = total / threads, rest = total % threads;
    *low = each * self + (self < rest ? self : rest);
    *high = *low + each + (self < rest);
    return COMEM_OK;
}

/* ---- waiting -------------------------------------------------------------------------------------------------- */

static inline void comem_relax_(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* The last to arrive opens the barrier by counting its generation up. Who blocks says so under the mutex, before it
 * looks a last time, so the opener misses nobody. */
static inline int comem_barrier(void) {
    struct comem_job_ *job = &comem_job_;
    const unsigned generation = __atomic_load_n(&job->generation, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&job->arrived, 1, __ATOMIC_ACQ_REL) == job->threads) {
        __atomic_store_n(&job->arrived, 0, __ATOMIC_RELAXED);
        pthread_mutex_lock(&job->mutex);
        __atomic_store_n(&job->generation, generation + 1, __ATOMIC_RELEASE);
        if (job->sleeping) pthread_cond_broadcast(&job->opened);
        pthread_mutex_unlock(&job->mutex);
        return COMEM_OK;
    }
    for (int i = 0; i < job->spins; i++) {
        if (__atomic_load_n(&job->generation, __ATOMIC_ACQUIRE) != generation) return COMEM_OK;
        comem_relax_();
    }
    pthread_mutex_lock(&job->mutex);
    job->sleeping++;
    while (job->generation == generation) pthread_cond_wait(&job->opened, &job->mutex);
    job->sleeping--;
    pthread_mutex_unlock(&job->mutex);
    return COMEM_OK;
}
static inline int comem_rendezvous(void) {
    return comem_barrier();
}
static inline int comem_split_weighted(uint64_t total, uint64_t *low, uint64_t *high) {
    comem_barrier();
    return comem_split(total, low, high);
}

/* ---- named things --------------------------------------------------------------------------------------------- */

/* Looks for a thing in the part of a list from `from` up to, not including, `end`. */
static inline struct comem_named_ *comem_among_(struct comem_named_ *from, const struct comem_named_ *end, int kind,
                                                uint64_t name) {
    while (from != end && (from->name != name || from->kind != kind)) from = from->next;
    return from == end ? NULL : from;
}
static inline struct comem_named_ *comem_make_(int kind, uint64_t name) {
    /* Two lines apart, so that no two things share one. */
    struct comem_named_ *made = (struct comem_named_ *)calloc(1, sizeof *made + 2 * COMEM_LINE_);
    if (!made) comem_abort(1, "comem: no memory for a lock");
    made = (struct comem_named_ *)(void *)((char *)made + COMEM_LINE_);
    made->kind = kind;
    made->name = name;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->changed, NULL);
    return made;
}
/* The thing of this kind and name, made if it is new. */
static inline struct comem_named_ *comem_by_name_(int kind, uint64_t name) {
    const uint64_t mixed = (name ^ ((uint64_t)kind << 56)) * UINT64_C(0x9e3779b97f4a7c15);
    struct comem_named_ **head = &comem_job_.names[mixed >> (64 - COMEM_NAME_BITS_)];
    struct comem_named_ *seen = __atomic_load_n(head, __ATOMIC_ACQUIRE);
    struct comem_named_ *found = comem_among_(seen, NULL, kind, name);
    if (found) return found;
    struct comem_named_ *made = comem_make_(kind, name);
    for (;;) {
        struct comem_named_ *before = seen;
        made->next = seen;
        if (__atomic_compare_exchange_n(head, &seen, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return made;
        found = comem_among_(seen, before, kind, name);
        if (found) {
            free((char *)made - COMEM_LINE_);
            return found;
        }
    }
}

static inline int comem_lock(uint64_t lock) {
    struct comem_named_ *self = comem_by_name_(COMEM_A_LOCK_, lock);
    const int holder = comem_thread() + 1;
    if (__atomic_load_n(&self->holder, __ATOMIC_RELAXED) == holder) {
        return comem_fail_(COMEM_E_MISUSE,
                           "comem: a lock is acquired that this thread holds already; locks are not reentrant");
    }
    pthread_mutex_lock(&self->mutex);
    __atomic_store_n(&self->holder, holder, __ATOMIC_RELAXED);
    return COMEM_OK;
}
static inline int comem_trylock(uint64_t lock) {
    struct comem_named_ *self = comem_by_name_(COMEM_A_LOCK_, lock);
    const int holder = comem_thread() + 1;
    if (pthread_mutex_trylock(&self->mutex) != 0) return 0;
    __atomic_store_n(&self->holder, holder, __ATOMIC_RELAXED);
    return 1;
}
static inline int comem_unlock(uint64_t lock) {
    struct comem_named_ *self = comem_by_name_(COMEM_A_LOCK_, lock);
    if (comem_number_ == 0 || __atomic_load_n(&self->holder, __ATOMIC_RELAXED) != comem_number_) {
        return comem_fail_(COMEM_E_MISUSE, "comem: a lock is released that this thread does not hold");
    }
    __atomic_store_n(&self->holder, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&self->mutex);
    return COMEM_OK;
}

static inline int comem_cond_wait(uint64_t cond, uint64_t lock) {
    struct comem_named_ *held = comem_by_name_(COMEM_A_LOCK_, lock);
    if (comem_number_ == 0 || __atomic_load_n(&held->holder, __ATOMIC_RELAXED) != comem_number_) {
        return comem_fail_(COMEM_E_MISUSE, "comem: a wait for a condition without its lock");
    }
    __atomic_store_n(&held->holder, 0, __ATOMIC_RELAXED);
    pthread_cond_wait(&comem_by_name_(COMEM_A_CONDITION_, cond)->changed, &held->mutex);
    __atomic_store_n(&held->holder, comem_number_, __ATOMIC_RELAXED);
    return COMEM_OK;
}
static inline int comem_cond_signal(uint64_t cond) {
    pthread_cond_signal(&comem_by_name_(COMEM_A_CONDITION_, cond)->changed);
    return COMEM_OK;
}
static inline int comem_cond_broadcast(uint64_t cond) {
    pthread_cond_broadcast(&comem_by_name_(COMEM_A_CONDITION_, cond)->changed);
    return COMEM_OK;
}

static inline int comem_sem_post(uint64_t sem) {
    struct comem_named_ *self = comem_by_name_(COMEM_A_SEMAPHORE_, sem);
    pthread_mutex_lock(&self->mutex);
    self->value++;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    return COMEM_OK;
}
static inline int comem_sem_wait(uint64_t sem) {
    struct comem_named_ *self = comem_by_name_(COMEM_A_SEMAPHORE_, sem);
    pthread_mutex_lock(&self->mutex);
    while (self->value == 0) pthread_cond_wait(&self->changed, &self->mutex);
    self->value--;
    pthread_mutex_unlock(&self->mutex);
    return COMEM_OK;
}

static inline int comem_sem_trywait(uint64_t sem) {
    struct comem_named_ *self = comem_by_name_(COMEM_A_SEMAPHORE_, sem);
    pthread_mutex_lock(&self->mutex);
    int took = self->value > 0;
    self->value -= (uint64_t)took;
    pthread_mutex_unlock(&self->mutex);
    return took;
}

/* Where the calling thread's hold of a reader-writer lock stands in its list, or the list's end. */
static inline struct comem_hold_ **comem_hold_of_(const struct comem_named_ *lock) {
    struct comem_hold_ **at = &comem_holds_;
    while (*at && (*at)->lock != lock) at = &(*at)->next;
    return at;
}
static inline void comem_note_hold_(const struct comem_named_ *lock, int writes) {
    struct comem_hold_ *made = (struct comem_hold_ *)malloc(sizeof *made);
    if (!made) comem_abort(1, "comem: no memory for a lock");
    made->next = comem_holds_;
    made->lock = lock;
    made->writes = writes;
    made->depth = 1;
    comem_holds_ = made;
}

/* New readers let waiting writers go first, but for those that read already, which would wait for themselves. A reader
 * that waits does so until the next writer ends, which lets it in. */
static inline int comem_rdlock(uint64_t lock) {
    struct comem_named_ *self = comem_by_name_(COMEM_A_RWLOCK_, lock);
    struct comem_hold_ *hold = *comem_hold_of_(self);
    if (hold && hold->writes) {
        return comem_fail_(COMEM_E_MISUSE, "comem: a thread asks for a reader-writer lock that it writes under");
    }
    if (hold) {
        hold->depth++;
        return COMEM_OK;
    }
    pthread_mutex_lock(&self->mutex);
    if (self->holder || self->writers_waiting) {
        const unsigned ended = self->writers_ended;
        self->readers_waiting++;
        while (self->writers_ended == ended) pthread_cond_wait(&self->changed, &self->mutex);
    } else {
        self->readers++;
    }
    pthread_mutex_unlock(&self->mutex);
    comem_note_hold_(self, 0);
    return COMEM_OK;
}
static inline int comem_wrlock(uint64_t lock) {
    struct comem_named_ *self = comem_by_name_(COMEM_A_RWLOCK_, lock);
    if (*comem_hold_of_(self)) {
        return comem_fail_(COMEM_E_MISUSE, "comem: a thread asks to write under a reader-writer lock that it holds");
    }
    pthread_mutex_lock(&self->mutex);
    self->writers_waiting++;
    while (self->holder || self->readers) pthread_cond_wait(&self->changed, &self->mutex);
    self->writers_waiting--;
    self->holder = comem_thread() + 1;
    pthread_mutex_unlock(&self->mutex);
    comem_note_hold_(self, 1);
    return COMEM_OK;
}
static inline int comem_tryrdlock(uint64_t lock) {
    struct comem_named_ *self = comem_by_name_(COMEM_A_RWLOCK_, lock);
    struct comem_hold_ *hold = *comem_hold_of_(self);
    if (hold) {
        hold->depth += !hold->writes;
        return !hold->writes;
    }
    pthread_mutex_lock(&self->mutex);
    const int took = !self->holder && !self->writers_waiting;
    self->readers += took;
    pthread_mutex_unlock(&self->mutex);
    if (took) comem_note_hold_(self, 0);
    return took;
}
static inline int comem_trywrlock(uint64_t lock) {
    struct comem_named_ *self = comem_by_name_(COMEM_A_RWLOCK_, lock);
    if (*comem_hold_of_(self)) return 0;
    pthread_mutex_lock(&self->mutex);
    const int took = !self->holder && !self->readers;
    if (took) self->holder = comem_thread() + 1;
    pthread_mutex_unlock(&self->mutex);
    if (took) comem_note_hold_(self, 1);
    return took;
}
static inline int comem_rwunlock(uint64_t lock) {
    struct comem_named_ *self = comem_by_name_(COMEM_A_RWLOCK_, lock);
    struct comem_hold_ **at = comem_hold_of_(self), *hold = *at;
    if (!hold) return comem_fail_(COMEM_E_MISUSE, "comem: a lock is released that this thread does not hold");
    if (--hold->depth > 0) return COMEM_OK;
    *at = hold->next;
    pthread_mutex_lock(&self->mutex);
    if (hold->writes) {
        __atomic_store_n(&self->holder, 0, __ATOMIC_RELAXED);
        self->writers_ended++;
        self->readers += self->readers_waiting;
        self->readers_waiting = 0;
    } else {
        self->readers--;
    }
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    free(hold);
    return COMEM_OK;
}

static inline int comem_flag_set(uint64_t flag, uint64_t value) {
    struct comem_named_ *self = comem_by_name_(COMEM_A_FLAG_, flag);
    pthread_mutex_lock(&self->mutex);
    if (self->value < value) {
        __atomic_store_n(&self->value, value, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->mutex);
    return COMEM_OK;
}
static inline int comem_flag_wait(uint64_t flag, uint64_t value) {
    struct comem_named_ *self = comem_by_name_(COMEM_A_FLAG_, flag);
    for (int i = 0; i <= comem_job_.spins; i++) {
        if (__atomic_load_n(&self->value, __ATOMIC_ACQUIRE) >= value) return COMEM_OK;
        comem_relax_();
    }
    pthread_mutex_lock(&self->mutex);
    while (self->value < value) pthread_cond_wait(&self->changed, &self->mutex);
    pthread_mutex_unlock(&self->mutex);
    return COMEM_OK;
}

/* ---- reductions ------------------------------------------------------------------------------------------------ */

/* Each thread combines a part of the places, in the order of the threads, and gives the result to all. */
#define COMEM_DEFINE_REDUCE_(name, type)                                                                             \
    static inline int comem_reduce_##name(int operation, type *values, size_t count) {                               \
        const int threads = comem_job_.threads, self = comem_thread();                                               \
        const size_t low = count * (size_t)self / (size_t)threads;                                                   \
        const size_t high = count * ((size_t)self + 1) / (size_t)threads;                                            \
        comem_job_.operands[self] = values;                                                                          \
        comem_barrier();                                                                                             \
        for (size_t i = low; i < high; i++) {                                                                        \
            type result = ((const type *)comem_job_.operands[0])[i];                                                 \
            for (int t = 1; t < threads; t++) {                                                                      \
                const type value = ((const type *)comem_job_.operands[t])[i];                                        \
                if (operation == COMEM_SUM) {                                                                        \
                    result += value;                                                                                 \
                } else if (value != value || (operation == COMEM_MIN ? value < result : value > result)) {           \
                    result = value; /* a NaN stays */                                                                \
                }                                                                                                    \
            }                                                                                                        \
            for (int t = 0; t < threads; t++) ((type *)comem_job_.operands[t])[i] = result;                          \
        }                                                                                                            \
        return comem_barrier();                                                                                      \
    }
COMEM_DEFINE_REDUCE_(i64, int64_t)
COMEM_DEFINE_REDUCE_(f64, double)
#undef COMEM_DEFINE_REDUCE_

/* ---- loops dealt out ------------------------------------------------------------------------------------------- */

/* Loops take places in turn. A place is free for the next one when all threads have left the last: `writers_ended`
 * counts those that it has had, `value` is the next number to deal out, and `readers` are the threads that have
 * left. */
enum { COMEM_LOOPS_ = 64 };

static inline struct comem_named_ *comem_loop_(void) {
    return comem_by_name_(COMEM_A_LOOP_, (comem_loops_ - 1) % COMEM_LOOPS_);
}
static inline int comem_begin_items_(void) {
    if (!comem_in_loop_) return COMEM_OK;
    return comem_fail_(COMEM_E_MISUSE, "comem: a dynamic loop within a dynamic loop");
}
static inline void comem_leave_items_(void) {
    if (!comem_in_loop_) return;
    struct comem_named_ *self = comem_loop_();
    comem_in_loop_ = 0;
    pthread_mutex_lock(&self->mutex);
    if (++self->readers == comem_job_.threads) {
        self->readers = 0;
        self->value = 0;
        self->writers_ended++;
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->mutex);
}
static inline int comem_next_items_(uint64_t total, uint64_t chunk, uint64_t *low, uint64_t *high) {
    const int begins = !comem_in_loop_;
    if (begins) {
        comem_thread();
        comem_loops_++;
        comem_in_loop_ = 1;
    }
    struct comem_named_ *self = comem_loop_();
    pthread_mutex_lock(&self->mutex);
    while (begins && self->writers_ended != (unsigned)((comem_loops_ - 1) / COMEM_LOOPS_)) {
        pthread_cond_wait(&self->changed, &self->mutex);
    }
    const uint64_t left = total - self->value, threads = (uint64_t)comem_job_.threads;
    const uint64_t piece = chunk ? chunk : (left + 2 * threads - 1) / (2 * threads);
    *low = self->value;
    *high = *low + (piece < left ? piece : left);
    self->value = *high;
    pthread_mutex_unlock(&self->mutex);
    if (left == 0) comem_leave_items_();
    return left != 0;
}
static inline int comem_for_dynamic(uint64_t total, uint64_t chunk,
                                    void (*body)(uint64_t low, uint64_t high, void *argument), void *argument) {
    uint64_t low, high;
    const int code = comem_begin_items_();
    if (code != COMEM_OK) return code;
    while (comem_next_items_(total, chunk, &low, &high)) body(low, high, argument);
    return COMEM_OK;
}
static inline int comem_node_barrier(void) {
    return COMEM_OK;
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

struct comem_message_ {
    struct comem_message_ *next;
    size_t length;
};
static inline int comem_post(int thread, const void *data, size_t length) {
    if (thread < 0 || thread >= comem_job_.threads) {
        return comem_fail_(COMEM_E_ARGUMENT, "comem: a message to a thread that does not exist");
    }
    struct comem_message_ *message = (struct comem_message_ *)malloc(sizeof *message + length);
    if (!message) return comem_fail_(COMEM_E_SYSTEM, "comem: no memory for a message");
    message->next = NULL;
    message->length = length;
    if (length) memcpy(message + 1, data, length);
    struct comem_named_ *box = comem_by_name_(COMEM_A_MAILBOX_, (uint64_t)thread);
    pthread_mutex_lock(&box->mutex);
    if (box->messages) {
        ((struct comem_message_ *)box->newest)->next = message;
    } else {
        box->messages = message;
    }
    box->newest = message;
    pthread_cond_signal(&box->changed);
    pthread_mutex_unlock(&box->mutex);
    return COMEM_OK;
}
static inline int64_t comem_take_(int *from, void *buffer, size_t capacity, int wait) {
    struct comem_named_ *box = comem_by_name_(COMEM_A_MAILBOX_, (uint64_t)comem_thread());
    pthread_mutex_lock(&box->mutex);
    while (wait && !box->messages) pthread_cond_wait(&box->changed, &box->mutex);
    struct comem_message_ *message = (struct comem_message_ *)box->messages;
    int64_t result = !message ? COMEM_E_EMPTY : message->length > capacity ? COMEM_E_TOO_SMALL : 0;
    if (result == 0) {
        box->messages = message->next;
        result = (int64_t)message->length;
        if (message->length) memcpy(buffer, message + 1, message->length);
        if (from) *from = 0;
        free(message);
    }
    pthread_mutex_unlock(&box->mutex);
    return result;
}
static inline int64_t comem_receive(int *from, void *buffer, size_t capacity) {
    return comem_take_(from, buffer, capacity, 1);
}
static inline int64_t comem_tryreceive(int *from, void *buffer, size_t capacity) {
    return comem_take_(from, buffer, capacity, 0);
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* Zeroed memory from calloc(), aligned; the word before it remembers what calloc() gave. */
static inline void *comem_alloc_with(size_t bytes, const comem_region_options *options) {
    const size_t alignment = options && options->alignment > COMEM_LINE_ ? options->alignment : (size_t)COMEM_LINE_;
    if (alignment & (alignment - 1)) {
        comem_fail_(COMEM_E_ARGUMENT, "comem: an alignment that is no power of two");
        return NULL;
    }
    char *block = bytes > SIZE_MAX - 2 * alignment ? NULL : (char *)calloc(1, bytes + alignment + sizeof(void *));
    if (!block) {
        comem_fail_(COMEM_E_SYSTEM, "comem: no memory of that size; ask for less");
        return NULL;
    }
    char *place = block + sizeof(void *);
    place += (alignment - (uintptr_t)place % alignment) % alignment;
    ((void **)(void *)place)[-1] = block;
    return place;
}
static inline void *comem_alloc(size_t bytes) {
    return comem_alloc_with(bytes, NULL);
}
static inline void *comem_alloc_all(size_t bytes, const comem_region_options *options) {
    return comem_alloc_with(bytes, options);
}
static inline int comem_free(void *p) {
    if (p) free(((void **)p)[-1]);
    return COMEM_OK;
}
static inline int comem_label(void *p, const char *name) {
    (void)p;
    (void)name;
    return COMEM_OK;
}
static inline int comem_freeze(const void *p) {
    (void)p;
    return COMEM_OK;
}
static inline int comem_prefetch(const void *p, size_t bytes, int for_writing) {
    (void)p;
    (void)bytes;
    (void)for_writing;
    return COMEM_OK;
}
static inline int comem_is_shared(const void *p) {
    (void)p;
    return 0;
}

/* ---- arrays ---------------------------------------------------------------------------------------------------- */

/* Elements are atomic and sequentially consistent, as comem.h promises. `object` holds the element's size for the
 * untyped accessors, which are atomic by way of a lock, chosen by the element's address. */
static inline size_t comem_element_size_(comem_array array) {
    return (size_t)(uintptr_t)array.object;
}
static inline int comem_create(comem_array *array, size_t element_size, uint64_t length,
                               const comem_object_options *options) {
    (void)options;
    array->data = (unsigned char *)calloc(length ? (size_t)length : 1, element_size);
    array->access = NULL;
    array->length = array->data ? length : 0;
    array->object = (struct comem_object *)(uintptr_t)element_size;
    return array->data ? COMEM_OK : COMEM_E_ARRAY;
}
static inline int comem_copy_element_(comem_array array, uint64_t index, void *out, const void *in) {
    const size_t size = comem_element_size_(array);
    if (index >= array.length) return comem_fail_(COMEM_E_INDEX, "comem: an index outside its array");
    unsigned char *element = array.data + index * size;
    if (size == 8 && (uintptr_t)element % 8 == 0) {
        uint64_t word;
        if (in) {
            memcpy(&word, in, 8);
            __atomic_store_n((uint64_t *)(void *)element, word, __ATOMIC_SEQ_CST);
        } else {
            word = __atomic_load_n((uint64_t *)(void *)element, __ATOMIC_SEQ_CST);
            memcpy(out, &word, 8);
        }
        return COMEM_OK;
    }
    struct comem_named_ *guard = comem_by_name_(0, (uintptr_t)element >> 6 & 63);
    pthread_mutex_lock(&guard->mutex);
    memcpy(in ? element : (unsigned char *)out, in ? (const unsigned char *)in : element, size);
    pthread_mutex_unlock(&guard->mutex);
    return COMEM_OK;
}
static inline int comem_read(comem_array array, uint64_t index, void *out) {
    return comem_copy_element_(array, index, out, NULL);
}
static inline int comem_write(comem_array array, uint64_t index, const void *value) {
    return comem_copy_element_(array, index, NULL, value);
}
static inline const void *comem_read_begin(comem_array array, uint64_t low, uint64_t high) {
    (void)high;
    return array.data + low * comem_element_size_(array);
}
static inline int comem_read_end(comem_array array, uint64_t low, uint64_t high) {
    (void)array;
    (void)low;
    (void)high;
    return COMEM_OK;
}
static inline void *comem_write_begin(comem_array array, uint64_t low, uint64_t high) {
    (void)high;
    return array.data + low * comem_element_size_(array);
}
static inline int comem_write_end(comem_array array, uint64_t low, uint64_t high) {
    return comem_read_end(array, low, high);
}
static inline comem_array comem_new_(size_t element_size, uint64_t length, const comem_object_options *options) {
    comem_array array;
    if (comem_create(&array, element_size, length, options) != 0) comem_abort(1, "comem: no memory for an array");
    return array;
}

#define COMEM_READ_ELEMENT_(type, array, index, value)                                                               \
    __atomic_load(&((type *)(void *)(array).data)[index], &(value), __ATOMIC_SEQ_CST)
#define COMEM_WRITE_ELEMENT_(type, array, index, value)                                                              \
    __atomic_store(&((type *)(void *)(array).data)[index], &(value), __ATOMIC_SEQ_CST)

#endif /* COMEM_THREADS_H */
