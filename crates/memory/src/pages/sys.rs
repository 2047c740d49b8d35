//! Linux: one thin wrapper for each system call that the detectors use.
//!
//! Numbers and layouts are the kernel's user interface (`linux/userfaultfd.h`, `linux/fs.h`); the C library's crate
//! lacks them. Sizes are asserted because they are part of the request numbers.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The features asked of a userfaultfd, with the names under which people find them.
pub const FEATURES: [(u64, &str); 5] = [
    (FEATURE_SIGBUS, "UFFD_FEATURE_SIGBUS"),
    (FEATURE_MISSING_SHMEM, "UFFD_FEATURE_MISSING_SHMEM"),
    (FEATURE_MINOR_SHMEM, "UFFD_FEATURE_MINOR_SHMEM"),
    (FEATURE_WP_SHMEM, "UFFD_FEATURE_WP_HUGETLBFS_SHMEM"),
    (FEATURE_WP_ASYNC, "UFFD_FEATURE_WP_ASYNC"),
];

const FEATURE_WP: u64 = 1 << 0;
const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
const FEATURE_SIGBUS: u64 = 1 << 7;
const FEATURE_MINOR_SHMEM: u64 = 1 << 10;
const FEATURE_WP_SHMEM: u64 = 1 << 12;
const FEATURE_WP_ASYNC: u64 = 1 << 15;

const UFFD_API: u64 = 0xAA;
const USER_MODE_ONLY: libc::c_int = 1;
const REGISTER_MISSING: u64 = 1 << 0;
const REGISTER_WP: u64 = 1 << 1;
const REGISTER_MINOR: u64 = 1 << 2;
const CONTINUE_DONTWAKE: u64 = 1 << 0;
const CONTINUE_WP: u64 = 1 << 1;
const COPY_WP: u64 = 1 << 1;
const WRITEPROTECT_WP: u64 = 1 << 0;

const SCAN_WP_MATCHING: u64 = 1 << 0;
const SCAN_CHECK_WPASYNC: u64 = 1 << 1;
const PAGE_IS_WRITTEN: u64 = 1 << 1;

#[repr(C)]
#[derive(Default)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct AddressRange {
    start: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Register {
    range: AddressRange,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct Continue {
    range: AddressRange,
    mode: u64,
    mapped: i64,
}

#[repr(C)]
#[derive(Default)]
struct Copy {
    to: u64,
    from: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

#[repr(C)]
#[derive(Default)]
struct ZeroPage {
    range: AddressRange,
    mode: u64,
    zeroed: i64,
}

#[repr(C)]
#[derive(Default)]
struct WriteProtect {
    range: AddressRange,
    mode: u64,
}

#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// A run of pages that a scan found, as addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Region {
    /// The first page's address.
    pub start: u64,
    /// Where the run ends.
    pub end: u64,
    categories: u64,
}

const _: () = assert!(size_of::<Api>() == 24 && size_of::<Register>() == 32 && size_of::<Continue>() == 32);
const _: () = assert!(size_of::<ZeroPage>() == 32 && size_of::<Copy>() == 40);
const _: () = assert!(size_of::<WriteProtect>() == 24 && size_of::<Scan>() == 96 && size_of::<Region>() == 24);

/// The number of a request that reads and writes a `T`.
const fn iowr<T>(kind: u8, number: u8) -> libc::Ioctl {
    ((3_u64 << 30) | ((size_of::<T>() as u64) << 16) | ((kind as u64) << 8) | number as u64) as libc::Ioctl
}

const IOCTL_API: libc::Ioctl = iowr::<Api>(0xAA, 0x3F);
const IOCTL_REGISTER: libc::Ioctl = iowr::<Register>(0xAA, 0x00);
const IOCTL_WRITEPROTECT: libc::Ioctl = iowr::<WriteProtect>(0xAA, 0x06);
const IOCTL_CONTINUE: libc::Ioctl = iowr::<Continue>(0xAA, 0x07);
const IOCTL_COPY: libc::Ioctl = iowr::<Copy>(0xAA, 0x03);
const IOCTL_ZEROPAGE: libc::Ioctl = iowr::<ZeroPage>(0xAA, 0x04);
const IOCTL_SCAN: libc::Ioctl = iowr::<Scan>(b'f', 16);
const IOCTL_NEW: libc::Ioctl = 0xAA00;

const _: () = assert!(IOCTL_API == 0xC018_AA3F && IOCTL_SCAN == 0xC060_6610);

/// Readable and writable.
pub const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// What stands for this process where a call wants a descriptor of one; kernels that do not know it refuse.
const PIDFD_SELF: libc::c_long = -10_001;
/// Most ranges of one call.
const RANGES_MAX: usize = 1_024;

/// Unmaps parts of views, of shared files whose bytes stay in them, in one call for many of them: it flushes
/// translations once. `false` where the system does not do that, or refuses.
pub fn unmap_all(ranges: impl Iterator<Item = Range<usize>>) -> bool {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    let mut ranges: Vec<libc::iovec> = ranges
        .map(|range| libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(range.start), iov_len: range.len() })
        .collect();
    let mut left = &mut ranges[..];
    while !left.is_empty() && !REFUSED.load(Ordering::Relaxed) {
        let now = left.len().min(RANGES_MAX);
        let flags: libc::c_uint = 0;
        // SAFETY: the call reads so many ranges, of mappings whose bytes stay in their file.
        let done = unsafe {
            libc::syscall(libc::SYS_process_madvise, PIDFD_SELF, left.as_ptr(), now, libc::MADV_DONTNEED, flags)
        };
        match usize::try_from(done) {
            Ok(bytes) if bytes > 0 => left = behind(left, bytes),
            _ if matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {}
            _ => REFUSED.store(true, Ordering::Relaxed),
        }
    }
    left.is_empty()
}

