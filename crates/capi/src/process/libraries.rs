//! Whether every node has the same libraries at the same addresses: then pointers to the C library's things (`stdout`,
//! functions), and to the program's, mean the same everywhere.
//!
//! Address randomisation would put libraries elsewhere in each process, so a process that is one of several switches it
//! off and executes itself once more, before `main`. The limit of the stack's size moves libraries too; a difference
//! there is reported.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

/// Set for the second execution, so that there is no third.
const AGAIN: &str = "COMEM_EXECUTED_AGAIN";

/// Switches address randomisation off and executes this program once more, if it is one of several nodes; returns if
/// there is nothing to do, or it cannot be done: then the comparison at CREATE finds out.
///
/// # Safety
/// `argv` is what `main` will get, or null; no other thread runs.
pub unsafe fn fix_addresses(argv: *mut *mut c_char) {
    const ASK: libc::c_ulong = 0xffff_ffff;
    let alone = std::env::var("COMEM_NODES").map_or(true, |nodes| nodes == "1");
    if std::env::var_os(AGAIN).is_some() {
        // SAFETY: by this function's contract nobody else reads the environment.
        unsafe { std::env::remove_var(AGAIN) };
        return;
    }
    // SAFETY: asks for a number.
    let now = unsafe { libc::personality(ASK) };
    if alone || argv.is_null() || now < 0 || now & libc::ADDR_NO_RANDOMIZE != 0 {
        return;
    }
    let Ok(path) = std::fs::read_link("/proc/self/exe") else { return };
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return };
    // SAFETY: sets a number of this process.
    if unsafe { libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) } < 0 {
        return;
    }
    // SAFETY: by this function's contract nobody else reads the environment.
    unsafe { std::env::set_var(AGAIN, "1") };
    // SAFETY: a path, and the arguments of this very process; comes back only if it fails.
    unsafe { libc::execv(path.as_ptr(), argv.cast_const().cast()) };
    // SAFETY: as above.
    unsafe { std::env::remove_var(AGAIN) };
}

/// A line for the program and one for each library: address, build id, name.
pub fn description() -> String {
    let mut text = String::new();
    // SAFETY: the callback gets back the string, which lives during the call.
    unsafe { libc::dl_iterate_phdr(Some(describe), (&raw mut text).cast()) };
    text
}

unsafe extern "C" fn describe(info: *mut libc::dl_phdr_info, _size: usize, text: *mut c_void) -> c_int {
    // SAFETY: the linker gives a description of a loaded object.
    let info = unsafe { &*info };
    // SAFETY: [`description`] gives a string.
    let text = unsafe { &mut *text.cast::<String>() };
    // SAFETY: a name is a string.
    let name = if info.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(info.dlpi_name) } };
    let name = name.to_string_lossy();
    let name = name.rsplit('/').next().unwrap_or_default();
    if name.starts_with("linux-vdso") {
        return 0;
    }
    let name = if name.is_empty() { "the program" } else { name };
    // SAFETY: the linker's table of this many headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let notes = headers.iter().filter(|h| h.p_type == libc::PT_NOTE);
    let id = notes.map(|h| {
        // SAFETY: a loaded segment of notes, of this size.
        let bytes = unsafe {
            std::slice::from_raw_parts((info.dlpi_addr + h.p_vaddr) as usize as *const u8, h.p_memsz as usize)
        };
        build_id(bytes)
    });
    let id = id.flatten().next().unwrap_or_else(|| "unknown".to_string());
    text.push_str(&format!("{:x} {id} {name}\n", info.dlpi_addr));
    0
}

/// The build id among notes, in hexadecimal digits.
fn build_id(mut notes: &[u8]) -> Option<String> {
    const BUILD_ID: u32 = 3;
    loop {
        let (head, rest) = notes.split_at_checked(12)?;
        let word = |at: usize| head[at..at + 4].try_into().map(u32::from_ne_bytes);
        let (name_len, len, kind) = (word(0).ok()? as usize, word(4).ok()? as usize, word(8).ok()?);
        let (name, rest) = rest.split_at_checked(name_len.next_multiple_of(4))?;
        let contents = rest.get(..len)?;
        if kind == BUILD_ID && name.starts_with(b"GNU\0") {
            return Some(contents.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = rest.get(len.next_multiple_of(4)..)?;
    }
}

/// What is different at another node, in words, if anything is.
pub fn difference(mine: &str, theirs: &str) -> Option<String> {
    let parse = |text: &str| -> Vec<(String, String, String)> {
        let fields = |line: &str| {
            let mut parts = line.splitn(3, ' ').map(str::to_string);
            Some((parts.next()?, parts.next()?, parts.next()?))
        };
        text.lines().filter_map(fields).collect()
    };
    let (mine, theirs) = (parse(mine), parse(theirs));
    for (address, id, name) in &mine {
        let Some((their_address, their_id, _)) = theirs.iter().find(|(_, _, n)| n == name) else {
            return Some(format!(
                "does not have {name} loaded, as node 0 has; start all nodes with the same libraries (LD_PRELOAD, \
                 LD_LIBRARY_PATH)"
            ));
        };
        if id != their_id {
            return Some(format!(
                "has a different {name} (build {their_id}; node 0: {id}), so pointers to it mean nothing there; \
                 install the same version on all hosts, or link the program statically"
            ));
        }
        if address != their_address {
            return Some(format!(
                "has {name} at {their_address}, node 0 at {address}; give all nodes the same limit of the stack's \
                 size (ulimit -s), and let them switch address randomisation off (setarch -R)"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_describes_its_c_library_and_agrees_with_itself() {
        let text = description();
        assert!(text.lines().any(|line| line.contains("libc.so.6") && !line.contains("unknown")), "{text}");
        assert_eq!(difference(&text, &text), None);
    }

    #[test]
    fn a_difference_names_the_library_and_what_to_do() {
        let here = "400000 aa the program\n7fff0000 bb libc.so.6\n";
        let other_build = difference(here, "400000 aa the program\n7fff0000 cc libc.so.6\n").unwrap();
        assert!(other_build.contains("a different libc.so.6") && other_build.contains("same"), "{other_build}");
        let elsewhere = difference(here, "400000 aa the program\n7fee0000 bb libc.so.6\n").unwrap();
        assert!(elsewhere.contains("7fee0000") && elsewhere.contains("ulimit -s"), "{elsewhere}");
        assert!(difference(here, "400000 aa the program\n").unwrap().contains("does not have libc.so.6"));
    }
}
