//! A thousand jobs through one runner: dispatcher, image plan, sandbox, log and reports, with a hub that
//! answers at once and keeps nothing. What the durable record costs is seen in the whole process.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use tidemill_core::{Attempt, Event, ExecutionId, JobSpec, RunnerId};
use tidemill_image::{HostView, TreeStore};
use tidemill_runner::hub_port::Later;
use tidemill_runner::{
    Answer, Capacity, HubPort, Job, JobId, LocalImages, LocalRunner, Report, ReportError,
    RunnerConfig,
};
use tidemill_sandbox::Launcher;

use crate::figures::Figures;

/// Takes everything and keeps nothing.
#[derive(Debug)]
struct Indifferent;

impl HubPort for Indifferent {
    fn report(&self, reports: Vec<Report>) -> Later<'_, Vec<Result<Answer, ReportError>>> {
        Box::pin(async move {
            reports
                .iter()
                .map(|_| Ok(Answer::Taken { cancel: None }))
                .collect()
        })
    }

    fn seal_log(&self, _job: JobId) -> Later<'_, Result<(), ReportError>> {
        Box::pin(async { Ok(()) })
    }
}

/// Runs the jobs one after the other and gives the time of each, from enqueue to ended.
pub(crate) fn one_after_the_other(
    launcher: Launcher,
    state: &Path,
    jobs: usize,
) -> anyhow::Result<Figures> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let runner = start(launcher, state)?;
        let spec = Arc::new(JobSpec::new("/bin/true", []));
        let mut figures = Figures::new("job through a runner");
        for number in 0..jobs {
            let start = now();
            let job = Job {
                execution: ExecutionId::for_test(number as u128 + 1),
                attempt: Attempt(1),
                spec: Arc::clone(&spec),
                live: None,
                stdin: None,
            };
            let mut handle = runner.enqueue(job).await?;
            let ended = handle.ended().await?;
            figures.samples.push(start.elapsed());
            ensure!(
                matches!(ended.event, Event::Completed { .. }),
                "the job ended with {:?}",
                ended.event
            );
        }
        runner.drain().await;
        Ok(figures)
    })
}

fn now() -> Instant {
    Instant::now()
}

fn start(launcher: Launcher, state: &Path) -> anyhow::Result<LocalRunner> {
    let environment = [("PATH", "/usr/bin:/bin"), ("HOME", "/nonexistent")]
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let host = HostView::current(environment)?.with_state_dir(state);
    let trees = TreeStore::open(state.join("trees"))?;
    Ok(LocalRunner::start(RunnerConfig {
        runner: RunnerId("bench".to_owned()),
        capacity: Capacity::slots(NonZeroU32::MIN),
        prepare_timeout: None,
        report_waits: Vec::new(),
        logs: state.join("logs"),
        scratch: None,
        hub: Arc::new(Indifferent),
        sandboxes: Arc::new(launcher),
        images: Arc::new(LocalImages::new(host, trees)),
    }))
}
