//! What of the host is never shown to a job: tables that were reviewed line by line, each with its
//! reason.
//!
//! A job runs as an id that the host's permissions mostly keep out anyway. These tables are the
//! second wall: for backups with lax modes, for files that the caller owns, and for a job whose ids
//! are mapped to the caller's.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path};
use std::sync::LazyLock;

/// A path that is kept out. `*` in a name stands for any run of characters.
#[derive(Debug, Clone, Copy)]
pub struct Secret {
    /// The path, relative to `/etc` or to a home directory.
    pub pattern: &'static str,
    /// What it holds.
    pub why: &'static str,
}

const fn secret(pattern: &'static str, why: &'static str) -> Secret {
    Secret { pattern, why }
}

/// Paths below `/etc` that are always kept out.
pub const ETC_SECRETS: &[Secret] = &[
    secret("shadow*", "password hashes"),
    secret("gshadow*", "group password hashes"),
    secret("passwd-", "a backup of the user database"),
    secret("group-", "a backup of the group database"),
    secret("subuid-", "a backup of the sub-id database"),
    secret("subgid-", "a backup of the sub-id database"),
    secret(".pwd.lock", "the lock of the user database"),
    secret("security/opasswd*", "old password hashes"),
    secret("sudoers*", "who may become whom"),
    secret("doas.conf", "who may become whom"),
    secret("polkit-1/rules.d", "who may become whom"),
    secret("polkit-1/localauthority", "who may become whom"),
    secret("ssh/ssh_host_*", "the host's identity"),
    secret("dropbear", "the host's identity"),
    secret("ssl/private", "private keys"),
    secret("pki/tls/private", "private keys"),
    secret("pki/rpm-gpg/private", "private keys"),
    secret("pki/entitlement", "subscription keys"),
    secret("pki/consumer", "subscription keys"),
    secret("pki/nssdb", "a key store of the host"),
    secret("pki/CA/private", "private keys"),
    secret("letsencrypt", "private keys of the host's certificates"),
    secret("acme*", "private keys of the host's certificates"),
    secret("machine-id", "an identity of the host"),
    secret("krb5.keytab*", "Kerberos keys of the host"),
    secret("krb5kdc", "Kerberos keys of a realm"),
    secret("sssd", "directory credentials"),
    secret("nslcd.conf", "directory credentials"),
    secret("ldap.secret", "directory credentials"),
    secret("pam_ldap.secret", "directory credentials"),
    secret("libnss-ldap.secret", "directory credentials"),
    secret("samba/private", "domain credentials"),
    secret("samba/*.tdb", "domain credentials"),
    secret("NetworkManager/system-connections", "network passwords"),
    secret("wpa_supplicant*", "network passwords"),
    secret("iwd", "network passwords"),
    secret("netplan", "network passwords"),
    secret("network/interfaces*", "network passwords"),
    secret("sysconfig/network-scripts/keys-*", "network passwords"),
    secret("ppp/*-secrets*", "dial-in passwords"),
    secret("chatscripts", "dial-in passwords"),
    secret("wireguard", "tunnel keys"),
    secret("openvpn", "tunnel keys"),
    secret("strongswan*", "tunnel keys"),
    secret("swanctl", "tunnel keys"),
    secret("ipsec*", "tunnel keys"),
    secret("tinc", "tunnel keys"),
    secret("nebula", "tunnel keys"),
    secret("tailscale", "tunnel keys"),
    secret("cloudflared", "tunnel keys"),
    secret("docker", "registry credentials and TLS keys of a daemon"),
    secret("containers/auth*", "registry credentials"),
    secret("containerd/certs.d", "registry credentials"),
    secret("containerd/config.toml", "registry credentials"),
    secret("crio", "registry credentials"),
    secret("kubernetes", "cluster credentials"),
    secret("rancher", "cluster credentials"),
    secret("cni", "cluster network credentials"),
    secret("etcd*", "cluster credentials"),
    secret("consul*", "cluster credentials"),
    secret("nomad*", "cluster credentials"),
    secret("vault*", "a vault's settings and keys"),
    secret("salt/pki", "the host's management keys"),
    secret("puppet*/ssl", "the host's management keys"),
    secret("puppetlabs", "the host's management keys"),
    secret("chef", "the host's management keys"),
    secret("ansible/vault*", "management passwords"),
    secret("cloud", "instance credentials"),
    secret("waagent.conf", "instance credentials"),
    secret("boto.cfg", "cloud credentials"),
    secret("s3cfg*", "cloud credentials"),
    secret("passwd-s3fs", "cloud credentials"),
    secret("google*/*.json", "cloud credentials"),
    secret("gitlab-runner", "runner credentials"),
    secret("gitlab", "a server's secrets"),
    secret("buildkite-agent", "runner credentials"),
    secret("woodpecker*", "runner credentials"),
    secret("drone*", "runner credentials"),
    secret("tidemill", "Tidemill's own credentials"),
    secret("apt/auth.conf*", "package repository passwords"),
    secret("zypp/credentials*", "package repository passwords"),
    secret("rhsm", "subscription credentials"),
    secret("ubuntu-advantage", "subscription credentials"),
    secret("netrc", "passwords"),
    secret(".netrc", "passwords"),
    secret("git-credentials", "passwords"),
    secret("exim4/passwd*", "mail passwords"),
    secret("postfix/sasl*", "mail passwords"),
    secret("sasldb*", "mail passwords"),
    secret("msmtprc", "mail passwords"),
    secret("ssmtp", "mail passwords"),
    secret("dovecot/private", "mail keys"),
    secret("dovecot/users", "mail passwords"),
    secret("dma/auth.conf", "mail passwords"),
    secret("mysql/debian.cnf", "database passwords"),
    secret("pgbouncer", "database passwords"),
    secret("redis", "database passwords"),
    secret("mongod.key", "database keys"),
    secret("bind/*.key", "name server keys"),
    secret("bind/keys", "name server keys"),
    secret("rndc.key", "name server keys"),
    secret("named*.key", "name server keys"),
    secret("powerdns", "name server passwords"),
    secret("unbound/*.key", "name server keys"),
    secret("munge", "cluster keys"),
    secret("slurm*", "cluster keys"),
    secret("corosync/authkey", "cluster keys"),
    secret("pacemaker/authkey", "cluster keys"),
    secret("ceph", "storage keys"),
    secret("glusterfs", "storage keys"),
    secret("iscsi", "storage passwords"),
    secret("nvme", "storage keys"),
    secret("crypttab", "which disks are encrypted, and how"),
    secret("cryptsetup-keys.d", "disk keys"),
    secret("luks*", "disk keys"),
    secret("keys", "disk keys"),
    secret("zfs/keys", "disk keys"),
    secret("clevis*", "disk keys"),
    secret("tpm2*", "keys of the host's chip"),
    secret("credstore*", "service credentials"),
    secret("systemd/network", "network passwords"),
    secret("snmp", "monitoring passwords"),
    secret("zabbix*", "monitoring keys"),
    secret("nagios*", "monitoring passwords"),
    secret("icinga*", "monitoring passwords"),
    secret("datadog-agent", "monitoring keys"),
    secret("newrelic*", "monitoring keys"),
    secret("grafana*", "monitoring passwords"),
    secret("prometheus", "monitoring passwords"),
    secret("telegraf", "monitoring passwords"),
    secret("freeradius", "network passwords"),
    secret("raddb", "network passwords"),
    secret("cups/*.conf", "printer passwords"),
    secret("cups/ssl", "printer keys"),
    secret("davfs2/secrets", "passwords"),
    secret("cifs*", "passwords of mounts"),
    secret("smbcredentials*", "passwords of mounts"),
    secret("autofs*", "passwords of mounts"),
    secret("auto.*", "passwords of mounts"),
    secret("multipath", "storage passwords"),
    secret("vsftpd*", "passwords"),
    secret("proftpd", "passwords"),
    secret("apache2/*htpasswd*", "passwords"),
    secret("httpd/*htpasswd*", "passwords"),
    secret("nginx/*htpasswd*", "passwords"),
    secret("htpasswd*", "passwords"),
    secret(".git", "the history of the host's configuration"),
    secret(".etckeeper", "the history of the host's configuration"),
    secret("audit", "what the host watches"),
    secret("fail2ban", "what the host watches"),
    secret("aide*", "what the host watches"),
    secret("grub.d/*password*", "boot passwords"),
];

