//! The tools that `Makefile.toml` calls on Windows, option by option: each option that a task uses stands in the table
//! here with the page that documents it, and each row of the table is used. A task cannot get an option that nobody
//! looked up.

use fencepost::inf::Contents;
use fencepost::package::FORMS;
use std::collections::BTreeSet;

/// Tool (with its command, where options depend on it), option, and the page that documents the option. The pages of
/// the driver kit's tools were read for this; those of WPR, PowerShell and its cmdlets, Cargo, and of .NET's
/// Makecert.exe and Certmgr.exe were not at hand in whole.
const OPTIONS: &[(&str, &str, &str)] = &[
    ("cargo build", "--features", "The Cargo Book, cargo build"),
    ("cargo build", "--locked", "The Cargo Book, cargo build"),
    ("cargo build", "--package", "The Cargo Book, cargo build"),
    ("cargo build", "--profile", "The Cargo Book, cargo build"),
    ("cargo build", "--target", "The Cargo Book, cargo build"),
    ("cargo run", "--bin", "The Cargo Book, cargo run"),
    ("cargo run", "--locked", "The Cargo Book, cargo run"),
    ("cargo run", "--package", "The Cargo Book, cargo run"),
    ("cargo run", "--release", "The Cargo Book, cargo run"),
    ("cargo run", "--target", "The Cargo Book, cargo run"),
    ("certmgr /add", "/add", "CertMgr (Driver Development Tools)"),
    ("certmgr /add", "/r", "CertMgr (Driver Development Tools)"),
    ("certmgr /add", "/s", "CertMgr (Driver Development Tools)"),
    ("certmgr -put", "-c", "CertMgr (Driver Development Tools)"),
    ("certmgr -put", "-put", "CertMgr (Driver Development Tools)"),
    ("certmgr -put", "-s", "CertMgr (Driver Development Tools)"),
    ("certmgr -put", "-n", "Certmgr.exe (Certificate Manager Tool)"),
    ("devgen /add", "/add", "DevGen Command Syntax"),
    ("devgen /add", "/bus", "DevGen Command Syntax"),
    ("devgen /add", "/hardwareid", "DevGen Command Syntax"),
    ("inf2cat", "/driver:", "Inf2Cat"),
    ("inf2cat", "/os:", "Inf2Cat"),
    ("inf2cat", "/uselocaltime", "Inf2Cat"),
    ("infverif", "/v", "Running InfVerif from the Command Line"),
    ("infverif", "/w", "Running InfVerif from the Command Line"),
    ("makecert", "-a", "Makecert.exe (Certificate Creation Tool)"),
    ("makecert", "-eku", "Makecert.exe (Certificate Creation Tool)"),
    ("makecert", "-len", "MakeCert (Driver Development Tools)"),
    ("makecert", "-n", "MakeCert (Driver Development Tools)"),
    ("makecert", "-pe", "MakeCert (Driver Development Tools)"),
    ("makecert", "-r", "MakeCert (Driver Development Tools)"),
    ("makecert", "-ss", "MakeCert (Driver Development Tools)"),
    ("pnputil /add-driver", "/add-driver", "PnPUtil Command Syntax"),
    ("pnputil /add-driver", "/install", "PnPUtil Command Syntax"),
    ("pnputil /delete-driver", "/delete-driver", "PnPUtil Command Syntax"),
    ("pnputil /delete-driver", "/uninstall", "PnPUtil Command Syntax"),
    ("pnputil /enum-devices", "/deviceid", "PnPUtil Command Syntax"),
    ("pnputil /enum-devices", "/drivers", "PnPUtil Command Syntax"),
    ("pnputil /enum-devices", "/enum-devices", "PnPUtil Command Syntax"),
    ("pnputil /remove-device", "/remove-device", "PnPUtil Command Syntax"),
    ("powershell", "-ExecutionPolicy", "about_PowerShell_exe"),
    ("powershell", "-File", "about_PowerShell_exe"),
    ("powershell", "-NoProfile", "about_PowerShell_exe"),
    ("signtool sign", "/fd", "SignTool (Driver Development Tools)"),
    ("signtool sign", "/n", "SignTool (Driver Development Tools)"),
    ("signtool sign", "/s", "SignTool (Driver Development Tools)"),
    ("signtool sign", "/v", "SignTool (Driver Development Tools)"),
    ("signtool verify", "/c", "SignTool (Driver Development Tools)"),
    ("signtool verify", "/pa", "SignTool (Driver Development Tools)"),
    ("signtool verify", "/v", "SignTool (Driver Development Tools)"),
    ("stampinf", "-a", "Stampinf Command Options"),
    ("stampinf", "-c", "Stampinf Command Options"),
    ("stampinf", "-d", "Stampinf Command Options"),
    ("stampinf", "-f", "Stampinf Command Options"),
    ("stampinf", "-v", "Stampinf Command Options"),
    ("wpr -start", "-start", "WPR Command-Line Options"),
    ("wpr -start", "-filemode", "WPR Command-Line Options"),
    ("wpr -stop", "-stop", "WPR Command-Line Options"),
    ("Compress-Archive", "-DestinationPath", "Compress-Archive"),
    ("Compress-Archive", "-Force", "Compress-Archive"),
    ("Compress-Archive", "-Path", "Compress-Archive"),
    ("Get-ChildItem", "-Include", "Get-ChildItem"),
    ("Get-ChildItem", "-Recurse", "Get-ChildItem"),
    ("Get-WinEvent", "-FilterHashtable", "Get-WinEvent"),
    ("Get-WindowsDriver", "-Online", "Get-WindowsDriver"),
    ("New-Item", "-ItemType", "New-Item"),
    ("Remove-Item", "-Recurse", "Remove-Item"),
    ("Get-ChildItem", "-ErrorAction", "about_CommonParameters"),
    ("Get-Item", "-ErrorAction", "about_CommonParameters"),
    ("Get-PnpDevice", "-ErrorAction", "about_CommonParameters"),
    ("Get-WinEvent", "-ErrorAction", "about_CommonParameters"),
];

