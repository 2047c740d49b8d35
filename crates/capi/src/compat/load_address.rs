//! The program itself in memory: a variable or function of it is named by its distance from where the program was
//! loaded, since under address randomisation its address differs from node to node.

use libc::{c_int, c_void, dl_iterate_phdr, dl_phdr_info};
use std::ops::Range;

/// Where the program lies.
#[derive(Clone, Debug, Default)]
pub struct LoadAddress {
    /// What is added to the addresses in the program's file.
    base: usize,
    /// The parts that it may write: `.data` and `.bss`.
    writable: Vec<Range<usize>>,
    /// The parts that hold code.
    code: Vec<Range<usize>>,
}

/// Takes down the first object, which is the program, and no more.
unsafe extern "C" fn first_object(info: *mut dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the C library calls with an object's description, and with the pointer that `of_program` gave.
    let (info, image) = unsafe { (&*info, &mut *data.cast::<LoadAddress>()) };
    image.base = info.dlpi_addr as usize;
    for index in 0..info.dlpi_phnum {
        // SAFETY: the description says that there are so many headers.
        let header = unsafe { &*info.dlpi_phdr.add(usize::from(index)) };
        if header.p_type != libc::PT_LOAD {
            continue;
        }
        let start = image.base + header.p_vaddr as usize;
        let part = start..start + header.p_memsz as usize;
        if header.p_flags & libc::PF_W != 0 {
            image.writable.push(part);
        } else if header.p_flags & libc::PF_X != 0 {
            image.code.push(part);
        }
    }
    1
}

impl LoadAddress {
    /// That of this process's program.
    pub fn of_program() -> LoadAddress {
        let mut image = LoadAddress::default();
        // SAFETY: the callback takes the pointer for what it is, and nobody else uses the image meanwhile.
        unsafe { dl_iterate_phdr(Some(first_object), (&raw mut image).cast()) };
        image
    }

    /// The name of `bytes` bytes among the program's variables; `None` when they are not, or not all.
    pub fn variable(&self, address: usize, bytes: usize) -> Option<usize> {
        let end = address.checked_add(bytes)?;
        let holds = |part: &Range<usize>| part.start <= address && end <= part.end;
        self.writable.iter().any(holds).then(|| address - self.base)
    }

    /// The name of a function of the program's.
    pub fn function(&self, address: usize) -> Option<usize> {
        self.code.iter().any(|part| part.contains(&address)).then(|| address.wrapping_sub(self.base))
    }

    /// The address here of what another node named so.
    pub fn address(&self, name: usize) -> usize {
        self.base.wrapping_add(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static mut COUNTER: [u64; 4] = [7; 4];

    fn somewhere() {}

    #[test]
    fn variables_and_functions_are_known_by_their_distance() {
        let image = LoadAddress::of_program();
        let variable = (&raw const COUNTER).addr();
        let name = image.variable(variable, 32).expect("a variable of the program");
        assert_eq!(image.address(name), variable);
        let function = somewhere as fn() as usize;
        assert_eq!(image.function(function).map(|name| image.address(name)), Some(function));
    }

    #[test]
    fn what_is_on_the_heap_or_stack_is_no_variable() {
        let image = LoadAddress::of_program();
        let (heap, stack) = (Box::new(7_u64), 7_u64);
        assert_eq!(image.variable((&raw const *heap).addr(), 8), None);
        assert_eq!(image.variable((&raw const stack).addr(), 8), None);
        assert_eq!(image.function((&raw const *heap).addr()), None);
        let variable = (&raw const COUNTER).addr();
        assert_eq!(image.variable(variable, 1 << 40), None, "beyond the program's end");
        assert_eq!(image.variable(usize::MAX, 8), None);
    }
}
