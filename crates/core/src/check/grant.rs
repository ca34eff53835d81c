//! What a job gets beyond the sandbox of every job, by name.

use super::source::{Wanted, is_within, sandbox_path, short_enough, tidied};
use super::{Findings, PathKind, Surroundings, shown};
use crate::diagnostic::{DiagnosticCode, nearest};
use crate::draft::{Draft, Located};
use crate::grant::GrantRequest;
use crate::job::Network;
use crate::root::DEVICES;

/// Grants of one job at most.
pub const GRANTS_MAX: usize = 64;

/// Names in `/dev` that the sandbox has its own of: terminals, shared memory, message queues, and the
/// links into `/proc`.
const OWN: [&str; 9] = [
    "/dev/console",
    "/dev/fd",
    "/dev/mqueue",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
    "/dev/stderr",
    "/dev/stdin",
    "/dev/stdout",
];

const NAMES: [&str; 9] = [
    "userns", "ptrace", "fuse", "kvm", "sys", "root", "device", "net", "bind",
];

/// What a text asks for.
enum Asked {
    Grant(GrantRequest),
    HostNetwork,
    /// What every job has.
    Nothing,
}

/// Sorts the grants, so that their order changes no digest. The host's network is the network's
/// business.
pub(super) fn check_grants(
    draft: &Draft,
    network: Network,
    surroundings: &Surroundings<'_>,
    findings: &mut Findings,
) -> (Network, Vec<GrantRequest>) {
    if draft.grants.len() > GRANTS_MAX {
        let message = format!(
            "there are {} grants, and {GRANTS_MAX} is the limit",
            draft.grants.len()
        );
        findings
            .error(DiagnosticCode::TooMany, "/grants", message)
            .hint("bind the directory above several paths instead of each of them");
    }
    let mut network = network;
    let mut grants: Vec<GrantRequest> = Vec::new();
    for (index, grant) in draft.grants.iter().enumerate() {
        let place = format!("/grants/{index}");
        match check_grant(&place, grant, surroundings, findings) {
            Some(Asked::Grant(grant)) => {
                check_same_place(&place, &grant, &grants, findings);
                grants.push(grant);
            }
            Some(Asked::HostNetwork) if draft.network.as_deref() == Some("none") => {
                let message = "the job shall have the host's network, and at the same time none";
                findings
                    .error(DiagnosticCode::Conflict, &place, message)
                    .hint("leave `net:host` out, or the network `none`");
            }
            Some(Asked::HostNetwork) => network = Network::Host,
            Some(Asked::Nothing) | None => {}
        }
    }
    grants.sort();
    grants.dedup();
    (network, grants)
}

fn check_grant(
    place: &str,
    grant: &Located,
    surroundings: &Surroundings<'_>,
    findings: &mut Findings,
) -> Option<Asked> {
    let text = grant.text.as_str();
    let (name, rest) = text
        .split_once(':')
        .map_or((text, None), |(name, rest)| (name, Some(rest)));
    let request = match (name, rest) {
        ("userns", None) => GrantRequest::Userns,
        ("ptrace", None) => GrantRequest::Ptrace,
        ("sys", None) => GrantRequest::Sys,
        ("root", None) => GrantRequest::Root,
        ("fuse", None) => known_device(place, GrantRequest::Fuse, surroundings, findings),
        ("kvm", None) => known_device(place, GrantRequest::Kvm, surroundings, findings),
        ("net", Some("host")) => return Some(Asked::HostNetwork),
        ("device", Some(path)) => return check_device(place, path, surroundings, findings),
        ("bind", Some(rest)) => check_bind(place, rest, &grant.base, surroundings, findings)?,
        _ => {
            unknown(place, text, name, rest, findings);
            return None;
        }
    };
    Some(Asked::Grant(request))
}

fn unknown(place: &str, text: &str, name: &str, rest: Option<&str>, findings: &mut Findings) {
    let forms = format!("the grants are {}", GrantRequest::FORMS.join(", "));
    let (code, message, hint) = match (name, rest) {
        ("device" | "bind" | "net", None) => {
            let form = form_of(name);
            let message = format!("the grant `{name}` does not say what of it");
            (DiagnosticCode::GrantForm, message, format!("write {form}"))
        }
        ("userns" | "ptrace" | "fuse" | "kvm" | "sys" | "root", Some(_)) => {
            let message = format!("the grant `{name}` takes nothing after it");
            (DiagnosticCode::GrantForm, message, format!("write {name}"))
        }
        ("net", Some(_)) => {
            let message = format!("`{}` is not a grant", shown(text));
            let hint = "write net:host; without it, a job has a loopback of its own".to_owned();
            (DiagnosticCode::UnknownValue, message, hint)
        }
        _ => {
            let message = format!("`{}` is not a grant", shown(text));
            let hint = if text.starts_with("/dev/") {
                format!("write device:{}", shown(text))
            } else if let Some(near) = nearest(name, NAMES) {
                format!("did you mean `{}`? {forms}", form_of(near))
            } else {
                forms
            };
            (DiagnosticCode::UnknownValue, message, hint)
        }
    };
    findings.error(code, place, message).hint(hint);
}

