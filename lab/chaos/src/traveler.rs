//! Owners whose locks travel with their slot to the other node and back, while their first connection stays open. The
//! move unbinds what was bound to that connection. The end of the connection must then neither release a hold, nor let
//! a writer in beside a reader.

use dlock_testkit::redis::Value;
use dlock_testkit::{Client, Server};

/// A hold that is bound to a connection, and bound again on the other node.
const BOUND: &str = "{c}traveler";
/// A lock of many readers, all bound to the connection. On the other node it is deleted, and a reader takes it.
const READ: &str = "{c}travelers";
/// More readers than the engine settles at once when their session ends (`PIECE` in the core).
const READERS: usize = 70;

/// Owners on one journey after the other. A journey takes two moves of the slot: there and back.
#[derive(Default)]
pub struct Traveler {
    /// The connection before the journey, its id, and the token of [`BOUND`].
    first: Option<(Client, i64, i64)>,
    /// The connection on the other node, after the first move.
    there: Option<Client>,
}

impl Traveler {
    /// Begins a journey, if none is under way. If a fault prevents the grant, none begins.
    pub fn before_a_move(&mut self, from: &Server) {
        if self.first.is_none() {
            self.first = begin(from);
        }
    }

    /// Continues the journey after a move, if one is under way. Returns the violations.
    pub fn after_a_move(&mut self, at: &Server) -> Vec<String> {
        let Some((_, id, token)) = &self.first else { return Vec::new() };
        let mut client = at.client();
        if self.there.is_none() {
            let bound = client.attempt(format!("DLOCK.RENEW {BOUND} owner PX 600000 TOKEN {token} SESSION"));
            let read = client.attempt(format!("DEL {READ}"));
            let read = read.and_then(|_| client.attempt(format!("DLOCK.RLOCK {READ} reader PX 600000")));
            if bound == Ok(Value::Nil) {
                return self.over(&mut client, vec![format!("{BOUND}, token {token}, was lost when its slot moved")]);
            }
            // A fault, for example a full memory, ends the journey without a violation.
            if bound.is_err() || read.is_err() {
                return self.over(&mut client, Vec::new());
            }
            self.there = Some(client);
            return Vec::new();
        }
        // A single write sends all three, so that the writer asks before the end of the session is settled for all readers.
        let replies = client.pipeline(&[
            format!("CLIENT KILL ID {id}"),
            format!("DLOCK.WLOCK {READ} writer PX 1000"),
            format!("DLOCK.CHECK {BOUND} {token}"),
        ]);
        let mut found = Vec::new();
        if let Some(Ok(Value::Int(writer))) = replies.get(1) {
            found.push(format!(
                "two owners of {READ}, whose slot had left and come back: a writer got {writer} beside a reader"
            ));
        }
        if replies.get(2) == Some(&Ok(Value::Nil)) {
            found.push(format!(
                "{BOUND}, token {token}, was lost: its slot had left and come back, and a connection ended to which it \
                 was bound before"
            ));
        }
        self.over(&mut client, found)
    }

    /// Ends the journey, if one is under way, and deletes its locks.
    pub fn finish(&mut self, at: &Server) {
        self.over(&mut at.client(), Vec::new());
    }

    fn over(&mut self, client: &mut Client, found: Vec<String>) -> Vec<String> {
        (self.first, self.there) = (None, None);
        client.run(format!("DEL {BOUND} {READ}"));
        found
    }
}

fn begin(from: &Server) -> Option<(Client, i64, i64)> {
    let mut client = from.client();
    let id = client.int("CLIENT ID");
    let Ok(Value::Int(token)) = client.attempt(format!("DLOCK.ACQUIRE {BOUND} owner PX 600000 SESSION")) else {
        return None;
    };
    let readers: Vec<String> =
        (0..READERS).map(|number| format!("DLOCK.RLOCK {READ} reader-{number} PX 600000 SESSION")).collect();
    // A fault may refuse some of them.
    client.pipeline(&readers);
    Some((client, id, token))
}
