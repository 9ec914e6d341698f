//! Plays the blocks of commands that `tests/blocks.txt` gives to this file, on real servers. Programs of the reader
//! (`make`, `./deploy.sh`) are stand-ins that note their names.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Notes, outcome};
use dlock_testkit::{Server, Setup};

const HERE: &str = "crates/cli/tests/dlock/pages.rs";

/// Programs on the `PATH`, and in the working directory.
const PROGRAMS: [&str; 5] = ["make", "backup", "psql", "man", "run-the-backup"];
const SCRIPTS: [&str; 8] =
    ["backup.sh", "billing", "deploy.sh", "render", "report.sh", "train", "transfer", "check.sh"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The blocks of a page that this file has to play.
fn blocks(page: &str) -> Vec<String> {
    let rules = fs::read_to_string(root().join("tests/blocks.txt")).expect("tests/blocks.txt");
    let rules: Vec<Vec<&str>> = rules.lines().map(|line| line.splitn(4, " | ").collect()).collect();
    let is_ours = |block: &str| {
        let mut of_page = rules.iter().filter(|rule| rule.len() == 4 && rule[0] == page && rule[1] == "sh");
        let rule = of_page.find(|rule| rule[2] == "*" || block.starts_with(rule[2]));
        rule.is_some_and(|rule| rule[3] == HERE)
    };
    let text = fs::read_to_string(root().join(page)).expect("a page");
    let fenced = text.split("\n```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    fenced.filter(|block| is_ours(block)).map(str::to_owned).collect()
}

/// A machine with `dlock`, `redis-cli` and the stand-ins.
struct Machine {
    home: Notes,
    servers: Vec<Server>,
}

impl Machine {
    fn new(servers: Vec<Server>) -> Self {
        let machine = Self { home: Notes::new(), servers };
        let programs = machine.home.path("bin");
        fs::create_dir(&programs).expect("a directory");
        machine.program("bin/redis-cli", &format!("exec {} -p {} \"$@\"", cli(), machine.servers[0].port()));
        let note = format!("echo \"${{0##*/}}\" >>{}", machine.home.path("ran").display());
        PROGRAMS.iter().for_each(|name| machine.program(&format!("bin/{name}"), &note));
        SCRIPTS.iter().for_each(|name| machine.program(name, &note));
        machine.program("bin/man", &format!("cat >/dev/null; {note}"));
        ["a.svg", "b.svg"].iter().for_each(|name| fs::write(machine.home.path(name), "").expect("a file"));
        machine
    }

    fn program(&self, name: &str, lines: &str) {
        let path = self.home.path(name);
        fs::write(&path, format!("#!/bin/sh\n{lines}\n")).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a file of ours");
    }

    /// Runs a block as a user of this machine types it, and checks that it ran the programs that it names.
    #[track_caller]
    fn play(&self, block: &str) {
        let mut here = block
            .replace("/usr/local/bin/", "")
            .replace("/usr/local/share/", "./")
            .replace("/etc/bash_completion.d/", "./completion-");
        // docs/upgrade.md tells the reader to repeat this command until no rewrite runs.
        let look = "redis-cli INFO persistence | grep aof_rewrite_";
        here = here.replace(look, &format!("while {look} | grep :1; do sleep 0.02; done"));
        for (name, server) in ["a", "b", "c"].iter().zip(&self.servers) {
            here = here.replace(&format!("redis://{name} "), &format!("redis://127.0.0.1:{} ", server.port()));
        }
        let mut command = Command::new("bash");
        let dlock = Path::new(env!("CARGO_BIN_EXE_dlock")).parent().expect("a folder").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        command.args(["-euo", "pipefail", "-c", &here]).current_dir(self.home.path(""));
        command.env("PATH", format!("{}:{dlock}:{path}", self.home.path("bin").display()));
        command.env("USER", "alice").env("DLOCK_URL", format!("redis://127.0.0.1:{}", self.servers[0].port()));
        let _ = fs::remove_file(self.home.path("ran"));
        let done = outcome(command);
        assert_eq!(done.code, Some(0), "{block}\n{}{}", done.stdout, done.stderr);
        let ran = self.home.read("ran");
        for name in PROGRAMS.iter().chain(&SCRIPTS) {
            let is_run = ["-- ", "| ", "&& ", "exec ", "./", "/usr/local/bin/", "\n"].iter().any(|before| {
                block.contains(&format!("{before}{name} ")) || block.contains(&format!("{before}{name}\n"))
            });
            assert!(!is_run || ran.lines().any(|line| line == *name), "{block}\ndid not run {name}, but\n{ran}");
        }
    }
}

/// Returns the path of the client that comes with the server: `redis-cli` or `valkey-cli`.
pub fn cli() -> String {
    let mut script = Command::new(root().join("scripts/server"));
    script.arg("cli").env("SERVER", std::env::var_os("DLOCK_SERVER").unwrap_or_default());
    String::from_utf8(script.output().expect("scripts/server").stdout).expect("a path").trim().to_owned()
}

/// Plays all blocks of a page that are for this file.
#[track_caller]
fn play(page: &str, machine: &Machine) {
    let blocks = blocks(page);
    assert!(!blocks.is_empty(), "{page}");
    blocks.iter().for_each(|block| machine.play(block));
}

#[test]
fn blocks_of_the_pages_run_the_programs_that_they_name() {
    let machine = Machine::new(vec![Server::start()]);
    for page in ["README.md", "docs/leader-election.md", "docs/troubleshooting.md", "docs/tutorial.md"] {
        play(page, &machine);
    }
    play("docs/recipes/redis-cli/README.md", &machine);
}

#[test]
fn blocks_of_the_pages_of_the_command_run_the_programs_that_they_name() {
    // A server counts as down for the longest lease after its start, unless it is declared persistent.
    let kept = Setup::new().conf("appendonly yes\nappendfsync always");
    let machine = Machine::new((0..3).map(|_| kept.clone().start()).collect());
    // A run with `--once` keeps its lock, so docs/run.md comes last.
    for block in [blocks("docs/cli.md"), blocks("docs/run.md")].concat() {
        machine.play(&block.replace("--longest-lease", "--persistent --longest-lease"));
    }
    assert!(machine.home.read("completion-dlock").contains("complete"));
    assert!(machine.home.read("man/man1/dlock-run.1").contains(".SH NAME"));
}

#[test]
fn a_server_without_replicas_keeps_its_locks_over_an_upgrade() {
    let mut machine = Machine::new(vec![Server::start()]);
    machine.servers[0].client().int("DLOCK.ACQUIRE job:1 alice PX 600000");
    play("docs/upgrade.md", &machine);
    let server = &mut machine.servers[0];
    server.ended();
    let rewritten = fs::read_to_string(server.path("redis.conf")).expect("a file");
    assert!(rewritten.contains("\nappendonly yes"), "{rewritten}");
    // The test starts the server with settings of its own, and not from the rewritten file.
    server.reconfigure(|setup| setup.conf("appendonly yes"));
    server.boot();
    assert_eq!(server.holders("job:1"), ["alice"]);
}
