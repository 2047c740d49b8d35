//! The part of libucp's interface that is used, as the documentation of UCX 1.10 and later describes it.
//!
//! Structures of parameters begin with a mask that says which fields are set. The library reads no other field, so the
//! declarations end behind the last one that is used, and room for the rest follows ([`Padded`]).

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

/// A library's handle: the functions of a given name and type have no others.
pub(super) type Handle = *mut c_void;
/// 0: done; 1: under way; less than 0: an error.
pub(super) type Status = i8;

/// Under way.
pub(super) const IN_PROGRESS: Status = 1;
/// There is something to be done first.
pub(super) const BUSY: Status = -15;
/// Errors are greater than this, as pointers.
const ERRORS: isize = -100;

/// A structure, and room behind it for the fields that later versions have.
#[repr(C)]
pub(super) struct Padded<T> {
    pub(super) fields: T,
    room: [u64; 48],
}

impl<T> Padded<T> {
    pub(super) fn new(fields: T) -> Padded<T> {
        Padded { fields, room: [0; 48] }
    }
}

/// `ucp_params_t`.
#[repr(C)]
pub(super) struct ContextParams {
    /// 1: the features.
    pub(super) field_mask: u64,
    pub(super) features: u64,
}

/// Features: remote memory access, atomic operations on 64 bits, wake-up by a descriptor.
pub(super) const FEATURES: u64 = 1 << 1 | 1 << 3 | 1 << 4;

/// `ucp_worker_params_t`.
#[repr(C)]
pub(super) struct WorkerParams {
    /// 1: the thread mode.
    pub(super) field_mask: u64,
    /// 1: several threads, one at a time.
    pub(super) thread_mode: c_int,
}

/// `ucp_mem_map_params_t`.
#[repr(C)]
pub(super) struct MapParams {
    /// 1: the address, 2: the length, 4: the flags.
    pub(super) field_mask: u64,
    pub(super) address: *mut c_void,
    pub(super) length: usize,
    /// 1: the memory need not be there yet.
    pub(super) flags: c_uint,
}

/// `ucp_ep_params_t`.
#[repr(C)]
pub(super) struct EndpointParams {
    /// 1: the address, 2: the mode of errors, 4: their handler.
    pub(super) field_mask: u64,
    pub(super) address: *const c_void,
    /// 1: an endpoint whose peer is gone fails, and the process goes on.
    pub(super) error_mode: c_int,
    pub(super) on_error: Option<extern "C" fn(*mut c_void, Handle, Status)>,
    pub(super) argument: *mut c_void,
}

/// `ucp_request_param_t`.
#[repr(C)]
pub(super) struct RequestParams {
    /// 8: the data type, 32: the reply's buffer.
    pub(super) mask: u32,
    pub(super) flags: u32,
    pub(super) request: *mut c_void,
    pub(super) callback: *mut c_void,
    pub(super) datatype: u64,
    pub(super) user_data: *mut c_void,
    pub(super) reply_buffer: *mut c_void,
}

impl RequestParams {
    /// Nothing is set.
    pub(super) fn none() -> Padded<RequestParams> {
        let null = std::ptr::null_mut;
        Padded::new(RequestParams {
            mask: 0,
            flags: 0,
            request: null(),
            callback: null(),
            datatype: 0,
            user_data: null(),
            reply_buffer: null(),
        })
    }

    /// For an operation on a word of 8 bytes that brings the old value into `reply`.
    pub(super) fn of_word(reply: &mut u64) -> Padded<RequestParams> {
        let mut params = RequestParams::none();
        params.fields.mask = 1 << 3 | 1 << 5;
        // Contiguous elements of 8 bytes.
        params.fields.datatype = 8 << 3;
        params.fields.reply_buffer = std::ptr::from_mut(reply).cast();
        params
    }
}

/// `ucp_atomic_op_t`, as far as it is used. A fetching OR is not: that of libucx 1.13.1 gives the old value and changes
/// nothing, where the memory is the worker's own and its transports are shared memory.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(super) enum Atomic {
    Add = 0,
    CompareAndSwap = 2,
}

/// What an operation gives: nothing when it is done, an error, or a request under way.
pub(super) fn outcome(pointer: *mut c_void) -> Result<Option<NonNull<c_void>>, Status> {
    let number = pointer.addr().cast_signed();
    if (ERRORS..0).contains(&number) { Err(number as Status) } else { Ok(NonNull::new(pointer)) }
}

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of libucp, by their names there.
        #[allow(non_snake_case)]
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Finds them; the name of the first that is missing otherwise.
            pub(super) fn find(find: impl Fn(&CStr) -> *mut c_void) -> Result<Functions, &'static str> {
                $(
                    let name = concat!(stringify!($name), "\0");
                    let $name = find(CStr::from_bytes_with_nul(name.as_bytes()).expect("a name"));
                    if $name.is_null() {
                        return Err(stringify!($name));
                    }
                )*
                // SAFETY: each is a function of that name, whose type the library's documentation gives.
                Ok(unsafe { Functions { $($name: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn($($argument),*) $(-> $result)?,
                >($name),)* } })
            }
        }
    };
}

functions! {
    ucp_get_version: fn(*mut c_uint, *mut c_uint, *mut c_uint);
    ucp_init_version: fn(c_uint, c_uint, *const Padded<ContextParams>, Handle, *mut Handle) -> Status;
    ucp_config_read: fn(*const c_char, *const c_char, *mut Handle) -> Status;
    ucp_config_modify: fn(Handle, *const c_char, *const c_char) -> Status;
    ucp_config_release: fn(Handle);
    ucp_worker_create: fn(Handle, *const Padded<WorkerParams>, *mut Handle) -> Status;
    ucp_worker_get_address: fn(Handle, *mut *mut c_void, *mut usize) -> Status;
    ucp_worker_release_address: fn(Handle, *mut c_void);
    ucp_worker_progress: fn(Handle) -> c_uint;
    ucp_worker_get_efd: fn(Handle, *mut c_int) -> Status;
    ucp_worker_arm: fn(Handle) -> Status;
    ucp_mem_map: fn(Handle, *const Padded<MapParams>, *mut Handle) -> Status;
    ucp_rkey_pack: fn(Handle, Handle, *mut *mut c_void, *mut usize) -> Status;
    ucp_rkey_buffer_release: fn(*mut c_void);
    ucp_ep_create: fn(Handle, *const Padded<EndpointParams>, *mut Handle) -> Status;
    ucp_ep_rkey_unpack: fn(Handle, *const c_void, *mut Handle) -> Status;
    ucp_put_nbx: fn(Handle, *const c_void, usize, u64, Handle, *const Padded<RequestParams>) -> *mut c_void;
    ucp_get_nbx: fn(Handle, *mut c_void, usize, u64, Handle, *const Padded<RequestParams>) -> *mut c_void;
    ucp_atomic_op_nbx:
        fn(Handle, Atomic, *const c_void, usize, u64, Handle, *const Padded<RequestParams>) -> *mut c_void;
    ucp_ep_flush_nbx: fn(Handle, *const Padded<RequestParams>) -> *mut c_void;
    ucp_request_check_status: fn(*mut c_void) -> Status;
    ucp_request_free: fn(*mut c_void);
}
