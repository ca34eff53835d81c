use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::*;

fn id(number: usize) -> Digest {
    Digest::of(&number.to_le_bytes())
}

fn tree(number: usize, used_at: i64, own_bytes: u64, files: &[usize]) -> Candidate {
    Candidate {
        id: id(number),
        used_at,
        is_busy: false,
        own_bytes,
        files: files.to_vec(),
    }
}

fn evict(ledger: &mut Ledger, target: u64, floor: u64) -> Vec<(Digest, u64)> {
    let yes = |_: &Digest| Ok::<_, Infallible>(true);
    let Ok(removed) = ledger.evict(target, floor, yes);
    removed
}

#[test]
fn what_is_shared_counts_once_and_goes_with_its_last_tree() {
    let trees = vec![
        tree(0, 30, 1, &[0, 1]),
        tree(1, 10, 1, &[0]),
        tree(2, 20, 1, &[1, 2]),
    ];
    let mut ledger = Ledger::new(trees, &[100, 200, 300]);
    assert_eq!(ledger.total(), 603);
    // The oldest frees one byte: its file is the newest one's too.
    assert_eq!(evict(&mut ledger, 602, 0), [(id(1), 1)]);
    assert_eq!(evict(&mut ledger, 301, 0), [(id(2), 301)]);
    assert_eq!(evict(&mut ledger, 301, 0), []);
    assert_eq!(evict(&mut ledger, 300, 0), [(id(0), 301)]);
    assert_eq!(ledger.total(), 0);
}

#[test]
fn what_is_used_stays_and_so_does_what_the_floor_needs() {
    let mut busy = tree(0, 1, 100, &[]);
    busy.is_busy = true;
    let trees = vec![busy, tree(1, 2, 500, &[]), tree(2, 3, 10, &[])];
    let mut ledger = Ledger::new(trees, &[]);
    // The oldest that may go would leave too little; something smaller goes in its place.
    assert_eq!(evict(&mut ledger, 0, 200), [(id(2), 10)]);
    assert_eq!(evict(&mut ledger, 0, 100), [(id(1), 500)]);
    assert_eq!(evict(&mut ledger, 0, 0), []);
    assert_eq!(ledger.total(), 100);
}

#[test]
fn what_cannot_be_removed_is_passed_over() {
    let trees = vec![tree(0, 1, 10, &[0]), tree(1, 2, 10, &[0])];
    let mut ledger = Ledger::new(trees, &[100]);
    let Ok(removed) = ledger.evict(0, 0, |tree| Ok::<_, Infallible>(*tree != id(0)));
    assert_eq!(removed, [(id(1), 10)]);
    assert_eq!(ledger.total(), 110);
}

#[test]
fn bounds_say_how_much_has_to_go() {
    let bounds = CacheBounds::at_most(ByteSize(1000));
    let disk = |available| {
        Some(Disk {
            total: 10_000,
            available,
        })
    };
    for (total, disk, expected) in [
        (1000, None, None),
        (1001, None, Some(900)),
        (1000, disk(500), None),
        (1000, disk(400), Some(900)),
        (1001, disk(0), Some(501)),
        (300, disk(0), Some(100)),
        // Below the floor nothing goes.
        (100, disk(0), None),
    ] {
        assert_eq!(bounds.target(total, disk), expected, "{total} {disk:?}");
    }
    let endless = CacheBounds {
        max: None,
        floor: ByteSize(0),
    };
    assert_eq!(endless.target(u64::MAX, None), None);
}

/// The sum of what trees take up, told naively.
fn weigh(trees: &BTreeMap<usize, Candidate>, sizes: &[u64]) -> u64 {
    let files: BTreeSet<usize> = trees.values().flat_map(|tree| tree.files.clone()).collect();
    let own: u64 = trees.values().map(|tree| tree.own_bytes).sum();
    own + files.iter().map(|file| sizes[*file]).sum::<u64>()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_eviction_is_what_a_naive_one_does(
        sizes in vec(0..50_u64, 6),
        drafts in vec((0..9_i64, any::<bool>(), 0..30_u64, btree_set(0..6_usize, 0..5)), 0..7),
        target in 0..200_u64,
        floor in 0..60_u64,
    ) {
        let trees: Vec<Candidate> = drafts
            .into_iter()
            .enumerate()
            .map(|(number, (used_at, is_busy, own_bytes, files))| Candidate {
                id: id(number),
                used_at,
                is_busy,
                own_bytes,
                files: files.into_iter().collect(),
            })
            .collect();
        let mut left: BTreeMap<usize, Candidate> = trees.iter().cloned().enumerate().collect();
        let mut order: Vec<usize> = (0..trees.len()).collect();
        order.sort_by_key(|number| trees[*number].used_at);
        let mut expected = Vec::new();
        for number in order {
            let before = weigh(&left, &sizes);
            let mut without = left.clone();
            without.remove(&number);
            let after = weigh(&without, &sizes);
            if before > target && !trees[number].is_busy && after >= floor {
                expected.push((id(number), before - after));
                left = without;
            }
        }
        let mut ledger = Ledger::new(trees, &sizes);
        prop_assert_eq!(evict(&mut ledger, target, floor), expected);
        prop_assert_eq!(ledger.total(), weigh(&left, &sizes));
    }
}
