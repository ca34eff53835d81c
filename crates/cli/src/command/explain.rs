//! `tidemill explain`: what a job would see and be granted. Layers are unpacked, nothing is run.

use std::path::PathBuf;

use serde::Serialize;
use tidemill_core::{Digest, Grant, GrantRequest, JobSpec, Layer, RootPlan};
use tidemill_image::{
    ArchiveOwners, HostView, LayerKey, PlanError, Planned, TreeStore, build_layer, key_at,
    layer_keys, plan,
};
use tidemill_ledger::Redactor;
use tidemill_runner::{BuildWatch, Cause, OciImages, Unpacker, chain};
use tidemill_sandbox::{Check, CheckState, probe_host};

use crate::args::{ExplainArgs, Format, GlobalArgs};
use crate::cache;
use crate::diagnostics::render;
use crate::failure::{Failure, FailureKind};
use crate::job;
use crate::oci::{Preparing, Resolving, StoredImages};
use crate::output::Output;
use crate::run::{namespace_unpacker, secret_values, tree_store};
use crate::state_dir::state_dir;
use crate::text::{bounds, command_line, grant, layer};
use crate::ui::{Ui, plain};
use crate::unpacker::NamespaceUnpacker;

/// Characters of a command that are shown.
const COMMAND_CHARS_MAX: usize = 2000;

/// Checks of `doctor` that say nothing about a job that was not granted the same.
const FOR_GRANTS: [(&str, GrantRequest); 2] =
    [("kvm", GrantRequest::Kvm), ("fuse", GrantRequest::Fuse)];

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct Explanation<'a> {
    version: u32,
    spec: &'a JobSpec,
    /// What became of each layer, in their order.
    layers: &'a [LayerState],
    workdir: &'a str,
    /// The names of all variables. Values are left out: they may be secret.
    variables: Vec<&'a str>,
    grants: &'a [Grant],
    root: &'a RootPlan,
    /// What `doctor` finds that this host cannot do, or not fully, for a job.
    lacking: &'a [Check],
}

pub(crate) fn explain(
    args: &ExplainArgs,
    global: &GlobalArgs,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    let mut job = job::checked(&args.job)?;
    if !job.warnings.is_empty() {
        ui.raw_note(&render(&job.warnings));
    }
    for note in &job.notes {
        ui.note(note);
    }
    let resolving = Resolving {
        global,
        is_locked: args.job.locked,
        preparing: Preparing::begin(None),
        ui,
    };
    let resolution = resolving.resolve(job.spec)?;
    job.spec = resolution.spec;
    let state_dir = state_dir(global.state_dir.as_deref())?;
    let host = job.host.with_state_dir(&state_dir);
    let cache_bounds = cache::bounds(global)?;
    let mut trees = tree_store(&state_dir.join("trees"), cache_bounds)?;
    // The trees that a run would have, and not some of its own.
    let unpacker = namespace_unpacker(&state_dir, cache_bounds);
    if unpacker.is_some() {
        trees = trees.with_owners(ArchiveOwners::SubIds);
    }
    let keys = layer_keys(&job.spec, &host, &trees).map_err(|error| not_planned(&error))?;
    let builder = Builder {
        trees: &trees,
        images: StoredImages::new(&state_dir, resolution.pending),
        unpacker,
        ui,
    };
    for key in keys.iter().filter(|key| !is_run(key)) {
        builder.build(key)?;
    }
    let layers = layers_of(&job.spec, &host, &trees).map_err(|error| not_planned(&error))?;
    // Nothing is run, so what a command would bring is not seen if it did not run before.
    let mut shown = job.spec.clone();
    let mut built = layers
        .iter()
        .map(|layer| layer.tree.is_some() || !layer.is_run);
    shown.layers.retain(|_| built.next().unwrap_or(true));
    let planned = plan(&shown, &host, &trees).map_err(|error| not_planned(&error))?;
    let lacking: Vec<Check> = probe_host()
        .checks
        .into_iter()
        .filter(|check| check.state != CheckState::Ok && is_needed(&check.name, &job.spec))
        .collect();
    // What is explained is kept in logs as records are, so it says no more than they do.
    let spec = Redactor::new(secret_values(&job.spec)).spec(&job.spec);
    match global.format {
        Format::Json => output.json_document(&Explanation {
            version: 1,
            spec: &spec,
            layers: &layers,
            workdir: &planned.workdir,
            variables: planned.env.iter().map(|(name, _)| name.as_str()).collect(),
            grants: &planned.grants,
            root: &planned.root,
            lacking: &lacking,
        })?,
        Format::Text => output.line(&page(&spec, &layers, &planned, &lacking))?,
    }
    Ok(0)
}

/// Builds trees that nothing has to be run for.
struct Builder<'a> {
    trees: &'a TreeStore,
    images: StoredImages,
    unpacker: Option<NamespaceUnpacker>,
    ui: &'a Ui,
}

