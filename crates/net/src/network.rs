//! A job's network on this node: the chosen interface and ports, and endpoints made for it, wrapped as the job was
//! told.

pub use crate::backbone::Backbone;
use crate::capture::{Capture, Captured};
use crate::faulty::{Faults, Faulty};
use crate::select::{self, Interface, PortChoice, Reach, SelectError};
use crate::shm::{self, ShmHost};
use crate::{Clock, Datagrams, Endpoint, Group, Lengths, Listener};
use comem_protocol::auth::Sealer;
use comem_protocol::faults::FaultSpec;
use comem_protocol::ids::NodeId;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

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
    /// `--capture`, made this process's own ([`Capture::path_for`]).
    pub capture: Option<PathBuf>,
    /// The job's key, for what leaves shared memory.
    pub sealer: Sealer,
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
            sealer: Sealer::default(),
        }
    }
}

/// A job's network on this node. Displayed, it says what was chosen.
pub struct Network {
    interface: Interface,
    ports: PortChoice,
    /// The shared memory, where it is the backbone.
    memory: Option<Arc<ShmHost>>,
    faults: Option<(FaultSpec, Arc<Faults>)>,
    capture: Option<(PathBuf, Arc<Capture>)>,
    /// IP may cut longer datagrams.
    uncut_bytes: usize,
    lengths: Option<Lengths>,
}

/// The network cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// No interface.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// Shared memory cannot reach other hosts.
    #[error("the backbone shm joins the processes of one host only; choose udp, or run all nodes on this host")]
    SeveralHosts,
    /// The system refuses.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Network {
    /// Chooses the interface and prepares what was ordered, over UDP.
    ///
    /// # Errors
    /// Nothing fits, or the capture file cannot be written; the text says what to do.
    pub fn open(options: &NetworkOptions, clock: Clock) -> Result<Network, NetworkError> {
        Network::open_over(Backbone::Udp, options, clock)
    }

    /// As [`Network::open`], over any backbone.
    ///
    /// # Errors
    /// As there; and shared memory was asked for, while nodes may be on other hosts.
    pub fn open_over(backbone: Backbone, options: &NetworkOptions, clock: Clock) -> Result<Network, NetworkError> {
        let interface = select::choose(options.iface.as_deref(), options.reach)?;
        let memory = match backbone {
            Backbone::Udp => None,
            Backbone::Shm if stays_here(&interface, options.reach) => Some(ShmHost::open_sealed(&options.sealer)?),
            Backbone::Shm => return Err(NetworkError::SeveralHosts),
        };
        let harmful = options.faults.filter(|spec| !spec.is_clean());
        let faults = match harmful {
            Some(spec) => Some((spec, Faults::new(&spec, options.fault_stream, clock)?)),
            None => None,
        };
        let begin = |path: &Path| Capture::create(path).map(|capture| (path.to_path_buf(), capture));
        let capture = options.capture.as_deref().map(begin).transpose()?;
        Ok(Network { interface, ports: options.ports, memory, faults, capture, uncut_bytes: usize::MAX, lengths: None })
    }

    /// Lets IP cut datagrams of more than so many bytes of the endpoints that are opened from now on: see
    /// [`Endpoint::cutting_beyond`].
    pub fn cut_beyond(&mut self, bytes: usize) {
        self.uncut_bytes = bytes;
    }

    /// Datagrams to the endpoints that are opened from now on say how long they are: see [`Endpoint::with_lengths`].
    pub fn expect_lengths(&mut self, lengths: Lengths) {
        self.lengths = Some(lengths);
    }

    /// The job starts, of which this process is node `me`, with these addresses of each node: injected faults may
    /// concern some of them alone.
    pub fn begin(&self, me: NodeId, addresses: &[Vec<SocketAddr>]) {
        if let Some((_, faults)) = &self.faults {
            faults.begin(me, addresses);
        }
    }

    /// The chosen interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// How bytes move.
    pub fn backbone(&self) -> Backbone {
        if self.memory.is_some() { Backbone::Shm } else { Backbone::Udp }
    }

    /// The most bytes of one datagram that is sent here whole.
    pub fn datagram_bytes_max(&self) -> usize {
        match self.backbone() {
            Backbone::Udp => self.interface.datagram_bytes_max(),
            Backbone::Shm => shm::DATAGRAM_BYTES,
        }
    }

    /// Prepares the ways to all these endpoints, for so long at most, where that saves the first datagrams a detour.
    /// Gives how many are ready; the others take longer, and are no error.
    pub fn connect(&self, addresses: &[SocketAddr], timeout: Duration) -> usize {
        self.memory.as_ref().map_or(addresses.len(), |memory| memory.connect(addresses, timeout))
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
        let endpoint = endpoint.cutting_beyond(self.uncut_bytes).with_lengths(self.lengths);
        endpoint.reach_groups(&self.interface)?;
        let mut endpoint: Arc<dyn Datagrams> = match &self.memory {
            Some(memory) => Arc::new(memory.adopt(endpoint)?),
            None => Arc::new(endpoint),
        };
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
        endpoint.attend(self.listen(group)?)
    }

    /// A socket that hears a group. What a group is sent suffers the injected faults here.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen(&self, group: &Group) -> io::Result<Listener> {
        let harmful = self.faults.as_ref().filter(|_| group.address().ip().is_multicast());
        Ok(group.listen(&self.interface)?.on_bad_network(harmful.map(|(_, faults)| Faults::reception(faults))))
    }
}

