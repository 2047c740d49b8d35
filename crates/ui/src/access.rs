//! Who may ask the server for something.
//!
//! The token that stands behind `#` in the page's address never travels with a request: browsers keep that part to
//! themselves. The page exchanges it for a *session* of two secrets. The cookie cannot be read by any script. The key
//! cannot be read by any other page: cookies do not tell ports apart, so another user's server on this host could be
//! sent the cookie by the browser, but never the key. A request needs both.
//!
//! `Host` has to name this server, so that a foreign name that leads to this address (DNS rebinding) is of no use.
//! `Origin` has to be the page's own where it is said, and has to be said where something changes.

use hyper::header::{COOKIE, HOST, HeaderMap, ORIGIN};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

/// The header in which the page sends its key.
pub const KEY_HEADER: &str = "x-comem-key";
/// Most sessions at a time; the oldest goes.
const SESSIONS_MAX: usize = 64;

/// A secret of 128 bits.
pub type Secret = [u8; 16];

/// Where the server is, as requests name it.
#[derive(Clone, Debug)]
pub struct Place {
    /// Where it listens.
    pub address: SocketAddr,
    /// Names of this host besides that, in lower case.
    pub names: Vec<String>,
    /// Whether connections are encrypted.
    pub encrypted: bool,
}

impl Place {
    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.encrypted { "https" } else { "http" }
    }

    /// Whether a request's `Host` means this server.
    fn is_named_by(&self, host: &str) -> bool {
        let usual_port = if self.encrypted { 443 } else { 80 };
        let (name, port) = split_port(host);
        let port = match port {
            None => Some(usual_port),
            Some(digits) => digits.parse().ok(),
        };
        port == Some(self.address.port()) && self.has_name(&name.to_ascii_lowercase())
    }

    fn has_name(&self, name: &str) -> bool {
        if self.names.iter().any(|known| known == name) {
            return true;
        }
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let of_this_host = self.address.ip().is_loopback() && bare == "localhost";
        // A name that leads astray is no address: where the server listens at all of them, each will do.
        let is_address = bare.parse::<IpAddr>().is_ok_and(|address| {
            !address.is_unspecified() && (address == self.address.ip() || self.address.ip().is_unspecified())
        });
        of_this_host || is_address
    }
}

/// `[::1]:80` and `a:80`, at their ports.
fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    }
}

/// A session of a page, by the hashes of its two secrets.
struct Session {
    cookie: blake3::Hash,
    key: blake3::Hash,
}

/// What a new session is told.
pub struct Opened {
    /// The value of `Set-Cookie`.
    pub cookie: String,
    /// The key that the page keeps.
    pub key: String,
}

/// The doors of one server.
pub struct Access {
    place: Place,
    /// Hashes are compared in constant time.
    token: blake3::Hash,
    random: fn() -> Secret,
    sessions: Mutex<VecDeque<Session>>,
}

impl Access {
    /// Doors that open to this token. `random` gives secrets of the system's best randomness.
    pub fn new(place: Place, token: &Secret, random: fn() -> Secret) -> Access {
        let token = blake3::hash(hex(token).as_bytes());
        Access { place, token, random, sessions: Mutex::new(VecDeque::new()) }
    }

    /// Whether a request was meant for this server.
    pub fn is_for_us(&self, headers: &HeaderMap) -> bool {
        the_one(headers, HOST.as_str()).is_some_and(|host| self.place.is_named_by(host))
    }

    /// Whether a request comes from this server's own page, as far as browsers say. What changes something has to say
    /// so itself.
    pub fn is_from_our_page(&self, headers: &HeaderMap, changes: bool) -> bool {
        let site = the_one(headers, "sec-fetch-site");
        if headers.contains_key("sec-fetch-site") && !matches!(site, Some("same-origin" | "none")) {
            return false;
        }
        if !headers.contains_key(ORIGIN) {
            return !changes;
        }
        let ours = the_one(headers, HOST.as_str()).map(|host| format!("{}://{host}", self.place.scheme()));
        the_one(headers, ORIGIN.as_str()).is_some_and(|origin| Some(origin) == ours.as_deref())
    }

    /// Begins a session for who has the token.
    pub fn open(&self, token: &str) -> Option<Opened> {
        if blake3::hash(token.as_bytes()) != self.token {
            return None;
        }
        let (cookie, key) = (hex(&(self.random)()), hex(&(self.random)()));
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() == SESSIONS_MAX {
            sessions.pop_front();
        }
        sessions.push_back(Session { cookie: blake3::hash(cookie.as_bytes()), key: blake3::hash(key.as_bytes()) });
        let secure = if self.place.encrypted { "; Secure" } else { "" };
        let cookie = format!("{}={cookie}; HttpOnly; SameSite=Strict; Path=/{secure}", self.cookie_name());
        Some(Opened { cookie, key })
    }

