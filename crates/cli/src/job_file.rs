//! A job file: JSON (comments are allowed), read so that each mistake has a line and a column.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use jsonc_parser::ast::{ObjectProp, Value as Node};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::{Map, Number, Value};
use tidemill_core::diagnostic::pointer;
use tidemill_core::draft::Draft;
use tidemill_core::job::SPEC_BYTES_MAX;
use tidemill_core::{Diagnostic, DiagnosticCode};

use crate::diagnostics::{Placed, Written, ancestors};
use crate::failure::{Failure, FailureKind};

/// The text of a job file, and what to call it.
#[derive(Debug)]
pub(crate) struct JobFile {
    /// As the user wrote it; `stdin` for `-`.
    name: String,
    /// The directory that relative paths start from.
    base: String,
    text: String,
}

impl JobFile {
    /// Reads a file, or standard input for `-`. `cwd` is an absolute path.
    pub(crate) fn read(path: &Path, cwd: &str) -> Result<Self, Failure> {
        let from_stdin = path == Path::new("-");
        let name = if from_stdin {
            "stdin".to_owned()
        } else {
            path.display().to_string()
        };
        let bytes = if from_stdin {
            bounded(io::stdin().lock())
        } else {
            File::open(path).and_then(bounded)
        };
        let bytes = bytes.map_err(|error| {
            Failure::new(
                FailureKind::Usage,
                format!("cannot read the job file `{name}`"),
            )
            .because(&error)
            .hint(
                "`--file -` reads it from standard input; `tidemill schema job` says what it holds",
            )
        })?;
        if bytes.len() as u64 > SPEC_BYTES_MAX.0 {
            let message = format!("the job file `{name}` is larger than {SPEC_BYTES_MAX}");
            return Err(Failure::new(FailureKind::Usage, message)
                .hint("put what is large into files of its own and give them as layers"));
        }
        let base = if from_stdin {
            cwd.to_owned()
        } else {
            directory_of(path, cwd)?
        };
        let text = String::from_utf8(bytes).map_err(|error| {
            let position = error.utf8_error().valid_up_to();
            Failure::new(
                FailureKind::Usage,
                format!("the job file `{name}` is not UTF-8 (byte {position})"),
            )
        })?;
        Ok(Self { name, base, text })
    }

    /// Reads the text. What is wrong with it as JSON comes back; what is wrong with its fields is in
    /// the draft.
    pub(crate) fn to_draft(&self) -> (Draft, Vec<Placed>) {
        let mut reader = Reader { found: Vec::new() };
        let value = match self.parse() {
            Ok(Some(node)) => reader.value("", &node),
            Ok(None) => {
                reader.error(0, DiagnosticCode::Syntax, "", "the job file is empty");
                return (Draft::default(), self.placed(reader.found));
            }
            Err((offset, message)) => {
                reader.error(offset, DiagnosticCode::Syntax, "", message);
                return (Draft::default(), self.placed(reader.found));
            }
        };
        (
            Draft::from_json(&value, &self.base),
            self.placed(reader.found),
        )
    }

    /// Finds where diagnostics about the draft were written. A place that is not in the file leads to
    /// what it would be in.
    pub(crate) fn place(&self, diagnostics: Vec<Diagnostic>) -> Vec<Placed> {
        let root = self.parse().ok().flatten();
        let with_offset = |diagnostic: Diagnostic| {
            let offset = root
                .as_ref()
                .and_then(|root| {
                    ancestors(&diagnostic.place).find_map(|place| offset_of(root, place))
                })
                .unwrap_or(0);
            (offset, diagnostic)
        };
        self.placed(diagnostics.into_iter().map(with_offset).collect())
    }

    fn placed(&self, found: Vec<(usize, Diagnostic)>) -> Vec<Placed> {
        found
            .into_iter()
            .map(|(offset, diagnostic)| {
                let (line, column) = line_and_column(&self.text, offset);
                let written = Written::File {
                    file: self.name.clone(),
                    line,
                    column,
                };
                Placed {
                    diagnostic,
                    written,
                }
            })
            .collect()
    }

