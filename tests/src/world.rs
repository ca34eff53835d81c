//! One test's own world: a home, a state directory and a working directory that nobody else has, and
//! a copy of the binary by whose path its processes are known.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::binary::{base, binary};
use crate::host::{Doctor, SYSTEM_PATH};
use crate::leavings::Leavings;
use crate::mode::{Account, Mode};
use crate::processes::{Process, processes};
use crate::record::Record;
use crate::root::busybox_root;
use crate::skip::skip;
use crate::trial::{Done, Trial};

/// The variable by which a job's processes are known as this world's.
pub(crate) const MARK: &str = "TIDEMILL_TRIAL";

/// One test's own world. When it goes, it checks that nothing is left of it on the host.
#[derive(Debug)]
pub struct World {
    mode: Mode,
    account: Account,
    directory: TempDir,
    binary: PathBuf,
    before: Leavings,
    trials: AtomicU32,
}

impl World {
    /// A new world. `None` if this mode cannot be tried here, which was said then.
    pub fn new(mode: Mode) -> Option<Self> {
        let account = match mode.account() {
            Ok(account) => account,
            Err(why) => {
                skip(&why);
                return None;
            }
        };
        let before = Leavings::now(&account);
        let published = binary();
        let directory = tempfile::Builder::new()
            .prefix("t-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(base())
            .expect("the suite's directory is ours");
        let own = directory.path().join("bin");
        fs::create_dir(&own).expect("the directory is new");
        let linked = own.join("tidemill");
        fs::hard_link(published, &linked).expect("it lies in the same file system");
        for name in ["home", "work", "results"] {
            let path = directory.path().join(name);
            DirBuilder::new()
                .mode(0o755)
                .create(&path)
                .expect("the directory is new");
            if Mode::suite_is_root() {
                chown(&path, Some(account.uid), Some(account.gid)).expect("root may do so");
            }
        }
        // The state directory does not exist yet, and its user can make it.
        if Mode::suite_is_root() {
            let path = directory.path();
            chown(path, Some(account.uid), Some(account.gid)).expect("root may do so");
        }
        Some(Self {
            mode,
            account,
            directory,
            binary: linked,
            before,
            trials: AtomicU32::new(0),
        })
    }

    /// Who runs the binary.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The user who runs the binary.
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// What is different for every world.
    pub fn id(&self) -> String {
        let name = self.path().file_name().expect("it has a name");
        name.to_string_lossy().into_owned()
    }

    /// The directory that all of this world lies in.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The directory that the binary is started in, and so the jobs' workspace.
    pub fn work(&self) -> PathBuf {
        self.path().join("work")
    }

    /// The home of the user who runs the binary.
    pub fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// The state directory. It does not exist before the first command.
    pub fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    /// This world's copy of the binary.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Writes a file that belongs to the world's user. The directories above it are made.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work().join(path);
        let parent = path.parent().expect("a file lies in a directory");
        self.make_dir(parent);
        fs::write(&path, content).expect("the world is ours");
        self.give(&path);
        path
    }

    /// Makes a directory that belongs to the world's user, with those above it.
    pub fn make_dir(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = self.work().join(path);
        let missing: Vec<PathBuf> = path
            .ancestors()
            .take_while(|path| !path.exists())
            .map(Path::to_path_buf)
            .collect();
        for directory in missing.iter().rev() {
            fs::create_dir(directory).expect("the world is ours");
            self.give(directory);
        }
        path
    }

    /// Makes a path belong to the world's user.
    pub fn give(&self, path: &Path) {
        if Mode::suite_is_root() {
            std::os::unix::fs::lchown(path, Some(self.account.uid), Some(self.account.gid))
                .expect("root may do so");
        }
    }

    /// The small root as a directory of this world. `None` if this host has nothing to make it of, which was
    /// said then.
    pub fn busybox_root(&self) -> Option<PathBuf> {
        let root = self.path().join("root");
        match busybox_root(&root, &self.account) {
            Ok(()) => Some(root),
            Err(why) => {
                skip(&why);
                None
            }
        }
    }

