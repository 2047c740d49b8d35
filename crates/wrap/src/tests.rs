//! The rules, with a heap that is played: its pages are always here, but the calls can be told to meet EFAULT.

use crate::heap::{self, Way};
use crate::transfer::{DETOUR_BYTES, PIECE_BYTES, TRIES, transfer};
use crate::{errno, streams, vectors};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

const HEAP_BYTES: usize = 32 << 20;
/// Memory of the heap that belongs to no allocation.
const NOT_ALLOCATED: usize = HEAP_BYTES - 4096;

thread_local! {
    static TOUCHES: Cell<usize> = const { Cell::new(0) };
    static FAULTS: Cell<usize> = const { Cell::new(0) };
}

unsafe extern "C" fn touch(start: *const c_void, bytes: usize, _write: c_int) -> c_int {
    TOUCHES.set(TOUCHES.get() + 1);
    if start.addr() + bytes > heap_start().addr() + NOT_ALLOCATED { -1 } else { 0 }
}

/// The played heap.
fn heap_start() -> *mut u8 {
    static HEAP: OnceLock<usize> = OnceLock::new();
    let start = *HEAP.get_or_init(|| vec![0_u8; HEAP_BYTES].leak().as_mut_ptr().expose_provenance());
    heap::set(start, HEAP_BYTES, touch);
    std::ptr::with_exposed_provenance_mut(start)
}

/// Part of the heap for one test, with known bytes.
fn shared(at: usize, bytes: usize) -> &'static mut [u8] {
    // SAFETY: each test takes a part of its own.
    let part = unsafe { std::slice::from_raw_parts_mut(heap_start().add(at), bytes) };
    part.iter_mut().enumerate().for_each(|(i, byte)| *byte = pattern(i));
    TOUCHES.set(0);
    part
}

fn pattern(index: usize) -> u8 {
    (index * 7 + index / 251) as u8
}

fn fault() -> isize {
    errno::set(libc::EFAULT);
    -1
}

/// A descriptor of no regular file.
fn stream() -> std::fs::File {
    std::fs::File::open("/dev/null").unwrap()
}

/// A file without a name.
fn file() -> std::fs::File {
    // SAFETY: a new stream, whose descriptor is copied before it goes.
    unsafe {
        let stream = libc::tmpfile();
        let fd = libc::dup(libc::fileno(stream));
        libc::fclose(stream);
        std::os::fd::FromRawFd::from_raw_fd(fd)
    }
}

#[test]
fn private_memory_goes_straight_through() {
    heap_start();
    TOUCHES.set(0);
    let mut own = [1_u8; 100];
    let mut calls = Vec::new();
    let start = own.as_mut_ptr();
    // SAFETY: the call only notes what it gets.
    let moved = unsafe {
        transfer(-1, start, 100, Way::Out, |at, n, done| {
            calls.push((at, n, done));
            fault()
        })
    };
    assert_eq!((moved, calls, TOUCHES.get()), (-1, vec![(start, 100, 0)], 0));
}

#[test]
fn a_page_that_is_taken_away_meanwhile_is_brought_again() {
    let part = shared(0, 5000);
    let null = stream();
    let mut left = 2;
    // SAFETY: as above.
    let moved = unsafe {
        transfer(null.as_raw_fd(), part.as_mut_ptr(), 5000, Way::Out, |_, n, _| {
            if left == 0 {
                return n as isize;
            }
            left -= 1;
            fault()
        })
    };
    assert_eq!((moved, TOUCHES.get()), (5000, 3));
}

#[test]
fn another_error_is_the_callers() {
    let part = shared(8192, 5000);
    let null = stream();
    let mut calls = 0;
    // SAFETY: as above.
    let moved = unsafe {
        transfer(null.as_raw_fd(), part.as_mut_ptr(), 5000, Way::In, |_, _, _| {
            calls += 1;
            errno::set(libc::EAGAIN);
            -1
        })
    };
    assert_eq!((moved, calls, errno::get()), (-1, 1, libc::EAGAIN));
}

