//! The environment of a job: defaults, then what the caller passes on, then what the spec says.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use tidemill_core::Grant;
use tidemill_core::job::{Image, JobSpec, Network};
use tidemill_core::limits::ARGUMENT_BYTES_MAX;
use tidemill_core::root::Account;

use crate::host_view::HostView;
use crate::overlay::Found;
use crate::plan::PlanError;
use crate::stack::Stack;
use crate::toolchain::Tools;

/// The path of programs in a root that says nothing else.
pub const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What package managers are told in a job without a network, so that they take what is there, and fail at
/// once where they would ask again for minutes. Each with the programs that read it.
const WITHOUT_NETWORK: [(&[&str], &str, &str); 4] = [
    (&["npm", "pnpm"], "npm_config_fetch_retries", "0"),
    (&["npm", "pnpm"], "npm_config_prefer_offline", "true"),
    (&["pip", "pip3", "python3", "python"], "PIP_RETRIES", "0"),
    (
        &["pip", "pip3", "python3", "python"],
        "PIP_DISABLE_PIP_VERSION_CHECK",
        "1",
    ),
];

/// A complete environment, and what of it came from the caller.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    pub(crate) list: Vec<(String, String)>,
    pub(crate) grants: Vec<Grant>,
}

/// Builds the environment.
///
/// Deliberately absent: `CI` (it changes what tools do), `TMPDIR` (`/tmp` is private already),
/// `MAKEFLAGS` (parallel make breaks makefiles that are not ready for it), and `safe.directory` of git
/// (the workspace belongs to the job's user as it is, and git's own tests see the variables).
pub(crate) fn build(
    spec: &JobSpec,
    host: &HostView,
    account: &Account,
    stack: &Stack,
    tools: &Tools,
    workdir: &str,
) -> Result<Variables, PlanError> {
    let mut env: BTreeMap<String, String> = BTreeMap::new();
    let mut grants = Vec::new();
    let mut set = |name: &str, value: &str| {
        env.insert(name.to_owned(), value.to_owned());
    };
    let is_there = |path: &str| {
        stack
            .resolve(path)
            .is_ok_and(|resolved| resolved.found != Found::Nothing)
    };
    let path = path(spec, tools, is_there);
    set("PATH", &path);
    set("HOME", &account.home);
    set("USER", &account.name);
    set("LOGNAME", &account.name);
    set("PWD", workdir);
    set(
        "SHELL",
        if is_there("/bin/bash") {
            "/bin/bash"
        } else {
            "/bin/sh"
        },
    );
    set(
        "LANG",
        if has_utf8_locale(is_there) {
            "C.UTF-8"
        } else {
            "C"
        },
    );
    set("TZ", "UTC");
    set("TERM", terminal(spec, host));
    set("GIT_TERMINAL_PROMPT", "0");
    set("TIDEMILL", "1");
    if let Some(cpus) = spec.limits.cpus {
        // These count the CPUs of the machine where the sandbox cannot set an affinity.
        for name in ["CARGO_BUILD_JOBS", "GOMAXPROCS"] {
            set(name, &cpus.visible().to_string());
        }
    }
    if spec.network == Network::None {
        for (name, value) in without_network(tools, &path, is_there) {
            set(name, value);
        }
    }
    for (name, value) in &tools.env {
        set(name, value);
        grants.push(Grant::Environment { name: name.clone() });
    }
    for name in &spec.pass_env {
        let Some(value) = host.env.get(OsStr::new(name)) else {
            continue;
        };
        let wrong = |why: &str| PlanError::Variable {
            name: name.clone(),
            why: why.to_owned(),
        };
        let value = value
            .to_str()
            .ok_or_else(|| wrong("its value is not UTF-8"))?;
        if name.len() + 1 + value.len() > ARGUMENT_BYTES_MAX {
            return Err(wrong(
                "it is longer than the 131,071 bytes that Linux allows",
            ));
        }
        set(name, value);
        grants.push(Grant::Environment { name: name.clone() });
    }
    for (name, value) in &spec.env {
        set(name, value);
    }
    Ok(Variables {
        list: env.into_iter().collect(),
        grants,
    })
}

/// What the package managers that are there are told in a job without a network.
fn without_network(
    tools: &Tools,
    path: &str,
    is_there: impl Fn(&str) -> bool,
) -> Vec<(&'static str, &'static str)> {
    let is_program = |name: &&str| {
        path.split(':')
            .any(|entry| is_there(&format!("{entry}/{name}")))
    };
    // Without it, cargo tries again for ten seconds and then fails, where it could have taken what is
    // downloaded.
    let cargo = tools.has_cargo.then_some(("CARGO_NET_OFFLINE", "true"));
    let others = WITHOUT_NETWORK
        .iter()
        .filter(|(programs, ..)| programs.iter().any(is_program))
        .map(|(_, name, value)| (*name, *value));
    cargo.into_iter().chain(others).collect()
}

/// The path of programs: the caller's entries that exist inside, or the default.
fn path(spec: &JobSpec, tools: &Tools, is_there: impl Fn(&str) -> bool) -> String {
    if spec.image != Image::Host {
        return PATH_DEFAULT.to_owned();
    }
    let mut entries: Vec<&str> = Vec::new();
    for entry in tools
        .path
        .iter()
        .map(String::as_str)
        .chain(["/usr/bin", "/bin"])
    {
        if !entries.contains(&entry) && is_there(entry) {
            entries.push(entry);
        }
    }
    entries.join(":")
}

/// True if the C library of the root knows `C.UTF-8`: musl always does, glibc where it was installed.
fn has_utf8_locale(is_there: impl Fn(&str) -> bool) -> bool {
    const SIGNS: &[&str] = &[
        "/usr/lib/locale/C.utf8",
        "/usr/lib/locale/C.UTF-8",
        "/usr/lib64/locale/C.utf8",
        "/lib/ld-musl-x86_64.so.1",
        "/lib/ld-musl-aarch64.so.1",
        "/run/current-system/sw/lib/locale/locale-archive",
    ];
    SIGNS.iter().any(|sign| is_there(sign))
}

fn terminal<'a>(spec: &JobSpec, host: &'a HostView) -> &'a str {
    match host.variable("TERM") {
        Some(term) if spec.tty && !term.is_empty() => term,
        _ => "dumb",
    }
}
