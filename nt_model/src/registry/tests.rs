use super::*;
use crate::kernel::Kernel;
use crate::records::status;

const KEY: &str = "\\Registry\\Machine\\System\\CurrentControlSet\\Services\\Test";

#[test]
fn keys_are_created_with_those_above_and_found_without_case() {
    let registry = Registry::default();
    assert!(registry.create(KEY));
    assert!(!registry.create(&KEY.to_uppercase()));
    assert!(registry.exists("\\REGISTRY\\machine"));
    assert_eq!(registry.subkeys("\\Registry\\Machine\\System\\CurrentControlSet\\Services"), ["Test"]);
    assert!(!registry.delete("\\Registry\\Machine"), "it has subkeys");
    assert!(registry.delete(KEY));
}

#[test]
fn values_keep_type_and_bytes() {
    let registry = Registry::default();
    registry.set(KEY, "Count", RegistryValue::dword(7));
    registry.set(KEY, "Name", RegistryValue::string("a b"));
    assert_eq!(registry.get(KEY, "COUNT").and_then(|value| value.number()), Some(7));
    assert_eq!(registry.get(KEY, "name").and_then(|value| value.text()).as_deref(), Some("a b"));
    assert!(registry.delete_value(KEY, "count") && registry.get(KEY, "count").is_none());
}

#[test]
fn handles_lead_to_keys() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    assert_eq!(kernel.open_key(0, KEY), Err(status::OBJECT_NAME_NOT_FOUND));
    let (key, created) = kernel.create_key(0, KEY).unwrap_or_default();
    assert!(created);
    assert!(kernel.set_value(key, "Size", RegistryValue::qword(1 << 40)).is_ok());
    assert_eq!(kernel.query_value(key, "size").ok().and_then(|value| value.number()), Some(1 << 40));
    let (below, _) = kernel.create_key(key, "Parameters").unwrap_or_default();
    assert_eq!(kernel.enumerate_key(key, 0).as_deref(), Ok("Parameters"));
    assert_eq!(kernel.enumerate_key(key, 1), Err(status::NO_MORE_ENTRIES));
    assert_eq!(kernel.delete_key(key), Err(status::ACCESS_DENIED));
    assert!(kernel.delete_key(below).is_ok());
    kernel.close_handle(key);
    kernel.close_handle(below);
    assert!(kernel.rules.violations().is_empty());
}

#[test]
fn a_device_has_a_hardware_and_a_software_key() {
    let kernel = Kernel::collecting();
    let _in = kernel.enter();
    kernel.registry().set_device_key(0x1000, KEY);
    kernel.registry().set(&format!("{KEY}\\Driver"), "Mode", RegistryValue::dword(1));
    let key = kernel.open_device_key(0x1000, true);
    assert_eq!(kernel.query_value(key, "Mode").ok().and_then(|value| value.number()), Some(1));
    kernel.close_handle(key);
}