/// Files below `/etc` that tools of a job need, and that are kept out only where they hold a
/// password.
pub const ETC_MAYBE_SECRETS: &[&str] = &[
    "apt/apt.conf",
    "apt/apt.conf.d/*",
    "apt/sources.list",
    "apt/sources.list.d/*",
    "cargo/config.toml",
    "curlrc",
    "dnf/dnf.conf",
    "environment",
    "fstab",
    "gitconfig",
    "go/env",
    "maven/settings.xml",
    "my.cnf",
    "mysql/conf.d/*",
    "npmrc",
    "odbc.ini",
    "pip.conf",
    "profile.d/*",
    "pypirc",
    "rsyncd.conf",
    "subversion/servers",
    "wgetrc",
    "xdg/pip/pip.conf",
    "yum.conf",
    "yum.repos.d/*",
    "zypp/repos.d/*",
];

/// Paths below a home directory that are never granted, in whole or as part of another grant.
pub const HOME_SECRETS: &[Secret] = &[
    secret(".ssh", "keys"),
    secret(".gnupg", "keys"),
    secret(".pki", "keys"),
    secret(".putty", "keys"),
    secret(".step", "keys"),
    secret(".minisign", "keys"),
    secret(".signify", "keys"),
    secret(".age", "keys"),
    secret(".config/age", "keys"),
    secret(".config/sops", "keys"),
    secret(".sigstore", "keys"),
    secret(".cosign", "keys"),
    secret(".netrc*", "passwords"),
    secret("_netrc", "passwords"),
    secret(".authinfo*", "passwords"),
    secret(".password-store", "passwords"),
    secret(".git-credentials*", "passwords"),
    secret(".gitconfig", "may name credentials and their helpers"),
    secret(".config/git", "may name credentials and their helpers"),
    secret(".git-credential-cache", "passwords"),
    secret(".cache/git", "passwords"),
    secret(".hgrc", "may hold passwords"),
    secret(".subversion", "passwords"),
    secret(".bzr", "passwords"),
    secret(".aws", "cloud credentials"),
    secret(".azure", "cloud credentials"),
    secret(".config/gcloud", "cloud credentials"),
    secret(".config/doctl", "cloud credentials"),
    secret(".config/hcloud", "cloud credentials"),
    secret(".config/linode-cli", "cloud credentials"),
    secret(".config/scw", "cloud credentials"),
    secret(".config/rclone", "cloud credentials"),
    secret(".config/openstack", "cloud credentials"),
    secret(".config/fly", "cloud credentials"),
    secret(".config/heroku", "cloud credentials"),
    secret(".config/netlify", "cloud credentials"),
    secret(".config/vercel", "cloud credentials"),
    secret(".config/.wrangler", "cloud credentials"),
    secret(".wrangler", "cloud credentials"),
    secret(".oci", "cloud credentials"),
    secret(".bluemix", "cloud credentials"),
    secret(".aliyun", "cloud credentials"),
    secret(".tccli", "cloud credentials"),
    secret(".boto", "cloud credentials"),
    secret(".s3cfg*", "cloud credentials"),
    secret(".mc", "cloud credentials"),
    secret(".fly/*.yml", "cloud credentials"),
    secret(".terraform.d", "cloud credentials"),
    secret(".terraformrc", "cloud credentials"),
    secret(".pulumi/*.json", "cloud credentials"),
    secret(".vault-token", "a vault token"),
    secret(".kube", "cluster credentials"),
    secret(".helm", "cluster credentials"),
    secret(".config/helm", "cluster credentials"),
    secret(".config/k9s", "cluster credentials"),
    secret(".minikube", "cluster credentials"),
    secret(".docker", "registry credentials"),
    secret(".dockercfg", "registry credentials"),
    secret(".config/containers", "registry credentials"),
    secret(".local/share/containers", "container storage"),
    secret(".npmrc", "a registry token"),
    secret(".config/npm", "a registry token"),
    secret(".yarnrc*", "may hold a registry token"),
    secret(".config/yarn", "may hold a registry token"),
    secret(".config/pnpm", "may hold a registry token"),
    secret(".bunfig.toml", "may hold a registry token"),
    secret(
        ".nvm/versions/node/*/etc/npmrc",
        "may hold a registry token",
    ),
    secret(
        ".nvm/versions/io.js/*/etc/npmrc",
        "may hold a registry token",
    ),
    secret(
        ".asdf/installs/nodejs/*/etc/npmrc",
        "may hold a registry token",
    ),
    secret(
        ".asdf/installs/nodejs/*/.npm/etc/npmrc",
        "may hold a registry token",
    ),
    secret(
        ".volta/tools/image/node/*/etc/npmrc",
        "may hold a registry token",
    ),
    secret(".nodenv/versions/*/etc/npmrc", "may hold a registry token"),
    secret(
        ".local/share/mise/installs/node/*/etc/npmrc",
        "may hold a registry token",
    ),
    secret(
        ".local/share/fnm/node-versions/*/installation/etc/npmrc",
        "may hold a registry token",
    ),
    secret(".npm-global/etc/npmrc", "may hold a registry token"),
    secret(".npm-packages/etc/npmrc", "may hold a registry token"),
    secret(".pypirc", "a registry token"),
    secret(".pip", "may hold a registry token"),
    secret(".config/pip", "may hold a registry token"),
    secret(".config/pypoetry", "a registry token"),
    secret(".local/share/uv/credentials", "a registry token"),
    secret(".config/uv", "may hold a registry token"),
    secret(".local/share/python_keyring", "passwords"),
    secret(".condarc", "may hold a registry token"),
    secret(".continuum", "a registry token"),
    secret(".conda/*condarc", "may hold a registry token"),
    secret(".rattler", "a registry token"),
    secret(".pixi/credentials*", "a registry token"),
    secret(".cargo/credentials*", "a registry token"),
    secret(".gem/credentials*", "a registry token"),
    secret(".local/share/gem/credentials", "a registry token"),
    secret(".bundle", "may hold a registry token"),
    secret(".composer/auth.json", "a registry token"),
    secret(".config/composer", "a registry token"),
    secret(".m2/settings*", "registry passwords"),
    secret(".gradle/gradle.properties", "registry passwords"),
    secret(".gradle/init.gradle*", "may hold registry passwords"),
    secret(".gradle/init.d", "may hold registry passwords"),
    secret(".sbt", "registry passwords"),
    secret(".ivy2/.credentials", "registry passwords"),
    secret(".ivy2/.sbtcredentials", "registry passwords"),
    secret(".config/coursier", "registry passwords"),
    secret(".nuget/NuGet", "a registry token"),
    secret(".config/NuGet", "a registry token"),
    secret(".dotnet/corefx", "a key store"),
    secret(".hex/hex.config*", "a registry token"),
    secret(".cabal/config", "registry passwords"),
    secret(".config/cabal", "registry passwords"),
    secret(".pub-cache/credentials.json", "a registry token"),
    secret(".config/dart", "a registry token"),
    secret(".julia/servers", "a registry token"),
    secret(".deno/credentials*", "a registry token"),
    secret(".config/goenv", "settings of the caller"),
    secret(".config/go/env", "may hold a registry token"),
    secret(".luarocks/upload_config*", "a registry token"),
    secret(".config/gh", "a forge token"),
    secret(".config/hub", "a forge token"),
    secret(".config/glab-cli", "a forge token"),
    secret(".config/tea", "a forge token"),
    secret(".config/github-copilot", "a forge token"),
    secret(".huggingface", "a model registry token"),
    secret(".cache/huggingface", "a model registry token"),
    secret(".kaggle", "a data registry token"),
    secret(".config/wandb", "a tracking token"),
    secret(".claude*", "an assistant's credentials"),
    secret(".codex", "an assistant's credentials"),
    secret(".gemini", "an assistant's credentials"),
    secret(".config/openai", "an assistant's credentials"),
    secret(".config/anthropic", "an assistant's credentials"),
    secret(".pgpass", "database passwords"),
    secret(".pg_service.conf", "database passwords"),
    secret(".my.cnf", "database passwords"),
    secret(".mylogin.cnf", "database passwords"),
    secret(".mongorc.js", "database passwords"),
    secret(".rediscli*", "database passwords"),
    secret(".cassandra", "database passwords"),
    secret(".snowsql", "database passwords"),
    secret(".odbc.ini", "database passwords"),
    secret(".fetchmailrc", "mail passwords"),
    secret(".msmtprc", "mail passwords"),
    secret(".mbsyncrc", "mail passwords"),
    secret(".muttrc", "mail passwords"),
    secret(".config/msmtp", "mail passwords"),
    secret(".thunderbird", "mail"),
    secret(".mozilla", "a browser's sessions"),
    secret(".config/chromium", "a browser's sessions"),
    secret(".config/google-chrome*", "a browser's sessions"),
    secret(".config/BraveSoftware", "a browser's sessions"),
    secret(".config/microsoft-edge*", "a browser's sessions"),
    secret(".config/Slack", "a messenger's sessions"),
    secret(".config/discord", "a messenger's sessions"),
    secret(".config/Signal", "a messenger's sessions"),
    secret(".config/Bitwarden*", "passwords"),
    secret(".config/1Password", "passwords"),
    secret(".config/op", "passwords"),
    secret(".config/keepassxc", "passwords"),
    secret(".local/share/keyrings", "passwords"),
    secret(".local/share/kwalletd", "passwords"),
    secret(".local/share/pass", "passwords"),
    secret(".config/tidemill", "Tidemill's own credentials"),
    secret(".local/state/tidemill", "the state of other jobs"),
    secret(".local/state/nix", "the caller's profiles"),
    secret(".config/nix", "may hold access tokens"),
    secret(".config/environment.d", "the caller's environment"),
    secret(".Xauthority", "the caller's screen"),
    secret(".ICEauthority", "the caller's screen"),
    secret(".dbus", "the caller's session"),
    secret(".env*", "secrets of projects"),
    secret(".envrc", "secrets of projects"),
    secret(".direnv", "secrets of projects"),
    secret(".*_history", "what the caller typed"),
    secret(".histfile", "what the caller typed"),
    secret(".lesshst", "what the caller searched for"),
    secret(".viminfo", "what the caller edited"),
    secret(".local/share/recently-used.xbel", "what the caller opened"),
    secret(".local/share/fish", "what the caller typed"),
    secret(".local/share/Trash", "what the caller threw away"),
];

