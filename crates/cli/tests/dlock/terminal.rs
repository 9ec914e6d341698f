//! `dlock` on a terminal: a pane of tmux, or a pseudoterminal of the test.

use std::process::Command;

use crate::process::{Notes, With, alive, dlock};
use dlock_testkit::{Server, eventually, lock_info, soon, wait::PATIENCE};

/// A pane of tmux with a shell, of 100 columns and 20 lines.
struct Terminal {
    home: tempfile::TempDir,
}

impl Terminal {
    /// Opens a terminal in which `dlock` uses this server.
    #[track_caller]
    fn open(server: &Server) -> Self {
        let terminal = Self { home: tempfile::tempdir().expect("a temporary directory") };
        let url = format!("DLOCK_URL=redis://127.0.0.1:{}", server.port());
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "20", "-e", &url, "sh"]);
        terminal.enter("PS1='$ '; clear");
        terminal.shows("the prompt", |screen| screen.trim_end() == "$");
        terminal
    }

    /// Runs a command of tmux, and returns its output.
    #[track_caller]
    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.home.path().join("socket")).args(arguments).env_remove("TMUX");
        let output = command.output().expect("tmux (make setup installs it)");
        assert!(output.status.success(), "tmux {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("readable output")
    }

    /// Types a line.
    fn enter(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.key("Enter");
    }

    /// Types `dlock` with these arguments.
    fn dlock(&self, arguments: &str) {
        self.enter(&format!("{} {arguments}", env!("CARGO_BIN_EXE_dlock")));
    }

    /// Presses a key, by tmux's name of it.
    fn key(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen is as expected. `what` says what it should show.
    #[track_caller]
    fn shows(&self, what: &str, mut as_expected: impl FnMut(&str) -> bool) {
        let mut last = String::new();
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(PATIENCE, what, || {
                last = self.screen();
                as_expected(&last)
            });
        }));
        assert!(seen.is_ok(), "the screen does not show {what}:\n{last}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(self.home.path().join("socket")).arg("kill-server").output();
    }
}

/// Returns the words of the first row that begins with this name.
fn row<'a>(screen: &'a str, name: &str) -> Option<Vec<&'a str>> {
    screen.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|words| words.first() == Some(&name))
}

#[test]
fn top_shows_locks_owners_and_waiters_and_their_changes() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE job:1 alice PX 600000");
    for reader in ["bob", "carol"] {
        client.int(format!("DLOCK.RLOCK doc {reader} PX 90000"));
    }
    let mut dave = server.waiter("DLOCK.ACQUIRE job:1 dave PX 600000 BLOCK 0");
    let terminal = Terminal::open(&server);
    terminal.dlock("top --interval 100ms");
    terminal.shows("both locks", |screen| screen.starts_with("dlock top: 2 locks, 1 waiting"));
    let screen = terminal.screen();
    let heading: Vec<_> = screen.lines().nth(2).expect("a heading").split_whitespace().collect();
    assert_eq!(heading, ["NAME", "MODE", "OWNER", "AGE", "TTL", "WAITERS", "WAIT", "PERMITS"]);
    let job = row(&screen, "job:1").expect("a row");
    assert_eq!((job[1], job[2], job[5]), ("exclusive", "alice", "1"), "{screen}");
    assert!(job[3].ends_with('s') && job[4].starts_with('9') && job[4].contains('m'), "{screen}");
    let doc = row(&screen, "doc").expect("a row");
    assert_eq!((doc[1], doc[2], doc[3], doc[6]), ("shared", "bob", "+1", "0"), "{screen}");
    assert_eq!(client.int("DLOCK.RELEASE job:1 alice"), 1);
    dave.granted();
    client.int("DEL doc");
    terminal.shows("dave, and one lock", |screen| {
        let job = row(screen, "job:1");
        job.is_some_and(|job| (job[2], job[5]) == ("dave", "0")) && row(screen, "doc").is_none()
    });
    terminal.key("q");
    terminal.shows("the shell again", |screen| screen.trim_end().ends_with('$') && !screen.contains("dlock top:"));
}

