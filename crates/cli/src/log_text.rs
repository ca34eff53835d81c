//! A log as text for people: piece by piece, in constant memory, safe on a terminal.
//!
//! Bytes that are not UTF-8 become U+FFFD, and a character that is split over two pieces of its
//! stream is still one character. Very long lines are folded. Of the escapes that a terminal obeys,
//! colours are kept if wanted and everything else is left out, so that a log can neither write the
//! clipboard nor change what stands above it. A carriage return ends a line, as a progress bar means
//! it.

use tidemill_core::{ByteSize, Stream};

/// Characters of one line before it is folded.
const LINE_CHARS_MAX: usize = 8192;
/// What a folded line goes on with.
const FOLD: &str = "\n↪ ";
/// Bytes of one colour escape at most; a longer one is no colour.
const COLOUR_BYTES_MAX: usize = 64;

/// The text of a log so far.
#[derive(Debug)]
pub(crate) struct LogText {
    colours: bool,
    stdout: Decoder,
    stderr: Decoder,
    /// Characters on the line that is being written.
    column: usize,
    after_return: bool,
    /// True if a colour was passed on.
    coloured: bool,
}

impl LogText {
    /// `colours` keeps colour escapes.
    pub(crate) fn new(colours: bool) -> Self {
        Self {
            colours,
            stdout: Decoder::default(),
            stderr: Decoder::default(),
            column: 0,
            after_return: false,
            coloured: false,
        }
    }

    /// The text of the next piece of a stream.
    pub(crate) fn piece(&mut self, stream: Stream, bytes: &[u8]) -> String {
        let mut text = String::with_capacity(bytes.len());
        let decoded = self.decoder(stream).decode(bytes);
        for character in decoded.chars() {
            self.character(stream, character, &mut text);
        }
        text
    }

    /// What was held back until now: the beginning of a character that never ended, and the end of
    /// colours. The last line gets no end that the job did not write.
    pub(crate) fn finish(&mut self) -> String {
        let mut text = String::new();
        for stream in [Stream::Stdout, Stream::Stderr] {
            if !std::mem::take(&mut self.decoder(stream).rest).is_empty() {
                self.visible(char::REPLACEMENT_CHARACTER, &mut text);
            }
        }
        if std::mem::take(&mut self.coloured) {
            text.push_str("\u{1b}[0m");
        }
        text
    }

    /// The mark where the log's limit left bytes out.
    pub(crate) fn gap(&mut self, bytes: u64) -> String {
        let mut text = self.finish();
        if self.is_mid_line() {
            self.end_line(&mut text);
        }
        text + &format!("[{} left out here]\n", ByteSize(bytes))
    }

    /// True if the last line has not ended.
    pub(crate) const fn is_mid_line(&self) -> bool {
        self.column > 0
    }

    const fn decoder(&mut self, stream: Stream) -> &mut Decoder {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    fn character(&mut self, stream: Stream, character: char, text: &mut String) {
        match self.decoder(stream).escape.step(character) {
            Step::Text => {}
            Step::Inside => return,
            Step::Colour(sequence) => {
                if self.colours {
                    self.coloured = true;
                    text.push_str(&sequence);
                }
                return;
            }
        }
        let after_return = std::mem::take(&mut self.after_return);
        match character {
            // The line was already ended by the carriage return before it.
            '\n' if after_return => {}
            '\n' => self.end_line(text),
            '\r' => {
                self.after_return = true;
                if self.column > 0 {
                    self.end_line(text);
                } else {
                    // An empty line that ends in both must stay one line.
                    self.after_return = false;
                }
            }
            '\t' => self.visible('\t', text),
            control if control.is_control() => {
                for character in control.escape_debug() {
                    self.visible(character, text);
                }
            }
            other => self.visible(other, text),
        }
    }

    fn end_line(&mut self, text: &mut String) {
        text.push('\n');
        self.column = 0;
    }

    fn visible(&mut self, character: char, text: &mut String) {
        if self.column == LINE_CHARS_MAX {
            text.push_str(FOLD);
            self.column = 0;
        }
        text.push(character);
        self.column += 1;
    }
}

/// UTF-8 over the borders of pieces.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The beginning of a character whose end has not come yet: three bytes at most.
    rest: Vec<u8>,
    escape: Escape,
}

impl Decoder {
    /// The text of the next bytes. The beginning of a character waits for its end.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> String {
        let mut joined = std::mem::take(&mut self.rest);
        joined.extend_from_slice(bytes);
        let mut text = String::with_capacity(joined.len());
        let mut chunks = joined.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            if chunks.peek().is_none() && may_go_on(invalid) {
                self.rest = invalid.to_vec();
            } else {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        text
    }
}

