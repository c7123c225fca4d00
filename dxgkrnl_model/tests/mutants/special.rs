//! Mutants that need an option of the toy or another Windows, or break more than one rule.

use dxgkrnl_model::personality::{LostBy, MS, NativeFenceOsCaps, Personality};
use wddm_abi::DXGK_FEATURE_ID;

use super::Mutant;
use crate::tour::Stage;

fn without(personality: &mut Personality, feature: DXGK_FEATURE_ID) {
    *personality = personality.clone().with_feature(feature, false);
}

/// Values of native fences may be in local memory.
pub fn local_fences(personality: &mut Personality) {
    personality.native_fence_os_caps = NativeFenceOsCaps { optimized_default: true, intra_gpu: true };
}

fn on(name: &'static str, stage: Stage) -> Mutant {
    Mutant::new(name, stage)
}

/// A compute-only toy.
fn compute(name: &'static str) -> Mutant {
    Mutant { options: |options| options.compute_only = true, ..on(name, Stage::Start) }
}

/// What a compute-only driver must not do.
fn compute_only() -> [Mutant; 8] {
    let other = |name, rule| Mutant { rule: Some(rule), ..compute(name) };
    [
        compute("compute-class"),
        compute("compute-slot"),
        compute("compute-needed"),
        compute("compute-caps"),
        other("compute-caps-primary", "DXG-COMPUTE-CAPS"),
        other("compute-caps-level", "DXG-COMPUTE-CAPS"),
        compute("compute-query"),
        other("compute-query-node", "DXG-COMPUTE-QUERY"),
    ]
}

/// The list.
pub fn list() -> Vec<Mutant> {
    entry()
        .into_iter()
        .chain(answers())
        .chain(features())
        .chain(consequences())
        .chain(variants())
        .chain(slots())
        .chain(compute_only())
        .chain(engines())
        .chain(bells())
        .chain(left())
        .chain(services())
        .chain(testing())
        .chain(lost())
        .chain(super::sites::list())
        .collect()
}

/// An adapter with a 3-D engine too many, which copies as well.
fn engines() -> [Mutant; 1] {
    [on("node-3d", Stage::Start)]
}

/// Doorbells of several pages that begin on the last page of what is theirs.
fn bells() -> [Mutant; 2] {
    let end = |name, options| Mutant { rule: Some("DXG-DB-ADDRESS"), options, ..on(name, Stage::UserQueue) };
    [
        end("db-address-end", |options| options.doorbell_bytes = 4097),
        end("db-address-end", |options| (options.doorbell_bytes, options.doorbells_in_bar) = (3 * 4096, true)),
    ]
}

/// Mutants that leave an output as it came.
fn left() -> [Mutant; 4] {
    [
        Mutant { rule: Some("DXG-NODE-NAME"), ..on("node-name-left", Stage::Start) },
        Mutant {
            rule: Some("DXG-NODE-METADATA"),
            also: &["DXG-CAPS-PAGING-NODE", "DXG-FEATURE-UNUSED"],
            ..on("node-metadata-left", Stage::Start)
        },
        Mutant { rule: Some("DXG-FEATURE-SUPPORT"), ..on("support-left", Stage::Start) },
        Mutant { rule: Some("DXG-DB-STATUS"), ..on("db-status-left", Stage::UserQueue) },
    ]
}

/// What a driver does wrong with pages of the OS (rules of the kernel's services), and with its DPC.
fn services() -> [Mutant; 4] {
    [
        Mutant {
            rule: Some("DXG-DPC-NOTIFY"),
            windows: |personality| personality.dpc_delivery = nt_model::DpcDelivery::Remote,
            ..on("dpc-elsewhere", Stage::Packets)
        },
        Mutant { rule: Some("NT-CACHE"), ..on("map-cache", Stage::Packets) },
        Mutant { rule: Some("NT-MAP-WRITE"), ..on("map-write", Stage::UserQueue) },
        Mutant { rule: Some("NT-MDL-LOCKED"), ..on("map-unlocked", Stage::Packets) },
    ]
}