impl Builder<'_> {
    fn build(&self, key: &LayerKey) -> Result<(), Failure> {
        if key.is_built(self.trees) {
            return Ok(());
        }
        if let Some(unpacker) = &self.unpacker
            && let Some(order) = key.look_order(self.trees)
            && unpacker.build(&order).is_ok()
            && key.is_built(self.trees)
        {
            return Ok(());
        }
        for below in key.made_of() {
            self.build(below)?;
        }
        let built = match key.image() {
            Some(image) => self
                .images
                .with_layers(image, &self.watch(), &mut |layers| {
                    self.build_whole(&key.clone().with_layers(layers))
                }),
            None => self.build_whole(key),
        };
        self.ui.quiet();
        built.map(drop).map_err(|cause| {
            let failure = Failure::new(FailureKind::Unable, "a layer cannot be unpacked");
            Failure {
                causes: vec![cause.message],
                hints: cause.hint.into_iter().collect(),
                ..failure
            }
        })
    }

    /// Shows what is waited for.
    fn watch(&self) -> BuildWatch {
        let ui = self.ui.clone();
        BuildWatch::new(move |progress| ui.status(&progress.to_string()))
    }

    fn build_whole(&self, key: &LayerKey) -> Result<PathBuf, Cause> {
        if let Some((unpacker, order)) = self.unpacker.as_ref().zip(key.order()) {
            return unpacker.build(order);
        }
        build_layer(key, self.trees).map_err(|error| Cause {
            message: chain(&error),
            hint: Some(error.hint()),
        })
    }
}

/// True if a command makes the tree, or what it is made of.
fn is_run(key: &LayerKey) -> bool {
    key.command().is_some() || key.made_of().any(is_run)
}

fn is_needed(check: &str, spec: &JobSpec) -> bool {
    FOR_GRANTS
        .iter()
        .find(|(name, _)| *name == check)
        .is_none_or(|(_, grant)| spec.grants.contains(grant))
}

fn not_planned(error: &PlanError) -> Failure {
    Failure::new(FailureKind::Unable, "the job cannot be prepared")
        .because(error)
        .hint(error.hint())
}

/// What became of a layer.
#[derive(Debug, Serialize)]
struct LayerState {
    /// The digest of its tree, which is the same for equal content, owners, modes and times; absent if it
    /// is used where it is, depends on the image, or is not there yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<Digest>,
    /// True if a command makes it.
    is_run: bool,
}

fn layers_of(
    spec: &JobSpec,
    host: &HostView,
    trees: &TreeStore,
) -> Result<Vec<LayerState>, PlanError> {
    let state = |index| {
        let key = key_at(spec, index, host, trees)?;
        Ok(LayerState {
            tree: key
                .as_ref()
                .filter(|key| key.is_built(trees))
                .map(|key| trees.tree_digest(key.name()).unwrap_or(*key.name())),
            is_run: matches!(spec.layers[index], Layer::Command { .. }),
        })
    };
    (0..spec.layers.len()).map(state).collect()
}

fn page(spec: &JobSpec, layers: &[LayerState], planned: &Planned, lacking: &[Check]) -> String {
    let field = |name: &str, value: &str| format!("{name:<10}  {value}");
    let account = &planned.root.account;
    let mut lines = vec![
        field("command", &command_line(&spec.command(), COMMAND_CHARS_MAX)),
        field("starts in", &plain(&planned.workdir)),
        field(
            "user",
            &format!(
                "{} ({}:{}), home {}",
                plain(&account.name),
                account.user.uid,
                account.user.gid,
                plain(&account.home)
            ),
        ),
        field("limits", &bounds::limits(spec)),
        field("on cancel", &bounds::on_cancel(spec)),
    ];
    let names: Vec<String> = planned.env.iter().map(|(name, _)| plain(name)).collect();
    lines.push(field("variables", &names.join(" ")));
    lines.push(field("image", &layer::image(&spec.image)));
    for (layer, state) in spec.layers.iter().zip(layers) {
        lines.push(field("layer", &layer::line(layer)));
        if let Some(tree) = &state.tree {
            lines.push(field("", &format!("  tree {tree}")));
        } else if state.is_run {
            lines.push(field(
                "",
                "  it did not run yet, so what it brings is not shown",
            ));
        }
    }
    lines.push(String::new());
    lines.push("what it is granted of this machine:".to_owned());
    lines.extend(
        grant::lines(&planned.grants)
            .into_iter()
            .map(|line| format!("  {line}")),
    );
    if planned.grants.is_empty() {
        lines.push("  nothing".to_owned());
    }
    if !lacking.is_empty() {
        lines.push(String::new());
        lines.push("what this host cannot do for it (`tidemill doctor` has the fixes):".to_owned());
        lines.extend(
            lacking
                .iter()
                .map(|check| format!("  {:<15}  {}", check.name, plain(&check.found))),
        );
    }
    lines.join("\n")
}