#[test]
fn bytes_that_never_stay_take_the_way_through_private_memory() {
    let (null, (pipe, _writer)) = (stream(), std::io::pipe().unwrap());
    for (way, descriptor, most) in
        [(Way::Out, null.as_raw_fd(), TRIES), (Way::In, pipe.as_raw_fd(), TRIES), (Way::In, null.as_raw_fd(), 0)]
    {
        // From a device it would be lost.
        let part = shared(16384, 5000);
        let start = part.as_mut_ptr();
        let mut tries = 0;
        // SAFETY: the call uses no more than it is given.
        let moved = unsafe {
            transfer(descriptor, start, 5000, way, |at, n, _| {
                if at == start {
                    tries += 1;
                    return fault();
                }
                let bytes = std::slice::from_raw_parts_mut(at, n);
                match way {
                    Way::Out => assert!(bytes.iter().enumerate().all(|(i, b)| *b == pattern(i))),
                    Way::In => bytes[..3000].fill(9),
                }
                3000
            })
        };
        assert_eq!((moved, tries), (3000, most));
        let kept = if way == Way::In { 3000 } else { 0 };
        assert!(part.iter().enumerate().all(|(i, b)| *b == if i < kept { 9 } else { pattern(i) }));
    }
}

#[test]
fn memory_that_is_not_allocated_meets_what_it_would_have_met() {
    let null = stream();
    heap_start();
    let mut calls = 0;
    // SAFETY: as above.
    let moved = unsafe {
        transfer(null.as_raw_fd(), heap_start().add(NOT_ALLOCATED), 10, Way::Out, |_, _, _| {
            calls += 1;
            fault()
        })
    };
    assert_eq!((moved, calls, errno::get()), (-1, 1, libc::EFAULT));
}

#[test]
fn files_are_moved_in_pieces_each_touched_before_its_call() {
    let bytes = 2 * PIECE_BYTES + 100;
    let part = shared(1 << 20, bytes);
    let mut to = file();
    let fd = to.as_raw_fd();
    let mut places = Vec::new();
    errno::set(7);
    // SAFETY: the buffer is that long.
    let moved = unsafe {
        transfer(fd, part.as_mut_ptr(), bytes, Way::Out, |at, n, done| {
            places.push(done);
            libc::pwrite(fd, at.cast(), n, done as i64)
        })
    };
    assert_eq!((moved, errno::get()), (bytes as isize, 7));
    assert_eq!((places, TOUCHES.get()), (vec![0, PIECE_BYTES, 2 * PIECE_BYTES], 3));
    let mut written = Vec::new();
    to.rewind().unwrap();
    to.read_to_end(&mut written).unwrap();
    assert!(written == part);
}

/// A page that was taken away in the midst of a call ended it early, on a pipe whose writer had no reason to expect
/// that.
#[test]
fn all_is_written_to_a_pipe_from_memory_that_nobody_can_take_away() {
    let bytes = 2 * DETOUR_BYTES + 100;
    let part = shared(12 << 20, bytes);
    let (_to, from) = std::io::pipe().unwrap();
    let heap = heap_start().addr()..heap_start().addr() + HEAP_BYTES;
    for (last, moved) in [(100, bytes), (40, bytes - 60), (0, 2 * DETOUR_BYTES)] {
        let mut written = Vec::new();
        // SAFETY: the buffer is that long.
        let all = unsafe {
            transfer(from.as_raw_fd(), part.as_mut_ptr(), bytes, Way::Out, |at, n, done| {
                assert!(!heap.contains(&at.addr()) && done == written.len());
                let n = if done + n == bytes { last } else { n };
                written.extend_from_slice(std::slice::from_raw_parts(at, n));
                // A reader that is slow, and a descriptor that does not wait.
                if n == 0 { -1 } else { n as isize }
            })
        };
        assert_eq!((all, written.len()), (moved as isize, moved));
        assert!(written == part[..moved]);
    }
}

#[test]
fn what_does_not_stay_here_is_moved_in_small_pieces_from_then_on() {
    let part = shared(13 << 20, PIECE_BYTES);
    let mut to = file();
    let fd = to.as_raw_fd();
    let mut write = || {
        let mut sizes = Vec::new();
        // SAFETY: the buffer is that long.
        let moved = unsafe {
            transfer(fd, part.as_mut_ptr(), PIECE_BYTES, Way::Out, |at, n, done| {
                sizes.push(n);
                if n > DETOUR_BYTES { fault() } else { libc::pwrite(fd, at.cast(), n, done as i64) }
            })
        };
        assert_eq!(moved, PIECE_BYTES as isize);
        sizes
    };
    let pieces = PIECE_BYTES / DETOUR_BYTES;
    assert_eq!(write(), [vec![PIECE_BYTES], vec![DETOUR_BYTES; pieces]].concat());
    assert_eq!(write(), vec![DETOUR_BYTES; pieces]);
    let mut written = Vec::new();
    to.rewind().unwrap();
    to.read_to_end(&mut written).unwrap();
    assert!(written == part);
}

