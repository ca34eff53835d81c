//! Any sequence of builds, uses, removals, damage and checks, compared with a naive model.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// What a tree that is built may have in it.
const CONTENTS: [&[(&str, &str)]; 4] = [
    &[("a", "one")],
    &[("a", "one"), ("b", "two")],
    &[("b", "one"), ("c/d", "two"), ("e", "one")],
    &[("c/d", "two"), ("f", "")],
];

#[derive(Debug, Clone)]
enum Step {
    Build { process: usize, name: usize },
    Find { process: usize, name: usize },
    Restart { process: usize },
    Remove { name: usize },
    Prune { max: u64 },
    Damage { name: usize },
    Verify,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let (process, name) = (0..2_usize, 0..6_usize);
    prop_oneof![
        4 => (process.clone(), name.clone()).prop_map(|(process, name)| Step::Build { process, name }),
        2 => (process.clone(), name.clone()).prop_map(|(process, name)| Step::Find { process, name }),
        2 => process.prop_map(|process| Step::Restart { process }),
        2 => name.clone().prop_map(|name| Step::Remove { name }),
        1 => (0..20_000_u64).prop_map(|max| Step::Prune { max }),
        1 => name.prop_map(|name| Step::Damage { name }),
        1 => Just(Step::Verify),
        1 => Just(Step::Crash),
    ]
}

/// Which names stand for a tree, and which process uses which.
#[derive(Debug, Default)]
struct Model {
    /// By name: which content it has.
    there: BTreeMap<usize, usize>,
    /// Contents of which a file was damaged, as trees of them share it.
    damaged: bool,
    used: [BTreeMap<usize, usize>; 2],
}

impl Model {
    /// Whether a name must have a tree, and whether it may: a name of a tree that was put aside leads to
    /// it again when another name has it built anew.
    fn knows(&self, name: usize) -> (bool, bool) {
        let content = content_of_name(name);
        let is_there = self.there.contains_key(&name);
        let others = self.there.values().any(|there| *there == content);
        (is_there, is_there || others)
    }

    fn is_used(&self, content: usize) -> bool {
        self.used
            .iter()
            .any(|used| used.values().any(|used| *used == content))
    }
}

/// Six names, of which two stand for the same content as others.
const fn content_of_name(name: usize) -> usize {
    name % CONTENTS.len()
}

struct Run {
    world: World,
    processes: Vec<TreeStore>,
    model: Model,
}

impl Run {
    fn name(name: usize) -> Digest {
        name_of(&name.to_string())
    }

    fn act(&mut self, step: &Step) {
        match step {
            Step::Build { process, name } => {
                let content = content_of_name(*name);
                let store = &self.processes[*process];
                let was_built = std::cell::Cell::new(false);
                let root = store.get_or_build(&Self::name(*name), |root| {
                    was_built.set(true);
                    files(CONTENTS[content])(root)
                });
                let root = root.unwrap();
                if !self.model.damaged {
                    let (is_there, may_be_there) = self.model.knows(*name);
                    assert!(!is_there || !was_built.get());
                    assert!(may_be_there || was_built.get());
                    for (path, text) in CONTENTS[content] {
                        assert_eq!(fs::read_to_string(root.join(path)).unwrap(), *text);
                    }
                }
                self.model.there.insert(*name, content);
                self.model.used[*process].insert(*name, content);
            }
            Step::Find { process, name } => {
                let found = self.processes[*process].find(&Self::name(*name));
                if !self.model.damaged {
                    let (is_there, may_be_there) = self.model.knows(*name);
                    assert!(!is_there || found.is_some());
                    assert!(may_be_there || found.is_none());
                }
                if found.is_some() {
                    self.model.there.insert(*name, content_of_name(*name));
                    self.model.used[*process].insert(*name, content_of_name(*name));
                }
            }
            Step::Restart { process } => {
                self.processes[*process] = self.world.open();
                self.model.used[*process].clear();
            }
            Step::Remove { name } => {
                let removed = self.world.open().remove(&Self::name(*name)).unwrap();
                if let Some(content) = self.model.there.get(name).copied()
                    && !self.model.damaged
                {
                    assert_eq!(removed, !self.model.is_used(content));
                    if removed {
                        self.model.there.retain(|_, there| *there != content);
                    }
                }
            }
            Step::Prune { max } => {
                let wish = PruneWish {
                    floor: ByteSize(0),
                    max: Some(ByteSize(*max)),
                    used_before: None,
                    is_trial: false,
                };
                let pruned = self.world.open().prune(&wish).unwrap();
                assert_eq!(pruned.failures, [""; 0]);
                self.forget_what_is_gone();
            }
            Step::Damage { name } => {
                let store = &self.processes[0];
                let root = store.published(&store.resolve(&Self::name(*name)));
                let (path, text) = CONTENTS[content_of_name(*name)][0];
                if let Some(root) = root
                    && !text.is_empty()
                {
                    fs::write(root.join(path), "damage").unwrap();
                    self.model.damaged = true;
                }
            }
            Step::Verify => {
                let verified = self.world.open().verify(|_, _| ()).unwrap();
                assert_eq!(verified.failures, [""; 0]);
                if !self.model.damaged {
                    assert_eq!(verified.findings, []);
                }
                assert_eq!(self.world.open().verify(|_, _| ()).unwrap().findings, []);
                self.forget_what_is_gone();
                self.model.damaged = false;
            }
            Step::Crash => {
                for entry in fs::read_dir(self.world.open().layout.ready()).unwrap() {
                    fs::write(entry.unwrap().path().join(FRESH), "before").unwrap();
                }
                for process in 0..2 {
                    self.act(&Step::Restart { process });
                }
            }
        }
    }

    /// The model does not know which trees are large or damaged: that nothing in use goes is looked at here.
    fn forget_what_is_gone(&mut self) {
        let store = self.world.open();
        let gone: Vec<usize> = self
            .model
            .there
            .keys()
            .copied()
            .filter(|name| {
                store
                    .published(&store.resolve(&Self::name(*name)))
                    .is_none()
            })
            .collect();
        for name in gone {
            let content = self.model.there.remove(&name).unwrap();
            let is_used = self.model.is_used(content);
            assert!(self.model.damaged || !is_used, "{name} was in use");
        }
    }

    /// What always holds.
    fn check(&self) {
        let inventory = self.world.open().inventory().unwrap();
        assert_eq!(
            inventory.building_bytes,
            self.bare(|layout| layout.building())
        );
        if !self.model.damaged {
            let ids: std::collections::BTreeSet<_> = self.model.there.values().collect();
            assert_eq!(inventory.trees.len(), ids.len(), "{inventory:#?}");
            assert_eq!(inventory.unused_bytes, 0);
        }
    }

    /// What an empty directory takes.
    fn bare(&self, directory: impl Fn(&Layout) -> PathBuf) -> u64 {
        assert_eq!(count(directory(&self.world.open().layout)), 0);
        0
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 24,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_sequence_does_what_the_model_says(steps in vec(step(), 1..25)) {
        let world = World::new();
        let processes = vec![world.open(), world.open()];
        let mut run = Run { world, processes, model: Model::default() };
        for step in &steps {
            run.act(step);
            run.check();
        }
    }
}
