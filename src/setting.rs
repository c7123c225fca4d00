//! Values under a driver's registry key, as the command line has them: `NAME=NUMBER`.

use dxgkrnl_model::adapter::AdapterConfig;
use kmd_core::setting_values::Setting;
use kmd_core::settings::Settings;
use nt_model::registry::RegistryValue;

/// A value and its name.
pub type Assignment = (String, u64);

/// A setting of Fencepost's: its name is known (without regard to case, as registry values are), its value within bounds.
///
/// # Errors
/// What is wrong, with the names that there are or the values that the setting takes.
pub fn of_ours(text: &str) -> Result<Assignment, String> {
    let (name, value) = of_any(text)?;
    let Some(setting) = find(&name) else {
        return Err(format!("no setting is called '{name}'; there are {}", names()));
    };
    if !setting.values.take(value) {
        return Err(format!("{} takes {}", setting.name, setting.values));
    }
    Ok((setting.name.to_owned(), value))
}

/// A value of any driver's, whose names are its own. Numbers are decimal, or hexadecimal with `0x`.
///
/// # Errors
/// What is wrong.
pub fn of_any(text: &str) -> Result<Assignment, String> {
    let (name, value) = text.split_once('=').ok_or("NAME=NUMBER is what it looks like")?;
    let number = match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => value.parse(),
    };
    number.map(|number| (name.to_owned(), number)).map_err(|_| format!("'{value}' is no number of 64 bits"))
}

/// The setting with this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    Settings::TABLE.iter().find(|setting| setting.name.eq_ignore_ascii_case(name))
}

/// The names of all settings.
fn names() -> String {
    Settings::TABLE.iter().map(|setting| setting.name).collect::<Vec<_>>().join(", ")
}

/// The value as the registry has it: a DWORD where it fits.
pub fn registry_value(value: u64) -> RegistryValue {
    u32::try_from(value).map_or_else(|_| RegistryValue::qword(value), RegistryValue::dword)
}

/// An adapter with these values under its driver's key.
pub fn adapter(settings: &[Assignment]) -> AdapterConfig {
    let mut config = AdapterConfig::default();
    config.registry.extend(settings.iter().map(|(name, value)| (name.clone(), registry_value(*value))));
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_and_values_pass_and_others_are_told_what_there_is() {
        assert_eq!(of_ours("maxrung=2"), Ok(("MaxRung".to_owned(), 2)));
        assert_eq!(of_ours("RefuseQueries=0x800000000000"), Ok(("RefuseQueries".to_owned(), 1 << 47)));
        assert!(of_ours("MaxRang=2").is_err_and(|why| why.contains("MaxRung") && why.contains("FlipCaps")));
        assert!(of_ours("MaxRung=4").is_err_and(|why| why.contains("3 user-mode submission")));
        assert!(of_ours("MaxRung").is_err() && of_ours("MaxRung=two").is_err());
        assert_eq!(of_any("AnythingAtAll=7"), Ok(("AnythingAtAll".to_owned(), 7)));
    }

    #[test]
    fn small_numbers_are_dwords() {
        assert_eq!(registry_value(7), RegistryValue::dword(7));
        assert_eq!(registry_value(1 << 40), RegistryValue::qword(1 << 40));
    }
}
