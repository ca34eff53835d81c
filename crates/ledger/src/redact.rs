//! Replacing sensitive values before a record is made.
//!
//! The spec that is stored, and its digest, are those of the redacted spec: the digest of the real
//! one would let a short secret be guessed.

use std::collections::BTreeMap;
use std::fmt;

use tidemill_core::job::{Image, Layer};
use tidemill_core::{Event, JobSpec, Reason};

/// What stands where a sensitive value was.
pub const REDACTED: &str = "[redacted]";

/// Replaces the values that were declared sensitive.
#[derive(Clone, Default)]
pub struct Redactor {
    /// The longest first, so that a value that contains another one goes as a whole.
    values: Vec<String>,
}

impl Redactor {
    /// Takes the declared values. Empty ones are passed over.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<String> = values.into_iter().filter(|v| !v.is_empty()).collect();
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        Self { values }
    }

    /// The text with every sensitive value replaced. What replaced one is not looked at again.
    pub fn text(&self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            match self.values.iter().find(|value| rest.starts_with(&***value)) {
                Some(value) => {
                    clean.push_str(REDACTED);
                    rest = &rest[value.len()..];
                }
                None => {
                    clean.push(next);
                    rest = &rest[next.len_utf8()..];
                }
            }
        }
        clean
    }

    /// The spec with every sensitive value replaced.
    pub fn spec(&self, spec: &JobSpec) -> JobSpec {
        let mut clean = spec.clone();
        if self.values.is_empty() {
            return clean;
        }
        self.in_option(&mut clean.name);
        self.in_map(&mut clean.labels);
        self.in_text(&mut clean.program);
        clean.args.iter_mut().for_each(|text| self.in_text(text));
        self.in_map(&mut clean.env);
        self.in_option(&mut clean.workdir);
        self.in_option(&mut clean.user_name);
        if let Some(workspace) = &mut clean.workspace {
            self.in_text(&mut workspace.path);
        }
        match &mut clean.image {
            Image::Host | Image::None => {}
            Image::Dir { path } | Image::Tar { path } => self.in_text(path),
            Image::Oci { reference, .. } => self.in_text(reference),
        }
        for layer in &mut clean.layers {
            self.in_layer(layer);
        }
        clean
    }

    fn in_layer(&self, layer: &mut Layer) {
        match layer {
            Layer::Dir { source, dest, .. } | Layer::File { source, dest, .. } => {
                self.in_text(source);
                self.in_text(dest);
            }
            Layer::Tar {
                source,
                strip,
                dest,
                ..
            } => {
                self.in_text(source);
                self.in_option(strip);
                self.in_text(dest);
            }
            Layer::Oci {
                reference,
                strip,
                dest,
                ..
            } => {
                self.in_text(reference);
                self.in_option(strip);
                self.in_text(dest);
            }
            Layer::Glob {
                base,
                include,
                exclude,
                strip,
                dest,
                ..
            } => {
                self.in_text(base);
                let patterns = include.iter_mut().chain(exclude);
                patterns.for_each(|pattern| self.in_text(pattern));
                self.in_option(strip);
                self.in_text(dest);
            }
            Layer::Stubs { paths, .. } => paths.iter_mut().for_each(|path| self.in_text(path)),
            Layer::Symlinks { links } => self.in_map(links),
            Layer::SharedLibs { binaries, dest, .. } => {
                binaries.iter_mut().for_each(|path| self.in_text(path));
                self.in_text(dest);
            }
            Layer::Command {
                program,
                args,
                env,
                dest,
                ..
            } => {
                self.in_text(program);
                args.iter_mut().for_each(|text| self.in_text(text));
                self.in_map(env);
                self.in_text(dest);
            }
        }
    }

    /// The event with every sensitive value replaced in the texts that come from outside.
    pub fn event(&self, mut event: Event) -> Event {
        if self.values.is_empty() {
            return event;
        }
        match &mut event {
            Event::Created {
                name,
                labels,
                command,
                ..
            } => {
                self.in_option(name);
                self.in_map(labels);
                command.iter_mut().for_each(|text| self.in_text(text));
            }
            Event::Progress { step, message, .. } => {
                self.in_option(step);
                self.in_option(message);
            }
            Event::StepStarted { name } => self.in_text(name),
            Event::StepCompleted { name, detail, .. } => {
                self.in_text(name);
                self.in_option(detail);
            }
            Event::Log { text, .. } => self.in_text(text),
            Event::Diagnostic { reason }
            | Event::Requeued { reason }
            | Event::Interrupted { reason }
            | Event::Failed { reason, .. }
            | Event::TimedOut { reason, .. } => self.in_reason(reason),
            Event::Cancelled { reason, .. } => {
                reason.iter_mut().for_each(|reason| self.in_reason(reason));
            }
            Event::Cancelling { by } => self.in_text(by),
            Event::Paused { why } | Event::Resumed { why } => self.in_option(why),
            Event::ArtifactKept { name, .. } | Event::ReportKept { name, .. } => self.in_text(name),
            Event::Queued { .. }
            | Event::Assigned { .. }
            | Event::Status { .. }
            | Event::Started { .. }
            | Event::Completed { .. } => {}
        }
        event
    }

    fn in_reason(&self, reason: &mut Reason) {
        self.in_text(&mut reason.message);
        self.in_option(&mut reason.hint);
    }

    fn in_text(&self, text: &mut String) {
        *text = self.text(text);
    }

    fn in_option(&self, text: &mut Option<String>) {
        text.iter_mut().for_each(|text| self.in_text(text));
    }

    fn in_map(&self, map: &mut BTreeMap<String, String>) {
        map.values_mut().for_each(|text| self.in_text(text));
    }
}

impl fmt::Debug for Redactor {
    /// How many values there are, and none of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("values", &self.values.len())
            .finish()
    }
}
