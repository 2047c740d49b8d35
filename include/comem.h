/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * comem.h: one memory for many machines, for C (C99, C11, C++).
 *
 * A program allocates shared arrays, reads and writes their elements from any thread of any node, and synchronises
 * with locks, barriers and flags. Comem moves the data.
 *
 *     #include <comem.h>
 *     #include <stdio.h>
 *
 *     static comem_array_i64 sum;
 *
 *     static void work(void *unused) {
 *         comem_lock(1);
 *         comem_write_i64(sum, 0, comem_read_i64(sum, 0) + comem_thread());
 *         comem_unlock(1);
 *         comem_barrier();
 *     }
 *
 *     int main(void) {
 *         if (comem_start() != 0) return 1;
 *         sum = comem_new_i64(1, NULL);
 *         comem_parallel(work, NULL);
 *         if (comem_thread() == 0) printf("%lld\n", (long long)comem_read_i64(sum, 0));
 *         return comem_finish();
 *     }
 *
 *     cc -I INCLUDE program.c -L LIB -lcomem -Wl,-rpath,LIB && comem run -n 4 ./a.out      (docs/c.md)
 *
 * Terms. A *node* is one process of the job; its *threads* are numbered through all nodes. An *array* is an
 * allocation; its *unit* is what moves between nodes at a time. A call is *collective* when every node makes it, in
 * the same order.
 *
 * Memory model. Reads and writes of elements are atomic for any element size and sequentially consistent under the
 * engines `msi`, `direct` and `owner`; `broadcast` promises nothing. A range gives plain memory: races on it are data
 * races.
 *
 * Errors. comem_start() and comem_create() return 0, or a negative COMEM_E_ code with the sentence in
 * comem_last_error(). Anything else that goes wrong (an index out of range, a lock released that is not held) prints
 * one sentence and ends the node, and so the job, unless the program has set an error handler: then the call gives the
 * code. So the results of the other functions need no check. When another node is lost, or the job is told to end, the
 * node ends with the sentence, whatever handler there is.
 *
 * The same source, compiled with -DCOMEM_SEQUENTIAL, is a program on plain memory without any call to Comem.
 */
#ifndef COMEM_H
#define COMEM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Versions that begin with 0 promise nothing about the next one: build programs anew with the header of the library
 * that they run with. A program asks for the library by its interface's version (libcomem.so.0.1: the first two of
 * these numbers), and so does not run with another's. One that calls what its library does not have ends there with the
 * loader's sentence, which names the function. */
#define COMEM_VERSION_MAJOR 0
#define COMEM_VERSION_MINOR 1
#define COMEM_VERSION_PATCH 0
#define COMEM_VERSION_STRING "0.1.0"

#if defined(COMEM_SEQUENTIAL) || defined(COMEM_PTHREADS)
#define COMEM_API static inline
#else
#define COMEM_API extern
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ------------------------------------------------------------------------------------------------- */

enum {
    COMEM_OK = 0,
    COMEM_E_START = -1,       /* the job could not be started or joined */
    COMEM_E_NOT_STARTED = -2, /* a call before comem_start() or after comem_finish() */
    COMEM_E_INDEX = -3,       /* an index or range outside its array */
    COMEM_E_ARRAY = -4,       /* the array was not created, or cannot be created like that */
    COMEM_E_ARGUMENT = -5,    /* any other argument that makes no sense */
    COMEM_E_THREAD = -6,      /* the node has no thread number left for the calling thread */
    COMEM_E_MISUSE = -7,      /* a call out of order: a lock released that is not held, and the like */
    COMEM_E_NODE_LOST = -8,   /* another node ended or fell silent: kept for that, but the node ends */
    COMEM_E_EMPTY = -9,       /* comem_tryreceive(): no message is waiting */
    COMEM_E_TOO_SMALL = -10,  /* the buffer is smaller than the message, which stays where it is */
    COMEM_E_SYSTEM = -11,     /* the operating system refused something */
    COMEM_E_STOPPED = -12     /* the job was told to end: the same */
};

/* What a code means, in a few words. The string is constant. */
COMEM_API const char *comem_error_string(int code);
/* The sentence that goes with this thread's last error: what happened, to which node, what to do. It stands until the
 * thread's next error. */
COMEM_API const char *comem_last_error(void);

/* Called instead of ending the node, with the code and the sentence. When it returns, the call that failed has had no
 * effect and gives the code, NULL or 0. It may not call Comem, and it returns: an exception may not leave it (of
 * comem.hpp all functions throw comem::Error). */
typedef void (*comem_error_handler)(int code, const char *sentence, void *argument);
/* Sets the handler (NULL: end the node, as at first). */
COMEM_API void comem_set_error_handler(comem_error_handler handler, void *argument);

/* ---- the job ------------------------------------------------------------------------------------------------- */

/* Joins the job: the one that `comem run` or `comem exec` started this process for, else a job of this node alone. Once
 * a process: a second call is COMEM_E_MISUSE. */
COMEM_API int comem_start(void);
/* The same, and takes Comem's own options out of the command line: `--comem-engine=owner` does what the environment
 * variable COMEM_ENGINE=owner does, and so on for every option of `comem run` that concerns a node, but `--globals` and
 * `--check-pointers`, which take effect before main(); `--comem-discover` alone is COMEM_DISCOVER=on. The program's own
 * arguments close ranks. */
COMEM_API int comem_start_args(int *argc, char **argv);

