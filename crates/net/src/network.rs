//! A job's network on this node: the chosen interface and ports, and endpoints made for it, wrapped as the job was told.

use crate::capture::{Capture, Captured};
use crate::faulty::{Faults, Faulty};
use crate::select::{self, Interface, PortChoice, Reach, SelectError};
use crate::{Clock, Datagrams, Endpoint, Group};
use comem_protocol::faults::FaultSpec;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a job was told about its network.
#[derive(Clone, Debug)]
pub struct NetworkOptions {
    /// `--iface`: an interface's name, a network or an address.
    pub iface: Option<String>,
    /// `--ports`.
    pub ports: PortChoice,
    /// Whom the nodes must reach.
    pub reach: Reach,
    /// `--faults`.
    pub faults: Option<FaultSpec>,
    /// What makes this node's faults differ from those of others: its number.
    pub fault_stream: u64,
    /// `COMEM_CAPTURE`, made this process's own ([`Capture::path_for`]).
    pub capture: Option<PathBuf>,
}

impl Default for NetworkOptions {
    fn default() -> NetworkOptions {
        NetworkOptions {
            iface: None,
            ports: PortChoice::Any,
            reach: Reach::ThisHost,
            faults: None,
            fault_stream: 0,
            capture: None,
        }
    }
}

/// A job's network on this node. Displayed, it says what was chosen.
pub struct Network {
    interface: Interface,
    ports: PortChoice,
    faults: Option<(FaultSpec, Arc<Faults>)>,
    capture: Option<(PathBuf, Arc<Capture>)>,
}

/// The network cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// No interface.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The system refuses.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Network {
    /// Chooses the interface and prepares what was ordered.
    ///
    /// # Errors
    /// Nothing fits, or the capture file cannot be written; the text says what to do.
    pub fn open(options: &NetworkOptions, clock: Clock) -> Result<Network, NetworkError> {
        let interface = select::choose(options.iface.as_deref(), options.reach)?;
        let harmful = options.faults.filter(|spec| !spec.is_clean());
        let faults = match harmful {
            Some(spec) => Some((spec, Faults::new(&spec, options.fault_stream, clock)?)),
            None => None,
        };
        let begin = |path: &Path| Capture::create(path).map(|capture| (path.to_path_buf(), capture));
        let capture = options.capture.as_deref().map(begin).transpose()?;
        Ok(Network { interface, ports: options.ports, faults, capture })
    }

    /// The chosen interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Opens an endpoint, able to reach groups too.
    ///
    /// # Errors
    /// As [`Endpoint::bind`].
    pub fn bind(&self) -> io::Result<Arc<dyn Datagrams>> {
        self.bind_on(self.ports)
    }

    /// Opens an endpoint on this port and no other: one that all nodes know beforehand.
    ///
    /// # Errors
    /// As [`Endpoint::bind`].
    pub fn bind_exactly(&self, port: u16) -> io::Result<Arc<dyn Datagrams>> {
        self.bind_on(PortChoice::Exact(port))
    }

    fn bind_on(&self, ports: PortChoice) -> io::Result<Arc<dyn Datagrams>> {
        let endpoint = Endpoint::bind(self.interface.address, ports)?;
        endpoint.reach_groups(&self.interface)?;
        let mut endpoint: Arc<dyn Datagrams> = Arc::new(endpoint);
        if let Some((_, capture)) = &self.capture {
            endpoint = Arc::new(Captured::new(endpoint, Arc::clone(capture)));
        }
        if let Some((_, faults)) = &self.faults {
            endpoint = Arc::new(Faulty::new(endpoint, Arc::clone(faults)));
        }
        Ok(endpoint)
    }

    /// The multicast group of a job.
    pub fn group_of_job(&self, job: u64) -> Group {
        Group::of_job(job, &self.interface, self.ports)
    }

    /// Lets `endpoint` hear a group.
    ///
    /// # Errors
    /// What the system says.
    pub fn join(&self, endpoint: &dyn Datagrams, group: &Group) -> io::Result<()> {
        endpoint.attend(group.listen(&self.interface)?)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.interface)?;
        match self.ports {
            PortChoice::Any => write!(f, ", any ports")?,
            PortChoice::Exact(port) => write!(f, ", port {port}")?,
            PortChoice::Range(first, last) => write!(f, ", ports {first}-{last}")?,
        }
        if let Some((spec, _)) = &self.faults {
            write!(f, ", faults {spec}")?;
        }
        if let Some((path, _)) = &self.capture {
            write!(f, ", captured to {}", path.display())?;
        }
        Ok(())
    }
}
