# frozen_string_literal: true

# Interrupts an acquisition at its lines, one after the other: nothing stays behind. DLOCK_LINES=1 takes each line (half
# a minute); the default is every 11th, from a random one.

require_relative "server"

Stop = Class.new(Exception) # rubocop:disable Lint/InheritException -- like Timeout's
LIBRARY = File.expand_path("../lib", __dir__)
STEP = Integer(ENV.fetch("DLOCK_LINES", "11"))

# Runs work and interrupts it at line N. Returns whether it has that many lines.
def interrupt(line, &work)
  seen = 0
  main = Thread.current
  trace = TracePoint.new(:line) do |point|
    next unless Thread.current == main && point.path.start_with?(LIBRARY) && (seen += 1) == line

    trace.disable
    main.raise(Stop)
  end
  trace.enable
  work.call
  trace.disable
  seen >= line
rescue Stop
  true
ensure
  trace.disable
end

redis = Redis.new(host: HOST, port: PORT)
locks = Dlock.new(redis)
failures = []
played = 0
named = locks.session
[false, true, named].product([false, true]).each do |session, waits|
  (rand(1..STEP)..).step(STEP) do |line|
    name = "interrupts:#{session.class}:#{waits}:#{line}"
    held = Dlock.new(URL).lock(name, lease: 600) if waits
    releasing = Thread.new { sleep(0.01) && held.release } if waits
    goes_on = interrupt(line) { locks.lock(name, lease: 600, session: session) { nil } }
    releasing&.join
    played += 1
    ends = Dlock.now + 5000
    sleep(0.001) while (left = redis.call("DLOCK.INFO", name)) && Dlock.now < ends
    failures << "#{name}: #{left}" if left
    break unless goes_on
  end
end
named.close
puts failures
puts "#{played - failures.size} passed, #{failures.size} failed"
exit failures.empty?
