//! One attempt, from the plan of its root to its end. It runs on a thread of its own and blocks.

pub(crate) mod log_notes;
pub(crate) mod outcome;
mod pump;
pub(crate) mod stop;

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tidemill_core::job::{Network, Stdin};
use tidemill_core::{ByteSize, Event, JobSpec, LogTotals, Reason, ReasonCode};
use tidemill_dispatch::{JobEnd, JobId};
use tidemill_image::Planned;
use tidemill_log::LogSpool;
use tidemill_sandbox::{SandboxRequest, StartError, Stdio};

use self::pump::{Pump, Pumped};
use self::stop::StopSwitch;
use crate::images::{Images, is_jobs_own_fault};
use crate::live::LiveSink;
use crate::reporter::{JobReporter, Receipt};
use crate::sandboxes::{Output, Sandboxes};

/// Everything that one attempt needs.
pub(crate) struct Attempt {
    pub(crate) job: JobId,
    pub(crate) spec: Arc<JobSpec>,
    pub(crate) images: Arc<dyn Images>,
    pub(crate) sandboxes: Arc<dyn Sandboxes>,
    pub(crate) reporter: JobReporter,
    /// Comes when the record says that this attempt has begun. Nothing starts before.
    pub(crate) begun: Receipt,
    pub(crate) stop: StopSwitch,
    pub(crate) live: Option<Box<dyn LiveSink>>,
    pub(crate) stdin: Option<OwnedFd>,
    /// Where the log goes.
    pub(crate) spool: PathBuf,
    /// Where the private layer goes, if not into memory.
    pub(crate) scratch: Option<PathBuf>,
}

/// What goes into the sandbox, and what stays outside.
struct Wiring {
    output: Box<dyn Output>,
    stdio: Stdio,
}

impl Attempt {
    /// Runs it to its end. Nothing of it is left when this returns, and all of its output was given
    /// on.
    pub(crate) fn run(mut self) -> JobEnd {
        let end = match self.prepare() {
            Ok((request, wiring, planned)) => self.start(&request, wiring, &planned),
            Err(end) => *end,
        };
        self.stop.over();
        end
    }

    fn prepare(&mut self) -> Result<(SandboxRequest, Wiring, Planned), Box<JobEnd>> {
        // The plan is made while the record is being written.
        let planned = self.images.plan(&self.spec);
        self.begun.wait().map_err(|why| {
            Box::new(JobEnd::SystemError(
                Reason::new(ReasonCode::Internal, why)
                    .with_hint("check the state directory: its disk may be full or read-only"),
            ))
        })?;
        let planned = planned.map_err(|reason| {
            Box::new(if is_jobs_own_fault(&reason) {
                JobEnd::ExecutionError(reason)
            } else {
                JobEnd::SystemError(reason)
            })
        })?;
        if !self.stop.may_start() {
            return Err(Box::new(not_started()));
        }
        let wiring = self
            .wire()
            .map_err(|error| Box::new(set_up("make the pipes for its output", &error)))?;
        let request = SandboxRequest {
            name: self.job.execution.sandbox_name(self.job.attempt),
            root: planned.root.clone(),
            program: self.spec.program.clone(),
            args: self.spec.args.clone(),
            env: planned.env.clone(),
            workdir: planned.workdir.clone(),
            network: self.spec.network,
            limits: self.spec.limits,
            tty: self.spec.tty,
            wait_children: self.spec.wait_children,
            scratch: self.scratch.clone(),
            measured: false,
        };
        Ok((request, wiring, planned))
    }

    fn wire(&mut self) -> io::Result<Wiring> {
        if self.spec.tty {
            let (output, controller, terminal) = self.sandboxes.terminal()?;
            if let Some(live) = &mut self.live {
                live.terminal(controller);
            }
            let stdio = Stdio {
                stdin: terminal.try_clone()?,
                stdout: terminal.try_clone()?,
                stderr: terminal,
            };
            return Ok(Wiring { output, stdio });
        }
        let (output, stdout, stderr) = self.sandboxes.output()?;
        let inherited = match self.spec.stdin {
            Stdin::Inherit => self.stdin.take(),
            Stdin::Empty => None,
        };
        let stdin = match inherited {
            Some(stdin) => stdin,
            None => OpenOptions::new().read(true).open("/dev/null")?.into(),
        };
        let stdio = Stdio {
            stdin,
            stdout,
            stderr,
        };
        Ok(Wiring { output, stdio })
    }

