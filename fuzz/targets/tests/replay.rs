//! Every committed seed, which includes each input that once broke a promise, and a few thousand
//! random changes of them with a fixed seed, so that a broken promise is seen without a fuzzer too.

use std::fs;
use std::path::{Path, PathBuf};

use tidemill_fuzz_targets::TARGETS;

/// Changes of each seed.
const CHANGES: u32 = 30;
/// Seeds are small, so that they stay readable and quick.
const SEED_BYTES_MAX: usize = 16 << 10;

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../seeds")
        .join(target);
    let entries = fs::read_dir(&folder).expect("each target has a folder of seeds");
    let mut seeds: Vec<_> = entries
        .map(|entry| entry.expect("the folder can be listed").path())
        .map(|path| (path.clone(), fs::read(path).expect("a seed can be read")))
        .collect();
    seeds.sort();
    seeds
}

/// Marsaglia's xorshift with 64 bits.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).expect("a length fits");
        usize::try_from(self.next() % end).expect("it is below a length")
    }
}

/// Bytes replaced, doubled, left out or exchanged with a part of another seed.
fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(16)).min(bytes.len());
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            3 => {
                let from = random.below(other.len() + 1);
                let part = &other[from..(from + random.below(64)).min(other.len())];
                bytes.splice(at..end, part.iter().copied());
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.next().to_le_bytes()[0];
                }
            }
        }
    }
}

/// Says which input it was, if the target panics.
struct Witness<'a>(&'a str, &'a Path, &'a [u8]);

impl Drop for Witness<'_> {
    #[expect(clippy::print_stdout, reason = "it is shown when the test fails")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(target, seed, bytes) = self;
            let shown: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            println!("{target}, {}: {shown}", seed.display());
        }
    }
}

#[test]
fn no_seed_and_no_change_of_one_breaks_a_promise() {
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for (path, seed) in &seeds {
            assert!(seed.len() <= SEED_BYTES_MAX, "{} is large", path.display());
            let whole = Witness(name, path, seed);
            target(seed);
            drop(whole);
            for _ in 0..CHANGES {
                let other = &seeds[random.below(seeds.len())].1;
                let mut changed = seed.clone();
                change(&mut changed, other, &mut random);
                let witness = Witness(name, path, &changed);
                target(&changed);
                drop(witness);
            }
        }
    }
}

#[test]
fn every_folder_of_seeds_belongs_to_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../seeds");
    for entry in fs::read_dir(folder).expect("it is committed") {
        let name = entry.expect("it can be listed").file_name();
        let is_known = TARGETS.iter().any(|(target, _)| name == **target);
        assert!(is_known, "{} is no target", name.display());
    }
}
