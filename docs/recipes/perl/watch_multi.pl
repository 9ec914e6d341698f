# A transaction that takes effect only if the lock is still held: WATCH the lock, check it, then MULTI.
use strict;
use warnings;
use Redis;

# Redis.pm sends any method that it does not know as a command. The name is in a variable because it has a dot.
# The reply nil is undef.
sub dlock { my ($redis, $command, @arguments) = @_; my $name = "DLOCK.$command"; return $redis->$name(@arguments) }

my $address = ($ENV{DLOCK_TEST_HOST} // "127.0.0.1") . ":" . ($ENV{DLOCK_TEST_PORT} // 6379);
my $redis = Redis->new(server => $address);
my $other = Redis->new(server => $address);

# Writes if the lock is still held under this token, and returns whether it has. `$meanwhile` runs before MULTI.
sub write_value {
    my ($token, $value, $meanwhile) = @_;
    $redis->watch("recipe:watch_multi");
    if (!dlock($redis, "CHECK", "recipe:watch_multi", $token)) {
        $redis->unwatch;
        return;
    }
    $meanwhile->();
    $redis->multi;
    $redis->set("recipe:value", $value);
    my @replies = $redis->exec;
    return defined $replies[0]; # EXEC replies nil if the lock has changed since WATCH
}

my $token = dlock($redis, "ACQUIRE", "recipe:watch_multi", "alice", "PX", 30000);
print "alice: written\n" if write_value($token, "one", sub { });
print "alice: not written, the lock was lost\n"
    unless write_value($token, "two", sub { $other->del("recipe:watch_multi") });
