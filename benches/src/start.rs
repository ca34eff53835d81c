//! What it costs to start a job: as a whole process, and inside one process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio as ProcessStdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tidemill_core::grant::PathAccess;
use tidemill_core::job::{Network, User};
use tidemill_core::root::{Account, Node, Owners, RootMount};
use tidemill_core::{Limits, RootPlan};
use tidemill_sandbox::{Launcher, LauncherConfig, SandboxRequest, Stdio};

use crate::figures::{Figures, table};
use crate::{peers, runner};

/// Measures all subjects and gives the tables.
pub(crate) fn run(rounds: usize) -> anyhow::Result<String> {
    let mut text = whole_processes(rounds)?;
    text.push_str(&in_one_process(rounds * 5)?);
    Ok(text)
}

fn now() -> Instant {
    Instant::now()
}

pub(crate) fn timed(mut command: Command) -> anyhow::Result<Duration> {
    command
        .stdin(ProcessStdio::null())
        .stdout(ProcessStdio::null())
        .stderr(ProcessStdio::null());
    let start = now();
    let status = command
        .status()
        .with_context(|| format!("starting {command:?}"))?;
    let elapsed = start.elapsed();
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(elapsed)
}

/// The `tidemill` that was built beside this program.
pub(crate) fn binary() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("tidemill");
    ensure!(
        path.exists(),
        "{} is not there: run `cargo build --release` first",
        path.display()
    );
    Ok(path)
}

fn tidemill(binary: &Path, state: &Path) -> Command {
    let mut command = Command::new(binary);
    command.env("TIDEMILL_STATE", state);
    command.args(["run", "--no-workspace", "--", "/bin/true"]);
    command
}

fn whole_processes(rounds: usize) -> anyhow::Result<String> {
    let binary = binary()?;
    let scratch = tempfile::tempdir()?;
    let (subjects, absent) = peers::installed(&scratch.path().join("bundle"))?;
    let warm_state = scratch.path().join("warm");
    timed(tidemill(&binary, &warm_state))?;
    let mut warm = Figures::new("tidemill run, warm state");
    let mut cold = Figures::new("tidemill run, cold state");
    let mut others: Vec<Figures> = subjects
        .iter()
        .map(|subject| Figures::new(subject.name))
        .collect();
    for round in 1..=rounds {
        for (subject, figures) in subjects.iter().zip(&mut others) {
            figures.samples.push(timed(peers::command(subject, round))?);
        }
        warm.samples.push(timed(tidemill(&binary, &warm_state))?);
        let state = scratch.path().join(format!("cold-{round}"));
        cold.samples.push(timed(tidemill(&binary, &state))?);
        std::fs::remove_dir_all(&state)?;
    }
    others.extend([warm, cold]);
    let mut text = table("`/bin/true` as a whole process", "bwrap", &others);
    for name in absent {
        text.push_str("skipped: ");
        text.push_str(name);
        text.push_str(": it is not installed or does not work here\n");
    }
    Ok(text)
}

/// A launcher of sandboxes that is this program itself.
pub(crate) fn launcher(state: &Path) -> anyhow::Result<Launcher> {
    Ok(Launcher::start(&LauncherConfig {
        state_dir: state.to_owned(),
        exe: std::env::current_exe()?,
        first: Vec::new(),
    })?)
}

/// Measures sandboxes from a launcher, one after the other.
pub(crate) fn sandboxes(rounds: usize) -> anyhow::Result<String> {
    let state = tempfile::tempdir()?;
    let launcher = launcher(state.path())?;
    let subjects = beside_bare(&launcher, rounds)?;
    let title = "`/bin/true` in a sandbox, start to all gone";
    Ok(table(title, "bare spawn", &subjects))
}

/// A bare spawn and a sandbox, in turns.
fn beside_bare(launcher: &Launcher, rounds: usize) -> anyhow::Result<Vec<Figures>> {
    let program = Program::of_the_host();
    let mut bare = Figures::new("bare spawn");
    let mut sandboxes = Figures::new("sandbox from a launcher");
    for round in 0..rounds {
        bare.samples.push(timed(Command::new("/bin/true"))?);
        sandboxes
            .samples
            .push(one_sandbox(launcher, &program, round)?);
    }
    Ok(vec![bare, sandboxes])
}

/// A program to run in a sandbox.
#[derive(Debug)]
pub(crate) struct Program {
    /// Where it is, outside and inside.
    pub(crate) path: PathBuf,
    /// The directory of the host that has to be mounted for it.
    pub(crate) directory: Option<PathBuf>,
}

impl Program {
    /// The host's own, which loads a library.
    pub(crate) fn of_the_host() -> Self {
        Self {
            path: "/bin/true".into(),
            directory: None,
        }
    }
}

/// The time from the request to the end of all of it.
pub(crate) fn one_sandbox(
    launcher: &Launcher,
    program: &Program,
    round: usize,
) -> anyhow::Result<Duration> {
    let request = request(program, round);
    let null = || -> anyhow::Result<_> { Ok(std::fs::File::open("/dev/null")?.into()) };
    let out = || -> anyhow::Result<_> {
        Ok(std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/null")?
            .into())
    };
    let stdio = Stdio {
        stdin: null()?,
        stdout: out()?,
        stderr: out()?,
    };
    let start = now();
    let sandbox = launcher.spawn(&request, stdio)?;
    let ended = sandbox.wait()?;
    let elapsed = start.elapsed();
    ensure!(ended.exit_code == Some(0), "the job ended with {ended:?}");
    Ok(elapsed)
}

fn in_one_process(rounds: usize) -> anyhow::Result<String> {
    let state = tempfile::tempdir()?;
    let launcher = launcher(state.path())?;
    let mut subjects = beside_bare(&launcher, rounds)?;
    subjects.push(runner::one_after_the_other(launcher, state.path(), rounds)?);
    let title = "`/bin/true` from one process, start to all gone";
    Ok(table(title, "bare spawn", &subjects))
}

fn request(program: &Program, round: usize) -> SandboxRequest {
    let link = |path: &str, target: &str| Node::Symlink {
        path: path.into(),
        target: target.into(),
    };
    let mount = |path: &str| RootMount {
        source: path.into(),
        dest: path.into(),
        over: Vec::new(),
        access: PathAccess::ReadOnly,
        owners: Owners::AsIs,
        hidden: Vec::new(),
        why: "the host's programs".into(),
    };
    let user = User {
        uid: 1000,
        gid: 1000,
    };
    let account = Account {
        user,
        name: "job".into(),
        home: "/home/job".into(),
        groups: Vec::new(),
    };
    SandboxRequest {
        name: format!("bench-{}-{round}", std::process::id()),
        root: RootPlan {
            trees: Vec::new(),
            nodes: vec![
                link("/bin", "usr/bin"),
                link("/lib", "usr/lib"),
                link("/lib64", "usr/lib64"),
                Node::Dir {
                    path: "/home/job".into(),
                    mode: 0o755,
                    job_owned: true,
                },
            ],
            mounts: ["/usr", "/etc"]
                .into_iter()
                .map(mount)
                .chain(
                    program
                        .directory
                        .iter()
                        .map(|path| mount(&path.to_string_lossy())),
                )
                .collect(),
            files: Vec::new(),
            account,
            root_writable: false,
            devices: Vec::new(),
            sys: false,
            allow: Vec::new(),
        },
        program: program.path.to_string_lossy().into_owned(),
        args: Vec::new(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        workdir: "/".into(),
        network: Network::None,
        limits: Limits::default(),
        tty: false,
        wait_children: false,
        scratch: None,
        measured: false,
    }
}
