//! Diffs that are asked of sets of nodes and told to sets: selective multicast as in Brazos (Speight and Bennett,
//! USENIX Windows NT 1997, sections 3.4 and 3.5), the way of the engine `multicast`.
//!
//! Notices are those of `scope`, and diffs stay with their writers as under `lrc` ([`kept_diffs`](super::kept_diffs)).
//! What is different is whom a faulting thread asks, and who hears the answer.
//!
//! | part | keeps |
//! |---|---|
//! | [`unit`] | of each unit: its copyset, what came unasked, what this node has told whom |
//! | [`wire`] | the bodies of the messages |
//! | [`serve`] | what a thread sends that has faulted, and what a node does with these messages |
//! | [`carry`] | diffs that travel with a lock's token |
//! | [`history`] | what a job arrived at of all that, for the next run |
//! | [`placement`] | which node manages a unit, and whether its diffs go to sets or home |
//! | [`page_table::multicast`](super::page_table) | the transitions of units, with memory |
//! | [`node::multicast`](super::node::multicast) | joins and leaves at barriers |
//!
//! # Asks and tells
//!
//! A unit's *copyset* has the nodes with a copy of it. All nodes agree on it at barriers. A thread that faults on a
//! unit which the last barrier's notices ended sends one datagram to a set:
//!
//! - *asked* are the writers whose diffs its copy lacks;
//! - *told* are the other members of the copyset. They hear what the asker wrote itself, which goes with the ask.
//!
//! Each writer that is asked tells its diffs to the same set. So members that have not faulted yet have these diffs
//! (*indirect* ones) before they do. A writer that has told a set with the asker in it stays silent: that message is on
//! its way, or was the other of two asks that crossed.
//!
//! | round of writers that read each other's words | point to point | one datagram for a set |
//! |---|---|---|
//! | three, and a fourth with a copy (Brazos, Figure 3) | 12 | 3 |
//! | N | 2 N (N - 1) | N |
//!
//! Where the network has no multicast a message to a set goes to each member by itself: 9 in Figure 3, and 6 once the
//! fourth has left the copyset.
//!
//! What was told by a lock's token alone is asked for point to point. Its diff is for who has the lock, and most of it
//! will have been overwritten by the time others hear of it. So is a unit with one other member.
//!
//! # What comes unasked
//!
//! A tell says which intervals of its writer it has, from one stamp up to another. It is kept until the next fault on
//! its unit. Then it is stored into the copy if that has all from before, and the stamps of bytes decide as always.
//! Only a unit that no thread can see is patched. A fault that finds everything here sends nothing.
//!
//! An ask also names the writers that are to answer, and those that have told before. A member that has heard it
//! *expects* these diffs, so it does not ask for them again.
//!
//! # Loss
//!
//! Asks and tells are hints. Nobody acknowledges them. The faulting thread has a timer, four round trips and at least
//! 2 ms. When it runs out, the thread asks the writers that it has not heard from point to point. So the receiver
//! repairs what it needs, and what nobody needs is not repaired.
//!
//! # Copysets
//!
//! | event | what it does |
//! |---|---|
//! | a copy comes into being, and a thread uses it | the node joins, by its next arrival at a barrier |
//! | a notice says that its writer holds a copy | the writer is a member |
//! | in some epochs in a row diffs were told and not used | the node leaves, by its next arrival |
//! | a copy's memory is given back | the same |
//!
//! The last member stays. Who has left is a writer still, and answers as one.
//!
//! # Early updates
//!
//! Where nodes ask for one unit at the same time, all of them will do so after the next barrier. A node that is asked
//! for a unit while it asks for it itself says so with its arrival. From the barrier on, each node tells what it wrote
//! to such units before it arrives, with several units in a message. A fault that finds all here sends nothing. What is
//! lost is repaired like any tell, so nobody has to know whether every interval came. It ends when the copyset has one
//! member.
//!
//! # Managers and homes
//!
//! At the last barrier of each window of some epochs nodes say how they used units. The one that used a unit most
//! becomes its manager. Where few nodes write much that they do not read, diffs go to the manager alone, and whoever
//! faults takes its copy: the unit is *homed*. Both are hints ([`placement`]), and the next run of a program may start
//! with them ([`history`]).
//!
//! # Memory that is given out again
//!
//! A region may have the addresses of one that was freed. What was told to sets of the old one may come at any time. It
//! has no later stamp than a barrier between the two, and the new one ignores it
//! ([`Rule::RegionsBeginAnew`](crate::rules::Rule)).
//!
//! # Data with the grant
//!
//! A lock's token carries what its giver's copy has of the pages that it tells of, as far as it was written since the
//! last barrier. A counter that wanders with its lock causes no request.

pub mod carry;
pub mod history;
#[cfg(test)]
mod history_tests;
pub mod placement;
pub mod serve;
#[cfg(test)]
mod tests;
pub mod unit;
pub mod wire;
