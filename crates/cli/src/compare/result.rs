//! Whether two runs printed the same. The rule stands in the help of `comem compare`.

/// Words whose values may differ between runs with the same result.
fn is_of_this_run(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    const NAMES: [&str; 2] = ["threads", "nodes"];
    const ENDS: [&str; 6] = ["time", "seconds", "_s", "_ms", "_us", "_ns"];
    NAMES.contains(&name) || ENDS.iter().any(|end| name.ends_with(end))
}

/// The checksums in what a program printed, in order. Blanks may follow the `=`; what has no value on its line is none.
fn checksums(output: &str) -> Vec<&str> {
    let of_line = |line| {
        let words: Vec<&str> = str::split_whitespace(line).collect();
        (0..words.len()).filter_map(|index| checksum(words[index], words.get(index + 1))).collect::<Vec<_>>()
    };
    output.lines().flat_map(of_line).collect()
}

fn checksum<'a>(word: &'a str, next: Option<&&'a str>) -> Option<&'a str> {
    match word.split_once('=').filter(|(name, _)| name.ends_with("checksum"))? {
        (_, "") => next.copied().filter(|word| !word.contains('=')),
        (_, value) => Some(value),
    }
}

fn lines(output: &str) -> Vec<Vec<&str>> {
    let words = |line| str::split_whitespace(line).filter(|word| !is_of_this_run(word)).collect();
    output.lines().filter(|line| !line.trim().is_empty()).map(words).collect()
}

/// What is wrong with a reference that says nothing.
pub const NOTHING: &str = "there is nothing to compare: node 0 printed no result on its standard output";
/// What to do about it.
pub const NOTHING_ADVICE: &str = "let node 0 print a result or checksum=VALUE: its standard output is what is compared";

/// Whether nothing in the output of a run would be compared: any other that says nothing would be as good.
pub fn says_nothing(output: &str) -> bool {
    lines(output).iter().all(Vec::is_empty)
}

/// Where the output of a run differs from the reference: the first pair of texts that are not the same.
pub fn difference(reference: &str, output: &str) -> Option<(String, String)> {
    let (wanted, got) = match checksums(reference) {
        sums if sums.is_empty() => {
            let texts = |output| lines(output).iter().map(|words| words.join(" ")).collect::<Vec<String>>();
            (texts(reference), texts(output))
        }
        sums => {
            let texts = |sums: Vec<&str>| sums.into_iter().map(|sum| format!("checksum={sum}")).collect();
            (texts(sums), texts(checksums(output)))
        }
    };
    let text = |list: &[String], index| list.get(index).cloned().unwrap_or_else(|| "(nothing)".to_string());
    let index = (0..wanted.len().max(got.len())).find(|index| wanted.get(*index) != got.get(*index))?;
    Some((text(&wanted, index), text(&got, index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_threads_and_empty_lines_do_not_count() {
        assert_eq!(difference("sum 7 time_s=1.5 threads=1\n\n", "  sum 7  time_s=0.2 threads=8\n"), None);
        assert_eq!(difference("x elapsed_us=4 walltime=3 seconds=1", "x elapsed_us=5 walltime=9 seconds=2"), None);
    }

    #[test]
    fn another_word_or_line_counts() {
        let found = difference("a\nsum 7 ok", "a\nsum 8 ok").unwrap();
        assert_eq!(found, ("sum 7 ok".to_string(), "sum 8 ok".to_string()));
        assert_eq!(difference("a", "a\nb").unwrap().0, "(nothing)");
        assert_eq!(difference("a\nb", "a").unwrap().1, "(nothing)");
        assert!(difference("steps=4", "steps=5").is_some(), "a count is no time");
    }

    #[test]
    fn a_checksum_decides_alone() {
        assert_eq!(difference("used 3 MiB checksum=ab", "used 9 MiB checksum=ab ok"), None);
        assert!(difference("same checksum=ab", "same checksum=ac").is_some());
        assert!(difference("same checksum=ab", "same").is_some());
        assert!(difference("expected_checksum=1 checksum=2", "expected_checksum=1 checksum=3").is_some());
    }

    #[test]
    fn a_checksum_behind_a_blank_counts_too() {
        assert!(difference("checksum= 1", "checksum= 2").is_some());
        assert!(difference("checksum=     1.5 s=2", "checksum=    2.5 s=2").is_some(), "checksum=%8g");
        assert_eq!(difference("used 3 MiB checksum= 7", "used 9 MiB checksum=7"), None);
        assert!(
            difference("sum 1 checksum=", "sum 2 checksum=").is_some(),
            "a checksum without a value decides nothing"
        );
    }
}
