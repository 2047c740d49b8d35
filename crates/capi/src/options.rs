//! `--comem-…` on a program's own command line: one option for each environment variable.

use comem_rt::settings::OPTIONS as NAMES;
use std::ffi::{CStr, c_char, c_int};

/// Options that mean `on` when they stand alone.
const SWITCHES: [&str; 4] = ["discover", "force-engine", "rehearse", "verbose"];

/// The environment variable and its value that an argument stands for; `None` when it is none of Comem's.
pub fn variable(argument: &str) -> Option<Result<(String, String), String>> {
    let option = argument.strip_prefix("--comem-")?;
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, SWITCHES.contains(&option).then_some("on")),
    };
    if !NAMES.contains(&name) {
        return Some(Err(format!("unknown option --comem-{name}; the names are {}", NAMES.join(", "))));
    }
    let Some(value) = value else {
        return Some(Err(format!("--comem-{name} needs a value: --comem-{name}=VALUE")));
    };
    Some(Ok((format!("COMEM_{}", name.replace('-', "_").to_uppercase()), value.to_string())))
}

/// Takes Comem's options out of a command line and gives the variables they stand for.
///
/// # Safety
/// `argc` and `argv` are what `main` got: `*argc` strings, and a null pointer behind them.
pub unsafe fn take(argc: *mut c_int, argv: *mut *mut c_char) -> Result<Vec<(String, String)>, String> {
    let mut variables = Vec::new();
    // SAFETY: the caller gives a pointer to the count.
    let count = unsafe { usize::try_from(*argc).unwrap_or(0) };
    let mut kept: Vec<*mut c_char> = Vec::new();
    for index in 0..count {
        // SAFETY: `index` is less than the count, so the place exists and holds a string.
        let argument = unsafe { *argv.add(index) };
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(argument) }.to_string_lossy();
        match variable(&text).filter(|_| index > 0) {
            Some(found) => variables.push(found?),
            None => kept.push(argument),
        }
    }
    if kept.len() < count {
        // SAFETY: within the array; the program finds its arguments ended by a null pointer, as before.
        unsafe {
            std::ptr::copy_nonoverlapping(kept.as_ptr(), argv, kept.len());
            *argv.add(kept.len()) = std::ptr::null_mut();
            *argc = kept.len() as c_int;
        }
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn comem_s_options_leave_the_command_line_and_the_others_close_ranks() {
        let given = ["prog", "--comem-engine=owner", "--size", "5", "--comem-discover", "--comem-node-timeout=3s"];
        let strings: Vec<CString> = given.iter().map(|s| CString::new(*s).unwrap()).collect();
        let mut argv: Vec<*mut c_char> = strings.iter().map(|s| s.as_ptr().cast_mut()).collect();
        argv.push(std::ptr::null_mut());
        let mut argc = given.len() as c_int;
        // SAFETY: a command line as `main` gets it.
        let variables = unsafe { take(&raw mut argc, argv.as_mut_ptr()) }.unwrap();
        let expected = [("COMEM_ENGINE", "owner"), ("COMEM_DISCOVER", "on"), ("COMEM_NODE_TIMEOUT", "3s")];
        assert!(variables.iter().map(|(n, v)| (n.as_str(), v.as_str())).eq(expected));
        // SAFETY: the first three are strings still.
        let left: Vec<&CStr> = argv[..3].iter().map(|a| unsafe { CStr::from_ptr(*a) }).collect();
        assert_eq!(left, [c"prog", c"--size", c"5"]);
        assert!(argc == 3 && argv[3].is_null());
    }

    #[test]
    fn a_command_line_with_an_option_that_is_none_stays_as_it_was() {
        let given = [c"prog", c"--comem-engine=owner", c"--size", c"--comem-engin=msi"];
        let mut argv: Vec<*mut c_char> = given.iter().map(|text| text.as_ptr().cast_mut()).collect();
        let (mut argc, before) = (argv.len() as c_int, argv.clone());
        // SAFETY: a command line as `main` gets it.
        let refused = unsafe { take(&raw mut argc, argv.as_mut_ptr()) }.unwrap_err();
        assert!(refused.contains("unknown option --comem-engin"), "{refused}");
        assert_eq!((argc, argv), (4, before));
    }

    /// What a node reads of its environment.
    fn variables() -> impl Iterator<Item = &'static str> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../runtime/src/config.rs");
        let source: &str = std::fs::read_to_string(path).expect("the runtime is beside this crate").leak();
        let read = source.split_once("fn read(").expect("it is read").1.split_once("#[cfg(test)]").expect("tests").0;
        read.split('"').filter_map(|text| text.strip_prefix("COMEM_"))
    }

    #[test]
    fn whatever_concerns_a_node_may_stand_on_the_command_line() {
        // What only a launcher knows of a node; and what takes effect before `main`.
        const OTHERS: [&str; 7] = ["NODE", "ZERO", "HOST_NODES", "HOST_PLACE", "PROGRAM", "GLOBALS", "USUAL_ENGINE"];
        assert!(variables().count() > NAMES.len());
        for name in variables().filter(|name| !OTHERS.contains(name)) {
            let option = name.replace('_', "-").to_lowercase();
            assert!(NAMES.contains(&option.as_str()), "--comem-{option} is unknown");
        }
        for name in NAMES {
            let variable = name.replace('-', "_").to_uppercase();
            assert!(variables().any(|read| read == variable), "nobody reads COMEM_{variable}");
        }
    }

    #[test]
    fn a_misspelt_option_is_refused_with_the_names() {
        assert!(variable("--comem-engin=owner").unwrap().unwrap_err().contains("engine"));
        assert!(variable("--comem-engine").unwrap().unwrap_err().contains("needs a value"));
        assert!(variable("--engine=owner").is_none(), "the program's own");
    }
}
