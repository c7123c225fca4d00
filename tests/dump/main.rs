//! Dumps for debuggers: of a broken rule, of a hang, of a machine at work, as three readers find them: the `minidump`
//! crate, LLDB, and a small one of our own that shows what the natvis files say. The images must have been built.

mod lldb;
mod natvis;
mod types;

use dxgkrnl_model::personality::{Personality, Windows};
use fencepost::demo::picture::Picture;
use fencepost::demo::run::run as demo;
use fencepost::dump::{Dump, Moment, Recorder};
use fencepost::setting::adapter_of_ours;
use fencepost::world::{Form, Images, World};
use libtest_mimic::{Arguments, Failed, Trial};
use minidump::{Minidump, MinidumpException, MinidumpMemory64List, MinidumpModuleList, MinidumpThreadList, Module};
use natvis::{Natvis, Value};
use nt_model::{Caller, Details, Machine, Violation, rules};
use roxmltree::Document;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::{Symbols, Type};
use umd_core::ffi::types::FP_KIND_SYSTEM;

rules! {
    list PLANTED;
    /// A rule that the test breaks on the driver's behalf.
    PLANTED_RULE = "TEST-PLANTED" {
        title: "a driver maps nothing while the test looks",
        source: "this test",
        bugcheck: (0x119, 0xA),
        fix: "none: the test plants it",
    }
    /// A rule that is no error, broken before the other.
    PLANTED_NOTE = "TEST-NOTED" {
        title: "a driver says something that the test notes",
        source: "this test",
        bugcheck: none,
        severity: note,
        fix: "none: the test plants it",
    }
}

fn folder() -> PathBuf {
    std::env::var_os("FENCEPOST_OUT").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("out"), PathBuf::from)
}

fn form() -> Form {
    Form::Image(Arc::new(Images::read(&folder()).expect("the images")))
}

fn symbols(name: &str) -> Symbols {
    let file = std::fs::read(folder().join(name)).expect("the symbol file");
    Symbols::of(&file).expect("a symbol file")
}

/// A dump that a recorder kept, written as the command line writes it, with the symbol file beside it.
struct Written {
    folder: tempfile::TempDir,
}

impl Written {
    fn new(recorder: &Recorder, shows: &str) -> Self {
        let written = Self { folder: tempfile::tempdir().expect("a folder") };
        let beside = fencepost::dump::BESIDE.map(|name| folder().join(name));
        let shown = recorder.write(&written.path(), &beside).expect("written");
        assert_eq!(shown.what, shows);
        written
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("a.dmp")
    }

    fn read(&self) -> Minidump<'static, Vec<u8>> {
        let bytes = std::fs::read(self.path()).expect("the dump");
        assert!(bytes.len() < 64 << 20, "{} bytes", bytes.len());
        Minidump::read(bytes).expect("a minidump")
    }
}

/// Where the driver is loaded, by the dump, which names its symbol file by its id.
fn driver(dump: &Minidump<'static, Vec<u8>>, symbols: &Symbols) -> u64 {
    let modules = dump.get_stream::<MinidumpModuleList>().expect("modules");
    let module = modules.iter().find(|module| module.code_file() == "fencepost.sys").expect("the driver");
    assert_eq!(module.debug_file().as_deref(), Some("fencepost.pdb"));
    let id = module.debug_identifier().expect("an id");
    let (guid, age) = &symbols.id;
    assert_eq!((id.uuid().to_string().to_uppercase(), id.appendix()), (guid.clone(), *age));
    module.base_address()
}

/// Runs `f` with the natvis of the driver's symbol file over a dump's memory, and the root variable.
fn with_root<R>(dump: &Minidump<'static, Vec<u8>>, symbols: &Symbols, f: impl FnOnce(&Natvis<'_>, &Value) -> R) -> R {
    let memory = dump.get_stream::<MinidumpMemory64List<'_>>().expect("memory");
    let read = |at: u64, bytes: usize| {
        let range = memory.memory_at_address(at)?;
        // CAST: an offset in a range.
        let start = (at - range.base_address) as usize;
        range.bytes.get(start..start + bytes).map(<[u8]>::to_vec)
    };
    let text = symbols.visualizer.as_deref().expect("a natvis file in the symbol file");
    let document = Document::parse(text).expect("XML");
    let mut natvis = Natvis::new(symbols, &document);
    natvis.read = Some(&read);
    let root = natvis.variable("kmd_core::root::FENCEPOST", driver(dump, symbols)).expect("the root variable");
    f(&natvis, &root)
}

