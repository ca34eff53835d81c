//! The simulator: pure machines driven by random schedules in a world without a clock, and a judge
//! who knows the rules.
//!
//! A seed makes a [`Schedule`]: jobs with shared layers, cancels, stops, and how the world behaves
//! (what fails, how long it takes). The [`World`] gives one event after the other; the machine, here
//! the dispatcher with its cache and layer trackers, receives messages; whatever it asks for becomes
//! an event of later. After each message the judge, who keeps books of his own, compares what had to
//! come of it with what came. The first broken rule is a [`Fault`]; [`shrink()`] then leaves out steps
//! as long as it is broken.
//!
//! For tests only, and never part of the product: it must not be needed by any other crate. Start
//! reading at [`runner`], then `judge`. Other machines get variants in the runner's events and judges
//! of their own; the world, the randomness and the shrinking know nothing of the dispatcher's rules.

pub mod chance;
pub mod coverage;
mod effect;
pub mod fault;
mod judge;
pub mod mutant;
pub mod names;
mod panics;
mod probe;
pub mod runner;
pub mod schedule;
pub mod seeds;
mod shrink;
pub mod world;

pub use chance::Chance;
pub use coverage::{Coverage, Kind};
pub use fault::{Fault, FaultKind};
pub use mutant::Mutant;
pub use runner::{Options, Report, play};
pub use schedule::Schedule;
pub use seeds::{Failure, Summary, play_seeds};
pub use shrink::shrink;
pub use world::World;
