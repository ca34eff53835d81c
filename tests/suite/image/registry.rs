//! Debian's registry, on loopback, with a directory of its own.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tidemill_tests::{PATIENCE, World, has_program, skip, until};

/// Who may pull where not everybody may: `me`, with the password `secret`, as htpasswd writes it.
const HTPASSWD: &str = "me:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";
/// The same for docker's configuration: `me:secret` in base64.
pub(super) const AUTH: &str = "bWU6c2VjcmV0";

/// The registry while it runs.
#[derive(Debug)]
pub(super) struct Registry {
    server: Child,
    /// `127.0.0.1:1234`.
    pub(super) host: String,
}

/// True if the programs are here that images are made and served by; said if they are not.
pub(super) fn has_tools() -> bool {
    let missing = ["docker-registry", "skopeo", "umoci"]
        .into_iter()
        .find(|name| !has_program(name));
    if let Some(name) = missing {
        skip(&format!("{name} is not installed"));
    }
    missing.is_none()
}

impl Registry {
    /// One that everybody may use.
    pub(super) fn start(world: &World) -> Self {
        Self::with(world, "")
    }

    /// One that wants a password.
    pub(super) fn with_password(world: &World) -> Self {
        let path = world.path().join("htpasswd");
        fs::write(&path, HTPASSWD).unwrap();
        let auth = format!(
            "auth:\n  htpasswd:\n    realm: tests\n    path: {}\n",
            path.display()
        );
        Self::with(world, &auth)
    }

    fn with(world: &World, more: &str) -> Self {
        let directory: PathBuf = world.path().join("registry");
        fs::create_dir(&directory).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = free.local_addr().unwrap().to_string();
        drop(free);
        let config = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\n\
             http:\n  addr: {host}\n{more}",
            directory.display()
        );
        let path = world.path().join("registry.yml");
        fs::write(&path, config).unwrap();
        let log = File::create(world.path().join("registry.log")).unwrap();
        let server = Command::new("docker-registry")
            .arg("serve")
            .arg(&path)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let registry = Self { server, host };
        until("the registry answers", PATIENCE, || {
            TcpStream::connect(&registry.host).ok()
        });
        registry
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // It has ended if this fails.
        self.server.kill().ok();
        self.server.wait().ok();
    }
}
