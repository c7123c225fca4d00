//! The driver packages: stamped, listed, signed and verified; and everything that is spoilt behind that is noticed.
//!
//! osslsigncode and openssl are judges of their own: they calculate each image's hash and read catalog and signatures.

use fencepost::inf::{Contents, lint};
use fencepost::package::{
    Certificate, Digest, FORMS, Form, PROGRAM, PROGRAM_FOLDER, VERSION, file_version, make, sign_program, stamp, verify,
};
use jiff::civil::{Date, date};
use libtest_mimic::{Arguments, Trial};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const DAY: Date = date(2026, 3, 9);

fn images() -> PathBuf {
    std::env::var_os("FENCEPOST_OUT").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("out"), PathBuf::from)
}

/// Both packages, in a folder of their own, and their certificate.
struct Made {
    folder: tempfile::TempDir,
    certificate: Certificate,
}

impl Made {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let certificate = Certificate::of(&folder.path().join("certificate")).expect("a certificate");
        make(&images(), folder.path(), DAY, &certificate).expect("the packages");
        Self { folder, certificate }
    }

    fn of(&self, form: &Form) -> PathBuf {
        self.folder.path().join(form.folder)
    }

    /// What does not verify of a package, in one line.
    fn verdict(&self, form: &Form) -> Result<(), String> {
        verify(&self.of(form), form, &self.certificate).map_err(|error| format!("{error:#}"))
    }
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let file = |entry: std::fs::DirEntry| {
        (entry.file_name().display().to_string(), std::fs::read(entry.path()).expect("a file"))
    };
    entries.map(file).collect()
}

fn both_hold_and_have_what_the_documents_say() {
    let made = Made::new();
    for form in FORMS {
        let found = files(&made.of(&form));
        let (inf, cat) = (format!("{}.inf", form.name), format!("{}.cat", form.name));
        let mut wanted = vec![
            "fencepost.cer",
            "fencepost.pdb",
            "fencepost.sys",
            "fencepost_d3d.dll",
            "fencepost_d3d.pdb",
            "fencepost_umd.dll",
            "fencepost_umd.pdb",
        ];
        wanted.extend([inf.as_str(), cat.as_str()]);
        wanted.sort_unstable();
        assert_eq!(found.keys().collect::<Vec<_>>(), wanted);
        let text = String::from_utf8(found[&inf].clone()).expect("text");
        assert_eq!(lint(&text), []);
        assert!(text.contains(&format!("03/09/2026,{}", VERSION.trim())) && !text.contains("$ARCH$"), "{text}");
        assert_eq!(made.verdict(&form), Ok(()));
        // What Windows imports is DER.
        assert!(found["fencepost.cer"].starts_with(&[0x30, 0x82]), "the certificate");
        // The key stays where the certificate is made.
        let private = |bytes: &[u8]| bytes.windows(11).any(|part| part == b"PRIVATE KEY");
        assert!(!found.values().any(|bytes| private(bytes)));
    }
}

fn the_same_is_made_twice() {
    let made = Made::new();
    let before: Vec<_> = FORMS.iter().map(|form| files(&made.of(form))).collect();
    make(&images(), made.folder.path(), DAY, &made.certificate).expect("the packages again");
    let after: Vec<_> = FORMS.iter().map(|form| files(&made.of(form))).collect();
    assert!(before == after);
}

/// The program for test machines is signed where it is built, again over what stands there, and noticed when it
/// changes.
fn the_program_is_signed() {
    let made = Made::new();
    let to = made.folder.path();
    let place = to.join(PROGRAM_FOLDER).join(PROGRAM);
    let sign = |images: &Path| sign_program(images, to, DAY, &made.certificate).expect("signed");
    assert_eq!(sign(to), None, "a program that is not built");
    assert_eq!(sign(&images()), Some(place.clone()));
    // What it needs beside it: the user-mode driver, signed too, and the profile of a trace.
    let beside = |name: &str| place.with_file_name(name);
    made.certificate.verify(&beside("fencepost_umd.dll")).expect("it verifies");
    let profile = std::fs::read_to_string(beside("fencepost.wprp")).expect("the profile");
    assert!(profile.contains("WindowsPerformanceRecorder"), "{profile}");
    let once = std::fs::read(&place).expect("the program");
    assert_eq!(sign(&images()), Some(place.clone()));
    assert!(std::fs::read(&place).expect("the program") == once);
    made.certificate.verify(&place).expect("it verifies");
    let mut spoilt = once;
    let middle = spoilt.len() / 2;
    spoilt[middle] ^= 1;
    std::fs::write(&place, spoilt).expect("written");
    assert!(made.certificate.verify(&place).is_err(), "a program with one bit changed");
}

