//! The names of grants, for completions. What is no grant is told by the check of the job, with its
//! place and what was meant.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command, Error};

/// What completes: the whole name, or all of it up to a path.
const COMPLETED: [&str; 9] = [
    "userns", "ptrace", "fuse", "kvm", "sys", "root", "device:", "net:host", "bind:",
];

/// Takes every text, and proposes the names of grants.
#[derive(Debug, Clone)]
pub(super) struct GrantNames;

impl TypedValueParser for GrantNames {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(COMPLETED.into_iter().map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use tidemill_core::GrantRequest;

    use super::*;

    #[test]
    fn each_grant_completes() {
        for form in GrantRequest::FORMS {
            let completed = COMPLETED.iter().filter(|name| form.starts_with(*name));
            assert_eq!(completed.count(), 1, "{form}");
        }
        assert_eq!(COMPLETED.len(), GrantRequest::FORMS.len());
    }
}
