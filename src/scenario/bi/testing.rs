//! BI-20: command buffers of kernel-mode tests, as Microsoft's tests ask for them and as a hostile process changes
//! them.

use crate::scenario::db::{Memory, Room, raw};
use crate::scenario::{Denied, NativeFence, Played, Raw, Scenario, Scene, Setup, Stage, same};
use anyhow::{Context, Result, ensure};
use dxgkrnl_model::personality::{Build, Personality};
use gpu_wire::NODE_COUNT;
use wddm_abi::ntstatus::{
    STATUS_BUFFER_OVERFLOW, STATUS_DEVICE_REMOVED, STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED, STATUS_SUCCESS,
};
use wddm_abi::{
    D3DDDI_ALLOCATIONINFO2, D3DDDI_BUILDTESTCOMMANDBUFFERFLAGS, D3DDDI_CREATECONTEXTFLAGS,
    D3DDDI_DRIVERESCAPE_BUILDTESTCOMMANDBUFFER, D3DDDI_DRIVERESCAPETYPE, D3DDDI_TESTCOMMANDBUFFER,
    D3DDDI_TESTCOMMANDBUFFEROP as Operation, D3DKMT_CREATEALLOCATION, D3DKMT_CREATECONTEXTVIRTUAL,
    D3DKMT_CREATEHWQUEUE, D3DKMT_CREATESTANDARDALLOCATION, D3DKMT_ESCAPE, D3DKMT_ESCAPETYPE, D3DKMT_EVICT,
    D3DKMT_HANDLE, D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU, D3DKMT_STANDARDALLOCATIONTYPE, D3DKMT_SUBMITCOMMAND,
    D3DKMT_SUBMITCOMMANDTOHWQUEUE, DXGK_FEATURE_ID, NTSTATUS,
};

/// The feature.
const TESTING: DXGK_FEATURE_ID = DXGK_FEATURE_ID::DXGK_FEATURE_KERNEL_MODE_TESTING;
/// Most bytes of a buffer, and of its private data. Source: *Kernel mode testing of WDDM features*.
const MOST: (u32, u32) = (4096, 1024);
/// Bytes of the memory that commands work on.
const BYTES: u32 = 0x1_0000;

pub(super) const CASES: &[Scenario] = &[Scenario {
    id: "BI-20",
    title: "command buffers for kernel-mode tests: both commands on each node, bad sizes and commands, changed buffers; \
        only under test signing",
    source: "Kernel mode testing of WDDM features; DXGKDDI_BUILDTESTCOMMANDBUFFER",
    play: buffers,
}];

fn buffers(stage: &Stage) -> Played {
    type Change = fn(&mut Personality);
    stage.play(Setup::default(), commands).context("commands")?;
    stage.play(Setup::default(), refusals).context("refusals")?;
    stage.play(Setup::default(), hostile).context("changed buffers")?;
    // Not where the machine runs no such code, where the driver cannot tell, where the OS does not want it, and where
    // the setting forbids it: the driver's answer, and the OS's.
    let off: [(&str, Change, bool); 3] = [
        ("without test signing", |w| w.test_signing = false, false),
        ("test signing is not told", |w| w.faults.signing_untold = true, false),
        ("the OS has it off", |w| *w = w.clone().with_feature(TESTING, false), true),
    ];
    for (what, windows, by_driver) in off {
        stage.play(Setup::default().windows(windows), |scene| absent(scene, by_driver)).context(what)?;
    }
    let setup = Setup::default().setting("KernelModeTesting", 0);
    stage.play(setup, |scene| absent(scene, false)).context("KernelModeTesting 0")
}

/// The escape, with what that of the 28000 line has behind it: value and address of a progress fence.
#[repr(C)]
struct Escape {
    wanted: D3DDDI_DRIVERESCAPE_BUILDTESTCOMMANDBUFFER,
    newer: [u64; 2],
}

