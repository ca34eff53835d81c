//! What lies on the host for a job to reach; see `tests/probes/src/bait.rs`.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use tidemill_tests::{Mode, World, probe};

/// The variables that a launcher has and a job must not get.
pub(crate) const LAUNCHER: &[(&str, &str)] = &[
    ("DEPLOY_TOKEN", "secret-of-the-launcher"),
    ("SSH_AUTH_SOCK", "/tmp/agent-of-the-launcher"),
    ("DOCKER_HOST", "unix:///run/docker.sock"),
    (
        "https_proxy",
        "http://somebody:password@proxy.example:3128/",
    ),
];

/// What stands among the arguments of a process of the host.
pub(crate) const ARGUMENT: &str = "--token=secret-among-arguments";

/// Bait that belongs to the user who runs the jobs. It goes when this goes.
#[derive(Debug)]
pub(crate) struct Bait {
    process: Child,
    variables: Vec<(String, String)>,
}

impl Bait {
    /// Lays it out for a world.
    pub(crate) fn lay(world: &World) -> Self {
        let mut command = Command::new(probe());
        command
            .arg("bait")
            .arg(world.path().join("bait"))
            .arg(ARGUMENT)
            .envs(LAUNCHER.iter().copied())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if Mode::suite_is_root() {
            command.uid(world.account().uid).gid(world.account().gid);
        }
        let mut process = command.spawn().expect("the probe starts");
        let said = process.stdout.take().expect("it is piped");
        let mut variables = Vec::new();
        for line in BufReader::new(said).lines() {
            let line = line.expect("the bait says text");
            let Some((name, value)) = line.split_once('=') else {
                assert_eq!(line, "ready");
                return Self { process, variables };
            };
            variables.push((name.to_owned(), value.to_owned()));
        }
        panic!("the bait could not be laid out: {:?}", process.wait());
    }

    /// What it is called: names and values of variables.
    pub(crate) fn variables(&self) -> &[(String, String)] {
        &self.variables
    }

    /// True if its process still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.process.try_wait().expect("it is our child").is_none()
    }
}

impl Drop for Bait {
    fn drop(&mut self) {
        // The end of its input is its sign to take everything away.
        drop(self.process.stdin.take());
        let status = self.process.wait().expect("it is our child");
        if !std::thread::panicking() {
            assert!(status.success(), "the bait did not survive: {status}");
        }
    }
}
