//! Devices of a machine, and a limit over all machines: the recipe of docs/run.md.

use std::path::Path;

use crate::process::{Notes, Running, dlock};
use dlock_testkit::{Server, soon};

/// Returns the command of the page that takes a device of the machine, and then one of the permits of all machines.
fn recipe() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/run.md");
    let page = std::fs::read_to_string(page).expect("a page");
    let lines = page.lines().skip_while(|line| !line.ends_with("gpu:$(hostname)\" -- \\"));
    lines.take(2).collect::<Vec<_>>().join("\n")
}

#[test]
fn jobs_of_all_machines_have_a_limit_and_each_a_device_of_its_machine() {
    let (server, notes) = (Server::start(), Notes::new());
    let template = dlock(&server);
    let folder = Path::new(template.get_program()).parent().expect("a folder").display().to_string();
    let train = |machine: &str| {
        let (running, go) = (notes.path("running"), notes.path("go"));
        format!(
            "echo {machine} $CUDA_VISIBLE_DEVICES >>{}; while ! [ -e {} ]; do sleep 0.02; done; echo >>{}",
            running.display(),
            go.display(),
            notes.path("done").display()
        )
    };
    let script = |machine: &str| notes.path(&format!("train-{machine}"));
    // All scripts are written before a job runs one of them.
    for machine in ["a", "b", "c"] {
        std::fs::write(script(machine), format!("#!/bin/sh\n{}\n", train(machine))).expect("a file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(script(machine), mode).expect("a file of ours");
    }
    let start = |machine: &str| {
        let line = recipe().replace("$(hostname)", machine).replace("./train", &script(machine).display().to_string());
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &line]).env("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap_or_default()));
        command.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Running::start(command)
    };
    let jobs: Vec<_> = ["a", "b", "c", "a", "b", "c", "a"].map(start).into();
    let running = || notes.read("running").lines().map(str::to_owned).collect::<Vec<_>>();
    soon("four run, two wait for a permit with their devices, one waits for a device of a", || {
        running().len() == 4 && server.queue("gpu-jobs").len() == 2 && server.queue("gpu:a").len() == 1
    });
    let mut devices = running();
    devices.sort();
    devices.dedup();
    assert_eq!(devices.len(), 4, "two jobs have the same device: {devices:?}");
    assert!(devices.iter().all(|job| job.ends_with(" 0") || job.ends_with(" 1")), "{devices:?}");
    std::fs::write(notes.path("go"), "").expect("a file");
    for job in jobs {
        assert_eq!(job.outcome().code, Some(0));
    }
    assert_eq!((running().len(), notes.read("done").lines().count()), (7, 7));
}
