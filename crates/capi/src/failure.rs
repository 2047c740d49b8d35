//! What C sees of errors: a code, a sentence, and a handler that may take the place of ending the job.

use crate::buffer;
use comem_rt::Error;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// A negative number that the header names `COMEM_E_…`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Code {
    Start = -1,
    NotStarted = -2,
    Index = -3,
    Array = -4,
    Argument = -5,
    Thread = -6,
    Misuse = -7,
    NodeLost = -8,
    Empty = -9,
    TooSmall = -10,
    System = -11,
    Stopped = -12,
}

impl Code {
    /// Every code, in the order of the header.
    const ALL: [Code; 12] = [
        Code::Start,
        Code::NotStarted,
        Code::Index,
        Code::Array,
        Code::Argument,
        Code::Thread,
        Code::Misuse,
        Code::NodeLost,
        Code::Empty,
        Code::TooSmall,
        Code::System,
        Code::Stopped,
    ];

    fn words(self) -> &'static CStr {
        match self {
            Code::Start => c"the job could not be started or joined",
            Code::NotStarted => c"called before comem_start() or after comem_finish()",
            Code::Index => c"an index or range outside its array",
            Code::Array => c"an array that was not created, or cannot be created like that",
            Code::Argument => c"an argument that makes no sense",
            Code::Thread => c"more threads than the node was started with",
            Code::Misuse => c"a call out of order",
            Code::NodeLost => c"another node ended or fell silent",
            Code::Empty => c"no message is waiting",
            Code::TooSmall => c"the buffer is smaller than the message",
            Code::System => c"the operating system refused something",
            Code::Stopped => c"the job was told to end",
        }
    }

    /// The exit status of a node that ends for this reason, as `docs/exit-codes.md` lists them.
    fn exit_status(self) -> c_int {
        use comem_rt::error::exit;
        match self {
            Code::Start => exit::START,
            Code::NodeLost => exit::NODE_LOST,
            Code::Stopped => exit::STOPPED,
            Code::System => exit::INTERNAL,
            _ => exit::USAGE,
        }
    }
}

/// Why a call has no result.
#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    pub what: String,
}

impl Failure {
    pub fn new(code: Code, what: impl Into<String>) -> Failure {
        Failure { code, what: what.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::Config(_) | Error::Start(_) => Code::Start,
            Error::NodeLost { .. } => Code::NodeLost,
            Error::Stopped(_) | Error::Interrupted => Code::Stopped,
            error if error.is_misuse() => Code::Misuse,
            _ => Code::System,
        };
        Failure::new(code, error.to_string())
    }
}

/// A result that C will see as a code.
pub type Outcome<T> = Result<T, Failure>;

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

type Handler = unsafe extern "C-unwind" fn(code: c_int, sentence: *const c_char, argument: *mut c_void);

/// The program's handler and its argument.
#[derive(Clone, Copy)]
struct Installed {
    handler: Handler,
    argument: *mut c_void,
}

// SAFETY: the pointer is the program's own and only handed back to it; the header lets any thread call the handler.
unsafe impl Send for Installed {}

static HANDLER: Mutex<Option<Installed>> = Mutex::new(None);

fn handler() -> Option<Installed> {
    *HANDLER.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Keeps the sentence for `comem_last_error()`.
pub fn remember(failure: &Failure) -> CString {
    let sentence = format!("comem: {}: {}", crate::job::name(), failure.what).replace('\0', " ");
    let sentence = CString::new(sentence).unwrap_or_default();
    // A thread that is being taken down, from whose destructors this may be, keeps nothing any more.
    let _ = LAST.try_with(|last| last.replace(sentence.clone()));
    sentence
}

/// Reports a failure that the program need not check for: to its handler, else on standard error, ending the job.
pub fn report(failure: &Failure) -> c_int {
    let sentence = remember(failure);
    match handler() {
        // SAFETY: the program gave this function for this purpose, with this argument.
        Some(Installed { handler, argument }) => call("the handler of errors", || unsafe {
            handler(failure.code as c_int, sentence.as_ptr(), argument);
        }),
        None => end(failure.code.exit_status(), &sentence),
    }
    failure.code as c_int
}

/// Calls a function of the program's, named in case that it does not return. An exception of C++, `pthread_exit` and a
/// cancellation unwind the stack. None of them can go through the frames of Comem and of Rust's library, which others
/// may wait for: the node ends with a sentence.
pub fn call<T>(function: &str, work: impl FnOnce() -> T) -> T {
    struct Running<'a>(&'a str);
    impl Drop for Running<'_> {
        fn drop(&mut self) {
            let what = if is_an_exception() { "an exception" } else { "pthread_exit, or a cancellation," };
            let error = Error::Unwound { what, function: self.0.to_string() };
            crate::output::flush();
            match crate::job::started() {
                Some(job) => job.end_with(&error),
                None => end(error.exit_code(), &remember(&error.into())),
            }
        }
    }
    let running = Running(function);
    let result = work();
    std::mem::forget(running);
    result
}