/// A file whose bytes do not go through the kernel's cache; `None` where the file system has none.
fn direct_file() -> Option<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = std::env::current_exe().unwrap().with_file_name(format!("comem-wrap-direct-{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
    let opened = options.open(&path);
    let _ = std::fs::remove_file(&path);
    match opened {
        Ok(file) => Some(file),
        Err(error) => {
            println!("SKIP: files opened with O_DIRECT: {error}");
            None
        }
    }
}

#[test]
fn a_device_never_gets_pages_that_may_be_taken_away() {
    let bytes = PIECE_BYTES + 8192;
    let part = shared(8 << 20, bytes);
    let Some(file) = direct_file() else { return };
    let (fd, heap) = (file.as_raw_fd(), heap_start().addr()..heap_start().addr() + HEAP_BYTES);
    let mut moves = 0;
    let mut check = |at: *mut u8| {
        moves += 1;
        assert!(!heap.contains(&at.addr()) && at.addr().is_multiple_of(4096));
    };
    // SAFETY: the buffer is that long.
    let moved = unsafe {
        transfer(fd, part.as_mut_ptr(), bytes, Way::Out, |at, n, done| {
            check(at);
            libc::pwrite(fd, at.cast(), n, done as i64)
        })
    };
    assert_eq!(moved, bytes as isize);
    part.fill(0);
    // SAFETY: as above.
    let moved = unsafe {
        transfer(fd, part.as_mut_ptr(), bytes, Way::In, |at, n, done| {
            check(at);
            libc::pread(fd, at.cast(), n, done as i64)
        })
    };
    assert!(part.iter().enumerate().all(|(i, byte)| *byte == pattern(i)));
    let list = [libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: 8192 }];
    // SAFETY: as above.
    let at_once = unsafe {
        vectors::transfer(fd, list.as_ptr(), 1, Way::Out, |parts, count| {
            check((*parts).iov_base.cast());
            libc::pwritev(fd, parts, count, 0)
        })
    };
    assert_eq!((moved, at_once, moves), (bytes as isize, 8192, 5));
}

#[test]
fn a_file_that_ends_early_gives_what_it_has() {
    let part = shared(4 << 20, 3 * PIECE_BYTES);
    let from = file();
    from.set_len(PIECE_BYTES as u64 + 50).unwrap();
    let fd = from.as_raw_fd();
    // SAFETY: the buffer is that long.
    let moved = unsafe {
        transfer(fd, part.as_mut_ptr(), part.len(), Way::In, |at, n, done| libc::pread(fd, at.cast(), n, done as i64))
    };
    assert_eq!(moved, PIECE_BYTES as isize + 50);
    assert!(part[..moved as usize].iter().all(|b| *b == 0) && part[moved as usize] == pattern(moved as usize));
}

#[test]
fn messages_are_received_where_no_page_can_be_taken_away() {
    let part = shared(32768, 100);
    let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
    theirs.send(b"hello").unwrap();
    let (fd, start) = (ours.as_raw_fd(), part.as_mut_ptr());
    // SAFETY: the call uses no more than it is given.
    let moved = unsafe {
        transfer(fd, start, 100, Way::In, |at, n, _| {
            assert_ne!(at, start);
            libc::recv(fd, at.cast(), n, 0)
        })
    };
    assert_eq!((moved, &part[..5], part[5]), (5, &b"hello"[..], pattern(5)));
}

#[test]
fn a_message_is_received_where_there_is_no_room_for_any_of_it() {
    let part = shared(57344, 100);
    let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let (fd, start) = (ours.as_raw_fd(), part.as_mut_ptr());
    theirs.send(b"hello").unwrap();
    let receive = |at: *mut u8, n, flags| {
        // SAFETY: the call uses no more than it is given.
        unsafe { transfer(fd, at, n, Way::In, |at, n, _| libc::recv(fd, at.cast(), n, flags)) }
    };
    assert_eq!(receive(start, 0, libc::MSG_PEEK | libc::MSG_TRUNC), 5, "its length");
    let nothing = libc::iovec { iov_base: start.cast(), iov_len: 0 };
    // SAFETY: all zero is a value of this structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // SAFETY: the call uses no more than it is given.
    let moved = unsafe {
        vectors::transfer(fd, &raw const nothing, 1, Way::In, |parts, count| {
            (message.msg_iov, message.msg_iovlen) = (parts.cast_mut(), count as _);
            libc::recvmsg(fd, &raw mut message, 0)
        })
    };
    assert_eq!((moved, message.msg_flags & libc::MSG_TRUNC), (0, libc::MSG_TRUNC));
    assert_eq!((receive(start, 0, libc::MSG_DONTWAIT), errno::get()), (-1, libc::EAGAIN), "it is gone");
    assert!(part.iter().enumerate().all(|(i, byte)| *byte == pattern(i)));
}

