//! Builds under way. What a build reads keeps its reference until the build has ended, also when the
//! job that started it is gone: a cache that removed it would have the build read half a tree.

use std::collections::{BTreeMap, BTreeSet};

use crate::job::JobId;
use crate::key::Key;

/// Who started which build, and what it reads.
#[derive(Debug, Default)]
pub(crate) struct Builds {
    under_way: BTreeMap<Key, Build>,
    /// References that jobs left behind, and how many of their builds read the key. One reference
    /// each, however many builds.
    left_behind: BTreeMap<(JobId, Key), usize>,
}

#[derive(Debug)]
struct Build {
    job: JobId,
    reads: BTreeSet<Key>,
}

impl Builds {
    /// A job started a build. It holds what the build reads.
    pub(crate) fn started(&mut self, key: Key, job: JobId, reads: BTreeSet<Key>) {
        self.under_way.insert(key, Build { job, reads });
    }

    /// A job leaves. Takes over the references that its builds need and returns the others, which
    /// the caller has to release.
    pub(crate) fn take_over(&mut self, job: JobId, held: BTreeSet<Key>) -> BTreeSet<Key> {
        let mut rest = held;
        for build in self.under_way.values().filter(|build| build.job == job) {
            for key in &build.reads {
                rest.remove(key);
                *self.left_behind.entry((job, key.clone())).or_default() += 1;
            }
        }
        rest
    }

    /// A build has ended, or a fetch, which is none. Returns the references that nobody needs any
    /// more; the caller has to release them.
    pub(crate) fn ended(&mut self, key: &Key) -> Vec<Key> {
        let mut free = Vec::new();
        let Some(Build { job, reads }) = self.under_way.remove(key) else {
            return free;
        };
        for key in reads {
            let of_job = (job, key);
            let Some(builds) = self.left_behind.get_mut(&of_job) else {
                continue;
            };
            *builds -= 1;
            if *builds == 0 {
                self.left_behind.remove(&of_job);
                free.push(of_job.1);
            }
        }
        free
    }

    /// What is being built.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.under_way.keys()
    }

    /// The references that were left behind, each with the job that is gone.
    pub(crate) fn left_behind(&self) -> impl Iterator<Item = &(JobId, Key)> {
        self.left_behind.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::LayerRef;
    use crate::script::job;

    fn keys(names: &str) -> BTreeSet<Key> {
        let names = names.split_whitespace();
        names.map(|name| Key::Tree(LayerRef::local(name))).collect()
    }

    fn key(name: &str) -> Key {
        Key::Tree(LayerRef::local(name))
    }

    #[test]
    fn a_job_leaves_behind_what_its_builds_read() {
        let mut builds = Builds::default();
        builds.started(key("x"), job(1), keys("a b"));
        builds.started(key("y"), job(1), keys("b c"));
        builds.started(key("z"), job(2), keys("d"));
        assert_eq!(builds.take_over(job(1), keys("a b c d")), keys("d"));
        let left = ["a", "b", "c"].map(|name| (job(1), key(name)));
        assert!(builds.left_behind().eq(&left));
        assert_eq!(builds.ended(&key("x")), [key("a")], "another one reads b");
        assert_eq!(builds.ended(&key("x")), [], "it has ended");
        assert_eq!(builds.ended(&key("y")), [key("b"), key("c")]);
        assert_eq!(builds.ended(&key("z")), [], "its job holds what it reads");
        assert_eq!(builds.take_over(job(2), keys("d")), keys("d"));
        assert!(builds.left_behind().next().is_none());
    }

    #[test]
    fn two_jobs_can_leave_the_same_key_behind() {
        let mut builds = Builds::default();
        builds.started(key("x"), job(1), keys("a"));
        builds.started(key("y"), job(2), keys("a"));
        assert_eq!(builds.take_over(job(1), keys("a")), keys(""));
        assert_eq!(builds.take_over(job(2), keys("a")), keys(""));
        let left = [1, 2].map(|number| (job(number), key("a")));
        assert!(builds.left_behind().eq(&left));
        assert_eq!(builds.ended(&key("y")), [key("a")]);
        assert_eq!(builds.ended(&key("x")), [key("a")]);
    }
}
