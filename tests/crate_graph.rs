//! The arrows of ARCHITECTURE.md §1: who may depend on whom, and what may be in the driver image. Within `kmd_core`
//! and `gpu_engine`: how many modules may name each other in a circle.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Each crate of ours, and which of ours it may name in its manifest, tests included.
const ARROWS: &[(&str, &[&str])] = &[
    ("wddm_abi", &[]),
    ("abi_gen", &["wddm_abi"]),
    ("gpu_wire", &[]),
    ("gpu_word", &[]),
    ("gpu_engine", &["gpu_wire", "gpu_word"]),
    ("kmd_core", &["gpu_engine", "gpu_wire", "wddm_abi"]),
    ("kmd_ddi", &["gpu_engine", "gpu_wire", "kmd_core", "wddm_abi"]),
    ("kmd", &["gpu_engine", "gpu_wire", "kmd_core", "kmd_ddi", "wddm_abi"]),
    ("kmd_native", &["gpu_engine", "gpu_wire", "kmd_core", "kmd_ddi", "nt_model", "wddm_abi"]),
    ("umd_core", &["gpu_wire", "gpu_word", "wddm_abi"]),
    ("umd", &["umd_core", "wddm_abi"]),
    ("umd_d3d", &[]),
    // The model judges drivers; it knows the published interface and nothing of ours.
    ("nt_model", &["wddm_abi"]),
    ("dxgkrnl_model", &["nt_model", "wddm_abi"]),
    // The stand-in for Dxgkrnl under Wine: the published interface, and nothing of ours.
    ("wine_dxgkrnl", &["wddm_abi"]),
    // A driver that is only judged, as a stranger's is.
    ("rust_driver", &["wddm_abi"]),
    // Cases that know no model.
    ("portable_cases", &["gpu_wire", "umd_core", "wddm_abi"]),
    (
        "fencepost",
        &[
            "dxgkrnl_model",
            "gpu_engine",
            "gpu_wire",
            "kmd_core",
            "kmd_ddi",
            "kmd_native",
            "nt_model",
            "portable_cases",
            "umd_core",
            "wddm_abi",
        ],
    ),
    // Cases of another crate, by the library alone.
    ("own_case", &["fencepost"]),
];

/// What the driver image is made of besides our crates: docs/decisions/0002-crates-in-the-driver.md.
const IN_THE_DRIVER: &[&str] =
    &["cfg-if", "foldhash", "hashbrown", "tracelogging", "wdk", "wdk-alloc", "wdk-panic", "wdk-sys", "zerocopy"];

fn metadata() -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--offline", "--all-features", "--filter-platform"]);
    command.arg("x86_64-pc-windows-msvc").current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Our crates, with the names in their `[dependencies]`, `[dev-dependencies]` and `[build-dependencies]`.
fn manifests(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let members: BTreeSet<&str> = metadata["workspace_members"].as_array().unwrap().iter().map(text).collect();
    let packages = metadata["packages"].as_array().unwrap().iter().filter(|p| members.contains(text(&p["id"])));
    packages
        .map(|p| {
            let named = p["dependencies"].as_array().unwrap().iter().map(|d| text(&d["name"]).to_owned()).collect();
            (text(&p["name"]).to_owned(), named)
        })
        .collect()
}

fn violations(manifests: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let ours: BTreeSet<&str> = manifests.keys().map(String::as_str).collect();
    let mut found = Vec::new();
    for (name, dependencies) in manifests {
        let Some((_, allowed)) = ARROWS.iter().find(|(n, _)| n == name) else {
            found.push(format!("{name} is not in ARCHITECTURE.md's picture"));
            continue;
        };
        for dependency in dependencies.iter().filter(|d| ours.contains(d.as_str()) && *d != name) {
            if !allowed.contains(&dependency.as_str()) {
                found.push(format!("{name} -> {dependency}"));
            }
        }
    }
    found
}

#[test]
fn no_arrow_that_is_not_in_the_picture() {
    let manifests = manifests(&metadata());
    assert_eq!(manifests.len(), ARROWS.len(), "crates of the workspace");
    assert_eq!(violations(&manifests), Vec::<String>::new());
}

/// The check can fail: a model that learns the wire format is named.
#[test]
fn a_new_arrow_is_named() {
    let mut manifests = manifests(&metadata());
    manifests.get_mut("dxgkrnl_model").unwrap().insert("gpu_wire".into());
    assert_eq!(violations(&manifests), ["dxgkrnl_model -> gpu_wire"]);
}

