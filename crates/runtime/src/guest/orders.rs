//! What a program asks for when it starts: an id, a rank, settings. What it leaves open, the environment says.

use super::attendance::Guest;
use super::launchers::{Launched, Meeting};
use super::pmix::Pmix;
use super::{UniqueId, launchers, listener};
use crate::boot::{await_key, start_limit};
use crate::config::Config;
use crate::control::var;
use crate::error::{Error, Result};
use crate::{Comem, begin, keys, settings};
use comem_net::Clock;
use comem_protocol::ids::{NODES_MAX, NodeId};
use comem_protocol::node::rendezvous;
use std::time::Duration;

/// Names an id for a process that does not get it from its program.
pub(crate) const ID_VARIABLE: &str = "COMEM_ID";
/// What only a launcher says of a node, and what contradicts an id.
const OTHER_WAYS: [&str; 2] = ["join", "discover"];

/// How a job is to be joined; what is left out, the environment says. [`Comem::builder`] makes it.
///
/// ```no_run
/// # let id = comem::UniqueId::new()?;
/// let comem = comem::Comem::builder().unique_id(id).rank(0).processes(4).engine("hlrc").start()?;
/// # Ok::<(), comem::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    id: Option<UniqueId>,
    rank: Option<usize>,
    processes: Option<usize>,
    /// Variables that count instead of the environment's.
    variables: Vec<(String, String)>,
    unknown: Option<String>,
    spare: bool,
}

impl Builder {
    /// The processes that have this id become one job.
    #[must_use]
    pub fn unique_id(self, id: UniqueId) -> Builder {
        Builder { id: Some(id), ..self }
    }

    /// This process becomes the node of this number. Without it, it gets one that is free.
    #[must_use]
    pub fn rank(self, rank: usize) -> Builder {
        Builder { rank: Some(rank), ..self }
    }

    /// How many processes the job has.
    #[must_use]
    pub fn processes(self, processes: usize) -> Builder {
        Builder { processes: Some(processes), ..self }
    }

    /// Application threads in each node; the same in all.
    #[must_use]
    pub fn threads(self, threads: usize) -> Builder {
        self.setting("threads", &threads.to_string())
    }

    /// The engine of pages, of objects, or of both; the same in all nodes.
    #[must_use]
    pub fn engine(self, engine: &str) -> Builder {
        self.setting("engine", engine)
    }

    /// Any setting of `comem run` that concerns a node: `setting("heap", "2G")` is its `--heap 2G`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Builder {
        match settings::variable_of(name) {
            Some(variable) => {
                self.variables.retain(|(known, _)| *known != variable);
                self.variables.push((variable, value.to_string()));
            }
            None => self.unknown = Some(name.to_string()),
        }
        self
    }

    /// A job of this process alone has places for as many threads as there can be, whatever number it was started
    /// with: for programs whose threads come and go.
    #[must_use]
    pub fn spare_places(self) -> Builder {
        Builder { spare: true, ..self }
    }

    /// Whether what is asked for makes sense, as far as that can be told without the environment.
    ///
    /// # Errors
    /// It does not.
    pub fn check(&self) -> Result<()> {
        Orders::new(self.clone()).map(|_| ())
    }

    /// Joins the job; returns when all nodes have met. The calling thread becomes thread 0 of its node.
    ///
    /// # Errors
    /// What is asked for makes no sense, or the processes do not come together.
    pub fn start(self) -> Result<Comem> {
        begin(&Orders::new(self)?)
    }
}

/// What is asked for, checked as far as it can be without the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orders {
    id: Option<UniqueId>,
    rank: Option<usize>,
    processes: Option<usize>,
    variables: Vec<(String, String)>,
    pub(crate) spare: bool,
}

fn wrong(what: impl Into<String>) -> Error {
    Error::Start(what.into())
}

impl Orders {
    /// What the environment says, and nothing else.
    pub(crate) fn of_environment(spare: bool) -> Orders {
        Orders { spare, ..Orders::default() }
    }

