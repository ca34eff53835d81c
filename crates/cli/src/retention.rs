//! What is kept of executions that have ended: a default, and the environment where it says otherwise.

use std::env;
use std::time::Duration;

use tidemill_core::ByteSize;
use tidemill_core::limits::parse_duration;
use tidemill_ledger::retention::Retention;

use crate::failure::{Failure, FailureKind};

/// How long after its end an execution is kept.
const AGE: &str = "TIDEMILL_KEEP_FOR";
/// How many are kept.
const COUNT: &str = "TIDEMILL_KEEP_COUNT";
/// How much room they may take.
const BYTES: &str = "TIDEMILL_KEEP_BYTES";
/// Lifts a bound.
const ALL: &str = "all";

const DEFAULT: Retention = Retention {
    age: Some(Duration::from_hours(90 * 24)),
    count: Some(10_000),
    bytes: Some(ByteSize::gib(20)),
};

/// What the caller wants kept.
///
/// # Errors
/// If a variable is neither a quantity of its kind nor `all`.
pub(crate) fn retention() -> Result<Retention, Failure> {
    choose(|name| env::var(name).ok())
}

fn choose(variable: impl Fn(&str) -> Option<String>) -> Result<Retention, Failure> {
    Ok(Retention {
        age: bound(
            &variable,
            AGE,
            DEFAULT.age,
            "a length of time such as 30d",
            |text| parse_duration(text).ok().map(|millis| millis.as_duration()),
        )?,
        count: bound(
            &variable,
            COUNT,
            DEFAULT.count,
            "a number such as 500",
            |text| text.parse().ok(),
        )?,
        bytes: bound(
            &variable,
            BYTES,
            DEFAULT.bytes,
            "a size such as 5GiB",
            |text| text.parse().ok(),
        )?,
    })
}

/// One bound: the default if the variable is unset or empty, none if it is `all`.
fn bound<T>(
    variable: impl Fn(&str) -> Option<String>,
    name: &str,
    default: Option<T>,
    expected: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Failure> {
    let text = variable(name).unwrap_or_default();
    match text.trim() {
        "" => Ok(default),
        ALL => Ok(None),
        text => parse(text).map(Some).ok_or_else(|| {
            Failure::new(
                FailureKind::Usage,
                format!("`{text}` in {name} is not {expected}, and not `{ALL}`"),
            )
            .hint(format!("unset {name} for the default"))
        }),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)]) -> Result<Retention, Failure> {
        choose(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn every_bound_can_be_set_and_lifted() {
        let set = chosen(&[(AGE, "2d"), (COUNT, "7"), (BYTES, "1GiB")]).unwrap();
        assert_eq!(set.age, Some(Duration::from_hours(48)));
        assert_eq!((set.count, set.bytes), (Some(7), Some(ByteSize::gib(1))));
        let lifted = chosen(&[(AGE, "all"), (COUNT, "")]).unwrap();
        assert_eq!((lifted.age, lifted.count), (None, DEFAULT.count));
    }

    #[test]
    fn a_mistake_names_the_variable() {
        let failure = chosen(&[(BYTES, "12 parsecs")]).unwrap_err();
        let text = format!("{failure:?}");
        assert!(
            text.contains(BYTES) && text.contains("12 parsecs"),
            "{text}"
        );
    }
}