/* A job of processes that somebody else has started: MPI, a batch system, a program of its own (docs/launchers.md; with
 * MPI comem_mpi.h does all this). One process makes an id, and hands it to the others by any means: it is text of less
 * than 128 bytes. Each then joins by it. The one that made it listens until all have met; it need not be one of them.
 * An id serves one job. Whoever has it can join: it is a secret. */
typedef struct comem_id {
    char text[128]; /* a string, with zeros behind it */
} comem_id;
/* Makes an id. Gives 0, or a code as comem_start() does. */
COMEM_API int comem_unique_id(comem_id *id);

/* How to join. comem_attr_init() sets all to what leaves the choice to the environment, as comem_start() does. Later
 * versions have more fields, behind these. */
typedef struct comem_attr {
    size_t size;                 /* of the structure, as this header knows it */
    const comem_id *unique_id;   /* the job's id, or NULL */
    int rank;                    /* the node that this process becomes; -1: any that is free */
    int processes;               /* how many the job has */
    int threads;                 /* application threads in each; 0: as the environment says */
    int reserved;                /* 0 */
    const char *engine;          /* the engine, as for `comem run --engine`; NULL: as the environment says */
    const char *const *settings; /* "heap=2G", "backbone=udp" and so on, as `--comem-heap=2G`, and a NULL; or NULL */
    /* In place of an id: brings `length` bytes from process 0 to all others, and gives 0. Each process makes this call
     * within comem_start_attr(), which needs `rank` and `processes` for it. */
    int (*broadcast)(void *bytes, size_t length, void *argument);
    void *broadcast_argument;
} comem_attr;
static inline void comem_attr_init(comem_attr *attr) {
    memset(attr, 0, sizeof *attr);
    attr->size = sizeof *attr;
    attr->rank = -1;
}
/* Joins the job as `attr` says (NULL: as comem_start()). Returns when all processes have met; which are missing is said
 * after COMEM_START_TIMEOUT, 30 s by default. What makes no sense is COMEM_E_ARGUMENT, and can be tried again. */
COMEM_API int comem_start_attr(const comem_attr *attr);
/* Waits until every node has come as far, writes the counters, and leaves the job. Collective; nothing follows it. */
COMEM_API int comem_finish(void);
/* Ends the whole job, now, with this exit status (its lowest eight bits; 1 where they are 0) and sentence. */
COMEM_API void comem_abort(int status, const char *sentence);

/* This node, and how many there are. */
COMEM_API int comem_node(void);
COMEM_API int comem_nodes(void);
/* The calling thread, counted through all nodes, and how many there are in all and on each node. */
COMEM_API int comem_thread(void);
COMEM_API int comem_threads(void);
COMEM_API int comem_threads_per_node(void);
/* The version of the library: COMEM_VERSION_STRING of the header that it was built with. */
COMEM_API const char *comem_version(void);

/* Runs `function(argument)` on every thread of this node, the caller (thread 0 of its node) included, and returns
 * when all have returned; not to be called within such a function. It says nothing about the memory of other nodes: a
 * function that uses what other nodes' main has written begins with a barrier, and one whose results they read ends
 * with one. Threads that a program makes itself, with pthreads or OpenMP, take a free place of the node when they
 * first call Comem, and keep it until they end. Idle threads of OpenMP between two parallel regions are ended by this
 * call, and the next region makes new ones; while other threads have places that its threads need, it is refused.
 *
 * The function returns. One that is left by an exception of C++, pthread_exit() or a cancellation ends the node with a
 * sentence and status 101, and longjmp() must not leave it. (comem::Parallel() of comem.hpp lets exceptions
 * through.) */
COMEM_API int comem_parallel(void (*function)(void *argument), void *argument);

/* This thread's part [*low, *high) of `total` items, all parts as equal as can be. */
COMEM_API int comem_split(uint64_t total, uint64_t *low, uint64_t *high);
/* The same, but in proportion to how fast each thread got through its part since its last call (in its time outside
 * Comem's waits). The first call splits equally. Every thread of the job makes the call; it is a barrier too. */
COMEM_API int comem_split_weighted(uint64_t total, uint64_t *low, uint64_t *high);

/* ---- synchronisation ------------------------------------------------------------------------------------------ */

/* Waits until every thread of every node has arrived; where nodes have several threads, a call for comem_parallel(). */
COMEM_API int comem_barrier(void);
/* Waits until one thread of every node has come here: a barrier of nodes, for programs with thread pools of their own
 * (pthreads, OpenMP, TBB), and as good for memory as comem_barrier(). While it lasts the node's other threads neither
 * use shared memory nor call Comem: call it outside of parallel regions, or between two barriers of the pool. */
COMEM_API int comem_node_barrier(void);
/* The same, but says nothing about memory (JIAJIA's jia_wait). */
COMEM_API int comem_rendezvous(void);
/* Locks are named by any number; they exist without being created. `trylock` waits for no thread: it gives 1 if it took
 * the lock, and 0 where a thread holds it or the lock lies at another node. There it is sent for, so that a later call
 * finds it here. */
COMEM_API int comem_lock(uint64_t lock);
COMEM_API int comem_trylock(uint64_t lock);
COMEM_API int comem_unlock(uint64_t lock);
/* Flags are numbers that only grow, zero at first. `set` raises the flag to `value`; `wait` returns once it is
 * `value` or more. */
COMEM_API int comem_flag_set(uint64_t flag, uint64_t value);
COMEM_API int comem_flag_wait(uint64_t flag, uint64_t value);

