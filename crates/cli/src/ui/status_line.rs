//! The one line on a terminal that comes and goes. Pure: it answers what is to be written.
//!
//! The cursor stays behind its text, never at the right edge: what the terminal itself echoes there, such
//! as `^C`, must not begin a line of its own, or the status line could no longer be taken away.

/// What the line begins with, in turns.
const TURNS: [char; 8] = ['⠋', '⠙', '⠸', '⠴', '⠦', '⠧', '⠇', '⠏'];
/// To the first column, and nothing behind it.
pub(crate) const ERASE: &str = "\r\u{1b}[K";
/// Columns that are left free: the mark, a space, and room for what is echoed.
const FREE_COLUMNS: usize = 8;

/// The line as it stands.
#[derive(Debug, Default)]
pub(crate) struct StatusLine {
    shown: bool,
    turn: usize,
}

impl StatusLine {
    /// What draws it, over what was drawn before.
    pub(crate) fn draw(&mut self, text: &str, columns: usize) -> String {
        self.shown = true;
        self.turn = (self.turn + 1) % TURNS.len();
        let mark = TURNS[self.turn];
        format!(
            "{ERASE}{mark} {}",
            cut(text, columns.saturating_sub(FREE_COLUMNS))
        )
    }

    /// What takes it away; nothing if it is not there.
    pub(crate) fn erase(&mut self) -> Option<&'static str> {
        std::mem::take(&mut self.shown).then_some(ERASE)
    }
}

/// As much of a text as fits. A character that is not ASCII may be two columns wide.
fn cut(text: &str, columns: usize) -> String {
    let width = |character: char| if character.is_ascii() { 1 } else { 2 };
    if text.chars().map(width).sum::<usize>() <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(width('…'));
    let mut short: String = text
        .chars()
        .take_while(|&character| {
            let fits = width(character) <= left;
            left = left.saturating_sub(width(character));
            fits
        })
        .collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_taken_away_once_and_only_if_it_is_there() {
        let mut line = StatusLine::default();
        assert_eq!(line.erase(), None);
        let drawn = line.draw("running", 80);
        assert!(
            drawn.starts_with("\r\u{1b}[K") && drawn.ends_with(" running"),
            "{drawn:?}"
        );
        assert_eq!(line.erase(), Some("\r\u{1b}[K"));
        assert_eq!(line.erase(), None);
    }

    #[test]
    fn it_leaves_room_for_what_is_echoed_behind_it() {
        for (text, columns, expected) in [
            ("running", 15, "running"),
            ("running", 14, "runn…"),
            ("実行中です", 18, "実行中です"),
            ("実行中です", 17, "実行中…"),
            ("running", 0, "…"),
        ] {
            assert_eq!(cut(text, columns.max(8) - 8), expected, "{columns}");
        }
    }
}
