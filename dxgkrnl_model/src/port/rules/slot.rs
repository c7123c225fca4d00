//! Rules of the table as such: where its functions lie, and what any of them returns and fills.

use nt_model::rules;

rules! {
    /// Any function of the table.
    pub list SLOT_RULES;

    /// Where the functions of the table lie.
    INIT_INSIDE = "DXG-INIT-INSIDE" {
        title: "every function in the table lies in the driver",
        source: "DDI page DRIVER_INITIALIZATION_DATA: each member points to a function that the display miniport \
            driver implements",
        bugcheck: none,
        fix: "clear the table before it is filled, and put functions of the driver itself into it",
    }
    /// Which statuses functions of the table return.
    SLOT_STATUS = "DXG-SLOT-STATUS" {
        title: "a function that no other rule judges returns a status that its page lists",
        source: "DDI pages of the functions, return value (facts/statuses.tsv)",
        bugcheck: none,
        fix: "return a status of the list; DxgkDdiRenderGdi, DxgkDdiPatch, DxgkDdiSubmitCommand, DxgkDdiPreemptCommand \
            and DxgkDdiCancelCommand have to succeed",
    }
    /// Which members functions of the table write.
    SLOT_MEMBERS = "DXG-SLOT-MEMBERS" {
        title: "a function that succeeds fills the members that its page marks [out], and leaves those that it marks \
            [in]",
        source: "DDI pages DXGKARG_QUERYCURRENTFENCE, DXGKARG_FORMATHISTORYBUFFER, DXGK_GPUCLOCKDATA_FLAGS, \
            DXGKARG_QUERYDEPENDENTENGINEGROUP, DXGKARG_QUERYENGINESTATUS, DXGKARG_RENDERGDI, DXGKARG_RENDER, \
            DXGKARG_PRESENT, DXGKARG_SIGNALMONITOREDFENCE, DXGK_CHILD_STATUS",
        bugcheck: none,
        fix: "write each [out] member, and write no other",
    }
}
