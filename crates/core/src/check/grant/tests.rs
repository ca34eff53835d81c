use proptest::prelude::*;
use serde_json::{Value, json};

use crate::check::{PathKind, PathProblem, Surroundings, check};
use crate::draft::{Draft, Located};
use crate::grant::GrantRequest;
use crate::job::{JobSpec, Network};
use crate::{Allow, Diagnostic};

fn surroundings() -> Surroundings<'static> {
    Surroundings {
        host_path: &|path, kind| match (path, kind) {
            ("/dev/gone" | "/here/gone", _) => Err(PathProblem::Missing),
            ("/dev/sda", PathKind::CharacterDevice) => Err(PathProblem::NotCharacterDevice),
            ("/dev/rtc", PathKind::CharacterDevice) => Err(PathProblem::Link("/dev/rtc0".into())),
            ("/dev/hidraw0", PathKind::CharacterDevice) => Err(PathProblem::NotAllowed),
            (path, PathKind::Mountable) if path.starts_with("/dev/") => Err(PathProblem::Device),
            _ => Ok(()),
        },
        ..Surroundings::default()
    }
}

fn checked(grants: &[&str], more: &Value) -> (Option<JobSpec>, Vec<Diagnostic>) {
    let mut job = json!({ "program": "true", "grants": grants });
    for (name, value) in more.as_object().unwrap() {
        job[name] = value.clone();
    }
    check(&Draft::from_json(&job, "/here"), &surroundings())
}

fn granted(grants: &[&str]) -> JobSpec {
    let (spec, diagnostics) = checked(grants, &json!({}));
    assert!(diagnostics.is_empty(), "{grants:?}: {diagnostics:#?}");
    spec.unwrap()
}

fn bind(source: &str, dest: &str, write: bool) -> GrantRequest {
    GrantRequest::Bind {
        source: source.into(),
        dest: dest.into(),
        write,
    }
}

#[test]
fn grants_are_read_sorted_and_kept_once() {
    let spec = granted(&[
        "sys",
        "bind:./a/b:/c:rw",
        "userns",
        "kvm",
        "sys",
        "fuse",
        "ptrace",
    ]);
    let expected = [
        GrantRequest::Userns,
        GrantRequest::Ptrace,
        GrantRequest::Fuse,
        GrantRequest::Kvm,
        GrantRequest::Sys,
        bind("/here/a/b", "/c", true),
    ];
    assert_eq!(spec.grants, expected);
    let other_order = granted(&["ptrace", "fuse", "kvm", "userns", "bind:a/b:/c/:rw", "sys"]);
    assert_eq!(spec.digest(), other_order.digest());
    assert_eq!(
        granted(&["device:/dev//net/./tun"]).grants,
        [GrantRequest::Device {
            path: "/dev/net/tun".into()
        }]
    );
    assert_eq!(granted(&["device:/dev/kvm"]), granted(&["kvm"]));
    assert_ne!(granted(&["device:/dev/fuse"]), granted(&["fuse"]));
}

#[test]
fn a_bind_is_read_only_unless_it_says_otherwise() {
    for (text, expected) in [
        ("bind:/a:/b", bind("/a", "/b", false)),
        ("bind:/a:/b:ro", bind("/a", "/b", false)),
        ("bind:/a:/b:rw", bind("/a", "/b", true)),
        ("bind:.:/b", bind("/here", "/b", false)),
        ("bind:../x:/b", bind("/here/../x", "/b", false)),
        ("bind:/a:c:/b", bind("/a:c", "/b", false)),
        ("bind:/rw:/rw", bind("/rw", "/rw", false)),
    ] {
        assert_eq!(granted(&[text]).grants, [expected], "{text}");
    }
}

#[test]
fn what_is_written_comes_back_from_the_spec() {
    for text in [
        "userns",
        "ptrace",
        "fuse",
        "kvm",
        "sys",
        "device:/dev/net/tun",
        "bind:/a:/b",
        "bind:/a:/b:rw",
    ] {
        let spec = granted(&[text]);
        assert_eq!(spec.grants[0].to_string(), text);
        let again: JobSpec = serde_json::from_slice(&spec.to_canonical()).unwrap();
        assert_eq!(again, spec);
        assert!(!spec.grants[0].widens().ends_with('.'));
    }
}

