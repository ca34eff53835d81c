//! The names of images: which manifest each of them means. They are the layout's `index.json`, so that other
//! tools find the images by the same names.
//!
//! What others put there under names that are no references is kept, and so is what they lead to.

use std::collections::HashSet;
use std::fs;
use std::io;

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::content::{Content, ContentError, failed};
use crate::digest::OciDigest;
use crate::manifest::{Descriptor, Document, MANIFEST_BYTES_MAX, REF_NAME};
use crate::media_type::OCI_INDEX;
use crate::platform::Platform;
use crate::reference::Reference;
use crate::shown::shown;

const FILE: &str = "index.json";
const LOCK: &str = "index.lock";
/// Bytes of the file: tens of thousands of names.
const BYTES_MAX: u64 = 32 << 20;
/// The annotation with the digest of the index that an image was chosen from.
const CHOSEN_FROM: &str = "tidemill.image.index";
/// The annotation of a name that was given here.
const GIVEN_HERE: &str = "tidemill.image.local";
/// Indexes in indexes.
const DEPTH_MAX: usize = 4;

/// The names of the images in a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Names {
    content: Content,
}

/// A name, and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The name.
    pub reference: Reference,
    /// The manifest of the image.
    pub manifest: Descriptor,
    /// What the image is for.
    pub platform: Platform,
    /// The index that it was chosen from, if it was.
    pub index: Option<OciDigest>,
    /// True if the name was given here, by an import or a tag: then a registry that has an image of that name
    /// may have another one.
    pub is_local: bool,
}

/// Why names cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum NamesError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// The file is not what it should be.
    #[error("`{path}` is not an index of images: {problem}")]
    Malformed {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl NamesError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Content(error) => error.hint(),
            Self::Malformed { .. } => {
                "mend it by hand (it is JSON) or put a copy back; or move it away: then `image pull` names images \
                 again and fetches only what is not here, and what was imported is to be imported again. \
                 `cache prune` before that would remove what has no name"
            }
        }
    }
}

/// The file as it stands there. What is not known here is kept.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct IndexFile {
    schema_version: u32,
    #[serde(default = "oci_index")]
    media_type: String,
    #[serde(default)]
    manifests: Vec<Value>,
}

fn oci_index() -> String {
    OCI_INDEX.to_owned()
}

impl Default for IndexFile {
    fn default() -> Self {
        Self {
            schema_version: 2,
            media_type: oci_index(),
            manifests: Vec::new(),
        }
    }
}

impl Names {
    /// The names in a store.
    pub fn new(content: &Content) -> Self {
        Self {
            content: content.clone(),
        }
    }

    /// All names, in alphabetical order.
    pub fn list(&self) -> Result<Vec<Named>, NamesError> {
        let mut names: Vec<_> = self.read()?.manifests.iter().filter_map(named).collect();
        names.sort_by(|a, b| a.reference.cmp(&b.reference));
        Ok(names)
    }

    /// What a name means. One with a digest means any image of that repository that has the digest, or
    /// was chosen from the index that has it.
    pub fn get(&self, reference: &Reference) -> Result<Option<Named>, NamesError> {
        let names = self.list()?;
        let is_it = |named: &&Named| named.reference == *reference;
        let has_digest = |named: &&Named| {
            reference.digest().is_some_and(|digest| {
                named.reference.registry() == reference.registry()
                    && named.reference.repository() == reference.repository()
                    && (named.manifest.digest == *digest || named.index == Some(*digest))
            })
        };
        let found = names
            .iter()
            .find(is_it)
            .or_else(|| names.iter().find(has_digest));
        Ok(found.cloned())
    }

    /// Gives a name to an image, and answers what had it before. The manifest must be in the store, held by
    /// a [`Hold`](crate::Hold) if nothing else leads to it.
    pub fn set(&self, named: &Named) -> Result<Option<Named>, NamesError> {
        let new = entry(named);
        self.change(|manifests| {
            // Many may say the same at once, and then nothing is written.
            if manifests.contains(&new) {
                return Some(named.clone());
            }
            let before = take(manifests, &named.reference);
            manifests.push(new);
            before
        })
    }

