//! Which runner can run what, and why not.

use std::fmt;

use tidemill_core::diagnostic::nearest;
use tidemill_core::{ByteSize, CpuCount, RunnerId};

use crate::offer::Profile;
use crate::submission::{QueueKey, Requirements, Tier};

/// A condition that a runner does not meet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unmet {
    /// It cannot honour the tier.
    Tier(Tier),
    /// It is of another architecture.
    Architecture(String),
    /// It lacks a label.
    Label(String),
    /// It is too small.
    Memory(ByteSize),
    /// It has too few CPUs.
    Cpus(CpuCount),
    /// It does not have the image and cannot fetch it.
    Image(String),
}

impl fmt::Display for Unmet {
    /// What is missing, to follow "no runner has".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tier(tier) => write!(f, "tier `{tier}`"),
            Self::Architecture(name) => write!(f, "architecture `{name}`"),
            Self::Label(label) => write!(f, "label `{label}`"),
            Self::Memory(size) => write!(f, "{size} of memory"),
            Self::Cpus(count) => write!(f, "{count} CPUs"),
            Self::Image(name) => write!(f, "image `{name}` or a way to fetch it"),
        }
    }
}

/// What a runner does not meet, even if it did nothing else. Empty if it can run the job.
pub fn unmet(needs: &Requirements, has: &Profile) -> Vec<Unmet> {
    let mut unmet = Vec::new();
    if !has.tiers.contains(&needs.tier) {
        unmet.push(Unmet::Tier(needs.tier));
    }
    if let Some(architecture) = &needs.architecture
        && *architecture != has.architecture
    {
        unmet.push(Unmet::Architecture(architecture.clone()));
    }
    let missing = needs.labels.difference(&has.labels);
    unmet.extend(missing.cloned().map(Unmet::Label));
    if needs.memory > has.memory {
        unmet.push(Unmet::Memory(needs.memory));
    }
    if needs.cpus > has.cpus {
        unmet.push(Unmet::Cpus(needs.cpus));
    }
    if let Some(image) = &needs.image
        && !has.fetches_images
        && !has.images.contains(image)
    {
        unmet.push(Unmet::Image(image.clone()));
    }
    unmet
}

/// True if a runner that did nothing else could run the job.
pub fn could_run(needs: &Requirements, has: &Profile) -> bool {
    unmet(needs, has).is_empty()
}

/// What is free of a runner while a claim is being answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Jobs.
    pub slots: u32,
    /// Memory.
    pub memory: ByteSize,
    /// CPUs.
    pub cpus: CpuCount,
}

impl Budget {
    /// True if there is room for one more.
    pub fn fits(&self, needs: &Requirements) -> bool {
        self.slots > 0 && needs.memory <= self.memory && needs.cpus <= self.cpus
    }

    /// Takes room for one.
    pub fn take(&mut self, needs: &Requirements) {
        self.slots = self.slots.saturating_sub(1);
        self.memory = ByteSize(self.memory.0.saturating_sub(needs.memory.0));
        self.cpus = CpuCount {
            thousandths: (self.cpus.thousandths).saturating_sub(needs.cpus.thousandths),
        };
    }
}

/// Why no runner can run something, and which one is nearest to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRunner {
    /// No runner takes jobs out of the queue.
    NoneServes {
        /// Which queue.
        queue: String,
    },
    /// There are runners, and none meets all of it.
    Unmet {
        /// What none of them has; empty if each condition is met by some runner.
        nobody_has: Vec<Unmet>,
        /// The runner that lacks least.
        nearest: RunnerId,
        /// What that one lacks.
        lacks: Vec<Unmet>,
        /// What that one has and may have been meant, or how much it has, for each that is known.
        has: Vec<String>,
    },
}

impl fmt::Display for NoRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoneServes { queue } => write!(f, "no runner takes jobs of queue `{queue}`"),
            Self::Unmet {
                nobody_has,
                nearest,
                lacks,
                has,
            } => {
                if nobody_has.is_empty() {
                    write!(f, "no runner meets all conditions at once")?;
                } else {
                    write!(f, "no runner has {}", list(nobody_has))?;
                }
                write!(f, "; nearest: `{nearest}`")?;
                if *lacks != *nobody_has {
                    write!(f, " lacks {}", list(lacks))?;
                    if !has.is_empty() {
                        write!(f, ",")?;
                    }
                }
                if has.is_empty() {
                    Ok(())
                } else {
                    write!(f, " has {}", has.join(", "))
                }
            }
        }
    }
}

fn list(items: &[Unmet]) -> String {
    let items: Vec<_> = items.iter().map(ToString::to_string).collect();
    items.join(", ")
}

/// Why none of these runners can run it. `None` if one can. Runners that the queue's tenant may not
/// know of do not exist for it.
pub fn no_runner<'a>(
    queue: &QueueKey,
    needs: &Requirements,
    runners: impl IntoIterator<Item = &'a Profile>,
) -> Option<NoRunner> {
    let mut nobody_has: Option<Vec<Unmet>> = None;
    let mut best: Option<(Vec<Unmet>, &Profile)> = None;
    for runner in runners {
        if !runner.serves(queue) {
            continue;
        }
        let lacks = unmet(needs, runner);
        if lacks.is_empty() {
            return None;
        }
        match &mut nobody_has {
            None => nobody_has = Some(lacks.clone()),
            Some(nobody_has) => nobody_has.retain(|each| lacks.contains(each)),
        }
        let better = best.as_ref().is_none_or(|(least, holder)| {
            (lacks.len(), &runner.name) < (least.len(), &holder.name)
        });
        if better {
            best = Some((lacks, runner));
        }
    }
    let Some((lacks, runner)) = best else {
        return Some(NoRunner::NoneServes {
            queue: queue.name.clone(),
        });
    };
    let has = lacks
        .iter()
        .filter_map(|each| instead(each, runner))
        .collect();
    Some(NoRunner::Unmet {
        nobody_has: nobody_has.unwrap_or_default(),
        nearest: runner.name.clone(),
        lacks,
        has,
    })
}

/// What a runner has instead of what it lacks.
fn instead(lacks: &Unmet, runner: &Profile) -> Option<String> {
    match lacks {
        Unmet::Label(label) => nearest(label, runner.labels.iter().map(String::as_str))
            .map(|label| format!("label `{label}`")),
        Unmet::Memory(_) => Some(format!("{} of memory", runner.memory)),
        Unmet::Cpus(_) => Some(format!("{} CPUs", runner.cpus)),
        Unmet::Architecture(_) => Some(format!("architecture `{}`", runner.architecture)),
        Unmet::Tier(_) | Unmet::Image(_) => None,
    }
}
