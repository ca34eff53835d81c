//! The queue: what waits, in which order, who may claim it, and what becomes of an attempt.
//!
//! Pure: no file, no clock, no database, no randomness. Decisions are functions over rows ([`Job`],
//! [`hub::Hub`], [`offer::Offer`] …) that a store loads, and their results are [`job::Change`]s: what is
//! expected of a row, the row afterwards, the events that are appended to its history. A store makes a
//! change by compare and set. [`Queue`] is a whole machine in memory that consists of these decisions; a
//! store with SQL has to equal it.
//!
//! Start reading at [`job`] (the row), then [`order`] (who is next), [`claim`] (who gets it), [`lease`]
//! and [`attempt`] (what becomes of it), then [`queue`]. The life of one job:
//!
//! ```text
//! submit ──► delayed ──► blocked ──► ready ──► leased ──────────────────► done
//!              │          (group)     │ ▲        │  ▲ renewed by reports     ▲
//!              │             ▲        │ │        │                           │
//!              └─ paused ◄───┴────────┘ └────────┴─ declined, handed back,   │
//!                 (no hub serves)        back-off   lost, to be tried again  │
//!                    └──────────────────────────────── cancelled, expired, ──┘
//!                                                      superseded, given up
//! ```
//!
//! # Invariants
//!
//! Each with the test that shows it; `random` is the test of random schedules, whose judge looks after every
//! step. Tests stand in `tests/spec`, those that break the machine's books in `queue/tests.rs`.
//!
//! | what holds | where it is shown |
//! |---|---|
//! | an accepted job never disappears, and comes to one end | `random`, `hubs::a_hub_that_is_killed_every_few_seconds_loses_nothing` |
//! | completed is terminal; a second finish changes nothing | `random`, `leases::a_finish_is_recorded_once_however_often_it_is_said` |
//! | rescue compares and sets on state, attempt and lease | `leases::a_report_that_comes_while_the_lease_is_being_ended_wins` |
//! | everything a runner says carries the attempt | `leases::a_stale_attempt_of_the_same_runner_is_refused_too`, `leases::by_its_policy_a_lost_one_is_tried_again_after_a_while` |
//! | a live job is never rescued | `random`, `leases::a_runner_that_comes_back_before_anybody_noticed_goes_on` |
//! | several reports fit in a lease; stalls cost nothing | `leases::several_reports_fit_in_a_lease`, `leases::a_report_renews_all_leases_of_a_runner` |
//! | a time without a hub ends no lease | `leases::after_a_time_without_a_hub_runners_get_a_whole_lease_to_report` |
//! | who lost a lease is told to kill the job | `leases::a_lease_that_ends_makes_the_attempt_lost` |
//! | recovery works after the runner's row is gone | `leases::recovery_works_after_the_runners_row_is_gone` |
//! | a restarted runner is a new incarnation | `leases::a_restarted_runner_is_another_one_and_names_what_it_still_has`, `leases::what_a_restarted_runner_still_has_is_not_given_to_it_again` |
//! | rescue passes over what it cannot rescue and discards no unknown kind | `waiting::rescue_and_all_the_rest_pass_over_kinds_that_they_do_not_know` |
//! | only the time that is passed in decides | there is no clock here (`xtask tidy`) |
//! | crash, out of memory and disconnect use up attempts | `retrying::each_reason_has_its_count`, `retrying::what_takes_its_runners_with_it_is_set_apart` |
//! | poison jobs are set apart | `retrying::what_takes_its_runners_with_it_is_set_apart` |
//! | what is declined or handed back is not charged; reports go on while draining | `claiming::what_is_handed_back_while_draining_is_not_charged`, `claiming::who_declines_is_not_asked_again_and_others_are_at_once` |
//! | each attempt is given to one life of one runner | `random`, `claiming::of_a_hundred_claimers_exactly_one_gets_each_job` |
//! | one conflict keeps nobody from the rest | `claiming::of_a_hundred_claimers_exactly_one_gets_each_job` |
//! | a lost answer is given again, a given-up claim gets nothing | `claiming::a_claim_whose_answer_was_lost_gets_the_same_answer`, `claiming::a_claim_that_was_given_up_gets_nothing_however_late_it_comes` |
//! | two of a group are never with runners, and never none if one could be | `random`, `tests::two_claims_never_both_have_a_group_whatever_they_saw` |
//! | an orphaned key or group lock is freed | `tests::an_orphaned_group_lock_is_freed`, `tests::an_orphaned_coalescing_key_is_freed` |
//! | claims stay bounded, whatever waits | `scale::a_claim_looks_at_as_much_with_many_delayed_foreign_blocked_and_failed_jobs_as_without` |
//! | positions, passes and what is remembered stay bounded | `waiting::positions_are_the_order_in_which_jobs_are_given_out`, `tests::turns_are_remembered_for_a_bounded_number_of_submitters` |
//! | nothing starves | `scale::a_low_priority_runs_now_and_then_under_a_load_that_never_ends`, `claiming::a_large_job_does_not_starve_behind_small_ones` |
//! | submitters share by turns | `scale::submitters_of_many_and_of_few_share_by_turns`, `scale::no_number_of_classes_gives_anybody_more_turns` |
//! | unsatisfiable jobs are reported, without a word of other tenants | `waiting::a_job_that_nobody_can_run_says_which_condition_and_the_nearest_miss`, `waiting::nothing_of_other_tenants_is_told` |
//! | hub A never ends hub B's leases | `leases::hub_a_never_ends_the_leases_of_hub_b`, `hubs::a_rolling_restart_disturbs_nothing` |
//! | cancel that races an end or a retry gives one final state | `ending::cancel_that_races_an_end_or_a_retry_gives_one_final_state` |
//! | cancel reaches an end from every state | `ending::cancel_reaches_a_final_state_from_every_state` |
//! | the ledger accepts every event, and agrees on the state | every test that has a `World`, and `random` |
//!
//! What only a store or a hub can have is shown there: that acknowledged means durable; unique inserts that
//! race, with roll-backs; a pinned snapshot; counts from the database; a lost wake-up; coalesced wake-ups;
//! leader terms; pool exhaustion and killed back ends; maintenance without deadlocks; cursors over commits
//! out of order.

pub mod attempt;
pub mod cancel;
pub mod claim;
pub mod group;
pub mod hub;
pub mod job;
pub mod lease;
pub mod matching;
pub mod offer;
pub mod order;
pub mod patience;
pub mod queue;
pub mod report;
pub mod rescue;
pub mod retry;
pub mod settings;
pub mod submission;
pub mod submit;

pub use attempt::{Ending, Return};
pub use cancel::CancelAnswer;
pub use hub::HubId;
pub use job::{Change, Job, Place, Stage};
pub use offer::{AttemptKey, ClaimNumber, Incarnation, Offer, Profile, Serves};
pub use order::Position;
pub use queue::{ClaimAnswer, Queue, Waits};
pub use report::{Report, ReportAnswer, Said, Verdict};
pub use settings::Settings;
pub use submission::{QueueKey, Requirements, Submission, Tenant, Tier};
pub use submit::{Answer, Refusal, Standing};
