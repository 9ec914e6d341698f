//! The servers: what was replicated where, what a crash leaves, who is promoted.
//!
//! The stream of a primary is a *lineage*: units that are applied together, each with what the model knew after it. A
//! server that is promoted, or restarts without its last units, begins a new lineage that branches off where it is.

use dlock_core::engine::Role;
use dlock_testkit::histories::{SavedKeys, Snapshot, World};
use dlock_testkit::keyspace::{KeyName, Replicated};

use crate::plan::{DEFAULT_LEASE, Files, OTHER_NODE, REPLICATED, SERVERS, SLOTS, Setting};

/// A place in the stream of a primary, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub lineage: usize,
    pub offset: usize,
}

struct Lineage {
    /// The place of the older lineage from which this one branched off.
    from: Option<Place>,
    units: Vec<Unit>,
}

/// Changes that are applied together.
#[derive(Clone)]
struct Unit {
    changes: Vec<(KeyName, Replicated)>,
    /// The state of the primary's model after these changes.
    after: Snapshot,
}

pub struct Server {
    pub world: World,
    pub is_up: bool,
    /// The last unit that the server has.
    pub place: Place,
    /// The last unit that the server would have after a crash.
    synced: Place,
    /// The last RDB file, or the base of the AOF, and the last unit in it.
    rdb: (Place, SavedKeys),
    /// How far the server's clock was ahead of the true time at the start, with the jumps since, in µs.
    skew_us: i64,
    /// How much the server's clock gains, in millionths.
    drift: i64,
    /// How often the server has forgotten its sessions.
    run: usize,
}

pub struct Servers {
    pub all: Vec<Server>,
    /// The server that clients are told to connect to.
    pub primary: usize,
    /// A server that still calls itself a primary although another was promoted.
    pub former: Option<usize>,
    /// The slots that the other node serves.
    moved: [bool; SLOTS.len()],
    files: Files,
    lineages: Vec<Lineage>,
    pub now_us: u64,
    /// The faults that can explain why two owners believe at once that they hold a lock.
    pub faults: Faults,
}

/// Counts of events that may cost a hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Units that a promotion or a restart has lost.
    pub lost_units: usize,
    /// Units that a primary has written after another was promoted.
    pub former_units: usize,
    pub promotions: usize,
    pub restarts: usize,
    pub jumps: usize,
    pub full_syncs: usize,
    pub moves: usize,
}

impl Faults {
    pub fn add(&mut self, other: &Faults) {
        self.lost_units += other.lost_units;
        self.former_units += other.former_units;
        self.promotions += other.promotions;
        self.restarts += other.restarts;
        self.jumps += other.jumps;
        self.full_syncs += other.full_syncs;
        self.moves += other.moves;
    }
}

impl Servers {
    pub fn new(setting: &Setting) -> Servers {
        let start = Place { lineage: 0, offset: 0 };
        let server = |number: usize| {
            let role = if number == 0 || number == OTHER_NODE { Role::Primary } else { Role::Replica };
            let place = if number == OTHER_NODE { Place { lineage: 1, offset: 0 } } else { start };
            Server {
                world: World::deployed((BEGIN_US, BEGIN_US), DEFAULT_LEASE, role),
                is_up: true,
                place,
                synced: place,
                rdb: (place, SavedKeys::default()),
                skew_us: setting.skew_us[number],
                drift: setting.drift[number],
                run: 0,
            }
        };
        let lineage = || Lineage { from: None, units: Vec::new() };
        let mut servers = Servers {
            all: (0..SERVERS).map(server).collect(),
            primary: 0,
            former: None,
            moved: [false; SLOTS.len()],
            files: setting.files,
            lineages: vec![lineage(), lineage()],
            now_us: 0,
            faults: Faults::default(),
        };
        for key in SLOTS.concat() {
            servers.all[OTHER_NODE].world.lose_slot(key);
        }
        (0..SERVERS).for_each(|server| servers.set_clock(server));
        servers
    }

    // Time.

    /// Returns the clock of a server, in µs.
    pub fn clock(&self, server: usize) -> u64 {
        let Server { skew_us, drift, .. } = self.all[server];
        let now = i64::try_from(BEGIN_US + self.now_us).expect("a time of this century");
        let gained = i64::try_from(self.now_us).expect("a short run") / 1000 * drift / 1000;
        u64::try_from(now + gained + skew_us).expect("a time after the epoch")
    }

    /// Returns the monotonic clock of each server, in µs.
    fn uptime(&self) -> u64 {
        BEGIN_US + self.now_us
    }

    /// Returns whether the clock of a server differs, or has differed, from the true time.
    pub fn has_wrong_clock(&self) -> bool {
        self.faults.jumps > 0 || self.all.iter().any(|server| server.skew_us != 0 || server.drift != 0)
    }

    /// Tells a server the time by its clock.
    pub fn set_clock(&mut self, server: usize) {
        let (clock, uptime) = (self.clock(server), self.uptime());
        let world = &mut self.all[server].world;
        if (world.now_us(), world.model().uptime_us()) != (clock, uptime) {
            world.set_clock(clock, uptime);
        }
    }

