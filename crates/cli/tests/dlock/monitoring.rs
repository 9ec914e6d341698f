//! Tests of `packaging/monitoring` and docs/monitoring.md, with Prometheus and its exporter for Redis.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process::{Notes, Running, With, dlock, outcome};
use dlock_testkit::process::free_port;
use dlock_testkit::skip::skipped;
use dlock_testkit::{Server, soon};

/// Returns the path of a program, from the `PATH` or `scripts/setup test`. Without it, the test is skipped.
fn program(name: &str) -> Option<PathBuf> {
    let unpacked = root().join("target/monitoring/usr/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).chain([unpacked]).map(|folder| folder.join(name)).find(|p| p.is_file());
    if found.is_none() {
        skipped(&format!("no {name} (scripts/setup test fetches it)"));
    }
    found
}

/// Returns a command whose output is dropped.
fn quiet(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn packaged(name: &str) -> PathBuf {
    root().join("packaging/monitoring").join(name)
}

/// Returns the body of the reply to an HTTP request.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    reply.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

/// Returns the answer of Prometheus to a query: series with their values.
fn query(port: u16, expression: &str) -> Vec<Value> {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let reply = get(port, &format!("/api/v1/query?query={encoded}")).unwrap_or_default();
    let reply: Value = serde_json::from_str(&reply).unwrap_or_default();
    assert_ne!(reply["status"], "error", "{expression}: {reply}");
    reply["data"]["result"].as_array().cloned().unwrap_or_default()
}

/// Returns the value of the only series in the answer to a query.
fn value(port: u16, expression: &str) -> Option<f64> {
    match query(port, expression).as_slice() {
        [series] => series["value"][1].as_str()?.parse().ok(),
        _ => None,
    }
}

#[test]
fn the_rules_pass_the_tests_of_prometheus() {
    let Some(promtool) = program("promtool") else { return };
    for check in [["check", "rules.yml"], ["test", "rules-test.yml"]] {
        let mut command = Command::new(&promtool);
        command.args([check[0], "rules"]).arg(packaged(check[1])).current_dir(packaged(""));
        let checked = outcome(command);
        assert_eq!(checked.code, Some(0), "{checked:?}");
    }
}

/// Returns the lines of a systemd unit that begin with `begin`, without this beginning.
fn unit(name: &str, begin: &str) -> Vec<String> {
    let unit = std::fs::read_to_string(root().join("packaging/systemd").join(name)).expect("a unit");
    unit.lines().filter_map(|line| line.strip_prefix(begin)).map(str::to_owned).collect()
}

#[test]
fn the_unit_of_dlock_metrics_starts_what_the_page_names() {
    let server = Server::start();
    let start =
        unit("dlock-metrics.service", "ExecStart=/usr/bin/dlock ").concat().replace("$DLOCK_METRICS_OPTIONS", "");
    let port = free_port();
    let words: Vec<_> = start.split_whitespace().map(|word| word.replace(":9122", &format!(":{port}"))).collect();
    let _metrics = Running::start(dlock(&server).with(words));
    soon("dlock metrics answers", || get(port, "/metrics").is_some_and(|page| page.contains("dlock_up{")));
    // The package installs the environment file of the unit, and the page names it.
    let file = unit("dlock-metrics.service", "EnvironmentFile=").concat();
    let page = std::fs::read_to_string(root().join("docs/monitoring.md")).expect("the page");
    assert!(page.contains(&file) && page.contains("localhost:9122"), "{file}");
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    assert!(manifest.contains(&format!("dest = \"{}\"", file.trim_start_matches('/'))), "{file}");
    if let Ok(analyzed) = Command::new("systemd-analyze").arg("--version").output()
        && analyzed.status.success()
    {
        // systemd-analyze misses the binary and the man page of the package, which are not installed here.
        let mut verify = Command::new("systemd-analyze");
        verify.arg("verify").arg(root().join("packaging/systemd/dlock-metrics.service"));
        let stderr = outcome(verify).stderr;
        let is_known = |line: &&str| line.contains("Command /usr/bin/dlock is not") || line.contains("Command 'man ");
        let wrong: Vec<_> =
            stderr.lines().filter(|line| line.contains("dlock-metrics")).filter(|line| !is_known(line)).collect();
        assert!(wrong.is_empty(), "{stderr}");
    }
}

#[test]
fn the_page_has_each_alert_and_the_agent_each_metric_that_the_rules_need() {
    let rules = std::fs::read_to_string(packaged("rules.yml")).expect("the rules");
    let page = std::fs::read_to_string(root().join("docs/monitoring.md")).expect("the page");
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(page.contains(&format!("| `{alert}` |")), "{alert}");
    }
    let server = Server::start();
    let (port, listen) = (free_port(), free_port());
    let mut agent = dlock(&server);
    agent.args(["agent", "--listen", &format!("127.0.0.1:{listen}"), "--metrics", &format!("127.0.0.1:{port}")]);
    let _agent = Running::start(agent);
    soon("the agent answers", || get(port, "/metrics").is_some_and(|page| !page.is_empty()));
    let numbers = get(port, "/metrics").expect("a page");
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for name in words.filter(|word| word.starts_with("dlock_agent_")) {
        assert!(numbers.lines().any(|line| line.starts_with(&format!("{name} "))), "{name} in\n{numbers}");
    }
}

/// Returns the command that starts the exporter in docs/monitoring.md, with the addresses of the test.
fn exporter(program: &Path, server: &Server, port: u16) -> Command {
    let page = std::fs::read_to_string(root().join("docs/monitoring.md")).expect("the page");
    let shown = page.lines().skip_while(|line| !line.starts_with("prometheus-redis-exporter"));
    let shown: Vec<_> = shown.take_while(|line| !line.starts_with("```")).collect();
    let shown = shown.join(" ").replace('\\', " ");
    let mut command = quiet(program);
    for word in shown.split_whitespace().skip(1) {
        command.arg(match word {
            "redis://localhost:6379" => format!("redis://127.0.0.1:{}", server.port()),
            ":9121" => format!("127.0.0.1:{port}"),
            "dlock.lua" => packaged("dlock.lua").display().to_string(),
            word => word.to_owned(),
        });
    }
    command
}

#[test]
fn prometheus_sees_a_contended_lock_through_the_exporter_and_through_dlock_metrics() {
    let (Some(exporter_path), Some(prometheus)) = (program("prometheus-redis-exporter"), program("prometheus")) else {
        return;
    };
    let server = Server::start();
    let [exporter_port, metrics_port, port] = [free_port(), free_port(), free_port()];
    let _exporter = Running::start(exporter(&exporter_path, &server, exporter_port));
    let _metrics = Running::start(dlock(&server).with(["metrics", "--listen", &format!("127.0.0.1:{metrics_port}")]));
    soon("the exporter answers", || get(exporter_port, "/metrics").is_some());
    soon("dlock metrics answers", || get(metrics_port, "/metrics").is_some());

    let notes = Notes::new();
    // Rates are taken over seconds here, so that the test need not wait for minutes.
    let rules = std::fs::read_to_string(packaged("rules.yml")).expect("the rules").replace("[5m]", "[5s]");
    std::fs::write(notes.path("rules.yml"), rules).expect("a file");
    let job = |name: &str, port| format!("- {{job_name: {name}, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}");
    let configuration = format!(
        "global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}\n\
         rule_files: [rules.yml]\nscrape_configs:\n{}\n{}\n",
        job("exporter", exporter_port),
        job("command", metrics_port)
    );
    std::fs::write(notes.path("prometheus.yml"), configuration).expect("a file");
    let mut command = quiet(&prometheus);
    command.arg(format!("--config.file={}", notes.path("prometheus.yml").display()));
    command.arg(format!("--storage.tsdb.path={}", notes.path("data").display()));
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let _prometheus = Running::start(command);
    soon("both targets are scraped", || value(port, "count(up == 1)") == Some(2.0));

    let mut client = server.client();
    client.int("DLOCK.ACQUIRE job alice PX 600000");
    let mut waiters =
        server.waiters(["bob", "carol", "dave"].map(|w| format!("DLOCK.ACQUIRE job {w} PX 600000 BLOCK 0")));
    for job in ["exporter", "command"] {
        soon("three waiters are shown", || value(port, &format!("dlock:waiters{{job='{job}'}}")) == Some(3.0));
        soon("the limit is shown", || value(port, &format!("dlock:max_waiters{{job='{job}'}}")) == Some(10_000.0));
    }
    soon("the waiters of the lock are shown", || value(port, "dlock_lock_waiters{lock='job'}") == Some(3.0));
    client.int("DLOCK.RELEASE job alice");
    waiters[0].granted();
    client.error("DLOCK.ACQUIRE job bob BLOCK 0");
    client.int("DLOCK.ACQUIRE short erin PX 20");
    for job in ["exporter", "command"] {
        for (what, expression) in [
            ("a deadlock", "dlock:deadlocks:rate5m{job='JOB'} > 0"),
            ("a lapse", "dlock:lapses:rate5m{job='JOB'} > 0"),
            ("a wait", "dlock:wait_seconds:mean5m{job='JOB'} > 0"),
            ("a percentile", "dlock:wait_seconds:p99{job='JOB'} > 0"),
        ] {
            let expression = expression.replace("JOB", job);
            // A rate needs scrapes before and after an event, so the events go on until there is one.
            soon(what, || {
                client.error("DLOCK.ACQUIRE job bob BLOCK 0");
                client.run("DLOCK.ACQUIRE short erin PX 20");
                let mut passing = server.waiter("DLOCK.ACQUIRE job erin PX 20 BLOCK 50");
                passing.read().expect("an answer");
                value(port, &expression).is_some()
            });
        }
    }
    soon("the alert fires", || {
        value(port, "ALERTS{alertname='DlockDeadlocks', alertstate='firing', job='exporter'}") == Some(1.0)
    });

    // Every panel of the dashboard shows something.
    let dashboard = std::fs::read_to_string(packaged("dashboard.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.len() > 5);
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets")) {
        let expression = target["expr"].as_str().expect("a query");
        soon(expression, || !query(port, expression).is_empty());
    }
}