/* Semaphores, condition variables and reader-writer locks are named by any number, each kind by its own, and exist
 * without being created. (Programs for PARMACS leave numbers above 2^62 to their macros.)
 *
 * A semaphore counts from zero: `post` adds one; `wait` takes one, once there is one, first come first served;
 * `trywait` gives 1 if it took one and 0 if there was none. `post` does not wait: it counts a moment later. */
COMEM_API int comem_sem_post(uint64_t semaphore);
COMEM_API int comem_sem_wait(uint64_t semaphore);
COMEM_API int comem_sem_trywait(uint64_t semaphore);
/* Waits for a signal, letting go meanwhile of `lock`, which the calling thread holds; it holds it again afterwards. No
 * signal by a thread that acquired the lock after this one let it go is lost; but check in a loop for what the signal
 * stands for. `signal` wakes the thread that has waited longest and `broadcast` all; nobody waiting, nothing
 * happens. */
COMEM_API int comem_cond_wait(uint64_t condition, uint64_t lock);
COMEM_API int comem_cond_signal(uint64_t condition);
COMEM_API int comem_cond_broadcast(uint64_t condition);
/* A lock for many readers or one writer. A writer that waits keeps new readers out (a thread that reads already may
 * enter again), and after a writer all waiting readers go together. `rwunlock` ends either. `tryrdlock` and `trywrlock`
 * wait for no thread: they give 1 if they took the lock, and 0 where `rdlock` or `wrlock` would wait. */
COMEM_API int comem_rdlock(uint64_t lock);
COMEM_API int comem_wrlock(uint64_t lock);
COMEM_API int comem_tryrdlock(uint64_t lock);
COMEM_API int comem_trywrlock(uint64_t lock);
COMEM_API int comem_rwunlock(uint64_t lock);

enum { COMEM_SUM = 0, COMEM_MIN = 1, COMEM_MAX = 2 };

/* Replaces every number by the sum, least or greatest of all threads' numbers in its place. Every thread makes the
 * call with the same operator and count; it is a barrier too. Floating-point sums do not vary from run to run; the
 * least and the greatest of numbers of which one is a NaN is a NaN. */
COMEM_API int comem_reduce_i64(int operation, int64_t *values, size_t count);
COMEM_API int comem_reduce_f64(int operation, double *values, size_t count);

/* Deals the numbers 0, 1 ... total - 1 out to all threads of all nodes while they run (OpenMP's schedule(dynamic,
 * chunk)): calls `body(low, high, argument)` for each piece [low, high) that this thread gets. Pieces have `chunk`
 * numbers, the last perhaps fewer; with 0 they are large at first and grow smaller (schedule(guided)). Each number is
 * dealt out once. Every thread of the job makes the call, and all make such calls in the same order with the same
 * numbers; within `body` there is no other. Most pieces cost no message, and none carries write notices: it orders
 * nothing, so where others use the results a barrier follows. */
COMEM_API int comem_for_dynamic(uint64_t total, uint64_t chunk,
                                void (*body)(uint64_t low, uint64_t high, void *argument), void *argument);

#ifndef COMEM_SEQUENTIAL
/* ---- messages -------------------------------------------------------------------------------------------------- */

/* Sends `length` bytes to a thread of the job: exactly once, in no particular order. Waits while too many messages
 * are under way, so a thread that posts much to threads that post to it should poll in between. */
COMEM_API int comem_post(int thread, const void *data, size_t length);
/* Waits for the next message to this thread. Gives its length, or a negative code; `*from` (if not NULL) becomes the
 * sender's node. A message larger than the buffer (COMEM_E_TOO_SMALL) stays for the next call. */
COMEM_API int64_t comem_receive(int *from, void *buffer, size_t capacity);
/* The same without waiting: COMEM_E_EMPTY when no message is there. */
COMEM_API int64_t comem_tryreceive(int *from, void *buffer, size_t capacity);
#endif

/* ---- arrays ---------------------------------------------------------------------------------------------------- */

struct comem_object;

/* A shared array: a handle of this node, to be passed by value within it. It means nothing on another node, which has
 * got its own from the same call. Its fields are for the functions below. */
typedef struct comem_array {
    unsigned char *data;         /* this node's copy of the elements */
    const unsigned char *access; /* one byte per element: 0 nothing, 1 read, 3 read and write, without asking anybody */
    uint64_t length;             /* in elements */
    struct comem_object *object;
} comem_array;

/* Which nodes are home to the units of an array or the pages of a region (under the engine `owner`: own them). */
enum {
    COMEM_HOME_BLOCK = 0,  /* one run of consecutive units for each node */
    COMEM_HOME_CYCLIC = 1, /* `home_number` units or pages (at least 1) to each node in turn */
    COMEM_HOME_ON = 2,     /* all at node `home_number` */
    /* for comem_alloc_with() and comem_alloc_all() alone: */
    COMEM_HOME_FIRST_TOUCH = 3, /* each unit at the node that touches it first, or fetches it ahead; exact with
                                   --prefetch off */
    /* at the node that touches a unit first, while that has room for it (--cache), else as BLOCK; a unit that one node
     * alone writes moves there at the next barrier */
    COMEM_HOME_AUTOMATIC = 4
};

/* How to create an array. All zero, or a null pointer, is a good choice. */
typedef struct comem_object_options {
    uint64_t unit_elements; /* elements that move together; 0: chosen from the array's size */
    const char *engine;     /* "msi", "direct", "owner", "broadcast"; NULL: the job's */
    const char *label;      /* name of the array in counters and errors */
    int home;               /* COMEM_HOME_... */
    int home_number;        /* for COMEM_HOME_CYCLIC and COMEM_HOME_ON */
} comem_object_options;

