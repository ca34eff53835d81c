//! Which values of a job must not stand in its record.

use std::env;

use tidemill_core::{JobSpec, Layer};

/// Parts of a variable's name that say that its value is secret.
const SECRET_WORDS: [&str; 8] = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "APIKEY",
    "_KEY",
];
/// A shorter value stands in too many other words to be replaced in them.
const SECRET_BYTES_MIN: usize = 6;

/// The values of variables whose names say that they are secret: set for the job or the command of a
/// layer, or passed on.
pub(crate) fn values(spec: &JobSpec) -> Vec<String> {
    values_with(spec, |name| env::var(name).ok())
}

fn values_with(spec: &JobSpec, caller: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let of_layers = spec.layers.iter().filter_map(|layer| match layer {
        Layer::Command { env, .. } => Some(env),
        _ => None,
    });
    let set = std::iter::once(&spec.env)
        .chain(of_layers)
        .flatten()
        .map(|(name, value)| (name, Some(value.clone())));
    let passed = spec.pass_env.iter().map(|name| (name, caller(name)));
    set.chain(passed)
        .filter(|(name, _)| is_secret(name))
        .filter_map(|(_, value)| value)
        .filter(|value| value.len() >= SECRET_BYTES_MIN)
        .collect()
}

fn is_secret(name: &str) -> bool {
    let name = name.to_uppercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use tidemill_core::Attributes;

    use super::*;

    #[test]
    fn names_tell_secrets() {
        let mut spec = JobSpec::new("true", []);
        for (name, value) in [
            ("GITHUB_TOKEN", "abcdefgh"),
            ("db_password", "hunter22"),
            ("SIGNING_KEY", "short"),
            ("RUST_LOG", "debug,everything"),
        ] {
            spec.env.insert(name.into(), value.into());
        }
        spec.layers = vec![Layer::Command {
            program: "fetch".into(),
            args: Vec::new(),
            env: [("MIRROR_TOKEN".into(), "of-a-layer".into())].into(),
            dest: "/".into(),
            attributes: Attributes::default(),
        }];
        spec.pass_env = vec!["NPM_TOKEN".into(), "PATH".into(), "GONE_SECRET".into()];
        let found = values_with(&spec, |name| match name {
            "GONE_SECRET" => None,
            other => Some(format!("value of {other}")),
        });
        assert_eq!(
            found,
            ["abcdefgh", "hunter22", "of-a-layer", "value of NPM_TOKEN"]
        );
    }
}