    fn new(builder: Builder) -> Result<Orders> {
        let Builder { id, rank, processes, variables, unknown, spare } = builder;
        if let Some(name) = unknown {
            let near = settings::nearest(&name, settings::OPTIONS).map(|near| format!("; was {near} meant?"));
            let all = || format!("; the names are {}", settings::OPTIONS.join(", "));
            return Err(wrong(format!("there is no setting {name:?}{}", near.unwrap_or_else(all))));
        }
        if let Some(processes) = processes.filter(|count| !(1..=NODES_MAX).contains(count)) {
            return Err(wrong(format!("a job of {processes} processes; 1 to {NODES_MAX} are possible")));
        }
        if let (Some(rank), Some(processes)) = (rank, processes)
            && rank >= processes
        {
            let most = processes - 1;
            return Err(wrong(format!("rank {rank} in a job of {processes} processes; ranks go from 0 to {most}")));
        }
        if id.is_some() && processes.is_none() {
            return Err(wrong("an id without the number of processes; say how many there are"));
        }
        if id.is_none() && (rank.is_some() || processes.is_some_and(|count| count > 1)) {
            return Err(wrong(
                "a rank or a number of processes without an id; make an id in one process, and hand it to all",
            ));
        }
        let contradicts =
            |name: &&&str| settings::variable_of(name).is_some_and(|v| variables.iter().any(|(n, _)| *n == v));
        if let Some(name) = OTHER_WAYS.iter().find(contradicts).filter(|_| id.is_some()) {
            return Err(wrong(format!("the setting {name} and an id are two ways to the job; choose one")));
        }
        Ok(Orders { id, rank, processes, variables, spare })
    }

    /// A variable, as this start sees it.
    pub(crate) fn read(&self, name: &str) -> Option<String> {
        let hidden =
            [var::NODE, var::NODES, var::ZERO, var::HOST_NODES, var::HOST_PLACE, "COMEM_JOIN", "COMEM_DISCOVER"];
        if self.id.is_some() && hidden.contains(&name) {
            return match name {
                var::NODES => self.processes.map(|count| count.to_string()),
                _ => None,
            };
        }
        let given = self.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        given.or_else(|| std::env::var(name).ok())
    }

    /// As [`Orders::read`], for a guest, who knows how many nodes there are and has no number yet.
    pub(crate) fn read_as(&self, guest: Option<&Guest>, name: &str) -> Option<String> {
        match (guest, name) {
            (Some(guest), var::NODES) => Some(guest.processes.to_string()),
            (Some(_), var::NODE | var::ZERO | var::HOST_NODES | var::HOST_PLACE) => None,
            _ => self.read(name),
        }
    }

    /// The id by which the job's processes meet, from the program, the environment or the launcher; `None` where they
    /// meet otherwise. The settings in `config` are those of the environment, without what the launcher tells.
    ///
    /// # Errors
    /// It makes no sense, or contradicts how this process was started.
    pub(crate) fn guest(&self, config: &Config, clock: &Clock) -> Result<Option<Guest>> {
        let launched = [var::CONTROL_FD, var::JOB_FD].iter().any(|name| std::env::var_os(name).is_some());
        if self.id.is_some() && launched {
            return Err(wrong(
                "comem run (or comem exec) has made this process a node of its job, and so it cannot join another by \
                 an id; start the program without it, or let the program start without an id",
            ));
        }
        if let (Some(id), Some(processes)) = (&self.id, self.processes) {
            let rank = self.rank.map(|rank| NodeId(rank as u16));
            return Ok(Some(Guest { id: id.0.clone(), rank, processes: processes as u16, may_be_early: false }));
        }
        if launched {
            return Ok(None);
        }
        if let Some(guest) = self.guest_of_environment()? {
            return Ok(Some(guest));
        }
        match launchers::seen(&|name| self.read(name))? {
            None => Ok(None),
            Some(Launched::Pmix) => by_pmix(),
            Some(Launched::At(meeting)) => at_address(&meeting, config, clock).map(Some),
        }
    }

    /// The id in `COMEM_ID`, with `COMEM_NODES` and perhaps `COMEM_NODE`.
    fn guest_of_environment(&self) -> Result<Option<Guest>> {
        let Some(text) = self.read(ID_VARIABLE).filter(|text| !text.is_empty()) else { return Ok(None) };
        let id = text.parse::<rendezvous::UniqueId>().map_err(|error| wrong(format!("{ID_VARIABLE}: {error}")))?;
        let number = |name: &str| self.read(name).and_then(|text| text.parse::<u16>().ok());
        let processes = number(var::NODES)
            .ok_or_else(|| wrong(format!("{ID_VARIABLE} without the number of processes; set {} too", var::NODES)))?;
        Ok(Some(Guest { id, rank: number(var::NODE).map(NodeId), processes, may_be_early: false }))
    }
}

