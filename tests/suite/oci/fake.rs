//! A registry on loopback that serves an image of a test, keeps every request, and answers otherwise where
//! the test says so.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use serde_json::{Value, json};
use tidemill_tests::{PATIENCE, World};

use super::made::Made;

/// What a test wants instead of the registry's own answer.
pub(super) enum Instead {
    /// A status, a header line, and nothing else.
    Status(&'static str, &'static str),
    /// So many bytes of what it has, and then nothing as long as somebody waits.
    Stall(usize),
}

type Rule = dyn Fn(&str, usize) -> Option<Instead> + Send + Sync;

/// The registry. It ends with the test's process.
pub(super) struct Fake {
    address: SocketAddr,
    /// The digest of the image's manifest.
    pub(super) digest: String,
    /// The digest of the index that leads to it, if there is one.
    pub(super) index: Option<String>,
    shared: Arc<Shared>,
}

struct Shared {
    /// Bytes and media types by paths.
    served: HashMap<String, (String, Vec<u8>)>,
    rule: Box<Rule>,
    requests: Mutex<Vec<(String, usize)>>,
}

/// What a rule waits for, and a test opens.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(super) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    pub(super) fn pass(&self) {
        let open = self.0.0.lock().unwrap();
        let wait = self.0.1.wait_timeout_while(open, PATIENCE, |open| !*open);
        assert!(!wait.unwrap().1.timed_out(), "nobody opens the gate");
    }
}

impl Fake {
    /// Serves `app:1`. The rule is asked with each path, and how often it was asked for before.
    pub(super) fn serve(
        world: &World,
        made: &Made,
        rule: impl Fn(&str, usize) -> Option<Instead> + Send + Sync + 'static,
    ) -> Self {
        Self::start(world, made, false, Box::new(rule))
    }

    /// Serves `app:1` as one image of an index.
    pub(super) fn serve_index(world: &World, made: &Made) -> Self {
        Self::start(world, made, true, Box::new(|_, _| None))
    }

    fn start(world: &World, made: &Made, has_index: bool, rule: Box<Rule>) -> Self {
        let (layout, digest) = made.write(world, "served");
        let mut served = HashMap::new();
        for blob in fs::read_dir(layout.join("blobs/sha256")).unwrap() {
            let path = blob.unwrap().path();
            let name = format!("sha256:{}", path.file_name().unwrap().to_str().unwrap());
            let bytes = fs::read(&path).unwrap();
            served.insert(
                format!("/v2/app/blobs/{name}"),
                ("application/octet-stream".to_owned(), bytes),
            );
        }
        let manifest = served[&format!("/v2/app/blobs/{digest}")].1.clone();
        let parsed: Value = serde_json::from_slice(&manifest).unwrap();
        let kind = parsed["mediaType"].as_str().unwrap().to_owned();
        let mut serve = |name: &str, kind: &str, bytes: &[u8]| {
            let path = format!("/v2/app/manifests/{name}");
            served.insert(path, (kind.to_owned(), bytes.to_vec()));
        };
        serve(&digest, &kind, &manifest);
        serve("1", &kind, &manifest);
        let index = has_index.then(|| {
            let architecture = if cfg!(target_arch = "aarch64") {
                "arm64"
            } else {
                "amd64"
            };
            let kind_of_index = "application/vnd.oci.image.index.v1+json";
            let index = json!({ "schemaVersion": 2, "mediaType": kind_of_index, "manifests": [{
                "mediaType": kind, "digest": digest, "size": manifest.len(),
                "platform": { "os": "linux", "architecture": architecture } }] })
            .to_string();
            let name = super::made::digest(index.as_bytes());
            serve(&name, kind_of_index, index.as_bytes());
            serve("1", kind_of_index, index.as_bytes());
            name
        });
        fs::remove_dir_all(layout).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fake = Self {
            address: listener.local_addr().unwrap(),
            digest,
            index,
            shared: Arc::new(Shared {
                served,
                rule,
                requests: Mutex::default(),
            }),
        };
        let shared = Arc::clone(&fake.shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                // Whoever asked may be gone.
                thread::spawn(move || answer(stream, &shared).ok());
            }
        });
        fake
    }

    /// The name of the image.
    pub(super) fn name(&self) -> String {
        format!("{}/app:1", self.address)
    }

    pub(super) fn host(&self) -> String {
        self.address.to_string()
    }

    /// How many requests there were with this in their path.
    pub(super) fn asked(&self, part: &str) -> usize {
        let requests = self.shared.requests.lock().unwrap();
        requests
            .iter()
            .filter(|(path, _)| path.contains(part))
            .count()
    }

    /// The first byte that the last request with this in its path wanted.
    pub(super) fn went_on_from(&self, part: &str) -> Option<usize> {
        let requests = self.shared.requests.lock().unwrap();
        let last = requests.iter().rfind(|(path, _)| path.contains(part));
        last.map(|(_, from)| *from)
    }
}

fn answer(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(());
    }
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut from = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().to_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            from = range.trim_end_matches('-').parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let earlier = {
        let mut requests = shared.requests.lock().unwrap();
        let earlier = requests.iter().filter(|(it, _)| *it == path).count();
        requests.push((path.clone(), from));
        earlier
    };
    let mut stream = &stream;
    let instead = (shared.rule)(&path, earlier);
    let (status, more) = match &instead {
        Some(Instead::Status(status, header)) => (*status, *header),
        _ if !shared.served.contains_key(&path) => ("404 Not Found", ""),
        _ if from > 0 => ("206 Partial Content", ""),
        _ => ("200 OK", ""),
    };
    let is_good = status.starts_with('2');
    let (kind, bytes) = shared
        .served
        .get(&path)
        .filter(|_| is_good)
        .cloned()
        .unwrap_or_default();
    let end = bytes.len().saturating_sub(1);
    let range = format!("Content-Range: bytes {from}-{end}/{}\r\n", bytes.len());
    let body = &bytes[from..];
    write!(
        stream,
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{}{}\r\n",
        body.len(),
        if from > 0 { &range } else { "" },
        if more.is_empty() {
            String::new()
        } else {
            format!("{more}\r\n")
        },
    )?;
    if let Some(Instead::Stall(bytes)) = instead {
        stream.write_all(&body[..bytes.min(body.len())])?;
        // Until whoever asked goes away.
        reader.read_to_end(&mut Vec::new())?;
        return Ok(());
    }
    stream.write_all(body)
}
