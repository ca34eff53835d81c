//! What the root file system is made of, and what an image's own command means for the job's.

use super::source::Wanted;
use super::{Findings, PathKind, Surroundings, shown};
use crate::diagnostic::{DiagnosticCode, nearest};
use crate::draft::{Draft, Located};
use crate::job::Image;

/// Bytes of an image's name at most, host and path together, without tag and digest: what registries
/// take. <https://github.com/distribution/reference>
pub const IMAGE_NAME_BYTES_MAX: usize = 255;

const FORMS: &str = "write host, none, dir:PATH, tar:PATH or oci:REFERENCE";
const KINDS: [&str; 5] = ["host", "none", "dir", "tar", "oci"];

pub(super) fn check_image(
    draft: &Draft,
    surroundings: &Surroundings<'_>,
    findings: &mut Findings,
) -> Image {
    let image = image_of(draft, surroundings, findings);
    if draft.platform.is_some() && !matches!(image, Image::Oci { .. }) {
        findings
            .error(
                DiagnosticCode::Conflict,
                "/platform",
                "a platform is chosen among those of an OCI image, and the image is none",
            )
            .hint("leave `platform` out, or write `oci:REFERENCE` as the image");
    }
    image
}

fn image_of(draft: &Draft, surroundings: &Surroundings<'_>, findings: &mut Findings) -> Image {
    let place = "/image";
    let Some(Located { text, base }) = &draft.image else {
        return Image::Host;
    };
    let (kind, rest) = text
        .split_once(':')
        .map_or((text.as_str(), None), |(k, r)| (k, Some(r)));
    match (kind, rest) {
        ("host", None) => Image::Host,
        ("none", None) => Image::None,
        ("dir", Some(path)) => Image::Dir {
            path: Wanted::new(place, "the image's directory", PathKind::Directory).find(
                path,
                base,
                surroundings,
                findings,
            ),
        },
        ("tar", Some(path)) => Image::Tar {
            path: Wanted::new(place, "the image's archive", PathKind::File).find(
                path,
                base,
                surroundings,
                findings,
            ),
        },
        ("oci", Some(reference)) => Image::Oci {
            reference: check_reference(place, reference, findings),
            digest: None,
            platform: draft
                .platform
                .as_deref()
                .map(|platform| check_platform("/platform", platform, findings)),
        },
        _ => {
            let message = format!("`{}` is not an image", shown(text));
            findings
                .error(DiagnosticCode::ImageForm, place, message)
                .hint(advice(text, kind, rest));
            Image::Host
        }
    }
}

/// What to write instead of a text that is no image.
fn advice(text: &str, kind: &str, rest: Option<&str>) -> String {
    if let ("dir" | "tar", None) = (kind, rest) {
        return format!("write {kind}:PATH");
    }
    if let ("docker", Some(reference)) = (kind, rest) {
        return format!("write oci:{}", shown(reference.trim_start_matches('/')));
    }
    if text.starts_with(['/', '.']) {
        return format!(
            "write dir:{0} for a directory or tar:{0} for an archive",
            shown(text)
        );
    }
    if let Some(near) = nearest(kind, KINDS) {
        return format!("did you mean `{near}`? {FORMS}");
    }
    if reference_error(text).is_none() {
        return format!(
            "write oci:{} for that image of a registry, or {}",
            shown(text),
            FORMS.trim_start_matches("write ")
        );
    }
    FORMS.to_owned()
}

pub(super) fn check_reference(place: &str, reference: &str, findings: &mut Findings) -> String {
    if reference.starts_with(['/', '.']) {
        let message = format!(
            "`{}` is a path, and a reference is wanted",
            shown(reference)
        );
        findings
            .error(DiagnosticCode::ImageForm, place, message)
            .hint(format!(
                "read it in first: tidemill image import {}",
                shown(reference)
            ));
    } else if let Some(why) = reference_error(reference) {
        let message = format!(
            "`{}` is not the reference of an image: {why}",
            shown(reference)
        );
        findings
            .error(DiagnosticCode::ImageForm, place, message)
            .hint("write [HOST[:PORT]/]NAME[:TAG][@DIGEST], for example oci:debian:12");
    }
    reference.to_owned()
}