    /// Whether a request belongs to a session: it has both secrets of one.
    pub fn is_in_session(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie_name();
        let pairs = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let mut pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let cookie = pairs.find(|(found, _)| *found == name).map(|(_, value)| blake3::hash(value.as_bytes()));
        let key = the_one(headers, KEY_HEADER).map(|key| blake3::hash(key.as_bytes()));
        let (Some(cookie), Some(key)) = (cookie, key) else { return false };
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.iter().any(|session| session.cookie == cookie && session.key == key)
    }

    /// Servers at several ports of a host have one jar of cookies.
    fn cookie_name(&self) -> String {
        format!("comem-ui-{}", self.place.address.port())
    }
}

/// The value of a header that stands there exactly once.
fn the_one<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).into_iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU8, Ordering};

    fn counted() -> Secret {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        [NEXT.fetch_add(1, Ordering::Relaxed); 16]
    }

    fn access(address: &str, names: &[&str], encrypted: bool) -> Access {
        let names = names.iter().map(ToString::to_string).collect();
        Access::new(Place { address: address.parse().unwrap(), names, encrypted }, &[7; 16], counted)
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_names_of_this_server_are_for_it() {
        let here = access("127.0.0.1:4000", &[], false);
        for good in ["127.0.0.1:4000", "localhost:4000", "LocalHost:4000"] {
            assert!(here.is_for_us(&headers(&[("host", good)])), "{good}");
        }
        for foreign in ["evil.example:4000", "127.0.0.1", "127.0.0.1:4001", "localhost.evil.example:4000", "", ":4000"]
        {
            assert!(!here.is_for_us(&headers(&[("host", foreign)])), "{foreign}");
        }
        assert!(!here.is_for_us(&headers(&[])), "it has to be said");
        assert!(!here.is_for_us(&headers(&[("host", "127.0.0.1:4000"), ("host", "127.0.0.1:4000")])), "once");
        let all = access("0.0.0.0:443", &["node1.example"], true);
        for good in ["10.0.0.7", "10.0.0.7:443", "Node1.example"] {
            assert!(all.is_for_us(&headers(&[("host", good)])), "{good}");
        }
        for foreign in ["evil.example", "localhost", "0.0.0.0", "10.0.0.7:80"] {
            assert!(!all.is_for_us(&headers(&[("host", foreign)])), "{foreign}");
        }
        assert!(access("[::1]:80", &[], false).is_for_us(&headers(&[("host", "[::1]")])));
    }

    #[test]
    fn other_pages_change_nothing_and_read_nothing() {
        let here = access("127.0.0.1:4000", &[], false);
        let host = ("host", "127.0.0.1:4000");
        assert!(here.is_from_our_page(&headers(&[host, ("origin", "http://127.0.0.1:4000")]), true));
        assert!(here.is_from_our_page(&headers(&[host]), false));
        assert!(!here.is_from_our_page(&headers(&[host]), true), "a change says where it comes from");
        for foreign in ["http://evil.example", "null", "https://127.0.0.1:4000", "http://127.0.0.1:9999"] {
            for changes in [false, true] {
                assert!(!here.is_from_our_page(&headers(&[host, ("origin", foreign)]), changes), "{foreign}");
            }
        }
        for (site, good) in [("same-origin", true), ("none", true), ("same-site", false), ("cross-site", false)] {
            assert_eq!(here.is_from_our_page(&headers(&[host, ("sec-fetch-site", site)]), false), good, "{site}");
        }
    }

    #[test]
    fn a_session_needs_the_token_and_then_both_its_secrets() {
        let here = access("127.0.0.1:4000", &[], false);
        assert!(here.open("").is_none() && here.open(&hex(&[8; 16])).is_none());
        let open = || here.open(&hex(&[7; 16])).unwrap();
        let (one, other) = (open(), open());
        let pair = |opened: &Opened| opened.cookie.split(';').next().unwrap().to_string();
        assert!(one.cookie.contains("; HttpOnly; SameSite=Strict; Path=/") && !one.cookie.contains("Secure"));
        assert!(here.is_in_session(&headers(&[("cookie", &pair(&one)), (KEY_HEADER, &one.key)])));
        let among_others = format!("a=b; {}; c=d", pair(&one));
        assert!(here.is_in_session(&headers(&[("cookie", &among_others), (KEY_HEADER, &one.key)])));
        for wrong in [
            headers(&[("cookie", &pair(&one))]),
            headers(&[(KEY_HEADER, &one.key)]),
            headers(&[("cookie", &pair(&one)), (KEY_HEADER, &other.key)]),
            headers(&[("cookie", "comem-ui-4000="), (KEY_HEADER, "")]),
        ] {
            assert!(!here.is_in_session(&wrong), "{wrong:?}");
        }
        (0..SESSIONS_MAX).for_each(|_| drop(open()));
        assert!(!here.is_in_session(&headers(&[("cookie", &pair(&one)), (KEY_HEADER, &one.key)])), "the oldest goes");
        assert!(access("10.0.0.1:443", &[], true).open(&hex(&[7; 16])).unwrap().cookie.ends_with("; Secure"));
    }
}
