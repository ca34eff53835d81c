//! Random schedules of everything that can happen, against a judge who knows only the rules: hubs stop,
//! die and start, runners restart and fall silent, answers are lost, reports come late and twice,
//! decisions are made on rows that have changed since. Afterwards the world heals, and every job that was
//! ever accepted has to come to an end.

use proptest::prelude::*;
use proptest::sample::Index;
use tidemill_core::{Millis, ReasonCode};
use tidemill_queue::retry::RetryOn;
use tidemill_queue::submission::{GroupPolicy, GroupUse};
use tidemill_queue::{Return, Submission};

use crate::fleet::Fleet;
use crate::submissions::{failed, job, queue_named, retrying};

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    Submit(Shape),
    Claim {
        runner: Index,
        slots: u32,
        lost: bool,
    },
    GiveClaimUp {
        runner: Index,
    },
    Plan {
        runner: Index,
    },
    CommitPlan {
        which: Index,
    },
    Report {
        runner: Index,
        lost: bool,
    },
    Keep {
        runner: Index,
    },
    DeliverKept {
        which: Index,
    },
    Start {
        runner: Index,
        which: Index,
    },
    End {
        runner: Index,
        which: Index,
        how: u8,
    },
    GiveBack {
        runner: Index,
        which: Index,
        how: Return,
    },
    Restart {
        runner: Index,
    },
    Cancel {
        which: Index,
    },
    Decide {
        which: Index,
        how: u8,
    },
    CommitDecision {
        which: Index,
    },
    Wait {
        seconds: u64,
    },
    Pass {
        hub: Index,
        limit: usize,
    },
    StartHub,
    StopHub {
        hub: Index,
        limit: usize,
    },
    KillHub {
        hub: Index,
    },
    Pause {
        queue: bool,
    },
    Resume {
        queue: bool,
    },
}

/// What is submitted.
#[derive(Debug, Clone)]
struct Shape {
    hub: Index,
    queue: bool,
    submitter: u8,
    priority: i32,
    key: Option<u8>,
    group: Option<(u8, GroupPolicy)>,
    delay: Option<u64>,
    expires: Option<u64>,
    deadline: Option<u64>,
    idempotency: Option<u8>,
    gpu: bool,
    continues: bool,
    retries: u32,
}

