//! Languages that are interpreted, and their package managers: Node.js and npm, Python and pip, Perl.

use std::time::Duration;

use rstest::rstest;
use tidemill_tests::{Mode, skip};

use super::{assert_works, warnings, world_with};

const NODE_WORK: &str = r#"
const { Worker, isMainThread, parentPort } = require('worker_threads');
const { execFileSync } = require('child_process');
const http = require('http');

function serve() {
    const server = http.createServer((request, response) => response.end(`served ${request.url}`));
    server.listen(0, 'localhost', () => {
        const { port } = server.address();
        http.get({ host: 'localhost', port, path: '/page', agent: false }, (response) => {
            response.on('data', (text) => console.log(text.toString()));
            response.on('end', () => server.close());
        });
    });
}

if (isMainThread) {
    new Worker(__filename).on('message', (answer) => {
        console.log('worker', answer);
        const program = 'console.log(1 + 1)';
        console.log('child', execFileSync(process.execPath, ['-e', program]).toString().trim());
        serve();
    });
} else {
    parentPort.postMessage(6 * 7);
}
"#;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn node_runs_a_worker_a_child_and_a_server(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["node"]) else {
        return;
    };
    world.write("work.js", NODE_WORK);
    let expected = "worker 42\nchild 2\nserved /page\n";
    assert_works(world.program(["node", "work.js"]), expected);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn npm_packs_installs_and_runs_a_package(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["node", "npm"]) else {
        return;
    };
    let package = r#"{ "name": "greeter", "version": "1.2.3", "bin": "greet.js" }"#;
    world.write("greeter/package.json", package);
    let program = "#!/usr/bin/env node\nconsole.log('greeted by', process.argv[2]);\n";
    world.write("greeter/greet.js", program);
    let package = r#"{
        "name": "trial", "version": "1.0.0",
        "scripts": { "prehello": "echo before", "hello": "greeter a script" }
    }"#;
    world.write("package.json", package);
    let text = "npm pack --silent ./greeter && \
                npm install --silent --offline --no-audit --no-fund ./greeter-1.2.3.tgz && \
                npm run --silent hello";
    let expected = "greeter-1.2.3.tgz\nbefore\ngreeted by a\n";
    assert_works(world.job(text), expected);
}

const PYTHON_WORK: &str = r"
import multiprocessing
from multiprocessing import shared_memory

def square(n):
    return n * n

if __name__ == '__main__':
    for method in ('fork', 'spawn', 'forkserver'):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, sum(pool.map(square, range(9))))
    queue = multiprocessing.Queue()
    process = multiprocessing.Process(target=queue.put, args=('from a process',))
    process.start()
    print(queue.get())
    process.join()
    memory = shared_memory.SharedMemory(create=True, size=10)
    memory.buf[0] = 7
    again = shared_memory.SharedMemory(memory.name)
    print('shared', again.buf[0])
    again.close()
    memory.close()
    memory.unlink()
    with multiprocessing.Manager() as manager:
        print('managed', dict(manager.dict(a=1)))
";

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn python_shares_work_and_memory_with_processes(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["python3"]) else {
        return;
    };
    world.write("work.py", PYTHON_WORK);
    let expected = "fork 204\nspawn 204\nforkserver 204\nfrom a process\nshared 7\n\
                    managed {'a': 1}\n";
    assert_works(world.program(["python3", "work.py"]), expected);
}

/// Makes a wheel by hand, as a build without a network has one.
const WHEEL: &str = r"
import zipfile

PLACE = 'adder-1.0.dist-info/'
FILES = {
    'adder.py': 'def add(a, b):\n    return a + b\n',
    PLACE + 'METADATA': 'Metadata-Version: 2.1\nName: adder\nVersion: 1.0\n',
    PLACE + 'WHEEL': 'Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
}
with zipfile.ZipFile('adder-1.0-py3-none-any.whl', 'w') as wheel:
    for name, text in FILES.items():
        wheel.writestr(name, text)
    names = [*FILES, PLACE + 'RECORD']
    wheel.writestr(PLACE + 'RECORD', ''.join(f'{name},,\n' for name in names))
