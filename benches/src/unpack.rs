//! What it costs to unpack an image of 300 MB, beside `umoci unpack` and `skopeo copy` to a directory; what a
//! second image costs that has nine tenths of the files; and what ten layers cost a job that starts warm.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, Header};

use crate::figures::{Figures, table};
use crate::rate::static_true;
use crate::start::{binary, timed};

/// Files of an image, beside the program.
const FILES: u32 = 12_000;
/// Bytes of one: 300 MB of all.
const MEAN_BYTES: usize = 25_000;
const LAYERS: u32 = 10;

/// Runs the scenario.
pub(crate) fn run(rounds: usize) -> anyhow::Result<String> {
    for program in ["umoci", "skopeo"] {
        let found = Command::new(program).arg("--version").output();
        ensure!(
            found.is_ok(),
            "{program} is not installed: apt install {program}"
        );
    }
    let scene = Scene::new()?;
    let mut text = String::new();
    for (image, title) in [
        ("one", "an image of 300 MB in one layer"),
        ("ten", "the same in ten layers"),
    ] {
        text.push_str(&scene.first(image, title, rounds)?);
    }
    for (first, second, title) in [
        ("ten", "similar", "nine of ten layers the same"),
        (
            "one",
            "repacked",
            "one layer, nine tenths of its files the same",
        ),
    ] {
        text.push_str(&scene.second(first, second, title, rounds)?);
    }
    text.push_str(&scene.warm(rounds * 20)?);
    Ok(text)
}

/// A layout with the images, and room for what is made of them.
struct Scene {
    directory: tempfile::TempDir,
    tidemill: PathBuf,
    manifests: Vec<Value>,
    /// How many fresh directories there were.
    made: Cell<u32>,
}

/// Wall and processor time.
#[derive(Debug, Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