/// Names that are kept out of a directory about which nothing else is known.
const SUSPICIOUS_NAMES: &[&str] = &[
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials*",
    ".env*",
    ".envrc",
    ".ssh",
    ".gnupg",
    ".aws",
    ".docker",
    ".kube",
    ".vault-token",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "credentials*",
    "secrets*",
    "auth.json",
    "*.ovpn",
    ".tidemill*",
];

/// True if `name` fits `pattern`, in which `*` stands for any run of characters.
pub fn name_matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = name
        .strip_prefix(first)
        .and_then(|name| name.strip_suffix(last));
    let Some(mut inner) = inner else {
        return false;
    };
    for part in middle.split('*') {
        match inner.find(part) {
            Some(at) => inner = &inner[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// A pattern, name by name.
type Pattern = Vec<&'static str>;

static HOME_PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    HOME_SECRETS
        .iter()
        .map(|secret| split(secret.pattern))
        .collect()
});
static ETC_PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    ETC_SECRETS
        .iter()
        .map(|secret| split(secret.pattern))
        .collect()
});
static ETC_MAYBE_PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    ETC_MAYBE_SECRETS
        .iter()
        .map(|pattern| split(pattern))
        .collect()
});
static SUSPICIOUS_PATTERNS: LazyLock<Vec<Pattern>> =
    LazyLock::new(|| SUSPICIOUS_NAMES.iter().map(|name| vec![*name]).collect());

