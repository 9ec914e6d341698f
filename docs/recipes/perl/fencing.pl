# A write that a database rejects if a later owner of the lock has written.
use strict;
use warnings;
use DBI qw(:sql_types);
use Redis;

# The client sends the name of a method that it does not have as a command. A reply that is nil is undef.
sub dlock { my ($redis, $command, @arguments) = @_; my $name = "DLOCK.$command"; return $redis->$name(@arguments) }

my $address = ($ENV{DLOCK_TEST_HOST} // "127.0.0.1") . ":" . ($ENV{DLOCK_TEST_PORT} // 6379);
my $redis = Redis->new(server => $address);
my $database = DBI->connect("dbi:SQLite:dbname=:memory:", "", "", { RaiseError => 1 });
$database->do("CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER NOT NULL)");
$database->do("INSERT INTO report VALUES (1, '', 0)");

sub write_report {
    my ($body, $token) = @_;
    my $update = $database->prepare("UPDATE report SET body = ?1, fence = ?2 WHERE id = 1 AND fence <= ?2");
    $update->bind_param(1, $body);
    $update->bind_param(2, $token, SQL_INTEGER);    # in a column without a type, text is above any number
    return $update->execute == 1;
}

my $alice = dlock($redis, "ACQUIRE", "recipe:fencing", "alice", "PX", 30000);
$redis->del("recipe:fencing");    # her lease ended while she was paused
my $bob = dlock($redis, "ACQUIRE", "recipe:fencing", "bob", "PX", 30000);

print "bob: written\n" if write_report("by bob", $bob);
print "alice: refused, her token is the older one\n" unless write_report("by alice", $alice);
dlock($redis, "RELEASE", "recipe:fencing", "bob", "TOKEN", $bob);
