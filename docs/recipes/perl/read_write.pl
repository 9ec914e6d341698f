# Readers share a lock, a writer excludes all others.
use strict;
use warnings;
use Redis;

# The client sends the name of a method that it does not have as a command. A reply that is nil is undef.
sub dlock { my ($redis, $command, @arguments) = @_; my $name = "DLOCK.$command"; return $redis->$name(@arguments) }

my $address = ($ENV{DLOCK_TEST_HOST} // "127.0.0.1") . ":" . ($ENV{DLOCK_TEST_PORT} // 6379);
my $redis = Redis->new(server => $address);

my $alice = dlock($redis, "RLOCK", "recipe:read_write", "alice", "PX", 30000);
my $bob = dlock($redis, "RLOCK", "recipe:read_write", "bob", "PX", 30000);
print "alice and bob: reading\n" if $alice && $bob;
print "carol: not granted\n" unless dlock($redis, "WLOCK", "recipe:read_write", "carol", "PX", 30000);

dlock($redis, "RELEASE", "recipe:read_write", "alice", "TOKEN", $alice);
dlock($redis, "RELEASE", "recipe:read_write", "bob", "TOKEN", $bob);
my $carol = dlock($redis, "WLOCK", "recipe:read_write", "carol", "PX", 30000);
print "carol: writing\n" if $carol;
dlock($redis, "RELEASE", "recipe:read_write", "carol", "TOKEN", $carol);
