//! A set of nodes: one bit each, as many words as the highest member needs, so that a small job pays little and
//! a job of a thousand nodes still fits.

use crate::ids::NodeId;
use smallvec::SmallVec;

/// A set of nodes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct NodeSet {
    /// Without an allocation for the first 128 nodes.
    words: SmallVec<[u64; 2]>,
}

impl NodeSet {
    /// The empty set.
    pub fn new() -> NodeSet {
        NodeSet::default()
    }

    /// Adds a node; tells whether it was new.
    pub fn insert(&mut self, node: NodeId) -> bool {
        let (word, bit) = Self::place(node);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        new
    }

    /// Removes a node; tells whether it was in.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let (word, bit) = Self::place(node);
        let was_in = self.words.get(word).is_some_and(|w| w & bit != 0);
        if was_in {
            self.words[word] &= !bit;
        }
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
        was_in
    }

    /// Whether the node is in.
    pub fn contains(&self, node: NodeId) -> bool {
        let (word, bit) = Self::place(node);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// Whether nobody is in.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// How many are in.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// The lowest member.
    pub fn first(&self) -> Option<NodeId> {
        self.iter().next()
    }

    /// The members in order.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.words.iter().enumerate().flat_map(|(i, word)| {
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| NodeId((i * 64 + bit) as u16))
        })
    }

    /// The members as bits, from the lowest on; the last word is not 0.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The set with these members. Words of 0 at the end count for nothing.
    pub fn from_words(words: impl IntoIterator<Item = u64>) -> NodeSet {
        let mut words: SmallVec<[u64; 2]> = words.into_iter().collect();
        while words.last() == Some(&0) {
            words.pop();
        }
        NodeSet { words }
    }

    fn place(node: NodeId) -> (usize, u64) {
        (node.index() / 64, 1 << (node.index() % 64))
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> NodeSet {
        let mut set = NodeSet::new();
        for node in nodes {
            set.insert(node);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_with_the_same_members_are_equal_whatever_their_past() {
        let mut a: NodeSet = [3, 900].map(NodeId).into_iter().collect();
        assert!(a.remove(NodeId(900)) && !a.remove(NodeId(900)));
        assert_eq!(a, [NodeId(3)].into_iter().collect());
        assert_eq!((a.len(), a.first()), (1, Some(NodeId(3))));
    }
}