    /// Sets the clock of a server forward or back, unless it is already 4 s wrong.
    pub fn jump(&mut self, server: usize, by_us: i64) {
        let Server { is_up, skew_us, world, .. } = &mut self.all[server];
        // A pause ends by the server's clock: if the clock went back, the pause would become longer.
        if *is_up && world.role() != Role::HeldStill && skew_us.abs() < 4_000_000 {
            *skew_us += by_us;
            self.faults.jumps += 1;
            self.set_clock(server);
        }
    }

    /// Returns the true time of the next timer of all servers, and the number of its server.
    pub fn next_timer(&self) -> Option<(u64, usize)> {
        let due = (0..SERVERS).filter(|server| self.all[*server].is_up).filter_map(|server| {
            let at = self.all[server].world.wake_at_us()?;
            let left = at.saturating_sub(self.clock(server));
            // A slow clock needs a little longer: drifts are at most half a thousandth.
            Some((self.now_us + left + left / 1000, server))
        });
        due.min()
    }

    /// Returns whether a server is up and a primary.
    pub fn is_writing(&self, server: usize) -> bool {
        self.all[server].is_up && self.all[server].world.role() != Role::Replica
    }

    /// Returns whether a server carries out commands now.
    pub fn is_serving(&self, server: usize) -> bool {
        self.all[server].is_up && self.all[server].world.role() == Role::Primary
    }

    // The stream.

    /// Returns whether a server at `later` has all units of a server at `earlier`.
    pub fn contains(&self, later: Place, earlier: Place) -> bool {
        let mut place = later;
        loop {
            if place.lineage == earlier.lineage {
                return earlier.offset <= place.offset;
            }
            match self.lineages[place.lineage].from {
                Some(Place { lineage, offset }) => place = Place { lineage, offset: offset.min(place.offset) },
                None => return false,
            }
        }
    }

    /// Returns the unit at a place, which may belong to an older lineage. `None` at the start of a stream.
    fn unit(&self, mut place: Place) -> Option<&Unit> {
        loop {
            let lineage = &self.lineages[place.lineage];
            match lineage.from {
                Some(from) if place.offset <= from.offset => place.lineage = from.lineage,
                from => {
                    let begin = from.map_or(0, |from| from.offset);
                    return lineage.units.get(place.offset.checked_sub(begin + 1)?);
                }
            }
        }
    }

    /// Returns the state of the model after the unit at a place.
    fn snapshot(&self, place: Place) -> Snapshot {
        self.unit(place).map(|unit| unit.after.clone()).unwrap_or_default()
    }

    /// Puts what a primary has replicated into its stream.
    pub fn record(&mut self, server: usize) {
        let (files, Server { world, place, synced, .. }) = (self.files, &mut self.all[server]);
        let changes = world.take_replicated();
        if changes.is_empty() {
            return;
        }
        let after = world.snapshot();
        place.offset += 1;
        if files == Files::AofAlways {
            *synced = *place;
        }
        self.lineages[place.lineage].units.push(Unit { changes, after });
        self.faults.former_units += usize::from(self.former == Some(server));
    }

    /// Sends at most `units` units to a replica. A replica with units that the primary does not have gets a full sync
    /// first. Fails if a replica that has all units differs from its primary.
    pub fn replicate(&mut self, server: usize, units: usize) {
        let primary = self.primary;
        if server == primary || !self.all[server].is_up || !self.all[primary].is_up || self.former == Some(server) {
            return;
        }
        let (mine, theirs) = (self.all[server].place, self.all[primary].place);
        self.set_clock(server);
        if !self.contains(theirs, mine) {
            self.synchronize(server);
        }
        let begin = self.all[server].place.offset;
        for offset in begin..theirs.offset.min(begin + units) {
            let place = Place { lineage: theirs.lineage, offset: offset + 1 };
            let Unit { changes, after } = self.unit(place).expect("a unit of the primary").clone();
            self.all[server].world.apply(&changes, &after);
            self.all[server].place = place;
            if self.files == Files::AofAlways {
                self.all[server].synced = place;
            }
        }
        if self.all[server].place == theirs
            && let Some(difference) = self.all[server].world.differs_from(&self.all[primary].world)
        {
            panic!("the replica {server} differs from its primary: {difference}");
        }
    }

    /// Gives a replica all keys of the primary: a full sync.
    fn synchronize(&mut self, server: usize) {
        let place = self.all[self.primary].place;
        let primary = self.primary;
        let saved = self.all[primary].world.save(true);
        let replica = &mut self.all[server];
        replica.world.load(&saved);
        replica.world.end_turn();
        (replica.place, replica.synced, replica.rdb) = (place, place, (place, saved));
        self.faults.full_syncs += 1;
    }

    // Files.

    /// Syncs the AOF of a server to disk, if there is one.
    pub fn fsync(&mut self, server: usize) {
        let Server { place, synced, is_up, .. } = &mut self.all[server];
        if *is_up && self.files != Files::Rdb {
            *synced = *place;
        }
    }

