//! What the judge holds against a machine.

use std::fmt;

/// One broken rule: the kind, and what exactly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {what}")]
pub struct Fault {
    /// Which rule.
    pub kind: FaultKind,
    /// Who broke it, on what.
    pub what: String,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { kind, what }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The rules of spec and contract, by what it is to break them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FaultKind { $($(#[$doc])* $name,)* }

        impl fmt::Display for FaultKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text,)* })
            }
        }
    };
}

kinds! {
    /// The machine panicked: an assertion of its own, or a defect in debug mode.
    Panicked = "the machine panicked",
    /// A key has more references than there are jobs that hold it.
    ReferenceLeaked = "a reference was leaked",
    /// A key has fewer references than there are jobs that hold it.
    ReferenceLost = "a reference was given back too early",
    /// A reference was given back that nobody had.
    ReleasedTwice = "a reference was released twice",
    /// A job that is mounted lost a reference to its root.
    ReleasedInUse = "a tree in use was released",
    /// What was asked of the cache is not what the layers call for.
    WrongRequest = "the cache was asked for something else",
    /// A key is being got and was got again.
    FetchedTwice = "a key was got twice at once",
    /// A key that somebody has to get is got by nobody.
    NeverFetched = "a key is got by nobody",
    /// A tree or a stack would be built of something else.
    WrongRecipe = "a recipe is wrong",
    /// A manifest is read by nobody, twice, or from a wrong path.
    WrongRead = "the reading of a manifest is wrong",
    /// The cache's answer is not what it was told before.
    WrongCacheAnswer = "the cache gave a wrong answer",
    /// A job was started before its layers were here.
    LayersMissing = "a job was started without its layers",
    /// A job was started on another root, or with another spec.
    WrongRoot = "a job was started on a wrong root",
    /// A job could have been started and was not.
    SlotLost = "a slot was lost",
    /// A job was started beyond the slots or the budget.
    OverCapacity = "more was started than there is room for",
    /// A job was started before one that goes first.
    OutOfOrder = "a job was started out of order",
    /// A job was started that does not wait to be.
    StartedForNoReason = "a job was started that does not wait for it",
    /// A job ended twice.
    EndedTwice = "a job ended twice",
    /// A job should have ended.
    NotEnded = "a job did not end",
    /// A job should not have ended.
    EndedForNoReason = "a job ended for no reason",
    /// A job ended in another way.
    WrongEnding = "a job ended in a wrong way",
    /// The last word about a job came before its references were released.
    LastWordTooEarly = "the last word came before the references were released",
    /// A status is missing, came twice, too late or out of order.
    WrongStatus = "a status is wrong",
    /// A job should have been told to die.
    NotKilled = "a job was not killed",
    /// A job was told to die for no reason.
    KilledForNoReason = "a job was killed for no reason",
    /// A timer was not started, started for no reason, left, or cancelled too early.
    WrongTimer = "a timer is wrong",
    /// The dispatcher is done and does not say so.
    NotDone = "the dispatcher does not say that it is done",
    /// The dispatcher says that it is done and is not, or says it again.
    DoneTooEarly = "the dispatcher says that it is done",
    /// A defect was reported for no reason, or one was not.
    WrongDefect = "the reported defects are wrong",
    /// The dispatcher offers more or less room than it has.
    WrongRoom = "the room is wrong",
    /// A job stands elsewhere than the dispatcher says.
    WrongPhase = "a phase is wrong",
    /// The cache would remove what somebody holds or what is not there.
    EvictedInUse = "something in use was evicted",
    /// The cache would remove too much, too little, or not what was used least recently.
    WrongEviction = "the wrong thing was evicted",
    /// Everything was answered and a job is still there, or there is no end of messages.
    NeverEnds = "it never ends",
}
