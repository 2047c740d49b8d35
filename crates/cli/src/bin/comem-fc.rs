//! `comem-fc`: `comem fc` under a name that makefiles can use as a compiler's.

fn main() {
    comem_cc_name::become_comem("fc");
}

#[path = "../comem_cc_name.rs"]
mod comem_cc_name;