/* Creates an array of `length` elements of `element_size` bytes (at most 262,144), all zero. Collective: one thread of
 * every node makes the call, and all make their collective calls in the same order. */
COMEM_API int comem_create(comem_array *array, size_t element_size, uint64_t length,
                           const comem_object_options *options);
/* Reads or writes one element of any size, atomically. `out` and `value` point to plain memory of an element's size. */
COMEM_API int comem_read(comem_array array, uint64_t index, void *out);
COMEM_API int comem_write(comem_array array, uint64_t index, const void *value);
/* Elements [low, high) as plain memory, to read or to read and write until the matching `end`: element `low` comes
 * first. NULL on misuse. The thread that has begun a range ends it, with the same bounds; ranges of a thread may
 * overlap, and end in any order. While a range is in use its units stay here and other nodes that want them wait: keep
 * it short, wait for nobody meanwhile, and take ranges of several arrays in the same order everywhere. */
COMEM_API const void *comem_read_begin(comem_array array, uint64_t low, uint64_t high);
COMEM_API int comem_read_end(comem_array array, uint64_t low, uint64_t high);
COMEM_API void *comem_write_begin(comem_array array, uint64_t low, uint64_t high);
COMEM_API int comem_write_end(comem_array array, uint64_t low, uint64_t high);

/* For each element type NAME (C type TYPE) there are
 *
 *     comem_array_NAME                                       a shared array of TYPE; `.any` is its comem_array
 *     comem_array_NAME comem_new_NAME(length, options)       creates one; misuse if it cannot (then its length is 0)
 *     TYPE        comem_read_NAME(array, index)              reads an element
 *     void        comem_write_NAME(array, index, value)      writes an element
 *     const TYPE *comem_read_begin_NAME(array, low, high)    plain memory, as above
 *     TYPE       *comem_write_begin_NAME(array, low, high)
 *     int         comem_read_end_NAME(array, low, high)
 *     int         comem_write_end_NAME(array, low, high)
 *
 * with NAME and TYPE from this list. What comem_new_NAME() creates lasts as long as the job: nothing gives it back. */
#define COMEM_EACH_TYPE(DO)                                                                                           \
    DO(i8, int8_t)                                                                                                    \
    DO(u8, uint8_t)                                                                                                   \
    DO(i16, int16_t)                                                                                                  \
    DO(u16, uint16_t)                                                                                                 \
    DO(i32, int32_t)                                                                                                  \
    DO(u32, uint32_t)                                                                                                 \
    DO(i64, int64_t)                                                                                                  \
    DO(u64, uint64_t)                                                                                                 \
    DO(f32, float)                                                                                                    \
    DO(f64, double)

/* ---- shared memory --------------------------------------------------------------------------------------------- */

/* Memory for ordinary loads and stores, at the same address on every node: keep pointers in it to what else is in it.
 *
 * Where all nodes are on one host they map one memory (`hardware`), unless something asks for another engine:
 * docs/memory-model.md. Under the engine `hlrc` (the default between hosts) and `scope` a thread sees what others wrote
 * once it has synchronised with them: what happened before a release is seen after the acquire (of any kind under hlrc,
 * of the same lock or at a barrier under scope). Programs that race, or use atomics, need `msi`. One program may have
 * regions under each of the three.
 * The memory is zero at first. */
typedef struct comem_region_options {
    const char *engine;  /* "hlrc", "scope", "lrc", "multicast", "msi", "hardware", "direct"; NULL: the job's */
    const char *label;   /* name of the region in reports and errors */
    int home;            /* COMEM_HOME_..., of pages; without options: automatic */
    int home_number;     /* CYCLIC: pages to each node in turn (0: 1); ON: the node */
    size_t alignment;    /* in bytes, a power of two; 0: 64 */
    unsigned unit_pages; /* pages of 4 KiB that move together: 1, 2, 4 ... 256; 0: the job's or, without one, 1
                          * (more once mappings have run out: docs/running.md) */
    unsigned unit_bytes; /* programs built with comem-cc --inline, under direct or msi: bytes that move together: 64,
                          * 128 ... 2048; 0: the job's (--unit-bytes), where the engine keeps lines and not pages */
} comem_region_options;

/* Allocates; any thread of any node may, at any time. The others use the memory once they have got the pointer through
 * synchronisation. When there is no room the node ends with a sentence or, with an error handler, the call gives
 * NULL. */
COMEM_API void *comem_alloc(size_t bytes);
COMEM_API void *comem_alloc_with(size_t bytes, const comem_region_options *options);
/* The same, collectively: one thread of every node calls, with the same arguments, and all get the same address. Up to
 * 2 KiB without a label share pages with others of the same engine and home, so that a million of them cost
 * little more than their bytes, and such a call waits for nobody. What different nodes write often is better apart: an
 * alignment of 4096 gives pages of its own. */
COMEM_API void *comem_alloc_all(size_t bytes, const comem_region_options *options);
/* Gives memory back, from any node; nobody may use it any more. Memory of comem_alloc_all() is freed by every node,
 * each when it has done with it, and none may use it once another has freed it. */
COMEM_API int comem_free(void *pointer);
/* Names the region of an address in reports; without a name they say where in the program it was allocated. Small
 * blocks share a region, whose name then tells of them. */