#[test]
fn of_several_buffers_those_that_are_shared_make_the_detour() {
    let part = shared(40960, 3000);
    let mut own = [5_u8; 100];
    let (null, _writer) = std::io::pipe().unwrap();
    let list = [
        libc::iovec { iov_base: own.as_mut_ptr().cast(), iov_len: 100 },
        libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: 3000 },
    ];
    let mut seen = 0;
    // SAFETY: the call uses no more than it is given.
    let moved = unsafe {
        vectors::transfer(null.as_raw_fd(), list.as_ptr(), 2, Way::In, |parts, count| {
            let parts = std::slice::from_raw_parts(parts, count as usize);
            assert_eq!((count, parts[0].iov_base), (2, list[0].iov_base));
            if parts[1].iov_base == list[1].iov_base {
                seen += 1;
                return fault();
            }
            for (part, bytes) in parts.iter().zip([100, 1000]) {
                std::slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), bytes).fill(8);
            }
            1100
        })
    };
    assert_eq!((moved, seen), (1100, TRIES));
    assert!(own.iter().all(|b| *b == 8) && part[..1000].iter().all(|b| *b == 8) && part[1000] == pattern(1000));
}

#[test]
fn what_a_call_leaves_of_several_buffers_of_a_file_follows() {
    let part = shared(53248, 3000);
    let mut own = [0_u8; 100];
    let list = [(part.as_mut_ptr(), 2000), (own.as_mut_ptr(), 100), (part.as_mut_ptr().wrapping_add(2000), 1000)];
    let list = list.map(|(start, iov_len)| libc::iovec { iov_base: start.cast(), iov_len });
    for (is_file, first, end, wanted) in
        [(true, 500, 9999, 3100), (true, 2050, 9999, 3100), (true, 500, 2500, 2500), (false, 500, 9999, 500)]
    {
        let descriptor = if is_file { file() } else { stream() };
        let mut asked = Vec::new();
        // SAFETY: the calls fill no more than they are given.
        let moved = unsafe {
            let one = |start: *mut u8, n: usize, done: usize| {
                asked.push(done);
                let n = n.min(end - done);
                std::slice::from_raw_parts_mut(start, n).iter_mut().zip(done..).for_each(|(b, i)| *b = pattern(i));
                n as isize
            };
            vectors::transfer_all(descriptor.as_raw_fd(), list.as_ptr(), 3, Way::In, |_, _| first as isize, one)
        };
        assert_eq!(moved, wanted, "{first}");
        let from = asked.first().copied();
        assert_eq!(from, is_file.then_some(first), "{first}");
        if end == 9999 && is_file {
            let all = part[..2000].iter().chain(&own).chain(&part[2000..]);
            assert!(all.zip(0..).skip(first).all(|(byte, i)| *byte == pattern(i)), "{first}");
        }
    }
}

#[test]
fn a_buffer_that_is_no_memory_beside_a_shared_one_is_an_error() {
    let part = shared(45056, 4);
    let (reader, writer) = std::io::pipe().unwrap();
    let nowhere = libc::iovec { iov_base: std::ptr::without_provenance_mut(16), iov_len: 10 };
    let list = [nowhere, libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: 4 }];
    // SAFETY: the kernel refuses what is no memory.
    let moved = unsafe {
        vectors::transfer(writer.as_raw_fd(), list.as_ptr(), 2, Way::Out, |parts, count| {
            libc::writev(writer.as_raw_fd(), parts, count)
        })
    };
    assert_eq!((moved, errno::get()), (-1, libc::EFAULT));
    let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
    theirs.send(b"hello").unwrap();
    // SAFETY: as above.
    let moved = unsafe {
        vectors::transfer(ours.as_raw_fd(), list.as_ptr(), 2, Way::In, |parts, count| {
            libc::readv(ours.as_raw_fd(), parts, count)
        })
    };
    assert_eq!((moved, errno::get()), (-1, libc::EFAULT));
    drop(reader);
}