#[test]
fn top_goes_on_while_the_server_is_away() {
    let mut server = Server::start();
    server.client().int("DLOCK.ACQUIRE before me PX 600000");
    let terminal = Terminal::open(&server);
    terminal.dlock("top --interval 100ms");
    terminal.shows("a lock", |screen| row(screen, "before").is_some());
    server.kill9();
    terminal.shows("why there is nothing", |screen| screen.contains("no server answers"));
    server.boot();
    server.client().int("DLOCK.ACQUIRE after me PX 600000");
    terminal.shows("the new lock", |screen| row(screen, "after").is_some());
    terminal.key("C-c");
    terminal.shows("the shell again", |screen| screen.trim_end().ends_with('$') && row(screen, "after").is_none());
}

#[test]
fn a_terminal_gets_tables() {
    let server = Server::start();
    server.client().int("DLOCK.ACQUIRE job alice PX 600000");
    let _bob = server.waiter("DLOCK.ACQUIRE job bob BLOCK 0");
    let terminal = Terminal::open(&server);
    terminal.dlock("ls");
    terminal.shows("a table", |screen| row(screen, "job").is_some_and(|row| row[2] == "alice" && row[5] == "1"));
    terminal.dlock("info job");
    terminal.shows("the holder and the queue", |screen| {
        screen.contains("job: exclusive") && row(screen, "alice").is_some() && row(screen, "bob").is_some()
    });
    terminal.dlock("info free");
    terminal.shows("that it is free", |screen| screen.contains("free is free"));
    terminal.dlock("ls --json | cat; dlock_code=$?");
    terminal.shows("JSON", |screen| screen.contains("[{"));
}

#[test]
fn break_shows_the_holder_and_asks() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE job alice PX 600000");
    let terminal = Terminal::open(&server);
    for (answer, code) in [("", 1), ("n", 1), ("y", 0)] {
        terminal.enter("clear");
        terminal.dlock("break job; echo code $?");
        terminal.shows("the question", |screen| screen.contains("[y/N]") && row(screen, "alice").is_some());
        terminal.enter(answer);
        terminal.shows("the outcome", |screen| screen.contains(&format!("code {code}")));
        assert_eq!(lock_info(&mut client, "job").is_none(), code == 0, "{answer:?}");
    }
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    let (server, notes) = (Server::start(), Notes::new());
    let terminal = Terminal::open(&server);
    let log = notes.path("log").display().to_string();
    std::fs::write(notes.path("script"), format!(
        "echo $$ > {pid}\ntrap 'echo INT >> {log}' INT\ntrap 'echo USR1 >> {log}; exit 5' USR1\nwhile :; do sleep 0.01; done\n",
        pid = notes.path("pid").display()
    )).expect("a file");
    terminal.dlock(&format!("run job -- sh {}; echo code $?", notes.path("script").display()));
    let pid = notes.pid();
    terminal.key("C-c");
    soon("the command has got INT", || notes.read("log").starts_with("INT\n"));
    // USR1 takes the way that a second INT would take: from `dlock run` to the command.
    let parent = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let parent: i32 = parent
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().nth(1))
        .expect("a parent")
        .parse()
        .expect("an id");
    assert!(Command::new("kill").args(["-USR1", &parent.to_string()]).status().expect("kill").success());
    terminal.shows("the command's code", |screen| screen.contains("code 5"));
    assert_eq!(notes.read("log"), "INT\nUSR1\n");
}

#[test]
fn ctrl_z_suspends_and_fg_goes_on() {
    let (server, notes) = (Server::start(), Notes::new());
    let terminal = Terminal::open(&server);
    terminal.enter("set -m");
    std::fs::write(notes.path("script"), format!("echo $$ > {}\nread line; exit 4\n", notes.path("pid").display()))
        .expect("a file");
    terminal.dlock(&format!("run --lease 600s job -- sh {}; echo code $?", notes.path("script").display()));
    let pid = notes.pid();
    terminal.key("C-z");
    terminal.shows("the shell", |screen| screen.contains("Stopped"));
    assert!(alive(pid));
    terminal.enter("fg; echo code $?");
    soon("it runs", || !std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T ")));
    terminal.enter("a line");
    terminal.shows("the command's code", |screen| screen.contains("code 4"));
    assert_eq!(crate::process::outcome(dlock(&server).with(["ls"])).stdout, "[]\n");
}

/// Returns the output of `dlock` off a terminal, which is JSON.
fn json_of(server: &Server, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&crate::process::outcome(dlock(server).with(arguments)).stdout).expect("JSON")
}

