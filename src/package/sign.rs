//! Signing and verifying, by osslsigncode; the certificate, by openssl.
//!
//! Neither knows what Windows would say: they know the formats.

use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The certificate's name: that of `cargo make`, so that it is taken back in the same way.
const SUBJECT: &str = "/CN=FencepostTest";
/// How long it is good for.
const DAYS: &str = "3650";

/// A self-signed certificate for signing code, and its key: of one machine, for test machines.
#[derive(Debug)]
pub struct Certificate {
    /// The certificate, PEM.
    certificate: PathBuf,
    /// Its private key, PEM, for the owner's eyes.
    key: PathBuf,
}

impl Certificate {
    /// The certificate in `folder`, which is made, readable by its owner alone, where it is not there. A folder that
    /// has one keeps it, so that test machines that trust it go on doing so.
    ///
    /// # Errors
    /// When openssl is missing or fails, or the folder cannot be written.
    pub fn of(folder: &Path) -> Result<Self> {
        let (certificate, key) = (folder.join("fencepost.pem"), folder.join("fencepost.key"));
        let found = Self { certificate, key };
        if found.certificate.is_file() && found.key.is_file() {
            return Ok(found);
        }
        let cannot = || format!("cannot write into {}", folder.display());
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(cannot)?;
        // The key's file is there before its content, with the right permissions.
        let options = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
        options.open(&found.key).with_context(cannot)?;
        let arguments = ["req", "-x509", "-newkey", "rsa:2048", "-sha256", "-nodes", "-days", DAYS, "-subj", SUBJECT];
        let extensions =
            ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "keyUsage=critical,digitalSignature"];
        let mut openssl = Command::new("openssl");
        openssl.args(arguments).args(extensions).args(["-addext", "extendedKeyUsage=codeSigning"]);
        run(openssl.arg("-keyout").arg(&found.key).arg("-out").arg(&found.certificate))?;
        Ok(found)
    }

    /// The certificate, DER: what Windows imports.
    ///
    /// # Errors
    /// When openssl fails.
    pub fn export(&self, to: &Path) -> Result<()> {
        let mut openssl = Command::new("openssl");
        run(openssl.args(["x509", "-outform", "DER", "-in"]).arg(&self.certificate).arg("-out").arg(to)).map(drop)
    }

    /// Signs the file at `from`, an image or a catalog, into `to`, which must not be there. `time`: when it is said to
    /// be signed, in seconds since 1970. There is no time stamp: the signature ends with the certificate.
    ///
    /// # Errors
    /// When osslsigncode is missing or fails.
    pub fn sign(&self, from: &Path, to: &Path, time: i64) -> Result<()> {
        let mut signer = Command::new("osslsigncode");
        signer.args(["sign", "-h", "sha256", "-n", "Fencepost", "-time"]).arg(time.to_string());
        signer.arg("-certs").arg(&self.certificate).arg("-key").arg(&self.key);
        run(signer.arg("-in").arg(from).arg("-out").arg(to)).map(drop)
    }

    /// Verifies a signed file, an image or a catalog, by this certificate alone.
    ///
    /// # Errors
    /// What osslsigncode says, or that it is missing.
    pub fn verify(&self, file: &Path) -> Result<()> {
        self.verify_with(file, [])
    }

    /// Verifies an image by a signed catalog that has it. (osslsigncode knows no INFs.)
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn verify_by(&self, catalog: &Path, file: &Path) -> Result<()> {
        self.verify_with(file, [OsStr::new("-catalog"), catalog.as_os_str()])
    }

    fn verify_with<const N: usize>(&self, file: &Path, more: [&OsStr; N]) -> Result<()> {
        let mut verifier = Command::new("osslsigncode");
        verifier.arg("verify").arg("-CAfile").arg(&self.certificate).args(more).arg("-in").arg(file);
        let said = run(&mut verifier).with_context(|| format!("{} does not verify", file.display()))?;
        // It ends with 0 for what it does not know how to verify, too.
        let holds = said.lines().any(|line| line == "Succeeded");
        ensure!(holds, "{} does not verify: {}", file.display(), said.lines().last().unwrap_or_default());
        Ok(())
    }
}

/// Runs a tool. What it printed.
fn run(command: &mut Command) -> Result<String> {
    let tool = command.get_program().display().to_string();
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("{tool} is not there: ./x package installs Debian's package {tool}")
        }
        output => output.with_context(|| format!("{tool} does not run"))?,
    };
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let lines = || said.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    ensure!(output.status.success(), "{tool} failed ({}): {}", output.status, lines());
    Ok(said)
}
