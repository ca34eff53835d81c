//! Braces in paths: `{a,b}` stands for one text with `a` and one with `b`, as in a shell.

/// Why a text with braces stands for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BracesError {
    /// A brace is opened and not closed.
    #[error("a `{{` is not closed")]
    Unclosed,
    /// A brace is closed and was not opened.
    #[error("a `}}` is closed and was not opened")]
    Unopened,
    /// A backslash has nothing behind it.
    #[error("it ends with a backslash")]
    Backslash,
    /// There are too many texts.
    #[error("it stands for more than {0} paths")]
    TooMany(usize),
}

/// All texts that a text with braces stands for, in order. Braces may be nested; a backslash takes the
/// next character as it is. Gives at most `max` texts.
///
/// # Errors
/// If the braces do not fit together, or if there are more.
pub fn expand(text: &str, max: usize) -> Result<Vec<String>, BracesError> {
    let (texts, _) = read(&mut text.chars(), max, 0)?;
    Ok(texts)
}

/// What ended an alternative.
enum End {
    Text,
    Comma,
    Brace,
}

/// Braces inside of braces at most: the reader calls itself for each.
const DEPTH_MAX: usize = 32;

/// Reads up to what ends an alternative; outside of all braces, that is the end of the text.
fn read(
    rest: &mut std::str::Chars<'_>,
    max: usize,
    depth: usize,
) -> Result<(Vec<String>, End), BracesError> {
    if depth > DEPTH_MAX {
        return Err(BracesError::TooMany(max));
    }
    let mut texts = vec![String::new()];
    while let Some(character) = rest.next() {
        match character {
            '\\' => {
                let next = rest.next().ok_or(BracesError::Backslash)?;
                texts.iter_mut().for_each(|text| text.push(next));
            }
            '{' => {
                let mut choices = Vec::new();
                loop {
                    let (more, end) = read(rest, max, depth + 1)?;
                    choices.extend(more);
                    if choices.len() > max {
                        return Err(BracesError::TooMany(max));
                    }
                    match end {
                        End::Comma => {}
                        End::Brace => break,
                        End::Text => return Err(BracesError::Unclosed),
                    }
                }
                if texts.len() * choices.len() > max {
                    return Err(BracesError::TooMany(max));
                }
                texts = texts
                    .iter()
                    .flat_map(|text| choices.iter().map(move |choice| format!("{text}{choice}")))
                    .collect();
            }
            '}' if depth == 0 => return Err(BracesError::Unopened),
            '}' => return Ok((texts, End::Brace)),
            ',' if depth > 0 => return Ok((texts, End::Comma)),
            plain => texts.iter_mut().for_each(|text| text.push(plain)),
        }
    }
    Ok((texts, End::Text))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn braces_are_what_a_shell_makes_of_them() {
        for (text, expected) in [
            ("/a", "/a"),
            ("", ""),
            ("/a,b", "/a,b"),
            ("/{a,b}/", "/a/ /b/"),
            ("/{a,b}/{1,2}", "/a/1 /a/2 /b/1 /b/2"),
            ("/{a,b{1,2},}x", "/ax /b1x /b2x /x"),
            ("/{a}", "/a"),
            (r"/\{a\,b\}", "/{a,b}"),
        ] {
            assert_eq!(expand(text, 10).unwrap().join(" "), expected, "{text}");
        }
        for (text, error) in [
            ("/{a", BracesError::Unclosed),
            ("/{a,", BracesError::Unclosed),
            ("/a}", BracesError::Unopened),
            ("/a\\", BracesError::Backslash),
            ("{1,2,3}{1,2,3}{1,2}", BracesError::TooMany(10)),
            ("{1,2,3,4,5,6,7,8,9,a,b}", BracesError::TooMany(10)),
        ] {
            assert_eq!(expand(text, 10), Err(error), "{text}");
        }
        let deep = "{".repeat(100_000);
        assert!(expand(&deep, 10).is_err());
    }

    proptest! {
        #[test]
        fn a_text_without_special_characters_stands_for_itself(text in "[^{}\\\\]*") {
            prop_assert_eq!(expand(&text, 1), Ok(vec![text]));
        }

        #[test]
        fn no_text_makes_more_than_was_allowed(text in "[{},ab\\\\/]{0,200}") {
            if let Ok(texts) = expand(&text, 50) {
                prop_assert!(texts.len() <= 50);
            }
        }
    }
}