/// Whether this thread unwinds its stack for an exception of C++; the others that it may do so for are no exceptions.
fn is_an_exception() -> bool {
    // SAFETY: the name is a string; the default order covers every library of the process.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_ZSt18uncaught_exceptionv".as_ptr()) };
    // SAFETY: null, or std::uncaught_exception(), which takes nothing and gives a bool.
    let is_one = unsafe { std::mem::transmute::<*mut c_void, Option<extern "C" fn() -> bool>>(found) };
    is_one.is_some_and(|is_one| is_one())
}

/// Ends the process with a sentence; what the program has printed so far gets out first. (A child made by `fork` has
/// what its parent had printed and will let out itself.)
pub fn end(status: c_int, sentence: &CStr) -> ! {
    if !comem_rt::in_a_child() {
        crate::output::flush();
    }
    comem_rt::error::say(format_args!("{}", sentence.to_string_lossy()));
    // SAFETY: ends the process at once. Other threads may be anywhere, so no destructor may run.
    unsafe { libc::_exit(status) }
}

/// Runs the body of a C function; a panic in it ends the node, since there is no way to carry it through C. (The panic
/// itself has been printed by Rust's hook.)
#[inline]
fn contained<T>(body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let what = "Comem has come upon an error of its own, printed above; please report it";
        let sentence = remember(&Failure::new(Code::System, what));
        end(comem_rt::error::exit::INTERNAL, &sentence)
    })
}

/// The body of a C function whose failures its callers check: gives the code.
pub fn checked(body: impl FnOnce() -> Outcome<c_int>) -> c_int {
    contained(body).unwrap_or_else(|failure| {
        remember(&failure);
        failure.code as c_int
    })
}

/// The body of a C function whose failures end the job, unless the program has a handler; `otherwise` is made from
/// the code.
#[inline]
pub fn reported<T>(body: impl FnOnce() -> Outcome<T>, otherwise: impl FnOnce(c_int) -> T) -> T {
    contained(body).unwrap_or_else(|failure| otherwise(report(&failure)))
}

/// As [`reported`], for functions that give 0 or a code.
#[inline]
pub fn done(body: impl FnOnce() -> Outcome<()>) -> c_int {
    reported(|| body().map(|()| 0), |code| code)
}

/// What a code means, in a few words.
#[unsafe(no_mangle)]
pub extern "C" fn comem_error_string(code: c_int) -> *const c_char {
    let known = Code::ALL.into_iter().find(|c| *c as c_int == code).map(Code::words);
    known.unwrap_or(if code >= 0 { c"no error" } else { c"an unknown error" }).as_ptr()
}

/// The sentence of this thread's last error; valid until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn comem_last_error() -> *const c_char {
    // A thread that is being taken down has no last error any more.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Sets or (null) removes the handler.
#[unsafe(no_mangle)]
pub extern "C" fn comem_set_error_handler(handler: Option<Handler>, argument: *mut c_void) {
    let installed = handler.map(|handler| Installed { handler, argument });
    *HANDLER.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = installed;
}

/// Ends the whole job.
///
/// # Safety
/// `sentence` is a string, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn comem_abort(status: c_int, sentence: *const c_char) {
    // SAFETY: by this function's contract.
    let said = unsafe { buffer::text_of(sentence) };
    let what = said.as_deref().unwrap_or(c"the program ended the job").to_string_lossy().into_owned();
    let sentence = remember(&Failure::new(Code::Stopped, what));
    // Status 0 would look like success to whoever started the node, which gets eight bits of it.
    end(if status & 0xff == 0 { 1 } else { status }, &sentence)
}
