//! The wrapper library, which lets system calls use shared memory: each host that starts nodes looks for its own copy,
//! from this command's place ([`crate::installation`]), and preloads it into the nodes.
//!
//! The dynamic linker takes blanks and colons for the ends of names. A library whose path has one is preloaded
//! through a link in the
//! user's runtime directory.

use crate::installation::{Installation, listed};
use crate::rundir;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

/// Whether the library is preloaded: `on` or `off`.
pub const WRAP: &str = "COMEM_WRAP";
/// What the dynamic linker loads before a program's own libraries.
pub const LD_PRELOAD: &str = "LD_PRELOAD";
const LIBRARY: &str = "libcomem_wrap.so";
/// How the directories of links are called.
const LINKS: &str = "wrap-";

/// The library that gcc's address sanitizer links programs with: it ends programs in which another comes before it.
const FIRST_OR_NEVER: &[u8] = b"libasan.so";

/// The value of `LD_PRELOAD` for nodes that run this program and get these variables; `None` leaves it as it is.
/// Nodes say
/// themselves that the library is not there.
pub fn preload(program: &OsStr, variables: &[(OsString, OsString)]) -> Option<OsString> {
    let given = |name: &str| variables.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.clone());
    if given(WRAP).is_some_and(|value| value == "off") {
        return None;
    }
    let library = library().ok()?;
    if names_another_first(Path::new(program)) {
        return None;
    }
    joined(given(LD_PRELOAD).or_else(|| std::env::var_os(LD_PRELOAD)), &library)
}

/// Why the library will not be in nodes that run this program, as far as that can be seen from here.
pub fn why_not(program: &OsStr) -> Option<String> {
    match library() {
        Err(why) => Some(why),
        Ok(_) if names_another_first(Path::new(program)) => {
            Some("the program is linked with the address sanitizer's library, which suffers none before it".to_string())
        }
        Ok(_) if is_static(Path::new(program)) => Some("the program is linked statically".to_string()),
        Ok(_) => None,
    }
}

/// Whether a program is an ELF file that names no dynamic linker, which would load the library.
fn is_static(program: &Path) -> bool {
    const PT_INTERP: u64 = 3;
    let file = std::fs::read(program).unwrap_or_default();
    let number = |at: usize, bytes: usize| {
        let field = file.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte)))
    };
    let kinds = || {
        let (headers, size, count) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
        Some((0..count).map(|index| number(headers.saturating_add(index * size) as usize, 4)).collect::<Vec<_>>())
    };
    file.starts_with(b"\x7fELF\x02") && kinds().is_some_and(|kinds| !kinds.contains(&Some(PT_INTERP)))
}

/// How often the link's folder is made anew.
const LINK_TRIES_MAX: usize = 64;

/// The library that belongs to this command, by a path that the dynamic linker takes.
///
/// # Errors
/// Why there is none, in words.
pub fn library() -> Result<PathBuf, String> {
    let installation = Installation::find().map_err(|failure| failure.what)?;
    let places = installation.private_places();
    let Some(found) = places.iter().map(|place| place.join(LIBRARY)).find(|library| library.is_file()) else {
        return Err(format!(
            "there is no {LIBRARY} in {}; make install in Comem's sources brings it, or build it there with make",
            listed(&places, " nor in ")
        ));
    };
    if !is_cut(&found) {
        return Ok(found);
    }
    let links = rundir::directory().map_err(|failure| failure.what)?;
    let links = if is_cut(&links) { rundir::usual_directory().map_err(|failure| failure.what)? } else { links };
    link(&links, &found).map_err(|why| {
        let (found, links) = (found.display(), links.display());
        format!("{found} has a blank or a colon in its path, and cannot be linked to in {links}: {why}")
    })
}

/// Whether the dynamic linker would take this path for several names.
fn is_cut(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte))
}

/// A link to `library` below `directory`: the same each time.
fn link(directory: &Path, library: &Path) -> io::Result<PathBuf> {
    let number = blake3::hash(library.as_os_str().as_encoded_bytes()).to_hex();
    let folder = directory.join(format!("{LINKS}{}", &number[..16]));
    let link = folder.join(LIBRARY);
    if is_cut(&link) {
        return Err(io::Error::other("its path has one too; name another directory in COMEM_RUNTIME_DIR"));
    }
    if std::fs::read_link(&link).is_ok_and(|to| to == library) {
        return Ok(link);
    }
    // A process that sweeps may take the folder away, whose link led nowhere.
    let made = (0..LINK_TRIES_MAX).find_map(|_| match make_link(&folder, &link, library) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => None,
        made => Some(made),
    });
    made.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into())).map(|()| link)
}

fn make_link(folder: &Path, link: &Path, library: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(why),
        _ => {}
    }
    // Others may make it at the same time; each puts a whole one in its place.
    let beside = folder.join(format!("{}.part", std::process::id()));
    let _ = std::fs::remove_file(&beside);
    symlink(library, &beside)?;
    std::fs::rename(&beside, link)
}

/// Removes links to libraries that are not there any more.
pub fn sweep(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let link = entry.path().join(LIBRARY);
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(LINKS.as_bytes());
        if is_ours && link.is_symlink() && !link.exists() {
            let _ = std::fs::remove_file(&link);
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// Whether a program was linked with a library that insists on being the first.
fn names_another_first(program: &Path) -> bool {
    let contents = std::fs::read(program).unwrap_or_default();
    contents.starts_with(b"\x7fELF") && memchr::memmem::find(&contents, FIRST_OR_NEVER).is_some()
}

/// Others' libraries come first: some insist on it.
fn joined(others: Option<OsString>, library: &Path) -> Option<OsString> {
    let mut value = others.unwrap_or_default();
    let names = value.as_encoded_bytes().split(|byte| b" :".contains(byte));
    if names.map(|name| Path::new(OsStr::from_bytes(name))).any(|other| other.file_name() == Some(OsStr::new(LIBRARY)))
    {
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
    fn a_program_that_loads_no_libraries_is_known() {
        assert!(!is_static(&std::env::current_exe().unwrap()));
        assert!(!is_static(Path::new("/etc/passwd")));
        let path = std::env::temp_dir().join(format!("comem-static-{}", std::process::id()));
        // An ELF file with one program header, of a segment to load.
        let mut file = vec![0; 64 + 56];
        file[..5].copy_from_slice(b"\x7fELF\x02");
        (file[0x20], file[0x36], file[0x38], file[64]) = (64, 56, 1, 1);
        std::fs::write(&path, &file).unwrap();
        assert!(is_static(&path));
        file[64] = 3;
        std::fs::write(&path, &file).unwrap();
        assert!(!is_static(&path));
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
    fn a_path_that_the_linker_would_cut_is_linked_to() {
        let directory = std::env::temp_dir().join(format!("comem-links-{}", std::process::id()));
        let library = directory.join("my programs:all").join(LIBRARY);
        std::fs::create_dir_all(library.parent().unwrap()).unwrap();
        std::fs::write(&library, "").unwrap();
        let made = link(&directory, &library).unwrap();
        assert!(!is_cut(&made) && made.is_file() && made.file_name() == Some(OsStr::new(LIBRARY)), "{made:?}");
        assert_eq!(link(&directory, &library).unwrap(), made, "the same again");
        sweep(&directory);
        assert!(made.exists());
        std::fs::remove_file(&library).unwrap();
        sweep(&directory);
        assert!(!made.parent().unwrap().exists());
        assert!(link(&directory.join("my programs:all"), &library).is_err(), "a directory that would be cut, too");
        std::fs::remove_dir_all(directory).unwrap();
    }
}
