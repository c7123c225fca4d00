//! A model of Dxgkrnl, VidMm and VidSch that judges any WDDM driver.
