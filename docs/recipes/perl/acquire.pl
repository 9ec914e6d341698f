# Acquire a lock, or learn at once that another owner holds it.
use strict;
use warnings;
use Redis;

# Redis.pm sends any method that it does not know as a command. The name is in a variable because it has a dot.
# The reply nil is undef.
sub dlock { my ($redis, $command, @arguments) = @_; my $name = "DLOCK.$command"; return $redis->$name(@arguments) }

my $address = ($ENV{DLOCK_TEST_HOST} // "127.0.0.1") . ":" . ($ENV{DLOCK_TEST_PORT} // 6379);
my $redis = Redis->new(server => $address);

my $token = dlock($redis, "ACQUIRE", "recipe:acquire", "alice", "PX", 30000);
print "alice: granted\n" if $token;
print "bob: not granted\n" unless dlock($redis, "ACQUIRE", "recipe:acquire", "bob", "PX", 30000);

# The release carries the token, so a late release cannot affect the next hold.
print "alice: released\n" if dlock($redis, "RELEASE", "recipe:acquire", "alice", "TOKEN", $token) == 1;
