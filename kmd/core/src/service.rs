//! Values under the key of the driver's service: what is decided before there is any device. `docs/settings.md` has
//! them in words; a test compares the two.
//!
//! `DriverEntry` reads them once, since the table of functions goes to Dxgkrnl there, and which functions it has
//! depends on the form of the driver.

use crate::irql::Passive;
use crate::platform::{Platform, SettingsKey};
use crate::setting_values::{Part, Setting, Values};

/// Name of the subkey of the service's key that holds the values.
const PARAMETERS: &str = r"\Parameters";

/// Longest path of a key that is read, in UTF-16 units. A service's key is far shorter.
const LONGEST_PATH: usize = 256;

const COMPUTE_ONLY: Setting = Setting {
    name: "ComputeOnly",
    part: Part::Service,
    values: Values::Between(0, 1),
    default: 0,
    meaning: "the driver is a compute-only driver, for a device of class ComputeAccelerator: `MiscCaps.ComputeOnly`, \
        and what the article on such drivers forbids is not there; class and value change together, so there is an \
        INF for each form",
};

const HANDSHAKE_CODE: Setting = Setting {
    name: "HandshakeCode",
    part: Part::Service,
    values: Values::Named(&[(0, "the newer, then the older"), (1, "the newer"), (2, "the older")]),
    default: 0,
    meaning: "the request by which the driver asks Dxgkrnl for its `DxgkInitialize`, where the image was linked \
        without Microsoft's displib.lib",
};

/// Every value, in the order of the documentation.
pub const TABLE: &[Setting] = &[COMPUTE_ONLY, HANDSHAKE_CODE];

/// Which driver the image is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// A render-only display miniport driver, for a device of class Display.
    #[default]
    Render,
    /// A compute-only driver, for a device of class ComputeAccelerator.
    ///
    /// Source: article *MCDM kernel-mode driver implementation guidelines*.
    ComputeOnly,
}

impl Form {
    /// Returns whether it is [`Form::ComputeOnly`].
    pub fn is_compute_only(self) -> bool {
        self == Self::ComputeOnly
    }
}

/// The values; each is in range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Service {
    /// The value `ComputeOnly`: which of its two forms the driver takes.
    pub form: Form,
    /// The value `HandshakeCode`: 0 to 2, by which request codes Dxgkrnl is asked, and in which order.
    pub handshake_code: u32,
}

impl Service {
    /// Reads the values of the service whose key is at `path`, UTF-16 without a terminator, as `DriverEntry` gets it. A
    /// value that is absent or out of range keeps its default; so do all of them when the path is too long. The
    /// debugger is told of what is out of range or too long.
    pub fn read<P: Platform>(irql: &Passive, platform: &P, path: &[u16]) -> Self {
        let mut key = [0_u16; LONGEST_PATH];
        let units = path.iter().copied().chain(PARAMETERS.encode_utf16());
        let length = path.len() + PARAMETERS.len();
        let Some(key) = key.get_mut(..length) else {
            platform.print(format_args!("fencepost: the path of the service's key has {length} characters; ignored\n"));
            return Self::default();
        };
        key.iter_mut().zip(units).for_each(|(to, unit)| *to = unit);
        let value = |setting: &Setting| {
            let Some(value) = platform.setting(irql, SettingsKey::Path(key), setting.name) else {
                return setting.default;
            };
            if setting.values.take(value) {
                return value;
            }
            let name = setting.name;
            platform.print(format_args!("fencepost: setting {name} = {value} is out of range; ignored\n"));
            setting.default
        };
        Self {
            form: if value(&COMPUTE_ONLY) == 0 { Form::Render } else { Form::ComputeOnly },
            // CAST: at most 2.
            handshake_code: value(&HANDSHAKE_CODE) as u32,
        }
    }
}