/// A context or queue that buffers are built for and given to.
#[derive(Clone, Copy, Debug)]
struct Target {
    node: u32,
    handle: D3DKMT_HANDLE,
    /// Of a hardware queue.
    progress: Option<NativeFence>,
}

/// A process with a device, and what a test has.
struct Bench<'a> {
    scene: &'a Scene,
    raw: &'a Raw,
    room: Room<'a>,
    /// Buffers.
    commands: Memory,
    /// What the processor sees.
    seen: Memory,
    /// Where the GPU has memory that the driver knows nothing of, and its handle.
    hidden: (u64, D3DKMT_HANDLE),
    targets: Vec<Target>,
    /// Counts submissions on packet contexts.
    fence: NativeFence,
}

fn copy(source: u64, target: u64, bytes: u32) -> D3DDDI_TESTCOMMANDBUFFER {
    let mut command = D3DDDI_TESTCOMMANDBUFFER::zeroed();
    command.Operation = Operation::D3DDDI_TESTCOMMANDBUFFEROP_COPY;
    let copy = command.Copy_mut();
    (copy.SrcAddress, copy.DstAddress, copy.NumBytes) = (source, target, bytes);
    command
}

fn fill(target: u64, bytes: u32, pattern: u32) -> D3DDDI_TESTCOMMANDBUFFER {
    let mut command = D3DDDI_TESTCOMMANDBUFFER::zeroed();
    command.Operation = Operation::D3DDDI_TESTCOMMANDBUFFEROP_FILL;
    let fill = command.Fill_mut();
    (fill.DstAddress, fill.NumBytes, fill.Pattern) = (target, bytes, pattern);
    command
}

/// Makes a context for tests, without private data.
fn context(room: &Room<'_>, node: u32, queues: bool) -> Result<D3DKMT_HANDLE, Denied> {
    let mut record = D3DKMT_CREATECONTEXTVIRTUAL::zeroed();
    (record.hDevice, record.NodeOrdinal, record.EngineAffinity) = (room.device, node, 1);
    record.Flags = D3DDDI_CREATECONTEXTFLAGS::zeroed().with_TestContext(true).with_HwQueueSupported(queues);
    room.raw.ok(room.raw.thunks.D3DKMTCreateContextVirtual, &mut record)?;
    Ok(record.hContext)
}

/// Makes a queue for tests, without private data.
fn queue(room: &Room<'_>, context: D3DKMT_HANDLE, user_mode: bool) -> Result<D3DKMT_CREATEHWQUEUE, Denied> {
    let mut record = D3DKMT_CREATEHWQUEUE::zeroed();
    record.hHwContext = context;
    record.Flags.set_TestQueue(true);
    record.Flags.set_UserModeSubmission(user_mode);
    room.raw.ok(room.raw.thunks.D3DKMTCreateHwQueue, &mut record)?;
    Ok(record)
}

/// Makes memory that the driver is not told of; its handle.
fn standard(room: &Room<'_>, bytes: u32) -> Result<D3DKMT_HANDLE, Denied> {
    let mut kind = D3DKMT_CREATESTANDARDALLOCATION::zeroed();
    kind.Type = D3DKMT_STANDARDALLOCATIONTYPE::D3DKMT_STANDARDALLOCATIONTYPE_INTERNALBACKINGSTORE;
    kind.ExistingHeapData_mut().Size = bytes as _;
    let mut info = D3DDDI_ALLOCATIONINFO2::zeroed();
    let mut record = D3DKMT_CREATEALLOCATION::zeroed();
    (record.hDevice, record.NumAllocations) = (room.device, 1);
    record.Flags.set_StandardAllocation(true);
    record.set_pStandardAllocation(&raw mut kind);
    record.set_pAllocationInfo2(&raw mut info);
    room.raw.ok(room.raw.thunks.D3DKMTCreateAllocation2, &mut record)?;
    Ok(info.hAllocation)
}

