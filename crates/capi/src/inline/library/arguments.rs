//! The arguments of a function with any number of them, as x86-64 hands them over.
//!
//! Numbers and pointers come in six registers, floating-point numbers in eight, and what does not fit on the stack. A
//! `va_list` knows where the registers were saved and how many are taken. Both places belong to the function that was
//! called, so a pointer to lines memory can be replaced there by one to a private copy, for as long as the C library
//! looks at it.

use std::ffi::c_int;
use std::ptr::null_mut;

/// What `va_list` points to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VaList {
    /// Bytes of the registers for numbers and pointers that are taken.
    pub general: u32,
    /// The same for floating-point numbers, which are saved behind those.
    pub floating: u32,
    /// What came on the stack.
    pub stack: *mut u8,
    /// Where the registers were saved.
    pub registers: *mut u8,
}

/// Bytes of the saved registers for numbers and pointers.
const GENERAL_BYTES: u32 = 6 * 8;
/// Bytes of all saved registers.
const REGISTER_BYTES: u32 = GENERAL_BYTES + 8 * 16;

/// What kind of value an argument is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// A number or a pointer.
    General,
    /// A `double`.
    Double,
    /// A `long double`.
    LongDouble,
}

impl VaList {
    /// Where the next argument stands, which is passed over.
    ///
    /// # Safety
    /// There is one, of this class.
    pub unsafe fn next(&mut self, class: Class) -> *mut u64 {
        // SAFETY: by this function's contract it is in one of these places.
        unsafe {
            match class {
                Class::General if self.general < GENERAL_BYTES => {
                    self.general += 8;
                    self.registers.add(self.general as usize - 8).cast()
                }
                Class::Double if self.floating < REGISTER_BYTES => {
                    self.floating += 16;
                    self.registers.add(self.floating as usize - 16).cast()
                }
                Class::LongDouble => {
                    let at = self.stack.map_addr(|at| at.next_multiple_of(16));
                    self.stack = at.add(16);
                    at.cast()
                }
                _ => {
                    self.stack = self.stack.add(8);
                    self.stack.sub(8).cast()
                }
            }
        }
    }

    /// Where the arguments of these classes stand.
    ///
    /// # Safety
    /// They are there.
    pub unsafe fn places(&self, classes: impl Iterator<Item = Class>) -> Vec<*mut u64> {
        let mut copy = *self;
        // SAFETY: by this function's contract.
        classes.map(|class| unsafe { copy.next(class) }).collect()
    }
}

/// Pointers among the arguments that others stand for. They come back when this goes.
#[derive(Debug, Default)]
pub struct Replaced(Vec<(*mut u64, u64)>);

impl Replaced {
    /// Puts another pointer into an argument's place.
    ///
    /// # Safety
    /// The place is one of [`VaList::places`], and outlives this.
    pub unsafe fn replace<T>(&mut self, place: *mut u64, pointer: *const T) {
        // SAFETY: by this function's contract.
        unsafe {
            self.0.push((place, place.read()));
            place.write(pointer.expose_provenance() as u64);
        }
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        // SAFETY: `replace` was promised that the places are still there.
        self.0.drain(..).rev().for_each(|(place, before)| unsafe { place.write(before) });
    }
}

/// The pointer in an argument's place.
///
/// # Safety
/// The place is one of [`VaList::places`].
pub unsafe fn pointer_in<T>(place: *mut u64) -> *mut T {
    // SAFETY: by this function's contract.
    match unsafe { place.read() } as usize {
        0 => null_mut(),
        address => std::ptr::with_exposed_provenance_mut(address),
    }
}

/// The `int` in an argument's place.
///
/// # Safety
/// The place is one of [`VaList::places`].
pub unsafe fn int_in(place: *mut u64) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { place.read() as c_int }
}

/// How wide a conversion's integer is: `hh`, `h`, `l` and their kin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Width {
    /// None was named.
    #[default]
    Int,
    /// `hh`.
    Char,
    /// `h`.
    Short,
    /// `l`, `ll`, `j`, `z`, `t` and `q`, which are alike here.
    Long,
    /// `L`.
    LongDouble,
}

