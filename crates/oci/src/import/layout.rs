//! OCI image layouts. <https://github.com/opencontainers/image-spec/blob/main/image-layout.md>

use serde::Deserialize;

use super::source::Files;
use super::{Import, ImportError, Imported};
use crate::config::CONFIG_BYTES_MAX;
use crate::content::Content;
use crate::image::{Image, ImageError};
use crate::manifest::{Descriptor, Document, Index, IndexEntry, MANIFEST_BYTES_MAX, ManifestError};
use crate::names::Named;
use crate::shown::shown;

pub(super) const LAYOUT: &str = "oci-layout";
pub(super) const INDEX: &str = "index.json";
/// Bytes of the file that says what the directory is.
const LAYOUT_BYTES_MAX: u64 = 4096;
/// Indexes in indexes.
const DEPTH_MAX: usize = 4;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutFile {
    image_layout_version: String,
}

impl Import<'_> {
    pub(super) fn layout(&mut self, files: &dyn Files) -> Result<Vec<Imported>, ImportError> {
        let bytes = files.read_small(LAYOUT, LAYOUT_BYTES_MAX)?;
        let layout: LayoutFile = serde_json::from_slice(&bytes)
            .map_err(|error| self.entry(LAYOUT, format!("cannot be read: {}", shown(&error))))?;
        if !layout.image_layout_version.starts_with("1.") {
            let version = layout.image_layout_version;
            return Err(self.entry(LAYOUT, format!("is of version {version}, not 1")));
        }
        let bytes = files.read_small(INDEX, MANIFEST_BYTES_MAX)?;
        let Document::Index(index) = Document::parse(&bytes, None)? else {
            return Err(self.entry(INDEX, "is not an index"));
        };
        let chosen: Vec<IndexEntry> = self.pick(&index)?.into_iter().cloned().collect();
        let mut imported = Vec::new();
        for entry in chosen {
            let reference = self.name(entry.name.as_deref())?;
            let (image, from) = self.fetch_image(files, &entry.descriptor)?;
            imported.push(Imported {
                named: Named {
                    reference,
                    manifest: image.manifest.descriptor.clone(),
                    platform: image.config.platform.clone(),
                    index: from.map(|index| index.digest),
                    is_local: true,
                },
                image,
            });
        }
        Ok(imported)
    }

    /// One entry for each name, the one for the platform.
    fn pick<'i>(&self, index: &'i Index) -> Result<Vec<&'i IndexEntry>, ImportError> {
        let mut names: Vec<Option<&str>> = Vec::new();
        for entry in &index.entries {
            if self.is_wanted(entry.name.as_deref()) && !names.contains(&entry.name.as_deref()) {
                names.push(entry.name.as_deref());
            }
        }
        if names.is_empty() {
            return Err(self.not_an_image(match self.only {
                Some(only) => format!("it has none that is called `{}`", only.escape_debug()),
                None => "its index is empty".to_owned(),
            }));
        }
        if self.options.name.is_some() && names.len() > 1 {
            let shown: Vec<_> = names
                .iter()
                .map(|name| {
                    name.unwrap_or("one without a name")
                        .escape_debug()
                        .to_string()
                })
                .collect();
            return Err(ImportError::Several {
                path: self.source.to_owned(),
                names: shown.join(", "),
            });
        }
        let pick_one = |name: &Option<&str>| {
            let same: Vec<_> = index
                .entries
                .iter()
                .filter(|entry| entry.name.as_deref() == *name)
                .collect();
            if let [only] = same.as_slice() {
                return Ok(*only);
            }
            let several = Index {
                entries: same.iter().map(|&entry| entry.clone()).collect(),
            };
            let chosen = self
                .options
                .platform
                .choose(&several)
                .map_err(ImageError::from)?;
            Ok(same
                .into_iter()
                .find(|entry| *entry == chosen)
                .expect("what was chosen is one of them"))
        };
        names.iter().map(pick_one).collect()
    }

    /// Brings an image, and what it was chosen from.
    fn fetch_image(
        &mut self,
        files: &dyn Files,
        from: &Descriptor,
    ) -> Result<(Image, Option<Descriptor>), ImportError> {
        let mut index = None;
        let mut next = from.clone();
        for _ in 0..=DEPTH_MAX {
            let bytes = self.document(files, &next)?;
            match Document::parse(&bytes, Some(&next.media_type))? {
                Document::Index(inner) => {
                    index.get_or_insert(next);
                    let chosen = self.options.platform.choose(&inner);
                    next = chosen.map_err(ImageError::from)?.descriptor.clone();
                }
                Document::Manifest(manifest) => {
                    if manifest.config.size > CONFIG_BYTES_MAX {
                        return Err(self.entry(
                            &blob(&manifest.config),
                            format!("is a configuration of {} bytes", manifest.config.size),
                        ));
                    }
                    self.fetch(files, &blob(&manifest.config), &manifest.config)?;
                    let config = self
                        .content
                        .read_small(&manifest.config, CONFIG_BYTES_MAX)?;
                    let image = Image::new(manifest, &config)?;
                    image.check_platform(&self.options.platform)?;
                    for layer in &image.manifest.layers {
                        self.fetch(files, &blob(&layer.descriptor), &layer.descriptor)?;
                    }
                    return Ok((image, index));
                }
            }
        }
        Err(ImageError::Depth {
            digest: next.digest,
        }
        .into())
    }

    fn document(
        &mut self,
        files: &dyn Files,
        descriptor: &Descriptor,
    ) -> Result<Vec<u8>, ImportError> {
        if !descriptor.is_document() {
            return Err(ManifestError::Kind {
                digest: descriptor.digest,
                media_type: descriptor.media_type.escape_debug().to_string(),
            }
            .into());
        }
        if descriptor.size > MANIFEST_BYTES_MAX {
            let problem = format!("is a manifest of {} bytes", descriptor.size);
            return Err(self.entry(&blob(descriptor), problem));
        }
        self.fetch(files, &blob(descriptor), descriptor)?;
        let content: &Content = self.content;
        Ok(content.read_small(descriptor, MANIFEST_BYTES_MAX)?)
    }
}

/// Where a layout has a blob.
fn blob(descriptor: &Descriptor) -> String {
    format!("blobs/sha256/{}", descriptor.digest.to_hex())
}
