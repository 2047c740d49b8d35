//! The explicit objects of a node.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::inline::objects::Shape;
use crate::io::Wire;
use crate::mutex::RwLock;
use crate::object::{Object, ObjectOptions, UNIT_BYTES_MAX, UnitHomes, automatic_unit};
use comem_memory::{StoreFlag, StoreGuard};
use comem_protocol::coherence::Engine;
use comem_protocol::coherence::pages::region::Homes;
use comem_protocol::ids::{ObjectId, Slot};
use std::sync::Arc;

/// A node's explicit objects, and what keeps its threads' stores apart from the protocol's steps on them.
///
/// The list stands behind a lock that is held to look one up, or to add one. No other lock is taken meanwhile. Each
/// unit of an object has a lock of its own.
#[derive(Debug)]
pub(crate) struct Objects {
    all: RwLock<Vec<Arc<Object>>>,
    guard: StoreGuard,
    /// By slot.
    store_flags: Vec<&'static StoreFlag>,
}

impl Objects {
    pub(crate) fn new(slots: usize) -> Objects {
        let guard = StoreGuard::new(true);
        let store_flags: Vec<&'static StoreFlag> =
            (0..=slots).map(|_| &*Box::leak(Box::new(StoreFlag::new()))).collect();
        for (index, flag) in store_flags.iter().enumerate().skip(1) {
            guard.attach(Slot(index as u16), flag);
        }
        Objects { all: RwLock::default(), guard, store_flags }
    }

    pub(crate) fn guard(&self) -> &StoreGuard {
        &self.guard
    }

    pub(crate) fn flag(&self, slot: Slot) -> &'static StoreFlag {
        self.store_flags[slot.index()]
    }

    pub(crate) fn get(&self, id: ObjectId) -> Option<Arc<Object>> {
        self.all.read().get(id.0 as usize).cloned()
    }

    /// Makes an object's memory here; the caller sees to it that all nodes do the same.
    ///
    /// # Errors
    /// When an element, a unit or the object is too large, its home does not exist, or there is no memory.
    pub(crate) fn make(
        &self,
        (element, len): (usize, usize),
        options: &ObjectOptions,
        config: &Config,
        wire: &Wire,
    ) -> Result<Arc<Object>> {
        let (engine, unit, bytes) = plan((element, len), options, config, wire)?;
        let mut all = self.all.write();
        let id = ObjectId(all.len() as u32);
        let object = Object::new(id, (element, len, unit), engine, options, (wire.me(), wire.nodes()), &self.guard)
            .map_err(Error::system(format!("cannot reserve {bytes} bytes for a shared object")))?;
        let object = Arc::new(object);
        all.push(object.clone());
        Ok(object)
    }

    /// The names of at most `most` arrays of which threads of this node use ranges just now.
    pub(crate) fn lent(&self, most: usize) -> Vec<String> {
        let all = self.all.read();
        all.iter().filter(|object| object.is_lent()).take(most).map(|object| object.label.to_string()).collect()
    }
}

/// An object's engine, the elements of its units, and its bytes.
fn plan(
    (element, len): (usize, usize),
    options: &ObjectOptions,
    config: &Config,
    wire: &Wire,
) -> Result<(Engine, usize, usize)> {
    let nodes = wire.nodes();
    let bytes = element.checked_mul(len).filter(|b| *b <= isize::MAX as usize / 2);
    let Some(bytes) = bytes else {
        return Err(Error::Argument(format!(
            "an object of {len} elements of {element} bytes is larger than the address space; make it smaller"
        )));
    };
    if element > UNIT_BYTES_MAX {
        return Err(Error::Argument(format!(
            "an element of {element} bytes is larger than the largest unit, {UNIT_BYTES_MAX} bytes; split it"
        )));
    }
    let unit = match options.unit_elements {
        0 => automatic_unit(element, len, nodes, wire.payload_bytes()),
        chosen => chosen.min(len.max(1)),
    };
    if unit.saturating_mul(element) > UNIT_BYTES_MAX {
        return Err(Error::Argument(format!(
            "a unit of {unit} elements of {element} bytes is larger than {UNIT_BYTES_MAX} bytes; choose fewer elements"
        )));
    }
    if UnitHomes::of(&options.home).is_none() {
        let what = "units of objects have their homes in blocks, in turn, or on one node; others are for pages";
        return Err(Error::Argument(what.to_string()));
    }
    if let Homes::On(node) = options.home
        && node.index() >= nodes
    {
        return Err(Error::Argument(format!("there is no {node}; the job has {nodes} nodes")));
    }
    let engine = options.engine.filter(|_| !config.force_engine).unwrap_or(config.engine);
    let unit = match engine {
        Engine::Direct if len > 0 => {
            let placed = (UnitHomes::of(&options.home).unwrap_or_default(), nodes);
            Shape::new((element, len), options.unit_elements, config.unit_bytes, placed).unit_elements
        }
        _ => unit,
    };
    // What is told without an acknowledgement travels in datagrams no longer than usual; the unit and the offset stand
    // before it.
    let told_at_once = wire.message_bytes() - 16;
    if engine == Engine::Broadcast && nodes > 1 && element > told_at_once {
        return Err(Error::Argument(format!(
            "an element of {element} bytes is larger than what broadcast tells at once here, {told_at_once} bytes; \
             split it, or start the job with a larger --mtu"
        )));
    }
    Ok((engine, unit, bytes))
}
