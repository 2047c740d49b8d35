//! What the server asks of the command that it belongs to.

use crate::streams::{Feed, Output};
use serde_json::Value;
use std::sync::Arc;

/// Why something that was asked for is not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The status of HTTP.
    pub status: u16,
    /// What happened, in a clause.
    pub what: String,
    /// What to do about it; may be empty.
    pub advice: String,
}

impl Refusal {
    /// A refusal with this status.
    pub fn new(status: u16, what: impl Into<String>, advice: impl Into<String>) -> Refusal {
        Refusal { status, what: what.into(), advice: advice.into() }
    }
}

/// What the page is told, or why not.
pub type Answer = Result<Value, Refusal>;

/// Whoever knows jobs, hosts and past runs. Each call may take seconds: it has a thread of its own.
pub trait Desk: Send + Sync + 'static {
    /// What the form to start jobs has to know.
    fn about(&self) -> Answer;
    /// Hosts, and what their daemons say: of these, or of all that answer where none is named.
    fn hosts(&self, names: &[String]) -> Answer;
    /// Jobs that run, and those that have ended lately.
    fn jobs(&self) -> Answer;
    /// One of them.
    fn job(&self, number: u32) -> Answer;
    /// Starts a job; what was started.
    fn launch(&self, wanted: Value) -> Answer;
    /// Ends a job, and waits until it is over; what became of it.
    fn kill(&self, number: u32) -> Answer;
    /// What the threads of a job wait for, and which locks they hold.
    fn waits(&self, number: u32) -> Answer;
    /// Pages of a region that are shared falsely, and who holds copies; the region by its address.
    fn pages(&self, number: u32, region: &str) -> Answer;
    /// Past runs.
    fn runs(&self) -> Answer;
    /// One of them, by its name.
    fn run(&self, name: &str) -> Answer;
    /// Tells what a job counts until it ends or nobody listens any more.
    fn watch(&self, number: u32, feed: &Feed);
    /// What a job that was started here prints.
    ///
    /// # Errors
    /// It was not started here.
    fn output(&self, number: u32) -> Result<Arc<Output>, Refusal>;
}