/// The names of the locks on the screen, from top to bottom.
fn names(screen: &str) -> Vec<String> {
    let below = screen.lines().skip_while(|line| !line.starts_with("NAME ")).skip(1);
    below.take_while(|line| !line.is_empty() && !line.starts_with("LOG")).filter_map(first_word).collect()
}

fn first_word(line: &str) -> Option<String> {
    line.split_whitespace().next().map(str::to_owned)
}

#[test]
fn top_sorts_scrolls_and_filters_10000_locks() {
    let (mut server, mut client) = Server::conf("dlock.log-wait 0\nappendonly yes").with_client();
    // The lock in the middle has the longest wait, and the last one two waiters.
    client.int("DLOCK.ACQUIRE lock:5000 owner:5000 PX 6000000");
    let mut long = server.waiter("DLOCK.ACQUIRE lock:5000 long PX 6000000 BLOCK 0");
    let others = (0..10_000).filter(|n| *n != 5000);
    let requests: Vec<_> = others.map(|n| format!("DLOCK.ACQUIRE lock:{n:04} owner:{n} PX 6000000")).collect();
    assert!(client.pipeline(&requests).iter().all(Result::is_ok));
    let _waiters = ["a", "b"].map(|w| server.waiter(format!("DLOCK.ACQUIRE lock:9999 {w} PX 6000000 BLOCK 0")));
    let terminal = Terminal::open(&server);
    // A table has three lines less than the terminal: here 17 locks.
    terminal.dlock("top --interval 100ms");
    terminal.shows("all locks", |screen| screen.starts_with("dlock top: 10000 locks, 3 waiting"));
    let top = |screen: &str| names(screen).first().cloned().unwrap_or_default();
    terminal.shows("the locks that are waited for first", |screen| {
        names(screen).len() == 17 && names(screen)[..3] == ["lock:9999", "lock:5000", "lock:0000"]
    });
    terminal.key("n");
    terminal.shows("the locks by name", |screen| names(screen).len() == 17 && top(screen) == "lock:0000");

    terminal.key("PageDown");
    terminal.shows("the next page", |screen| top(screen) == "lock:0017" && screen.contains("row 18 of 10000"));
    terminal.key("Down");
    terminal.shows("the next lock", |screen| top(screen) == "lock:0017" && screen.contains("row 19 of 10000"));
    terminal.key("End");
    terminal.shows("the end", |screen| names(screen).last().is_some_and(|name| name == "lock:9999"));
    terminal.key("Home");
    terminal.shows("the beginning", |screen| top(screen) == "lock:0000");

    for (key, first, second) in
        [("w", "lock:9999", "lock:5000"), ("t", "lock:5000", "lock:9999"), ("o", "lock:5000", "lock:0000")]
    {
        terminal.key(key);
        terminal.shows("the order", |screen| screen.contains("sorted by") && names(screen)[..2] == [first, second]);
    }
    terminal.key("n");

    for (filter, found) in [("77 99", vec!["lock:7799", "lock:9977"]), ("owner:owner:4321", vec!["lock:4321"])] {
        terminal.key("/");
        terminal.tmux(&["send-keys", "-l", filter]);
        terminal.key("Enter");
        terminal.shows("the locks that the filter lets through", |screen| names(screen) == found);
        terminal.key("/");
        terminal.key("Escape");
        terminal.shows("all locks again", |screen| names(screen).len() == 17);
    }
    // The address is that of one of the three clients that wait: the one that waits for lock:5000.
    let blocked = client.text("CLIENT LIST");
    let id = json_of(&server, &["info", "lock:5000"])["queue"][0]["client"].clone();
    let line = blocked.lines().find(|line| line.starts_with(&format!("id={id} "))).expect("the client").to_owned();
    let address = line.split(' ').find_map(|field| field.strip_prefix("addr=")).expect("an address");
    terminal.key("/");
    terminal.tmux(&["send-keys", "-l", &format!("addr:{address}")]);
    terminal.key("Enter");
    terminal.shows("the lock that this client waits for", |screen| names(screen) == ["lock:5000"]);

    // The key l opens and closes the log.
    terminal.key("l");
    client.int("DLOCK.RELEASE lock:5000 owner:5000");
    long.granted();
    terminal.shows("the event of the wait in the log", |screen| {
        screen
            .lines()
            .skip_while(|line| !line.starts_with("LOG"))
            .any(|line| line.contains("wait") && line.contains("lock:5000"))
    });
    terminal.key("l");
    terminal.key("/");
    terminal.key("Escape");

    terminal.tmux(&["resize-window", "-x", "60", "-y", "10"]);
    terminal.shows("a smaller table", |screen| screen.lines().count() == 10 && names(screen).len() == 7);
    terminal.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    terminal.shows("a larger table", |screen| names(screen).len() == 27);

    server.kill9();
    terminal.shows("that the server is away, and the last locks", |screen| {
        screen.contains("no server answers") && top(screen) == "lock:0000"
    });
    server.boot();
    server.client().int("DLOCK.ACQUIRE a me PX 600000");
    terminal.shows("that it is back", |screen| screen.starts_with("dlock top: 10001 locks") && top(screen) == "a");
    terminal.key("q");
    terminal.shows("the shell again", |screen| screen.trim_end().ends_with('$') && !screen.contains("dlock top:"));
}

