//! Many seeds, on all processors.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::coverage::Coverage;
use crate::fault::Fault;
use crate::mutant::Mutant;
use crate::runner::{Options, play};
use crate::schedule::Schedule;
use crate::shrink::shrink;

/// Seeds that a thread takes at once.
const CHUNK: u64 = 64;

/// Failures that are kept of each thread. One is enough to mend the machine.
const FAILURES_MAX: usize = 4;

/// Lines of a trace that a failure shows, the last ones.
const TRACE_MAX: usize = 60;

/// What came of many seeds.
#[derive(Debug, Default)]
pub struct Summary {
    /// How many were played.
    pub seeds: u64,
    /// How many messages the dispatchers received.
    pub messages: u64,
    /// What happened in all of them.
    pub coverage: Coverage,
    /// Some of the failures, the lowest seed first.
    pub failures: Vec<Failure>,
}

impl Summary {
    fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.messages += other.messages;
        self.coverage.add(&other.coverage);
        self.failures.extend(other.failures);
    }
}

/// A seed whose schedule breaks a rule.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What it breaks.
    pub fault: Fault,
    /// What broke the machine, if that was done on purpose.
    pub mutant: Option<Mutant>,
}

/// Plays these seeds.
pub fn play_seeds(seeds: Range<u64>, mutant: Option<Mutant>) -> Summary {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(seeds.start);
    let worker = || {
        let mut summary = Summary::default();
        loop {
            let start = next.fetch_add(CHUNK, Ordering::Relaxed);
            if start >= seeds.end {
                return summary;
            }
            for seed in start..seeds.end.min(start.saturating_add(CHUNK)) {
                play_one(seed, mutant, &mut summary);
            }
        }
    };
    let mut summary = Summary::default();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            // A defect of the simulator itself goes on as what it is.
            let part = worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            summary.add(part);
        }
    });
    summary.failures.sort_by_key(|failure| failure.seed);
    summary
}

fn play_one(seed: u64, mutant: Option<Mutant>, summary: &mut Summary) {
    let trace = false;
    let report = play(&Schedule::of(seed), Options { mutant, trace });
    summary.seeds += 1;
    summary.messages += report.messages;
    summary.coverage.add(&report.coverage);
    if let Some(fault) = report.fault
        && summary.failures.len() < FAILURES_MAX
    {
        let failure = Failure {
            seed,
            fault,
            mutant,
        };
        summary.failures.push(failure);
    }
}

impl Failure {
    /// Shrinks the schedule, and says everything that there is to say about it: what is broken, the
    /// steps that are left, what happened, and how to see it again.
    pub fn explain(&self) -> String {
        let (schedule, fault) = shrink(&Schedule::of(self.seed), &self.fault, self.mutant);
        let options = Options {
            mutant: self.mutant,
            trace: true,
        };
        let trace = play(&schedule, options).trace;
        let skipped = trace.len().saturating_sub(TRACE_MAX);
        let numbers: Vec<_> = schedule.numbers().iter().map(usize::to_string).collect();
        let keep = numbers.join(",");
        let seed = self.seed;
        let (with, test) = match self.mutant {
            Some(mutant) => (format!(" --mutant {mutant}"), String::new()),
            None => (
                String::new(),
                format!("test:   TIDEMILL_SIM_SEED={seed} cargo nextest run -p tidemill-sim\n"),
            ),
        };
        let count = schedule.steps.len();
        let trace = trace[skipped..].join("\n");
        format!(
            "{self}\nshrunk to {count} steps: {fault}\n\n{schedule}\n{trace}\n\n\
             {test}whole:  cargo run -p tidemill-sim -- --seed {seed}{with}\n\
             shrunk: cargo run -p tidemill-sim -- --seed {seed} --keep {keep}{with}\n"
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.fault)
    }
}
