//! The model against a driver that is right, and against the same driver with one thing wrong at a time.
#![expect(unsafe_code, reason = "a driver and its clients follow pointers")]

mod toy;

use dxgkrnl_model::adapter::AdapterConfig;
use dxgkrnl_model::os::Os;
use dxgkrnl_model::personality::Personality;
use toy::{Options, Toy};

#[test]
fn a_right_driver_starts_and_stops() {
    let os = Os::boot(Personality::collecting()).unwrap_or_else(|error| panic!("{error}"));
    let driver = os.load_driver(&Toy::driver(Options::default())).unwrap_or_else(|error| panic!("{error}"));
    let adapter = os.add_adapter(&driver, AdapterConfig::default());
    let adapter = adapter.unwrap_or_else(|error| panic!("{error}\n{:#?}", os.kernel().rules.violations()));
    for line in adapter.transcript() {
        println!("{line}");
    }
    os.shut_down();
    let report = os.report();
    println!("{report}");
    assert_eq!(report.broken().count(), 0, "{:#?}", os.kernel().rules.violations());
}
