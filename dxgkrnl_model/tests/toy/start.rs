//! Start, stop and questions.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use nt_model::Event;
use wddm_abi::ntstatus::{
    STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY, STATUS_NOT_SUPPORTED, STATUS_SUCCESS, STATUS_UNSUCCESSFUL,
};
use wddm_abi::{
    DRIVER_INITIALIZATION_DATA, DXGK_DEVICE_INFO, DXGK_ENGINE_TYPE, DXGK_FEATURE_ID, DXGK_FEATURE_INTERFACE,
    DXGK_NODEMETADATA, DXGK_SERVICES, DXGKARG_QUERYADAPTERINFO, DXGKARG_QUERYFEATURESUPPORT,
    DXGKARGCB_ALLOCATECONTIGUOUSMEMORY, DXGKARGCB_FREECONTIGUOUSMEMORY, DXGKDDI_FEATURE_INTERFACE, DXGKRNL_INTERFACE,
    GUID_DEVINTERFACE_I2C, GUID_DEVINTERFACE_OPM_3, GUID_WDDM_INTERFACE_FEATURE, HANDLE, LARGE_INTEGER,
    MEMORY_CACHING_TYPE, NTSTATUS, Plain, QUERY_INTERFACE, win_extern,
};

use super::{Toy, argument, array, callback, fresh, input, loading, number, owner, raw};

/// Bytes of local memory.
pub const LOCAL_BYTES: usize = 4 << 20;
/// Where the GPU has it.
pub const LOCAL_BASE: u64 = 0x8000_0000;
/// Where the GPU has the part of local memory that the CPU is not shown.
pub const HIDDEN_BASE: u64 = 0xC000_0000;
/// Bytes of that part.
pub const HIDDEN_BYTES: usize = 1 << 20;
/// Bytes of an edu function's registers that the driver maps.
const REGISTERS: u32 = 0x1000;

pub fn fill(table: &mut DRIVER_INITIALIZATION_DATA) {
    table.DxgkDdiAddDevice = Some(add_device);
    table.DxgkDdiStartDevice = Some(start_device);
    table.DxgkDdiStopDevice = Some(stop_device);
    table.DxgkDdiRemoveDevice = Some(remove_device);
    table.DxgkDdiUnload = Some(unload);
    table.DxgkDdiInterruptRoutine = Some(super::interrupt::interrupt_routine);
    table.DxgkDdiDpcRoutine = Some(super::interrupt::dpc_routine);
    table.DxgkDdiQueryChildRelations = Some(query_child_relations);
    table.DxgkDdiQueryInterface = Some(query_interface);
    table.DxgkDdiQueryAdapterInfo = Some(query_adapter_info);
    table.DxgkDdiGetNodeMetadata = Some(get_node_metadata);
    table.DxgkDdiSetPowerState = Some(set_power_state);
    table.DxgkDdiSetStablePowerState = Some(set_stable_power_state);
    table.DxgkDdiSetVirtualMachineData = Some(set_virtual_machine_data);
    table.DxgkDdiBeginExclusiveAccess = Some(begin_exclusive_access);
    table.DxgkDdiEndExclusiveAccess = Some(end_exclusive_access);
    table.DxgkDdiSetPowerComponentFState = Some(set_power_component);
    table.DxgkDdiNotifySurpriseRemoval = Some(surprise);
}

/// What a driver has whose adapter may be one of a link.
pub fn fill_linked(table: &mut DRIVER_INITIALIZATION_DATA) {
    table.DxgkDdiLinkDevice = Some(link_device);
}

