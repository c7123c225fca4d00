//! Exports that the model does not implement: they refuse, and are counted under their names.
//!
//! Some will stay here, each kind for a reason:
//!
//! | functions | why |
//! |---|---|
//! | displays, modes, overlays, presents, swap chains, duplication of outputs, Miracast | the model has no displays |
//! | what goes by global handles: OpenResource, QueryResourceInfo, the first forms of synchronization objects, keyed mutexes, bundles | sharing of Direct3D before NT handles. A handle of which every process may guess the number has no place in a model that judges who may open what; clients here share by NT handles |
//! | Render, Lock, Unlock, the first form of CreateContext | contexts by allocation and patch lists: physical addressing is not judged |
//! | protected sessions, tracked workloads, process budgets and bands, hybrid caches | no page says what the driver does for them |
//! | virtual machines' and Linux's own: Vail, sync files, ShareObjectWithHost | no virtual machine uses the adapter |

use nt_model::{Machine, shims};
use wddm_abi::{NTSTATUS, ntstatus};

/// What Windows 11 was seen to answer to NULL, to zeros and to junk: another status than STATUS_NOT_SUPPORTED.
///
/// Source: a public suite of tests that is written to run on Windows 11.
const SEEN: &[(&str, NTSTATUS)] = &[
    ("D3DKMTAdjustFullscreenGamma", ntstatus::STATUS_INVALID_PARAMETER),
    ("D3DKMTConfigureSharedResource", ntstatus::STATUS_INVALID_PARAMETER),
    ("D3DKMTCreateProtectedSession", ntstatus::STATUS_INVALID_PARAMETER),
    ("D3DKMTDestroyProtectedSession", ntstatus::STATUS_INVALID_PARAMETER),
    ("D3DKMTFlushHeapTransitions", ntstatus::STATUS_INVALID_PARAMETER),
    ("D3DKMTGetPostCompositionCaps", ntstatus::STATUS_INVALID_PARAMETER),
    ("D3DKMTGetProcessDeviceRemovalSupport", ntstatus::STATUS_INVALID_HANDLE),
    ("D3DKMTMarkDeviceAsError", ntstatus::STATUS_INVALID_PARAMETER),
    ("D3DKMTOpenKeyedMutexFromNtHandle", ntstatus::STATUS_INVALID_HANDLE),
    ("D3DKMTTrimProcessCommitment", ntstatus::STATUS_INVALID_PARAMETER),
];

fn refuse(machine: &Machine, name: &'static str, arguments: usize) -> NTSTATUS {
    if let Some(shared) = crate::port::shared::shared_of(machine) {
        shared.counters.thunk(name);
        shared.counters.unimplemented(name);
    }
    match SEEN.iter().find(|(seen, _)| *seen == name) {
        // There is no record in which a handle could be wrong.
        Some(_) if arguments == 0 => ntstatus::STATUS_INVALID_PARAMETER,
        Some((_, status)) => *status,
        None => ntstatus::STATUS_NOT_SUPPORTED,
    }
}

macro_rules! refused {
    ($($name:ident),* $(,)?) => {
        shims! {
            /// What refuses.
            pub(super) table THUNKS;

            $(fn $name(machine, arguments: usize) -> NTSTATUS { refuse(machine, stringify!($name), arguments) })*
        }
    };
}

shims! {
    /// What the 28000 line adds, where `D3DKMTConnectDoorbell` takes another record under its old name. Source:
    /// `d3dkmthk.h` of the SDK 10.0.28000.
    pub(super) table LATER;

    fn D3DKMTCreateHwQueueForUserModeSubmission(machine, arguments: usize) -> NTSTATUS {
        refuse(machine, "D3DKMTCreateHwQueueForUserModeSubmission", arguments)
    }
}

