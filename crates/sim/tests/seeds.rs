//! The dispatcher against ten thousand schedules.

use tidemill_sim::schedule::Action;
use tidemill_sim::{Options, Schedule, play, play_seeds};

/// One seed instead of all.
const SEED_VARIABLE: &str = "TIDEMILL_SIM_SEED";

const SEEDS: u64 = 10_000;

/// A kind of event that happens less often than this is as good as never tried.
const TIMES_MIN: u64 = 10;

#[test]
fn no_schedule_breaks_a_rule() {
    if let Ok(text) = std::env::var(SEED_VARIABLE) {
        let seed = text.parse().expect("the seed is a number");
        let summary = play_seeds(seed..seed + 1, None);
        let failure = summary.failures.first();
        assert!(
            failure.is_none(),
            "{}",
            failure.map_or_else(String::new, |failure| failure.explain())
        );
        return;
    }
    let summary = play_seeds(0..SEEDS, None);
    if let Some(failure) = summary.failures.first() {
        panic!("{}", failure.explain());
    }
    assert_eq!(summary.seeds, SEEDS);
    let rare: Vec<_> = summary
        .coverage
        .below(TIMES_MIN)
        .iter()
        .map(|kind| kind.text())
        .collect();
    assert!(
        rare.is_empty(),
        "these happened less than {TIMES_MIN} times in {SEEDS} seeds, so they were not tried:\n{}",
        rare.join("\n")
    );
}

#[test]
fn a_seed_plays_the_same_every_time() {
    for seed in 0..50 {
        let options = Options {
            mutant: None,
            trace: true,
        };
        let traces = [0, 1].map(|_| play(&Schedule::of(seed), options).trace);
        assert_eq!(traces[0], traces[1], "seed {seed}");
        assert!(!traces[0].is_empty(), "seed {seed}");
    }
}

#[test]
fn a_step_that_changes_nothing_can_go() {
    // What shrinking relies on: the fate of things does not depend on how many steps there are.
    let mut tried = 0;
    for schedule in (0..400).map(Schedule::of) {
        let Some(number) = cancel_of_an_unknown_job(&schedule) else {
            continue;
        };
        tried += 1;
        let options = Options {
            mutant: None,
            trace: true,
        };
        let mut numbers = schedule.numbers();
        numbers.retain(|other| *other != number);
        let whole = play(&schedule, options).trace;
        let without = play(&schedule.keep(&numbers), options).trace;
        let mut rest = whole.iter();
        let is_part = without.iter().all(|line| rest.any(|other| other == line));
        assert!(is_part, "seed {}", schedule.seed);
        assert_eq!(without.len() + 1, whole.len(), "seed {}", schedule.seed);
    }
    assert!(tried > 5, "{tried}");
}

fn cancel_of_an_unknown_job(schedule: &Schedule) -> Option<usize> {
    let comes = |job| {
        (schedule.steps.iter())
            .any(|step| matches!(&step.action, Action::Enqueue(plan) if plan.job == job))
    };
    schedule.steps.iter().find_map(|step| match &step.action {
        Action::Cancel(job) if !comes(*job) => Some(step.number),
        _ => None,
    })
}
