//! What is wrong with something that a person wrote: where, a stable code, and what to write instead.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One mistake, or one thing worth knowing, in what a person wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnostic {
    /// Whether it stops the job.
    pub severity: Severity,
    /// The stable code.
    pub code: DiagnosticCode,
    /// Where: a JSON pointer (RFC 6901) into the job file, for example `/limits/memory`.
    pub place: String,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// What to write instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Diagnostic {
    /// A mistake without advice.
    pub fn error(
        code: DiagnosticCode,
        place: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            code,
            place: place.into(),
            message: message.into(),
            hint: None,
        }
    }

    /// Something worth knowing that does not stop the job.
    pub fn warning(
        code: DiagnosticCode,
        place: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(code, place, message)
        }
    }

    /// The same diagnostic with advice.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// True if it stops the job.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Whether a diagnostic stops the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The job cannot be accepted.
    Error,
    /// It can, and this should be known.
    Warning,
}

/// The stable code of a diagnostic. A new one is added, none is renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiagnosticCode {
    /// The file is not JSON.
    Syntax,
    /// The file is larger than a spec may be.
    FileTooLarge,
    /// There is no such field.
    UnknownField,
    /// A field stands twice in one object.
    DuplicateField,
    /// A field has a value of the wrong JSON type.
    WrongType,
    /// A field that is needed is missing.
    MissingField,
    /// The version of the format is not known.
    UnknownVersion,
    /// A text that may not be empty is empty.
    Empty,
    /// A NUL byte, which no program can be given.
    NulByte,
    /// A control character where a readable text is expected.
    ControlCharacter,
    /// A text is too long.
    TooLong,
    /// A list has too many entries.
    TooMany,
    /// One argument is longer than the kernel passes on.
    ArgumentTooLong,
    /// One variable is longer than the kernel passes on.
    VariableTooLong,
    /// All arguments and variables together are larger than the kernel passes on.
    ArgumentsTooLarge,
    /// The name of a variable is not a name.
    VariableName,
    /// A variable is not written `NAME=VALUE`.
    VariableForm,
    /// A variable that is to be passed on is not set.
    VariableNotSet,
    /// A text is not UTF-8.
    NotUtf8,
    /// A size, a count or a length of time is not one.
    Quantity,
    /// A number is outside its range.
    OutOfRange,
    /// A user is not written `UID` or `UID:GID`.
    UserForm,
    /// A label is not written `KEY=VALUE`, or its key has characters that a key may not have.
    LabelForm,
    /// An image is not of a known form.
    ImageForm,
    /// A layer is not of a known form.
    LayerForm,
    /// A grant is not of a known form.
    GrantForm,
    /// A pattern cannot be read.
    Pattern,
    /// A path on the host is not there, or not what it must be.
    HostPath,
    /// A path must be absolute.
    RelativePath,
    /// A path may not have `..` in it.
    ParentComponent,
    /// A destination lies where the sandbox itself mounts something.
    ReservedPath,
    /// A value is not one of the few that are possible.
    UnknownValue,
    /// Two settings exclude each other.
    Conflict,
    /// One setting makes another one pointless.
    Redundant,
}

impl DiagnosticCode {
    /// The code as formats carry it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::FileTooLarge => "file_too_large",
            Self::UnknownField => "unknown_field",
            Self::DuplicateField => "duplicate_field",
            Self::WrongType => "wrong_type",
            Self::MissingField => "missing_field",
            Self::UnknownVersion => "unknown_version",
            Self::Empty => "empty",
            Self::NulByte => "nul_byte",
            Self::ControlCharacter => "control_character",
            Self::TooLong => "too_long",
            Self::TooMany => "too_many",
            Self::ArgumentTooLong => "argument_too_long",
            Self::VariableTooLong => "variable_too_long",
            Self::ArgumentsTooLarge => "arguments_too_large",
            Self::VariableName => "variable_name",
            Self::VariableForm => "variable_form",
            Self::VariableNotSet => "variable_not_set",
            Self::NotUtf8 => "not_utf8",
            Self::Quantity => "quantity",
            Self::OutOfRange => "out_of_range",
            Self::UserForm => "user_form",
            Self::LabelForm => "label_form",
            Self::ImageForm => "image_form",
            Self::LayerForm => "layer_form",
            Self::GrantForm => "grant_form",
            Self::Pattern => "pattern",
            Self::HostPath => "host_path",
            Self::RelativePath => "relative_path",
            Self::ParentComponent => "parent_component",
            Self::ReservedPath => "reserved_path",
            Self::UnknownValue => "unknown_value",
            Self::Conflict => "conflict",
            Self::Redundant => "redundant",
        }
    }
}

impl fmt::Display for DiagnosticCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Diagnostics of one severity that one reading or check collects at most.
pub const DIAGNOSTICS_MAX: usize = 1000;

/// Appends one reference token to a JSON pointer, escaped as RFC 6901 asks.
pub fn pointer(parent: &str, token: &str) -> String {
    format!("{parent}/{}", token.replace('~', "~0").replace('/', "~1"))
}

/// The candidate that is most like `word`, if one is so close that a slip of the hand explains it.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word
        .to_lowercase()
        .chars()
        .take(SUGGESTION_CHARS_MAX)
        .collect();
    let allowed = (word.len() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Characters of a wrong word that are looked at.
const SUGGESTION_CHARS_MAX: usize = 64;

/// How many insertions, deletions, replacements and swaps of neighbours lead from one to the other.
fn distance(from: &[char], to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (row, a) in from.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, b) in to.iter().enumerate() {
            let mut best = (last[column] + usize::from(a != b))
                .min(last[column + 1] + 1)
                .min(current[column] + 1);
            let swapped =
                row > 0 && column > 0 && *a == to[column - 1] && from[row - 1] == *b && a != b;
            if swapped {
                best = best.min(before_last[column - 1] + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word() {
        let fields = ["memory", "timeout", "pids", "env"];
        assert_eq!(nearest("memroy", fields), Some("memory"));
        assert_eq!(nearest("time_out", fields), Some("timeout"));
        assert_eq!(nearest("Pids", fields), Some("pids"));
        assert_eq!(nearest("colour", fields), None);
        assert_eq!(nearest("", fields), None);
    }

    #[test]
    fn distances_count_single_slips() {
        let count = |from: &str, to: &str| distance(&from.chars().collect::<Vec<_>>(), to);
        assert_eq!(count("abcd", "abcd"), 0);
        assert_eq!(count("abdc", "abcd"), 1);
        assert_eq!(count("abd", "abcd"), 1);
        assert_eq!(count("", "abcd"), 4);
        assert_eq!(count("kitten", "sitting"), 3);
    }

    #[test]
    fn pointers_are_escaped() {
        assert_eq!(pointer("/env", "A/B~C"), "/env/A~1B~0C");
    }

    #[test]
    fn the_code_and_its_name_in_formats_agree() {
        for code in [
            DiagnosticCode::Syntax,
            DiagnosticCode::ArgumentsTooLarge,
            DiagnosticCode::NotUtf8,
            DiagnosticCode::OutOfRange,
        ] {
            let json = serde_json::to_string(&code).expect("a unit variant");
            assert_eq!(json, format!("\"{}\"", code.as_str()));
        }
    }
}
