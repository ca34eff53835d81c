//! Many sandboxes through one launcher: what one job leaves must not reach the next. Speaks as much of the
//! usual harness's command line as cargo test and nextest need.

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tidemill_core::grant::PathAccess;
use tidemill_core::job::{Network, User};
use tidemill_core::root::{Account, Node, Owners, RootMount};
use tidemill_core::{ByteSize, Limits, RootPlan};
use tidemill_sandbox::{
    Ended, LAUNCHER_ARG, Launcher, LauncherConfig, Sandbox, SandboxRequest, StartError, Stdio,
    launcher_main,
};

type Outcome = Result<(), Box<dyn Error>>;
type Test = fn(&Launcher) -> Outcome;

const TESTS: &[(&str, Test)] = &[
    (
        "a_limit_of_memory_does_not_bound_the_next_job",
        memory_limits,
    ),
    ("figures_are_those_of_one_job", figures),
    ("a_network_that_was_used_is_not_kept", networks),
    ("a_network_that_was_not_used_is_kept", unused_network),
    ("an_order_that_comes_late_reaches_nobody", late_orders),
    ("a_launcher_ends_while_somebody_could_still_kill", killers),
    (
        "what_is_built_ahead_has_nothing_of_a_job_in_it",
        built_ahead,
    ),
    (
        "what_was_built_ahead_is_not_used_when_its_source_has_changed",
        changed_source,
    ),
    (
        "what_is_hidden_stays_hidden_when_it_was_built_ahead",
        hidden_ahead,
    ),
    (
        "what_was_built_ahead_goes_with_its_launcher",
        launcher_with_standby,
    ),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == LAUNCHER_ARG) {
        return launcher_main();
    }
    let names = args.iter().filter(|arg| !arg.starts_with('-'));
    let wanted: Vec<&String> = names.filter(|name| *name != "terse").collect();
    let is_exact = args.iter().any(|arg| arg == "--exact");
    let fits = |name: &str, part: &str| {
        if is_exact {
            part == name
        } else {
            name.contains(part)
        }
    };
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| fits(name, part));
    let chosen = TESTS.iter().filter(|(name, _)| is_wanted(name));
    if args.iter().any(|arg| arg == "--list") {
        // No test here is an ignored one.
        if !args.iter().any(|arg| arg == "--ignored") {
            chosen.for_each(|(name, _)| say(&format!("{name}: test\n")));
        }
        return ExitCode::SUCCESS;
    }
    let mut failed = false;
    for (name, test) in chosen {
        let result = with_launcher(*test);
        failed |= result.is_err();
        match result {
            Ok(()) => say(&format!("test {name} ... ok\n")),
            Err(error) => say(&format!("test {name} ... FAILED: {error}\n")),
        }
    }
    ExitCode::from(u8::from(failed))
}

fn say(line: &str) {
    // Where nobody reads, the exit code has to do.
    std::io::stdout().write_all(line.as_bytes()).ok();
}

fn with_launcher(test: Test) -> Outcome {
    let state = tempfile::tempdir()?;
    let launcher = Launcher::start(&LauncherConfig {
        state_dir: state.path().to_owned(),
        exe: std::env::current_exe()?,
        first: Vec::new(),
    })?;
    test(&launcher)?;
    drop(launcher);
    // It is made for the first sandbox.
    let left = match std::fs::read_dir(state.path().join("sandboxes")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        listed => listed?.count(),
    };
    check(left == 0, || format!("{left} directories are left"))
}

fn check(holds: bool, complaint: impl FnOnce() -> String) -> Outcome {
    if holds {
        Ok(())
    } else {
        Err(complaint().into())
    }
}

/// A shell with this script, these limits and further arguments of a kilobyte each.
fn request(name: &str, script: &str, limits: Limits, further: usize) -> SandboxRequest {
    let link = |path: &str, target: &str| Node::Symlink {
        path: path.into(),
        target: target.into(),
    };
    let mount = |path: &str| RootMount {
        source: path.into(),
        dest: path.into(),
        over: Vec::new(),
        access: PathAccess::ReadOnly,
        owners: Owners::AsIs,
        hidden: Vec::new(),
        why: "the host's programs".into(),
    };
    let user = User {
        uid: 1000,
        gid: 1000,
    };
    let mut args = vec!["-c".into(), script.into(), "sh".into()];
    args.extend((0..further).map(|_| "x".repeat(1000)));
    SandboxRequest {
        name: format!("test-{}-{name}", std::process::id()),
        root: RootPlan {
            trees: Vec::new(),
            nodes: vec![
                link("/bin", "usr/bin"),
                link("/lib", "usr/lib"),
                link("/lib64", "usr/lib64"),
            ],
            mounts: vec![mount("/usr"), mount("/etc")],
            files: Vec::new(),
            account: Account {
                user,
                name: "job".into(),
                home: "/tmp".into(),
                groups: Vec::new(),
            },
            root_writable: false,
            devices: Vec::new(),
            sys: false,
            allow: Vec::new(),
        },
        program: "/bin/sh".into(),
        args,
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        workdir: "/tmp".into(),
        network: Network::None,
        limits,
        tty: false,
        wait_children: false,
        scratch: None,
        measured: false,
    }
}

