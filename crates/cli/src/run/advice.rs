//! What somebody who knows other tools may have meant, once the job has ended.

use tidemill_core::job::{Image, Network};
use tidemill_core::{GrantRequest, JobSpec, ReasonCode};
use tidemill_ledger::Snapshot;
use tidemill_oci::Reference;

/// What a program that ran as user 0 may have failed for.
const ROOT_BY_NAME: &str = "user 0 in a sandbox is root by name and has no capabilities: for chown, su and \
                            package managers that change users add --grant root";
/// The same, where --grant root would be refused.
const NO_SUB_IDS: &str = "user 0 in a sandbox is root by name and has no capabilities; for chown, su and package \
                          managers that change users it takes --grant root, which needs sub-ids: `tidemill \
                          doctor` says how to get them";

/// Programs that change what belongs to root.
const OF_ROOT: &[&str] = &[
    "apt", "apt-get", "dpkg", "apk", "dnf", "microdnf", "yum", "rpm", "zypper", "pacman",
    "adduser", "addgroup", "useradd", "groupadd", "usermod",
];
/// What `apt-get` ends with when it cannot do something (apt-get(8), "Diagnostics").
const APT_FAILED: i32 = 100;

/// What to write instead, where the job's end tells. `has_sub_ids` is asked only if it matters.
pub(super) fn after(
    snapshot: &Snapshot,
    spec: &JobSpec,
    has_sub_ids: impl Fn() -> bool,
) -> Option<String> {
    let code = snapshot.reason.as_ref()?.code;
    match code {
        ReasonCode::ProgramNotFound => meant_as_image(snapshot.command.first()?),
        ReasonCode::Exit if spec.grants.contains(&GrantRequest::Root) => None,
        ReasonCode::Exit if spec.user.is_some_and(|user| user.uid == 0) => {
            let hint = if has_sub_ids() {
                ROOT_BY_NAME
            } else {
                NO_SUB_IDS
            };
            Some(hint.to_owned())
        }
        ReasonCode::Exit if is_of_root(snapshot) && spec.image != Image::Host => {
            Some(as_root(spec, has_sub_ids()))
        }
        _ => None,
    }
}

/// An image where the program should be: `tidemill run debian:12 id`.
fn meant_as_image(program: &str) -> Option<String> {
    let reference: Reference = program.parse().ok()?;
    let host = program.split_once('/').map_or("", |(host, _)| host);
    let has_host = host == "localhost"
        || host.contains(|c: char| matches!(c, '.' | ':') || c.is_ascii_uppercase());
    (reference.digest().is_some() || has_tag(program) || has_host)
        .then(|| format!("did you mean --image oci:{program}? The program stands after it"))
}

fn has_tag(reference: &str) -> bool {
    let name = reference.rsplit('/').next().unwrap_or(reference);
    name.contains(':')
}

/// True if what failed is what only root can do: by the program, by the script of a shell, or by apt's code.
fn is_of_root(snapshot: &Snapshot) -> bool {
    let name = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let is_meant = |word: &str| OF_ROOT.contains(&name(word).as_str());
    let command = &snapshot.command;
    let in_script = || {
        let is_shell = command
            .first()
            .is_some_and(|word| name(word).ends_with("sh"));
        let is_flag = |word: &&String| word.starts_with('-') && word.ends_with('c');
        let script = command.iter().skip_while(|word| !is_flag(word)).nth(1);
        let words = |script: &String| {
            let between = |c: char| c.is_whitespace() || matches!(c, ';' | '&' | '|' | '(' | ')');
            script.split(between).any(is_meant)
        };
        is_shell && script.is_some_and(words)
    };
    snapshot.exit_code == Some(APT_FAILED)
        || command.first().is_some_and(|word| is_meant(word))
        || in_script()
}

