//! The shared heap at start-up.

use crate::error::Result;
use crate::node::Node;
use crate::shared::heap::address_space;
use crate::shared::{Place, Shared, fault, hooks};
use crate::thread::Thread;
use comem_memory::lines::barrier;
use comem_memory::pages::Detector;
use comem_protocol::wire::message::Collective;
use std::sync::Arc;

/// Agrees with the other nodes on where the shared heap lies, and makes it. Where that cannot be, the program runs
/// without: only allocating fails.
pub(super) fn make_heap(node: &Arc<Node>, main: &Thread) -> Result<()> {
    let detector = address_space::choose_detector(&node.config);
    let units_stay = !detector.as_ref().is_ok_and(|chosen| *chosen == Detector::Mprotect);
    let mut offers = address_space::offers(node.config.heap).to_vec();
    offers.push(i64::from(units_stay));
    let may_be_biased = node.config.has_lines() && !node.config.uses_ucx();
    offers.push(i64::from(may_be_biased && barrier::register()));
    let bytes: Vec<u8> = offers.iter().flat_map(|o| o.to_be_bytes()).collect();
    main.collective(Collective::PLACE, &bytes, |result| {
        for (offer, word) in offers.iter_mut().zip(result.as_chunks::<8>().0) {
            *offer = i64::from_be_bytes(*word);
        }
    })?;
    let has_barrier = offers.pop() == Some(1);
    let units_may_differ = offers.pop() == Some(0);
    let Some(base) = address_space::agreed(&offers) else {
        if node.config.verbose {
            crate::error::say(format_args!(
                "comem: no place for a shared heap of {} bytes is free on every node",
                node.config.heap
            ));
        }
        return Ok(());
    };
    let made = detector.and_then(|detector| {
        let place = Place { base, detector, units_may_differ, has_barrier };
        Shared::new(&node.config, node.me(), node.nodes(), Some(place))
    });
    match made {
        Ok(shared) => {
            shared.views.iter().for_each(|views| views.stamp(node.me(), node.wire.service_port(node.me())));
            node.set_shared(shared);
            fault::install(node)?;
            fault::guess_at_crashes(node)?;
            hooks::install(node);
            Ok(())
        }
        // An order is an order.
        Err(error) if node.config.detector.is_some() => Err(error),
        Err(error) => {
            crate::error::say(format_args!("comem: {}: there is no shared heap: {error}", node.name_of(node.me())));
            Ok(())
        }
    }
}
