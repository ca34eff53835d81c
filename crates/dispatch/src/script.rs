//! Tests as short text: messages in, effects out.
//!
//! A script has one message per line. The transcript repeats each after `> ` and lists below it,
//! indented, what the dispatcher did. Jobs are numbers, blobs are words. After every message the
//! invariants are checked and the references are counted; at the end, if no job is left, nothing
//! may be left of any.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::event::{Outcome, Status};
use tidemill_core::limits::parse_duration;
use tidemill_core::{
    Attempt, ByteSize, Digest, ExecutionId, JobSpec, Reason, ReasonCode, Timestamp,
};

use crate::cache::{Cache, CacheTable, Get};
use crate::deps::{Defect, Deps, Ending, Recipe, Root, TimerKind};
use crate::dispatcher::Dispatcher;
use crate::job::{JobId, JobRequest};
use crate::key::{Key, LayerRef, StackKey};
use crate::message::{Cause, Completion, JobEnd, Message};
use crate::slots::Capacity;

/// Plays a script and returns its transcript. `capacity` is `slots=2 mem=4GiB cpus=2`.
pub(crate) fn play(capacity: &str, script: &str) -> String {
    Player::new(capacity).play(script)
}

/// Plays a script in which invariants may be broken, as a release build does.
pub(crate) fn play_reporting_defects(capacity: &str, script: &str) -> String {
    let mut player = Player::new(capacity);
    player.dispatcher = player.dispatcher.reporting_defects();
    player.play(script)
}

struct Player {
    dispatcher: Dispatcher<World>,
    now: Timestamp,
}

impl Player {
    fn new(capacity: &str) -> Self {
        Self {
            dispatcher: Dispatcher::new(parse_capacity(capacity), World::default()),
            now: Timestamp(0),
        }
    }

    fn play(mut self, script: &str) -> String {
        let mut transcript = String::new();
        for line in script
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            writeln!(transcript, "> {line}").unwrap();
            if line == "room" {
                let room = self.dispatcher.room();
                write!(transcript, "  {} slots", room.slots).unwrap();
                if let Some(memory) = room.memory {
                    write!(transcript, ", {memory}").unwrap();
                }
                if let Some(cpus) = room.cpus {
                    write!(transcript, ", {cpus} cpus").unwrap();
                }
                transcript.push('\n');
                continue;
            }
            let message = self.dispatcher.deps_mut().parse(line);
            self.now = self.now.plus(Duration::from_secs(1));
            self.dispatcher.receive(self.now, message);
            for effect in self.dispatcher.deps().effects.take() {
                writeln!(transcript, "  {effect}").unwrap();
            }
            check(&self.dispatcher);
        }
        transcript
    }
}

/// Panics if the dispatcher contradicts itself or the cache.
pub(crate) fn check(dispatcher: &Dispatcher<World>) {
    dispatcher.check_invariants();
    let world = dispatcher.deps();
    let held = dispatcher.references();
    for key in held.keys().chain(&world.seen) {
        let here = world.table.references(key);
        let expected = held.get(key).copied().unwrap_or(0);
        assert_eq!(here, expected, "references of {}", world.key(key));
    }
    if dispatcher.jobs().next().is_none() {
        assert_eq!(*world.alive.borrow(), 0, "a sandbox or timer is left");
    }
}

/// The job that a script calls by this number.
pub(crate) fn job(number: u32) -> JobId {
    JobId {
        execution: ExecutionId::for_test(number.into()),
        attempt: Attempt(1),
    }
}

pub(crate) fn number(job: JobId) -> u128 {
    job.execution.as_uuid().as_u128()
}

fn parse_capacity(text: &str) -> Capacity {
    let mut capacity = Capacity::slots(NonZeroU32::MIN);
    for word in text.split_whitespace() {
        match word.split_once('=').unwrap() {
            ("slots", value) => capacity.slots = value.parse().unwrap(),
            ("mem", value) => capacity.memory = Some(value.parse().unwrap()),
            ("cpus", value) => capacity.cpus = Some(value.parse().unwrap()),
            (name, _) => panic!("unknown part of a capacity: {name}"),
        }
    }
    capacity
}