impl Width {
    /// Bytes of an integer of this width.
    pub fn bytes(self) -> usize {
        match self {
            Width::Int => 4,
            Width::Char => 1,
            Width::Short => 2,
            Width::Long | Width::LongDouble => 8,
        }
    }
}

/// Reads a format from left to right.
#[derive(Clone, Debug)]
pub struct Format<'a> {
    text: &'a [u8],
    /// What comes next.
    pub at: usize,
}

impl<'a> Format<'a> {
    /// A format from its beginning.
    pub fn new(text: &'a [u8]) -> Format<'a> {
        Format { text, at: 0 }
    }

    /// Goes to behind the next percent sign, if there is one.
    pub fn next_conversion(&mut self) -> bool {
        let found = self.text[self.at..].iter().position(|byte| *byte == b'%');
        self.at += found.map_or(self.text.len() - self.at, |found| found + 1);
        found.is_some()
    }

    /// The next byte; 0 at the end.
    pub fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    /// Passes the next byte over.
    pub fn take(&mut self) -> u8 {
        let byte = self.peek();
        self.at = (self.at + 1).min(self.text.len());
        byte
    }

    /// Passes this byte over, if it comes next.
    pub fn skips(&mut self, byte: u8) -> bool {
        let comes = self.peek() == byte && self.at < self.text.len();
        self.at += usize::from(comes);
        comes
    }

    /// Passes a number over.
    pub fn number(&mut self) -> Option<usize> {
        let start = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        std::str::from_utf8(&self.text[start..self.at]).ok()?.parse().ok()
    }

    /// Passes `NUMBER$` over, if it comes next: the argument of this number, from 0 on.
    pub fn position(&mut self) -> Option<usize> {
        let mut ahead = self.clone();
        let number = ahead.number()?;
        ahead.skips(b'$').then(|| {
            *self = ahead;
            number.saturating_sub(1)
        })
    }

    /// Passes a width over.
    pub fn width(&mut self) -> Width {
        let first = self.peek();
        match first {
            b'h' | b'l' => {
                self.at += 1;
                match (first, self.skips(first)) {
                    (b'h', true) => Width::Char,
                    (b'h', false) => Width::Short,
                    _ => Width::Long,
                }
            }
            b'q' | b'j' | b'z' | b't' | b'Z' => {
                self.at += 1;
                Width::Long
            }
            b'L' => {
                self.at += 1;
                Width::LongDouble
            }
            _ => Width::Int,
        }
    }
}

/// Most arguments that a format may name.
pub const ARGUMENTS_MAX: usize = 4096;

/// Defines a function with any number of arguments: it saves what came in registers, and calls another one that takes
/// a `va_list`.
macro_rules! with_va_list {
    ($(#[doc = $doc:literal] fn $name:ident = $target:ident($fixed:literal, $register:literal);)*) => { $(
        #[doc = $doc]
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                // The stack can be unwound, as by the cancellation of a thread that waits to print.
                ".cfi_startproc",
                "sub rsp, 216",
                ".cfi_adjust_cfa_offset 216",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 48], xmm0",
                "movaps [rsp + 64], xmm1",
                "movaps [rsp + 80], xmm2",
                "movaps [rsp + 96], xmm3",
                "movaps [rsp + 112], xmm4",
                "movaps [rsp + 128], xmm5",
                "movaps [rsp + 144], xmm6",
                "movaps [rsp + 160], xmm7",
                "2:",
                // The list itself, as `VaList` has it.
                concat!("mov dword ptr [rsp + 176], 8 * ", $fixed),
                "mov dword ptr [rsp + 180], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 184], rax",
                "mov [rsp + 192], rsp",
                concat!("lea ", $register, ", [rsp + 176]"),
                "call {target}",
                "add rsp, 216",
                ".cfi_adjust_cfa_offset -216",
                "ret",
                ".cfi_endproc",
                target = sym $target,
            )
        }
    )* };
}
pub(super) use with_va_list;
