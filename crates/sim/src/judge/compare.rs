//! What was seen, held against what was expected.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::event::Status;
use tidemill_core::{Digest, JobSpec};
use tidemill_dispatch::{Defect, Ending, Get, JobId, Key, LayerRef, Recipe, Root, TimerKind};

use super::job::Stage;
use super::{Ends, Judge};
use crate::effect::{Effect, show_defect, show_ending};
use crate::fault::{Fault, FaultKind};
use crate::names::show_job;

/// What came of one message.
#[derive(Debug, Default)]
pub(super) struct Seen {
    gets: Vec<(Key, JobId)>,
    begun: Vec<Key>,
    reads: Vec<(Digest, JobId)>,
    endings: Vec<(JobId, Ending)>,
    starts: Vec<JobId>,
    kills: Vec<JobId>,
    timers: Vec<(JobId, TimerKind, Duration)>,
    timer_drops: Vec<(JobId, TimerKind)>,
    done: Vec<String>,
    defects: Vec<Defect>,
    /// References that the jobs held which have ended.
    given_back: usize,
    /// Jobs whose last word came before their references were released.
    early: Vec<JobId>,
}

/// What one of two lists has and the other has not.
enum Difference<T> {
    Missing(T),
    Extra(T),
}

impl Judge {
    /// Looks at one effect, and at what has to be so at that very moment.
    pub(super) fn see(
        &mut self,
        effect: &Effect,
        references_before: usize,
        seen: &mut Seen,
    ) -> Result<(), Fault> {
        match effect {
            Effect::Get(key, job, answer) => {
                seen.gets.push((key.clone(), *job));
                // Of several who ask in one message it does not matter who begins.
                if *answer == Get::YouGet
                    && let Some(build) = self.builds.get_mut(key)
                {
                    build.by = *job;
                }
                let result = self.cache.on_get(key, *job, *answer);
                return result.map_err(|fault| self.about(key, fault));
            }
            Effect::Got(key, waited) => {
                let result = self.cache.on_got(key, waited);
                return result.map_err(|fault| self.about(key, fault));
            }
            Effect::Failed(key, waited) => {
                let result = self.cache.on_failed(key, waited);
                return result.map_err(|fault| self.about(key, fault));
            }
            Effect::Release(key) => return self.see_release(key),
            Effect::Start(job, spec, root) => {
                seen.starts.push(*job);
                return self.see_start(*job, spec, root);
            }
            Effect::Kill(job) => seen.kills.push(*job),
            Effect::StartTimer(job, timer, after) => seen.timers.push((*job, *timer, *after)),
            Effect::DropTimer(job, timer) => seen.timer_drops.push((*job, *timer)),
            Effect::Fetch(digest) => seen.begun.push(Key::Blob(*digest)),
            Effect::Build(key, recipe) => {
                seen.begun.push(key.clone());
                return self.see_build(key, recipe);
            }
            Effect::Read(digest, job, path) => {
                seen.reads.push((*digest, *job));
                return self.see_read(*digest, path);
            }
            Effect::Status(job, status) => return self.see_status(*job, *status, seen),
            Effect::Ended(job, ending) => {
                seen.endings.push((*job, ending.clone()));
                let expected = (self.expected.endings.iter()).find(|ending| ending.job == *job);
                seen.given_back += expected.map_or(0, |ending| ending.held);
                if self.cache.total() + seen.given_back > references_before {
                    seen.early.push(*job);
                }
            }
            Effect::Done(reason) => seen.done.push(reason.clone()),
            Effect::Defect(defect) => seen.defects.push(defect.clone()),
        }
        Ok(())
    }

    fn about(&self, key: &Key, fault: Fault) -> Fault {
        let what = format!("{}: {}", self.show(key), fault.what);
        Fault::new(fault.kind, what)
    }

    fn show(&self, key: &Key) -> String {
        self.names.borrow().show(key)
    }