/// Every member that a natvis file names is in the symbol file that it is linked into.
fn natvis_names_what_is_there(pdb: &str, source: &str, at_least: usize) {
    let symbols = symbols(pdb);
    let text = symbols.visualizer.as_deref().expect("a natvis file in the symbol file");
    let file = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(source)).expect("the natvis file");
    assert_eq!(text, file, "{pdb} has another natvis file than {source}");
    let document = Document::parse(text).expect("XML");
    let (count, wrong) = Natvis::new(&symbols, &document).check();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= at_least, "{count} expressions");
    // A member that was renamed is noticed.
    let renamed = text.replace("capacity", "roominess").replace("number}", "ordinal}");
    let document = Document::parse(&renamed).expect("XML");
    assert!(!Natvis::new(&symbols, &document).check().1.is_empty(), "nothing notices a renamed member");
}

/// A dump of a machine in which a process has a device and three queues, two of which have run something.
fn three_queues() -> Written {
    let recorder = Arc::new(Recorder::default());
    recorder.listening(|| {
        let world = World::boot(&form(), Personality::collecting()).expect("the driver loads");
        world.adapter(adapter_of_ours(&[])).expect("the adapter starts");
        let user = world.process("maker").expect("a process");
        let device = user.open().and_then(|adapter| adapter.device()).expect("a device");
        let queues: Vec<_> = [0, 0, 1].map(|node| device.queue(node, 0x1_0000, 0, 0).expect("a queue")).into();
        for queue in &queues[..2] {
            let value = queue.run(|list| list.nop(16)).expect("submitted");
            queue.wait(value, Some(PATIENCE)).expect("executed");
        }
        world.os.kernel().dump_moment(Moment::Ended, "a look");
    });
    Written::new(&recorder, "the end")
}

/// Longer than anything takes that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Machines that are looked at for one whose engine has ended its turn by then.
const LOOKS: usize = 20;

/// What the root variable says is what was made.
fn the_root_says_what_was_made() {
    let symbols = symbols("fencepost.pdb");
    // An engine ends its turn when its last value can be seen already.
    let is_idle = |written: &Written| {
        with_root(&written.read(), &symbols, |natvis, root| {
            let adapter = natvis.item(root, "[adapter 0]").expect("the adapter");
            let node = natvis.item(&adapter, "[node 0: 3D]").expect("a node");
            natvis.show(&node).expect("the node").starts_with("node 0: idle; ")
        })
    };
    let written = (0..LOOKS).map(|_| three_queues()).find(is_idle).expect("an engine that is idle");
    with_root(&written.read(), &symbols, |natvis, root| {
        let text = natvis.show(root).expect("the root");
        assert!(text.starts_with("Fencepost: ") && text.ends_with(" objects alive, 1 starts, 0 stops"), "{text}");
        let adapter = natvis.item(root, "[adapter 0]").expect("the adapter");
        let text = natvis.show(&adapter).expect("the adapter");
        assert!(text.contains(" 3 hardware queues, 3 doorbells, 3 native fences,"), "{text}");
        assert!(natvis.item(root, "[adapter 1]").is_err());
        let node = natvis.item(&adapter, "[node 0: 3D]").expect("a node");
        let text = natvis.show(&node).expect("the node");
        assert!(text.ends_with(" 0 resets"), "{text}");
        // The table of handles lists as many of each kind.
        let table = natvis.item(root, "[handles]").expect("the table");
        let entries = natvis.list(&table).expect("entries");
        let entries: Vec<_> = entries.iter().map(|entry| natvis.show(entry).expect("text")).collect();
        let queues: Vec<_> = entries.iter().filter(|entry| entry.starts_with("hardware queue ")).collect();
        assert_eq!(queues.len(), 3, "{entries:#?}");
        let used = |queue: &&&String| queue.contains(" of its ring consumed, 2 packets");
        assert_eq!(queues.iter().filter(used).count(), 2, "{queues:#?}");
    });
}