/// A small world that works and records: a real cache table, handles that tell when they are
/// dropped.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) effects: Rc<RefCell<Vec<String>>>,
    pub(crate) calls: Vec<Call>,
    pub(crate) table: CacheTable,
    /// How many handles exist.
    pub(crate) alive: Rc<RefCell<usize>>,
    /// Every key that was ever asked for.
    seen: Vec<Key>,
    names: BTreeMap<Digest, String>,
}

/// What the random schedules look at.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Start(JobId),
    Timer(JobId, TimerKind),
    Fetch(Digest),
    Build(Key),
    Read(Digest, JobId),
    Status(JobId, Status),
    Ended(JobId, Ending),
    Done,
}

/// A sandbox or a timer.
#[derive(Debug)]
pub(crate) struct Handle {
    what: String,
    effects: Rc<RefCell<Vec<String>>>,
    alive: Rc<RefCell<usize>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.effects
            .borrow_mut()
            .push(format!("drop {}", self.what));
        *self.alive.borrow_mut() -= 1;
    }
}

impl World {
    fn note(&self, effect: String) {
        self.effects.borrow_mut().push(effect);
    }

    fn handle(&self, what: String) -> Handle {
        *self.alive.borrow_mut() += 1;
        Handle {
            what,
            effects: Rc::clone(&self.effects),
            alive: Rc::clone(&self.alive),
        }
    }

    /// The blob that a script calls by this word.
    fn blob(&mut self, word: &str) -> Digest {
        let digest = Digest::of(word.as_bytes());
        self.names.insert(digest, word.to_owned());
        digest
    }

    fn layer(&mut self, word: &str) -> LayerRef {
        match word.split_once(':') {
            Some(("local", name)) => LayerRef::local(name),
            Some(("manifest", name)) => LayerRef::manifest(self.blob(name)),
            Some((kind, _)) => panic!("unknown kind of layer: {kind}"),
            None => LayerRef::archive(self.blob(word)),
        }
    }

    /// The tree `a`, or the stack `a+b+c`.
    fn tree_or_stack(&mut self, text: &str) -> Key {
        let layers: Vec<_> = text.split('+').map(|word| self.layer(word)).collect();
        if let [layer] = layers.as_slice() {
            return Key::Tree(layer.clone());
        }
        let lowest = StackKey::lowest(&layers[0]);
        let stack = layers[1..]
            .iter()
            .fold(lowest, |below, layer| below.under(layer));
        self.names.insert(stack.digest, text.to_owned());
        Key::Stack(stack)
    }

    fn name(&self, digest: Digest) -> String {
        (self.names.get(&digest)).map_or_else(|| digest.to_string(), Clone::clone)
    }

    fn layer_name(&self, layer: &LayerRef) -> String {
        match layer {
            LayerRef::Local(name) => format!("local:{name}"),
            LayerRef::Blob { digest, .. } if *layer == LayerRef::manifest(*digest) => {
                format!("manifest:{}", self.name(*digest))
            }
            LayerRef::Blob { digest, .. } => self.name(*digest),
        }
    }

    pub(crate) fn key(&self, key: &Key) -> String {
        match key {
            Key::Blob(digest) => format!("blob {}", self.name(*digest)),
            Key::Tree(layer) => format!("tree {}", self.layer_name(layer)),
            Key::Stack(stack) => format!("stack {}", self.name(stack.digest)),
        }
    }

    /// A reason with the names of a script instead of digests.
    fn reason(&self, reason: &Reason) -> String {
        let mut text = format!("{}: {}", reason.code, reason.message);
        for (digest, name) in &self.names {
            text = text.replace(&digest.to_string(), name);
        }
        if let Some(hint) = &reason.hint {
            write!(text, " (hint: {hint})").unwrap();
        }
        text
    }

    fn end(&self, end: &JobEnd) -> String {
        match end {
            JobEnd::Ran(completion) => ran(completion),
            JobEnd::ExecutionError(reason) => format!("execution error: {}", self.reason(reason)),
            JobEnd::SystemError(reason) => format!("system error: {}", self.reason(reason)),
        }
    }

