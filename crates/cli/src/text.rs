//! Records and events as text for people. Whatever came from a job is made harmless here.

pub(crate) mod bounds;
pub(crate) mod event;
pub(crate) mod grant;
pub(crate) mod layer;
pub(crate) mod record;
pub(crate) mod table;
pub(crate) mod warning;

use crate::ui::plain;

/// A command as one line that a shell would read the same way, cut where it is long.
pub(crate) fn command_line(command: &[String], chars_max: usize) -> String {
    let mut line = String::new();
    for word in command {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&quoted(word, chars_max));
        if line.chars().count() > chars_max {
            break;
        }
    }
    cut(&line, chars_max)
}

fn quoted(word: &str, chars_max: usize) -> String {
    // One character more shows that something was cut.
    let word: String = word.chars().take(chars_max + 1).collect();
    let safe = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        word
    } else {
        format!("'{}'", plain(&word.replace('\'', "'\\''")))
    }
}

/// A text of so many characters at most; `…` stands for what was left out.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) => {
            let kept: String = text.chars().take(chars_max.saturating_sub(1)).collect();
            format!("{kept}…")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_one_line() {
        let line = |words: &[&str], max| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            command_line(&words, max)
        };
        assert_eq!(
            line(&["sh", "-c", "echo it's $HOME"], 80),
            "sh -c 'echo it'\\''s $HOME'"
        );
        assert_eq!(
            line(&["a", "", "b\n\u{1b}[2J"], 80),
            "a '' 'b\\n\\u{1b}[2J'"
        );
        assert_eq!(line(&["cargo", "test", "--workspace"], 12), "cargo test …");
        assert_eq!(line(&[&"x".repeat(1_000_000)], 5), "xxxx…");
    }
}
