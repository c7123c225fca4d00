//! The layers of `dxgkrnl_model`, which its landing page draws: a file names what lies in its own layer or below, and
//! few files name each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The layers, the lowest first: folders of `dxgkrnl_model/src`.
const LAYERS: [&str; 6] = ["port", "memory", "objects", "sched", "recovery", "entry"];

/// The largest number of files that name each other in a circle: those of the objects, which have each other.
const CIRCLE: usize = 16;

/// The source without comments, strings and tests.
fn code(source: &str) -> String {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let (mut code, mut rest) = (String::new(), source);
    while let Some(c) = rest.chars().next() {
        let skipped = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '"' => string(rest),
            'r' if rest.starts_with("r\"") || rest.starts_with("r#\"") => raw_string(rest),
            // A character; a lifetime has no quote behind its name.
            '\'' if rest.starts_with("'\\") => 2 + rest[3..].find('\'').map_or(0, |end| end + 2),
            '\'' if rest.chars().nth(2) == Some('\'') => rest.char_indices().nth(3).map_or(rest.len(), |(at, _)| at),
            _ => 0,
        };
        if skipped == 0 {
            code.push(c);
        }
        rest = &rest[skipped.max(c.len_utf8())..];
    }
    code
}

/// The length of a string's text, from quote to quote.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    panic!("a string without an end: {}", text.lines().next().unwrap_or_default());
}

/// The same of a raw string, with its hashes.
fn raw_string(text: &str) -> usize {
    let hashes = text[1..].chars().take_while(|c| *c == '#').count();
    let end = format!("\"{}", "#".repeat(hashes));
    let start = 2 + hashes;
    text[start..].find(&end).map_or(text.len(), |at| start + at + end.len())
}

/// The paths in a tree of names: `a::{b, c::{d as e}}` has `a::b` and `a::c::d`.
fn spread(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let (mut depth, mut item, mut items) = (0_usize, String::new(), Vec::new());
    for c in tree.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                items.push(std::mem::take(&mut item));
                continue;
            }
            _ => {}
        }
        item.push(c);
    }
    items.push(item);
    for item in items {
        let item = item.trim();
        match item.split_once('{') {
            Some((start, rest)) => {
                let rest = rest.rsplit_once('}').map_or(rest, |(rest, _)| rest);
                spread(&format!("{prefix}{}", start.trim()), rest, paths);
            }
            None if item.is_empty() => {}
            None => paths.push(format!("{prefix}{}", item.split(" as ").next().unwrap_or_default().trim())),
        }
    }
}

/// The paths that begin with `crate` or `super` in a source.
fn paths(source: &str) -> Vec<String> {
    let code = code(source);
    let (mut found, mut rest) = (Vec::new(), String::new());
    let mut open = code.as_str();
    while let Some(at) = open.find("use ") {
        let starts = at == 0 || !open[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let Some(end) = open[at..].find(';').filter(|_| starts) else {
            rest.push_str(&open[..at + 4]);
            open = &open[at + 4..];
            continue;
        };
        rest.push_str(&open[..at]);
        spread("", &open[at + 4..at + end], &mut found);
        open = &open[at + end..];
    }
    rest.push_str(open);
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    found.extend(rest.split(|c| !is_name(c)).filter(|path| path.contains("::")).map(str::to_owned));
    found.retain(|path| path.starts_with("crate::") || path.starts_with("super::"));
    found
}

/// The files of the model by their module, and the modules that each names.
fn files(folder: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut sources = BTreeMap::new();
    let mut folders = vec![(folder.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the sources") {
            let path = entry.expect("a file").path();
            let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let module = format!("{prefix}{stem}");
            if path.is_dir() {
                folders.push((path, format!("{module}::")));
            } else if path.extension().is_some_and(|extension| extension == "rs") && stem != "tests" && stem != "lib" {
                sources.insert(module, std::fs::read_to_string(&path).expect("text"));
            }
        }
    }
    graph(&sources)
}

/// Each module, and the modules of `sources` that it names.
fn graph(sources: &BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let resolve = |from: &str, path: &str| -> Option<String> {
        let mut names: Vec<&str> = path.split("::").collect();
        let mut at: Vec<&str> = from.split("::").collect();
        if names[0] == "crate" {
            (at, names) = (Vec::new(), names[1..].to_vec());
        }
        while names.first() == Some(&"super") {
            at.pop();
            names.remove(0);
        }
        at.extend(names);
        (1..=at.len()).rev().map(|length| at[..length].join("::")).find(|module| sources.contains_key(module))
    };
    let named = |module: &String, source: &String| -> BTreeSet<String> {
        let paths = paths(source);
        for path in paths.iter().filter_map(|path| path.strip_prefix("crate::")) {
            // A name that the crate gives to something of a layer's would hide the layer.
            assert!(LAYERS.contains(&path.split("::").next().unwrap_or_default()), "{module}: crate::{path}");
        }
        paths.iter().filter_map(|path| resolve(module, path)).filter(|other| other != module).collect()
    };
    sources.iter().map(|(module, source)| (module.clone(), named(module, source))).collect()
}

#[test]
#[should_panic(expected = "port::a: crate::adapter::Adapter")]
fn a_name_of_the_crate_is_no_way_around_the_layers() {
    graph(&BTreeMap::from([("port::a".to_owned(), "use crate::adapter::Adapter;".to_owned())]));
}

/// Where a module lies: the number of its layer.
fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| module.split("::").next() == Some(layer))
}

