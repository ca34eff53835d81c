//! Sizes, counts, lengths of time and ids, each with its range.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use super::{Findings, shown};
use crate::diagnostic::DiagnosticCode;
use crate::draft::Draft;
use crate::job::{Image, User};
use crate::limits::{
    ByteSize, CpuCount, GRACE_DEFAULT, LOG_DEFAULT, Limits, OPEN_FILES_DEFAULT, PIDS_DEFAULT,
    ParseQuantityError, parse_duration,
};
use crate::time::Millis;

/// The largest number of processes that Linux can have at one time.
pub const PIDS_MAX: u32 = 4_194_304;
/// The least memory that a program can be started in.
pub const MEMORY_MIN: ByteSize = ByteSize::mib(1);
/// The least disk limit.
pub const DISK_MIN: ByteSize = ByteSize(64 << 10);
/// The least size of `/dev/shm`: what one page of it needs on any machine.
pub const SHM_MIN: ByteSize = ByteSize(64 << 10);
/// The least log limit: enough for some lines of head and tail.
pub const LOG_MIN: ByteSize = ByteSize(4 << 10);
/// The largest size of anything, 1,024 TiB.
pub const SIZE_MAX: ByteSize = ByteSize(1 << 50);
/// The longest time between the polite signal and the kill.
pub const GRACE_MAX: Duration = Duration::from_hours(24);
/// The fewest open files that programs start with.
pub const OPEN_FILES_MIN: u32 = 16;
/// The most open files of one process that the kernel allows unless it is told otherwise.
pub const OPEN_FILES_MAX: u32 = 1_048_576;
/// The largest user or group id in a sandbox, which maps 65,536 of each.
pub const USER_ID_MAX: u32 = 65_535;

pub(super) fn check_limits(draft: &Draft, findings: &mut Findings) -> Limits {
    let limits = &draft.limits;
    let memory = size(
        findings,
        "/limits/memory",
        limits.memory.as_deref(),
        MEMORY_MIN,
    );
    Limits {
        memory,
        cpus: cpus(findings, limits.cpus.as_deref()),
        pids: count(
            findings,
            "/limits/pids",
            limits.pids.as_deref(),
            (1, PIDS_MAX),
        )
        .unwrap_or(PIDS_DEFAULT),
        disk: size(findings, "/limits/disk", limits.disk.as_deref(), DISK_MIN),
        shm: shm(findings, limits.shm.as_deref(), memory),
        timeout: timeout(findings, limits.timeout.as_deref()),
        grace: grace(findings, limits.grace.as_deref()),
        log: size(findings, "/limits/log", limits.log.as_deref(), LOG_MIN).unwrap_or(LOG_DEFAULT),
        open_files: count(
            findings,
            "/limits/open_files",
            limits.open_files.as_deref(),
            (OPEN_FILES_MIN, OPEN_FILES_MAX),
        )
        .unwrap_or(OPEN_FILES_DEFAULT),
    }
}

pub(super) fn check_estimate(draft: &Draft, findings: &mut Findings) -> Option<Millis> {
    duration(findings, "/estimate", draft.estimate.as_deref())
}

pub(super) fn check_priority(draft: &Draft, findings: &mut Findings) -> i32 {
    let Some(text) = draft.priority.as_deref() else {
        return 0;
    };
    text.parse().unwrap_or_else(|_| {
        let message = format!(
            "the priority `{}` is not a number that can be used",
            shown(text)
        );
        findings
            .error(DiagnosticCode::OutOfRange, "/priority", message)
            .hint(format!(
                "write a whole number from {} to {}",
                i32::MIN,
                i32::MAX
            ));
        0
    })
}

/// A user by number, or by name where the image has a user database of its own.
pub(super) fn check_user(
    draft: &Draft,
    image: &Image,
    findings: &mut Findings,
) -> (Option<User>, Option<String>) {
    let Some(text) = draft.user.as_deref() else {
        return (None, None);
    };
    if *image != Image::Host && numbers(text).is_none() && is_user_name(text) {
        return (None, Some(text.to_owned()));
    }
    (read_user("/user", "user", text, findings), None)
}

/// The two ids of `UID[:GID]`, each `None` where a sandbox does not have it. `None` if they are no
/// numbers.
fn numbers(text: &str) -> Option<(Option<u32>, Option<u32>)> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    let id = |text: &str| {
        // The one name that has the same number everywhere.
        let text = if text == "root" { "0" } else { text };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok().filter(|id| *id <= USER_ID_MAX))
    };
    Some((id(uid)?, id(gid)?))
}

/// Reads `UID[:GID]`.
pub(super) fn read_user(
    place: &str,
    what: &str,
    text: &str,
    findings: &mut Findings,
) -> Option<User> {
    match numbers(text) {
        Some((Some(uid), Some(gid))) => return Some(User { uid, gid }),
        Some(_) => {
            let message = format!(
                "the {what} `{}` has an id that a sandbox does not have",
                shown(text)
            );
            findings
                .error(DiagnosticCode::OutOfRange, place, message)
                .hint(format!("ids go from 0 to {USER_ID_MAX}"));
        }
        None => {
            let message = format!("`{}` is not a user", shown(text));
            let hint = if what == "user" && is_user_name(text) {
                "with the host's own files write numbers: UID or UID:GID, for example 1000:1000"
            } else {
                "write numbers: UID or UID:GID, for example 1000:1000"
            };
            findings
                .error(DiagnosticCode::UserForm, place, message)
                .hint(hint);
        }
    }
    None
}