/// Words of PowerShell that begin a statement and are no program.
const KEYWORDS: &[&str] = &["if", "else", "foreach", "throw", "exit"];
/// Operators of PowerShell, which look like parameters.
/// Source: *about_Comparison_Operators*, *about_Logical_Operators*.
const OPERATORS: &[&str] = &["-eq", "-ne", "-le", "-ge", "-match", "-contains", "-notin", "-and", "-not"];
/// Tools whose options depend on their first argument.
const WITH_COMMANDS: &[&str] = &["certmgr", "cargo", "devgen", "pnputil", "signtool", "wpr"];

type Used = BTreeSet<(String, String)>;

/// Adds the options among `arguments` of `tool`. What stands behind `--` is another program's.
fn note(used: &mut Used, tool: &str, arguments: &[String]) {
    let tool = match arguments.first() {
        Some(first) if WITH_COMMANDS.contains(&tool) => format!("{tool} {first}"),
        _ => tool.to_owned(),
    };
    for argument in arguments.iter().take_while(|argument| *argument != "--") {
        if is_option(argument) {
            let end = argument.find(':').map_or(argument.len(), |at| at + 1);
            used.insert((tool.clone(), argument[..end].to_owned()));
        }
    }
}

/// Returns whether a word is an option: `/add`, `-start`, `--locked`.
fn is_option(word: &str) -> bool {
    let name = word.strip_prefix('/').or_else(|| word.strip_prefix("--")).or_else(|| word.strip_prefix('-'));
    name.is_some_and(|name| name.starts_with(|first: char| first.is_ascii_alphabetic()))
}

/// The strings in quotes on a line.
fn quoted(line: &str) -> impl Iterator<Item = String> {
    line.split('"').skip(1).step_by(2).map(str::to_owned)
}

/// What a script of duckscript runs: `exec`, a flag of its own, and the program.
fn duckscript(used: &mut Used, script: &str) {
    for line in script.lines() {
        let Some((_, call)) = line.split_once("exec ") else { continue };
        let call = call.strip_prefix("--fail-on-error ").unwrap_or(call);
        let words: Vec<String> = call.split_whitespace().map(str::to_owned).collect();
        note(used, &words[0], &words[1..]);
    }
}

/// What a script of PowerShell calls: cmdlets wherever they stand, and programs at the beginning of a statement.
fn powershell(used: &mut Used, script: &str) {
    let joined = script.replace("`\n", " ");
    for line in joined.lines().filter(|line| !line.trim_start().starts_with('#')) {
        // Without what is in quotes, where names and patterns are.
        let code: String = line.split('"').step_by(2).collect();
        let code = code.replace(['(', ')', '@', ','], " ").replace(['|', '{', '}', ';', '='], " ; ");
        for statement in code.split(';') {
            let words: Vec<&str> = statement.split_whitespace().filter(|word| !OPERATORS.contains(word)).collect();
            let begins = words.iter().enumerate().filter(|(at, word)| {
                let is_cmdlet = word.starts_with(|first: char| first.is_ascii_uppercase()) && word.contains('-');
                let is_program = *at == 0 && word.chars().all(|letter| letter.is_ascii_lowercase());
                is_cmdlet || is_program && !KEYWORDS.contains(word)
            });
            let begins: Vec<usize> = begins.map(|(at, _)| at).chain([words.len()]).collect();
            for call in begins.windows(2).map(|range| &words[range[0]..range[1]]) {
                let arguments: Vec<String> = call[1..].iter().map(|word| (*word).to_owned()).collect();
                note(used, call[0], &arguments);
            }
        }
    }
}