/// The compute-only form has another name for node 0, which the driver's own state tells.
fn the_compute_only_form_names_its_node() {
    let recorder = Arc::new(Recorder::default());
    recorder.listening(|| {
        let settings = [("ComputeOnly".to_owned(), 1)];
        let world = World::boot_with(&form(), Personality::collecting(), &settings).expect("the driver loads");
        world.adapter(adapter_of_ours(&settings)).expect("the adapter starts");
        world.os.kernel().dump_moment(Moment::Ended, "a look");
    });
    let written = Written::new(&recorder, "the end");
    with_root(&written.read(), &symbols("fencepost.pdb"), |natvis, root| {
        let adapter = natvis.item(root, "[adapter 0]").expect("the adapter");
        let node = natvis.item(&adapter, "[node 0: compute]").expect("a node");
        assert!(natvis.show(&node).expect("the node").starts_with("node 0: "));
        assert!(natvis.item(&adapter, "[node 0: 3D]").is_err());
    });
}

/// The objects of the root's table that look like `kind`.
fn objects(natvis: &Natvis<'_>, root: &Value, kind: &str) -> Vec<Value> {
    let table = natvis.item(root, "[handles]").expect("the table");
    let slots = natvis.list(&table).expect("entries");
    let found = slots.iter().filter(|slot| natvis.show(slot).expect("text").starts_with(kind));
    let entry = |slot| natvis.evaluate("*(kmd_core::handle::Entry*)&value", slot).expect("an entry");
    found.map(|slot| natvis.item(&entry(slot), "[object]").expect("an object")).collect()
}

/// What is stored where the GPU is told to, in a ring.
const MARK: u64 = 0x5EED_0000_C0FF_EE01;
/// More allocations than a chunk of the table of handles has places for, with what each opens.
const ALLOCATIONS: usize = 600;

/// From the root variable pointers lead to a doorbell's ring, a native fence's value and a log's entries: what lies
/// there is what the process wrote, and what the model knows.
fn pointers_lead_to_a_ring_a_fence_and_a_log() {
    let recorder = Arc::new(Recorder::default());
    let symbols = symbols("fencepost.pdb");
    recorder.listening(|| {
        let world = World::boot(&form(), Personality::collecting()).expect("the driver loads");
        let adapter = world.adapter(adapter_of_ours(&[])).expect("the adapter starts");
        let user = world.process("maker").expect("a process");
        let device = user.open().and_then(|adapter| adapter.device()).expect("a device");
        let queue = device.queue(0, 0x1_0000, 0, 0).expect("a queue");
        let many: Vec<_> = (0..ALLOCATIONS).map(|_| device.allocate(FP_KIND_SYSTEM, 4096, 0)).collect();
        let memory = many[0].as_ref().expect("memory").gpu_va().expect("an address");
        let fence = device.fence(3, 0).expect("a fence");
        let first = queue.run(|list| {
            list.store(memory, MARK)?;
            list.signal(&fence, 9)
        });
        let first = first.expect("submitted");
        // A value's own entry comes behind the value; that of the one before it is there by then.
        let second = queue.run(|list| list.nop(16)).expect("submitted");
        queue.wait(second, Some(PATIENCE)).expect("executed");
        let (of_queue, of_fence) = (queue.info().expect("the queue"), fence.info().expect("the fence"));
        world.os.kernel().dump_moment(Moment::Ended, "a look");
        let written = Written::new(&recorder, "the end");
        with_root(&written.read(), &symbols, |natvis, root| {
            let read = |at: u64, bytes| natvis.read.and_then(|read| read(at, bytes)).expect("in the dump");
            let word = |at| u64::from_le_bytes(read(at, 8).try_into().expect("eight bytes"));
            let number = |of: &str, value: &Value| {
                let found = natvis.evaluate(of, value).unwrap_or_else(|why| panic!("{of}: {why}"));
                natvis.number(&found).unwrap_or_else(|why| panic!("{of}: {why}"))
            };
            let [doorbell] = &objects(natvis, root, "doorbell ")[..] else { panic!("not one doorbell") };
            let hw_queue = natvis.item(doorbell, "[queue]").expect("its queue");
            let engine = natvis.item(&hw_queue, "[queue]").expect("the engine's");
            // The ring: the process has it locked where the model says.
            let rings = natvis.item(&engine, "[rings]").expect("rings");
            let ring = natvis.evaluate("list[0]", &rings).expect("a ring");
            let text = natvis.show(&ring).expect("text");
            assert!(text.starts_with("ring at GPU ") && text.contains(" 65536 bytes, control at GPU "), "{text}");
            let at = |of: &str| {
                let gpu = number(&format!("variant1.value.__0.{of}.__0"), &ring);
                world.os.locked_at(&user.process, &adapter, gpu).expect("locked") as u64
            };
            let written = word(at("control"));
            assert!(written != 0 && written <= 4096, "{written} bytes written");
            // CAST: a page at most.
            let bytes = read(at("ring"), written as usize);
            assert!(bytes.windows(8).any(|bytes| bytes == MARK.to_le_bytes()), "{bytes:x?}");
            // The fence: the driver knows where the GPU has its value, and the process reads it where the model says.
            let opens = objects(natvis, root, "open native fence ");
            let open = opens.iter().find(|open| number("current.__0", open) == of_fence.gpu_va).expect("the fence");
            let text = natvis.show(open).expect("text");
            assert!(text.ends_with(&format!("its value at GPU {:#x}", of_fence.gpu_va)), "{text}");
            assert_eq!((word(of_fence.value_address), of_fence.value), (9, 9));
            // The log: an entry for each signal, by the handles that the process has.
            let log = natvis.item(&engine, "[signals logged]").expect("a log");
            let entries = natvis.list(&log).expect("entries");
            let has = |handle: u32, value| {
                let said = format!("fence {handle:#x} signaled to {value} at ");
                entries.iter().filter(|entry| natvis.show(entry).expect("text").starts_with(&said)).count()
            };
            assert_eq!((has(of_fence.handle, 9), has(of_queue.progress_fence, first)), (1, 1));
            let newest = natvis.item(&log, "[newest]").expect("an entry");
            assert!(natvis.show(&newest).expect("text").starts_with("fence "));
            // Every handle is listed, of the second chunk of the table too.
            assert!(objects_without_more(natvis, root, "allocation") > ALLOCATIONS);
        });
        assert!(many.iter().all(Result::is_ok));
    });
}