#[test]
fn a_run_says_whom_it_waits_for_on_a_terminal_only() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE deploy:x vm3:3352:8a19685554eee661 PX 600000");
    let _first = server.waiter("DLOCK.ACQUIRE deploy:x first BLOCK 0");
    let terminal = Terminal::open(&server);
    terminal.dlock("run --wait 1m deploy:x -- true");
    terminal.shows("the holder, and the run's place in the queue", |screen| {
        let screen = screen.replace('\n', "");
        screen.contains("dlock: waiting for deploy:x, held by vm3:3352:8a19685554eee661 for ")
            && screen.contains("s, 1 ahead")
    });
    terminal.key("C-c");
    terminal.enter("clear");
    terminal.dlock("run --quiet --wait 1500ms deploy:x -- true; echo code $?");
    terminal.shows("the end of the run", |screen| screen.contains("code 1"));
    assert!(!terminal.screen().contains("waiting for"), "{}", terminal.screen());
    let silent = crate::process::outcome(dlock(&server).with(["run", "--wait", "1500ms", "deploy:x", "--", "true"]));
    assert_eq!(silent.stderr.lines().count(), 1, "{silent:?}");
    assert!(silent.stderr.contains("the lock is held by vm3:3352:8a19685554eee661 for "), "{silent:?}");
}