#[test]
fn a_size_that_no_buffer_has_and_no_bytes_at_all_are_for_the_kernel_to_judge() {
    let part = shared(53248, 4);
    let (reading, writing) = (stream(), std::fs::File::options().append(true).open("/proc/self/comm").unwrap());
    let start = part.as_mut_ptr();
    for (fd, bytes, why) in [(writing.as_raw_fd(), 0, libc::EBADF), (reading.as_raw_fd(), usize::MAX, libc::EFAULT)] {
        // SAFETY: the kernel refuses the call.
        let moved = unsafe { transfer(fd, start, bytes, Way::In, |at, n, _| libc::read(fd, at.cast(), n)) };
        assert_eq!((moved, errno::get()), (-1, why), "{bytes} bytes");
    }
}

/// Takes the first half, and then meets EFAULT as often as told.
unsafe fn half_and_faults(at: *mut u8, bytes: usize, stream: *mut libc::FILE) -> usize {
    if FAULTS.get() == 0 {
        // SAFETY: the caller's buffer and stream.
        return unsafe { libc::fwrite(at.cast(), 1, bytes, stream) };
    }
    FAULTS.set(FAULTS.get() - 1);
    // SAFETY: as above.
    let half = unsafe { libc::fwrite(at.cast(), 1, bytes / 2, stream) };
    fault();
    half
}

#[test]
fn a_stream_goes_on_where_the_fault_was() {
    let part = shared(49152, 6000);
    // SAFETY: the stream is open until its end here, and the buffer is that long.
    unsafe {
        let stream = libc::tmpfile();
        for faults in [0, 1, TRIES] {
            libc::rewind(stream);
            FAULTS.set(faults);
            errno::set(7);
            assert_eq!(streams::moved(part.as_mut_ptr(), 6000, stream, Way::Out, half_and_faults), 6000);
            assert_eq!((FAULTS.get(), errno::get(), libc::ferror(stream)), (0, 7, 0));
            let mut got = vec![0_u8; 6001];
            libc::rewind(stream);
            assert_eq!(libc::fread(got.as_mut_ptr().cast(), 1, 6001, stream), 6000);
            assert!(got[..6000] == *part);
        }
        libc::fclose(stream);
    }
}

/// Lines memory that is played, in the second half of the heap: it holds other bytes than those that are copied from
/// it.
mod lines {
    use super::*;
    use std::sync::Mutex;

    pub const START: usize = HEAP_BYTES / 2;
    const BYTES: usize = HEAP_BYTES / 4;
    /// What is not here reads as this.
    pub const FILL: u8 = 0xfd;

    /// What the memory holds in truth.
    static TRUE: Mutex<Vec<u8>> = Mutex::new(Vec::new());

    unsafe extern "C" fn copy(private: *mut c_void, lines: *mut c_void, bytes: usize, stores: c_int) {
        let at = lines.addr() - heap_start().addr() - START;
        let mut memory = TRUE.lock().unwrap();
        // SAFETY: the caller's private memory is that long.
        let private = unsafe { std::slice::from_raw_parts_mut(private.cast::<u8>(), bytes) };
        match stores {
            0 => private.copy_from_slice(&memory[at..at + bytes]),
            _ => memory[at..at + bytes].copy_from_slice(private),
        }
    }

    /// So many bytes from `at` on, which hold a pattern.
    pub fn part(at: usize, bytes: usize) -> *mut u8 {
        let start = heap_start().wrapping_add(START);
        let mut memory = TRUE.lock().unwrap();
        if memory.is_empty() {
            memory.resize(BYTES, 0);
            // SAFETY: this part of the played heap is lines memory.
            unsafe { start.write_bytes(FILL, BYTES) };
        }
        heap::set_lines(start.addr(), BYTES, copy);
        (0..bytes).for_each(|index| memory[at + index] = pattern(index));
        start.wrapping_add(at)
    }

    /// What they hold, once it is sure that nobody has stored there directly.
    pub fn bytes(at: *mut u8, bytes: usize) -> Vec<u8> {
        // SAFETY: part of the played heap.
        let direct = unsafe { std::slice::from_raw_parts(at, bytes) };
        assert!(direct.iter().all(|byte| *byte == FILL), "the kernel or the C library stored to lines memory");
        let from = at.addr() - heap_start().addr() - START;
        TRUE.lock().unwrap()[from..from + bytes].to_vec()
    }
}

