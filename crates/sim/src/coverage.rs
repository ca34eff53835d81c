//! Which kinds of events happened, and how often: what never happened was never tried.

use std::fmt;

macro_rules! kinds {
    ($($name:ident = $text:literal,)*) => {
        /// A kind of event. The texts say what.
        #[expect(missing_docs, reason = "each has its text")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind { $($name,)* }

        impl Kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What it is.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

kinds! {
    EnqueueWithoutLayers = "a job without layers comes",
    EnqueueAllHere = "a job comes whose layers are all here",
    EnqueueWaits = "a job comes that has to wait for layers",
    EnqueueStartsAtOnce = "a job comes and starts at once",
    EnqueueAfterDrain = "a job comes after a drain",
    EnqueueAfterShutDown = "a job comes after a shut down",
    AttemptWhileDying = "an attempt comes while the one before is dying",
    LayerTwice = "a layer stands twice in a list",
    ArchiveAndManifest = "one blob is an archive and a manifest in a list",
    CancelUnknown = "cancel of an unknown job",
    CancelAwaiting = "cancel while layers are awaited",
    CancelReading = "cancel while a manifest is read",
    CancelAvailable = "cancel in the queue",
    CancelExecuting = "cancel while executing",
    CancelCancelled = "cancel of a cancelled job that is not dead yet",
    CancelTimedOut = "cancel of a timed out job that is not dead yet",
    CancelDropped = "cancel of a job that a shut down has killed",
    CancelEnded = "cancel of a job that has ended",
    PrepareTimeUp = "the time to prepare is up",
    PrepareTimerLate = "the timer for preparing fires too late",
    RunTimeUp = "the time to run is up",
    RunTimerAfterEnd = "the timer for running fires after the end",
    RunTimerWhileDying = "the timer for running fires while the job is dying",
    CompletedExit = "a job exits",
    CompletedExecutionError = "a sandbox cannot be set up by the job's fault",
    CompletedSystemError = "a sandbox cannot be set up by the runner's fault",
    CompletedCancelled = "a cancelled job is dead",
    CompletedTimedOut = "a timed out job is dead",
    CompletedDropped = "a job is dead that a shut down has killed",
    CompletedBeforeTheKill = "a job exits by itself although it was told to die",
    StartErrorWhileDying = "a sandbox cannot be set up and was told to die already",
    FetchShared = "a fetched blob is given to several jobs",
    FetchForSome = "a fetched blob is given to some jobs while others are gone",
    FetchLate = "a blob is fetched when nobody wants it any more",
    FetchLateAfterStop = "a blob is fetched after a stop",
    FetchFailed = "a fetch fails",
    FetchFailedForSeveral = "a fetch fails for several jobs",
    FetchFailedLate = "a fetch fails when nobody wants it any more",
    FetchAgainAfterFailure = "a blob is fetched again after a failure",
    JoinedAnAbandonedFetch = "a job waits for a fetch that nobody else wants any more",
    TreeBuilt = "a tree is built",
    TreeBuiltLate = "a tree is built when nobody wants it any more",
    TreeFailed = "a tree cannot be built",
    StackBuilt = "a stack is built",
    StackBuiltLate = "a stack is built when nobody wants it any more",
    LeavesABuildBehind = "a job is gone before the build that it started has ended",
    StackFailed = "a stack cannot be built",
    BuildShared = "a tree or stack is given to several jobs",
    BuildFailedForSeveral = "a build fails for several jobs",
    ManifestRead = "a manifest is read",
    ManifestEmpty = "a manifest names nothing",
    ManifestNamesItself = "a manifest names itself",
    ManifestNamesTwice = "a manifest names a blob twice",
    ManifestFailed = "a manifest cannot be read",
    ManifestLate = "a manifest is read for a job that is gone",
    WaitsForASlot = "a job waits for a slot",
    WaitsForTheBudget = "a job waits for the budget while there is a slot",
    LoneLargeJob = "a job beyond the budget starts alone",
    NobodyPasses = "a job that would fit waits behind one that does not",
    ByPriority = "a job starts before another by its priority",
    ByUnknownEstimate = "a job starts before another because it has no estimate",
    ByLongestEstimate = "a job starts before another by its longer estimate",
    ByArrival = "a job starts before another because it came first",
    SeveralStart = "several jobs start on one message",
    DrainIdle = "a drain of an idle dispatcher",
    DrainAwaiting = "a drain hands back a job that awaits layers",
    DrainAvailable = "a drain hands back a job of the queue",
    DrainExecuting = "a drain lets a job finish",
    DrainAgain = "a drain after a stop",
    ShutDownIdle = "a shut down of an idle dispatcher",
    ShutDownAwaiting = "a shut down drops a job that awaits layers",
    ShutDownAvailable = "a shut down drops a job of the queue",
    ShutDownExecuting = "a shut down kills a job",
    ShutDownDying = "a shut down with a job that is dying already",
    ShutDownAfterDrain = "a shut down while a drain goes on",
    ShutDownAgain = "a shut down after a shut down",
    ShutDownWhenDone = "a shut down when all is done",
    DoneLater = "the last job ends after the stop",
    FoundAtTheStart = "a job uses what was in the cache at the start",
    UsedFromCache = "a job uses what another one left in the cache",
    FreeStack = "a stack costs nothing and is always here",
    Evicted = "something is evicted",
    EvictionStoppedByUse = "the cache is too large because all the rest is in use",
    EvictionStoppedByFloor = "the cache is too large because of the floor",
    GotAgainAfterEviction = "something is got again after it was evicted",
    StrayEnqueueWaiting = "a waiting job is enqueued again",
    StrayEnqueueExecuting = "an executing job is enqueued again",
    StrayEnqueueDying = "a dying job is enqueued again",
    StrayCompletionWaiting = "a waiting job completes",
    StrayCompletionUnknown = "an unknown job completes",
    StrayAnswer = "an answer comes that nobody awaits",
    AnswerTooEarly = "an answer comes before the fetch or build has ended",
    OneInstant = "several messages come in one instant",
}

/// How often each kind happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    counts: Vec<u64>,
}

impl Coverage {
    /// Nothing happened.
    pub fn new() -> Self {
        let counts = vec![0; Kind::ALL.len()];
        Self { counts }
    }

    /// It happened.
    pub(crate) fn hit(&mut self, kind: Kind) {
        self.counts[kind as usize] += 1;
    }

    /// It happened, if this is so.
    pub(crate) fn hit_if(&mut self, happened: bool, kind: Kind) {
        if happened {
            self.hit(kind);
        }
    }

    /// How often a kind happened.
    pub fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// The kinds that happened less often than this.
    pub fn below(&self, count: u64) -> Vec<Kind> {
        let kinds = Kind::ALL.iter().copied();
        kinds.filter(|kind| self.count(*kind) < count).collect()
    }
}

impl Default for Coverage {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in Kind::ALL {
            writeln!(f, "{:>10}  {}", self.count(*kind), kind.text())?;
        }
        Ok(())
    }
}
