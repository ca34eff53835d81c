//! Samples of one subject, and a table of all subjects with ratios to one of them.

use std::fmt::Write as _;
use std::time::Duration;

/// The times of one subject.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) name: String,
    pub(crate) samples: Vec<Duration>,
}

impl Figures {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            samples: Vec::new(),
        }
    }

    /// The sample below which this share (in hundredths) of all lie: the nearest-rank percentile.
    pub(crate) fn percentile(&self, hundredths: usize) -> Duration {
        let mut sorted = self.samples.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * hundredths).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }
}

/// A Markdown table: p50, p99, and the ratio of the p50 to that of the subject named `base`.
pub(crate) fn table(title: &str, base: &str, subjects: &[Figures]) -> String {
    let mut text = format!(
        "\n### {title}\n\n| subject | runs | p50 | p99 | p50 against {base} |\n|---|---:|---:|---:|---:|\n"
    );
    let base = subjects
        .iter()
        .find(|figures| figures.name == base)
        .map(|f| f.percentile(50));
    for figures in subjects {
        let median = figures.percentile(50);
        let ratio = base.filter(|base| !base.is_zero()).map_or_else(
            || "-".to_owned(),
            |base| format!("{:.2}", median.as_secs_f64() / base.as_secs_f64()),
        );
        writeln!(
            text,
            "| {} | {} | {} | {} | {ratio} |",
            figures.name,
            figures.samples.len(),
            millis(median),
            millis(figures.percentile(99)),
        )
        .expect("writing to a string works");
    }
    text
}

fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let mut figures = Figures::new("a");
        figures.samples = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(figures.percentile(50), Duration::from_millis(100));
        assert_eq!(figures.percentile(99), Duration::from_millis(198));
    }
}
