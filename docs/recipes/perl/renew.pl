# Renew a lease while the work goes on.
use strict;
use warnings;
use Redis;

# The client sends the name of a method that it does not have as a command. A reply that is nil is undef.
sub dlock { my ($redis, $command, @arguments) = @_; my $name = "DLOCK.$command"; return $redis->$name(@arguments) }

my $address = ($ENV{DLOCK_TEST_HOST} // "127.0.0.1") . ":" . ($ENV{DLOCK_TEST_PORT} // 6379);
my $redis = Redis->new(server => $address);

my $token = dlock($redis, "ACQUIRE", "recipe:renew", "alice", "PX", 10000);

# Send this whenever about a third of the lease has passed. Without PX, the hold keeps its lease.
print "renewed\n" if dlock($redis, "RENEW", "recipe:renew", "alice", "TOKEN", $token);

dlock($redis, "RELEASE", "recipe:renew", "alice", "TOKEN", $token);
# The lock is lost: stop the work. A renewal never acquires a lock.
print "nothing to renew\n" unless dlock($redis, "RENEW", "recipe:renew", "alice", "TOKEN", $token);
