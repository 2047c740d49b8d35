//! The key that callers and daemons share: a file that its owner alone can read.

use crate::control::{key_from_hex, key_to_hex};
use crate::failure::{Failure, Outcome};
use crate::sys;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Least number of characters that count as a key.
const TEXT_MIN: usize = 32;
const FILE_MAX: u64 = 64 << 10;

/// A shared key. It never serves directly: each purpose has a key derived from it.
#[derive(Clone)]
pub struct SharedKey([u8; 32]);

impl SharedKey {
    /// Reads a key file.
    ///
    /// # Errors
    /// It is missing, too short, or others can read it.
    pub fn read(path: &Path) -> Outcome<SharedKey> {
        let trouble =
            |why: String, advice: String| Failure::start(format!("the key file {} {why}", path.display()), advice);
        let make = || format!("make one: comem daemon make-key {}", path.display());
        let file = std::fs::File::open(path).map_err(|e| trouble(format!("cannot be read: {e}"), make()))?;
        let meta = file.metadata().map_err(|e| trouble(format!("cannot be examined: {e}"), String::new()))?;
        let chmod = format!("chmod 600 {}", path.display());
        if !meta.is_file() {
            return Err(trouble("is no file".to_string(), make()));
        }
        if meta.uid() != sys::user_id() {
            return Err(trouble(format!("belongs to another user ({})", meta.uid()), make()));
        }
        if meta.mode() & 0o077 != 0 {
            let why = format!("can be read by others than its owner (mode {:o})", meta.mode() & 0o7777);
            return Err(trouble(why, chmod));
        }
        let mut text = Vec::new();
        file.take(FILE_MAX).read_to_end(&mut text).map_err(|e| trouble(e.to_string(), String::new()))?;
        let text = text.trim_ascii();
        if text.len() < TEXT_MIN {
            return Err(trouble(format!("holds only {} characters", text.len()), make()));
        }
        Ok(SharedKey::from_text(text))
    }

    fn from_text(text: &[u8]) -> SharedKey {
        let hex = std::str::from_utf8(text).ok().and_then(key_from_hex);
        SharedKey(hex.unwrap_or_else(|| blake3::derive_key("comem 2026 shared key text", text)))
    }

    /// The key for one purpose, bound to `context`.
    pub fn derive(&self, purpose: &str, context: &[u8]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key(purpose);
        hasher.update(&self.0);
        hasher.update(context);
        *hasher.finalize().as_bytes()
    }
}

/// The key file that is meant when none is named: `~/.config/comem/key`.
pub fn default_path() -> Option<PathBuf> {
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let config = config.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")))?;
    Some(config.join("comem/key"))
}

/// Reads the key file that was named, or the one that is meant when none is.
pub fn named_or_default(path: Option<&Path>) -> Outcome<SharedKey> {
    match path.map(Path::to_path_buf).or_else(default_path) {
        Some(path) => SharedKey::read(&path),
        None => Err(Failure::usage("no key file is named", "give --key-file FILE")),
    }
}

/// Makes a new key file.
pub fn make(path: &Path) -> Outcome<()> {
    let trouble = |e: std::io::Error| Failure::start(format!("cannot make the key file {}: {e}", path.display()), "");
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(trouble)?;
    }
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = opened.map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            let advice = "use the key in it, or name another file; a new key would lock out whoever has the old one";
            Failure { advice: advice.to_string(), ..trouble(e) }
        }
        _ => trouble(e),
    })?;
    writeln!(file, "{}", key_to_hex(&sys::random())).map_err(|error| {
        let _ = std::fs::remove_file(path);
        trouble(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_file_serves_only_while_its_owner_alone_can_read_it() {
        let path = std::env::temp_dir().join(format!("comem-key-{:016x}", u64::from_ne_bytes(sys::random())));
        assert!(SharedKey::read(&path).is_err());
        make(&path).unwrap();
        let first = SharedKey::read(&path).unwrap();
        assert!(make(&path).unwrap_err().advice.contains("name another file"), "an existing key is never overwritten");
        for mode in [0o640, 0o604, 0o660] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(SharedKey::read(&path).err().unwrap().what.contains("read by others"), "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(SharedKey::read(&path).unwrap().derive("p", b"c"), first.derive("p", b"c"));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn each_purpose_and_context_has_a_key_of_its_own() {
        let key = SharedKey::from_text(b"correct horse battery staple, twice");
        let keys = [key.derive("a", b"x"), key.derive("b", b"x"), key.derive("a", b"y")];
        assert!(keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2]);
    }
}
