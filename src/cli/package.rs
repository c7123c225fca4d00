//! `package`: the signed driver packages.

use super::{check_json, image_folder, write_json};
use anyhow::{Context, Result};
use clap::Args;
use fencepost::inf::stampable;
use fencepost::package::{Certificate, Package, VERSION, make, sign_program};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;
use std::path::PathBuf;

/// The driver packages for a test machine, stamped, with catalogs, signed by a certificate of this machine's own, and
/// verified
///
/// Makes package (class Display) and package_compute (class ComputeAccelerator), of the same files: one of them is ever
/// staged; beside them the folder program with fencepost.exe and fencepost_umd.dll, signed as well. docs/windows.md
/// says how. Windows has seen none of it; the signatures were verified by osslsigncode.
#[derive(Args)]
#[command(name = "package")]
pub struct Arguments {
    /// The folder for both packages, which replace those that are there [default: where the images are]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The day that is stamped in and that is said to be the signatures', in UTC [default: that of SOURCE_DATE_EPOCH,
    /// else today]
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<Date>,
    /// The folder of the certificate and its key, which are made where they are not there [default: what the variable
    /// FENCEPOST_CERTIFICATE says, which ./x sets to target/certificate]
    #[arg(long, value_name = "DIR")]
    certificate: Option<PathBuf>,
    /// Write what was made to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    mode: &'static str,
    version: &'a str,
    date: String,
    packages: &'a [Package],
    /// The signed program for test machines; none where it is not built.
    program: Option<PathBuf>,
}

impl Arguments {
    /// Checks what can be checked before the images are built. Returns whether they are wanted.
    pub fn check(&self) -> Result<bool> {
        stampable(self.day()?).map_err(anyhow::Error::msg)?;
        check_json(self.json.as_ref())?;
        Ok(true)
    }

    fn day(&self) -> Result<Date> {
        if let Some(date) = self.date {
            return Ok(date);
        }
        let now = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(seconds) => {
                let seconds = seconds.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
                seconds.context("SOURCE_DATE_EPOCH is no number of seconds since 1970")?
            }
            Err(_) => Timestamp::now(),
        };
        Ok(now.to_zoned(TimeZone::UTC).date())
    }

    fn certificate(&self) -> PathBuf {
        let said = || std::env::var_os("FENCEPOST_CERTIFICATE").map(PathBuf::from);
        self.certificate.clone().or_else(said).unwrap_or_else(|| PathBuf::from("target/certificate"))
    }
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let (images, date) = (image_folder(), arguments.day()?);
    let to = arguments.out.clone().unwrap_or_else(|| images.clone());
    let certificate = Certificate::of(&arguments.certificate())?;
    let packages = make(&images, &to, date, &certificate)?;
    for package in &packages {
        println!("{}", package.folder.display());
        for file in &package.files {
            let signed = if file.signed { "signed" } else { "" };
            let listed = if file.digest.is_some() { "in the catalog" } else { "" };
            println!("    {:24} {signed:8} {listed}", file.name);
        }
    }
    let program = sign_program(&images, &to, date, &certificate)?;
    match &program {
        Some(path) => println!("{:28} signed", path.display()),
        None => println!("no program: ./x exe builds it"),
    }
    let version = VERSION.trim();
    println!("version {version} of {date}; signatures, and images by their catalogs, verified by osslsigncode");
    println!("stage one of them, never both: docs/windows.md");
    if let Some(path) = &arguments.json {
        let date = date.to_string();
        write_json(path, &Report { schema: 1, mode: "package", version, date, packages: &packages, program })?;
    }
    Ok(true)
}
