//! The driver packages, made on Linux: what `cargo make package` makes on Windows, by other tools.
//!
//! ```text
//! out/*.sys, *.dll ──▶ sign ─────────┐
//!        inf/*.inx ──▶ stamp ─▶ lint ┴▶ digests ─▶ catalog ─▶ sign ─▶ verify: each file, and by its catalog
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the two packages, and the stages in their order |
//! | `stamp.rs` | date, version and architecture into an INF |
//! | `digest.rs` | what is signed of a file; an image's version |
//! | `catalog.rs` | the list of the digests |
//! | `sign.rs` | certificate, signatures, verification |
//!
//! Given the same images, date and certificate, a package is the same to the last bit.

mod catalog;
mod digest;
mod sign;
mod stamp;

pub use catalog::{Member, catalog};
pub use digest::{Digest, file_version};
pub use sign::Certificate;
pub use stamp::stamp;

use crate::demo::picture::write_whole;
use crate::inf::{Contents, lint, stampable};
use anyhow::{Context, Result, anyhow, ensure};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The version of images and INFs.
pub const VERSION: &str = include_str!("../../inf/version");
/// As models are decorated.
const ARCHITECTURE: &str = "amd64";
/// The certificate's file in a package.
const CERTIFICATE: &str = "fencepost.cer";

/// The program for test machines.
pub const PROGRAM: &str = "fencepost.exe";
/// The folder of the signed one, beside the packages.
pub const PROGRAM_FOLDER: &str = "program";
/// The user-mode driver's file.
const USER_MODE_DRIVER: &str = "fencepost_umd.dll";
/// The profile of a trace, which WPR takes.
pub const PROFILE: &str = "fencepost.wprp";
const PROFILE_TEXT: &str = include_str!("../../kmd/fencepost.wprp");

/// One of the two packages.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Its folder.
    pub folder: &'static str,
    /// Its INF without `.inf`.
    pub name: &'static str,
    template: &'static str,
}

impl Form {
    fn inf(&self) -> String {
        format!("{}.inf", self.name)
    }

    fn catalog(&self) -> String {
        format!("{}.cat", self.name)
    }
}

/// Both packages: of the same files, for the same devices. One of them is ever staged.
pub const FORMS: [Form; 2] = [
    Form { folder: "package", name: "fencepost", template: include_str!("../../inf/fencepost.inx") },
    Form {
        folder: "package_compute",
        name: "fencepost_compute",
        template: include_str!("../../inf/fencepost_compute.inx"),
    },
];

/// A file of a package.
#[derive(Debug, Serialize)]
pub struct File {
    /// Its name.
    pub name: String,
    /// What the catalog has of it, in hexadecimal; `None`: it is in no catalog.
    pub digest: Option<String>,
    /// Whether it has a signature of its own.
    pub signed: bool,
}

/// A package that was made, and verified.
#[derive(Debug, Serialize)]
pub struct Package {
    /// Its INF, without a folder.
    pub inf: String,
    /// Where it is.
    pub folder: PathBuf,
    /// What is in it, by name.
    pub files: Vec<File>,
}

/// Makes both packages in `to`, of the images in `images`, stamped with `date` and signed by `certificate`. Each
/// stands whole in its folder, or not at all; what was there before is gone.
///
/// # Errors
/// When an image is missing or of another version, an INF does not hold, a tool fails, a signature does not verify, or
/// `to` cannot be written.
pub fn make(images: &Path, to: &Path, date: Date, certificate: &Certificate) -> Result<Vec<Package>> {
    stampable(date).map_err(anyhow::Error::msg)?;
    std::fs::create_dir_all(to).with_context(|| format!("cannot write into {}", to.display()))?;
    FORMS.iter().map(|form| make_one(form, images, to, date, certificate)).collect()
}

