use tidemill_core::Usage;
use tidemill_core::event::Outcome;

use super::*;

const HOST_MEMORY: ByteSize = ByteSize::gib(4);

fn limits() -> Limits {
    Limits {
        memory: Some(ByteSize::mib(64)),
        disk: Some(ByteSize::gib(1)),
        pids: 512,
        timeout: Some(Millis(5_000)),
        grace: Millis(1_000),
        ..Limits::default()
    }
}

fn exited(code: i32) -> Ended {
    Ended {
        exit_code: Some(code),
        ..Ended::default()
    }
}

fn oom(victim: Option<&str>, kills: u64) -> Option<Oom> {
    Some(Oom {
        peak: Some(ByteSize::mib(63)),
        limit: Some(ByteSize::mib(64)),
        victim: victim.map(str::to_owned),
        kills,
    })
}

/// The reason and the warnings, as `code: message`.
fn check(ended: Ended) -> (Option<String>, Vec<String>) {
    let verdict = judge(
        &ended,
        &limits(),
        LogTotals::default(),
        StopNote::default(),
        HOST_MEMORY,
    );
    let text = |reason: &Reason| format!("{}: {}", reason.code, reason.message);
    (
        verdict.completion.reason.as_ref().map(text),
        verdict.warnings.iter().map(text).collect(),
    )
}

fn only(reason: &str) -> (Option<String>, Vec<String>) {
    (Some(reason.to_owned()), Vec::new())
}

fn only_warned(warning: &str) -> (Option<String>, Vec<String>) {
    (None, vec![warning.to_owned()])
}

#[test]
fn a5_an_exit_code_and_a_signal_are_told_apart() {
    assert_eq!(check(exited(0)), (None, Vec::new()));
    assert_eq!(
        check(exited(3)),
        only("exit: the program ended with exit code 3")
    );
    let segv = Ended {
        signal: Some(11),
        core_dumped: true,
        ..Ended::default()
    };
    assert_eq!(
        check(segv),
        only("signal: the program was ended by SIGSEGV and left a core dump")
    );
}

#[test]
fn a4_memory_is_the_reason_of_a_bad_end_and_a_warning_of_a_good_one() {
    let killed = Ended {
        signal: Some(9),
        oom: oom(Some("tail"), 1),
        ..Ended::default()
    };
    let text = "memory: the memory limit of 64 MiB was reached (peak 63 MiB) and `tail` was killed";
    assert_eq!(check(killed), only(text));
    let survived = Ended {
        oom: oom(Some("tail"), 1),
        ..exited(0)
    };
    assert_eq!(check(survived), only_warned(text));
    let several = Ended {
        oom: oom(Some("cc1"), 3),
        ..exited(1)
    };
    assert_eq!(
        check(several),
        only(
            "memory: the memory limit of 64 MiB was reached (peak 63 MiB) and 3 processes were \
             killed, `cc1` first"
        )
    );
    let unknown = Ended {
        oom: Some(Oom::default()),
        ..exited(137)
    };
    assert_eq!(
        check(unknown),
        only("memory: the memory limit of 64 MiB was reached and a process was killed")
    );
}

#[test]
fn every_limit_names_itself_and_the_first_is_the_reason() {
    let disk = Ended {
        disk_full: true,
        ..exited(1)
    };
    assert_eq!(
        check(disk),
        only("disk: the disk limit of 1 GiB was reached")
    );
    let low = Ended {
        disk_low: true,
        ..exited(1)
    };
    assert_eq!(
        check(low),
        only(
            "disk: the disk of the state directory was almost full, and what the job writes lies on it"
        )
    );
    let pids = Ended {
        pids_refused: 7,
        ..exited(2)
    };
    assert_eq!(
        check(pids),
        only("pids: the limit of 512 processes was reached: a new one was refused 7 times")
    );
    let seen = Ended {
        pids_full: true,
        ..exited(2)
    };
    assert_eq!(
        check(seen),
        only("pids: the limit of 512 processes was reached")
    );
    let all = Ended {
        oom: oom(None, 2),
        disk_full: true,
        pids_refused: 1,
        killed_processes: 2,
        ..exited(1)
    };
    let (reason, warnings) = check(all);
    assert!(reason.unwrap_or_default().starts_with("memory: "));
    assert_eq!(
        warnings,
        [
            "disk: the disk limit of 1 GiB was reached",
            "pids: the limit of 512 processes was reached: a new one was refused once",
            "left_overs: 2 processes were still there when the main one had ended, and were killed",
        ]
    );
}