/// What the tasks use.
fn used(makefile: &str) -> Used {
    let mut used = Used::new();
    for task in makefile.split("\n[tasks.").skip(1) {
        let of = |key: &str| task.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        let list = |key: &str| -> Vec<String> {
            let Some((_, rest)) = task.split_once(&format!("\n{key} = [")) else { return Vec::new() };
            quoted(&rest[..rest.find(']').expect("the list ends")]).collect()
        };
        if let Some(command) = of("command") {
            note(&mut used, command.trim_matches('"'), &list("args"));
        }
        let script = task.split("'''").nth(1).unwrap_or_default();
        match of("script_runner") {
            Some("\"@duckscript\"") => duckscript(&mut used, script),
            Some("\"powershell\"") => {
                note(&mut used, "powershell", &list("script_runner_args"));
                powershell(&mut used, script);
            }
            Some(runner) => panic!("how {runner} calls programs is not known here"),
            None => assert!(script.is_empty(), "a script for cmd"),
        }
    }
    used
}

#[test]
fn every_option_that_a_task_uses_is_documented() {
    let used = used(include_str!("../Makefile.toml"));
    let documented: Used = OPTIONS.iter().map(|(tool, option, _)| ((*tool).into(), (*option).into())).collect();
    assert_eq!(documented.len(), OPTIONS.len(), "an option has two rows");
    assert_eq!(used.difference(&documented).collect::<Vec<_>>(), Vec::<&_>::new(), "without a source");
    assert_eq!(documented.difference(&used).collect::<Vec<_>>(), Vec::<&_>::new(), "not used any more");
}

#[test]
fn an_option_is_found_wherever_a_task_has_it() {
    let makefile = "\n[tasks.a]\ncommand = \"wpr\"\nargs = [\n\
        \"-start\", \"x/y\",\n    \"/os:A,B\", \"--\", \"-z\",\n]\n\
        \n[tasks.b]\nscript_runner = \"@duckscript\"\nscript = '''\nfound = exec signtool sign /v a\n\
        exec --fail-on-error signtool verify /pa b\n'''\n\
        \n[tasks.c]\nscript_runner = \"powershell\"\nscript_runner_args = [\"-File\"]\nscript = '''\n\
        if ($a -eq 1) { Remove-Item -Recurse $a }\n\
        $b = @(Get-Item -Name `\n    -Force \"-quoted\") | tool /x \"/y\"\n'''\n";
    let found: Vec<String> = used(makefile).into_iter().map(|(tool, option)| format!("{tool} {option}")).collect();
    let expected = [
        "Get-Item -Force",
        "Get-Item -Name",
        "Remove-Item -Recurse",
        "powershell -File",
        "signtool sign /v",
        "signtool verify /pa",
        "tool /x",
        "wpr -start -start",
        "wpr -start /os:",
    ];
    assert_eq!(found, expected);
}

const MAKEFILE: &str = include_str!("../Makefile.toml");

/// The tasks: name, without what stands behind a dot, and text.
fn tasks(makefile: &str) -> impl Iterator<Item = (&str, &str)> {
    makefile.split("\n[tasks.").skip(1).map(|task| {
        let (name, text) = task.split_once(']').expect("a name");
        (name.split('.').next().unwrap_or_default(), text)
    })
}

/// The text of a task, as Windows has it.
fn task(name: &str) -> &'static str {
    tasks(MAKEFILE).find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no task {name}")).1
}

/// The strings of a list of a task.
fn list(task: &str, key: &str) -> Vec<String> {
    let Some((_, rest)) = task.split_once(&format!("\n{key} = [")) else { return Vec::new() };
    quoted(&rest[..rest.find("]\n").expect("the list ends")]).collect()
}

#[test]
fn what_a_task_needs_is_a_task() {
    let names: BTreeSet<&str> = tasks(MAKEFILE).map(|(name, _)| name).collect();
    for (name, text) in tasks(MAKEFILE) {
        let runs = text.lines().find_map(|line| line.strip_prefix("run_task = ")).map(|task| task.trim_matches('"'));
        for needed in list(text, "dependencies").iter().map(String::as_str).chain(runs) {
            assert!(names.contains(needed), "{name} needs {needed}");
        }
    }
}

