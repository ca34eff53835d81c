//! Dispatchers that are broken on purpose. A simulator that does not notice is worth nothing.
//!
//! The dispatcher itself stays as it is. What is broken sits around it: some of its calls are lost,
//! doubled or changed before the world sees them, some messages before it sees them. For the judge,
//! who sees the true messages and the calls that arrive, the two together are one broken machine.

mod saboteur;

use std::fmt;
use std::str::FromStr;

use crate::fault::FaultKind;
pub(crate) use saboteur::Saboteur;

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident = $text:literal => [$($kind:ident),*],)*) => {
        /// One way to be broken.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Mutant { $($(#[$doc])* $name,)* }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What the judge may call it.
            pub const fn caught_as(self) -> &'static [FaultKind] {
                match self { $(Self::$name => &[$(FaultKind::$kind),*],)* }
            }

            /// Its name on a command line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

mutants! {
    /// Forgets to release a key.
    LoseRelease = "lose-release" => [ReferenceLeaked],
    /// Releases a key twice.
    DoubleRelease = "double-release" => [ReleasedTwice, ReleasedInUse, ReferenceLost],
    /// Releases a key when it kills the job, not when the job is gone.
    ReleaseAtKill = "release-at-kill" => [ReleasedInUse, ReferenceLost],
    /// Releases what a build reads when the job is gone that started it.
    ReleaseBuildInputs = "release-build-inputs" => [ReleasedInUse, ReferenceLost],
    /// Says the last word before it releases.
    ReleaseLate = "release-late" => [LastWordTooEarly],
    /// Fetches what is being fetched.
    FetchTwice = "fetch-twice" => [FetchedTwice],
    /// Takes "wait" for "you get it".
    FetchForWaiters = "fetch-for-waiters" => [FetchedTwice],
    /// Says that it fetches and does not.
    LoseFetch = "lose-fetch" => [NeverFetched],
    /// Stacks the lower tree over the upper one.
    SwapStack = "swap-stack" => [WrongRecipe],
    /// Forgets one of those who waited for a key.
    ForgetWaiter = "forget-waiter" => [WrongRequest, ReferenceLeaked, WrongRead, NotEnded, SlotLost],
    /// Starts a job without its topmost tree.
    StartWithoutTop = "start-without-top" => [WrongRoot],
    /// Starts no timer.
    LoseTimer = "lose-timer" => [WrongTimer],
    /// Does not cancel timers.
    KeepTimer = "keep-timer" => [WrongTimer],
    /// Does not kill.
    KeepSandbox = "keep-sandbox" => [NotKilled],
    /// Does not tell a status.
    LoseStatus = "lose-status" => [WrongStatus],
    /// Tells a status twice.
    DoubleStatus = "double-status" => [WrongStatus],
    /// Does not tell how a job ended.
    LoseEnding = "lose-ending" => [NotEnded],
    /// Tells twice how a job ended.
    DoubleEnding = "double-ending" => [EndedTwice],
    /// Takes the runner's fault for the job's and the other way round.
    MixErrors = "mix-errors" => [WrongEnding],
    /// Reports a cancelled job as completed.
    ReportCancelled = "report-cancelled" => [WrongEnding],
    /// Does not say that it is done.
    LoseDone = "lose-done" => [NotDone],
    /// Says that it is done as soon as it is told to stop.
    DoneEarly = "done-early" => [DoneTooEarly],
    /// Ignores a cancel.
    LoseCancel = "lose-cancel" => [NotKilled, NotEnded],
    /// Ignores that a fetch or build has ended.
    LoseAnswer = "lose-answer" => [WrongCacheAnswer, WrongRequest, NotEnded, ReferenceLost, WrongRead, SlotLost, NotDone],
    /// Takes a failed fetch or build for a good one.
    IgnoreFailure = "ignore-failure" => [NotEnded, NeverFetched, WrongRecipe, WrongRead, WrongRequest, WrongCacheAnswer],
    /// Takes one completion for two.
    DoubleCompletion = "double-completion" => [WrongDefect],
    /// Takes one answer for two.
    DoubleAnswer = "double-answer" => [WrongDefect],
    /// Sees two messages in the wrong order.
    Reorder = "reorder" => [
        NotEnded, NotKilled, WrongRequest, WrongCacheAnswer, SlotLost, WrongTimer, WrongRead,
        WrongDefect, NotDone, WrongStatus
    ],
    /// Kills an executing job for the timer of its preparing, which it had cancelled.
    HeedLateTimer = "heed-late-timer" => [KilledForNoReason],
    /// Stops at once instead of gently.
    HastyDrain = "hasty-drain" => [WrongEnding, KilledForNoReason],
    /// Has one slot more than it may.
    OneSlotMore = "one-slot-more" => [OverCapacity],
    /// Has lost a slot.
    OneSlotLess = "one-slot-less" => [SlotLost],
    /// Does not count memory.
    IgnoreMemory = "ignore-memory" => [OverCapacity],
    /// Does not count CPUs.
    IgnoreCpus = "ignore-cpus" => [OverCapacity],
    /// Takes all priorities for equal.
    IgnorePriority = "ignore-priority" => [OutOfOrder, OverCapacity, SlotLost],
    /// Starts the shortest job first.
    ShortestFirst = "shortest-first" => [OutOfOrder, OverCapacity, SlotLost],
    /// Starts jobs without an estimate last.
    UnknownLast = "unknown-last" => [OutOfOrder, OverCapacity, SlotLost],
    /// Says of a key that it is here while it is being got.
    HereTooEarly = "here-too-early" => [WrongCacheAnswer, WrongRecipe],
    /// Evicts what somebody holds.
    EvictInUse = "evict-in-use" => [EvictedInUse],
    /// Evicts everything that nobody holds.
    EvictTooMuch = "evict-too-much" => [WrongEviction],
    /// Evicts below the floor.
    IgnoreFloor = "ignore-floor" => [WrongEviction],
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no such mutant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no mutant `{0}`; `--list` shows their names")]
pub struct ParseMutantError(String);

impl FromStr for Mutant {
    type Err = ParseMutantError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.iter().copied();
        all.find(|mutant| mutant.name() == text)
            .ok_or_else(|| ParseMutantError(text.to_owned()))
    }
}
