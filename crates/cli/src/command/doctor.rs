//! `tidemill doctor`.

use serde::Serialize;
use tidemill_sandbox::{Check, CheckState, HostSupport, probe_host};

use crate::args::Format;
use crate::failure::{Failure, FailureKind};
use crate::output::Output;
use crate::ui::plain;

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
        Format::Text => output.line(&page(&host))?,
    }
    if can_isolate {
        Ok(0)
    } else {
        Ok(FailureKind::Unsupported.exit_code())
    }
}

fn page(host: &HostSupport) -> String {
    let width = host
        .checks
        .iter()
        .map(|check| check.name.chars().count())
        .max()
        .unwrap_or(0);
    let mut lines = Vec::new();
    for check in &host.checks {
        let state = match check.state {
            CheckState::Ok => "ok",
            CheckState::Limited => "limited",
            CheckState::Missing => "missing",
        };
        let Check {
            name,
            found,
            blocked_by,
            fix,
            ..
        } = check;
        lines.push(format!("{state:<8}  {name:<width$}  {}", plain(found)));
        let below = |label: &str, text: &str| format!("{:10}{label}: {}", "", plain(text));
        lines.extend(blocked_by.iter().map(|rule| below("blocked by", rule)));
        lines.extend(fix.iter().map(|fix| below("fix", fix)));
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
        insta::assert_snapshot!(page(&host), @r"
        ok        overlay          something
        missing   user-namespaces  something
                  blocked by: a sysctl
                  fix: sysctl x=1

        jobs cannot run on this machine until what is missing above is fixed
        ");
    }
}