/// A file that no package has stands in a package's place: nothing is deleted, and the file is named.
fn what_is_somebodys_stays() {
    let made = Made::new();
    let (to, before) = (made.folder.path(), files(&made.of(&FORMS[0])));
    let own = made.of(&FORMS[0]).join("mine.txt");
    std::fs::write(&own, "mine").expect("written");
    let refused = make(&images(), to, DAY, &made.certificate).expect_err("refused");
    assert!(format!("{refused:#}").contains(&own.display().to_string()), "{refused:#}");
    assert_eq!(std::fs::read_to_string(&own).expect("it is there"), "mine");
    std::fs::remove_file(&own).expect("removed");
    assert!(files(&made.of(&FORMS[0])) == before);
}

/// What osslsigncode calculates of an image is what the catalog has, whether the image is signed or not, and whatever
/// its length.
fn digests_are_those_that_osslsigncode_calculates() {
    let made = Made::new();
    let odd = made.folder.path().join("odd.dll");
    let mut longer = std::fs::read(images().join("fencepost_d3d.dll")).expect("an image");
    longer.extend([1, 2, 3]);
    std::fs::write(&odd, &longer).expect("written");
    let signed = made.of(&FORMS[0]).join("fencepost.sys");
    for image in [images().join("fencepost.sys"), images().join("fencepost_umd.dll"), odd, signed] {
        let digest = Digest::of(&std::fs::read(&image).expect("an image"));
        assert!(digest.is_image, "{}", image.display());
        let ours: String = digest.bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        // It reads no digest of an unsigned image; so a copy is signed.
        let copy = made.folder.path().join("copy");
        let _ = std::fs::remove_file(&copy);
        made.certificate.sign(&image, &copy, 0).expect("signed");
        let output = Command::new("osslsigncode").args(["verify", "-in"]).arg(&copy).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let calculated =
            said.lines().find_map(|line| line.strip_prefix("Calculated message digest")?.split_whitespace().last());
        assert_eq!(calculated, Some(ours.as_str()), "{}: {said}", image.display());
    }
}

/// Each file that a package's catalog is about, changed by a bit, or exchanged.
fn what_is_changed_afterwards_is_noticed() {
    let form = FORMS[1];
    let made = Made::new();
    let folder = made.of(&form);
    let text = std::fs::read_to_string(folder.join("fencepost_compute.inf")).expect("an INF");
    let names = Contents::of(&text).files;
    assert_eq!(names.len(), 3, "{names:?}");
    for name in names.iter().map(String::as_str).chain(["fencepost_compute.inf", "fencepost_compute.cat"]) {
        let path = folder.join(name);
        let whole = std::fs::read(&path).expect("a file");
        let mut spoilt = whole.clone();
        let middle = spoilt.len() / 2;
        spoilt[middle] ^= 1;
        std::fs::write(&path, &spoilt).expect("written");
        assert!(made.verdict(&form).is_err(), "{name} with one bit changed");
        std::fs::write(&path, &whole).expect("written");
        assert_eq!(made.verdict(&form), Ok(()));
        std::fs::remove_file(&path).expect("removed");
        assert!(made.verdict(&form).is_err_and(|why| why.contains(name)), "{name} is gone");
        std::fs::write(&path, &whole).expect("written");
    }
    // An image that is right in itself and not signed: as ./x image leaves it.
    let path = folder.join("fencepost_umd.dll");
    std::fs::copy(images().join("fencepost_umd.dll"), &path).expect("copied");
    assert!(made.verdict(&form).is_err_and(|why| why.contains("fencepost_umd.dll")));
}

/// An image that is signed by the right certificate, and that the catalog does not have.
fn what_the_catalog_lacks_is_noticed() {
    let form = FORMS[0];
    let made = Made::new();
    let path = made.of(&form).join("fencepost_d3d.dll");
    let mut other = std::fs::read(images().join("fencepost_d3d.dll")).expect("an image");
    other.extend([1, 2, 3]);
    let unsigned = made.folder.path().join("other.dll");
    std::fs::write(&unsigned, other).expect("written");
    std::fs::remove_file(&path).expect("removed");
    made.certificate.sign(&unsigned, &path, 0).expect("signed");
    made.certificate.verify(&path).expect("the image's own signature");
    assert!(made.verdict(&form).is_err_and(|why| why.contains("fencepost_d3d.dll")));
}