";

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn pip_installs_a_wheel_into_a_virtual_environment(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["python3"]) else {
        return;
    };
    world.write("wheel.py", WHEEL);
    let text = "python3 wheel.py && python3 -m venv env && . env/bin/activate && \
                pip install --quiet --no-index --disable-pip-version-check ./*.whl && \
                python -c 'import adder; print(adder.add(40, 2), adder.__file__)'";
    let done = world.job(text).args(["--net", "none"]).run();
    if done.code != 0 && done.out().contains("ensurepip is not\navailable") {
        skip("Python's ensurepip is missing");
        return;
    }
    assert_eq!(done.code, 0, "{done}");
    let installed = format!("42 {}/env/lib/python3", world.work().display());
    assert!(done.out().starts_with(&installed), "{done}");
    assert!(warnings(&done).is_empty(), "{done}");
}

const PERL_WORK: &str = r#"
use strict;
use IO::Select;
use IO::Socket::INET;
use Socket;

$| = 1;
pipe(my $reader, my $writer) or die "pipe: $!";
my $child = fork // die "fork: $!";
if (!$child) {
    print {$writer} "from a child\n";
    close $writer;
    exit 4;
}
close $writer;
print scalar <$reader>;
waitpid $child, 0;
print "exited with ", $? >> 8, "\n";

my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1", Listen => 1) or die "listen: $@";
my $client = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $server->sockport) or die;
print {$client} "through a socket\n";
close $client;
IO::Select->new($server)->can_read(10) or die "nobody connects";
print scalar $server->accept->getline;

local $SIG{ALRM} = sub { print "alarm\n"; };
alarm 1;
select undef, undef, undef, 20;
print `echo from a shell`;
"#;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn perl_forks_connects_and_gets_signals(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["perl"]) else {
        return;
    };
    world.write("work.pl", PERL_WORK);
    let expected = "from a child\nexited with 4\nthrough a socket\nalarm\nfrom a shell\n";
    assert_works(world.program(["perl", "work.pl"]), expected);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn npm_without_a_network_fails_at_once_and_is_told_why(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["node", "npm"]) else {
        return;
    };
    world.write("package.json", r#"{ "name": "trial", "version": "1.0.0" }"#);
    let install = ["npm", "install", "tidemill-is-not-there"];
    let done = world.program(install).run();
    assert_ne!(done.code, 0, "{done}");
    // With its retries it takes more than a minute.
    assert!(done.elapsed < Duration::from_secs(30), "{done}");
    assert!(done.err().contains("--net host"), "{done}");
    let own = world
        .job("echo $npm_config_fetch_retries")
        .args(["--env", "npm_config_fetch_retries=7"])
        .run();
    assert_eq!(own.out(), "7\n", "{own}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_job_that_is_cancelled_while_it_looks_for_a_network_is_told(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["node", "npm"]) else {
        return;
    };
    world.write("package.json", r#"{ "name": "trial", "version": "1.0.0" }"#);
    let flags = ["--env", "npm_config_fetch_retries=5"];
    let text = "echo looking; npm install tidemill-is-not-there --loglevel http";
    let job = world.job(text).args(flags).start();
    job.await_error("attempt 1 failed").cancel();
    let done = job.wait();
    assert_eq!(done.record().state(), "cancelled", "{done}");
    assert!(done.err().contains("--net host"), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn pip_without_a_network_fails_at_once(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["python3"]) else {
        return;
    };
    let has_pip = world.program(["python3", "-m", "pip", "--version"]).run();
    if has_pip.code != 0 {
        skip("there is no pip here");
        return;
    }
    let install = [
        "python3",
        "-m",
        "pip",
        "install",
        "--target",
        "lib",
        "tidemill-is-not-there",
    ];
    let done = world.program(install).run();
    assert_eq!(done.code, 1, "{done}");
    assert!(!done.err().contains("Retrying"), "{done}");
}