/// True if these bytes are only the beginning of a character: the standard library tells an error
/// with no length from one that more bytes cannot mend.
fn may_go_on(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// Where in an escape sequence a stream is. <https://vt100.net/emu/dec_ansi_parser>
#[derive(Debug, Default)]
enum Escape {
    #[default]
    None,
    /// After ESC.
    Begun,
    /// After ESC and intermediate characters.
    Short,
    /// In a control sequence: what came so far, or nothing if it can be no colour any more.
    Control(Option<String>),
    /// In a text for the terminal (title, clipboard, device control), until BEL or ST.
    Text,
    /// In such a text, after ESC.
    TextEnd,
}

enum Step {
    /// The character is part of the text.
    Text,
    /// It belongs to an escape.
    Inside,
    /// It ends an escape that sets colours.
    Colour(String),
}

impl Escape {
    fn step(&mut self, character: char) -> Step {
        // A line end, CAN and SUB break any escape off, so that a stray ESC cannot hide a log.
        if matches!(character, '\n' | '\u{18}' | '\u{1a}') && !matches!(self, Self::None) {
            *self = Self::None;
            return if character == '\n' {
                Step::Text
            } else {
                Step::Inside
            };
        }
        match std::mem::take(self) {
            Self::None => self.first(character),
            Self::Begun => match character {
                '[' => self.enter(Self::Control(Some("\u{1b}[".to_owned()))),
                ']' | 'P' | 'X' | '^' | '_' => self.enter(Self::Text),
                ' '..='/' => self.enter(Self::Short),
                '\u{1b}' => self.enter(Self::Begun),
                _ => Step::Inside,
            },
            Self::Short => match character {
                ' '..='/' => self.enter(Self::Short),
                '\u{1b}' => self.enter(Self::Begun),
                _ => Step::Inside,
            },
            Self::Control(so_far) => self.control(so_far, character),
            Self::Text => match character {
                '\u{7}' | '\u{9c}' => Step::Inside,
                '\u{1b}' => self.enter(Self::TextEnd),
                _ => self.enter(Self::Text),
            },
            Self::TextEnd => match character {
                '\\' => Step::Inside,
                '[' => self.enter(Self::Control(Some("\u{1b}[".to_owned()))),
                _ => self.enter(Self::Text),
            },
        }
    }

    fn first(&mut self, character: char) -> Step {
        match character {
            '\u{1b}' => self.enter(Self::Begun),
            '\u{9b}' => self.enter(Self::Control(None)),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => self.enter(Self::Text),
            _ => Step::Text,
        }
    }

    fn control(&mut self, so_far: Option<String>, character: char) -> Step {
        match character {
            'm' => match so_far {
                Some(mut sequence) => {
                    sequence.push('m');
                    Step::Colour(sequence)
                }
                None => Step::Inside,
            },
            '0'..='9' | ';' | ':' => {
                let longer =
                    so_far
                        .filter(|so_far| so_far.len() < COLOUR_BYTES_MAX)
                        .map(|mut s| {
                            s.push(character);
                            s
                        });
                self.enter(Self::Control(longer))
            }
            ' '..='?' => self.enter(Self::Control(None)),
            '\u{1b}' => self.enter(Self::Begun),
            _ => Step::Inside,
        }
    }

    fn enter(&mut self, next: Self) -> Step {
        *self = next;
        Step::Inside
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(colours: bool, pieces: &[&[u8]]) -> String {
        let mut text = LogText::new(colours);
        let mut shown: String = pieces
            .iter()
            .map(|piece| text.piece(Stream::Stdout, piece))
            .collect();
        shown.push_str(&text.finish());
        shown
    }

    #[test]
    fn b9_bytes_that_are_not_utf8_and_split_characters() {
        assert_eq!(
            shown(false, &[b"a\xff\xfe\n", b"\xe2\x82", b"\xac\n"]),
            "a\u{fffd}\u{fffd}\n€\n"
        );
        assert_eq!(shown(false, &[b"\xf0", b"\x9f", b"\xa6", b"\x80"]), "🦀");
        assert_eq!(shown(false, &[b"\xe2\x82", b"x"]), "\u{fffd}x");
        assert_eq!(shown(false, &[b"end\xe2"]), "end\u{fffd}");
    }

    #[test]
    fn b3_what_was_left_out_is_said_on_a_line_of_its_own() {
        let mut text = LogText::new(false);
        let shown = [
            text.piece(Stream::Stdout, b"y\ny"),
            text.gap(4 << 20),
            text.piece(Stream::Stdout, b"\nLAST\n"),
            text.gap(1),
        ];
        assert_eq!(
            shown.concat(),
            "y\ny\n[4 MiB left out here]\n\nLAST\n[1 B left out here]\n"
        );
    }

    #[test]
    fn streams_do_not_mix_their_characters() {
        let mut text = LogText::new(false);
        let shown = [
            text.piece(Stream::Stdout, b"\xe2\x82"),
            text.piece(Stream::Stderr, b"x"),
            text.piece(Stream::Stdout, b"\xac"),
        ];
        assert_eq!(shown.concat(), "x€");
    }

    #[test]
    fn any_split_gives_the_same_text() {
        let whole = "é€🦀\u{1b}[1;31mred\u{1b}[0m\r\nx\ry\u{1b}]0;t\u{7}z\tq\n".as_bytes();
        let expected = shown(true, &[whole]);
        for cut in 0..whole.len() {
            assert_eq!(
                shown(true, &[&whole[..cut], &whole[cut..]]),
                expected,
                "cut at {cut}"
            );
        }
        assert_eq!(
            expected,
            "é€🦀\u{1b}[1;31mred\u{1b}[0m\nx\nyz\tq\n\u{1b}[0m"
        );
    }

    #[test]
    fn only_colours_reach_the_terminal() {
        for (bytes, plain, coloured) in [
            ("\u{1b}[31mx\u{1b}[m", "x", "\u{1b}[31mx\u{1b}[m\u{1b}[0m"),
            ("\u{1b}[2Jx\u{1b}[10;1H", "x", "x"),
            ("\u{1b}]52;c;aGk=\u{7}x", "x", "x"),
            ("\u{1b}]0;title\u{1b}\\x", "x", "x"),
            ("\u{1b}Pq#\u{1b}\\x", "x", "x"),
            ("\u{1b}(Bx\u{1b}7", "x", "x"),
            ("\u{9b}31mx", "x", "x"),
            ("\u{1b}[?1049hx", "x", "x"),
            ("\u{7}\u{8}\0", "\\u{7}\\u{8}\\0", "\\u{7}\\u{8}\\0"),
            ("\u{1b}]never ended\nnext", "\nnext", "\nnext"),
            ("\u{1b}", "", ""),
        ] {
            assert_eq!(shown(false, &[bytes.as_bytes()]), plain, "{bytes:?}");
            assert_eq!(shown(true, &[bytes.as_bytes()]), coloured, "{bytes:?}");
        }
        let endless = format!("\u{1b}[{}m x", "1;".repeat(1000));
        assert_eq!(shown(true, &[endless.as_bytes()]), " x");
    }

    #[test]
    fn lines_end_once() {
        assert_eq!(
            shown(false, &[b"a\r\nb\r", b"\nc\n\nd\r\r\n"]),
            "a\nb\nc\n\nd\n\n"
        );
        assert_eq!(shown(false, &[b"\r\n\r\n"]), "\n\n");
        assert_eq!(shown(false, &[b"foo"]), "foo");
        assert_eq!(shown(false, &[b""]), "");
    }

    #[test]
    fn b6_very_long_line_is_folded_and_what_follows_is_there() {
        let line = vec![b'x'; LINE_CHARS_MAX * 2 + 1];
        let text = shown(false, &[&line, b"\nafter\n"]);
        assert_eq!(text.matches('x').count(), line.len());
        assert!(
            text.lines()
                .all(|line| line.chars().count() <= LINE_CHARS_MAX + 2)
        );
        assert!(text.ends_with("↪ x\nafter\n"));
        let exact = vec![b'x'; LINE_CHARS_MAX];
        assert_eq!(
            shown(false, &[&exact, b"\n"]).lines().count(),
            1,
            "no fold at the very end"
        );
    }

    proptest! {
        #[test]
        fn pieces_never_matter(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..200) {
            let cut = cut.min(bytes.len());
            let whole = shown(true, &[&bytes]);
            prop_assert_eq!(shown(true, &[&bytes[..cut], &bytes[cut..]]), whole);
        }

        #[test]
        fn nothing_but_colours_and_line_ends_controls_a_terminal(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let plain = shown(false, &[&bytes]);
            prop_assert!(!plain.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{:?}", plain);
            let coloured = shown(true, &[&bytes]);
            let rest: String = coloured.split("\u{1b}[").enumerate().map(|(index, part)| {
                if index == 0 { part } else { part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';' || c == ':').strip_prefix('m').expect("a colour") }
            }).collect();
            prop_assert_eq!(rest, plain);
        }
    }
}
