//! How far the layers of a job are.

use tidemill_dispatch::{JobId, Key};

use super::job::Stage;
use super::{Build, Judge};
use crate::coverage::Kind;

impl Judge {
    /// Lets a job ask for what it wants until it has everything or has to wait.
    pub(super) fn pursue(&mut self, id: JobId) {
        loop {
            let Some(job) = self.jobs.get_mut(&id) else {
                return;
            };
            for digest in job.to_read() {
                job.reading.insert(digest);
                self.expected.reads.push((digest, id));
            }
            let wants = job.wants();
            let Some(key) = wants.into_iter().find(|key| !job.asked.contains(key)) else {
                break;
            };
            job.asked.insert(key.clone());
            if self.here.contains(&key) || self.cache.is_free(&key) {
                job.held.insert(key.clone());
            }
            self.ask(id, key);
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.has_everything() {
            job.stage = Stage::Available;
            if let Some(timer) = job.timer.take() {
                self.expected.timer_drops.push((id, timer));
            }
        }
    }

    /// A job asks the cache for a key that nobody got for it before.
    fn ask(&mut self, id: JobId, key: Key) {
        if self.cache.is_free(&key) {
            self.coverage.hit(Kind::FreeStack);
        } else if self.here.contains(&key) {
            let kind = if self.cache.generation(&key) == 0 {
                Kind::FoundAtTheStart
            } else {
                Kind::UsedFromCache
            };
            self.coverage.hit(kind);
        } else if self.getting.insert(key.clone()) {
            let again = self.cache.has_failed(&key);
            self.coverage.hit_if(again, Kind::FetchAgainAfterFailure);
            let again = self.cache.was_evicted(&key);
            self.coverage.hit_if(again, Kind::GotAgainAfterEviction);
            self.expected.begun.push(key.clone());
            if let Some(inputs) = self.jobs[&id].inputs(&key) {
                self.builds.insert(key.clone(), Build { by: id, inputs });
            }
        } else {
            let nobody = !(self.jobs.iter()).any(|(other, job)| *other != id && job.awaits(&key));
            self.coverage.hit_if(nobody, Kind::JoinedAnAbandonedFetch);
        }
        self.expected.gets.push((key, id));
    }
}
