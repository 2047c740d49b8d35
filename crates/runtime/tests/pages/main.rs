//! Shared pages in jobs of real processes: this test binary is launcher and node in one.
//!
//! | file | does |
//! |---|---|
//! | [`matrix`] | which engines, detectors, shapes and networks a scenario runs under |
//! | [`placement`], [`order`], [`sharing`], [`blocks`], [`pages`], [`globals`] | scenarios with one right answer |
//! | [`address_reuse`] | addresses of freed memory, used again |
//! | [`beside`] | threads that go on while another one of their node is in a collective call |
//! | [`stress`] | threads that write while others fetch, diff and invalidate the same pages |
//! | [`counts`] | what a step costs, exactly: messages, faults, requests |
//! | `paths` | how often one fault and one remote lock take the steps that cost something |
//! | [`history`] | pages under `multicast` that start with what an earlier job arrived at
//! | [`homes`] | how many homes may come to a node |
//! | [`kept_diffs`] | pages under `lrc`: messages, stores, collections |
//! | [`limits`] | more memory than fits: cache bounds, address space, mappings |
//! | [`msi_pages`] | pages under `msi`: accesses across two, very many, freed ones |
//! | [`multicast`] | pages under `multicast`: messages, copysets, loss |
//! | [`names`] | a million names of locks |
//! | [`one_copy`] | memory that all nodes map: the engine `hardware` |
//! | [`notices`] | more notices than fit the datagrams of a message |
//! | [`refetch_all`] | the example of an engine: what it costs, and the suite under it |
//! | [`wrong`] | programs that do what they must not |
//! | [`seccomp`] | systems that forbid what the fast detectors need |

mod address_reuse;
mod beside;
mod blocks;
mod counts;
mod globals;
mod history;
mod homes;
#[path = "../../../net/tests/hosts/mod.rs"]
mod hosts;
mod kept_diffs;
#[allow(dead_code, reason = "the tests of jobs use all of it")]
#[path = "../job/launcher.rs"]
mod launcher;
mod limits;
mod matrix;
mod msi_pages;
mod multicast;
mod names;
mod notices;
mod one_copy;
mod order;
mod pages;
#[cfg(debug_assertions)]
mod paths;
mod placement;
#[path = "../../../../examples/refetch-all/jobs.rs"]
mod refetch_all;
mod regions;
mod seccomp;
mod sharing;
mod stress;
mod wrong;

/// What moves datagrams where a test does not say: what users get.
const BACKBONE: &str = "auto";
/// What keeps pages where a test does not say: on one host users get memory without a protocol.
const ENGINE: &str = "hlrc";

/// A node that takes longer, also beside other work, hangs: it is ended, and so the job fails and says what it was
/// doing.
const NODE_SECONDS: u32 = 240;

/// Plays the part of a node; without a role there is nothing to play.
#[test]
fn node() {
    let Ok(role) = std::env::var("COMEM_TEST_ROLE") else { return };
    // SAFETY: asks for a signal, no more.
    unsafe { libc::alarm(NODE_SECONDS) };
    seccomp::prepare();
    wrong::prepare(&role);
    beside::prepare(&role);
    let comem = comem::start().unwrap_or_else(|error| {
        eprintln!("comem: {error}");
        std::process::exit(error.exit_code());
    });
    let parts = [
        matrix::play,
        address_reuse::play,
        counts::play,
        limits::play,
        globals::play,
        homes::play,
        kept_diffs::play,
        history::play,
        multicast::play,
        names::play,
        notices::play,
        wrong::play,
        beside::play,
        regions::play,
        msi_pages::play,
        refetch_all::play,
        one_copy::play,
        #[cfg(debug_assertions)]
        paths::play,
    ];
    assert!(parts.iter().any(|play| play(&comem, &role)), "there is no role {role}");
    let (node, threads) = (comem.node(), comem.threads());
    if let Err(error) = comem.finish() {
        eprintln!("comem: {error}");
        std::process::exit(error.exit_code());
    }
    globals::look_back(&role, node, threads);
}
