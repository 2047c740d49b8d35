//! Joining by a unique id, and with settings: `comem_start_attr`.
//!
//! The structure begins with its size, so that later versions can add fields behind the last one. A shorter one is that
//! of an older program: what it lacks is as if it were 0. Of a longer one, a newer program's, the rest must be 0.

use crate::buffer;
use crate::failure::{Code, Failure, Outcome, checked};
use crate::job;
use comem_rt::{Builder, Comem, UniqueId};
use std::ffi::{CStr, c_char, c_int, c_void};

/// Bytes of a `comem_id`.
const ID_BYTES: usize = 128;

/// `comem_id`: the text of an id, and zeros behind it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Id {
    text: [u8; ID_BYTES],
}

type Broadcast = unsafe extern "C-unwind" fn(bytes: *mut c_void, length: usize, argument: *mut c_void) -> c_int;

/// `comem_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Attr {
    size: usize,
    unique_id: *const Id,
    rank: c_int,
    processes: c_int,
    threads: c_int,
    reserved: c_int,
    engine: *const c_char,
    settings: *const *const c_char,
    broadcast: Option<Broadcast>,
    broadcast_argument: *mut c_void,
}

/// Least size that a program can have been compiled with: up to the broadcast's argument.
const SIZE_MIN: usize = size_of::<Attr>();
/// The rank of a process that takes any number.
const ANY_RANK: c_int = -1;
/// Larger ones are no attributes.
const SIZE_MAX: usize = 4096;

fn argument(what: impl Into<String>) -> Failure {
    Failure::new(Code::Argument, what)
}

/// The id in a buffer of the program's.
///
/// # Safety
/// `id` points to a `comem_id`, or is null.
unsafe fn read_id(id: *const Id) -> Outcome<Option<UniqueId>> {
    if id.is_null() {
        return Ok(None);
    }
    // SAFETY: by this function's contract.
    let text = unsafe { &(*id).text };
    let text = CStr::from_bytes_until_nul(text)
        .map_err(|_| argument("the unique id is no text; hand on what comem_unique_id() gave as it is"))?;
    let parsed = text.to_string_lossy().parse::<UniqueId>();
    parsed.map(Some).map_err(|error| argument(error.to_string()))
}

/// Makes an id into a buffer.
fn make_id() -> Outcome<Id> {
    let text = UniqueId::new()?.to_string();
    let mut id = Id { text: [0; ID_BYTES] };
    id.text[..text.len()].copy_from_slice(text.as_bytes());
    Ok(id)
}

/// Makes an id for a job that other processes join.
///
/// # Safety
/// `id` points to room for a `comem_id`, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_unique_id(id: *mut Id) -> c_int {
    checked(|| {
        if id.is_null() {
            return Err(argument("comem_unique_id() was given no place for the id; pass a pointer to a comem_id"));
        }
        let made = make_id()?;
        // SAFETY: not null, and by this function's contract there is room.
        unsafe { buffer::give(id, made) };
        Ok(0)
    })
}

/// The program's attributes as this version knows them.
///
/// # Safety
/// `attr` points to a structure that begins with its size in bytes.
unsafe fn read(attr: *const Attr) -> Outcome<Attr> {
    // SAFETY: by this function's contract.
    let size = unsafe { attr.cast::<usize>().read_unaligned() };
    if !(SIZE_MIN..=SIZE_MAX).contains(&size) {
        return Err(argument(format!(
            "the attributes say that they have {size} bytes, and have {SIZE_MIN} or more; call comem_attr_init() first"
        )));
    }
    // SAFETY: by this function's contract there are as many bytes as it says.
    let all = unsafe { std::slice::from_raw_parts(attr.cast::<u8>(), size) };
    if all[SIZE_MIN..].iter().any(|byte| *byte != 0) {
        return Err(argument(
            "the program sets attributes that this version of libcomem does not know; install the library of the \
             header that it was compiled with",
        ));
    }
    // SAFETY: there are at least as many bytes, and every field may hold any value, a function's address only what the
    // program has put there.
    Ok(unsafe { attr.read_unaligned() })
}