    /// Writes the RDB file of a server. With an AOF, this stands for the rewrite of the AOF.
    pub fn save(&mut self, server: usize) {
        let Server { place, synced, is_up, rdb, world, .. } = &mut self.all[server];
        if *is_up {
            *rdb = (*place, world.save(true));
            *synced = *place;
        }
    }

    // Failures.

    pub fn crash(&mut self, server: usize) {
        self.all[server].is_up = false;
        if self.former == Some(server) {
            self.former = None;
        }
    }

    /// Starts a server that has crashed, with what its files have: the primary as a primary, others as replicas.
    pub fn restart(&mut self, server: usize) -> Result<(), String> {
        if self.all[server].is_up {
            return Ok(());
        }
        let times = (self.clock(server), self.uptime());
        let Server { synced, rdb: (begin, saved), .. } = &self.all[server];
        let (synced, begin) = (*synced, *begin);
        let mut world = World::deployed(times, DEFAULT_LEASE, Role::Replica);
        world.load(saved);
        for offset in begin.offset..synced.offset {
            let place = Place { lineage: synced.lineage, offset: offset + 1 };
            let Unit { changes, after } = self.unit(place).expect("a unit that was written");
            world.apply(changes, after);
        }
        world.end_turn();
        let before = self.all[server].place;
        let restarted = &mut self.all[server];
        (restarted.world, restarted.is_up, restarted.place) = (world, true, synced);
        restarted.run += 1;
        self.faults.restarts += 1;
        if server != self.primary {
            return Ok(());
        }
        self.faults.lost_units += before.offset - synced.offset;
        self.stand_up(server)
    }

    /// Promotes a server if it is a replica that has nothing that the primary lacks, and no former primary still
    /// writes. Returns whether the server was promoted.
    pub fn promote(&mut self, server: usize) -> Result<bool, String> {
        let former = self.primary;
        let is_replica = server < REPLICATED && server != former && self.former.is_none();
        if !is_replica || !self.all[server].is_up || !self.contains(self.all[former].place, self.all[server].place) {
            return Ok(false);
        }
        self.faults.promotions += 1;
        self.faults.lost_units += self.all[former].place.offset - self.all[server].place.offset;
        if self.all[former].is_up {
            self.former = Some(former);
        }
        self.primary = server;
        self.set_clock(server);
        self.stand_up(server)?;
        Ok(true)
    }

    /// Makes a server a primary with what it has.
    fn stand_up(&mut self, server: usize) -> Result<(), String> {
        let place = self.all[server].place;
        let snapshot = self.snapshot(place);
        // The server goes on in a stream of its own, which begins after the last unit that it has.
        let lineage = self.lineages.len();
        self.lineages.push(Lineage { from: Some(place), units: Vec::new() });
        let promoted = &mut self.all[server];
        promoted.place.lineage = lineage;
        if promoted.synced == place {
            promoted.synced.lineage = lineage;
        }
        promoted.world.promote(&snapshot)?;
        for (slot, keys) in SLOTS.iter().enumerate() {
            for key in keys.iter().copied().filter(|_| self.moved[slot]) {
                promoted.world.lose_slot(key);
            }
        }
        promoted.world.end_turn();
        self.record(server);
        Ok(())
    }

    /// Makes a primary, or a former primary, a replica.
    pub fn demote(&mut self, server: usize) {
        if self.former == Some(server) {
            self.former = None;
        }
        self.all[server].run += 1;
        self.all[server].world.become_replica();
        self.all[server].world.take_replicated();
    }

    // Slots.

    /// Moves a slot to the other node. Returns whether the slot could be moved now.
    pub fn move_slot(&mut self, slot: usize) -> bool {
        let (source, target) = (self.primary, OTHER_NODE);
        if self.moved[slot] || !self.is_writing(source) || self.former.is_some() {
            return false;
        }
        self.faults.moves += 1;
        self.set_clock(source);
        self.set_clock(target);
        for key in SLOTS[slot].iter().copied() {
            let (before, after) = self.all.split_at_mut(target);
            after[0].world.gain_slot(key);
            after[0].world.import(&before[source].world, key);
            before[source].world.lose_slot(key);
        }
        self.moved[slot] = true;
        true
    }

    /// Returns whether the other node serves this key.
    pub fn is_moved(&self, key: usize) -> bool {
        SLOTS.iter().zip(self.moved).any(|(slot, is_moved)| is_moved && slot.contains(&key))
    }

    /// Returns how often a server has forgotten its sessions.
    pub fn run(&self, server: usize) -> usize {
        self.all[server].run
    }

    pub fn place(&self, server: usize) -> Place {
        self.all[server].place
    }

    /// Returns where the next unit of a primary is.
    pub fn next_place(&self, server: usize) -> Place {
        let Place { lineage, offset } = self.place(server);
        Place { lineage, offset: offset + 1 }
    }
}

/// The true time at which a run begins, in µs of Unix time. The monotonic clocks begin with it, too.
const BEGIN_US: u64 = 1_000_000_000_000;
