//! Flags and commands by which other tools that run jobs know the same thing.

/// What they write, and what is written here.
const FLAGS: Table = &[
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

/// Flags of the commands that have no job.
const COMMAND_FLAGS: &[(&[&str], Table)] = &[
    (
        &["ps"],
        &[
            (
                &["-a", "--all"],
                "leave it out: executions that have ended are listed too",
            ),
            (&["-q", "--quiet", "--no-trunc"], WHOLE),
            (&["-n", "--last"], "write --limit N"),
            (&["-l", "--latest"], "write --limit 1"),
            (
                &["-f", "--filter"],
                "write --state STATE, --name NAME or --label KEY=VALUE",
            ),
        ],
    ),
    (&["logs"], &[(&["-n", "--lines"], "write --tail N")]),
    (
        &["image", "ls"],
        &[
            (&["-a", "--all"], "leave it out: all images are listed"),
            (&["-q", "--quiet", "--no-trunc", "--digests"], WHOLE),
        ],
    ),
    (
        &["image", "rm"],
        &[(
            &["-f", "--force"],
            "leave it out: nobody is asked, and a job that runs keeps what it uses",
        )],
    ),
    (
        &["image", "pull"],
        &[
            (&["-q", "--quiet"], QUIET),
            (
                &["--tls-verify", "--insecure"],
                "write --plain-http for a registry without TLS",
            ),
        ],
    ),
    (
        &["image", "import"],
        &[
            (
                &["-i", "--input"],
                "write the path alone, or - for standard input",
            ),
            (&["-t", "--tag"], "write --name REF"),
            (&["-q", "--quiet"], QUIET),
        ],
    ),
    (&["image", "show"], &[(&["-f"], "write --format json")]),
    (
        &["cache", "ls"],
        &[(&["-q", "--quiet", "--no-trunc"], WHOLE)],
    ),
    (
        &["cache", "prune"],
        &[
            (&["-a"], "write --all"),
            (
                &["-f", "--force"],
                "leave it out: nobody is asked; --dry-run says what would go",
            ),
            (&["-n"], "write --dry-run"),
            (&["--filter", "--until"], "write --unused-for DURATION"),
        ],
    ),
];

const WHOLE: &str = "write --format json, which has ids and digests whole, for programs";
const QUIET: &str = "leave it out: progress is shown on a terminal alone";

/// Their commands, and what is written here.
const COMMANDS: Table = &[
    (&["kill", "stop", "abort"], "write tidemill cancel ID"),
    (&["ls", "list", "jobs"], "write tidemill ps"),
    (
        &["rm", "remove", "prune", "clean", "gc"],
        "records go by themselves: TIDEMILL_KEEP_FOR, TIDEMILL_KEEP_COUNT and TIDEMILL_KEEP_BYTES say when; \
         unpacked layers and images: tidemill cache prune",
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
    (&["info"], "write tidemill doctor"),
    (
        &["system"],
        "write tidemill cache du, or tidemill cache prune",
    ),
    (
        &["volume", "volumes"],
        "no data is kept between jobs but in directories of yours: --workspace DIR --write, or \
         --grant bind:SRC:DEST:rw",
    ),
];

/// What other tools do with images, as a command of their own or of `image`.
const IMAGES_ELSEWHERE: Table = &[
    (
        &["login", "logout"],
        "tidemill is signed in where docker is: `docker login REGISTRY` (or logout), or \
         `skopeo login --compat-auth-file ~/.docker/config.json REGISTRY`",
    ),
    (
        &["build"],
        "images are built elsewhere and read in (docker save NAME | tidemill image import -); files are \
         laid over one without a build: tidemill run --image oci:REF --layer dir:SRC=DEST",
    ),
    (
        &["push", "save", "export"],
        "images come in and do not go out again: docker or skopeo copy push and save them",
    ),
    (
        &["commit"],
        "what a job changes makes no image: --layer command:SCRIPT keeps what a script makes, and \
         --workspace DIR --write what a job does",
    ),
];

const IMAGE_COMMANDS: Table = &[
    (
        &["prune", "clean", "gc"],
        "write tidemill cache prune, which removes what no image has a name for; tidemill image rm IMAGE \
         takes the name away",
    ),
    (&["delete", "rmi"], "write tidemill image rm IMAGE"),
    (&["history"], "write tidemill image show IMAGE"),
];

const CACHE_COMMANDS: Table = &[
    (
        &["clear", "clean", "rm", "remove", "delete", "purge"],
        "write tidemill cache prune --all",
    ),
    (&["gc"], "write tidemill cache prune"),
    (&["list"], "write tidemill cache ls"),
    (&["df", "size", "info"], "write tidemill cache du"),
    (&["check", "fsck"], "write tidemill cache verify"),
];

/// What is written elsewhere, and the advice for it.
type Table = &'static [(&'static [&'static str], &'static str)];

/// What to write for a command that is none of ours. `path` are the commands before it.
pub(super) fn command_hint(path: &[String], command: &str) -> Option<&'static str> {
    match path.first().map(String::as_str) {
        None => advice(COMMANDS, command).or_else(|| advice(IMAGES_ELSEWHERE, command)),
        Some("image") => {
            advice(IMAGE_COMMANDS, command).or_else(|| advice(IMAGES_ELSEWHERE, command))
        }
        Some("cache") => advice(CACHE_COMMANDS, command),
        Some(_) => None,
    }
}

