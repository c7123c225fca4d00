//! Clients that try what they must not get: more of the pages that they were handed, other processes' objects, the
//! machine itself.
#![expect(unsafe_code, reason = "mappings that must be refused are asked for")]

use super::{Here, PATIENCE, hear, listen, say, thunk, worked};
use crate::separate::client::{ask, machine};
use crate::separate::wire::Kind;
use anyhow::{Context, Result, ensure};
use nt_model::memory::Handed;
use nt_model::{PAGE_SIZE, Rights};
use rustix::fs::SealFlags;
use rustix::io::FdFlags;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use wddm_abi::{
    D3DKMT_CLOSEADAPTER, D3DKMT_CONNECT_DOORBELL, D3DKMT_DESTROY_DOORBELL, D3DKMT_DESTROYCONTEXT, D3DKMT_DESTROYDEVICE,
    D3DKMT_DESTROYHWQUEUE, D3DKMT_GETDEVICESTATE, D3DKMT_NOTIFY_WORK_SUBMISSION, ntstatus,
};

/// Pages that the machine has handed over: where they are mapped, the file, the rights.
struct Kept {
    at: usize,
    handed: Handed,
    rights: Rights,
}

/// Files are kept, which an honest agent closes.
static KEEPING: OnceLock<()> = OnceLock::new();
static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// A role that attacks pages keeps the files of all.
pub fn begin(role: &str) {
    if role == "pages" {
        let _ = KEEPING.set(());
    }
}

/// What the agent does with files that it has mapped.
pub fn keep(at: usize, handed: Handed, rights: Rights) {
    if KEEPING.get().is_some() {
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(Kept { at, handed, rights });
    }
}

/// Whether the agent does nothing more, and says so.
static REFUSES: AtomicBool = AtomicBool::new(false);
/// Whether the agent does nothing more, and computes instead.
static SPINS: AtomicBool = AtomicBool::new(false);

/// What the agent asks in front of each change of a mapping.
pub fn refuses() -> bool {
    while SPINS.load(Ordering::Acquire) {
        std::hint::spin_loop();
    }
    REFUSES.load(Ordering::Acquire)
}

/// Has its agent compute without an end where it is to take a page away.
pub fn spin(here: &Here) -> Result<()> {
    let _client = worked(here, 1)?;
    SPINS.store(true, Ordering::Release);
    say("spins");
    hear("never")
}

/// Has its agent refuse: no page can be taken away from this process.
pub fn refuse(here: &Here) -> Result<()> {
    let _client = worked(here, 1)?;
    REFUSES.store(true, Ordering::Release);
    say("refuses");
    hear("never")
}

/// Opens connections that say nothing, and more than a client may have.
pub fn crowd(here: &Here) -> Result<()> {
    let client = worked(here, 1)?;
    let silent = || -> Result<OwnedFd> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(machine().as_bytes())?)?;
        Ok(socket)
    };
    let mut sockets = vec![silent()?];
    // A new thread, whose connection stands behind the one that says nothing.
    let begun = Instant::now();
    let event = std::thread::spawn(|| ask(Kind::CreateEvent, &[0, 0], "")).join();
    ensure!(event.is_ok_and(|event| event != 0), "no event");
    ensure!(begun.elapsed() < Duration::from_secs(10), "a connection waited {:?} for another", begun.elapsed());
    for _ in 0..300 {
        sockets.push(silent()?);
    }
    say("crowd");
    hear("go")?;
    // The connections that there were are served.
    let at = client.memory.gpu_va()?;
    let progress = client.queue.run(|list| list.store(at, 2))?;
    client.queue.wait(progress, PATIENCE)?;
    say("done");
    hear("never")
}

/// Asks for a writable mapping of a file. It must be refused.
fn map_writable(file: impl AsFd, bytes: usize) -> bool {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: at an address of the system's choice; nothing is done with what is there.
    unsafe { mmap(ptr::null_mut(), bytes, rights, MapFlags::SHARED, file, 0) }.is_ok()
}

/// Tries to store to pages that may only be read.
fn write_to_read_only(kept: &Kept) -> Result<()> {
    let bytes = kept.handed.pages * PAGE_SIZE;
    let at = ptr::with_exposed_provenance_mut(kept.at);
    // SAFETY: a mapping of the machine's; more rights do no harm here.
    let raised = unsafe { mprotect(at, bytes, MprotectFlags::READ | MprotectFlags::WRITE) }.is_ok();
    ensure!(!raised, "mprotect makes a read-only page writable");
    ensure!(!map_writable(&kept.handed.file, bytes), "a read-only file is mapped writable");
    let mut file = File::from(kept.handed.file.try_clone()?);
    let refused = file.write(&[1]).err().and_then(|error| error.raw_os_error());
    ensure!(
        refused == Some(rustix::io::Errno::BADF.raw_os_error()),
        "the file is open for stores as well: {refused:?}"
    );
    let path = format!("/proc/self/fd/{}", kept.handed.file.as_raw_fd());
    let Ok(mut again) = File::options().read(true).write(true).open(path) else { return Ok(()) };
    ensure!(!map_writable(&again, bytes), "a file that is opened again is mapped writable");
    ensure!(again.write(&[1]).is_err(), "a file that is opened again is written");
    ensure!(again.set_len(0).is_err(), "a file that is opened again is cut short");
    Ok(())
}