/// How a grant is written whose name this is.
fn form_of(name: &str) -> &'static str {
    let is_named = |form: &&&str| form.split(':').next() == Some(name);
    let form = GrantRequest::FORMS.iter().find(is_named);
    form.expect("each name has a form")
}

/// A grant that stands for a device of the host, which has to be there.
fn known_device(
    place: &str,
    grant: GrantRequest,
    surroundings: &Surroundings<'_>,
    findings: &mut Findings,
) -> GrantRequest {
    if let Some(path) = grant.device() {
        Wanted::new(place, "the device", PathKind::CharacterDevice).find(
            path,
            "/",
            surroundings,
            findings,
        );
    }
    grant
}

fn check_device(
    place: &str,
    text: &str,
    surroundings: &Surroundings<'_>,
    findings: &mut Findings,
) -> Option<Asked> {
    let what = "the device";
    if !text.starts_with('/') {
        let message = format!("the device `{}` is not an absolute path", shown(text));
        let hint = match text {
            "" => "write device:/dev/NAME".to_owned(),
            name => format!("write device:/dev/{}", shown(name)),
        };
        findings
            .error(DiagnosticCode::RelativePath, place, message)
            .hint(hint);
        return None;
    }
    if text.split('/').any(|part| part == "..") {
        let message = format!("the device `{}` has `..` in it", shown(text));
        findings
            .error(DiagnosticCode::ParentComponent, place, message)
            .hint("write the path that you mean");
        return None;
    }
    let path = tidied(text);
    if !findings.without_nul(place, what, &path) || !short_enough(findings, place, what, &path) {
        return None;
    }
    if path == "/dev" || !is_within(&path, "/dev") {
        let message = format!("`{}` is not below /dev", shown(&path));
        findings
            .error(DiagnosticCode::GrantForm, place, message)
            .hint("name a device in /dev; bind:SRC:DEST shows any other file");
        return None;
    }
    if OWN.iter().any(|own| is_within(&path, own)) {
        let message = format!("the sandbox has a `{}` of its own", shown(&path));
        findings
            .error(DiagnosticCode::ReservedPath, place, message)
            .hint("leave it out; --tty gives the job a terminal, --shm sets the size of /dev/shm");
        return None;
    }
    if DEVICES.contains(&path.as_str()) {
        let message = format!("every job has `{path}`");
        findings
            .warning(DiagnosticCode::Redundant, place, message)
            .hint("leave it out");
        return Some(Asked::Nothing);
    }
    if Some(path.as_str()) == GrantRequest::Kvm.device() {
        let kvm = known_device(place, GrantRequest::Kvm, surroundings, findings);
        return Some(Asked::Grant(kvm));
    }
    let path = Wanted::new(place, what, PathKind::CharacterDevice).find(
        &path,
        "/",
        surroundings,
        findings,
    );
    Some(Asked::Grant(GrantRequest::Device { path }))
}

fn check_bind(
    place: &str,
    rest: &str,
    base: &str,
    surroundings: &Surroundings<'_>,
    findings: &mut Findings,
) -> Option<GrantRequest> {
    let (rest, write) = if let Some(rest) = rest.strip_suffix(":rw") {
        (rest, true)
    } else {
        (rest.strip_suffix(":ro").unwrap_or(rest), false)
    };
    // A source may have a `:` in it; a destination may not.
    let Some((source, dest)) = rest.rsplit_once(':') else {
        let message = format!(
            "the bind of `{}` does not say where it appears",
            shown(rest)
        );
        findings
            .error(DiagnosticCode::GrantForm, place, message)
            .hint(format!("write bind:{}:/path/in/the/sandbox", shown(rest)));
        return None;
    };
    if !dest.starts_with('/') && source.contains(":/") {
        let message = format!("`{}` is not a way to bind", shown(dest));
        findings
            .error(DiagnosticCode::GrantForm, place, message)
            .hint("write :rw to let the job write the host's files, or nothing");
        return None;
    }
    let is_root = dest.starts_with('/') && tidied(dest) == "/";
    let dest = sandbox_path(findings, place, dest);
    if is_root {
        findings
            .error(
                DiagnosticCode::ReservedPath,
                place,
                "the root of the sandbox cannot be bound",
            )
            .hint("name a directory in it, or use --image dir:PATH for a whole system");
    }
    let source = Wanted::new(place, "the source", PathKind::Mountable).find(
        source,
        base,
        surroundings,
        findings,
    );
    Some(GrantRequest::Bind {
        source,
        dest,
        write,
    })
}

/// Two binds with one destination would hide one of them.
fn check_same_place(
    place: &str,
    grant: &GrantRequest,
    earlier: &[GrantRequest],
    findings: &mut Findings,
) {
    let GrantRequest::Bind { dest, .. } = grant else {
        return;
    };
    let is_taken = earlier.iter().any(|other| {
        other != grant && matches!(other, GrantRequest::Bind { dest: taken, .. } if taken == dest)
    });
    if is_taken {
        let message = format!("two grants bind something at `{}`", shown(dest));
        findings
            .error(DiagnosticCode::Conflict, place, message)
            .hint("keep one of them, or choose another destination");
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
