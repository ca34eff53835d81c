//! The record of one execution, as `--result-file` and `show --format json` write it.

use std::fmt;

use serde_json::Value;

/// A record. The suite reads it as programs of users do: as JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct Record(pub Value);

impl Record {
    /// The execution's id.
    pub fn id(&self) -> &str {
        self.0["id"]
            .as_str()
            .unwrap_or_else(|| panic!("no id in {self}"))
    }

    /// The state's name.
    pub fn state(&self) -> &str {
        self.0["state"]
            .as_str()
            .unwrap_or_else(|| panic!("no state in {self}"))
    }

    /// The code of the reason; empty if there is no reason.
    pub fn reason(&self) -> &str {
        self.0["reason"]["code"].as_str().unwrap_or_default()
    }

    /// The reason's message and hint in one text; empty if there is no reason.
    pub fn reason_text(&self) -> String {
        let part = |name: &str| self.0["reason"][name].as_str().unwrap_or_default();
        format!("{} {}", part("message"), part("hint"))
    }

    /// The exit code, if the program exited.
    pub fn exit_code(&self) -> Option<i64> {
        self.0["exit_code"].as_i64()
    }

    /// The signal that ended the program, if one did.
    pub fn signal(&self) -> Option<i64> {
        self.0["signal"].as_i64()
    }

    /// A number at a JSON pointer; 0 if it is absent.
    pub fn number(&self, pointer: &str) -> u64 {
        self.0.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
    }

    /// The same record without the long list of grants.
    #[must_use]
    pub fn without_grants(&self) -> Self {
        let mut short = self.clone();
        if let Some(fields) = short.0.as_object_mut() {
            fields.remove("grants");
        }
        short
    }

    /// The codes of the warnings.
    pub fn warnings(&self) -> Vec<&str> {
        let list = self.0["warnings"].as_array();
        let codes = list.into_iter().flatten();
        codes
            .filter_map(|warning| warning["code"].as_str())
            .collect()
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}
