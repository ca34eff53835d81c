//! Which warnings of an execution are told on standard error. All of them are in the record.

use tidemill_core::{Grant, Limits, ReasonCode};
use tidemill_ledger::Snapshot;

/// What to warn of. A wall that this host cannot build is told only if the job asked for what it would
/// have kept: it is missing on each run, and `doctor` and `explain` tell it too.
pub(crate) fn texts(snapshot: &Snapshot, limits: &Limits) -> Vec<String> {
    let walls = snapshot.grants.iter().filter_map(|grant| match grant {
        Grant::Missing { wall, why } => felt(wall, why, limits),
        _ => None,
    });
    walls.chain(noted(snapshot)).collect()
}

/// What was noted of this execution, and is not the same on each run.
pub(crate) fn noted(snapshot: &Snapshot) -> impl Iterator<Item = String> {
    snapshot
        .warnings
        .iter()
        .filter(|warning| warning.code != ReasonCode::Weakened)
        .map(|warning| warning.message.clone())
}

fn felt(wall: &str, why: &str, limits: &Limits) -> Option<String> {
    let weaker = |flag: &str| {
        format!("{flag} is kept in a weaker way: {why}; `tidemill doctor` says what to change")
    };
    match wall {
        "cgroup.memory" => limits.memory.map(|_| weaker("--memory")),
        "cgroup.pids" => (limits.pids != Limits::default().pids).then(|| weaker("--pids")),
        _ => Some(format!("the sandbox lacks {wall}: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use tidemill_core::{ByteSize, Reason, State};

    use super::*;
    use crate::testing::snapshot;

    fn weakened() -> Snapshot {
        let wall = |wall: &str| Grant::Missing {
            wall: wall.to_owned(),
            why: "not writable".to_owned(),
        };
        Snapshot {
            grants: vec![wall("cgroup.memory"), wall("cgroup.pids")],
            warnings: vec![
                Reason::new(ReasonCode::Weakened, "all of them"),
                Reason::new(ReasonCode::LeftOvers, "one was killed"),
            ],
            ..snapshot(1, State::Succeeded)
        }
    }

    #[test]
    fn a_missing_wall_is_told_to_whoever_asked_for_what_it_keeps() {
        let none = texts(&weakened(), &Limits::default());
        assert_eq!(none, ["one was killed"]);
        let memory = Limits {
            memory: Some(ByteSize::mib(64)),
            ..Limits::default()
        };
        insta::assert_snapshot!(texts(&weakened(), &memory).join("\n"), @r"
        --memory is kept in a weaker way: not writable; `tidemill doctor` says what to change
        one was killed
        ");
        let pids = Limits {
            pids: 50,
            ..Limits::default()
        };
        assert!(texts(&weakened(), &pids)[0].starts_with("--pids "));
    }

    #[test]
    fn a_wall_that_no_flag_stands_for_is_always_told() {
        let mut snapshot = weakened();
        snapshot.grants = vec![Grant::Missing {
            wall: "owners".to_owned(),
            why: "files appear as nobody's".to_owned(),
        }];
        assert_eq!(
            texts(&snapshot, &Limits::default())[0],
            "the sandbox lacks owners: files appear as nobody's"
        );
    }
}