    fn see_release(&mut self, key: &Key) -> Result<(), Fault> {
        let left = self.cache.on_release(key, &self.names.borrow())?;
        let mounted = (self.jobs.iter())
            .filter(|(_, job)| job.is_mounted() && job.held.contains(key))
            .map(|(id, _)| show_job(*id));
        let read = (self.left_behind.iter())
            .filter(|left| left.key == *key)
            .flat_map(|left| left.builds.first())
            .map(|built| format!("the build of {}", self.show(built)));
        let users: Vec<_> = mounted.chain(read).collect();
        if users.len() > left {
            let what = format!("{}, which is used by {}", self.show(key), users.join(", "));
            return Err(Fault::new(FaultKind::ReleasedInUse, what));
        }
        Ok(())
    }

    /// The last thing before a job starts is that the hub is told; it starts with its own spec, on
    /// the trees that are here now.
    fn see_start(&self, id: JobId, spec: &Arc<JobSpec>, root: &Root) -> Result<(), Fault> {
        let Some(job) = self.jobs.get(&id) else {
            let what = format!("{} is unknown", show_job(id));
            return Err(Fault::new(FaultKind::StartedForNoReason, what));
        };
        if !job.is_mounted() {
            return Ok(());
        }
        if job.told.last() != Some(&Status::Executing) {
            let what = format!("{} starts, and nobody was told", show_job(id));
            return Err(Fault::new(FaultKind::WrongStatus, what));
        }
        let trees = (job.request.layers.iter())
            .map(|layer| self.path(&Key::Tree(layer.clone())))
            .collect();
        let top = job.stacks.last().map(|key| self.path(key));
        let right = Root { trees, top };
        if *root != right || !Arc::ptr_eq(spec, &job.request.spec) {
            let what = format!("{} on {root:?}, not {right:?}", show_job(id));
            return Err(Fault::new(FaultKind::WrongRoot, what));
        }
        Ok(())
    }

    fn path(&self, key: &Key) -> PathBuf {
        let generation = self.cache.generation(key);
        self.names.borrow().path(key, generation)
    }

    fn see_build(&self, key: &Key, recipe: &Recipe) -> Result<(), Fault> {
        let right = match key {
            Key::Blob(_) => None,
            Key::Tree(layer) => self.tree_recipe(layer),
            Key::Stack(stack) => {
                let layers = self.names.borrow().layers_of(stack).map(<[_]>::to_vec);
                layers.and_then(|layers| self.stack_recipe(&layers))
            }
        };
        if right.as_ref() == Some(recipe) {
            return Ok(());
        }
        let what = format!("{} of {recipe:?}, not {right:?}", self.show(key));
        Err(Fault::new(FaultKind::WrongRecipe, what))
    }

    fn tree_recipe(&self, layer: &LayerRef) -> Option<Recipe> {
        let mut builders = (self.jobs.values()).filter(|job| job.stage == Stage::Awaiting);
        let blobs = builders.find_map(|job| job.blobs_of(layer))?;
        let path = |digest| (digest, self.path(&Key::Blob(digest)));
        Some(Recipe::Tree {
            layer: layer.clone(),
            blobs: blobs.into_iter().map(path).collect(),
        })
    }

    fn stack_recipe(&self, layers: &[LayerRef]) -> Option<Recipe> {
        let stacks = self.names.borrow_mut().learn(layers);
        let [.., below, _] = &stacks[..] else {
            return None;
        };
        Some(Recipe::Stack {
            lower: self.path(below),
            upper: self.path(&Key::Tree(layers.last()?.clone())),
        })
    }

    fn see_read(&self, digest: Digest, path: &Path) -> Result<(), Fault> {
        let right = self.path(&Key::Blob(digest));
        if path == right {
            return Ok(());
        }
        let what = format!("it is at {}, not {}", right.display(), path.display());
        Err(Fault::new(FaultKind::WrongRead, what))
    }

    fn see_status(&mut self, id: JobId, status: Status, seen: &Seen) -> Result<(), Fault> {
        let has_ended = seen.endings.iter().any(|(job, _)| *job == id);
        match self.jobs.get_mut(&id) {
            Some(job) if !has_ended => {
                job.told.push(status);
                Ok(())
            }
            _ => {
                let what = format!("{} is told {status:?} and is not there", show_job(id));
                Err(Fault::new(FaultKind::WrongStatus, what))
            }
        }
    }

