//! The command `comem-sim`.

use std::fs::File;
use std::process::{Command, Stdio};

#[test]
fn help_that_cannot_be_written_is_an_error_and_who_reads_no_more_is_none() {
    let help = |out: Stdio| Command::new(env!("CARGO_BIN_EXE_comem-sim")).arg("--help").stdout(out).output().unwrap();
    let full = help(File::options().write(true).open("/dev/full").unwrap().into());
    let said = String::from_utf8_lossy(&full.stderr).into_owned();
    assert_eq!(full.status.code(), Some(6), "{said}");
    assert_eq!(said, "comem-sim: cannot write standard output: No space left on device (os error 28)\n");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(help(writer.into()).status.code(), Some(0));
}