fn script(name: &str, script: &str) -> SandboxRequest {
    request(name, script, Limits::default(), 0)
}

fn start(launcher: &Launcher, request: &SandboxRequest) -> Result<(Sandbox, File), Box<dyn Error>> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let stdio = Stdio {
        stdin: File::open("/dev/null")?.into(),
        stdout: writer.try_clone()?,
        stderr: writer,
    };
    Ok((launcher.spawn(request, stdio)?, File::from(reader)))
}

fn run(launcher: &Launcher, request: &SandboxRequest) -> Result<(Ended, String), Box<dyn Error>> {
    let (sandbox, mut output) = start(launcher, request)?;
    let mut text = String::new();
    output.read_to_string(&mut text)?;
    Ok((sandbox.wait()?, text))
}

fn memory_limits(launcher: &Launcher) -> Outcome {
    let sizes = [
        (Some(ByteSize::mib(64)), 1900),
        (Some(ByteSize::mib(8)), 0),
        (Some(ByteSize::gib(1)), 1900),
        (None, 0),
        (Some(ByteSize::mib(128)), 1900),
    ];
    for (index, (memory, further)) in sizes.into_iter().enumerate() {
        let limits = Limits {
            memory,
            ..Limits::default()
        };
        let request = request(&index.to_string(), "echo $#", limits, further);
        let (ended, text) = run(launcher, &request)?;
        let holds = ended.exit_code == Some(0) && text.trim() == further.to_string();
        check(holds, || format!("{memory:?}: {text} {ended:?}"))?;
    }
    Ok(())
}

fn figures(launcher: &Launcher) -> Outcome {
    let many = "for i in 1 2 3 4 5 6 7 8; do sleep 0.3 & done; wait; \
                head -c 60000000 /dev/zero > /tmp/x";
    for (index, text) in [":", many, ":"].into_iter().enumerate() {
        let (ended, _) = run(launcher, &script(&index.to_string(), text))?;
        let usage = ended.usage;
        let is_many = index == 1;
        let pids = usage.peak_pids.is_none_or(|pids| (pids >= 8) == is_many);
        let is_large = usage
            .peak_memory_bytes
            .is_some_and(|bytes| bytes >= 50_000_000);
        check(pids && is_large == is_many, || {
            format!("{index}: {usage:?}")
        })?;
    }
    Ok(())
}

/// Tells the network namespace that a job is in.
const WHICH_NETWORK: &str = "readlink /proc/self/ns/net";

fn networks(launcher: &Launcher) -> Outcome {
    // A socket that is only opened and closed leaves no socket and no packet behind.
    for address in ["udp/127.0.0.1/9", "udp/::1/9"] {
        let text = format!("bash -c 'exec 3<>/dev/{address}' 2>/dev/null; {WHICH_NETWORK}");
        let (_, used) = run(launcher, &script("user", &text))?;
        let (_, next) = run(launcher, &script("next", WHICH_NETWORK))?;
        let holds = used.starts_with("net:") && used != next;
        check(holds, || format!("{address}: {used} and {next}"))?;
    }
    Ok(())
}

fn unused_network(launcher: &Launcher) -> Outcome {
    let (_, first) = run(launcher, &script("first", WHICH_NETWORK))?;
    let (_, second) = run(launcher, &script("second", WHICH_NETWORK))?;
    check(first == second, || format!("{first} and {second}"))
}

/// The processes 1 that descend from this process.
fn inits() -> Result<Vec<i32>, Box<dyn Error>> {
    let mut parents = std::collections::BTreeMap::new();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // It may have ended meanwhile.
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        let (Some(begin), Some(end)) = (text.find('('), text.rfind(')')) else {
            continue;
        };
        let parent = text[end + 1..].split_whitespace().nth(1);
        parents.insert(pid, parent.and_then(|parent| parent.parse::<i32>().ok()));
        if &text[begin + 1..end] == "tidemill-init" {
            found.push(pid);
        }
    }
    let own = i32::try_from(std::process::id())?;
    let is_ours = |pid: &i32| {
        let up = |pid: &i32| parents.get(pid).copied().flatten();
        std::iter::successors(Some(*pid), up).any(|pid| pid == own)
    };
    found.retain(is_ours);
    Ok(found)
}

/// Runs two equal jobs, and waits until a sandbox for a third one is built.
fn until_built_ahead(launcher: &Launcher, request: &SandboxRequest) -> Outcome {
    for round in 0..2 {
        let mut request = request.clone();
        request.name = format!("{}-{round}", request.name);
        run(launcher, &request)?;
    }
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while inits()?.is_empty() {
        check(std::time::Instant::now() < deadline, || {
            "nothing was built ahead".to_owned()
        })?;
        thread::yield_now();
    }
    Ok(())
}