    /// Compares what came with what had to come.
    pub(super) fn compare(&mut self, seen: Seen) -> Result<(), Fault> {
        let expected = std::mem::take(&mut self.expected);
        if seen.defects != expected.defects {
            let names = self.names.borrow();
            let show = |defects: &[Defect]| {
                let texts: Vec<_> = defects
                    .iter()
                    .map(|each| show_defect(each, &names))
                    .collect();
                texts.join(", ")
            };
            let what = format!(
                "[{}], not [{}]",
                show(&seen.defects),
                show(&expected.defects)
            );
            return Err(Fault::new(FaultKind::WrongDefect, what));
        }
        self.compare_starts(&expected.starts, &seen.starts)?;
        self.compare_endings(&expected.endings, &seen.endings)?;
        let fault = |kind, job: JobId| Err(Fault::new(kind, show_job(job)));
        match difference(expected.kills, seen.kills) {
            Some(Difference::Missing(job)) => return fault(FaultKind::NotKilled, job),
            Some(Difference::Extra(job)) => return fault(FaultKind::KilledForNoReason, job),
            None => {}
        }
        compare_timers("started", expected.timers, seen.timers)?;
        compare_timers("dropped", expected.timer_drops, seen.timer_drops)?;
        self.compare_requests(expected.gets, seen.gets)?;
        self.compare_begun(expected.begun, seen.begun)?;
        match difference(expected.reads, seen.reads) {
            Some(Difference::Missing((_, job)) | Difference::Extra((_, job))) => {
                return fault(FaultKind::WrongRead, job);
            }
            None => {}
        }
        let done: Vec<_> = expected.done.into_iter().collect();
        match difference(done, seen.done) {
            Some(Difference::Missing(why)) => return Err(Fault::new(FaultKind::NotDone, why)),
            Some(Difference::Extra(why)) => return Err(Fault::new(FaultKind::DoneTooEarly, why)),
            None => {}
        }
        self.check_references()?;
        match seen.early.first() {
            Some(job) => fault(FaultKind::LastWordTooEarly, *job),
            None => Ok(()),
        }
    }

    fn compare_starts(&self, expected: &[JobId], seen: &[JobId]) -> Result<(), Fault> {
        let place = (expected.iter().zip(seen)).take_while(|(one, other)| one == other);
        let place = place.count();
        let (right, started) = match (expected.get(place), seen.get(place)) {
            (None, None) => return Ok(()),
            (Some(lost), None) => return Err(Fault::new(FaultKind::SlotLost, show_job(*lost))),
            (right, Some(started)) => (right, *started),
        };
        let kind = match self.jobs.get(&started).map(|job| job.stage) {
            Some(Stage::Awaiting) => FaultKind::LayersMissing,
            Some(Stage::Available) if right.is_none() => FaultKind::OverCapacity,
            Some(Stage::Available) => FaultKind::OutOfOrder,
            Some(Stage::Executing) if expected.contains(&started) => FaultKind::OutOfOrder,
            _ => FaultKind::StartedForNoReason,
        };
        let instead = right.map_or_else(|| "nobody".to_owned(), |job| show_job(*job));
        let what = format!("{}, and {instead} had to", show_job(started));
        Err(Fault::new(kind, what))
    }

    fn compare_endings(
        &self,
        expected: &[super::ExpectedEnding],
        seen: &[(JobId, Ending)],
    ) -> Result<(), Fault> {
        let mut endings: BTreeMap<JobId, &Ending> = BTreeMap::new();
        for (id, ending) in seen {
            let twice = endings.insert(*id, ending).is_some();
            let is_expected = expected.iter().any(|each| each.job == *id);
            let has_ended = self.jobs.get(id).is_some_and(|job| !job.is_live());
            let kind = match (is_expected, twice || has_ended) {
                (true, _) if twice => FaultKind::EndedTwice,
                (true, _) => continue,
                (false, true) => FaultKind::EndedTwice,
                (false, false) => FaultKind::EndedForNoReason,
            };
            let what = format!("{}: {}", show_job(*id), show_ending(ending));
            return Err(Fault::new(kind, what));
        }
        for each in expected {
            let Some(ending) = endings.get(&each.job) else {
                return Err(Fault::new(FaultKind::NotEnded, show_job(each.job)));
            };
            let is_right = match (&each.how, ending) {
                (Ends::As(right), ending) => right == *ending,
                (Ends::SystemError { code, mentions }, Ending::SystemError(reason)) => {
                    reason.code == *code
                        && mentions.iter().all(|word| reason.message.contains(word))
                }
                (Ends::SystemError { .. }, _) => false,
            };
            if !is_right {
                let (job, how) = (show_job(each.job), show_ending(ending));
                let right = match &each.how {
                    Ends::As(ending) => show_ending(ending),
                    Ends::SystemError { mentions, .. } => {
                        format!("a system error with {}", mentions.join(" and "))
                    }
                };
                let what = format!("{job}: {how}, not {right}");
                return Err(Fault::new(FaultKind::WrongEnding, what));
            }
        }
        Ok(())
    }

