//! A registry on loopback: it serves what it was given, with ranges, and a rule of the test may answer in
//! its place. It keeps every request.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
    /// How many requests for this path, without the query, came before.
    pub(crate) earlier: usize,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(crate) fn is_for(&self, kind: &str) -> bool {
        self.path.contains(&format!("/{kind}/"))
    }

    /// The first byte of its `Range`.
    pub(crate) fn from(&self) -> Option<usize> {
        let range = self.header("range")?.strip_prefix("bytes=")?;
        range.strip_suffix('-')?.parse().ok()
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// What it says its length is, where that is not the body's.
    pub(crate) length: Option<u64>,
    /// What becomes of the connection then.
    pub(crate) then: Then,
    /// So many bytes at a time, with a pause behind each.
    pub(crate) pace: Option<(usize, Duration)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Close,
    /// Nothing more comes until the other side goes away.
    Stall,
}

impl Reply {
    pub(crate) fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            length: None,
            then: Then::Close,
            pace: None,
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Only so many bytes of the body come, though all were announced.
    pub(crate) fn cut_at(mut self, bytes: usize) -> Self {
        self.length = Some(self.body.len() as u64);
        self.body.truncate(bytes);
        self
    }

    pub(crate) fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }
}

/// What a test answers in the registry's place; the second argument is the registry's own answer.
type Rule = dyn Fn(&Request, &Reply) -> Option<Reply> + Send + Sync;

/// What it serves, and by which media type.
type Served = HashMap<String, (String, Vec<u8>)>;

#[derive(Debug)]
pub(crate) struct Fake {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

struct Shared {
    served: Served,
    rule: Box<Rule>,
    requests: Mutex<Vec<Request>>,
    stopped: AtomicBool,
    at_once: AtomicUsize,
    at_once_max: AtomicUsize,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Fake {
    /// Serves paths below `/v2/`.
    pub(crate) fn start(served: Served) -> Self {
        Self::with_rule(served, |_, _| None)
    }

    pub(crate) fn with_rule(
        served: Served,
        rule: impl Fn(&Request, &Reply) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        Self::at("127.0.0.1", served, rule)
    }

    /// On an address of its own, which makes it another host.
    pub(crate) fn at(
        host: &str,
        served: Served,
        rule: impl Fn(&Request, &Reply) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let host: IpAddr = host.parse().unwrap();
        let listener = TcpListener::bind((host, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            served,
            rule: Box::new(rule),
            requests: Mutex::default(),
            stopped: AtomicBool::new(false),
            at_once: AtomicUsize::new(0),
            at_once_max: AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&shared);
        let listener = thread::spawn(move || accept(&listener, &accepting));
        Self {
            address,
            shared,
            listener: Some(listener),
        }
    }

    /// `127.0.0.1:1234`.
    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    /// Every request so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// The requests for blobs of this digest.
    pub(crate) fn requests_for(&self, part: &str) -> Vec<Request> {
        let mut requests = self.requests();
        requests.retain(|request| request.path.contains(part));
        requests
    }

    /// How many requests for blobs were answered at one time, at most.
    pub(crate) fn at_once_max(&self) -> usize {
        self.shared.at_once_max.load(Ordering::SeqCst)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the listener.
        drop(TcpStream::connect(self.address));
        if let Some(listener) = self.listener.take() {
            listener.join().unwrap();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stopped.load(Ordering::SeqCst) {
            return;
        }
        let (Ok(stream), shared) = (stream, Arc::clone(shared)) else {
            continue;
        };
        // It ends with its connection, which the client closes.
        thread::spawn(move || serve(stream, &shared).ok());
    }
}

fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let Some(request) = read_request(&mut reader, shared)? else {
        return Ok(());
    };
    let is_blob = request.is_for("blobs");
    if is_blob {
        let now = shared.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        shared.at_once_max.fetch_max(now, Ordering::SeqCst);
    }
    let own = own_reply(&request, &shared.served);
    let reply = (shared.rule)(&request, &own).unwrap_or(own);
    // Before the client can know that it has all of it, and ask for the next.
    send(&stream, &reply, || {
        if is_blob {
            shared.at_once.fetch_sub(1, Ordering::SeqCst);
        }
    })?;
    if reply.then == Then::Stall {
        // Until the client goes away.
        io::copy(&mut reader, &mut io::sink())?;
    }
    Ok(())
}

fn read_request(reader: &mut impl BufRead, shared: &Shared) -> io::Result<Option<Request>> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut words = first.split_whitespace();
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .and_then(|length| length.parse().ok())
        .unwrap_or(0);
    let mut body = String::new();
    reader.take(length).read_to_string(&mut body)?;
    let mut requests = shared.requests.lock().unwrap();
    let plain = |path: &str| path.split('?').next().map(str::to_owned);
    let earlier = requests
        .iter()
        .filter(|earlier| plain(&earlier.path) == plain(path))
        .count();
    let request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        headers,
        body,
        earlier,
    };
    requests.push(request.clone());
    Ok(Some(request))
}

fn own_reply(request: &Request, served: &Served) -> Reply {
    let Some((media_type, bytes)) = served.get(&request.path) else {
        let body = r#"{"errors":[{"code":"UNKNOWN","message":"it is not here"}]}"#;
        return Reply::new(404).body(body);
    };
    match request.from() {
        Some(from) if from < bytes.len() => {
            let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
            Reply::new(206)
                .header("Content-Range", range)
                .body(&bytes[from..])
        }
        Some(_) => Reply::new(416),
        None => Reply::new(200)
            .header("Content-Type", media_type.clone())
            .body(bytes.clone()),
    }
}

fn send(mut stream: &TcpStream, reply: &Reply, before_end: impl FnOnce()) -> io::Result<()> {
    let length = reply.length.unwrap_or(reply.body.len() as u64);
    let mut head = format!("HTTP/1.1 {} Status\r\nConnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head = format!("{head}{name}: {value}\r\n");
    }
    let is_chunked = (reply.headers.iter()).any(|(name, _)| *name == "Transfer-Encoding");
    if !is_chunked {
        head = format!("{head}Content-Length: {length}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    let (most, end) = reply.body.split_at(reply.body.len().saturating_sub(1));
    match reply.pace {
        None => stream.write_all(most)?,
        Some((piece, pause)) => {
            for piece in most.chunks(piece) {
                stream.write_all(piece)?;
                thread::park_timeout(pause);
            }
        }
    }
    before_end();
    stream.write_all(end)
}
