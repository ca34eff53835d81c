//! Short names for what the schedules are about: blobs `b0`, `b1`, …, layers, stacks and jobs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tidemill_core::{Attempt, Digest, ExecutionId};
use tidemill_dispatch::{BlobForm, JobId, Key, LayerRef, StackKey};

/// How many different blobs there are at most.
pub const BLOBS_MAX: u8 = 8;

/// The blob of this number.
pub fn blob(number: u8) -> Digest {
    Digest::of(&[number])
}

/// The job of this number and attempt.
pub fn job_id(execution: u32, attempt: u32) -> JobId {
    JobId {
        execution: ExecutionId::for_test(execution.into()),
        attempt: Attempt(attempt),
    }
}

/// The job's name: its number, and the attempt if it is not the first.
pub fn show_job(job: JobId) -> String {
    let number = job.execution.as_uuid().as_u128();
    match job.attempt.0 {
        1 => format!("job {number}"),
        attempt => format!("job {number} (attempt {attempt})"),
    }
}

/// What a job's number and attempt are as parts of a label.
pub(crate) fn job_label(job: JobId) -> [u64; 2] {
    let number = job.execution.as_uuid().as_u128();
    let number = u64::try_from(number).unwrap_or(u64::MAX);
    [number, job.attempt.0.into()]
}

/// What a key is as parts of a label.
pub(crate) fn key_label(key: &Key) -> [u64; 2] {
    let first = |digest: &Digest| {
        let bytes = digest.as_bytes().first_chunk().copied();
        u64::from_le_bytes(bytes.unwrap_or_default())
    };
    match key {
        Key::Blob(digest) => [1, first(digest)],
        Key::Tree(LayerRef::Blob { digest, form }) => match form {
            BlobForm::Archive => [2, first(digest)],
            BlobForm::Manifest => [3, first(digest)],
        },
        Key::Tree(LayerRef::Local(name)) => {
            let fold = |sum: u64, byte: u8| sum.wrapping_mul(257).wrapping_add(byte.into());
            [4, name.bytes().fold(0, fold)]
        }
        Key::Stack(stack) => [5, first(&stack.digest)],
    }
}

/// Knows what digests stand for.
#[derive(Debug)]
pub struct Names {
    blobs: Vec<Digest>,
    stacks: BTreeMap<StackKey, Vec<LayerRef>>,
}

impl Names {
    /// The blobs; stacks become known with [`Self::learn`].
    pub fn new() -> Self {
        Self {
            blobs: (0..BLOBS_MAX).map(blob).collect(),
            stacks: BTreeMap::new(),
        }
    }

    /// Learns the stacks of a list of layers, the lowest first, and returns the key of each height.
    /// The lowest is the tree itself.
    ///
    /// # Panics
    /// If two different lists have one key.
    pub fn learn(&mut self, layers: &[LayerRef]) -> Vec<Key> {
        let mut keys = Vec::new();
        let mut below: Option<StackKey> = None;
        for (place, layer) in layers.iter().enumerate() {
            let stack = below.map_or_else(|| StackKey::lowest(layer), |below| below.under(layer));
            let list = layers[..=place].to_vec();
            let known = self.stacks.entry(stack).or_insert_with(|| list.clone());
            assert_eq!(*known, list, "two lists of layers have one key");
            keys.push(if place == 0 {
                Key::Tree(layer.clone())
            } else {
                Key::Stack(stack)
            });
            below = Some(stack);
        }
        keys
    }

    /// The layers of a stack that was learnt.
    pub fn layers_of(&self, stack: &StackKey) -> Option<&[LayerRef]> {
        self.stacks.get(stack).map(Vec::as_slice)
    }

    /// A blob's name.
    pub fn show_blob(&self, digest: Digest) -> String {
        match self.blobs.iter().position(|blob| *blob == digest) {
            Some(number) => format!("b{number}"),
            None => digest.to_string(),
        }
    }

    /// A layer's name.
    pub fn show_layer(&self, layer: &LayerRef) -> String {
        match layer {
            LayerRef::Local(name) => name.to_string(),
            LayerRef::Blob { digest, form } => format!("{form}:{}", self.show_blob(*digest)),
        }
    }

    /// A key's name.
    pub fn show(&self, key: &Key) -> String {
        match key {
            Key::Blob(digest) => format!("blob {}", self.show_blob(*digest)),
            Key::Tree(layer) => format!("tree {}", self.show_layer(layer)),
            Key::Stack(stack) => match self.stacks.get(stack) {
                None => format!("stack {stack}"),
                Some(layers) => {
                    let layers: Vec<_> = layers.iter().map(|each| self.show_layer(each)).collect();
                    format!("stack {}", layers.join("+"))
                }
            },
        }
    }

    /// Where a key is, the so-manyth time that it came.
    pub fn path(&self, key: &Key, generation: u32) -> PathBuf {
        PathBuf::from(format!(
            "/{}@{generation}",
            self.show(key).replace(' ', "/")
        ))
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_by_short_names() {
        let mut names = Names::new();
        let layers = [LayerRef::local("l1"), LayerRef::archive(blob(3))];
        let keys = names.learn(&layers);
        let shown: Vec<_> = keys.iter().map(|key| names.show(key)).collect();
        assert_eq!(shown, ["tree l1", "stack l1+archive:b3"]);
        assert_eq!(names.show(&Key::Blob(blob(2))), "blob b2");
        assert_eq!(names.path(&keys[0], 2), PathBuf::from("/tree/l1@2"));
        let Key::Stack(stack) = keys[1] else {
            panic!("two layers make a stack");
        };
        assert_eq!(names.layers_of(&stack), Some(&layers[..]));
    }

    #[test]
    fn jobs_are_shown_by_numbers() {
        assert_eq!(show_job(job_id(3, 1)), "job 3");
        assert_eq!(show_job(job_id(3, 2)), "job 3 (attempt 2)");
        assert_eq!(job_label(job_id(3, 2)), [3, 2]);
    }
}