/// Tries to get more of the pages that it was handed, and into the machine's process.
pub fn pages(here: &Here) -> Result<()> {
    let client = worked(here, 1)?;
    let kept = std::mem::take(&mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner));
    let mut read_only = 0;
    for one in &kept {
        let file = File::from(one.handed.file.try_clone()?);
        let size = file.metadata()?.len();
        ensure!(size == (one.handed.pages * PAGE_SIZE) as u64, "a file of {size} bytes for {} pages", one.handed.pages);
        ensure!(file.set_len(0).is_err(), "a file is cut short");
        let sealed = rustix::fs::fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).is_ok();
        ensure!(!sealed, "a file has seals of the attacker's: the next one that gets it could not map it");
        if one.rights == Rights::Read {
            write_to_read_only(one)?;
            read_only += 1;
        }
    }
    let parent = std::os::unix::process::parent_id();
    for what in ["mem", "maps", "environ"] {
        let path = format!("/proc/{parent}/{what}");
        let got = File::open(&path).and_then(|mut file| std::io::Read::read(&mut file, &mut [0]));
        ensure!(got.is_err(), "{path} is read");
    }
    ensure!(std::fs::read_dir(format!("/proc/{parent}/fd")).is_err(), "the machine's files are listed");
    for number in 0..64 {
        let path = format!("/proc/{parent}/fd/{number}");
        ensure!(File::open(&path).is_err(), "{path} is opened");
    }
    ensure!(read_only >= 3, "{read_only} read-only pages: of a status, of the queue's progress, of a fence");
    say("refused");
    hear("go")?;
    let at = client.memory.gpu_va()?;
    let progress = client.queue.run(|list| list.store(at, 2))?;
    client.queue.wait(progress, PATIENCE)?;
    ensure!(client.memory.read_u64(0)? == 2, "the attack has harmed its own process's work");
    say("done");
    hear("end")
}

/// Leaves a process behind that holds every file of this one, its connections among them.
pub fn leave_behind(here: &Here) -> Result<()> {
    let _client = worked(here, 1)?;
    for number in 3..256 {
        // SAFETY: a number of this process's; where no file has it, the call fails.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        let _ = rustix::io::fcntl_setfd(file, FdFlags::empty());
    }
    let left = Command::new("/bin/sleep").arg("60").stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    say(&left.id().to_string());
    hear("end")
}

/// Names objects of another process, of which the case says the handles.
pub fn foreign() -> Result<()> {
    say("ready");
    let line = listen()?;
    let handles = line.split(' ').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    let [adapter, device, context, queue, doorbell] = *handles.first_chunk().context("five handles")?;
    macro_rules! calls {
        ($($thunk:ident($record:ident . $member:ident = $handle:ident);)*) => {
            [$({
                let mut record = $record::zeroed();
                record.$member = $handle;
                (stringify!($thunk), thunk(stringify!($thunk), &mut record))
            }),*]
        };
    }
    let calls = calls! {
        D3DKMTConnectDoorbell(D3DKMT_CONNECT_DOORBELL.hDoorbell = doorbell);
        D3DKMTNotifyWorkSubmission(D3DKMT_NOTIFY_WORK_SUBMISSION.hDoorbell = doorbell);
        D3DKMTDestroyDoorbell(D3DKMT_DESTROY_DOORBELL.hDoorbell = doorbell);
        D3DKMTDestroyHwQueue(D3DKMT_DESTROYHWQUEUE.hHwQueue = queue);
        D3DKMTDestroyContext(D3DKMT_DESTROYCONTEXT.hContext = context);
        D3DKMTGetDeviceState(D3DKMT_GETDEVICESTATE.hDevice = device);
        D3DKMTDestroyDevice(D3DKMT_DESTROYDEVICE.hDevice = device);
        D3DKMTCloseAdapter(D3DKMT_CLOSEADAPTER.hAdapter = adapter);
    };
    for (name, status) in calls {
        ensure!(status == ntstatus::STATUS_INVALID_PARAMETER, "{name}: {status:?}");
    }
    say("refused");
    hear("end")
}

/// Has another process say that it is this one.
pub fn forge() -> Result<()> {
    let mut forger = Command::new("/proc/self/exe");
    forger.args(["client", machine(), "submit"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = forger.status().context("the forger does not start")?;
    ensure!(!status.success(), "another process is taken for this one");
    say("refused");
    hear("end")
}
