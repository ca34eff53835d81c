//! What a job writes, as text for a terminal.

#[path = "../../../crates/cli/src/log_text.rs"]
mod parser;

use tidemill_core::Stream;

use self::parser::LogText;
use crate::input::Input;

/// Characters of a line before it is folded, with the mark of a fold before them.
const LINE_CHARS_MAX: usize = 8192 + 2;

/// Nothing reaches a terminal but text, line ends, tabs and whole colours, in lines of bounded length;
/// and the text does not depend on how its bytes came in pieces.
pub fn log_text(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut plain = LogText::new(false);
    let mut coloured = LogText::new(true);
    let mut by_bytes = LogText::new(true);
    let mut texts = [String::new(), String::new(), String::new()];
    while !input.is_empty() {
        let kind = input.byte();
        let stream = if kind & 1 == 0 {
            Stream::Stdout
        } else {
            Stream::Stderr
        };
        if kind & 0xf0 == 0xf0 {
            let missing = input.number();
            texts[0] += &plain.gap(missing);
            texts[1] += &coloured.gap(missing);
            texts[2] += &by_bytes.gap(missing);
            continue;
        }
        // An odd byte in the middle asks for one long piece.
        let piece = input.piece();
        for _ in 0..if kind & 2 == 0 { 1 } else { 25 } {
            texts[0] += &plain.piece(stream, piece);
            texts[1] += &coloured.piece(stream, piece);
            for byte in piece {
                texts[2] += &by_bytes.piece(stream, &[*byte]);
            }
        }
    }
    texts[0] += &plain.finish();
    texts[1] += &coloured.finish();
    texts[2] += &by_bytes.finish();
    assert_eq!(texts[1], texts[2], "pieces matter");
    assert_eq!(without_colours(&texts[1]), texts[0], "colours matter");
    let is_harmless = |c: char| !c.is_control() || c == '\n' || c == '\t';
    assert!(texts[0].chars().all(is_harmless), "{:?}", texts[0]);
    for line in texts[0].lines() {
        assert!(line.chars().count() <= LINE_CHARS_MAX);
    }
}

/// The text without its colours. Panics at any other escape.
fn without_colours(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let body = part.strip_prefix('[').expect("only colours are kept");
        let end = body
            .find(|c: char| !matches!(c, '0'..='9' | ';' | ':'))
            .expect("a colour has an end");
        assert!(body[end..].starts_with('m'), "{part:?} is no colour");
        assert!(end <= 64);
        rest.push_str(&body[end + 1..]);
    }
    rest
}
