//! Shared pages: what fetches, releases, locks and whole programs cost.
//!
//! | module | does |
//! |---|---|
//! | [`subjects`] | starts the jobs of two nodes and turns what they print into findings |
//! | [`node`] | the side that runs as a node: scattered faults and pages in order |
//! | [`interval`] | the same for what happens at barriers and locks |
//! | [`first_touch`] | memory that a node has never seen, beside plain datagrams and MPI |
//! | [`cached_barrier`] | barriers with much cached and nothing written |
//! | [`memory`] | what a process takes of the machine's memory |
//! | [`kernels`] | the programs on shared pages: how long they run against plain threads |
//! | [`counts`] | the same: how many requests, messages, signals and bytes |
//! | [`bulk`] | pages through a plain socket |

pub mod bulk;
pub mod cached_barrier;
pub mod counts;
pub mod first_touch;
pub mod interval;
pub mod kernels;
pub mod memory;
pub mod node;
pub mod subjects;