/// The arrows from one layer to one above it.
fn upward(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut found = Vec::new();
    for (module, named) in graph {
        let above = named.iter().filter(|other| layer(other) > layer(module));
        found.extend(above.map(|other| format!("{module} -> {other}")));
    }
    found
}

/// The largest set of modules each of which leads to every other one.
fn largest_circle(graph: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let reached = |from: &String| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(module) = next.pop() {
            next.extend(graph[&module].iter().filter(|to| reached.insert((*to).clone())).cloned());
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = graph.keys().map(|module| (module, reached(module))).collect();
    let circle = |module: &String| -> BTreeSet<String> {
        reached[module].iter().filter(|other| reached[*other].contains(module)).cloned().collect()
    };
    graph.keys().map(circle).max_by_key(BTreeSet::len).unwrap_or_default()
}

fn model() -> BTreeMap<String, BTreeSet<String>> {
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("dxgkrnl_model/src"))
}

#[test]
fn no_file_of_the_model_names_a_layer_above_its_own() {
    let graph = model();
    assert!(graph.len() > 150, "{}", graph.len());
    let homeless: Vec<_> = graph.keys().filter(|module| layer(module).is_none()).collect();
    assert!(homeless.is_empty(), "{homeless:?}");
    // The arrows are found: those of a thunk down to a device, and of a device to its context.
    assert!(graph["entry::thunks::device"].contains("objects::device"), "{:?}", graph["entry::thunks::device"]);
    assert!(graph["objects::device"].contains("objects::context"), "{:?}", graph["objects::device"]);
    assert_eq!(upward(&graph), Vec::<String>::new());
}

#[test]
fn few_files_of_the_model_name_each_other_in_a_circle() {
    let circle = largest_circle(&model());
    assert!(circle.len() <= CIRCLE, "{} files: {circle:#?}", circle.len());
}

#[test]
fn the_landing_page_draws_the_layers() {
    let page = include_str!("../dxgkrnl_model/src/lib.rs");
    assert!(page.contains(&LAYERS.join(" ← ")), "`{}` is not on the page", LAYERS.join(" ← "));
}

#[test]
fn what_is_no_code_is_left_out() {
    let source = r##"let a = "C:\\"; let b = '"'; let c = "it's '"; let d = '\''; // crate::entry::x
        let e: &'static str = r#"crate::entry::y " "#; let f = "// no comment"; crate::port::z()"##;
    assert_eq!(paths(source), ["crate::port::z"]);
    assert_eq!(code("'\\\\' 'a' f::<'a>()"), "  f::<'a>()");
}

/// The checks can fail.
#[test]
fn an_arrow_up_and_a_circle_are_found() {
    let of = |sources: &[(&str, &str)]| {
        graph(&sources.iter().map(|(module, source)| ((*module).to_owned(), (*source).to_owned())).collect())
    };
    let up = of(&[
        ("port::a", "// crate::entry::d\nuse crate::{memory::{b::B as C}, port::a};\n"),
        ("memory::b", "fn f() { let text = \"crate::entry::d\"; super::super::objects::c::g() }"),
        ("objects::c", "#[cfg(test)]\nmod tests {\n    use crate::entry::d;\n}\n"),
        ("entry::d", "use super::super::port::a;\npub(crate) use crate::objects::c::{self, D};"),
    ]);
    assert_eq!(upward(&up), ["memory::b -> objects::c", "port::a -> memory::b"]);
    assert!(largest_circle(&up).is_empty());
    let circle = of(&[
        ("port::a", "use super::b::B;"),
        ("port::b", "use super::c;"),
        ("port::c", "fn f(_: crate::port::a::A) {}"),
        ("port::d", "use crate::port::a;"),
    ]);
    assert_eq!(largest_circle(&circle).into_iter().collect::<Vec<_>>(), ["port::a", "port::b", "port::c"]);
}
