//! The program's other constructors, on nodes whose `main` does not run.
//!
//! Our own constructor keeps such a node from `main`, and so from the constructors that stand behind it in the
//! program's table (`DT_INIT_ARRAY`; System V ABI, "Initialization and Termination Functions"). Those of C++ belong to
//! the program all the same: `std::cout` is made by one of them. So they are called from ours.

use crate::failure::call;
use libc::{c_char, c_int, c_void, dl_iterate_phdr, dl_phdr_info};
use std::ops::Range;

/// An entry of the table.
pub type Constructor = unsafe extern "C-unwind" fn(c_int, *mut *mut c_char, *mut *mut c_char);

/// What `main` would get.
#[derive(Clone, Copy)]
pub struct Arguments {
    pub argc: c_int,
    pub argv: *mut *mut c_char,
    pub envp: *mut *mut c_char,
}

const DT_INIT_ARRAY: i64 = 25;
const DT_INIT_ARRAYSZ: i64 = 27;

/// An entry of the dynamic section.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

unsafe extern "C" {
    /// The table of the object that this library is in: the linker says where it begins and ends.
    static __init_array_start: [usize; 0];
    static __init_array_end: [usize; 0];
}

/// Looks for the table of the first object, which is the program.
unsafe extern "C" fn table_of_first(info: *mut dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the C library calls with an object's description, and with the pointer that `table` gave.
    let (info, table) = unsafe { (&*info, &mut *data.cast::<Range<usize>>()) };
    let base = info.dlpi_addr as usize;
    // SAFETY: the description says that there are so many headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let Some(section) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else {
        // The program is linked statically, and this library in it.
        *table = (&raw const __init_array_start).addr()..(&raw const __init_array_end).addr();
        return 1;
    };
    let entries = section.p_memsz as usize / size_of::<Dynamic>();
    let start: *const Dynamic = std::ptr::with_exposed_provenance(base + section.p_vaddr as usize);
    // SAFETY: the dynamic section of a loaded object stands there, in memory that stays.
    let entries = unsafe { std::slice::from_raw_parts(start, entries) };
    let value = |tag| entries.iter().take_while(|e| e.tag != 0).find(|e| e.tag == tag).map(|e| e.value);
    if let Some((address, bytes)) = value(DT_INIT_ARRAY).zip(value(DT_INIT_ARRAYSZ)) {
        *table = base + address..base + address + bytes;
    }
    1
}

/// The addresses of the program's constructors, in order.
fn table() -> &'static [usize] {
    let mut found = 0..0;
    // SAFETY: the callback takes the pointer for what it is, and nobody else uses the range meanwhile.
    unsafe { dl_iterate_phdr(Some(table_of_first), (&raw mut found).cast()) };
    if found.is_empty() {
        return &[];
    }
    // SAFETY: the program's own table, which the dynamic linker reads as addresses too; it is never written after
    // start-up.
    unsafe {
        std::slice::from_raw_parts(std::ptr::with_exposed_provenance(found.start), found.len() / size_of::<usize>())
    }
}

/// Those behind `own`.
fn behind(own: usize, table: &[usize]) -> &[usize] {
    let at = table.iter().position(|entry| *entry == own);
    at.map_or(&[], |at| &table[at + 1..])
}

/// Calls the constructors that stand behind `own`; none if it is no constructor of the program.
///
/// # Safety
/// Called by `own`, with the arguments that it got.
pub unsafe fn call_those_behind(own: Constructor, arguments: Arguments) {
    for entry in behind(own as usize, table()) {
        // SAFETY: the linker made the table of functions of this type.
        let constructor = unsafe { std::mem::transmute::<usize, Constructor>(*entry) };
        // SAFETY: the dynamic linker would call it next, with these arguments.
        let constructor = || unsafe { constructor(arguments.argc, arguments.argv, arguments.envp) };
        call("a constructor of the program", constructor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_a_table_of_constructors() {
        let table = table();
        assert!(!table.is_empty() && table.iter().all(|entry| *entry != 0), "{table:x?}");
    }

    #[test]
    fn only_those_behind_the_caller_are_left() {
        assert_eq!(behind(2, &[1, 2, 3, 4]), [3, 4]);
        assert!(behind(4, &[1, 2, 3, 4]).is_empty() && behind(9, &[1, 2]).is_empty());
    }
}