    /// Takes a name away, and answers what had it. The image stays until it is
    /// [collected](Names::collect), unless the disk is full: then it goes first, for there is no room to
    /// write the names anew.
    pub fn remove(&self, reference: &Reference) -> Result<Option<Named>, NamesError> {
        let result = self.change(|manifests| take(manifests, reference));
        if !matches!(result, Err(NamesError::Content(ContentError::Full { .. }))) {
            return result;
        }
        self.collect_without(Some(reference))?;
        self.change(|manifests| take(manifests, reference))
    }

    /// Removes every blob that no name leads to, and answers how many bytes that gave back; `None` if
    /// somebody brings blobs at this time.
    pub fn collect(&self) -> Result<Option<u64>, NamesError> {
        self.collect_without(None)
    }

    fn collect_without(&self, gone: Option<&Reference>) -> Result<Option<u64>, NamesError> {
        let freed = self.content.collect(|| {
            // An index that cannot be read would lead to nothing, and so remove everything.
            let needed = self.needed_without(gone).map_err(|error| match error {
                NamesError::Content(error) => error,
                NamesError::Malformed { .. } => {
                    ContentError::of("read", &self.path(), io::Error::other(error))
                }
            })?;
            Ok(move |digest: &OciDigest| needed.contains(digest))
        })?;
        Ok(freed)
    }

    /// Every blob that a name leads to.
    pub fn needed(&self) -> Result<HashSet<OciDigest>, NamesError> {
        self.needed_without(None)
    }

    fn needed_without(&self, gone: Option<&Reference>) -> Result<HashSet<OciDigest>, NamesError> {
        let mut needed = HashSet::new();
        for value in &self.read()?.manifests {
            if gone.is_some() && named(value).map(|named| named.reference).as_ref() == gone {
                continue;
            }
            if let Some(index) = value["annotations"][CHOSEN_FROM].as_str() {
                needed.extend(index.parse::<OciDigest>());
            }
            if let Ok(descriptor) = Descriptor::deserialize(value) {
                let blob = fs::metadata(self.content.path(&descriptor.digest));
                if blob.is_ok_and(|blob| blob.len() != descriptor.size) {
                    // One of the two is wrong, and by the other it would lead nowhere.
                    return Err(NamesError::Malformed {
                        path: self.path().display().to_string(),
                        problem: format!(
                            "the size that it has for {} is not that of the blob; `tidemill cache verify` tells which is wrong",
                            descriptor.digest
                        ),
                    });
                }
                self.follow(&descriptor, &mut needed, DEPTH_MAX);
            }
        }
        Ok(needed)
    }

    /// Adds what a manifest or an index leads to. What is missing or damaged leads nowhere.
    fn follow(&self, from: &Descriptor, needed: &mut HashSet<OciDigest>, depth: usize) {
        if !needed.insert(from.digest) || depth == 0 {
            return;
        }
        let Ok(bytes) = self.content.read_small(from, MANIFEST_BYTES_MAX) else {
            return;
        };
        match Document::parse(&bytes, Some(&from.media_type)) {
            Ok(Document::Manifest(manifest)) => {
                needed.extend(manifest.blobs().iter().map(|blob| blob.digest));
            }
            Ok(Document::Index(index)) => {
                for entry in &index.entries {
                    self.follow(&entry.descriptor, needed, depth - 1);
                }
            }
            Err(error) => tracing::debug!(%error, "a named document leads nowhere"),
        }
    }

    fn path(&self) -> std::path::PathBuf {
        self.content.base().join(FILE)
    }

