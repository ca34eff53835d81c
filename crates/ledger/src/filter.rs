//! Which executions a list shows.

use std::collections::BTreeMap;

use tidemill_core::State;

use crate::snapshot::Snapshot;

/// Which executions a list shows: those that match every part. An empty part matches all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListFilter {
    /// In one of these states.
    pub states: Vec<State>,
    /// With exactly this name.
    pub name: Option<String>,
    /// With all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Of this run.
    pub run: Option<String>,
    /// Submitted by this one.
    pub submitter: Option<String>,
}

impl ListFilter {
    /// True if the execution belongs in the list.
    pub fn matches(&self, snapshot: &Snapshot) -> bool {
        let same = |wanted: &Option<String>, is: &Option<String>| wanted.is_none() || wanted == is;
        (self.states.is_empty() || self.states.contains(&snapshot.state))
            && same(&self.name, &snapshot.name)
            && same(&self.run, &snapshot.run)
            && same(&self.submitter, &snapshot.submitter)
            && self
                .labels
                .iter()
                .all(|(key, value)| snapshot.labels.get(key) == Some(value))
    }
}