impl Scene {
    fn new() -> anyhow::Result<Self> {
        let mut scene = Self {
            directory: tempfile::tempdir()?,
            tidemill: binary()?,
            manifests: Vec::new(),
            made: Cell::new(0),
        };
        fs::create_dir_all(scene.layout().join("blobs/sha256"))?;
        let whole: Vec<(u32, u32)> = (0..FILES).map(|number| (number, 0)).collect();
        // The last tenth has other content.
        let changed = whole.iter().map(|(number, _)| {
            let is_changed = *number >= FILES / 10 * 9;
            (*number, u32::from(is_changed))
        });
        let changed: Vec<(u32, u32)> = changed.collect();
        let each = (FILES / LAYERS) as usize;
        scene.add_image("one", &[&whole])?;
        scene.add_image("ten", &whole.chunks(each).collect::<Vec<_>>())?;
        scene.add_image("similar", &changed.chunks(each).collect::<Vec<_>>())?;
        scene.add_image("repacked", &[&changed])?;
        let index = json!({ "schemaVersion": 2, "manifests": scene.manifests });
        fs::write(scene.layout().join("index.json"), index.to_string())?;
        let version = json!({ "imageLayoutVersion": "1.0.0" });
        fs::write(scene.layout().join("oci-layout"), version.to_string())?;
        for image in ["one", "ten", "similar", "repacked"] {
            scene.single(image, &scene.path(&format!("{image}-layout")))?;
        }
        Ok(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn layout(&self) -> PathBuf {
        self.path("layout")
    }

    /// A layout with one of the images and the blobs of all.
    fn single(&self, image: &str, to: &Path) -> anyhow::Result<()> {
        fs::create_dir(to)?;
        std::os::unix::fs::symlink(self.layout().join("blobs"), to.join("blobs"))?;
        fs::copy(self.layout().join("oci-layout"), to.join("oci-layout"))?;
        let is_it = |manifest: &&Value| {
            manifest["annotations"]["org.opencontainers.image.ref.name"] == image
        };
        let manifests: Vec<&Value> = self.manifests.iter().filter(is_it).collect();
        let index = json!({ "schemaVersion": 2, "manifests": manifests });
        Ok(fs::write(to.join("index.json"), index.to_string())?)
    }

    fn add_blob(&self, bytes: &[u8]) -> anyhow::Result<String> {
        let hex = hex(bytes);
        fs::write(self.layout().join("blobs/sha256").join(&hex), bytes)?;
        Ok(format!("sha256:{hex}"))
    }

    fn add_image(&mut self, name: &str, layers: &[&[(u32, u32)]]) -> anyhow::Result<()> {
        let (mut diff_ids, mut descriptors) = (Vec::new(), Vec::new());
        for (number, files) in layers.iter().enumerate() {
            let plain = layer(files, number == 0)?;
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(&plain)?;
            let packed = encoder.finish()?;
            diff_ids.push(format!("sha256:{}", hex(&plain)));
            descriptors.push(json!({
                "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                "digest": self.add_blob(&packed)?, "size": packed.len(),
            }));
        }
        let config = json!({
            "architecture": "amd64", "os": "linux", "config": { "Cmd": ["/true"] },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
            "history": layers.iter().map(|_| json!({})).collect::<Vec<_>>(),
        })
        .to_string();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": self.add_blob(config.as_bytes())?, "size": config.len() },
            "layers": descriptors,
        })
        .to_string();
        self.manifests.push(json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": self.add_blob(manifest.as_bytes())?, "size": manifest.len(),
            "annotations": { "org.opencontainers.image.ref.name": name },
        }));
        Ok(())
    }

    /// A directory that was never there before. ext4 takes long to find room for new files in directories
    /// that lost many a short while ago, so nothing is removed between two measurements.
    fn fresh(&self, name: &str) -> PathBuf {
        let number = self.made.get() + 1;
        self.made.set(number);
        self.path(&format!("{name}-{number}"))
    }

    fn tidemill(&self, state: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.tidemill);
        command.env("TIDEMILL_STATE", state);
        command.current_dir(self.directory.path()).args(arguments);
        command
    }

    fn import(&self, state: &Path, image: &str) -> Command {
        let mut command = self.tidemill(state, &["image", "import"]);
        command
            .arg(self.path(&format!("{image}-layout")))
            .args(["--name", &format!("bench:{image}")]);
        command
    }

    /// Unpacks an image as a whole process: `explain` prepares all that a job needs.
    fn unpack(&self, state: &Path, image: &str) -> Command {
        let name = format!("oci:bench:{image}");
        self.tidemill(state, &["explain", "--no-workspace", "--image", &name])
    }

    fn first(&self, image: &str, title: &str, rounds: usize) -> anyhow::Result<String> {
        let source = format!("{}:{image}", self.layout().display());
        let umoci = || {
            let mut command = Command::new("umoci");
            command.args(["unpack", "--image", &source]);
            command.arg(self.fresh("bundle"));
            command
        };
        let skopeo = |flags: &[&str]| {
            let mut command = Command::new("skopeo");
            command.args(["--insecure-policy", "copy"]).args(flags);
            let to = format!("dir:{}", self.fresh("copy").display());
            command.args([format!("oci:{source}"), to]);
            command
        };
        let mut unpacking = [
            Subject::new("tidemill"),
            Subject::new("umoci unpack"),
            Subject::new("skopeo copy, decompressed"),
        ];
        let mut copying = [
            Subject::new("tidemill image import"),
            Subject::new("skopeo copy, as it is"),
        ];
        for _ in 0..rounds {
            let state = self.fresh("state");
            copying[0].add(cost(self.import(&state, image))?);
            copying[1].add(cost(skopeo(&[]))?);
            unpacking[0].add(cost(self.unpack(&state, image))?);
            unpacking[1].add(cost(umoci())?);
            unpacking[2].add(cost(skopeo(&["--dest-decompress"]))?);
        }
        let unpacked = tables(&format!("{title}, unpacked"), &unpacking);
        Ok(unpacked + &tables(&format!("{title}, packed bytes only"), &copying))
    }

    fn second(
        &self,
        first: &str,
        second: &str,
        title: &str,
        rounds: usize,
    ) -> anyhow::Result<String> {
        let mut subjects = [Subject::new("the first"), Subject::new("the second")];
        let mut disk = (0, 0);
        for _ in 0..rounds {
            let state = self.fresh("state");
            for image in [first, second] {
                timed(self.import(&state, image))?;
            }
            subjects[0].add(cost(self.unpack(&state, first))?);
            disk.0 = bytes_of(&state.join("trees"))?;
            subjects[1].add(cost(self.unpack(&state, second))?);
            disk.1 = bytes_of(&state.join("trees"))? - disk.0;
        }
        let mut text = tables(&format!("a second image: {title}"), &subjects);
        writeln!(
            text,
            "\nOn disk: {} MB, and {} MB more ({:.2}).",
            disk.0 / 1_000_000,
            disk.1 / 1_000_000,
            disk.1 as f64 / disk.0 as f64
        )?;
        Ok(text)
    }

    fn warm(&self, rounds: usize) -> anyhow::Result<String> {
        let state = self.fresh("state");
        let run = |image: &str| {
            let name = format!("oci:bench:{image}");
            self.tidemill(&state, &["run", "--no-workspace", "--image", &name])
        };
        let mut subjects = ["one", "ten"].map(Figures::new);
        for image in ["one", "ten"] {
            timed(self.import(&state, image))?;
            timed(run(image))?;
        }
        for _ in 0..rounds {
            for (figures, image) in subjects.iter_mut().zip(["one", "ten"]) {
                figures.samples.push(timed(run(image))?);
            }
        }
        Ok(table("warm start, by layers", "one", &subjects))
    }
}

