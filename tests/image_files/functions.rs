//! The functions of an image: what they are called, how much of the stack they take, and what they call.
//!
//! Names come from the .pdb, places and frames from the exception directory, calls from the instructions.
//!
//! A call through a register has no target that an instruction names. What such a call may reach is counted where the
//! address comes from: a function whose address another one takes is reachable from there, whether it is taken by an
//! instruction or through a table in the data (a list of functions behind `dyn`). So a closure that is handed down is
//! followed where it is made. What is left are pointers that the OS filled in, the callbacks of Dxgkrnl's interface:
//! the model looks at the level of each such call. Functions of the driver's own table are roots.

use crate::image::{Image, words};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind};
use object::LittleEndian as LE;
use object::Object;
use object::pe;
use pdb2::FallibleIterator;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;

/// A function of an image.
pub struct Function {
    /// Its name in the .pdb, with the types that it was made for.
    pub name: String,
    /// Bytes of stack that its prologue takes: allocation and saved registers. 0 for one without an entry in the
    /// exception directory, which takes none.
    pub frame: u32,
    /// Addresses of functions that it calls or goes on in.
    pub calls: BTreeSet<u32>,
    /// Addresses of functions that it takes the address of, itself or through a table in the data.
    pub takes: BTreeSet<u32>,
    /// Names of imported functions that it calls or goes on in.
    pub imports: BTreeSet<String>,
    /// Addresses in the data that it refers to.
    data: BTreeSet<u32>,
}

impl Function {
    fn new(name: &str, frame: u32) -> Self {
        let (calls, takes, data) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Self { name: name.to_owned(), frame, calls, takes, imports: BTreeSet::new(), data }
    }
}

/// Every function of an image, by its address from the image's base.
pub struct Functions(pub BTreeMap<u32, Function>);

impl Functions {
    /// Reads the functions of an image from its .pdb and its exception directory.
    ///
    /// # Errors
    /// When image or .pdb are not what they should be.
    pub fn read(image: &Image) -> Result<Self, String> {
        let names = names(image)?;
        let frames = frames(image)?;
        let imported = imported(image)?;
        let mut functions = BTreeMap::new();
        for (base, code) in image.code()? {
            // CAST: `code` has looked that it fits.
            let end = base + code.len() as u32;
            let inside = names.range(base..end).map(|(start, (length, name))| (*start, *length, name));
            for (start, length, name) in inside {
                let from = (start - base) as usize;
                let Some(bytes) = code.get(from..from + length as usize) else { continue };
                let frame = frames.get(&start).copied().unwrap_or(0);
                let mut function = Function::new(name, frame);
                function.follow(bytes, start, length, &imported);
                functions.insert(start, function);
            }
            // What is called and has no name is a jump to an imported function.
            let called: BTreeSet<u32> = functions.values().flat_map(|function| function.calls.clone()).collect();
            for at in called.into_iter().filter(|at| (base..end).contains(at)) {
                let Some(bytes) = code.get((at - base) as usize..) else { continue };
                functions.entry(at).or_insert_with(|| thunk(&bytes[..bytes.len().min(THUNK)], at, &imported));
            }
        }
        let starts: BTreeSet<u32> = functions.keys().copied().collect();
        let known = functions.values().flat_map(|function| function.data.iter().copied()).collect();
        let tables = tables(image, &starts, &known)?;
        for function in functions.values_mut() {
            let (taken, data): (Vec<u32>, Vec<u32>) = function.data.iter().partition(|at| starts.contains(at));
            function.takes.extend(taken);
            function.takes.extend(data.iter().filter_map(|at| tables.get(at)).flatten());
        }
        Ok(Self(functions))
    }

    /// Functions whose names begin with `prefix`.
    pub fn named(&self, prefix: &str) -> Vec<u32> {
        self.0.iter().filter(|(_, function)| function.name.starts_with(prefix)).map(|(start, _)| *start).collect()
    }

    /// Imports that can be reached from `root` by direct calls and by addresses that are taken on the way, each with a
    /// function that calls it.
    pub fn reachable_imports(&self, root: u32) -> BTreeMap<String, String> {
        let (mut seen, mut waiting) = (BTreeSet::new(), vec![(root, "the OS")]);
        let mut found = BTreeMap::new();
        while let Some((at, caller)) = waiting.pop() {
            let Some(function) = self.0.get(&at).filter(|_| seen.insert(at)) else { continue };
            // What panics is of interest, and not the panic's own way.
            let is_on_the_way = function.name == JUMP || function.name.contains("panic");
            let name = if is_on_the_way { caller } else { &function.name };
            for import in &function.imports {
                found.entry(import.clone()).or_insert_with(|| name.to_owned());
            }
            waiting.extend(function.calls.iter().chain(&function.takes).map(|callee| (*callee, name)));
        }
        found
    }

