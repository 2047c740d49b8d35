//! `comem-cxx`: `comem c++` under a name that makefiles can use as a compiler's.

fn main() {
    comem_cc_name::become_comem("c++");
}

#[path = "../comem_cc_name.rs"]
mod comem_cc_name;