#[test]
fn a_job_without_grants_has_the_digest_that_it_had() {
    let spec = granted(&[]);
    let text = String::from_utf8(spec.to_canonical()).unwrap();
    assert!(!text.contains("grants"), "{text}");
    assert_ne!(spec.digest(), granted(&["userns"]).digest());
}

#[test]
fn the_hosts_network_is_the_network_of_the_spec() {
    let spec = granted(&["net:host"]);
    assert_eq!((spec.network, spec.grants.len()), (Network::Host, 0));
    let (with_field, diagnostics) = checked(&["net:host"], &json!({ "network": "host" }));
    assert!(diagnostics.is_empty());
    assert_eq!(with_field.unwrap().digest(), spec.digest());
}

#[test]
fn what_a_grant_needs_of_the_host_and_the_kernel_is_data() {
    let asks = |text: &str| {
        let grant = granted(&[text]).grants.remove(0);
        (grant.device().map(str::to_owned), grant.allows())
    };
    let device = |path: &str| Some(path.to_owned());
    let userns = Allow::UserNamespaces;
    assert_eq!(asks("userns"), (None, &[userns][..]));
    assert_eq!(asks("ptrace"), (None, &[Allow::Ptrace][..]));
    let fuse = (device("/dev/fuse"), &[userns, Allow::Fuse][..]);
    assert_eq!(asks("fuse"), fuse);
    assert_eq!(asks("kvm"), (device("/dev/kvm"), &[][..]));
    assert_eq!(asks("device:/dev/x"), (device("/dev/x"), &[][..]));
    assert_eq!(asks("root"), (None, &[Allow::RootRights][..]));
    for nothing in ["sys", "bind:/a:/b"] {
        assert_eq!(asks(nothing), (None, &[][..]));
    }
}

/// Asserts that one grant gives exactly this diagnostic, with advice that has these words.
fn refuses(text: &str, code: &str, advice: &str) {
    let (spec, diagnostics) = checked(&["sys", text], &json!({}));
    assert_eq!(diagnostics.len(), 1, "{text}: {diagnostics:#?}");
    let found = &diagnostics[0];
    assert!(spec.is_none() && found.is_error(), "{text}");
    assert_eq!(
        (found.place.as_str(), found.code.as_str()),
        ("/grants/1", code),
        "{text}: {found}"
    );
    let hint = found.hint.as_deref().unwrap_or_default();
    assert!(hint.contains(advice), "{text}: {hint}");
}

#[test]
fn what_is_no_grant_is_told_with_what_was_meant() {
    refuses("usernz", "unknown_value", "did you mean `userns`?");
    refuses(
        "devcie:/dev/x",
        "unknown_value",
        "did you mean `device:PATH`?",
    );
    refuses(
        "bnid:/a:/b",
        "unknown_value",
        "did you mean `bind:SRC:DEST[:rw]`?",
    );
    refuses(
        "everything",
        "unknown_value",
        "the grants are userns, ptrace,",
    );
    refuses("", "unknown_value", "the grants are userns");
    refuses("/dev/net/tun", "unknown_value", "write device:/dev/net/tun");
    refuses("net:none", "unknown_value", "net:host");
    refuses("net", "grant_form", "write net:host");
    refuses("device", "grant_form", "write device:PATH");
    refuses("bind", "grant_form", "write bind:SRC:DEST[:rw]");
    refuses("userns:yes", "grant_form", "write userns");
    refuses("root:0", "grant_form", "write root");
}

#[test]
fn devices_that_cannot_be_are_refused() {
    refuses("device:", "relative_path", "device:/dev/NAME");
    refuses("device:net/tun", "relative_path", "device:/dev/net/tun");
    refuses(
        "device:/dev/../etc/shadow",
        "parent_component",
        "the path that you mean",
    );
    refuses("device:/etc/shadow", "grant_form", "name a device in /dev");
    refuses("device:/dev", "grant_form", "name a device in /dev");
    refuses("device:/dev/gone", "host_path", "does not have it");
    refuses("device:/dev/sda", "host_path", "a character device");
    refuses("device:/dev/rtc", "host_path", "name /dev/rtc0 itself");
    refuses(
        "device:/dev/hidraw0",
        "host_path",
        "let that user read and write it",
    );
    for own in ["pts/0", "ptmx", "shm/x", "console", "stdin", "mqueue"] {
        refuses(
            &format!("device:/dev/{own}"),
            "reserved_path",
            "leave it out",
        );
    }
    refuses(
        &format!("device:/dev/{}", "x".repeat(4096)),
        "too_long",
        "shorter",
    );
    refuses("device:/dev/a\0b", "nul_byte", "NUL");
}