fn as_root(spec: &JobSpec, has_sub_ids: bool) -> String {
    let network = match spec.network {
        Network::None => ", and --net host for packages from the network",
        Network::Host => "",
    };
    let sub_ids = if has_sub_ids {
        ""
    } else {
        "; that needs sub-ids: `tidemill doctor` says how to get them"
    };
    format!("what only root may do takes --user 0 --grant root{network}{sub_ids}")
}

#[cfg(test)]
mod tests {
    use tidemill_core::job::User;
    use tidemill_core::{Reason, State};

    use super::*;
    use crate::testing::snapshot;

    fn failed(code: ReasonCode, exit_code: i32, command: &[&str]) -> Snapshot {
        let mut snapshot = snapshot(1, State::Failed);
        snapshot.reason = Some(Reason::new(code, "it failed"));
        snapshot.exit_code = Some(exit_code);
        snapshot.command = command.iter().map(|&word| word.to_owned()).collect();
        snapshot
    }

    fn in_image() -> JobSpec {
        let mut spec = JobSpec::new("true", []);
        spec.image = Image::Dir {
            path: "/srv/root".into(),
        };
        spec
    }

    #[test]
    fn what_only_root_may_do_has_a_hint_in_an_image() {
        for (code, command, expected) in [
            (100, &["apt-get", "update"][..], true),
            (100, &["/entry.sh"], true),
            (1, &["/sbin/apk", "add", "curl"], true),
            (1, &["sh", "-ec", "true;apk add x", "x"], true),
            (1, &["/bin/sh", "-c", "cd /&&(apk add x)"], true),
            (1, &["echo", "-c", "apk"], false),
            (1, &["make"], false),
        ] {
            let hint = after(
                &failed(ReasonCode::Exit, code, command),
                &in_image(),
                || true,
            );
            let is_meant = hint.is_some_and(|hint| {
                hint.contains("--user 0 --grant root, and --net host") && !hint.contains("sub-ids")
            });
            assert_eq!(is_meant, expected, "{command:?}");
        }
        let apt = failed(ReasonCode::Exit, 100, &["apt-get"]);
        assert_eq!(after(&apt, &JobSpec::new("true", []), || true), None);
        let late = failed(ReasonCode::Time, 100, &["apt-get"]);
        assert_eq!(after(&late, &in_image(), || true), None);
        let mut spec = in_image();
        spec.network = Network::Host;
        let hint = after(&apt, &spec, || false).unwrap_or_default();
        assert!(
            hint.contains("sub-ids") && !hint.contains("--net"),
            "{hint}"
        );
    }

    #[test]
    fn nobody_is_told_to_ask_for_what_would_be_refused() {
        let mut spec = in_image();
        spec.user = Some(User { uid: 0, gid: 0 });
        let end = failed(ReasonCode::Exit, 1, &["chown"]);
        assert_eq!(after(&end, &spec, || true).as_deref(), Some(ROOT_BY_NAME));
        let without = after(&end, &spec, || false).unwrap_or_default();
        assert!(
            without.contains("needs sub-ids: `tidemill doctor`"),
            "{without}"
        );
        spec.grants = vec![GrantRequest::Root];
        assert_eq!(after(&end, &spec, || true), None);
    }

    #[test]
    fn an_image_in_the_place_of_a_program_is_recognised() {
        let digest = format!("a@sha256:{}", "0".repeat(64));
        for (program, expected) in [
            ("debian:12", true),
            ("localhost/app", true),
            ("localhost:5000/bb:1", true),
            ("ghcr.io/me/app", true),
            (digest.as_str(), true),
            ("debian", false),
            ("bin/tool", false),
            ("./tool:1", false),
            ("/opt/a.b/tool", false),
        ] {
            let end = failed(ReasonCode::ProgramNotFound, 127, &[program, "id"]);
            let hint = after(&end, &JobSpec::new("true", []), || true);
            assert_eq!(hint.is_some(), expected, "{program}: {hint:?}");
            assert!(hint.is_none_or(|hint| hint.contains(&format!("--image oci:{program}"))));
        }
    }
}
