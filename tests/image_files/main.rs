//! Properties of the files that ship: `out/fencepost.sys`, `out/fencepost_umd.dll` and
//! `out/fencepost_d3d.dll`, read as bytes.
//!
//! Each property is one test per image ("fencepost.sys: checksum"). Beside it stands a test of the test: a copy of the
//! image that is broken in one place must fail that property and no other. Images that have not been built are reported
//! as ignored; `./x test` builds them first, the driver for ARM64 ([`arm64`]) where the toolchain has that target.

mod arm64;
mod functions;
mod image;
mod mutants;
mod properties;
mod reach;

use image::Image;
use image::Kind;
use libtest_mimic::Arguments;
use libtest_mimic::Failed;
use libtest_mimic::Trial;
use mutants::MUTANTS;
use properties::PROPERTIES;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials: Vec<Trial> =
        [Kind::Driver, Kind::UserMode, Kind::Direct3D].into_iter().flat_map(trials_of).collect();
    trials.extend(arm64::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trials_of(kind: Kind) -> Vec<Trial> {
    let image = match Image::built(kind) {
        Ok(Some(image)) => Some(Arc::new(image)),
        Ok(None) => None,
        Err(error) => {
            let name = format!("{}: readable", kind.file_name());
            return vec![Trial::test(name, move || Err(Failed::from(error)))];
        }
    };
    let mut trials = Vec::new();
    for property in PROPERTIES.iter().filter(|property| property.applies(kind)) {
        let image = image.clone();
        let ignored = image.is_none();
        let trial = move || match image {
            Some(image) => (property.check)(&image).map_err(Failed::from),
            None => Err(Failed::from(NOT_BUILT)),
        };
        trials.push(Trial::test(format!("{}: {}", kind.file_name(), property.name), trial).with_ignored_flag(ignored));
    }
    for mutant in MUTANTS.iter().filter(|mutant| mutant.applies(kind)) {
        let image = image.clone();
        let ignored = image.is_none();
        let trial = move || match image {
            Some(image) => caught(&image, mutant).map_err(Failed::from),
            None => Err(Failed::from(NOT_BUILT)),
        };
        let name = format!("{}: a copy with {} is caught", kind.file_name(), mutant.what);
        trials.push(Trial::test(name, trial).with_ignored_flag(ignored));
    }
    trials
}

const NOT_BUILT: &str = "the image is not built: run ./x image";

/// The mutant fails the property that it breaks, and only that one.
fn caught(image: &Image, mutant: &mutants::Mutant) -> Result<(), String> {
    let broken = mutant.make(image)?;
    let failing: Vec<&str> = PROPERTIES
        .iter()
        .filter(|property| property.applies(image.kind) && (property.check)(&broken).is_err())
        .map(|property| property.name)
        .collect();
    if failing == [mutant.breaks] {
        Ok(())
    } else {
        Err(format!("should fail {:?}, fails {failing:?}", [mutant.breaks]))
    }
}
