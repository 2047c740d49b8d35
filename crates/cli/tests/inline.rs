//! `comem cc --inline`: what is refused, and what is said about the files that a program is linked from. A script
//! stands for clang; it hands everything but the plug-in to the C compiler, and the objects bring the section that
//! the plug-in would write.

mod common;

use common::{Scratch, err, finish, out};
use std::path::Path;
use std::process::{Command, Output};

/// A clang of this version, without plug-ins.
fn clang(version: &str) -> String {
    format!(
        "#!/bin/bash
if [ \"$1\" = --version ]; then echo '{version}'; exit; fi
arguments=()
for word; do case $word in
    -fpass-plugin=*|--driver-mode=*|--*-no-unused-arguments|-Rpass=*) ;;
    *) arguments+=(\"$word\") ;; esac; done
echo \"${{COMEM_INLINE_VERIFY-unset}} $*\" >called
exec cc \"${{arguments[@]}}\"
"
    )
}

/// A source whose object has a record, as the plug-in writes it.
fn checked(code: &str, record: &str) -> String {
    format!(
        "__asm__(\".section .comem.inline,\\\"\\\",@progbits\\n.ascii \\\"{record}\\\\n\\\"\\n.text\\n\");\n{code}\n"
    )
}

struct Bench {
    scratch: Scratch,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench { scratch: Scratch::new() };
        bench.scratch.script("clang", &clang("Debian clang version 19.1.7 (3)"));
        bench.write("plugin.so", "... comem-inline-plugin llvm=19 abi=2 ...");
        std::fs::create_dir_all(bench.scratch.path("lib")).unwrap();
        bench.cc("int comem_nothing;", &["-shared", "-fPIC", "-o", "lib/libcomem.so"]);
        bench
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.scratch.path(name), text).unwrap();
    }

    /// Compiles a text with the C compiler.
    fn cc(&self, text: &str, flags: &[&str]) {
        self.write("text.c", text);
        let done =
            Command::new("cc").current_dir(&self.scratch.0).args(["text.c", "-fPIC"]).args(flags).status().unwrap();
        assert!(done.success(), "{flags:?}");
    }

    fn object(&self, name: &str, text: &str) {
        self.cc(text, &["-c", "-o", name]);
    }

    fn archive(&self, name: &str, members: &[&str]) {
        let done = Command::new("ar").current_dir(&self.scratch.0).arg("rcs").arg(name).args(members).status().unwrap();
        assert!(done.success());
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.scratch.comem();
        command
            .env("COMEM_CLANG", self.scratch.path("clang"))
            .env("COMEM_INLINE_PLUGIN", self.scratch.path("plugin.so"));
        command.env("COMEM_LIB", self.scratch.path("lib")).args(args);
        command
    }

    fn cc_inline(&self, args: &[&str]) -> Output {
        finish(self.command(&["cc", "--inline"]).args(args))
    }

    fn exists(&self, name: &str) -> bool {
        self.scratch.path(name).exists()
    }

    /// The command ends with one sentence that has these parts.
    fn refused(output: &Output, parts: &[&str]) {
        let text = err(output);
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
        assert!(text.starts_with("comem: ") && parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
    }
}

const MAIN: &str = "int f(void); int main(void) { return f(); }";
const F: &str = "int f(void) { return 0; }";
const RECORD: &str = "abi=2 module=main.c loads=3/4 stores=1/2 strips=0";

#[test]
fn without_a_clang_of_the_right_version_nothing_is_compiled() {
    let bench = Bench::new();
    bench.write("a.c", F);
    let with = |clang: &str| finish(bench.command(&["cc", "--inline", "-c", "a.c"]).env("COMEM_CLANG", clang));
    Bench::refused(&with("/nowhere/clang"), &["needs clang 19, and /nowhere/clang cannot be run", "COMEM_CLANG"]);
    let gcc = bench.scratch.script("gcc", &clang("gcc (Debian 12.2.0-14) 12.2.0"));
    Bench::refused(&with(&gcc), &["needs clang 19, and", "is another compiler", "COMEM_CLANG"]);
    let old = bench.scratch.script("old", &clang("clang version 16.0.6"));
    Bench::refused(&with(&old), &["is for LLVM 19, and", "is of version 16", "name a clang 19 in COMEM_CLANG"]);
    let mut command = bench.command(&["cc", "--inline", "-c", "a.c"]);
    let named = finish(command.env_remove("COMEM_CLANG").env("COMEM_CC", &gcc));
    Bench::refused(&named, &["is another compiler", "COMEM_CC names it"]);
    // The usual name, and nothing of that name.
    let empty =
        finish(bench.command(&["c++", "--inline", "-c", "a.c"]).env_remove("COMEM_CLANG").env("PATH", "/nowhere"));
    Bench::refused(&empty, &["clang++-19 cannot be run", "apt-get install clang-19"]);
    assert!(!bench.exists("a.o"));
}