fn advice(table: Table, name: &str) -> Option<&'static str> {
    table
        .iter()
        .find(|(names, _)| names.contains(&name))
        .map(|(_, advice)| *advice)
}

/// What to write for a flag that the command does not know. `path` is the command's name, after that of
/// the one that it belongs to.
pub(super) fn flag_hint(path: &[String], flag: &str, arguments: &[String]) -> Option<String> {
    let name = flag.split('=').next().unwrap_or(flag);
    let takes_a_job = matches!(path, [command] if command == "run" || command == "explain");
    if !takes_a_job {
        let (_, table) = COMMAND_FLAGS.iter().find(|(command, _)| *command == path)?;
        return advice(table, name).map(str::to_owned);
    }
    if flag == "-i" || flag == "-t" {
        let both = arguments
            .iter()
            .find(|word| matches!(word.as_str(), "-it" | "-ti"));
        if let Some(both) = both {
            return Some(format!("write --stdin --tty for {both}"));
        }
    }
    advice(FLAGS, name).map(str::to_owned)
}

/// Panics if a hint is for a command that there is not, or for a flag or command that is ours.
#[cfg(test)]
pub(super) fn check(cli: &clap::Command) {
    let below = |path: &[&str]| {
        path.iter().fold(cli, |command, name| {
            command
                .find_subcommand(name)
                .unwrap_or_else(|| panic!("there is no command {path:?}"))
        })
    };
    let flags = COMMAND_FLAGS.iter().copied();
    let of_jobs = [(&["run"][..], FLAGS), (&["explain"][..], FLAGS)];
    for (path, table) in flags.chain(of_jobs) {
        let command = below(path);
        for flag in table.iter().flat_map(|(names, _)| *names) {
            let is_ours = command.get_arguments().any(|argument| {
                let long = argument.get_long().map(|long| format!("--{long}"));
                let short = argument.get_short().map(|short| format!("-{short}"));
                [long, short].into_iter().flatten().any(|own| own == *flag)
            });
            assert!(!is_ours, "{path:?} has {flag}");
        }
    }
    for (path, table) in [
        (&[][..], COMMANDS),
        (&[], IMAGES_ELSEWHERE),
        (&["image"], IMAGES_ELSEWHERE),
        (&["image"], IMAGE_COMMANDS),
        (&["cache"], CACHE_COMMANDS),
    ] {
        for name in table.iter().flat_map(|(names, _)| *names) {
            assert!(
                below(path).find_subcommand(name).is_none(),
                "{path:?} has {name}"
            );
        }
    }
}
