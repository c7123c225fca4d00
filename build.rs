//! The one build script: link settings and version resource of the images. For every other package, and on every target
//! but Windows, it does nothing, so that the workspace builds, tests and lints without a WDK.
//!
//! `kmd`, `umd`, `umd_d3d`, `wine_dxgkrnl` and `rust_driver` name this file (`build = "../build.rs"`). Settings here
//! hold for link.exe on Windows and for lld-link in the Linux cross build alike; what only the cross build needs stands
//! in `cross/`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    println!("cargo::rerun-if-changed=Cargo.toml"); // of each package; otherwise any of its files would count
    println!("cargo::rustc-check-cfg=cfg(displib)");
    if env::var_os("CARGO_CFG_WINDOWS").is_none() {
        return Ok(());
    }
    match env::var("CARGO_PKG_NAME")?.as_str() {
        "kmd" => {
            wdk()?;
            link_args(COMMON);
            link_args(DRIVER);
            version(&DRIVER_FILE)?;
        }
        "wine_dxgkrnl" | "rust_driver" => {
            wdk()?;
            link_args(COMMON);
            link_args(DRIVER);
        }
        "umd" => {
            link_args(COMMON);
            link_args(USER_MODE);
            version(&USER_MODE_FILE)?;
        }
        "umd_d3d" => {
            link_args(COMMON);
            link_args(USER_MODE);
            version(&DIRECT3D_FILE)?;
        }
        _ => {}
    }
    Ok(())
}

/// Both images: the .pdb is found by its bare name (no path of the build machine inside), and the header's checksum is
/// set, which the Windows loader demands of drivers (link.exe's /DRIVER sets it as well; lld-link's leaves it 0).
const COMMON: &[&str] = &["/PDBALTPATH:%_PDB%", "/RELEASE"];

/// The driver says for which Windows it is, as the WDK's own projects do. The last of two /SUBSYSTEM counts.
const DRIVER: &[&str] = &["/OSVERSION:10.0", "/SUBSYSTEM:NATIVE,10.0"];

/// The user-mode driver has no C runtime: `umd/src/runtime.rs` has what rustc expects of one.
const USER_MODE: &[&str] = &["/NODEFAULTLIB", "/ENTRY:DllMain", "/SUBSYSTEM:WINDOWS"];

fn link_args(args: &[&str]) {
    for arg in args {
        println!("cargo::rustc-cdylib-link-arg={arg}");
    }
}

/// What the version resource of an image says beside the version.
struct VersionedFile {
    /// The name that the file was made under (`OriginalFilename` of the resource, and its `InternalName`).
    name: &'static str,
    /// What Explorer shows as the file's description (`FileDescription` of the resource).
    description: &'static str,
    /// `FILETYPE` and `FILESUBTYPE`: a display driver, or a library.
    kind: (u32, u32),
}

const DRIVER_FILE: VersionedFile =
    VersionedFile { name: "fencepost.sys", description: "Fencepost display miniport driver", kind: (3, 4) };
const USER_MODE_FILE: VersionedFile =
    VersionedFile { name: "fencepost_umd.dll", description: "Fencepost user-mode driver", kind: (2, 0) };
const DIRECT3D_FILE: VersionedFile =
    VersionedFile { name: "fencepost_d3d.dll", description: "Fencepost answer to Direct3D", kind: (2, 0) };