/// The id that process 0 leaves with PMIx; `None` where libpmix is not installed, or there is one process.
fn by_pmix() -> Result<Option<Guest>> {
    let Some(pmix) = Pmix::connect()? else { return Ok(None) };
    let (rank, size) = (pmix.rank(), pmix.size()?);
    if size <= 1 {
        return Ok(None);
    }
    let processes = u16::try_from(size).ok().filter(|size| usize::from(*size) <= NODES_MAX);
    let processes = processes
        .ok_or_else(|| wrong(format!("the launcher started {size} processes; 1 to {NODES_MAX} nodes are possible")))?;
    let made = (rank == 0).then(|| listener::listen(keys::random()));
    if let Some(made) = &made {
        // The others are waiting: they get an empty text where there is no id.
        pmix.put(&made.as_ref().map_or(String::new(), ToString::to_string))?;
    }
    pmix.fence()?;
    let id = match made {
        Some(made) => made?,
        None => pmix.id()?.parse().map_err(|_| wrong("process 0 could not make an id; see its own message"))?,
    };
    Ok(Some(Guest { id, rank: Some(NodeId(rank as u16)), processes, may_be_early: false }))
}

/// The id of processes that meet at an address which all know.
fn at_address(meeting: &Meeting, config: &Config, clock: &Clock) -> Result<Guest> {
    let config = Config { nodes: meeting.size, ..config.clone() };
    let address = meeting.address(start_limit(&config).map(|limit| Duration::from_nanos(limit.0)))?;
    let id_by = |key: &[u8; 32]| rendezvous::UniqueId::new(meeting.secret(key), address);
    let id = match (meeting.key(address, config.auth != Some(false))?, meeting.rank) {
        (Some(key), 0) => listener::listen_for(id_by(&key))?,
        (Some(key), _) => id_by(&key),
        (None, 0) => {
            let key = keys::random();
            let id = listener::listen_for(id_by(&key))?;
            keys::leave(address, &key).map_err(|unfit| wrong(format!("{}; {}", unfit.what, unfit.advice)))?;
            id
        }
        (None, _) => id_by(&await_key(address, &config, clock)?),
    };
    let (rank, processes) = (Some(NodeId(meeting.rank as u16)), meeting.size as u16);
    Ok(Guest { id, rank, processes, may_be_early: true })
}

impl Guest {
    /// A job of one process meets nobody.
    pub(crate) fn is_alone(&self) -> bool {
        if self.processes == 1 {
            listener::forget(&self.id);
        }
        self.processes == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> UniqueId {
        UniqueId(comem_protocol::node::rendezvous::UniqueId::new([1; 16], "127.0.0.1:9".parse().unwrap()))
    }

    fn refused(builder: Builder) -> String {
        Orders::new(builder).expect_err("it makes no sense").to_string()
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_anybody_is_asked() {
        let with_id = || Comem::builder().unique_id(id());
        for (builder, part) in [
            (with_id(), "without the number of processes"),
            (with_id().processes(0), "a job of 0 processes"),
            (with_id().processes(5000), "1 to 1024"),
            (with_id().processes(4).rank(4), "rank 4 in a job of 4 processes; ranks go from 0 to 3"),
            (with_id().processes(4).setting("join", "127.0.0.1:9"), "two ways to the job"),
            (Comem::builder().processes(4), "without an id"),
            (Comem::builder().rank(1), "without an id"),
            (Comem::builder().setting("engin", "msi"), "was engine meant?"),
            (Comem::builder().setting("colour", "red"), "the names are auth, backbone"),
        ] {
            let text = refused(builder);
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn what_the_program_asks_for_counts_before_the_environment() {
        let builder = Comem::builder().unique_id(id()).processes(4).rank(2).threads(3).engine("msi").engine("lrc");
        let orders = Orders::new(builder).unwrap();
        let read = |name| orders.read(name);
        assert_eq!(read("COMEM_NODES").as_deref(), Some("4"));
        assert_eq!([read("COMEM_THREADS"), read("COMEM_ENGINE")], ["3", "lrc"].map(|text| Some(text.to_string())));
        assert_eq!(read("PATH"), std::env::var("PATH").ok());
    }
}
