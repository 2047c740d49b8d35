//! A second name for a command of `comem`, which stands beside it.

use std::os::unix::process::CommandExt;

/// Becomes `comem COMMAND` with this process's arguments.
pub fn become_comem(command: &str) -> ! {
    let comem = std::env::current_exe().map(|me| me.with_file_name("comem"));
    let error = match comem {
        Ok(comem) => std::process::Command::new(comem).arg(command).args(std::env::args_os().skip(1)).exec(),
        Err(error) => error,
    };
    eprintln!("comem: cannot run the command comem beside this one: {error}; install both in one directory");
    std::process::exit(2)
}
