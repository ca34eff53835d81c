//! Diagnostics with the place where the user wrote the mistake: a flag, or a line of the job file.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use tidemill_core::Diagnostic;
use tidemill_core::diagnostic::Severity;

/// Diagnostics that are shown as text at most. JSON has them all.
const SHOWN_MAX: usize = 100;

/// A diagnostic and where its mistake was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Placed {
    pub(crate) diagnostic: Diagnostic,
    pub(crate) written: Written,
}

/// Where something was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Written {
    /// In a flag or argument of the command line.
    Flag { flag: String },
    /// In the job file, counted from 1; columns count characters.
    File {
        file: String,
        line: usize,
        column: usize,
    },
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag { flag } => f.write_str(flag),
            Self::File { file, line, column } => write!(f, "{file}:{line}:{column}"),
        }
    }
}

/// Which flags said what: from a pointer into the draft to the flag as it was typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FlagPlaces {
    flags: BTreeMap<String, String>,
}

impl FlagPlaces {
    pub(crate) fn insert(&mut self, pointer: impl Into<String>, flag: impl Into<String>) {
        self.flags.insert(pointer.into(), flag.into());
    }

    /// Moves the entries of a list behind `count` entries that come from elsewhere.
    pub(crate) fn shift(&mut self, list: &str, count: usize) {
        let moved = std::mem::take(&mut self.flags);
        for (pointer, flag) in moved {
            let index = pointer
                .strip_prefix(list)
                .and_then(|rest| rest.strip_prefix('/'))
                .and_then(|index| index.parse::<usize>().ok());
            let pointer = match index {
                Some(index) => format!("{list}/{}", index + count),
                None => pointer,
            };
            self.flags.insert(pointer, flag);
        }
    }

    /// The flag that said what stands at a pointer, or around it.
    pub(crate) fn flag_of(&self, pointer: &str) -> Option<&str> {
        ancestors(pointer)
            .find_map(|place| self.flags.get(place))
            .map(String::as_str)
    }
}

/// A pointer, then what it lies in, then what that lies in, down to the empty one.
pub(crate) fn ancestors(pointer: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(pointer), |place| {
        place.rfind('/').map(|end| &place[..end])
    })
}

/// The flag that would say what stands at a pointer, for mistakes that nobody wrote.
pub(crate) fn usual_flag(pointer: &str) -> String {
    match pointer.split('/').nth(1).unwrap_or_default() {
        "program" | "args" => "PROGRAM".to_owned(),
        "network" => "--net".to_owned(),
        "layers" => "--layer".to_owned(),
        "labels" => "--label".to_owned(),
        "grants" => "--grant".to_owned(),
        "limits" => match pointer.split('/').nth(2).unwrap_or_default() {
            "log" => "--log-limit".to_owned(),
            limit => format!("--{}", limit.replace('_', "-")),
        },
        "" => "the job".to_owned(),
        field => format!("--{}", field.replace('_', "-")),
    }
}

/// Diagnostics as text: `place: error: message [code]`, and the advice below each.
pub(crate) fn render(diagnostics: &[Placed]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for Placed {
        diagnostic,
        written,
    } in diagnostics.iter().take(SHOWN_MAX)
    {
        let severity = match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let Diagnostic { message, code, .. } = diagnostic;
        lines.push(format!("{written}: {severity}: {message} [{code}]"));
        lines.extend(diagnostic.hint.iter().map(|hint| format!("    {hint}")));
    }
    if diagnostics.len() > SHOWN_MAX {
        lines.push(format!("… and {} more", diagnostics.len() - SHOWN_MAX));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_leads_to_its_flag() {
        let mut flags = FlagPlaces::default();
        flags.insert("/limits/memory", "--memory");
        flags.insert("/layers/0", "--layer dir:x");
        flags.insert("/env/A", "--env A");
        flags.shift("/layers", 2);
        assert_eq!(flags.flag_of("/limits/memory"), Some("--memory"));
        assert_eq!(flags.flag_of("/layers/2"), Some("--layer dir:x"));
        assert_eq!(flags.flag_of("/layers/0"), None);
        assert_eq!(flags.flag_of("/limits"), None);
    }

    #[test]
    fn what_nobody_wrote_has_a_flag_too() {
        assert_eq!(usual_flag("/program"), "PROGRAM");
        assert_eq!(usual_flag("/limits/log"), "--log-limit");
        assert_eq!(usual_flag("/no_workspace"), "--no-workspace");
        assert_eq!(usual_flag(""), "the job");
    }
}