    /// One line of a script.
    fn parse(&mut self, line: &str) -> Message {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (first, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        let of_job = || job(first.parse().expect("a job is a number"));
        let reason = |code| Reason::new(code, tail);
        let error = |text: &str| match text.strip_prefix("error ") {
            Some(cause) => Err(Cause::from(cause)),
            None => Ok(()),
        };
        match verb {
            "enqueue" => Message::Enqueue {
                job: of_job(),
                request: self.parse_request(tail),
            },
            "cancel" => Message::Cancel { job: of_job() },
            "exited" => {
                let exit_code = Some(tail.parse().unwrap_or(0));
                let outcome = Outcome {
                    exit_code,
                    ..Outcome::default()
                };
                let reason = None;
                let end = JobEnd::Ran(Completion { outcome, reason });
                Message::JobCompleted { job: of_job(), end }
            }
            "execution-error" => Message::JobCompleted {
                job: of_job(),
                end: JobEnd::ExecutionError(reason(ReasonCode::ProgramNotFound)),
            },
            "system-error" => Message::JobCompleted {
                job: of_job(),
                end: JobEnd::SystemError(reason(ReasonCode::Sandbox)),
            },
            "time-up" => Message::TimerFired {
                job: of_job(),
                timer: TimerKind::Run,
            },
            "prepare-time-up" => Message::TimerFired {
                job: of_job(),
                timer: TimerKind::Prepare,
            },
            "fetched" => Message::BlobFetched {
                digest: self.blob(first),
                result: error(tail),
            },
            "built" => Message::LayerBuilt {
                key: self.tree_or_stack(first),
                result: error(tail),
            },
            "read" => {
                let (of_job, tail) = tail.split_once(' ').unwrap_or((tail, ""));
                let digest = self.blob(first);
                let result = error(tail).map(|()| {
                    let blobs = tail.split_whitespace();
                    blobs.map(|word| self.blob(word)).collect()
                });
                Message::ManifestRead {
                    digest,
                    job: job(of_job.parse().unwrap()),
                    result,
                }
            }
            "shut-down" => Message::ShutDown {
                reason: Reason::new(ReasonCode::Shutdown, rest),
            },
            "drain" => Message::Drain {
                reason: Reason::new(ReasonCode::Shutdown, rest),
            },
            _ => panic!("unknown message: {line}"),
        }
    }

    fn parse_request(&mut self, text: &str) -> JobRequest {
        let mut spec = JobSpec::new("true", []);
        let mut layers = Vec::new();
        let mut prepare_timeout = None;
        for word in text.split_whitespace() {
            match word.split_once('=') {
                None => layers.push(word),
                Some(("priority", value)) => spec.priority = value.parse().unwrap(),
                Some(("estimate", value)) => spec.estimate = Some(parse_duration(value).unwrap()),
                Some(("mem", value)) => spec.limits.memory = Some(value.parse().unwrap()),
                Some(("cpus", value)) => spec.limits.cpus = Some(value.parse().unwrap()),
                Some(("timeout", value)) => {
                    spec.limits.timeout = Some(parse_duration(value).unwrap());
                }
                Some(("prepare", value)) => {
                    prepare_timeout = Some(parse_duration(value).unwrap().as_duration());
                }
                Some((name, _)) => panic!("unknown part of a job: {name}"),
            }
        }
        for top in 0..layers.len() {
            self.tree_or_stack(&layers[..=top].join("+"));
        }
        JobRequest {
            layers: layers.into_iter().map(|word| self.layer(word)).collect(),
            prepare_timeout,
            ..JobRequest::new(Arc::new(spec))
        }
    }
}

fn ran(completion: &Completion) -> String {
    match completion.outcome.exit_code {
        Some(code) => format!("exit code {code}"),
        None => "no exit code".to_owned(),
    }
}

impl Cache for World {
    fn get(&mut self, key: &Key, job: JobId) -> Get {
        if !self.seen.contains(key) {
            self.seen.push(key.clone());
        }
        self.table.get(key, job)
    }

    fn got(&mut self, key: &Key) -> Vec<JobId> {
        self.table.got(key)
    }

    fn failed(&mut self, key: &Key) -> Vec<JobId> {
        self.table.failed(key)
    }

    fn release(&mut self, key: &Key) {
        self.note(format!("release {}", self.key(key)));
        self.table.release(key);
    }

