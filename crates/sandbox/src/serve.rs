//! The launcher process: a small program with one thread, from which all wardens are forked.
//!
//! It is started by [`crate::Launcher`] with a socket as standard input. It has no secrets: its
//! environment is empty, and it holds no descriptor of its owner beyond that socket. When the socket
//! closes, because its owner ended in whatever way, the links of the wardens close too: each kills its
//! sandbox and ends, and then so does this process. When it is killed itself, the kernel kills each
//! warden, each process 1, and with it each sandbox.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use tidemill_core::check::OPEN_FILES_MAX;
use tidemill_core::job::Network;
use tidemill_core::limits::OPEN_FILES_DEFAULT;

use crate::cgroup::{CgroupPlaces, remove_groups};
use crate::dev;
use crate::identity::Identity;
use crate::namespace::assume_identity;
use crate::request::read_all;
use crate::seccomp::{Filter, FilterKind};
use crate::shares::Shares;
use crate::sweep::{LauncherNote, sweep_launchers};
use crate::sys::{process, socket};
use crate::warden;

/// What the launcher says first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// How ids are mapped, or why no sandbox can be made here.
    pub(crate) identity: Result<Identity, String>,
    /// Why sub-ids are not used, where they are not.
    pub(crate) no_sub_ids: Option<String>,
}

/// What the owner says first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) state_dir: PathBuf,
}

/// What the owner asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Demand {
    /// A warden, with the other end of its link.
    Warden { network: Network },
    /// This program, run again: a file with the arguments, and where its output goes.
    Help,
}

/// Runs the launcher on the socket that is standard input. The binary's `main` calls this, before
/// anything else, when its first argument is [`crate::LAUNCHER_ARG`].
pub fn launcher_main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the sandbox launcher failed");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    process::set_name(c"tidemill-launch");
    process::reset_signals();
    process::ignore_group_signals();
    // What our owner's own caller left open is none of our business, nor of any process 1.
    process::close_from(3)?;
    let owner = process::copy_up(rustix::stdio::stdin())?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
    process::duplicate_onto(null.as_fd(), 0)?;
    process::duplicate_onto(null.as_fd(), 1)?;
    drop(null);
    let (bytes, _) = socket::receive(owner.as_fd(), true)?;
    let settings: Settings = serde_json::from_slice(&bytes)?;
    // A job's own limits come from its spec, and not from whoever started this: a launcher with the
    // privilege for it raises what was lowered. One without leaves the jobs with what there is.
    process::limit_resource(
        libc::RLIMIT_NOFILE,
        u64::from(OPEN_FILES_DEFAULT),
        u64::from(OPEN_FILES_MAX),
    )?;
    let places = CgroupPlaces::find();
    let mut no_sub_ids = None;
    let identity = assume_identity(&mut no_sub_ids);
    let hello = Hello {
        identity: identity.clone(),
        no_sub_ids,
    };
    socket::send(owner.as_fd(), &serde_json::to_vec(&hello)?, &[])?;
    let Ok(identity) = identity else {
        // To leave with something unread would take back what was just said.
        while !socket::receive(owner.as_fd(), true)?.0.is_empty() {}
        return Ok(());
    };
    // Compiled once, here, for all jobs: their wardens are forked from this process.
    Filter::of(FilterKind::default());
    let mut launcher = Server {
        owner,
        settings,
        places: Rc::new(places),
        identity,
        site: None,
        wardens: Vec::new(),
        next_warden: 0,
        memory: total_memory(),
        shares: Shares::of_this_user(),
        helpers: Vec::new(),
        is_all_gone: true,
    };
    let result = launcher.run();
    if let Some(site) = launcher.site.take_if(|_| launcher.is_all_gone) {
        site.note.remove();
    }
    result
}

/// One warden from the launcher's side.
struct Warden {
    pid: i32,
    pidfd: OwnedFd,
    group_prefix: String,
}

/// What wardens have in common in the state directory.
struct Site {
    note: LauncherNote,
    dev: Option<Rc<dev::Template>>,
}

struct Server {
    owner: OwnedFd,
    settings: Settings,
    places: Rc<CgroupPlaces>,
    identity: Identity,
    /// Made for the first warden: whoever only wants help needs no room on a disk.
    site: Option<Site>,
    wardens: Vec<Warden>,
    next_warden: usize,
    /// The host's memory in bytes.
    memory: u64,
    shares: Shares,
    /// Programs that were started for the owner, until they are reaped.
    helpers: Vec<Child>,
    /// False if a group could not be removed: then the note stays, for a later sweep.
    is_all_gone: bool,
}

