//! Replicas.

use crate::client::Client;
use crate::server::{Server, Setup};
use crate::wait::soon;
use crate::wire::{int_of, list_of, text_of};

impl Setup {
    /// Starts a replica and waits until it is in sync.
    #[track_caller]
    pub fn replica_of(self, primary: &Server) -> Server {
        let replica = self.start();
        replica.follow(primary);
        replica
    }
}

impl Server {
    /// Starts a replica of this server.
    #[track_caller]
    pub fn replica(&self) -> Self {
        Setup::new().replica_of(self)
    }

    /// Starts this server and a replica of it.
    #[track_caller]
    pub fn with_replica(self) -> (Self, Self) {
        let replica = self.replica();
        // The primary refuses a failover to the replica until it knows that the replica is online.
        let online = format!("port={},state=online", replica.port());
        let mut client = self.client();
        soon("the replica is online", || client.text("INFO replication").contains(&online));
        (self, replica)
    }

    /// Becomes a replica and waits until it is in sync.
    #[track_caller]
    pub fn follow(&self, primary: &Self) {
        self.client().ok(format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        self.wait_synced(primary);
    }

    /// Waits until this replica has received all changes that the primary has made until now.
    #[track_caller]
    pub fn wait_synced(&self, primary: &Self) {
        let (mut source, mut copy) = (primary.client(), self.client());
        let mut goal = None;
        soon("the replica is in sync", || {
            let link = info_field(&mut copy, "replication", "master_link_status");
            if link.as_deref() != Some("up") {
                return false;
            }
            // The offset is read after the link is up, because a primary starts to count with its first replica.
            let goal = *goal.get_or_insert_with(|| number(&mut source, "master_repl_offset"));
            number(&mut copy, "slave_repl_offset") >= goal
        });
    }

    /// Returns whether the server reports that it is a primary. A server that is just changing its role may close the
    /// connection, which counts as false.
    pub fn is_primary(&self) -> bool {
        self.role().as_deref() == Some("master")
    }

    /// Returns whether the server reports that it is a replica.
    pub fn is_replica(&self) -> bool {
        self.role().as_deref() == Some("slave")
    }

    fn role(&self) -> Option<String> {
        let reply = Client::connect(self.port()).ok()?.ask("ROLE")?;
        list_of(&reply).first().map(text_of)
    }

    /// Waits until the database has this number of keys.
    #[track_caller]
    pub fn keeps_only(&self, keys: i64) {
        let mut client = self.client();
        soon(&format!("{keys} keys are left"), || client.int("DBSIZE") == keys);
    }

    /// Becomes a primary.
    #[track_caller]
    pub fn promote(&self) {
        self.client().ok("REPLICAOF NO ONE");
    }
}

fn number(client: &mut Client, field: &str) -> i64 {
    info_field(client, "replication", field).expect("a replication field").parse().expect("a number")
}

/// Returns a field of the server's `INFO`.
#[track_caller]
pub fn info_field(client: &mut Client, section: &str, field: &str) -> Option<String> {
    let text = text_of(&client.run(format!("INFO {section}")));
    text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned))
}

impl Client {
    /// Returns how often the server has executed a command.
    #[track_caller]
    pub fn calls(&mut self, command: &str) -> i64 {
        let stats = info_field(self, "commandstats", &format!("cmdstat_{command}")).unwrap_or_default();
        let calls = stats.split(',').find_map(|field| field.strip_prefix("calls="));
        calls.map_or(0, |calls| calls.parse().expect("a number"))
    }
}

/// Returns a number of `INFO dlock`.
#[track_caller]
pub fn counter(client: &mut Client, name: &str) -> i64 {
    let value = info_field(client, "dlock", &format!("dlock_{name}"));
    int_of(&redis::Value::SimpleString(value.unwrap_or_else(|| panic!("no dlock_{name} in INFO dlock"))))
}