/// The entry of the table that `path` (relative to a home) is, or lies below.
pub fn home_secret_above(path: &Path) -> Option<&'static Secret> {
    let names = names_of(path);
    let above = |pattern: &Pattern| pattern.len() <= names.len() && fits(pattern, &names);
    HOME_PATTERNS
        .iter()
        .position(above)
        .map(|index| &HOME_SECRETS[index])
}

/// True for a directory (relative to a home) in which the table knows secrets: a place of settings.
pub fn holds_home_secrets(dir: &Path) -> bool {
    let names = names_of(dir);
    HOME_PATTERNS
        .iter()
        .any(|pattern| pattern.len() > names.len() && fits(pattern, &names))
}

/// What has to be hidden in a directory of a home: existing paths relative to `dir`. `dir_in_home`
/// says where in the home it is; empty for the home itself.
pub fn home_secrets_below(dir: &Path, dir_in_home: &Path) -> Vec<String> {
    let names = names_of(dir_in_home);
    let below: Vec<Pattern> = HOME_PATTERNS
        .iter()
        .filter(|pattern| pattern.len() > names.len() && fits(pattern, &names))
        .map(|pattern| pattern[names.len()..].to_vec())
        .collect();
    let mut found = Vec::new();
    if !below.is_empty() {
        expand(dir, &below, "", &mut found);
    }
    finish(found)
}

