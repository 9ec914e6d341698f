//! Two nodes of a cluster, and the slot of all locks that moves from one to the other.

use dlock_testkit::cluster;
use dlock_testkit::version::Version;
use dlock_testkit::{Client, Server, Setup, soon};

use crate::time::wait_until;
use crate::workload::KEYS;

/// Returns whether the server moves slots with their keys in one step.
pub fn can_travel(server: &Server) -> bool {
    let version = Version::of(&mut server.client());
    version.imports_slots() || version.migrates_slots()
}

/// Starts two nodes: the home of all slots but one, and one that has the last, so that it is a primary, too.
pub fn two_nodes(setup: &Setup) -> (Server, Server) {
    let setup = setup.clone().conf(cluster::CONF);
    let (home, other) = (setup.clone().start(), setup.start());
    for (node, slots, epoch) in [(&home, "0 16382", 1), (&other, "16383 16383", 2)] {
        let mut client = node.client();
        client.ok(format!("CLUSTER ADDSLOTSRANGE {slots}"));
        client.ok(format!("CLUSTER SET-CONFIG-EPOCH {epoch}"));
    }
    home.client().ok(format!("CLUSTER MEET 127.0.0.1 {}", other.port()));
    for node in [&home, &other] {
        soon("the cluster is whole", || {
            let field = |name| cluster::info_field_of_cluster(&mut node.client(), name);
            field("cluster_slots_ok").as_deref() == Some("16384") && field("cluster_state").as_deref() == Some("ok")
        });
    }
    (home, other)
}

/// Moves the slot, and asks again where a move was given up.
///
/// # Errors
/// The slot has not moved: the last refusal.
pub fn travel(from: &Server, to: &Server) -> Result<(), String> {
    let mut refusal = String::new();
    let (mut source, mut target) = (from.client(), to.client());
    let slot = source.int(format!("CLUSTER KEYSLOT {}", KEYS[0]));
    let imports = Version::of(&mut source).imports_slots();
    let id = target.text("CLUSTER MYID");
    let has_moved = (0..MOST_MOVES).any(|_| {
        let begun = if imports {
            target.attempt(format!("CLUSTER MIGRATION IMPORT {slot} {slot}"))
        } else {
            source.attempt(format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {id}"))
        };
        // Refused while the last move is under way, or is tidied up.
        begun.err().into_iter().for_each(|error| refusal = error);
        wait_until(A_MOVE_MS, || is_at_home(&mut target) && !is_at_home(&mut source))
    });
    if has_moved { Ok(()) } else { Err(refusal) }
}

fn is_at_home(client: &mut Client) -> bool {
    client.attempt(format!("DLOCK.CHECK {} 1", KEYS[0])).is_ok()
}

const A_MOVE_MS: u64 = 3000;
const MOST_MOVES: u32 = 10;