/// What a catalog says beside the hashes, byte by byte: osslsigncode reads none of it. Source: *MakeCat*, *Creating a
/// Catalog File for a Non-PnP Driver*.
fn a_catalog_says_what_it_is_for() {
    let made = Made::new();
    let wide = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    // A BMPString, the INTEGER 0x10010001, and an OCTET STRING that ends with a zero; each is short.
    let attribute = |name: &str, value: &str| {
        let big: Vec<u8> = name.encode_utf16().flat_map(u16::to_be_bytes).collect();
        let value = [wide(value), vec![0, 0]].concat();
        let length = |bytes: &[u8]| u8::try_from(bytes.len()).ok().filter(|length| *length < 0x80).expect("short");
        let head = [vec![0x1E, length(&big)], big, vec![0x02, 4, 0x10, 1, 0, 1]].concat();
        [head, vec![0x04, length(&value)], value].concat()
    };
    for form in FORMS {
        let catalog = std::fs::read(made.of(&form).join(format!("{}.cat", form.name))).expect("a catalog");
        let count = |part: &[u8]| catalog.windows(part.len()).filter(|bytes| *bytes == part).count();
        let inf = format!("{}.inf", form.name);
        for file in ["fencepost.sys", "fencepost_d3d.dll", "fencepost_umd.dll", &inf] {
            assert_eq!(count(&attribute("File", file)), 1, "{file}");
        }
        assert_eq!(count(&attribute("OSAttr", "2:10.0")), 4);
        assert_eq!(count(&attribute("OS", "_v100_X64")), 1);
        assert_eq!(count(&attribute("HWID1", r"pci\ven_1234&dev_11e8")), 1);
        assert_eq!(count(&attribute("HWID2", r"root\fencepost")), 1);
        assert_eq!(count(b"\x17\x0D260309000000Z"), 2, "the day of the list, and of the signature");
        let link: Vec<u8> = "<<<Obsolete>>>".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(count(&link), 1, "the INF is no image");
    }
}

/// The file's version, and not the product's, which stands behind it.
fn a_version_is_the_files() {
    let words = [[2_u16, 1], [4, 3], [6, 5], [8, 7]].concat();
    let version: Vec<u8> = words.into_iter().flat_map(u16::to_le_bytes).collect();
    let block = [&0xFEEF_04BD_u32.to_le_bytes()[..], &[0, 0, 1, 0], &version].concat();
    assert_eq!(file_version(&[vec![0; 8], block].concat()).as_deref(), Some("1.2.3.4"));
}

/// A certificate verifies what was signed by it, and nothing else.
fn another_certificate_verifies_nothing() {
    let (made, other) = (Made::new(), Made::new());
    for form in FORMS {
        let why = verify(&made.of(&form), &form, &other.certificate);
        assert!(why.is_err(), "{}", form.name);
    }
}

/// The catalog of the other package has the same images, and not this INF.
fn a_catalog_is_of_its_own_inf() {
    let made = Made::new();
    let [display, compute] = FORMS;
    let other = std::fs::read(made.of(&compute).join("fencepost_compute.cat")).expect("a catalog");
    std::fs::write(made.of(&display).join("fencepost.cat"), other).expect("written");
    let why = made.verdict(&display).expect_err("the INF is not in it");
    assert!(why.contains("fencepost.inf is not what its catalog has"), "{why}");
}