/// Whether all nodes are on this host, as far as that was said.
fn stays_here(interface: &Interface, reach: Reach) -> bool {
    match reach {
        Reach::ThisHost => true,
        Reach::Peer(peer) => peer == interface.address,
        Reach::Network => false,
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.memory.is_some() {
            f.write_str("shared memory, named by ")?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RECEIVE_BUFFER_BYTES, Received, Wait};

    #[test]
    fn shared_memory_stays_on_this_host() {
        let options = NetworkOptions { reach: Reach::Network, ..NetworkOptions::default() };
        let refused = Network::open_over(Backbone::Shm, &options, Clock::system());
        // A host without a network says that instead.
        let Err(error) = refused else { panic!("shared memory does not reach other hosts") };
        assert!(matches!(error, NetworkError::SeveralHosts | NetworkError::Select(_)), "{error}");
        let peer = Reach::Peer(std::net::Ipv4Addr::LOCALHOST.into());
        let options = NetworkOptions { reach: peer, ..NetworkOptions::default() };
        assert!(Network::open_over(Backbone::Shm, &options, Clock::system()).is_ok());
    }

    #[test]
    fn faults_and_captures_work_over_shared_memory() {
        let path = std::env::temp_dir().join(format!("comem-shm-{}.pcap", std::process::id()));
        let options = NetworkOptions {
            faults: Some("dup=100%".parse().unwrap()),
            capture: Some(path.clone()),
            ..NetworkOptions::default()
        };
        let network = Network::open_over(Backbone::Shm, &options, Clock::system()).unwrap();
        assert_eq!((network.backbone(), network.datagram_bytes_max()), (Backbone::Shm, shm::DATAGRAM_BYTES));
        assert!(network.to_string().starts_with("shared memory, named by lo"), "{network}");
        let (a, b) = (network.bind().unwrap(), network.bind().unwrap());
        assert_eq!(network.connect(&[b.local_addr()], Duration::from_secs(20)), 1);
        let sent = vec![7; shm::DATAGRAM_BYTES];
        a.send_to(&sent, sent.len(), b.local_addr()).unwrap();
        let mut buffer = vec![0; RECEIVE_BUFFER_BYTES];
        for _ in 0..2 {
            let received = b.recv(&mut buffer, Some(Duration::from_secs(20)), Wait::Block).unwrap();
            assert_eq!(received, Received::Datagrams { from: a.local_addr(), len: sent.len(), segment: sent.len() });
            assert_eq!(buffer[..sent.len()], sent);
        }
        assert!(b.kick(), "also through the wrappers");
        assert_eq!(b.recv(&mut buffer, None, Wait::Block).unwrap(), Received::Timeout);
        let recorded = std::fs::metadata(&path).unwrap().len() as usize;
        std::fs::remove_file(&path).unwrap();
        assert!(recorded > 4 * sent.len(), "two copies, each sent and received");
    }
}