win_extern! {
    fn link_device(
        _object: *mut wddm_abi::DEVICE_OBJECT,
        context: *mut core::ffi::c_void,
        device: *mut wddm_abi::LINKED_DEVICE,
    ) -> NTSTATUS {
        let Some(toy) = owner(context) else { return STATUS_INVALID_PARAMETER };
        toy.count("link");
        let device = argument(device);
        device.NumberOfLinksInChain = toy.options.engines as u32;
        device.LeadLink = 1;
        STATUS_SUCCESS
    }

    fn add_device(_object: *mut wddm_abi::DEVICE_OBJECT, context: *mut *mut core::ffi::c_void) -> NTSTATUS {
        let options = loading();
        if options.mutant == "add-context" {
            *argument(context) = core::ptr::null_mut();
            return STATUS_SUCCESS;
        }
        let handle = fresh();
        let toy = Arc::new(Toy {
            options,
            handle,
            interface: RwLock::new(None),
            registers: AtomicUsize::new(0),
            gone: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            local: AtomicUsize::new(0),
            local_handle: AtomicUsize::new(0),
            local_physical: AtomicU64::new(0),
            doorbell_pages: Mutex::new(Vec::new()),
            bar: Default::default(),
            state: Mutex::default(),
            wake: Event::synchronization(false),
            stop: AtomicBool::new(false),
            thread: Mutex::new(None),
            physical: super::gpu::Physical::default(),
            features: Mutex::new((false, false, false)),
            testing: AtomicBool::new(false),
            kept: AtomicUsize::new(0),
            clock: AtomicU64::new(1000),
            silent: AtomicBool::new(false),
            guarding: AtomicBool::new(false),
            last_logged: AtomicU64::new(0),
            errors: Mutex::default(),
            counts: Mutex::default(),
        });
        toy.adopt(handle);
        super::made(&toy);
        *argument(context) = raw(handle);
        STATUS_SUCCESS
    }

    fn start_device(
        context: *mut core::ffi::c_void,
        _info: *mut wddm_abi::DXGK_START_INFO,
        interface: *mut DXGKRNL_INTERFACE,
        sources: *mut u32,
        children: *mut u32,
    ) -> NTSTATUS {
        let Some(toy) = owner(context) else { return STATUS_INVALID_PARAMETER };
        if toy.is("start-status") {
            return STATUS_UNSUCCESSFUL;
        }
        // Only `Size` bytes are there.
        let given = input(interface.cast_const());
        let mut table = Box::new(DXGKRNL_INTERFACE::zeroed());
        let size = (given.Size as usize).min(size_of::<DXGKRNL_INTERFACE>());
        table.as_bytes_mut()[..size].copy_from_slice(&given.as_bytes()[..size]);
        if let Ok(mut interface) = toy.interface.write() {
            *interface = Some(table);
        }
        *argument(sources) = 0;
        *argument(children) = 0;
        let status = start(&toy);
        if !status.is_success() {
            undo(&toy);
        }
        status
    }

    fn stop_device(context: *mut core::ffi::c_void) -> NTSTATUS {
        let Some(toy) = owner(context) else { return STATUS_INVALID_PARAMETER };
        undo(&toy);
        if toy.is("stop-status") { STATUS_UNSUCCESSFUL } else { STATUS_SUCCESS }
    }

    fn remove_device(context: *mut core::ffi::c_void) -> NTSTATUS {
        if let Some(toy) = owner(context) {
            toy.disown_all();
        }
        STATUS_SUCCESS
    }

    fn unload() {}

    fn query_child_relations(
        context: *mut core::ffi::c_void,
        relations: *mut wddm_abi::DXGK_CHILD_DESCRIPTOR,
        _size: u32,
    ) -> NTSTATUS {
        if owner(context).is_some_and(|toy| toy.is("caps-children")) {
            argument(relations).ChildUid = 7;
        }
        STATUS_SUCCESS
    }

    fn query_interface(context: *mut core::ffi::c_void, query: *mut QUERY_INTERFACE) -> NTSTATUS {
        let Some(toy) = owner(context) else { return STATUS_INVALID_PARAMETER };
        let query = argument(query);
        let known = *input(query.InterfaceType) == GUID_WDDM_INTERFACE_FEATURE;
        if !known && toy.is("query-interface-written") {
            argument(query.Interface.cast::<u64>()).clone_from(&0);
        }
        let has_i2c = toy.options.has_i2c || toy.is("query-interface-display-overrun");
        if !known && has_i2c && *input(query.InterfaceType) == GUID_DEVINTERFACE_I2C {
            return i2c_interface(&toy, context, query);
        }
        if !known && toy.is("query-interface-display") && *input(query.InterfaceType) == GUID_DEVINTERFACE_OPM_3 {
            return STATUS_SUCCESS;
        }
        if !known {
            return if toy.is("query-interface") { STATUS_SUCCESS } else { STATUS_NOT_SUPPORTED };
        }
        if usize::from(query.Size) < size_of::<DXGKDDI_FEATURE_INTERFACE>() {
            return STATUS_NOT_SUPPORTED;
        }
        let interface = argument(query.Interface.cast::<DXGKDDI_FEATURE_INTERFACE>());
        *interface = DXGKDDI_FEATURE_INTERFACE::zeroed();
        interface.Size = size_of::<DXGKDDI_FEATURE_INTERFACE>() as u16;
        interface.Version = if toy.is("query-interface-version") { 2 } else { 1 };
        if toy.is("query-interface-overrun") {
            // SAFETY: none: this mutant writes behind what Size says, where the model has put a pattern.
            unsafe { query.Interface.cast::<u8>().wrapping_add(query.Size.into()).write(0) };
        }
        interface.Context = context;
        interface.InterfaceReference = Some(nothing);
        interface.InterfaceDereference = Some(nothing);
        interface.QueryFeatureSupport = Some(query_feature_support);
        interface.QueryFeatureInterface = Some(super::testing::query_feature_interface);
        STATUS_SUCCESS
    }

    fn nothing(_context: *mut core::ffi::c_void) {}

    /// An interface is let go that was filled before the start.
    fn let_go(context: *mut core::ffi::c_void) {
        if let Some(toy) = owner(context) {
            toy.count("display interface let go");
        }
    }

    fn query_feature_support(adapter: HANDLE, arguments: *mut DXGKARG_QUERYFEATURESUPPORT) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return STATUS_INVALID_PARAMETER };
        let arguments = argument(arguments);
        let claims = |option: bool| option || toy.is("feature-unused") || toy.options.mutant.starts_with("feature-");
        let known = match arguments.FeatureId {
            DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH | DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING => true,
            DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE => claims(toy.options.native_fences),
            DXGK_FEATURE_ID::DXGK_FEATURE_USER_MODE_SUBMISSION => claims(toy.options.user_mode),
            _ => false,
        };
        if toy.is("feature-input") {
            arguments.AllowExperimental = 1;
        }
        arguments.SupportedByDriver = known.into();
        arguments.SupportedOnCurrentConfig = known.into();
        (arguments.MinSupportedVersion, arguments.MaxSupportedVersion) = if known { (1, 1) } else { (0, 0) };
        if toy.is("support-left") {
            arguments.SupportedOnCurrentConfig = 0xB7;
        }
        if toy.is("feature-support") {
            (arguments.MinSupportedVersion, arguments.MaxSupportedVersion) = (2, 1);
        }
        STATUS_SUCCESS
    }

    fn query_adapter_info(adapter: HANDLE, arguments: *const DXGKARG_QUERYADAPTERINFO) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return STATUS_INVALID_PARAMETER };
        super::caps::answer(&toy, input(arguments))
    }

    fn get_node_metadata(adapter: HANDLE, ordinal: u32, metadata: *mut DXGK_NODEMETADATA) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return STATUS_INVALID_PARAMETER };
        // The upper half is the engine's ordinal.
        let (engine, ordinal) = (ordinal >> 16, ordinal & 0xFFFF);
        if ordinal > 1 || engine as usize >= toy.options.engines {
            return if toy.is("node-metadata") { STATUS_SUCCESS } else { STATUS_INVALID_PARAMETER };
        }
        let metadata = argument(metadata);
        let came = *metadata;
        *metadata = DXGK_NODEMETADATA::zeroed();
        metadata.EngineType = match (ordinal, toy.options.mutant) {
            (_, "node-3d") => DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_3D,
            (1, "caps-paging-node-kind") | (0, _) => DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_OTHER,
            _ => DXGK_ENGINE_TYPE::DXGK_ENGINE_TYPE_COPY,
        };
        let mut name = [0_u16; 32];
        for (slot, unit) in name.iter_mut().zip("toy".encode_utf16()) {
            *slot = unit;
        }
        if toy.is("node-name") {
            name = [u16::from(b'x'); 32];
        }
        metadata.FriendlyName = name;
        metadata.GpuMmuSupported = (!toy.options.io_mmu && !toy.options.physical).into();
        metadata.IoMmuSupported = toy.options.io_mmu.into();
        let (scheduling, user_mode, _) = *toy.features.lock().unwrap_or_else(|error| error.into_inner());
        let mut flags = metadata.Flags;
        flags.set_ContextSchedulingSupported(ordinal == 0 && (scheduling || toy.is("feature-hwsch")));
        flags.set_UserModeSubmission(ordinal == 0 && toy.options.user_mode && (user_mode || toy.is("feature-user-mode")));
        if toy.is("caps-user-mode") && ordinal == 1 {
            flags.set_UserModeSubmission(true);
        }
        flags.set_SupportBuildTestCommandBuffer(toy.builds_tests() || toy.is("feature-testing"));
        metadata.Flags = flags;
        if toy.is("node-name-left") {
            metadata.FriendlyName = came.FriendlyName;
        }
        if toy.is("node-metadata-left") {
            metadata.Flags = came.Flags;
        }
        STATUS_SUCCESS
    }

    fn set_power_state(
        context: *mut core::ffi::c_void,
        _uid: u32,
        state: wddm_abi::DEVICE_POWER_STATE,
        _action: wddm_abi::POWER_ACTION,
    ) -> NTSTATUS {
        let Some(toy) = owner(context) else { return STATUS_SUCCESS };
        toy.asleep.store(state.0 != 1, Ordering::SeqCst);
        if state.0 != 1 {
            toy.count("sleep");
            toy.lose_memory();
        }
        if state.0 == 1 {
            // Raises the interrupt of notices that came while the device was in D3.
            toy.interrupt();
        }
        if toy.is("power-state") { STATUS_UNSUCCESSFUL } else { STATUS_SUCCESS }
    }

    fn surprise(context: *mut core::ffi::c_void, _kind: wddm_abi::DXGK_SURPRISE_REMOVAL_TYPE) -> NTSTATUS {
        let Some(toy) = owner(context) else { return STATUS_INVALID_PARAMETER };
        toy.count("removal");
        toy.gone.store(true, Ordering::SeqCst);
        if toy.is("surprise-status") { STATUS_UNSUCCESSFUL } else { STATUS_SUCCESS }
    }

    fn set_stable_power_state(_adapter: HANDLE, _arguments: *const wddm_abi::DXGKARG_SETSTABLEPOWERSTATE) {}

    fn set_virtual_machine_data(
        _adapter: HANDLE,
        _arguments: *const wddm_abi::DXGKARG_SETVIRTUALMACHINEDATA,
    ) -> NTSTATUS {
        STATUS_SUCCESS
    }

    fn begin_exclusive_access(_adapter: HANDLE, _arguments: *mut wddm_abi::DXGKARG_BEGINEXCLUSIVEACCESS) -> NTSTATUS {
        STATUS_SUCCESS
    }

    fn end_exclusive_access(_adapter: HANDLE, _arguments: *mut wddm_abi::DXGKARG_ENDEXCLUSIVEACCESS) -> NTSTATUS {
        STATUS_SUCCESS
    }

    fn set_power_component(adapter: HANDLE, component: u32, _state: u32) -> NTSTATUS {
        let Some(toy) = owner(adapter) else { return STATUS_INVALID_PARAMETER };
        toy.count("f-state");
        if toy.is("power-fstate") {
            return STATUS_UNSUCCESSFUL;
        }
        let _ = callback!(toy, DxgkCbCompleteFStateTransition(toy.device_handle(), component));
        if toy.is("power-fstate-again") {
            let _ = callback!(toy, DxgkCbCompleteFStateTransition(toy.device_handle(), component));
        }
        STATUS_SUCCESS
    }
}

