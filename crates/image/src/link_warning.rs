//! What a caller should know before a job sees it: that a path is something else than its name says.

use std::path::{Path, PathBuf};

use tidemill_core::GrantRequest;
use tidemill_core::job::{JobSpec, Layer};

use crate::followed::{Followed, follow, follow_from_cwd};
use crate::host_view::HostView;

/// A line for each path of a spec that leads through a symbolic link which a job may have made.
/// `is_named` is true if the caller named the workspace. What is refused for its link is not told here:
/// the plan does.
pub fn link_warnings(spec: &JobSpec, host: &HostView, is_named: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut add = |text: String| {
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    };
    let workspace = spec.workspace.as_ref();
    if let Some(workspace) = workspace
        && (is_named || workspace.write)
        && let Ok(followed) = follow(Path::new(&workspace.path))
        && let Some(link) = followed.planted.first()
        && !(workspace.write && is_planted(&workspace.path, host))
    {
        add(text("workspace", &workspace.path, &followed, link));
    }
    let real = |path: &Path| Some(follow(path).ok()?.path);
    let places: Vec<PathBuf> = [
        host.stands_in.clone(),
        workspace.and_then(|workspace| real(Path::new(&workspace.path))),
    ]
    .into_iter()
    .flatten()
    .collect();
    for (what, path) in sources(spec) {
        let Ok(followed) = follow(&path) else {
            continue;
        };
        let is_in_place = |link: &&PathBuf| places.iter().any(|place| link.starts_with(place));
        if let Some(link) = followed.planted.iter().find(is_in_place) {
            add(text(what, &path.to_string_lossy(), &followed, link));
        }
    }
    warnings
}

fn text(what: &str, named: &str, followed: &Followed, link: &Path) -> String {
    format!(
        "the {what} `{named}` is `{}`: `{}` is a symbolic link",
        followed.path.display(),
        link.display()
    )
}

fn is_planted(path: &str, host: &HostView) -> bool {
    follow_from_cwd(Path::new(path), host).is_ok_and(|followed| !followed.planted.is_empty())
}

/// What of the host is only read.
fn sources(spec: &JobSpec) -> impl Iterator<Item = (&'static str, PathBuf)> {
    let layers = spec.layers.iter().flat_map(|layer| match layer {
        Layer::Dir { source, .. } | Layer::File { source, .. } | Layer::Tar { source, .. } => {
            vec![("layer", PathBuf::from(source))]
        }
        // Below the pattern's directory no link is followed.
        Layer::Glob { base, .. } => vec![("layer", PathBuf::from(base))],
        Layer::SharedLibs { binaries, .. } => {
            let paths = binaries.iter().map(PathBuf::from);
            paths.map(|path| ("program", path)).collect()
        }
        Layer::Stubs { .. }
        | Layer::Symlinks { .. }
        | Layer::Command { .. }
        | Layer::Oci { .. } => Vec::new(),
    });
    let binds = spec.grants.iter().filter_map(|grant| match grant {
        GrantRequest::Bind {
            source,
            write: false,
            ..
        } => Some(("bind", PathBuf::from(source))),
        _ => None,
    });
    layers.chain(binds)
}
