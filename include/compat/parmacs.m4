__gnu__(divert(-1)m4_divert(-1))
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# parmacs.m4: the PARMACS macros on Comem, for GNU m4 (also as m4 -Ulen -Uindex, and as m4 -P, whose builtins begin with
# m4_).
#
#     m4 $(comem config --parmacs) program.c.in >program.c
#     comem-cc -O2 -o program program.c -lm
#     comem run -n 4 ./program -p4
#
# Every macro becomes a call of comem_parmacs.h. Locks, barriers, condition variables and pauses are named by the
# address of what the ...DEC macro declares. That memory is never read or written, so it may lie anywhere, also by the
# thousand in one page of shared memory. MAIN_ENV defines a function, and its entry in the table of constructors:
# nothing of Comem lands among the program's globals. docs/parmacs.md explains each macro and the process model.
#
# A macro that is a statement gives a block, which stands with or without a semicolon. A macro that takes arguments, but
# is written without parentheses, stays the word that it is, as m4's own do: BARRIER in a comment, or as an enumerator,
# is left alone. MAIN_INITENV and the markers at the end need no arguments, and no parentheses. What names a lock, a
# barrier and so on is evaluated once, also where nothing is done with it: it may count.

# The first line ends output whatever the builtins are called: __gnu__ is defined in both cases, as nothing, and what is
# no macro among its arguments vanishes with it. Without -P the next lines give the builtins their names with m4_; with
# -P they are text, which nobody sees.
define(`m4_define', defn(`define'))
define(`m4_defn', defn(`defn'))
define(`m4_undefine', defn(`undefine'))
define(`m4_ifdef', defn(`ifdef'))
define(`m4_ifelse', defn(`ifelse'))
define(`m4_errprint', defn(`errprint'))
define(`m4_m4exit', defn(`m4exit'))
define(`m4___file__', defn(`__file__'))
define(`m4___line__', defn(`__line__'))
define(`m4_divert', defn(`divert'))
define(`m4_dnl', defn(`dnl'))

m4_define(`comem_name_', `(uint64_t)(uintptr_t)&($1)')
m4_define(`comem_word_', `unsigned long $1')
m4_define(`comem_only_evaluated_', `{ (void)&($1); }')

# ---- the program ---------------------------------------------------------------------------------------------------
#
# MAIN_ENV stands in the source file with main() and makes each process of the program a node; EXTERN_ENV stands in the
# others. Both include the headers, and define the page size, that programs have come to expect of them. A program that
# declares malloc and its like itself asks for no <stdlib.h>: -DCOMEM_NO_STDLIB for m4 or for the compiler.

m4_define(`comem_stdlib_', m4_ifdef(`COMEM_NO_STDLIB', ``m4_dnl'', ``#ifndef COMEM_NO_STDLIB
#include <stdlib.h>
#endif''))
m4_undefine(`COMEM_NO_STDLIB')
m4_define(`EXTERN_ENV', `
#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
comem_stdlib_
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <comem_parmacs.h>
#ifndef PAGE_SIZE
#define PAGE_SIZE 4096
#endif
')
m4_define(`ENV', m4_defn(`EXTERN_ENV'))
m4_define(`MAIN_ENV', m4_defn(`EXTERN_ENV')`COMEM_PROCESS_CONSTRUCTOR_
')
m4_define(`MAIN_INITENV', `{ ; }')
m4_define(`MAIN_END', `{ comem_process_end_(0); }')

# ---- workers -------------------------------------------------------------------------------------------------------
#
# CREATE(f) starts f once; CREATE(f, n) starts it n - 1 times and runs it here too; CREATE_WITH_ARG(f, a) starts f(a)
# once. WAIT_FOR_END(n) waits for them. GET_PID numbers the workers, and main if it asks, from 0 in the order in which
# they ask.

m4_define(`CREATE', `m4_ifelse($#, 0, ``CREATE'', $#, 1, `{ comem_create_worker((void (*)(void))($1)); }',
    `{ comem_create_workers((void (*)(void))($1), (int)($2)); }')')
m4_define(`CREATE_WITH_ARG', `m4_ifelse($#, 0, ``CREATE_WITH_ARG'',
    `{ comem_create_worker_with((void (*)(void *))(void (*)(void))($1), (void *)(uintptr_t)($2)); }')')
m4_define(`WAIT_FOR_END', `m4_ifelse($#, 0, ``WAIT_FOR_END'', `{ comem_wait_workers((int)($1)); }')')
m4_define(`WAIT_FOR', `m4_ifelse($#, 0, ``WAIT_FOR'', `{ comem_wait_workers((int)($1)); }')')
m4_define(`NEWPROC', `')
m4_define(`GET_PID', `m4_ifelse($#, 0, ``GET_PID'', `{ ($1) = comem_worker_number(); }')')
m4_define(`GET_HOME', `m4_ifelse($#, 0, ``GET_HOME'', `{ ($1) = comem_slot_node(comem_worker_slot()); }')')
m4_define(`SET_HOME', `m4_ifelse($#, 0, ``SET_HOME'', `{ ; }')')

# ---- memory --------------------------------------------------------------------------------------------------------
#
# The second argument is a node: the home of the memory. G_MALLOC ends an assignment and brings its semicolon along,
# since programs leave it out; G_MALLOC_F is for use within an expression.

m4_define(`G_MALLOC_F', `m4_ifelse($#, 0, ``G_MALLOC_F'', $#, 1, `comem_g_malloc((size_t)($1))',
    `comem_nu_malloc((size_t)($1), (int)($2))')')
m4_define(`G_MALLOC', `m4_ifelse($#, 0, ``G_MALLOC'', `G_MALLOC_F($@);')')
m4_define(`NU_MALLOC_F', `m4_ifelse($#, 0, ``NU_MALLOC_F'', `G_MALLOC_F($@)')')
m4_define(`NU_MALLOC', `m4_ifelse($#, 0, ``NU_MALLOC'', `G_MALLOC_F($@);')')
m4_define(`G_FREE', `m4_ifelse($#, 0, ``G_FREE'', `{ comem_g_free((void *)($1)); }')')
m4_define(`NU_FREE', `m4_ifelse($#, 0, ``NU_FREE'', `G_FREE($@)')')

# ---- locks ---------------------------------------------------------------------------------------------------------
#
# ALOCKDEC declares an array of locks, of which AGETL(array, i) is one. LAZY_LOCK and RC_UNLOCK are Brazos's two extra
# primitives: an acquire and a release that order all writes, not only those made under this lock, under scope
# consistency too.

m4_define(`LOCKDEC', `m4_ifelse($#, 0, ``LOCKDEC'', `comem_word_($1);')')
m4_define(`LOCKINIT', `m4_ifelse($#, 0, ``LOCKINIT'', `comem_only_evaluated_($1)')')
m4_define(`LOCK', `m4_ifelse($#, 0, ``LOCK'', `{ comem_parmacs_lock(comem_name_($1)); }')')
m4_define(`UNLOCK', `m4_ifelse($#, 0, ``UNLOCK'', `{ comem_parmacs_unlock(comem_name_($1)); }')')
m4_define(`LAZY_LOCK', `m4_ifelse($#, 0, ``LAZY_LOCK'', `{ comem_parmacs_lock_lazy(comem_name_($1)); }')')
m4_define(`RC_UNLOCK', `m4_ifelse($#, 0, ``RC_UNLOCK'', `{ comem_parmacs_unlock_rc(comem_name_($1)); }')')

m4_define(`NLOCKDEC', `m4_ifelse($#, 0, ``NLOCKDEC'', `LOCKDEC($1)')')
m4_define(`NLOCKINIT', `m4_ifelse($#, 0, ``NLOCKINIT'', `LOCKINIT($1)')')
m4_define(`NLOCK', `m4_ifelse($#, 0, ``NLOCK'', `LOCK($1)')')
m4_define(`NUNLOCK', `m4_ifelse($#, 0, ``NUNLOCK'', `UNLOCK($1)')')

m4_define(`ALOCKDEC', `m4_ifelse($#, 0, ``ALOCKDEC'', `comem_word_($1)[$2];')')
m4_define(`ALOCKINIT', `m4_ifelse($#, 0, ``ALOCKINIT'', `comem_only_evaluated_(($1)[0])')')
m4_define(`AGETL', `m4_ifelse($#, 0, ``AGETL'', `(($1)[$2])')')
m4_define(`ALOCK', `m4_ifelse($#, 0, ``ALOCK'', `LOCK(($1)[$2])')')
m4_define(`AULOCK', `m4_ifelse($#, 0, ``AULOCK'', `UNLOCK(($1)[$2])')')

# ---- barriers ------------------------------------------------------------------------------------------------------
#
# BARRIER(b, n) waits for n threads; whichever come first. BARINIT says nothing that BARRIER does not say again.

m4_define(`BARDEC', `m4_ifelse($#, 0, ``BARDEC'', `comem_word_($1);')')
m4_define(`BARINIT', `m4_ifelse($#, 0, ``BARINIT'', `comem_only_evaluated_($1)')')
m4_define(`BARRIER', `m4_ifelse($#, 0, ``BARRIER'', $#, 1,
    `m4_errprint(m4___file__:m4___line__: `BARRIER' needs the number of threads as its second argument
)m4_m4exit(1)', `{ comem_barrier_of(comem_name_($1), (unsigned)($2)); }')')
m4_define(`BARINCLUDE', `m4_ifelse($#, 0, ``BARINCLUDE'', `{ ; }')')
m4_define(`BAREXCLUDE', `m4_ifelse($#, 0, ``BAREXCLUDE'', `{ ; }')')

# ---- condition variables -------------------------------------------------------------------------------------------

m4_define(`CONDVARDEC', `m4_ifelse($#, 0, ``CONDVARDEC'', `comem_word_($1);')')
m4_define(`CONDVARINIT', `m4_ifelse($#, 0, ``CONDVARINIT'', `comem_only_evaluated_($1)')')
m4_define(`CONDVARWAIT', `m4_ifelse($#, 0, ``CONDVARWAIT'',
    `{ comem_parmacs_cond_wait(comem_name_($1), comem_name_($2)); }')')
m4_define(`CONDVARSIGNAL', `m4_ifelse($#, 0, ``CONDVARSIGNAL'', `{ comem_parmacs_cond_signal(comem_name_($1)); }')')
m4_define(`CONDVARBCAST', `m4_ifelse($#, 0, ``CONDVARBCAST'', `{ comem_parmacs_cond_broadcast(comem_name_($1)); }')')

# ---- pauses --------------------------------------------------------------------------------------------------------
#
# A pause counts, from zero: at first, and after PAUSEINIT. SETPAUSE adds one; WAITPAUSE waits until the count is not
# zero and leaves it so; CLEARPAUSE takes one away if there is one. EVENT and PAUSE wait and take one in the same step.

m4_define(`PAUSEDEC', `m4_ifelse($#, 0, ``PAUSEDEC'', `comem_word_($1);')')
m4_define(`PAUSEINIT', `m4_ifelse($#, 0, ``PAUSEINIT'', `{ comem_pause_init(comem_name_($1)); }')')
m4_define(`SETPAUSE', `m4_ifelse($#, 0, ``SETPAUSE'', `{ comem_pause_set(comem_name_($1)); }')')
m4_define(`CLEARPAUSE', `m4_ifelse($#, 0, ``CLEARPAUSE'', `{ comem_pause_clear(comem_name_($1)); }')')
m4_define(`WAITPAUSE', `m4_ifelse($#, 0, ``WAITPAUSE'', `{ comem_pause_wait(comem_name_($1)); }')')
m4_define(`PAUSE', `m4_ifelse($#, 0, ``PAUSE'', `{ comem_pause_take(comem_name_($1)); }')')
m4_define(`EVENT', `m4_ifelse($#, 0, ``EVENT'', `{ comem_pause_take(comem_name_($1)); }')')

# ---- self-scheduled loops ------------------------------------------------------------------------------------------
#
# GETSUB(counter, i, last, n): i becomes 0, 1, ... last, each for one thread; then -1, once for each of n threads. The
# counter, unlike all else, is used where it stands: GSDEC belongs into shared memory.

m4_define(`GSDEC', `m4_ifelse($#, 0, ``GSDEC'', `struct comem_counter $1;')')
m4_define(`GSINIT', `m4_ifelse($#, 0, ``GSINIT'', `{ comem_counter_init_(&($1)); }')')
m4_define(`GS_INIT', `m4_ifelse($#, 0, ``GS_INIT'', `GSINIT($1)')')
m4_define(`GETSUB', `m4_ifelse($#, 0, ``GETSUB'', `{ ($2) = comem_getsub(&($1), (long)($3), (unsigned)($4)); }')')
m4_define(`NU_GSDEC', `m4_ifelse($#, 0, ``NU_GSDEC'', `GSDEC($1)')')
m4_define(`NU_GSINIT', `m4_ifelse($#, 0, ``NU_GSINIT'', `GSINIT($1)')')
m4_define(`NU_GETSUB', `m4_ifelse($#, 0, ``NU_GETSUB'', `GETSUB($@)')')

# ---- atomics -------------------------------------------------------------------------------------------------------
#
# SPLASH-4's: LOAD, STORE, CAS(variable, expected, new), FETCH_ADD, FETCH_SUB, and FETCH_ADD_DOUBLE(pointer, value). The
# last three bring their semicolon along, as there. comem_splash4.h says how they are atomic for all nodes. SPLASH-4's
# ABARDEF and BAREXTERN declare what its own barrier counts with: BARRIER needs nothing of it.

m4_define(`LOAD', `m4_ifelse($#, 0, ``LOAD'', `comem_splash4_load($1)')')
m4_define(`STORE', `m4_ifelse($#, 0, ``STORE'', `comem_splash4_store($1, $2)')')
m4_define(`CAS', `m4_ifelse($#, 0, ``CAS'', `comem_splash4_cas($1, $2, $3)')')
m4_define(`FETCH_ADD', `m4_ifelse($#, 0, ``FETCH_ADD'', `comem_splash4_fetch_add($1, $2);')')
m4_define(`FETCH_SUB', `m4_ifelse($#, 0, ``FETCH_SUB'', `comem_splash4_fetch_sub($1, $2);')')
m4_define(`FETCH_ADD_DOUBLE', `m4_ifelse($#, 0, ``FETCH_ADD_DOUBLE'', `comem_splash4_fetch_add_double($1, $2);')')
m4_define(`ABARDEF', `')
m4_define(`ABAREXTERN', `')
m4_define(`BAREXTERN', `')

# ---- time, fences, markers -----------------------------------------------------------------------------------------
#
# CLOCK gives microseconds. A fence orders this thread's accesses as the processor sees them: what another node sees of
# them, and when, is decided by locks, barriers and so on (or by the engine msi). The markers of simulators do nothing.

m4_define(`CLOCK', `m4_ifelse($#, 0, ``CLOCK'', `{ ($1) = comem_clock_us(); }')')

m4_define(`ACQUIRE_FENCE', `m4_ifelse($#, 0, ``ACQUIRE_FENCE'', `{ __atomic_thread_fence(__ATOMIC_ACQUIRE); }')')
m4_define(`RELEASE_FENCE', `m4_ifelse($#, 0, ``RELEASE_FENCE'', `{ __atomic_thread_fence(__ATOMIC_RELEASE); }')')
m4_define(`FULL_FENCE', `m4_ifelse($#, 0, ``FULL_FENCE'', `{ __atomic_thread_fence(__ATOMIC_SEQ_CST); }')')

m4_define(`comem_marker_', `m4_define(`$1', `{ ; }')')
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
m4_divert(0)m4_dnl
