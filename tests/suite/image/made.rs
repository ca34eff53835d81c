//! Images as umoci and skopeo make them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tidemill_tests::{Done, Mode, World, busybox_root};

/// An image layout with the image `1`: a busybox root, and a second layer with some file.
pub(super) struct Layout {
    pub(super) path: PathBuf,
}

/// Runs a program that must succeed.
pub(super) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Bytes that do not shrink.
pub(super) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

impl Layout {
    /// `None` if this host has no busybox, which was said then.
    pub(super) fn make(world: &World, second_layer: &[u8]) -> Option<Self> {
        let root = world.path().join("made-root");
        if let Err(why) = busybox_root(&root, world.account()) {
            tidemill_tests::skip(&why);
            return None;
        }
        let file = world.path().join("made-file");
        fs::File::create(&file)
            .unwrap()
            .write_all(second_layer)
            .unwrap();
        let path = world.path().join("layout");
        let layout = path.to_str().unwrap();
        let image = format!("{layout}:1");
        let umoci = |arguments: &[&str]| run("umoci", arguments);
        umoci(&["init", "--layout", layout]);
        umoci(&["new", "--image", &image]);
        let (root, file) = (root.to_str().unwrap(), file.to_str().unwrap());
        let rootless: &[&str] = if Mode::suite_is_root() {
            &[]
        } else {
            &["--rootless"]
        };
        for (source, target) in [(root, "/"), (file, "/srv/second")] {
            let insert = ["insert", "--image", &image];
            umoci(&[&insert, rootless, &[source, target]].concat());
        }
        umoci(&[
            "config",
            "--image",
            &image,
            "--config.cmd",
            "/bin/sh",
            "--config.env",
            "COLOUR=blue",
            "--config.user",
            "app",
            "--config.workingdir",
            "/srv/app",
        ]);
        give_all(world, &path);
        Some(Self { path })
    }

    /// Copies the image with skopeo.
    pub(super) fn copy_to(&self, target: &str, flags: &[&str]) {
        let source = format!("oci:{}:1", self.path.display());
        let start = ["--insecure-policy", "copy", "--dest-tls-verify=false"];
        run("skopeo", &[&start, flags, &[&source, target]].concat());
    }

    /// The digest of the image's manifest.
    pub(super) fn digest(&self) -> String {
        let index = fs::read(self.path.join("index.json")).unwrap();
        let index: Value = serde_json::from_slice(&index).unwrap();
        index["manifests"][0]["digest"].as_str().unwrap().to_owned()
    }
}

/// Makes everything below a path belong to the world's user.
pub(super) fn give_all(world: &World, path: &Path) {
    world.give(path);
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).unwrap() {
            give_all(world, &entry.unwrap().path());
        }
    }
}

/// The answer of a command of `image`.
pub(super) fn image(world: &World, arguments: &[&str]) -> Value {
    let line = [&["image"], arguments, &["--format", "json"]].concat();
    let answer: Value = serde_json::from_slice(&world.ask(line)).unwrap();
    assert_eq!(answer["version"], 1);
    answer
}

/// A command of `image` that must fail with this code, having said this.
pub(super) fn refused(world: &World, arguments: &[&str], code: i32, said: &str) -> Done {
    let before = state(world);
    let done = world.call([&["image"], arguments].concat());
    assert_eq!((done.code, done.out().as_str()), (code, ""), "{done}");
    assert!(done.err().contains(said), "no {said:?}: {done}");
    assert!(done.err().contains("hint: "), "{done}");
    assert_eq!(state(world), before, "the store is as before: {done}");
    done
}

/// Names, blobs and parts of blobs in the store.
pub(super) fn state(world: &World) -> Vec<String> {
    let images = world.state().join("images");
    let mut found = Vec::new();
    for directory in ["blobs/sha256", "partial"] {
        for entry in fs::read_dir(images.join(directory)).into_iter().flatten() {
            found.push(entry.unwrap().file_name().to_string_lossy().into_owned());
        }
    }
    found.sort();
    found.extend(fs::read_to_string(images.join("index.json")));
    found
}