#[test]
fn f6_a_full_dev_shm_is_the_reason_with_its_size() {
    let ended = Ended {
        shared_memory_full: true,
        ..exited(1)
    };
    assert_eq!(
        check(ended.clone()),
        only("shm: /dev/shm was full: its limit of 32 MiB was reached")
    );
    let limits = Limits {
        shm: Some(ByteSize::mib(1)),
        ..limits()
    };
    let verdict = judge(
        &ended,
        &limits,
        LogTotals::default(),
        StopNote::default(),
        HOST_MEMORY,
    );
    let reason = verdict.completion.reason.expect("it failed");
    assert!(reason.hint.is_some_and(|hint| hint.contains("--shm 2MiB")));
}

#[test]
fn a4_files_that_filled_the_memory_are_told() {
    let hint = |disk_bytes| {
        let mut ended = Ended {
            oom: oom(Some("dd"), 1),
            ..exited(1)
        };
        ended.usage.disk_bytes = disk_bytes;
        let verdict = judge(
            &ended,
            &limits(),
            LogTotals::default(),
            StopNote::default(),
            HOST_MEMORY,
        );
        let reason = verdict.completion.reason;
        reason.and_then(|reason| reason.hint).unwrap_or_default()
    };
    let told =
        "50 MiB of it are files that it wrote, which count as memory; if it needs more, raise";
    assert!(hint(Some(50 << 20)).starts_with(told));
    let mut on_disk = limits();
    on_disk.disk = Some(ByteSize::gib(3));
    assert!(!is_in_memory(&on_disk, HOST_MEMORY));
    for few in [None, Some(15 << 20)] {
        assert!(hint(few).starts_with("if it needs more, raise"));
    }
}

#[test]
fn a1_what_was_ended_with_the_job_is_no_left_over() {
    let ended = Ended {
        signal: Some(9),
        killed_processes: 2,
        ..Ended::default()
    };
    for note in [
        StopNote {
            killed: true,
            ..StopNote::default()
        },
        StopNote {
            signalled: Some(tidemill_core::StopSignal::default()),
            ..StopNote::default()
        },
    ] {
        let verdict = judge(&ended, &limits(), LogTotals::default(), note, HOST_MEMORY);
        assert_eq!(verdict.warnings, []);
        assert_eq!(verdict.completion.outcome.killed_processes, 2);
    }
}

#[test]
fn a2_a_killed_left_over_is_a_warning_and_keeps_the_exit_code() {
    let ended = Ended {
        killed_processes: 1,
        ..exited(0)
    };
    assert_eq!(
        check(ended),
        only_warned(
            "left_overs: a process was still there when the main one had ended, and was killed"
        )
    );
}

