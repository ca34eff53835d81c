use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

/// `rules` is `max=100 floor=20 coming=5`; `store` has `name:size` for each thing, the least
/// recently used first, with `!` before what is in use.
fn check(rules: &str, store: &str, expected: &str) {
    let rule = |name: &str| {
        let mut words = rules.split_whitespace();
        let value = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        ByteSize(value.map_or(0, |value| value.parse().expect("a number")))
    };
    let bounds = Bounds {
        max: rule("max"),
        floor: rule("floor"),
    };
    let kept = store.split_whitespace().enumerate().map(|(place, word)| {
        let (name, size) = word.split_once(':').expect("a size");
        Kept {
            key: name.trim_start_matches('!'),
            size: ByteSize(size.parse().expect("a number")),
            last_use: place,
            in_use: name.starts_with('!'),
        }
    });
    let Eviction { remove, left, over } = choose(bounds, rule("coming"), kept);
    let mut text = format!("remove [{}], {} left", remove.join(" "), left.0);
    if over > ByteSize(0) {
        write!(text, ", {} over", over.0).expect("a string takes everything");
    }
    assert_eq!(text, expected, "{rules}: {store}");
}

#[test]
fn within_the_bound_nothing_goes() {
    check("max=100", "", "remove [], 0 left");
    check("max=100", "a:40 b:60", "remove [], 100 left");
    check("max=100 coming=10", "a:40 b:50", "remove [], 90 left");
}

#[test]
fn the_least_recently_used_goes_first_and_no_more_than_has_to() {
    check("max=100", "a:40 b:30 c:31", "remove [a], 61 left");
    check("max=60", "a:40 b:30 c:31", "remove [a b], 31 left");
    check(
        "max=100 coming=70",
        "a:40 b:30 c:30",
        "remove [a b], 30 left",
    );
    check("max=0", "a:40 b:30 c:30", "remove [a b c], 0 left");
}

#[test]
fn what_is_in_use_stays() {
    check("max=50", "!a:40 b:30 c:30", "remove [b c], 40 left");
    check("max=30", "!a:40 b:30", "remove [b], 40 left, 10 over");
}

#[test]
fn the_floor_stays_and_wins_over_the_bound() {
    check(
        "max=50 floor=40",
        "a:30 b:30",
        "remove [], 60 left, 10 over",
    );
    check(
        "max=0 floor=30",
        "a:30 b:30",
        "remove [a], 30 left, 30 over",
    );
    check(
        "max=10 floor=90",
        "a:30 b:30",
        "remove [], 60 left, 50 over",
    );
}

#[test]
fn what_would_break_the_floor_is_passed_over_for_something_smaller() {
    check("max=100 floor=80", "a:50 b:10 c:50", "remove [b], 100 left");
}

#[test]
fn what_frees_nothing_stays() {
    check("max=10", "a:0 b:20", "remove [b], 0 left");
    check("max=10", "a:0 !b:20", "remove [], 20 left, 10 over");
}

#[test]
fn equal_uses_go_in_the_order_in_which_they_come() {
    let kept = ["b", "a"].map(|key| Kept {
        key,
        size: ByteSize(10),
        last_use: 0,
        in_use: false,
    });
    let bounds = Bounds::at_most(ByteSize(10));
    assert_eq!(choose(bounds, ByteSize(0), kept).remove, ["b"]);
}

#[test]
fn sums_do_not_overflow() {
    let all = u64::MAX;
    check(
        &format!("max={all} coming={all}"),
        &format!("!a:{all} !b:{all}"),
        &format!("remove [], {all} left, {all} over"),
    );
}

fn stores() -> impl Strategy<Value = Vec<Kept<usize, u8>>> {
    let thing = (0..40_u64, 0..6_u8, prop::bool::weighted(0.3));
    prop::collection::vec(thing, 0..12).prop_map(|things| {
        let things = things.into_iter().enumerate();
        things
            .map(|(key, (size, last_use, in_use))| Kept {
                key,
                size: ByteSize(size),
                last_use,
                in_use,
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_hold_for_every_store(
        store in stores(),
        max in 0..200_u64,
        floor in 0..200_u64,
        coming in 0..60_u64,
    ) {
        let bounds = Bounds { max: ByteSize(max), floor: ByteSize(floor) };
        let eviction = choose(bounds, ByteSize(coming), store.iter().copied());
        let size = |key: &usize| store[*key].size.0;
        let is_gone = |kept: &Kept<usize, u8>| eviction.remove.contains(&kept.key);
        let all: u64 = store.iter().map(|kept| kept.size.0).sum();
        let gone: u64 = eviction.remove.iter().map(size).sum();
        let left = all - gone;
        prop_assert_eq!(eviction.left.0, left);
        prop_assert_eq!(eviction.over.0, (left + coming).saturating_sub(max));
        prop_assert!(eviction.remove.iter().all(|key| !store[*key].in_use));
        prop_assert!(left >= floor.min(all));
        if let Some(last) = eviction.remove.last() {
            prop_assert!(left + size(last) + coming > max, "{last} went for nothing");
        }
        // In the order of use, and whatever stayed although it was older than what went, or
        // although there is too much, would have broken the floor when its turn came.
        let order = |kept: &Kept<usize, u8>| (kept.last_use, kept.key);
        let places: Vec<_> = eviction.remove.iter().map(|key| order(&store[*key])).collect();
        prop_assert!(places.is_sorted());
        for kept in store.iter().filter(|kept| !is_gone(kept) && !kept.in_use && kept.size.0 > 0) {
            let older = eviction.remove.iter().filter(|key| order(&store[**key]) < order(kept));
            let before = all - older.map(size).sum::<u64>();
            let was_needed = before + coming > max;
            prop_assert!(!was_needed || before - kept.size.0 < floor, "{kept:?} stayed");
        }
    }
}
