# frozen_string_literal: true

# Interrupts an acquisition at one line of the library after the other, in half of the rounds once more up to 60 lines
# later, which is often in the cleanup. Checks that the lock becomes free, and that the next lock can be acquired.
# DLOCK_LINES=1 interrupts at each line, and takes a minute. The default is every third line, beginning with a random
# one.

require_relative "server"

Stop = Class.new(Exception) # rubocop:disable Lint/InheritException -- like Timeout's
LIBRARY = File.expand_path("../lib", __dir__)
STEP = Integer(ENV.fetch("DLOCK_LINES", "3"))

# Runs the block, and interrupts it at these lines, as they are executed. Returns whether it gets to the first.
def interrupt(lines, &work)
  seen = 0
  main = Thread.current
  trace = TracePoint.new(:line) do |point|
    next unless Thread.current == main && point.path.start_with?(LIBRARY) && lines.include?(seen += 1)

    main.raise(Stop)
  end
  trace.enable
  work.call
  trace.disable
  seen >= lines.first
rescue Stop
  true
ensure
  trace.disable
  arrived
end

# Waits for the interrupts that the library held back (Thread.handle_interrupt), and ignores them.
def arrived
  sleep(0.001) while Thread.pending_interrupt?
rescue Stop
  retry
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
    # A new alarm has no thread yet, as in a new process.
    Dlock.module_eval { remove_const(:ALARM) && const_set(:ALARM, Dlock::Alarm.new) }
    lines = [line, line + rand(1..60)].first(rand(1..2))
    goes_on = interrupt(lines) { locks.lock(name, lease: 600, session: session) { nil } }
    locks.lock("#{name}:next", lease: 600) { nil }
    releasing&.join
    played += 1
    ends = Dlock.now + 5000
    sleep(0.001) while (left = redis.call("DLOCK.INFO", name)) && Dlock.now < ends
    failures << "#{name}, interrupted at #{lines}: #{left}" if left
    break unless goes_on
  end
end

# A release without a block that is interrupted has not begun, or is done in the background.
left = [false, true, named].flat_map do |session|
  names = []
  (rand(1..STEP)..).step(STEP) do |line|
    names << (name = "interrupts:release:#{session.class}:#{line}")
    hold = locks.lock(name, lease: 600, session: session)
    goes_on = interrupt([line]) { hold.release }
    failures << "#{name}: neither held nor released" unless hold.held? ^ hold.released?
    begin
      hold.release unless hold.released?
    rescue Dlock::Lost => e
      failures << e.message
    end
    break unless goes_on
  end
  played += names.size
  names
end
ends = Dlock.now + 10_000
sleep(0.01) until (left = left.select { |name| redis.exists?(name) }).empty? || Dlock.now > ends
failures.concat(left.map { |name| "#{name}: the interrupted release has left it" })
named.close
puts failures
puts "#{played - failures.size} passed, #{failures.size} failed"
exit failures.empty?
