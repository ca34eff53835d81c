//! `tidemill cache prune`.

use serde::Serialize;
use tidemill_core::limits::parse_duration;
use tidemill_core::{ByteSize, Timestamp};
use tidemill_image::{PruneWish, Pruned};

use super::images::{self, ImageUsage, ImagesPruned};
use super::work::{Answer, Order};
use super::{Cache, short};
use crate::args::{Format, PruneArgs};
use crate::failure::{Failure, FailureKind};
use crate::output::Output;
use crate::text::cut;
use crate::ui::{Ui, plain};

/// Characters of what a tree was made of.
const FROM_CHARS_MAX: usize = 80;

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    version: u32,
    dry_run: bool,
    /// The trees that were removed, in the order of their removal.
    trees: &'a [tidemill_image::PrunedTree],
    /// Bytes on disk that are free now.
    freed_bytes: u64,
    /// The part of them that blobs of images had.
    freed_image_bytes: u64,
    /// Bytes on disk that trees still take up.
    left_bytes: u64,
    failures: Vec<&'a str>,
}

pub(super) fn prune(
    cache: &Cache<'_>,
    args: &PruneArgs,
    now: Timestamp,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    let wish = wish(args, cache, now)?;
    // First what needs no other process: the disk may be full.
    let images = if args.dry_run {
        would_prune(images::usage(&cache.state_dir, ui)?)
    } else {
        images::prune(&cache.state_dir)
    };
    let pruned = if cache.place.is_there() {
        match cache.place.work(&Order::Prune(wish), |_, _| ())? {
            Answer::Pruned(pruned) => pruned,
            other => return Err(unexpected(&other)),
        }
    } else {
        Pruned::default()
    };
    let failures: Vec<&str> = pruned
        .failures
        .iter()
        .chain(&images.failures)
        .map(String::as_str)
        .collect();
    let report = Report {
        version: 1,
        dry_run: args.dry_run,
        trees: &pruned.trees,
        freed_bytes: pruned.freed_bytes + images.freed_bytes,
        freed_image_bytes: images.freed_bytes,
        left_bytes: pruned.left_bytes,
        failures,
    };
    output.answer(cache.global.format, &report, || page(&report))?;
    if report.failures.is_empty() {
        return Ok(0);
    }
    if cache.global.format == Format::Text {
        for failure in &report.failures {
            ui.note(failure);
        }
    }
    Ok(FailureKind::Unable.exit_code())
}

/// What the flags ask for. Without any, what exceeds the bound goes.
fn wish(args: &PruneArgs, cache: &Cache<'_>, now: Timestamp) -> Result<PruneWish, Failure> {
    let used_before = match &args.unused_for {
        None => None,
        Some(text) => {
            let length = parse_duration(text)
                .map_err(|_| wrong("--unused-for", text, "a length of time such as 7d or 12h"))?;
            // Elsewhere it counts seconds, and days are what is meant here: what is removed is gone.
            if let Some(number) = without_unit(text) {
                let message = format!("`{number}` in --unused-for has no unit");
                return Err(Failure::new(FailureKind::Usage, message)
                    .hint(format!("did you mean {number}d? Seconds are {number}s")));
            }
            let micros = i64::try_from(length.as_duration().as_micros()).unwrap_or(i64::MAX);
            Some(now.0.saturating_sub(micros) / 1_000_000)
        }
    };
    let max = match &args.max {
        _ if args.all => Some(ByteSize(0)),
        None if used_before.is_none() => cache.place.bounds().max,
        None => None,
        Some(text) => Some(
            text.parse()
                .map_err(|_| wrong("--max", text, "a size such as 5GiB"))?,
        ),
    };
    // What is asked for by a flag is meant.
    let is_bound = max.is_some() && !args.all && args.max.is_none();
    Ok(PruneWish {
        max,
        floor: if is_bound {
            cache.place.bounds().floor
        } else {
            ByteSize(0)
        },
        used_before,
        is_trial: args.dry_run,
    })
}

/// The number, if it is nothing else.
fn without_unit(text: &str) -> Option<&str> {
    let number = text.trim();
    let is_bare = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_bare.then_some(number)
}

fn wrong(flag: &str, text: &str, expected: &str) -> Failure {
    let message = format!("`{}` in {flag} is not {expected}", text.escape_debug());
    Failure::new(FailureKind::Usage, message)
}

fn would_prune(usage: ImageUsage) -> ImagesPruned {
    ImagesPruned {
        freed_bytes: usage.unnamed_bytes + usage.partial_bytes,
        failures: Vec::new(),
    }
}

/// What the helper answers to another question.
pub(super) fn unexpected(answer: &Answer) -> Failure {
    let message = format!("the process among the sub-ids answered {answer:?}");
    Failure::new(FailureKind::Internal, message)
}

fn page(report: &Report<'_>) -> String {
    let size = |bytes: u64| ByteSize(bytes).to_string();
    let (removed, freed) = if report.dry_run {
        ("would remove", "would free")
    } else {
        ("removed", "freed")
    };
    let mut lines: Vec<String> = report
        .trees
        .iter()
        .map(|tree| {
            let from = cut(&plain(&tree.from), FROM_CHARS_MAX);
            let (digest, size) = (short(&tree.digest), size(tree.freed_bytes));
            format!("{removed} tree {digest}, {size}: {from}")
        })
        .collect();
    lines.push(format!(
        "{freed} {}, {} of it blobs of images; trees take {}",
        size(report.freed_bytes),
        size(report.freed_image_bytes),
        size(report.left_bytes)
    ));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::args::GlobalArgs;
    use crate::cache::work::Place;

    fn read(args: &PruneArgs) -> Result<PruneWish, Failure> {
        let global = GlobalArgs {
            state_dir: None,
            cache_size: None,
            format: Format::Text,
        };
        let bounds = tidemill_image::CacheBounds::at_most(ByteSize(77));
        let cache = Cache {
            state_dir: "/none".into(),
            place: Place::new(Path::new("/none"), Some(bounds)),
            global: &global,
        };
        wish(args, &cache, Timestamp(100_000_000_000))
    }

    fn args(max: Option<&str>, unused_for: Option<&str>) -> PruneArgs {
        PruneArgs {
            all: false,
            max: max.map(str::to_owned),
            unused_for: unused_for.map(str::to_owned),
            dry_run: false,
        }
    }

    #[test]
    fn flags_are_read_and_slips_are_answered() {
        let wish = |max, unused_for| {
            let wish = read(&args(max, unused_for)).expect("they are right");
            (wish.max.map(|max| max.0), wish.used_before)
        };
        assert_eq!(wish(None, None), (Some(77), None));
        assert_eq!(wish(Some("1KiB"), None), (Some(1024), None));
        assert_eq!(wish(None, Some("1h")), (None, Some(96_400)));
        assert_eq!(wish(Some("0"), Some("1s")), (Some(0), Some(99_999)));
        let all = PruneArgs {
            all: true,
            ..args(None, None)
        };
        assert_eq!(read(&all).expect("it is right").max, Some(ByteSize(0)));
        for (max, unused_for, flag) in [
            (Some("many"), None, "--max"),
            (None, Some("long"), "--unused-for"),
            (None, Some("0"), "--unused-for"),
            (None, Some("7"), "has no unit"),
            (None, Some(" 1.5 "), "has no unit"),
        ] {
            let failure = read(&args(max, unused_for)).expect_err("it is wrong");
            assert!(failure.message.contains(flag), "{failure}");
        }
        let failure = read(&args(None, Some("7"))).expect_err("it is wrong");
        assert_eq!(failure.hints, ["did you mean 7d? Seconds are 7s"]);
    }
}