    fn parse(&self) -> Result<Option<Node<'_>>, (usize, String)> {
        let options = ParseOptions {
            allow_comments: true,
            allow_loose_object_property_names: false,
            allow_trailing_commas: true,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        };
        parse_to_ast(&self.text, &CollectOptions::default(), &options)
            .map(|result| result.value)
            .map_err(|error| (error.range().start, lower_first(&error.kind().to_string())))
    }
}

/// One byte more than is allowed, so that too much can be told.
fn bounded(source: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(SPEC_BYTES_MAX.0 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn directory_of(path: &Path, cwd: &str) -> Result<String, Failure> {
    let directory = Path::new(cwd).join(path.parent().unwrap_or(Path::new("")));
    directory
        .canonicalize()
        .unwrap_or(directory)
        .into_os_string()
        .into_string()
        .map_err(|path| {
            let path = PathBuf::from(path);
            let message = format!("the directory `{}` is not UTF-8", path.display());
            Failure::new(FailureKind::Usage, message)
                .hint("rename it, or read the job from standard input")
        })
}

struct Reader {
    found: Vec<(usize, Diagnostic)>,
}

impl Reader {
    fn error(&mut self, at: usize, code: DiagnosticCode, place: &str, message: impl Into<String>) {
        let advice = match code {
            DiagnosticCode::DuplicateField => "keep one of the two",
            DiagnosticCode::OutOfRange => "write a number that a program can hold",
            _ => "a job is a JSON object such as {\"program\": \"cargo\", \"args\": [\"test\"]}",
        };
        self.found.push((
            at,
            Diagnostic::error(code, place, message).with_hint(advice),
        ));
    }

    fn value(&mut self, place: &str, node: &Node<'_>) -> Value {
        match node {
            Node::StringLit(text) => Value::String(text.value.clone().into_owned()),
            Node::NumberLit(number) => match number.value.parse::<Number>() {
                Ok(number) => Value::Number(number),
                Err(_) => {
                    let message = format!(
                        "{} is not a number that can be used",
                        shortened(number.value)
                    );
                    self.error(
                        number.range.start,
                        DiagnosticCode::OutOfRange,
                        place,
                        message,
                    );
                    Value::Null
                }
            },
            Node::BooleanLit(truth) => Value::Bool(truth.value),
            Node::NullKeyword(_) => Value::Null,
            Node::Array(array) => array
                .elements
                .iter()
                .enumerate()
                .map(|(index, element)| self.value(&format!("{place}/{index}"), element))
                .collect(),
            Node::Object(object) => {
                let mut fields = Map::new();
                for property in &object.properties {
                    let name = property.name.as_str();
                    let place = pointer(place, name);
                    if fields.contains_key(name) {
                        let message =
                            format!("the field `{}` stands here twice", name.escape_debug());
                        let at = property.range.start;
                        self.error(at, DiagnosticCode::DuplicateField, &place, message);
                    }
                    let value = self.value(&place, &property.value);
                    fields.insert(name.to_owned(), value);
                }
                Value::Object(fields)
            }
        }
    }
}

/// Where the node at a pointer begins; for a field that is its name.
fn offset_of(root: &Node<'_>, place: &str) -> Option<usize> {
    let mut node = root;
    let mut offset = root.start();
    for token in place.split('/').skip(1) {
        match node {
            Node::Object(object) => {
                let property = last_property(&object.properties, token)?;
                offset = property.range.start;
                node = &property.value;
            }
            Node::Array(array) => {
                node = array.elements.get(token.parse::<usize>().ok()?)?;
                offset = node.start();
            }
            _ => return None,
        }
    }
    Some(offset)
}

/// The property that counts where a name stands twice.
fn last_property<'n, 'a>(
    properties: &'n [ObjectProp<'a>],
    token: &str,
) -> Option<&'n ObjectProp<'a>> {
    let name = token.replace("~1", "/").replace("~0", "~");
    properties
        .iter()
        .rev()
        .find(|property| property.name.as_str() == name)
}

/// Line and column of a byte, counted from 1; columns count characters.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

fn shortened(text: &str) -> String {
    text.chars().take(24).collect()
}

fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().into_iter().flat_map(char::to_lowercase);
    first.chain(characters).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use proptest::prelude::*;
    use tidemill_core::check::{Surroundings, check};

    use super::*;

    fn file(text: &str) -> JobFile {
        JobFile {
            name: "job.json".into(),
            base: "/jobs".into(),
            text: text.into(),
        }
    }

    /// Reads, checks and shows `line:column code` of each diagnostic, in the order of the file.
    fn diagnose(text: &str) -> Vec<String> {
        let file = file(text);
        let (draft, mut placed) = file.to_draft();
        if placed
            .iter()
            .all(|found| found.diagnostic.code != DiagnosticCode::Syntax)
        {
            placed.extend(file.place(check(&draft, &Surroundings::default()).1));
        }
        let mut lines: Vec<(usize, usize, &str)> = placed
            .iter()
            .map(|found| match &found.written {
                Written::File { line, column, .. } => {
                    (*line, *column, found.diagnostic.code.as_str())
                }
                Written::Flag { flag } => panic!("{flag} is not in the file"),
            })
            .collect();
        lines.sort_unstable();
        lines
            .iter()
            .map(|(line, column, code)| format!("{line}:{column} {code}"))
            .collect()
    }

    #[test]
    fn ten_mistakes_have_ten_places() {
        let text = r#"{
  // A comment is no mistake.
  "programm": "cargo",
  "program": "a\u0000b",
  "args": ["x", 7],
  "image": "debian:12",
  "layers": ["file:a"], "env": { "": "x" },
  "network": "hots",
  "workdir": "../x",
  "limits": { "memory": "12 parsecs",
              "pids": 0 }
}"#;
        assert_eq!(
            diagnose(text),
            [
                "3:3 unknown_field",
                "4:3 nul_byte",
                "5:17 wrong_type",
                "6:3 image_form",
                "7:14 layer_form",
                "7:34 variable_name",
                "8:3 unknown_value",
                "9:3 parent_component",
                "10:15 quantity",
                "11:15 out_of_range",
            ]
        );
    }

    #[test]
    fn what_is_not_json_says_where() {
        assert_eq!(diagnose(""), ["1:1 syntax"]);
        assert_eq!(diagnose("// nothing\n"), ["1:1 syntax"]);
        assert_eq!(diagnose("{\n  \"program\": }"), ["2:14 syntax"]);
        assert_eq!(diagnose("{\"program\": 'a'}"), ["1:13 syntax"]);
        assert_eq!(diagnose("{\"é\": 1, \"program\" \"a\"}").len(), 1);
        assert_eq!(diagnose(&"[".repeat(100_000)).len(), 1);
    }

    #[test]
    fn doubled_fields_and_absurd_numbers_are_found() {
        assert_eq!(
            diagnose("{\"program\": \"a\", \"program\": \"b\"}"),
            ["1:18 duplicate_field"]
        );
        assert_eq!(
            diagnose("{\"program\": \"a\", \"priority\": 1e999}"),
            ["1:30 out_of_range"]
        );
    }

    #[test]
    fn columns_count_characters() {
        assert_eq!(
            diagnose("{\"name\": \"ééé\", \"zz\": 1, \"program\": \"a\"}"),
            ["1:17 unknown_field"]
        );
        assert_eq!(line_and_column("é\né", 3), (2, 1));
        assert_eq!(line_and_column("é", 1), (1, 1));
        assert_eq!(line_and_column("a", 99), (1, 2));
    }

    #[test]
    fn relative_paths_start_from_the_file() {
        let (draft, placed) = file(r#"{"program": "a", "image": "dir:root"}"#).to_draft();
        assert!(placed.is_empty());
        assert_eq!(draft.image.unwrap().base, "/jobs");
    }

    proptest! {
        #[test]
        fn any_text_is_a_draft_or_has_a_place(text in any::<String>()) {
            diagnose(&text);
        }

        #[test]
        fn any_damage_to_a_good_file_has_a_place(at in 0_usize..400, insert in "[{}\\[\\],:\"a0\\\\ ]{0,3}") {
            let good = r#"{"program": "a", "args": ["b\u00e9"], "env": {"A": "1"}, "limits": {"pids": 7}}"#;
            let mut at = at % (good.len() + 1);
            while !good.is_char_boundary(at) {
                at -= 1;
            }
            let text = format!("{}{insert}{}", &good[..at], &good[at..]);
            let lines = text.lines().count();
            for line in diagnose(&text) {
                let line: usize = line.split(':').next().unwrap().parse().unwrap();
                prop_assert!(line <= lines);
            }
        }
    }
}