COMEM_API int comem_label(void *pointer, const char *name);
/* Declares that nobody writes to the region from here on: copies of its pages then cost half. Called by every node,
 * after a barrier behind the last write (a barrier of all threads: within comem_parallel, where nodes have several). A
 * later write is reported as misuse, under msi on every node; under hlrc and scope where it goes to a copy, not on the
 * page's home. A job of one node notices none (docs/memory-model.md). A block that shares its pages with others (up to
 * 2 KiB of comem_alloc) stays as it was. */
COMEM_API int comem_freeze(const void *pointer);
/* Brings memory here, for reading or for writing too, so that a system call can use it (see docs/debugging.md). */
COMEM_API int comem_prefetch(const void *pointer, size_t bytes, int for_writing);
/* 1 if the address is in the shared heap, 0 if not; may be called at any time, also before the start. */
COMEM_API int comem_is_shared(const void *pointer);

/* ---- atomic operations ------------------------------------------------------------------------------------------ */

/* Operations on one word of shared memory, each as one step for all threads of all nodes, under every engine:
 *
 *     TYPE comem_fetch_add_NAME(TYPE *word, TYPE value)        adds; integers wrap
 *     TYPE comem_fetch_sub_NAME(TYPE *word, TYPE value)        subtracts
 *     TYPE comem_fetch_min_NAME(TYPE *word, TYPE value)        keeps the lesser; a NaN if one of them is
 *     TYPE comem_fetch_max_NAME(TYPE *word, TYPE value)        keeps the greater
 *     TYPE comem_exchange_NAME(TYPE *word, TYPE value)         stores
 *     TYPE comem_compare_exchange_NAME(TYPE *word, TYPE expected, TYPE value)
 *                                                              stores if the word holds `expected`, bit by bit
 *     TYPE comem_load_NAME(const TYPE *word)
 *     void comem_store_NAME(TYPE *word, TYPE value)
 *     TYPE comem_fetch_and_NAME, comem_fetch_or_NAME, comem_fetch_xor_NAME(TYPE *word, TYPE value)    not for f64
 *
 * with NAME and TYPE of COMEM_EACH_ATOMIC_TYPE. All but the store give what the word held before. They release and
 * acquire: what happened before such an operation is seen behind the next one on the same word, on whatever node. Each
 * has a twin with `_relaxed` behind its name (comem_fetch_add_relaxed_i64) that says nothing about other memory and is
 * much cheaper. Where the compiler has _Generic, and in C++ as functions of comem.hpp, the NAME can be left out:
 * comem_fetch_add(&count, 1), comem_fetch_add_relaxed(&count, 1).
 *
 * The word lies in shared memory, at a multiple of its size. A relaxed operation costs a request to the node that is
 * the home of its page and one reply; none where that node is this one or, under shm, shares a host with it, under msi
 * while the page is here, or in a job of one node. An ordered one takes a lock of the word's own besides.
 *
 * Plain loads and stores of the word may be mixed with them where synchronisation orders the two: behind a barrier, or
 * a lock, every thread loads what operations before it have left, and operations find what was stored plainly before
 * it. Where nothing orders them it is a race: the load may give an older value, and a store may undo operations. A
 * page with such a word is fetched again by nodes that use it plainly after an operation: give hot counters a page
 * without other data. */
#define COMEM_EACH_ATOMIC_TYPE(DO)                                                                                    \
    DO(i32, int32_t, 0)                                                                                               \
    DO(u32, uint32_t, 1)                                                                                              \
    DO(i64, int64_t, 2)                                                                                               \
    DO(u64, uint64_t, 3)

#if defined(COMEM_SEQUENTIAL) || defined(COMEM_PTHREADS)
#include "comem_plain_atomics.h"
#endif

#ifdef COMEM_SEQUENTIAL
#include "comem_sequential.h"
#elif defined(COMEM_PTHREADS)
#include "comem_threads.h"
#else

/* Says where the next allocation stands. */
COMEM_API void comem_site_(const char *file, int line);
#define comem_alloc(...) (comem_site_(__FILE__, __LINE__), comem_alloc(__VA_ARGS__))
#define comem_alloc_with(...) (comem_site_(__FILE__, __LINE__), comem_alloc_with(__VA_ARGS__))
#define comem_alloc_all(...) (comem_site_(__FILE__, __LINE__), comem_alloc_all(__VA_ARGS__))

/* ---- from here on: how the accessors work --------------------------------------------------------------------- */

#if !defined(__GNUC__)
#error "comem.h needs a compiler with GNU atomics and thread-local variables: gcc or clang"
#endif

/* What a thread tells the service thread of its node. A store is announced before its permission is checked; the
 * service thread takes permission away, makes every processor pass a barrier (membarrier), and waits until no store
 * is announced. So no store falls between its check and an invalidation (DSM/IP, section 3.2.3), and announcing costs
 * no barrier here. */
struct comem_tls {
    unsigned char writing;   /* a store is under way */
    unsigned char may_write; /* what `access` holds where this thread may store: 3, or 0xFF before it has a number */
};

/* Out of line: what needs a message, a thread number or an error. */
COMEM_API uint64_t comem_load_(struct comem_object *object, uint64_t index) __attribute__((cold));
COMEM_API struct comem_tls *comem_store_(struct comem_object *object, uint64_t index, uint64_t bits)
    __attribute__((cold));
