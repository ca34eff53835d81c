//! A job file's JSON as a draft. Nothing stops at the first mistake.

mod layer;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Draft, LayerDraft, LimitsDraft, Located};
use crate::diagnostic::{DIAGNOSTICS_MAX, Diagnostic, DiagnosticCode, nearest, pointer};

/// The fields of a job file.
const FIELDS: [&str; 25] = [
    "version",
    "name",
    "labels",
    "program",
    "args",
    "entrypoint",
    "image",
    "platform",
    "layers",
    "workspace",
    "no_workspace",
    "write",
    "workdir",
    "env",
    "pass_env",
    "network",
    "grants",
    "limits",
    "stop_signal",
    "user",
    "stdin",
    "tty",
    "wait_children",
    "priority",
    "estimate",
];

/// The fields of its `limits`.
const LIMIT_FIELDS: [&str; 9] = [
    "memory",
    "cpus",
    "pids",
    "disk",
    "shm",
    "timeout",
    "grace",
    "log",
    "open_files",
];

/// What is written for the mounts of other tools.
const MOUNTS: &str = "write `layers`, for example \"dir:SRC=DEST\", or `grants` with \"bind:SRC:DEST[:rw]\" for the \
                      host's files as they are";

/// Words that other tools use, and what is written here.
const OTHER_WORDS: [(&str, &str); 22] = [
    ("command", "write `program` and `args`"),
    ("cmd", "write `program` and `args`"),
    ("arguments", "write `args`"),
    ("argv", "write `program` and `args`"),
    ("environment", "write `env`"),
    ("net", "write `network`"),
    ("cwd", "write `workdir`"),
    ("working_dir", "write `workdir`"),
    (
        "directory",
        "write `workspace` (a directory of the host) or `workdir`",
    ),
    ("mounts", MOUNTS),
    ("volumes", MOUNTS),
    ("binds", MOUNTS),
    ("grant", "write `grants`, for example [\"userns\"]"),
    (
        "devices",
        "write `grants`, for example [\"device:/dev/net/tun\"]",
    ),
    ("privileged", "write `grants` with each thing that it needs"),
    (
        "capabilities",
        "write `grants` with each thing that it needs",
    ),
    ("log_limit", "write `limits.log`"),
    ("time_limit", "write `limits.timeout`"),
    ("container", "write `image`"),
    ("signal", "write `stop_signal`"),
    ("kill_signal", "write `stop_signal`"),
    ("shm_size", "write `limits.shm`"),
];

impl Draft {
    /// Reads a job file's JSON. Relative paths in it start from `base`. What is wrong with its shape
    /// is in [`Draft::found`].
    pub fn from_json(value: &Value, base: &str) -> Self {
        let mut draft = Self::default();
        let mut reader = Reader {
            base,
            found: Vec::new(),
        };
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    reader.field(&mut draft, name, value);
                }
            }
            other => reader.wrong_type("", "an object", other),
        }
        draft.found = reader.found;
        draft
    }
}