    fn start(&mut self, request: &SandboxRequest, wiring: Wiring, planned: &Planned) -> JobEnd {
        let Wiring { output, stdio } = wiring;
        let running = match self.sandboxes.spawn(request, stdio) {
            Ok(running) => running,
            Err(error) => return start_failed(&error),
        };
        self.stop.started(running.killing());
        let missing = running.missing_walls();
        let mut events = vec![Event::Started {
            grants: planned.grants.iter().chain(&missing).cloned().collect(),
        }];
        events.extend(outcome::missing_walls(&missing).map(|reason| Event::Diagnostic { reason }));
        self.reporter.tell(events);

        let ended = Arc::new(AtomicBool::new(false));
        let log_limit = self.spec.limits.log;
        let log_room = log_room(&self.spool, log_limit);
        let pump = Pump {
            output,
            spool: LogSpool::new(self.spool.clone(), log_room),
            live: self.live.take(),
            reporter: self.reporter.clone(),
            ended: Arc::clone(&ended),
        };
        let pumping = thread::Builder::new()
            .name("log-pump".to_owned())
            .spawn(move || pump.run());
        let pumping = match pumping {
            Ok(pumping) => pumping,
            Err(error) => {
                // Dropping the sandbox kills what runs in it.
                drop(running);
                return set_up("start a thread for its output", &error);
            }
        };
        let waited = running.wait();
        ended.store(true, Ordering::Release);
        self.stop.over();
        let mut pumped = pumping.join().unwrap_or_else(|_| Pumped {
            totals: LogTotals::default(),
            events: Vec::new(),
            warnings: vec![Reason::new(
                ReasonCode::Internal,
                "the thread that keeps the log panicked; a part of the log is missing",
            )],
            missed_download: false,
        });
        if log_room < log_limit && pumped.totals.dropped_bytes > 0 {
            pumped.warnings.push(outcome::log_cut(log_room, log_limit));
        }
        let mut ended = match waited {
            Ok(ended) => ended,
            Err(error) => {
                self.tell_rest(pumped, Vec::new());
                return JobEnd::SystemError(error.reason());
            }
        };
        ended.network_missed |= pumped.missed_download && self.spec.network == Network::None;
        let verdict = outcome::judge(
            &ended,
            &self.spec.limits,
            pumped.totals,
            self.stop.note(),
            host_memory(),
        );
        self.tell_rest(pumped, verdict.warnings);
        JobEnd::Ran(verdict.completion)
    }

    /// Tells what is left to tell; it is recorded together with the end.
    fn tell_rest(&self, pumped: Pumped, warnings: Vec<Reason>) {
        let mut events = pumped.events;
        let warnings = pumped.warnings.into_iter().chain(warnings);
        events.extend(warnings.map(|reason| Event::Diagnostic { reason }));
        if !events.is_empty() {
            self.reporter.tell_with_next(events);
        }
    }
}

/// Bytes of log that can be kept: no more than the job may, and no more than a third of what is free.
/// Sealing a log needs as much again, and how a job ended must always find room beside it.
fn log_room(spool: &Path, limit: ByteSize) -> ByteSize {
    let free = spool.ancestors().find_map(|path| {
        let space = rustix::fs::statvfs(path).ok()?;
        Some(space.f_bavail.saturating_mul(space.f_frsize))
    });
    free.map_or(limit, |free| limit.min(ByteSize(free / 3)))
}

pub(crate) fn host_memory() -> ByteSize {
    let info = rustix::system::sysinfo();
    ByteSize(info.totalram.saturating_mul(u64::from(info.mem_unit)))
}

fn not_started() -> JobEnd {
    JobEnd::SystemError(Reason::new(ReasonCode::Cancelled, "it was not started"))
}

fn start_failed(error: &StartError) -> JobEnd {
    let reason = error.reason();
    if error.is_jobs_own_fault() {
        JobEnd::ExecutionError(reason)
    } else {
        JobEnd::SystemError(reason)
    }
}

fn set_up(what: &str, error: &io::Error) -> JobEnd {
    JobEnd::SystemError(Reason::new(
        ReasonCode::Sandbox,
        format!("failed to {what}: {error}"),
    ))
}