fn start(toy: &Arc<Toy>) -> NTSTATUS {
    let mut interface = DXGK_FEATURE_INTERFACE::zeroed();
    interface.Size = size_of::<DXGK_FEATURE_INTERFACE>() as u16;
    interface.Version = 1;
    let pointer = (&raw mut interface).cast();
    let services =
        callback!(toy, DxgkCbQueryServices(toy.device_handle(), DXGK_SERVICES::DxgkServicesFeature, pointer));
    if services.is_some_and(NTSTATUS::is_success) {
        if toy.is("feature-interface-first") {
            super::features::fence_interface(toy, &interface, true);
        }
        let on = |feature| super::features::is_enabled(toy, &interface, feature);
        let features = (
            on(DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH),
            on(DXGK_FEATURE_ID::DXGK_FEATURE_USER_MODE_SUBMISSION),
            on(DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE),
        );
        *toy.features.lock().unwrap_or_else(|error| error.into_inner()) = features;
        toy.testing.store(on(DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING), Ordering::SeqCst);
        if !super::features::fence_interface(toy, &interface, features.2) && features.2 && toy.options.mutant.is_empty()
        {
            return STATUS_UNSUCCESSFUL;
        }
        if toy.is("leak-interface")
            && let Some(function) = interface.InterfaceReference
        {
            // SAFETY: Dxgkrnl's function with its own context.
            unsafe { function(interface.Context) };
        }
    }
    let mut info = DXGK_DEVICE_INFO::zeroed();
    let status = callback!(toy, DxgkCbGetDeviceInformation(toy.device_handle(), &raw mut info));
    if !status.is_some_and(NTSTATUS::is_success) {
        return STATUS_UNSUCCESSFUL;
    }
    if !info.TranslatedResourceList.is_null() {
        let list = input(info.TranslatedResourceList.cast_const());
        let memory = list.List[0].PartialResourceList.PartialDescriptors[0];
        let base = u64::from(memory.u[0]) | u64::from(memory.u[1]) << 32;
        let status = map_registers(toy, base);
        if !status.is_success() {
            return status;
        }
        if toy.options.doorbells_in_bar && !map_bar(toy, list) {
            return STATUS_UNSUCCESSFUL;
        }
    }
    mutants(toy);
    let status = allocate_local(toy);
    if !status.is_success() {
        return status;
    }
    toy.stop.store(false, Ordering::Release);
    let gpu = toy.clone();
    nt_model::Machine::with_current(|machine| {
        let Some(machine) = machine else { return };
        let thread = machine.spawn_system_thread("toy GPU", move || super::gpu::run(&gpu));
        *toy.thread.lock().unwrap_or_else(|error| error.into_inner()) = Some(thread);
    });
    STATUS_SUCCESS
}

