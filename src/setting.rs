//! Values under a driver's registry key, as the command line has them: `NAME=NUMBER`.

use dxgkrnl_model::adapter::AdapterConfig;
use dxgkrnl_model::adapter::compute::DeviceClass;
use dxgkrnl_model::os::Os;
use dxgkrnl_model::personality::Windows;
use kmd_core::service;
use kmd_core::setting_values::{Part, Setting};
use kmd_core::settings::Settings;
use nt_model::registry::RegistryValue;
pub use portable_cases::arguments::{Assignment, each_once, of_any};

/// Parses `NAME=NUMBER` for a setting of Fencepost: the name must be one of [`Settings::TABLE`], in any case, as the
/// registry's are, and the number one of its values. The name comes back as the table spells it.
///
/// # Errors
/// A sentence: no `=`, no number, an unknown name with the known ones, or a value out of range with those that the
/// setting takes.
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

/// The setting of Fencepost with this name, in any case; `None` for a name that the table does not have.
pub fn find(name: &str) -> Option<&'static Setting> {
    all().find(|setting| setting.name.eq_ignore_ascii_case(name))
}

/// The settings of the service and those of an adapter.
fn all() -> impl Iterator<Item = &'static Setting> {
    service::TABLE.iter().chain(Settings::TABLE)
}

/// The names of all settings.
fn names() -> String {
    all().map(|setting| setting.name).collect::<Vec<_>>().join(", ")
}

/// The value as it goes into the registry: a DWORD where 32 bits hold it, a QWORD otherwise.
pub fn registry_value(value: u64) -> RegistryValue {
    u32::try_from(value).map_or_else(|_| RegistryValue::qword(value), RegistryValue::dword)
}

/// Returns whether a setting of Fencepost stands under the service's key, which `DriverEntry` reads.
pub fn is_of_service(name: &str) -> bool {
    find(name).is_some_and(|setting| setting.part == Part::Service)
}

/// Puts the settings of the service among `settings` under the service's key.
pub fn set_service(os: &Os, settings: &[Assignment]) {
    let key = format!("{}\\Parameters", kmd_native::SERVICE_KEY);
    for (name, value) in settings.iter().filter(|(name, _)| is_of_service(name)) {
        os.kernel().registry().set(&key, name, registry_value(*value));
    }
}

/// Readings of the documents under which this driver works with a setting alone: name, setting, value.
const COMPANIONS: &[(&str, &str, u64)] = &[("pte-bytes", "PteByteAddresses", 1)];

/// What `windows` asks of this driver: a reading, and the setting and value without which the driver does not work
/// under it.
pub fn companions(windows: Windows) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
    let readings = windows.readings();
    COMPANIONS.iter().copied().filter(move |(name, ..)| readings.iter().any(|reading| reading.name == *name))
}

/// The class that the INF of these settings' form names: the one that writes `ComputeOnly` 1, or the other.
pub fn class(settings: &[Assignment]) -> DeviceClass {
    let compute_only = |(name, value): &Assignment| name.eq_ignore_ascii_case("ComputeOnly") && *value == 1;
    if settings.iter().any(compute_only) { DeviceClass::ComputeAccelerator } else { DeviceClass::Display }
}

/// An adapter of Fencepost: [`adapter`] without the settings of the service, and of the class that they are for.
pub fn adapter_of_ours(settings: &[Assignment]) -> AdapterConfig {
    let own: Vec<_> = settings.iter().filter(|(name, _)| !is_of_service(name)).cloned().collect();
    let mut config = AdapterConfig { class: Some(class(settings)), ..adapter(&own) };
    // As the INF writes the first, and installation the others.
    let texts = [
        ("HardwareInformation.AdapterString", name_of_ours()),
        ("DriverDesc", name_of_ours()),
        ("DriverVersion", include_str!("../inf/version").trim()),
    ];
    config.registry.extend(texts.map(|(name, text)| (name.to_owned(), RegistryValue::string(text))));
    config
}

/// What the INF of the display form calls the device that the model has.
fn name_of_ours() -> &'static str {
    let line = include_str!("../inf/fencepost.inx").lines().find_map(|line| line.strip_prefix("Device.Edu"));
    line.and_then(|line| line.split('"').nth(1)).unwrap_or_default()
}

/// The default adapter, with these values under its driver's registry key. Of one name given twice, the last counts.
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
        assert_eq!(of_any("A=0X10"), of_any("A=0x10"));
        assert_eq!(of_any("A=0x10"), Ok(("A".to_owned(), 16)));
        for wrong in ["=5", "A=", "A=+5", "A=0x+5", "A=-1", "A=0x10000000000000000"] {
            assert!(of_any(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_that_is_there_twice_is_named() {
        let settings = ["A=1", "B=2", "a=1"].map(|text| of_any(text).expect("a setting"));
        assert_eq!(each_once(&settings[..2]), Ok(()));
        assert!(each_once(&settings).is_err_and(|why| why.contains("setting a is given twice")));
    }

    #[test]
    fn small_numbers_are_dwords() {
        assert_eq!(registry_value(7), RegistryValue::dword(7));
        assert_eq!(registry_value(1 << 40), RegistryValue::qword(1 << 40));
    }
}
