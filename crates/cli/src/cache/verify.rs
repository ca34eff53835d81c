//! `tidemill cache verify`.

use serde::Serialize;
use tidemill_core::{ByteSize, Digest};
use tidemill_image::{Finding, Verified};

use super::images::{self, ImagesVerified};
use super::prune::unexpected;
use super::work::{Answer, Order};
use super::{Cache, short};
use crate::args::Format;
use crate::failure::{Failure, FailureKind};
use crate::output::Output;
use crate::ui::{Ui, plain};

/// What is damaged.
const DAMAGED: u8 = 1;

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    version: u32,
    /// True if nothing is damaged.
    whole: bool,
    trees: u64,
    files: u64,
    bytes: u64,
    /// Files that this user may not read: their sizes, modes and times are right.
    unread: u64,
    /// Trees of older versions, of which there is no list to compare with.
    unlisted: &'a [Digest],
    findings: &'a [Finding],
    images: &'a ImagesVerified,
    failures: &'a [String],
}

pub(super) fn verify(cache: &Cache<'_>, output: &mut Output, ui: &Ui) -> Result<u8, Failure> {
    let verified = if cache.place.is_there() {
        ui.status("reading the trees");
        let answer = cache.place.work(&Order::Verify, |done, all| {
            ui.status(&format!("reading tree {} of {all}", done + 1));
        });
        match answer? {
            Answer::Verified(verified) => verified,
            other => return Err(unexpected(&other)),
        }
    } else {
        Verified::default()
    };
    ui.status("reading the blobs of images");
    let images = images::verify(&cache.state_dir);
    ui.quiet();
    let images = images?;
    let report = Report {
        version: 1,
        whole: verified.findings.is_empty() && images.damaged.is_empty(),
        trees: verified.trees,
        files: verified.files,
        bytes: verified.bytes,
        unread: verified.unread,
        unlisted: &verified.unlisted,
        findings: &verified.findings,
        images: &images,
        failures: &verified.failures,
    };
    output.answer(cache.global.format, &report, || page(&report))?;
    let mut failures = report.failures.iter().chain(&images.failures).peekable();
    let code = if failures.peek().is_some() {
        FailureKind::Unable.exit_code()
    } else if report.whole {
        0
    } else {
        DAMAGED
    };
    if cache.global.format == Format::Text {
        for failure in failures {
            ui.note(failure);
        }
    }
    Ok(code)
}

fn page(report: &Report<'_>) -> String {
    let mut lines: Vec<String> = report
        .findings
        .iter()
        .map(|finding| {
            let tree = short(&finding.tree);
            let from = plain(&finding.from);
            match &finding.path {
                Some(path) => {
                    format!("tree {tree} ({from}), `{}`: {}", plain(path), finding.what)
                }
                None => format!("tree {tree} ({from}): {}", finding.what),
            }
        })
        .collect();
    let blobs = report.images.damaged.iter();
    lines.extend(blobs.map(|blob| format!("blob {blob}: its content is another one")));
    lines.push(format!(
        "read {} in {} files of {} trees, and {} blobs of images with {}",
        ByteSize(report.bytes),
        report.files,
        report.trees,
        report.images.blobs,
        ByteSize(report.images.bytes)
    ));
    if report.unread > 0 {
        lines.push(format!(
            "{} files may not be read by you: of these only size, mode and time were compared",
            report.unread
        ));
    }
    if !report.unlisted.is_empty() {
        lines.push(format!(
            "{} trees are of an older version and cannot be compared",
            report.unlisted.len()
        ));
    }
    lines.push(if report.whole {
        "all is as it was built".to_owned()
    } else {
        "what is damaged was put aside, and is built or fetched anew when a job asks for it"
            .to_owned()
    });
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_by_tree_and_path() {
        let finding = |path: Option<&str>, what: &str| Finding {
            tree: Digest::from_bytes([1; 32]),
            from: "/x/base.tar".to_owned(),
            path: path.map(str::to_owned),
            what: what.to_owned(),
        };
        let findings = [
            finding(Some("etc/\u{1b}passwd"), "it has 7 bytes instead of 3"),
            finding(None, "the list of the tree is damaged"),
        ];
        let report = Report {
            version: 1,
            whole: false,
            trees: 2,
            files: 30,
            bytes: 4096,
            unread: 1,
            unlisted: &[Digest::from_bytes([2; 32])],
            findings: &findings,
            images: &ImagesVerified::default(),
            failures: &[],
        };
        insta::assert_snapshot!(page(&report), @r"
        tree 010101010101 (/x/base.tar), `etc/\u{1b}passwd`: it has 7 bytes instead of 3
        tree 010101010101 (/x/base.tar): the list of the tree is damaged
        read 4 KiB in 30 files of 2 trees, and 0 blobs of images with 0 B
        1 files may not be read by you: of these only size, mode and time were compared
        1 trees are of an older version and cannot be compared
        what is damaged was put aside, and is built or fetched anew when a job asks for it
        ");
    }
}
