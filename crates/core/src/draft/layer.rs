//! Layers as people write them: a text such as `dir:SRC=DEST`, or an object with fields.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// A layer as it was written, with the directory that relative paths start from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerDraft {
    /// An absolute path on the host.
    pub base: String,
    /// What was written.
    pub form: LayerForm,
}

/// The two ways to write a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerForm {
    /// `KIND[,OPTION…]:WHAT`.
    Text(String),
    /// An object in a job file.
    Fields(Box<LayerFields>),
}

/// The fields of a layer in a job file. Which of them a layer has is up to its kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(deny_unknown_fields, title = "Layer")]
pub struct LayerFields {
    /// `dir`, `file`, `glob`, `tar`, `stubs`, `symlinks`, `shared-libs`, `command` or `oci`.
    #[schemars(required)]
    pub kind: Option<String>,
    /// `dir`, `file`, `tar`: the directory, file or archive on the host.
    pub source: Option<String>,
    /// Where it appears in the sandbox: of a `file` its path, else a directory, `/` if absent.
    pub dest: Option<String>,
    /// `glob`: the directory that the patterns start from.
    pub base: Option<String>,
    /// `glob`: patterns of what is in.
    #[schemars(default)]
    pub include: Vec<String>,
    /// `glob`: patterns of what is left out all the same.
    #[schemars(default)]
    pub exclude: Vec<String>,
    /// `oci`: the image, `[HOST[:PORT]/]NAME[:TAG][@DIGEST]`.
    pub reference: Option<String>,
    /// `oci`: which of an index's images, `OS/ARCHITECTURE[/VARIANT]`; this machine's if absent.
    pub platform: Option<String>,
    /// `glob`, `tar`, `oci`: leading directories that are taken off.
    pub strip: Option<String>,
    /// `stubs`: paths in the sandbox, those of directories with a `/` at the end; `{a,b}` chooses.
    #[schemars(default)]
    pub paths: Vec<String>,
    /// `symlinks`: what each path in the sandbox points to.
    #[schemars(default)]
    pub links: BTreeMap<String, String>,
    /// `shared-libs`: programs of the host whose libraries are brought in.
    #[schemars(default)]
    pub binaries: Vec<String>,
    /// `command`: the program. It starts in the empty directory `/layer`, and what it leaves there is
    /// the layer.
    pub program: Option<String>,
    /// `command`: its arguments.
    #[schemars(default)]
    pub args: Vec<String>,
    /// `command`: its variables.
    #[schemars(default)]
    pub env: BTreeMap<String, String>,
    /// True for owner 0:0, normal modes and the time 1, so that equal files make equal layers.
    #[schemars(default)]
    pub canonical: bool,
    /// The owner of everything in the sandbox: `UID` or `UID:GID`.
    #[schemars(default, schema_with = "super::quantity")]
    pub owner: Option<String>,
    /// `normal` (0644, and 0755 for directories and what is executable) or the permission bits of files.
    pub mode: Option<String>,
    /// The time of the last change of everything: seconds since 1970.
    #[schemars(with = "Option<i64>")]
    pub mtime: Option<String>,
}

/// The kinds of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerKind {
    /// A directory.
    Dir,
    /// A file.
    File,
    /// What patterns match.
    Glob,
    /// An archive.
    Tar,
    /// Empty files and directories.
    Stubs,
    /// Symbolic links.
    Symlinks,
    /// The libraries of programs.
    SharedLibs,
    /// The output of a command.
    Command,
    /// The files of an image.
    Oci,
}