fn built_ahead(launcher: &Launcher) -> Outcome {
    let text = "ls -A /tmp /dev/shm /dev/mqueue; echo $$; head -c 100000 /dev/zero > /tmp/x; \
                echo y > /dev/shm/y; echo $(wc -c < /tmp/x) $(cat /dev/shm/y); hostname";
    let (_, first) = run(launcher, &script("first", text))?;
    until_built_ahead(launcher, &script("ahead", text))?;
    let built = inits()?;
    // Sooner than what is built ahead is given up.
    let deadline = std::time::Instant::now() + Duration::from_secs(8);
    for round in 0.. {
        let (ended, text) = run(launcher, &script(&format!("last-{round}"), text))?;
        check(ended.exit_code == Some(0) && text == first, || {
            format!("{first} and {text}: {ended:?}")
        })?;
        // Another warden may have been quicker to be ready. One sandbox is for one job.
        if !inits()?.iter().any(|pid| built.contains(pid)) {
            break;
        }
        check(std::time::Instant::now() < deadline, || {
            format!("{built:?} was not used, or outlives its job")
        })?;
    }
    Ok(())
}

/// A job that shows the file `word` of a directory of the host.
fn reads_word(name: &str, directory: &std::path::Path, hidden: &[&str]) -> SandboxRequest {
    let mut request = script(name, "cat /data/word");
    request.root.mounts.push(RootMount {
        source: directory.to_string_lossy().into_owned(),
        dest: "/data".into(),
        over: Vec::new(),
        access: PathAccess::ReadOnly,
        owners: Owners::AsIs,
        hidden: hidden.iter().map(|path| (*path).to_owned()).collect(),
        why: "data of the test".into(),
    });
    request
}

fn directory_with_word(word: &str) -> Result<tempfile::TempDir, Box<dyn Error>> {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir()?;
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755))?;
    std::fs::create_dir(directory.path().join("data"))?;
    std::fs::write(directory.path().join("data/word"), word)?;
    Ok(directory)
}

fn changed_source(launcher: &Launcher) -> Outcome {
    let directory = directory_with_word("old")?;
    let data = directory.path().join("data");
    until_built_ahead(launcher, &reads_word("ahead", &data, &[]))?;
    std::fs::rename(&data, directory.path().join("moved"))?;
    std::fs::create_dir(&data)?;
    std::fs::write(data.join("word"), "new")?;
    let (_, text) = run(launcher, &reads_word("after", &data, &[]))?;
    check(text == "new", || format!("the job saw {text:?}"))
}

fn hidden_ahead(launcher: &Launcher) -> Outcome {
    let directory = directory_with_word("secret")?;
    let data = directory.path().join("data");
    let (ended, text) = run(launcher, &reads_word("first", &data, &["word"]))?;
    check(ended.exit_code == Some(0) && text.is_empty(), || {
        format!("a hidden file was shown: {text:?} {ended:?}")
    })?;
    until_built_ahead(launcher, &reads_word("ahead", &data, &["word"]))?;
    // As editors do it: what lay over the old file goes with it.
    std::fs::write(data.join("word.new"), "new secret")?;
    std::fs::rename(data.join("word.new"), data.join("word"))?;
    let (_, text) = run(launcher, &reads_word("after", &data, &["word"]))?;
    check(text.is_empty(), || format!("the job saw {text:?}"))
}

fn launcher_with_standby(_: &Launcher) -> Outcome {
    with_launcher(|launcher| until_built_ahead(launcher, &script("ahead", ":")))?;
    let left = inits()?;
    check(left.is_empty(), || format!("{left:?} are left"))
}

fn late_orders(launcher: &Launcher) -> Outcome {
    for round in 0..20 {
        let (sandbox, _output) = start(launcher, &script(&format!("a{round}"), ":"))?;
        let late = sandbox.killer();
        sandbox.wait()?;
        let (sandbox, mut output) = start(launcher, &script(&format!("b{round}"), "echo whole"))?;
        late.kill();
        let mut text = String::new();
        output.read_to_string(&mut text)?;
        let ended = sandbox.wait()?;
        let holds = ended.exit_code == Some(0) && text == "whole\n";
        check(holds, || format!("{ended:?} {text}"))?;
    }
    Ok(())
}

fn killers(_: &Launcher) -> Outcome {
    let (done, waiting) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let result = with_launcher(|launcher| {
            let (sandbox, _output) = start(launcher, &script("kept", "sleep 600"))?;
            let killer = sandbox.killer();
            killer.kill();
            match sandbox.wait() {
                Ok(_) | Err(StartError::LauncherGone { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            std::mem::forget(killer);
            Ok(())
        });
        // Whoever waited may have given up.
        done.send(result.map_err(|error| error.to_string())).ok();
    });
    Ok(waiting.recv_timeout(Duration::from_secs(30))??)
}