#[test]
fn a6_a_time_limit_that_process_1_kept_is_a_time_out() {
    let ended = Ended {
        signal: Some(9),
        time_limit: true,
        ..Ended::default()
    };
    let limits = limits();
    let note = StopNote::default();
    let verdict = judge(&ended, &limits, LogTotals::default(), note, HOST_MEMORY);
    match last_event(Ending::Completed(verdict.completion), note, &limits, None) {
        Event::TimedOut { reason, outcome } => {
            assert_eq!(reason.code, ReasonCode::Time);
            assert_eq!(outcome.and_then(|outcome| outcome.signal), Some(9));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn f10_refused_calls_are_named_in_one_warning() {
    let call = |name: &str, times| RefusedCall {
        call: name.to_owned(),
        times,
    };
    let ended = Ended {
        refused_calls: vec![call("mount", 1), call("unshare", 12)],
        ..exited(0)
    };
    let expected = "refused: refused by the sandbox's policy: mount, unshare (12 times)";
    assert_eq!(check(ended), only_warned(expected));
    let offers = |calls: &[RefusedCall]| {
        let hint = refused(calls).and_then(|reason| reason.hint);
        hint.is_some_and(|hint| hint.contains("--grant userns"))
    };
    assert!(offers(&[call("mount", 1), call("clone", 1)]));
    assert!(!offers(&[call("mount", 1)]));
}

#[test]
fn a_limit_is_named_beside_a_cancel_or_a_time_limit() {
    let ended = Ended {
        signal: Some(9),
        pids_refused: 3,
        ..Ended::default()
    };
    let note = StopNote {
        killed: true,
        ..StopNote::default()
    };
    let verdict = judge(&ended, &limits(), LogTotals::default(), note, HOST_MEMORY);
    let codes: Vec<_> = verdict.warnings.iter().map(|reason| reason.code).collect();
    assert_eq!(codes, [ReasonCode::Pids]);
    let reason = verdict.completion.reason.map(|reason| reason.code);
    assert_eq!(reason, Some(ReasonCode::Signal));
}

#[test]
fn the_log_never_changes_the_result() {
    let log = LogTotals {
        bytes: 5 << 20,
        dropped_bytes: 4 << 20,
        ..LogTotals::default()
    };
    let verdict = judge(&exited(0), &limits(), log, StopNote::default(), HOST_MEMORY);
    assert_eq!(verdict.completion.reason, None);
    assert!(verdict.warnings.is_empty());
    assert_eq!(verdict.completion.outcome.log, log);
}

#[test]
fn a_limit_says_how_to_raise_it() {
    let ended = Ended {
        oom: oom(None, 1),
        ..exited(1)
    };
    let verdict = judge(
        &ended,
        &limits(),
        LogTotals::default(),
        StopNote::default(),
        HOST_MEMORY,
    );
    let hint = verdict.completion.reason.and_then(|reason| reason.hint);
    assert!(hint.unwrap_or_default().ends_with("--memory 128MiB"));
}

fn ran(code: i32) -> Completion {
    Completion {
        outcome: Outcome {
            exit_code: Some(code),
            usage: Usage {
                wall_ms: 12,
                ..Usage::default()
            },
            ..Outcome::default()
        },
        reason: (code != 0).then(|| Reason::new(ReasonCode::Exit, "ended")),
    }
}

/// The kind of the last event, its reason's code and message, and its exit code.
fn last(ending: Ending, note: StopNote) -> (String, String, Option<i32>) {
    let event = last_event(ending, note, &limits(), None);
    let kind = event.kind().to_owned();
    let (reason, outcome) = match event {
        Event::Completed { outcome } => (None, Some(outcome)),
        Event::Failed { reason, outcome } | Event::TimedOut { reason, outcome } => {
            (Some(reason), outcome)
        }
        Event::Cancelled { reason, outcome } => (reason, outcome),
        Event::Requeued { reason } => (Some(reason), None),
        other => panic!("{other:?} ends nothing"),
    };
    let reason = reason.map(|reason| format!("{}: {}", reason.code, reason.message));
    let code = outcome.and_then(|outcome| outcome.exit_code);
    (kind, reason.unwrap_or_default(), code)
}

fn told(kind: &str, reason: &str, code: Option<i32>) -> (String, String, Option<i32>) {
    (kind.to_owned(), reason.to_owned(), code)
}

const NOTHING: StopNote = StopNote {
    signalled: None,
    killed: false,
    after_grace: false,
    set_up_late: false,
};
const KILLED: StopNote = StopNote {
    killed: true,
    ..NOTHING
};

#[test]
fn an_end_of_its_own_is_completed_or_failed() {
    let good = last(Ending::Completed(ran(0)), NOTHING);
    assert_eq!(good, told("completed", "", Some(0)));
    let bad = last(Ending::Completed(ran(3)), NOTHING);
    assert_eq!(bad, told("failed", "exit: ended", Some(3)));
}

#[test]
fn a3_a_cancelled_job_says_how_it_ended() {
    let cancelled = |code| Ending::Cancelled(Some(JobEnd::Ran(ran(code))));
    let signalled = |name: &str| StopNote {
        signalled: Some(name.parse().expect("the name of a signal")),
        ..NOTHING
    };
    let cases = [
        (
            signalled("TERM"),
            "cancelled: cancelled: SIGTERM sent, ended by itself (exit code 7)",
        ),
        (
            signalled("INT"),
            "cancelled: cancelled: SIGINT sent, ended by itself (exit code 7)",
        ),
        (
            StopNote {
                killed: true,
                after_grace: true,
                ..signalled("HUP")
            },
            "cancelled: cancelled: SIGHUP sent, ended by itself; what it left was killed after grace of 1 s (exit code 7)",
        ),
        (KILLED, "cancelled: cancelled: killed at once (exit code 7)"),
    ];
    for (note, reason) in cases {
        assert_eq!(last(cancelled(7), note), told("cancelled", reason, Some(7)));
    }
    assert_eq!(
        last(Ending::Cancelled(None), NOTHING),
        told("cancelled", "cancelled: cancelled: before it started", None)
    );
}

#[test]
fn a_job_that_had_ended_when_the_request_came_is_recorded_as_what_it_did() {
    let ending = Ending::Cancelled(Some(JobEnd::Ran(ran(0))));
    assert_eq!(last(ending, NOTHING), told("completed", "", Some(0)));
}

#[test]
fn a7_a_set_up_that_hangs_is_not_the_programs_time() {
    let ending = || Ending::TimedOut {
        timer: TimerKind::Run,
        end: None,
    };
    let late = StopNote {
        set_up_late: true,
        ..NOTHING
    };
    let (kind, reason, _) = last(ending(), late);
    assert_eq!(kind, "timed_out");
    assert!(
        reason.starts_with("prepare_time: its sandbox was not set up after 60 s"),
        "{reason}"
    );
    let (_, reason, _) = last(ending(), NOTHING);
    assert!(
        reason.starts_with("time: the time limit of 5 s"),
        "{reason}"
    );
}

#[test]
fn a7_a_time_limit_names_its_phase() {
    let run = Ending::TimedOut {
        timer: TimerKind::Run,
        end: Some(JobEnd::Ran(ran(137))),
    };
    assert_eq!(
        last(run, KILLED),
        told(
            "timed_out",
            "time: the time limit of 5 s for running was reached, and it was killed",
            Some(137)
        )
    );
    let prepare = Ending::TimedOut {
        timer: TimerKind::Prepare,
        end: None,
    };
    let (kind, reason, code) = last(prepare, NOTHING);
    assert_eq!((&*kind, code), ("timed_out", None));
    assert!(reason.starts_with("prepare_time: "), "{reason}");
}

#[test]
fn the_platform_and_the_job_are_never_mixed_up() {
    let own = Reason::new(ReasonCode::ProgramNotFound, "no such program");
    let (kind, reason, _) = last(Ending::ExecutionError(own), NOTHING);
    assert_eq!(
        (&*kind, &*reason),
        ("failed", "program_not_found: no such program")
    );
    let platform = Reason::new(ReasonCode::Sandbox, "no namespaces");
    let (_, reason, _) = last(Ending::SystemError(platform), NOTHING);
    assert_eq!(reason, "sandbox: no namespaces");
    let (kind, reason, _) = last(Ending::Dropped(None), NOTHING);
    assert_eq!(
        (&*kind, &*reason),
        ("failed", "shutdown: the runner was shut down")
    );
    let (kind, ..) = last(Ending::HandedBack, NOTHING);
    assert_eq!(kind, "requeued");
}

#[test]
fn lengths_of_time_read_as_people_write_them() {
    let texts: Vec<String> = [250, 1_000, 1_500, 90_000, 1_050]
        .into_iter()
        .map(|millis| time(Millis(millis)))
        .collect();
    assert_eq!(texts, ["250 ms", "1 s", "1.5 s", "90 s", "1.05 s"]);
}

#[test]
fn missing_walls_are_one_warning() {
    assert_eq!(missing_walls(&[]), None);
    let wall = |name: &str| Grant::Missing {
        wall: name.to_owned(),
        why: "not delegated".to_owned(),
    };
    let warning = missing_walls(&[wall("cgroup.memory"), wall("landlock")]);
    let message = warning.map(|reason| reason.message).unwrap_or_default();
    assert!(message.ends_with("cgroup.memory (not delegated), landlock (not delegated)"));
}

#[test]
fn a_program_that_failed_without_the_network_it_looked_for_learns_how_to_get_it() {
    let hint = |ended: Ended, note| {
        let verdict = judge(&ended, &limits(), LogTotals::default(), note, HOST_MEMORY);
        verdict.completion.reason.and_then(|reason| reason.hint)
    };
    let missed = |code| Ended {
        network_missed: true,
        ..exited(code)
    };
    assert_eq!(
        hint(missed(6), StopNote::default()).as_deref(),
        Some(NO_NETWORK)
    );
    assert_eq!(hint(exited(6), StopNote::default()), None);
    assert_eq!(hint(missed(0), StopNote::default()), None);
    let verdict = judge(
        &missed(1),
        &limits(),
        LogTotals::default(),
        StopNote::default(),
        HOST_MEMORY,
    );
    let event = last_event(
        Ending::TimedOut {
            timer: TimerKind::Run,
            end: Some(JobEnd::Ran(verdict.completion)),
        },
        StopNote::default(),
        &limits(),
        None,
    );
    let Event::TimedOut { reason, .. } = event else {
        panic!("{event:?}");
    };
    let hint = reason.hint.unwrap_or_default();
    assert!(
        hint.contains("--net host") && hint.contains("--timeout"),
        "{hint}"
    );
}

#[test]
fn the_memory_that_is_proposed_is_more_than_what_was_seen() {
    for (peak, proposed) in [(63, "128MiB"), (128, "256MiB"), (141, "256MiB")] {
        let ended = Ended {
            oom: Some(Oom {
                peak: Some(ByteSize::mib(peak)),
                ..oom(None, 1).unwrap_or_default()
            }),
            ..exited(1)
        };
        let verdict = judge(
            &ended,
            &limits(),
            LogTotals::default(),
            StopNote::default(),
            HOST_MEMORY,
        );
        let hint = verdict.completion.reason.and_then(|reason| reason.hint);
        assert!(hint.unwrap_or_default().ends_with(proposed), "{peak}");
    }
}