refused! {
    D3DKMTAbandonSwapChain, D3DKMTAcquireKeyedMutex, D3DKMTAcquireKeyedMutex2, D3DKMTAcquireSwapChain,
    D3DKMTAddSurfaceToSwapChain, D3DKMTAdjustFullscreenGamma, D3DKMTCacheHybridQueryValue, D3DKMTCancelPresents,
    D3DKMTChangeSurfacePointer, D3DKMTCheckExclusiveOwnership, D3DKMTCheckMonitorPowerState,
    D3DKMTCheckMultiPlaneOverlaySupport, D3DKMTCheckMultiPlaneOverlaySupport2, D3DKMTCheckMultiPlaneOverlaySupport3,
    D3DKMTCheckOcclusion, D3DKMTCheckSharedResourceAccess, D3DKMTCheckSinglePlaneForMultiPlaneOverlaySupport,
    D3DKMTCheckVidPnExclusiveOwnership, D3DKMTCloseDxCoreDevice, D3DKMTConfigureSharedResource,
    D3DKMTCreateBundleObject, D3DKMTCreateContext, D3DKMTCreateDCFromMemory, D3DKMTCreateKeyedMutex,
    D3DKMTCreateKeyedMutex2, D3DKMTCreateOutputDupl, D3DKMTCreateOverlay, D3DKMTCreateProtectedSession,
    D3DKMTCreateSwapChain, D3DKMTCreateSyncFile, D3DKMTCreateSynchronizationObject, D3DKMTCreateTrackedWorkload,
    D3DKMTDDisplayEnum, D3DKMTDDisplayEnum2, D3DKMTDestroyDCFromMemory, D3DKMTDestroyKeyedMutex,
    D3DKMTDestroyOutputDupl, D3DKMTDestroyOverlay, D3DKMTDestroyProtectedSession, D3DKMTDestroyTrackedWorkload,
    D3DKMTDispMgrCreate, D3DKMTDispMgrOperation, D3DKMTDispMgrSourceOperation, D3DKMTDispMgrTargetOperation,
    D3DKMTDisplayMuxSwitchExecute, D3DKMTDisplayMuxSwitchFinish, D3DKMTDisplayMuxSwitchPrepare,
    D3DKMTDisplayPortOperation, D3DKMTDuplicateHandle, D3DKMTEnumProcesses, D3DKMTExtractBundleObject,
    D3DKMTFlipOverlay, D3DKMTFlushHeapTransitions, D3DKMTGetAvailableTrackedWorkloadIndex,
    D3DKMTGetCachedHybridQueryValue, D3DKMTGetDWMVerticalBlankEvent, D3DKMTGetDisplayModeList,
    D3DKMTGetMemoryBudgetTarget, D3DKMTGetMultiPlaneOverlayCaps, D3DKMTGetMultisampleMethodList, D3DKMTGetOverlayState,
    D3DKMTGetPostCompositionCaps, D3DKMTGetPresentHistory, D3DKMTGetPresentQueueEvent,
    D3DKMTGetProcessDeviceRemovalSupport, D3DKMTGetProcessList, D3DKMTGetProcessSchedulingPriorityBand,
    D3DKMTGetProperties, D3DKMTGetResourcePresentPrivateDriverData, D3DKMTGetRuntimeData, D3DKMTGetScanLine,
    D3DKMTGetSetSwapChainMetadata, D3DKMTGetSharedPrimaryHandle, D3DKMTGetSharedResourceAdapterLuid,
    D3DKMTGetSwapChainSurfacePhysicalAddress, D3DKMTGetTrackedWorkloadStatistics, D3DKMTGetYieldPercentage,
    D3DKMTInvalidateActiveVidPn, D3DKMTLock, D3DKMTMarkDeviceAsError, D3DKMTNetDispGetNextChunkInfo,
    D3DKMTNetDispQueryMiracastDisplayDeviceStatus, D3DKMTNetDispQueryMiracastDisplayDeviceSupport,
    D3DKMTNetDispStartMiracastDisplayDevice, D3DKMTNetDispStartMiracastDisplayDevice2,
    D3DKMTNetDispStartMiracastDisplayDeviceEx, D3DKMTNetDispStopMiracastDisplayDevice,
    D3DKMTOpenAdapterFromGdiDisplayName, D3DKMTOpenAdapterFromHdc, D3DKMTOpenBundleObjectNtHandleFromName,
    D3DKMTOpenKeyedMutex, D3DKMTOpenKeyedMutex2, D3DKMTOpenKeyedMutexFromNtHandle,
    D3DKMTOpenProtectedSessionFromNtHandle, D3DKMTOpenResource, D3DKMTOpenResource2, D3DKMTOpenSwapChain,
    D3DKMTOpenSyncObjectFromSyncFile, D3DKMTOpenSynchronizationObject, D3DKMTOutputDuplGetFrameInfo,
    D3DKMTOutputDuplGetMetaData, D3DKMTOutputDuplGetPointerShapeData, D3DKMTOutputDuplPresent,
    D3DKMTOutputDuplPresentToHwQueue, D3DKMTOutputDuplReleaseFrame, D3DKMTPinDirectFlipResources, D3DKMTPinResources,
    D3DKMTPollDisplayChildren, D3DKMTPresent, D3DKMTPresentMultiPlaneOverlay, D3DKMTPresentMultiPlaneOverlay2,
    D3DKMTPresentMultiPlaneOverlay3, D3DKMTPresentRedirected, D3DKMTQueryFSEBlock, D3DKMTQueryFeatureInterface,
    D3DKMTQueryProcessOfferInfo, D3DKMTQueryProtectedSessionInfoFromNtHandle, D3DKMTQueryProtectedSessionStatus,
    D3DKMTQueryRemoteVidPnSourceFromGdiDisplayName, D3DKMTQueryResourceInfo, D3DKMTQueryVidPnExclusiveOwnership,
    D3DKMTRegisterVailProcess, D3DKMTReleaseKeyedMutex, D3DKMTReleaseKeyedMutex2, D3DKMTReleaseProcessVidPnSourceOwners,
    D3DKMTReleaseSwapChain, D3DKMTRemoveSurfaceFromSwapChain, D3DKMTRender, D3DKMTResetTrackedWorkloadStatistics,
    D3DKMTSetDisplayMode, D3DKMTSetDisplayPrivateDriverFormat, D3DKMTSetDodIndirectSwapchain, D3DKMTSetFSEBlock,
    D3DKMTSetGammaRamp, D3DKMTSetHwProtectionTeardownRecovery, D3DKMTSetMemoryBudgetTarget,
    D3DKMTSetMonitorColorSpaceTransform, D3DKMTSetProcessDeviceRemovalSupport, D3DKMTSetProcessSchedulingPriorityBand,
    D3DKMTSetProperties, D3DKMTSetQueuedLimit, D3DKMTSetStablePowerState, D3DKMTSetStereoEnabled,
    D3DKMTSetSyncRefreshCountWaitTarget, D3DKMTSetVidPnSourceHwProtection, D3DKMTSetVidPnSourceOwner,
    D3DKMTSetVidPnSourceOwner1, D3DKMTSetVidPnSourceOwner2, D3DKMTSetYieldPercentage, D3DKMTShareObjectWithHost,
    D3DKMTSharedPrimaryLockNotification, D3DKMTSharedPrimaryUnLockNotification, D3DKMTSignalSynchronizationObject,
    D3DKMTSignalSynchronizationObject2, D3DKMTSubmitPresentBltToHwQueue, D3DKMTSubmitPresentToHwQueue,
    D3DKMTTrimProcessCommitment, D3DKMTUnOrderedPresentSwapChain, D3DKMTUnlock, D3DKMTUnpinDirectFlipResources,
    D3DKMTUnpinResources, D3DKMTUpdateAllocationProperty, D3DKMTUpdateOverlay, D3DKMTUpdateTrackedWorkload,
    D3DKMTVailConnect, D3DKMTVailDisconnect, D3DKMTVailPromoteCompositionSurface, D3DKMTWaitForSynchronizationObject,
    D3DKMTWaitForSynchronizationObject2, D3DKMTWaitForVerticalBlankEvent, D3DKMTWaitForVerticalBlankEvent2,
    D3DKMTWaitSyncFile,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_of_functions_that_are_left_out() {
        for (name, _) in SEEN {
            assert!(THUNKS.iter().any(|entry| entry.name == *name), "{name}");
        }
    }
}