#[test]
fn a_device_that_every_job_has_is_a_warning() {
    let (spec, diagnostics) = checked(&["device:/dev/zero"], &json!({}));
    assert!(spec.unwrap().grants.is_empty());
    assert_eq!(diagnostics[0].code.as_str(), "redundant");
}

#[test]
fn a_machine_without_a_device_does_not_grant_it() {
    let surroundings = Surroundings {
        host_path: &|_, _| Err(PathProblem::Missing),
        ..Surroundings::default()
    };
    for grant in ["kvm", "fuse", "device:/dev/kvm"] {
        let job = json!({ "program": "true", "grants": [grant] });
        let (spec, diagnostics) = check(&Draft::from_json(&job, "/here"), &surroundings);
        assert!(spec.is_none());
        assert_eq!(diagnostics[0].place, "/grants/0", "{grant}");
        assert!(diagnostics[0].message.contains("does not exist"), "{grant}");
    }
}

#[test]
fn binds_that_cannot_be_are_refused() {
    refuses("bind:/a", "grant_form", "bind:/a:/path/in/the/sandbox");
    refuses("bind:/a:rw", "grant_form", "bind:/a:/path/in/the/sandbox");
    refuses("bind:/a:/b:wr", "grant_form", "write :rw");
    refuses("bind:/a:b", "relative_path", "write /b");
    refuses("bind:/a:", "relative_path", "write a path in the sandbox");
    refuses(
        "bind:/a:/b/../c",
        "parent_component",
        "the path that you mean",
    );
    for own in ["/proc", "/proc/x", "/sys/fs", "/dev", "/dev/shm/x"] {
        refuses(
            &format!("bind:/a:{own}"),
            "reserved_path",
            "outside of /proc",
        );
    }
    refuses("bind:/a:/", "reserved_path", "--image dir:PATH");
    refuses("bind::/b", "empty", "write a path");
    refuses(
        "bind:gone:/b",
        "host_path",
        "relative paths start from /here",
    );
    refuses("bind:/dev/sda:/b", "host_path", "write device:/dev/sda");
}

#[test]
fn two_grants_that_contradict_each_other_are_told() {
    let found = |grants: &[&str], more: &Value| {
        let (spec, diagnostics) = checked(grants, more);
        assert!(spec.is_none(), "{grants:?}");
        let found = &diagnostics[0];
        format!("{} {}", found.place, found.code)
    };
    let none = json!({ "network": "none" });
    assert_eq!(found(&["net:host"], &none), "/grants/0 conflict");
    let same = ["bind:/a:/c", "bind:/b:/c/"];
    assert_eq!(found(&same, &json!({})), "/grants/1 conflict");
    assert_eq!(granted(&["bind:/a:/c", "bind:/a:/c"]).grants.len(), 1);
    let both = ["bind:/a:/c", "bind:/a:/c:rw"];
    assert_eq!(found(&both, &json!({})), "/grants/1 conflict");
    let many: Vec<String> = (0..65)
        .map(|number| format!("bind:/a:/b{number}"))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(found(&many, &json!({})), "/grants too_many");
}

proptest! {
    #[test]
    fn every_text_is_taken_or_explained(text in "((bind|device|net|kvm):)?[a-z/.:~\0é]{0,24}") {
        let draft = Draft {
            program: Some("true".into()),
            grants: vec![Located::new(text, "/here")],
            ..Draft::default()
        };
        let (spec, diagnostics) = check(&draft, &surroundings());
        prop_assert!(spec.is_some() || !diagnostics.is_empty());
        prop_assert!(diagnostics.iter().all(|found| found.hint.is_some()));
        for grant in spec.iter().flat_map(|spec| &spec.grants) {
            let draft = Draft {
                program: Some("true".into()),
                grants: vec![Located::new(grant.to_string(), "/elsewhere")],
                ..Draft::default()
            };
            let (again, _) = check(&draft, &surroundings());
            prop_assert_eq!(&again.unwrap().grants, &vec![grant.clone()]);
        }
    }
}
