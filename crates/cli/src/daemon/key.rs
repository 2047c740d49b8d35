//! The key that callers and daemons share: a file that its owner alone can read.

use crate::control::{key_from_hex, key_to_hex};
use crate::failure::{Failure, Outcome};
use crate::sys;
use comem::keys;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A shared key. It never serves directly: each purpose has a key derived from it.
#[derive(Clone)]
pub struct SharedKey([u8; 32]);

impl SharedKey {
    /// Reads a key file.
    ///
    /// # Errors
    /// It is missing, no ordinary file, too short, or others can read it.
    pub fn read(path: &Path) -> Outcome<SharedKey> {
        match keys::read_key_file(path) {
            Ok(text) => Ok(SharedKey::from_text(&text)),
            Err(unfit) => Err(Failure::start(format!("the key file {} {}", path.display(), unfit.what), unfit.advice)),
        }
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

/// Reads the key file that was named, or the one that is meant when none is.
pub fn named_or_default(path: Option<&Path>) -> Outcome<SharedKey> {
    match path.map(Path::to_path_buf).or_else(keys::default_key_file) {
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
