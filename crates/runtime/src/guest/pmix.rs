//! PMIx: what `srun --mpi=pmix`, `prterun` and Open MPI's `mpirun` offer their processes. Process 0 leaves the id with
//! it, and the others fetch it. The library (Debian: libpmix2) is loaded when such a launcher is seen; nothing of it is
//! needed to build Comem.
//!
//! Declarations follow the standard's version 4 as far as they are used: `pmix_proc_t`, `pmix_value_t`, and functions
//! that later versions keep.

use crate::error::{Error, Result};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// The library's names: that of all versions from 2 on, and that of packages for development.
const NAMES: [&CStr; 2] = [c"libpmix.so.2", c"libpmix.so"];

const SUCCESS: c_int = 0;
/// Bytes of a namespace, with the zero byte.
const NAMESPACE_BYTES: usize = 256;
/// Bytes of a key, with the zero byte.
const KEY_BYTES: usize = 512;
/// The rank that stands for the whole job.
const RANK_WILDCARD: u32 = u32::MAX - 1;
/// `PMIX_STRING` and `PMIX_UINT32` as types of values.
const STRING: u16 = 3;
const UINT32: u16 = 14;
/// `PMIX_GLOBAL`: for processes of all hosts.
const GLOBAL: u8 = 3;
/// `PMIX_JOB_SIZE`.
const JOB_SIZE: &CStr = c"pmix.job.size";
/// Where process 0 leaves the id.
const ID: &CStr = c"comem.unique.id";

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Proc {
    namespace: [c_char; NAMESPACE_BYTES],
    rank: u32,
}

/// `pmix_value_t`: its union is as large as its largest member in any version so far, and then some.
#[repr(C)]
struct Value {
    kind: u16,
    data: [u64; 8],
}

type Key = [c_char; KEY_BYTES];
type Init = unsafe extern "C" fn(*mut Proc, *const c_void, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const c_void, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Proc, usize, *const c_void, usize) -> c_int;
type Get = unsafe extern "C" fn(*const Proc, *const c_char, *const c_void, usize, *mut *mut Value) -> c_int;

/// The library, connected to the launcher's server.
pub(super) struct Pmix {
    handle: *mut c_void,
    me: Proc,
}

fn key(name: &CStr) -> Key {
    let mut key = [0; KEY_BYTES];
    for (place, byte) in key.iter_mut().zip(name.to_bytes()) {
        *place = *byte as c_char;
    }
    key
}

fn checked(code: c_int, what: &str) -> Result<()> {
    match code {
        SUCCESS => Ok(()),
        code => Err(Error::Start(format!("PMIx failed with {code} when {what}; start the program by comem exec"))),
    }
}

impl Pmix {
    /// Connects to the launcher's server; `None` where the library is not installed.
    ///
    /// # Errors
    /// The launcher offers it no connection.
    pub(super) fn connect() -> Result<Option<Pmix>> {
        // SAFETY: the names are strings of C. The library's constructors need nothing of us.
        let load = |name: &&CStr| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        let Some(handle) = NAMES.iter().map(load).find(|handle| !handle.is_null()) else { return Ok(None) };
        let mut pmix = Pmix { handle, me: Proc { namespace: [0; NAMESPACE_BYTES], rank: 0 } };
        let init: Init = pmix.function(c"PMIx_Init")?;
        // SAFETY: the first argument is ours to be filled in, and there are no others.
        let code = unsafe { init(&raw mut pmix.me, std::ptr::null(), 0) };
        checked(code, "connecting to the launcher's server")?;
        pmix.stay_connected()?;
        Ok(Some(pmix))
    }

    /// A function of the library.
    fn function<F: Copy>(&self, name: &CStr) -> Result<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is that of a loaded library, which stays.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if found.is_null() {
            let name = name.to_string_lossy();
            return Err(Error::Start(format!("libpmix has no function {name}; install another version")));
        }
        // SAFETY: the callers name the type that the standard gives the function of this name, and it is a pointer.
        Ok(unsafe { std::mem::transmute_copy(&found) })
    }

    pub(super) fn rank(&self) -> u32 {
        self.me.rank
    }

    /// How many processes the job has.
    pub(super) fn size(&self) -> Result<u32> {
        let value = self.get(RANK_WILDCARD, JOB_SIZE, "asking for the number of processes")?;
        match value.kind {
            UINT32 => Ok(value.data[0] as u32),
            kind => Err(Error::Start(format!("PMIx gave the number of processes as type {kind}, which is unknown"))),
        }
    }

    /// Leaves a text for all others.
    pub(super) fn put(&self, text: &str) -> Result<()> {
        let what = "leaving the id for the others";
        let text = CString::new(text).map_err(|_| Error::Start("the id is no text".to_string()))?;
        let mut value = Value { kind: STRING, data: [text.as_ptr() as u64, 0, 0, 0, 0, 0, 0, 0] };
        let (put, commit): (Put, Commit) = (self.function(c"PMIx_Put")?, self.function(c"PMIx_Commit")?);
        // SAFETY: key and value are there during the call, which copies them.
        checked(unsafe { put(GLOBAL, key(ID).as_ptr(), &raw mut value) }, what)?;
        // SAFETY: takes nothing.
        checked(unsafe { commit() }, what)
    }

    /// Waits for all processes of the job.
    pub(super) fn fence(&self) -> Result<()> {
        let fence: Fence = self.function(c"PMIx_Fence")?;
        // SAFETY: null and 0 stand for all processes and no options.
        checked(unsafe { fence(std::ptr::null(), 0, std::ptr::null(), 0) }, "waiting for all processes")
    }

    /// What process 0 has left.
    pub(super) fn id(&self) -> Result<String> {
        let value = self.get(0, ID, "fetching the id")?;
        let text = value.data[0] as *const c_char;
        if value.kind != STRING || text.is_null() {
            return Err(Error::Start("process 0 left no id with PMIx; see its own message".to_string()));
        }
        // SAFETY: a value of this type is a string of the library's, which nobody frees.
        Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    fn get(&self, rank: u32, name: &CStr, what: &str) -> Result<&Value> {
        let get: Get = self.function(c"PMIx_Get")?;
        let from = Proc { rank, ..self.me };
        let mut value = std::ptr::null_mut();
        // SAFETY: the arguments are there during the call, and the last is to be filled in.
        checked(unsafe { get(&raw const from, key(name).as_ptr(), std::ptr::null(), 0, &raw mut value) }, what)?;
        // SAFETY: after success it is a value, which is never freed. Only its first two members are looked at.
        unsafe { value.as_ref() }.ok_or_else(|| Error::Start(format!("PMIx gave nothing when {what}")))
    }
}

/// What ends the connection, and the process that made it.
static CONNECTED: OnceLock<(Finalize, u32)> = OnceLock::new();

/// The launcher is told that this process may end.
extern "C" fn disconnect() {
    // A child made by fork has no part in it.
    if let Some((finalize, process)) = CONNECTED.get()
        && *process == std::process::id()
    {
        // SAFETY: the connection is ended once, with no options.
        unsafe { finalize(std::ptr::null(), 0) };
    }
}

impl Pmix {
    /// Keeps the connection until the process ends: MPI may use the library later, and finds no server once somebody
    /// has ended the only one. A process that ends without a word is taken for one that failed.
    fn stay_connected(&self) -> Result<()> {
        let finalize: Finalize = self.function(c"PMIx_Finalize")?;
        if CONNECTED.set((finalize, std::process::id())).is_ok() {
            // SAFETY: the function is there for as long as the process, and so is what it calls.
            unsafe { libc::atexit(disconnect) };
        }
        Ok(())
    }
}
