//! Stands in for the `windows` crate (0.62) when wdk-build is built for a Linux host: the names that its look-up in the
//! registry uses, as look-ups that fail. wdk-build then finds a WDK through WDKContentRoot or not at all.
#![no_std]
#![allow(non_snake_case, non_camel_case_types)]

pub mod core {
    #[derive(Clone, Copy)]
    pub struct PCSTR(pub *const u8);

    #[macro_export]
    #[doc(hidden)]
    macro_rules! __s {
        ($s:literal) => {
            $crate::core::PCSTR(::core::concat!($s, '\0').as_ptr())
        };
    }
    pub use crate::__s as s;
}

pub mod Win32 {
    pub mod Foundation {
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct WIN32_ERROR(pub u32);

        impl WIN32_ERROR {
            pub fn is_ok(self) -> bool {
                self.0 == 0
            }
            pub fn ok(self) -> Result<(), Self> {
                if self.is_ok() { Ok(()) } else { Err(self) }
            }
        }

        impl ::core::fmt::Debug for WIN32_ERROR {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                write!(f, "WIN32_ERROR({})", self.0)
            }
        }
    }

    pub mod System {
        pub mod Registry {
            use super::super::Foundation::WIN32_ERROR;
            use crate::core::PCSTR;
            use ::core::ffi::c_void;

            const ERROR_CALL_NOT_IMPLEMENTED: WIN32_ERROR = WIN32_ERROR(120);

            #[derive(Clone, Copy, Default)]
            pub struct HKEY(pub usize);
            #[derive(Clone, Copy)]
            pub struct REG_SAM_FLAGS(pub u32);
            #[derive(Clone, Copy)]
            pub struct REG_ROUTINE_FLAGS(pub u32);

            pub const HKEY_LOCAL_MACHINE: HKEY = HKEY(0x8000_0002);
            pub const KEY_READ: REG_SAM_FLAGS = REG_SAM_FLAGS(0x2_0019);
            pub const RRF_RT_REG_SZ: REG_ROUTINE_FLAGS = REG_ROUTINE_FLAGS(2);

            pub unsafe fn RegOpenKeyExA(
                _key: HKEY,
                _sub_key: PCSTR,
                _options: Option<u32>,
                _access: REG_SAM_FLAGS,
                _result: *mut HKEY,
            ) -> WIN32_ERROR {
                ERROR_CALL_NOT_IMPLEMENTED
            }

            pub unsafe fn RegGetValueA(
                _key: HKEY,
                _sub_key: Option<PCSTR>,
                _value: PCSTR,
                _flags: REG_ROUTINE_FLAGS,
                _kind: Option<*mut u32>,
                _data: Option<*mut c_void>,
                _len: Option<*mut u32>,
            ) -> WIN32_ERROR {
                ERROR_CALL_NOT_IMPLEMENTED
            }

            pub unsafe fn RegCloseKey(_key: HKEY) -> WIN32_ERROR {
                ERROR_CALL_NOT_IMPLEMENTED
            }
        }
    }
}