#[test]
fn without_a_plugin_nothing_is_compiled() {
    let bench = Bench::new();
    bench.write("a.c", F);
    let with =
        |plugin: &Path| finish(bench.command(&["cc", "--inline", "-c", "a.c"]).env("COMEM_INLINE_PLUGIN", plugin));
    Bench::refused(&with(Path::new("/nowhere.so")), &["/nowhere.so is no plug-in of Comem", "COMEM_INLINE_PLUGIN"]);
    Bench::refused(&with(&bench.scratch.path("a.c")), &["is no plug-in of Comem: it does not say which LLVM"]);
    bench.write("other.so", "comem-inline-plugin llvm=20 abi=2");
    Bench::refused(&with(&bench.scratch.path("other.so")), &["is for LLVM 20, and", "is of version 19"]);
    for (text, version) in [("llvm=19 abi=1", 1), ("llvm=19", 0)] {
        bench.write("old.so", &format!("comem-inline-plugin {text}"));
        let parts = [&format!("old.so makes checks of version {version}, and this Comem knows version 2"), "with make"];
        Bench::refused(&with(&bench.scratch.path("old.so")), &parts);
    }
    assert!(!bench.exists("a.o"));
}

#[test]
fn what_cannot_have_checks_is_refused_by_name() {
    let bench = Bench::new();
    for (args, parts) in [
        (&["-flto", "-c", "a.c"][..], &["-flto moves code past the checks", "-fno-lto"][..]),
        (&["-c", "a.S"], &["assembly gets no checks: a.S", "--inline-trust a.S"]),
        (&["-c", "dir/a.f90"], &["Fortran", "dir/a.f90", "--engine"]),
        (&["--inline-count", "a.c"], &["no flag --inline-count", "--inline-counts"]),
    ] {
        Bench::refused(&bench.cc_inline(args), parts);
    }
    let fortran = finish(&mut bench.command(&["fc", "--inline", "-c", "a.f90"]));
    Bench::refused(&fortran, &["Fortran cannot have checks", "leave --inline out"]);
    let alone = finish(&mut bench.command(&["cc", "--inline-verify", "-c", "a.c"]));
    Bench::refused(&alone, &["--inline-verify", "give --inline, too"]);
}

#[test]
fn the_plugin_and_its_orders_reach_clang() {
    let bench = Bench::new();
    bench.write("a.c", F);
    let called = || std::fs::read_to_string(bench.scratch.path("called")).unwrap();
    assert!(bench.cc_inline(&["-c", "a.c", "-D_FORTIFY_SOURCE=2"]).status.success());
    let plain = called();
    assert!(plain.starts_with("0 -fpass-plugin=/") && plain.contains("plugin.so --start-no-unused"), "{plain}");
    assert!(plain.contains(" -Rpass=comem-inline --end-no-unused-arguments -I"), "{plain}");
    assert!(plain.trim_end().ends_with("-D_FORTIFY_SOURCE=2 -DCOMEM_INLINE_CHECKS_ -U_FORTIFY_SOURCE"), "{plain}");
    assert!(bench.cc_inline(&["-c", "a.c", "--inline-verify"]).status.success());
    assert!(called().starts_with("1 -fpass-plugin="), "{}", called());
    assert!(finish(&mut bench.command(&["c++", "--inline", "-c", "a.c"])).status.success());
    assert!(called().contains("--driver-mode=g++"), "{}", called());
    assert!(bench.cc_inline(&["--version"]).status.success());
    let failed = bench.cc_inline(&["-c", "missing.c"]);
    assert!(failed.status.code() == Some(1) && err(&failed).contains("missing.c"), "{}", err(&failed));
}

