//! Images and layers as lines for people.

use tidemill_core::job::Image;
use tidemill_core::oci::OciDigest;
use tidemill_core::{Attributes, Layer};

use super::command_line;
use crate::ui::plain;

/// Characters of a command, and entries of a list, that are shown.
const COMMAND_CHARS_MAX: usize = 200;
const ENTRIES_MAX: usize = 4;

/// What a root is made of.
pub(crate) fn image(image: &Image) -> String {
    match image {
        Image::Host => "host".to_owned(),
        Image::None => "none".to_owned(),
        Image::Dir { path } => format!("dir {}", plain(path)),
        Image::Tar { path } => format!("tar {}", plain(path)),
        Image::Oci {
            reference,
            digest,
            platform,
        } => oci(reference, digest.as_ref(), platform.as_deref()),
    }
}

/// An image of a registry, with what it was resolved to.
fn oci(reference: &str, digest: Option<&OciDigest>, platform: Option<&str>) -> String {
    let platform = platform.map(|name| format!(" ({})", plain(name)));
    let digest = digest.map(|digest| format!(" is {digest}"));
    let parts = [Some(format!("oci {}", plain(reference))), platform, digest];
    parts.into_iter().flatten().collect()
}

/// What a layer brings, where it appears and what its files become.
pub(crate) fn line(layer: &Layer) -> String {
    let to = |what: String, dest: &str| format!("{what} at {}", plain(dest));
    match layer {
        Layer::Dir {
            source,
            dest,
            attributes,
        } => to(format!("dir {}", plain(source)), dest) + &changed(attributes),
        Layer::File {
            source,
            dest,
            attributes,
        } => to(format!("file {}", plain(source)), dest) + &changed(attributes),
        Layer::Glob {
            base,
            include,
            exclude,
            strip,
            dest,
            attributes,
        } => {
            let exceptions = match exclude.as_slice() {
                [] => String::new(),
                exclude => format!(" without {}", list(exclude)),
            };
            let what = format!("glob {} in {}{exceptions}", list(include), plain(base));
            to(what + &without(strip.as_deref()), dest) + &changed(attributes)
        }
        Layer::Tar {
            source,
            strip,
            dest,
            attributes,
        } => {
            let what = format!("tar {}", plain(source)) + &without(strip.as_deref());
            to(what, dest) + &changed(attributes)
        }
        Layer::Oci {
            reference,
            digest,
            platform,
            strip,
            dest,
            attributes,
        } => {
            let what = oci(reference, digest.as_ref(), platform.as_deref());
            to(what + &without(strip.as_deref()), dest) + &changed(attributes)
        }
        Layer::Stubs { paths, attributes } => {
            format!("stubs {}", list(paths)) + &changed(attributes)
        }
        Layer::Symlinks { links } => {
            let links: Vec<String> = links
                .iter()
                .map(|(link, target)| format!("{link} -> {target}"))
                .collect();
            format!("symlinks {}", list(&links))
        }
        Layer::SharedLibs {
            binaries,
            dest,
            attributes,
        } => to(format!("shared-libs of {}", list(binaries)), dest) + &changed(attributes),
        Layer::Command {
            program,
            args,
            dest,
            attributes,
            ..
        } => {
            let command = [std::slice::from_ref(program), args].concat();
            let what = format!("command {}", command_line(&command, COMMAND_CHARS_MAX));
            to(what, dest) + &changed(attributes)
        }
    }
}

fn list(entries: &[String]) -> String {
    let shown: Vec<String> = entries
        .iter()
        .take(ENTRIES_MAX)
        .map(|entry| plain(entry))
        .collect();
    match entries.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn without(strip: Option<&str>) -> String {
    strip.map_or(String::new(), |strip| format!(" below {}", plain(strip)))
}

/// What the files become, where they are not as they were found.
fn changed(attributes: &Attributes) -> String {
    if *attributes == Attributes::CANONICAL {
        return ", canonical".to_owned();
    }
    let Attributes { owner, mode, mtime } = attributes;
    let owner = owner.map(|owner| format!(", owner {}:{}", owner.uid, owner.gid));
    let mode = mode.map(|mode| format!(", mode {mode}"));
    let mtime = mtime.map(|mtime| format!(", mtime {mtime}"));
    [owner, mode, mtime].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use tidemill_core::check::{Surroundings, check};
    use tidemill_core::draft::{Draft, LayerDraft};

    use super::*;

    #[test]
    fn each_layer_is_one_line() {
        for (text, expected) in [
            ("dir:/a=/b", "dir /a at /b"),
            (
                "file,mode=755,owner=1:/a=/b",
                "file /a at /b, owner 1:1, mode 0755",
            ),
            (
                "glob,exclude=*.o,strip=s,canonical:s/*.c=/c",
                "glob s/*.c in /base without *.o below s at /c, canonical",
            ),
            (
                "tar,strip=x,mtime=7:/a.tar",
                "tar /a.tar below x at /, mtime 7",
            ),
            ("stubs:/{a,b}/", "stubs /{a,b}/"),
            ("symlinks:b=/a", "symlinks /a -> b"),
            ("shared-libs:/bin/ls", "shared-libs of /bin/ls at /"),
            (
                "oci,strip=usr,canonical,platform=linux/arm64:debian:12=/d",
                "oci debian:12 (linux/arm64) below usr at /d, canonical",
            ),
            ("command:make x", "command sh -c 'make x' at /"),
        ] {
            let draft = Draft {
                program: Some("true".to_owned()),
                layers: vec![LayerDraft::new(text, "/base")],
                ..Draft::default()
            };
            let (spec, found) = check(&draft, &Surroundings::default());
            let spec = spec.unwrap_or_else(|| panic!("{text}: {found:?}"));
            assert_eq!(line(&spec.layers[0]), expected);
        }
    }
}
