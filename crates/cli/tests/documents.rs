//! What the guides for contributors say of the sources: paths in them exist, and the example of an engine touches what
//! its own guide lists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files that a new engine touches at most, outside its own folder.
const TOUCHED_MAX: usize = 6;
/// The example's folder.
const EXAMPLE: &str = "examples/refetch-all";
/// How it is named: as an engine, a module, a variant.
const NAMES: [&str; 3] = ["refetch-all", "refetch_all", "RefetchAll"];
/// What describes the example, or how it is checked, and would not be changed for another one.
const GUIDES: [&str; 5] =
    ["CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs/", "crates/cli/tests/documents.rs"];
/// A line of text, where it is no row of a table.
const LINE_MAX: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder, by their paths from the root, without what is built or hidden.
fn files(root: &Path, below: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.join(below)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder can be read").map(|entry| entry.expect("an entry")) {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let kind = entry.file_type().expect("an entry has a type");
            if name.starts_with('.') || ["target", "out", "node_modules"].contains(&name.as_str()) {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let from_root = path.strip_prefix(root).expect("it is below the root");
                found.push(from_root.to_str().expect("paths are text").to_string());
            }
        }
    }
    found
}

/// The guides whose paths are checked.
fn guides(root: &Path) -> Vec<String> {
    let internals = files(root, "docs/internals").into_iter().filter(|path| path.ends_with(".md"));
    let named = ["CONTRIBUTING.md".to_string(), "ARCHITECTURE.md".to_string(), format!("{EXAMPLE}/README.md")];
    named.into_iter().chain(internals).collect()
}

/// What stands between backticks, outside blocks of code.
fn quoted(text: &str) -> Vec<&str> {
    let lines = text.lines().scan(false, |in_block, line| {
        let fence = line.starts_with("```");
        *in_block ^= fence;
        Some(if *in_block || fence { "" } else { line })
    });
    lines.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// What links lead to, without places within a page.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://")).map(|target| target.split('#').next().unwrap_or(""));
    local.filter(|target| !target.is_empty()).collect()
}

/// Whether a quoted word is a path of the sources, and not a name, a flag or a placeholder.
fn is_path(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    let suffix = [".rs", ".md", ".sh", ".py", ".c", ".h", ".cpp", ".toml"].iter().any(|end| word.ends_with(end));
    let made = word.starts_with("target/") || word.starts_with("out/") || word.contains("NAME");
    word.chars().all(plain) && (suffix || word.contains('/')) && !word.starts_with(['/', '-']) && !made
}

/// How a source file may be called: by the end of its path from `crates` on without `src`, as a file or as a module.
fn names_of_sources(root: &Path) -> Vec<String> {
    let sources = files(root, "crates").into_iter().filter(|path| path.ends_with(".rs"));
    sources.map(|path| path.trim_start_matches("crates/").replacen("/src/", "/", 1)).collect()
}

/// Which source files a short path means.
fn meant<'a>(sources: &'a [String], short: &str) -> Vec<&'a str> {
    let module = short.trim_end_matches('/').trim_end_matches(".rs");
    let (file, folder) = (format!("{module}.rs"), format!("{module}/mod.rs"));
    let ends = |source: &str, end: &str| source == end || source.ends_with(&format!("/{end}"));
    sources.iter().map(String::as_str).filter(|source| ends(source, &file) || ends(source, &folder)).collect()
}