struct Reader<'a> {
    base: &'a str,
    found: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn field(&mut self, draft: &mut Draft, name: &str, value: &Value) {
        let place = pointer("", name);
        match name {
            "version" => draft.version = self.integer(&place, value),
            "name" => draft.name = self.text(&place, value),
            "labels" => draft.labels = self.text_map(&place, value),
            "program" => draft.program = self.text(&place, value),
            "args" => draft.args = self.texts(&place, value),
            "entrypoint" => {
                let texts = self.texts(&place, value);
                draft.entrypoint = (!value.is_null()).then_some(texts);
            }
            "platform" => draft.platform = self.text(&place, value),
            "image" => draft.image = self.text(&place, value).map(|text| self.located(text)),
            "layers" => draft.layers = self.layers(&place, value),
            "workspace" => {
                draft.workspace = self.text(&place, value).map(|text| self.located(text));
            }
            "no_workspace" => draft.no_workspace = self.boolean(&place, value),
            "write" => draft.write = self.boolean(&place, value),
            "workdir" => draft.workdir = self.text(&place, value),
            "env" => draft.env = self.text_map(&place, value),
            "pass_env" => draft.pass_env = self.texts(&place, value),
            "network" => draft.network = self.text(&place, value),
            "grants" => draft.grants = self.located_list(&place, value),
            "limits" => draft.limits = self.limits(&place, value),
            "stop_signal" => draft.stop_signal = self.quantity(&place, value),
            "user" => draft.user = self.quantity(&place, value),
            "stdin" => draft.stdin = self.text(&place, value),
            "tty" => draft.tty = self.boolean(&place, value),
            "wait_children" => draft.wait_children = self.boolean(&place, value),
            "priority" => draft.priority = self.integer(&place, value),
            "estimate" => draft.estimate = self.quantity(&place, value),
            unknown => self.unknown_field(&place, unknown, &FIELDS),
        }
    }

    fn limits(&mut self, place: &str, value: &Value) -> LimitsDraft {
        let mut limits = LimitsDraft::default();
        for (name, value) in self.object(place, value) {
            let place = pointer(place, name);
            let field = match name.as_str() {
                "memory" => &mut limits.memory,
                "cpus" => &mut limits.cpus,
                "pids" => &mut limits.pids,
                "disk" => &mut limits.disk,
                "shm" => &mut limits.shm,
                "timeout" => &mut limits.timeout,
                "grace" => &mut limits.grace,
                "log" => &mut limits.log,
                "open_files" => &mut limits.open_files,
                unknown => {
                    self.unknown_field(&place, unknown, &LIMIT_FIELDS);
                    continue;
                }
            };
            *field = self.quantity(&place, value);
        }
        limits
    }

    fn unknown_field(&mut self, place: &str, name: &str, known: &'static [&'static str]) {
        let is_job = known.len() == FIELDS.len();
        let hint = if is_job && LIMIT_FIELDS.contains(&name) {
            format!("`{name}` belongs into `limits`: {{\"limits\": {{\"{name}\": …}}}}")
        } else if let Some((_, advice)) = OTHER_WORDS.iter().find(|(word, _)| *word == name) {
            (*advice).to_owned()
        } else if let Some(near) = nearest(name, known.iter().copied()) {
            format!("did you mean `{near}`?")
        } else {
            format!("the fields are {}", known.join(", "))
        };
        let shown: String = name.chars().take(64).collect();
        self.find(
            Diagnostic::error(
                DiagnosticCode::UnknownField,
                place,
                format!("there is no field `{}`", shown.escape_debug()),
            )
            .with_hint(hint),
        );
    }

    fn wrong_type(&mut self, place: &str, expected: &str, value: &Value) {
        let got = match value {
            Value::Null => "null",
            Value::Bool(_) => "a truth value",
            Value::Number(_) => "a number",
            Value::String(_) => "a text",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        let subject = place.rsplit('/').next().unwrap_or_default();
        let subject = if place.is_empty() {
            "the job file".to_owned()
        } else {
            format!(
                "`{}`",
                subject.replace("~1", "/").replace("~0", "~").escape_debug()
            )
        };
        self.find(
            Diagnostic::error(
                DiagnosticCode::WrongType,
                place,
                format!("{subject} is {got}, and {expected} is expected"),
            )
            .with_hint(example_of(place, expected)),
        );
    }

    fn find(&mut self, diagnostic: Diagnostic) {
        if self.found.len() < DIAGNOSTICS_MAX {
            self.found.push(diagnostic);
        }
    }

    fn located(&self, text: String) -> Located {
        Located::new(text, self.base)
    }

    fn located_list(&mut self, place: &str, value: &Value) -> Vec<Located> {
        let texts = self.texts(place, value);
        texts.into_iter().map(|text| self.located(text)).collect()
    }

    fn text(&mut self, place: &str, value: &Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other => {
                self.wrong_type(place, "a text", other);
                None
            }
        }
    }

    fn quantity(&mut self, place: &str, value: &Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Null => None,
            other => {
                self.wrong_type(place, "a text or a number", other);
                None
            }
        }
    }

    fn integer(&mut self, place: &str, value: &Value) -> Option<String> {
        match value {
            Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
            Value::Null => None,
            other => {
                self.wrong_type(place, "a whole number", other);
                None
            }
        }
    }

    fn boolean(&mut self, place: &str, value: &Value) -> bool {
        match value {
            Value::Bool(value) => *value,
            Value::Null => false,
            other => {
                self.wrong_type(place, "true or false", other);
                false
            }
        }
    }

    /// Layers are texts or objects. A wrong one stays in the list, so that the others keep their places.
    fn layers(&mut self, place: &str, value: &Value) -> Vec<LayerDraft> {
        match value {
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(index, item)| self.layer(&format!("{place}/{index}"), item))
                .collect(),
            Value::Null => Vec::new(),
            other => {
                self.wrong_type(place, "a list of layers", other);
                Vec::new()
            }
        }
    }

    /// A wrong entry stays in the list as an empty text, so that the others keep their places.
    fn texts(&mut self, place: &str, value: &Value) -> Vec<String> {
        match value {
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(index, item)| {
                    let place = format!("{place}/{index}");
                    match item {
                        Value::String(text) => text.clone(),
                        other => {
                            self.wrong_type(&place, "a text", other);
                            String::new()
                        }
                    }
                })
                .collect(),
            Value::Null => Vec::new(),
            other => {
                self.wrong_type(place, "a list of texts", other);
                Vec::new()
            }
        }
    }

    fn text_map(&mut self, place: &str, value: &Value) -> BTreeMap<String, String> {
        let mut map = BTreeMap::new();
        for (name, value) in self.object(place, value) {
            match value {
                Value::String(text) => {
                    map.insert(name.clone(), text.clone());
                }
                other => self.wrong_type(&pointer(place, name), "a text", other),
            }
        }
        map
    }

    fn object<'v>(
        &mut self,
        place: &str,
        value: &'v Value,
    ) -> impl Iterator<Item = (&'v String, &'v Value)> + use<'v> {
        let fields: Option<&'v Map<String, Value>> = match value {
            Value::Object(fields) => Some(fields),
            Value::Null => None,
            other => {
                self.wrong_type(place, "an object", other);
                None
            }
        };
        fields.into_iter().flatten()
    }
}