    /// A job: a text for `sh -c`.
    pub fn job(&self, text: &str) -> Trial<'_> {
        self.program(["sh", "-c", text])
    }

    /// A job: a text for `bash -c`.
    pub fn bash(&self, text: &str) -> Trial<'_> {
        self.program(["bash", "-c", text])
    }

    /// A job: a program and its arguments.
    pub fn program<S: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = S>) -> Trial<'_> {
        let number = self.trials.fetch_add(1, Ordering::Relaxed);
        Trial::new(self, Some(number), ["run"]).command(command)
    }

    /// `tidemill run` with nothing but what the test says.
    pub fn bare_run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Trial<'_> {
        Trial::new(self, None, ["run"]).args(arguments)
    }

    /// Another command of the binary, to be changed before it is run.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Trial<'_> {
        Trial::new(self, None, arguments)
    }

    /// Runs another command of the binary to its end.
    pub fn call<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Done {
        self.command(arguments).run()
    }

    /// Runs a command that must succeed, and gives what it wrote to standard output.
    pub fn ask<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Vec<u8> {
        let done = self.call(arguments);
        assert_eq!(done.code, 0, "{done}");
        done.stdout
    }

    /// The records that `ps` lists, the newest first.
    pub fn list(&self, flags: &[&str]) -> Vec<Record> {
        let line = [&["ps", "--format", "json", "--limit", "10000"], flags].concat();
        let mut answer = json_lines(&self.ask(line));
        let list = answer
            .first_mut()
            .map(|document| document["executions"].take());
        let Some(Value::Array(records)) = list else {
            panic!("`ps --format json` lists executions");
        };
        records.into_iter().map(Record).collect()
    }

    /// The record that `show` shows.
    pub fn show(&self, id: &str) -> Record {
        let answer = self.ask(["show", id, "--format", "json"]);
        Record(serde_json::from_slice(&answer).expect("`show --format json` is one JSON value"))
    }

    /// The events of one execution.
    pub fn events(&self, id: &str) -> Vec<Value> {
        json_lines(&self.ask(["events", id, "--format", "json"]))
    }

    /// What the last event of one execution says about its end.
    pub fn outcome(&self, id: &str) -> Value {
        let mut last = self.events(id).pop().expect("an execution has events");
        let outcome = last["event"]["outcome"].take();
        assert!(outcome.is_object(), "{id} has not ended: {last:#}");
        outcome
    }

    /// The exact bytes of one execution's log.
    pub fn raw_log(&self, id: &str) -> Vec<u8> {
        self.ask(["logs", "--raw", id])
    }

    /// What `doctor` finds for this world's user.
    pub fn doctor(&self) -> Doctor {
        let done = self.call(["doctor", "--format", "json"]);
        let answer = serde_json::from_slice(&done.stdout);
        Doctor(answer.unwrap_or_else(|error| panic!("{error}\n{done}")))
    }

    /// The binary as a process, before its arguments.
    pub(crate) fn process(&self, around: &Around) -> Command {
        let mut command = match around {
            Around::Nothing => Command::new(&self.binary),
            Around::Shell(script) => {
                let mut command = Command::new("sh");
                command.args(["-euc", script, "sh"]).arg(&self.binary);
                command
            }
            Around::Mounts(script) => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "--propagation", "private"]);
                command.args(["sh", "-euc", script, "sh"]);
                if self.account.uid != 0 {
                    let uid = self.account.uid.to_string();
                    let gid = self.account.gid.to_string();
                    command.args(["setpriv", "--reuid", &uid, "--regid", &gid]);
                    command.arg("--init-groups");
                }
                command.arg(&self.binary);
                command
            }
        };
        let changes_user_later = matches!(around, Around::Mounts(_));
        if Mode::suite_is_root() && self.account.uid != 0 && !changes_user_later {
            command.uid(self.account.uid).gid(self.account.gid);
        }
        command
            .env_clear()
            .env("PATH", SYSTEM_PATH)
            .env("HOME", self.home())
            .env("USER", &self.account.name)
            .env("LANG", "C.UTF-8")
            .env("TIDEMILL_STATE", self.state())
            .env("PWD", self.work())
            .current_dir(self.work())
            .process_group(0)
            .stdin(Stdio::null());
        command
    }

    /// The processes of this world's jobs that there are now.
    pub fn job_processes(&self) -> Vec<Process> {
        let mark = format!("{MARK}={}", self.id());
        let is_of_job = |process: &Process| {
            let mut variables = process.environment.split(|byte| *byte == 0);
            process.state != 'Z' && variables.any(|variable| variable == mark.as_bytes())
        };
        processes().into_iter().filter(is_of_job).collect()
    }

    /// Panics if something of this world is left on the host, or a record says that something runs.
    pub fn assert_nothing_left(&self) {
        self.before.assert_nothing_new(self);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if thread::panicking() {
            // What the failed test started must not disturb the others.
            Leavings::end_processes(self);
        } else {
            self.assert_nothing_left();
        }
    }
}

/// What runs around the binary: a text for `sh` that ends in `exec "$@"`.
#[derive(Debug)]
pub(crate) enum Around {
    Nothing,
    /// As the world's user.
    Shell(String),
    /// As root, in a mount namespace of its own. The binary is the world's user's all the same.
    Mounts(String),
}

/// JSON values, one a line, or in one list.
fn json_lines(bytes: &[u8]) -> Vec<Value> {
    serde_json::Deserializer::from_slice(bytes)
        .into_iter::<Value>()
        .map(|value| value.unwrap_or_else(|error| panic!("{error}: {}", lossy(bytes))))
        .collect()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
