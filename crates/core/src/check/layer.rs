//! Layers: each kind's own fields, and what all have.

use super::command::{check_argument, check_variable_name};
use super::image::{check_platform, check_reference};
use super::quantity::read_user;
use super::source::{PATH_BYTES_MAX, Wanted, sandbox_path, short_enough};
use super::{Findings, PathKind, Surroundings, shown};
use crate::braces::expand;
use crate::diagnostic::{DiagnosticCode, pointer};
use crate::draft::{
    ATTRIBUTE_FIELDS, Draft, LayerDraft, LayerFields, LayerForm, LayerKind, kind_advice, read_text,
};
use crate::layer::{Attributes, Layer};

/// Layers of one job at most: what one overlay mount can stack.
pub const LAYERS_MAX: usize = 400;
/// Paths that the stubs of one layer stand for, and links of one layer, at most.
pub const ENTRIES_MAX: usize = 10_000;
/// Programs whose libraries one layer brings, at most.
pub const BINARIES_MAX: usize = 1000;
/// The latest time that a file of a layer can be given: what an ext4 file system keeps, the year 2446.
pub const MTIME_MAX: i64 = 15_032_385_535;

pub(super) fn check_layers(
    draft: &Draft,
    surroundings: &Surroundings<'_>,
    findings: &mut Findings,
) -> Vec<Layer> {
    if draft.layers.len() > LAYERS_MAX {
        let message = format!(
            "there are {} layers, and {LAYERS_MAX} is the limit",
            draft.layers.len()
        );
        findings
            .error(DiagnosticCode::TooMany, "/layers", message)
            .hint("put several files into one directory and give that as one layer");
    }
    let mut layers = Vec::new();
    for (index, layer) in draft.layers.iter().enumerate() {
        let place = format!("/layers/{index}");
        layers.extend(check_layer(place, layer, surroundings, findings));
    }
    layers
}

fn check_layer(
    place: String,
    draft: &LayerDraft,
    surroundings: &Surroundings<'_>,
    findings: &mut Findings,
) -> Option<Layer> {
    let read;
    let (fields, is_text) = match &draft.form {
        LayerForm::Fields(fields) => (&**fields, false),
        LayerForm::Text(text) => match read_text(text, shown) {
            Ok(fields) => {
                read = fields;
                (&read, true)
            }
            Err(problem) => {
                findings
                    .error(DiagnosticCode::LayerForm, place, problem.message)
                    .hint(problem.hint);
                return None;
            }
        },
    };
    let mut reader = Reader {
        place,
        is_text,
        base: &draft.base,
        fields,
        surroundings,
        findings,
    };
    let kind = reader.kind()?;
    reader.refuse_others(kind);
    let attributes = reader.attributes();
    reader.layer(kind, attributes)
}

struct Reader<'a, 'f> {
    place: String,
    /// True if all fields stand in one text, and so in one place.
    is_text: bool,
    base: &'a str,
    fields: &'a LayerFields,
    surroundings: &'a Surroundings<'a>,
    findings: &'f mut Findings,
}

impl Reader<'_, '_> {
    fn at(&self, field: &str) -> String {
        if self.is_text {
            self.place.clone()
        } else {
            format!("{}/{field}", self.place)
        }
    }

    fn at_item(&self, field: &str, index: usize) -> String {
        if self.is_text {
            self.place.clone()
        } else {
            format!("{}/{field}/{index}", self.place)
        }
    }

