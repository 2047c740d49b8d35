//! Functions of the C library for memory whose accesses the program checks itself.
//!
//! Checked code calls these in place of the C library's own (`compiler/wrapped.def` has the table), which would read
//! an invalid unit as data, and store past the check of a store. Without a byte of lines memory among what a function
//! gets, it calls the C library's: that question costs two comparisons. Else the bytes travel through private memory,
//! by [`memory`].
//!
//! | module | functions |
//! |---|---|
//! | [`memory`] | which addresses are lines memory, and its bytes from and to private memory |
//! | [`bytes`] | `memcmp`, `memchr`, `qsort` and their kin |
//! | [`strings`] | `strlen`, `strcpy`, `strstr` and their kin |
//! | [`numbers`] | `strtol`, `atof` and their kin |
//! | [`arguments`] | the arguments of functions with any number of them |
//! | [`print`] | `printf` and its kin |
//! | [`scan`] | `scanf` and its kin |
//! | [`streams`] | `fgets`, `fwrite` and their kin |
//! | [`calls`] | system calls, and functions with a place for a result |
//!
//! Each function does what the C library's of its name does, and asks the same of its caller.

/// Defines functions of the C library under names that checked code calls. Their bodies may do what their callers
/// vouch for.
macro_rules! library {
    ($(#[doc = $doc:literal] fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => { $(
        #[doc = $doc]
        ///
        /// # Safety
        /// As for the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) $(-> $ret)? {
            // SAFETY: the caller keeps what the C library's function asks for, and shared bytes go through private
            // memory.
            unsafe { $body }
        }
    )* };
}

mod arguments;
mod bytes;
mod calls;
mod memory;
mod numbers;
mod print;
mod scan;
mod streams;
mod strings;
#[cfg(test)]
mod tests;