/// What to write where a value of the wrong type stands.
fn example_of(place: &str, expected: &str) -> String {
    let example = match (place, expected) {
        ("", _) => r#"{"program": "cargo", "args": ["test"]}"#,
        ("/program", _) => r#""program": "cargo""#,
        ("/args", _) => r#""args": ["test", "--workspace"]"#,
        ("/layers", _) => r#""layers": ["dir:SRC=DEST"]"#,
        (_, layer::EXPECTED) => {
            r#""dir:SRC=DEST", or {"kind": "dir", "source": "SRC", "dest": "DEST"}"#
        }
        ("/grants", _) => r#""grants": ["device:/dev/net/tun", "bind:SRC:DEST:rw"]"#,
        ("/env", _) => r#""env": {"RUST_LOG": "debug"}"#,
        ("/labels", _) => r#""labels": {"branch": "main"}"#,
        ("/limits", _) => r#""limits": {"memory": "512MiB"}"#,
        ("/workspace", _) => r#""workspace": "DIR", or "no_workspace": true"#,
        ("/user", _) => r#""user": "1000:1000""#,
        ("/limits/memory" | "/limits/disk" | "/limits/log", _) => r#""512MiB""#,
        ("/limits/timeout" | "/limits/grace" | "/estimate", _) => r#""30s""#,
        (_, "true or false") => "true",
        (_, "a whole number") => "1",
        (_, "a text or a number") => "\"2\"",
        (_, "a list of texts") => r#"["one", "two"]"#,
        (_, "an object") => r#"{"NAME": "value"}"#,
        _ => r#"a text between quotes, such as "1""#,
    };
    format!("write {example}")
}