#[test]
fn lines_memory_never_reaches_a_call() {
    let bytes = PIECE_BYTES + DETOUR_BYTES + 777;
    let own = |count: usize| (0..count).map(pattern).collect::<Vec<u8>>();
    let part = lines::part(0, bytes);
    let mut file = file();
    // SAFETY: the descriptors are this test's, and the buffers that long.
    unsafe {
        let fd = file.as_raw_fd();
        assert_eq!(crate::files::write(fd, part.cast(), bytes), bytes as isize);
        let (mut there, zeros) = (Vec::new(), vec![0; bytes]);
        file.rewind().unwrap();
        file.read_to_end(&mut there).unwrap();
        assert!(there == own(bytes), "a file gets what the memory holds in truth");
        lines_set(part, &zeros);
        assert_eq!(crate::files::pread(fd, part.cast(), bytes + 5, 0), bytes as isize);
        assert!(lines::bytes(part, bytes) == own(bytes));
        let mut ends = [0; 2];
        assert_eq!(libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM, 0, ends.as_mut_ptr()), 0);
        lines_set(part, &own(bytes));
        assert_eq!(crate::sockets::send(ends[0], part.cast(), 5000, 0), 5000);
        lines_set(part, &zeros);
        assert_eq!(crate::sockets::recv(ends[1], part.cast(), 6000, 0), 5000);
        assert!(lines::bytes(part, 5001) == [own(5000), vec![0]].concat());
        // Two buffers of lines memory, the list of which is there, too.
        let list = lines::part(bytes.next_multiple_of(64), 64);
        let parts = [part, part.add(10_000)].map(|start| libc::iovec { iov_base: start.cast(), iov_len: 100 });
        heap::store(parts.as_ptr().cast(), list, size_of_val(&parts));
        assert_eq!(crate::files::writev(ends[0], list.cast(), 2), 200);
        lines_set(part, &zeros);
        assert_eq!(crate::files::readv(ends[1], list.cast(), 2), 200);
        assert!(lines::bytes(part, 100) == own(100) && lines::bytes(part.add(10_000), 100) == vec![0; 100]);
        libc::close(ends[0]);
        libc::close(ends[1]);
    }
}

#[test]
fn streams_paths_and_results_of_lines_memory_are_copied() {
    let part = lines::part(3 << 20, 100_000);
    // SAFETY: the stream is this test's, and the buffers that long.
    unsafe {
        let stream = libc::tmpfile();
        assert_eq!(streams::fwrite(part.cast(), 1000, 100, stream), 100);
        libc::rewind(stream);
        lines_set(part, &[0; 100_000]);
        assert_eq!(streams::fread(part.cast(), 1000, 200, stream), 100);
        assert!(lines::bytes(part, 100_000) == (0..100_000).map(pattern).collect::<Vec<u8>>());
        libc::rewind(stream);
        lines_set(part, b"text\0");
        assert!(streams::fputs(part.cast(), stream) >= 0);
        libc::rewind(stream);
        let mut read = [0_u8; 4];
        assert_eq!(libc::fread(read.as_mut_ptr().cast(), 1, 4, stream), 4);
        assert_eq!(&read, b"text");
        libc::fclose(stream);
        lines_set(part, b"/dev/null\0");
        let fd = crate::paths::open(part.cast(), libc::O_RDONLY, 0);
        assert!(fd >= 0);
        libc::close(fd);
        assert_eq!(crate::small::clock_gettime(libc::CLOCK_MONOTONIC, part.cast()), 0);
        assert_ne!(lines::bytes(part, 16), [b"/dev/null\0".as_slice(), &[pattern(10); 6]].concat());
        let ago = libc::timespec { tv_sec: 0, tv_nsec: 1 };
        heap::store((&raw const ago).cast(), part, size_of_val(&ago));
        assert_eq!(crate::small::nanosleep(part.cast(), std::ptr::null_mut()), 0);
    }
}

/// Stores to lines memory as the program would.
fn lines_set(at: *mut u8, bytes: &[u8]) {
    // SAFETY: room in the played memory.
    unsafe { heap::store(bytes.as_ptr(), at, bytes.len()) };
}