fn map_registers(toy: &Toy, base: u64) -> NTSTATUS {
    let mut address = LARGE_INTEGER::zeroed();
    let wrong = if toy.is("cb-map-range") { 1 << 30 } else { 0 };
    address.QuadPart = (base + wrong).cast_signed();
    let mut mapped = core::ptr::null_mut();
    let cache = MEMORY_CACHING_TYPE(0);
    let handle = toy.device_handle();
    let status = callback!(toy, DxgkCbMapMemory(handle, address, REGISTERS, 0, 0, cache, &raw mut mapped));
    let status = status.unwrap_or(STATUS_UNSUCCESSFUL);
    if toy.is("cb-map-range") {
        address.QuadPart = base.cast_signed();
        let _ = callback!(toy, DxgkCbMapMemory(handle, address, REGISTERS, 0, 0, cache, &raw mut mapped));
        toy.registers.store(mapped.expose_provenance(), Ordering::Release);
        return STATUS_SUCCESS;
    }
    toy.registers.store(mapped.expose_provenance(), Ordering::Release);
    status
}

/// Bytes that all doorbells have in the device's memory, each with its secondary part.
pub fn bar_bytes(options: &super::Options) -> usize {
    options.doorbells * options.pages_of_a_doorbell() * 4096
}

/// Maps the memory behind the second BAR, which the list of resources has behind the first. Returns whether it could.
fn map_bar(toy: &Toy, list: &wddm_abi::CM_RESOURCE_LIST) -> bool {
    let partial = &list.List[0].PartialResourceList;
    if partial.Count < 2 {
        return false;
    }
    let memory = array(partial.PartialDescriptors.as_ptr(), 2)[1];
    let base = u64::from(memory.u[0]) | u64::from(memory.u[1]) << 32;
    let mut address = LARGE_INTEGER::zeroed();
    address.QuadPart = base.cast_signed();
    let mut mapped = core::ptr::null_mut();
    // CAST: a few pages.
    let bytes = bar_bytes(&toy.options) as u32;
    let cache = MEMORY_CACHING_TYPE(2);
    let status = callback!(toy, DxgkCbMapMemory(toy.device_handle(), address, bytes, 0, 0, cache, &raw mut mapped));
    toy.bar.0.store(base, Ordering::Release);
    toy.bar.1.store(mapped.expose_provenance(), Ordering::Release);
    status.is_some_and(NTSTATUS::is_success)
}

