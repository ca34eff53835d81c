//! Identifiers. They are made by adapters (they need a clock and randomness) and only carried here.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Names one execution: a UUID, version 7, so that ids sort by the time they were made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ExecutionId(#[schemars(with = "String")] Uuid);

impl ExecutionId {
    /// Wraps a UUID that an adapter made.
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The UUID itself.
    pub const fn as_uuid(&self) -> &Uuid {
        &self.0
    }

    /// The name of the sandbox that one attempt of this execution runs in.
    pub fn sandbox_name(&self, attempt: Attempt) -> String {
        format!("{self}-{attempt}")
    }

    /// The execution and the attempt that a sandbox's name stands for.
    pub fn from_sandbox_name(name: &str) -> Option<(Self, Attempt)> {
        let (id, attempt) = name.rsplit_once('-')?;
        Some((id.parse().ok()?, Attempt(attempt.parse().ok()?)))
    }

    /// An id for tests, distinct for each number.
    pub const fn for_test(number: u128) -> Self {
        Self(Uuid::from_u128(number))
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ExecutionId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::parse_str(text)
            .map(Self)
            .map_err(|_| ParseIdError(text.to_owned()))
    }
}

/// Says that a text is not an execution id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an execution id (36 characters, as `ps` shows them)")]
pub struct ParseIdError(String);

/// Names a runner (or a machine that reports what it runs by itself).
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct RunnerId(pub String);

impl fmt::Display for RunnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The number of one try of an execution: 1 for the first. What a stale attempt says is refused.
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
pub struct Attempt(pub u32);

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_name_tells_whose_it_is() {
        let id = ExecutionId::for_test(7);
        let name = id.sandbox_name(Attempt(3));
        assert_eq!(
            ExecutionId::from_sandbox_name(&name),
            Some((id, Attempt(3)))
        );
        assert_eq!(ExecutionId::from_sandbox_name("nobody-3"), None);
        assert_eq!(ExecutionId::from_sandbox_name(&id.to_string()), None);
    }
}