impl LayerKind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Dir,
        Self::File,
        Self::Glob,
        Self::Tar,
        Self::Stubs,
        Self::Symlinks,
        Self::SharedLibs,
        Self::Command,
        Self::Oci,
    ];

    /// The word that stands for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dir => "dir",
            Self::File => "file",
            Self::Glob => "glob",
            Self::Tar => "tar",
            Self::Stubs => "stubs",
            Self::Symlinks => "symlinks",
            Self::SharedLibs => "shared-libs",
            Self::Command => "command",
            Self::Oci => "oci",
        }
    }

    /// The kind that a word stands for.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// How it is written as a text.
    pub const fn form(self) -> &'static str {
        match self {
            Self::Dir => "dir:SRC[=DEST]",
            Self::File => "file:SRC=DEST",
            Self::Glob => "glob:PATTERN[=DEST]",
            Self::Tar => "tar:SRC[=DEST]",
            Self::Stubs => "stubs:PATH",
            Self::Symlinks => "symlinks:TARGET=LINK",
            Self::SharedLibs => "shared-libs:BINARY[=DEST]",
            Self::Command => "command:SCRIPT",
            Self::Oci => "oci:REF[=DEST]",
        }
    }

    /// The fields that it has beside those that all kinds have.
    pub const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Dir | Self::File => &["source", "dest"],
            Self::Glob => &["base", "include", "exclude", "strip", "dest"],
            Self::Tar => &["source", "strip", "dest"],
            Self::Stubs => &["paths"],
            Self::Symlinks => &["links"],
            Self::SharedLibs => &["binaries", "dest"],
            Self::Command => &["program", "args", "env", "dest"],
            Self::Oci => &["reference", "platform", "strip", "dest"],
        }
    }
}

impl LayerKind {
    /// Those of its fields that it cannot do without.
    pub const fn required(self) -> &'static [&'static str] {
        match self {
            Self::Dir | Self::Tar => &["source"],
            Self::File => &["source", "dest"],
            Self::Glob => &["include"],
            Self::Stubs => &["paths"],
            Self::Symlinks => &["links"],
            Self::SharedLibs => &["binaries"],
            Self::Command => &["program"],
            Self::Oci => &["reference"],
        }
    }
}

/// The fields in which a layer says what its files become, whatever its kind.
pub const ATTRIBUTE_FIELDS: [&str; 4] = ["canonical", "owner", "mode", "mtime"];

impl LayerDraft {
    /// A text, and the directory that it is relative to.
    pub fn new(text: impl Into<String>, base: impl Into<String>) -> Self {
        Self {
            base: base.into(),
            form: LayerForm::Text(text.into()),
        }
    }

    /// An object of a job file, and the directory that its paths are relative to.
    pub fn with_fields(fields: LayerFields, base: impl Into<String>) -> Self {
        Self {
            base: base.into(),
            form: LayerForm::Fields(Box::new(fields)),
        }
    }
}

impl JsonSchema for LayerDraft {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "LayerDraft".into()
    }

    /// A text, or an object with the fields of its kind.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let all = LayerFields::json_schema(generator);
        let properties = all.get("properties").and_then(Value::as_object);
        let mut forms = vec![json!({ "type": "string" })];
        for kind in LayerKind::ALL {
            let attributes = match kind {
                LayerKind::Symlinks => &[][..],
                _ => &ATTRIBUTE_FIELDS,
            };
            let mut own: Map<String, Value> = kind
                .fields()
                .iter()
                .chain(attributes)
                .filter_map(|name| Some(((*name).to_owned(), properties?.get(*name)?.clone())))
                .collect();
            own.insert("kind".to_owned(), json!({ "const": kind.as_str() }));
            let required = [&["kind"], kind.required()].concat();
            forms.push(json!({
                "type": "object",
                "title": format!("`{}` layer", kind.as_str()),
                "properties": own,
                "required": required,
                "additionalProperties": false,
            }));
        }
        json_schema!({ "anyOf": forms })
    }
}

/// What is wrong with the text of a layer, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextProblem {
    pub(crate) message: String,
    pub(crate) hint: String,
}

