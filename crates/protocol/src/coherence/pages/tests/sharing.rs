//! Who wrote where, and what of it is false sharing.

use crate::coherence::pages::sharing::{Found, MASKS_MAX, Sharing, Touched, WATCHED_EPOCHS};
use crate::coherence::pages::{ByteMarks, PAGE_BYTES, PageNo};
use crate::ids::NodeId;

const HOME: NodeId = NodeId(0);

fn marks(bytes: impl IntoIterator<Item = usize>) -> ByteMarks {
    let mut marks = [0; 64];
    bytes.into_iter().for_each(|at| marks[at / 64] |= 1 << (at % 64));
    marks
}

fn bytes_of_words(words: impl IntoIterator<Item = usize>) -> impl Iterator<Item = usize> {
    words.into_iter().flat_map(|word| 8 * word..8 * word + 8)
}

/// The nodes that are named when each node from 1 on has written one of these sets of bytes in one epoch, and the home
/// too if so.
fn named(writers: &[Vec<usize>], home: bool) -> Vec<u16> {
    let mut sharing = Sharing::default();
    sharing.note(0, NodeId(9), 7, Touched::of(&marks([0])));
    for (node, bytes) in (1..).zip(writers) {
        // In two halves: a node's diffs of one epoch add up.
        for half in [&bytes[..bytes.len() / 2], &bytes[bytes.len() / 2..]] {
            sharing.note(1, NodeId(node), 7, Touched::of(&marks(half.iter().copied())));
        }
    }
    if home {
        sharing.note_home(1, HOME, 0..100);
    }
    sharing.settle();
    let found: Vec<(PageNo, &Found)> = sharing.found(0..100);
    assert!(found.iter().all(|(page, found)| (*page, found.times) == (7, 1)), "{found:?}");
    let mut nodes: Vec<u16> = found.iter().flat_map(|(_, found)| &found.nodes).map(|node| node.0).collect();
    nodes.sort_unstable();
    nodes
}

#[test]
fn writers_of_different_bytes_are_named_however_these_lie() {
    let strided = |stride: usize| (0..stride).map(move |me| bytes_of_words((me..512).step_by(stride)).collect());
    for stride in [2, 3, 5, 8, 63, 512] {
        let nodes: Vec<u16> = (1..=stride as u16).collect();
        assert_eq!(named(&strided(stride).collect::<Vec<_>>(), false), nodes, "every {stride}th word");
    }
    for border in [1, 63, 64, 65, 100, 2049, 4095] {
        assert_eq!(
            named(&[(0..border).collect(), (border..PAGE_BYTES).collect()], false),
            [1, 2],
            "border at {border}"
        );
    }
    let scattered = |at: &usize| at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61 & 1 != 0;
    let (one, other): (Vec<usize>, Vec<usize>) = (0..PAGE_BYTES).partition(scattered);
    assert_eq!(named(&[one, other], false), [1, 2], "bytes without a pattern");
}

#[test]
fn writers_of_the_same_bytes_are_not_named_and_hide_nobody() {
    let all: Vec<usize> = (0..PAGE_BYTES).collect();
    assert_eq!(named(&[all.clone(), all.clone(), all.clone()], false), [0; 0]);
    assert_eq!(named(&[vec![7, 70], vec![70, 700], vec![70]], false), [0; 0], "one byte in common");
    assert_eq!(named(&[(0..101).collect(), (100..4096).collect()], false), [0; 0], "one at the border");
    assert_eq!(named(&[vec![7], vec![7], vec![8]], false), [1, 2, 3], "the third is apart from both");
    assert_eq!(named(&[vec![7], vec![7, 8], vec![8]], false), [1, 3], "these two are apart");
    assert_eq!(named(&[vec![7]], false), [0; 0], "one writer");
}

#[test]
fn a_home_that_wrote_is_one_of_the_writers_where_the_others_are_apart() {
    assert_eq!(named(&[vec![7]], true), [0, 1], "it may have written the same byte");
    assert_eq!(named(&[vec![7], vec![8]], true), [0, 1, 2]);
    assert_eq!(named(&[vec![7], vec![7]], true), [0; 0]);
    assert_eq!(named(&[vec![7], vec![7], vec![8]], true), [1, 2, 3]);
    assert_eq!(named(&[], true), [0; 0]);
}

#[test]
fn two_words_stand_for_lines_that_are_alike_and_marks_for_others() {
    for bytes in [vec![], vec![4095], (0..4096).collect(), (64..128).collect(), (3..4096).step_by(64).collect()] {
        let marks = marks(bytes);
        let Touched::Alike { lines, bytes } = Touched::of(&marks) else { panic!("two words say it") };
        assert_eq!(marks, std::array::from_fn(|line| if lines >> line & 1 != 0 { bytes } else { 0 }));
    }
    let marks = marks([0, 65]);
    assert_eq!(Touched::of(&marks), Touched::Each(&marks));
}

/// Notes two writers of a page, each in need of marks, that are apart.
fn share(sharing: &mut Sharing, epoch: u32, page: PageNo) {
    for node in [1, 2] {
        sharing.note(epoch, NodeId(node), page, Touched::of(&marks([node as usize, 64 + 2 * node as usize])));
    }
}

fn times(sharing: &Sharing) -> Vec<u64> {
    sharing.found(0..PageNo::MAX).into_iter().map(|(_, found)| found.times).collect()
}

#[test]
fn each_epoch_counts_once_until_there_are_enough() {
    let mut sharing = Sharing::default();
    for epoch in 0..2 * WATCHED_EPOCHS as u32 {
        assert_eq!(sharing.is_known(7), epoch > WATCHED_EPOCHS as u32, "not before the next epoch begins");
        (0..3).for_each(|_| share(&mut sharing, epoch, 7));
        sharing.note(epoch, NodeId(1), 8, Touched::of(&marks([0])));
    }
    share(&mut sharing, 0, 8);
    sharing.settle();
    assert_eq!(times(&sharing), [WATCHED_EPOCHS], "what comes long after its epoch is not noted");
    sharing.forget(&(7..8));
    assert_eq!(times(&sharing), []);
}

#[test]
fn pages_beyond_the_bound_are_passed_over_for_the_epoch_and_counted() {
    let (mut sharing, fit) = (Sharing::default(), MASKS_MAX as u32 / 2);
    (0..fit + 3).for_each(|page| share(&mut sharing, 1, page));
    assert_eq!(sharing.passed_over(), 3);
    for node in [1, 2] {
        sharing.note(1, NodeId(node), fit + 9, Touched::of(&marks([node as usize])));
    }
    sharing.settle();
    assert_eq!(times(&sharing).len() as u32, fit + 1, "two words have always room");
    (fit..fit + 3).for_each(|page| share(&mut sharing, 2, page));
    sharing.forget(&(fit..fit + 1));
    sharing.settle();
    assert_eq!((times(&sharing).len() as u32, sharing.passed_over()), (fit + 3, 3));
}