/// Contiguous memory from the OS: handle and address.
pub fn contiguous(toy: &Toy, bytes: usize) -> Option<(usize, usize)> {
    let mut arguments = DXGKARGCB_ALLOCATECONTIGUOUSMEMORY::zeroed();
    arguments.NumberOfBytes = bytes;
    arguments.HighestAcceptableAddress.QuadPart = i64::MAX;
    arguments.CacheType.0 = 1;
    let status = callback!(toy, DxgkCbAllocateContiguousMemory(toy.device_handle(), &raw mut arguments))?;
    status.is_success().then(|| (number(arguments.hMemoryHandle), arguments.pMemory.expose_provenance()))
}

/// Gives it back.
pub fn free_contiguous(toy: &Toy, handle: usize) {
    let mut arguments = DXGKARGCB_FREECONTIGUOUSMEMORY::zeroed();
    arguments.hMemoryHandle = raw(handle);
    let _ = callback!(toy, DxgkCbFreeContiguousMemory(toy.device_handle(), &raw const arguments));
}

fn allocate_local(toy: &Toy) -> NTSTATUS {
    let Some((handle, address)) = contiguous(toy, LOCAL_BYTES + HIDDEN_BYTES) else { return STATUS_NO_MEMORY };
    toy.local_handle.store(handle, Ordering::Release);
    toy.local.store(address, Ordering::Release);
    let physical =
        nt_model::Machine::with_current(|machine| machine.map_or(0, |machine| machine.physical_address(address)));
    toy.local_physical.store(physical, Ordering::Release);
    STATUS_SUCCESS
}

