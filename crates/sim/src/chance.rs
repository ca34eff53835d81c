//! Randomness, all of it from one seed.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// One stream of random numbers (PCG-XSH-RR 64/32, O'Neill 2014, as `rand_pcg` has it).
#[derive(Debug, Clone)]
pub struct Chance(Pcg32);

impl Chance {
    /// The stream of a seed and a label. Whatever is drawn for one thing is labelled with that
    /// thing's name, so that a schedule with fewer steps leaves the fate of the others as it was.
    pub fn of(seed: u64, label: &[u64]) -> Self {
        let state = scramble_all(seed, label);
        Self(Pcg32::new(state, scramble(state)))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`; zero if there is none. The bias of the multiplication (Lemire 2019,
    /// without its rejection) is below one in a million here and does not matter to a schedule.
    pub fn below(&mut self, end: u32) -> u32 {
        let product = u64::from(self.0.next_u32()) * u64::from(end);
        u32::try_from(product >> 32).unwrap_or(u32::MAX)
    }

    /// A number from `low` to `high`, both possible.
    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let count = u32::try_from(from.len()).unwrap_or(u32::MAX);
        from[self.below(count) as usize]
    }
}

/// A number that depends on all of these.
pub(crate) fn scramble_all(seed: u64, label: &[u64]) -> u64 {
    (label.iter()).fold(scramble(seed), |state, part| scramble(state ^ part))
}

/// The step of SplitMix64 (Steele, Lea and Flood 2014).
const fn scramble(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(seed: u64, label: &[u64]) -> Vec<u32> {
        let mut chance = Chance::of(seed, label);
        (0..8).map(|_| chance.below(1000)).collect()
    }

    #[test]
    fn a_stream_is_named_by_its_seed_and_its_label() {
        assert_eq!(draw(1, &[2, 3]), draw(1, &[2, 3]));
        for other in [draw(2, &[2, 3]), draw(1, &[3, 2]), draw(1, &[2])] {
            assert_ne!(draw(1, &[2, 3]), other);
        }
    }

    #[test]
    fn a_seed_draws_the_same_for_ever() {
        // Written down once: a seed in an issue has to show what it showed.
        assert_eq!(draw(1, &[2, 3]), [298, 885, 263, 400, 951, 33, 949, 232]);
    }

    #[test]
    fn every_number_of_a_range_comes_and_no_other() {
        let mut chance = Chance::of(0, &[]);
        let mut seen = [0_u32; 5];
        for _ in 0..1000 {
            seen[chance.between(2, 4) as usize] += 1;
        }
        assert_eq!(seen[..2], [0, 0]);
        assert!(seen[2..].iter().all(|&count| count > 200), "{seen:?}");
    }

    #[test]
    fn a_percentage_is_kept() {
        let mut chance = Chance::of(7, &[]);
        let hits = (0..10_000).filter(|_| chance.percent(10)).count();
        assert!((800..1200).contains(&hits), "{hits}");
        assert!(!chance.percent(0));
        assert!(chance.percent(100));
    }
}
