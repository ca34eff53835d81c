//! A Rust file, taken apart just far enough for tidy: code without comments and literals, the
//! literals, the comments, the test parts, the functions.

/// One Rust file.
#[derive(Debug)]
pub(crate) struct RustSource {
    /// The file with every comment and the inside of every literal blanked, line by line and byte
    /// by byte as long as the file.
    code: String,
    pub(crate) literals: Vec<Text>,
    pub(crate) comments: Vec<Text>,
    /// Byte ranges of `code` that are compiled for tests only.
    test_parts: Vec<std::ops::Range<usize>>,
}

/// A literal or a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    /// Where it begins, counted from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// A function with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) line: usize,
    pub(crate) name: String,
    /// Lines of code between its braces: neither blank nor only a comment.
    pub(crate) code_lines: usize,
}

impl RustSource {
    pub(crate) fn new(text: &str) -> Self {
        let mut lexer = Lexer::new(text);
        lexer.run();
        let code = String::from_utf8(lexer.code).expect("only whole characters are blanked");
        let test_parts = test_parts(&code);
        Self {
            code,
            literals: lexer.literals,
            comments: lexer.comments,
            test_parts,
        }
    }

    /// Where a piece of code stands, with no identifier character directly before it (and, if it
    /// ends with one, directly behind it): line numbers.
    pub(crate) fn find(&self, needle: &str) -> Vec<usize> {
        positions(&self.code, needle)
            .map(|at| line_of(&self.code, at))
            .collect()
    }

    /// As [`Self::find`], outside the test parts.
    pub(crate) fn find_in_product(&self, needle: &str) -> Vec<usize> {
        positions(&self.code, needle)
            .filter(|at| !self.is_test_part(*at))
            .map(|at| line_of(&self.code, at))
            .collect()
    }

    /// How many lines hold code that is not for tests.
    pub(crate) fn code_lines(&self) -> usize {
        let mut start = 0;
        let mut count = 0;
        for line in self.code.split_inclusive('\n') {
            if !line.trim().is_empty() && !self.is_test_part(start) {
                count += 1;
            }
            start += line.len();
        }
        count
    }

    /// The functions outside the test parts.
    pub(crate) fn functions(&self) -> Vec<Function> {
        positions(&self.code, "fn")
            .filter(|at| !self.is_test_part(*at))
            .filter_map(|at| function_at(&self.code, at))
            .collect()
    }

    /// The names of the modules in other files that are compiled for tests only.
    pub(crate) fn outline_test_modules(&self) -> impl Iterator<Item = &str> {
        self.test_parts.iter().filter_map(|part| {
            let item = self.code[part.clone()].trim_end().strip_suffix(';')?;
            let (before, name) = item.rsplit_once(char::is_whitespace)?;
            before.trim_end().ends_with("mod").then_some(name)
        })
    }

    fn is_test_part(&self, at: usize) -> bool {
        self.test_parts.iter().any(|part| part.contains(&at))
    }
}

const fn is_identifier(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

fn positions<'a>(code: &'a str, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    let ends_open = needle.bytes().last().is_some_and(is_identifier);
    let starts_open = needle.bytes().next().is_some_and(is_identifier);
    code.match_indices(needle)
        .map(|(at, _)| at)
        .filter(move |at| {
            let before = at.checked_sub(1).map(|before| bytes[before]);
            let behind = bytes.get(at + needle.len()).copied();
            let continues_before = starts_open && before.is_some_and(is_identifier);
            let continues_behind = ends_open && behind.is_some_and(is_identifier);
            !continues_before && !continues_behind
        })
}

/// The items behind `#[cfg(test)]` and the like, with their attributes.
fn test_parts(code: &str) -> Vec<std::ops::Range<usize>> {
    let mut parts = Vec::new();
    for start in positions(code, "#[cfg(") {
        let Some(length) = code[start..].find(']') else {
            continue;
        };
        let condition = &code[start..start + length];
        let is_test = positions(condition, "test").next().is_some();
        if !is_test || condition.contains("not(test") {
            continue;
        }
        let end = item_end(code, start + length + 1);
        parts.push(start..end);
    }
    parts
}

