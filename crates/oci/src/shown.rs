//! Texts that others wrote, in errors: bounded, and unable to move a terminal's cursor.

use std::fmt::Display;

/// Characters that are shown.
const CHARS_MAX: usize = 300;

/// What an error of a parser says, which may repeat what it read.
pub(crate) fn shown(error: &impl Display) -> String {
    let text = error.to_string();
    let mut safe = String::new();
    for character in text.chars().take(CHARS_MAX) {
        if character.is_control() {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    if text.chars().nth(CHARS_MAX).is_some() {
        safe.push('…');
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_harmless_and_bounded() {
        assert_eq!(shown(&"a `b` \"c\"\u{1b}[2J"), "a `b` \"c\"\\u{1b}[2J");
        assert_eq!(shown(&"x".repeat(1000)).chars().count(), CHARS_MAX + 1);
    }
}
