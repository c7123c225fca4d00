//! Who does what when in the demo, and what must have come of it.

use super::parts::{Account, Made, Task};
use super::{Picture, recipe};
use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wddm_abi::D3DKMT_DEVICEEXECUTION_STATE;

/// The calls that submit a command buffer to the kernel.
pub const SUBMITS: [&str; 2] = ["D3DKMTSubmitCommand", "D3DKMTSubmitCommandToHwQueue"];

/// A process of the demo, as the director has it. They say lines of JSON to each other.
pub trait Actor {
    /// Which process: A or B.
    fn name(&self) -> &'static str;

    /// Says a line to it.
    ///
    /// # Errors
    /// When it is gone.
    fn say(&mut self, line: &str) -> Result<()>;

    /// Its next line.
    ///
    /// # Errors
    /// When it fails, or says nothing for long.
    fn hear(&mut self) -> Result<String>;

    /// Takes an NT handle of `other` into this process, and closes the original.
    ///
    /// # Errors
    /// When it is not open.
    fn receive(&self, other: &Self, handle: u64) -> Result<u64>;

    /// Says something to it.
    ///
    /// # Errors
    /// When it is gone.
    fn tell(&mut self, value: &impl Serialize) -> Result<()> {
        self.say(&serde_json::to_string(value)?)
    }

    /// What it says.
    ///
    /// # Errors
    /// When it fails, or says something else.
    fn told<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.hear()?;
        serde_json::from_str(&line).with_context(|| format!("process {} says {line:.80?}", self.name()))
    }

    /// It has done a step.
    ///
    /// # Errors
    /// As [`told`](Self::told).
    fn done(&mut self) -> Result<()> {
        self.told()
    }

    /// It does its next step.
    ///
    /// # Errors
    /// As [`told`](Self::told).
    fn does(&mut self) -> Result<()> {
        self.asked()
    }

    /// It does its next step, and says what that came to.
    ///
    /// # Errors
    /// As [`told`](Self::told).
    fn asked<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.tell(&())?;
        self.told()
    }
}

/// A moment of the demo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Queues and fences are there, and doorbells connected; nothing is submitted yet.
    Ready,
    /// All work is queued, A's endless buffer behind its own.
    Queued,
    /// B has its picture.
    Whole,
    /// A works again: with a new device, or, where nothing hung, with the one that it had.
    Over,
}

/// What the processes said.
pub struct Accounts {
    /// What A made at its beginning.
    pub made: Made,
    /// Process A at the end.
    pub a: Account,
    /// Process B at the end.
    pub b: Account,
    /// Whether the endless buffer was to hang its engine.
    pub hangs: bool,
}

/// Plays with two processes that have begun their parts; `hangs`: the driver does not take an endless buffer off. `at`
/// is called at each moment. The processes wait for one more word then, and end.
///
/// # Errors
/// What the drivers refuse, and states that are not the documented ones.
pub fn play<A: Actor>(
    a: &mut A,
    b: &mut A,
    photo: &Picture,
    hangs: bool,
    at: &mut dyn FnMut(Moment, &Made, [&A; 2]),
) -> Result<Accounts> {
    let task = Task { width: photo.width, height: photo.height, pixels: photo.pixels.clone(), shares: [0; 3], hangs };
    a.tell(&task)?;
    let made: Made = a.told()?;
    let mut shares = made.shares;
    for handle in &mut shares {
        *handle = b.receive(a, *handle)?;
    }
    b.tell(&Task { pixels: Vec::new(), shares, ..task })?;
    b.done()?;
    a.does()?;
    at(Moment::Ready, &made, [a, b]);
    a.does()?;
    b.does()?;
    a.does()?;
    b.does()?;
    at(Moment::Queued, &made, [a, b]);
    b.does()?;
    at(Moment::Whole, &made, [a, b]);
    a.does()?;
    at(Moment::Over, &made, [a, b]);
    let (of_a, of_b) = (a.asked()?, b.asked()?);
    Ok(Accounts { made, a: of_a, b: of_b, hangs })
}

impl Accounts {
    /// The picture that B got.
    pub fn picture(&self, photo: &Picture) -> Picture {
        Picture { pixels: self.b.pixels.clone(), ..*photo }
    }