/// What is wrong with a reference, or `None` if nothing is. The grammar is the one of
/// <https://github.com/distribution/reference>, with SHA-256 as the only digest.
pub fn reference_error(reference: &str) -> Option<&'static str> {
    let (named, digest) = match reference.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (reference, None),
    };
    if digest.is_some_and(|digest| digest.parse::<crate::oci::OciDigest>().is_err()) {
        return Some("after the `@` a digest is wanted, `sha256:` and 64 hexadecimal digits");
    }
    let last = named.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match named[last..].find(':') {
        Some(colon) => (&named[..last + colon], Some(&named[last + colon + 1..])),
        None => (named, None),
    };
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Some("a tag is 1 to 128 letters, digits, `_`, `.` and `-`");
    }
    if name.is_empty() {
        return Some("it has no name");
    }
    if name.len() > IMAGE_NAME_BYTES_MAX {
        return Some("its name has more than 255 bytes");
    }
    let path = match name.split_once('/') {
        Some((host, path)) if is_host(host) => path,
        _ => name,
    };
    if path.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Some("its name may have no upper-case letters");
    }
    if !path.split('/').all(is_component) {
        return Some(
            "the parts of its name are lower-case letters and digits, joined by `.`, `_` or `-`",
        );
    }
    None
}

/// Only with a dot, a port or this name is the first part a host, and not a part of the name.
fn is_host(part: &str) -> bool {
    let (host, port) = part.rsplit_once(':').unwrap_or((part, "0"));
    let inner = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let known = match inner {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        }),
    };
    let looks = part.contains(['.', ':']) || part == "localhost";
    looks && known && port.parse::<u16>().is_ok()
}

fn is_component(part: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_end = |byte: Option<u8>| byte.is_some_and(alphanumeric);
    let mut separators = part.split(|c: char| c.is_ascii() && alphanumeric(c as u8));
    is_end(part.bytes().next())
        && is_end(part.bytes().next_back())
        && separators.all(|between| {
            matches!(between, "" | "." | "_" | "__") || between.bytes().all(|byte| byte == b'-')
        })
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(word)
        && tag
            .bytes()
            .all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

/// The platform with its system, which is Linux where the text has an architecture alone.
pub(super) fn check_platform(place: &str, text: &str, findings: &mut Findings) -> String {
    let whole = if text.contains('/') || text == "linux" {
        text.to_owned()
    } else {
        format!("linux/{text}")
    };
    let text = whole.as_str();
    let parts: Vec<&str> = text.split('/').collect();
    let word = |part: &&str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
    };
    if !(2..=3).contains(&parts.len()) || text.len() > 64 || !parts.iter().all(word) {
        let message = format!("`{}` is not a platform", shown(text));
        findings
            .error(DiagnosticCode::ImageForm, place, message)
            .hint("write OS/ARCHITECTURE[/VARIANT], for example linux/arm64 or linux/arm/v7");
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_what_registries_take() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for good in [
            "debian",
            "debian:12",
            "library/debian:bookworm-slim",
            "ghcr.io/owner/name_x/y--z:V1.0_a",
            "localhost/a",
            "localhost:5000/a:b",
            "127.0.0.1:5000/a",
            "[::1]:5000/a",
            "host.example/a/b__c",
            &format!("debian@{digest}"),
            &format!("debian:12@{digest}"),
        ] {
            assert_eq!(reference_error(good), None, "{good}");
        }
        for bad in [
            "",
            ":12",
            "Debian",
            "ghcr.io/Owner/name",
            "a//b",
            "a/",
            "/a",
            "a:",
            "a:b:c",
            "a:.b",
            "a___b",
            "a..b",
            "-a",
            "a b",
            "ä",
            "host:port/a",
            "-x.example/a",
            "debian@sha256:12",
            "debian@",
            &format!("@{digest}"),
            &format!("a:{}", "b".repeat(129)),
            &"a".repeat(256),
        ] {
            assert!(reference_error(bad).is_some(), "{bad}");
        }
    }
}