    fn compare_requests(
        &self,
        expected: Vec<(Key, JobId)>,
        seen: Vec<(Key, JobId)>,
    ) -> Result<(), Fault> {
        let what = match difference(expected, seen) {
            None => return Ok(()),
            Some(Difference::Missing((key, job))) => {
                format!("{} does not ask for {}", show_job(job), self.show(&key))
            }
            Some(Difference::Extra((key, job))) => {
                format!("{} asks for {}", show_job(job), self.show(&key))
            }
        };
        Err(Fault::new(FaultKind::WrongRequest, what))
    }

    fn compare_begun(&self, expected: Vec<Key>, seen: Vec<Key>) -> Result<(), Fault> {
        let (kind, key) = match difference(expected, seen) {
            None => return Ok(()),
            Some(Difference::Missing(key)) => (FaultKind::NeverFetched, key),
            Some(Difference::Extra(key)) if self.getting.contains(&key) => {
                (FaultKind::FetchedTwice, key)
            }
            Some(Difference::Extra(key)) => (FaultKind::WrongRequest, key),
        };
        Err(Fault::new(kind, self.show(&key)))
    }

    /// Each key has as many references as there are jobs that hold it; who waits for a key, waits
    /// for one that somebody gets.
    pub(super) fn check_references(&self) -> Result<(), Fault> {
        let mut holders: BTreeMap<&Key, usize> = BTreeMap::new();
        let left_behind = self.left_behind.iter().map(|left| &left.key);
        for key in (self.live().flat_map(|(_, job)| &job.held)).chain(left_behind) {
            *holders.entry(key).or_default() += 1;
        }
        let references: BTreeMap<_, _> = self.cache.references().collect();
        for key in holders.keys().chain(references.keys()) {
            let count = |counts: &BTreeMap<&Key, usize>| counts.get(*key).copied().unwrap_or(0);
            let (held, has) = (count(&holders), count(&references));
            if held == has {
                continue;
            }
            let kind = if has > held {
                FaultKind::ReferenceLeaked
            } else {
                FaultKind::ReferenceLost
            };
            let what = format!("{} has {has} and {held} are needed", self.show(key));
            return Err(Fault::new(kind, what));
        }
        if let Some(key) = self
            .cache
            .awaited()
            .find(|key| !self.getting.contains(*key))
        {
            let what = format!("jobs wait for {}, which has been answered", self.show(key));
            return Err(Fault::new(FaultKind::WrongCacheAnswer, what));
        }
        Ok(())
    }
}

fn compare_timers<T: Ord + std::fmt::Debug>(
    what: &str,
    expected: Vec<T>,
    seen: Vec<T>,
) -> Result<(), Fault> {
    let what = match difference(expected, seen) {
        None => return Ok(()),
        Some(Difference::Missing(timer)) => format!("not {what}: {timer:?}"),
        Some(Difference::Extra(timer)) => format!("{what}: {timer:?}"),
    };
    Err(Fault::new(FaultKind::WrongTimer, what))
}

/// The first thing that one list has more often than the other, in whatever order they are.
fn difference<T: Ord>(mut expected: Vec<T>, mut seen: Vec<T>) -> Option<Difference<T>> {
    expected.sort_unstable();
    seen.sort_unstable();
    let mut expected = expected.into_iter();
    let mut seen = seen.into_iter();
    loop {
        match (expected.next(), seen.next()) {
            (None, None) => return None,
            (Some(one), Some(other)) if one == other => {}
            (Some(one), Some(other)) if one > other => return Some(Difference::Extra(other)),
            (Some(one), _) => return Some(Difference::Missing(one)),
            (None, Some(other)) => return Some(Difference::Extra(other)),
        }
    }
}