/// What is left of the ranges behind so many bytes.
fn behind(mut ranges: &mut [libc::iovec], mut bytes: usize) -> &mut [libc::iovec] {
    while let Some(first) = ranges.first_mut() {
        if bytes < first.iov_len {
            first.iov_base = first.iov_base.wrapping_byte_add(bytes);
            first.iov_len -= bytes;
            break;
        }
        bytes -= first.iov_len;
        ranges = &mut ranges[1..];
    }
    ranges
}

/// An error that says which call failed.
pub fn refused(call: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{call}: {error}"))
}

fn failed(call: &str) -> io::Error {
    refused(call, &io::Error::last_os_error())
}

/// Takes over a descriptor that a system call returned, or its error.
fn owned(call: &str, fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(failed(call));
    }
    // SAFETY: the system call has just returned this descriptor to us and to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What a memory file of process `pid` is called. The number tells it from other processes' files of its kind, of which
/// that process may have some open for a moment, to map them.
pub fn file_name(kind: &str, pid: u32) -> String {
    format!("comem-{kind}-{pid}")
}

/// How long a file this process may make (`ulimit -f`).
fn file_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call fills the record, which is ours.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

/// A shared memory file of `bytes` bytes, all of it a hole, which other processes find by its kind.
pub fn memory_file(kind: &str, bytes: usize) -> io::Result<OwnedFd> {
    named_file(&file_name(kind, std::process::id()), bytes)
}

/// As [`memory_file`], with any name.
pub fn named_file(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    const NOEXEC_SEAL: libc::c_uint = 8;
    let limit = file_limit();
    if limit < bytes as u64 {
        // The kernel would end the process by a signal (SIGXFSZ).
        let what = format!("a memory file of {bytes} bytes is forbidden: files may have {limit} (ulimit -f)");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    let name = std::ffi::CString::new(name)?;
    let create = |flags| {
        // SAFETY: the name is a C string and the call touches nothing else of ours.
        owned("memfd_create", unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | flags) })
    };
    // Some systems refuse memory files that could be executed; kernels before 6.3 do not know the flag that says so.
    let file = create(NOEXEC_SEAL).or_else(|_| create(0))?;
    // SAFETY: an integer system call on a descriptor that is open.
    if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) } != 0 {
        return Err(failed("ftruncate"));
    }
    Ok(file)
}

fn open(path: &std::ffi::CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let name = path.to_string_lossy();
    // SAFETY: the path is a C string; no mode is needed because nothing is created.
    owned(&format!("open {name}"), unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) })
}

