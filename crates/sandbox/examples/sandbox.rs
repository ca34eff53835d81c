//! Runs a command in a sandbox over the host's /usr: `cargo run --example sandbox -- PROGRAM ARGS…`.
//! Shows the smallest complete use of this crate.

use std::io::Write;
use std::process::ExitCode;

use tidemill_core::grant::PathAccess;
use tidemill_core::job::{Network, User};
use tidemill_core::root::{Account, GeneratedFile, Node, Owners, RootMount};
use tidemill_core::{Limits, RootPlan, Stream};
use tidemill_sandbox::{
    LAUNCHER_ARG, Launcher, LauncherConfig, Next, SandboxRequest, Stdio, launcher_main,
    output_pipes,
};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let program = args.next().unwrap_or_else(|| "id".to_owned());
    if program == LAUNCHER_ARG {
        return launcher_main();
    }
    match run(program, args.collect()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Where stderr is closed, the exit code has to do.
            writeln!(std::io::stderr(), "sandbox: {error}").ok();
            ExitCode::from(125)
        }
    }
}

fn run(program: String, args: Vec<String>) -> Result<u8, Box<dyn std::error::Error>> {
    let state_dir = std::env::temp_dir().join(format!("sandbox-example-{}", std::process::id()));
    std::fs::create_dir_all(&state_dir)?;
    let config = LauncherConfig {
        state_dir: state_dir.clone(),
        exe: std::env::current_exe()?,
        first: Vec::new(),
    };
    let launcher = Launcher::start(&config)?;
    let link = |path: &str, target: &str| Node::Symlink {
        path: path.into(),
        target: target.into(),
    };
    let mount = |path: &str, access| RootMount {
        source: path.into(),
        dest: path.into(),
        over: Vec::new(),
        access,
        owners: Owners::AsIs,
        hidden: vec!["shadow".into(), "ssl/private".into()],
        why: "the host's programs".into(),
    };
    let request = SandboxRequest {
        name: format!("example-{}", std::process::id()),
        root: RootPlan {
            trees: Vec::new(),
            nodes: vec![
                link("/bin", "usr/bin"),
                link("/lib", "usr/lib"),
                link("/lib64", "usr/lib64"),
                Node::Dir {
                    path: "/home/job".into(),
                    mode: 0o755,
                    job_owned: true,
                },
            ],
            mounts: vec![
                mount("/usr", PathAccess::ReadOnly),
                mount("/etc", PathAccess::CopyOnWrite),
            ],
            files: vec![GeneratedFile {
                path: "/etc/passwd".into(),
                content: "root:x:0:0::/root:/bin/sh\njob:x:1000:1000::/home/job:/bin/sh\n".into(),
            }],
            account: Account {
                user: User {
                    uid: 1000,
                    gid: 1000,
                },
                name: "job".into(),
                home: "/home/job".into(),
                groups: Vec::new(),
            },
            root_writable: false,
            devices: Vec::new(),
            sys: false,
            allow: Vec::new(),
        },
        program,
        args,
        env: vec![
            ("PATH".into(), "/usr/bin:/bin".into()),
            ("HOME".into(), "/home/job".into()),
        ],
        workdir: "/home/job".into(),
        network: Network::None,
        limits: Limits::default(),
        tty: false,
        wait_children: false,
        scratch: None,
        measured: false,
    };
    let (mut reader, stdout, stderr) = output_pipes()?;
    let stdin = std::fs::File::open("/dev/null")?.into();
    let sandbox = launcher.spawn(
        &request,
        Stdio {
            stdin,
            stdout,
            stderr,
        },
    )?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match reader.next(&mut buffer, None)? {
            Next::Piece {
                stream: Stream::Stdout,
                length,
            } => {
                std::io::stdout().write_all(&buffer[..length])?;
            }
            Next::Piece {
                stream: Stream::Stderr,
                length,
            } => {
                std::io::stderr().write_all(&buffer[..length])?;
            }
            Next::TimedOut => {}
            Next::Closed => break,
        }
    }
    let ended = sandbox.wait()?;
    writeln!(std::io::stderr(), "{ended:?}")?;
    drop(launcher);
    std::fs::remove_dir_all(&state_dir)?;
    Ok(ended
        .exit_code
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(128))
}