COMEM_API comem_array comem_new_(size_t element_size, uint64_t length, const comem_object_options *options);
COMEM_API uint64_t comem_atomic_(void *word, int kind, int op, uint64_t operand, uint64_t expected, int ordered);
COMEM_API int comem_begin_items_(void);
COMEM_API int comem_next_items_(uint64_t total, uint64_t chunk, uint64_t *low, uint64_t *high);
COMEM_API void comem_leave_items_(void);

/* Until a thread's first store goes out of line and gives it a number, it points to a block that allows nothing. */
static struct comem_tls comem_unnumbered_ __attribute__((unused)) = {0, 0xFF};
#if defined(__PIC__) && !defined(__PIE__)
#define COMEM_TLS_ __attribute__((unused, tls_model("initial-exec"))) /* a shared library: still one load, no call */
#else
#define COMEM_TLS_ __attribute__((unused))
#endif
static __thread struct comem_tls *comem_self_ COMEM_TLS_ = &comem_unnumbered_;

#define COMEM_LIKELY_(condition) __builtin_expect(!!(condition), 1)
/* `comem-cc --inline` looks into no assembly. */
#if defined(__x86_64__) && !defined(COMEM_INLINE_CHECKS_)
#define COMEM_COMPARES_BY_ASSEMBLY_ 1
#else
#define COMEM_COMPARES_BY_ASSEMBLY_ 0
#endif
#if defined(__x86_64__) /* where each load is an acquire */
#define COMEM_PERMISSION_(array, index) (*(const volatile unsigned char *)&(array).access[index])
#else
#define COMEM_PERMISSION_(array, index)                                                                              \
    __atomic_load_n((const volatile unsigned char *)&(array).access[index], __ATOMIC_ACQUIRE)
#endif

/* May this thread load the element? The check comes before the load in program order; a load that loses against an
 * invalidation gives the value that the element had when it was checked. */
static inline int comem_may_read_(comem_array array, uint64_t index) {
    if (!COMEM_LIKELY_(index < array.length)) return 0;
#if COMEM_COMPARES_BY_ASSEMBLY_
    /* Compilers do not fold an atomic load into a compare; this does. */
    __asm__ goto("cmpb $0, %0\n\tje %l[denied]" : : "m"(array.access[index]) : "cc" : denied);
    return 1;
denied:
    return 0;
#else
    int may = COMEM_PERMISSION_(array, index) != 0;
    __atomic_signal_fence(__ATOMIC_ACQUIRE);
    return may;
#endif
}

/* Announces a store and says whether this thread may make it: COMEM_STORE_() follows, or comem_withdraw_(). Until then
 * the thread does nothing that may wait, so nothing that it has read before may be read after the announcement. */
static inline int comem_announce_(struct comem_tls *self, comem_array array, uint64_t index) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n((volatile unsigned char *)&self->writing, (unsigned char)1, __ATOMIC_RELAXED);
    if (!COMEM_LIKELY_(index < array.length)) return 0;
#if COMEM_COMPARES_BY_ASSEMBLY_
    __asm__ goto("cmpb %b1, %0\n\tjne %l[denied]"
                 :
                 : "m"(array.access[index]), "q"(*(volatile unsigned char *)&self->may_write)
                 : "cc"
                 : denied);
    return 1;
denied:
    return 0;
#else
    int may = COMEM_PERMISSION_(array, index) == *(volatile unsigned char *)&self->may_write;
    __atomic_signal_fence(__ATOMIC_ACQUIRE);
    return may;
#endif
}

/* Withdraws the announcement of a store that was not made. */
static inline void comem_withdraw_(struct comem_tls *self) {
    __atomic_store_n((volatile unsigned char *)&self->writing, (unsigned char)0, __ATOMIC_RELEASE);
}

/* Loads and stores an element once it is allowed; a store ends its announcement. Elements are aligned and no wider
 * than a word, so plain instructions are atomic on x86, and only the compiler needs to be told the order. For
 * sequential consistency no later load may pass a store, which on x86 takes a locked instruction: clearing the
 * announcement is that instruction. (0xFE, not 0: compilers turn an `and` with 0 into an exchange, one instruction
 * longer.) */
#if defined(__x86_64__)
#define COMEM_LOAD_(element, value)                                                                                  \
    do {                                                                                                             \
        (value) = (element);                                                                                         \
        __atomic_signal_fence(__ATOMIC_ACQUIRE);                                                                     \
    } while (0)
#define COMEM_STORE_(self, element, value)                                                                           \
    do {                                                                                                             \
        __atomic_signal_fence(__ATOMIC_RELEASE);                                                                     \
        (element) = (value);                                                                                         \
        __atomic_fetch_and((volatile unsigned char *)&(self)->writing, (unsigned char)0xFE, __ATOMIC_SEQ_CST);       \
    } while (0)
#else
#define COMEM_LOAD_(element, value) __atomic_load(&(element), &(value), __ATOMIC_SEQ_CST)
#define COMEM_STORE_(self, element, value)                                                                           \
    do {                                                                                                             \
        __atomic_store(&(element), &(value), __ATOMIC_SEQ_CST);                                                      \
        comem_withdraw_(self);                                                                                       \
    } while (0)
#endif

#define COMEM_READ_ELEMENT_(type, array, index, value)                                                               \
    do {                                                                                                             \
        if (COMEM_LIKELY_(comem_may_read_(array, index))) {                                                          \
            COMEM_LOAD_(((volatile type *)(void *)(array).data)[index], value);                                      \
        } else {                                                                                                     \
            uint64_t bits_ = comem_load_((array).object, index);                                                     \
            memcpy(&(value), &bits_, sizeof(type));                                                                  \
        }                                                                                                            \
    } while (0)