/// How many of the root's table look exactly like `kind`; there are more than a chunk of the table has places for.
fn objects_without_more(natvis: &Natvis<'_>, root: &Value, kind: &str) -> usize {
    let entries = natvis.list(&natvis.item(root, "[handles]").expect("the table")).expect("entries");
    assert!(entries.len() > 1024, "{}", entries.len());
    entries.iter().filter(|entry| natvis.show(entry).expect("text") == kind).count()
}

/// docs/windbg.md types names that the symbol files have: the root variable, which has no other name there, and what
/// each handle of user mode points at.
fn the_page_types_names_that_are_there() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/windbg.md")).expect("the page");
    let driver = symbols("fencepost.pdb");
    let is_root = |of: &Type| matches!(of, Type::Record(name) if name == "kmd_core::root::Root");
    let roots = driver.variables.iter().filter(|(_, (_, of))| is_root(of)).map(|(name, _)| name.as_str());
    assert_eq!(roots.collect::<Vec<_>>(), ["kmd_core::root::FENCEPOST"]);
    // What a command of WinDbg names in the driver's image: the variable, or a type that it is cast to.
    let commands = page.lines().filter(|line| line.contains("> dx "));
    let named: Vec<_> = commands.flat_map(|line| line.split("fencepost!").skip(1)).collect();
    assert!(named.len() >= 4, "{named:?}");
    for rest in named {
        let is_known = rest.starts_with("kmd_core::root::FENCEPOST") || rest.starts_with("kmd_core::adapter::Started<");
        assert!(is_known, "{rest}");
    }
    let user_mode = symbols("fencepost_umd.pdb");
    let handles: Vec<_> =
        page.lines().filter_map(|line| line.split_once("| `umd_core::ffi::object::Object<")).collect();
    assert_eq!(handles.len(), 6);
    for (_, rest) in handles {
        let name = format!("umd_core::ffi::object::Object<{}", rest.split('`').next().unwrap_or_default());
        assert!(user_mode.records.contains_key(&name), "fencepost_umd.pdb has no {name}");
    }
}