#[test]
fn top_opens_a_lock_and_breaks_it_after_a_question() {
    let (server, mut client) = Server::conf("dlock.log-wait 0").with_client();
    client.int("DLOCK.ACQUIRE quiet other PX 600000");
    for reader in ["alice", "bob"] {
        client.int(format!("DLOCK.RLOCK doc {reader} PX 600000"));
    }
    let mut next = server.client();
    next.ok("CLIENT SETNAME web-3");
    server.enters_queue(&mut next, "DLOCK.WLOCK doc carol PX 600000 BLOCK 0");
    let _last = server.waiter("DLOCK.WLOCK doc dave PX 600000 BLOCK 0");
    let terminal = Terminal::open(&server);
    terminal.dlock("top --interval 100ms");
    let address = format!("127.0.0.1:{}", server.port());
    terminal.shows("locks, server and clock", |screen| {
        let head = screen.lines().next().unwrap_or_default();
        names(screen) == ["doc", "quiet"]
            && head.contains(&address)
            && head.contains(" UTC")
            && head.contains("?: help")
    });
    terminal.key("Down");
    terminal.key("Enter");
    terminal.shows("the second lock", |screen| row(screen, "other").is_some() && screen.contains("quiet: exclusive"));
    terminal.key("Escape");
    terminal.shows("the list", |screen| names(screen) == ["doc", "quiet"]);
    terminal.key("Up");
    terminal.key("Enter");
    terminal.shows("holders and the queue", |screen| {
        let waiter = screen.lines().find(|line| line.starts_with("carol")).unwrap_or_default();
        row(screen, "alice").is_some() && row(screen, "bob").is_some() && waiter.ends_with(" web-3")
    });
    // Any key but y leaves the lock alone.
    for key in ["n", "Escape", "Enter", "b"] {
        terminal.key("b");
        terminal.shows("the question", |screen| screen.contains("take doc from alice and 1 other?"));
        terminal.key(key);
        terminal.shows("that nothing was done", |screen| screen.contains("doc was left alone"));
    }
    assert_eq!(server.holders("doc"), ["alice", "bob"]);
    terminal.key("b");
    terminal.shows("the question", |screen| screen.contains("take doc from alice and 1 other?"));
    terminal.key("y");
    terminal.shows("who has it now", |screen| {
        screen.contains("took doc from alice (held ") && screen.contains("; carol has it now")
    });
    next.granted();
    terminal.shows("the log of this lock", |screen| {
        let mut log = screen.lines().skip_while(|line| !line.starts_with("LOG of this lock")).skip(1);
        let heading: Vec<_> = log.next().unwrap_or_default().split_whitespace().collect();
        heading == ["TIME", "(UTC)", "EVENT", "LOCK", "OWNER", "WAITED", "HELD", "CLIENT"]
            && log.any(|line| line.contains("  wait ") && line.contains("carol") && line.ends_with("web-3"))
    });
    terminal.key("Escape");
    terminal.shows("the list", |screen| names(screen).len() == 2);
    terminal.key("q");
    terminal.shows("the shell again", |screen| screen.trim_end().ends_with('$') && !screen.contains("dlock top:"));
}

#[test]
fn escape_leads_back_in_top_and_a_filter_that_fits_no_lock_says_so() {
    let (server, mut client) = Server::start().with_client();
    client.int("DLOCK.ACQUIRE job me PX 600000");
    let terminal = Terminal::open(&server);
    terminal.dlock("top --interval 100ms");
    terminal.shows("the lock", |screen| names(screen) == ["job"]);
    terminal.key("/");
    terminal.tmux(&["send-keys", "-l", "stock"]);
    terminal.key("Enter");
    terminal.shows("that nothing fits", |screen| screen.contains("none of 1 lock fits stock: Esc removes the filter"));
    terminal.key("?");
    terminal.shows("help", |screen| screen.contains("break it, after a question"));
    terminal.key("Escape");
    terminal.shows("the filter", |screen| screen.contains("only stock") && screen.contains("none of 1"));
    terminal.key("Escape");
    terminal.shows("the lock again", |screen| names(screen) == ["job"] && !screen.contains("only stock"));
    // Escape does nothing if there is nothing to close and no filter to remove: the list goes on.
    terminal.key("Escape");
    client.int("DEL job");
    terminal.shows("that there is no lock any more", |screen| screen.contains("no locks"));
    terminal.key("q");
    terminal.shows("the shell again", |screen| screen.trim_end().ends_with('$') && !screen.contains("dlock top:"));
}