impl Shape {
    fn submission(&self) -> Submission {
        let on = RetryOn::Infrastructure;
        let policy = if self.retries > 0 {
            retrying(on, self.retries)
        } else {
            job("")
        };
        let millis = |seconds: u64| Millis(seconds * 1_000);
        let mut submission = Submission {
            queue: queue_named(if self.queue { "main" } else { "other" }),
            submitter: format!("s{}", self.submitter),
            priority: self.priority,
            key: self.key.map(|key| format!("k{key}")),
            group: self.group.map(|(group, policy)| GroupUse {
                name: format!("g{group}"),
                policy,
            }),
            delay: self.delay.map(millis),
            expires_after: self.expires.map(millis),
            deadline_after: self.deadline.map(millis),
            idempotency_key: self.idempotency.map(|key| format!("i{key}")),
            continues: self.continues,
            ..policy
        };
        if self.gpu {
            submission.requirements.labels.insert("gpu".to_owned());
        }
        submission
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let group = prop::sample::select(vec![
        GroupPolicy::QueueAll,
        GroupPolicy::QueueAll,
        GroupPolicy::KeepNewest,
        GroupPolicy::CancelRunning,
        GroupPolicy::Coalesce,
    ]);
    let when = (
        prop::option::weighted(0.2, 1..60_u64),
        prop::option::weighted(0.1, 1..90_u64),
        prop::option::weighted(0.1, 1..200_u64),
    );
    let names = (
        0..3_u8,
        prop::option::weighted(0.3, 0..3_u8),
        prop::option::weighted(0.4, (0..2_u8, group)),
        prop::option::weighted(0.1, 0..2_u8),
    );
    let rest = (
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.9),
        0..3_u32,
    );
    (any::<Index>(), any::<bool>(), -1..2_i32, names, when, rest).prop_map(
        |(hub, queue, priority, names, when, rest)| Shape {
            hub,
            queue,
            priority,
            submitter: names.0,
            key: names.1,
            group: names.2,
            idempotency: names.3,
            delay: when.0,
            expires: when.1,
            deadline: when.2,
            gpu: rest.0,
            continues: rest.1,
            retries: rest.2,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let i = any::<Index>;
    let how = prop::sample::select(vec![Return::Declined, Return::HandedBack]);
    let lost = || prop::bool::weighted(0.2);
    prop_oneof![
        10 => shape().prop_map(Step::Submit),
        10 => (i(), 1..4_u32, lost())
            .prop_map(|(runner, slots, lost)| Step::Claim { runner, slots, lost }),
        1 => i().prop_map(|runner| Step::GiveClaimUp { runner }),
        3 => i().prop_map(|runner| Step::Plan { runner }),
        3 => i().prop_map(|which| Step::CommitPlan { which }),
        10 => (i(), lost()).prop_map(|(runner, lost)| Step::Report { runner, lost }),
        2 => i().prop_map(|runner| Step::Keep { runner }),
        2 => i().prop_map(|which| Step::DeliverKept { which }),
        4 => (i(), i()).prop_map(|(runner, which)| Step::Start { runner, which }),
        8 => (i(), i(), 0..5_u8).prop_map(|(runner, which, how)| Step::End { runner, which, how }),
        2 => (i(), i(), how)
            .prop_map(|(runner, which, how)| Step::GiveBack { runner, which, how }),
        1 => i().prop_map(|runner| Step::Restart { runner }),
        3 => i().prop_map(|which| Step::Cancel { which }),
        3 => (i(), 0..3_u8).prop_map(|(which, how)| Step::Decide { which, how }),
        3 => i().prop_map(|which| Step::CommitDecision { which }),
        8 => (1..12_u64).prop_map(|seconds| Step::Wait { seconds }),
        1 => (20..90_u64).prop_map(|seconds| Step::Wait { seconds }),
        10 => (i(), 0..20_usize).prop_map(|(hub, limit)| Step::Pass { hub, limit }),
        1 => Just(Step::StartHub),
        1 => (i(), 0..5_usize).prop_map(|(hub, limit)| Step::StopHub { hub, limit }),
        1 => i().prop_map(|hub| Step::KillHub { hub }),
        1 => any::<bool>().prop_map(|queue| Step::Pause { queue }),
        2 => any::<bool>().prop_map(|queue| Step::Resume { queue }),
    ]
}

fn play(fleet: &mut Fleet, step: Step) {
    match step {
        Step::Submit(shape) => fleet.submit(&shape.hub, shape.submission()),
        Step::Claim {
            runner,
            slots,
            lost,
        } => fleet.claim(&runner, slots, lost),
        Step::GiveClaimUp { runner } => fleet.give_claim_up(&runner),
        Step::Plan { runner } => fleet.plan(&runner),
        Step::CommitPlan { which } => fleet.commit_plan(&which),
        Step::Report { runner, lost } => fleet.report(&runner, lost),
        Step::Keep { runner } => fleet.keep_report(&runner),
        Step::DeliverKept { which } => fleet.deliver_kept(&which),
        Step::Start { runner, which } => fleet.start(&runner, &which),
        Step::End { runner, which, how } => {
            let ending = match how {
                0..2 => crate::submissions::exit(0),
                2 => crate::submissions::exit(1),
                3 => failed(ReasonCode::Sandbox, "no sandbox"),
                _ => failed(ReasonCode::Memory, "out of memory"),
            };
            fleet.end(&runner, &which, ending);
        }
        Step::GiveBack { runner, which, how } => fleet.give_back(&runner, &which, how),
        Step::Restart { runner } => fleet.restart(&runner),
        Step::Cancel { which } => fleet.cancel(&which),
        Step::Decide { which, how } => fleet.decide(&which, how),
        Step::CommitDecision { which } => fleet.commit_decision(&which),
        Step::Wait { seconds } => fleet.wait(seconds),
        Step::Pass { hub, limit } => fleet.pass(&hub, limit),
        Step::StartHub => fleet.start_hub(),
        Step::StopHub { hub, limit } => fleet.stop_hub(&hub, limit),
        Step::KillHub { hub } => fleet.kill_hub(&hub),
        Step::Pause { queue } => fleet.pause(queue, true),
        Step::Resume { queue } => fleet.pause(queue, false),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn every_schedule_keeps_the_rules_and_every_accepted_job_comes_to_an_end(
        steps in prop::collection::vec(step(), 1..160)
    ) {
        let mut fleet = Fleet::new();
        for step in steps {
            play(&mut fleet, step);
            fleet.judge();
        }
        fleet.heal();
        fleet.judge_end();
    }
}
