//! What flags say: images, layers, grants, variables and all other texts of a job.

use std::collections::BTreeMap;

use tidemill_core::braces;
use tidemill_core::check::{CallerVariable, ENTRIES_MAX, PathProblem, Surroundings, check};
use tidemill_core::draft::{Draft, LayerDraft, LimitsDraft, Located};
use tidemill_core::job::Layer;
use tidemill_core::{Diagnostic, JobSpec};

const BASE: &str = "/caller";

/// Each line is one flag, named by its first byte.
fn draft_of(text: &str) -> Draft {
    let mut draft = Draft::default();
    let mut limits = LimitsDraft::default();
    for line in text.split('\n') {
        let mut letters = line.chars();
        let Some(flag) = letters.next() else {
            continue;
        };
        let value = letters.as_str().to_owned();
        let located = || Located::new(value.clone(), BASE);
        match flag {
            'L' => draft.layers.push(LayerDraft::new(value, BASE)),
            'G' => draft.grants.push(located()),
            'I' => draft.image = Some(located()),
            'W' => draft.workspace = Some(located()),
            'N' => draft.no_workspace = !draft.no_workspace,
            'w' => draft.write = !draft.write,
            'd' => draft.workdir = Some(value),
            'E' => insert(&mut draft.env, &value),
            'P' => draft.pass_env.push(value),
            'l' => insert(&mut draft.labels, &value),
            'n' => draft.name = Some(value),
            'x' => draft.program = Some(value),
            'a' => draft.args.push(value),
            'h' => draft.network = Some(value),
            's' => draft.stop_signal = Some(value),
            'u' => draft.user = Some(value),
            'i' => draft.stdin = Some(value),
            't' => draft.tty = !draft.tty,
            'p' => draft.priority = Some(value),
            'e' => draft.estimate = Some(value),
            'v' => draft.version = Some(value),
            '0' => limits.memory = Some(value),
            '1' => limits.cpus = Some(value),
            '2' => limits.pids = Some(value),
            '3' => limits.disk = Some(value),
            '4' => limits.shm = Some(value),
            '5' => limits.timeout = Some(value),
            '6' => limits.grace = Some(value),
            '7' => limits.log = Some(value),
            '8' => limits.open_files = Some(value),
            _ => {}
        }
    }
    Draft { limits, ..draft }
}

fn insert(map: &mut BTreeMap<String, String>, pair: &str) {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    map.insert(name.to_owned(), value.to_owned());
}

/// Any texts are a job or have a mistake that can be told; a job has only paths that a sandbox can be
/// built from, and comes back from its canonical form.
pub fn draft(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let draft = draft_of(text);
    let path = |path: &str, _| {
        if path.ends_with('!') {
            Err(PathProblem::Link(path.to_owned()))
        } else {
            Ok(())
        }
    };
    let surroundings = Surroundings {
        caller_variable: &|name| match name.len() % 3 {
            0 => CallerVariable::Unset,
            1 => CallerVariable::Set { bytes: 1 << 16 },
            _ => CallerVariable::NotUtf8,
        },
        host_path: &path,
        workspace: Some("/caller/project"),
        ..Surroundings::default()
    };
    let (spec, diagnostics) = check(&draft, &surroundings);
    let is_refused = diagnostics.iter().any(Diagnostic::is_error);
    assert_eq!(spec.is_none(), is_refused);
    for diagnostic in &diagnostics {
        assert_tellable(diagnostic);
    }
    if let Some(spec) = spec {
        assert_usable(&spec);
    }
}

/// What is said of a mistake goes to a terminal, so nothing of it may control one.
pub(crate) fn assert_tellable(diagnostic: &Diagnostic) {
    let Diagnostic { message, hint, .. } = diagnostic;
    for text in [Some(message), hint.as_ref()].into_iter().flatten() {
        assert!(!text.is_empty());
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
    assert!(diagnostic.place.is_empty() || diagnostic.place.starts_with('/'));
}

fn assert_usable(spec: &JobSpec) {
    let canonical = spec.to_canonical();
    let again: JobSpec = serde_json::from_slice(&canonical).expect("the form can be read");
    assert_eq!(&again, spec);
    assert_eq!(again.to_canonical(), canonical);
    for layer in &spec.layers {
        let (sources, dests) = paths_of(layer);
        for source in sources {
            assert!(
                source.starts_with('/') && !source.contains('\0'),
                "{source:?}"
            );
        }
        for dest in dests {
            assert!(dest.starts_with('/') && !dest.contains('\0'), "{dest:?}");
            assert!(!dest.split('/').any(|part| part == ".."));
            for reserved in ["/proc", "/sys", "/dev"] {
                assert!(!dest.starts_with(&format!("{reserved}/")) && dest != reserved);
            }
        }
    }
}

/// The paths of the host and those of the sandbox that a layer names.
fn paths_of(layer: &Layer) -> (Vec<String>, Vec<String>) {
    match layer.clone() {
        Layer::Dir { source, dest, .. }
        | Layer::File { source, dest, .. }
        | Layer::Tar { source, dest, .. } => (vec![source], vec![dest]),
        Layer::Glob { base, dest, .. } => (vec![base], vec![dest]),
        Layer::Stubs { paths, .. } => {
            let expand = |path| braces::expand(path, ENTRIES_MAX).expect("the check read it");
            (
                Vec::new(),
                paths.iter().flat_map(|path| expand(path)).collect(),
            )
        }
        Layer::Symlinks { links } => (Vec::new(), links.into_keys().collect()),
        Layer::SharedLibs { binaries, dest, .. } => (binaries, vec![dest]),
        Layer::Command { dest, .. } | Layer::Oci { dest, .. } => (Vec::new(), vec![dest]),
    }
}