#[test]
fn top_fits_narrow_terminals_and_never_cuts_the_number_of_waiters() {
    let (server, mut client) = Server::conf("dlock.log-wait 0").with_client();
    let owner = "a-machine-with-a-long-name.example.com:21625:8a19685554eee661";
    client.int(format!("DLOCK.ACQUIRE service:payments:customer:4711 {owner} PX 600000"));
    client.int("DLOCK.RLOCK doc 81f32df3c89540e1b7c061c86bc493e4 PX 600000");
    client.int("DLOCK.RLOCK doc 91f32df3c89540e1b7c061c86bc493e4 PX 600000");
    client.int("DLOCK.ACQUIRE report a-machine-with-a-long-name.example.com:7:once:8a19685554eee661 PX 600000");
    let waiters: Vec<_> =
        (0..3).map(|n| format!("DLOCK.ACQUIRE service:payments:customer:4711 w{n} BLOCK 0")).collect();
    let _waiters = server.waiters(waiters);
    let terminal = Terminal::open(&server);
    terminal.dlock("top --interval 100ms");
    for width in [70_usize, 80, 110, 200] {
        terminal.tmux(&["resize-window", "-x", &width.to_string(), "-y", "20"]);
        terminal.shows("all columns that matter", |screen| {
            let heading = screen.lines().nth(2).unwrap_or_default();
            let at = heading.find("WAITERS").unwrap_or(usize::MAX);
            let waits = screen.lines().nth(3).unwrap_or_default();
            let waits: String = waits.chars().skip(at).take("WAITERS".len()).collect();
            let doc = screen.lines().nth(4).unwrap_or_default();
            let fits = screen.lines().all(|line| line.chars().count() <= width);
            // A narrow terminal has no room for the last columns and for whole names.
            let is_wide = width < 110 || heading.ends_with("PERMITS") && screen.contains("customer:4711");
            // Owners are cut, except where there is room: a person may want to copy them.
            let owners = if width < 200 {
                doc.contains("… +1")
            } else {
                screen.contains(owner) && doc.contains("81f32df3c89540e1b7c061c86bc493e4 +1")
            };
            let is_told = row(screen, "report").is_some_and(|row| row[1] == "once");
            fits && is_wide && owners && is_told && waits.trim() == "3" && doc.starts_with("doc")
        });
    }
    terminal.key("q");
}

#[test]
fn top_cuts_no_question_no_help_and_no_owner_of_an_opened_lock() {
    let (server, mut client) = Server::start().with_client();
    let owner = "a-machine-with-a-long-name.example.com:21625:8a19685554eee661";
    client.int(format!("DLOCK.ACQUIRE service:payments:customer:4711 {owner} PX 600000"));
    let terminal = Terminal::open(&server);
    terminal.dlock("top --interval 100ms");
    for width in [60_usize, 70, 80, 200] {
        terminal.tmux(&["resize-window", "-x", &width.to_string(), "-y", "30"]);
        // Joins the lines that `top` has broken.
        let whole = |screen: &str| screen.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        terminal.shows("how to get help", |screen| screen.lines().next().is_some_and(|line| line.contains("?: help")));
        terminal.key("?");
        terminal.shows("the whole help", |screen| {
            let screen = whole(screen).split_whitespace().collect::<Vec<_>>().join(" ");
            ["addr:ADDRESS", "then remove the filter", "the time until the next run"]
                .iter()
                .all(|end| screen.contains(end))
        });
        terminal.key("Escape");
        terminal.shows("the list again", |screen| screen.contains("sorted by"));
        terminal.key("b");
        terminal.shows("the whole question, and the lock", |screen| {
            let question = whole(screen).replace(' ', "");
            let end = "whenitrenews.[y/N]";
            question.contains(&format!("takeservice:payments:customer:4711from{owner}?"))
                && question.contains(end)
                && ["HELD BY", "TTL", "TOKEN"].iter().all(|column| screen.contains(column))
        });
        terminal.key("n");
        terminal.shows("that nothing was done", |screen| screen.contains("was left alone"));
        terminal.key("Escape");
        terminal.shows("the list", |screen| screen.contains("sorted by"));
    }
    terminal.key("q");
}

#[test]
fn top_says_that_the_log_may_not_be_read() {
    let (server, mut client) = Server::conf("dlock.log-wait 0").with_client();
    client.int("DLOCK.ACQUIRE job me PX 600000");
    client.ok("ACL SETUSER looker on >secret %R~* +scan +dlock.info +time");
    let terminal = Terminal::open(&server);
    terminal.dlock(&format!("top --interval 100ms -s redis://looker:secret@127.0.0.1:{}", server.port()));
    terminal.shows("the lock", |screen| names(screen) == ["job"]);
    terminal.key("l");
    terminal.shows("why there is no log", |screen| {
        screen.contains("the log cannot be read: ") && screen.contains("dlock.log")
    });
    terminal.key("Enter");
    terminal.shows("why there is no log of one lock", |screen| {
        let log = screen.split("LOG of this lock").nth(1);
        log.is_some_and(|log| log.contains("the log cannot be read: "))
    });
    terminal.key("q");
}
