/* What the code of a checked program and libcomem agree on: version 2.
 *
 * A program built with `comem-cc --inline` has checks of its loads and stores in its own code. The plug-in for clang in
 * this folder puts them there; libcomem has the table that they look at and the functions that they call. The constants
 * stand here for C and C++, and in crates/memory/src/lines/ for Rust; a test compares the two texts. compiler/README.md
 * explains the checks.
 */
#ifndef COMEM_INLINE_ABI_H
#define COMEM_INLINE_ABI_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

/* The version that a module tells __comem_inline_object, and that stands in its section .comem.inline. The runtime
 * refuses modules of another version. Raise it with every change of what stands here, and of what a function means to
 * its callers: code built for the old meaning still links, and would wait for ever or compute wrong results.
 *
 * 2: __comem_inline_own leaves locked units locked; __comem_inline_own_again makes them biased. */
#define COMEM_INLINE_ABI 2u

/* Bytes of a line, the smallest unit of coherence, and the shift from an address to its line. */
#define COMEM_LINE_BYTES 64u
#define COMEM_LINE_SHIFT 6

/* Bytes of lines memory whose entries are one page of the table. Lines memory is opened in such grains. */
#define COMEM_GRAIN_BYTES 131072u

/* The 4 bytes that fill an invalid unit: a quiet NaN as float and as double, with a period of 2 bytes. */
#define COMEM_MAGIC 0xfffdfffdu

/* Address of the table of entries: one uint16_t for each line below COMEM_ADDRESS_END. 0: a store may go ahead. */
#define COMEM_TABLE 0x7fff0000ull
#define COMEM_ADDRESS_END 0x800000000000ull
#define COMEM_TABLE_BYTES (COMEM_ADDRESS_END >> COMEM_LINE_SHIFT << 1)

/* A hazard word: the address of a store, and in the upper 16 bits the number of lines from the address's line on.
 * 0 lines: a store within one line. The whole word 0: no hazard. */
#define COMEM_HAZARD_LINES_SHIFT 48
#define COMEM_HAZARD_LINES_MAX 64u
#define COMEM_HAZARD_SLOTS 4096u
#define COMEM_HAZARD_SLOT_BYTES 64u

/* `op` of __comem_inline_atomic is LLVM 19's AtomicRMWInst::BinOp, or this for a compare-and-swap. */
#define COMEM_ATOMIC_COMPARE_AND_SWAP 100u

/* The section of each checked object: one line of text, `abi=2 module=a.c loads=CHECKED/ALL stores=CHECKED/ALL ...`. */
#define COMEM_INLINE_SECTION ".comem.inline"

#ifdef __cplusplus
extern "C" {
#endif

/* The hazard word of the calling thread; null until __comem_inline_enter. Each module has a weak definition. */
extern __thread uint64_t *__comem_hazard;

/* Called by a constructor of each module, priority 1. `hazard` gives &__comem_hazard of the calling thread. */
void __comem_inline_object(uint32_t abi, const char *module, void *(*hazard)(void));

/* Gives the calling thread a hazard word and returns it. */
void *__comem_inline_enter(void);

/* A load or store of 1 to 64 bytes whose check has missed. Other memory than lines memory: a plain access. */
void __comem_inline_load(const void *address, void *value, size_t bytes);
void __comem_inline_store(void *address, const void *value, size_t bytes);

/* Makes the units of a range exclusive, as far as that lasts. Locked units stay locked: a store to them is a call. */
void __comem_inline_own(const void *first, size_t bytes);
/* The same for a thread in the middle of a strip, which cannot store by calls: locked units become biased, so that
 * their entries can be 0. */
void __comem_inline_own_again(const void *first, size_t bytes);

/* An atomic operation whose check has missed. `old` gets the previous value; `expected` is for a compare-and-swap. */
void __comem_inline_atomic(void *address, uint32_t bytes, uint32_t op, const void *operand, const void *expected,
                           void *old);

/* Any length; either side may be shared. */
void *__comem_inline_memcpy(void *to, const void *from, size_t bytes);
void *__comem_inline_memmove(void *to, const void *from, size_t bytes);
void *__comem_inline_memset(void *to, int byte, size_t bytes);

/* Any length; `out` and `in` are private. */
void __comem_inline_read(void *out, const void *shared, size_t bytes);
void __comem_inline_write(void *shared, const void *in, size_t bytes);

/* --inline-verify: the address was taken for private. Ends the process with a sentence if it is lines memory. */
void __comem_inline_verify(const void *address, size_t bytes, const char *where);

/* sigaction and signal: the program's handler runs with a hazard word of its own. */
int __comem_inline_sigaction(int number, const struct sigaction *action, struct sigaction *old);
void (*__comem_inline_signal(int number, void (*handler)(int)))(int);

#ifdef __cplusplus
}
#endif

#endif
