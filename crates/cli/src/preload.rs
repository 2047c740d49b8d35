//! The wrapper library, which lets system calls use shared memory: each host that starts nodes looks for its own copy, beside this
//! command or in the `lib` directory next to that, and preloads it into the nodes.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Whether the library is preloaded: `on` or `off`.
pub const WRAP: &str = "COMEM_WRAP";
/// What the dynamic linker loads before a program's own libraries.
pub const LD_PRELOAD: &str = "LD_PRELOAD";
const LIBRARY: &str = "libcomem_wrap.so";

/// The library that gcc's address sanitizer links programs with: it ends programs in which another comes before it.
const FIRST_OR_NEVER: &[u8] = b"libasan.so";

/// The value of `LD_PRELOAD` for nodes that run this program and get these variables; `None` leaves it as it is.
pub fn preload(program: &OsStr, variables: &[(OsString, OsString)]) -> Option<OsString> {
    let given = |name: &str| variables.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.clone());
    if given(WRAP).is_some_and(|value| value == "off") {
        return None;
    }
    let library = beside(&std::env::current_exe().ok()?)?;
    if names_another_first(Path::new(program)) {
        return None;
    }
    joined(given(LD_PRELOAD).or_else(|| std::env::var_os(LD_PRELOAD)), &library)
}

/// The library that belongs to a command.
fn beside(command: &Path) -> Option<PathBuf> {
    let directory = command.parent()?;
    let places = [directory.to_path_buf(), directory.parent().map(|up| up.join("lib")).unwrap_or_default()];
    places.into_iter().map(|place| place.join(LIBRARY)).find(|library| library.is_file())
}

/// Whether a program was linked with a library that insists on being the first.
fn names_another_first(program: &Path) -> bool {
    let contents = std::fs::read(program).unwrap_or_default();
    contents.starts_with(b"\x7fELF") && contents.windows(FIRST_OR_NEVER.len()).any(|part| part == FIRST_OR_NEVER)
}

/// Others' libraries come first: some insist on it. The linker takes spaces and colons for ends of names.
fn joined(others: Option<OsString>, library: &Path) -> Option<OsString> {
    if library.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
        return None;
    }
    let mut value = others.unwrap_or_default();
    if std::env::split_paths(&value).any(|other| other.file_name() == Some(OsStr::new(LIBRARY))) {
        return None;
    }
    if !value.is_empty() {
        value.push(":");
    }
    value.push(library);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_turns_it_off() {
        assert_eq!(preload(OsStr::new("/bin/true"), &[(WRAP.into(), "off".into())]), None);
    }

    #[test]
    fn a_program_under_the_address_sanitizer_is_left_alone() {
        let path = std::env::temp_dir().join(format!("comem-preload-{}", std::process::id()));
        for (contents, alone) in [("\x7fELF libasan.so.8", true), ("\x7fELF libc.so.6", false), ("# libasan.so", false)]
        {
            std::fs::write(&path, contents).unwrap();
            assert_eq!(names_another_first(&path), alone, "{contents}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn other_preloaded_libraries_stay_first() {
        let library = Path::new("/opt/comem/lib/libcomem_wrap.so");
        assert_eq!(joined(None, library), Some(library.into()));
        assert_eq!(joined(Some("".into()), library), Some(library.into()));
        assert_eq!(
            joined(Some("libasan.so".into()), library),
            Some("libasan.so:/opt/comem/lib/libcomem_wrap.so".into())
        );
    }

    #[test]
    fn a_wrapper_that_the_user_names_is_the_one() {
        assert_eq!(joined(Some("/mine/libcomem_wrap.so".into()), Path::new("/x/libcomem_wrap.so")), None);
    }

    #[test]
    fn a_path_that_the_linker_would_cut_is_left_out() {
        assert_eq!(joined(None, Path::new("/my programs/libcomem_wrap.so")), None);
    }
}
