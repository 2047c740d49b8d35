//! Each header compiles alone, in every mode that programs may use, without a warning.

mod common;

use std::process::Command;

/// Compiles a file that includes one header twice and nothing else.
fn alone(command: &mut Command, language: &str, header: &str, flags: &[&str]) {
    let source = common::scratch().join(format!("alone-{}.{language}", header.replace('.', "-")));
    std::fs::write(&source, format!("#include <{header}>\n#include <{header}>\n")).expect("a source can be written");
    common::run(command.args(flags).args(["-fsyntax-only", "-x", language]).arg(&source));
}

const MODES: [&[&str]; 4] = [&["-O0"], &["-O2"], &["-O2", "-fPIC"], &["-O2", "-DCOMEM_SEQUENTIAL"]];

#[test]
fn the_c_header_compiles_alone_as_c_and_as_cpp() {
    for flags in MODES {
        for compiler in common::compilers(false) {
            for standard in ["c99", "c11", "c17"] {
                alone(&mut common::strict(compiler, standard), "c", "comem.h", flags);
            }
        }
        for compiler in common::compilers(true) {
            alone(&mut common::strict(compiler, "c++17"), "c++", "comem.h", flags);
        }
    }
}

#[test]
fn the_cpp_headers_compile_alone() {
    for flags in MODES {
        for compiler in common::compilers(true) {
            for standard in ["c++17", "c++20"] {
                for header in ["comem.hpp", "comem_dsm.hpp"] {
                    alone(&mut common::strict(compiler, standard), "c++", header, flags);
                }
            }
        }
    }
}