/// Asks for a buffer in so much room, NULL for 0: the status, the bytes, and both sizes.
fn build_in(
    scene: &Scene,
    room: &Room<'_>,
    (handle, is_queue): (D3DKMT_HANDLE, bool),
    command: &D3DDDI_TESTCOMMANDBUFFER,
    (size, private_size): (u32, u32),
) -> (NTSTATUS, Vec<u8>, (u32, u32)) {
    let mut escape = Escape { wanted: D3DDDI_DRIVERESCAPE_BUILDTESTCOMMANDBUFFER::zeroed(), newer: [0; 2] };
    let (mut buffer, mut private) = (vec![0xA5_u8; size as usize], vec![0xA5_u8; private_size as usize]);
    let wanted = &mut escape.wanted;
    wanted.EscapeType = D3DDDI_DRIVERESCAPETYPE::D3DDDI_DRIVERESCAPETYPE_BUILDTESTCOMMANDBUFFER;
    (wanted.hDevice, wanted.hContext, wanted.Command) = (room.device, handle, *command);
    wanted.Flags = D3DDDI_BUILDTESTCOMMANDBUFFERFLAGS::zeroed().with_HardwareQueue(is_queue);
    (wanted.DmaBufferSize, wanted.DmaBufferPrivateDataSize) = (size, private_size);
    if size != 0 {
        wanted.pDmaBuffer = buffer.as_mut_ptr().cast();
    }
    if private_size != 0 {
        wanted.pDmaBufferPrivateData = private.as_mut_ptr().cast();
    }
    let mut record = D3DKMT_ESCAPE::zeroed();
    record.hAdapter = room.raw.adapter;
    record.Type = D3DKMT_ESCAPETYPE::D3DKMT_ESCAPE_DRIVERPRIVATE;
    record.Flags.set_DriverKnownEscape(true);
    let is_newer = scene.world.os.personality().build == Build::W28000;
    let bytes = if is_newer { size_of::<Escape>() } else { size_of_val(&escape.wanted) };
    // CAST: 112 or 128.
    record.PrivateDriverDataSize = bytes as u32;
    record.pPrivateDriverData = (&raw mut escape).cast();
    let status = room.raw.call(room.raw.thunks.D3DKMTEscape, &mut record);
    debug_assert_eq!(escape.newer, [0; 2]);
    (status, buffer, (escape.wanted.DmaBufferSize, escape.wanted.DmaBufferPrivateDataSize))
}

impl<'a> Bench<'a> {
    fn new(scene: &'a Scene, raw: &'a Raw) -> Result<Self> {
        let room = Room::new(raw)?;
        let caps = scene.adapter().caps().context("caps")?;
        let mut targets = Vec::new();
        for (node, info) in (0..NODE_COUNT as u32).zip(&caps.nodes) {
            ensure!(info.builds_tests(), "node {node} builds no tests");
            let queues = info.is_hardware_scheduled();
            let context = context(&room, node, queues).context("a context for tests")?;
            let (handle, progress) = match queues {
                true => {
                    let made = queue(&room, context, false).context("a queue for tests")?;
                    let progress = crate::scenario::db::HardwareQueue::of(context, &made).progress;
                    (made.hHwQueue, Some(progress))
                }
                false => (context, None),
            };
            targets.push(Target { node, handle, progress });
        }
        same("nodes", targets.len(), NODE_COUNT)?;
        let hidden = standard(&room, BYTES).context("a standard allocation")?;
        room.make_resident(scene, hidden)?;
        let hidden = (room.map(scene, hidden, 0)?, hidden);
        let (commands, seen) = (room.memory(scene, 0x1000)?, room.memory(scene, BYTES.into())?);
        let fence = raw.monitored_fence(room.device, 0, false).context("a fence")?;
        Ok(Self { scene, raw, room, commands, seen, hidden, targets, fence })
    }

