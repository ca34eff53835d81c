//! What names become, and what is refused.

use proptest::prelude::*;

use super::*;

const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn check(text: &str, expected: &str) {
    match text.parse::<Reference>() {
        Ok(reference) => assert_eq!(reference.to_string(), expected, "{text}"),
        Err(error) => assert_eq!(error.problem.to_string(), expected, "{text}"),
    }
}

#[test]
fn defaults_are_filled_in() {
    check("busybox", "docker.io/library/busybox:latest");
    check("busybox:1.36", "docker.io/library/busybox:1.36");
    check("docker.io/busybox", "docker.io/library/busybox:latest");
    check("index.docker.io/a/b", "docker.io/a/b:latest");
    check("a/b:c", "docker.io/a/b:c");
    check("ghcr.io/a/b/c", "ghcr.io/a/b/c:latest");
    check("localhost/a", "localhost/a:latest");
    check("localhost:5000/a:b", "localhost:5000/a:b");
    check("127.0.0.1:5000/a", "127.0.0.1:5000/a:latest");
    check("[::1]:5000/a", "[::1]:5000/a:latest");
    check("Registry.Example/a", "registry.example/a:latest");
    check("Intranet/a", "Intranet/a:latest");
    check("a__b/c--d.e", "docker.io/a__b/c--d.e:latest");
}

#[test]
fn a_digest_needs_no_tag_and_takes_one() {
    check(
        &format!("a@sha256:{HEX}"),
        &format!("docker.io/library/a@sha256:{HEX}"),
    );
    check(
        &format!("x.y/a:b@sha256:{HEX}"),
        &format!("x.y/a:b@sha256:{HEX}"),
    );
}

#[test]
fn slips_are_named() {
    check("", "there is no name");
    check("x.y/", "there is no name");
    check(
        "a:",
        "`` is not a tag: up to 128 letters, digits, `_`, `.` and `-`, not beginning with `.` or `-`",
    );
    check(
        "BusyBox",
        "`BusyBox` has capital letters, which names never have",
    );
    check("x:99999/a", "`x:99999` is not the host of a registry");
    check("[::g]/a", "`[::g]` is not the host of a registry");
    check("-.x/a", "`-.x` is not the host of a registry");
    for part in ["..", "a..b", "a___b", "_a", "a-", "é"] {
        let problem = format!("x.y/a/{part}")
            .parse::<Reference>()
            .map_err(|error| error.problem);
        assert!(matches!(problem, Err(ReferenceProblem::Part(_))), "{part}");
    }
    check(
        "a@sha512:00",
        "`sha512:00` is not a digest: `sha256:` and 64 lower-case hexadecimal digits are expected",
    );
    check(
        &format!("x.y/{}", "a".repeat(260)),
        "it is longer than 255 characters",
    );
    let error = "x/../y".parse::<Reference>().expect_err("a path");
    assert_eq!(
        error.to_string(),
        "`x/../y` is not the name of an image: `..` is not a part of a name: lower-case letters and \
         digits, joined by `.`, `_`, `__` or `-`"
    );
}

#[test]
fn short_names_leave_the_defaults_out() {
    for (text, expected) in [
        ("busybox", "busybox:latest"),
        ("docker.io/a/b", "a/b:latest"),
        ("x.y/a", "x.y/a:latest"),
    ] {
        let reference: Reference = text.parse().expect("a name");
        assert_eq!(reference.to_short(), expected);
        assert_eq!(expected.parse(), Ok(reference));
    }
}

proptest! {
    #[test]
    fn what_is_read_is_written_and_read_again(text in "[a-zA-Z0-9:/@._-]{0,40}") {
        if let Ok(reference) = text.parse::<Reference>() {
            prop_assert_eq!(reference.to_string().parse(), Ok(reference.clone()));
            prop_assert_eq!(reference.to_short().parse(), Ok(reference));
        }
    }
}
