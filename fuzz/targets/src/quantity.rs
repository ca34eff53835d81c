//! Sizes, counts, lengths of time, signals, ids and digests.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use tidemill_core::limits::parse_duration;
use tidemill_core::{ByteSize, CpuCount, Digest, ExecutionId, StopSignal};

/// Any text is a value or an error, and what a value is written as means the same value.
pub fn quantity(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    same_again::<CpuCount>(text);
    same_again::<StopSignal>(text);
    same_again::<ExecutionId>(text);
    same_again::<Digest>(text);
    if let Ok(size) = text.parse::<ByteSize>() {
        let again: ByteSize = size.to_string().parse().expect("it was written by us");
        // One decimal place is kept.
        let unit = [40, 30, 20, 10, 0].map(|bits| 1_u64 << bits);
        let unit = unit.into_iter().find(|unit| size.0 >= *unit).unwrap_or(1);
        assert!(
            again <= size && size.0 - again.0 <= unit / 10 + 1,
            "{text:?}"
        );
    }
    if let Ok(length) = parse_duration(text) {
        assert!(length.0 > 0);
        let again = parse_duration(&format!("{}ms", length.0));
        assert_eq!(again, Ok(length));
    }
    if let Some((id, attempt)) = ExecutionId::from_sandbox_name(text) {
        let name = id.sandbox_name(attempt);
        assert_eq!(ExecutionId::from_sandbox_name(&name), Some((id, attempt)));
    }
}

fn same_again<T>(text: &str)
where
    T: FromStr<Err: Debug> + Display + PartialEq + Debug,
{
    if let Ok(value) = text.parse::<T>() {
        let again: T = value.to_string().parse().expect("it was written by us");
        assert_eq!(again, value, "{text:?}");
    }
}
