//! Archives of `docker save` and `podman save`: a `manifest.json` that names configurations and layers. The
//! newer ones are image layouts as well and are read as such.
//! <https://github.com/moby/docker-image-spec/blob/main/v1.2.md#combined-image-json--filesystem-changeset-format>

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use super::source::Files;
use super::{BUFFER_BYTES, Import, ImportError, Imported};
use crate::config::{CONFIG_BYTES_MAX, ImageConfig};
use crate::content::{Committed, ContentError};
use crate::digest::{OciDigest, digest_of};
use crate::image::{Image, ImageError};
use crate::manifest::{Descriptor, Document, LAYERS_MAX, MANIFEST_BYTES_MAX};
use crate::media_type::{OCI_CONFIG, OCI_LAYER, OCI_MANIFEST};
use crate::names::Named;
use crate::reference::Reference;
use crate::shown::shown;

pub(super) const MANIFEST: &str = "manifest.json";
/// Images of an archive.
const IMAGES_MAX: usize = 1000;

/// One image of an archive.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// A manifest as it is written here. The same image gives the same bytes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewManifest<'a> {
    schema_version: u32,
    media_type: &'static str,
    config: &'a Descriptor,
    layers: &'a [Descriptor],
}

impl Import<'_> {
    pub(super) fn docker(&mut self, files: &dyn Files) -> Result<Vec<Imported>, ImportError> {
        let bytes = files.read_small(MANIFEST, MANIFEST_BYTES_MAX)?;
        let saved: Vec<Saved> = serde_json::from_slice(&bytes)
            .map_err(|error| self.entry(MANIFEST, format!("cannot be read: {}", shown(&error))))?;
        if saved.is_empty() || saved.len() > IMAGES_MAX {
            return Err(self.entry(MANIFEST, format!("names {} images", saved.len())));
        }
        let saved: Vec<Saved> = (saved.into_iter())
            .filter(|image| {
                let mut tags = image.repo_tags.iter().flatten();
                self.only.is_none() || tags.any(|tag| self.is_wanted(Some(tag)))
            })
            .collect();
        if let Some(only) = self.only.filter(|_| saved.is_empty()) {
            let only = only.escape_debug();
            return Err(self.not_an_image(format!("it has none that is called `{only}`")));
        }
        if self.options.name.is_some() && saved.len() > 1 {
            let names: Vec<_> = saved
                .iter()
                .map(|image| match image.repo_tags.as_deref() {
                    Some([first, ..]) => first.escape_debug().to_string(),
                    _ => "one without a name".to_owned(),
                })
                .collect();
            return Err(ImportError::Several {
                path: self.source.to_owned(),
                names: names.join(", "),
            });
        }
        let mut imported = Vec::new();
        for saved in &saved {
            let references = self.references(saved)?;
            let image = self.saved_image(files, saved)?;
            for reference in references {
                imported.push(Imported {
                    named: Named {
                        reference,
                        manifest: image.manifest.descriptor.clone(),
                        platform: image.config.platform.clone(),
                        index: None,
                        is_local: true,
                    },
                    image: image.clone(),
                });
            }
        }
        Ok(imported)
    }

    fn references(&self, saved: &Saved) -> Result<Vec<Reference>, ImportError> {
        match saved.repo_tags.as_deref() {
            Some(tags) if !tags.is_empty() && self.options.name.is_none() => {
                let tags = tags.iter().filter(|tag| self.is_wanted(Some(tag)));
                tags.map(|tag| self.name(Some(tag))).collect()
            }
            _ => Ok(vec![self.name(None)?]),
        }
    }

    fn saved_image(&mut self, files: &dyn Files, saved: &Saved) -> Result<Image, ImportError> {
        let bytes = files.read_small(&self.checked(&saved.config)?, CONFIG_BYTES_MAX)?;
        let config = ImageConfig::parse(&bytes)?;
        if saved.layers.len() != config.diff_ids.len() || saved.layers.len() > LAYERS_MAX {
            let problem = format!(
                "names {} layers, and `{}` names {}; {LAYERS_MAX} are read at most",
                saved.layers.len(),
                saved.config.escape_debug(),
                config.diff_ids.len()
            );
            return Err(self.entry(MANIFEST, problem));
        }
        if !self.options.platform.accepts(&config.platform) {
            return Err(ImageError::OtherPlatform {
                digest: digest_of(&bytes),
                found: Box::new(config.platform),
                wanted: Box::new(self.options.platform.clone()),
            }
            .into());
        }
        let digest = self.put(&bytes)?;
        let mut layers = Vec::new();
        for (layer, diff_id) in saved.layers.iter().zip(&config.diff_ids) {
            layers.push(self.saved_layer(files, &self.checked(layer)?, diff_id)?);
        }
        let config = Descriptor {
            media_type: OCI_CONFIG.to_owned(),
            digest,
            size: bytes.len() as u64,
        };
        self.new_image(&config, &bytes, &layers)
    }

    /// Writes a manifest for what is in the store already.
    pub(super) fn new_image(
        &mut self,
        config: &Descriptor,
        config_bytes: &[u8],
        layers: &[Descriptor],
    ) -> Result<Image, ImportError> {
        let manifest = NewManifest {
            schema_version: 2,
            media_type: OCI_MANIFEST,
            config,
            layers,
        };
        let bytes = serde_json::to_vec(&manifest).expect("a manifest is written as JSON");
        let Document::Manifest(manifest) = Document::parse(&bytes, None)? else {
            unreachable!("a manifest was written");
        };
        self.put(&bytes)?;
        Ok(Image::new(manifest, config_bytes)?)
    }

    /// Brings a layer. One that is not compressed is checked by its digest, a compressed one when it is
    /// unpacked.
    fn saved_layer(
        &mut self,
        files: &dyn Files,
        name: &str,
        diff_id: &OciDigest,
    ) -> Result<Descriptor, ImportError> {
        let mut section = files.open(name)?.ok_or_else(|| files.absent(name))?;
        let mut start = [0; 4];
        let length = section
            .peek(&mut start)
            .map_err(|source| files.failed(name, source))?;
        let suffix = match &start[..length] {
            [0x1f, 0x8b, ..] => "+gzip",
            [0x28, 0xb5, 0x2f, 0xfd] => "+zstd",
            _ => {
                let descriptor = Descriptor {
                    media_type: OCI_LAYER.to_owned(),
                    digest: *diff_id,
                    size: section.size,
                };
                self.fetch(files, name, &descriptor)?;
                return Ok(descriptor);
            }
        };
        let mut blob = self.content.create()?;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let length = section
                .read(&mut buffer)
                .map_err(|source| files.failed(name, source))?;
            if length == 0 {
                break;
            }
            blob.write_all(&buffer[..length])
                .map_err(|source| ContentError::of("write to", blob.path(), source))?;
        }
        let Committed {
            digest,
            size,
            is_new,
        } = blob.commit()?;
        if is_new {
            self.added.push(digest);
        }
        Ok(Descriptor {
            media_type: format!("{OCI_LAYER}{suffix}"),
            digest,
            size,
        })
    }

    /// A name that `manifest.json` gives, which must not lead out of the source.
    fn checked(&self, name: &str) -> Result<String, ImportError> {
        super::archive::inside(name)
            .filter(|name| !name.is_empty())
            .ok_or_else(|| self.entry(name, "leads out of the source"))
    }
}