fn what_is_missing_or_wrong_is_a_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let certificate = Certificate::of(&folder.path().join("certificate")).expect("a certificate");
    let refused = |images: &Path, to: &Path, day: Date| {
        let error = make(images, to, day, &certificate).expect_err("it cannot be made");
        format!("{error:#}")
    };
    let why = refused(Path::new("/nonexistent"), folder.path(), DAY);
    assert!(why.contains("cannot read /nonexistent/fencepost.sys: ./x image builds it"), "{why}");
    let why = refused(&images(), Path::new("/proc/nowhere"), DAY);
    assert!(why.contains("cannot write into /proc/nowhere"), "{why}");
    let why = refused(&images(), folder.path(), date(9999, 1, 1));
    assert!(why.contains("has not come"), "{why}");
    // Images of another version than the INF: Code 31.
    let old = folder.path().join("old");
    std::fs::create_dir(&old).expect("a folder");
    for name in ["fencepost.sys", "fencepost.pdb"] {
        let mut bytes = std::fs::read(images().join(name)).expect("a file");
        let signature = 0xFEEF_04BD_u32.to_le_bytes();
        if let Some(at) = bytes.windows(4).position(|four| four == signature).filter(|_| name.ends_with("sys")) {
            bytes[at + 12] ^= 1;
        }
        std::fs::write(old.join(name), bytes).expect("written");
    }
    let why = refused(&old, folder.path(), DAY);
    assert!(why.contains("is version 32.0.26110.") && why.contains(VERSION.trim()), "{why}");
    // Nothing is left of what was not made.
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 2, "the certificate and the old images");
}

fn the_images_have_the_version_that_is_stamped() {
    for name in ["fencepost.sys", "fencepost_umd.dll", "fencepost_d3d.dll"] {
        let image = std::fs::read(images().join(name)).expect("an image");
        assert_eq!(file_version(&image).as_deref(), Some(VERSION.trim()), "{name}");
    }
}

/// A certificate that is there stays, and its key is for its owner alone.
fn a_certificate_is_kept() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("certificate");
    let made = || {
        let certificate = Certificate::of(&place).expect("a certificate");
        let der = folder.path().join("a.cer");
        certificate.export(&der).expect("exported");
        std::fs::read(der).expect("a file")
    };
    assert_eq!(made(), made());
    let mode = std::fs::metadata(place.join("fencepost.key")).expect("a key").permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}

/// Both INFs of the tree can be stamped, and hold.
fn the_infs_can_be_stamped() {
    for name in ["fencepost", "fencepost_compute"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("inf/{name}.inx"));
        let text = std::fs::read_to_string(path).expect("an INF");
        let stamped = stamp(&text, DAY, VERSION.trim(), "amd64").expect("it can be stamped");
        assert_eq!(lint(&stamped), []);
        let contents = Contents::of(&stamped);
        assert_eq!(contents.hardware, [r"PCI\VEN_1234&DEV_11E8", r"ROOT\FENCEPOST"]);
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    let lacking = match (images().join("fencepost.sys").is_file(), has("osslsigncode") && has("openssl")) {
        (false, _) => "out/ has no images: ./x image builds them",
        (_, false) => "osslsigncode or openssl is not installed: ./x test installs them",
        _ => "",
    };
    if !lacking.is_empty() {
        eprintln!("package: {lacking}");
    }
    let test = |name: &'static str, body: fn()| {
        let body = move || {
            body();
            Ok(())
        };
        Trial::test(name, body).with_ignored_flag(!lacking.is_empty())
    };
    // ./x test builds it, ./x image does not.
    let program = test("the_program_is_signed", the_program_is_signed);
    let is_built = images().join("fencepost.exe").is_file();
    let trials = vec![
        if is_built { program } else { program.with_ignored_flag(true) },
        test("both_hold_and_have_what_the_documents_say", both_hold_and_have_what_the_documents_say),
        test("the_same_is_made_twice", the_same_is_made_twice),
        test("what_is_somebodys_stays", what_is_somebodys_stays),
        test("digests_are_those_that_osslsigncode_calculates", digests_are_those_that_osslsigncode_calculates),
        test("what_is_changed_afterwards_is_noticed", what_is_changed_afterwards_is_noticed),
        test("another_certificate_verifies_nothing", another_certificate_verifies_nothing),
        test("a_catalog_is_of_its_own_inf", a_catalog_is_of_its_own_inf),
        test("what_is_missing_or_wrong_is_a_sentence", what_is_missing_or_wrong_is_a_sentence),
        test("the_images_have_the_version_that_is_stamped", the_images_have_the_version_that_is_stamped),
        test("a_certificate_is_kept", a_certificate_is_kept),
        test("the_infs_can_be_stamped", the_infs_can_be_stamped),
        test("what_the_catalog_lacks_is_noticed", what_the_catalog_lacks_is_noticed),
        test("a_catalog_says_what_it_is_for", a_catalog_says_what_it_is_for),
        test("a_version_is_the_files", a_version_is_the_files),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}
