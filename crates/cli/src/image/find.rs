//! Which image somebody means.

use tidemill_core::diagnostic::nearest;
use tidemill_oci::{Named, Reference};

use super::{Images, state};
use crate::failure::{Failure, FailureKind};

/// Digits of a digest that name an image at least.
const DIGITS_MIN: usize = 4;

impl Images {
    /// All names, in alphabetical order.
    pub(super) fn all(&self) -> Result<Vec<Named>, Failure> {
        self.names
            .list()
            .map_err(|error| state(&error, error.hint()))
    }

    /// What is meant by a name, a digest or the beginning of one. There is more than one where an image has
    /// several names.
    pub(super) fn find(&self, text: &str) -> Result<Vec<Named>, Failure> {
        let all = self.all()?;
        if let Ok(reference) = text.parse::<Reference>() {
            let found = self
                .names
                .get(&reference)
                .map_err(|error| state(&error, error.hint()))?;
            if let Some(named) = found {
                return Ok(vec![named]);
            }
        }
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let is_meant = |named: &&Named| named.manifest.digest.to_hex().starts_with(digits);
        let found: Vec<Named> = match digits.len() {
            DIGITS_MIN.. => all.iter().filter(is_meant).cloned().collect(),
            _ => Vec::new(),
        };
        let Some(first) = found.first() else {
            return Err(unknown(text, &all));
        };
        if found
            .iter()
            .any(|named| named.manifest.digest != first.manifest.digest)
        {
            let message = format!("several images begin with `{}`", text.escape_debug());
            let mut failure = Failure::new(FailureKind::Usage, message).hint("write more of it:");
            failure.choices = found
                .iter()
                .map(|named| format!("{}  {}", named.manifest.digest, named.reference.to_short()))
                .collect();
            return Err(failure);
        }
        Ok(found)
    }
}

/// There is no such image.
pub(super) fn unknown(text: &str, all: &[Named]) -> Failure {
    let message = format!("there is no image `{}` here", text.escape_debug());
    let failure = Failure::new(FailureKind::Usage, message);
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() < DIGITS_MIN && text.bytes().all(is_digit) {
        return failure.hint(format!(
            "the beginning of a digest has {DIGITS_MIN} digits at least; `tidemill image ls` shows them"
        ));
    }
    let names: Vec<String> = all.iter().map(|named| named.reference.to_short()).collect();
    match nearest(text, names.iter().map(String::as_str)) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None if all.is_empty() => failure.hint("there is none yet: tidemill image pull REF"),
        None => failure.hint("`tidemill image ls` lists them; `tidemill image pull` fetches one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_digits_are_told_from_a_name_that_is_unknown() {
        assert!(unknown("1d", &[]).hints[0].contains("4 digits at least"));
        for text in ["debian", "1d2e", "1g"] {
            assert!(unknown(text, &[]).hints[0].contains("image pull"), "{text}");
        }
    }
}