/// Texts that end with a null pointer.
///
/// # Safety
/// `first` points to such, or is null.
unsafe fn texts(first: *const *const c_char) -> Vec<String> {
    let mut all = Vec::new();
    if first.is_null() {
        return all;
    }
    // SAFETY: by this function's contract every place up to that of the null pointer is there, and holds a string.
    while let Some(text) = unsafe { first.add(all.len()).read().as_ref() } {
        // SAFETY: as above.
        all.push(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
    }
    all
}

impl Attr {
    /// How many, where the program says so.
    fn count(value: c_int, what: &str) -> Outcome<Option<usize>> {
        match value {
            0 => Ok(None),
            count => usize::try_from(count).map(Some).map_err(|_| argument(format!("{count} {what}"))),
        }
    }

    /// The id that the program's first process makes, and its broadcast brings to the others.
    fn broadcast_id(&self, broadcast: Broadcast) -> Outcome<UniqueId> {
        if self.rank < 0 || self.processes < 1 {
            return Err(argument("a broadcast in the attributes needs the rank and the number of processes too"));
        }
        let made = if self.rank == 0 { make_id() } else { Ok(Id { text: [0; ID_BYTES] }) };
        // The others are waiting: they get an empty id where there is none.
        let (mut id, failure) = match made {
            Ok(id) => (id, None),
            Err(failure) => (Id { text: [0; ID_BYTES] }, Some(failure)),
        };
        // SAFETY: the program gave this function to be called so; the buffer outlives the call.
        let code = unsafe { broadcast((&raw mut id).cast(), ID_BYTES, self.broadcast_argument) };
        if let Some(failure) = failure {
            return Err(failure);
        }
        if code != 0 {
            return Err(Failure::new(Code::Start, format!("the program's broadcast of the id failed with {code}")));
        }
        if id.text[0] == 0 {
            return Err(Failure::new(Code::Start, "process 0 could not make an id; see its own message"));
        }
        // SAFETY: a buffer of ours.
        let id = unsafe { read_id(&raw const id) }?;
        id.ok_or_else(|| Failure::new(Code::Start, "the broadcast brought no id"))
    }

    /// # Safety
    /// The pointers are null, or lead to what the header says.
    unsafe fn builder(&self) -> Outcome<Builder> {
        let mut builder = Comem::builder();
        // SAFETY: by this function's contract.
        for text in unsafe { texts(self.settings) } {
            let (name, value) = text
                .split_once('=')
                .ok_or_else(|| argument(format!("the setting {text:?} has no value; write name=value")))?;
            builder = builder.setting(name, value);
        }
        if let Some(threads) = Attr::count(self.threads, "threads")? {
            builder = builder.threads(threads);
        }
        if !self.engine.is_null() {
            // SAFETY: by this function's contract it is a string.
            builder = builder.engine(&unsafe { CStr::from_ptr(self.engine) }.to_string_lossy());
        }
        match (self.rank, usize::try_from(self.rank)) {
            (_, Ok(rank)) => builder = builder.rank(rank),
            (ANY_RANK, _) => {}
            (rank, _) => return Err(argument(format!("the rank {rank}; ranks begin with 0, and {ANY_RANK} is any"))),
        }
        if let Some(processes) = Attr::count(self.processes, "processes")? {
            builder = builder.processes(processes);
        }
        // SAFETY: by this function's contract.
        let id = match (unsafe { read_id(self.unique_id) }?, self.broadcast) {
            (Some(id), _) => Some(id),
            (None, Some(broadcast)) => Some(self.broadcast_id(broadcast)?),
            (None, None) => None,
        };
        Ok(match id {
            Some(id) => builder.unique_id(id),
            None => builder,
        })
    }
}

/// Joins the job as the attributes say.
///
/// # Safety
/// `attr` points to a `comem_attr` that comem_attr_init() has prepared, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_start_attr(attr: *const Attr) -> c_int {
    checked(|| {
        if attr.is_null() {
            return job::start_by(comem_rt::start);
        }
        // SAFETY: not null, and by this function's contract.
        let builder = unsafe { read(attr)?.builder() }?;
        builder.check().map_err(|error| argument(error.to_string()))?;
        job::start_by(|| builder.start())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr() -> Attr {
        // SAFETY: every field may be 0.
        let mut attr: Attr = unsafe { std::mem::zeroed() };
        (attr.size, attr.rank) = (size_of::<Attr>(), -1);
        attr
    }

    #[test]
    fn the_structure_tells_its_size_and_what_is_not_known_must_not_be_set() {
        // SAFETY: each structure has at least the bytes that it says.
        let refused = |bytes: &[usize]| unsafe { read(bytes.as_ptr().cast()) }.err().map(|failure| failure.what);
        let words = SIZE_MIN / size_of::<usize>();
        let mut longer = vec![0; words + 2];
        longer[0] = SIZE_MIN + 16;
        assert_eq!(refused(&longer), None, "a newer program that uses nothing new");
        longer[words + 1] = 1;
        assert!(refused(&longer).unwrap().contains("does not know"));
        longer[0] = 0;
        assert!(refused(&longer).unwrap().contains("comem_attr_init() first"));
        longer[0] = SIZE_MAX + 1;
        assert!(refused(&longer).unwrap().contains("comem_attr_init() first"));
    }

    #[test]
    fn settings_without_a_value_and_texts_that_are_no_id_are_refused() {
        let refused = |attr: &Attr| {
            // SAFETY: the pointers are null or lead to strings that live.
            let failure = unsafe { attr.builder() }.expect_err("it makes no sense");
            assert_eq!(failure.code, Code::Argument);
            failure.what
        };
        let settings = [c"heap".as_ptr(), std::ptr::null()];
        assert!(refused(&Attr { settings: settings.as_ptr(), ..attr() }).contains("write name=value"));
        let id = Id { text: [b'x'; ID_BYTES] };
        assert!(refused(&Attr { unique_id: &raw const id, ..attr() }).contains("is no text"));
        let id = Id { text: [0; ID_BYTES] };
        assert!(refused(&Attr { unique_id: &raw const id, ..attr() }).contains("no id of a job"));
        assert!(refused(&Attr { threads: -2, ..attr() }).contains("-2 threads"));
    }
}
