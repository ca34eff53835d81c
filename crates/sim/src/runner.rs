//! One runner's dispatcher in the world: steps and answers become messages, calls become events.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tidemill_core::event::Outcome;
use tidemill_core::{Digest, Reason, ReasonCode, Timestamp};
use tidemill_dispatch::{Cause, Completion, Dispatcher, JobEnd, JobId, Key, Message, TimerKind};

use crate::coverage::{Coverage, Kind};
use crate::effect::{Effect, show_message};
use crate::fault::{Fault, FaultKind};
use crate::judge::{Judge, SelfReport};
use crate::mutant::{Mutant, Saboteur};
use crate::names::{BLOBS_MAX, Names, blob, job_label, key_label, show_job};
use crate::panics::caught;
use crate::probe::{Effects, Probe};
use crate::schedule::{Action, Schedule, Stray};
use crate::world::{Due, World};

/// More messages than any schedule makes: beyond them a machine runs in circles.
const MESSAGES_MAX: u64 = 20_000;

/// Labels of what is drawn and scheduled.
const STEP: u64 = 10;
const RUN: u64 = 11;
const KILL: u64 = 12;
const TIMER: u64 = 13;
const LATE_TIMER: u64 = 14;
const GET: u64 = 15;
const READ: u64 = 16;

/// How to play a schedule.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Breaks the dispatcher.
    pub mutant: Option<Mutant>,
    /// Writes everything down.
    pub trace: bool,
}

/// What came of a schedule.
#[derive(Debug)]
pub struct Report {
    /// The first broken rule; the play ended there.
    pub fault: Option<Fault>,
    /// What happened.
    pub coverage: Coverage,
    /// How many messages the dispatcher received.
    pub messages: u64,
    /// Every message and what came of it, if that was asked for.
    pub trace: Vec<String>,
}

/// Plays a schedule to its end or to the first broken rule.
pub fn play(schedule: &Schedule, options: Options) -> Report {
    let mut runner = Runner::new(schedule, options);
    let fault = runner.play().err();
    Report {
        fault,
        coverage: std::mem::take(runner.judge.coverage()),
        messages: runner.messages,
        trace: runner.trace.unwrap_or_default(),
    }
}

/// Everything that happens in this world. Other machines get their own variants.
#[derive(Debug)]
enum Event {
    /// Somebody does something: the place of the step in the schedule.
    Step(usize),
    /// A job's process is gone.
    Completed(JobId, JobEnd),
    /// A timer ran out.
    Timer(JobId, TimerKind),
    /// A fetch, a build or the reading of a manifest has ended.
    Answer(Message),
}

struct Runner {
    schedule: Rc<Schedule>,
    world: World<Event>,
    dispatcher: Dispatcher<Saboteur>,
    effects: Effects,
    judge: Judge,
    names: Rc<RefCell<Names>>,
    is_mutant: bool,
    /// When each process ends.
    running: BTreeMap<JobId, Due>,
    timers: BTreeMap<(JobId, TimerKind), Due>,
    /// How often each key was got.
    tries: BTreeMap<Key, u64>,
    messages: u64,
    last_message: Option<Timestamp>,
    trace: Option<Vec<String>>,
}

impl Runner {
    fn new(schedule: &Schedule, options: Options) -> Self {
        let schedule = Rc::new(schedule.clone());
        let names = Rc::new(RefCell::new(Names::new()));
        let probe = Probe::new(Rc::clone(&schedule), Rc::clone(&names));
        let effects = probe.effects.clone();
        let capacity = Saboteur::capacity(options.mutant, schedule.setting.capacity);
        let mut dispatcher = Dispatcher::new(capacity, Saboteur::new(probe, options.mutant));
        if schedule.setting.strays || options.mutant.is_some() {
            dispatcher = dispatcher.reporting_defects();
        }
        Self {
            world: World::new(schedule.seed),
            judge: Judge::new(&schedule, Rc::clone(&names)),
            schedule,
            dispatcher,
            effects,
            names,
            is_mutant: options.mutant.is_some(),
            running: BTreeMap::new(),
            timers: BTreeMap::new(),
            tries: BTreeMap::new(),
            messages: 0,
            last_message: None,
            trace: options.trace.then(Vec::new),
        }
    }

    fn play(&mut self) -> Result<(), Fault> {
        for (place, step) in self.schedule.steps.iter().enumerate() {
            let label = [STEP, u64::try_from(step.number).unwrap_or(u64::MAX)];
            self.world.schedule(step.at, &label, Event::Step(place));
        }
        while let Some(event) = self.world.advance() {
            if let Some(message) = self.message(event) {
                self.deliver(message)?;
            }
            if self.messages > MESSAGES_MAX {
                let what = format!("more than {MESSAGES_MAX} messages");
                return Err(Fault::new(FaultKind::NeverEnds, what));
            }
        }
        self.judge.finish()
    }

