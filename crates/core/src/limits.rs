//! Limits of a job, and how people write sizes, counts and lengths of time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Millis;

/// A number of bytes. Written as a number with `B`, `kB`, `MB`, `GB`, `TB` (powers of 1000) or
/// `KiB`, `MiB`, `GiB`, `TiB` (powers of 1024).
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    Default,
)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

impl ByteSize {
    /// So many mebibytes.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// So many gibibytes.
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }
}

impl fmt::Display for ByteSize {
    /// Exact where a binary unit divides it, else one decimal place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) = match self.0 {
            n if n >= 1 << 40 => ("TiB", 1_u64 << 40),
            n if n >= 1 << 30 => ("GiB", 1 << 30),
            n if n >= 1 << 20 => ("MiB", 1 << 20),
            n if n >= 1 << 10 => ("KiB", 1 << 10),
            n => return write!(f, "{n} B"),
        };
        if self.0.is_multiple_of(size) {
            write!(f, "{} {unit}", self.0 / size)
        } else {
            let tenths = u128::from(self.0) * 10 / u128::from(size);
            write!(f, "{}.{} {unit}", tenths / 10, tenths % 10)
        }
    }
}

impl FromStr for ByteSize {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseQuantityError {
            text: text.to_owned(),
            expected: "a size such as 512MiB, 2GiB, 500kB or 1048576",
        };
        let trimmed = text.trim();
        let digits = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let unit = unit.trim();
        let factor = if unit.is_empty() {
            1
        } else {
            let long = |name: &str| unit.eq_ignore_ascii_case(name);
            let short = |name: &str| {
                unit.len() == 1 && name.len() == 3 && name[..1].eq_ignore_ascii_case(unit)
            };
            UNITS
                .iter()
                .find(|(name, _)| long(name) || short(name))
                .ok_or_else(wrong)?
                .1
        };
        scale(number, factor).map(Self).ok_or_else(wrong)
    }
}

/// `number` (decimal, perhaps with a fraction) times `factor`, rounded down; `None` if it is not a
/// number or too large.
fn scale(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || fraction.contains('.') {
        return None;
    }
    let whole: u128 = whole.parse().ok()?;
    let part: u128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let total = whole.checked_mul(u128::from(factor))? + part * u128::from(factor) / scale;
    u64::try_from(total).ok()
}

/// A share of CPUs in thousandths of one, so that `1.5` is exact.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct CpuCount {
    /// Thousandths of a CPU.
    pub thousandths: u32,
}

impl CpuCount {
    /// How many CPUs a job with this share should see: at least one, rounded up.
    pub const fn visible(self) -> u32 {
        if self.thousandths == 0 {
            1
        } else {
            self.thousandths.div_ceil(1000)
        }
    }
}

impl fmt::Display for CpuCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.thousandths / 1000, self.thousandths % 1000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{rest:03}").trim_end_matches('0'))
    }
}

impl FromStr for CpuCount {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        scale(text.trim(), 1000)
            .and_then(|thousandths| u32::try_from(thousandths).ok())
            .filter(|thousandths| (10..=4_096_000).contains(thousandths))
            .map(|thousandths| Self { thousandths })
            .ok_or_else(|| ParseQuantityError {
                text: text.to_owned(),
                expected: "a number of CPUs from 0.01 to 4096, such as 1.5",
            })
    }
}

/// Says that a text is not a size, a count or a length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct ParseQuantityError {
    /// What was written.
    pub text: String,
    /// What may be written.
    pub expected: &'static str,
}

/// Reads a length of time: a number with `ms`, `s`, `m`, `h` or `d`, several of them in a row
/// (`1h30m`), or a bare number of seconds.
///
/// # Errors
/// If it is none of these, or zero, or more than ten years.
pub fn parse_duration(text: &str) -> Result<Millis, ParseQuantityError> {
    let wrong = || ParseQuantityError {
        text: text.to_owned(),
        expected: "a length of time such as 500ms, 30s, 10m or 1h30m",
    };
    let mut rest = text.trim();
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let factor = match unit {
            "ms" => 1,
            "" if tail.is_empty() && total == 0 => 1000,
            "s" | "sec" => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        let part = scale(number, factor).ok_or_else(wrong)?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = tail.trim_start();
    }
    if total == 0 || total > 3_652 * 86_400_000 {
        return Err(wrong());
    }
    Ok(Millis(total))
}

/// Bounds of one job. An absent one means the default of the runner, which is finite too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Memory of all processes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// CPU time per wall time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuCount>,
    /// Processes and threads at one time.
    pub pids: u32,
    /// Bytes in the private layer, `/tmp` and the changed part of the working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<ByteSize>,
    /// Bytes in `/dev/shm`, which count as memory too; half of the memory limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm: Option<ByteSize>,
    /// Time from the program's start to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// Time between the polite signal and the kill.
    pub grace: Millis,
    /// Bytes of log that are kept: half from the beginning, half from the end.
    pub log: ByteSize,
    /// Open files per process.
    pub open_files: u32,
}

/// Processes and threads that a job may have at one time, unless it says otherwise.
pub const PIDS_DEFAULT: u32 = 4096;
/// The time between the polite signal and the kill, unless a job says otherwise.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(10);
/// Bytes of log that are kept, unless a job says otherwise.
pub const LOG_DEFAULT: ByteSize = ByteSize::mib(64);
/// Open files per process: what services and test suites need, and what `close_fds` loops survive.
pub const OPEN_FILES_DEFAULT: u32 = 65_536;
/// The longest value of one variable or argument: Linux's `MAX_ARG_STRLEN` of 131,072 bytes with
/// the terminating NUL, see execve(2).
pub const ARGUMENT_BYTES_MAX: usize = 131_071;

/// How many files, directories and links may lie in what is bounded to so many bytes: each takes up memory of
/// the kernel or room on the disk that no byte of its content tells.
pub fn inodes_for(bytes: u64) -> u64 {
    const BYTES_PER_FILE: u64 = 2048;
    (bytes / BYTES_PER_FILE).clamp(4096, 1 << 24)
}

/// How much of a disk a job may not take, whatever its limit is: a part of it, but no more than a few
/// seconds' writing, and never more than half of what is free when it begins.
pub fn disk_reserve(total_bytes: u64, free_bytes: u64) -> u64 {
    const PART: u64 = 16;
    const MOST: u64 = 4 << 30;
    (total_bytes / PART).min(MOST).min(free_bytes / 2)
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: None,
            cpus: None,
            pids: PIDS_DEFAULT,
            disk: None,
            shm: None,
            timeout: None,
            grace: GRACE_DEFAULT.into(),
            log: LOG_DEFAULT,
            open_files: OPEN_FILES_DEFAULT,
        }
    }
}