    /// Functions that can be reached from `root` by direct calls and by addresses that are taken on the way.
    pub fn reachable(&self, root: u32) -> BTreeSet<u32> {
        let (mut seen, mut waiting) = (BTreeSet::new(), vec![root]);
        while let Some(at) = waiting.pop() {
            if let Some(function) = self.0.get(&at).filter(|_| seen.insert(at)) {
                waiting.extend(function.calls.iter().chain(&function.takes));
            }
        }
        seen
    }

    /// The most stack that a chain of direct calls from `root` takes, in bytes. A recursion is counted once.
    pub fn deepest(&self, root: u32) -> u32 {
        self.depth(root, &mut BTreeMap::new())
    }

    /// `known` holds what is known of functions; 0 for those that are being looked at.
    fn depth(&self, at: u32, known: &mut BTreeMap<u32, u32>) -> u32 {
        let Some(function) = self.0.get(&at) else { return 0 };
        if let Some(depth) = known.get(&at) {
            return *depth;
        }
        known.insert(at, 0);
        let below = function.calls.iter().map(|callee| self.depth(*callee, known)).max().unwrap_or(0);
        // With the return address.
        let depth = function.frame + 8 + below;
        known.insert(at, depth);
        depth
    }
}

/// The name of a jump to an imported function.
const JUMP: &str = "a jump";

/// Bytes of a jump through memory.
const THUNK: usize = 6;

/// A jump to an imported function.
fn thunk(bytes: &[u8], start: u32, imported: &BTreeMap<u32, String>) -> Function {
    let mut function = Function::new(JUMP, 0);
    // CAST: 6.
    function.follow(bytes, start, bytes.len() as u32, imported);
    function
}

impl Function {
    fn follow(&mut self, bytes: &[u8], start: u32, length: u32, imported: &BTreeMap<u32, String>) {
        for instruction in Decoder::with_ip(64, bytes, start.into(), DecoderOptions::NONE) {
            let refers = instruction.is_ip_rel_memory_operand();
            if refers && instruction.mnemonic() == Mnemonic::Lea {
                // CAST: places in an image of far less than 4 GiB.
                self.data.insert(instruction.ip_rel_memory_address() as u32);
            }
            let leaves = matches!(
                instruction.flow_control(),
                FlowControl::Call
                    | FlowControl::IndirectCall
                    | FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::ConditionalBranch
            );
            if !leaves || instruction.mnemonic() == Mnemonic::Syscall {
                continue;
            }
            match instruction.op0_kind() {
                OpKind::NearBranch64 => {
                    // CAST: places in an image of far less than 4 GiB.
                    let target = instruction.near_branch_target() as u32;
                    if !(start..start + length).contains(&target) {
                        self.calls.insert(target);
                    }
                }
                OpKind::Memory if instruction.is_ip_rel_memory_operand() => {
                    // CAST: as above.
                    let slot = instruction.ip_rel_memory_address() as u32;
                    self.imports.extend(imported.get(&slot).cloned());
                }
                _ => {}
            }
        }
    }
}

/// Tables of functions in the data, each by the address by which instructions know it: the functions behind pointers
/// from there to the next address that an instruction knows.
fn tables(
    image: &Image,
    starts: &BTreeSet<u32>,
    known: &BTreeSet<u32>,
) -> Result<BTreeMap<u32, BTreeSet<u32>>, String> {
    let file = image.parse()?;
    let base = file.relative_address_base();
    let mut tables: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for section in file.section_table().iter() {
        if section.characteristics.get(LE).contains(pe::IMAGE_SCN_MEM_EXECUTE) {
            continue;
        }
        let bytes = section.pe_data(&*image.bytes).map_err(words)?;
        let start = section.virtual_address.get(LE);
        for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            // CAST: inside an image of far less than 4 GiB.
            let at = start + (index * 8) as u32;
            let target = u64::from_le_bytes(*word).checked_sub(base).and_then(|place| u32::try_from(place).ok());
            let table = known.range(start..=at).next_back();
            if let (Some(function), Some(table)) = (target.filter(|place| starts.contains(place)), table) {
                tables.entry(*table).or_default().insert(function);
            }
        }
    }
    Ok(tables)
}