    /// What an event says to the dispatcher.
    fn message(&mut self, event: Event) -> Option<Message> {
        match event {
            Event::Step(place) => {
                let action = self.schedule.steps[place].action.clone();
                self.action(action)
            }
            Event::Completed(job, end) => {
                self.running.remove(&job);
                Some(Message::JobCompleted { job, end })
            }
            Event::Timer(job, timer) => {
                self.timers.remove(&(job, timer));
                Some(Message::TimerFired { job, timer })
            }
            Event::Answer(message) => Some(message),
        }
    }

    fn action(&mut self, action: Action) -> Option<Message> {
        let why = |text| Reason::new(ReasonCode::Shutdown, text);
        match action {
            Action::Enqueue(plan) => Some(Message::Enqueue {
                job: plan.job,
                request: plan.request(),
            }),
            Action::Cancel(job) => Some(Message::Cancel { job }),
            Action::ShutDown => Some(Message::ShutDown {
                reason: why("shut down"),
            }),
            Action::Drain => Some(Message::Drain {
                reason: why("drain"),
            }),
            Action::Stray(stray) => self.stray(stray),
        }
    }

    /// A message against the contract, if at this moment it is one.
    fn stray(&mut self, stray: Stray) -> Option<Message> {
        match stray {
            Stray::EnqueueAgain(plan) => {
                // An id that has ended is another rule: it is never used again.
                self.judge.is_live(plan.job).then(|| Message::Enqueue {
                    job: plan.job,
                    request: plan.request(),
                })
            }
            Stray::CompleteAgain(job) => {
                let end = JobEnd::Ran(Completion::default());
                let executes = self.running.contains_key(&job);
                (!executes).then_some(Message::JobCompleted { job, end })
            }
            Stray::AnswerAgain { key, ok } => {
                let result = if ok {
                    Ok(())
                } else {
                    Err(Cause::from("it is said to have failed"))
                };
                let early = self.judge.is_getting(&key);
                self.judge.coverage().hit_if(early, Kind::AnswerTooEarly);
                Some(answer(key, result))
            }
        }
    }

    /// Gives the dispatcher a message, has the judge look at what comes of it, and lets the world
    /// react.
    fn deliver(&mut self, message: Message) -> Result<(), Fault> {
        let now = self.world.now();
        self.messages += 1;
        let same = self.last_message.replace(now) == Some(now);
        self.judge.coverage().hit_if(same, Kind::OneInstant);
        self.note(|names| format!("at {} ms: {}", now.0 / 1000, show_message(&message, names)));
        self.judge.predict(&message);
        let dispatcher = &mut self.dispatcher;
        let received = caught(|| {
            for message in dispatcher.deps_mut().messages(message) {
                dispatcher.receive(now, message);
            }
            dispatcher.deps_mut().after_message();
        });
        let effects = self.effects.take();
        for effect in &effects {
            self.note(|names| format!("    {}", effect.show(names)));
        }
        received.map_err(|panic| Fault::new(FaultKind::Panicked, panic))?;
        self.check(&effects)?;
        for effect in effects {
            self.react(effect);
        }
        self.evict()
    }

    fn check(&mut self, effects: &[Effect]) -> Result<(), Fault> {
        let dispatcher = &self.dispatcher;
        let phase = |job| dispatcher.phase(job);
        let report = SelfReport {
            room: dispatcher.room(),
            is_done: dispatcher.is_done(),
            phase: &phase,
        };
        // What a broken machine says of itself is not asked: its calls have to give it away.
        self.judge
            .check(effects, (!self.is_mutant).then_some(&report))?;
        if self.is_mutant {
            return Ok(());
        }
        caught(|| dispatcher.check_invariants())
            .map_err(|panic| Fault::new(FaultKind::Panicked, panic))
    }

    fn evict(&mut self) -> Result<(), Fault> {
        let Some(bounds) = self.schedule.setting.bounds else {
            return Ok(());
        };
        let eviction = self.dispatcher.deps_mut().evict(bounds);
        for key in &eviction.remove {
            self.note(|names| format!("    evict {}", names.show(key)));
        }
        self.judge.evicted(bounds, &eviction)
    }

    /// Lets happen later what the dispatcher asked for.
    fn react(&mut self, effect: Effect) {
        match effect {
            Effect::Start(job, _, _) => self.start(job),
            Effect::Kill(job) => self.kill(job),
            Effect::StartTimer(job, timer, after) => self.start_timer(job, timer, after),
            Effect::DropTimer(job, timer) => self.drop_timer(job, timer),
            Effect::Fetch(digest) => self.get(Key::Blob(digest)),
            Effect::Build(key, _) => self.get(key),
            Effect::Read(digest, job, _) => self.read(digest, job),
            Effect::Get(..)
            | Effect::Got(..)
            | Effect::Failed(..)
            | Effect::Release(_)
            | Effect::Status(..)
            | Effect::Ended(..)
            | Effect::Done(_)
            | Effect::Defect(_) => {}
        }
    }