/// A userfaultfd that asks for the signal instead of messages; with `noting`, writes to protected pages are
/// noted by the kernel instead of delivered.
///
/// # Errors
/// The text names the call and, where the kernel is too old, the features it lacks.
pub fn userfaultfd(noting: bool) -> io::Result<OwnedFd> {
    let fd = new_userfaultfd()?;
    let wanted = FEATURES.iter().map(|(bit, _)| bit).fold(FEATURE_WP, |all, bit| all | bit);
    let wanted = if noting { wanted } else { wanted & !FEATURE_WP_ASYNC };
    let mut api = Api { api: UFFD_API, features: wanted, ioctls: 0 };
    // SAFETY: the request reads and writes one `Api`, which outlives the call.
    if unsafe { libc::ioctl(fd.as_raw_fd(), IOCTL_API, &raw mut api) } == 0 {
        return Ok(fd);
    }
    let error = io::Error::last_os_error();
    let missing = missing_features(wanted);
    if missing.is_empty() {
        return Err(refused("UFFDIO_API", &error));
    }
    let text = format!("this kernel's userfaultfd lacks {}", missing.join(", "));
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// By the system call, or by the device where an administrator opened that.
fn new_userfaultfd() -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
    // SAFETY: userfaultfd takes an integer and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) } as RawFd;
    owned("userfaultfd", fd).or_else(|error| {
        let device = open(c"/dev/userfaultfd", libc::O_RDWR).map_err(|_| error)?;
        // SAFETY: the request takes its flags by value.
        owned("USERFAULTFD_IOC_NEW", unsafe { libc::ioctl(device.as_raw_fd(), IOCTL_NEW, flags) })
    })
}

fn missing_features(wanted: u64) -> Vec<&'static str> {
    let Ok(fd) = new_userfaultfd() else { return Vec::new() };
    let mut api = Api { api: UFFD_API, features: 0, ioctls: 0 };
    // SAFETY: the request reads and writes one `Api`, which outlives the call.
    if unsafe { libc::ioctl(fd.as_raw_fd(), IOCTL_API, &raw mut api) } != 0 {
        return Vec::new();
    }
    let missing = wanted & !api.features;
    FEATURES.iter().filter(|(bit, _)| missing & bit != 0).map(|(_, name)| *name).collect()
}

/// Has all faults in the range reported: absent pages of the file (missing), absent entries for present pages (minor)
/// and writes to protected ones. Without *missing*, holes of the file would fill with zeros in silence.
pub fn register(uffd: BorrowedFd<'_>, start: usize, len: usize) -> io::Result<()> {
    let range = AddressRange { start: start as u64, len: len as u64 };
    let mut register = Register { range, mode: REGISTER_MISSING | REGISTER_MINOR | REGISTER_WP, ioctls: 0 };
    // SAFETY: the request reads and writes one `Register`, which outlives the call.
    if unsafe { libc::ioctl(uffd.as_raw_fd(), IOCTL_REGISTER, &raw mut register) } != 0 {
        return Err(failed("UFFDIO_REGISTER"));
    }
    const NEEDED: u64 = (1 << 6) | (1 << 7);
    if register.ioctls & NEEDED != NEEDED {
        let text = "this kernel's userfaultfd lacks UFFDIO_CONTINUE or UFFDIO_WRITEPROTECT for shared memory";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    Ok(())
}

/// How far a `UFFDIO_CONTINUE` came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continued {
    /// This many bytes are mapped, perhaps not all that were asked for.
    Mapped(usize),
    /// The first page is mapped already.
    Present,
    /// The file has no page there yet.
    Hole,
}

/// Maps the file's pages into the range, up to the first page where that is not possible.
pub fn continue_range(uffd: BorrowedFd<'_>, start: usize, len: usize, protected: bool) -> io::Result<Continued> {
    // Nobody sleeps in a fault: faults are signals here.
    let mode = CONTINUE_DONTWAKE | if protected { CONTINUE_WP } else { 0 };
    loop {
        let range = AddressRange { start: start as u64, len: len as u64 };
        let mut request = Continue { range, mode, mapped: 0 };
        // SAFETY: the request reads and writes one `Continue`, which outlives the call; it maps pages of the file that
        // is mapped at this range anyway.
        if unsafe { libc::ioctl(uffd.as_raw_fd(), IOCTL_CONTINUE, &raw mut request) } == 0 {
            return Ok(Continued::Mapped(len));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // The walk stopped behind pages that are mapped now.
            Some(libc::EAGAIN) if request.mapped > 0 => return Ok(Continued::Mapped(request.mapped as usize)),
            // The address space is changing (a fork or a mapping elsewhere): nothing was done, try again.
            Some(libc::EAGAIN | libc::EINTR) => std::hint::spin_loop(),
            // Another thread that faulted on the page was first.
            Some(libc::EEXIST) => return Ok(Continued::Present),
            Some(libc::EFAULT) => return Ok(Continued::Hole),
            _ => return Err(refused("UFFDIO_CONTINUE", &error)),
        }
    }
}

