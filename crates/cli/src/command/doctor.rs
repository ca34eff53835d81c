//! `tidemill doctor`.

mod fixes;

use serde::Serialize;
use tidemill_sandbox::{Check, CheckState, HostSupport, probe_host};

use self::fixes::{Admin, fixes};
use crate::args::Format;
use crate::failure::{Failure, FailureKind};
use crate::output::Output;
use crate::ui::plain;

/// Characters of a path that are shown whole.
const SHORT: usize = 40;
/// Characters of the beginning and of the end of a longer one.
const SHORT_HEAD: usize = 27;
const SHORT_TAIL: usize = 12;

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    version: u32,
    /// True if jobs can run on this machine.
    can_isolate: bool,
    checks: &'a [Check],
}

pub(crate) fn doctor(format: Format, output: &mut Output) -> Result<u8, Failure> {
    let host = probe_host();
    let can_isolate = host.can_isolate();
    match format {
        Format::Json => {
            output.json_document(&Report {
                version: 1,
                can_isolate,
                checks: &host.checks,
            })?;
        }
        Format::Text => output.line(&page(&host, &Admin::here()))?,
    }
    if can_isolate {
        Ok(0)
    } else {
        Ok(FailureKind::Unsupported.exit_code())
    }
}

fn page(host: &HostSupport, admin: &Admin) -> String {
    let width = host
        .checks
        .iter()
        .map(|check| check.name.chars().count())
        .max()
        .unwrap_or(0);
    let mut lines = Vec::new();
    let fixes = fixes(&host.checks, admin);
    for (index, check) in host.checks.iter().enumerate() {
        let state = match check.state {
            CheckState::Ok => "ok",
            CheckState::Limited => "limited",
            CheckState::Missing => "missing",
        };
        let Check {
            name,
            found,
            blocked_by,
            ..
        } = check;
        let twin = host.checks[..index].iter().find(|twin| {
            twin.state == check.state && twin.found == *found && found.chars().count() > SHORT
        });
        let found = match twin {
            Some(twin) => format!("the same as {}", plain(&twin.name)),
            None => shortened(&plain(found)),
        };
        lines.push(format!("{state:<8}  {name:<width$}  {found}"));
        let below = |label: &str, text: &str| format!("{:10}{label}: {}", "", plain(text));
        lines.extend(blocked_by.iter().map(|rule| below("blocked by", rule)));
        lines.extend(fixes[index].iter().map(|fix| below(fix.label, &fix.text)));
    }
    let verdict = if host.can_isolate() {
        "jobs can run on this machine"
    } else {
        "jobs cannot run on this machine until what is missing above is fixed"
    };
    lines.push(String::new());
    lines.push(verdict.to_owned());
    lines.join("\n")
}

/// A finding with the middle of its long paths left out; the JSON form has them whole.
fn shortened(text: &str) -> String {
    let words: Vec<String> = text.split(' ').map(short_path).collect();
    words.join(" ")
}

fn short_path(word: &str) -> String {
    if !word.starts_with('/') || word.chars().count() <= SHORT {
        return word.to_owned();
    }
    let head: String = word.chars().take(SHORT_HEAD).collect();
    let skipped = word.chars().count() - SHORT_TAIL;
    let tail: String = word.chars().skip(skipped).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_says_what_to_do() {
        let check = |name: &str, state, blocked_by: Option<&str>, fix: Option<&str>| Check {
            name: name.to_owned(),
            state,
            found: "something".to_owned(),
            blocked_by: blocked_by.map(str::to_owned),
            fix: fix.map(str::to_owned),
        };
        let host = HostSupport {
            checks: vec![
                check("overlay", CheckState::Ok, None, None),
                check(
                    "user-namespaces",
                    CheckState::Missing,
                    Some("a sysctl"),
                    Some("sysctl x=1"),
                ),
            ],
        };
        insta::assert_snapshot!(page(&host, &Admin::Sudo), @r"
        ok        overlay          something
        missing   user-namespaces  something
                  blocked by: a sysctl
                  fix: sysctl x=1

        jobs cannot run on this machine until what is missing above is fixed
        ");
    }

    #[test]
    fn long_paths_are_cut_and_not_repeated() {
        let path = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope";
        let check = |name: &str, state, path: &str| Check {
            name: name.to_owned(),
            state,
            found: format!("version 2 below {path}"),
            blocked_by: None,
            fix: (state == CheckState::Limited).then(|| format!("mkdir {path}")),
        };
        let host = HostSupport {
            checks: vec![
                check("memory", CheckState::Ok, path),
                check("pids", CheckState::Ok, path),
                check("cpu", CheckState::Limited, path),
                check("short", CheckState::Ok, "/sys/fs/cgroup/cpu"),
            ],
        };
        insta::assert_snapshot!(page(&host, &Admin::Sudo), @r"
        ok        memory  version 2 below /sys/fs/cgroup/user.slice/u…lice/x.scope
        ok        pids    the same as memory
        limited   cpu     version 2 below /sys/fs/cgroup/user.slice/u…lice/x.scope
                  fix: mkdir /sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope
        ok        short   version 2 below /sys/fs/cgroup/cpu

        jobs can run on this machine
        ");
    }
}
