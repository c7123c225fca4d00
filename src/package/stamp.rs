//! Stamping: from an .inx of `inf/` to the .inf of a package, as stampinf does it with `-d`, `-v` and `-a`.
//!
//! Source: *Stampinf* (windows-driver-docs devtest/stampinf): `$ARCH$` becomes the architecture, and the DriverVer
//! directive of `[Version]` becomes date and version. Nothing else changes.

use jiff::civil::Date;

/// The text of a package's INF.
///
/// `template`: the .inx, which has the line `DriverVer =` once, without a value; `version`: as in `inf/version`;
/// `architecture`: as decorations of models name it, such as `amd64`. Lines end as they do in `template`.
///
/// # Errors
/// When the template has no DriverVer to stamp, more than one, or one that is stamped: the sentence says which.
pub fn stamp(template: &str, date: Date, version: &str, architecture: &str) -> Result<String, String> {
    let stamped = format!("{:02}/{:02}/{:04},{version}", date.month(), date.day(), date.year());
    let mut found = 0;
    let lines = template.split_inclusive('\n').map(|line| {
        let Some(place) = place_of_version(line) else { return Ok(line.replace("$ARCH$", architecture)) };
        found += 1;
        let (before, behind) = line.split_at(place);
        let value = behind.trim_end_matches(['\r', '\n']);
        match value.split(';').next().unwrap_or_default().trim() {
            "" => Ok(format!("{} {stamped}{}", before.trim_end(), &behind[value.len()..])),
            value => Err(format!("DriverVer is stamped already: '{value}'")),
        }
    });
    let text = lines.collect::<Result<String, _>>()?;
    match found {
        1 => Ok(text),
        0 => Err("there is no line 'DriverVer =' to stamp".to_owned()),
        _ => Err(format!("DriverVer is there {found} times")),
    }
}

/// Where the value of `DriverVer` stands in this line, if it is one.
fn place_of_version(line: &str) -> Option<usize> {
    let equals = line.find('=')?;
    line[..equals].trim().eq_ignore_ascii_case("DriverVer").then_some(equals + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    const TEMPLATE: &str = "\
        [Version]\r\nDriverVer   =\r\n\
        [Manufacturer]\r\n%P% = A, NT$ARCH$.10.0\r\n\
        [A.NT$ARCH$.10.0]\r\n";

    #[test]
    fn date_version_and_architecture_are_put_in_and_nothing_else_changes() {
        let text = stamp(TEMPLATE, date(2026, 3, 9), "32.0.1.2", "amd64");
        let wanted = "\
            [Version]\r\nDriverVer   = 03/09/2026,32.0.1.2\r\n\
            [Manufacturer]\r\n%P% = A, NTamd64.10.0\r\n\
            [A.NTamd64.10.0]\r\n";
        assert_eq!(text.as_deref(), Ok(wanted));
    }

    #[test]
    fn what_cannot_be_stamped_is_said() {
        let refused = |template: &str| stamp(template, date(2026, 3, 9), "1", "amd64").err().unwrap_or_default();
        assert!(refused("[Version]\n").contains("no line 'DriverVer ='"));
        assert!(refused("DriverVer=\nDriverVer=\n").contains("2 times"));
        assert!(refused("DriverVer = 01/01/2026,1.0\n").contains("stamped already: '01/01/2026,1.0'"));
        assert!(stamp("driverver = ; not yet\n", date(2026, 3, 9), "1", "amd64").is_ok());
    }
}