/// What is wrong with kernel-mode testing in another way than in the mutants of those names.
fn testing() -> [Mutant; 5] {
    [
        Mutant { windows: |personality| personality.test_signing = false, ..on("feature-testing", Stage::Start) },
        Mutant { rule: Some("DXG-TESTING-INTERFACE"), ..on("testing-interface-rest", Stage::Start) },
        Mutant { rule: Some("DXG-TESTING-SIZE"), ..on("testing-size-later", Stage::Testing) },
        Mutant { rule: Some("DXG-TESTING-OVERRUN"), ..on("testing-members", Stage::Testing) },
        Mutant { rule: Some("DXG-TESTING-CONTEXT"), ..on("testing-queue", Stage::Testing) },
    ]
}

/// What a driver does wrong with memory that lost its content, in a reset of the adapter or without power.
fn lost() -> [Mutant; 4] {
    let hang = |name| Mutant { options: |options| options.engine_reset = false, ..on(name, Stage::AdapterHang) };
    [
        Mutant { windows: |personality| personality.lost_by = LostBy::Place, ..hang("paging-lost") },
        Mutant { windows: |personality| personality.lost_by = LostBy::Address, ..hang("paging-lost") },
        // The GPU finds no entry for the next paging buffer.
        Mutant { also: &["DXG-INT-SYSTEM-FAULT"], ..hang("paging-anew") },
        Mutant { also: &["DXG-INT-SYSTEM-FAULT"], ..on("paging-anew", Stage::Sleep) },
    ]
}

/// Answers that one Windows dislikes and another takes, and such as only some drivers owe.
fn answers() -> [Mutant; 7] {
    // Without MultiEngineAware, which the version wants, too.
    let single = |name| Mutant { also: &["DXG-CAPS-MULTI-ENGINE"], ..on(name, Stage::Start) };
    [
        single("caps-preemption"),
        single("caps-cancel"),
        Mutant { windows: |personality| personality.asks_the_childless = true, ..on("caps-children", Stage::Start) },
        Mutant {
            rule: Some("DXG-CAPS-PAGING-NODE"),
            windows: |personality| personality.copy_node_demanded = true,
            ..on("caps-paging-node-kind", Stage::Start)
        },
        Mutant {
            rule: Some("DXG-QAI-REQUIRED"),
            windows: |personality| personality.power_components_demanded = true,
            ..on("qai-required-components", Stage::Start)
        },
        Mutant { rule: Some("DXG-QAI-EXPECTED"), ..on("qai-expected-version", Stage::Start) },
        Mutant { rule: Some("DXG-QAI-EXPECTED"), ..on("qai-expected-physical", Stage::Start) },
    ]
}

/// What DriverEntry does wrong.
fn entry() -> [Mutant; 5] {
    [
        // Engines are reset one by one from WDDM 1.2 on; a table that is older is none that this Windows takes.
        Mutant { rule: Some("DXG-INIT-VERSION"), ..on("init-version-old", Stage::Start) },
        Mutant { rule: Some("DXG-INIT-SLOT-VERSION"), ..on("init-slot-2-0", Stage::Start) },
        Mutant { rule: Some("DXG-INIT-SLOT-VERSION"), ..on("init-slot-2-4", Stage::Start) },
        Mutant { rule: Some("DXG-INIT-STATUS"), ..on("entry-without-initialize", Stage::Start) },
        Mutant {
            rule: Some("DXG-INIT-STATUS"),
            also: &["DXG-INIT-VERSION"],
            ..on("entry-hides-failure", Stage::Start)
        },
    ]
}