#define COMEM_WRITE_ELEMENT_(type, array, index, value)                                                              \
    do {                                                                                                             \
        struct comem_tls *self_ = comem_self_;                                                                       \
        if (COMEM_LIKELY_(comem_announce_(self_, array, index))) {                                                   \
            COMEM_STORE_(self_, ((volatile type *)(void *)(array).data)[index], value);                              \
        } else {                                                                                                     \
            uint64_t bits_ = 0;                                                                                      \
            memcpy(&bits_, &(value), sizeof(type));                                                                  \
            comem_withdraw_(self_);                                                                                  \
            comem_self_ = comem_store_((array).object, index, bits_);                                                \
        }                                                                                                            \
    } while (0)

#endif /* COMEM_SEQUENTIAL */

#define COMEM_DEFINE_(name, type)                                                                                    \
    typedef struct comem_array_##name {                                                                              \
        comem_array any;                                                                                             \
    } comem_array_##name;                                                                                            \
    static inline comem_array_##name comem_new_##name(uint64_t length, const comem_object_options *options) {        \
        comem_array_##name array;                                                                                    \
        array.any = comem_new_(sizeof(type), length, options);                                                       \
        return array;                                                                                                \
    }                                                                                                                \
    static inline type comem_read_##name(comem_array_##name array, uint64_t index) {                                 \
        type value;                                                                                                  \
        COMEM_READ_ELEMENT_(type, array.any, index, value);                                                          \
        return value;                                                                                                \
    }                                                                                                                \
    static inline void comem_write_##name(comem_array_##name array, uint64_t index, type value) {                    \
        COMEM_WRITE_ELEMENT_(type, array.any, index, value);                                                         \
    }                                                                                                                \
    static inline const type *comem_read_begin_##name(comem_array_##name array, uint64_t low, uint64_t high) {       \
        return (const type *)comem_read_begin(array.any, low, high);                                                 \
    }                                                                                                                \
    static inline int comem_read_end_##name(comem_array_##name array, uint64_t low, uint64_t high) {                 \
        return comem_read_end(array.any, low, high);                                                                 \
    }                                                                                                                \
    static inline type *comem_write_begin_##name(comem_array_##name array, uint64_t low, uint64_t high) {            \
        return (type *)comem_write_begin(array.any, low, high);                                                      \
    }                                                                                                                \
    static inline int comem_write_end_##name(comem_array_##name array, uint64_t low, uint64_t high) {                \
        return comem_write_end(array.any, low, high);                                                                \
    }

COMEM_EACH_TYPE(COMEM_DEFINE_)
#undef COMEM_DEFINE_

/* ---- atomic operations, typed ----------------------------------------------------------------------------------- */

enum {
    COMEM_OP_LOAD_ = 0,
    COMEM_OP_EXCHANGE_ = 1,
    COMEM_OP_ADD_ = 2,
    COMEM_OP_AND_ = 3,
    COMEM_OP_OR_ = 4,
    COMEM_OP_XOR_ = 5,
    COMEM_OP_MIN_ = 6,
    COMEM_OP_MAX_ = 7,
    COMEM_OP_COMPARE_EXCHANGE_ = 8,
    COMEM_OP_SUB_ = 9
};

#define COMEM_OPERATION_(name, type, kind, operation, op)                                                            \
    static inline type comem_##operation##_##name(type *word, type value) {                                          \
        return comem_as_##name##_(comem_atomic_(word, kind, op, comem_bits_of_##name##_(value), 0, 1));              \
    }                                                                                                                \
    static inline type comem_##operation##_relaxed_##name(type *word, type value) {                                  \
        return comem_as_##name##_(comem_atomic_(word, kind, op, comem_bits_of_##name##_(value), 0, 0));              \
    }
#define COMEM_COMMON_(name, type, kind)                                                                              \
    static inline uint64_t comem_bits_of_##name##_(type value) {                                                     \
        uint64_t bits = 0;                                                                                           \
        memcpy(&bits, &value, sizeof value);                                                                         \
        return bits;                                                                                                 \
    }                                                                                                                \
    static inline type comem_as_##name##_(uint64_t bits) {                                                           \
        type value;                                                                                                  \
        memcpy(&value, &bits, sizeof value);                                                                         \
        return value;                                                                                                \
    }                                                                                                                \
    COMEM_OPERATION_(name, type, kind, fetch_add, COMEM_OP_ADD_)                                                     \
    COMEM_OPERATION_(name, type, kind, fetch_sub, COMEM_OP_SUB_)                                                     \
    COMEM_OPERATION_(name, type, kind, fetch_min, COMEM_OP_MIN_)                                                     \
    COMEM_OPERATION_(name, type, kind, fetch_max, COMEM_OP_MAX_)                                                     \
    COMEM_OPERATION_(name, type, kind, exchange, COMEM_OP_EXCHANGE_)                                                 \
    static inline type comem_compare_exchange_##name(type *word, type expected, type value) {                        \
        return comem_as_##name##_(comem_atomic_(word, kind, COMEM_OP_COMPARE_EXCHANGE_,                              \
                                                comem_bits_of_##name##_(value),                                      \
                                                comem_bits_of_##name##_(expected), 1));                              \
    }                                                                                                                \
    static inline type comem_compare_exchange_relaxed_##name(type *word, type expected, type value) {                \
        return comem_as_##name##_(comem_atomic_(word, kind, COMEM_OP_COMPARE_EXCHANGE_,                              \
                                                comem_bits_of_##name##_(value),                                      \
                                                comem_bits_of_##name##_(expected), 0));                              \
    }                                                                                                                \
    static inline type comem_load_##name(const type *word) {                                                         \
        return comem_as_##name##_(comem_atomic_((void *)(uintptr_t)word, kind, COMEM_OP_LOAD_, 0, 0, 1));            \
    }                                                                                                                \
    static inline type comem_load_relaxed_##name(const type *word) {                                                 \
        return comem_as_##name##_(comem_atomic_((void *)(uintptr_t)word, kind, COMEM_OP_LOAD_, 0, 0, 0));            \
    }                                                                                                                \
    static inline void comem_store_##name(type *word, type value) { (void)comem_exchange_##name(word, value); }      \
    static inline void comem_store_relaxed_##name(type *word, type value) {                                          \
        (void)comem_exchange_relaxed_##name(word, value);                                                            \
    }
