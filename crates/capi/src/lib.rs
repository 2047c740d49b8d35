//! The C interface of Comem: what `include/comem.h` and `include/compat/comem_parmacs.h` declare.
//!
//! Every function here is a thin skin over the crate `comem`: it finds the calling thread's seat, checks what C cannot
//! check, and turns errors into codes. No panic leaves through it. The accessors of typed elements are inline in
//! the header and come here only when a unit is missing, a thread has no seat yet, or an index is wrong.
//!
//! | module | functions |
//! |---|---|
//! | [`failure`] | error codes, sentences, the handler |
//! | [`early_exit`] | what is said where a program ends without leaving its job |
//! | [`job`] | start, finish, identity, parallel, split |
//! | [`attr`] | joining by a unique id, with settings |
//! | [`array`] | arrays, elements, ranges |
//! | [`heap`] | shared memory for ordinary loads and stores |
//! | [`atomic`] | atomic operations, the barrier of nodes, loops dealt out |
//! | [`globals`] | the program's global variables as shared memory |
//! | [`inline`] | what code checked by `comem-cc --inline` calls |
//! | [`sync`] | barrier, locks, flags, reductions |
//! | [`sync_objects`] | semaphores, condition variables, reader-writer locks |
//! | [`message`] | post, receive, poll |
//! | [`process`] | the process model of PARMACS (`comem_parmacs.h`) |
//! | [`compat`] | the interfaces of JIAJIA, TreadMarks and Quarks, and SPLASH-4's atomics |
//! | [`variable`] | accesses to one variable that are atomic for the whole job |

mod array;
mod atomic;
mod attr;
mod buffer;
mod compat;
mod early_exit;
mod failure;
mod globals;
mod heap;
mod inline;
mod job;
mod message;
mod options;
mod output;
mod process;
mod sync;
mod sync_objects;
mod variable;