/// What is signed behind inf2cat is not what its catalog has; and nothing is verified that is not signed.
#[test]
fn a_package_is_made_in_its_order() {
    let order = list(task("package"), "dependencies");
    let at = |name: &str| order.iter().position(|it| it == name).unwrap_or_else(|| panic!("{name}: {order:?}"));
    let behind_each_other = [
        &["version", "build", "gather", "stampinf", "infverif", "inf2cat", "sign-catalogs", "verify-package"][..],
        &["gather", "stampinf-compute", "infverif", "inf2cat-compute", "sign-catalogs"],
        &["certificate", "gather", "sign-binaries", "inf2cat"],
        &["sign-binaries", "inf2cat-compute"],
        &["certificate", "sign-program", "verify-package"],
    ];
    for names in behind_each_other {
        assert!(names.is_sorted_by_key(|name| at(name)), "{names:?}: {order:?}");
    }
}

/// Each file of each INF is gathered, signed and verified, in the place where the INF of that package is.
#[test]
fn each_file_of_a_package_is_signed_and_verified() {
    for (form, of, ending) in
        FORMS.iter().zip(["${PACKAGE}", "${PACKAGE_COMPUTE}"]).zip(["", "-compute"]).map(|((a, b), c)| (a, b, c))
    {
        let (inf, cat) = (format!("{of}/{}.inf", form.name), format!("{of}/{}.cat", form.name));
        let text = std::fs::read_to_string(format!("{}/inf/{}.inx", env!("CARGO_MANIFEST_DIR"), form.name));
        let files = Contents::of(&text.expect("the INF")).files;
        assert_eq!(files.len(), 3);
        let gathered = task("gather");
        assert!(gathered.contains(&format!("\ncp inf/{}.inx {inf}\n", form.name)));
        for file in &files {
            assert!(gathered.contains(&format!("\ncp out/{file} {of}/{file}\n")), "{file}");
            for name in ["sign-binaries", "verify-binaries", &format!("verify-files{ending}")] {
                assert!(list(task(name), "args").contains(&format!("{of}/{file}")), "{name}: {file}");
            }
        }
        let name = format!("{}.cat", form.name);
        let stamped = ["-f", &inf, "-d", "*", "-a", "amd64", "-c", &name, "-v", "${FENCEPOST_VERSION}"];
        assert_eq!(list(task(&format!("stampinf{ending}")), "args"), stamped);
        assert!(list(task("infverif"), "args").contains(&inf));
        assert!(list(task(&format!("inf2cat{ending}")), "args").contains(&format!("/driver:{of}")));
        assert!(list(task("sign-catalogs"), "args").contains(&cat));
        assert!(task("verify-catalogs").contains(&cat));
        let verified = list(task(&format!("verify-files{ending}")), "args");
        assert_eq!(verified[..4], ["verify", "/v", "/pa", "/c"]);
        assert_eq!((&verified[4], &verified[5]), (&cat, &inf));
        for name in ["sign-binaries", "sign-catalogs"] {
            let signed = list(task(name), "args");
            assert_eq!(signed[..2], ["sign", "/v"], "{name}");
            assert!(signed.windows(2).any(|pair| pair == ["/fd", "SHA256"]), "{name}");
        }
    }
}

/// The profile that is started is in the file, for traces that go to a file; the device that is made is the INFs'.
#[test]
fn what_tasks_name_is_there() {
    let started = list(task("trace"), "args");
    let (file, profile) = started[1].split_once('!').expect("a profile of a file");
    let text = std::fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR"))).expect("the profile's file");
    assert!(text.contains(&format!("Name=\"{profile}\" DetailLevel=\"Verbose\" LoggingMode=\"File\"")));
    let device = task("experiment").lines().find(|line| line.starts_with("devgen ")).expect("a device");
    let removed = task("uninstall").lines().find(|line| line.contains("Get-PnpDevice")).expect("devices");
    for name in ["fencepost", "fencepost_compute"] {
        let text = std::fs::read_to_string(format!("{}/inf/{name}.inx", env!("CARGO_MANIFEST_DIR"))).expect("the INF");
        let hardware = Contents::of(&text).hardware;
        for line in [device, removed] {
            assert!(hardware.contains(&quoted(line).last().expect("a hardware ID")), "{line}: {hardware:?}");
        }
    }
}