/// Reads `KIND[,OPTION…]:WHAT` as the fields that it stands for. `shown` makes a piece of it fit for a
/// message.
pub(crate) fn read_text(
    text: &str,
    shown: impl Fn(&str) -> String,
) -> Result<LayerFields, TextProblem> {
    let no_layer = |hint: String| TextProblem {
        message: format!("`{}` is not a layer", shown(text)),
        hint,
    };
    let (head, what) = split_head(text).ok_or_else(|| no_layer(forms()))?;
    let mut options = head.into_iter();
    let word = options.next().unwrap_or_default();
    let kind = LayerKind::of(word).ok_or_else(|| no_layer(kind_advice(word)))?;
    let mut fields = LayerFields {
        kind: Some(kind.as_str().to_owned()),
        ..LayerFields::default()
    };
    for option in options {
        read_option(&mut fields, kind, option, &shown)?;
    }
    if let Some(problem) = owner_with_colon(&fields, what, &shown) {
        return Err(problem);
    }
    // A source may have a `=` in it; a destination may not.
    let (source, dest) = what
        .rsplit_once('=')
        .map_or((what, None), |(source, dest)| {
            (source, Some(dest.to_owned()))
        });
    let whole = Some(what.to_owned()).filter(|what| !what.is_empty());
    match kind {
        LayerKind::Dir | LayerKind::File | LayerKind::Tar => {
            fields.source = Some(source.to_owned());
            fields.dest = dest;
        }
        LayerKind::Glob => {
            fields.include = vec![source.to_owned()];
            fields.dest = dest;
        }
        LayerKind::Oci => {
            fields.reference = Some(source.to_owned());
            fields.dest = dest;
        }
        LayerKind::Stubs => fields.paths = whole.into_iter().collect(),
        LayerKind::Symlinks => {
            let Some(link) = dest else {
                return Err(TextProblem {
                    message: format!("the layer `{}` does not say where the link is", shown(text)),
                    hint: format!("write symlinks:{}=/path/in/the/sandbox", shown(source)),
                });
            };
            fields.links = BTreeMap::from([(link, source.to_owned())]);
        }
        LayerKind::SharedLibs => {
            fields.binaries = vec![source.to_owned()];
            fields.dest = dest;
        }
        LayerKind::Command => {
            fields.program = whole.as_ref().map(|_| "sh".to_owned());
            fields.args = whole
                .into_iter()
                .flat_map(|script| ["-c".to_owned(), script])
                .collect();
        }
    }
    Ok(fields)
}

/// What is before the first colon, taken apart at its commas, and what is behind it. In braces and
/// brackets, which patterns have, neither counts.
fn split_head(text: &str) -> Option<(Vec<&str>, &str)> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0_u32);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' | b':' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
                if byte == b':' {
                    return Some((parts, &text[start..]));
                }
            }
            _ => {}
        }
    }
    None
}

/// What is wrong with `owner=5:6:x`: the colon ended the options, and nobody means a file `6:x` by that.
fn owner_with_colon(
    fields: &LayerFields,
    what: &str,
    shown: &impl Fn(&str) -> String,
) -> Option<TextProblem> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let user = fields.owner.as_deref().filter(|user| is_number(user))?;
    let (group, _) = what.split_once(':').filter(|(group, _)| is_number(group))?;
    Some(TextProblem {
        message: format!("the options end at the first colon, so `owner={user}` has no group"),
        hint: format!(
            "write owner={user}.{group} for group {group}, or ./{} for a file of that name",
            shown(what)
        ),
    })
}

fn read_option(
    fields: &mut LayerFields,
    kind: LayerKind,
    option: &str,
    shown: &impl Fn(&str) -> String,
) -> Result<(), TextProblem> {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    let given = || Some(value.to_owned());
    match name {
        "canonical" if option == name => fields.canonical = true,
        // A colon would end the options.
        "owner" => fields.owner = Some(value.replace('.', ":")),
        "mode" => fields.mode = given(),
        "mtime" => fields.mtime = given(),
        "strip" if kind.fields().contains(&"strip") => fields.strip = given(),
        "platform" if kind == LayerKind::Oci => fields.platform = given(),
        "exclude" if kind == LayerKind::Glob => fields.exclude.push(value.to_owned()),
        _ => {
            let of_kind = match kind {
                LayerKind::Glob => ", strip=DIR, exclude=PATTERN",
                LayerKind::Tar => ", strip=DIR",
                LayerKind::Oci => ", strip=DIR, platform=OS/ARCHITECTURE",
                _ => "",
            };
            return Err(TextProblem {
                message: format!(
                    "`{}` is not an option of a `{}` layer",
                    shown(option),
                    kind.as_str()
                ),
                hint: format!(
                    "the options are canonical, owner=UID[.GID], mode=normal|OCTAL, mtime=SECONDS{of_kind}"
                ),
            });
        }
    }
    Ok(())
}