    /// Asks for a command, first for its sizes, then in buffers of just these.
    fn build(&self, target: &Target, command: &D3DDDI_TESTCOMMANDBUFFER) -> Result<Vec<u8>> {
        let whose = (target.handle, target.progress.is_some());
        let build = |room| build_in(self.scene, &self.room, whose, command, room);
        let (status, _, needed) = build((0, 0));
        same("the status without buffers", status, STATUS_BUFFER_OVERFLOW)?;
        ensure!(needed.0 != 0 && needed.0 <= MOST.0 && needed.1 <= MOST.1, "{needed:?} bytes are needed");
        let (status, bytes, again) = build((needed.0 - 1, needed.1));
        same("one byte too few", (status, again), (STATUS_BUFFER_OVERFLOW, needed))?;
        ensure!(bytes.iter().all(|byte| *byte == 0xA5), "a buffer that was too small was written");
        // More room than a test may have, of either kind.
        for room in [(MOST.0 + 1, needed.1), (needed.0, MOST.1 + 1)] {
            same("too large a buffer", build(room).0, STATUS_INVALID_PARAMETER)?;
        }
        let (status, most, written) = build(MOST);
        same("the largest buffers", (status, written), (STATUS_SUCCESS, needed))?;
        let (status, bytes, written) = build(needed);
        same("buffers of the sizes that are needed", (status, written), (STATUS_SUCCESS, needed))?;
        ensure!(most[..bytes.len()] == bytes, "the same command, another buffer");
        Ok(bytes)
    }

    /// Gives bytes to a target, as those of a command buffer, with a progress value or a packet's number.
    fn submit(&self, target: &Target, bytes: &[u8], number: u64) -> Played {
        self.commands.write(self.raw, number % 64 * 64, bytes)?;
        let address = self.commands.gpu + number % 64 * 64;
        // CAST: some bytes.
        let length = bytes.len() as u32;
        if target.progress.is_some() {
            let mut record = D3DKMT_SUBMITCOMMANDTOHWQUEUE::zeroed();
            (record.hHwQueue, record.HwQueueProgressFenceId) = (target.handle, number);
            (record.CommandBuffer, record.CommandLength) = (address, length);
            self.raw.ok(self.raw.thunks.D3DKMTSubmitCommandToHwQueue, &mut record)?;
            return Ok(());
        }
        let mut record = D3DKMT_SUBMITCOMMAND::zeroed();
        (record.Commands, record.CommandLength) = (address, length);
        (record.BroadcastContextCount, record.BroadcastContext[0]) = (1, target.handle);
        self.raw.ok(self.raw.thunks.D3DKMTSubmitCommand, &mut record)?;
        let mut record = D3DKMT_SIGNALSYNCHRONIZATIONOBJECTFROMGPU::zeroed();
        (record.hContext, record.ObjectCount, record.ObjectHandleArray) =
            (target.handle, 1, &raw const self.fence.handle);
        record.set_MonitoredFenceValueArray(&raw const number);
        Ok(self.raw.ok(self.raw.thunks.D3DKMTSignalSynchronizationObjectFromGpu, &mut record)?)
    }

    /// [`submit`](Self::submit), and waits for the end.
    fn run(&self, target: &Target, bytes: &[u8], number: u64) -> Played {
        self.submit(target, bytes, number).context("submission")?;
        let fence = target.progress.unwrap_or(self.fence);
        self.scene.until("the buffer's end", || Ok(self.raw.load(fence.cpu)? >= number))
    }

    /// A 64-bit word of what the processor sees, by its offset.
    fn word(&self, offset: u64) -> Result<u64> {
        // CAST: below the size.
        Ok(self.raw.load(self.seen.cpu + offset as usize)?)
    }
}

