//! Flags and commands by which other tools that run jobs know the same thing.

/// What they write, and what is written here.
const FLAGS: &[(&[&str], &str)] = &[
    (
        &["--rm"],
        "leave --rm out: nothing is left of a job but its record and log",
    ),
    (
        &["-i", "--interactive"],
        "write --stdin to pass your input on",
    ),
    (
        &["-t"],
        "write --tty for a terminal; it passes your input on too",
    ),
    (
        &["-v", "--volume", "--mount"],
        "--layer dir:SRC=DEST lays a directory over the image; --grant bind:SRC:DEST[:rw] shows a real \
         one; --workspace DIR --write lets the job work in one",
    ),
    (
        &["-e"],
        "write --env NAME=VALUE, or --pass-env NAME to pass yours on",
    ),
    (
        &["--env-file"],
        "write --env NAME=VALUE for each, or a job file with `env` for --file",
    ),
    (&["-w", "--cwd", "--chdir", "-C"], "write --workdir PATH"),
    (&["-u"], "write --user UID[:GID]"),
    (&["-m", "--mem"], "write --memory SIZE"),
    (&["-l"], "write --label KEY=VALUE"),
    (&["-n"], "write --name NAME"),
    (&["--network"], "write --net none or --net host"),
    (
        &["-p", "--publish", "--expose"],
        "a job has a loopback of its own; --net host gives it this machine's network",
    ),
    (
        &["-d", "--detach"],
        "let your shell run it in the background (`&`); `tidemill logs -f ID` follows it from anywhere",
    ),
    (
        &["--entrypoint"],
        "the program and its arguments stand after `--`",
    ),
    (&["--device"], "write --grant device:PATH"),
    (
        &["--privileged", "--cap-add", "--security-opt"],
        "write --grant with each thing that it needs, such as userns or sys; `tidemill explain` shows \
         what a job gets",
    ),
    (&["--shm-size"], "write --shm SIZE"),
    (&["--pids-limit"], "write --pids N"),
    (&["--stop-timeout"], "write --grace TIME"),
    (&["--ulimit"], "write --open-files N"),
];

/// Their commands, and what is written here.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["kill", "stop", "abort"], "write tidemill cancel ID"),
    (&["ls", "list", "jobs"], "write tidemill ps"),
    (
        &["rm", "remove", "prune", "clean", "gc"],
        "records go by themselves: TIDEMILL_KEEP_FOR, TIDEMILL_KEEP_COUNT and TIDEMILL_KEEP_BYTES say when",
    ),
    (
        &["exec", "attach", "enter"],
        "nobody enters a job that runs; run it again with tidemill run --tty",
    ),
    (&["inspect", "status"], "write tidemill show ID"),
    (&["pull"], "write tidemill image pull REF"),
    (&["images"], "write tidemill image ls"),
    (&["load", "import"], "write tidemill image import SOURCE"),
    (&["rmi"], "write tidemill image rm IMAGE"),
    (&["tag"], "write tidemill image tag IMAGE REF"),
];

/// What to write for a command that is none of ours.
pub(super) fn command_hint(command: &str) -> Option<&'static str> {
    advice(COMMANDS, command)
}

fn advice(table: &'static [(&[&str], &str)], name: &str) -> Option<&'static str> {
    table
        .iter()
        .find(|(names, _)| names.contains(&name))
        .map(|(_, advice)| *advice)
}

/// What to write for a flag that `run` and `explain` do not know.
pub(super) fn hint(flag: &str, arguments: &[String]) -> Option<String> {
    let takes_a_job = arguments
        .iter()
        .any(|word| matches!(word.as_str(), "run" | "explain"));
    if !takes_a_job {
        return None;
    }
    if flag == "-i" || flag == "-t" {
        let both = arguments
            .iter()
            .find(|word| matches!(word.as_str(), "-it" | "-ti"));
        if let Some(both) = both {
            return Some(format!("write --stdin --tty for {both}"));
        }
    }
    let name = flag.split('=').next().unwrap_or(flag);
    advice(FLAGS, name).map(str::to_owned)
}
