//! Names and labels: short, readable, safe to print.

use std::collections::BTreeMap;

use super::{Findings, shown};
use crate::diagnostic::{DiagnosticCode, pointer};
use crate::draft::Draft;

/// Bytes of a job's name at most.
pub const NAME_BYTES_MAX: usize = 128;
/// Labels of one job at most.
pub const LABELS_MAX: usize = 64;
/// Bytes of a label's key at most.
pub const LABEL_KEY_BYTES_MAX: usize = 63;
/// Bytes of a label's value at most.
pub const LABEL_VALUE_BYTES_MAX: usize = 256;

pub(super) fn check_name(draft: &Draft, findings: &mut Findings) -> Option<String> {
    let name = draft.name.as_deref()?;
    if name.trim().is_empty() {
        findings
            .error(DiagnosticCode::Empty, "/name", "the name is empty")
            .hint("write a name such as nightly-build, or leave it out");
    } else if name.len() > NAME_BYTES_MAX {
        let message = format!(
            "the name has {} bytes, and {NAME_BYTES_MAX} is the limit",
            name.len()
        );
        findings
            .error(DiagnosticCode::TooLong, "/name", message)
            .hint("shorten it; labels can hold the rest");
    } else {
        readable(findings, "/name", "the name", name);
    }
    Some(name.to_owned())
}

pub(super) fn check_labels(draft: &Draft, findings: &mut Findings) -> BTreeMap<String, String> {
    if draft.labels.len() > LABELS_MAX {
        let message = format!(
            "there are {} labels, and {LABELS_MAX} is the limit",
            draft.labels.len()
        );
        findings
            .error(DiagnosticCode::TooMany, "/labels", message)
            .hint("keep the ones that you search for");
    }
    for (key, value) in &draft.labels {
        check_label(&pointer("/labels", key), key, value, findings);
    }
    draft.labels.clone()
}

fn check_label(place: &str, key: &str, value: &str, findings: &mut Findings) {
    let key_is_good = !key.is_empty()
        && key.len() <= LABEL_KEY_BYTES_MAX
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte));
    if !key_is_good {
        let message = format!("`{}` is not a label's key", shown(key));
        findings.error(DiagnosticCode::LabelForm, place, message).hint(format!(
            "a key is 1 to {LABEL_KEY_BYTES_MAX} characters of a-z, A-Z, 0-9, `.`, `_`, `/` and `-`"
        ));
    } else if value.len() > LABEL_VALUE_BYTES_MAX {
        let message = format!(
            "the value of label `{key}` has {} bytes, and {LABEL_VALUE_BYTES_MAX} is the limit",
            value.len()
        );
        findings
            .error(DiagnosticCode::TooLong, place, message)
            .hint("shorten it");
    } else {
        readable(
            findings,
            place,
            &format!("the value of label `{key}`"),
            value,
        );
    }
}

/// Refuses what would move a terminal's cursor or change its colours when it is listed.
fn readable(findings: &mut Findings, place: &str, what: &str, text: &str) {
    let Some(control) = text.chars().find(|character| character.is_control()) else {
        return;
    };
    let message = format!(
        "{what} has the control character {}",
        control.escape_debug()
    );
    findings
        .error(DiagnosticCode::ControlCharacter, place, message)
        .hint("write it without line breaks, tabs and escapes");
}
