//! What a store of bounded size removes: what was used least recently, never what is in use, and
//! never so much that less than a floor is left.
//!
//! A decision only. Whoever removes the things moves them out of reach first (a rename), so that
//! somebody who asks for one of them in the meantime gets a new one.

use tidemill_core::ByteSize;

/// How large a store may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes above which things are removed.
    pub max: ByteSize,
    /// Bytes that removing leaves at least; wins over `max`. A store whose disk is filled by others
    /// would otherwise remove everything again and again, and each job would start cold.
    pub floor: ByteSize,
}

impl Bounds {
    /// A bound without a floor.
    pub const fn at_most(max: ByteSize) -> Self {
        let floor = ByteSize(0);
        Self { max, floor }
    }
}

/// One thing in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept<K, T> {
    /// Its name.
    pub key: K,
    /// What removing it frees.
    pub size: ByteSize,
    /// When it was used last: the lesser goes first, equal ones in the order in which they come.
    pub last_use: T,
    /// True if somebody holds it or it is being made.
    pub in_use: bool,
}

/// What to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction<K> {
    /// The keys, the least recently used first.
    pub remove: Vec<K>,
    /// Bytes in the store when they are gone, without those that come.
    pub left: ByteSize,
    /// Bytes by which the store and what comes exceed the bound even then, because the rest is in
    /// use or the floor is reached.
    pub over: ByteSize,
}

/// Chooses what to remove from a store so that it stays within its bounds when `coming` more bytes
/// are added. Nothing while it does; otherwise the least recently used first, until it does. What
/// would leave less than the floor is passed over, and something smaller may go in its place. A
/// thing without bytes stays, because removing it frees nothing.
pub fn choose<K, T: Ord>(
    bounds: Bounds,
    coming: ByteSize,
    kept: impl IntoIterator<Item = Kept<K, T>>,
) -> Eviction<K> {
    let wide = |size: ByteSize| u128::from(size.0);
    let mut total = 0;
    let mut candidates = Vec::new();
    for each in kept {
        total += wide(each.size);
        if !each.in_use && each.size > ByteSize(0) {
            candidates.push(each);
        }
    }
    candidates.sort_by(|one, other| one.last_use.cmp(&other.last_use));
    let over = |total: u128| (total + wide(coming)).saturating_sub(wide(bounds.max));
    let mut remove = Vec::new();
    for each in candidates {
        if over(total) == 0 {
            break;
        }
        let left = total - wide(each.size);
        if left >= wide(bounds.floor) {
            total = left;
            remove.push(each.key);
        }
    }
    let narrow = |bytes: u128| ByteSize(u64::try_from(bytes).unwrap_or(u64::MAX));
    Eviction {
        remove,
        left: narrow(total),
        over: narrow(over(total)),
    }
}

#[cfg(test)]
mod tests;