fn make_one(form: &Form, images: &Path, to: &Path, date: Date, certificate: &Certificate) -> Result<Package> {
    let cannot = || format!("cannot write into {}", to.display());
    let work = tempfile::Builder::new().prefix(".package-").tempdir_in(to).with_context(cannot)?;
    let time = date.to_zoned(TimeZone::UTC)?.timestamp().as_second();
    let (inf, cat) = (form.inf(), form.catalog());
    let text = stamp(form.template, date, VERSION.trim(), ARCHITECTURE).map_err(|why| anyhow!("{inf}: {why}"))?;
    let found = lint(&text).into_iter().chain(crate::inf::verify(&text));
    let found: Vec<_> = found.map(|finding| finding.to_string()).collect();
    ensure!(found.is_empty(), "{inf} does not hold: {}", found.join("; "));
    let contents = Contents::of(&text);

    let (mut members, mut files) = (Vec::new(), Vec::new());
    for name in &contents.files {
        let from = images.join(name);
        let image =
            std::fs::read(&from).with_context(|| format!("cannot read {}: ./x image builds it", from.display()))?;
        let version = file_version(&image).with_context(|| format!("{} has no version", from.display()))?;
        let wanted = VERSION.trim();
        ensure!(
            version == wanted,
            "{} is version {version}, and the INF {wanted}: ./x image builds it",
            from.display()
        );
        certificate.sign(&from, &work.path().join(name), time)?;
        files.push(File { name: name.clone(), digest: None, signed: true });
        let symbols = Path::new(name).with_extension("pdb");
        let from = images.join(&symbols);
        std::fs::copy(&from, work.path().join(&symbols))
            .with_context(|| format!("cannot read {}: ./x image builds it", from.display()))?;
        files.push(File { name: symbols.display().to_string(), digest: None, signed: false });
    }
    write_whole(&work.path().join(&inf), text.as_bytes())?;
    for name in contents.files.iter().chain([&inf]) {
        let digest = Digest::of(&std::fs::read(work.path().join(name))?);
        members.push(Member { name: name.clone(), digest });
    }
    let unsigned = work.path().join("unsigned");
    write_whole(&unsigned, &catalog(&members, &contents.hardware, date))?;
    certificate.sign(&unsigned, &work.path().join(&cat), time)?;
    std::fs::remove_file(&unsigned)?;
    certificate.export(&work.path().join(CERTIFICATE))?;

    verify(work.path(), form, certificate)?;

    files.push(File { name: inf.clone(), digest: None, signed: false });
    files.push(File { name: cat, digest: None, signed: true });
    files.push(File { name: CERTIFICATE.to_owned(), digest: None, signed: false });
    files.sort_by(|a, b| a.name.cmp(&b.name));
    for file in &mut files {
        let member = members.iter().find(|member| member.name == file.name);
        file.digest = member.map(|member| member.digest.bytes.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    let folder = to.join(form.folder);
    replace(work.keep(), &folder)?;
    Ok(Package { inf, folder, files })
}

/// Signs [`PROGRAM`] and the user-mode driver of the folder `images` into [`PROGRAM_FOLDER`] in `to`, and verifies
/// them; the profile of a trace is put beside them. Returns where the program is then; `None`: there is none in
/// `images`. What stood there before under these names is gone.
///
/// # Errors
/// When a tool fails, the signature does not verify, or `to` cannot be written.
pub fn sign_program(images: &Path, to: &Path, date: Date, certificate: &Certificate) -> Result<Option<PathBuf>> {
    let from = images.join(PROGRAM);
    if !from.is_file() {
        return Ok(None);
    }
    let cannot = || format!("cannot write into {}", to.display());
    let work = tempfile::Builder::new().prefix(".program-").tempdir_in(to).with_context(cannot)?;
    let time = date.to_zoned(TimeZone::UTC)?.timestamp().as_second();
    let folder = to.join(PROGRAM_FOLDER);
    std::fs::create_dir_all(&folder).with_context(cannot)?;
    for name in [PROGRAM, USER_MODE_DRIVER] {
        let signed = work.path().join(name);
        certificate.sign(&images.join(name), &signed, time)?;
        certificate.verify(&signed)?;
        std::fs::rename(&signed, folder.join(name)).with_context(cannot)?;
    }
    std::fs::write(folder.join(PROFILE), PROFILE_TEXT).with_context(cannot)?;
    Ok(Some(folder.join(PROGRAM)))
}

/// Verifies a package in its folder: the catalog's signature; each image's own; each image by the catalog; and that the
/// catalog has what the INF is now.
///
/// # Errors
/// Which file is missing, or does not verify.
pub fn verify(folder: &Path, form: &Form, certificate: &Certificate) -> Result<()> {
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let (inf, catalog) = (form.inf(), folder.join(form.catalog()));
    certificate.verify(&catalog)?;
    let text = read(&inf)?;
    let (listed, digest) = (read(&form.catalog())?, Digest::of(&text));
    let is_listed = listed.windows(digest.bytes.len()).any(|bytes| bytes == digest.bytes);
    ensure!(is_listed, "{} is not what its catalog has", folder.join(&inf).display());
    for name in Contents::of(&String::from_utf8_lossy(&text)).files {
        let file = folder.join(name);
        certificate.verify(&file)?;
        certificate.verify_by(&catalog, &file)?;
    }
    Ok(())
}

/// Returns whether a file is of the kinds that packages have.
fn is_of_a_package(name: &std::ffi::OsStr) -> bool {
    let kind = Path::new(name).extension().and_then(std::ffi::OsStr::to_str);
    kind.is_some_and(|kind| ["inf", "cat", "cer", "sys", "dll", "pdb"].contains(&kind))
}

/// Puts the folder `made` at `place`. A package that stands there is deleted; a folder with other files is kept.
///
/// # Errors
/// When something stands there that is no package, or the place cannot be written.
fn replace(made: PathBuf, place: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if place.is_dir() {
        for entry in std::fs::read_dir(place).with_context(|| format!("cannot read {}", place.display()))? {
            let name = entry?.file_name();
            ensure!(
                is_of_a_package(&name),
                "{} is of no package, and would be deleted: move it away, or name another folder by --out",
                place.join(name).display()
            );
        }
    }
    let put = || -> std::io::Result<()> {
        if place.exists() {
            std::fs::remove_dir_all(place)?;
        }
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o755))?;
        std::fs::rename(&made, place)
    };
    put().with_context(|| format!("cannot put the package at {}; it is at {}", place.display(), made.display()))
}
