//! Connections: who may have one, for how long, and encrypted where others than this host may connect.

use crate::access::{Access, Place, Secret, hex};
use crate::desk::Desk;
use crate::patience::Patient;
use crate::site::Site;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

/// Most connections at a time. A browser opens six to a server.
const CONNECTIONS_MAX: usize = 128;
/// How long the head of a request may take, and the greeting of an encrypted connection.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// How long a reader may take nothing.
const STALL_LIMIT: Duration = Duration::from_secs(20);
/// A server that can take nobody in, for want of descriptors, looks again after so long.
const DEAF_FOR: Duration = Duration::from_millis(200);
/// Most calls to the desk at a time.
const CALLS_MAX: usize = 32;

/// How the server is to be.
pub struct Settings {
    /// Where it listens; port 0 is a free one.
    pub listen: SocketAddr,
    /// Names of this host by which pages may ask for it, besides addresses.
    pub names: Vec<String>,
    /// How connections are encrypted; without it they are not.
    pub tls: Option<Tls>,
    /// Secrets of the system's best randomness.
    pub random: fn() -> Secret,
}

/// The files that make connections encrypted.
pub struct Tls {
    /// The certificate, with those that vouch for it, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

/// Why there is no server.
#[derive(Debug)]
pub enum Trouble {
    /// The address cannot be had.
    Listen(SocketAddr, io::Error),
    /// A file for encryption is of no use.
    Tls(PathBuf, String),
    /// The system refuses what the server needs.
    System(io::Error),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Listen(address, why) => write!(f, "cannot listen at {address}: {why}"),
            Trouble::Tls(file, why) => write!(f, "{}: {why}", file.display()),
            Trouble::System(why) => write!(f, "cannot start the server: {why}"),
        }
    }
}

/// Where a server is.
pub struct Address {
    /// Its socket's address.
    pub socket: SocketAddr,
    /// What a browser is to open, with the token behind `#`.
    pub url: String,
}

/// Starts a server in a thread of its own. It serves until the process ends.
///
/// # Errors
/// It cannot listen there, or a file is of no use.
pub fn start(settings: Settings, desk: Arc<dyn Desk>) -> Result<Address, Trouble> {
    let tls = settings.tls.as_ref().map(acceptor).transpose()?;
    let listener = listen(settings.listen).map_err(|why| Trouble::Listen(settings.listen, why))?;
    let address = listener.local_addr().map_err(Trouble::System)?;
    let names = settings.names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let place = Place { address, names, encrypted: tls.is_some() };
    let token = (settings.random)();
    let url = url(&place, &token);
    let site = Arc::new(Site::new(Access::new(place, &token, settings.random), desk));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(CALLS_MAX).build();
    let runtime = runtime.map_err(Trouble::System)?;
    let serve = move || runtime.block_on(serve(listener, tls, site));
    std::thread::Builder::new().name("comem-ui".to_string()).spawn(serve).map_err(Trouble::System)?;
    Ok(Address { socket: address, url })
}

/// What a browser is to open. Where the server listens at all addresses, its first name leads there.
fn url(place: &Place, token: &Secret) -> String {
    let host = match place.names.first() {
        Some(name) if place.address.ip().is_unspecified() => format!("{name}:{}", place.address.port()),
        _ => place.address.to_string(),
    };
    format!("{}://{host}/#token={}", place.scheme(), hex(token))
}

fn listen(address: SocketAddr) -> io::Result<StdListener> {
    let listener = StdListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn acceptor(tls: &Tls) -> Result<TlsAcceptor, Trouble> {
    let unfit = |file: &Path, why: &dyn fmt::Display| Trouble::Tls(file.to_path_buf(), why.to_string());
    let certificates = CertificateDer::pem_file_iter(&tls.certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|why| unfit(&tls.certificate, &why))?;
    if certificates.is_empty() {
        return Err(unfit(&tls.certificate, &"it has no certificate"));
    }
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|why| unfit(&tls.key, &why))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.and_then(|config| config.with_no_client_auth().with_single_cert(certificates, key));
    config.map(|config| TlsAcceptor::from(Arc::new(config))).map_err(|why| unfit(&tls.key, &why))
}

async fn serve(listener: StdListener, tls: Option<TlsAcceptor>, site: Arc<Site>) {
    let listener = TcpListener::from_std(listener).expect("a socket that does not wait");
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(DEAF_FOR).await;
            continue;
        };
        // Who finds no room is turned away: the others go on.
        let Ok(permit) = room.clone().try_acquire_owned() else { continue };
        tokio::spawn(greet(stream, tls.clone(), site.clone(), permit));
    }
}

async fn greet(stream: TcpStream, tls: Option<TlsAcceptor>, site: Arc<Site>, permit: OwnedSemaphorePermit) {
    let _ = stream.set_nodelay(true);
    match tls {
        None => converse(stream, site).await,
        Some(tls) => {
            let greeted = tokio::time::timeout(GREETING_LIMIT, tls.accept(stream)).await;
            if let Ok(Ok(stream)) = greeted {
                converse(stream, site).await;
            }
        }
    }
    drop(permit);
}

/// Serves one connection to its end. What goes wrong on it is its other end's business.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, site: Arc<Site>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(site.answer(request).await) }
    });
    let io = TokioIo::new(Patient::new(stream, STALL_LIMIT));
    let mut http = http1::Builder::new();
    let _ = http.timer(TokioTimer::new()).header_read_timeout(GREETING_LIMIT).serve_connection(io, service).await;
}
