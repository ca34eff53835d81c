//! Images that are on this machine already: an OCI image layout (a directory or an archive), an archive
//! of `docker save` in any of its forms, or the directory of a root file system.
//!
//! Everything is checked before a name leads to it, and what a failed import brought is taken away again.

mod archive;
mod docker;
mod layout;
mod root;
mod source;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::config::ConfigError;
use crate::content::{Begun, Content, ContentError};
use crate::digest::OciDigest;
use crate::image::{Image, ImageError};
use crate::manifest::{Descriptor, ManifestError};
use crate::names::{Named, Names, NamesError};
use crate::platform::Platform;
use crate::reference::Reference;

use self::archive::Archive;
use self::source::{Directory, Files};

/// What standard input is called as a source.
pub const STDIN: &str = "-";
/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 128 << 10;

/// How a source is imported.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// What the image shall be called, instead of what the source calls it.
    pub name: Option<Reference>,
    /// Which image of several is taken, and what a root file system is for.
    pub platform: Platform,
}

/// An image that was imported.
#[derive(Debug)]
pub struct Imported {
    /// Its name, and what it was chosen from.
    pub named: Named,
    /// The image.
    pub image: Image,
}

/// Why a source cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The source cannot be read.
    #[error("failed to read `{path}`")]
    Read {
        /// The source, or what of it.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The source is nothing that holds images.
    #[error("`{path}` is not an image: {problem}")]
    NotAnImage {
        /// The source.
        path: PathBuf,
        /// What it is, or lacks.
        problem: String,
    },
    /// The source is an archive of a root file system, which is no image.
    #[error("`{path}` is an archive of a root file system, not of an image")]
    RootArchive {
        /// The source.
        path: PathBuf,
    },
    /// An entry of the source is not acceptable.
    #[error("`{entry}` in `{path}` {problem}")]
    Entry {
        /// The source.
        path: PathBuf,
        /// The entry.
        entry: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Something that the source names is not in it.
    #[error("`{entry}` is not in `{path}`, though the image needs it")]
    Absent {
        /// The source.
        path: PathBuf,
        /// The entry.
        entry: String,
    },
    /// The source does not say what the image is called.
    #[error("`{path}` does not say what its image is called{}", said(.name.as_ref()))]
    Unnamed {
        /// The source.
        path: PathBuf,
        /// What it calls the image, which is no whole name.
        name: Option<String>,
    },
    /// One name was given, and there are several images.
    #[error("`{path}` has several images, and one name was given; they are: {names}")]
    Several {
        /// The source.
        path: PathBuf,
        /// What they are called.
        names: String,
    },
    /// The image is not one that can be used.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The names could not be changed.
    #[error(transparent)]
    Names(#[from] NamesError),
}

fn said(name: Option<&String>) -> String {
    name.map(|name| format!(", only `{}`", name.escape_debug()))
        .unwrap_or_default()
}

impl From<ContentError> for ImportError {
    fn from(error: ContentError) -> Self {
        Self::Image(error.into())
    }
}

impl From<ManifestError> for ImportError {
    fn from(error: ManifestError) -> Self {
        Self::Image(error.into())
    }
}

impl From<ConfigError> for ImportError {
    fn from(error: ConfigError) -> Self {
        Self::Image(error.into())
    }
}

impl ImportError {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Read { .. } => "check that it is there and readable".to_owned(),
            Self::NotAnImage { .. } => {
                "name an OCI image layout, an archive of `docker save`, or the directory of a root \
                 file system"
                    .to_owned()
            }
            Self::RootArchive { path } if path.as_os_str() == "-" => {
                "unpack it, and import the directory".to_owned()
            }
            Self::RootArchive { path } => format!(
                "run in it as it is: tidemill run --image tar:{}; or unpack it, and import the directory",
                path.display().to_string().escape_debug()
            ),
            Self::Entry { .. } | Self::Absent { .. } => {
                "the source is damaged; save or copy the image again".to_owned()
            }
            Self::Unnamed { .. } => "say it: --name REF".to_owned(),
            Self::Several { .. } => {
                "choose one, as in layout:NAME, or leave --name out, and all of them are imported"
                    .to_owned()
            }
            Self::Image(error) => error.hint(),
            Self::Names(error) => error.hint().to_owned(),
        }
    }
}