/// A driver that advertises what this Windows did not enable, or asks for it.
fn features() -> [Mutant; 9] {
    const INTERFACE: Option<&str> = Some("DXG-FEATURE-INTERFACE");
    [
        // The interface of a feature that is off, one before the question, one of a version that was not negotiated.
        Mutant {
            windows: |personality| without(personality, DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE),
            options: |options| options.user_mode = false,
            ..on("feature-interface", Stage::Start)
        },
        Mutant { rule: INTERFACE, ..on("feature-interface-first", Stage::Start) },
        Mutant { rule: INTERFACE, ..on("feature-interface-version", Stage::Start) },
        Mutant {
            windows: |personality| without(personality, DXGK_FEATURE_ID::DXGK_FEATURE_NATIVE_FENCE),
            options: |options| options.user_mode = false,
            ..on("feature-native-fence", Stage::Start)
        },
        Mutant {
            windows: |personality| without(personality, DXGK_FEATURE_ID::DXGK_FEATURE_USER_MODE_SUBMISSION),
            ..on("feature-user-mode", Stage::Start)
        },
        Mutant {
            windows: |personality| without(personality, DXGK_FEATURE_ID::DXGK_FEATURE_HWSCH),
            options: |options| (options.user_mode, options.native_fences) = (false, false),
            ..on("feature-hwsch", Stage::Start)
        },
        Mutant { options: |options| options.user_mode = false, ..on("feature-unused", Stage::Start) },
        Mutant {
            rule: Some("DXG-CLOCK-ANSWER"),
            options: |options| (options.user_mode, options.native_fences) = (false, false),
            ..on("clock-status", Stage::Start)
        },
        Mutant {
            options: |options| (options.user_mode, options.native_fences) = (false, false),
            ..on("caps-optimized", Stage::Start)
        },
    ]
}

/// Mutants that break a second rule by what they do, or by what follows.
fn consequences() -> [Mutant; 11] {
    [
        // A fault that the model cannot read leaves the queue's buffer where it is.
        Mutant { also: &["DXG-HW-STALL"], ..on("int-fault-flags", Stage::Faults) },
        Mutant { also: &["DXG-HW-STALL"], ..on("int-fault-handle", Stage::Faults) },
        Mutant {
            rule: Some("DXG-CB-OBJECT"),
            also: &["DXG-INT-SUSPEND-FENCE", "DXG-SUSPEND-ACK", "DXG-TDR-INVALIDATE"],
            ..on("context-in", Stage::QueueHang)
        },
        Mutant { rule: Some("DXG-ISR-CLAIM"), ..on("isr-claims-ones", Stage::Removal) },
        Mutant { rule: Some("DXG-ISR-CLAIM"), ..on("isr-claims-ones", Stage::Sleep) },
        // The interrupt that it raises finds no routine that claims it.
        Mutant { also: &["DXG-ISR-CLAIM", "NT-INT-STORM"], ..on("stop-line", Stage::Start) },
        Mutant { also: &["DXG-OBJECT-DESTROY"], ..on("object-handle", Stage::Packets) },
        Mutant { also: &["DXG-NF-DESTROY"], ..on("nf-handle", Stage::UserQueue) },
        Mutant { also: &["DXG-NF-LOST"], ..on("nf-monitored-written", Stage::UserQueue) },
        Mutant { also: &["DXG-CB-OBJECT", "NT-IRQL"], ..on("cb-from-isr", Stage::Packets) },
        Mutant { also: &["DXG-INT-LEVEL"], ..on("int-reentrant", Stage::Packets) },
    ]
}

