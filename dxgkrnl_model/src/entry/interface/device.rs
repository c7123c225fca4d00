//! Callbacks about the device: what it is, its registers, its configuration space, the interfaces of the system.

use nt_model::{CacheType, In, Out, shims};
use wddm_abi::{DXGK_DEVICE_INFO, DXGK_FEATURE_INTERFACE, NTSTATUS, Plain, ntstatus};

use crate::entry::interface::memory::DriverMemory;
use crate::port::callback::{callback, routines, store_record};
use crate::port::handle::raw;
use crate::port::rules::interface::{CB_MAP_RANGE, CB_UNMAP};

routines! {
    GET_DEVICE_INFORMATION = "DxgkCbGetDeviceInformation"("DeviceHandle", "DeviceInfo") 0..=0;
    MAP_MEMORY = "DxgkCbMapMemory"("DeviceHandle", "TranslatedAddress", "Length", "InIoSpace", "MapToUserMode", "CacheType") 0..=0;
    UNMAP_MEMORY = "DxgkCbUnmapMemory"("DeviceHandle", "VirtualAddress") 0..=0;
    READ_DEVICE_SPACE = "DxgkCbReadDeviceSpace"("DeviceHandle", "DataType", "Buffer", "Offset", "Length") 0..=0;
    WRITE_DEVICE_SPACE = "DxgkCbWriteDeviceSpace"("DeviceHandle", "DataType", "Buffer", "Offset", "Length") 0..=0;
    QUERY_SERVICES = "DxgkCbQueryServices"("DeviceHandle", "ServicesType", "Interface") 0..=0;
    ACQUIRE_POST = "DxgkCbAcquirePostDisplayOwnership"("DeviceHandle", "DisplayInfo") 0..=1;
    ACQUIRE_POST2 = "DxgkCbAcquirePostDisplayOwnership2"("DeviceHandle", "DisplayInfo", "Flags") 0..=0;
}

/// `DXGK_WHICHSPACE_CONFIG`, which is PCI_WHICHSPACE_CONFIG.
const SPACE_CONFIG: u32 = 0;
/// `DxgkServicesFeature`.
const SERVICES_FEATURE: i32 = 7;