/// What has to be hidden in `/etc`: existing paths relative to `etc`.
pub fn etc_secrets(etc: &Path) -> Vec<String> {
    let mut found = Vec::new();
    expand(etc, &ETC_PATTERNS, "", &mut found);
    let mut candidates = Vec::new();
    expand(etc, &ETC_MAYBE_PATTERNS, "", &mut candidates);
    found.extend(
        candidates
            .into_iter()
            .filter(|path| file_holds_secret(&etc.join(path))),
    );
    finish(found)
}

/// What has to be hidden directly in a directory about which nothing is known.
pub fn suspicious_entries(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    expand(dir, &SUSPICIOUS_PATTERNS, "", &mut found);
    finish(found)
}

/// True if each name fits its place in the pattern, as far as both go.
fn fits(pattern: &Pattern, names: &[Cow<'_, str>]) -> bool {
    pattern
        .iter()
        .zip(names)
        .all(|(pattern, name)| name_matches(pattern, name))
}

/// How much of a settings file is looked at.
pub const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// True if a settings file holds a password or token, or if that cannot be said because it is not
/// readable, too large or not text.
pub fn file_holds_secret(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return false,
        Ok(metadata) if metadata.is_file() && metadata.len() <= SETTINGS_BYTES_MAX => {}
        Ok(_) => return true,
        // Nobody else sees what is not there.
        Err(_) => return false,
    }
    let mut text = String::new();
    let read =
        File::open(path).and_then(|file| file.take(SETTINGS_BYTES_MAX).read_to_string(&mut text));
    if read.is_err() {
        return true;
    }
    // Most files do not even mention one, and this is done for every job.
    text.make_ascii_lowercase();
    let mentions = text.contains("://") || SECRET_KEYS.iter().any(|key| text.contains(key));
    mentions && text.lines().any(line_holds_secret)
}