/// Bytes on disk below a directory, each file once.
fn bytes_of(directory: &Path) -> anyhow::Result<u64> {
    let (mut bytes, mut seen) = (0, BTreeSet::new());
    let mut todo = vec![directory.to_owned()];
    while let Some(path) = todo.pop() {
        let metadata = fs::symlink_metadata(&path)?;
        if seen.insert(metadata.ino()) {
            bytes += metadata.blocks() * 512;
        }
        if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                todo.push(entry?.path());
            }
        }
    }
    Ok(bytes)
}

/// Wall and processor times of one subject.
struct Subject {
    wall: Figures,
    cpu: Figures,
}

impl Subject {
    fn new(name: &str) -> Self {
        Self {
            wall: Figures::new(name),
            cpu: Figures::new(name),
        }
    }

    fn add(&mut self, cost: Cost) {
        self.wall.samples.push(cost.wall);
        self.cpu.samples.push(cost.cpu);
    }
}

fn tables(title: &str, subjects: &[Subject]) -> String {
    let of = |pick: fn(&Subject) -> &Figures| -> Vec<Figures> {
        let copied = subjects.iter().map(pick).map(|figures| Figures {
            name: figures.name.clone(),
            samples: figures.samples.clone(),
        });
        copied.collect()
    };
    let base = &subjects[0].wall.name;
    let wall = table(&format!("{title}, wall time"), base, &of(|one| &one.wall));
    let cpu = table(
        &format!("{title}, processor time"),
        base,
        &of(|one| &one.cpu),
    );
    wall + &cpu
}

/// Runs a command to its end on a disk that has nothing to do.
fn cost(command: Command) -> anyhow::Result<Cost> {
    rustix::fs::sync();
    let before = children_cpu()?;
    let wall = timed(command)?;
    Ok(Cost {
        wall,
        cpu: children_cpu()? - before,
    })
}

/// Processor time of all children that have ended, in hundredths of a second: the fields 16 and 17 of
/// proc_pid_stat(5).
fn children_cpu() -> anyhow::Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(')').next().context("it has a name")?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = fields[13].parse::<u64>()? + fields[14].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}

/// A layer with these files, each with a number and a version of its content.
fn layer(files: &[(u32, u32)], with_program: bool) -> anyhow::Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    let mut add = |name: &str, mode: u32, content: &[u8]| {
        let mut header = Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        header.set_mtime(1_700_000_000);
        header.set_cksum();
        builder.append_data(&mut header, name, content)
    };
    if with_program {
        add("true", 0o755, &static_true())?;
    }
    for (number, version) in files {
        let name = format!("usr/share/d{}/f{number}", number % 400);
        add(&name, 0o644, &content(*number, *version))?;
    }
    Ok(builder.into_inner()?)
}

/// Text that compresses to about a third, of a size that files have: most are small.
fn content(number: u32, version: u32) -> Vec<u8> {
    const WORDS: [&str; 8] = [
        "static ", "return ", "value", "(self) ", "0x", "\n    ", "size_t ", "; ",
    ];
    let mut state = (u64::from(number) << 32 | u64::from(version)) ^ 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    // One in ten is large.
    let size = if number.is_multiple_of(10) {
        MEAN_BYTES * 6
    } else {
        MEAN_BYTES * 4 / 9
    };
    let mut bytes = Vec::with_capacity(size + 16);
    while bytes.len() < size {
        let random = next();
        bytes.extend_from_slice(WORDS[(random % 8) as usize].as_bytes());
        if random & 0x300 == 0 {
            bytes.extend_from_slice(&random.to_le_bytes());
        }
    }
    bytes.truncate(size);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").expect("writing to a string works");
    }
    text
}
