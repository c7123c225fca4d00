//! Waits for what does not come.

use crate::scenario::client::{Client, endless, returned, until_idle};
use crate::scenario::raw::duplicate_number;
use crate::scenario::stage::PATIENCE;
use crate::scenario::{Played, Setup, Stage, begin_wait, same};
use anyhow::{bail, ensure};

/// What `FpDeviceState::execution` says of a device that works.
const ACTIVE: u32 = 1;

pub(super) fn deadlock(stage: &Stage) -> Played {
    stage.play(Setup::default().quick_tdr(), |scene| {
        let rig = Client::open(scene, "client")?;
        let (one, two, third) = (rig.queue(0)?, rig.queue(1)?, rig.queue(0)?);
        let (page, others) = (rig.page()?, rig.page()?);
        let (first, second) = (rig.fence(0, true)?, rig.fence(0, true)?);
        begin_wait(scene, &one, &second, 1, &page, 1)?;
        one.run(|list| list.signal(&first, 1))?;
        begin_wait(scene, &two, &first, 1, &others, 1)?;
        two.run(|list| list.signal(&second, 1))?;
        // Each is asked whether its engine answers, twice at least; it does.
        let mut round = 0;
        scene.until("the probes", || {
            round += 1;
            third.run(|list| list.store(page.at(2), round))?;
            until_idle(scene, &third)?;
            same("a queue of its own", page.word(2)?, round)?;
            Ok(scene.world.os.report().adapters.first().is_some_and(|adapter| adapter.innocent_probes >= 4))
        })?;
        same("what is behind the waits", (page.word(1)?, others.word(1)?), (0, 0))?;
        same("the fences", (rig.value(&first)?, rig.value(&second)?), (0, 0))?;
        same("the device", rig.device.state()?.execution, ACTIVE)?;
        // Somebody else can end it.
        rig.signal(&[(&second, 1)])?;
        page.until(scene, "one side", 1, 1)?;
        others.until(scene, "the other side", 1, 1)?;
        until_idle(scene, &one)?;
        until_idle(scene, &two)
    })
}

pub(super) fn producer_hangs(stage: &Stage) -> Played {
    stage.play(Setup::default().quick_tdr().resets(1), |scene| {
        let (producer, consumer) = (Client::open(scene, "producer")?, Client::open(scene, "consumer")?);
        let fence = producer.device.shared_fence(0)?;
        let share = duplicate_number(fence.share()?, &producer.user.process, &consumer.user.process)?;
        let opened = consumer.device.open_fence(share, false)?;
        let (waits, works, page) = (consumer.queue(1)?, consumer.queue(1)?, consumer.page()?);
        begin_wait(scene, &waits, &opened, 5, &page, 1)?;
        let event = consumer.wait(&[(&opened, 5)], false)?;
        let call = consumer.block(&[(&opened, 6)], false)?;
        let hangs = producer.queue(0)?;
        let (_memory, address, length) = endless(&producer.device)?;
        hangs.run(|list| {
            list.indirect(address, length)?;
            list.signal(&fence, 5)
        })?;
        works.run(|list| list.store(page.at(2), 1))?;
        page.until(scene, "the consumer's other queue", 2, 1)?;
        event.comes(&consumer, "the consumer's event")?;
        let ended = returned("the consumer's wait", &call)?;
        if let Err(refused) = ended {
            bail!("the consumer's wait must succeed, since its own device is well, and failed: {refused}");
        }
        page.until(scene, "what is behind the consumer's wait", 1, 1)?;
        scene.until("the loss of the producer's device", || Ok(producer.device.state()?.execution != ACTIVE))?;
        same("the consumer's device", consumer.device.state()?.execution, ACTIVE)?;
        ensure!(hangs.wait(0, PATIENCE).is_err(), "the hung work was reported as done");
        // Later waits find the fence as it is.
        same("a later wait", returned("a later wait", &consumer.block(&[(&opened, 7)], false)?)?, Ok(()))?;
        works.run(|list| list.store(page.at(2), 2))?;
        page.until(scene, "the consumer's work after the reset", 2, 2)
    })
}
