//! One-sided operations by UCX: libucp, which is loaded when a job asks for it. Nothing of it is needed to build Comem.
//!
//! A node has one [`Worker`]. Its threads use it in turn. Where the network's adapter does not carry operations out by
//! itself (over tcp, and in memory that processes of one host share), the target's own worker does, so each node keeps
//! a thread that [attends](Worker::attend) it.

mod sys;

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::fmt;
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use sys::{Atomic, Functions, Handle, Padded, RequestParams, Status};

/// Versions that this was written for and is checked with: [`Library::load`] refuses others.
const VERSIONS: std::ops::RangeInclusive<(u32, u32)> = (1, 10)..=(1, u32::MAX);
const NAME: &CStr = c"libucp.so.0";
/// What the library does to a process unless its environment says otherwise: it catches signals of crashes and watches
/// how memory is mapped. Both are Comem's business.
const QUIET: [(&CStr, &CStr); 4] = [
    (c"UCX_HANDLE_ERRORS", c"none"),
    (c"UCX_ERROR_SIGNALS", c""),
    (c"UCX_MEM_EVENTS", c"no"),
    // What fails is said by whoever has asked for it.
    (c"UCX_LOG_LEVEL", c"fatal"),
];

/// Why there is no UCX.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// The library cannot be loaded, and why.
    Library(String),
    /// It has a version that is not known.
    Version(u32, u32),
    /// It lacks a function.
    Function(&'static str),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Library(why) => {
                write!(f, "libucp.so.0 cannot be loaded ({why}); install UCX (Debian and Ubuntu: apt install libucx0)")
            }
            Missing::Version(major, minor) => {
                write!(f, "libucp has version {major}.{minor}; Comem knows 1.10 and later of version 1: install one")
            }
            Missing::Function(name) => write!(f, "libucp has no function {name}; install UCX 1.10 or later"),
        }
    }
}

impl std::error::Error for Missing {}

/// The library.
pub struct Library(Functions);

impl Library {
    /// The library, which is loaded if it is not yet.
    ///
    /// # Errors
    /// When it is not there, or of a version that is not known.
    pub fn load() -> Result<&'static Library, Missing> {
        static LIBRARY: OnceLock<Result<Library, Missing>> = OnceLock::new();
        LIBRARY.get_or_init(|| Library::open(NAME)).as_ref().map_err(Missing::clone)
    }

    fn open(name: &CStr) -> Result<Library, Missing> {
        for (name, value) in QUIET {
            // SAFETY: both end with a zero. Nodes load the library at their start, before the program's threads begin.
            unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 0) };
        }
        // SAFETY: runs the library's constructors, once.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: after a failure there is a text, which ends with a zero.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) };
            return Err(Missing::Library(why.to_string_lossy().into_owned()));
        }
        // SAFETY: the library stays loaded; the name ends with a zero.
        let functions = Functions::find(|name| unsafe { libc::dlsym(handle, name.as_ptr()) });
        let library = Library(functions.map_err(Missing::Function)?);
        let (major, minor, _) = library.version();
        if VERSIONS.contains(&(major, minor)) { Ok(library) } else { Err(Missing::Version(major, minor)) }
    }

    /// Its version.
    pub fn version(&self) -> (u32, u32, u32) {
        let mut version: [c_uint; 3] = [0; 3];
        let [major, minor, release] = &mut version;
        // SAFETY: stores three numbers.
        unsafe { (self.0.ucp_get_version)(major, minor, release) };
        (version[0], version[1], version[2])
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Library({:?})", self.version())
    }
}

/// The RDMA devices of this host, by their names.
pub fn rdma_devices() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// What carries one-sided operations out, in words: `emulated` where the target's processor does.
pub fn in_words() -> &'static str {
    if rdma_devices().is_empty() { "ucx, emulated" } else { "ucx" }
}

/// A handle of the library. Whoever uses one has the worker's lock.
#[derive(Clone, Copy, Debug)]
struct Held(Handle);

// SAFETY: the library's handles belong to no thread; it is told that threads use them one at a time.
unsafe impl Send for Held {}
// SAFETY: a handle is only copied without the lock.
unsafe impl Sync for Held {}

/// What one node sends and answers operations by.
#[derive(Debug)]
pub struct Worker {
    library: &'static Library,
    context: Held,
    worker: Mutex<Held>,
    /// Readable when there is something to attend to.
    event_fd: c_int,
}