/// What some mutants do while they are started.
fn mutants(toy: &Toy) {
    match toy.options.mutant {
        "cb-handle" => {
            let _ = callback!(toy, DxgkCbQueueDpc(raw(0x1234)));
        }
        "cb-pointer" => {
            let mut returned = 0;
            let handle = toy.device_handle();
            let _ = callback!(toy, DxgkCbSynchronizeExecution(handle, None, raw(0), 0, &raw mut returned));
        }
        "cb-unmap" => {
            let _ = callback!(toy, DxgkCbUnmapMemory(toy.device_handle(), raw(0x1000)));
        }
        "cb-free" => free_contiguous(toy, 0x1234),
        "cb-free-object" => {
            let mut arguments = wddm_abi::DXGKARGCB_DESTROY_PHYSICAL_MEMORY_OBJECT::zeroed();
            arguments.hPhysicalMemoryObject = raw(0x1234);
            let _ = callback!(toy, DxgkCbDestroyPhysicalMemoryObject(&raw const arguments));
        }
        "cb-object" => {
            let _ = callback!(toy, DxgkCbSetPowerComponentLatency(toy.device_handle(), 99, 1));
        }
        "cb-object-released" => {
            let _ = callback!(toy, DxgkCbReleaseHandleData(wddm_abi::DXGKARGCB_RELEASEHANDLEDATA::zeroed()));
        }
        "cb-object-process" => {
            let mut arguments = wddm_abi::DXGKARGCB_RESERVEGPUVIRTUALADDRESSRANGE::zeroed();
            arguments.hDxgkProcess = raw(0x1234);
            let pointer = &raw mut arguments;
            let _ = callback!(toy, DxgkCbReserveGpuVirtualAddressRange(toy.device_handle(), pointer));
        }
        _ => (),
    }
}