/// What the names of settings with a password or token have in them.
const SECRET_KEYS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "token",
    "secret",
    "_auth",
    "api_key",
    "apikey",
    "access_key",
    "accesskey",
    "private_key",
    "credential",
];

/// True if a line of a settings file looks like one with a password or token. Comments do not
/// count, and neither does a bare key without a value.
pub fn line_holds_secret(line: &str) -> bool {
    let line = line.trim();
    if line.starts_with(['#', ';']) {
        return false;
    }
    let lower = line.to_ascii_lowercase();
    if has_url_password(&lower) {
        return true;
    }
    SECRET_KEYS.iter().any(|key| {
        lower.match_indices(key).any(|(at, _)| {
            let rest = lower[at + key.len()..].trim_start_matches(|c: char| {
                c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '"' | '\'' | ']')
            });
            let value = rest.trim_start().strip_prefix(['=', ':', '>']);
            value.is_some_and(|value| !value.trim_matches([' ', '"', '\'']).is_empty())
        })
    })
}

/// True for `scheme://user:password@host` and for `scheme://token@host`, as long as the user is not
/// the well-known `git`.
fn has_url_password(line: &str) -> bool {
    line.match_indices("://").any(|(at, mark)| {
        let rest = &line[at + mark.len()..];
        let end = rest
            .find(['/', ' ', '"', '\'', '?', '#'])
            .unwrap_or(rest.len());
        rest[..end]
            .rsplit_once('@')
            .is_some_and(|(user, _)| user != "git")
    })
}

fn names_of(path: &Path) -> Vec<Cow<'_, str>> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_string_lossy()),
            _ => None,
        })
        .collect()
}

