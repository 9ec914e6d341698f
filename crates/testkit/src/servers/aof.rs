//! The append-only file as a list of commands. The server sends the same commands to its replicas.

use std::fs;
use std::path::PathBuf;

use crate::server::Server;

impl Server {
    /// Returns the commands in the append-only file: those of its base file, unless that is an RDB, and those after it.
    #[track_caller]
    pub fn aof(&self) -> Vec<Vec<Vec<u8>>> {
        let manifest = fs::read_to_string(self.path("appendonlydir/appendonly.aof.manifest")).expect("an AOF");
        let mut commands = Vec::new();
        // The server deletes historic files in the background, while its manifest may still name them.
        for line in manifest.lines().filter(|line| !line.ends_with("type h")) {
            let name = line.split(' ').nth(1).expect("file NAME");
            let bytes = fs::read(self.path("appendonlydir").join(name)).expect("a file of the manifest");
            if !bytes.starts_with(b"REDIS") && !bytes.starts_with(b"VALKEY") {
                commands.extend(parse(&bytes));
            }
        }
        commands
    }

    /// Returns the path of the file that commands are appended to.
    #[track_caller]
    pub fn aof_path(&self) -> PathBuf {
        let manifest = fs::read_to_string(self.path("appendonlydir/appendonly.aof.manifest")).expect("an AOF");
        let line = manifest.lines().find(|line| line.contains(" type i")).expect("a file that grows");
        self.path("appendonlydir").join(line.split(' ').nth(1).expect("file NAME"))
    }

    /// Returns the size of the file that commands are appended to.
    #[track_caller]
    pub fn aof_size(&self) -> u64 {
        fs::metadata(self.aof_path()).expect("a file of the manifest").len()
    }

    /// Returns the names of the commands that `act` appended, in upper case and without `SELECT`.
    #[track_caller]
    pub fn appended(&self, act: impl FnOnce()) -> Vec<String> {
        let before = self.aof().len();
        act();
        let name = |command: &Vec<Vec<u8>>| String::from_utf8_lossy(&command[0]).to_uppercase();
        self.aof()[before..].iter().map(name).filter(|name| name != "SELECT").collect()
    }
}

fn parse(mut bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut commands = Vec::new();
    while !bytes.is_empty() {
        let count = number(&mut bytes, b'*');
        let word = |bytes: &mut &[u8]| {
            let length = number(bytes, b'$');
            let word = bytes[..length].to_vec();
            *bytes = &bytes[length + 2..];
            word
        };
        commands.push((0..count).map(|_| word(&mut bytes)).collect());
    }
    commands
}

/// Reads the number of a line such as `*3` or `$5`, whose first byte is `kind`.
fn number(bytes: &mut &[u8], kind: u8) -> usize {
    assert_eq!(bytes[0], kind, "{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(40)]));
    let end = bytes.iter().position(|byte| *byte == b'\r').expect("a whole line");
    let text = std::str::from_utf8(&bytes[1..end]).expect("a number");
    *bytes = &bytes[end + 2..];
    text.parse().expect("a number")
}
