//! A node's sockets, and the interface that they are bound to.

use crate::config::Config;
use crate::error::{Error, Result};
use comem_net::select::{Interface, MTUS};
use comem_net::{Backbone, Datagrams, Network};
use comem_protocol::ids::NodeId;
use std::net::SocketAddr;
use std::sync::Arc;

/// Refuses an interface whose packets are too short for a job's datagrams.
pub(super) fn check_mtu(interface: &Interface) -> Result<()> {
    if interface.mtu >= *MTUS.start() {
        return Ok(());
    }
    let (name, mtu, least) = (&interface.name, interface.mtu, MTUS.start());
    Err(Error::Start(format!(
        "packets of the interface {name} have {mtu} bytes at most, and {least} are needed; raise its MTU, or choose \
         another with --iface"
    )))
}

/// One socket for the service thread and one for each application thread. Over networks one more for what may wait
/// ([`Wire::own_deferred_socket`]), where threads sleep when they wait, and would be woken for it; not where somebody
/// counts the ports.
pub(super) fn open_endpoints(config: &Config, network: &Network) -> Result<Vec<Arc<dyn Datagrams>>> {
    let exact = exact_zero_port(config)?;
    let sleeps = config.nodes > 1 && !crate::service::may_spin(config);
    let tray = network.backbone() == Backbone::Udp && sleeps && config.ports.is_none();
    (0..=config.sockets() + usize::from(tray))
        .map(|slot| match exact.filter(|_| slot == 0) {
            Some(port) => network.bind_exactly(port),
            None => network.bind(),
        })
        .collect::<std::io::Result<_>>()
        .map_err(|e| Error::Start(e.to_string()))
}

/// Under `comem exec` node zero's port was agreed on beforehand.
fn exact_zero_port(config: &Config) -> Result<Option<u16>> {
    if config.node != Some(NodeId(0)) {
        return Ok(None);
    }
    let Some(text) = &config.zero else { return Ok(None) };
    let address: SocketAddr =
        text.parse().map_err(|_| Error::Start(format!("COMEM_ZERO={text} is no address; use IP:PORT")))?;
    Ok(Some(address.port()))
}
