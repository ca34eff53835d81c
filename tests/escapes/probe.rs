//! One probe: how it is run, with a sandbox around it and without, and what its verdict must be.

use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use tidemill_tests::{Done, Mode, Trial, World, probe};

use crate::bait::{Bait, LAUNCHER};

/// How long a plain job may take after a probe. It takes a fiftieth of it where nothing else runs.
const LIVELY: Duration = Duration::from_secs(5);

/// How long a run without a sandbox may take, for `timeout`.
const UNCONFINED_MAX: &str = "60s";

/// A process namespace of its own, so that no process of the host is touched, with its /proc; and its
/// own shared memory, which would outlive the probe.
const OWN_PROCESSES: &[&str] = &[
    "unshare",
    "--pid",
    "--ipc",
    "--fork",
    "--mount-proc",
    "--kill-child=KILL",
    "sh",
    "-euc",
    r#"mount -t tmpfs probe /dev/shm; exec "$@""#,
    "sh",
];

/// One case, and how its run differs from the plain one.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    case: &'static str,
    flags: Vec<&'static str>,
    variables: Vec<(&'static str, String)>,
    around: Option<&'static str>,
    loose: Option<&'static str>,
    may_end_by: Vec<&'static str>,
    needs: Option<&'static str>,
    canary_needs: Option<&'static str>,
}

impl Probe {
    pub(crate) const fn new(case: &'static str) -> Self {
        Self {
            case,
            flags: Vec::new(),
            variables: Vec::new(),
            around: None,
            loose: None,
            may_end_by: Vec::new(),
            needs: None,
            canary_needs: None,
        }
    }

    /// Flags of `tidemill run`.
    pub(crate) fn flags(mut self, flags: &[&'static str]) -> Self {
        self.flags.extend(flags);
        self
    }

    /// A variable of the probe's, with a sandbox or without.
    pub(crate) fn variable(mut self, name: &'static str, value: impl ToString) -> Self {
        self.variables.push((name, value.to_string()));
        self
    }

    /// Runs this shell script around the launcher, and around the run without a sandbox. It ends in
    /// `exec "$@"`.
    pub(crate) fn around(mut self, script: &'static str) -> Self {
        self.around = Some(script);
        self
    }

    /// Runs this shell script around the probe where there is no sandbox, in a mount namespace of
    /// its own: it makes the hole, or a bound that keeps the host safe.
    pub(crate) fn loose(mut self, script: &'static str) -> Self {
        self.loose = Some(script);
        self
    }

    /// A limit that may end the job, if the record names it.
    pub(crate) fn or_ended_by(mut self, reason: &'static str) -> Self {
        self.may_end_by.push(reason);
        self
    }

    /// What the host must have for the sandbox to hold, as `doctor` names it; without it the test is
    /// skipped, by name.
    pub(crate) fn needs(mut self, check: &'static str) -> Self {
        self.needs = Some(check);
        self
    }

    /// What a host needs for the run without a sandbox; without it that run says `absent`.
    pub(crate) fn canary_needs(mut self, what: &'static str) -> Self {
        self.canary_needs = Some(what);
        self
    }

    /// The job.
    pub(crate) fn trial<'w>(&self, world: &'w World, bait: &Bait) -> Trial<'w> {
        let layer = format!("file:{}=/probe", probe().display());
        let mut trial = world
            .program(["/probe", self.case])
            .args(["--net", "none", "--layer", &layer])
            .args(&self.flags);
        for (name, value) in bait.variables() {
            trial = trial.args(["--env", &format!("{name}={value}")]);
        }
        for (name, value) in &self.variables {
            trial = trial.args(["--env", &format!("{name}={value}")]);
        }
        for (name, value) in LAUNCHER {
            trial = trial.variable(name, value);
        }
        match self.around {
            Some(script) => trial.through(script),
            None => trial,
        }
    }

    /// In the sandbox it is safe, or ended by a limit that the record names. Then a plain job runs,
    /// and when the world goes, nothing is left on the host.
    pub(crate) fn confined(&self, mode: Mode) {
        let Some(world) = World::new(mode) else {
            return;
        };
        if let Some(check) = self.needs
            && !world.doctor().has(check)
        {
            tidemill_tests::skip(&format!("{check} is missing: {} is not bounded", self.case));
            return;
        }
        let before = kept_namespaces();
        let mut bait = Bait::lay(&world);
        let done = self.trial(&world, &bait).run();
        self.assert_held(&done);
        assert!(bait.is_alive(), "the host's process is gone: {done}");
        assert_lively(&world);
        assert_eq!(kept_namespaces(), before, "a namespace is kept: {done}");
    }

    /// Panics unless the job said `safe`, or ended by a limit.
    pub(crate) fn assert_held(&self, done: &Done) {
        let reason = done.record().reason();
        if self.may_end_by.contains(&reason) {
            assert_ne!(done.code, 0, "{done}");
            return;
        }
        let out = done.out();
        let verdict = verdict(&out);
        assert!(verdict.starts_with("safe: "), "{}: {done}", self.case);
        assert_eq!(done.code, 0, "{done}");
    }

    /// Without a sandbox it is broken, or the probe would prove nothing.
    pub(crate) fn unconfined(&self) {
        // Root is what could break most.
        let Some(world) = World::new(Mode::Root) else {
            return;
        };
        let output = self.run_unconfined(&world);
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let verdict = verdict(&out);
        if verdict.starts_with("absent: ")
            && let Some(what) = self.canary_needs
        {
            tidemill_tests::skip(&format!("{what}: {verdict}"));
            return;
        }
        assert!(verdict.starts_with("broken: "), "{}: {output:?}", self.case);
    }

    /// The probe as root of the host, but for the processes that it sees.
    pub(crate) fn run_unconfined(&self, world: &World) -> Output {
        let bait = world.path().join("bait");
        let mut words: Vec<&str> = Vec::new();
        if let Some(script) = self.around {
            words.extend(["sh", "-euc", script, "sh"]);
        }
        words.extend(["timeout", "--signal=KILL", UNCONFINED_MAX]);
        words.extend(OWN_PROCESSES);
        if let Some(script) = self.loose {
            words.extend(["bash", "-euc", script, "bash"]);
        }
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .arg(probe())
            .arg("with-bait")
            .arg(bait)
            .arg(self.case)
            .envs(LAUNCHER.iter().copied())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("SHELL", "/bin/sh")
            .current_dir(world.work());
        command.output().expect("the probe starts")
    }
}

/// The one verdict in what was said.
pub(crate) fn verdict(out: &str) -> &str {
    let words = ["safe: ", "broken: ", "absent: "];
    let mut verdicts = out
        .lines()
        .filter(|line| words.iter().any(|word| line.starts_with(word)));
    match (verdicts.next(), verdicts.next()) {
        (Some(verdict), None) => verdict,
        _ => panic!("not one verdict: {out}"),
    }
}

/// Panics unless a plain job runs as if nothing had been.
pub(crate) fn assert_lively(world: &World) {
    let done = world.program(["true"]).run();
    assert_eq!(done.code, 0, "{done}");
    assert!(done.elapsed < LIVELY, "{done}");
}

/// The mounts that keep a namespace although no process is in it.
fn kept_namespaces() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let kept = mounts.lines().filter(|line| line.contains(" - nsfs "));
    kept.map(str::to_owned).collect()
}