#[test]
fn every_path_in_the_guides_for_contributors_exists_and_means_one_file() {
    let root = root();
    let sources = names_of_sources(&root);
    let mut wrong = Vec::new();
    let mut checked = 0;
    for guide in guides(&root) {
        let (page, folder) = (text(&root.join(&guide)), root.join(&guide).parent().expect("a folder").to_path_buf());
        for path in quoted(&page).into_iter().filter(|word| is_path(word)) {
            checked += 1;
            let first_part = root.join("crates").join(path.replacen('/', "/src/", 1));
            if root.join(path).exists() || folder.join(path).exists() || first_part.exists() {
                continue;
            }
            match meant(&sources, path).as_slice() {
                [_] => {}
                [] => wrong.push(format!("{guide}: {path} does not exist")),
                several => wrong.push(format!("{guide}: {path} may be any of {several:?}")),
            }
        }
        for link in links(&page) {
            checked += 1;
            if !folder.join(link).exists() {
                wrong.push(format!("{guide}: the link to {link} leads nowhere"));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(checked > 150, "only {checked} paths and links were found");
}

#[test]
fn a_path_that_does_not_exist_is_found() {
    let sources = ["runtime/shared/mod.rs".to_string(), "runtime/a.rs".to_string(), "net/a.rs".to_string()];
    assert_eq!(meant(&sources, "shared"), ["runtime/shared/mod.rs"]);
    assert_eq!(meant(&sources, "a.rs").len(), 2);
    assert_eq!(meant(&sources, "net/a.rs"), ["net/a.rs"]);
    assert_eq!(meant(&sources, "thread/access.rs"), [""; 0]);
    let page = "See `thread/access.rs`, `NAME/x.rs`, `--flag` and [this](../b.md#part).\n```\n`c/d.rs`\n```\n";
    assert_eq!(quoted(page).into_iter().filter(|word| is_path(word)).collect::<Vec<_>>(), ["thread/access.rs"]);
    assert_eq!(links(page), ["../b.md"]);
}

#[test]
fn the_example_of_an_engine_touches_the_files_that_its_guide_lists_and_no_more_than_six() {
    let root = root();
    let is_source = |path: &String| {
        let outside = !path.starts_with(EXAMPLE) && !GUIDES.iter().any(|guide| path.starts_with(guide));
        outside && [".rs", ".toml", ".sh", ".py", ".c", ".h", ".md", "Makefile"].iter().any(|end| path.ends_with(end))
    };
    let names_it = |path: &String| {
        let text = text(&root.join(path));
        NAMES.iter().any(|name| text.contains(name))
    };
    let touched: BTreeSet<String> = files(&root, "").into_iter().filter(is_source).filter(names_it).collect();
    let guide = text(&root.join(EXAMPLE).join("README.md"));
    let rows =
        guide.lines().skip_while(|line| !line.starts_with("| touched |")).take_while(|line| line.starts_with('|'));
    let listed: BTreeSet<String> =
        rows.skip(2).filter_map(|row| row.split('`').nth(1)).map(ToString::to_string).collect();
    assert_eq!(touched, listed);
    assert!(touched.len() <= TOUCHED_MAX, "{touched:?}");
}

/// What an engine is stands in one place: whoever wants to know asks the engine, and does not compare it with others.
#[test]
fn engines_of_pages_are_compared_where_they_are_described_and_nowhere_else() {
    let root = root();
    let names_one = |code: &str| {
        let mut after = code.split("PageEngine::").skip(1);
        after.any(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()) && !rest.starts_with("ALL"))
    };
    let compares = |line: &str| {
        let code = line.split("//").next().unwrap_or("");
        let pattern = code.split_once("=>").map_or("", |(pattern, _)| pattern);
        let is_compared = ["== PageEngine::", "!= PageEngine::", "matches!("].iter().any(|start| code.contains(start));
        names_one(pattern) || (is_compared && names_one(code))
    };
    let is_source =
        |path: &String| path.contains("/src/") && path.ends_with(".rs") && !path.ends_with("pages/engine.rs");
    let mut found = Vec::new();
    for path in files(&root, "crates").into_iter().filter(is_source) {
        let text = text(&root.join(&path));
        found.extend(text.lines().filter(|line| compares(line)).map(|line| format!("{path}: {}", line.trim())));
    }
    assert_eq!(found, [""; 0]);
    assert!(compares("if engine == PageEngine::Scope {") && compares("PageEngine::Msi => 3,"));
    assert!(compares("Some(PageEngine::Hlrc | PageEngine::Scope) => {}"));
    assert!(compares("matches!(self, Some(PageEngine::Hlrc))") && !compares("true => PageEngine::Scope,"));
}

#[test]
fn contributing_lists_at_most_six_files_for_an_engine_of_pages_and_the_examples_are_among_them() {
    let root = root();
    let guide = text(&root.join("CONTRIBUTING.md"));
    let rows = guide.lines().skip_while(|line| !line.starts_with("| file | step |")).take_while(|l| l.starts_with('|'));
    let listed: BTreeSet<&str> = rows.skip(2).filter_map(|row| row.split('`').nth(1)).collect();
    assert!((3..=TOUCHED_MAX).contains(&listed.len()), "{listed:?}");
    let example = text(&root.join(EXAMPLE).join("README.md"));
    let rows = example.lines().skip_while(|l| !l.starts_with("| touched |")).take_while(|line| line.starts_with('|'));
    for path in rows.skip(2).filter_map(|row| row.split('`').nth(1)) {
        assert!(listed.contains(path), "CONTRIBUTING.md does not list {path}");
    }
}

#[test]
fn lines_of_the_guides_for_contributors_fit_a_screen() {
    let root = root();
    for guide in guides(&root) {
        let page = text(&root.join(&guide));
        let long = page.lines().filter(|line| line.chars().count() > LINE_MAX && !line.starts_with('|'));
        assert_eq!(long.collect::<Vec<_>>(), [""; 0], "{guide}");
    }
}

/// What a crate's sources include, by the path that they name.
fn included(source: &str) -> Vec<&str> {
    let marks = ["include_str!(\"", "include_bytes!(\"", "include!(\"", "#[path = \""];
    let behind = marks.iter().flat_map(|mark| source.split(mark).skip(1));
    behind.filter_map(|rest| rest.split('"').next()).collect()
}

/// Whether a path, seen from a file that lies so deep in its crate, leads out of the crate.
fn leads_out(path: &str, depth: usize) -> bool {
    let mut here = depth;
    path.split('/').any(|part| {
        let is_up = part == "..";
        let out = is_up && here == 0;
        here = if is_up { here.saturating_sub(1) } else { here + 1 };
        out
    })
}

#[test]
fn crates_contain_what_their_sources_include() {
    let root = root();
    let mut checked = 0;
    for path in files(&root, "crates").into_iter().filter(|path| path.contains("/src/") && path.ends_with(".rs")) {
        // `crates/NAME` above, and the file itself, are no directories within the crate.
        let depth = path.split('/').count() - 3;
        let source = text(&root.join(&path));
        for named in included(&source) {
            checked += 1;
            assert!(!leads_out(named, depth), "{path} includes {named}: make a link to it within the crate");
        }
    }
    assert!(checked > 10, "only {checked} were found");
    assert!(leads_out("../../../docs/rust.md", 1) && !leads_out("../docs/rust.md", 1) && !leads_out("a/../b.rs", 0));
}