/// The end of the item that begins here: behind its block, or behind its semicolon.
fn item_end(code: &str, start: usize) -> usize {
    let Some(open) = body_or_semicolon(code, start) else {
        return code.len();
    };
    if code.as_bytes()[open] == b'{' {
        block_end(code, open)
    } else {
        open + 1
    }
}

/// The first `{` or `;` outside of round and square brackets.
fn body_or_semicolon(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, byte) in code.as_bytes()[start..].iter().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' | b';' if depth == 0 => return Some(start + offset),
            _ => {}
        }
    }
    None
}

/// Behind the brace that closes the one here.
fn block_end(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in code.as_bytes()[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return open + offset + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// The function whose `fn` stands here; nothing for a type or a function without a body.
fn function_at(code: &str, at: usize) -> Option<Function> {
    let rest = code[at + 2..].trim_start();
    let length = rest.bytes().take_while(|byte| is_identifier(*byte)).count();
    if length == 0 {
        return None;
    }
    let open = body_or_semicolon(code, at)?;
    if code.as_bytes()[open] != b'{' {
        return None;
    }
    let body = &code[open + 1..block_end(code, open) - 1];
    Some(Function {
        line: line_of(code, at),
        name: rest[..length].to_owned(),
        code_lines: body.lines().filter(|line| !line.trim().is_empty()).count(),
    })
}

/// Tells code, comments and literals apart.
struct Lexer<'a> {
    text: &'a str,
    at: usize,
    code: Vec<u8>,
    literals: Vec<Text>,
    comments: Vec<Text>,
}

impl<'a> Lexer<'a> {
    const fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            code: Vec::new(),
            literals: Vec::new(),
            comments: Vec::new(),
        }
    }

    fn run(&mut self) {
        while let Some(byte) = self.peek(0) {
            match byte {
                b'/' if self.peek(1) == Some(b'/') => self.line_comment(),
                b'/' if self.peek(1) == Some(b'*') => self.block_comment(),
                b'"' => self.string(),
                b'\'' => self.quote(),
                byte if is_identifier(byte) => self.word(),
                _ => self.keep(1),
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn keep(&mut self, count: usize) {
        let end = (self.at + count).min(self.text.len());
        self.code
            .extend_from_slice(&self.text.as_bytes()[self.at..end]);
        self.at = end;
    }

    fn blank(&mut self, count: usize) {
        let end = (self.at + count).min(self.text.len());
        let blanked = self.text.as_bytes()[self.at..end].iter();
        (self.code).extend(blanked.map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
        self.at = end;
    }

    fn piece(&self, length: usize) -> Text {
        let end = (self.at + length).min(self.text.len());
        Text {
            line: line_of(self.text, self.at),
            text: self.text[self.at..end].to_owned(),
        }
    }

    fn line_comment(&mut self) {
        let rest = &self.text[self.at..];
        let length = rest.find('\n').unwrap_or(rest.len());
        self.comments.push(self.piece(length));
        self.blank(length);
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        let mut length = 0;
        loop {
            match (self.peek(length), self.peek(length + 1)) {
                (Some(b'/'), Some(b'*')) => {
                    depth += 1;
                    length += 2;
                }
                (Some(b'*'), Some(b'/')) => {
                    depth -= 1;
                    length += 2;
                }
                (Some(_), _) => length += 1,
                (None, _) => break,
            }
            if depth == 0 {
                break;
            }
        }
        self.comments.push(self.piece(length));
        self.blank(length);
    }

    /// An identifier, a number, or the prefix of a literal.
    fn word(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        let length = rest.iter().take_while(|byte| is_identifier(**byte)).count();
        let word = &self.text[self.at..self.at + length];
        let hashes = rest[length..]
            .iter()
            .take_while(|byte| **byte == b'#')
            .count();
        let is_raw = matches!(word, "r" | "br" | "cr");
        self.keep(length);
        if is_raw && self.peek(hashes) == Some(b'"') {
            self.keep(hashes);
            self.raw_string(hashes);
        }
    }

    fn raw_string(&mut self, hashes: usize) {
        self.keep(1);
        let end = format!("\"{}", "#".repeat(hashes));
        let rest = &self.text[self.at..];
        let length = rest.find(&end).unwrap_or(rest.len());
        self.literals.push(self.piece(length));
        self.blank(length);
        self.keep(end.len());
    }

    fn string(&mut self) {
        self.keep(1);
        let mut length = 0;
        while let Some(byte) = self.peek(length) {
            match byte {
                b'"' => break,
                b'\\' => length += 2,
                _ => length += 1,
            }
        }
        self.literals.push(self.piece(length));
        self.blank(length);
        self.keep(1);
    }

    /// A character or the tick of a lifetime.
    fn quote(&mut self) {
        let rest = &self.text[self.at + 1..];
        let mut characters = rest.chars();
        let length = match (characters.next(), characters.next()) {
            (Some('\\'), Some(_)) => rest[2..].find('\'').map(|at| at + 2),
            (Some(character), Some('\'')) => Some(character.len_utf8()),
            _ => None,
        };
        self.keep(1);
        if let Some(length) = length {
            self.blank(length);
            self.keep(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        let source = RustSource::new(text);
        assert_eq!(
            source.code.len(),
            text.len(),
            "the code is as long as the file"
        );
        source.code
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        assert_eq!(code("a // b\nc"), "a     \nc");
        assert_eq!(code("a /* b /* c */ d */ e"), "a                   e");
        assert_eq!(code(r#"f("x\"y", 'z')"#), r#"f("    ", ' ')"#);
        assert_eq!(code(r##"f(r#"a"b"#, br"\")"##), r##"f(r#"   "#, br" ")"##);
        assert_eq!(
            code(r"('\'', '\\', '\u{1F600}')"),
            r"('  ', '  ', '         ')"
        );
        assert_eq!(code("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
        assert_eq!(code("let für = \"ü\";"), "let für = \"  \";");
        assert_eq!(code("for r in b { \"x\" }"), "for r in b { \" \" }");
    }

    #[test]
    fn literals_and_comments_know_their_lines() {
        let source = RustSource::new("//! one\nlet x = \"two\\n\"; // three\nlet y = \"a\nb\";");
        let texts = |list: &[Text]| -> Vec<_> {
            list.iter()
                .map(|each| (each.line, each.text.clone()))
                .collect()
        };
        let comments = [(1, "//! one".to_owned()), (2, "// three".to_owned())];
        assert_eq!(texts(&source.comments), comments);
        let literals = [(2, "two\\n".to_owned()), (3, "a\nb".to_owned())];
        assert_eq!(texts(&source.literals), literals);
    }

    #[test]
    fn a_needle_is_a_whole_word() {
        let source = RustSource::new("unsafe_code\nunsafe {}\nnot_unsafe\n// unsafe\nmylibc::x\n");
        assert_eq!(source.find("unsafe"), [2]);
        assert!(source.find("libc::").is_empty());
        assert_eq!(RustSource::new("x(libc::kill)").find("libc::"), [1]);
    }

    #[test]
    fn test_parts_do_not_count() {
        let source = RustSource::new(
            "fn real() {\n    work();\n\n    // why\n}\n\n#[cfg(test)]\n#[expect(x, reason = \"y\")]\n\
             mod tests {\n    fn long() { {} }\n}\n#[cfg(not(test))]\nfn other() {}\n",
        );
        assert_eq!(source.code_lines(), 5);
        let names: Vec<_> = source
            .functions()
            .into_iter()
            .map(|each| each.name)
            .collect();
        assert_eq!(names, ["real", "other"]);
    }

    #[test]
    fn functions_are_measured_by_their_code() {
        let source = RustSource::new(
            "impl X {\n    fn f(a: [u8; 3], f: fn(u8) -> u8) -> u8\n    where\n        Y: Z,\n    {\n        \
             // why\n        one();\n\n        if x { two() }\n    }\n    fn declared(&self);\n}\n",
        );
        let expected = Function {
            line: 2,
            name: "f".to_owned(),
            code_lines: 2,
        };
        assert_eq!(source.functions(), [expected]);
    }

    #[test]
    fn outline_test_modules_are_found() {
        let source = RustSource::new(
            "#[cfg(test)]\n#[expect(x)]\nmod one;\n#[cfg(all(test, unix))] pub(crate) mod two;\n\
             mod three;\n#[cfg(test)]\nmod four {}\n#[cfg(feature = \"testing\")]\nmod five;",
        );
        assert!(source.outline_test_modules().eq(["one", "two"]));
    }
}
