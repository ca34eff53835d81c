//! Makes a schedule that fails shorter.

use crate::fault::Fault;
use crate::mutant::Mutant;
use crate::runner::{Options, play};
use crate::schedule::Schedule;

/// Leaves out steps as long as the same rule is broken: first halves, then smaller and smaller
/// parts, at last single steps (Zeller and Hildebrandt 2002, without the complement search). Returns
/// what is left and how it fails.
pub fn shrink(schedule: &Schedule, fault: &Fault, mutant: Option<Mutant>) -> (Schedule, Fault) {
    let options = Options {
        mutant,
        trace: false,
    };
    let mut shortest = (schedule.clone(), fault.clone());
    let mut part = schedule.steps.len().div_ceil(2);
    while part > 0 {
        let mut start = 0;
        let mut is_shorter = false;
        while start < shortest.0.steps.len() {
            let mut numbers = shortest.0.numbers();
            let end = numbers.len().min(start + part);
            numbers.drain(start..end);
            let candidate = schedule.keep(&numbers);
            match play(&candidate, options).fault {
                Some(found) if found.kind == fault.kind => {
                    shortest = (candidate, found);
                    is_shorter = true;
                }
                _ => start = end,
            }
        }
        // Single steps are tried again until none can go.
        if part > 1 || !is_shorter {
            part /= 2;
        }
    }
    shortest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultKind;

    #[test]
    fn no_step_of_a_shrunk_schedule_can_go() {
        let mutant = Some(Mutant::LoseCancel);
        let options = Options {
            mutant,
            trace: false,
        };
        let failing = (0..200).map(Schedule::of).find_map(|schedule| {
            let fault = play(&schedule, options).fault?;
            (fault.kind == FaultKind::NotKilled).then_some((schedule, fault))
        });
        let (schedule, fault) = failing.expect("one of many seeds fails");
        let (shortest, found) = shrink(&schedule, &fault, mutant);
        assert_eq!(found.kind, fault.kind);
        assert!(shortest.steps.len() < schedule.steps.len());
        for number in shortest.numbers() {
            let mut numbers = shortest.numbers();
            numbers.retain(|other| *other != number);
            let without = play(&schedule.keep(&numbers), options).fault;
            assert_ne!(
                without.map(|fault| fault.kind),
                Some(fault.kind),
                "{number} can go"
            );
        }
    }
}
