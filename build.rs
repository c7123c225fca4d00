//! The one build script: link settings of the two images. For every other package, and on every target but Windows, it
//! does nothing, so that the workspace builds, tests and lints without a WDK.
//!
//! `kmd` and `umd` name this file (`build = "../build.rs"`). Settings here hold for link.exe on Windows and for lld-link in
//! the Linux cross build alike; what only the cross build needs stands in `cross/`.

use std::env;

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
        }
        "umd" => {
            link_args(COMMON);
            link_args(USER_MODE);
        }
        _ => {}
    }
    Ok(())
}

/// Both images: the .pdb is found by its bare name (no path of the build machine inside), and the header's checksum is
/// set, which the Windows loader demands of drivers (link.exe's /DRIVER sets it as well; lld-link's leaves it 0).
const COMMON: &[&str] = &["/PDBALTPATH:%_PDB%", "/RELEASE"];

/// The user-mode driver has no C runtime: `umd/src/runtime.rs` has what rustc expects of one.
const USER_MODE: &[&str] = &["/NODEFAULTLIB", "/ENTRY:DllMain", "/SUBSYSTEM:WINDOWS"];

fn link_args(args: &[&str]) {
    for arg in args {
        println!("cargo::rustc-cdylib-link-arg={arg}");
    }
}

/// Microsoft's settings for a WDM driver, and displib.lib where the WDK that wdk-build found has it. mingw-w64's headers,
/// from which the cross build makes its WDK folder, come without one: `kmd/src/displib.rs` does its work then.
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