shims! {
    /// Device callbacks.
    pub(crate) table CALLBACKS;

    fn DxgkCbGetDeviceInformation(_machine, adapter: usize, info: In<[u8; size_of::<DXGK_DEVICE_INFO>()]>) -> NTSTATUS {
        let arguments = [adapter as u64, info.address() as u64];
        let status = callback(raw(adapter as u64), &GET_DEVICE_INFORMATION, arguments, |adapter| {
            // Probes the pointer before it is written.
            let _ = info.get();
            store_record(info, &crate::entry::interface::memory::device_info(adapter));
            ntstatus::STATUS_SUCCESS
        });
        status.unwrap_or_else(|status| status)
    }

    fn DxgkCbMapMemory(
        _machine,
        adapter: usize,
        address: u64,
        length: u32,
        in_io_space: u8,
        to_user_mode: u8,
        cache: i32,
        mapped: Out<usize>,
    ) -> NTSTATUS {
        let arguments = [adapter as u64, address, length.into(), in_io_space.into(), to_user_mode.into(), cache as u64];
        let status = callback(raw(adapter as u64), &MAP_MEMORY, arguments, |adapter| {
            let bytes = u64::from(length);
            let owned = adapter.rules().check(&CB_MAP_RANGE, adapter.device.owns(address, bytes), || {
                format!("{address:#x} and {length:#x} bytes are not in the resource list")
            });
            if !owned || in_io_space != 0 {
                return ntstatus::STATUS_INVALID_PARAMETER;
            }
            if to_user_mode != 0 {
                return ntstatus::STATUS_NOT_SUPPORTED;
            }
            let cache = u32::try_from(cache).ok().and_then(CacheType::from_raw).unwrap_or(CacheType::NonCached);
            let Some(at) = adapter.kernel().map_io_space(address, length as usize, cache) else {
                return ntstatus::STATUS_INSUFFICIENT_RESOURCES;
            };
            DriverMemory::of(adapter).add_register_mapping(at, length as usize);
            mapped.set(at);
            ntstatus::STATUS_SUCCESS
        });
        status.unwrap_or_else(|status| status)
    }

    fn DxgkCbUnmapMemory(_machine, adapter: usize, address: usize) -> NTSTATUS {
        let status = callback(raw(adapter as u64), &UNMAP_MEMORY, [adapter as u64, address as u64], |adapter| {
            let length = DriverMemory::of(adapter).take_register_mapping(address);
            adapter.rules().check(&CB_UNMAP, length.is_some(), || format!("{address:#x} is not mapped"));
            let Some(length) = length else { return ntstatus::STATUS_INVALID_PARAMETER };
            adapter.kernel().unmap_io_space(address, length);
            ntstatus::STATUS_SUCCESS
        });
        status.unwrap_or_else(|status| status)
    }

    fn DxgkCbReadDeviceSpace(
        _machine,
        adapter: usize,
        space: u32,
        buffer: Out<u8>,
        offset: u32,
        length: u32,
        read: Out<u32>,
    ) -> NTSTATUS {
        let arguments = [adapter as u64, space.into(), buffer.address() as u64, offset.into(), length.into()];
        let status = callback(raw(adapter as u64), &READ_DEVICE_SPACE, arguments, |adapter| {
            read.set_opt(0);
            if space != SPACE_CONFIG || buffer.is_null() {
                return ntstatus::STATUS_INVALID_PARAMETER;
            }
            let length = length.min(0x1000);
            let bytes: Vec<_> = (offset..offset.saturating_add(length)).map_while(|at| adapter.device.config_byte(at)).collect();
            if bytes.is_empty() && length != 0 {
                return ntstatus::STATUS_UNSUCCESSFUL;
            }
            crate::port::raw::copy_to(buffer.address(), &bytes);
            // CAST: at most a page.
            read.set_opt(bytes.len() as u32);
            ntstatus::STATUS_SUCCESS
        });
        status.unwrap_or_else(|status| status)
    }

    fn DxgkCbWriteDeviceSpace(
        _machine,
        adapter: usize,
        space: u32,
        buffer: In<u8>,
        offset: u32,
        length: u32,
        written: Out<u32>,
    ) -> NTSTATUS {
        let arguments = [adapter as u64, space.into(), buffer.address() as u64, offset.into(), length.into()];
        let status = callback(raw(adapter as u64), &WRITE_DEVICE_SPACE, arguments, |adapter| {
            // Configuration space is there to be read; stores to it change nothing that the model looks at.
            let there = space == SPACE_CONFIG && adapter.device.config_byte(offset).is_some() && !buffer.is_null();
            written.set_opt(if there { length } else { 0 });
            if there { ntstatus::STATUS_SUCCESS } else { ntstatus::STATUS_INVALID_PARAMETER }
        });
        status.unwrap_or_else(|status| status)
    }

    fn DxgkCbQueryServices(_machine, adapter: usize, services: i32, interface: In<[u8; 4]>) -> NTSTATUS {
        let arguments = [adapter as u64, services as u64, interface.address() as u64];
        let status = callback(raw(adapter as u64), &QUERY_SERVICES, arguments, |adapter| {
            let [size, version] = [[0, 1], [2, 3]].map(|at| u16::from_le_bytes(at.map(|at: usize| interface.get()[at])));
            let room = usize::from(size) >= size_of::<DXGK_FEATURE_INTERFACE>();
            if services != SERVICES_FEATURE || version != 1 || !room {
                return ntstatus::STATUS_NOT_SUPPORTED;
            }
            let table = super::feature::interface(adapter);
            crate::port::raw::copy_to(interface.address(), table.as_bytes());
            ntstatus::STATUS_SUCCESS
        });
        status.unwrap_or_else(|status| status)
    }

    fn DxgkCbAcquirePostDisplayOwnership(_machine, adapter: usize, information: usize) -> NTSTATUS {
        // No display was lit by firmware: the page has the driver initialize its own.
        let arguments = [adapter as u64, information as u64];
        let status = callback(raw(adapter as u64), &ACQUIRE_POST, arguments, |_| ntstatus::STATUS_UNSUCCESSFUL);
        status.unwrap_or_else(|status| status)
    }

    fn DxgkCbAcquirePostDisplayOwnership2(_machine, adapter: usize, information: usize, flags: usize) -> NTSTATUS {
        let arguments = [adapter as u64, information as u64, flags as u64];
        let status = callback(raw(adapter as u64), &ACQUIRE_POST2, arguments, |_| ntstatus::STATUS_UNSUCCESSFUL);
        status.unwrap_or_else(|status| status)
    }
}
