//! What hubs do, and how the world heals.

use proptest::sample::Index;
use tidemill_queue::{ClaimAnswer, HubId, Said};

use super::{Fleet, RUNNERS};
use crate::submissions::queue_named;
use crate::world::ALL;

impl Fleet {
    pub(crate) fn pass(&mut self, hub: &Index, limit: usize) {
        let Some(hub) = self.hub(hub) else {
            return;
        };
        self.queue.pass(self.now, &hub, limit);
    }

    pub(crate) fn start_hub(&mut self) {
        self.hubs_made += 1;
        let hub = HubId(format!("hub{}", self.hubs_made));
        self.queue.start_hub(self.now, hub.clone());
        self.hubs.push(hub);
    }

    pub(crate) fn stop_hub(&mut self, hub: &Index, limit: usize) {
        if let Some(hub) = self.hub(hub) {
            let more = self.queue.stop_hub(self.now, &hub, limit);
            if !more {
                self.queue.end_hub(&hub);
                self.hubs.retain(|each| *each != hub);
            }
        }
    }

    pub(crate) fn kill_hub(&mut self, hub: &Index) {
        if let Some(hub) = self.hub(hub) {
            self.hubs.retain(|each| *each != hub);
        }
    }

    pub(crate) fn pause(&mut self, main: bool, paused: bool) {
        let queue = queue_named(if main { "main" } else { "other" });
        if paused {
            self.queue.pause(&queue, "for a test");
        } else {
            self.queue.resume(&queue);
        }
    }

    /// The world heals: hubs serve, nothing is lost any more, runners end what they have.
    pub(crate) fn heal(&mut self) {
        self.pause(true, false);
        self.pause(false, false);
        self.hubs.clear();
        self.start_hub();
        let hub = self.hubs[0].clone();
        for _ in 0..500 {
            self.wait(5);
            self.queue.pass(self.now, &hub, ALL);
            for runner in 0..RUNNERS.len() {
                self.report_by(runner, false);
                let books = &mut self.runners[runner];
                let running = std::mem::take(&mut books.running);
                let done = |key| (key, Said::Ended(crate::submissions::exit(0)));
                books.outbox.extend(running.into_keys().map(done));
                let offer = self.offer(runner, 4);
                let answer = self.queue.claim(self.now, &hub, &offer);
                let ClaimAnswer::Jobs { assignments, held } = answer else {
                    panic!("{answer:?}");
                };
                let keys = assignments.iter().map(|each| each.attempt);
                self.give(runner, keys.clone());
                let until = self.now.plus(self.queue.settings().lease);
                self.runners[runner].claims += 1;
                let running = &mut self.runners[runner].running;
                running.extend(keys.map(|key| (key, until)));
                self.obey(runner, held);
            }
            self.judge();
            if self.accepted.iter().all(|id| self.ended.contains_key(id)) {
                return;
            }
        }
    }
}