impl Server {
    fn run(&mut self) -> io::Result<()> {
        // What launchers that were killed have left.
        sweep_launchers(&self.settings.state_dir);
        loop {
            let (owner_spoke, ended) = self.wait()?;
            for index in ended.into_iter().rev() {
                let warden = self.wardens.swap_remove(index);
                self.bury(&warden);
            }
            if owner_spoke && !self.serve_demand()? {
                break;
            }
        }
        // A process that is stuck in the kernel keeps its warden, and that us; it must not keep whoever
        // reads what our owner wrote.
        process::silence_stderr()?;
        // Their links have closed with our owner's end.
        for warden in std::mem::take(&mut self.wardens) {
            self.bury(&warden);
        }
        for mut helper in std::mem::take(&mut self.helpers) {
            // It may have ended by itself.
            helper.kill().ok();
            helper.wait()?;
        }
        Ok(())
    }

    /// Waits until the owner has something for us, or a warden has ended.
    fn wait(&self) -> io::Result<(bool, Vec<usize>)> {
        let mut fds = vec![PollFd::new(&self.owner, PollFlags::IN)];
        for warden in &self.wardens {
            fds.push(PollFd::new(&warden.pidfd, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok((false, Vec::new())),
            Err(error) => return Err(error.into()),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let ended = (0..self.wardens.len()).filter(|index| is_ready(&fds[index + 1]));
        Ok((is_ready(&fds[0]), ended.collect()))
    }

    /// Waits for the end of a warden, and removes its groups.
    fn bury(&mut self, warden: &Warden) {
        if let Err(error) = process::reap(warden.pid, true) {
            tracing::warn!(%error, "a warden was not reaped");
        }
        for place in Rc::clone(&self.places).directories() {
            for (path, error) in remove_groups(place, &warden.group_prefix) {
                if let Some(error) = error {
                    self.is_all_gone = false;
                    tracing::warn!(path = %path.display(), %error, "a cgroup was not removed");
                }
            }
        }
    }

    /// Takes one demand. False if the owner is gone.
    fn serve_demand(&mut self) -> io::Result<bool> {
        let (bytes, fds) = socket::receive(self.owner.as_fd(), true)?;
        self.helpers
            .retain_mut(|helper| matches!(helper.try_wait(), Ok(None)));
        if bytes.is_empty() {
            return Ok(false);
        }
        let mut fds = fds.into_iter();
        match (serde_json::from_slice(&bytes)?, fds.next(), fds.next()) {
            (Demand::Warden { network }, Some(link), _) => self.fork_warden(link, network)?,
            (Demand::Help, Some(arguments), Some(output)) => {
                // Its output ends before it began, which its owner takes for a failure.
                self.help(arguments, output).ok();
            }
            _ => {}
        }
        Ok(true)
    }

    /// The common part of all wardens.
    fn site(&mut self) -> io::Result<&Site> {
        if self.site.is_none() {
            let note = LauncherNote::write(&self.settings.state_dir, &self.places)?;
            // A kernel that cannot copy it has /dev made for each job.
            let dev = dev::Template::make(&note.directory.join("dev")).ok();
            let dev = dev.map(Rc::new);
            self.site = Some(Site { note, dev });
        }
        self.site
            .as_ref()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Forks a warden. If that fails, its link closes, which its owner notices.
    ///
    /// # Errors
    /// If what it has in common with the others cannot be made.
    fn fork_warden(&mut self, link: OwnedFd, network: Network) -> io::Result<()> {
        let turn = self.next_warden;
        self.next_warden += 1;
        let site = self.site()?;
        let group_prefix = format!("{}{turn}-", site.note.group_prefix);
        let dev = site.dev.clone();
        let pid = match process::clone_process(0) {
            Ok(process::Cloned::Parent(pid)) => pid,
            Ok(process::Cloned::Child) => {
                process::close_copy(self.owner.as_fd());
                self.wardens.clear();
                let settings = warden::Settings {
                    link,
                    network,
                    state_dir: self.settings.state_dir.clone(),
                    places: Rc::clone(&self.places),
                    identity: self.identity,
                    dev,
                    group_prefix,
                    turn,
                    memory: self.memory,
                    shares: self.shares,
                };
                let result = warden::live(settings);
                if let Err(error) = &result {
                    tracing::error!(%error, "a warden failed");
                }
                process::exit_now(i32::from(result.is_err()))
            }
            Err(error) => {
                tracing::error!(%error, "a warden could not be forked");
                return Ok(());
            }
        };
        match process::open_pidfd(pid) {
            Ok(pidfd) => self.wardens.push(Warden {
                pid,
                pidfd,
                group_prefix,
            }),
            Err(error) => tracing::error!(%error, "a warden cannot be watched"),
        }
        Ok(())
    }

    /// Starts this program again, with these arguments, as root of the launcher's user namespace.
    fn help(&mut self, arguments: OwnedFd, output: OwnedFd) -> io::Result<()> {
        let arguments: Vec<String> = serde_json::from_slice(&read_all(arguments)?)?;
        let helper = Command::new("/proc/self/exe")
            .arg0("tidemill")
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .stdout(output)
            .spawn()?;
        self.helpers.push(helper);
        Ok(())
    }
}

/// The host's memory in bytes.
fn total_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| {
            rest.trim()
                .trim_end_matches(" kB")
                .trim()
                .parse::<u64>()
                .ok()
        })
        .map_or(1 << 30, |kib| kib * 1024)
}