    fn read(&self) -> Result<IndexFile, NamesError> {
        let path = self.path();
        let malformed = |problem: String| NamesError::Malformed {
            path: path.display().to_string(),
            problem,
        };
        match fs::metadata(&path) {
            Ok(metadata) if metadata.len() > BYTES_MAX => {
                return Err(malformed(format!("it has {} bytes", metadata.len())));
            }
            _ => {}
        }
        match fs::read(&path) {
            Ok(bytes) => {
                let file: IndexFile =
                    serde_json::from_slice(&bytes).map_err(|error| malformed(shown(&error)))?;
                match file.manifests.iter().enumerate().find_map(damage) {
                    Some(problem) => Err(malformed(problem)),
                    None => Ok(file),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(IndexFile::default()),
            Err(error) => Err(failed("read", &path)(error).into()),
        }
    }

    /// Changes the file while nobody else does.
    fn change<T>(&self, act: impl FnOnce(&mut Vec<Value>) -> T) -> Result<T, NamesError> {
        let lock = self.content.open_lock(LOCK)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(|error| {
            ContentError::of("lock", &self.content.base().join(LOCK), error.into())
        })?;
        let mut file = self.read()?;
        let before = file.manifests.clone();
        let result = act(&mut file.manifests);
        if file.manifests != before {
            let bytes = serde_json::to_vec(&file).expect("JSON values are written as JSON");
            self.content.replace(FILE, &bytes)?;
        }
        Ok(result)
    }
}

/// What is wrong with an entry, if it is one that this program has written. It would lead nowhere, and what it
/// led to would be removed.
fn damage((index, value): (usize, &Value)) -> Option<String> {
    let name = value["annotations"][REF_NAME].as_str();
    let is_ours = |name: &str| {
        let parsed = name.parse::<Reference>();
        parsed.is_ok_and(|parsed| parsed.to_string() == name)
    };
    let annotations = &value["annotations"];
    let are_none = annotations.is_null() || annotations.is_object();
    let is_word = annotations[REF_NAME].is_null() || name.is_some();
    let problem = match (value.is_object(), Descriptor::deserialize(value)) {
        (false, _) => "it is not an object".to_owned(),
        (true, _) if !are_none => "its `annotations` are not an object".to_owned(),
        (true, _) if !is_word => format!("its `{REF_NAME}` is not a text"),
        (true, Err(error)) if name.is_some_and(is_ours) => shown(&error),
        (true, _) => return None,
    };
    let name = name.map_or_else(String::new, |name| format!(" (`{}`)", shown(&name)));
    Some(format!(
        "entry {} of `manifests`{name}: {problem}",
        index + 1
    ))
}

/// Takes the entries with a name out, and answers the last of them.
fn take(manifests: &mut Vec<Value>, reference: &Reference) -> Option<Named> {
    let mut taken = None;
    manifests.retain(|value| match named(value) {
        Some(named) if named.reference == *reference => {
            taken = Some(named);
            false
        }
        _ => true,
    });
    taken
}

/// Reads an entry; `None` if it is none of ours.
fn named(value: &Value) -> Option<Named> {
    let annotations = &value["annotations"];
    let reference: Reference = annotations[REF_NAME].as_str()?.parse().ok()?;
    // Others name images by words that would be names of other images here.
    if reference.to_string() != annotations[REF_NAME].as_str()? {
        return None;
    }
    let platform = &value["platform"];
    let word = |name: &str| platform[name].as_str().unwrap_or_default();
    Some(Named {
        reference,
        manifest: Descriptor::deserialize(value).ok()?,
        platform: Platform::new(
            word("os"),
            word("architecture"),
            platform["variant"].as_str(),
        ),
        index: annotations[CHOSEN_FROM]
            .as_str()
            .and_then(|digest| digest.parse().ok()),
        is_local: annotations[GIVEN_HERE] == "true",
    })
}

fn entry(named: &Named) -> Value {
    let mut annotations = json!({ REF_NAME: named.reference });
    if let Some(index) = named.index {
        annotations[CHOSEN_FROM] = json!(index);
    }
    if named.is_local {
        annotations[GIVEN_HERE] = json!("true");
    }
    json!({
        "mediaType": named.manifest.media_type,
        "digest": named.manifest.digest,
        "size": named.manifest.size,
        "platform": named.platform,
        "annotations": annotations,
    })
}

#[cfg(test)]
mod tests;