/// Address, length and name of each procedure that the .pdb knows.
pub fn names(image: &Image) -> Result<BTreeMap<u32, (u32, String)>, String> {
    let mut pdb = pdb2::PDB::open(Cursor::new(&image.pdb[..])).map_err(words)?;
    let places = pdb.address_map().map_err(words)?;
    let mut names = BTreeMap::new();
    let information = pdb.debug_information().map_err(words)?;
    let mut modules = information.modules().map_err(words)?;
    while let Some(module) = modules.next().map_err(words)? {
        let Some(module) = pdb.module_info(&module).map_err(words)? else { continue };
        let mut symbols = module.symbols().map_err(words)?;
        while let Some(symbol) = symbols.next().map_err(words)? {
            if let Ok(pdb2::SymbolData::Procedure(procedure)) = symbol.parse()
                && let Some(place) = procedure.offset.to_rva(&places)
            {
                names.insert(place.0, (procedure.len, procedure.name.to_string().into_owned()));
            }
        }
    }
    if names.is_empty() { Err("the .pdb names no procedure".into()) } else { Ok(names) }
}

/// Addresses of import slots, with the names of what they point at.
pub fn imported(image: &Image) -> Result<BTreeMap<u32, String>, String> {
    let file = image.parse()?;
    let mut slots = BTreeMap::new();
    let Some(table) = file.import_table().map_err(words)? else { return Ok(slots) };
    let mut libraries = table.descriptors().map_err(words)?;
    while let Some(library) = libraries.next().map_err(words)? {
        let mut slot = library.first_thunk.get(LE);
        let mut thunks = table.thunks(library.original_first_thunk.get(LE)).map_err(words)?;
        while let Some(thunk) = thunks.next::<pe::ImageNtHeaders64>().map_err(words)? {
            if let object::read::pe::Import::Name(_, name) =
                table.import::<pe::ImageNtHeaders64>(thunk).map_err(words)?
            {
                slots.insert(slot, String::from_utf8_lossy(name).into_owned());
            }
            slot += 8;
        }
    }
    Ok(slots)
}

/// Bytes that the prologue of each function in the exception directory takes of the stack.
///
/// Source: x64 exception handling, `UNWIND_INFO` and `UNWIND_CODE`.
pub fn frames(image: &Image) -> Result<BTreeMap<u32, u32>, String> {
    let file = image.parse()?;
    let directory = file.data_directories().get(pe::IMAGE_DIRECTORY_ENTRY_EXCEPTION).ok_or("no exception directory")?;
    let place = image.file_offset(directory.virtual_address.get(LE))?;
    let size = directory.size.get(LE) as usize;
    let entries = image.bytes.get(place..place + size).ok_or("the exception directory lies outside the file")?;
    let mut frames = BTreeMap::new();
    for entry in entries.chunks_exact(12) {
        let word = |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
        let unwind = image.file_offset(word(8))?;
        let header = image.bytes.get(unwind..unwind + 4).ok_or("unwind information outside the file")?;
        let codes = image.bytes.get(unwind + 4..unwind + 4 + usize::from(header[2]) * 2);
        let codes = codes.ok_or("unwind codes outside the file")?.as_chunks::<2>().0;
        frames.insert(word(0), taken(codes));
    }
    Ok(frames)
}

/// What unwind codes say is taken of the stack.
fn taken(codes: &[[u8; 2]]) -> u32 {
    let (mut sum, mut at) = (0, 0);
    let slot = |at: usize| codes.get(at).map_or(0, |code| u32::from(u16::from_le_bytes(*code)));
    while let Some([_, code]) = codes.get(at) {
        let information = u32::from(code >> 4);
        let slots = match code & 15 {
            // UWOP_PUSH_NONVOL
            0 => {
                sum += 8;
                1
            }
            // UWOP_ALLOC_LARGE
            1 if information == 0 => {
                sum += slot(at + 1) * 8;
                2
            }
            1 => {
                sum += slot(at + 1) | slot(at + 2) << 16;
                3
            }
            // UWOP_ALLOC_SMALL
            2 => {
                sum += information * 8 + 8;
                1
            }
            // UWOP_SAVE_NONVOL, UWOP_SAVE_XMM128
            4 | 8 => 2,
            // their far forms
            5 | 9 => 3,
            _ => 1,
        };
        at += slots;
    }
    sum
}