/// Has the kernel go through `len` bytes, in several calls if it must: `call` goes on behind so many, and gives its
/// result and how far it got. Gives how many bytes were gone through before it failed for good.
fn as_far_as_possible(len: usize, mut call: impl FnMut(usize) -> (libc::c_int, i64)) -> usize {
    let mut done = 0;
    while done < len {
        let (result, more) = call(done);
        if result == 0 {
            return len;
        }
        let again = matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EINTR));
        done += usize::try_from(more).unwrap_or(0);
        if !again {
            break;
        }
        std::hint::spin_loop();
    }
    done
}

/// Gives the file's holes in the range these bytes and maps them, up to the first page that is there already or cannot
/// be had. Gives how many bytes that are.
///
/// # Safety
/// The range is the caller's to change, and nobody relies on its holes being zero.
pub unsafe fn copy_range(uffd: BorrowedFd<'_>, start: usize, bytes: &[u8], protected: bool) -> usize {
    let mode = if protected { COPY_WP } else { 0 };
    as_far_as_possible(bytes.len(), |done| {
        let (to, from) = ((start + done) as u64, bytes[done..].as_ptr().expose_provenance() as u64);
        let mut request = Copy { to, from, len: (bytes.len() - done) as u64, mode, copied: 0 };
        // SAFETY: the request reads and writes one `Copy`, which outlives the call; the kernel reads `len` bytes of the
        // slice and writes as many to a range that this function's caller vouches for.
        let result = unsafe { libc::ioctl(uffd.as_raw_fd(), IOCTL_COPY, &raw mut request) };
        (result, request.copied)
    })
}

/// Gives the file's holes in the range zeros and maps them, writable and unprotected, up to the first page that is
/// there already or cannot be had. Gives how many bytes that are.
pub fn zero_range(uffd: BorrowedFd<'_>, start: usize, len: usize) -> usize {
    as_far_as_possible(len, |done| {
        let range = AddressRange { start: (start + done) as u64, len: (len - done) as u64 };
        let mut request = ZeroPage { range, mode: 0, zeroed: 0 };
        // SAFETY: the request reads and writes one `ZeroPage`, which outlives the call; it changes nothing but holes,
        // which hold zeros anyway.
        let result = unsafe { libc::ioctl(uffd.as_raw_fd(), IOCTL_ZEROPAGE, &raw mut request) };
        (result, request.zeroed)
    })
}

/// Protects the range's pages against writes, or lifts that. When it returns, no processor uses an older entry.
pub fn write_protect(uffd: BorrowedFd<'_>, start: usize, len: usize, protected: bool) -> io::Result<()> {
    let mode = if protected { WRITEPROTECT_WP } else { 0 };
    loop {
        let range = AddressRange { start: start as u64, len: len as u64 };
        let mut request = WriteProtect { range, mode };
        // SAFETY: the request reads one `WriteProtect`; it changes protections only.
        if unsafe { libc::ioctl(uffd.as_raw_fd(), IOCTL_WRITEPROTECT, &raw mut request) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // The address space is changing: nothing was done, try again.
            Some(libc::EAGAIN | libc::EINTR) => std::hint::spin_loop(),
            _ => return Err(refused("UFFDIO_WRITEPROTECT", &error)),
        }
    }
}

/// This process's page table, as a file.
pub fn pagemap() -> io::Result<OwnedFd> {
    open(c"/proc/self/pagemap", libc::O_RDONLY)
}

/// What becomes of the notes of writes that a scan has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notes {
    /// The pages are clean and protected.
    Taken,
    /// They stay.
    Kept,
}