#define COMEM_BITWISE_(name, type, kind)                                                                             \
    COMEM_COMMON_(name, type, kind)                                                                                  \
    COMEM_OPERATION_(name, type, kind, fetch_and, COMEM_OP_AND_)                                                     \
    COMEM_OPERATION_(name, type, kind, fetch_or, COMEM_OP_OR_)                                                       \
    COMEM_OPERATION_(name, type, kind, fetch_xor, COMEM_OP_XOR_)

COMEM_EACH_ATOMIC_TYPE(COMEM_BITWISE_)
COMEM_BITWISE_(ll, long long, 2)
COMEM_BITWISE_(ull, unsigned long long, 3)
COMEM_COMMON_(f64, double, 4)
#undef COMEM_BITWISE_
#undef COMEM_COMMON_
#undef COMEM_OPERATION_

/* By the type of the word, where the name of the type is left out. */
#if !defined(__cplusplus) && defined(__LP64__) && (defined(__clang__) || __GNUC__ >= 5)
#define COMEM_BY_WORD_(call, word)                                                                                   \
    __extension__ _Generic(*(word), int: call##_i32, unsigned: call##_u32, long: call##_i64,                         \
                           unsigned long: call##_u64, long long: call##_ll, unsigned long long: call##_ull,          \
                           double: call##_f64)
#define COMEM_BY_INTEGER_(call, word)                                                                                \
    __extension__ _Generic(*(word), int: call##_i32, unsigned: call##_u32, long: call##_i64,                         \
                           unsigned long: call##_u64, long long: call##_ll, unsigned long long: call##_ull)
#define comem_fetch_add(word, value) COMEM_BY_WORD_(comem_fetch_add, word)(word, value)
#define comem_fetch_add_relaxed(word, value) COMEM_BY_WORD_(comem_fetch_add_relaxed, word)(word, value)
#define comem_fetch_sub(word, value) COMEM_BY_WORD_(comem_fetch_sub, word)(word, value)
#define comem_fetch_sub_relaxed(word, value) COMEM_BY_WORD_(comem_fetch_sub_relaxed, word)(word, value)
#define comem_fetch_min(word, value) COMEM_BY_WORD_(comem_fetch_min, word)(word, value)
#define comem_fetch_min_relaxed(word, value) COMEM_BY_WORD_(comem_fetch_min_relaxed, word)(word, value)
#define comem_fetch_max(word, value) COMEM_BY_WORD_(comem_fetch_max, word)(word, value)
#define comem_fetch_max_relaxed(word, value) COMEM_BY_WORD_(comem_fetch_max_relaxed, word)(word, value)
#define comem_exchange(word, value) COMEM_BY_WORD_(comem_exchange, word)(word, value)
#define comem_exchange_relaxed(word, value) COMEM_BY_WORD_(comem_exchange_relaxed, word)(word, value)
#define comem_store(word, value) COMEM_BY_WORD_(comem_store, word)(word, value)
#define comem_store_relaxed(word, value) COMEM_BY_WORD_(comem_store_relaxed, word)(word, value)
#define comem_load(word) COMEM_BY_WORD_(comem_load, word)(word)
#define comem_compare_exchange(word, expected, value)                                                     \
    COMEM_BY_WORD_(comem_compare_exchange, word)(word, expected, value)
#define comem_load_relaxed(word) COMEM_BY_WORD_(comem_load_relaxed, word)(word)
#define comem_compare_exchange_relaxed(word, expected, value)                                                     \
    COMEM_BY_WORD_(comem_compare_exchange_relaxed, word)(word, expected, value)
#define comem_fetch_and(word, value) COMEM_BY_INTEGER_(comem_fetch_and, word)(word, value)
#define comem_fetch_and_relaxed(word, value) COMEM_BY_INTEGER_(comem_fetch_and_relaxed, word)(word, value)
#define comem_fetch_or(word, value) COMEM_BY_INTEGER_(comem_fetch_or, word)(word, value)
#define comem_fetch_or_relaxed(word, value) COMEM_BY_INTEGER_(comem_fetch_or_relaxed, word)(word, value)
#define comem_fetch_xor(word, value) COMEM_BY_INTEGER_(comem_fetch_xor, word)(word, value)
#define comem_fetch_xor_relaxed(word, value) COMEM_BY_INTEGER_(comem_fetch_xor_relaxed, word)(word, value)
#endif

#ifdef __cplusplus
}
#endif

#endif /* COMEM_H */
