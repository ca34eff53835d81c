//! A schedule as text.

use std::fmt;

use super::{Action, JobPlan, Schedule, Setting, Step, Stray};
use crate::names::{Names, show_job};

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.setting)?;
        let mut steps: Vec<_> = self.steps.iter().collect();
        steps.sort_by_key(|step| step.at);
        for step in steps {
            writeln!(f, "  {step}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slots", self.capacity.slots)?;
        if let Some(memory) = self.capacity.memory {
            write!(f, ", memory {memory}")?;
        }
        if let Some(cpus) = self.capacity.cpus {
            write!(f, ", cpus {cpus}")?;
        }
        if let Some(bounds) = self.bounds {
            write!(f, ", cache of {}, floor {}", bounds.max, bounds.floor)?;
        }
        let names = Names::new();
        let found: Vec<_> = self.found.iter().map(|key| names.show(key)).collect();
        if !found.is_empty() {
            write!(f, ", found: {}", found.join(", "))?;
        }
        write!(
            f,
            ", {}pace {:?}, of jobs {:?}, {} % of fetches and builds fail, {} % of starts{}",
            if self.free_stacks {
                "stacks are free, "
            } else {
                ""
            },
            self.pace,
            self.run_pace,
            self.failures,
            self.start_failures,
            if self.strays { ", strays" } else { "" }
        )
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] at {} ms: ", self.number, self.at.as_millis())?;
        match &self.action {
            Action::Enqueue(plan) => write!(f, "enqueue {plan}"),
            Action::Cancel(job) => write!(f, "cancel {}", show_job(*job)),
            Action::ShutDown => f.write_str("shut down"),
            Action::Drain => f.write_str("drain"),
            Action::Stray(Stray::EnqueueAgain(plan)) => {
                write!(f, "stray: enqueue {} again", show_job(plan.job))
            }
            Action::Stray(Stray::CompleteAgain(job)) => {
                write!(f, "stray: completion of {}", show_job(*job))
            }
            Action::Stray(Stray::AnswerAgain { key, ok }) => {
                let how = if *ok { "here" } else { "failed" };
                write!(f, "stray: {} is {how}", Names::new().show(key))
            }
        }
    }
}

impl fmt::Display for JobPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Names::new();
        let layers: Vec<_> = self
            .layers
            .iter()
            .map(|each| names.show_layer(each))
            .collect();
        write!(f, "{} on [{}]", show_job(self.job), layers.join(" "))?;
        if self.priority != 0 {
            write!(f, ", priority {}", self.priority)?;
        }
        if let Some(estimate) = self.estimate {
            write!(f, ", estimate {} ms", estimate.0)?;
        }
        if let Some(memory) = self.memory {
            write!(f, ", memory {memory}")?;
        }
        if let Some(cpus) = self.cpus {
            write!(f, ", cpus {cpus}")?;
        }
        if let Some(timeout) = self.timeout {
            write!(f, ", timeout {} ms", timeout.0)?;
        }
        if let Some(timeout) = self.prepare_timeout {
            write!(f, ", prepare timeout {} ms", timeout.as_millis())?;
        }
        Ok(())
    }
}