/// Gives the image a version resource: that of `inf/version`, which the INFs are stamped with too. Windows demands that
/// the two agree (article *WDDM 2.1 features*, "Driver Versioning").
///
/// With the feature `wdk` and for `umd` in an image build there is a resource compiler: rc.exe of the WDK, or the one
/// that `FENCEPOST_RC` names. Without one an image has no version, which a test of the images refuses.
fn version(file: &VersionedFile) -> Result<(), Error> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let path = root.ancestors().map(|folder| folder.join("inf/version")).find(|path| path.is_file());
    let path = path.ok_or("inf/version is not there")?;
    println!("cargo::rerun-if-changed={}", path.display());
    println!("cargo::rerun-if-env-changed=FENCEPOST_RC");
    let text = fs::read_to_string(&path)?;
    let text = text.trim();
    let parts = text.split('.').map(str::parse).collect::<Result<Vec<u16>, _>>()?;
    let [a, b, c, d] = parts[..] else { return Err(format!("inf/version is '{text}', not four numbers").into()) };
    let (kind, subtype) = file.kind;
    let script = format!(
        "1 VERSIONINFO\nFILEVERSION {a},{b},{c},{d}\nPRODUCTVERSION {a},{b},{c},{d}\nFILEFLAGSMASK 0x3FL\n\
         FILEFLAGS 0L\nFILEOS 0x40004L\nFILETYPE {kind}\nFILESUBTYPE {subtype}\nBEGIN\n\
         BLOCK \"StringFileInfo\"\nBEGIN\nBLOCK \"040904B0\"\nBEGIN\n\
         VALUE \"CompanyName\", \"Fencepost\"\nVALUE \"FileDescription\", \"{}\"\n\
         VALUE \"FileVersion\", \"{text}\"\nVALUE \"InternalName\", \"{}\"\n\
         VALUE \"LegalCopyright\", \"MIT or Apache-2.0\"\nVALUE \"OriginalFilename\", \"{}\"\n\
         VALUE \"ProductName\", \"Fencepost\"\nVALUE \"ProductVersion\", \"{text}\"\nEND\nEND\n\
         BLOCK \"VarFileInfo\"\nBEGIN\nVALUE \"Translation\", 0x409, 1200\nEND\nEND\n",
        file.description, file.name, file.name
    );
    let folder = PathBuf::from(env::var("OUT_DIR")?);
    let (source, resource) = ("version.rc", "version.res");
    fs::write(folder.join(source), script)?;
    let Some((compiler, argument)) = resource_compiler() else { return Ok(()) };
    // The compiler runs in the folder of its files and reads bare names: to it, an absolute path of Unix can be an
    // option (`/c` at its beginning sets the code page).
    let mut command = Command::new(&compiler);
    let made = command.current_dir(&folder).args([argument, "/fo", resource, source]).status();
    let made = made.map_err(|error| format!("{}: {error}", compiler.display()))?;
    if !made.success() {
        return Err(format!("{} did not compile {source} in {}", compiler.display(), folder.display()).into());
    }
    println!("cargo::rustc-cdylib-link-arg={}", folder.join(resource).display());
    Ok(())
}

/// The resource compiler of this build with an argument of its own: `FENCEPOST_RC`, which is llvm-rc and would want a
/// preprocessor, or rc.exe on Windows, where the WDK's folder is in the PATH.
fn resource_compiler() -> Option<(PathBuf, &'static str)> {
    let named = env::var_os("FENCEPOST_RC").filter(|path| !path.is_empty()).map(PathBuf::from);
    let named = named.map(|path| (path, "-no-preprocess"));
    named.or_else(|| cfg!(windows).then(|| (Path::new("rc.exe").to_owned(), "/nologo")))
}

/// Microsoft's settings for a WDM driver, and displib.lib where the WDK that wdk-build found has it. mingw-w64's
/// headers, from which the cross build makes its WDK folder, come without one: `kmd/src/displib.rs` does its work then.
#[cfg(feature = "wdk")]
fn wdk() -> Result<(), Error> {
    let config = wdk_build::Config::from_env_auto()?;
    config.configure_binary_build()?;
    if config.library_paths()?.any(|folder| folder.join("displib.lib").is_file()) {
        println!("cargo::rustc-cfg=displib");
        link_args(&["displib.lib"]);
    }
    Ok(())
}

/// Without the feature, cargo can still check `kmd` for a Windows target, but not link a driver.
#[cfg(not(feature = "wdk"))]
fn wdk() -> Result<(), Error> {
    Ok(())
}