/// What to write instead of a word that is no kind.
pub(crate) fn kind_advice(word: &str) -> String {
    let kinds = LayerKind::ALL.map(LayerKind::as_str);
    match crate::diagnostic::nearest(word, kinds) {
        Some(near) => format!("did you mean `{near}`? {}", forms()),
        None => forms(),
    }
}

fn forms() -> String {
    let forms = LayerKind::ALL.map(LayerKind::form);
    let (last, others) = forms.split_last().expect("there are several kinds");
    format!("write {} or {last}", others.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<LayerFields, TextProblem> {
        read_text(text, str::to_owned)
    }

    #[test]
    fn a_text_is_taken_apart_at_its_first_colon_and_last_equals_sign() {
        let fields = read("dir:/a=b:c=/d").expect("a layer");
        assert_eq!(fields.source.as_deref(), Some("/a=b:c"));
        assert_eq!(fields.dest.as_deref(), Some("/d"));
        let fields = read("command:A=b make DESTDIR=/layer install").expect("a layer");
        assert_eq!(fields.program.as_deref(), Some("sh"));
        assert_eq!(fields.args, ["-c", "A=b make DESTDIR=/layer install"]);
        let fields = read("symlinks:../a=b=/bin/c").expect("a layer");
        assert_eq!(fields.links["/bin/c"], "../a=b");
        let fields = read("dir,owner=5.6:7:a").expect("a layer");
        assert_eq!(fields.source.as_deref(), Some("7:a"));
        let fields = read("stubs:/a={b,c}/").expect("a layer");
        assert_eq!(fields.paths, ["/a={b,c}/"]);
        let fields = read("oci,strip=usr,platform=linux/arm64:localhost:5000/a:b@sha256:c=/d");
        let fields = fields.expect("a layer");
        let reference = fields.reference.as_deref();
        assert_eq!(reference, Some("localhost:5000/a:b@sha256:c"));
        assert_eq!(fields.dest.as_deref(), Some("/d"));
        assert_eq!(fields.strip.as_deref(), Some("usr"));
        assert_eq!(fields.platform.as_deref(), Some("linux/arm64"));
    }

    #[test]
    fn options_stand_between_kind_and_colon() {
        let fields = read(
            "glob,exclude=*.{o,a},exclude=[:x],strip=src,owner=1.2,mode=0640,mtime=5,canonical:src/**=/s",
        )
        .expect("a layer");
        assert_eq!(fields.exclude, ["*.{o,a}", "[:x]"]);
        assert_eq!(fields.strip.as_deref(), Some("src"));
        assert_eq!(fields.owner.as_deref(), Some("1:2"));
        assert_eq!(
            (fields.mode.as_deref(), fields.mtime.as_deref()),
            (Some("0640"), Some("5"))
        );
        assert!(fields.canonical);
        assert_eq!(fields.include, ["src/**"]);
    }

    #[test]
    fn what_is_no_layer_gets_advice() {
        for (text, advice) in [
            ("a", "write dir:SRC[=DEST], file:SRC=DEST"),
            ("dri:a", "did you mean `dir`?"),
            ("shared_libs:a", "did you mean `shared-libs`?"),
            ("dir,strip=a:b", "the options are canonical"),
            ("tar,exclude=a:b", "strip=DIR"),
            ("tar,platform=a/b:c", "strip=DIR"),
            ("oci,exclude=a:b", "platform=OS/ARCHITECTURE"),
            ("dir,canonical=no:a", "the options are canonical"),
            ("symlinks:a", "symlinks:a=/path"),
            ("{:", "write dir:"),
            ("dir,owner=5:6:a", "write owner=5.6 for group 6, or ./6:a"),
        ] {
            let problem = read(text).expect_err(text);
            assert!(problem.hint.contains(advice), "{text}: {problem:?}");
        }
    }
}