fn commands(scene: &Scene) -> Played {
    let raw = raw(scene)?;
    let bench = Bench::new(scene, &raw)?;
    let mut number = 0;
    let mut next = || {
        number += 1;
        number
    };
    for target in &bench.targets {
        let what = format!("node {}", target.node);
        let pattern = 0x1111_0000 + target.node;
        let word = u64::from(pattern) << 32 | u64::from(pattern);
        let filled = bench.build(target, &fill(bench.hidden.0, BYTES, pattern)).context(what.clone())?;
        let copied = bench.build(target, &copy(bench.hidden.0, bench.seen.gpu, BYTES)).context(what.clone())?;
        bench.run(target, &filled, next()).context(what.clone())?;
        bench.run(target, &copied, next()).context(what.clone())?;
        same(&what, (bench.word(0)?, bench.word(u64::from(BYTES) - 8)?), (word, word))?;
        // Memory that the driver does not know is paged out and in, by operations that name no allocation.
        let mut record = D3DKMT_EVICT::zeroed();
        (record.hDevice, record.NumAllocations) = (bench.room.device, 1);
        record.AllocationList = &raw const bench.hidden.1;
        raw.ok(raw.thunks.D3DKMTEvict, &mut record).context("eviction")?;
        bench.room.make_resident(scene, bench.hidden.1)?;
        bench.run(target, &bench.build(target, &fill(bench.seen.gpu, BYTES, 0))?, next())?;
        bench.run(target, &copied, next())?;
        same(&what, bench.word(64)?, word)?;
        // What was built for one node runs on every other; of no bytes, it does nothing.
        let part = bench.build(target, &fill(bench.seen.gpu + 8, 4, 0xABCD))?;
        let nothing = bench.build_nothing(target)?;
        for other in &bench.targets {
            bench.seen.write(&raw, 0, &[0; 16])?;
            bench.run(other, &part, next()).with_context(|| format!("built for {what}, on node {}", other.node))?;
            bench.run(other, &nothing, next())?;
            same("what a part of a word's fill leaves", (bench.word(0)?, bench.word(8)?), (0, 0xABCD))?;
        }
    }
    ensure!(bench.room.is_active()?, "the device is lost");
    Ok(())
}

impl Bench<'_> {
    /// A command of no bytes.
    fn build_nothing(&self, target: &Target) -> Result<Vec<u8>> {
        let whose = (target.handle, target.progress.is_some());
        let (status, mut bytes, (size, _)) =
            build_in(self.scene, &self.room, whose, &copy(self.seen.gpu, self.seen.gpu, 0), MOST);
        same("a command of no bytes", status, STATUS_SUCCESS)?;
        bytes.truncate(size as usize);
        Ok(bytes)
    }
}

fn refusals(scene: &Scene) -> Played {
    let raw = raw(scene)?;
    let bench = Bench::new(scene, &raw)?;
    let (here, there) = (bench.seen.gpu, bench.hidden.0);
    let of = |operation: i32| {
        let mut command = copy(here, there, 64);
        command.Operation = Operation(operation);
        command
    };
    let invalid = [
        ("no operation", of(0)),
        ("an operation behind the last", of(5)),
        ("another that does not exist", of(-1)),
        ("a copy of 3 bytes", copy(here, there, 3)),
        ("a copy onto itself", copy(here, here + 32, 64)),
        ("a copy onto itself, the other way round", copy(here + 32, here, 64)),
        ("a fill of 5 bytes", fill(here, 5, 1)),
        ("a fill beside a word", fill(here + 2, 8, 1)),
    ];
    for target in &bench.targets {
        let whose = (target.handle, target.progress.is_some());
        for (what, command) in &invalid {
            for room in [(0, 0), MOST] {
                let (status, bytes, _) = build_in(scene, &bench.room, whose, command, room);
                same(what, status, STATUS_INVALID_PARAMETER)?;
                ensure!(bytes.iter().all(|byte| *byte == 0xA5), "{what}: the buffer was written");
            }
        }
        // Endless loops: see the driver's documentation for why not.
        for (what, operation) in [("a loop", 3), ("a loop that can be preempted", 4)] {
            let (status, ..) = build_in(scene, &bench.room, whose, &of(operation), MOST);
            same(what, status, STATUS_NOT_SUPPORTED)?;
        }
        // The other kind of handle, and the context of another device.
        let other = build_in(scene, &bench.room, (whose.0, !whose.1), &fill(here, 8, 1), MOST);
        same("the handle as one of the other kind", other.0, STATUS_INVALID_PARAMETER)?;
        let foreign = Room::new(&raw)?;
        let other = build_in(scene, &foreign, whose, &fill(here, 8, 1), MOST);
        same("the handle with another device", other.0, STATUS_INVALID_PARAMETER)?;
        raw.destroy_device(foreign.device)?;
        if target.progress.is_some() {
            let context = context(&bench.room, target.node, true)?;
            let both = queue(&bench.room, context, true).map(|_| ());
            same("a queue for tests and for doorbells", both, Err(Denied(STATUS_INVALID_PARAMETER)))?;
        }
    }
    ensure!(bench.room.is_active()?, "the device is lost");
    Ok(())
}