/// Another node's memory, or this node's own as its adapter sees it.
#[derive(Debug)]
pub struct Peer {
    endpoint: Held,
    key: Held,
    /// Where the memory begins there.
    start: u64,
    bytes: u64,
}

/// What a node tells others, so that they reach its memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invitation {
    /// The worker's address.
    pub address: Vec<u8>,
    /// The memory's key.
    pub key: Vec<u8>,
    /// Where the memory begins.
    pub start: u64,
    /// How much there is.
    pub bytes: u64,
}

fn checked(what: &str, status: Status) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::other(format!("ucx: {what} failed with status {status}"))) }
}

/// An endpoint has failed: operations on it fail from now on.
extern "C" fn on_endpoint_error(_argument: *mut c_void, _endpoint: Handle, _status: Status) {}

impl Worker {
    /// A worker, over these transports if any are named (`UCX_TLS` otherwise).
    ///
    /// # Errors
    /// When the library refuses.
    pub fn new(library: &'static Library, transports: Option<&CStr>) -> io::Result<Worker> {
        let functions = &library.0;
        let (mut config, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: stores a handle; no prefix and no file are named.
        let read = unsafe { (functions.ucp_config_read)(std::ptr::null(), std::ptr::null(), &raw mut config) };
        checked("reading its settings", read)?;
        if let Some(transports) = transports {
            // SAFETY: a setting that exists, of a configuration that was just read.
            let set = unsafe { (functions.ucp_config_modify)(config, c"TLS".as_ptr(), transports.as_ptr()) };
            checked("choosing its transports", set)?;
        }
        let params = Padded::new(sys::ContextParams { field_mask: 1, features: sys::FEATURES });
        let (major, minor) = *VERSIONS.start();
        // SAFETY: the parameters say which fields they have; a handle is stored.
        let made = unsafe { (functions.ucp_init_version)(major, minor, &raw const params, config, &raw mut context) };
        // SAFETY: a configuration of this library, which is not used any more.
        unsafe { (functions.ucp_config_release)(config) };
        checked("its start", made)?;
        let params = Padded::new(sys::WorkerParams { field_mask: 1, thread_mode: 1 });
        let mut worker = std::ptr::null_mut();
        // SAFETY: the context was just made; a handle is stored.
        checked("making a worker", unsafe {
            (functions.ucp_worker_create)(context, &raw const params, &raw mut worker)
        })?;
        let mut event_fd = -1;
        // SAFETY: the worker was just made, of a context that can wake up; a number is stored.
        checked("a descriptor", unsafe { (functions.ucp_worker_get_efd)(worker, &raw mut event_fd) })?;
        Ok(Worker { library, context: Held(context), worker: Mutex::new(Held(worker)), event_fd })
    }

    fn functions(&self) -> &'static Functions {
        &self.library.0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets others into this memory, which stays mapped as long as the process lives.
    ///
    /// # Safety
    /// `start` is that of `bytes` bytes which stay mapped, and which all processes use as memory shared with others.
    ///
    /// # Errors
    /// When the library refuses: an adapter may take no more memory.
    pub unsafe fn invite(&self, start: *mut u8, bytes: usize) -> io::Result<Invitation> {
        let (functions, worker) = (self.functions(), self.lock());
        let params = sys::MapParams { field_mask: 7, address: start.cast(), length: bytes, flags: 1 };
        let params = Padded::new(params);
        let mut memory = std::ptr::null_mut();
        // SAFETY: by this function's contract; a handle is stored.
        checked("registering memory", unsafe {
            (functions.ucp_mem_map)(self.context.0, &raw const params, &raw mut memory)
        })?;
        let (mut buffer, mut len) = (std::ptr::null_mut(), 0);
        // SAFETY: memory of this context; a buffer and its length are stored.
        checked("a key", unsafe { (functions.ucp_rkey_pack)(self.context.0, memory, &raw mut buffer, &raw mut len) })?;
        // SAFETY: the buffer has that length.
        let key = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), len) }.to_vec();
        // SAFETY: a buffer of the library, which is not used any more.
        unsafe { (functions.ucp_rkey_buffer_release)(buffer) };
        // SAFETY: a worker of this library; a buffer and its length are stored.
        checked("an address", unsafe { (functions.ucp_worker_get_address)(worker.0, &raw mut buffer, &raw mut len) })?;
        // SAFETY: the buffer has that length.
        let address = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), len) }.to_vec();
        // SAFETY: this worker's buffer, which is not used any more.
        unsafe { (functions.ucp_worker_release_address)(worker.0, buffer) };
        Ok(Invitation { address, key, start: start.expose_provenance() as u64, bytes: bytes as u64 })
    }

    /// Takes an invitation, which a node of this job has given.
    ///
    /// # Errors
    /// When the library refuses: no transport reaches that node.
    pub fn accept(&self, invitation: &Invitation) -> io::Result<Peer> {
        let (functions, worker) = (self.functions(), self.lock());
        let mut endpoint = std::ptr::null_mut();
        let mut connect = |error_mode| {
            let params = Padded::new(sys::EndpointParams {
                field_mask: 7,
                address: invitation.address.as_ptr().cast(),
                error_mode,
                on_error: Some(on_endpoint_error),
                argument: std::ptr::null_mut(),
            });
            // SAFETY: the address is what a worker has told; a handle is stored.
            checked("connecting", unsafe { (functions.ucp_ep_create)(worker.0, &raw const params, &raw mut endpoint) })
        };
        // Through memory that processes share nobody hears of a peer's end; the job hears of it by itself.
        connect(1).or_else(|_| connect(0))?;
        drop(worker);
        self.peer(Held(endpoint), invitation)
    }

    /// Takes a further invitation of a node that has given one: to other memory of the same process.
    ///
    /// # Errors
    /// When the library refuses.
    pub fn accept_more(&self, peer: &Peer, invitation: &Invitation) -> io::Result<Peer> {
        self.peer(peer.endpoint, invitation)
    }

    fn peer(&self, endpoint: Held, invitation: &Invitation) -> io::Result<Peer> {
        let (functions, _worker) = (self.functions(), self.lock());
        let mut key = std::ptr::null_mut();
        // SAFETY: the key is what the endpoint's node has packed; a handle is stored.
        checked("reading a key", unsafe {
            (functions.ucp_ep_rkey_unpack)(endpoint.0, invitation.key.as_ptr().cast(), &raw mut key)
        })?;
        let (start, bytes) = (invitation.start, invitation.bytes);
        Ok(Peer { endpoint, key: Held(key), start, bytes })
    }

    /// Begins an operation on `buffer` and waits until it is done. `is_lost` says whether there is nobody to wait for
    /// any more; then the operation may end at any time, and the buffer is never used again.
    fn run<T: ?Sized>(
        &self,
        is_lost: &dyn Fn() -> bool,
        mut buffer: Box<T>,
        begin: impl FnOnce(&'static Functions, &mut T) -> *mut c_void,
    ) -> io::Result<Box<T>> {
        let (functions, worker) = (self.functions(), self.lock());
        let failed = |status| io::Error::other(format!("ucx: an operation failed with status {status}"));
        let Some(request) = sys::outcome(begin(functions, &mut buffer)).map_err(failed)? else { return Ok(buffer) };
        let mut looks = 0_u32;
        let status = loop {
            // SAFETY: the worker, whose lock this thread has, and a request of it that was not freed.
            let status = unsafe {
                (functions.ucp_worker_progress)(worker.0);
                (functions.ucp_request_check_status)(request.as_ptr())
            };
            if status != sys::IN_PROGRESS || (looks.is_multiple_of(256) && is_lost()) {
                break status;
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(64) {
                // The other side may need this processor.
                std::thread::yield_now();
            }
        };
        // SAFETY: a request of this library; the library frees one that is under way when it is done.
        unsafe { (functions.ucp_request_free)(request.as_ptr()) };
        match status {
            0 => Ok(buffer),
            sys::IN_PROGRESS => {
                Box::leak(buffer);
                Err(io::ErrorKind::Interrupted.into())
            }
            status => Err(failed(status)),
        }
    }

    /// Copies bytes from a peer's memory.
    ///
    /// # Errors
    /// `InvalidInput` beyond its memory, `Interrupted` when the job is lost, else what the library says.
    pub fn get(&self, peer: &Peer, offset: u64, into: &mut [u8], is_lost: &dyn Fn() -> bool) -> io::Result<()> {
        let from = peer.address(offset, into.len())?;
        let buffer = vec![0; into.len()].into_boxed_slice();
        let params = RequestParams::none();
        let bytes = self.run(is_lost, buffer, |functions, buffer| {
            let (at, len) = (buffer.as_mut_ptr().cast(), buffer.len());
            // SAFETY: the buffer stays as long as the request; the place is within the peer's memory.
            unsafe { (functions.ucp_get_nbx)(peer.endpoint.0, at, len, from, peer.key.0, &raw const params) }
        })?;
        into.copy_from_slice(&bytes);
        Ok(())
    }

    /// Stores bytes in a peer's memory, some time before [`Worker::flush`] ends.
    ///
    /// # Errors
    /// As for [`Worker::get`].
    pub fn put(&self, peer: &Peer, offset: u64, bytes: &[u8], is_lost: &dyn Fn() -> bool) -> io::Result<()> {
        let to = peer.address(offset, bytes.len())?;
        let params = RequestParams::none();
        let buffer = bytes.to_vec().into_boxed_slice();
        let put = self.run(is_lost, buffer, |functions, buffer| {
            let (at, len) = (buffer.as_ptr().cast(), buffer.len());
            // SAFETY: as in `get`.
            unsafe { (functions.ucp_put_nbx)(peer.endpoint.0, at, len, to, peer.key.0, &raw const params) }
        });
        put.map(drop)
    }

    /// Waits until all puts to a peer have taken effect.
    ///
    /// # Errors
    /// As for [`Worker::get`].
    pub fn flush(&self, peer: &Peer, is_lost: &dyn Fn() -> bool) -> io::Result<()> {
        let params = RequestParams::none();
        let flushed = self.run(is_lost, Box::new(()), |functions, ()| {
            // SAFETY: an endpoint of this worker.
            unsafe { (functions.ucp_ep_flush_nbx)(peer.endpoint.0, &raw const params) }
        });
        flushed.map(drop)
    }

    /// Adds to an aligned word of 8 bytes; gives what it was.
    ///
    /// # Errors
    /// As for [`Worker::get`], also where the word is not aligned.
    pub fn fetch_add(&self, peer: &Peer, offset: u64, summand: u64, is_lost: &dyn Fn() -> bool) -> io::Result<u64> {
        self.atomic(peer, offset, (Atomic::Add, summand, 0), is_lost)
    }

    /// Stores `new` in an aligned word of 8 bytes if it is `expected`; gives what it was.
    ///
    /// # Errors
    /// As for [`Worker::fetch_add`].
    pub fn compare_and_swap(
        &self,
        peer: &Peer,
        offset: u64,
        (expected, new): (u64, u64),
        is_lost: &dyn Fn() -> bool,
    ) -> io::Result<u64> {
        self.atomic(peer, offset, (Atomic::CompareAndSwap, expected, new), is_lost)
    }

    fn atomic(
        &self,
        peer: &Peer,
        offset: u64,
        (operation, operand, new): (Atomic, u64, u64),
        is_lost: &dyn Fn() -> bool,
    ) -> io::Result<u64> {
        let at = peer.address(offset, size_of::<u64>())?;
        if !at.is_multiple_of(size_of::<u64>() as u64) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The operand, then where the old value comes; a new value waits there.
        let words = self.run(is_lost, Box::new([operand, new]), |functions, words| {
            let [operand, reply] = words;
            let params = RequestParams::of_word(reply);
            let operand = std::ptr::from_mut(operand).cast();
            // SAFETY: both words stay as long as the request; the place is within the peer's memory.
            unsafe {
                (functions.ucp_atomic_op_nbx)(peer.endpoint.0, operation, operand, 1, at, peer.key.0, &raw const params)
            }
        })?;
        Ok(words[1])
    }

    /// Carries out what other nodes ask for, and waits for more, at most so long. For a thread of its own, which calls
    /// it again and again.
    ///
    /// # Errors
    /// When the library fails.
    pub fn attend(&self, timeout: Duration) -> io::Result<()> {
        let functions = self.functions();
        let worker = self.lock();
        let armed = loop {
            // SAFETY: the worker, whose lock this thread has.
            while unsafe { (functions.ucp_worker_progress)(worker.0) } > 0 {}
            // SAFETY: as above.
            match unsafe { (functions.ucp_worker_arm)(worker.0) } {
                sys::BUSY => {}
                status => break status,
            }
        };
        drop(worker);
        checked("waiting for events", armed)?;
        let mut poll = libc::pollfd { fd: self.event_fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one record, which is ours.
        unsafe { libc::poll(&raw mut poll, 1, timeout.as_millis().min(i32::MAX as u128) as c_int) };
        Ok(())
    }
}

impl Peer {
    /// The address of `len` bytes there.
    fn address(&self, offset: u64, len: usize) -> io::Result<u64> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.bytes);
        end.map(|_| self.start + offset).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Ends the thread that attends, also where a test fails.
    struct Ends<'a>(&'a AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    const BYTES: usize = 1 << 16;
    const NEVER: &dyn Fn() -> bool = &|| false;

    /// Two nodes in this process: each has a worker, and memory that the other reaches.
    fn two(transports: &CStr, body: impl FnOnce(&Worker, &Worker, &Peer, &Peer, &'static [AtomicU64])) {
        let library = match Library::load() {
            Ok(library) => library,
            Err(missing) => return println!("SKIP: {missing}"),
        };
        let made = [Worker::new(library, Some(transports)), Worker::new(library, Some(transports))];
        let [Ok(one), Ok(other)] = made else { return println!("SKIP: no transports {transports:?}: {made:?}") };
        let words: &'static [AtomicU64] = Box::leak((0..BYTES / 8).map(|_| 0.into()).collect());
        let start = words.as_ptr().cast_mut().cast();
        // SAFETY: words that live for ever and are used atomically.
        let invitation = unsafe { other.invite(start, BYTES) }.expect("memory can be registered");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    other.attend(Duration::from_millis(20)).expect("it attends");
                }
            });
            let _ends = Ends(&done);
            let own = other.accept(&invitation).expect("it reaches itself");
            let peer = one.accept(&invitation).expect("it is reached");
            body(&one, &other, &peer, &own, words);
        });
    }

    fn works(transports: &CStr) {
        two(transports, |one, other, peer, own, words| {
            // On another worker's memory, and on a worker's own.
            for (worker, to) in [(one, peer), (other, own)] {
                each_has_its_effect(worker, to, words);
            }
        });
    }

    /// What an operation brings back says nothing of what it has done: the memory is looked at.
    fn each_has_its_effect(worker: &Worker, to: &Peer, words: &[AtomicU64]) {
        let bytes: Vec<u8> = (0..2048).map(|n| (n % 251) as u8).collect();
        words[512..768].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        worker.put(to, 4096, &bytes, NEVER).unwrap();
        worker.flush(to, NEVER).unwrap();
        let stored = words[512..768].iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        assert!(stored.eq(bytes.iter().copied()));
        let mut copy = vec![0; 2048];
        worker.get(to, 4096, &mut copy, NEVER).unwrap();
        assert_eq!(copy, bytes);
        let word = &words[2];
        word.store(0x30, Ordering::Relaxed);
        let now = || word.load(Ordering::Relaxed);
        assert_eq!((worker.fetch_add(to, 16, 5, NEVER).unwrap(), now()), (0x30, 0x35));
        assert_eq!((worker.compare_and_swap(to, 16, (1, 2), NEVER).unwrap(), now()), (0x35, 0x35));
        assert_eq!((worker.compare_and_swap(to, 16, (0x35, 2), NEVER).unwrap(), now()), (0x35, 2));
        assert_eq!(
            (words[1].load(Ordering::Relaxed), words[3].load(Ordering::Relaxed)),
            (0, 0),
            "no neighbour changes"
        );
        for (offset, len) in [(BYTES as u64 - 8, 16), (BYTES as u64, 1), (u64::MAX, 8)] {
            let refused = worker.put(to, offset, &vec![0; len], NEVER).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
        assert!(worker.fetch_add(to, 12, 1, NEVER).is_err(), "not aligned");
    }

    #[test]
    fn operations_reach_another_worker_over_tcp() {
        works(c"tcp,self");
    }

    #[test]
    fn operations_reach_another_worker_through_memory() {
        works(c"posix,self");
    }

    #[test]
    fn a_library_that_is_not_there_is_named_with_what_to_install() {
        let missing = Library::open(c"libucp-of-nobody.so.0").unwrap_err();
        let said = missing.to_string();
        assert!(said.contains("libucp.so.0") && said.contains("apt install libucx0"), "{said}");
        assert!(Missing::Version(2, 0).to_string().contains("2.0"));
        assert!(Missing::Function("ucp_put_nbx").to_string().contains("ucp_put_nbx"));
        assert_eq!(Library::open(c"libc.so.6").unwrap_err(), Missing::Function("ucp_get_version"));
    }
}
