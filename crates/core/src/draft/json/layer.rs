//! A layer in a job file: a text, or an object whose fields depend on its kind.

use serde_json::Value;

use super::Reader;
use crate::diagnostic::pointer;
use crate::draft::{LayerDraft, LayerFields};

/// What a layer has to be, for messages.
pub(super) const EXPECTED: &str = "a text or an object";

/// The fields of a layer.
const FIELDS: [&str; 19] = [
    "kind",
    "source",
    "reference",
    "platform",
    "dest",
    "base",
    "include",
    "exclude",
    "strip",
    "paths",
    "links",
    "binaries",
    "program",
    "args",
    "env",
    "canonical",
    "owner",
    "mode",
    "mtime",
];

impl Reader<'_> {
    pub(super) fn layer(&mut self, place: &str, value: &Value) -> LayerDraft {
        match value {
            Value::String(text) => LayerDraft::new(text.clone(), self.base),
            Value::Object(fields) => {
                let mut layer = LayerFields::default();
                for (name, value) in fields {
                    self.layer_field(&mut layer, place, name, value);
                }
                LayerDraft::with_fields(layer, self.base)
            }
            other => {
                self.wrong_type(place, EXPECTED, other);
                LayerDraft::new("", self.base)
            }
        }
    }

    fn layer_field(&mut self, layer: &mut LayerFields, place: &str, name: &str, value: &Value) {
        let place = pointer(place, name);
        match name {
            "kind" => layer.kind = self.text(&place, value),
            "source" => layer.source = self.text(&place, value),
            "reference" => layer.reference = self.text(&place, value),
            "platform" => layer.platform = self.text(&place, value),
            "dest" => layer.dest = self.text(&place, value),
            "base" => layer.base = self.text(&place, value),
            "include" => layer.include = self.texts(&place, value),
            "exclude" => layer.exclude = self.texts(&place, value),
            "strip" => layer.strip = self.text(&place, value),
            "paths" => layer.paths = self.texts(&place, value),
            "links" => layer.links = self.text_map(&place, value),
            "binaries" => layer.binaries = self.texts(&place, value),
            "program" => layer.program = self.text(&place, value),
            "args" => layer.args = self.texts(&place, value),
            "env" => layer.env = self.text_map(&place, value),
            "canonical" => layer.canonical = self.boolean(&place, value),
            "owner" => layer.owner = self.quantity(&place, value),
            "mode" => layer.mode = self.text(&place, value),
            "mtime" => layer.mtime = self.integer(&place, value),
            unknown => self.unknown_field(&place, unknown, &FIELDS),
        }
    }
}