/// What comes back from user mode is not what was built: the device that submits it is lost, and no other.
fn hostile(scene: &Scene) -> Played {
    type Change = fn(&mut [u8]);
    let raw = raw(scene)?;
    let good = Bench::new(scene, &raw)?;
    let changes: [(&str, Change); 4] = [
        ("an operation of paging buffers", |bytes| bytes[0] = 0x81),
        ("an operation that does not exist", |bytes| bytes[0] = 0x7f),
        ("an address of nothing", |bytes| bytes[8..16].copy_from_slice(&0x7777_0000_0000_u64.to_le_bytes())),
        ("a length beyond the buffer", |bytes| bytes[4..8].copy_from_slice(&0xffff_fff8_u32.to_le_bytes())),
    ];
    for index in 0..good.targets.len() {
        for (what, change) in &changes {
            let bad = Bench::new(scene, &raw)?;
            let target = &bad.targets[index];
            let mut bytes = bad.build(target, &fill(bad.seen.gpu, 64, 1))?;
            change(&mut bytes);
            // The device may be lost before the signal behind the buffer is asked for.
            if let Err(error) = bad.submit(target, &bytes, 1) {
                let denied = error.downcast_ref();
                same("the signal behind the buffer", denied, Some(&Denied(STATUS_DEVICE_REMOVED))).context(error)?;
            }
            scene.until("the device's end", || Ok(!bad.room.is_active()?)).with_context(|| (*what).to_owned())?;
            raw.destroy_device(bad.room.device)?;
        }
        ensure!(good.room.is_active()?, "another device is lost");
        let target = &good.targets[index];
        let bytes = good.build(target, &fill(good.seen.gpu, 8, 7))?;
        good.run(target, &bytes, 100 + index as u64)?;
        same("what was filled", good.word(0)?, 7 << 32 | 7)?;
    }
    Ok(())
}

/// There is no kernel-mode testing: no support (unless the OS alone has it off), no flags, no context, no buffer.
fn absent(scene: &Scene, by_driver: bool) -> Played {
    let state = scene.adapter().feature(TESTING);
    same("the driver's answer, and the OS's", (state.by_driver, state.enabled), (by_driver, false))?;
    let caps = scene.adapter().caps().context("caps")?;
    ensure!(!caps.nodes.iter().any(|node| node.builds_tests()), "a node says that it builds tests");
    let raw = raw(scene)?;
    let room = Room::new(&raw)?;
    let refused = Err(Denied(STATUS_INVALID_PARAMETER));
    same("a context for tests", context(&room, 2, false), refused)?;
    let plain = room.context_with(2, D3DDDI_CREATECONTEXTFLAGS::zeroed()).context("a context")?;
    let (status, ..) = build_in(scene, &room, (plain, false), &fill(0x1000, 8, 1), MOST);
    same("the escape", status, STATUS_INVALID_PARAMETER)?;
    same("questions for the interface", scene.calls("DxgkDdiQueryFeatureInterface"), 0)
}
