//! The binary that is tried, and the probes that are run in it: built once, and copied to where every
//! user can read them.

use std::env;
use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

/// Copies that are kept. A suite that runs at the same time may use an older one.
const KEPT_MAX: usize = 16;

/// A binary of this workspace.
#[derive(Debug, Clone, Copy)]
struct Program {
    package: &'static str,
    name: &'static str,
}

const PRODUCT: Program = Program {
    package: "tidemill-cli",
    name: "tidemill",
};
const PROBE: Program = Program {
    package: "tidemill-probes",
    name: "probe",
};

/// The binary under test.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let built = match env::var_os("TIDEMILL_BIN").filter(|path| !path.is_empty()) {
            Some(path) => PathBuf::from(path),
            None => build_once(PRODUCT),
        };
        let _guard = lock("binary");
        publish(&built, PRODUCT)
    })
}

/// The program that tries to break out of a sandbox; see its README.
pub fn probe() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let built = build_once(PROBE);
        let _guard = lock("binary");
        publish(&built, PROBE)
    })
}

/// A file of the suite that is kept from one run to the next, and a lock that is held on it until it is
/// dropped.
pub fn kept(name: &str) -> (PathBuf, File) {
    (base().join(name), lock(name))
}

/// The directory that everything of the suite lies in: readable for all users, owned by this one.
pub(crate) fn base() -> &'static Path {
    static BASE: OnceLock<PathBuf> = OnceLock::new();
    BASE.get_or_init(|| {
        let uid = rustix::process::geteuid().as_raw();
        let base = env::temp_dir().join(format!("tidemill-suite-{uid}"));
        match DirBuilder::new().mode(0o755).create(&base) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                panic!("cannot make {}: {error}", base.display())
            }
            _ => {}
        }
        let metadata = fs::symlink_metadata(&base).expect("the directory was just made");
        assert!(
            metadata.is_dir() && metadata.uid() == uid,
            "{} is not a directory of this user",
            base.display()
        );
        fs::set_permissions(&base, Permissions::from_mode(0o755)).expect("it is ours");
        base
    })
}

/// A lock that all test processes of this machine share, held until it is dropped.
pub(crate) fn lock(name: &str) -> File {
    let path = base().join(format!("{name}.lock"));
    let file = File::create(&path)
        .unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
    flock(&file, FlockOperation::LockExclusive).expect("a lock of our own file can be waited for");
    file
}

/// Builds it, unless another process of the same nextest run has done so.
fn build_once(program: Program) -> PathBuf {
    let _guard = lock("build");
    let Ok(run) = env::var("NEXTEST_RUN_ID") else {
        return build(program);
    };
    let stamp = base().join(format!("built-{}", program.name));
    let noted = fs::read_to_string(&stamp).unwrap_or_default();
    if let Some((noted_run, path)) = noted.split_once('\n')
        && noted_run == run
        && Path::new(path).exists()
    {
        return PathBuf::from(path);
    }
    let path = build(program);
    fs::write(&stamp, format!("{run}\n{}", path.display())).expect("the directory is ours");
    path
}

/// Builds it with the profile that this suite was built with.
fn build(program: Program) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the suite is a folder of the workspace");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(workspace).args([
        "build",
        "--package",
        program.package,
        "--bin",
        program.name,
        "--message-format",
        "json-render-diagnostics",
    ]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let output = command.output().expect("cargo starts");
    assert!(
        output.status.success(),
        "the binary cannot be built:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == program.name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("cargo names the executable that it built")
}

/// Copies it to a directory that every user can read, once for each build.
fn publish(built: &Path, program: Program) -> PathBuf {
    let metadata = fs::metadata(built)
        .unwrap_or_else(|error| panic!("there is no binary {}: {error}", built.display()));
    let mut hasher = DefaultHasher::new();
    let stamp = (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
    (built, stamp).hash(&mut hasher);
    let directory = base().join(format!("bin-{:016x}", hasher.finish()));
    let copy = directory.join(program.name);
    if copy.exists() {
        return copy;
    }
    let mut kept = published();
    kept.sort();
    for (_, old) in kept.iter().rev().skip(KEPT_MAX - 1) {
        fs::remove_dir_all(old).ok();
    }
    for old in left_behind() {
        fs::remove_dir_all(old).ok();
    }
    let draft = base().join(format!("draft-{}", std::process::id()));
    DirBuilder::new()
        .mode(0o755)
        .create(&draft)
        .expect("the directory is ours");
    fs::copy(built, draft.join(program.name)).expect("the binary can be copied");
    fs::set_permissions(draft.join(program.name), Permissions::from_mode(0o755))
        .expect("the copy is ours");
    fs::rename(&draft, &directory).expect("nobody else makes it while the lock is held");
    copy
}

/// Copies that were made before, with the time of their making.
fn published() -> Vec<(i64, PathBuf)> {
    fs::read_dir(base())
        .expect("the directory is ours")
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("bin-"))
        .filter_map(|entry| Some((entry.metadata().ok()?.mtime(), entry.path())))
        .collect()
}

/// Worlds of suites that were killed a long time ago.
fn left_behind() -> Vec<PathBuf> {
    const DAY: Duration = Duration::from_secs(86_400);
    fs::read_dir(base())
        .expect("the directory is ours")
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("t-"))
        .filter(|entry| {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > DAY))
        })
        .map(|entry| entry.path())
        .collect()
}