/// Imports all images of a source, and names them. If one of them cannot be used, none is.
pub fn import(
    content: &Content,
    source: &Path,
    options: &ImportOptions,
) -> Result<Vec<Imported>, ImportError> {
    let names = Names::new(content);
    let (source, only) = split_choice(source);
    let mut import = Import {
        content,
        options,
        source,
        only,
        added: Vec::new(),
    };
    let hold = content.hold()?;
    let result = import.run().and_then(|imported| {
        for image in &imported {
            names.set(&image.named)?;
        }
        Ok(imported)
    });
    drop(hold);
    if result.is_err() {
        import.undo(&names);
    }
    result
}

/// A source that is not there may be one that is, with the name of one of its images: `layout:1.2`.
fn split_choice(source: &Path) -> (&Path, Option<&str>) {
    if source.as_os_str() == STDIN || source.exists() {
        return (source, None);
    }
    let text = source.to_str();
    // The name may have a colon of its own.
    let places = text
        .into_iter()
        .flat_map(|text| text.match_indices(':').map(move |at| (text, at.0)));
    places
        .map(|(text, at)| (Path::new(&text[..at]), Some(&text[at + 1..])))
        .find(|(path, _)| path.exists())
        .unwrap_or((source, None))
}

/// One import.
struct Import<'a> {
    content: &'a Content,
    options: &'a ImportOptions,
    source: &'a Path,
    /// What the source calls the image that is wanted, if not all are.
    only: Option<&'a str>,
    /// Blobs that were not there before.
    added: Vec<OciDigest>,
}