#[test]
fn an_object_without_checks_takes_the_program_with_it() {
    let bench = Bench::new();
    bench.object("main.o", &checked(MAIN, RECORD));
    bench.object("f.o", F);
    Bench::refused(&bench.cc_inline(&["main.o", "f.o", "-o", "p"]), &["without checks: f.o", "--inline-trust f.o"]);
    assert!(!bench.exists("p"), "nobody runs it by mistake");
    let trusted = bench.cc_inline(&["main.o", "f.o", "-o", "p", "--inline-trust", "./f.o"]);
    assert!(trusted.status.success() && err(&trusted).is_empty(), "{}", err(&trusted));
    assert!(bench.exists("p"));
    bench.object("f.o", &checked(F, "abi=2 module=f.c loads=0/1 stores=0/1 strips=0"));
    assert!(bench.cc_inline(&["main.o", "f.o", "-o", "p"]).status.success());
    bench.object("f.o", &checked(F, "abi=1 module=f.c loads=0/1 stores=0/1 strips=0"));
    Bench::refused(&bench.cc_inline(&["main.o", "f.o", "-o", "p"]), &["checks of another version of Comem: f.o"]);
    bench.write("f.o", "BC\u{0}");
    std::fs::write(bench.scratch.path("f.o"), b"BC\xc0\xde0000").unwrap();
    let lto = ["built for optimisation at link time, which moves code past the checks: f.o", "without -flto"];
    Bench::refused(&bench.cc_inline(&["main.o", "f.o", "-o", "p"]), &lto);
    bench.object("data.o", "int table[3] = {1, 2, 3};");
    bench.object("f.o", &checked(F, RECORD));
    assert!(bench.cc_inline(&["main.o", "f.o", "data.o", "-o", "p"]).status.success(), "data needs no checks");
}

#[test]
fn sources_that_the_plugin_did_not_see_are_noticed() {
    let bench = Bench::new();
    bench.write("main.c", &checked(MAIN, RECORD));
    bench.write("f.c", F);
    Bench::refused(&bench.cc_inline(&["main.c", "f.c", "-o", "p"]), &["1 of the program's modules have no checks"]);
    assert!(!bench.exists("p"));
    bench.write("f.c", &checked(F, RECORD));
    let whole = bench.cc_inline(&["main.c", "f.c", "-o", "p"]);
    assert!(whole.status.success(), "{}", err(&whole));
    bench.write("g.s", ".text\n.globl g\ng: ret\n.section .note.GNU-stack,\"\",@progbits\n");
    let trusted = bench.cc_inline(&["main.c", "f.c", "g.s", "-o", "p", "--inline-trust", "g.s"]);
    assert!(trusted.status.success(), "{}", err(&trusted));
}

#[test]
fn libraries_without_checks_get_one_warning() {
    let bench = Bench::new();
    bench.object("main.o", &checked(MAIN, RECORD));
    bench.object("f.o", "int g(void); int f(void) { return g(); }");
    bench.object("unused.o", "int unused(void) { return 3; }");
    bench.archive("libf.a", &["f.o", "unused.o"]);
    bench.cc("int g(void) { return 0; }", &["-shared", "-o", "libg.so"]);
    let link = ["main.o", "-L.", "-lf", "-lg", "-lm", "-lpthread", "-o", "p"];
    let output = bench.cc_inline(&link);
    let text = err(&output);
    assert!(output.status.success() && text.lines().count() == 1, "{text}");
    assert!(text.contains("libraries have no checks") && text.contains("libf.a(f.o)"), "{text}");
    assert!(text.contains("libg.so") && !text.contains("unused.o") && !text.contains("libm"), "{text}");
    let trusted = bench.cc_inline(&[&link[..], &["--inline-trust", "libf.a", "--inline-trust", "libg.so"]].concat());
    assert!(trusted.status.success() && err(&trusted).is_empty(), "{}", err(&trusted));
    bench.object("main.o", &checked(MAIN, &format!("{RECORD} calls=f,elsewhere")));
    let text = err(&bench.cc_inline(&[&link[..], &["--inline-trust", "libf.a", "--inline-trust", "libg.so"]].concat()));
    assert_eq!(text, "", "f is in the program, and nobody calls elsewhere");
    let direct = "int g(void); int main(void) { return g(); }";
    bench.object("main.o", &checked(direct, &format!("{RECORD} calls=g,elsewhere")));
    let text = err(&bench.cc_inline(&["main.o", "-L.", "-lg", "-o", "p"]));
    assert!(
        text.lines().count() == 2 && text.contains("get pointers that may be shared: g (called in main.c);"),
        "{text}"
    );
    // A second module that calls it, and one that does not.
    bench.object("a.o", &checked("int a;", "abi=2 module=a.c loads=0/0 stores=0/0 calls=g"));
    bench.object("b.o", &checked("int b;", "abi=2 module=b.c loads=0/0 stores=0/0 calls=elsewhere"));
    let text = err(&bench.cc_inline(&["main.o", "b.o", "a.o", "-L.", "-lg", "-o", "p"]));
    assert!(text.contains("may be shared: g (called in a.c, main.c); give"), "{text}");
    let text = err(&bench.cc_inline(&["main.o", "-L.", "-lg", "-o", "p", "--inline-trust", "libg.so"]));
    assert_eq!(text, "", "whoever trusts a library trusts its functions");
}

