//! What Comem's demonstration, its benchmarks and its fuzzing share. The first two run real programs through the real
//! `comem run`, read its stats file, and draw what came out.
//!
//! | module | what it does |
//! |---|---|
//! | [`job`] | starts programs, by themselves or through `comem run` |
//! | [`stats`] | reads what `comem run --stats` wrote |
//! | [`sea`] | the command line and the output line of the workload `sea` |
//! | [`field`] | the temperature fields that `sea` dumps, and how two of them differ |
//! | [`paint`], [`font`] | a temperature field as a picture |
//! | [`crossover`], [`curve`] | from which size on several nodes are faster than one process: table and picture |
//! | [`table`], [`svg`] | the demonstration's table, for a terminal and as a picture |
//! | [`dszoom`] | the tables and figures of the DSZOOM paper |
//! | [`sample`] | medians and ratios |
//! | [`fuzz`] | a node's state machines, fed with whatever a network may bring |

pub mod crossover;
pub mod curve;
pub mod dszoom;
pub mod field;
pub mod font;
pub mod fuzz;
pub mod job;
pub mod paint;
pub mod sample;
pub mod sea;
pub mod stats;
pub mod svg;
pub mod table;
