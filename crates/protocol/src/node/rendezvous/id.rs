//! What an id holds: a secret, and where the process that made it listens. Its text is the id: it goes through files,
//! environments and C strings as it is.
//!
//! ```text
//! comem1:00112233445566778899aabbccddeeff:5f0c2b@192.0.2.7:40123
//!      |                |                  |            |
//!    form            secret           check sum      address
//! ```

use crate::auth::JobKey;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Most bytes of an id's text, a closing zero byte included.
pub const ID_BYTES: usize = 128;
/// Bytes of its secret.
pub const SECRET_BYTES: usize = 16;
/// What begins the text of an id of any form.
const NAME: &str = "comem";
/// The form that is written and read.
const FORM: u32 = 1;
/// Digits of the check sum, which finds texts that were cut or mistyped.
const CHECK_DIGITS: usize = 6;

/// What the processes of one job have in common before they know each other.
///
/// Whoever has it can join the job and change its memory: it is a secret. `Display` gives the text, `Debug` the address
/// alone.
#[derive(Clone, PartialEq, Eq)]
pub struct UniqueId {
    secret: [u8; SECRET_BYTES],
    address: SocketAddr,
}

/// A text is no id that this version knows.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdError {
    /// It is no id at all.
    #[error("this is no id of a job (comem1:...); hand the text that was made through as it is")]
    NoId,
    /// It is an id of another form.
    #[error(
        "this id has the form comem{0}, and this version of Comem reads comem{FORM}; install the same version \
         everywhere"
    )]
    Form(u32),
    /// It was cut or changed on its way.
    #[error("this id was cut or changed on its way; hand the text that was made through as it is")]
    Damaged,
}

impl UniqueId {
    /// The id of a rendezvous at an address. The secret must come from a source of true randomness, or from one that
    /// only the job's processes know.
    pub fn new(secret: [u8; SECRET_BYTES], address: SocketAddr) -> UniqueId {
        UniqueId { secret, address: SocketAddr::new(address.ip().to_canonical(), address.port()) }
    }

    /// Where the process that made the id listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The key of the job's datagrams.
    pub fn job_key(&self) -> JobKey {
        JobKey::new(blake3::derive_key("comem 2026 unique id: key of the job", &self.secret))
    }

    /// The job's number, never 0.
    pub fn job_number(&self) -> u64 {
        self.number("comem 2026 unique id: number of the job").max(1)
    }

    /// The program number of the job's headers, never 0.
    pub fn program_number(&self) -> u16 {
        (self.number("comem 2026 unique id: number of the program") as u16).max(1)
    }

    fn number(&self, purpose: &str) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&blake3::derive_key(purpose, &self.secret)[..8]);
        u64::from_be_bytes(bytes)
    }

    /// The key of the tags at the rendezvous.
    pub(super) fn rendezvous_key(&self) -> [u8; 32] {
        blake3::derive_key("comem 2026 unique id: rendezvous", &self.secret)
    }

    fn secret_text(&self) -> String {
        self.secret.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The check sum of the rest of the text.
fn check(secret: &str, address: &str) -> String {
    let hash = blake3::hash(format!("{secret}@{address}").as_bytes()).to_hex();
    hash[..CHECK_DIGITS].to_string()
}

impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secret, address) = (self.secret_text(), self.address.to_string());
        write!(f, "{NAME}{FORM}:{secret}:{}@{address}", check(&secret, &address))
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UniqueId({})", self.address)
    }
}

impl FromStr for UniqueId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<UniqueId, IdError> {
        let text = text.trim();
        let (form, rest) = text.strip_prefix(NAME).and_then(|rest| rest.split_once(':')).ok_or(IdError::NoId)?;
        match form.parse::<u32>().map_err(|_| IdError::NoId)? {
            FORM => {}
            other => return Err(IdError::Form(other)),
        }
        let (secret, rest) = rest.split_once(':').ok_or(IdError::Damaged)?;
        let (sum, address) = rest.split_once('@').ok_or(IdError::Damaged)?;
        if check(secret, address) != sum {
            return Err(IdError::Damaged);
        }
        let address = address.parse().map_err(|_| IdError::Damaged)?;
        Ok(UniqueId { secret: secret_of(secret).ok_or(IdError::Damaged)?, address })
    }
}

fn secret_of(text: &str) -> Option<[u8; SECRET_BYTES]> {
    if text.len() != 2 * SECRET_BYTES || !text.is_ascii() {
        return None;
    }
    let mut secret = [0; SECRET_BYTES];
    for (byte, digits) in secret.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = (digit(digits[0])? * 16 + digit(digits[1])?) as u8;
    }
    Some(secret)
}