#[test]
fn the_driver_image_holds_only_crates_that_have_a_record() {
    let metadata = metadata();
    let nodes: BTreeMap<&str, &Value> =
        metadata["resolve"]["nodes"].as_array().unwrap().iter().map(|n| (text(&n["id"]), n)).collect();
    let packages: BTreeMap<&str, &Value> =
        metadata["packages"].as_array().unwrap().iter().map(|p| (text(&p["id"]), p)).collect();
    let is_macro = |id: &str| {
        packages[id]["targets"]
            .as_array()
            .unwrap()
            .iter()
            .any(|t| t["kind"].as_array().unwrap().iter().any(|k| k == "proc-macro"))
    };
    let kmd = *packages.iter().find(|(_, p)| p["name"] == "kmd").unwrap().0;
    let mut seen = BTreeSet::new();
    let mut open = vec![kmd];
    while let Some(id) = open.pop() {
        if !seen.insert(id) || is_macro(id) {
            continue;
        }
        for dependency in nodes[id]["deps"].as_array().unwrap() {
            let normal = dependency["dep_kinds"].as_array().unwrap().iter().any(|k| k["kind"].is_null());
            if normal {
                open.push(text(&dependency["pkg"]));
            }
        }
    }
    let members: BTreeSet<&str> = metadata["workspace_members"].as_array().unwrap().iter().map(text).collect();
    let foreign: BTreeSet<&str> = seen
        .into_iter()
        .filter(|id| !members.contains(id) && !is_macro(id))
        .map(|id| text(&packages[id]["name"]))
        .collect();
    assert_eq!(foreign.into_iter().collect::<Vec<_>>(), IN_THE_DRIVER);
    let record =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/decisions/0002-crates-in-the-driver.md"));
    let record = record.unwrap();
    for name in IN_THE_DRIVER {
        assert!(record.contains(&format!("`{name}`")), "{name} has no line in the record");
    }
}

/// The largest number of modules of `kmd_core`, and of `gpu_engine`, that name each other in a circle.
const CIRCLE: usize = 4;

/// The modules that `source` names by `crate::…`, tests and comments left out.
fn named(source: &str) -> BTreeSet<String> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: String = source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let identifier =
        |text: &str| -> String { text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let Some(list) = rest.strip_prefix('{') else {
            found.insert(identifier(rest));
            continue;
        };
        // `use crate::{a, b::{c, d}}`: the names at the outer level.
        let mut depth = 0;
        let mut item = String::new();
        for c in list.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    found.insert(identifier(&item));
                    item.clear();
                    continue;
                }
                _ => {}
            }
            item.push(c);
        }
        found.insert(identifier(&item));
    }
    found
}

/// The largest set of modules each of which leads to every other one, by what each names.
fn largest_circle(names: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let reached = |from: &str| {
        let mut reached = BTreeSet::new();
        let mut next = vec![from.to_owned()];
        while let Some(module) = next.pop() {
            for to in names.get(&module).into_iter().flatten() {
                if *to != module && names.contains_key(to) && reached.insert(to.clone()) {
                    next.push(to.clone());
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = names.keys().map(|module| (module, reached(module))).collect();
    let circle = |module: &&String| -> BTreeSet<String> {
        reached[*module].iter().filter(|other| reached[*other].contains(*module)).cloned().collect()
    };
    names.keys().map(|module| circle(&module)).max_by_key(BTreeSet::len).unwrap_or_default()
}

/// The modules of the crate in `folder`, and what each names. A module of several files is one here.
fn modules(folder: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut folders = vec![(folder.to_owned(), None)];
    while let Some((folder, module)) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the sources") {
            let path = entry.expect("a file").path();
            let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let module = module.clone().unwrap_or(stem);
            if path.is_dir() {
                folders.push((path, Some(module)));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                names.entry(module).or_default().extend(named(&std::fs::read_to_string(&path).expect("text")));
            }
        }
    }
    names
}

#[test]
fn few_files_of_the_driver_name_each_other_in_a_circle() {
    for (folder, module, names_it) in
        [("kmd/core/src", "device", "process"), ("gpu/engine/src", "command_processor", "mmu")]
    {
        let names = modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
        assert!(names.len() > 30 && names[module].contains(names_it), "{names:?}");
        let circle = largest_circle(&names);
        assert!(circle.len() <= CIRCLE, "{folder}: {circle:?}");
    }
}

#[test]
fn a_circle_of_files_is_found() {
    let of = |sources: &[(&str, &str)]| {
        let names = sources.iter().map(|(module, source)| ((*module).to_owned(), named(source))).collect();
        largest_circle(&names).into_iter().collect::<Vec<_>>()
    };
    let line = [("a", "use crate::b::B;"), ("b", "fn f() { crate::c::g() }"), ("c", "// use crate::a::A;\n")];
    assert!(of(&line).is_empty());
    let list = "use crate::{x::{y, z},\n    a::A as Other, d};\n";
    let circle = [line[0], line[1], ("c", list), ("d", "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n")];
    assert_eq!(of(&circle), ["a", "b", "c"]);
}
