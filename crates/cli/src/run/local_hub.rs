//! The hub core of this process as the runner sees it.

use tidemill_hub::Hub;
use tidemill_runner::hub_port::Later;
use tidemill_runner::{Answer, HubPort, JobId, Report, ReportError};

/// Hands what the runner says to the hub in the same process.
#[derive(Debug, Clone)]
pub(crate) struct LocalHub(pub(crate) Hub);

impl HubPort for LocalHub {
    fn report(&self, reports: Vec<Report>) -> Later<'_, Vec<Result<Answer, ReportError>>> {
        let reports = reports
            .into_iter()
            .map(|report| tidemill_hub::Report {
                execution: report.job.execution,
                attempt: report.job.attempt,
                events: report.events,
            })
            .collect();
        Box::pin(async move {
            let answers = self.0.report(reports).await;
            answers
                .into_iter()
                .map(|answer| answer.map(told).map_err(ReportError::new))
                .collect()
        })
    }

    fn seal_log(&self, job: JobId) -> Later<'_, Result<(), ReportError>> {
        Box::pin(async move {
            self.0
                .seal_log(job.execution)
                .await
                .map(|_| ())
                .map_err(ReportError::new)
        })
    }
}

fn told(answer: tidemill_hub::Answer) -> Answer {
    match answer {
        tidemill_hub::Answer::Taken { cancel } => Answer::Taken { cancel },
        tidemill_hub::Answer::NotWanted { why } => Answer::NotWanted { why },
    }
}