impl Import<'_> {
    fn run(&mut self) -> Result<Vec<Imported>, ImportError> {
        if self.source.as_os_str() == STDIN {
            let archive = Archive::from_stream(io::stdin(), self.content, self.source)?;
            return self.archive(&archive);
        }
        let failed = |source| ImportError::Read {
            path: self.source.to_owned(),
            source,
        };
        let metadata = fs::metadata(self.source).map_err(failed)?;
        if metadata.is_dir() {
            return self.directory();
        }
        if !metadata.is_file() {
            return Err(self.not_an_image("it is neither a directory nor a file"));
        }
        let archive = Archive::open(self.source, self.content)?;
        self.archive(&archive)
    }

    fn directory(&mut self) -> Result<Vec<Imported>, ImportError> {
        let directory = Directory::new(self.source);
        if directory.open(layout::LAYOUT)?.is_some() {
            return self.layout(&directory);
        }
        if directory.open(docker::MANIFEST)?.is_some() {
            return self.docker(&directory);
        }
        if self.is_rest_of_layout() {
            return Err(self.not_an_image(format!(
                "it has the blobs of an image layout and no `{}`",
                layout::LAYOUT
            )));
        }
        self.root()
    }

    /// True for a directory with blobs of images and nothing that a root file system has.
    fn is_rest_of_layout(&self) -> bool {
        // Whatever cannot be listed fails when it is read.
        let names = fs::read_dir(self.source).into_iter().flatten().flatten();
        let is_of_layout = |name: &OsStr| {
            let name = name.as_encoded_bytes();
            name.starts_with(b".") || matches!(name, b"blobs" | b"index.json" | b"ingest")
        };
        self.source.join("blobs/sha256").is_dir()
            && names
                .into_iter()
                .all(|entry| is_of_layout(&entry.file_name()))
    }

    fn archive(&mut self, archive: &Archive) -> Result<Vec<Imported>, ImportError> {
        if archive.open(layout::LAYOUT)?.is_some() && archive.open(layout::INDEX)?.is_some() {
            return self.layout(archive);
        }
        if archive.open(docker::MANIFEST)?.is_some() {
            return self.docker(archive);
        }
        if archive.has_root() {
            return Err(ImportError::RootArchive {
                path: self.source.to_owned(),
            });
        }
        Err(self.not_an_image("it has neither an `index.json` nor a `manifest.json`"))
    }

    fn not_an_image(&self, problem: impl Into<String>) -> ImportError {
        ImportError::NotAnImage {
            path: self.source.to_owned(),
            problem: problem.into(),
        }
    }

    fn entry(&self, entry: &str, problem: impl Into<String>) -> ImportError {
        ImportError::Entry {
            path: self.source.to_owned(),
            entry: entry.escape_debug().to_string(),
            problem: problem.into(),
        }
    }

    /// Whether an image of this name is wanted: all are, or the one that was named, with or without what
    /// stands before its tag.
    fn is_wanted(&self, name: Option<&str>) -> bool {
        self.only.is_none_or(|only| {
            name.is_some_and(|name| {
                name == only || name.rsplit_once(':').is_some_and(|n| n.1 == only)
            })
        })
    }

    /// What an image is called: as was asked for, else by a whole name in the source.
    fn name(&self, said: Option<&str>) -> Result<Reference, ImportError> {
        if let Some(name) = &self.options.name {
            return Ok(name.clone());
        }
        // A single word may be a tag or a name, so it is neither.
        let is_whole = |name: &&str| name.contains([':', '/']);
        said.filter(is_whole)
            .and_then(|name| name.parse().ok())
            .ok_or_else(|| ImportError::Unnamed {
                path: self.source.to_owned(),
                name: said.map(str::to_owned),
            })
    }

    /// Copies a file of the source into the store, checked.
    fn fetch(
        &mut self,
        files: &dyn Files,
        entry: &str,
        descriptor: &Descriptor,
    ) -> Result<(), ImportError> {
        let mut file = match files.open(entry)? {
            Some(file) => file,
            // What is here already need not be there.
            None if self.content.has(descriptor)? => return Ok(()),
            None => return Err(files.absent(entry)),
        };
        if file.size != descriptor.size {
            let problem = format!(
                "has {} bytes, and {} are announced",
                file.size, descriptor.size
            );
            return Err(self.entry(entry, problem));
        }
        let mut partial = match self.content.begin(descriptor)? {
            Begun::Present | Begun::Busy => return Ok(()),
            Begun::Partial(partial) => partial,
        };
        // It may be what a download left, which costs more than what is at hand here.
        partial.restart()?;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let written = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => partial.write(&buffer[..length]).map_err(ImportError::from),
                Err(source) => Err(files.failed(entry, source)),
            };
            if let Err(error) = written {
                partial.discard();
                return Err(error);
            }
        }
        match partial.commit() {
            Ok(()) => {
                self.added.push(descriptor.digest);
                Ok(())
            }
            Err(ContentError::WrongDigest { found, expected }) => Err(self.entry(
                entry,
                format!("has the digest {found}, and {expected} is announced"),
            )),
            Err(error) => Err(error.into()),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<OciDigest, ImportError> {
        let digest = crate::digest::digest_of(bytes);
        let is_new = self.content.size(&digest)?.is_none();
        self.content.put(bytes)?;
        if is_new {
            self.added.push(digest);
        }
        Ok(digest)
    }

    /// Takes away what was brought, unless a name leads to it by now.
    fn undo(&self, names: &Names) {
        let result = self.content.collect(|| {
            let needed = names.needed().unwrap_or_default();
            let added = &self.added;
            Ok(move |digest: &OciDigest| needed.contains(digest) || !added.contains(digest))
        });
        if let Err(error) = result {
            tracing::debug!(%error, "what a failed import brought is still there");
        }
    }
}

#[cfg(test)]
mod tests;