#[test]
fn counts_are_printed_when_the_program_is_linked() {
    let bench = Bench::new();
    bench.object("main.o", &checked(MAIN, RECORD));
    bench.object("f.o", &checked(F, "abi=2 module=f.c loads=0/0 stores=1/2 strips=1"));
    let output = bench.cc_inline(&["main.o", "f.o", "-o", "p", "--inline-counts"]);
    let rows: Vec<String> =
        out(&output).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        rows,
        [
            "module loads checked % stores checked % strips",
            "main.c 4 3 75.0 2 1 50.0 0",
            "f.c 0 0 - 2 1 50.0 1",
            "in all 4 3 75.0 4 2 50.0 1"
        ]
    );
    assert_eq!(out(&bench.cc_inline(&["main.o", "f.o", "-o", "p"])), "", "the linker's list is not shown");
}

/// The clang and the plug-in of this source tree; a line that says so, where they are not there.
fn real(bench: &Bench) -> Option<impl Fn(&[&str]) -> Output> {
    let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/compiler/libcomem_inline.so");
    if Command::new("clang-19").arg("--version").output().is_err() || !plugin.is_file() {
        println!("SKIP: the real plug-in: there is no clang-19, or no {} (make)", plugin.display());
        return None;
    }
    let scratch = bench.scratch.path("lib");
    let command = move |args: &[&str]| {
        let mut command = bench.command(&["cc", "--inline", "-O2", "-Wl,--unresolved-symbols=ignore-all"]);
        command.env_remove("COMEM_CLANG").env("COMEM_INLINE_PLUGIN", &plugin).env("COMEM_LIB", &scratch);
        finish(command.args(args))
    };
    Some(command)
}

#[test]
fn the_real_plugin_tells_what_the_driver_reads() {
    let bench = Bench::new();
    let Some(cc) = real(&bench) else { return };
    bench.write("a.c", "void f(double *d) { d[0] += 1; d[1] = 2; }\n");
    let code = "char *strsep(char **, const char *); void f(double *); unsigned long strlen(const char *);
        int main(int n, char **v) { double d[2] = {n, n}; f(d); return strsep(v, \"\") && strlen(v[0]); }\n";
    bench.write("main.c", code);
    assert!(cc(&["-c", "a.c", "--inline-verify"]).status.success());
    let output = cc(&["main.c", "a.o", "-o", "p", "--inline-counts"]);
    let text = err(&output);
    assert!(output.status.success() && text.lines().count() == 1, "{text}");
    assert!(
        text.contains("get pointers that may be shared: strsep (called in main.c); give them private copies"),
        "{text}"
    );
    let counts = out(&output);
    let row = counts.lines().find(|line| line.starts_with("a.c")).expect("a row for a.c");
    let numbers: Vec<&str> = row.split_whitespace().skip(1).collect();
    assert_eq!((numbers[0], numbers[1]), ("1", "1"), "one load, which has a check: {row}");
    assert!(numbers[4] == numbers[3] && numbers[3] != "0", "its stores have checks: {row}");
    bench.object("plain.o", "int plain(void) { return 3; }");
    Bench::refused(&cc(&["main.c", "a.o", "plain.o", "-o", "q"]), &["built without checks: plain.o"]);
    let none = cc(&["main.c", "a.o", "-o", "q", "-Xclang", "-disable-llvm-passes"]);
    Bench::refused(&none, &["1 of the program's modules have no checks"]);
    bench.write("lto.c", "int plain(void) { return 3; }");
    let (from, to) = (bench.scratch.path("lto.c"), bench.scratch.path("lto.o"));
    let lto = Command::new("clang-19").args(["-flto", "-c"]).arg(from).arg("-o").arg(to).status();
    assert!(lto.is_ok_and(|status| status.success()));
    Bench::refused(&cc(&["main.c", "a.o", "lto.o", "-o", "q"]), &["built for optimisation at link time", "lto.o"]);
    bench.write("asm.c", "void g(int *p) {\n    __asm__(\"movl $1, (%0)\" :: \"r\"(p) : \"memory\");\n}\n");
    let asm = cc(&["-c", "asm.c"]);
    assert!(!asm.status.success() && err(&asm).contains("asm.c:2"), "{}", err(&asm));
    // Without -g, and not the function's line.
    let code = "struct b { long a[3]; };\nvoid g(struct b *p, struct b *q) {\n    __atomic_store(p, q, 5);\n}\n";
    bench.write("big.c", code);
    let big = cc(&["-c", "big.c", "-Weverything"]);
    assert!(!big.status.success() && err(&big).contains("big.c:3:5: error: comem --inline"), "{}", err(&big));
    bench.write("n.s", ".text\nnop\n");
    let assembly = cc(&["-c", "n.s", "-Werror", "--inline-trust", "n.s"]);
    assert!(!err(&assembly).contains("Rpass"), "{}", err(&assembly));
}