    fn path(&self, key: &Key) -> PathBuf {
        assert!(
            self.table.references(key) > 0,
            "{key} has a path, but nobody holds it"
        );
        PathBuf::from(self.key(key).replace(' ', "/"))
    }
}

impl Deps for World {
    type Sandbox = Handle;
    type Timer = Handle;

    fn start_sandbox(&mut self, job: JobId, _spec: &Arc<JobSpec>, root: Root) -> Handle {
        let trees: Vec<_> = root
            .trees
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let mut effect = format!("start {}", number(job));
        if let Some(top) = root.top {
            write!(effect, " on {} ({})", top.display(), trees.join(" ")).unwrap();
        }
        self.note(effect);
        self.calls.push(Call::Start(job));
        self.handle(format!("sandbox of {}", number(job)))
    }

    fn start_timer(&mut self, job: JobId, timer: TimerKind, after: Duration) -> Handle {
        let what = match timer {
            TimerKind::Prepare => format!("prepare timer of {}", number(job)),
            TimerKind::Run => format!("timer of {}", number(job)),
        };
        self.note(format!("start {what}: {after:?}"));
        self.calls.push(Call::Timer(job, timer));
        self.handle(what)
    }

    fn fetch(&mut self, digest: Digest) {
        self.note(format!("fetch {}", self.name(digest)));
        self.calls.push(Call::Fetch(digest));
    }

    fn build(&mut self, key: &Key, recipe: Recipe) {
        let show = |path: &Path| path.display().to_string();
        let from = match recipe {
            Recipe::Tree { blobs, .. } => blobs.iter().map(|(_, path)| show(path)).collect(),
            Recipe::Stack { lower, upper } => vec![show(&lower), show(&upper)],
        };
        let from = if from.is_empty() {
            String::new()
        } else {
            format!(" from {}", from.join(" "))
        };
        self.note(format!("build {}{from}", self.key(key)));
        self.calls.push(Call::Build(key.clone()));
    }

    fn read_manifest(&mut self, digest: Digest, job: JobId, path: PathBuf) {
        self.note(format!("read {} for {}", path.display(), number(job)));
        self.calls.push(Call::Read(digest, job));
    }

    fn status(&mut self, job: JobId, status: Status) {
        let text = match status {
            Status::WaitingForLayers => "waiting for layers",
            Status::WaitingToExecute => "waiting to execute",
            Status::Executing => "executing",
        };
        self.note(format!("tell: {} is {text}", number(job)));
        self.calls.push(Call::Status(job, status));
    }

    fn ended(&mut self, job: JobId, ending: Ending) {
        let who = if ending.is_told_to_hub() {
            "tell"
        } else {
            "locally"
        };
        let after = |end: &Option<JobEnd>| match end {
            Some(end) => format!(", then {}", self.end(end)),
            None => String::new(),
        };
        let how = match &ending {
            Ending::Completed(completion) => format!("completed, {}", ran(completion)),
            Ending::TimedOut { timer, end } => format!("timed out ({timer:?}){}", after(end)),
            Ending::ExecutionError(reason) => format!("execution error: {}", self.reason(reason)),
            Ending::SystemError(reason) => format!("system error: {}", self.reason(reason)),
            Ending::HandedBack => "handed back".to_owned(),
            Ending::Cancelled(end) => format!("cancelled{}", after(end)),
            Ending::Dropped(end) => format!("dropped{}", after(end)),
        };
        self.note(format!("{who}: {} {how}", number(job)));
        self.calls.push(Call::Ended(job, ending));
    }

    fn done(&mut self, reason: &Reason) {
        self.note(format!("done: {}", reason.message));
        self.calls.push(Call::Done);
    }

    fn defect(&mut self, defect: Defect) {
        let text = match defect {
            Defect::EnqueuedTwice(job) => format!("{} was enqueued twice", number(job)),
            Defect::NotExecuting(job) => format!("{} does not execute", number(job)),
            Defect::NotAwaited(key) => format!("nobody awaits {}", self.key(&key)),
        };
        self.note(format!("defect: {text}"));
    }
}

/// A size, for random schedules.
pub(crate) const fn mib(count: u64) -> Option<ByteSize> {
    Some(ByteSize::mib(count))
}
