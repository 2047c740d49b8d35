divert(-1)
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# parmacs.m4: the PARMACS macros on Comem, for m4 (also as m4 -Ulen -Uindex).
#
#     m4 $(comem config --parmacs) program.c.in >program.c
#     comem-cc -O2 -o program program.c -lm
#     comem run -n 4 ./program -p4
#
# Every macro becomes a call of comem_parmacs.h. Locks, barriers, condition variables and pauses are named by the address
# of what the ...DEC macro declares. That memory is never read or written, so it may lie anywhere, also by the thousand in
# one page of shared memory. MAIN_ENV defines a function, and its entry in the table of constructors: nothing of
# Comem lands among the program's globals. docs/parmacs.md explains each macro and the process model.
#
# A macro that is a statement gives a block, which stands with or without a semicolon. A macro that takes arguments, but is
# written without parentheses, stays the word that it is, as m4's own do: BARRIER in a comment, or as an enumerator, is
# left alone. MAIN_INITENV and the markers at the end need no arguments, and no parentheses. What names a lock, a barrier and
# so on is evaluated once, also where nothing is done with it: it may count.

define(`comem_name_', `(uint64_t)(uintptr_t)&($1)')
define(`comem_word_', `unsigned long $1')
define(`comem_only_evaluated_', `{ (void)&($1); }')

# ---- the program ---------------------------------------------------------------------------------------------------
#
# MAIN_ENV stands in the source file with main() and makes each process of the program a node; EXTERN_ENV stands in the
# others. Both include the headers, and define the page size, that programs have come to expect of them.

define(`EXTERN_ENV', `
#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <comem_parmacs.h>
#ifndef PAGE_SIZE
#define PAGE_SIZE 4096
#endif
')
define(`ENV', defn(`EXTERN_ENV'))
define(`MAIN_ENV', defn(`EXTERN_ENV')`COMEM_PROCESS_CONSTRUCTOR_
')
define(`MAIN_INITENV', `{ ; }')
define(`MAIN_END', `{ comem_process_end_(0); }')

# ---- workers -------------------------------------------------------------------------------------------------------
#
# CREATE(f) starts f once; CREATE(f, n) starts it n - 1 times and runs it here too. WAIT_FOR_END(n) waits for them.

define(`CREATE', `ifelse($#, 0, ``CREATE'', $#, 1, `{ comem_create_worker((void (*)(void))($1)); }',
    `{ comem_create_workers((void (*)(void))($1), (int)($2)); }')')
define(`WAIT_FOR_END', `ifelse($#, 0, ``WAIT_FOR_END'', `{ comem_wait_workers((int)($1)); }')')
define(`WAIT_FOR', `ifelse($#, 0, ``WAIT_FOR'', `{ comem_wait_workers((int)($1)); }')')
define(`NEWPROC', `')
define(`GET_PID', `ifelse($#, 0, ``GET_PID'', `{ ($1) = comem_worker_slot(); }')')
define(`GET_HOME', `ifelse($#, 0, ``GET_HOME'', `{ ($1) = comem_slot_node(comem_worker_slot()); }')')
define(`SET_HOME', `ifelse($#, 0, ``SET_HOME'', `{ ; }')')

# ---- memory --------------------------------------------------------------------------------------------------------
#
# The second argument is a node: the home of the memory. G_MALLOC ends an assignment and brings its semicolon along, since
# programs leave it out; G_MALLOC_F is for use within an expression.

define(`G_MALLOC_F', `ifelse($#, 0, ``G_MALLOC_F'', $#, 1, `comem_g_malloc((size_t)($1))',
    `comem_nu_malloc((size_t)($1), (int)($2))')')
define(`G_MALLOC', `ifelse($#, 0, ``G_MALLOC'', `G_MALLOC_F($@);')')
define(`NU_MALLOC_F', `ifelse($#, 0, ``NU_MALLOC_F'', `G_MALLOC_F($@)')')
define(`NU_MALLOC', `ifelse($#, 0, ``NU_MALLOC'', `G_MALLOC_F($@);')')
define(`G_FREE', `ifelse($#, 0, ``G_FREE'', `{ comem_g_free((void *)($1)); }')')
define(`NU_FREE', `ifelse($#, 0, ``NU_FREE'', `G_FREE($@)')')

# ---- locks ---------------------------------------------------------------------------------------------------------
#
# ALOCKDEC declares an array of locks, of which AGETL(array, i) is one. LAZY_LOCK and RC_UNLOCK are Brazos's two extra
# primitives: an acquire and a release that order all writes, not only those made under this lock, under scope consistency too.

define(`LOCKDEC', `ifelse($#, 0, ``LOCKDEC'', `comem_word_($1);')')
define(`LOCKINIT', `ifelse($#, 0, ``LOCKINIT'', `comem_only_evaluated_($1)')')
define(`LOCK', `ifelse($#, 0, ``LOCK'', `{ comem_parmacs_lock(comem_name_($1)); }')')
define(`UNLOCK', `ifelse($#, 0, ``UNLOCK'', `{ comem_parmacs_unlock(comem_name_($1)); }')')
define(`LAZY_LOCK', `ifelse($#, 0, ``LAZY_LOCK'', `{ comem_parmacs_lock_lazy(comem_name_($1)); }')')
define(`RC_UNLOCK', `ifelse($#, 0, ``RC_UNLOCK'', `{ comem_parmacs_unlock_rc(comem_name_($1)); }')')

define(`NLOCKDEC', `ifelse($#, 0, ``NLOCKDEC'', `LOCKDEC($1)')')
define(`NLOCKINIT', `ifelse($#, 0, ``NLOCKINIT'', `LOCKINIT($1)')')
define(`NLOCK', `ifelse($#, 0, ``NLOCK'', `LOCK($1)')')
define(`NUNLOCK', `ifelse($#, 0, ``NUNLOCK'', `UNLOCK($1)')')

define(`ALOCKDEC', `ifelse($#, 0, ``ALOCKDEC'', `comem_word_($1)[$2];')')
define(`ALOCKINIT', `ifelse($#, 0, ``ALOCKINIT'', `comem_only_evaluated_(($1)[0])')')
define(`AGETL', `ifelse($#, 0, ``AGETL'', `(($1)[$2])')')
define(`ALOCK', `ifelse($#, 0, ``ALOCK'', `LOCK(($1)[$2])')')
define(`AULOCK', `ifelse($#, 0, ``AULOCK'', `UNLOCK(($1)[$2])')')

# ---- barriers ------------------------------------------------------------------------------------------------------
#
# BARRIER(b, n) waits for n threads; whichever come first. BARINIT says nothing that BARRIER does not say again.

define(`BARDEC', `ifelse($#, 0, ``BARDEC'', `comem_word_($1);')')
define(`BARINIT', `ifelse($#, 0, ``BARINIT'', `comem_only_evaluated_($1)')')
define(`BARRIER', `ifelse($#, 0, ``BARRIER'', $#, 1,
    `errprint(__file__:__line__: `BARRIER' needs the number of threads as its second argument
)m4exit(1)', `{ comem_barrier_of(comem_name_($1), (unsigned)($2)); }')')
define(`BARINCLUDE', `ifelse($#, 0, ``BARINCLUDE'', `{ ; }')')
define(`BAREXCLUDE', `ifelse($#, 0, ``BAREXCLUDE'', `{ ; }')')

# ---- condition variables -------------------------------------------------------------------------------------------

define(`CONDVARDEC', `ifelse($#, 0, ``CONDVARDEC'', `comem_word_($1);')')
define(`CONDVARINIT', `ifelse($#, 0, ``CONDVARINIT'', `comem_only_evaluated_($1)')')
define(`CONDVARWAIT', `ifelse($#, 0, ``CONDVARWAIT'',
    `{ comem_parmacs_cond_wait(comem_name_($1), comem_name_($2)); }')')
define(`CONDVARSIGNAL', `ifelse($#, 0, ``CONDVARSIGNAL'', `{ comem_parmacs_cond_signal(comem_name_($1)); }')')
define(`CONDVARBCAST', `ifelse($#, 0, ``CONDVARBCAST'', `{ comem_parmacs_cond_broadcast(comem_name_($1)); }')')

# ---- pauses --------------------------------------------------------------------------------------------------------
#
# A pause counts, from zero: at first, and after PAUSEINIT. SETPAUSE adds one; WAITPAUSE waits until the count is not zero and leaves
# it so; CLEARPAUSE takes one away if there is one. EVENT and PAUSE wait and take one in the same step.

define(`PAUSEDEC', `ifelse($#, 0, ``PAUSEDEC'', `comem_word_($1);')')
define(`PAUSEINIT', `ifelse($#, 0, ``PAUSEINIT'', `{ comem_pause_init(comem_name_($1)); }')')
define(`SETPAUSE', `ifelse($#, 0, ``SETPAUSE'', `{ comem_pause_set(comem_name_($1)); }')')
define(`CLEARPAUSE', `ifelse($#, 0, ``CLEARPAUSE'', `{ comem_pause_clear(comem_name_($1)); }')')
define(`WAITPAUSE', `ifelse($#, 0, ``WAITPAUSE'', `{ comem_pause_wait(comem_name_($1)); }')')
define(`PAUSE', `ifelse($#, 0, ``PAUSE'', `{ comem_pause_take(comem_name_($1)); }')')
define(`EVENT', `ifelse($#, 0, ``EVENT'', `{ comem_pause_take(comem_name_($1)); }')')

# ---- self-scheduled loops ------------------------------------------------------------------------------------------
#
# GETSUB(counter, i, last, n): i becomes 0, 1, ... last, each for one thread; then -1, once for each of n threads. The
# counter, unlike all else, is used where it stands: GSDEC belongs into shared memory.

define(`GSDEC', `ifelse($#, 0, ``GSDEC'', `struct comem_counter $1;')')
define(`GSINIT', `ifelse($#, 0, ``GSINIT'', `{ comem_counter_init_(&($1)); }')')
define(`GS_INIT', `ifelse($#, 0, ``GS_INIT'', `GSINIT($1)')')
define(`GETSUB', `ifelse($#, 0, ``GETSUB'', `{ ($2) = comem_getsub(&($1), (long)($3), (unsigned)($4)); }')')
define(`NU_GSDEC', `ifelse($#, 0, ``NU_GSDEC'', `GSDEC($1)')')
define(`NU_GSINIT', `ifelse($#, 0, ``NU_GSINIT'', `GSINIT($1)')')
define(`NU_GETSUB', `ifelse($#, 0, ``NU_GETSUB'', `GETSUB($@)')')

# ---- time, fences, markers -----------------------------------------------------------------------------------------
#
# CLOCK gives microseconds. A fence orders this thread's accesses as the processor sees them: what another node sees of
# them, and when, is decided by locks, barriers and so on (or by the engine msi). The markers of simulators do nothing.

define(`CLOCK', `ifelse($#, 0, ``CLOCK'', `{ ($1) = comem_clock_us(); }')')

define(`ACQUIRE_FENCE', `ifelse($#, 0, ``ACQUIRE_FENCE'', `{ __atomic_thread_fence(__ATOMIC_ACQUIRE); }')')
define(`RELEASE_FENCE', `ifelse($#, 0, ``RELEASE_FENCE'', `{ __atomic_thread_fence(__ATOMIC_RELEASE); }')')
define(`FULL_FENCE', `ifelse($#, 0, ``FULL_FENCE'', `{ __atomic_thread_fence(__ATOMIC_SEQ_CST); }')')

define(`comem_marker_', `define(`$1', `{ ; }')')
comem_marker_(`SPLASH3_ROI_BEGIN')
comem_marker_(`SPLASH3_ROI_END')
comem_marker_(`SPLASH4_ROI_BEGIN')
comem_marker_(`SPLASH4_ROI_END')
comem_marker_(`TRACE_ON')
comem_marker_(`TRACE_OFF')
comem_marker_(`REF_TRACE_ON')
comem_marker_(`REF_TRACE_OFF')
comem_marker_(`DYN_TRACE_ON')
comem_marker_(`DYN_TRACE_OFF')
comem_marker_(`DYN_REF_TRACE_ON')
comem_marker_(`DYN_REF_TRACE_OFF')
comem_marker_(`DYN_SIM_ON')
comem_marker_(`DYN_SIM_OFF')
comem_marker_(`DYN_SCHED_ON')
comem_marker_(`DYN_SCHED_OFF')
comem_marker_(`AUG_ON')
comem_marker_(`AUG_OFF')
comem_marker_(`AUG_DELAY')
comem_marker_(`AUG_SET_LOLIMIT')
comem_marker_(`AUG_SET_HILIMIT')
comem_marker_(`ST_LOG')
comem_marker_(`MONINIT')
divert(0)dnl