/// Mutants of a toy that is built otherwise, or on a Windows that is stricter.
fn variants() -> [Mutant; 28] {
    const SERVED: Option<&str> = Some("DXG-CAPS-CROSS-ADAPTER-SERVED");
    [
        // Where timeouts are looked for, a paging buffer without an end is one.
        Mutant {
            windows: |personality| {
                personality.tdr.enabled = false;
                (personality.tdr.delay, personality.tdr.ddi_delay) = (100 * MS, 500 * MS);
            },
            ..on("paging-end", Stage::Start)
        },
        Mutant { rule: SERVED, options: |options| options.cross_adapter = true, ..on("cross-handle", Stage::Start) },
        Mutant { rule: SERVED, options: |options| options.cross_adapter = true, ..on("cross-overrun", Stage::Start) },
        // What a driver has for an allocation behind a bad handle stays when it stops there.
        Mutant {
            rule: Some("DXG-LEAK-MEMORY"),
            options: |options| options.pages_of_its_own = true,
            windows: |personality| personality.faults.stray_handles = true,
            ..on("batch-stops", Stage::Packets)
        },
        Mutant { rule: Some("DXG-CB-DISCONNECT"), ..on("cb-disconnect-going", Stage::UserQueue) },
        Mutant { rule: Some("DXG-TDR-INVALIDATE"), ..on("tdr-let-go", Stage::QueueHang) },
        Mutant {
            windows: |personality| personality.scheduling_log_entries = 8,
            ..on("slog-int-lost", Stage::UserQueue)
        },
        Mutant {
            rule: Some("DXG-SLOG-INT-LOST"),
            windows: |personality| personality.scheduling_log_entries = 4,
            ..on("slog-int-lost-later", Stage::UserQueue)
        },
        Mutant { windows: |personality| personality.every_slot = true, ..on("slot-status", Stage::Start) },
        Mutant { windows: |personality| personality.every_slot = true, ..on("slot-members", Stage::Start) },
        Mutant { options: |options| options.engines = 2, ..on("link-nodes", Stage::Start) },
        Mutant { options: |options| options.engines = 2, ..on("link-addresses", Stage::Start) },
        Mutant {
            rule: Some("DXG-INT-FENCE"),
            also: &["DXG-TDR-FENCE"],
            options: |options| options.engines = 2,
            ..on("int-node-engine", Stage::Linked)
        },
        Mutant { windows: local_fences, ..on("nf-storage-status", Stage::Start) },
        Mutant { windows: local_fences, ..on("nf-storage-segment", Stage::UserQueue) },
        Mutant { options: |options| options.two_levels = true, ..on("root-table-size", Stage::Packets) },
        Mutant { options: |options| options.optimized = true, ..on("int-native-queue", Stage::UserQueue) },
        Mutant {
            rule: Some("DXG-NF-LOST"),
            options: |options| options.optimized = true,
            ..on("int-other-queue", Stage::UserQueue)
        },
        Mutant { options: |options| options.doorbells = 1, ..on("cb-disconnect", Stage::UserQueue) },
        Mutant { options: |options| options.power_component = true, ..on("power-fstate", Stage::Sleep) },
        Mutant { options: |options| options.power_component = true, ..on("power-component", Stage::Sleep) },
        Mutant {
            rule: Some("DXG-POWER-FSTATE"),
            options: |options| options.power_component = true,
            ..on("power-completion", Stage::Sleep)
        },
        Mutant { windows: |personality| personality.police_ddi = 250 * MS, ..on("ddi-time", Stage::Packets) },
        Mutant { options: |options| options.cancel_aware = true, ..on("cancel-status", Stage::PacketHang) },
        Mutant { options: |options| options.engine_reset = false, ..on("tdr-ddi-delay", Stage::AdapterHang) },
        // The thread that would look is the one that waits.
        Mutant { rule: Some("DXG-TDR-DDI-DELAY"), ..on("stays-in-status", Stage::PacketHang) },
        Mutant {
            rule: Some("DXG-TDR-MASK"),
            options: |options| options.dependent = true,
            ..on("tdr-mask-own", Stage::PacketHang)
        },
        Mutant { options: |options| options.engine_reset = false, ..on("tdr-limit", Stage::AdapterHang) },
    ]
}

/// Functions that are called for no other reason than to see what they do.
fn slots() -> impl Iterator<Item = Mutant> {
    let wrong = [
        ("slot-render", "DXG-SLOT-STATUS"),
        ("slot-child", "DXG-SLOT-MEMBERS"),
        ("slot-dma", "DXG-SLOT-MEMBERS"),
        ("slot-list", "DXG-SLOT-MEMBERS"),
        ("slot-group", "DXG-SLOT-MEMBERS"),
        ("slot-signal", "DXG-SLOT-MEMBERS"),
    ];
    wrong.into_iter().map(|(name, rule)| Mutant {
        rule: Some(rule),
        windows: |personality| personality.every_slot = true,
        ..on(name, Stage::Start)
    })
}
