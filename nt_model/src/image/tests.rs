//! The loader, and what image code can do, with drivers assembled on the spot.

pub(crate) mod builder;
mod corruption;
mod running;

use builder::{BASE, DriverBuilder};
use iced_x86::code_asm::{eax, rax, rcx, rsp};

use super::{LoadError, LoadOptions};
use crate::kernel::Kernel;

/// A driver whose entry point returns 0.
pub(crate) fn trivial() -> Vec<u8> {
    let driver = DriverBuilder::new(&["DbgPrint", "ExAllocatePool2"]).code(|b| {
        b.export("DriverEntry");
        b.asm.xor(eax, eax)?;
        b.asm.ret()
    });
    driver.build()
}

fn load(kernel: &Kernel, file: &[u8]) -> Result<std::sync::Arc<super::Image>, LoadError> {
    kernel.load_driver_bytes("test.sys", file, &LoadOptions::default())
}

#[test]
fn an_image_is_relocated_linked_and_described() {
    let kernel = Kernel::collecting();
    let image = load(&kernel, &trivial()).unwrap_or_else(|error| panic!("{error}"));
    assert_ne!(image.base() as u64, BASE);
    assert_eq!(image.preferred_base(), BASE);
    assert_eq!(image.relocations(), 1);
    assert_eq!(image.entry_point(), image.export("DriverEntry"));
    assert_eq!(image.imports().len(), 2);
    assert!(image.missing_imports().is_empty());
    assert_eq!(
        image.sections().iter().map(|s| s.name.as_str()).collect::<Vec<_>>(),
        [".text", ".rdata", ".data", ".reloc"]
    );
    assert_eq!(image.sha256_hex().len(), 64);
    // The relocated word points to the data section of the image where it is.
    let data = image.base() + 0x5000;
    let mut word = [0; 8];
    crate::memory::host::read(data, &mut word);
    assert_eq!(u64::from_le_bytes(word), data as u64);
}

#[test]
fn two_machines_hold_the_same_file() {
    let (a, b) = (Kernel::collecting(), Kernel::collecting());
    let (first, second) = (load(&a, &trivial()), load(&b, &trivial()));
    let bases = [first, second].map(|image| image.map(|image| image.base()).unwrap_or_default());
    assert!(bases[0] != bases[1] && bases.iter().all(|base| *base != 0));
}

#[test]
fn an_import_without_a_shim_is_listed_and_an_unknown_one_refused() {
    let kernel = Kernel::collecting();
    let with = |name: &str| {
        DriverBuilder::new(&[name]).code(|b| {
            b.asm.xor(eax, eax)?;
            b.asm.ret()
        })
    };
    let image = load(&kernel, &with("CcSetFileSizes").build()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(image.missing_imports(), ["ntoskrnl.exe!CcSetFileSizes"]);
    let refused = |name: &str| load(&kernel, &with(name).build()).err();
    let unknown = |name: &str| Some(LoadError::UnknownImports(vec![name.to_owned()]));
    assert_eq!(refused("KeNoSuchRoutine"), unknown("ntoskrnl.exe!KeNoSuchRoutine"));
    assert_eq!(refused("other.sys!DbgPrint"), unknown("other.sys!DbgPrint"));
    assert_eq!(refused("#7"), unknown("ntoskrnl.exe!#7"));
    let options = LoadOptions { allow_unknown_imports: true };
    assert!(kernel.load_driver_bytes("test.sys", &with("KeNoSuchRoutine").build(), &options).is_ok());
}

#[test]
fn a_registered_import_is_found_by_dll_and_name() {
    crate::shims! {
        table LOCAL;
        fn OtherCall(_m) -> i32 {
            42
        }
    }
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    kernel.register_imports("Other.sys", LOCAL);
    let driver = DriverBuilder::new(&["other.sys!OtherCall"]).code(|b| {
        b.asm.sub(rsp, 0x28)?;
        b.call("OtherCall");
        b.asm.add(rsp, 0x28)?;
        b.asm.neg(eax)?;
        b.asm.ret()
    });
    let image = load(&kernel, &driver.build()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(kernel.start_driver(&image, "test").err(), Some(crate::io::StartError::Status(-42)));
}

#[test]
fn code_that_goes_through_gs_or_touches_cr8_is_listed() {
    let kernel = Kernel::collecting();
    let driver = DriverBuilder::new(&[]).code(|b| {
        b.asm.mov(rax, iced_x86::code_asm::qword_ptr(0x188).gs())?;
        b.asm.mov(rcx, iced_x86::code_asm::cr8)?;
        b.asm.cli()?;
        b.asm.ret()
    });
    let image = load(&kernel, &driver.build()).unwrap_or_else(|error| panic!("{error}"));
    let facts = image.code_facts();
    assert_eq!((facts.gs_accesses.len(), facts.cr8_moves.len(), facts.privileged.len()), (1, 1, 1));
    assert_eq!(facts.gs_accesses[0], 0x1000);
}