    /// Whether it is what a plain computation gives.
    pub fn is_right(&self, photo: &Picture) -> bool {
        self.picture(photo) == recipe::expected(photo)
    }

    /// State of A's device behind its endless buffer.
    pub fn hung_state(&self) -> D3DKMT_DEVICEEXECUTION_STATE {
        D3DKMT_DEVICEEXECUTION_STATE(self.a.state)
    }

    /// State of B's device at the end.
    pub fn other_state(&self) -> D3DKMT_DEVICEEXECUTION_STATE {
        D3DKMT_DEVICEEXECUTION_STATE(self.b.state)
    }

    /// What of the processes' own words does not fit, a sentence each; the picture apart.
    pub fn complaints(&self) -> Vec<String> {
        const ACTIVE: D3DKMT_DEVICEEXECUTION_STATE = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_ACTIVE;
        const HUNG: D3DKMT_DEVICEEXECUTION_STATE = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_HUNG;
        const RESET: D3DKMT_DEVICEEXECUTION_STATE = D3DKMT_DEVICEEXECUTION_STATE::D3DKMT_DEVICEEXECUTION_RESET;
        let mut found = Vec::new();
        if self.b.values.len() != 2 {
            found.push(format!("process B says the values of {} fences, not of 2", self.b.values.len()));
        }
        for (name, value) in ["composed", "done"].into_iter().zip(&self.b.values) {
            if *value != 1 {
                found.push(format!("'{name}' ends at {value}, not 1"));
            }
        }
        let state = self.hung_state();
        let fits = if self.hangs { [HUNG, RESET].contains(&state) } else { state == ACTIVE };
        if !fits {
            let what = if self.hangs { "hung its engine" } else { "hung nothing" };
            found.push(format!("process A {what}, and its device is {:?}", self.hung_state()));
        }
        if self.other_state() != ACTIVE {
            found.push(format!("process B's device is {:?}", self.other_state()));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use D3DKMT_DEVICEEXECUTION_STATE as State;

    fn accounts(hangs: bool) -> Accounts {
        let account = |state: State, values: &[u64]| Account {
            lanes: Vec::new(),
            fences: Vec::new(),
            values: values.to_vec(),
            submit_calls: 0,
            state: state.0,
            pixels: vec![0; 4],
            cpu_wait: (0, 0),
        };
        let a = if hangs { State::D3DKMT_DEVICEEXECUTION_HUNG } else { State::D3DKMT_DEVICEEXECUTION_ACTIVE };
        let made = Made { shares: [0; 3], doorbells: true, monitored: false, rung: 3 };
        Accounts { made, a: account(a, &[]), b: account(State::D3DKMT_DEVICEEXECUTION_ACTIVE, &[1, 1]), hangs }
    }

    /// One word that is wrong is one complaint.
    #[test]
    fn what_a_process_says_wrong_is_a_complaint() {
        type Spoil = fn(&mut Accounts);
        let spoilt: [(&str, Spoil); 5] = [
            ("'composed' ends at 2", |said| said.b.values[0] = 2),
            ("the values of 1 fences", |said| said.b.values.truncate(1)),
            ("process A ", |said| said.hangs = !said.hangs),
            ("process A ", |said| said.a.state = State::D3DKMT_DEVICEEXECUTION_ERROR_OUTOFMEMORY.0),
            ("process B's device is", |said| said.b.state = State::D3DKMT_DEVICEEXECUTION_HUNG.0),
        ];
        for hangs in [true, false] {
            assert_eq!(accounts(hangs).complaints(), [""; 0]);
            for (text, spoil) in spoilt {
                let mut said = accounts(hangs);
                spoil(&mut said);
                let found = said.complaints();
                assert!(found.len() == 1 && found[0].contains(text), "{text}: {found:?}");
            }
        }
    }

    #[test]
    fn one_wrong_pixel_is_a_wrong_picture() {
        let photo = Picture { width: 1, height: 1, pixels: vec![9, 9, 9, 255] };
        let mut said = accounts(true);
        said.b.pixels = recipe::expected(&photo).pixels;
        assert!(said.is_right(&photo));
        said.b.pixels[2] ^= 1;
        assert!(!said.is_right(&photo));
    }
}