/// The hung engine of the demo: it cannot come off, and its thread is where it hangs.
fn a_hang_is_seen_where_it_hangs() {
    // A dump may catch the engine in a service that its code has called: those have no unwind information, and LLDB
    // shows nothing behind the first frame. Where none of a few dumps catches it in its own code, it is not seen.
    let mut said = Vec::new();
    for _ in 0..4 {
        let (count, text) = a_hang_is_seen();
        if count == 1 {
            return;
        }
        said.push(text);
    }
    panic!("no dump shows one engine where it hangs: {}", said.join("\n"));
}

/// How many threads LLDB sees in an engine's own code at a time-out of the demo, and what it says of all.
fn a_hang_is_seen() -> (usize, String) {
    let recorder = Arc::new(Recorder::of_time_outs());
    let photo = Picture::coffee().expect("the picture");
    recorder.listening(|| demo(&form(), Windows::Default, &[], &photo, false, |_, _| (), &|_| ()).expect("the demo"));
    let written = Written::new(&recorder, "the time-out");
    let (dump, symbols) = (written.read(), symbols("fencepost.pdb"));
    with_root(&dump, &symbols, |natvis, root| {
        let adapter = natvis.item(root, "[adapter 0]").expect("the adapter");
        let texts = ["[node 0: 3D]", "[node 1: copy]", "[node 2: paging]"]
            .map(|name| natvis.show(&natvis.item(&adapter, name).expect("a node")).expect("text"));
        let hung: Vec<_> = texts.iter().filter(|text| text.ends_with("cannot come off what it runs")).collect();
        assert_eq!(hung.len(), 1, "{texts:#?}");
    });
    let text = lldb::ask(&written.path(), &["thread backtrace all".to_owned()]).expect("LLDB");
    let threads: Vec<&str> = text.split("thread #").skip(1).collect();
    let hung = threads.iter().filter(|thread| {
        let frames: Vec<&str> = thread.lines().filter(|line| line.contains("frame #")).collect();
        let is_executing = frames.iter().any(|frame| frame.contains("gpu_engine::engine::Core<"));
        is_executing && frames.last().is_some_and(|frame| frame.contains("fencepost::nt::thread::run"))
    });
    (hung.count(), text.clone())
}

/// A rule that is broken in a service that the driver calls: where it was called is the exception's frame.
fn a_broken_rule_is_seen_where_it_was_broken() {
    let recorder = Arc::new(Recorder::default());
    let violation: Violation = recorder.listening(|| {
        let world = World::boot(&form(), Personality::collecting()).expect("the driver loads");
        world.os.kernel().set_at_mapping(Some(Arc::new(|_| {
            Machine::with_current(|machine| {
                let machine = machine.expect("a machine");
                machine.rules.broken(&PLANTED_RULE, Details::new("planted").params([7, 9, 4]));
            });
        })));
        drop(world.adapter(adapter_of_ours(&[])));
        world.os.kernel().set_at_mapping(None);
        world.os.kernel().rules.violations().first().expect("it was planted").clone()
    });
    let written = Written::new(&recorder, "the broken rule");
    let (dump, symbols) = (written.read(), symbols("fencepost.pdb"));
    let base = driver(&dump, &symbols);
    let call = violation.context.call.as_ref().expect("a call");
    let Caller::Image { image, rva } = &call.caller else { panic!("{:?}", call.caller) };
    assert_eq!(image, "fencepost.sys");
    let exception = dump.get_stream::<MinidumpException<'_>>().expect("an exception");
    assert_eq!(u64::from(exception.get_crashing_thread_id()), violation.context.thread);
    let record = &exception.raw.exception_record;
    assert_eq!((record.exception_code, record.exception_address), (0x119, base + rva));
    assert_eq!(record.exception_information[..4], violation.params);
    assert_eq!(violation.params, [0xA, 7, 9, 4]);
    let comment =
        dump.get_raw_stream(minidump::format::MINIDUMP_STREAM_TYPE::CommentStreamA as u32).expect("a comment");
    assert!(String::from_utf8_lossy(comment).contains("TEST-PLANTED: a driver maps nothing"));
    let threads = dump.get_stream::<MinidumpThreadList<'_>>().expect("threads");
    assert!(threads.threads.iter().any(|thread| u64::from(thread.raw.thread_id) == violation.context.thread));
    let commands = [
        "script thread = lldb.process.GetSelectedThread(); print('PC', hex(thread.GetFrameAtIndex(0).GetPC()))"
            .to_owned(),
        "script print('MODULE', lldb.target.GetModuleAtIndex(0).GetUUIDString())".to_owned(),
        "script print('STARTS', lldb.target.FindFirstGlobalVariable('kmd_core::root::FENCEPOST')\
            .GetValueForExpressionPath('.starts.v.value.__0').GetValueAsUnsigned())"
            .to_owned(),
        "thread backtrace".to_owned(),
    ];
    let text = lldb::ask(&written.path(), &commands).expect("LLDB");
    let said = |word: &str| text.lines().find_map(|line| line.strip_prefix(word)).map(str::trim).map(str::to_owned);
    assert_eq!(said("PC "), Some(format!("{:#x}", base + rva)), "{text}");
    assert_eq!(said("MODULE "), Some(format!("{}-{:08X}", symbols.id.0, symbols.id.1)), "{text}");
    let starts = with_root(&dump, &symbols, |natvis, root| {
        natvis.number(&natvis.evaluate("starts.v.value.__0", root).expect("a counter")).expect("a number")
    });
    assert_eq!(said("STARTS "), Some(starts.to_string()), "{text}");
    // The stack is followed down to the driver's first function.
    let frames: Vec<&str> = text.lines().filter(|line| line.contains("frame #")).collect();
    assert!(frames.len() > 2 && frames.iter().all(|frame| frame.contains("fencepost.sys`")), "{text}");
}

