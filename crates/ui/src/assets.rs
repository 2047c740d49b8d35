//! The page: plain HTML, one style sheet and ES modules, as they are in `assets`. Nothing is fetched from elsewhere.

/// A file of the page: its path, its type and its text.
type Asset = (&'static str, &'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

const ALL: &[Asset] = &[
    ("/", HTML, include_str!("../assets/index.html")),
    ("/app.css", CSS, include_str!("../assets/app.css")),
    ("/icon.svg", SVG, include_str!("../assets/icon.svg")),
    ("/app.js", JS, include_str!("../assets/app.js")),
    ("/server.js", JS, include_str!("../assets/server.js")),
    ("/dom.js", JS, include_str!("../assets/dom.js")),
    ("/numbers.js", JS, include_str!("../assets/numbers.js")),
    ("/plots.js", JS, include_str!("../assets/plots.js")),
    ("/launch.js", JS, include_str!("../assets/launch.js")),
    ("/jobs.js", JS, include_str!("../assets/jobs.js")),
    ("/job.js", JS, include_str!("../assets/job.js")),
    ("/runs.js", JS, include_str!("../assets/runs.js")),
    ("/hosts.js", JS, include_str!("../assets/hosts.js")),
];

/// The type and the text of the file at a path.
pub fn find(path: &str) -> Option<(&'static str, &'static str)> {
    ALL.iter().find(|(known, _, _)| *known == path).map(|(_, kind, text)| (*kind, *text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_only_files_that_are_there_and_none_from_elsewhere() {
        let mut named = 0;
        for (path, _, text) in ALL {
            for start in ["src=\"", "href=\"/", "from \""] {
                for rest in text.split(start).skip(1) {
                    let name = rest.split('"').next().unwrap().trim_start_matches(['.', '/']);
                    named += 1;
                    assert!(find(&format!("/{name}")).is_some(), "{path} names {name}");
                }
            }
            for foreign in ["https://", "//cdn", "innerHTML", "eval("] {
                assert!(!text.contains(foreign), "{path} has {foreign}");
            }
        }
        assert!(named > ALL.len(), "only {named} files are named");
    }
}