/// `NAME[:GROUP]`, in characters that user databases have.
fn is_user_name(text: &str) -> bool {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@' | '+');
    let is_name = |part: &str| {
        (1..=64).contains(&part.len()) && part.chars().all(safe) && !part.starts_with('-')
    };
    match text.split_once(':') {
        Some((user, group)) => is_name(user) && is_name(group),
        None => is_name(text),
    }
}

fn size(
    findings: &mut Findings,
    place: &str,
    text: Option<&str>,
    least: ByteSize,
) -> Option<ByteSize> {
    let size: ByteSize = parsed(findings, place, text)?;
    if size < least {
        let written = text.unwrap_or_default().trim();
        let message = format!("{size} is too little: the least is {least}");
        // A bare small number is most often meant in MiB.
        let hint = if written.bytes().all(|byte| byte.is_ascii_digit()) && size.0 > 0 {
            format!("a number without a unit counts bytes; did you mean {written}MiB?")
        } else {
            format!("write {least} or more")
        };
        findings
            .error(DiagnosticCode::OutOfRange, place, message)
            .hint(hint);
        return None;
    }
    if size > SIZE_MAX {
        let message = format!("{size} is more than {SIZE_MAX}, the largest size there is");
        findings
            .error(DiagnosticCode::OutOfRange, place, message)
            .hint("leave it out for the runner's default");
        return None;
    }
    Some(size)
}

/// What lies in `/dev/shm` counts as memory, so no more of it than that could ever be used.
fn shm(findings: &mut Findings, text: Option<&str>, memory: Option<ByteSize>) -> Option<ByteSize> {
    const PLACE: &str = "/limits/shm";
    let shm = size(findings, PLACE, text, SHM_MIN)?;
    if let Some(memory) = memory.filter(|memory| shm > *memory) {
        let message =
            format!("a /dev/shm of {shm} is larger than the job's memory, which is {memory}");
        findings
            .error(DiagnosticCode::OutOfRange, PLACE, message)
            .hint(format!(
                "what lies there counts as memory: write {memory} or less, or raise the memory"
            ));
        return None;
    }
    Some(shm)
}

fn cpus(findings: &mut Findings, text: Option<&str>) -> Option<CpuCount> {
    parsed(findings, "/limits/cpus", text)
}

fn count(
    findings: &mut Findings,
    place: &str,
    text: Option<&str>,
    (least, most): (u32, u32),
) -> Option<u32> {
    let text = text?;
    let number = text
        .trim()
        .parse::<u32>()
        .ok()
        .filter(|number| (least..=most).contains(number));
    if number.is_none() {
        let is_number = text
            .trim()
            .trim_start_matches('-')
            .parse::<f64>()
            .is_ok_and(f64::is_finite);
        let code = if is_number {
            DiagnosticCode::OutOfRange
        } else {
            DiagnosticCode::Quantity
        };
        let message = format!(
            "`{}` is not a whole number from {least} to {most}",
            shown(text)
        );
        findings
            .error(code, place, message)
            .hint(format!("write a number such as {}", most.min(512)));
    }
    number
}

fn duration(findings: &mut Findings, place: &str, text: Option<&str>) -> Option<Millis> {
    report(findings, place, parse_duration(text?))
}

fn timeout(findings: &mut Findings, text: Option<&str>) -> Option<Millis> {
    let place = "/limits/timeout";
    if matches!(text.map(str::trim), Some("0" | "0s" | "0ms")) {
        findings
            .error(
                DiagnosticCode::Quantity,
                place,
                "a time limit of 0 leaves no time to run",
            )
            .hint("leave it out for no time limit");
        return None;
    }
    duration(findings, place, text)
}

/// A grace of zero is a kill at once, so it is the one length of time that may be zero.
fn grace(findings: &mut Findings, text: Option<&str>) -> Millis {
    let place = "/limits/grace";
    let default = GRACE_DEFAULT.into();
    let Some(text) = text else {
        return default;
    };
    if matches!(text.trim(), "0" | "0s" | "0ms") {
        return Millis(0);
    }
    let Some(grace) = duration(findings, place, Some(text)) else {
        return default;
    };
    if grace.as_duration() > GRACE_MAX {
        let message = format!("a grace of {} is longer than a day", shown(text));
        findings
            .error(DiagnosticCode::OutOfRange, place, message)
            .hint("write how long the job may take to end after the signal, such as 10s");
    }
    grace
}

fn parsed<T>(findings: &mut Findings, place: &str, text: Option<&str>) -> Option<T>
where
    T: FromStr<Err = ParseQuantityError>,
{
    report(findings, place, text?.parse())
}

fn report<T>(
    findings: &mut Findings,
    place: &str,
    result: Result<T, ParseQuantityError>,
) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let message = format!("`{}` is not {}", shown(&error.text), kind_of(&error));
            findings
                .error(DiagnosticCode::Quantity, place, message)
                .hint(format!("write {}", error.expected));
            None
        }
    }
}

/// `a size` out of `a size such as 512MiB, …`.
fn kind_of(error: &ParseQuantityError) -> impl Display {
    let end = error
        .expected
        .find(" such as")
        .unwrap_or(error.expected.len());
    error.expected[..end].trim_end_matches(',').to_owned()
}
