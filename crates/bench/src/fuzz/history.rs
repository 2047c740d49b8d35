//! What a job reads of an earlier one.

use comem_protocol::coherence::pages::PageEngine;
use comem_protocol::coherence::pages::multicast::history::{History, Identity, with_head};

/// The job that reads it.
fn job() -> Identity {
    Identity { program: [0xab; 32], nodes: 8, threads: 2, engine: PageEngine::Multicast }
}

/// Reads bytes as a history, as what stands behind the first line of one, and as the lines of one for this job.
///
/// # Panics
/// When something is wrong with Comem: that is what this is for.
pub fn check_history(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let head = History::new(job()).encode();
    let lines = head.split_once('\n').map_or("", |(_, lines)| lines);
    for bytes in [input.to_vec(), with_head(&text).into(), with_head(&format!("{lines}{text}\n")).into()] {
        let Ok(history) = History::decode(&bytes, &job()) else { continue };
        for variable in &history.variables {
            let choice = &variable.choice;
            let strangers = choice.members.iter().chain([choice.placement.manager]).any(|node| node.index() >= 8);
            assert!(!strangers, "{choice:?} names nodes that the job has not");
        }
        assert_eq!(History::decode(history.encode().as_bytes(), &job()), Ok(history), "it is written as it was read");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comem_protocol::faults::Rng;

    #[test]
    fn lines_that_are_nearly_right_are_read_without_harm() {
        let fine = "variable grid 16 0 8 1 manager 2 homed late used 4 members 0,3-5";
        let mut rng = Rng::new(7);
        check_history(fine.as_bytes());
        for _ in 0..5_000 {
            let mut line = fine.as_bytes().to_vec();
            for _ in 0..rng.below(4) {
                let at = rng.below(line.len() as u64) as usize;
                line[at] = b" 0123456789-,%ghlm\n"[rng.below(19) as usize];
            }
            check_history(&line);
        }
    }
}