    fn start(&mut self, job: JobId) {
        let [number, attempt] = job_label(job);
        let label = [RUN, number, attempt];
        let mut chance = self.world.chance(&label);
        let reason = |code, text: &str| Reason::new(code, format!("{text}: {}", show_job(job)));
        let end = if chance.percent(self.schedule.setting.start_failures) {
            if chance.percent(50) {
                JobEnd::ExecutionError(reason(ReasonCode::ProgramNotFound, "no such program"))
            } else {
                JobEnd::SystemError(reason(ReasonCode::Sandbox, "no sandbox"))
            }
        } else {
            ran(Outcome {
                exit_code: Some(chance.pick(&[0, 0, 1])),
                ..Outcome::default()
            })
        };
        let after = self.schedule.setting.run_pace.draw(&mut chance);
        let due = self
            .world
            .schedule(after, &label, Event::Completed(job, end));
        self.running.insert(job, due);
    }

    /// The job dies after a while, unless it ends by itself before.
    fn kill(&mut self, job: JobId) {
        let Some(due) = self.running.get(&job).copied() else {
            return;
        };
        let [number, attempt] = job_label(job);
        let label = [KILL, number, attempt];
        let mut chance = self.world.chance(&label);
        let after = Duration::from_millis(chance.pick(&[0, 1, 10, 80, 80]));
        if due.at() <= self.world.now().plus(after) {
            return;
        }
        self.world.cancel(due);
        let end = ran(Outcome {
            signal: Some(9),
            ..Outcome::default()
        });
        let due = self
            .world
            .schedule(after, &label, Event::Completed(job, end));
        self.running.insert(job, due);
    }

    /// Timers fire late, never early.
    fn start_timer(&mut self, job: JobId, timer: TimerKind, after: Duration) {
        let label = timer_label(TIMER, job, timer);
        let mut chance = self.world.chance(&label);
        let late = Duration::from_millis(chance.pick(&[0, 0, 1, 20]));
        let due = (self.world).schedule(after + late, &label, Event::Timer(job, timer));
        self.timers.insert((job, timer), due);
    }

    /// A timer that is dropped may have fired just now, and its message is under way.
    fn drop_timer(&mut self, job: JobId, timer: TimerKind) {
        let Some(due) = self.timers.remove(&(job, timer)) else {
            return;
        };
        let label = timer_label(LATE_TIMER, job, timer);
        let mut chance = self.world.chance(&label);
        self.world.cancel(due);
        if chance.percent(40) {
            let after = Duration::from_millis(chance.below(6).into());
            self.world.schedule(after, &label, Event::Timer(job, timer));
        }
    }

    fn get(&mut self, key: Key) {
        let tries = self.tries.entry(key.clone()).or_default();
        *tries += 1;
        let [kind, name] = key_label(&key);
        let label = [GET, kind, name, *tries];
        let mut chance = self.world.chance(&label);
        let result = if chance.percent(self.schedule.setting.failures) {
            let what = self.names.borrow().show(&key);
            Err(Cause::from(format!(
                "no luck with {what} for the {tries}. time"
            )))
        } else {
            Ok(())
        };
        let after = self.schedule.setting.pace.draw(&mut chance);
        let event = Event::Answer(answer(key, result));
        self.world.schedule(after, &label, event);
    }

    fn read(&mut self, digest: Digest, job: JobId) {
        let [number, attempt] = job_label(job);
        let [kind, name] = key_label(&Key::Blob(digest));
        let label = [READ, kind, name, number, attempt];
        let mut chance = self.world.chance(&label);
        let setting = &self.schedule.setting;
        let result = if chance.percent(setting.failures) {
            Err(Cause::from(format!("no manifest for {}", show_job(job))))
        } else {
            let place = (0..BLOBS_MAX).position(|number| blob(number) == digest);
            let named = place.and_then(|place| setting.manifests.get(place));
            Ok(named
                .into_iter()
                .flatten()
                .map(|number| blob(*number))
                .collect())
        };
        let after = setting.pace.draw(&mut chance);
        let message = Message::ManifestRead {
            digest,
            job,
            result,
        };
        self.world.schedule(after, &label, Event::Answer(message));
    }

    fn note(&mut self, line: impl FnOnce(&Names) -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(line(&self.names.borrow()));
        }
    }
}

fn answer(key: Key, result: Result<(), Cause>) -> Message {
    match key {
        Key::Blob(digest) => Message::BlobFetched { digest, result },
        key @ (Key::Tree(_) | Key::Stack(_)) => Message::LayerBuilt { key, result },
    }
}

fn ran(outcome: Outcome) -> JobEnd {
    let reason = None;
    JobEnd::Ran(Completion { outcome, reason })
}

fn timer_label(what: u64, job: JobId, timer: TimerKind) -> [u64; 4] {
    let [number, attempt] = job_label(job);
    let timer = match timer {
        TimerKind::Prepare => 0,
        TimerKind::Run => 1,
    };
    [what, number, attempt, timer]
}