fn undo(toy: &Arc<Toy>) {
    toy.stop.store(true, Ordering::Release);
    toy.poke();
    let thread = toy.thread.lock().unwrap_or_else(|error| error.into_inner()).take();
    if let Some(thread) = thread {
        nt_model::Machine::with_current(|machine| {
            if let Some(machine) = machine {
                machine.wait_for_object(thread.header(), None);
            }
        });
    }
    toy.physical.clear();
    let pages = std::mem::take(&mut *toy.doorbell_pages.lock().unwrap_or_else(|error| error.into_inner()));
    for (handle, _) in pages.into_iter().filter(|(handle, _)| *handle != 0) {
        free_contiguous(toy, handle);
    }
    let bar = toy.bar.1.swap(0, Ordering::AcqRel);
    if bar != 0 {
        let _ = callback!(toy, DxgkCbUnmapMemory(toy.device_handle(), raw(bar)));
    }
    let local = toy.local_handle.swap(0, Ordering::AcqRel);
    if local != 0 && !toy.is("leak-memory") {
        free_contiguous(toy, local);
    }
    let registers = toy.registers.swap(0, Ordering::AcqRel);
    if registers != 0 && toy.is("surprise-touch") {
        let acknowledge: *mut u32 = core::ptr::with_exposed_provenance_mut(registers + 0x64);
        // SAFETY: a register of the mapped BAR.
        unsafe { acknowledge.write_volatile(u32::MAX) };
    }
    if registers != 0 && toy.is("stop-line") {
        let raise: *mut u32 = core::ptr::with_exposed_provenance_mut(registers + 0x60);
        // SAFETY: a register of the mapped BAR.
        unsafe { raise.write_volatile(1) };
    }
    if registers != 0 && !toy.is("leak-mapping") {
        let _ = callback!(toy, DxgkCbUnmapMemory(toy.device_handle(), raw(registers)));
    }
    *toy.state() = super::State::default();
}

/// Fills DXGK_I2C_INTERFACE, which has the members of the feature interface in front and two functions, too. Those are
/// never called.
fn i2c_interface(toy: &Toy, context: *mut core::ffi::c_void, query: &QUERY_INTERFACE) -> NTSTATUS {
    assert_eq!(usize::from(query.Size), size_of::<DXGKDDI_FEATURE_INTERFACE>(), "the size of DXGK_I2C_INTERFACE");
    let interface = argument(query.Interface.cast::<DXGKDDI_FEATURE_INTERFACE>());
    *interface = DXGKDDI_FEATURE_INTERFACE::zeroed();
    (interface.Size, interface.Version, interface.Context) = (query.Size, query.Version, context);
    interface.InterfaceReference = Some(nothing);
    interface.InterfaceDereference = Some(let_go);
    if toy.is("query-interface-display-overrun") {
        // SAFETY: none: this mutant writes behind what Size says, where the model has put a pattern.
        unsafe { query.Interface.cast::<u8>().wrapping_add(query.Size.into()).write(0) };
    }
    STATUS_SUCCESS
}
