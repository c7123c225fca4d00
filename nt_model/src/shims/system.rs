//! What the kernel says of itself.

use crate::records::{status, status::NtStatus};
use crate::routines::{PASSIVE_LEVEL, Routine};
use crate::shim::{self, Out};
use crate::shims;

/// In no table: Microsoft documents the user-mode twin, `NtQuerySystemInformation`, and headers of the WDK lack both.
static ZW_QUERY_SYSTEM_INFORMATION: Routine = Routine::limited(
    "ZwQuerySystemInformation",
    &["SystemInformationClass", "SystemInformation", "SystemInformationLength", "ReturnLength"],
    PASSIVE_LEVEL,
    PASSIVE_LEVEL,
);

/// `SystemCodeIntegrityInformation`.
const CODE_INTEGRITY: u32 = 103;
/// `CODEINTEGRITY_OPTION_ENABLED`: code integrity is enforced.
const OPTION_ENABLED: u32 = 1;
/// `CODEINTEGRITY_OPTION_TESTSIGN`: content that is signed for tests is allowed.
const OPTION_TESTSIGN: u32 = 2;

shims! {
    pub(crate) table SYSTEM;

    // SYSTEM_CODEINTEGRITY_INFORMATION: Length, which the caller sets to 8, and CodeIntegrityOptions.
    fn ZwQuerySystemInformation(m, class: u32, information: usize, length: u32, needed: Out<u32>) -> NtStatus {
        let arguments = [class.into(), information as u64, length.into(), needed.address() as u64];
        let _service = m.service(&ZW_QUERY_SYSTEM_INFORMATION, arguments);
        let (CODE_INTEGRITY, Some(test_signing)) = (class, m.config().test_signing) else {
            return status::INVALID_INFO_CLASS;
        };
        needed.set_opt(8);
        if length != 8 || shim::read_bytes(information, 4) != 8_u32.to_le_bytes() {
            return status::INFO_LENGTH_MISMATCH;
        }
        let options = OPTION_ENABLED | if test_signing { OPTION_TESTSIGN } else { 0 };
        shim::write_bytes(information + 4, &options.to_le_bytes());
        status::SUCCESS
    }
}
