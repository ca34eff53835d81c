//! The simulator notices a broken dispatcher, whatever is broken, and names it.

use tidemill_sim::{Mutant, play_seeds};

/// Enough seeds for each mutant to be caught many times over.
const SEEDS: u64 = 400;

fn check(mutant: Mutant) {
    let summary = play_seeds(0..SEEDS, Some(mutant));
    let failure = summary.failures.first();
    let failure = failure.unwrap_or_else(|| panic!("{mutant} was not caught in {SEEDS} seeds"));
    for failure in &summary.failures {
        assert!(
            mutant.caught_as().contains(&failure.fault.kind),
            "{mutant} was taken for something else: {failure}"
        );
    }
    let text = failure.explain();
    for part in [
        format!("seed {}:", failure.seed),
        format!("--seed {} --keep", failure.seed),
        "\nat ".to_owned(),
    ] {
        assert!(text.contains(&part), "{part} is missing:\n{text}");
    }
}

macro_rules! caught {
    ($($test:ident: $mutant:ident,)*) => {
        $(
            #[test]
            fn $test() {
                check(Mutant::$mutant);
            }
        )*

        #[test]
        fn every_mutant_has_a_test() {
            assert_eq!([$(Mutant::$mutant),*], Mutant::ALL);
        }
    };
}

caught! {
    lose_release: LoseRelease,
    double_release: DoubleRelease,
    release_at_kill: ReleaseAtKill,
    release_build_inputs: ReleaseBuildInputs,
    release_late: ReleaseLate,
    fetch_twice: FetchTwice,
    fetch_for_waiters: FetchForWaiters,
    lose_fetch: LoseFetch,
    swap_stack: SwapStack,
    forget_waiter: ForgetWaiter,
    start_without_top: StartWithoutTop,
    lose_timer: LoseTimer,
    keep_timer: KeepTimer,
    keep_sandbox: KeepSandbox,
    lose_status: LoseStatus,
    double_status: DoubleStatus,
    lose_ending: LoseEnding,
    double_ending: DoubleEnding,
    mix_errors: MixErrors,
    report_cancelled: ReportCancelled,
    lose_done: LoseDone,
    done_early: DoneEarly,
    lose_cancel: LoseCancel,
    lose_answer: LoseAnswer,
    ignore_failure: IgnoreFailure,
    double_completion: DoubleCompletion,
    double_answer: DoubleAnswer,
    reorder: Reorder,
    heed_late_timer: HeedLateTimer,
    hasty_drain: HastyDrain,
    one_slot_more: OneSlotMore,
    one_slot_less: OneSlotLess,
    ignore_memory: IgnoreMemory,
    ignore_cpus: IgnoreCpus,
    ignore_priority: IgnorePriority,
    shortest_first: ShortestFirst,
    unknown_last: UnknownLast,
    here_too_early: HereTooEarly,
    evict_in_use: EvictInUse,
    evict_too_much: EvictTooMuch,
    ignore_floor: IgnoreFloor,
}