/// Finds written pages in a range of addresses, in one walk of the page table. Fills `found` from its beginning;
/// returns how many regions there are and the address where the walk ended, for want of room perhaps.
pub fn scan_written(
    pagemap: BorrowedFd<'_>,
    range: Range<usize>,
    notes: Notes,
    found: &mut [Region],
) -> io::Result<(usize, usize)> {
    loop {
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags: SCAN_CHECK_WPASYNC | if notes == Notes::Taken { SCAN_WP_MATCHING } else { 0 },
            start: range.start as u64,
            end: range.end as u64,
            vec: found.as_mut_ptr() as u64,
            vec_len: found.len() as u64,
            category_mask: PAGE_IS_WRITTEN,
            return_mask: PAGE_IS_WRITTEN,
            ..Scan::default()
        };
        // SAFETY: the request reads and writes one `Scan` and at most `vec_len` regions of `found`.
        let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), IOCTL_SCAN, &raw mut scan) };
        if count >= 0 {
            return Ok((count as usize, scan.walk_end as usize));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // A signal came before the walk had begun.
            Some(libc::EINTR) => {}
            _ => return Err(refused("PAGEMAP_SCAN", &error)),
        }
    }
}

/// Makes sure that the file has pages in the range; new ones are zero.
pub fn populate(file: BorrowedFd<'_>, start: usize, len: usize) -> io::Result<()> {
    // A signal makes the kernel undo the whole call, so it is asked for little at a time.
    const STEP: usize = 1 << 20;
    let (mut at, end) = (start, start + len);
    while at < end {
        let step = STEP.min(end - at);
        // SAFETY: an integer system call on a descriptor that is open.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, at as libc::off_t, step as libc::off_t) } == 0 {
            at += step;
            continue;
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(refused("fallocate", &error));
        }
    }
    Ok(())
}

/// Gives the file's pages in the range back.
pub fn punch(file: BorrowedFd<'_>, start: usize, len: usize) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    loop {
        // SAFETY: an integer system call on a descriptor that is open.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, start as libc::off_t, len as libc::off_t) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(refused("fallocate(PUNCH_HOLE)", &error));
        }
    }
}

/// Bytes of memory that the file takes.
pub fn file_bytes(file: BorrowedFd<'_>) -> u64 {
    // SAFETY: all-zero bytes are a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: writes one `stat`, which outlives the call.
    match unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) } {
        0 => stat.st_blocks as u64 * 512,
        _ => 0,
    }
}

/// Whether something is mapped at all of these addresses, which begin and end with a page.
pub fn is_mapped(start: usize, bytes: usize) -> bool {
    let mut residence = vec![0_u8; bytes / super::PAGE_BYTES];
    // SAFETY: asks about addresses, and the answer has room for a byte a page.
    let asked = unsafe { libc::mincore(start as *mut libc::c_void, bytes, residence.as_mut_ptr()) };
    asked == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM)
}

/// A mapping of a file or, without one, of nothing; unmapped when dropped.
#[derive(Debug)]
pub struct View {
    start: usize,
    bytes: usize,
}