    fn kind(&mut self) -> Option<LayerKind> {
        let place = self.at("kind");
        let Some(word) = &self.fields.kind else {
            self.findings
                .error(
                    DiagnosticCode::MissingField,
                    place,
                    "the layer does not say of which kind it is",
                )
                .hint(r#"write for example {"kind": "dir", "source": "SRC", "dest": "/DEST"}"#);
            return None;
        };
        let kind = LayerKind::of(word);
        if kind.is_none() {
            let message = format!("`{}` is not a kind of layer", shown(word));
            self.findings
                .error(DiagnosticCode::LayerForm, place, message)
                .hint(kind_advice(word));
        }
        kind
    }

    /// Refuses fields that this kind does not have.
    fn refuse_others(&mut self, kind: LayerKind) {
        let fields = self.fields;
        let given = [
            ("source", fields.source.is_some()),
            ("reference", fields.reference.is_some()),
            ("platform", fields.platform.is_some()),
            ("dest", fields.dest.is_some()),
            ("base", fields.base.is_some()),
            ("include", !fields.include.is_empty()),
            ("exclude", !fields.exclude.is_empty()),
            ("strip", fields.strip.is_some()),
            ("paths", !fields.paths.is_empty()),
            ("links", !fields.links.is_empty()),
            ("binaries", !fields.binaries.is_empty()),
            ("program", fields.program.is_some()),
            ("args", !fields.args.is_empty()),
            ("env", !fields.env.is_empty()),
        ];
        let own = kind.fields();
        for (name, _) in given
            .into_iter()
            .filter(|(name, given)| *given && !own.contains(name))
        {
            let message = format!("a `{}` layer has no `{name}`", kind.as_str());
            let place = self.at(name);
            self.findings
                .error(DiagnosticCode::LayerForm, place, message)
                .hint(format!(
                    "it has {}, and {}",
                    own.join(", "),
                    ATTRIBUTE_FIELDS.join(", ")
                ));
        }
        let has_modes = fields.canonical || fields.owner.is_some() || fields.mode.is_some();
        if kind == LayerKind::Symlinks && (has_modes || fields.mtime.is_some()) {
            let name = match fields {
                LayerFields {
                    canonical: true, ..
                } => "canonical",
                LayerFields { owner: Some(_), .. } => "owner",
                LayerFields { mode: Some(_), .. } => "mode",
                _ => "mtime",
            };
            let place = self.at(name);
            self.findings
                .error(
                    DiagnosticCode::LayerForm,
                    place,
                    format!(
                        "a `symlinks` layer has no `{name}`: its links are the same everywhere"
                    ),
                )
                .hint("leave it out");
        }
    }

    fn attributes(&mut self) -> Attributes {
        let fields = self.fields;
        let mut attributes = if fields.canonical {
            Attributes::CANONICAL
        } else {
            Attributes::default()
        };
        if let Some(owner) = &fields.owner {
            let place = self.at("owner");
            attributes.owner = read_user(&place, "owner", owner, self.findings);
        }
        if let Some(mode) = &fields.mode {
            match mode.parse() {
                Ok(modes) => attributes.mode = Some(modes),
                Err(_) => {
                    let message = format!("`{}` is not a mode", shown(mode));
                    let place = self.at("mode");
                    self.findings
                        .error(DiagnosticCode::OutOfRange, place, message)
                        .hint("write normal, or three octal digits such as 0755; set-user-ID is not possible");
                }
            }
        }
        if let Some(mtime) = &fields.mtime {
            match mtime.parse() {
                Ok(seconds @ 0..=MTIME_MAX) => attributes.mtime = Some(seconds),
                _ => {
                    let message = format!("`{}` is not a time of a file", shown(mtime));
                    let place = self.at("mtime");
                    self.findings
                        .error(DiagnosticCode::OutOfRange, place, message)
                        .hint(format!(
                            "write seconds since 1970, from 0 to {MTIME_MAX}, for example 1700000000"
                        ));
                }
            }
        }
        attributes
    }

    fn layer(&mut self, kind: LayerKind, attributes: Attributes) -> Option<Layer> {
        let fields = self.fields;
        Some(match kind {
            LayerKind::Dir => Layer::Dir {
                source: self.source(PathKind::Directory)?,
                dest: self.dest(),
                attributes,
            },
            LayerKind::File => {
                let (source, dest) = self.file()?;
                Layer::File {
                    source,
                    dest,
                    attributes,
                }
            }
            LayerKind::Glob => return self.glob(attributes),
            LayerKind::Tar => Layer::Tar {
                source: self.source(PathKind::File)?,
                strip: self.strip(),
                dest: self.dest(),
                attributes,
            },
            LayerKind::Stubs => Layer::Stubs {
                paths: self.stubs()?,
                attributes,
            },
            LayerKind::Symlinks => {
                self.links()?;
                Layer::Symlinks {
                    links: fields.links.clone(),
                }
            }
            LayerKind::SharedLibs => Layer::SharedLibs {
                binaries: self.binaries()?,
                dest: self.dest(),
                attributes,
            },
            LayerKind::Command => Layer::Command {
                program: self.program()?,
                args: fields.args.clone(),
                env: fields.env.clone(),
                dest: self.dest(),
                attributes,
            },
            LayerKind::Oci => Layer::Oci {
                reference: self.reference()?,
                digest: None,
                platform: self.platform(),
                strip: self.strip(),
                dest: self.dest(),
                attributes,
            },
        })
    }

    fn reference(&mut self) -> Option<String> {
        match self.fields.reference.as_deref() {
            None | Some("") => self.missing("reference", LayerKind::Oci, "\"debian:12\""),
            Some(reference) => {
                let place = self.at("reference");
                Some(check_reference(&place, reference, self.findings))
            }
        }
    }

    fn platform(&mut self) -> Option<String> {
        let place = self.at("platform");
        let platform = self.fields.platform.as_deref()?;
        Some(check_platform(&place, platform, self.findings))
    }

    /// Says that a field has to be there.
    fn missing<T>(&mut self, field: &str, kind: LayerKind, example: &str) -> Option<T> {
        let place = self.at(field);
        let message = format!("a `{}` layer needs `{field}`", kind.as_str());
        let hint = if self.is_text {
            format!("write {}", kind.form())
        } else {
            format!("write \"{field}\": {example}")
        };
        self.findings
            .error(DiagnosticCode::MissingField, place, message)
            .hint(hint);
        None
    }

    fn source(&mut self, wanted: PathKind) -> Option<String> {
        let Some(source) = &self.fields.source else {
            let (kind, example) = match self.fields.kind.as_deref() {
                Some("tar") => (LayerKind::Tar, "\"deps.tar.zst\""),
                Some("file") => (LayerKind::File, "\"config.toml\""),
                _ => (LayerKind::Dir, "\"DIR\""),
            };
            return self.missing("source", kind, example);
        };
        Some(self.host_path("source", "the layer's source", wanted, source))
    }

    fn host_path(&mut self, field: &str, what: &str, wanted: PathKind, text: &str) -> String {
        let place = self.at(field);
        Wanted::new(&place, what, wanted).find(text, self.base, self.surroundings, self.findings)
    }

    /// A directory in the sandbox, the root if none is named.
    fn dest(&mut self) -> String {
        let place = self.at("dest");
        match &self.fields.dest {
            Some(dest) => sandbox_path(self.findings, &place, dest),
            None => "/".to_owned(),
        }
    }

    fn file(&mut self) -> Option<(String, String)> {
        let source = self.fields.source.as_deref().unwrap_or_default();
        let Some(dest) = &self.fields.dest else {
            self.findings
                .error(
                    DiagnosticCode::LayerForm,
                    self.place.clone(),
                    format!(
                        "the layer of the file `{}` does not say where it appears",
                        shown(source)
                    ),
                )
                .hint(if self.is_text {
                    format!("write file:{}=/path/in/the/sandbox", shown(source))
                } else {
                    "write \"dest\": \"/path/in/the/sandbox\"".to_owned()
                });
            return None;
        };
        if dest.ends_with('/') {
            let message = format!("the destination `{}` of a file is a directory", shown(dest));
            let name = source.rsplit('/').next().unwrap_or_default();
            let place = self.at("dest");
            self.findings
                .error(DiagnosticCode::LayerForm, place, message)
                .hint(format!(
                    "write the file's name too: {}{}",
                    shown(dest),
                    shown(name)
                ));
            return None;
        }
        let dest = self.dest();
        Some((self.source(PathKind::File)?, dest))
    }

    fn glob(&mut self, attributes: Attributes) -> Option<Layer> {
        let fields = self.fields;
        if fields.include.is_empty() {
            return self.missing("include", LayerKind::Glob, "[\"src/**/*.rs\"]");
        }
        let mut include = Vec::new();
        let mut base = fields.base.clone();
        let mut is_good = true;
        for (index, pattern) in fields.include.iter().enumerate() {
            let place = self.at_item("include", index);
            let (directory, pattern) = split_pattern(pattern);
            is_good &= self.pattern(&place, &pattern);
            if let Some(directory) = directory {
                if base.is_none() && fields.include.len() == 1 && fields.exclude.is_empty() {
                    base = Some(directory);
                } else {
                    let message = format!(
                        "the pattern `{}` is absolute",
                        shown(&fields.include[index])
                    );
                    self.findings
                        .error(DiagnosticCode::Pattern, place, message)
                        .hint(format!(
                            "write \"base\": \"{}\", and patterns that start from there",
                            shown(&directory)
                        ));
                    is_good = false;
                }
            }
            include.push(pattern);
        }
        let mut exclude = Vec::new();
        for (index, pattern) in fields.exclude.iter().enumerate() {
            let place = self.at_item("exclude", index);
            let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
            is_good &= self.pattern(&place, pattern);
            exclude.push(pattern.to_owned());
        }
        let directory = base.as_deref().unwrap_or(self.base);
        let base = if is_good {
            let place = if fields.base.is_some() {
                self.at("base")
            } else {
                self.at_item("include", 0)
            };
            Wanted::new(&place, "the pattern's directory", PathKind::Directory).find(
                directory,
                self.base,
                self.surroundings,
                self.findings,
            )
        } else {
            directory.to_owned()
        };
        Some(Layer::Glob {
            base,
            include,
            exclude,
            strip: self.strip(),
            dest: self.dest(),
            attributes,
        })
    }

    fn pattern(&mut self, place: &str, pattern: &str) -> bool {
        if !self.findings.without_nul(place, "the pattern", pattern) {
            return false;
        }
        let wrong = if pattern.is_empty() {
            Some("it is empty".to_owned())
        } else if pattern.split('/').any(|part| part == "..") {
            Some("it may not have `..` in it".to_owned())
        } else if pattern.len() > PATH_BYTES_MAX {
            Some(format!("it has more than {PATH_BYTES_MAX} bytes"))
        } else {
            (self.surroundings.pattern_error)(pattern)
        };
        let Some(wrong) = wrong else {
            return true;
        };
        let message = format!(
            "the pattern `{}` cannot be used: {}",
            shown(pattern),
            shown(&wrong)
        );
        self.findings
            .error(DiagnosticCode::Pattern, place, message)
            .hint(
                "`*` and `?` match within a name, `**` across directories, `[a-z]` one character, \
                 `{a,b}` one of several; `\\` takes the next character as it is",
            );
        false
    }

    /// Leading directories: relative, without needless parts.
    fn strip(&mut self) -> Option<String> {
        let text = self.fields.strip.as_deref()?;
        let place = self.at("strip");
        let names: Vec<&str> = text
            .split('/')
            .filter(|name| !name.is_empty() && *name != ".")
            .collect();
        if names.is_empty() || text.starts_with('/') || names.contains(&"..") {
            let message = format!("`{}` is not a directory to take off", shown(text));
            self.findings
                .error(DiagnosticCode::LayerForm, place, message)
                .hint("write a relative path such as src, without `..`");
            return None;
        }
        let stripped = names.join("/");
        (self
            .findings
            .without_nul(&place, "the directory", &stripped)
            && short_enough(self.findings, &place, "the directory", &stripped))
        .then_some(stripped)
    }

    fn stubs(&mut self) -> Option<Vec<String>> {
        if self.fields.paths.is_empty() {
            return self.missing(
                "paths",
                LayerKind::Stubs,
                "[\"/run/lock/\", \"/etc/{a,b}.conf\"]",
            );
        }
        let mut room = ENTRIES_MAX;
        for (index, pattern) in self.fields.paths.iter().enumerate() {
            let place = self.at_item("paths", index);
            if !short_enough(self.findings, &place, "the path", pattern) {
                continue;
            }
            match expand(pattern, ENTRIES_MAX) {
                Ok(paths) if paths.len() > room => {
                    let message = format!("the layer has more than {ENTRIES_MAX} paths");
                    self.findings
                        .error(DiagnosticCode::TooMany, place, message)
                        .hint("give some of them in a further layer");
                    break;
                }
                Ok(paths) => {
                    room -= paths.len();
                    let before = self.findings.found.len();
                    for path in paths {
                        sandbox_path(self.findings, &place, &path);
                        // One of them is enough to see what is wrong with the pattern.
                        if self.findings.found.len() > before {
                            break;
                        }
                    }
                }
                Err(wrong) => {
                    let message = format!("the path `{}` cannot be used: {wrong}", shown(pattern));
                    self.findings
                        .error(DiagnosticCode::Pattern, place, message)
                        .hint(
                            "`{a,b}` stands for one path with `a` and one with `b`; `\\` takes the next \
                             character as it is",
                        );
                }
            }
        }
        Some(self.fields.paths.clone())
    }

    fn links(&mut self) -> Option<()> {
        if self.fields.links.is_empty() {
            return self.missing("links", LayerKind::Symlinks, "{\"/bin/sh\": \"busybox\"}");
        }
        if self.fields.links.len() > ENTRIES_MAX {
            let place = self.at("links");
            let message = format!("there are more than {ENTRIES_MAX} links");
            self.findings
                .error(DiagnosticCode::TooMany, place, message)
                .hint("give some of them in a further layer");
        }
        for (link, target) in &self.fields.links {
            let place = if self.is_text {
                self.place.clone()
            } else {
                pointer(&self.at("links"), link)
            };
            if link.ends_with('/') {
                let message = format!("the link `{}` ends with a `/`", shown(link));
                self.findings
                    .error(DiagnosticCode::LayerForm, place, message)
                    .hint("write the path of the link itself");
                continue;
            }
            sandbox_path(self.findings, &place, link);
            if target.is_empty() {
                self.findings
                    .error(DiagnosticCode::Empty, place, "a link points to nothing")
                    .hint("write the path that it points to, absolute or relative to the link");
            } else if self
                .findings
                .without_nul(&place, "what a link points to", target)
            {
                short_enough(self.findings, &place, "what a link points to", target);
            }
        }
        Some(())
    }

    fn binaries(&mut self) -> Option<Vec<String>> {
        if self.fields.binaries.is_empty() {
            return self.missing("binaries", LayerKind::SharedLibs, "[\"/usr/bin/git\"]");
        }
        if self.fields.binaries.len() > BINARIES_MAX {
            let place = self.at("binaries");
            let message = format!("there are more than {BINARIES_MAX} programs");
            self.findings
                .error(DiagnosticCode::TooMany, place, message)
                .hint("give some of them in a further layer");
            return None;
        }
        let mut binaries = Vec::new();
        for (index, binary) in self.fields.binaries.iter().enumerate() {
            let place = self.at_item("binaries", index);
            let path = Wanted::new(&place, "the program", PathKind::File).find(
                binary,
                self.base,
                self.surroundings,
                self.findings,
            );
            binaries.push(path);
        }
        Some(binaries)
    }

    fn program(&mut self) -> Option<String> {
        let Some(program) = self.fields.program.clone() else {
            return self.missing("program", LayerKind::Command, "\"make\"");
        };
        let place = self.at("program");
        if program.is_empty() {
            self.findings
                .error(DiagnosticCode::Empty, place, "the program is an empty text")
                .hint("name a program, or write its path in the sandbox");
            return None;
        }
        check_argument(&place, "the program's name", &program, self.findings);
        for (index, argument) in self.fields.args.iter().enumerate() {
            let place = self.at_item("args", index);
            let what = format!("argument {}", index + 1);
            check_argument(&place, &what, argument, self.findings);
        }
        for (name, value) in &self.fields.env {
            let place = pointer(&self.at("env"), name);
            if check_variable_name(&place, name, self.findings) {
                check_argument(&place, "the value of a variable", value, self.findings);
            }
        }
        Some(program)
    }
}

/// Splits an absolute pattern into the directory before its first special character and the rest.
fn split_pattern(pattern: &str) -> (Option<String>, String) {
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    if !pattern.starts_with('/') {
        return (None, pattern.to_owned());
    }
    let special = pattern
        .find(['*', '?', '[', '{', '\\'])
        .unwrap_or(pattern.len());
    let slash = pattern[..special].rfind('/').unwrap_or(0);
    let directory = if slash == 0 { "/" } else { &pattern[..slash] };
    (Some(directory.to_owned()), pattern[slash + 1..].to_owned())
}

#[cfg(test)]
mod tests;
