//! What a node hears from the launcher that has started it, and what it tells there.

use crate::control::{ControlReader, ControlWriter, FromNode, ToNode};
use crate::error::{Error, Result};
use crate::mutex::Mutex;
use crate::node::Node;
use crate::report;
use comem_protocol::ids::NodeId;
use comem_protocol::time::Span;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A wait of so long may be why a job is stopped.
const LONG_WAIT: Span = Span::from_ms(2_000);

/// Hears the launcher from start-up until all nodes have finished. Behind that nothing concerns this one, and a process
/// ends with the last of its threads where its first one ends by `pthread_exit`.
#[derive(Default)]
pub(crate) struct LauncherLink {
    node: OnceLock<Arc<Node>>,
    /// What was heard before there was a node to end.
    early: Mutex<Option<Error>>,
}

impl LauncherLink {
    pub(crate) fn listen(self: &Arc<LauncherLink>, mut reader: ControlReader<ToNode>) -> Result<()> {
        let link = self.clone();
        let listen = move || {
            loop {
                match next_message(&mut reader) {
                    Ok(ToNode::PeerEnded { node, how }) => link.tell(Error::NodeLost { node: NodeId(node), why: how }),
                    Ok(ToNode::Stop { reason }) => {
                        link.node.get().inspect(|node| tell_of_long_waits(node));
                        link.tell(Error::Stopped(reason));
                    }
                    Ok(ToNode::Sample { waits, pages }) => {
                        link.node.get().inspect(|node| node.launcher.tell_sample(report::sample(node, waits, pages)));
                    }
                    Ok(ToNode::AllFinished) => {
                        link.node.get().inspect(|node| node.life.shutdown.all_have_finished());
                        // With its descriptor, this process would lose its lock of the channel
                        // (`control::launcher_channel`).
                        return std::mem::forget(reader);
                    }
                    Ok(_) => {}
                    Err(error) => return link.tell(error),
                }
            }
        };
        let spawned = comem_net::threads::start("comem-control", listen);
        spawned.map(drop).map_err(Error::system("cannot start a thread"))
    }

    fn tell(&self, error: Error) {
        let mut early = self.early.lock();
        match self.node.get() {
            Some(node) => node.end_with(&error),
            None => *early = early.take().or(Some(error)),
        }
    }

    pub(crate) fn heard(&self) -> Option<Error> {
        self.early.lock().take()
    }

    /// From now on the node itself is told.
    pub(crate) fn hand_over(&self, node: &Arc<Node>) {
        let mut early = self.early.lock();
        if let Some(error) = early.take() {
            node.end_with(&error);
        }
        let _ = self.node.set(node.clone());
    }
}

/// The way to the launcher, if there is one.
pub(crate) struct ToLauncher {
    writer: Option<Arc<ControlWriter<FromNode>>>,
    samples: AtomicU64,
}

impl ToLauncher {
    pub(crate) fn new(writer: Option<Arc<ControlWriter<FromNode>>>) -> ToLauncher {
        ToLauncher { writer, samples: AtomicU64::new(0) }
    }

    /// How often the launcher has asked for counters while the job ran: 0 where nobody has watched.
    pub(crate) fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    fn tell_sample(&self, sample: serde_json::Value) {
        self.samples.fetch_add(1, Ordering::Relaxed);
        self.tell(&FromNode::Sample { sample });
    }

    /// Tells the launcher; whether there is one that can hear.
    pub(crate) fn tell(&self, message: &FromNode) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.send(message).is_ok())
    }
}

/// A job is stopped: whoever wonders what it was about learns where threads have waited for long.
fn tell_of_long_waits(node: &Node) {
    let now = node.now();
    if node.slots.waits_in_work().any(|since| now - since >= LONG_WAIT) {
        report::print_waits(node, "told to stop, while");
    }
}

pub(crate) fn next_message(reader: &mut ControlReader<ToNode>) -> Result<ToNode> {
    match reader.next_message() {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(Error::Stopped("the launcher ended".to_string())),
        Err(error) => Err(Error::system("cannot hear the launcher")(error)),
    }
}

/// As [`next_message`], for so long; `None` when nothing has come.
pub(crate) fn next_message_within(reader: &mut ControlReader<ToNode>, timeout: Duration) -> Result<Option<ToNode>> {
    reader.set_timeout(Some(timeout)).map_err(Error::system("cannot hear the launcher"))?;
    let message = reader.next_message();
    reader.set_timeout(None).map_err(Error::system("cannot hear the launcher"))?;
    match message {
        Ok(Some(message)) => Ok(Some(message)),
        Ok(None) => Err(Error::Stopped("the launcher ended".to_string())),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
        Err(error) => Err(Error::system("cannot hear the launcher")(error)),
    }
}