/// Literal names that are looked up one by one; for more, the directory is listed.
const LOOK_UPS_MAX: usize = 8;

/// Adds the existing paths below `dir` that fit one of the patterns. Each directory is listed at most
/// once: this is done for every job.
fn expand(dir: &Path, patterns: &[Pattern], prefix: &str, found: &mut Vec<String>) {
    let has_star = |pattern: &&Pattern| pattern[0].contains('*');
    let wanted = patterns.len() > LOOK_UPS_MAX || patterns.iter().any(|pattern| has_star(&pattern));
    let listed = if wanted { list(dir) } else { None };
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for pattern in patterns {
        match &listed {
            Some(listed) if has_star(&pattern) => {
                let fitting = listed.iter().filter(|name| name_matches(pattern[0], name));
                names.extend(fitting.map(String::as_str));
            }
            Some(listed) => {
                if listed
                    .binary_search_by(|name| name.as_str().cmp(pattern[0]))
                    .is_ok()
                {
                    names.insert(pattern[0]);
                }
            }
            None => {
                if dir.join(pattern[0]).symlink_metadata().is_ok() {
                    names.insert(pattern[0]);
                }
            }
        }
    }
    for name in names {
        let path = if prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{prefix}/{name}")
        };
        let fitting = patterns
            .iter()
            .filter(|pattern| name_matches(pattern[0], name));
        let rest: Vec<Pattern> = fitting.map(|pattern| pattern[1..].to_vec()).collect();
        if rest.iter().any(Vec::is_empty) {
            found.push(path);
        } else {
            expand(&dir.join(name), &rest, &path, found);
        }
    }
}

/// The names in a directory, sorted; `None` if it cannot be listed.
fn list(dir: &Path) -> Option<Vec<String>> {
    // A name that is not UTF-8 cannot be written in a plan; no program writes its secrets so.
    let names = fs::read_dir(dir).ok()?.flatten();
    Some(
        names
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect(),
    )
}

/// The names of a pattern.
fn split(pattern: &'static str) -> Pattern {
    pattern.split('/').collect()
}

/// Sorted, each once, without what lies below another one.
fn finish(mut found: Vec<String>) -> Vec<String> {
    found.sort();
    found.dedup();
    let mut kept: Vec<String> = Vec::new();
    for path in found {
        let below = kept.iter().any(|above| {
            path.strip_prefix(above.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        });
        if !below {
            kept.push(path);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_names() {
        for (pattern, name, fits) in [
            ("shadow*", "shadow", true),
            ("shadow*", "shadow-", true),
            ("shadow*", "myshadow", false),
            ("*.key", "x.key", true),
            ("*.key", "x.key.pub", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "acb", false),
            ("a*b*c", "abc", true),
            ("ab*ba", "aba", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            (".ssh", ".sshx", false),
        ] {
            assert_eq!(name_matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn lines_with_passwords_are_told_from_lines_about_them() {
        for line in [
            "password = hunter2",
            "//registry.test/:_authToken=abc",
            "  \"token\": \"abc\",",
            "http-proxy-password=x",
            "index-url = https://user:pw@pypi.test/simple",
            "url = https://ghp_abc@github.test/x",
            "<password>x</password>",
            "aws_secret_access_key = x",
            "credentials=/root/.smb,uid=0",
        ] {
            assert!(line_holds_secret(line), "{line}");
        }
        for line in [
            "# password = hunter2",
            "; token=x",
            "password =",
            "url = ssh://git@github.test/x",
            "index-url = https://pypi.test/simple",
            "always-auth = true",
            "",
        ] {
            assert!(!line_holds_secret(line), "{line}");
        }
    }

    #[test]
    fn what_lies_below_a_secret_is_one() {
        for (path, is_secret) in [
            (".ssh", true),
            (".ssh/keys/id", true),
            (".config/gcloud/x", true),
            (".config", false),
            (".config/other", false),
            (".cargo/credentials.toml", true),
            (".cargo/bin", false),
            (".nvm/versions/node/v20/etc/npmrc", true),
            (".nvm/versions/node/v20/bin", false),
        ] {
            assert_eq!(
                home_secret_above(Path::new(path)).is_some(),
                is_secret,
                "{path}"
            );
        }
    }
}