/// What a blob has of a queue that ran once. Whether a ring is counted beside it is open: the engine looks at a queue
/// by itself when it is connected, and finds work that is published before it is rung.
const COUNTERS: &str = "counters of node 0\n  packets               2\n";

/// A rule is broken while the adapter works: the driver's bug check callback has its debug blob in the dump, as the
/// data that it gave and tagged, and `decode` finds it there.
fn a_broken_rule_has_the_drivers_blob() {
    let recorder = Arc::new(Recorder::default());
    recorder.listening(|| {
        let world = World::boot(&form(), Personality::collecting()).expect("the driver loads");
        let adapter = world.adapter(adapter_of_ours(&[])).expect("the adapter starts");
        let user = world.process("maker").expect("a process");
        let device = user.open().and_then(|adapter| adapter.device()).expect("a device");
        let queue = device.queue(0, 0x1_0000, 0, 0).expect("a queue");
        let value = queue.run(|list| list.nop(16)).expect("submitted");
        queue.wait(value, Some(PATIENCE)).expect("executed");
        // The engine counts at the end of its turn, when the value can be seen already.
        let end = Instant::now() + PATIENCE;
        let counts = || {
            world.os.collect_debug_info(&adapter);
            fencepost::decode::decode(&adapter.debug_info()).expect("a blob").text.contains(COUNTERS)
        };
        while Instant::now() < end && !counts() {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let kernel = world.os.kernel();
        let _inside = kernel.enter();
        // What is no error is not what the dump is of.
        kernel.rules.broken(&PLANTED_NOTE, Details::new("noted"));
        kernel.rules.broken(&PLANTED_RULE, Details::new("planted").params([7, 9, 4]));
    });
    let written = Written::new(&recorder, "the broken rule");
    let dump = written.read();
    let comment =
        dump.get_raw_stream(minidump::format::MINIDUMP_STREAM_TYPE::CommentStreamA as u32).expect("a comment");
    let comment = String::from_utf8_lossy(comment);
    assert!(comment.contains("TEST-PLANTED") && !comment.contains("TEST-NOTED"), "{comment}");
    // No driver's call broke it: its thread is there all the same, and a debugger opens the file.
    assert!(comment.contains("the rule was broken outside of driver code"), "{comment}");
    let broke = dump.get_stream::<MinidumpException<'_>>().expect("an exception").get_crashing_thread_id();
    let threads = dump.get_stream::<MinidumpThreadList<'_>>().expect("threads");
    assert_eq!(threads.threads.iter().filter(|thread| thread.raw.thread_id == broke).count(), 1);
    let text = lldb::ask(&written.path(), &["thread list".to_owned(), "image list".to_owned()]).expect("LLDB");
    assert!(text.contains("fencepost.sys"), "{text}");
    let data = dump.get_raw_stream(nt_model::dump::SECONDARY_STREAM).expect("the driver's data");
    // {b1c7d7f2-6d0c-4f5e-9c0a-2f7a6f1d9e44}, and the buffer of four adapters of which there is one.
    assert_eq!(
        data[..16],
        [0xF2, 0xD7, 0xC7, 0xB1, 0x0C, 0x6D, 0x5E, 0x4F, 0x9C, 0x0A, 0x2F, 0x7A, 0x6F, 0x1D, 0x9E, 0x44]
    );
    assert_eq!(data.len(), 16 + 32 * 1024 / 4);
    let file = std::fs::File::open(written.path()).expect("the dump");
    let blobs = fencepost::decode::in_dump(file).expect("read");
    assert_eq!(blobs.len(), 1);
    assert!(data[16..].starts_with(&blobs[0]));
    let text = fencepost::decode::decode(&blobs[0]).expect("a whole blob").text;
    assert!(text.starts_with("reason                  0x0") && text.contains("nodes                   3"), "{text}");
    assert!(text.contains(COUNTERS), "{text}");
}

/// Memory of which the model's table is in use is not in the dump; the comment says so, and so does the command.
fn what_is_missing_is_said() {
    let recorder = Arc::new(Recorder::default());
    recorder.listening(|| {
        let world = World::boot(&form(), Personality::collecting()).expect("the driver loads");
        world.adapter(adapter_of_ours(&[])).expect("the adapter starts");
        let kernel = world.os.kernel();
        kernel.keeping_memory(|| kernel.dump_moment(Moment::Ended, "a look"));
    });
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.dmp");
    let shown = recorder.write(&path, &[]).expect("written");
    let said = shown.lines(&path);
    let [first, second] = &said[..] else { panic!("{said:#?}") };
    assert_eq!(*first, format!("dump of the end: {} (docs/windbg.md)", path.display()));
    assert!(second.contains("pool and mapped memory are missing"), "{second}");
    let dump = Minidump::read(std::fs::read(&path).expect("the dump")).expect("a minidump");
    let comment =
        dump.get_raw_stream(minidump::format::MINIDUMP_STREAM_TYPE::CommentStreamA as u32).expect("a comment");
    assert_eq!(String::from_utf8_lossy(comment), format!("a look\n{}\0", second.trim()));
    // The root points at an adapter in pool, which cannot be read.
    with_root(&dump, &symbols("fencepost.pdb"), |natvis, root| {
        let adapter = natvis.item(root, "[adapter 0]").expect("the root is in the image");
        assert!(natvis.show(&adapter).is_err(), "the table was not kept");
    });
}

/// A dump is taken on demand without an exception, of a machine without images, too.
fn a_machine_without_images_has_a_dump() {
    let kernel = nt_model::Kernel::collecting();
    let dump: Dump = kernel.dump(None);
    let read = Minidump::read(dump.to_bytes()).expect("a minidump");
    assert_eq!(read.get_stream::<MinidumpModuleList>().expect("a list").iter().count(), 0);
    assert!(read.get_stream::<MinidumpException<'_>>().is_err());
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let built = folder().join("fencepost.sys").exists();
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
    };
    let trials = vec![
        trial("fencepost.natvis names what fencepost.pdb has", || {
            natvis_names_what_is_there("fencepost.pdb", "kmd/fencepost.natvis", 200);
        }),
        trial("fencepost_umd.natvis names what fencepost_umd.pdb has", || {
            natvis_names_what_is_there("fencepost_umd.pdb", "umd/fencepost_umd.natvis", 30);
        }),
        trial("the root variable says what was made", the_root_says_what_was_made),
        trial("a hang is seen where it hangs", a_hang_is_seen_where_it_hangs),
        trial("a broken rule is seen where it was broken", a_broken_rule_is_seen_where_it_was_broken),
        trial("a broken rule has the driver's blob", a_broken_rule_has_the_drivers_blob),
        trial("what is missing is said", what_is_missing_is_said),
        trial("the compute-only form names its node", the_compute_only_form_names_its_node),
        trial("pointers lead to a ring, a fence and a log", pointers_lead_to_a_ring_a_fence_and_a_log),
        trial("the page types names that are there", the_page_types_names_that_are_there),
    ];
    let mut trials: Vec<_> = trials.into_iter().map(|trial| trial.with_ignored_flag(!built)).collect();
    trials.push(trial("a machine without images has a dump", a_machine_without_images_has_a_dump));
    libtest_mimic::run(&arguments, trials).exit_code()
}