impl View {
    /// Maps `bytes` bytes of `file` from its beginning. With `base`, exactly there and only if nothing is there yet.
    pub fn new(base: Option<usize>, bytes: usize, protection: i32, file: Option<BorrowedFd<'_>>) -> io::Result<View> {
        let kind = if file.is_some() { libc::MAP_SHARED } else { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS };
        let place = if base.is_some() { libc::MAP_FIXED_NOREPLACE } else { 0 };
        let flags = kind | place | libc::MAP_NORESERVE;
        let fd = file.map_or(-1, |file| file.as_raw_fd());
        let hint = std::ptr::without_provenance_mut(base.unwrap_or(0));
        // SAFETY: without MAP_FIXED the kernel touches no mapping that exists.
        let start = unsafe { libc::mmap(hint, bytes, protection, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        let view = View { start: start.expose_provenance(), bytes };
        // Kernels before 4.17 take the address for a wish.
        if base.is_some_and(|base| base != view.start) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "mmap: something is mapped at this address"));
        }
        view.wish();
        Ok(view)
    }

    /// Maps `bytes` bytes of `file` from `offset` on, anywhere, to read and write.
    pub fn of_part(file: BorrowedFd<'_>, offset: usize, bytes: usize) -> io::Result<View> {
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let (hint, fd, offset) = (std::ptr::null_mut(), file.as_raw_fd(), offset as libc::off_t);
        // SAFETY: without MAP_FIXED the kernel touches no mapping that exists.
        let start = unsafe { libc::mmap(hint, bytes, BOTH, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        let view = View { start: start.expose_provenance(), bytes };
        view.wish();
        Ok(view)
    }

    /// Maps `bytes` bytes at `start` in place of whatever is mapped there: of a file from an offset on, shared with its
    /// other views or as a private copy; without a file, of nothing.
    ///
    /// # Safety
    /// The range is the program's own memory, and nobody needs what stands there.
    pub unsafe fn over(
        start: usize,
        bytes: usize,
        protection: i32,
        file: Option<(BorrowedFd<'_>, usize)>,
        shared: bool,
    ) -> io::Result<View> {
        let kind = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let kind = if file.is_some() { kind } else { kind | libc::MAP_ANONYMOUS };
        let (fd, offset) = file.map_or((-1, 0), |(file, offset)| (file.as_raw_fd(), offset));
        let flags = kind | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let hint = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: by this function's contract the mapping that is replaced is no longer needed.
        let mapped = unsafe { libc::mmap(hint, bytes, protection, flags, fd, offset as libc::off_t) };
        if mapped == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        Ok(View { start: mapped.expose_provenance(), bytes })
    }

    /// No core dump, which would give each page of terabytes memory in order to read it; no huge pages, which would
    /// give memory to the neighbours of a page. Their failure costs nothing.
    pub fn wish(&self) {
        for advice in [libc::MADV_DONTDUMP, libc::MADV_NOHUGEPAGE] {
            let _ = self.advise(0, self.bytes, advice);
        }
    }

    /// Unmaps a part of it: something else may be mapped there from then on.
    ///
    /// # Safety
    /// Nobody uses this part any more, and the view is never dropped.
    pub unsafe fn unmap(&self, offset: usize, len: usize) -> io::Result<()> {
        // SAFETY: within the view, and by this function's contract nobody uses it, nor unmaps it once more.
        match unsafe { libc::munmap(self.pointer(offset, len), len) } {
            0 => Ok(()),
            _ => Err(failed("munmap")),
        }
    }

    /// Where it begins.
    pub fn start(&self) -> usize {
        self.start
    }

    /// How long it is, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn pointer(&self, offset: usize, len: usize) -> *mut libc::c_void {
        debug_assert!(offset.checked_add(len).is_some_and(|end| end <= self.bytes));
        std::ptr::with_exposed_provenance_mut(self.start + offset)
    }

    /// Changes what a part of the view permits.
    ///
    /// # Errors
    /// What the system says, undecorated: ENOMEM when the process has as many mappings as it may.
    pub fn mprotect(&self, offset: usize, len: usize, protection: i32) -> io::Result<()> {
        // SAFETY: within the view, which only programs under a fault handler use.
        match unsafe { libc::mprotect(self.pointer(offset, len), len, protection) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Gives advice on a part of the view; of the advices used here none loses bytes of a shared file.
    pub fn advise(&self, offset: usize, len: usize, mut advice: i32) -> io::Result<()> {
        loop {
            // SAFETY: within the view; a shared file's bytes stay in the file.
            if unsafe { libc::madvise(self.pointer(offset, len), len, advice) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                // A kernel resource is busy for the moment.
                Some(libc::EAGAIN | libc::EINTR) => {}
                // The program has locked pages of it into memory (`mlock`).
                Some(libc::EINVAL) if advice == libc::MADV_DONTNEED => advice = crate::mapping::DONTNEED_LOCKED,
                _ => return Err(refused("madvise", &error)),
            }
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours since `new`, and its owner has no more use for it.
        unsafe { libc::munmap(self.pointer(0, self.bytes), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_ranges_begins_behind_what_was_done() {
        let left = |bytes| {
            let range = |(start, iov_len)| libc::iovec { iov_base: std::ptr::without_provenance_mut(start), iov_len };
            let mut ranges = [(100, 10), (200, 20), (300, 30)].map(range);
            behind(&mut ranges, bytes).iter().map(|left| (left.iov_base.addr(), left.iov_len)).collect::<Vec<_>>()
        };
        assert_eq!(left(0), [(100, 10), (200, 20), (300, 30)]);
        assert_eq!(left(9), [(109, 1), (200, 20), (300, 30)]);
        assert_eq!(left(10), [(200, 20), (300, 30)]);
        assert_eq!(left(35), [(305, 25)]);
        assert_eq!(left(60), []);
    }
}
